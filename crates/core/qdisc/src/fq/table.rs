//! All flows of an instance, and when they are forgotten.
//!
//! Flows without packets are listed in the order in which they fell silent. When a new flow
//! arrives, a few of the oldest are forgotten if that was long ago, or if too many are remembered.
//! So there are never many more flows than arrived within that time, and no search is needed. Linux
//! searches the bucket that it is looking at.
//!
//! There are as many buckets as `orphan_mask` tells flows apart, or as are remembered at most.

use super::flow::{Flow, Standing};
use super::list::List;
use crate::flow_table::{Chained, FLOWS_MAX, FlowTable};
use narrows_units::Nanos;

/// How long a flow has to be silent to be forgotten, as in Linux.
const FORGOTTEN: Nanos = Nanos::from_secs(3);
/// How many are forgotten at once, as in Linux: more than arrive, but little work.
const AT_ONCE: usize = 8;

impl Chained for Flow {
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
    /// Idle flows, the longest idle first.
    idle: List,
    collected: u64,
}

impl Table {
    /// A table of flows identified by `mask`, with at least `buckets` buckets.
    pub(super) fn new(buckets: u32, mask: u32) -> Self {
        let flows = FlowTable::new(Self::buckets(buckets, mask));
        Self { flows, idle: List::EMPTY, collected: 0 }
    }

    /// The number of buckets for the operator's `buckets`; untouched buckets take no memory.
    pub(super) fn buckets(buckets: u32, mask: u32) -> u32 {
        buckets.max(mask.saturating_add(1).min(FLOWS_MAX))
    }

    /// How many flows were forgotten.
    pub(super) fn collected(&self) -> u64 {
        self.collected
    }

    /// Adds the idle flow `key` with a credit of `credit` bytes. Forgets some that ended long ago.
    #[cold]
    pub(super) fn add(&mut self, key: u32, credit: i32, now: Nanos) -> u32 {
        self.collect(now);
        let place = self.flows.add(Flow::new(key, credit));
        self.rest(place, now);
        place
    }

    /// `id`, which is in no list and has no packets, is idle from `now` on.
    pub(super) fn rest(&mut self, id: u32, now: Nanos) {
        let flow = &mut self.flows[id as usize];
        flow.standing = Standing::Idle;
        flow.idle_since = now;
        self.idle.push_back(&mut self.flows, id);
    }

    /// `id` is no longer idle.
    pub(super) fn wake(&mut self, id: u32) {
        self.idle.remove(&mut self.flows, id);
    }

    /// Forgets a few flows that have been idle for long. A flow that still waits for its time is
    /// kept, and so are those behind it, unless there are too many.
    fn collect(&mut self, now: Nanos) {
        for _ in 0..AT_ONCE {
            let Some(id) = self.idle.front() else { return };
            let flow = &self.flows[id as usize];
            let is_gone = now.since(flow.idle_since) > FORGOTTEN && flow.due <= now;
            if !is_gone && !self.flows.is_full() {
                return;
            }
            self.idle.remove(&mut self.flows, id);
            self.flows.forget(id);
            self.collected += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const SECOND: Nanos = Nanos::from_secs(1);
    const FLOWS: u32 = 64;

    #[test]
    fn a_flood_of_flows_takes_no_more_memory_than_stated_and_makes_no_long_chains() {
        let mut table = Table::new(1024, u32::MAX);
        for packet in 0..1_000_000u32 {
            let key = crate::flow_table::scattered(packet);
            if table.flows.find(key).is_none() {
                let id = table.add(key, 0, SECOND + Nanos(u64::from(packet) * 1000));
                // Each still waits for its time.
                table.flows[id as usize].due = Nanos::MAX;
            }
        }
        assert!(table.flows.remembered() <= FLOWS_MAX, "{}", table.flows.remembered());
        assert!(table.flows.capacity() <= FLOWS_MAX as usize, "{}", table.flows.capacity());
        assert!(table.flows.longest_chain() <= 16, "{}", table.flows.longest_chain());
    }

    #[test]
    fn places_of_the_forgotten_are_used_again() {
        let mut table = Table::new(16, 0);
        for key in 0..FLOWS {
            table.add(key, 0, SECOND);
        }
        let memory = table.flows.capacity();
        for key in 1000..1000 + FLOWS {
            table.add(key, 0, Nanos::from_secs(5));
        }
        assert_eq!(table.flows.capacity(), memory);
        assert_eq!((table.flows.remembered(), table.collected()), (FLOWS, u64::from(FLOWS)));
        assert_eq!(table.flows.find(3), None);
    }

    #[test]
    fn a_flow_that_waits_is_not_forgotten() {
        let mut table = Table::new(16, 0);
        let id = table.add(7, 0, SECOND);
        table.flows[id as usize].due = Nanos::from_secs(60);
        table.add(8, 0, Nanos::from_secs(30));
        assert_eq!(table.flows.find(7), Some(id));
        table.add(9, 0, Nanos::from_secs(60));
        assert_eq!(table.flows.find(7), None);
    }

    proptest! {
        /// The oracle is a map from keys to places: with any number of buckets each flow and no
        /// other is found, and only flows that have been idle for three seconds are missing.
        #[test]
        fn each_remembered_flow_is_found(
            steps in prop::collection::vec((0u32..300, 0u64..400, 0u32..5), 1..300),
        ) {
            let mut table = Table::new(8, 0);
            let mut model: BTreeMap<u32, (u32, Nanos)> = BTreeMap::new();
            let mut now = SECOND;
            for (key, pause, action) in steps {
                now += Nanos::from_millis(pause);
                match table.flows.find(key) {
                    Some(id) => {
                        prop_assert_eq!(model[&key].0, id);
                        table.wake(id);
                        table.rest(id, now);
                        model.insert(key, (id, now));
                    }
                    None => {
                        let before = table.flows.remembered();
                        let id = table.add(key, 0, now);
                        prop_assert!(table.flows.remembered() <= before + 1);
                        model.insert(key, (id, now));
                    }
                }
                if action == 0 {
                    table.flows.set_buckets(1 << (key % 8));
                }
                model.retain(|key, (id, since)| {
                    let found = table.flows.find(*key);
                    assert!(found == Some(*id) || now.since(*since) > FORGOTTEN);
                    found.is_some()
                });
                prop_assert_eq!(table.flows.remembered() as usize, model.len());
                let places: BTreeSet<_> = model.values().map(|(id, _)| *id).collect();
                prop_assert_eq!(places.len(), model.len());
            }
        }
    }
}
