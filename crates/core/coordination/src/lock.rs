//! `lock`: one bucket for all queues, under a mutex.
//!
//! This is what single-queue shapers do, and the baseline for the others: exact to one burst,
//! but every packet of every queue contends for one line.
//!
//! *By turns.* Without turns a shared bucket starves queues with large packets: a queue of small
//! packets takes each token as it falls, and a full-size packet never finds enough. So a meter that
//! has to wait books its turn: later meters may not take what it needs, and it learns when its turn
//! is, behind the turns booked before. A turn comes by the clock, so a stalled meter delays no
//! other as long as the burst is worth two packets; its booking is kept meanwhile. A meter that is
//! dropped leaves its turn to the others.
//!
//! *Exactness.* Booking moves no credit. A packet is charged when it leaves, from a bucket that
//! never holds more than the burst, so in any window at most the rate times the window plus the
//! burst leaves.
//!
//! Cost: a mutex per packet, unless its turn is known not to have come; another when a queue
//! becomes active or idle.

use crate::Limit;
use crate::limit::{Edition, Published};
use crate::place::Place;
use crate::sync::{Mutex, lock};
use narrows_packet::Backlog;
use narrows_qdisc::bucket::Bucket;
use narrows_qdisc::{Contact, Meter, Share, Take};
use narrows_units::{Bytes, Nanos};
use std::sync::Arc;

/// State that the meters share.
pub(crate) struct Shared {
    published: Published,
    state: Mutex<State>,
}

struct State {
    bucket: Bucket,
    /// The generation of the limit that the bucket keeps.
    generation: u64,
    /// The sum of all booked turns.
    booked: Bytes,
    /// Queues with packets in them.
    active: u32,
}

impl Shared {
    pub(crate) fn new(limit: Limit) -> Arc<Self> {
        let published = Published::new(limit);
        let state = State {
            bucket: Bucket::new(limit.shape()),
            generation: published.read().generation,
            booked: Bytes::ZERO,
            active: 0,
        };
        Arc::new(Self { published, state: Mutex::new(state) })
    }
}

impl crate::coordination::Shared for Shared {
    fn meter(self: Arc<Self>, place: Place) -> Box<dyn Meter> {
        let edition = self.published.read();
        Box::new(QueueMeter {
            edition,
            turn: None,
            backlogged: false,
            others: 0,
            shared: self,
            contact: Contact::default(),
            _place: place,
        })
    }

    fn set_limit(&self, limit: Limit) {
        self.published.set(limit);
    }

    fn spent_until(&self, now: Nanos) -> Nanos {
        let mut state = lock(&self.state);
        state.bucket.refill(now);
        state.bucket.spent_until()
    }

    fn resume(&self, spent: Nanos) {
        lock(&self.state).bucket.spend_until(spent);
    }
}

/// A booked turn.
#[derive(Clone, Copy)]
struct Turn {
    cost: Bytes,
    at: Nanos,
}

struct QueueMeter {
    shared: Arc<Shared>,
    edition: Edition,
    turn: Option<Turn>,
    /// Whether this queue is counted among the active.
    backlogged: bool,
    /// Other active queues, as of the last time the lock was held.
    others: u32,
    contact: Contact,
    _place: Place,
}

impl QueueMeter {
    #[inline]
    fn cancel_turn(&mut self) {
        if let Some(turn) = self.turn.take() {
            let mut state = lock(&self.shared.state);
            state.booked = state.booked - turn.cost;
        }
    }

    #[cold]
    fn follow_limit(&mut self, now: Nanos) {
        // Turns were computed with the old rate.
        self.cancel_turn();
        self.edition = self.shared.published.read();
        let mut state = lock(&self.shared.state);
        // The first meter that notices the change applies it; later ones find it done.
        if state.generation < self.edition.generation {
            state.generation = self.edition.generation;
            state.bucket.reshape(self.edition.limit.shape(), now);
        }
    }
}

impl Meter for QueueMeter {
    fn stamp(&mut self, _cost: Bytes, _now: Nanos) -> Option<Nanos> {
        Some(Nanos::ZERO)
    }

