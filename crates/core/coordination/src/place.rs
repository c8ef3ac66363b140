//! Which meters are taken.

use crate::sync::{AtomicBool, Ordering};
use std::sync::Arc;

/// The places at a limit, each free or taken.
pub(crate) struct Places(Box<[AtomicBool]>);

impl Places {
    pub(crate) fn new(places: usize) -> Arc<Self> {
        Arc::new(Self((0..places).map(|_| AtomicBool::new(false)).collect()))
    }

    /// Takes place number `number`.
    ///
    /// # Panics
    /// If it does not exist or is taken.
    pub(crate) fn take(self: &Arc<Self>, number: usize) -> Place {
        let count = self.0.len();
        let place = self.0.get(number);
        let place = place.unwrap_or_else(|| panic!("queue {number} of {count} does not exist"));
        // Acquire: sees the last write of the meter's previous holder (that it is idle), and orders
        // it before all writes from now on.
        let taken = place.swap(true, Ordering::Acquire);
        assert!(!taken, "meter {number} is taken: drop it before it is taken again");
        Place { places: Arc::clone(self), number }
    }
}

/// A taken place; free again when dropped.
///
/// Keep it as the *last* field of a meter, so that it is given back after everything else.
pub(crate) struct Place {
    places: Arc<Places>,
    number: usize,
}

impl Place {
    pub(crate) fn number(&self) -> usize {
        self.number
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(place) = self.places.0.get(self.number) {
            // Release: pairs with the Acquire in `Places::take`.
            place.store(false, Ordering::Release);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::AtomicU64;
    use loom::thread;

    #[test]
    fn loom_a_new_holder_sees_the_last_writes_of_the_previous_one() {
        loom::model(|| {
            let places = Places::new(1);
            let left = Arc::new(AtomicU64::new(0));
            let place = places.take(0);
            let worker = {
                let left = Arc::clone(&left);
                thread::spawn(move || {
                    left.store(1, Ordering::Relaxed);
                    drop(place);
                })
            };
            // As `take`, without the panic for a taken place.
            if !places.0[0].swap(true, Ordering::Acquire) {
                assert_eq!(left.load(Ordering::Relaxed), 1);
                left.store(2, Ordering::Relaxed);
                worker.join().unwrap();
                assert_eq!(left.load(Ordering::Relaxed), 2, "the one before has the last word");
            } else {
                worker.join().unwrap();
            }
        });
    }
}
