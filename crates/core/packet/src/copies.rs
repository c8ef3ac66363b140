//! Copies of packets, for a qdisc that duplicates.
//!
//! A qdisc has no frames. The owner of the frames puts some aside before it calls a qdisc that may
//! copy ([`Reading::copies`](crate::Reading)), copies bytes afterwards, and takes back the rest.
//! A copy that finds no frame is counted as made and as dropped, so the packet balance adds up.

use crate::PacketId;
use narrows_units::Bytes;

/// The most frames that are put aside at once.
pub const SPARES_MAX: usize = 256;

/// The spare frames for copies of packets, and the copies that are to be made.
#[derive(Default)]
pub(crate) struct Copies {
    /// Packets whose frames are free.
    pub(crate) spare: Vec<PacketId>,
    /// How long a packet each of them can hold.
    pub(crate) room: Bytes,
    /// Copies whose bytes are not there yet: of which packet, and which.
    pub(crate) made: Vec<(PacketId, PacketId)>,
    /// How many copies were to be made, since they were last taken.
    pub(crate) count: u64,
}

impl Copies {
    /// Makes room for what is put aside.
    pub(crate) fn prepare(&mut self) {
        self.spare.reserve_exact(SPARES_MAX.saturating_sub(self.spare.len()));
        self.made.reserve_exact(SPARES_MAX.saturating_sub(self.made.len()));
    }
}
