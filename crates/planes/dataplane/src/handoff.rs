//! Where a thread receives workers that other threads hand over to it.
//!
//! Handing over is the only interaction between the threads of a session. A worker belongs to one
//! thread at any moment: from the last step on one thread to the first on the other through a lock
//! that neither holds while packets move.

use crate::bell::Bell;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A queue through which other threads hand workers over to one thread. `W` is a worker with all
/// that moves with it.
pub(crate) struct HandoffQueue<W> {
    arrived: Mutex<Arrived<W>>,
    bell: Bell,
    /// The thread's load of its core, in thousandths, including reserved room.
    load: AtomicU32,
}

struct Arrived<W> {
    workers: Vec<Box<W>>,
    /// The worker of this thread has ended, and none will come back.
    is_over: bool,
    /// The thread is gone.
    is_closed: bool,
}

impl<W> HandoffQueue<W> {
    pub(crate) fn new() -> io::Result<Self> {
        let nothing = Arrived { workers: Vec::new(), is_over: false, is_closed: false };
        Ok(Self { arrived: Mutex::new(nothing), bell: Bell::new()?, load: AtomicU32::new(0) })
    }

    fn arrived(&self) -> MutexGuard<'_, Arrived<W>> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands `worker` over.
    ///
    /// # Errors
    /// The worker itself, if the thread is gone.
    pub(crate) fn put(&self, worker: Box<W>) -> Result<(), Box<W>> {
        let mut arrived = self.arrived();
        if arrived.is_closed {
            return Err(worker);
        }
        arrived.workers.push(worker);
        drop(arrived);
        self.bell.ring();
        Ok(())
    }

    /// Records that the worker of this thread has ended.
    pub(crate) fn end(&self) {
        self.arrived().is_over = true;
        self.bell.ring();
    }

    /// Whether a worker has arrived.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.bell.has_rung()
    }

    /// Takes all workers that have arrived.
    pub(crate) fn take(&self) -> Vec<Box<W>> {
        self.bell.silence();
        std::mem::take(&mut self.arrived().workers)
    }

    /// Closes the handoff queue of a thread that serves no worker, if none will come back. Returns
    /// whether it is closed.
    pub(crate) fn close(&self) -> bool {
        let mut arrived = self.arrived();
        arrived.is_closed = arrived.is_over && arrived.workers.is_empty();
        arrived.is_closed
    }

    /// Readable while a worker has arrived.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.bell.wake()
    }

    /// Sets the thread's load of its core, in thousandths.
    pub(crate) fn set_load(&self, load: u32) {
        // Relaxed: a measure that nothing else depends on.
        self.load.store(load, Ordering::Relaxed);
    }

    /// Reserves room for `load` more, if the thread then uses at most `most` of its core.
    pub(crate) fn claim(&self, load: u32, most: u32) -> bool {
        let add = |now: u32| Some(now.saturating_add(load)).filter(|sum| *sum <= most);
        // Relaxed: as above.
        self.load.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_promised_once() {
        let handoff = HandoffQueue::<()>::new().unwrap();
        handoff.set_load(100);
        assert!(handoff.claim(300, 500));
        assert!(!handoff.claim(101, 500));
        assert!(handoff.claim(100, 500));
        handoff.set_load(0);
        assert!(handoff.claim(500, 500) && !handoff.claim(u32::MAX, 500));
    }

    #[test]
    fn a_handoff_queue_closes_when_its_own_worker_has_ended_and_not_before() {
        let handoff = HandoffQueue::<()>::new().unwrap();
        assert!(!handoff.close() && !handoff.is_full());
        handoff.end();
        assert!(handoff.is_full() && handoff.take().is_empty() && !handoff.is_full());
        assert!(handoff.close());
    }
}
