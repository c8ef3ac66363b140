//! What all queues together demand and have sent in each tin.
//!
//! There is one pair of words per tin, to which each handle adds the difference between its present
//! and its previous figure. With a line per handle, handles would not write the same line, but each
//! would have to read the lines of all others: N² reads of freshly written lines every sync time,
//! where this takes N writes and N reads. All eight tins are one [`Line`], which a handle fetches
//! once for everything that it publishes and sums up.
//!
//! [`Line`]: crate::line::Line

use crate::sync::{AtomicU64, Ordering};
use narrows_qdisc::{TINS_MAX, TinCensus};
use std::array;

/// The sums over all handles.
pub(super) struct Tins([Sums; TINS_MAX]);

struct Sums {
    weight: AtomicU64,
    sent: AtomicU64,
}

// Otherwise a look-up would be more than one fetch.
#[cfg(not(loom))]
const _: () = assert!(size_of::<crate::line::Line<Tins>>() == 128);

impl Tins {
    pub(super) fn new() -> Self {
        Self(array::from_fn(|_| Sums { weight: AtomicU64::new(0), sent: AtomicU64::new(0) }))
    }

    #[inline]
    pub(super) fn sum(&self, tins: &mut [TinCensus]) {
        for (tin, sums) in tins.iter_mut().zip(&self.0) {
            // Relaxed: each is a sum on its own, see `census`.
            tin.weight = sums.weight.load(Ordering::Relaxed);
            tin.sent = sums.sent.load(Ordering::Relaxed);
        }
    }
}

/// The figures that one handle has published.
#[derive(Default)]
pub(super) struct Published([TinCensus; TINS_MAX]);

impl Published {
    pub(super) fn tell(&mut self, shared: &Tins, tins: &[TinCensus]) {
        for ((published, sums), tin) in self.0.iter_mut().zip(&shared.0).zip(tins) {
            replace(&sums.weight, published.weight, tin.weight);
            replace(&sums.sent, published.sent, tin.sent);
            *published = *tin;
        }
    }

    /// Subtracts the weights. Sent bytes stay counted.
    pub(super) fn take_back(&mut self, shared: &Tins) {
        for (published, sums) in self.0.iter_mut().zip(&shared.0) {
            replace(&sums.weight, published.weight, 0);
            published.weight = 0;
        }
    }
}

/// Replaces a handle's part of a sum.
#[inline]
fn replace(sum: &AtomicU64, old: u64, new: u64) {
    if new != old {
        // Relaxed: a sum on its own, see `census`. Wrapping: adds what is negative, too.
        sum.fetch_add(new.wrapping_sub(old), Ordering::Relaxed);
    }
}
