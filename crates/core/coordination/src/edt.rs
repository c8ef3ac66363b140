//! `edt`: one departure clock for all queues.
//!
//! A packet gets its earliest departure time on arrival: the time up to which the limit is already
//! promised, which the packet advances by the time that it takes at the rate. Then it waits in its
//! own queue until that time, and needs no further coordination. A packet that would leave after
//! the horizon is dropped on arrival. The horizon is the time that the backlog limit takes at the
//! rate, so it is the same limit, counted in time.
//!
//! *Differences from the source.* Algorithm 2 tests, stores and adds separately, so two queues may
//! get the same time, or the clock may be set back; here it is one compare-and-swap. Algorithm 2
//! rounds each packet's time down; here each meter carries the remainder from packet to packet, so
//! its sum is rounded up once and not for every packet: in any window all meters together are exact
//! to a nanosecond per meter. In Algorithm 2 the horizon is configured.
//!
//! *No burst.* Departure times are spaced by the rate. The burst and the peak rate permit more, but
//! nothing is made up for after a pause. As in all strategies, the burst bounds the longest packet.
//!
//! *Change of the limit.* Stamps from the old rate are void: the clock is set back to now (and one
//! packet, the last one that left), and each meter at once reserves the time for its queued
//! packets, ahead of new arrivals. Packets then get new stamps from this reservation as they leave;
//! so do packets that arrived under another meter (their departure time is zero). If each packet
//! reserved its time only then, it would get the end of the line while the time of the packets
//! behind it passed unused.
//!
//! *Drops.* The time of a packet that its queue drops goes to the next packets of the same meter,
//! if it has not passed. Time that has passed is lost, as any time in which no queue had a packet.
//!
//! *Limits.* The sum is exact for the stamps; a worker that oversleeps sends everything that has
//! become due at once. Not fair: a queue that offers more gets more. Every arrival of every queue
//! writes one line.
//!
//! Source: mq-cake, Netdev 0x19, Algorithm 2, after EDT-BPF (Fomichev et al., Netdev 0x14).
//!
//! Cost: one division and one compare-and-swap of a contended line at arrival; a comparison at
//! departure.

use crate::Limit;
use crate::limit::{Edition, Published};
use crate::line::Line;
use crate::pace::Pace;
use crate::place::Place;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};
use narrows_packet::Backlog;
use narrows_qdisc::{Contact, Meter, OWED_MAX, Share, Take};
use narrows_units::{Bytes, Nanos};
use std::sync::Arc;

/// State that the meters share.
pub(crate) struct Shared {
    published: Published,
    /// The time up to which the limit is promised. Contended by design.
    promised: Line<AtomicU64>,
    /// The most that a packet has cost so far, in bytes. Rarely written.
    largest: Line<AtomicU64>,
    /// The generation of the limit for which the clock has been set back.
    clock_of: Mutex<u64>,
}

impl Shared {
    pub(crate) fn new(limit: Limit) -> Arc<Self> {
        let published = Published::new(limit);
        let generation = published.read().generation;
        Arc::new(Self {
            published,
            promised: Line(AtomicU64::new(0)),
            largest: Line(AtomicU64::new(0)),
            clock_of: Mutex::new(generation),
        })
    }

    /// Promises the next `delay`, from `now` on at the earliest and from `latest` on at the
    /// latest.
    fn promise(&self, delay: Nanos, now: Nanos, latest: Nanos) -> Option<Nanos> {
        // Relaxed throughout: the clock is one word, each value is given out once because
        // compare-and-swap acts on the newest, and no other memory is reached through it.
        let mut promised = self.promised.load(Ordering::Relaxed);
        loop {
            let start = Nanos(promised).max(now);
            if start > latest {
                return None;
            }
            match self.promised.compare_exchange_weak(
                promised,
                (start + delay).0,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(start),
                Err(newer) => promised = newer,
            }
        }
    }

    /// Promises `span` to what passes no meter.
    fn owe(&self, span: Nanos, now: Nanos) {
        let latest = now + OWED_MAX;
        let next = |promised| (Nanos(promised) + span).min(latest.max(Nanos(promised))).0;
        let mut promised = self.promised.load(Ordering::Relaxed);
        while let Err(newer) = self.promised.compare_exchange_weak(
            promised,
            next(promised),
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            promised = newer;
        }
    }

    fn note_largest(&self, cost: Bytes) {
        if self.largest.load(Ordering::Relaxed) < cost.0 {
            // Relaxed: a bound that is read under `clock_of` after a change of the limit.
            self.largest.fetch_max(cost.0, Ordering::Relaxed);
        }
    }

