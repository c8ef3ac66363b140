//! The parameters of `sfq`, as an operator states them: `tc-sfq(8)`.

use narrows_packet::Reading;
use narrows_units::Nanos;

/// The most places, as in Linux.
pub const DIVISOR_MAX: u32 = 65_536;
/// The most packets of a flow, as in Linux.
pub const DEPTH_MAX: u32 = 65_535;

/// The parameters of an instance. Plain data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// How many packets may be queued (`limit`).
    pub limit: u32,
    /// How many packets of a flow may be queued, at least 1 (`depth`).
    pub depth: u32,
    /// How many flows may have packets at once, at least 1 (`flows`).
    pub flows: u32,
    /// How many places flows are spread over, at least 1 (`divisor`).
    pub divisor: u32,
    /// Bytes that a flow may send in its turn, at least 1 (`quantum`).
    pub quantum: u32,
    /// How often the hash changes; zero is never (`perturb`).
    pub perturb: Nanos,
    /// Whether the first packet of a flow is dropped, not the last (`headdrop`).
    pub headdrop: bool,
}

impl Config {
    /// The packet fields that it reads.
    pub(crate) const READING: Reading = Reading { headers: true, ..Reading::NOTHING };

    /// `sfq` without any word, for frames of up to `frame` bytes.
    pub const fn for_frames_of(frame: u32) -> Self {
        Self {
            limit: 127,
            depth: 127,
            flows: 128,
            divisor: 1024,
            quantum: frame,
            perturb: Nanos::ZERO,
            headdrop: false,
        }
    }

    /// The part of a configuration that assigns packets to queues. If it changes, the instance
    /// cannot keep its queues: another must adopt the packets.
    pub fn sorting(&self) -> u32 {
        self.divisor
    }
}

impl Default for Config {
    /// `sfq` without any word, on Ethernet.
    fn default() -> Self {
        Self::for_frames_of(1514)
    }
}
