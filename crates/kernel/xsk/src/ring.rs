//! Single-producer, single-consumer rings whose other end is the kernel.
//!
//! Both indices run freely through 32 bits and are masked on access. The writer of an index
//! publishes it with `Release`; the reader loads it with `Acquire`. So an entry that the consumer
//! sees is completely written, and an entry that the producer may overwrite is completely read: the
//! same pairing as `smp_store_release`/`smp_load_acquire` in the kernel's `net/xdp/xsk_queue.h`.
//! Each side caches the other's index and loads it again only when the cached range is used up. So
//! a batch costs one read and one write of shared memory.
#![allow(unsafe_code)]

use crate::sync::{AtomicU32, Cell, Ordering};
use std::any::Any;
use std::ptr::NonNull;

/// The kernel needs a system call before it continues (`XDP_RING_NEED_WAKEUP`).
const NEED_WAKEUP: u32 = 1;

/// The memory of a ring.
pub(crate) struct RingMemory<T> {
    pub(crate) producer: NonNull<AtomicU32>,
    pub(crate) consumer: NonNull<AtomicU32>,
    pub(crate) flags: NonNull<AtomicU32>,
    pub(crate) entries: NonNull<Cell<T>>,
    /// The number of entries: a power of two.
    pub(crate) size: u32,
    /// Keeps the memory behind the pointers alive.
    pub(crate) _owner: Box<dyn Any + Send>,
}

// SAFETY: `_owner` owns the memory behind the pointers and moves along with them. The memory is
// accessed only through atomics and through entries that the ring protocol gives to one side at a
// time.
unsafe impl<T: Send> Send for RingMemory<T> {}

impl<T: Copy> RingMemory<T> {
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: points into memory that `_owner` keeps alive for as long as `self`.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as in `producer`.
        unsafe { self.consumer.as_ref() }
    }

    fn flags(&self) -> &AtomicU32 {
        // SAFETY: as in `producer`.
        unsafe { self.flags.as_ref() }
    }

    fn entry(&self, index: u32) -> &Cell<T> {
        let place = (index & (self.size - 1)) as usize;
        // SAFETY: `size` entries lie at `entries`, `place` is below `size`, and `_owner`
        // keeps them alive.
        unsafe { self.entries.add(place).as_ref() }
    }

    fn needs_wakeup(&self) -> bool {
        // Relaxed: the flag is a hint, set before the kernel goes to sleep and tested again by the
        // next batch; no entry depends on it.
        self.flags().load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }
}

/// The producer end of a ring: fill and TX.
pub struct Producer<T> {
    ring: RingMemory<T>,
    /// The next entry to write.
    next: u32,
    /// The kernel's index as last seen.
    consumed: u32,
}

impl<T: Copy> Producer<T> {
    pub(crate) fn new(ring: RingMemory<T>) -> Self {
        let next = ring.producer().load(Ordering::Relaxed);
        let consumed = ring.consumer().load(Ordering::Acquire);
        Self { ring, next, consumed }
    }

    /// Continues where another process stopped that has submitted everything it pushed.
    pub fn catch_up(&mut self) {
        self.next = self.ring.producer().load(Ordering::Acquire);
        self.consumed = self.ring.consumer().load(Ordering::Acquire);
    }

    /// How many entries can be pushed. Loads the kernel's index only if fewer than `wanted` are
    /// known to be free.
    #[inline]
    pub fn free(&mut self, wanted: u32) -> u32 {
        let known = self.ring.size - self.next.wrapping_sub(self.consumed);
        if known >= wanted {
            return known;
        }
        // Acquire: the kernel has read the entries that it released before they are overwritten.
        self.consumed = self.ring.consumer().load(Ordering::Acquire);
        self.ring.size - self.next.wrapping_sub(self.consumed)
    }

    /// Writes `entry` to the end of the ring; the kernel sees it after [`Producer::submit`].
    ///
    /// # Safety
    /// In a fill or TX ring, `entry` gives the kernel a frame: its bytes are not borrowed, and will
    /// not be until the frame has returned in the RX or completion ring.
    ///
    /// # Panics
    /// If the ring is full: callers check [`Producer::free`] first.
    #[inline]
    pub unsafe fn push(&mut self, entry: T) {
        assert!(self.free(1) > 0, "a ring of {} is full", self.ring.size);
        // SAFETY: this entry is free, so the kernel does not read it until `submit` has moved
        // the producer index past it; `self` is the only producer.
        self.ring.entry(self.next).with_mut(|place| unsafe { place.write(entry) });
        self.next = self.next.wrapping_add(1);
    }

