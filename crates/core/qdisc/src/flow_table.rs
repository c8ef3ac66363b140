//! Flows at stable indices: found by key, forgotten one by one.
//!
//! Flows are in one piece of memory that is doubled when it is full; slots of forgotten flows are
//! used again. They are found through buckets, each the head of a chain. The owner of the table
//! decides which flow is forgotten, and when.
//!
//! *Bounded.* A sender with ever new addresses creates flows as fast as packets arrive. So only so
//! many without packets are remembered, [`FLOWS_MAX`] minus those with packets, and there are as
//! many buckets: chains stay short under any traffic, because the key of the hash is secret. There
//! are no more flows with packets than packets.
//!
//! Cost: a bucket and a flow's line; doubling copies the table.
//!
//! Non-goals: flows that may move (`pacing/flows.rs`), a fixed number of them (`cake`).

use narrows_cpu::prefetch;
use std::ops::{Deref, DerefMut};

/// No flow.
pub(crate) const NONE: u32 = u32::MAX;
/// The most flows without packets that are remembered: with as many buckets they take some dozens
/// of megabytes, and on links that are not attacked fewer arrive within a second.
pub(crate) const FLOWS_MAX: u32 = 1 << 18;
/// The initial number of places.
const LEAST: usize = 64;

/// An entry of a [`FlowTable`].
pub(crate) trait Chained {
    /// A key, spread over buckets by its lowest bits.
    #[inline]
    fn spread(key: u32) -> u32 {
        key
    }

    /// Its key.
    fn key(&self) -> u32;

    /// The next flow in its bucket, or the next free place.
    fn chain(&self) -> u32;

    /// The next flow in its bucket, or the next free place, to change.
    fn chain_mut(&mut self) -> &mut u32;
}

/// Flows, by place and by key.
pub(crate) struct FlowTable<F> {
    flows: Vec<F>,
    /// The first flow of each chain, plus one; zero if there is none. A power of two of them, in
    /// memory that is provided when it is touched.
    buckets: Box<[u32]>,
    /// Places that are free, linked as chains are.
    free: u32,
    free_places: u32,
}

impl<F: Chained> FlowTable<F> {
    /// An empty table with `buckets` buckets, rounded up to a power of two.
    pub(crate) fn new(buckets: u32) -> Self {
        let buckets = vec![0; buckets.next_power_of_two() as usize].into_boxed_slice();
        Self { flows: Vec::new(), buckets, free: NONE, free_places: 0 }
    }

    /// How many flows are remembered.
    pub(crate) fn remembered(&self) -> u32 {
        self.flows.len() as u32 - self.free_places
    }

    /// Whether the table of idle flows is full.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.remembered() >= FLOWS_MAX
    }

    /// How many flows are in the longest chain.
    #[cfg(test)]
    pub(crate) fn longest_chain(&self) -> usize {
        let chain = |head: &u32| {
            let behind = |flow: &&F| self.flows.get(flow.chain() as usize);
            std::iter::successors(self.flows.get(head.wrapping_sub(1) as usize), behind).count()
        };
        self.buckets.iter().map(chain).max().unwrap_or(0)
    }

    /// How many flows there is memory for.
    pub(crate) fn capacity(&self) -> usize {
        self.flows.capacity()
    }

    /// The memory that it has allocated, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.flows.capacity() * size_of::<F>() + size_of_val(&*self.buckets)
    }

    #[inline]
    fn bucket(&self, key: u32) -> usize {
        F::spread(key) as usize & (self.buckets.len() - 1)
    }

    /// The first flow in the bucket of `key`.
    #[inline]
    fn head(&self, key: u32) -> u32 {
        self.buckets[self.bucket(key)].wrapping_sub(1)
    }

    /// The flow `key`, if it is remembered.
    #[inline]
    pub(crate) fn find(&self, key: u32) -> Option<u32> {
        let mut at = self.head(key);
        loop {
            let flow = self.flows.get(at as usize)?;
            if flow.key() == key {
                return Some(at);
            }
            at = flow.chain();
        }
    }

    /// Prefetches the bucket of `key`.
    #[inline]
    pub(crate) fn prefetch_bucket(&self, key: u32) {
        prefetch(&self.buckets[self.bucket(key)]);
    }

    /// The first flow in the bucket of `key`: most likely that of `key`, if there is any.
    #[inline]
    pub(crate) fn guess(&self, key: u32) -> Option<&F> {
        self.flows.get(self.head(key) as usize)
    }

    /// Adds `flow`, whose key no other has. Returns its place.
    #[inline]
    pub(crate) fn add(&mut self, mut flow: F) -> u32 {
        let bucket = self.bucket(flow.key());
        *flow.chain_mut() = self.buckets[bucket].wrapping_sub(1);
        let at = self.put(flow);
        self.buckets[bucket] = at + 1;
        at
    }

    /// Puts `flow` into a free slot.
    #[inline]
    fn put(&mut self, flow: F) -> u32 {
        if self.free != NONE {
            let at = self.free;
            self.free = self.flows[at as usize].chain();
            self.free_places -= 1;
            self.flows[at as usize] = flow;
            return at;
        }
        if self.flows.len() == self.flows.capacity() {
            self.flows.reserve_exact(self.flows.len().max(LEAST));
        }
        self.flows.push(flow);
        (self.flows.len() - 1) as u32
    }

    /// Forgets the flow at `at`, which is remembered.
    #[inline]
    pub(crate) fn forget(&mut self, at: u32) {
        let (key, behind) = (self.flows[at as usize].key(), self.flows[at as usize].chain());
        let mut before = self.head(key);
        if before == at {
            let bucket = self.bucket(key);
            self.buckets[bucket] = behind.wrapping_add(1);
        } else {
            while self.flows[before as usize].chain() != at {
                before = self.flows[before as usize].chain();
            }
            *self.flows[before as usize].chain_mut() = behind;
        }
        *self.flows[at as usize].chain_mut() = self.free;
        self.free = at;
        self.free_places += 1;
    }

    /// Uses this many buckets from now on.
    pub(crate) fn set_buckets(&mut self, buckets: u32) {
        let some = |at: u32| (at != NONE).then_some(at);
        let mut remembered: Vec<u32> = Vec::with_capacity(self.flows.len());
        for head in &self.buckets {
            let behind = |at: &u32| some(self.flows[*at as usize].chain());
            remembered.extend(std::iter::successors(some(head.wrapping_sub(1)), behind));
        }
        self.buckets = vec![0; buckets.next_power_of_two() as usize].into_boxed_slice();
        for at in remembered {
            let key = self.flows[at as usize].key();
            *self.flows[at as usize].chain_mut() = self.head(key);
            let bucket = self.bucket(key);
            self.buckets[bucket] = at + 1;
        }
    }
}

