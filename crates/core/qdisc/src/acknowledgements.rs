//! What packets acknowledge, if it was parsed.
//!
//! The table of acknowledgements beside the packets is filled only for qdiscs that ask for it
//! ([`narrows_packet::Reading`]). If a qdisc starts to ask while packets are queued, their entries
//! are stale: they belong to other packets. So the reader records since when it has asked, and
//! ignores entries of earlier packets.

use narrows_packet::{Acknowledgement, PacketId, Packets};
use narrows_units::Nanos;

/// Acknowledgements of packets that arrived after a qdisc asked for them.
#[derive(Clone, Copy, Default)]
pub(crate) struct Acknowledgements {
    since: Nanos,
}

impl Acknowledgements {
    /// They are requested from `now` on: earlier arrivals were not parsed.
    pub(crate) fn ask(&mut self, now: Nanos) {
        self.since = now + Nanos(1);
    }

    /// The acknowledgement of `id`; empty if it was not parsed.
    #[inline]
    pub(crate) fn of(self, packets: &Packets, id: PacketId) -> Acknowledgement {
        if packets.meta(id).arrival < self.since {
            return Acknowledgement::default();
        }
        packets.acknowledgement(id)
    }

    /// `id` comes from another qdisc, which may not have requested parsing.
    pub(crate) fn forget(packets: &mut Packets, id: PacketId) {
        packets.set_acknowledgement(id, Acknowledgement::default());
    }
}
