//! Places for things that come and go, grown on demand.
//!
//! An instance of `cake` may need thousands of flows and mostly needs a few. So they live in one
//! piece of memory that is doubled when all places are taken: bounded by the tables that refer to
//! it, and one load away. That is the one thing on a packet's way that allocates, and it copies
//! what is there: 32 KiB for the 513th flow, once.
//!
//! Cost: one load; O(1).

use std::ops::{Index, IndexMut};

/// The initial number of places: a page of flows.
const LEAST: usize = 64;

/// No place.
pub(super) const NONE: u16 = u16::MAX;

/// Places for up to 65,535 values. A place is never given back; its owner reuses it for another
/// value.
pub(super) struct Slab<T> {
    /// Those that were taken.
    places: Vec<T>,
}

impl<T: Default> Slab<T> {
    pub(super) const fn new() -> Self {
        Self { places: Vec::new() }
    }

    /// Whether the next value fits without more memory.
    #[inline]
    pub(super) fn has_free(&self) -> bool {
        self.places.len() < self.places.capacity()
    }

    /// A place that was never taken before.
    ///
    /// # Panics
    /// If there is none: tables that refer to a slab are smaller.
    #[inline]
    pub(super) fn take(&mut self) -> u16 {
        if !self.has_free() {
            self.grow();
        }
        self.places.push(T::default());
        (self.places.len() - 1) as u16
    }

    #[cold]
    fn grow(&mut self) {
        let more = self.places.len().max(LEAST);
        let most = usize::from(NONE) - self.places.len();
        assert!(most > 0, "a slab has 65,535 places");
        self.places.reserve_exact(more.min(most));
    }

    /// The places that were taken: all below this.
    pub(super) fn taken(&self) -> u16 {
        self.places.len() as u16
    }

    /// The memory that it has allocated, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.places.capacity() * size_of::<T>()
    }
}

impl<T> Slab<T> {
    /// The value at `place`, if that exists.
    #[inline]
    pub(super) fn get(&self, place: u16) -> Option<&T> {
        self.places.get(usize::from(place))
    }
}

impl<T> Index<u16> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, place: u16) -> &T {
        &self.places[usize::from(place)]
    }
}

impl<T> IndexMut<u16> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, place: u16) -> &mut T {
        &mut self.places[usize::from(place)]
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
        for _ in 0..=LEAST {
            slab.take();
            memory.push(slab.memory());
        }
        assert!(memory[..LEAST].iter().all(|size| *size == memory[0]));
        assert!(memory[LEAST] >= memory[0] + size_of::<[u64; LEAST]>());
        assert!(slab.has_free());
    }
}
