//! A limit with its queues' meters.

use crate::place::{Place, Places};
use crate::{Limit, Strategy, census, edt, equal, fair, lock};
use narrows_qdisc::{Census, Meter};
use narrows_units::Nanos;
use std::sync::{Arc, OnceLock};

/// What a strategy provides: shared state, and a meter for each queue.
pub(crate) trait Shared: Send + Sync {
    /// The meter of the queue at `place`.
    fn meter(self: Arc<Self>, place: Place) -> Box<dyn Meter>;

    /// Sets another limit.
    fn set_limit(&self, limit: Limit);

    /// The time up to which the limit is used at `now`; without credit if unknown.
    fn spent_until(&self, now: Nanos) -> Nanos;

    /// Continues with a limit that is used up to `spent`. Called before any meter has sent.
    fn resume(&self, spent: Nanos);
}

/// A limit shared by a number of queues.
pub struct Coordination {
    strategy: Strategy,
    shared: Arc<dyn Shared>,
    places: Arc<Places>,
    /// Created on first use: most qdiscs do not count hosts.
    census: OnceLock<Arc<census::Shared>>,
}

impl Coordination {
    /// A limit for `queues` queues, divided by `strategy`.
    pub fn new(strategy: Strategy, limit: Limit, queues: usize) -> Arc<Self> {
        let shared: Arc<dyn Shared> = match strategy {
            Strategy::Lock => lock::Shared::new(limit),
            Strategy::Edt => edt::Shared::new(limit),
            Strategy::Equal { sync_time } => equal::Shared::new(limit, queues, sync_time),
            Strategy::Fair { sync_time } => fair::Shared::new(limit, queues, sync_time),
        };
        Arc::new(Self { strategy, shared, places: Places::new(queues), census: OnceLock::new() })
    }

    /// How the limit is divided.
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// The meter of queue number `queue` (from 0). Each may be taken once at a time; it is free
    /// again, and counts as idle, when its meter is dropped.
    ///
    /// # Panics
    /// If there is no such queue, or its meter is taken.
    pub fn meter(self: &Arc<Self>, queue: usize) -> Box<dyn Meter> {
        Arc::clone(&self.shared).meter(self.places.take(queue))
    }

    /// A handle at the census of this limit's queues, for any strategy and any queue. Its counts
    /// are subtracted when it is dropped.
    pub fn census(&self) -> Box<dyn Census> {
        Box::new(Arc::clone(self.census.get_or_init(census::Shared::new)).handle())
    }

    /// Sets another limit while packets flow. Meters follow at their next packet; credit and
    /// debt are carried over, capped to the new burst.
    pub fn set_limit(&self, limit: Limit) {
        self.shared.set_limit(limit);
    }

    /// The time up to which the limit is used: there is credit if it is before `now`, and debt if
    /// it is after. Where a strategy does not know, it counts time as used. Meant for another
    /// process with the same clock, which continues with [`Coordination::resume`].
    pub fn spent_until(&self, now: Nanos) -> Nanos {
        self.shared.spent_until(now)
    }

    /// Starts a new, unused limit as if it had been used up to `spent`: its credit is the time
    /// since then at the rate, at most its burst.
    pub fn resume(&self, spent: Nanos) {
        self.shared.resume(spent);
    }
}
