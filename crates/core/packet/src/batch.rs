//! A bounded batch of packets.

use crate::PacketId;

/// Up to a fixed number of packets that are processed together. Never reallocates.
#[derive(Debug)]
pub struct Batch {
    /// As long as the capacity at creation; entries from `len` on are meaningless.
    ids: Box<[PacketId]>,
    len: usize,
    /// The present capacity.
    capacity: usize,
}

impl Batch {
    /// An empty batch for up to `capacity` packets.
    pub fn new(capacity: usize) -> Self {
        Self { ids: vec![PacketId::NONE; capacity].into_boxed_slice(), len: 0, capacity }
    }

    /// Whether another packet fits.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.len < self.capacity
    }

    /// How many more packets fit.
    #[inline]
    pub fn room(&self) -> usize {
        self.capacity - self.len
    }

    /// Sets the capacity to at most `capacity` from now on, within that at creation: a TX ring with
    /// little space left asks for a smaller batch.
    #[inline]
    pub fn limit(&mut self, capacity: usize) {
        self.capacity = capacity.min(self.ids.len()).max(self.len);
    }

    /// Adds `id`.
    ///
    /// # Panics
    /// If there is no room: callers check [`Batch::has_room`] first.
    #[inline]
    pub fn push(&mut self, id: PacketId) {
        assert!(self.has_room(), "a batch of {} is full", self.capacity);
        self.ids[self.len] = id;
        self.len += 1;
    }

    /// The free slots. The caller fills the first ones and then calls [`Batch::filled`] with their
    /// number.
    #[inline]
    pub fn free(&mut self) -> &mut [PacketId] {
        &mut self.ids[self.len..self.capacity]
    }

    /// Adds the first `count` slots of [`Batch::free`] as packets.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline]
    pub fn filled(&mut self, count: usize) {
        assert!(count <= self.room(), "{count} do not fit a batch of {}", self.capacity);
        self.len += count;
    }

    /// Removes the packets after the first `start` for which `stays` is false; the others keep
    /// their order.
    pub fn retain_from(&mut self, start: usize, mut stays: impl FnMut(PacketId) -> bool) {
        let mut kept = start;
        for at in start..self.len {
            let id = self.ids[at];
            if stays(id) {
                self.ids[kept] = id;
                kept += 1;
            }
        }
        self.len = kept.min(self.len);
    }

    /// Removes all packets.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The number of packets.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The packets, in the order in which they were added.
    #[inline]
    pub fn as_slice(&self) -> &[PacketId] {
        &self.ids[..self.len]
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

    #[test]
    fn places_are_offered_up_to_the_limit_and_those_filled_are_packets() {
        let mut batch = Batch::new(4);
        batch.push(PacketId(7));
        batch.limit(3);
        let free = batch.free();
        assert_eq!(free.len(), 2);
        free[0] = PacketId(8);
        batch.filled(1);
        assert_eq!(batch.as_slice(), [PacketId(7), PacketId(8)]);
        assert_eq!(batch.room(), 1);
        batch.clear();
        assert!(batch.is_empty() && batch.as_slice().is_empty());
    }

    #[test]
    fn what_stays_keeps_its_order() {
        let mut batch = Batch::new(8);
        (0..6).for_each(|id| batch.push(PacketId(id)));
        batch.retain_from(2, |id| id.0 % 2 == 1);
        assert_eq!(batch.as_slice(), [0, 1, 3, 5].map(PacketId));
        batch.retain_from(9, |_| false);
        assert_eq!(batch.len(), 4);
    }
}
