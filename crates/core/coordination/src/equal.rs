//! `equal`: the rate divided by the number of queues that use it.
//!
//! Each meter has a bucket of its own, which fills at the limit's rate divided by the number of
//! active queues. The meter counts these itself, once per sync time, from what each sibling has
//! published: whether it has packets queued, and when it last sent. A sibling is active if either
//! holds since the meter's last count; the meter counts itself. Both signs are needed: at a low
//! rate a backlogged queue may not send for several sync times, and at a high rate a queue that
//! sends all the time always looks empty.
//!
//! A meter writes only its own line: no locks, no read-modify-write, one line per meter.
//!
//! *When a meter counts.* When it is about to send, as in the papers. Linux's `cake_mq` counts at
//! each attempt, including arrivals that find the queue throttled. In all measured cells that is
//! the same (80/20 over two queues at 200 Mbit/s yields 80 %). It differs if packets of a light
//! queue are further apart than two counts: a meter that counts between two packets of its own
//! forgets its sibling before it sends. At 20 Mbit/s and 1.5 times the load, Linux's rule passes
//! 107 % of the limit, and this one 100 % (`tests/reference`, with a model of Linux's rule).
//!
//! *The burst.* CAKE has none: a queue may be one packet ahead. `tbf` has one, and it is divided
//! like the rate, but never below the length of the next packet; otherwise queues whose part is
//! smaller than a packet would send nothing. So the sum that may leave at once is the burst, or one
//! packet per active queue if that is more. Queues that have not yet noticed each other exceed it,
//! as the papers say.
//!
//! *Limits.* By the authors' own account, the unused share of a light queue is lost (80/20 over two
//! queues yields 70 %), and queues that wake up together each start with the share of their last
//! count. And, seen here: queues without a backlog whose packets are further apart than two counts
//! look idle to each other part of the time, so together they exceed a limit that their load
//! exceeds only slightly (50 Mbit/s, offered 8:2:4:2 over four queues, almost all passes a limit of
//! 40). Load that backlogs every queue never does.
//!
//! Source: mq-cake, Netdev 0x19, Algorithm 1. As in Linux and unlike there, a sibling publishes the
//! time of its last packet and not a counter, so a meter remembers one number and not one per
//! sibling.
//!
//! Cost: a packet costs one load of a line that changes only with the limit, and the bucket; a
//! batch one store of 8 bytes; a sync time one load per sibling.

use crate::Limit;
use crate::limit::{Edition, Published};
use crate::line::Line;
use crate::place::Place;
use crate::sync::{AtomicU64, Ordering};
use narrows_packet::Backlog;
use narrows_qdisc::bucket::{Bucket, Shape};
use narrows_qdisc::tbf::Peak;
use narrows_qdisc::{Contact, Meter, Share, Take};
use narrows_units::{Bytes, Nanos, Rate};
use std::sync::Arc;

/// What a meter publishes, in one word, so that it is consistent: bit 0 says whether packets are
/// queued, the bits above when one last left (63 bits: 292 years).
#[derive(Clone, Copy, PartialEq, Eq)]
struct Activity(u64);

impl Activity {
    /// A meter that is not taken, or that has never sent.
    const NONE: Self = Self(0);

    #[inline]
    fn new(last_sent: Nanos, backlogged: bool) -> Self {
        Self((last_sent.0 << 1) | u64::from(backlogged))
    }

    #[inline]
    fn is_active_since(self, time: Nanos) -> bool {
        self.0 & 1 != 0 || self.0 >> 1 > time.0
    }
}

/// State that the meters share.
pub(crate) struct Shared {
    published: Published,
    activity: Box<[Line<AtomicU64>]>,
    sync_time: Nanos,
    /// Bytes that left without passing any meter, in total. Written by the thread that learns of
    /// them.
    owed: Line<AtomicU64>,
    /// The time up to which the buckets are used initially; written before any meter sends.
    spent: AtomicU64,
}

impl Shared {
    pub(crate) fn new(limit: Limit, meters: usize, sync_time: Nanos) -> Arc<Self> {
        Arc::new(Self {
            published: Published::new(limit),
            activity: (0..meters).map(|_| Line(AtomicU64::new(Activity::NONE.0))).collect(),
            sync_time,
            owed: Line(AtomicU64::new(0)),
            spent: AtomicU64::new(0),
        })
    }

