//! What packets acknowledge, where it was read.
//!
//! The table of acknowledgements beside the packets is written only for whoever asks for it
//! ([`narrows_packet::Reading`]). Whoever begins to ask while packets are queued finds with these
//! what stood there before: another packet's. So he says since when he has asked, and knows nothing
//! of packets that came earlier.

use narrows_packet::{Acknowledgement, PacketId, Packets};
use narrows_units::Nanos;

/// Acknowledgements of packets that came in after somebody asked for them.
#[derive(Clone, Copy, Default)]
pub(crate) struct Acknowledgements {
    since: Nanos,
}

impl Acknowledgements {
    /// They are asked for from `now` on: not of what came in up to then.
    pub(crate) fn ask(&mut self, now: Nanos) {
        self.since = now + Nanos(1);
    }

    /// What `id` acknowledges; nothing where that was not read.
    #[inline]
    pub(crate) fn of(self, packets: &Packets, id: PacketId) -> Acknowledgement {
        if packets.meta(id).arrival < self.since {
            return Acknowledgement::default();
        }
        packets.acknowledgement(id)
    }

    /// `id` comes from another qdisc, which may not have asked.
    pub(crate) fn forget(packets: &mut Packets, id: PacketId) {
        packets.set_acknowledgement(id, Acknowledgement::default());
    }
}