/// All places, those that are free included.
impl<F> Deref for FlowTable<F> {
    type Target = [F];

    #[inline]
    fn deref(&self) -> &[F] {
        &self.flows
    }
}

impl<F> DerefMut for FlowTable<F> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [F] {
        &mut self.flows
    }
}

/// A key as good as a hash of `number`, for floods.
#[cfg(test)]
pub(crate) fn scattered(number: u32) -> u32 {
    let mut key = number ^ number >> 16;
    key = key.wrapping_mul(0x85eb_ca6b);
    key = (key ^ key >> 13).wrapping_mul(0xc2b2_ae35);
    key ^ key >> 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// A key and a chain, and nothing else.
    struct Bare(u32, u32);

    impl Chained for Bare {
        fn key(&self) -> u32 {
            self.0
        }

        fn chain(&self) -> u32 {
            self.1
        }

        fn chain_mut(&mut self) -> &mut u32 {
            &mut self.1
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Meet(u32),
        Forget(u32),
        SetBuckets(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0u32..200).prop_map(Step::Meet),
            4 => (0u32..200).prop_map(Step::Forget),
            1 => (1u32..300).prop_map(Step::SetBuckets),
        ]
    }

    proptest! {
        /// The oracle is a map from keys to slots: with any number of buckets every flow is found
        /// in its slot, unknown ones are not found, and no two share a slot.
        #[test]
        fn remembered_flows_are_found(steps in prop::collection::vec(step(), 1..500)) {
            let mut table = FlowTable::new(8);
            let mut model = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Meet(key) => {
                        prop_assert_eq!(table.find(key), model.get(&key).copied());
                        model.entry(key).or_insert_with(|| table.add(Bare(key, 7)));
                    }
                    Step::Forget(key) => {
                        if let Some(at) = model.remove(&key) {
                            table.forget(at);
                        }
                    }
                    Step::SetBuckets(buckets) => table.set_buckets(buckets),
                }
                for key in 0..200 {
                    prop_assert_eq!(table.find(key), model.get(&key).copied());
                }
                prop_assert_eq!(table.remembered() as usize, model.len());
                let places: BTreeSet<_> = model.values().collect();
                prop_assert_eq!(places.len(), model.len());
            }
            prop_assert!(table.capacity() <= 256);
        }
    }

    #[test]
    fn places_of_the_forgotten_are_used_again() {
        let mut table = FlowTable::new(16);
        for key in 0..10_000 {
            let at = table.add(Bare(key, NONE));
            assert_eq!(table.guess(key).map(Chained::key), Some(key));
            table.forget(at);
        }
        assert_eq!((table.len(), table.remembered()), (1, 0));
    }
}