    /// Sets the clock back at `now`, once for each change of the limit: departure times of packets
    /// that are still queued are void. The last packet that left may not be fully paid for.
    fn set_back(&self, edition: &Edition, now: Nanos) {
        let mut clock_of = lock(&self.clock_of);
        if *clock_of >= edition.generation {
            return;
        }
        *clock_of = edition.generation;
        let largest = Bytes(self.largest.load(Ordering::Relaxed));
        let owed = now + edition.limit.rate.time_for(largest);
        self.promised.fetch_min(owed.0, Ordering::Relaxed);
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
        // The times of packets that are still queued are void, as in `set_back`.
        let rate = self.published.read().limit.rate;
        let largest = Bytes(self.largest.load(Ordering::Relaxed));
        let promised = Nanos(self.promised.load(Ordering::Relaxed));
        promised.min(now + rate.time_for(largest))
    }

    fn resume(&self, spent: Nanos) {
        self.promised.store(spent.0, Ordering::Relaxed);
    }
}

struct QueueMeter {
    shared: Arc<Shared>,
    edition: Edition,
    pace: Pace,
    horizon: Nanos,
    /// The largest packet that this meter has published.
    largest: Bytes,
    /// Packets that are queued here.
    queued: u32,
    /// How many of them, from the head, were stamped before the limit changed.
    void: u32,
    /// A time promised to a packet at the head whose own stamp is void.
    restamped: Option<(Bytes, Nanos)>,
    spare: Spare,
    /// The cost of all packets queued here, as far as this meter knows.
    pending: Bytes,
    /// The part of it for which no time is promised yet.
    unpromised: Bytes,
    /// The time reserved for the packets at the head.
    block: Option<Block>,
    contact: Contact,
    _place: Place,
}

/// Time that was promised to packets at the head together.
#[derive(Clone, Copy)]
struct Block {
    /// When the next of them may leave.
    next: Nanos,
    pace: Pace,
}

impl Block {
    /// The time of the next packet, which costs `cost`.
    fn stamp(&mut self, cost: Bytes) -> Option<Nanos> {
        let (delay, pace) = self.pace.delay(cost)?;
        self.pace = pace;
        let stamp = self.next;
        self.next = stamp + delay;
        Some(stamp)
    }
}

/// The times of packets that were dropped.
#[derive(Clone, Copy, Default)]
struct Spare {
    bytes: Bytes,
    /// Not before this time.
    from: Nanos,
}

impl Spare {
    /// More of it, from `edt` on.
    fn add(&mut self, cost: Bytes, edt: Nanos, now: Nanos) {
        if self.from < now {
            self.bytes = Bytes::ZERO;
        }
        self.bytes += cost;
        self.from = self.from.max(edt);
    }

    /// The time for `cost`, if there is enough and its time has not passed.
    #[inline]
    fn take(&mut self, cost: Bytes, now: Nanos) -> Option<Nanos> {
        if self.bytes < cost || self.from < now {
            return None;
        }
        self.bytes = self.bytes - cost;
        Some(self.from)
    }
}

impl QueueMeter {
    fn new(shared: Arc<Shared>, place: Place) -> Self {
        let edition = shared.published.read();
        Self {
            pace: Pace::new(edition.limit.rate),
            horizon: edition.limit.rate.time_for(edition.limit.backlog),
            largest: Bytes::ZERO,
            queued: 0,
            void: 0,
            restamped: None,
            spare: Spare::default(),
            pending: Bytes::ZERO,
            unpromised: Bytes::ZERO,
            block: None,
            edition,
            shared,
            contact: Contact::default(),
            _place: place,
        }
    }

    #[inline]
    fn follow_limit(&mut self, now: Nanos) {
        if !self.shared.published.is_current(&self.edition) {
            self.adopt_limit(now);
        }
        if self.unpromised != Bytes::ZERO {
            self.promise_block(now);
        }
    }

    /// Reserves the time for all queued packets without a valid stamp.
    #[cold]
    fn promise_block(&mut self, now: Nanos) {
        let cost = std::mem::take(&mut self.unpromised);
        let pace = Pace::new(self.edition.limit.rate);
        let Some((delay, _)) = pace.delay(cost) else { return };
        self.contact.updates += 1;
        let start = self.shared.promise(delay, now.max(Nanos(1)), Nanos::MAX);
        self.block = start.map(|next| Block { next, pace });
    }

    #[cold]
    fn adopt_limit(&mut self, now: Nanos) {
        self.edition = self.shared.published.read();
        self.pace = Pace::new(self.edition.limit.rate);
        self.horizon = self.edition.limit.rate.time_for(self.edition.limit.backlog);
        self.void = self.queued;
        self.restamped = None;
        self.spare = Spare::default();
        self.unpromised = self.pending;
        self.block = None;
        self.shared.set_back(&self.edition, now);
    }