    fn take(&mut self, cost: Bytes, _edt: Nanos, now: Nanos) -> Take {
        if !self.shared.published.is_current(&self.edition) {
            self.follow_limit(now);
        }
        match self.turn {
            Some(turn) if turn.cost != cost => self.cancel_turn(),
            Some(turn) if now < turn.at => return Take::Wait(turn.at),
            _ => {}
        }
        self.contact.updates += 1;
        self.contact.locked += 1;
        let mut state = lock(&self.shared.state);
        self.others = state.active - u32::from(self.backlogged);
        state.bucket.refill(now);
        let at = match self.turn {
            Some(_) if state.bucket.affords(cost) => {
                state.booked = state.booked - cost;
                state.bucket.charge(cost);
                self.turn = None;
                return Take::Granted;
            }
            // Others were late for their turns, and the bucket lost tokens meanwhile.
            Some(_) => state.bucket.when_affords(cost),
            None if state.booked == Bytes::ZERO && state.bucket.affords(cost)
                || state.bucket.holds(state.booked + cost) =>
            {
                state.bucket.charge(cost);
                return Take::Granted;
            }
            None => {
                let at = if state.booked == Bytes::ZERO {
                    state.bucket.when_affords(cost)
                } else {
                    state.bucket.when_earned(state.booked + cost)
                };
                state.booked += cost;
                at
            }
        };
        self.turn = Some(Turn { cost, at });
        Take::Wait(at)
    }

    fn owe(&mut self, bytes: Bytes, now: Nanos) {
        lock(&self.shared.state).bucket.owe(bytes, now);
    }

    fn report(&mut self, backlog: Backlog, _now: Nanos) {
        let backlogged = !backlog.is_empty();
        if backlogged == self.backlogged {
            return;
        }
        if !backlogged {
            // The packet of this turn has left the queue in some other way.
            self.cancel_turn();
        }
        let mut state = lock(&self.shared.state);
        state.active = if backlogged { state.active + 1 } else { state.active - 1 };
        self.backlogged = backlogged;
        self.others = state.active - u32::from(backlogged);
    }

    fn share(&self) -> Share {
        Share::one_of(self.others + 1)
    }

    fn part_of_burst(&self) -> Share {
        Share::WHOLE
    }

    fn longest(&self) -> Bytes {
        self.edition.limit.shape().longest()
    }

    fn contact(&self) -> Contact {
        self.contact
    }
}

impl Drop for QueueMeter {
    /// A lost worker waits for nothing and has no packets.
    fn drop(&mut self) {
        self.report(Backlog::default(), Nanos::ZERO);
        self.cancel_turn();
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::coordination::Shared as _;
    use crate::place::Places;
    use loom::thread;
    use narrows_units::Rate;

    fn limit(burst: u64) -> Limit {
        let rate = Rate::from_bits_per_sec(8_000_000_000);
        Limit { rate, burst: Bytes(burst), peak: None, backlog: Bytes(25) }
    }

    #[test]
    fn loom_meters_leave_nothing_booked_and_never_grant_more_than_there_is() {
        loom::model(|| {
            let shared = Shared::new(limit(15));
            let places = Places::new(2);
            let work = |mut meter: Box<dyn Meter>| {
                let take = meter.take(Bytes(10), Nanos::ZERO, Nanos(1));
                let packets = u32::from(take != Take::Granted);
                meter.report(Backlog { packets, bytes: Bytes(10) }, Nanos(1));
                u32::from(take == Take::Granted)
            };
            let meter = Arc::clone(&shared).meter(places.take(0));
            let other = thread::spawn(move || work(meter));
            shared.published.set(limit(12));
            let meter = Arc::clone(&shared).meter(places.take(1));
            let granted = work(meter) + other.join().unwrap();
            assert_eq!(granted, 1);
            let state = lock(&shared.state);
            assert_eq!((state.booked, state.active), (Bytes::ZERO, 0));
        });
    }
}
