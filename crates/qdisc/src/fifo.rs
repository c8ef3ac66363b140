//! `pfifo` and `bfifo`.

use narrows_units::Bytes;

/// Where a FIFO ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Config {
    /// `pfifo`: at so many packets.
    Packets(u32),
    /// `bfifo`: at so many bytes of frames.
    Bytes(Bytes),
}