    /// A departure time for `cost`, `latest` at the latest.
    fn promise(&mut self, cost: Bytes, now: Nanos, latest: Nanos) -> Option<Nanos> {
        if cost > self.largest {
            self.largest = cost;
            self.shared.note_largest(cost);
        }
        let (delay, pace) = self.pace.delay(cost)?;
        self.contact.updates += 1;
        // Zero means unstamped.
        let stamp = self.shared.promise(delay, now.max(Nanos(1)), latest)?;
        self.pace = pace;
        Some(stamp)
    }

    /// A departure time for the packet at the head, which has no valid one.
    fn stamp_head(&mut self, cost: Bytes, now: Nanos) -> Option<Nanos> {
        match &mut self.block {
            Some(block) => block.stamp(cost),
            None => self.promise(cost, now, Nanos::MAX),
        }
    }
}

impl Meter for QueueMeter {
    fn stamp(&mut self, cost: Bytes, now: Nanos) -> Option<Nanos> {
        self.follow_limit(now);
        let stamp = match self.spare.take(cost, now) {
            Some(stamp) => stamp,
            None => self.promise(cost, now, now + self.horizon)?,
        };
        self.queued += 1;
        self.pending += cost;
        Some(stamp)
    }

    fn unstamp(&mut self, cost: Bytes, edt: Nanos, now: Nanos) {
        self.pending = self.pending - cost.min(self.pending);
        // If stamps are void, the stamp of the dropped packet may have been void, too.
        if self.void == 0 && self.block.is_none() && edt >= now {
            self.spare.add(cost, edt, now);
        }
    }

    fn take_over(&mut self, cost: Bytes) {
        self.pending += cost;
        self.unpromised += cost;
    }

    fn owe(&mut self, bytes: Bytes, now: Nanos) {
        if let Some((span, pace)) = self.pace.delay(bytes) {
            self.pace = pace;
            self.shared.owe(span, now);
        }
    }

    fn take(&mut self, cost: Bytes, edt: Nanos, now: Nanos) -> Take {
        self.follow_limit(now);
        let edt = if self.void == 0 && edt != Nanos::ZERO {
            self.block = None;
            edt
        } else {
            match self.restamped {
                Some((for_cost, edt)) if for_cost == cost => edt,
                _ => match self.stamp_head(cost, now) {
                    Some(edt) => {
                        self.restamped = Some((cost, edt));
                        edt
                    }
                    None => return Take::Wait(Nanos::MAX),
                },
            }
        };
        if edt > now {
            return Take::Wait(edt);
        }
        self.restamped = None;
        self.void = self.void.saturating_sub(1);
        self.queued = self.queued.saturating_sub(1);
        self.pending = self.pending - cost.min(self.pending);
        Take::Granted
    }

    fn report(&mut self, backlog: Backlog, _now: Nanos) {
        // Packets may have been added or removed without this meter.
        self.queued = backlog.packets;
        self.void = self.void.min(backlog.packets);
        if backlog.packets == 0 {
            self.pending = Bytes::ZERO;
        }
    }

    fn share(&self) -> Share {
        Share::WHOLE
    }

    fn longest(&self) -> Bytes {
        self.edition.limit.shape().longest()
    }

    fn contact(&self) -> Contact {
        self.contact
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;
    use narrows_units::Rate;

    fn shared() -> Arc<Shared> {
        let rate = Rate::from_bits_per_sec(8_000_000_000);
        Shared::new(Limit { rate, burst: Bytes(10), peak: None, backlog: Bytes(25) })
    }

    #[test]
    fn loom_no_two_packets_are_promised_the_same_time() {
        loom::model(|| {
            let shared = shared();
            let promise = |shared: &Shared| shared.promise(Nanos(10), Nanos(1), Nanos(25));
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || [promise(&shared), promise(&shared)])
            };
            let mut promised = vec![promise(&shared), promise(&shared)];
            promised.extend(other.join().unwrap());
            promised.sort();
            let expected = [None, Some(1), Some(11), Some(21)].map(|start| start.map(Nanos));
            assert_eq!(promised, expected);
        });
    }

    #[test]
    fn loom_the_clock_is_set_back_once_for_each_change() {
        loom::model(|| {
            let shared = shared();
            shared.note_largest(Bytes(10));
            let stale = shared.promise(Nanos(1_000), Nanos(1), Nanos::MAX);
            assert_eq!(stale, Some(Nanos(1)));
            let limit = shared.published.read().limit;
            shared.published.set(Limit { backlog: Bytes(50), ..limit });
            let notice = |shared: &Shared| {
                shared.set_back(&shared.published.read(), Nanos(100));
                shared.promise(Nanos(10), Nanos(100), Nanos::MAX)
            };
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || notice(&shared))
            };
            let mut promised = [notice(&shared), other.join().unwrap()];
            promised.sort();
            assert_eq!(promised, [Some(Nanos(110)), Some(Nanos(120))]);
        });
    }
}
