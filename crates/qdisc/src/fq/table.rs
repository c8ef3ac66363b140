//! All flows of an instance: where they are, how they are found, when they are forgotten.
//!
//! Flows live in one piece of memory that is doubled when all places are taken; places of those that
//! were forgotten are used again. They are found through a table of buckets, each the head of a
//! chain. With as many buckets as `orphan_mask` tells flows apart, as by default, a chain is one
//! flow long.
//!
//! *Forgetting.* Flows without packets stand in the order in which they fell silent. Whenever a new
//! flow comes, a few of the oldest are forgotten if that was long ago: there are never many more flows than
//! came within that time, and nobody has to look for them. Linux looks through the bucket at hand.
//!
//! Cost: O(1), but for the length of a chain.

use super::flow::{Flow, Standing};
use super::list::{List, NONE};
use narrows_units::Nanos;

/// How long a flow has to be silent to be forgotten, as in Linux.
const FORGOTTEN: Nanos = Nanos::from_secs(3);
/// How many are forgotten at once, as in Linux: more than come, and little work.
const AT_ONCE: usize = 8;
/// Places to begin with: a page.
const LEAST: usize = 64;

pub(super) struct Table {
    pub(super) flows: Vec<Flow>,
    /// The first flow of each chain; a power of two of them.
    buckets: Box<[u32]>,
    /// Flows that are idle, the one that has been so for longest first.
    idle: List,
    /// Places that are free, linked as chains are.
    free: u32,
    free_places: u32,
    collected: u64,
}

impl Table {
    pub(super) fn new(buckets: u32) -> Self {
        let buckets = vec![NONE; buckets.next_power_of_two() as usize].into_boxed_slice();
        Self {
            flows: Vec::new(),
            buckets,
            idle: List::EMPTY,
            free: NONE,
            free_places: 0,
            collected: 0,
        }
    }

    /// How many flows are remembered.
    pub(super) fn len(&self) -> u32 {
        self.flows.len() as u32 - self.free_places
    }

    /// How many flows were forgotten.
    pub(super) fn collected(&self) -> u64 {
        self.collected
    }

    /// How many flows there is memory for.
    pub(super) fn capacity(&self) -> usize {
        self.flows.capacity()
    }

    #[inline]
    fn bucket(&self, key: u32) -> usize {
        key as usize & (self.buckets.len() - 1)
    }

    /// The flow `key`, if it is remembered.
    #[inline]
    pub(super) fn find(&self, key: u32) -> Option<u32> {
        let mut at = self.buckets[self.bucket(key)];
        while at != NONE {
            let flow = &self.flows[at as usize];
            if flow.key == key {
                return Some(at);
            }
            at = flow.chain;
        }
        None
    }

    /// A new flow `key`, idle, that may send `credit` bytes. Forgets some that are long gone.
    #[cold]
    pub(super) fn add(&mut self, key: u32, credit: i32, now: Nanos) -> u32 {
        self.collect(now);
        let place = self.place();
        let bucket = self.bucket(key);
        let flow = &mut self.flows[place as usize];
        *flow = Flow { chain: self.buckets[bucket], ..Flow::new(key, credit) };
        self.buckets[bucket] = place;
        self.rest(place, now);
        place
    }

    /// A place that nobody is in.
    fn place(&mut self) -> u32 {
        if self.free != NONE {
            let place = self.free;
            self.free = self.flows[place as usize].chain;
            self.free_places -= 1;
            return place;
        }
        if self.flows.len() == self.flows.capacity() {
            self.flows.reserve_exact(self.flows.len().max(LEAST));
        }
        self.flows.push(Flow::new(0, 0));
        (self.flows.len() - 1) as u32
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
            self.unchain(id);
            self.flows[id as usize].chain = self.free;
            self.free = id;
            self.free_places += 1;
            self.collected += 1;
        }
    }

    /// Takes `id` out of its bucket.
    fn unchain(&mut self, id: u32) {
        let Flow { key, chain, .. } = self.flows[id as usize];
        let bucket = self.bucket(key);
        if self.buckets[bucket] == id {
            self.buckets[bucket] = chain;
            return;
        }
        let mut at = self.buckets[bucket];
        while self.flows[at as usize].chain != id {
            at = self.flows[at as usize].chain;
        }
        self.flows[at as usize].chain = chain;
    }

    /// Finds flows through so many buckets from now on.
    pub(super) fn set_buckets(&mut self, buckets: u32) {
        let mut remembered: Vec<u32> = Vec::with_capacity(self.flows.len());
        for &head in &self.buckets {
            let some = |id: u32| (id != NONE).then_some(id);
            let behind = |id: &u32| some(self.flows[*id as usize].chain);
            remembered.extend(std::iter::successors(some(head), behind));
        }
        self.buckets = vec![NONE; buckets.next_power_of_two() as usize].into_boxed_slice();
        for id in remembered {
            let bucket = self.bucket(self.flows[id as usize].key);
            self.flows[id as usize].chain = self.buckets[bucket];
            self.buckets[bucket] = id;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const SECOND: Nanos = Nanos::from_secs(1);

    #[test]
    fn places_of_the_forgotten_are_used_again() {
        let mut table = Table::new(16);
        for key in 0..LEAST as u32 {
            table.add(key, 0, SECOND);
        }
        let memory = table.capacity();
        for key in 1000..1000 + LEAST as u32 {
            table.add(key, 0, Nanos::from_secs(5));
        }
        assert_eq!(table.capacity(), memory);
        assert_eq!((table.len(), table.collected()), (LEAST as u32, LEAST as u64));
        assert_eq!(table.find(3), None);
    }

    #[test]
    fn who_has_to_wait_is_not_forgotten() {
        let mut table = Table::new(16);
        let id = table.add(7, 0, SECOND);
        table.flows[id as usize].due = Nanos::from_secs(60);
        table.add(8, 0, Nanos::from_secs(30));
        assert_eq!(table.find(7), Some(id));
        table.add(9, 0, Nanos::from_secs(60));
        assert_eq!(table.find(7), None);
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
                match table.find(key) {
                    Some(id) => {
                        prop_assert_eq!(model[&key].0, id);
                        table.wake(id);
                        table.rest(id, now);
                        model.insert(key, (id, now));
                    }
                    None => {
                        let before = table.len();
                        let id = table.add(key, 0, now);
                        prop_assert!(table.len() <= before + 1);
                        model.insert(key, (id, now));
                    }
                }
                if action == 0 {
                    table.set_buckets(1 << (key % 8));
                }
                model.retain(|key, (id, since)| {
                    let found = table.find(*key);
                    assert!(found == Some(*id) || now.since(*since) > FORGOTTEN);
                    found.is_some()
                });
                prop_assert_eq!(table.len() as usize, model.len());
                let places: BTreeSet<_> = model.values().map(|(id, _)| *id).collect();
                prop_assert_eq!(places.len(), model.len());
            }
        }
    }
}