    /// The time up to which buckets were used in another process, if they were.
    fn spent(&self) -> Option<Nanos> {
        // Relaxed: written before workers began.
        Some(Nanos(self.spent.load(Ordering::Relaxed))).filter(|spent| *spent != Nanos::ZERO)
    }

    /// How many meters are active, always including `own`.
    fn count_active(&self, own: usize, since: Nanos) -> u32 {
        let mut active = 1;
        for (number, activity) in self.activity.iter().enumerate() {
            // Relaxed: the word is complete in itself and guards nothing. A stale one is corrected
            // at the next count at the latest.
            let activity = Activity(activity.load(Ordering::Relaxed));
            if number != own && activity.is_active_since(since) {
                active += 1;
            }
        }
        active
    }
}

impl crate::coordination::Shared for Shared {
    fn meter(self: Arc<Self>, place: Place) -> Box<dyn Meter> {
        Box::new(QueueMeter::new(self, place))
    }

    fn set_limit(&self, limit: Limit) {
        self.published.set(limit);
    }

    fn spent_until(&self, now: Nanos) -> Nanos {
        // Each bucket is its meter's own.
        now
    }

    fn resume(&self, spent: Nanos) {
        self.spent.store(spent.0, Ordering::Relaxed);
        // Meters check for changes.
        self.published.set(self.published.read().limit);
    }
}

/// A meter. Its bucket has the size of its part.
struct QueueMeter {
    shared: Arc<Shared>,
    edition: Edition,
    bucket: Bucket,
    /// Queues among which the limit is divided, as of the last count.
    active: u32,
    last_count: Nanos,
    next_count: Nanos,
    last_sent: Nanos,
    /// The published word, read by siblings.
    word: Activity,
    /// What of [`Shared::owed`] it has paid its part of.
    owed: u64,
    /// The largest packet that a bucket of the present size pays for.
    fits: Bytes,
    contact: Contact,
    place: Place,
}

impl QueueMeter {
    fn new(shared: Arc<Shared>, place: Place) -> Self {
        let edition = shared.published.read();
        let mut bucket = Bucket::new(edition.limit.shape());
        if let Some(spent) = shared.spent() {
            bucket.spend_until(spent);
        }
        Self {
            bucket,
            active: 1,
            last_count: Nanos::ZERO,
            next_count: Nanos::ZERO,
            last_sent: Nanos::ZERO,
            word: Activity::NONE,
            // Relaxed: see `pay_owed`.
            owed: shared.owed.load(Ordering::Relaxed),
            fits: edition.limit.shape().longest(),
            edition,
            shared,
            contact: Contact::default(),
            place,
        }
    }

    /// Makes the bucket a part of the limit that holds at least `cost`.
    fn divide(&mut self, cost: Bytes, now: Nanos) {
        let part = part(self.edition.limit.shape(), self.active, cost);
        self.bucket.reshape(part, now);
        self.fits = part.longest();
    }

    #[cold]
    fn follow_limit(&mut self, cost: Bytes, now: Nanos) {
        self.edition = self.shared.published.read();
        if let Some(spent) = self.shared.spent().filter(|spent| self.last_sent < *spent) {
            self.bucket.spend_until(spent);
        }
        self.divide(cost, now);
    }

    /// Pays its part of what has left beside all meters since it last did. A meter that was idle
    /// meanwhile had no part in the limit.
    fn pay_owed(&mut self, backlogged: bool, now: Nanos) {
        // Relaxed: a number by itself.
        let owed = self.shared.owed.load(Ordering::Relaxed);
        if owed == self.owed {
            return;
        }
        let more = Bytes(owed.wrapping_sub(self.owed));
        self.owed = owed;
        if backlogged || self.word.is_active_since(self.last_count) {
            self.bucket.owe(Share::one_of(self.active).of(more), now);
        }
    }

    #[cold]
    fn count(&mut self, cost: Bytes, now: Nanos) {
        self.active = self.shared.count_active(self.place.number(), self.last_count);
        self.contact.reads += self.shared.activity.len() as u64 - 1;
        self.last_count = now;
        // Without a sync time once for each reading of the clock: siblings have done nothing since
        // the last count at the same time, and would all look idle.
        self.next_count = now + self.shared.sync_time.max(Nanos(1));
        self.divide(cost, now);
    }
}

