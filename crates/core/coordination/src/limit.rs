//! The limit itself, and how a change of it reaches the meters.

use crate::line::Line;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};
use narrows_qdisc::bucket::Shape;
use narrows_qdisc::tbf::Peak;
use narrows_units::{Bytes, Rate};

/// A limit that queues keep together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// The average rate.
    pub rate: Rate,
    /// How much may leave at once after a pause.
    pub burst: Bytes,
    /// A rate that is never exceeded, not even by the burst.
    pub peak: Option<Peak>,
    /// How much may be queued, all queues together.
    pub backlog: Bytes,
}

impl Limit {
    /// The bucket that keeps this limit alone.
    pub fn shape(&self) -> Shape {
        Shape { rate: self.rate, burst: self.burst, peak: self.peak }
    }
}

/// A limit that can be exchanged while meters use copies of it.
///
/// A meter compares a generation number on a line that is written only by
/// [`Published::set`], so that asking costs a load that hits its own cache. Only when the
/// number has moved does it take the lock and copy the limit, whole: there is no
/// moment at which a new rate could be seen with an old burst.
pub(crate) struct Published {
    generation: Line<AtomicU64>,
    limit: Mutex<Limit>,
}

/// A limit of one generation.
#[derive(Clone, Copy)]
pub(crate) struct Edition {
    pub(crate) generation: u64,
    pub(crate) limit: Limit,
}

impl Published {
    pub(crate) fn new(limit: Limit) -> Self {
        Self { generation: Line(AtomicU64::new(0)), limit: Mutex::new(limit) }
    }

    pub(crate) fn set(&self, limit: Limit) {
        let mut current = lock(&self.limit);
        *current = limit;
        // Under the lock, so that a generation never names two limits. Relaxed is enough: the
        // number only says that there may be something new, and the lock orders the reads.
        let generation = self.generation.load(Ordering::Relaxed);
        self.generation.store(generation + 1, Ordering::Relaxed);
    }

    /// Whether `edition` is still in force. May take a moment to notice a change.
    #[inline]
    pub(crate) fn is_current(&self, edition: &Edition) -> bool {
        // Relaxed: see `set`. A meter that still reads the old number acts as if it had asked a
        // moment earlier.
        self.generation.load(Ordering::Relaxed) == edition.generation
    }

    pub(crate) fn read(&self) -> Edition {
        let limit = lock(&self.limit);
        // Written under this lock only, so it belongs to this limit.
        Edition { generation: self.generation.load(Ordering::Relaxed), limit: *limit }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;
    use std::sync::Arc;

    fn limit(number: u64) -> Limit {
        let rate = Rate::from_bits_per_sec(number);
        Limit { rate, burst: Bytes(number), peak: None, backlog: Bytes(number) }
    }

    #[test]
    fn loom_a_limit_is_read_whole_and_the_last_change_is_noticed() {
        loom::model(|| {
            let published = Arc::new(Published::new(limit(0)));
            let setter = {
                let published = Arc::clone(&published);
                thread::spawn(move || {
                    published.set(limit(1));
                    published.set(limit(2));
                })
            };
            let seen = published.read();
            assert_eq!(seen.limit, limit(seen.generation));
            let follows = if published.is_current(&seen) { seen } else { published.read() };
            assert!(follows.generation >= seen.generation);
            assert_eq!(follows.limit, limit(follows.generation));
            setter.join().unwrap();
            assert_eq!(published.is_current(&seen), seen.generation == 2);
            assert_eq!(published.read().limit, limit(2));
        });
    }
}
