//! Which flow is the longest: a heap, built when the memory is used up.
//!
//! An overflow drops from the longest queue, so the flow that fills the memory pays for it. The
//! heap that finds it is built on first need and maintained while memory stays short; at all other
//! times queues come and go without it. Flows without packets are not in it: a flow to drop from
//! always has a packet, and the slot of a forgotten flow is not referenced.
//!
//! Source: "Piece of CAKE", section III-E.
//!
//! Cost: only a comparison while there is enough memory; else O(log flows) per packet, and O(flows)
//! once at the beginning and at the end.

use super::flow::Flow;
use super::slab::{NONE, Slab};

/// The flows by what they have queued; live or without any.
pub(super) struct Overflow {
    heap: Vec<u16>,
}

impl Overflow {
    pub(super) const fn new() -> Self {
        Self { heap: Vec::new() }
    }

    /// Whether it is kept up.
    #[inline]
    pub(super) fn is_live(&self) -> bool {
        !self.heap.is_empty()
    }

    /// Takes in all flows that have packets.
    pub(super) fn begin(&mut self, flows: &mut Slab<Flow>) {
        self.heap.extend((0..flows.taken()).filter(|&id| !flows[id].is_empty()));
        for place in 0..self.heap.len() {
            flows[self.heap[place]].heap = place as u16;
        }
        for place in (0..self.heap.len() / 2).rev() {
            self.sink(flows, place);
        }
    }

    /// Forgets them.
    pub(super) fn end(&mut self, flows: &mut Slab<Flow>) {
        for id in self.heap.drain(..) {
            flows[id].heap = NONE;
        }
    }

    /// The queue of `id` has become longer or shorter.
    pub(super) fn changed(&mut self, flows: &mut Slab<Flow>, id: u16) {
        if flows[id].is_empty() {
            self.remove(flows, id);
            return;
        }
        if flows[id].heap == NONE {
            flows[id].heap = self.heap.len() as u16;
            self.heap.push(id);
        }
        self.moved(flows, id);
    }

    /// The queue of `id` is empty.
    fn remove(&mut self, flows: &mut Slab<Flow>, id: u16) {
        if flows[id].heap == NONE {
            return;
        }
        let place = usize::from(std::mem::replace(&mut flows[id].heap, NONE));
        self.heap.swap_remove(place);
        if let Some(&last) = self.heap.get(place) {
            flows[last].heap = place as u16;
            self.moved(flows, last);
        }
    }

    /// `id` may be too low or too high.
    fn moved(&mut self, flows: &mut Slab<Flow>, id: u16) {
        let place = usize::from(flows[id].heap);
        self.rise(flows, place);
        let place = usize::from(flows[id].heap);
        self.sink(flows, place);
    }

    /// The longest.
    pub(super) fn longest(&self) -> Option<u16> {
        self.heap.first().copied()
    }

    fn bytes(&self, flows: &Slab<Flow>, place: usize) -> u64 {
        flows[self.heap[place]].queue.backlog().bytes.0
    }

    fn swap(&mut self, flows: &mut Slab<Flow>, one: usize, other: usize) {
        self.heap.swap(one, other);
        flows[self.heap[one]].heap = one as u16;
        flows[self.heap[other]].heap = other as u16;
    }

    fn rise(&mut self, flows: &mut Slab<Flow>, mut place: usize) {
        while place > 0 {
            let above = (place - 1) / 2;
            if self.bytes(flows, above) >= self.bytes(flows, place) {
                return;
            }
            self.swap(flows, above, place);
            place = above;
        }
    }

    fn sink(&mut self, flows: &mut Slab<Flow>, mut place: usize) {
        loop {
            let below = 2 * place + 1;
            if below >= self.heap.len() {
                return;
            }
            let mut longer = below;
            if below + 1 < self.heap.len()
                && self.bytes(flows, below + 1) > self.bytes(flows, below)
            {
                longer = below + 1;
            }
            if self.bytes(flows, place) >= self.bytes(flows, longer) {
                return;
            }
            self.swap(flows, place, longer);
            place = longer;
        }
    }

    /// The memory that it has allocated, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.heap.capacity() * size_of::<u16>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_packet::{PacketId, Packets};
    use narrows_units::Nanos;
    use proptest::prelude::*;

    const FLOWS: u16 = 20;

    fn longest_by_sorting(flows: &Slab<Flow>) -> u64 {
        let mut bytes: Vec<u64> =
            (0..flows.taken()).map(|id| flows[id].queue.backlog().bytes.0).collect();
        bytes.sort_unstable();
        bytes.pop().unwrap_or_default()
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Arrive(u32),
        Leave,
        /// A flow without packets is forgotten, and its place reused.
        Recreate,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            5 => (60u32..9000).prop_map(Step::Arrive),
            4 => Just(Step::Leave),
            2 => Just(Step::Recreate),
        ]
    }

    proptest! {
        /// The oracle sorts all queues by length, each time. The heap holds each queue with packets
        /// once, and no others.
        #[test]
        fn the_longest_queue_is_the_longest(
            steps in prop::collection::vec((0..FLOWS, step()), 1..300),
            begins in 0usize..100,
        ) {
            let mut packets = Packets::new(300);
            let mut flows: Slab<Flow> = Slab::new();
            let ids: Vec<u16> = (0..FLOWS).map(|_| flows.take()).collect();
            let mut overflow = Overflow::new();
            for (step, (flow, change)) in steps.into_iter().enumerate() {
                let id = ids[usize::from(flow)];
                match change {
                    Step::Arrive(len) => {
                        let packet = PacketId(step as u32);
                        packets.arrive(packet, len, Nanos::ZERO);
                        flows[id].queue.push_back(&mut packets, packet);
                    }
                    Step::Leave => drop(flows[id].queue.pop_front(&mut packets)),
                    Step::Recreate if flows[id].is_empty() => flows[id] = Flow::default(),
                    Step::Recreate => {}
                }
                if overflow.is_live() {
                    overflow.changed(&mut flows, id);
                } else if step >= begins {
                    overflow.begin(&mut flows);
                }
                if let Some(longest) = overflow.longest() {
                    let bytes = flows[longest].queue.backlog().bytes.0;
                    prop_assert_eq!(bytes, longest_by_sorting(&flows));
                    let mut known = overflow.heap.clone();
                    known.sort_unstable();
                    let standing = (0..flows.taken()).filter(|&id| !flows[id].is_empty());
                    prop_assert_eq!(known, standing.collect::<Vec<_>>());
                }
            }
            overflow.end(&mut flows);
            prop_assert!(!overflow.is_live());
            prop_assert!((0..flows.taken()).all(|id| flows[id].heap == NONE));
        }
    }
}
