//! All flows, and when they are forgotten.
//!
//! A clock hand forgets flows that need not be remembered: it checks a few slots whenever a new
//! flow arrives. So there is no list of silent flows, packets cost nothing for it, and there are
//! hardly more slots than are needed at once. If there are too many, flows without packets that
//! would have had to wait are forgotten, too: a flood of addresses is not remembered for as long as
//! a low rate would require.

use super::flow::Flow;
use crate::flow_table::{Chained, FLOWS_MAX, FlowTable};
use narrows_cpu::prefetch;

/// Buckets: more than there are backlogged flows with the usual limits, in memory that the kernel
/// provides when it is touched. With the most flows that are remembered, each bucket has four.
const BUCKETS: u32 = FLOWS_MAX / 4;
/// 2^32 divided by the golden ratio: the lower bits of a key may be the same for all packets of a
/// queue.
const SPREAD: u32 = 0x9e37_79b1;
/// Places that the hand checks per new flow: two would be enough to keep up.
const LOOK: usize = 4;
/// Places that the hand checks if there are too many flows: it reuses one without packets, unless
/// nearly all have some.
const LOOK_LONGER: usize = 64;

impl Chained for Flow {
    #[inline]
    fn spread(key: u32) -> u32 {
        key.wrapping_mul(SPREAD) >> (u32::BITS - BUCKETS.ilog2())
    }

    #[inline]
    fn key(&self) -> u32 {
        self.key
    }

    #[inline]
    fn chain(&self) -> u32 {
        self.chain
    }

    fn chain_mut(&mut self) -> &mut u32 {
        &mut self.chain
    }
}

pub(super) struct Table {
    pub(super) flows: FlowTable<Flow>,
    /// Where the hand is.
    hand: usize,
}

impl Table {
    pub(super) fn new() -> Self {
        Self { flows: FlowTable::new(BUCKETS), hand: 0 }
    }

    /// Prefetches the first flow in the bucket of `key`.
    #[inline]
    pub(super) fn prefetch(&self, key: u32) {
        if let Some(flow) = self.flows.guess(key) {
            prefetch(&flow.queue);
            prefetch(&flow.slot);
        }
    }

    /// Adds the flow `key`, which was unknown. Forgets some for which `is_at_rest` holds.
    #[cold]
    pub(super) fn add(&mut self, key: u32, is_at_rest: impl Fn(&Flow) -> bool) -> u32 {
        for _ in 0..LOOK.min(self.flows.len()) {
            self.hand = if self.hand + 1 < self.flows.len() { self.hand + 1 } else { 0 };
            let at = self.hand as u32;
            let flow = &self.flows[self.hand];
            if is_at_rest(flow) && self.flows.find(flow.key) == Some(at) {
                self.flows.forget(at);
            }
        }
        if self.flows.is_full() {
            self.make_room();
        }
        self.flows.add(Flow::new(key))
    }

    /// Forgets a flow that has no packets, if there is one near the hand.
    fn make_room(&mut self) {
        for _ in 0..LOOK_LONGER {
            self.hand = if self.hand + 1 < self.flows.len() { self.hand + 1 } else { 0 };
            let at = self.hand as u32;
            let flow = &self.flows[self.hand];
            if !flow.stands && self.flows.find(flow.key) == Some(at) {
                self.flows.forget(at);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// The oracle is a map; a flow whose key is even may be forgotten, others never.
        #[test]
        fn needed_flows_stay_at_their_places(
            keys in prop::collection::vec(prop_oneof![0u32..50, any::<u32>()], 1..2000),
        ) {
            let mut table = Table::new();
            let mut places = HashMap::new();
            for key in keys {
                match table.flows.find(key) {
                    Some(id) => prop_assert_eq!(table.flows[id as usize].key, key),
                    None => {
                        prop_assert!(key % 2 == 0 || !places.contains_key(&key));
                        let id = table.add(key, |flow| flow.key.is_multiple_of(2));
                        places.insert(key, id);
                        prop_assert_eq!(table.flows.find(key), Some(id));
                    }
                }
                let needed = places.iter().filter(|(key, _)| *key % 2 == 1);
                for (key, id) in needed.take(50) {
                    prop_assert_eq!(table.flows.find(*key), Some(*id));
                }
            }
            let found = places.keys().filter(|key| table.flows.find(**key).is_some()).count();
            prop_assert_eq!(found, table.flows.remembered() as usize);
        }
    }

    #[test]
    fn a_flood_of_flows_takes_no_more_memory_than_stated_and_makes_no_long_chains() {
        let mut table = Table::new();
        for packet in 0..1_000_000u32 {
            let key = crate::flow_table::scattered(packet);
            if table.flows.find(key).is_none() {
                let at = table.add(key, |_| false);
                // Some have packets, and all of them would have to wait.
                table.flows[at as usize].stands = packet.is_multiple_of(100);
            }
        }
        assert!(table.flows.remembered() <= FLOWS_MAX, "{}", table.flows.remembered());
        assert!(table.flows.capacity() <= FLOWS_MAX as usize, "{}", table.flows.capacity());
        assert!(table.flows.longest_chain() <= 24, "{}", table.flows.longest_chain());
    }

    #[test]
    fn flows_that_come_and_go_need_few_places() {
        let mut table = Table::new();
        (0..100_000u32).for_each(|key| {
            table.add(key, |flow| key - flow.key > 1000);
        });
        assert!(table.flows.remembered() <= 2000, "{}", table.flows.remembered());
        assert!(table.flows.capacity() <= 2048, "{}", table.flows.capacity());
    }
}
