//! A host that sends: a calendar holds its packets until their time, and released packets wait for
//! the line.
//!
//! The host polls when the calendar says, and takes all that is due: a *batch*, which a driver
//! would hand to the device at once.
//!
//! Where it estimates the rate to each destination, the estimate decides how long a packet's slot
//! is, and the packets that leave change it, as in the qdisc
//! ([`Bundles`](narrows_qdisc::pacing::Bundles)).

use super::device::Device;
use super::workload::Pattern;
use narrows_packet::{PacketId, Packets};
use narrows_qdisc::pacing::{Bundles, Calendar, Slot};
use narrows_units::{Bytes, Nanos, Rate};

/// A host.
pub(super) struct Host {
    pub(super) pattern: Pattern,
    /// Connections that have begun and are not complete.
    pub(super) flows: u32,
    calendar: Box<dyn Calendar>,
    /// Its estimates of the rates to its destinations, if they decide where packets wait.
    bundles: Option<Bundles>,
    /// Packets in the calendar.
    held: u32,
    pub(super) device: Device,
    /// How many batches there were.
    pub(super) batches: u64,
    /// How many packets in all of them.
    pub(super) packets: u64,
}

impl Host {
    pub(super) fn new(
        pattern: Pattern,
        calendar: Box<dyn Calendar>,
        bundles: Option<Bundles>,
    ) -> Self {
        Self {
            pattern,
            flows: 0,
            calendar,
            bundles,
            held: 0,
            device: Device::default(),
            batches: 0,
            packets: 0,
        }
    }

    /// How long a slot is for a packet to the host `to` that may leave at `departure`, as a power
    /// of two of nanoseconds; `own` by the rate of its connection.
    pub(super) fn spacing(&mut self, to: u32, departure: Nanos, own: u32, now: Nanos) -> u32 {
        let Some(bundles) = &mut self.bundles else { return own };
        let spacing = bundles.spacing(to, Rate::default(), now);
        if departure <= now {
            bundles.came_late(to, now);
        }
        spacing.unwrap_or(own)
    }

    /// A packet of `len` bytes to the host `to` has left with the slot `slot`.
    pub(super) fn left(&mut self, to: u32, slot: Nanos, len: u32, now: Nanos) {
        if let Some(bundles) = &mut self.bundles {
            bundles.left(to, slot, Bytes(u64::from(len)), now);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Structure;

    fn host(structure: Structure) -> Host {
        Host::new(Pattern::Fanout, structure.calendar(), structure.bundles(20))
    }

    #[test]
    fn slots_are_as_long_as_the_rate_to_the_destination_allows() {
        let mut host = host(Structure::Estimating);
        let later = Nanos::from_millis(1);
        // 20 Gbit/s is assumed, whatever the connection's own rate is.
        assert_eq!([5, 6].map(|to| host.spacing(to, later, 12, Nanos::ZERO)), [9, 9]);
        for packet in 1..=40 {
            let now = Nanos(packet * 3000);
            host.left(5, now, 1500, now);
        }
        assert_eq!([5, 6].map(|to| host.spacing(to, later, 12, Nanos(130_000))), [11, 9]);
    }

    #[test]
    fn a_packet_that_comes_late_begins_another_window() {
        let mut host = host(Structure::Estimating);
        for packet in 1..=40 {
            let now = Nanos(packet * 3000);
            host.left(5, now, 1500, now);
            host.spacing(5, now, 12, now);
        }
        assert_eq!(host.spacing(5, Nanos::from_millis(1), 12, Nanos(130_000)), 9);
    }

    #[test]
    fn without_estimates_it_is_the_connection_s_rate_that_counts() {
        let mut host = host(Structure::FlowBundler);
        host.left(5, Nanos(3000), 1500, Nanos(3000));
        assert_eq!(host.spacing(5, Nanos(4000), 12, Nanos(4000)), 12);
    }
}
