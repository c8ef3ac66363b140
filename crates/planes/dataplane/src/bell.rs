//! A bell that one thread rings for another, which may be running or asleep.
//!
//! A running thread checks a flag once per step; a sleeping one polls the descriptor.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Wakes a thread: a flag for one that runs, a descriptor for one that sleeps.
pub(crate) struct Bell {
    has_rung: AtomicBool,
    /// Wakes a thread that sleeps.
    wake: OwnedFd,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { has_rung: AtomicBool::new(false), wake })
    }

    /// Rings it. The message must be in place before.
    pub(crate) fn ring(&self) {
        // The flag comes last, because only the flag makes the thread silence the bell. A readable
        // descriptor without the flag would keep its thread from sleeping until the next ring. The
        // write fails only after 2^64 rings without a look.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        self.has_rung.store(true, Ordering::Release);
    }

    /// Whether it has rung.
    #[inline]
    pub(crate) fn has_rung(&self) -> bool {
        // Pairs with the Release in `ring`.
        self.has_rung.load(Ordering::Acquire)
    }

    /// Silences it. Called before the messages are taken, so later ones ring again.
    pub(crate) fn silence(&self) {
        // The flag comes first: if the descriptor stays readable, a ring has written it since, and
        // sets the flag later still. With the flag last, a ring between the two would leave the
        // descriptor readable without the flag, and the thread would not sleep until the next ring.
        self.has_rung.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut counter = [0; 8];
        // Fails only if the counter was read already; the flag is enough.
        let _ = rustix::io::read(&self.wake, &mut counter);
    }

    /// Readable while it has rung.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_xsk::wait_readable;
    use std::sync::Barrier;

    #[test]
    fn a_bell_reaches_running_and_sleeping_threads_until_it_is_silenced() {
        let bell = Bell::new().unwrap();
        let is_heard_asleep = || wait_readable([(bell.wake(), true)], Some(0)).unwrap().readable;
        assert!(!bell.has_rung() && !is_heard_asleep());
        bell.ring();
        bell.ring();
        assert!(bell.has_rung() && is_heard_asleep());
        bell.silence();
        assert!(!bell.has_rung() && !is_heard_asleep());
    }

    #[test]
    fn a_bell_silenced_while_it_rings_causes_no_spurious_wake_up() {
        const ROUNDS: u32 = 20_000;
        let (bell, round) = (Bell::new().unwrap(), Barrier::new(2));
        let mut in_vain = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..ROUNDS {
                    round.wait();
                    // The second ring at any moment of the silencing.
                    bell.ring();
                    (0..number % 512).for_each(|_| std::hint::spin_loop());
                    bell.ring();
                    round.wait();
                }
            });
            for _ in 0..ROUNDS {
                round.wait();
                while !bell.has_rung() {
                    std::hint::spin_loop();
                }
                bell.silence();
                round.wait();
                let wakes = wait_readable([(bell.wake(), true)], Some(0)).unwrap().readable;
                in_vain += u32::from(wakes && !bell.has_rung());
            }
        });
        assert_eq!(in_vain, 0, "wake-ups without a message");
    }
}
