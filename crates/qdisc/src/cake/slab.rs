//! Places for things that come and go, grown on demand.
//!
//! An instance of `cake` may need thousands of flows and mostly needs a few. So they live in
//! chunks of [`CHUNK`], and a chunk is added when all places are taken: never moved, so that growth
//! costs the same however much is there, and bounded by the tables that refer to it. That is the one
//! thing on a packet's way that allocates, once for 64 flows more than ever before.
//!
//! Cost: two dependent loads; O(1).

use std::ops::{Index, IndexMut};

/// Places in a chunk: a chunk of flows is a page.
const CHUNK: usize = 64;

/// No place.
pub(super) const NONE: u16 = u16::MAX;

/// Places for up to 65,472 values. One that was taken is never given back; whoever is done with
/// it uses it for something else.
pub(super) struct Slab<T> {
    chunks: Vec<Box<[T; CHUNK]>>,
    taken: u16,
}

impl<T: Default> Slab<T> {
    pub(super) const fn new() -> Self {
        Self { chunks: Vec::new(), taken: 0 }
    }

    /// Whether the next value fits without another chunk.
    #[inline]
    pub(super) fn has_free(&self) -> bool {
        usize::from(self.taken) < self.chunks.len() * CHUNK
    }

    /// A place that nobody has taken before.
    ///
    /// # Panics
    /// Where there is none: tables that refer to a slab are smaller.
    #[inline]
    pub(super) fn take(&mut self) -> u16 {
        if !self.has_free() {
            self.grow();
        }
        self.taken += 1;
        self.taken - 1
    }

    #[cold]
    fn grow(&mut self) {
        let places = (self.chunks.len() + 1) * CHUNK;
        assert!(places <= usize::from(NONE), "a slab has 65,472 places");
        self.chunks.push(Box::new(std::array::from_fn(|_| T::default())));
    }

    /// The places that were taken: all below this.
    pub(super) fn taken(&self) -> u16 {
        self.taken
    }

    /// The memory that it takes beside itself, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.chunks.len() * size_of::<[T; CHUNK]>()
            + self.chunks.capacity() * size_of::<Box<[T; CHUNK]>>()
    }
}

impl<T> Index<u16> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, place: u16) -> &T {
        &self.chunks[usize::from(place) / CHUNK][usize::from(place) % CHUNK]
    }
}

impl<T> IndexMut<u16> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, place: u16) -> &mut T {
        &mut self.chunks[usize::from(place) / CHUNK][usize::from(place) % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_keeps_its_value_while_the_slab_grows() {
        let mut slab = Slab::<u32>::new();
        for value in 0..1000u16 {
            let place = slab.take();
            assert_eq!(place, value);
            slab[place] = u32::from(value) * 3;
        }
        assert!((0..slab.taken()).all(|place| slab[place] == u32::from(place) * 3));
    }

    #[test]
    fn a_slab_grows_only_when_all_of_it_is_taken() {
        let mut slab = Slab::<u64>::new();
        assert_eq!(slab.memory(), 0);
        let mut memory = Vec::new();
        for _ in 0..=CHUNK {
            slab.take();
            memory.push(slab.memory());
        }
        assert!(memory[..CHUNK].iter().all(|size| *size == memory[0]));
        assert!(memory[CHUNK] >= memory[0] + size_of::<[u64; CHUNK]>());
        assert!(slab.has_free());
    }
}
