//! Rings in ordinary memory, for tests: both ends are in user space, and one of them plays the
//! kernel.
#![allow(unsafe_code)]

use crate::ring::{Consumer, Producer, RingMemory};
use crate::sync::{AtomicU32, Cell};
use std::ptr::NonNull;
use std::sync::Arc;

pub(crate) struct Heap<T> {
    producer: AtomicU32,
    consumer: AtomicU32,
    flags: AtomicU32,
    entries: Box<[Cell<T>]>,
}

// SAFETY: as for `RingMemory`: the protocol gives each entry to one side at a time, and loom and
// Miri check that it does.
unsafe impl<T: Send> Send for Heap<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Heap<T> {}

/// A ring of `size` entries whose indices start at `start`.
pub(crate) fn heap<T: Default>(size: u32, start: u32) -> Arc<Heap<T>> {
    Arc::new(Heap {
        producer: AtomicU32::new(start),
        consumer: AtomicU32::new(start),
        flags: AtomicU32::new(0),
        entries: (0..size).map(|_| Cell::new(T::default())).collect(),
    })
}

/// Both ends, at the present indices.
pub(crate) fn both_ends<T: Copy + Send + 'static>(
    heap: &Arc<Heap<T>>,
) -> (Producer<T>, Consumer<T>) {
    let size = heap.entries.len() as u32;
    let memory = || RingMemory {
        producer: NonNull::from(&heap.producer),
        consumer: NonNull::from(&heap.consumer),
        flags: NonNull::from(&heap.flags),
        entries: NonNull::from(&heap.entries[..]).cast(),
        size,
        _owner: Box::new(heap.clone()),
    };
    (Producer::new(memory()), Consumer::new(memory()))
}

/// An empty ring of `size` entries, a power of two, in ordinary memory.
#[cfg(feature = "heap")]
pub fn ring_in_memory<T: Copy + Default + Send + 'static>(size: u32) -> (Producer<T>, Consumer<T>) {
    assert!(size.is_power_of_two(), "a ring of {size} entries");
    both_ends(&heap(size, 0))
}
