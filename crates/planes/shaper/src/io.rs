//! A worker's interface to the outside world.
//!
//! A worker serves one queue of each of two ports. [`Io`] hides where the packets really come from
//! (AF_XDP rings, a simulator's links, a test's vectors), so the same worker runs in all of them.

use narrows_packet::{Batch, PacketId, Packets, Reading};
use narrows_units::{Bytes, Nanos};

/// Which of the two ports of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The port named first.
    A,
    /// The port named second.
    B,
}

impl Side {
    /// Both, first to last.
    pub const BOTH: [Self; 2] = [Self::A, Self::B];

    /// The other port.
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// Its index in a pair.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// One queue of each port, and the frames of their packets.
///
/// A packet belongs to the I/O until [`Io::receive`] hands it over, and again from
/// [`Io::transmit`] or [`Io::release`] on.
pub trait Io {
    /// The size of the frames.
    fn frame(&self) -> Bytes;

    /// Moves packets that arrived at `side` into `out` until it is full, recording each in
    /// `packets` with `now` as its arrival. Malformed ones are discarded there.
    fn receive(&mut self, side: Side, packets: &mut Packets, now: Nanos, out: &mut Batch);

    /// Touches the headers of `packet`, which will soon be read. The processor does not wait for
    /// them.
    fn prefetch(&self, _packet: PacketId) {}

    /// Records in `packets` the header fields of `packet`, which was just received, that `reading`
    /// asks for. Unknown fields are left as they are.
    fn read(&self, packet: PacketId, reading: Reading, packets: &mut Packets);

    /// The contiguous bytes of `packet`, from its Ethernet header on, for filters. Empty if there
    /// are no bytes, as in a simulation.
    fn bytes(&self, _packet: PacketId) -> &[u8] {
        &[]
    }

    /// The most frames for queued packets of both directions together.
    fn places(&self) -> u32;

    /// The number of frames that packets arriving at `ingress` may still fill, without those that
    /// reception or the other direction needs. Received packets count already; `None` if they
    /// exceed it.
    fn spare_frames(&self, ingress: Side) -> Option<u32>;

    /// Takes free frames for copies of packets that arrived at `ingress`: packets with room for
    /// `longest` bytes each, into `out` until it is full or no more may wait. [`Io::release`] takes
    /// back those that are not used.
    fn put_aside(&mut self, _ingress: Side, _longest: Bytes, _out: &mut Batch) {}

    /// Copies the bytes of `from` to `to`, which was put aside with room for them.
    fn copy(&mut self, _from: PacketId, _to: PacketId) {}

    /// How many packets [`Io::transmit`] takes at `side` now.
    fn room(&mut self, side: Side) -> usize;

    /// Sends `batch`, which is no longer than [`Io::room`] said, out of `side`, rewritten as
    /// `packets` says.
    fn transmit(&mut self, side: Side, packets: &Packets, batch: &Batch);

    /// Takes back the frames of packets that were dropped.
    fn release(&mut self, dropped: &Batch);

    /// Whether packets that [`Io::transmit`] took still wait for the device, which may need another
    /// call.
    fn is_unsent(&self) -> bool;
}
