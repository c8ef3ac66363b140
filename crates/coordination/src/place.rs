//! Which seats are taken.

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
    /// Where it does not exist or is taken.
    pub(crate) fn take(self: &Arc<Self>, number: usize) -> Place {
        let count = self.0.len();
        let place = self.0.get(number);
        let place = place.unwrap_or_else(|| panic!("seat {number} of {count} does not exist"));
        // Acquire: whatever the one who sat here before wrote last (that it is idle) is seen,
        // and so ordered before anything that is written from now on.
        let taken = place.swap(true, Ordering::Acquire);
        assert!(!taken, "seat {number} is taken: drop its meter before it is taken again");
        Place { places: Arc::clone(self), number }
    }
}

/// A taken place; free again when dropped.
///
/// Keep it as the *last* field of a seat, so that it is given back after everything else.
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
