//! The two loads.

use narrows_coordination::Limit;
use narrows_units::{Bytes, Nanos, Rate};

/// The bucket holds what the limit passes in this time, so that a thread that a busy machine
/// keeps from its core for so long has lost nothing of the rate.
const BURST: Nanos = Nanos::from_millis(10);

/// The limit of all queues together: more than all packets, so that nothing is dropped for lack of
/// room, however small a meter's share. As a drop horizon it is its time at the rate: 55 ms far
/// below the limit, 55 s at it.
const BACKLOG: Bytes = Bytes(1 << 36);

/// The offered load, and the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// Packets of 64 bytes under a limit that no machine reaches: what a packet costs.
    Unbound,
    /// Packets of 1500 bytes, always more than the limit lets go: how it is kept.
    Bound,
}

impl Load {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Unbound, Self::Bound];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unbound => "unbound",
            Self::Bound => "bound",
        }
    }

    /// The limit: 10 Tbit/s, or 10 Gbit/s.
    pub fn limit(self) -> Limit {
        let rate = Rate::from_bits_per_sec(match self {
            Self::Unbound => 10_000_000_000_000,
            Self::Bound => 10_000_000_000,
        });
        Limit { rate, burst: rate.bytes_in(BURST), peak: None, backlog: BACKLOG }
    }

    /// The length of its packets.
    pub(super) const fn packet_bytes(self) -> u32 {
        match self {
            Self::Unbound => 64,
            Self::Bound => 1500,
        }
    }

    /// How many packets a thread has. Far below the limit, two batches: the new one, and the rest
    /// of the previous one. At the limit, a standing queue: as much as the whole limit passes in
    /// 300 us, three times the time for which `tbf` delays departures so that several leave at
    /// once. `edt` makes up only for packets that it has stamped: a thread that loses its core for
    /// longer than this pool lasts costs it rate.
    pub(super) const fn pool(self) -> u32 {
        match self {
            Self::Unbound => 128,
            Self::Bound => 256,
        }
    }
}
