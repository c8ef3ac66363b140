//! All flows of an instance: when they are forgotten.
//!
//! Flows without packets stand in the order in which they fell silent. Whenever a new
//! flow comes, a few of the oldest are forgotten if that was long ago: there are never many more flows than
//! came within that time, and nobody has to look for them. Linux looks through the bucket at hand.
//!
//! With as many buckets as `orphan_mask` tells flows apart, as by default, one flow is in each.

use super::flow::{Flow, Standing};
use super::list::List;
use crate::flow_table::{Chained, FlowTable};
use narrows_units::Nanos;

/// How long a flow has to be silent to be forgotten, as in Linux.
const FORGOTTEN: Nanos = Nanos::from_secs(3);
/// How many are forgotten at once, as in Linux: more than come, and little work.
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
    /// Flows that are idle, the one that has been so for longest first.
    idle: List,
    collected: u64,
}

impl Table {
    pub(super) fn new(buckets: u32) -> Self {
        Self { flows: FlowTable::new(buckets), idle: List::EMPTY, collected: 0 }
    }

    /// How many flows were forgotten.
    pub(super) fn collected(&self) -> u64 {
        self.collected
    }

    /// A new flow `key`, idle, that may send `credit` bytes. Forgets some that are long gone.
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

    /// `id`, which was idle, is so no more.
    pub(super) fn wake(&mut self, id: u32) {
        self.idle.remove(&mut self.flows, id);
    }

    /// Forgets a few flows that have been idle for long. One that still has to wait for its time is not
    /// forgotten, nor are those behind it.
    fn collect(&mut self, now: Nanos) {
        for _ in 0..AT_ONCE {
            let Some(id) = self.idle.front() else { return };
            let flow = &self.flows[id as usize];
            if now.since(flow.idle_since) <= FORGOTTEN || flow.due > now {
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
    fn places_of_the_forgotten_are_used_again() {
        let mut table = Table::new(16);
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
    fn who_has_to_wait_is_not_forgotten() {
        let mut table = Table::new(16);
        let id = table.add(7, 0, SECOND);
        table.flows[id as usize].due = Nanos::from_secs(60);
        table.add(8, 0, Nanos::from_secs(30));
        assert_eq!(table.flows.find(7), Some(id));
        table.add(9, 0, Nanos::from_secs(60));
        assert_eq!(table.flows.find(7), None);
    }

    proptest! {
        /// The oracle is a map from keys to places: with any number of buckets everyone is found, and
        /// nobody else, and only flows that have been idle for three seconds are missing.
        #[test]
        fn everyone_who_is_not_forgotten_is_found(
            steps in prop::collection::vec((0u32..300, 0u64..400, 0u32..5), 1..300),
        ) {
            let mut table = Table::new(8);
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
