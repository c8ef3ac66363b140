//! All flows: where they are, how they are found, when they are forgotten.
//!
//! Flows live in one piece of memory that is doubled when all places are taken, and are found through buckets,
//! each the head of a chain. A flow that is as good as unknown is forgotten by a hand that goes round: it
//! looks at a few places whenever a flow comes that is new. So nobody keeps a list of who fell silent, packets cost nothing
//! for it, and there are hardly more places than are needed at once.
//!
//! Cost: a bucket and the flow's line; doubling copies what is there.

use super::flow::Flow;
use narrows_cpu::prefetch;

/// No flow.
pub(super) const NONE: u32 = u32::MAX;
/// Buckets: more than flows stand with the usual limits, in memory that is provided when it is touched.
const BUCKETS: usize = 1 << 15;
/// 2^32 divided by the golden ratio: the lower bits of a key may be what spreads packets over queues.
const SPREAD: u32 = 0x9e37_79b1;
/// Places that the hand looks at for each new flow: at twice the pace at which they are taken it would keep up.
const LOOK: usize = 4;
/// Places to begin with: two pages.
const LEAST: usize = 64;

pub(super) struct Table {
    pub(super) flows: Vec<Flow>,
    /// The first flow of each chain, plus one; zero where there is none.
    buckets: Box<[u32]>,
    /// Places that are free, linked as chains are.
    free: u32,
    free_places: u32,
    /// Where the hand is.
    hand: usize,
}

impl Table {
    pub(super) fn new() -> Self {
        let buckets = vec![0; BUCKETS].into_boxed_slice();
        Self { flows: Vec::new(), buckets, free: NONE, free_places: 0, hand: 0 }
    }

    #[inline]
    fn bucket(key: u32) -> usize {
        (key.wrapping_mul(SPREAD) >> (u32::BITS - BUCKETS.ilog2())) as usize
    }

    /// The first flow of a bucket.
    #[inline]
    fn head(&self, bucket: usize) -> u32 {
        self.buckets[bucket].wrapping_sub(1)
    }

    /// The flow `key`, if it is remembered.
    #[inline]
    pub(super) fn find(&self, key: u32) -> Option<u32> {
        let mut at = self.head(Self::bucket(key));
        loop {
            let flow = self.flows.get(at as usize)?;
            if flow.key == key {
                return Some(at);
            }
            at = flow.chain;
        }
    }

    /// Has the bucket of `key` brought near: it will soon be needed.
    #[inline]
    pub(super) fn approach_bucket(&self, key: u32) {
        prefetch(&self.buckets[Self::bucket(key)]);
    }

    /// The same for the first flow in it.
    #[inline]
    pub(super) fn approach(&self, key: u32) {
        if let Some(flow) = self.flows.get(self.head(Self::bucket(key)) as usize) {
            prefetch(&flow.queue);
            prefetch(&flow.slot);
        }
    }

    /// The new flow `key`, which was not remembered. Forgets some of which `is_at_rest` holds.
    #[cold]
    pub(super) fn add(&mut self, key: u32, is_at_rest: impl Fn(&Flow) -> bool) -> u32 {
        for _ in 0..LOOK.min(self.flows.len()) {
            self.hand = if self.hand + 1 < self.flows.len() { self.hand + 1 } else { 0 };
            let id = self.hand as u32;
            if self.find(self.flows[self.hand].key) == Some(id)
                && is_at_rest(&self.flows[self.hand])
            {
                self.forget(id);
            }
        }
        let id = self.place();
        let bucket = Self::bucket(key);
        self.flows[id as usize] = Flow { chain: self.head(bucket), ..Flow::new(key) };
        self.buckets[bucket] = id + 1;
        id
    }

    /// A place that nobody is in.
    fn place(&mut self) -> u32 {
        if self.free != NONE {
            let id = self.free;
            self.free = self.flows[id as usize].chain;
            self.free_places -= 1;
            return id;
        }
        if self.flows.len() == self.flows.capacity() {
            self.flows.reserve_exact(self.flows.len().max(LEAST));
        }
        self.flows.push(Flow::new(0));
        (self.flows.len() - 1) as u32
    }

    fn forget(&mut self, id: u32) {
        let Flow { key, chain, .. } = self.flows[id as usize];
        let bucket = Self::bucket(key);
        let mut at = self.head(bucket);
        if at == id {
            self.buckets[bucket] = chain.wrapping_add(1);
        } else {
            while self.flows[at as usize].chain != id {
                at = self.flows[at as usize].chain;
            }
            self.flows[at as usize].chain = chain;
        }
        self.flows[id as usize].chain = self.free;
        self.free = id;
        self.free_places += 1;
    }

    /// How many flows are remembered.
    pub(super) fn len(&self) -> u32 {
        self.flows.len() as u32 - self.free_places
    }

    /// The memory that it takes beside itself, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.flows.capacity() * size_of::<Flow>() + size_of_val(&*self.buckets)
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
        fn whoever_is_needed_is_found_where_he_was(
            keys in prop::collection::vec(prop_oneof![0u32..50, any::<u32>()], 1..2000),
        ) {
            let mut table = Table::new();
            let mut places = HashMap::new();
            for key in keys {
                match table.find(key) {
                    Some(id) => prop_assert_eq!(table.flows[id as usize].key, key),
                    None => {
                        prop_assert!(key % 2 == 0 || !places.contains_key(&key));
                        let id = table.add(key, |flow| flow.key.is_multiple_of(2));
                        places.insert(key, id);
                        prop_assert_eq!(table.find(key), Some(id));
                    }
                }
                let needed = places.iter().filter(|(key, _)| *key % 2 == 1);
                for (key, id) in needed.take(50) {
                    prop_assert_eq!(table.find(*key), Some(*id));
                }
            }
            let found = places.keys().filter(|key| table.find(**key).is_some()).count();
            prop_assert_eq!(found, table.len() as usize);
        }
    }

    #[test]
    fn flows_that_come_and_go_need_few_places() {
        let mut table = Table::new();
        (0..100_000u32).for_each(|key| {
            table.add(key, |flow| key - flow.key > 1000);
        });
        assert!(table.len() <= 2000, "{}", table.len());
        assert!(table.flows.capacity() <= 2048, "{}", table.flows.capacity());
    }
}
