//! The heaviest keys of a stream, in memory that does not grow with it.
//!
//! The *space-saving* algorithm: a fixed number of keys is counted, and a new key replaces the
//! lightest one and starts with its weight. So a count is never too low, is too high by at most its
//! start ([`Entry::over`]), and that is at most the stream's weight divided by [`SIZE`]. A key with
//! more than that share of the stream is always among those counted.
//!
//! Source: A. Metwally, D. Agrawal, A. El Abbadi, "Efficient Computation of Frequent and Top-k
//! Elements in Data Streams", ICDT 2005.
//!
//! Cost: one pass over [`SIZE`] hashes, and for a new key one over as many weights; both lie
//! together, and processors compare several at once. Memory for the delays of a place is allocated
//! when it is first taken, and stays.

use narrows_units::{Nanos, Spread};

/// The number of counted keys.
pub const SIZE: usize = 64;

/// Hashes that are compared at once.
const TOGETHER: usize = 16;

/// The bytes that count as one in [`Entry::delays`], so that 32 bits suffice for a window of a fast
/// port.
const WEIGHT: u64 = 64;

/// A key: a host, or a flow.
pub trait Key: Copy + Eq {
    /// Any hash: two keys with the same one are compared.
    fn hash(&self) -> u32;
}

/// The counts of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry<K> {
    /// Which.
    pub key: K,
    /// Its bytes, at most.
    pub bytes: u64,
    /// How many of them may belong to earlier keys of this entry.
    pub over: u64,
    /// The delay of its own bytes, in byte-microseconds.
    pub stayed: u64,
    /// The longest delay of a packet.
    pub longest: Nanos,
    /// The distribution of its own bytes over delays, in units of [`WEIGHT`].
    pub delays: Spread,
}

impl<K> Entry<K> {
    /// The least number of its bytes: those since its entry was taken.
    pub fn own_bytes(&self) -> u64 {
        self.bytes - self.over
    }
}

/// The heaviest keys of a stream: a space-saving summary of [`SIZE`] entries.
#[derive(Clone, Debug)]
pub struct Summary<K> {
    /// The hashes of the entries, in their order.
    hashes: [u32; SIZE],
    /// The weights of the entries, in their order.
    weights: [u64; SIZE],
    entries: Vec<Entry<K>>,
    /// The number of entries in use; the memory of the others is reused.
    known: usize,
}

impl<K: Key> Default for Summary<K> {
    /// Empty.
    fn default() -> Self {
        Self { hashes: [0; SIZE], weights: [0; SIZE], entries: Vec::with_capacity(SIZE), known: 0 }
    }
}

impl<K: Key> Summary<K> {
    /// Adds `bytes` of `key` with the delay `delay`.
    pub fn add(&mut self, key: K, bytes: u64, delay: Nanos) {
        let hash = key.hash();
        let stayed = bytes.saturating_mul(delay.0 / 1_000);
        let times = u32::try_from(bytes.div_ceil(WEIGHT)).unwrap_or(u32::MAX);
        if let Some(at) = self.find(key, hash) {
            let entry = &mut self.entries[at];
            entry.bytes += bytes;
            entry.stayed = entry.stayed.saturating_add(stayed);
            entry.longest = entry.longest.max(delay);
            entry.delays.record_times(delay, times);
            self.weights[at] = entry.bytes;
            return;
        }
        let (at, over) = if self.known < SIZE {
            self.known += 1;
            (self.known - 1, 0)
        } else {
            let mut lightest = 0;
            for at in 1..SIZE {
                if self.weights[at] < self.weights[lightest] {
                    lightest = at;
                }
            }
            (lightest, self.weights[lightest])
        };
        let former = self.entries.get_mut(at).map(|entry| std::mem::take(&mut entry.delays));
        let mut delays = former.unwrap_or_default();
        delays.clear();
        delays.record_times(delay, times);
        let entry = Entry { key, bytes: over + bytes, over, stayed, longest: delay, delays };
        match self.entries.get_mut(at) {
            Some(place) => *place = entry,
            None => self.entries.push(entry),
        }
        self.hashes[at] = hash;
        self.weights[at] = self.entries[at].bytes;
    }

    /// The place of `key`, whose hash this is.
    #[inline(always)]
    fn find(&self, key: K, hash: u32) -> Option<usize> {
        let same = |at: &usize| self.hashes[*at] == hash && self.entries[*at].key == key;
        self.hashes.chunks_exact(TOGETHER).enumerate().find_map(|(chunk, hashes)| {
            // Usually none has this hash. The compiler vectorizes the comparison.
            if !hashes.iter().fold(false, |any, other| any | (*other == hash)) {
                return None;
            }
            let begin = chunk * TOGETHER;
            (begin..(begin + TOGETHER).min(self.known)).find(same)
        })
    }

    /// The entries, unordered.
    pub fn entries(&self) -> &[Entry<K>] {
        &self.entries[..self.known]
    }

    /// Clears all entries.
    pub fn clear(&mut self) {
        self.known = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    impl Key for u16 {
        /// With collisions.
        fn hash(&self) -> u32 {
            u32::from(*self % 50)
        }
    }

    fn summary(stream: &[(u16, u64)]) -> Summary<u16> {
        let mut summary = Summary::default();
        stream
            .iter()
            .for_each(|(key, bytes)| summary.add(*key, *bytes, Nanos::from_micros(*bytes)));
        summary
    }

    #[test]
    fn few_keys_are_counted_exactly() {
        let seen = summary(&[(1, 10), (2, 5), (1, 30), (51, 1)]);
        let one = seen.entries().iter().find(|entry| entry.key == 1).unwrap();
        assert_eq!(one.delays.counts().map(|(_, units)| units).sum::<u64>(), 2);
        assert_eq!((one.bytes, one.over, one.stayed), (40, 0, 10 * 10 + 30 * 30));
        assert_eq!(one.longest, Nanos::from_micros(30));
        assert_eq!(seen.entries().len(), 3);
    }

    proptest! {
        /// The oracle is a map that counts everything.
        #[test]
        fn no_count_is_too_low_and_each_is_within_its_bound(
            stream in proptest::collection::vec((0u16..300, 1u64..2000), 0..3000),
        ) {
            let seen = summary(&stream);
            let mut exact: HashMap<u16, u64> = HashMap::new();
            stream.iter().for_each(|(key, bytes)| *exact.entry(*key).or_default() += bytes);
            let all: u64 = exact.values().sum();
            let bound = all / SIZE as u64;
            for entry in seen.entries() {
                let is = exact[&entry.key];
                prop_assert!(entry.own_bytes() <= is && is <= entry.bytes, "{entry:?}, really {is}");
                prop_assert!(entry.over <= bound, "{entry:?} of {all}");
            }
            for (key, bytes) in exact.iter().filter(|(_, bytes)| **bytes > bound) {
                let is_there = seen.entries().iter().any(|entry| entry.key == *key);
                prop_assert!(is_there, "{key} with {bytes} of {all} is missing");
            }
            prop_assert_eq!(seen.entries().iter().map(|entry| entry.bytes).sum::<u64>(), all);
        }
    }
}
