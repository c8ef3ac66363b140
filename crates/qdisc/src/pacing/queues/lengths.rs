//! Which flow is the longest, nearly: lists by length, made when there are too many packets.
//!
//! A flow is in the list of its length, of which there are four for each power of two. The flow
//! that is taken is no more than a fifth shorter than the longest; an order in which all are exact
//! would cost O(log flows) a packet, and a look at all of them more than that. Lists are made when
//! they are first needed and kept up while there are many packets; at all other times queues come
//! and go without them.
//!
//! Cost: nothing but a comparison while there are few packets; else a comparison, and three flows
//! where one changes its list. O(flows) once at the beginning and at the end.

use super::flow::Flow;
use crate::flow_table::NONE;

/// The list of those that are in none.
pub(super) const UNLISTED: u8 = u8::MAX;
/// Lists for each power of two, as a power of two.
const FINE: u32 = 2;
/// Lists: up to 4 GiB.
const LISTS: usize = 32 << FINE;

/// The list of a queue of `bytes`.
fn class(bytes: u64) -> u8 {
    let bytes = bytes.clamp(1 << FINE, u64::from(u32::MAX));
    let power = bytes.ilog2();
    ((power << FINE) as u64 + ((bytes >> (power - FINE)) & ((1 << FINE) - 1))) as u8
}

/// Flows by what they have queued behind their head; live or without any.
pub(super) struct Lengths {
    heads: Box<[u32; LISTS]>,
    /// Which lists are not empty.
    filled: u128,
    is_live: bool,
}

impl Lengths {
    pub(super) fn new() -> Self {
        Self { heads: Box::new([NONE; LISTS]), filled: 0, is_live: false }
    }

    /// Whether it is kept up.
    #[inline]
    pub(super) fn is_live(&self) -> bool {
        self.is_live
    }

    /// Takes in all flows that have packets behind their head.
    pub(super) fn begin(&mut self, flows: &mut [Flow]) {
        self.is_live = true;
        for id in 0..flows.len() as u32 {
            self.changed(flows, id);
        }
    }

    /// Forgets them.
    pub(super) fn end(&mut self, flows: &mut [Flow]) {
        while let Some(id) = self.longest() {
            self.remove(flows, id);
        }
        self.is_live = false;
    }

    /// The queue of `id` has become longer or shorter.
    #[inline]
    pub(super) fn changed(&mut self, flows: &mut [Flow], id: u32) {
        let flow = &flows[id as usize];
        let backlog = flow.queue.backlog();
        let class = if backlog.is_empty() { UNLISTED } else { class(backlog.bytes.0) };
        if flow.class != class {
            self.move_to(flows, id, class);
        }
    }

    fn move_to(&mut self, flows: &mut [Flow], id: u32, class: u8) {
        if flows[id as usize].class != UNLISTED {
            self.remove(flows, id);
        }
        if class == UNLISTED {
            return;
        }
        let next = std::mem::replace(&mut self.heads[usize::from(class)], id);
        self.filled |= 1 << class;
        let flow = &mut flows[id as usize];
        (flow.class, flow.next, flow.previous) = (class, next, NONE);
        if next != NONE {
            flows[next as usize].previous = id;
        }
    }

    fn remove(&mut self, flows: &mut [Flow], id: u32) {
        let flow = &mut flows[id as usize];
        let Flow { class, next, previous, .. } = *flow;
        flow.class = UNLISTED;
        if next != NONE {
            flows[next as usize].previous = previous;
        }
        if previous != NONE {
            flows[previous as usize].next = next;
            return;
        }
        self.heads[usize::from(class)] = next;
        if next == NONE {
            self.filled &= !(1 << class);
        }
    }

    /// One of the longest.
    pub(super) fn longest(&self) -> Option<u32> {
        let class = self.filled.checked_ilog2()?;
        Some(self.heads[class as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_packet::{PacketId, Packets};
    use narrows_units::Nanos;
    use proptest::prelude::*;

    const FLOWS: u32 = 20;

    #[test]
    fn lists_are_in_order_and_a_fifth_apart() {
        for bytes in 8..100_000u64 {
            let next = bytes * 5 / 4 + 1;
            assert!(class(bytes) <= class(bytes + 1) && class(bytes) < class(next), "{bytes}");
        }
        assert_eq!(usize::from(class(u64::MAX)), LISTS - 1);
    }

    proptest! {
        /// The oracle looks at all queues, each time.
        #[test]
        fn nobody_is_longer_by_more_than_a_quarter(
            steps in prop::collection::vec((0..FLOWS, prop::option::weighted(0.6, 60u32..9000)), 1..300),
            begins in 0usize..100,
        ) {
            let mut packets = Packets::new(300);
            let mut flows: Vec<Flow> = (0..FLOWS).map(Flow::new).collect();
            let mut lengths = Lengths::new();
            for (step, (flow, arrival)) in steps.into_iter().enumerate() {
                let queue = &mut flows[flow as usize].queue;
                match arrival {
                    Some(len) => {
                        let packet = PacketId(step as u32);
                        packets.arrive(packet, len, Nanos::ZERO);
                        queue.push_back(&mut packets, packet);
                    }
                    None => drop(queue.pop_front(&mut packets)),
                }
                if lengths.is_live() {
                    lengths.changed(&mut flows, flow);
                } else if step >= begins {
                    lengths.begin(&mut flows);
                }
                let bytes = |flow: &Flow| flow.queue.backlog().bytes.0;
                let longest = flows.iter().map(bytes).max().unwrap();
                if lengths.is_live() {
                    let found = lengths.longest().map_or(0, |id| bytes(&flows[id as usize]));
                    prop_assert!(found * 5 / 4 + 1 >= longest, "{found} of {longest}");
                    prop_assert_eq!(found == 0, longest == 0);
                }
            }
            lengths.end(&mut flows);
            prop_assert!(!lengths.is_live() && lengths.longest().is_none());
            prop_assert!(flows.iter().all(|flow| flow.class == UNLISTED));
        }
    }
}
