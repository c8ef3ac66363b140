//! A bounded handful of packets.

use crate::PacketId;

/// Packets that travel together, up to a number fixed at creation. Never reallocates.
#[derive(Debug)]
pub struct Batch {
    ids: Vec<PacketId>,
    capacity: usize,
}

impl Batch {
    /// An empty batch for up to `capacity` packets.
    pub fn new(capacity: usize) -> Self {
        Self { ids: Vec::with_capacity(capacity), capacity }
    }

    /// Whether another packet fits.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.ids.len() < self.capacity
    }

    /// How many more packets fit.
    #[inline]
    pub fn room(&self) -> usize {
        self.capacity - self.ids.len()
    }

    /// Lets the batch take up to `capacity` packets from now on, within what it was made
    /// for: a TX ring with little space left asks for a smaller batch.
    #[inline]
    pub fn limit(&mut self, capacity: usize) {
        self.capacity = capacity.min(self.ids.capacity()).max(self.ids.len());
    }

    /// Adds `id`.
    ///
    /// # Panics
    /// Where there is no room: callers ask [`Batch::has_room`] first.
    #[inline]
    pub fn push(&mut self, id: PacketId) {
        assert!(self.has_room(), "a batch of {} is full", self.capacity);
        self.ids.push(id);
    }

    /// Empties it.
    #[inline]
    pub fn clear(&mut self) {
        self.ids.clear();
    }

    /// How many packets are in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether none is.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Its packets, in the order in which they were added.
    #[inline]
    pub fn as_slice(&self) -> &[PacketId] {
        &self.ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_can_be_made_smaller_and_larger_within_its_memory() {
        let mut batch = Batch::new(4);
        batch.limit(1);
        batch.push(PacketId(7));
        assert!(!batch.has_room());
        batch.limit(100);
        assert!(batch.room() >= 3);
        let memory = batch.as_slice().as_ptr();
        while batch.has_room() {
            batch.push(PacketId(8));
        }
        assert_eq!(batch.as_slice().as_ptr(), memory);
    }
}