    /// Publishes everything pushed so far to the kernel.
    #[inline]
    pub fn submit(&mut self) {
        // Release: the entries are written before the index that publishes them.
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// How many submitted entries the kernel has not consumed yet.
    #[inline]
    pub fn outstanding(&mut self) -> u32 {
        self.consumed = self.ring.consumer().load(Ordering::Acquire);
        self.next.wrapping_sub(self.consumed)
    }

    /// Whether the kernel waits for a system call before it looks at the ring.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// The consumer end of a ring: RX and completion.
pub struct Consumer<T> {
    ring: RingMemory<T>,
    /// The next entry to read.
    next: u32,
    /// The kernel's index as last seen.
    produced: u32,
}

impl<T: Copy> Consumer<T> {
    pub(crate) fn new(ring: RingMemory<T>) -> Self {
        let next = ring.consumer().load(Ordering::Relaxed);
        let produced = ring.producer().load(Ordering::Acquire);
        Self { ring, next, produced }
    }

    /// Continues where another process stopped that has released everything it took.
    pub fn catch_up(&mut self) {
        self.next = self.ring.consumer().load(Ordering::Acquire);
        self.produced = self.next;
    }

    /// Takes the oldest entry, if there is one. [`Consumer::release`] returns its slot.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.next == self.produced {
            // Acquire: an entry that the index covers is completely written.
            self.produced = self.ring.producer().load(Ordering::Acquire);
            if self.next == self.produced {
                return None;
            }
        }
        // SAFETY: the kernel has published this entry and does not write it again until
        // `release` has moved the consumer index past it; `self` is the only consumer.
        let entry = self.ring.entry(self.next).with(|place| unsafe { place.read() });
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Returns the slots of everything taken so far to the kernel.
    #[inline]
    pub fn release(&mut self) {
        // Release: the entries are read before the index that releases them.
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::{both_ends, heap};

    fn ends(size: u32, start: u32) -> (Producer<u64>, Consumer<u64>) {
        both_ends(&heap(size, start))
    }

    fn push(producer: &mut Producer<u64>, value: u64) {
        // SAFETY: these entries are numbers, of no frame.
        unsafe { producer.push(value) };
    }

    #[cfg(not(loom))]
    mod oracle {
        use super::*;
        use proptest::prelude::*;
        use std::collections::VecDeque;

        proptest! {
            /// The oracle is a bounded `VecDeque`, also where the indices wrap around.
            #[test]
            fn a_ring_is_a_bounded_fifo(
                steps in prop::collection::vec(any::<bool>(), 1..100),
                start in prop::sample::select(vec![0u32, 5, u32::MAX - 3]),
            ) {
                let (mut producer, mut consumer) = ends(4, start);
                let mut model = VecDeque::new();
                for (value, pushes) in steps.into_iter().enumerate() {
                    if pushes && model.len() < 4 {
                        push(&mut producer, value as u64);
                        producer.submit();
                        model.push_back(value as u64);
                    } else if !pushes {
                        prop_assert_eq!(consumer.pop(), model.pop_front());
                        consumer.release();
                    }
                    prop_assert_eq!(producer.free(4) as usize, 4 - model.len());
                    prop_assert_eq!(producer.outstanding() as usize, model.len());
                }
            }
        }

        #[test]
        fn another_pair_of_hands_goes_on_where_the_first_stopped() {
            let heap = heap::<u64>(4, u32::MAX);
            let [(mut producer, mut consumer), (mut next, mut other)] =
                [(); 2].map(|()| both_ends(&heap));
            for value in 1..=3 {
                push(&mut producer, value);
            }
            producer.submit();
            assert_eq!(consumer.pop(), Some(1));
            consumer.release();
            drop((producer, consumer));
            next.catch_up();
            other.catch_up();
            push(&mut next, 4);
            next.submit();
            assert_eq!([(); 4].map(|()| other.pop()), [Some(2), Some(3), Some(4), None]);
            assert_eq!(next.outstanding(), 3);
        }

        #[test]
        fn entries_are_invisible_until_submitted_and_kept_until_released() {
            let (mut producer, mut consumer) = ends(2, 0);
            push(&mut producer, 1);
            assert_eq!(consumer.pop(), None);
            push(&mut producer, 2);
            producer.submit();
            assert_eq!((consumer.pop(), consumer.pop()), (Some(1), Some(2)));
            assert_eq!(producer.free(1), 0);
            consumer.release();
            assert_eq!(producer.free(1), 2);
        }
    }

    /// Every interleaving of a producer and a consumer on a ring smaller than the data: nothing is
    /// lost, duplicated or reordered, and no entry is read while it is written.
    #[cfg(loom)]
    #[test]
    fn loom_both_ends_agree_in_every_interleaving() {
        loom::model(|| {
            let (mut producer, mut consumer) = ends(2, u32::MAX);
            let sender = loom::thread::spawn(move || {
                for value in 1..=3u64 {
                    while producer.free(1) == 0 {
                        loom::thread::yield_now();
                    }
                    push(&mut producer, value);
                    producer.submit();
                }
            });
            for expected in 1..=3u64 {
                let value = loop {
                    match consumer.pop() {
                        Some(value) => break value,
                        None => loom::thread::yield_now(),
                    }
                };
                assert_eq!(value, expected);
                consumer.release();
            }
            sender.join().expect("the sender ends");
        });
    }
}
