//! A persistent sorted map: thousands of versions share their equal parts.
//!
//! Each change copies the policy, which may have 100,000 filters. So they are kept in sorted chunks
//! behind [`Arc`]s. A copy of the map copies one pointer. A change copies one chunk and the list of
//! chunks. A comparison of two versions skips chunks that are the same memory.
//!
//! Cost: a change or a look-up takes two binary searches over dense keys.

use std::fmt;
use std::sync::Arc;

/// The most entries in a chunk. About twice the square root of 100,000, so that at this size the
/// list of chunks is about as long as a chunk.
const CHUNK_MAX: usize = 512;

/// A sorted map from `u64` of which a copy costs one pointer, and a change one chunk.
pub struct PersistentMap<V> {
    chunks: Arc<Vec<Arc<Chunk<V>>>>,
    len: usize,
}

#[derive(Clone)]
struct Chunk<V> {
    keys: Vec<u64>,
    values: Vec<V>,
}

impl<V: Clone> PersistentMap<V> {
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value at `key`.
    pub fn get(&self, key: u64) -> Option<&V> {
        let chunk = self.chunks.get(self.place(key))?;
        let at = chunk.keys.binary_search(&key).ok()?;
        chunk.values.get(at)
    }

    /// Sets the value at `key`.
    pub fn insert(&mut self, key: u64, value: V) {
        let place = self.place(key);
        let chunks = Arc::make_mut(&mut self.chunks);
        let Some(chunk) = chunks.get_mut(place) else {
            chunks.push(Arc::new(Chunk { keys: vec![key], values: vec![value] }));
            self.len += 1;
            return;
        };
        let chunk = Arc::make_mut(chunk);
        match chunk.keys.binary_search(&key) {
            Ok(at) => chunk.values[at] = value,
            Err(at) => {
                chunk.keys.insert(at, key);
                chunk.values.insert(at, value);
                self.len += 1;
                if chunk.keys.len() > CHUNK_MAX {
                    // Filling in key order leaves full chunks behind.
                    let middle = if at + 1 == chunk.keys.len() { at } else { CHUNK_MAX / 2 };
                    let keys = chunk.keys.split_off(middle);
                    let values = chunk.values.split_off(middle);
                    chunks.insert(place + 1, Arc::new(Chunk { keys, values }));
                }
            }
        }
    }

    /// Removes the value at `key`.
    pub fn remove(&mut self, key: u64) -> Option<V> {
        let place = self.place(key);
        let at = self.chunks.get(place)?.keys.binary_search(&key).ok()?;
        let chunks = Arc::make_mut(&mut self.chunks);
        let chunk = Arc::make_mut(&mut chunks[place]);
        chunk.keys.remove(at);
        let value = chunk.values.remove(at);
        if chunk.keys.is_empty() {
            chunks.remove(place);
        }
        self.len -= 1;
        Some(value)
    }

    /// The entries from `key` on, in order.
    pub fn from(&self, key: u64) -> impl Iterator<Item = (u64, &V)> {
        let place = self.place(key);
        let first =
            self.chunks.get(place).map_or(0, |chunk| chunk.keys.partition_point(|k| *k < key));
        self.chunks[place.min(self.chunks.len())..].iter().enumerate().flat_map(
            move |(index, chunk)| {
                let skip = if index == 0 { first } else { 0 };
                chunk.keys.iter().copied().zip(&chunk.values).skip(skip)
            },
        )
    }

    /// All entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        self.from(0)
    }

    /// The last entry before `key`.
    pub fn before(&self, key: u64) -> Option<(u64, &V)> {
        let place = self.place(key);
        let last = |chunk: &'_ Arc<Chunk<V>>, count: usize| {
            Some((chunk.keys[count.checked_sub(1)?], count - 1))
        };
        let here = self.chunks.get(place)?;
        let count = here.keys.partition_point(|k| *k < key);
        let (chunk, (key, at)) = match last(here, count) {
            Some(found) => (here, found),
            None => {
                let before = self.chunks.get(place.checked_sub(1)?)?;
                (before, last(before, before.keys.len())?)
            }
        };
        Some((key, &chunk.values[at]))
    }

    /// The chunk in which `key` is, or belongs.
    fn place(&self, key: u64) -> usize {
        self.chunks.partition_point(|chunk| chunk.keys[0] <= key).saturating_sub(1)
    }
}

impl<V: Clone + PartialEq> PersistentMap<V> {
    /// The differences to `next`: the key, the value here and the value there.
    pub fn changes<'a>(
        &'a self,
        next: &'a Self,
        mut each: impl FnMut(u64, Option<&'a V>, Option<&'a V>),
    ) {
        let (mut ours, mut theirs) = (Cursor::new(self), Cursor::new(next));
        loop {
            if ours.skip_shared(&mut theirs) {
                continue;
            }
            let (one, other) = (ours.entry(), theirs.entry());
            let keys = [one, other].into_iter().flatten().map(|(key, _)| key);
            let Some(key) = keys.min() else { return };
            let at_key =
                |entry: Option<(u64, &'a V)>| entry.filter(|(k, _)| *k == key).map(|(_, v)| v);
            let (present, changed) = (at_key(one), at_key(other));
            if present != changed {
                each(key, present, changed);
            }
            if present.is_some() {
                ours.step();
            }
            if changed.is_some() {
                theirs.step();
            }
        }
    }
}

/// A position in a map.
struct Cursor<'a, V> {
    chunks: &'a [Arc<Chunk<V>>],
    at: usize,
}

impl<'a, V> Cursor<'a, V> {
    fn new(of: &'a PersistentMap<V>) -> Self {
        Self { chunks: &of.chunks, at: 0 }
    }

    fn entry(&self) -> Option<(u64, &'a V)> {
        let chunk = self.chunks.first()?;
        Some((chunk.keys[self.at], &chunk.values[self.at]))
    }

    fn step(&mut self) {
        self.at += 1;
        if self.chunks.first().is_some_and(|chunk| self.at == chunk.keys.len()) {
            self.chunks = &self.chunks[1..];
            self.at = 0;
        }
    }

    /// Skips a chunk that both share. Returns whether there was one.
    fn skip_shared(&mut self, other: &mut Self) -> bool {
        let both = self.chunks.first().zip(other.chunks.first());
        let is_shared = both.is_some_and(|(one, other)| Arc::ptr_eq(one, other));
        let skips = is_shared && (self.at, other.at) == (0, 0);
        if skips {
            (self.chunks, other.chunks) = (&self.chunks[1..], &other.chunks[1..]);
        }
        skips
    }
}

impl<V> Clone for PersistentMap<V> {
    fn clone(&self) -> Self {
        Self { chunks: Arc::clone(&self.chunks), len: self.len }
    }
}

impl<V> Default for PersistentMap<V> {
    fn default() -> Self {
        Self { chunks: Arc::default(), len: 0 }
    }
}

impl<V: Clone + PartialEq> PartialEq for PersistentMap<V> {
    fn eq(&self, other: &Self) -> bool {
        let mut same = self.len == other.len;
        if same {
            self.changes(other, |_, _, _| same = false);
        }
        same
    }
}

impl<V: Clone + Eq> Eq for PersistentMap<V> {}

impl<V: Clone + fmt::Debug> fmt::Debug for PersistentMap<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<V: Clone> FromIterator<(u64, V)> for PersistentMap<V> {
    fn from_iter<I: IntoIterator<Item = (u64, V)>>(entries: I) -> Self {
        let mut map = Self::default();
        entries.into_iter().for_each(|(key, value)| map.insert(key, value));
        map
    }
}
