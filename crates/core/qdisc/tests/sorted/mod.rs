//! A calendar that could not be simpler, and rounds nothing.

use narrows_packet::{PacketId, Packets};
use narrows_qdisc::pacing::{Calendar, Slot};
use narrows_units::Nanos;
use std::collections::BTreeMap;

/// A map: the first entry is due.
#[derive(Default)]
pub struct Sorted(BTreeMap<(Nanos, u64), PacketId>, u64);

impl Calendar for Sorted {
    fn insert(&mut self, packets: &mut Packets, id: PacketId, slot: Slot, _: Nanos) -> Nanos {
        let time = slot.at.max(slot.behind);
        packets.meta_mut(id).edt = time;
        self.0.insert((time, self.1), id);
        self.1 += 1;
        time
    }

    fn pop(&mut self, _: &mut Packets, now: Nanos) -> Option<PacketId> {
        let first = self.0.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    fn next(&self) -> Option<Nanos> {
        self.0.first_key_value().map(|((time, _), _)| *time)
    }

    fn drain(&mut self, _: &mut Packets) -> Option<PacketId> {
        self.0.pop_first().map(|(_, id)| id)
    }

    fn memory(&self) -> usize {
        0
    }
}
