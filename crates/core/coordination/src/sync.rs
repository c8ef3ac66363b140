//! The primitives that workers share, as the standard library has them or, under
//! `--cfg loom`, as the model checker does. Nothing else in this crate names an atomic.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicI64, AtomicU16, AtomicU32, AtomicU64, Ordering, fence},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicI64, AtomicU16, AtomicU32, AtomicU64, Ordering, fence},
};

/// Locks, also where a thread has panicked with the lock held: data behind these locks is
/// consistent after every statement.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