/// One of `active` equal parts of `whole`, but large enough for a packet of `cost` if the whole is.
fn part(whole: Shape, active: u32, cost: Bytes) -> Shape {
    let parts = u64::from(active.max(1));
    let rate = |rate: Rate| Rate::from_bits_per_sec(rate.bits_per_sec() / parts);
    let size = |size: Bytes| Bytes((size.0 / parts).max(cost.0.min(size.0)));
    Shape {
        rate: rate(whole.rate),
        burst: size(whole.burst),
        peak: whole.peak.map(|peak| Peak { rate: rate(peak.rate), mtu: size(peak.mtu) }),
    }
}

impl Meter for QueueMeter {
    fn stamp(&mut self, _cost: Bytes, _now: Nanos) -> Option<Nanos> {
        Some(Nanos::ZERO)
    }

    fn take(&mut self, cost: Bytes, edt: Nanos, now: Nanos) -> Take {
        if !self.shared.published.is_current(&self.edition) {
            self.follow_limit(cost, now);
        } else if cost > self.fits && cost <= self.longest() {
            self.divide(cost, now);
        }
        self.bucket.refill(now);
        if !self.bucket.affords(cost) {
            return self.bucket.take(cost, edt, now);
        }
        // A packet that can be paid before the count can be paid after it: the bucket keeps its
        // credit up to its new size, which is at least the packet.
        if now >= self.next_count {
            self.count(cost, now);
        }
        self.bucket.charge(cost);
        self.last_sent = now;
        Take::Granted
    }

    fn owe(&mut self, bytes: Bytes, _now: Nanos) {
        // Relaxed: a number by itself.
        self.shared.owed.fetch_add(bytes.0, Ordering::Relaxed);
    }

    fn report(&mut self, backlog: Backlog, now: Nanos) {
        self.pay_owed(!backlog.is_empty(), now);
        let activity = Activity::new(self.last_sent, !backlog.is_empty());
        // Published once per batch: all packets of a batch leave at one `now`, so a write after
        // each would store the same word. An idle poll writes nothing.
        if activity != self.word {
            self.word = activity;
            if let Some(line) = self.shared.activity.get(self.place.number()) {
                // Relaxed: see `count_active`. Only this meter writes the line.
                line.store(activity.0, Ordering::Relaxed);
            }
        }
    }

    fn share(&self) -> Share {
        Share::one_of(self.active)
    }

    fn longest(&self) -> Bytes {
        self.edition.limit.shape().longest()
    }

    fn contact(&self) -> Contact {
        self.contact
    }
}

impl Drop for QueueMeter {
    /// A lost worker counts as idle; otherwise its siblings would leave it a part forever.
    fn drop(&mut self) {
        if let Some(line) = self.shared.activity.get(self.place.number()) {
            // Relaxed: the place orders it before the writes of the next holder.
            line.store(Activity::NONE.0, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::coordination::Shared as _;
    use crate::place::Places;
    use loom::thread;

    #[test]
    fn loom_a_sibling_is_counted_from_its_report_until_it_is_gone() {
        loom::model(|| {
            let rate = Rate::from_bits_per_sec(8_000_000_000);
            let limit = Limit { rate, burst: Bytes(10), peak: None, backlog: Bytes(25) };
            let shared = Shared::new(limit, 2, Nanos(10));
            let places = Places::new(2);
            let mut sibling = Arc::clone(&shared).meter(places.take(1));
            let worker = thread::spawn(move || {
                sibling.take(Bytes(10), Nanos::ZERO, Nanos(5));
                sibling.report(Backlog::default(), Nanos(5));
                sibling
            });
            let first = shared.count_active(0, Nanos::ZERO);
            let second = shared.count_active(0, Nanos::ZERO);
            assert!(first <= second, "what was seen is not unseen");
            let sibling = worker.join().unwrap();
            assert_eq!(shared.count_active(0, Nanos(4)), 2);
            assert_eq!(shared.count_active(0, Nanos(5)), 1, "it has not sent since");
            let leaver = thread::spawn(move || drop(sibling));
            shared.count_active(0, Nanos::ZERO);
            leaver.join().unwrap();
            assert_eq!(shared.count_active(0, Nanos::ZERO), 1);
        });
    }
}
