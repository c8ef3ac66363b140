//! The synchronization primitives of the rings, replaced by `loom`'s under `cfg(loom)`.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};

#[cfg(loom)]
pub(crate) type Cell<T> = loom::cell::UnsafeCell<T>;

/// A ring entry. `loom`'s cell has the same interface, with which it observes every access.
#[cfg(not(loom))]
#[repr(transparent)]
pub(crate) struct Cell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> Cell<T> {
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }

    #[cfg(any(test, feature = "heap"))]
    pub(crate) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }
}
