//! Packets under way, by the time at which they arrive.
//!
//! With a constant delay each packet goes behind all others, into a FIFO. A packet that must
//! overtake the last one of the FIFO goes into a heap. The earlier of both heads is next; of equal
//! times, the earlier arrival.
//!
//! Cost: O(1) in the FIFO, O(log n) in the heap, which grows by doubling.

use narrows_packet::{Backlog, Fifo, PacketId, Packets};
use narrows_units::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A delay line: packets under way, by the time at which they arrive.
#[derive(Default)]
pub(super) struct Line {
    /// Each no earlier than the one before it; their times are in
    /// [`Meta::edt`](narrows_packet::Meta::edt).
    queue: Fifo,
    /// The time of the last of those.
    last: Nanos,
    /// By time, and then by arrival.
    early: BinaryHeap<Reverse<(Nanos, u64, PacketId)>>,
    came: u64,
    backlog: Backlog,
}

impl Line {
    /// Packets under way.
    #[inline]
    pub(super) fn backlog(&self) -> Backlog {
        self.backlog
    }

    /// When the first will have arrived.
    #[inline]
    pub(super) fn first(&self, packets: &Packets) -> Option<Nanos> {
        let queued = self.queue.front().map(|id| packets.meta(id).edt);
        let early = self.early.peek().map(|Reverse((at, ..))| *at);
        match (queued, early) {
            (Some(queued), Some(early)) => Some(queued.min(early)),
            (queued, early) => queued.or(early),
        }
    }

    /// Sends `id` on its way; it arrives at `at`.
    #[inline(always)]
    pub(super) fn insert(&mut self, packets: &mut Packets, id: PacketId, at: Nanos) {
        self.backlog.packets += 1;
        self.backlog.bytes += packets.len(id);
        if self.queue.front().is_some() && at < self.last {
            self.came += 1;
            self.early.push(Reverse((at, self.came, id)));
            return;
        }
        packets.meta_mut(id).edt = at;
        self.last = at;
        self.queue.push_back(packets, id);
    }

    /// Sends `id` on its way; it arrives behind all others, at `at` or later.
    pub(super) fn append(&mut self, packets: &mut Packets, id: PacketId, at: Nanos) {
        let latest = |line: &Self| line.early.iter().map(|Reverse((at, ..))| *at).max();
        let behind = if self.queue.front().is_some() { Some(self.last) } else { latest(self) };
        self.insert(packets, id, at.max(behind.unwrap_or(Nanos::ZERO)));
    }

    /// Takes out the first, if it has arrived at `now`, with its time.
    #[inline]
    pub(super) fn pop(&mut self, packets: &mut Packets, now: Nanos) -> Option<(Nanos, PacketId)> {
        let queued = self.queue.front().map_or(Nanos::MAX, |id| packets.meta(id).edt);
        let is_early = self.early.peek().is_some_and(|Reverse((at, ..))| *at < queued);
        let (at, id) = if is_early {
            let Reverse((at, ..)) = self.early.peek()?;
            if *at > now {
                return None;
            }
            let Reverse((at, _, id)) = self.early.pop()?;
            (at, id)
        } else {
            if queued > now {
                return None;
            }
            let id = self.queue.pop_front(packets)?;
            // A qdisc above would take this time for a meter's stamp.
            packets.meta_mut(id).edt = Nanos::ZERO;
            (queued, id)
        };
        self.backlog.packets -= 1;
        self.backlog.bytes.0 -= packets.len(id).0;
        Some((at, id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_units::Bytes;
    use proptest::prelude::*;

    proptest! {
        /// The oracle is a list that is stably sorted each time.
        #[test]
        fn packets_arrive_in_the_order_of_their_times_and_else_as_they_came(
            steps in prop::collection::vec((0u64..30, 0u64..40, any::<bool>()), 1..300),
        ) {
            let mut packets = Packets::new(300);
            let (mut line, mut model) = (Line::default(), Vec::new());
            let mut now = Nanos(1);
            for (number, (pause, delay, takes)) in steps.into_iter().enumerate() {
                let id = PacketId(number as u32);
                now += Nanos(pause);
                packets.arrive(id, 100 + number as u32, now);
                line.insert(&mut packets, id, now + Nanos(delay));
                model.push((now + Nanos(delay), id));
                model.sort_by_key(|(at, _)| *at);
                prop_assert_eq!(line.first(&packets), model.first().map(|(at, _)| *at));
                loop {
                    if !takes {
                        break;
                    }
                    let expected = model.first().filter(|(at, _)| *at <= now).copied();
                    prop_assert_eq!(line.pop(&mut packets, now), expected);
                    if expected.is_none() {
                        break;
                    }
                    model.remove(0);
                }
                let bytes = Bytes(model.iter().map(|(_, id)| packets.len(*id).0).sum());
                prop_assert_eq!(line.backlog(), Backlog { packets: model.len() as u32, bytes });
            }
        }
    }

    #[test]
    fn appended_packets_arrive_last() {
        let mut packets = Packets::new(4);
        let mut line = Line::default();
        for (id, at) in [(0, 100), (1, 50), (2, 70)] {
            packets.arrive(PacketId(id), 60, Nanos(1));
            line.insert(&mut packets, PacketId(id), Nanos(at));
        }
        packets.arrive(PacketId(3), 60, Nanos(1));
        line.append(&mut packets, PacketId(3), Nanos(10));
        let order: Vec<u32> =
            std::iter::from_fn(|| line.pop(&mut packets, Nanos(100))).map(|(_, id)| id.0).collect();
        assert_eq!(order, [1, 2, 0, 3]);
        assert_eq!(line.first(&packets), None);
    }
}
