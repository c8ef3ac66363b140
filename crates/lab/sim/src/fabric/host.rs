//! A host that sends: a calendar holds its packets until their time, and released packets wait for
//! the line.
//!
//! The host polls when the calendar says, and takes all that is due: a *batch*, which a driver
//! would hand to the device at once.

use super::device::Device;
use super::workload::Pattern;
use narrows_packet::{PacketId, Packets};
use narrows_qdisc::pacing::{Calendar, Slot};
use narrows_units::Nanos;

/// A host.
pub(super) struct Host {
    pub(super) pattern: Pattern,
    /// Connections that have begun and are not complete.
    pub(super) flows: u32,
    calendar: Box<dyn Calendar>,
    /// Packets in the calendar.
    held: u32,
    pub(super) device: Device,
    /// How many batches there were.
    pub(super) batches: u64,
    /// How many packets in all of them.
    pub(super) packets: u64,
}

impl Host {
    pub(super) fn new(pattern: Pattern, calendar: Box<dyn Calendar>) -> Self {
        Self {
            pattern,
            flows: 0,
            calendar,
            held: 0,
            device: Device::default(),
            batches: 0,
            packets: 0,
        }
    }

    /// Holds `id` until its time; returns when that is.
    pub(super) fn hold(
        &mut self,
        packets: &mut Packets,
        id: PacketId,
        slot: Slot,
        now: Nanos,
    ) -> Nanos {
        self.held += 1;
        self.calendar.insert(packets, id, slot, now)
    }

    /// Takes the due packets into the empty `batch`.
    pub(super) fn take_due(
        &mut self,
        packets: &mut Packets,
        now: Nanos,
        batch: &mut Vec<PacketId>,
    ) {
        while let Some(id) = self.calendar.pop(packets, now) {
            batch.push(id);
        }
        self.batches += u64::from(!batch.is_empty());
        self.packets += batch.len() as u64;
        self.held -= batch.len() as u32;
    }

    /// When there is something to do; [`Nanos::MAX`] if there is nothing.
    pub(super) fn next_at(&self, now: Nanos) -> Nanos {
        let due = self.calendar.next().map_or(Nanos::MAX, |at| at.max(now));
        due.min(self.device.next_at())
    }

    /// Packets in here.
    pub(super) fn held(&self) -> u32 {
        self.held
    }
}
