//! `fair`: exact in the sum by one ledger, fair between queues by one level.
//!
//! Exactness and fairness are two problems. A shared clock is exact but not fair; shares that each
//! meter computes for itself are fair, but exact only once all meters have noticed each other. So
//! each problem gets its own mechanism, and neither depends on the other:
//!
//! *The ledger* (`fair/ledger.rs`) is a token bucket in one word, from which meters buy what they
//! send, some packets at a time. Its sum is exact even if meters have stale views of each other:
//! when forty queues wake up at once, or a core stalls. A queue's unused credit is in the ledger at
//! once, for any other.
//!
//! *The level* (`fair/level.rs`, `fair/board.rs`) makes it fair. Each meter publishes its demand;
//! once every sync time one of them computes the max-min fair level for all. *Within its share*,
//! weight times level, a meter may buy while there is any credit. *Beyond* it, a meter may buy only
//! while more than a cushion of credit remains. So the cushion is always there for meters within
//! their shares, and everything that they do not use goes to the others within microseconds and not
//! at the next division. What a meter buys beyond its share counts against its future share
//! (`fair/allowance.rs`); otherwise luck would decide.
//!
//! *The sum of the shares controls the cushion.* It is the limit while the cushion is full, less
//! while it is not, and more while there is credit beyond it. So hardly any surplus remains while
//! demands last, and an overshoot is a debt that all meters pay back: queues that wake up together
//! use up the cushion, which then queues up in the next hop; until the cushion is full again every
//! meter sends slightly less, and the next hop drains.
//!
//! *What passes no meter* (`fair/beside.rs`) is a debt of the ledger, and its rate is not divided.
//!
//! *A reserve for urgent packets.* A meter whose qdisc yields leaves some more credit, so that
//! meters that do not yield, and are within their shares, find it at once and need not win a race.
//! This applies only where packets are bought one by one; a lease ends soon enough.
//!
//! *What may leave.* In any window at most the rate times the window plus the burst. The burst is
//! the configured one, but at least 32 us at the rate or six full frames (three below 750 Mbit/s),
//! plus one packet that is longer than the cushion, if such are sent. Clocks that differ are
//! brought to one time (`fair/clock.rs`).
//!
//! *Nothing to tune.* The sync time follows from the number of meters and the rate
//! (`fair/terms.rs`), and affects only how soon shares follow demands.
//!
//! *Weights.* A qdisc may set and change its queue's weight. CAKE's is the number of hosts that the
//! queue serves, each counted in parts if it has flows on several queues, so that hosts and not
//! queues get equal shares.
//!
//! *Limits.* Credit bought within shares that are out of date, or as surplus, goes to the first
//! meter that asks. What a stalled meter held is lost.
//!
//! Cost: while a lease lasts, a packet costs a few comparisons and a subtraction; a lease costs one
//! update of the ledger's line and some divisions; a sync time one look at each meter, by one
//! meter.

use crate::Limit;
use crate::limit::{Edition, Published};
use crate::line::Line;
use crate::pace::Pace;
use crate::place::Place;
use allowance::Allowance;
use beside::Beside;
use board::Board;
use clock::Clock;
use ledger::Ledger;
use level::Demand;
use narrows_packet::Backlog;
use narrows_qdisc::{Contact, Meter, Share, Take, Weight};
use narrows_units::{Bytes, Nanos, Rate};
use std::sync::Arc;
use terms::Terms;

mod allowance;
mod beside;
mod board;
mod clock;
mod ledger;
mod level;
mod terms;

/// A cushion is refilled over at least this many sync times, or it would overfill before the next
/// look,
const REFILL: u64 = 4;
/// and with at most this part of the limit, which queues within their share miss meanwhile.
const LEAST_REFILL_PART: u64 = 16;

/// Sync times after which the rate of a queue is computed, even from few packets.
const LONGEST_SAMPLE: u64 = 16;

/// How long a demand holds: in sync times, and the longest sleep of a worker with a standing queue.
const HOLD: u64 = 4;
const LEAST_HOLD: Nanos = Nanos::from_micros(200);

/// A meter that has borrowed leaves this fraction of it in credit when it buys. So among meters
/// that want more than their share, the one that has had least comes first.
const BORROWED_PART: u64 = 8;

/// A meter that is this late with its lease has stalled.
const STALL: Nanos = Nanos::from_millis(1);

/// State that the meters share.
pub(crate) struct Shared {
    published: Published,
    ledger: Ledger,
    /// What leaves beside all meters.
    beside: Beside,
    /// The ledger of the peak rate, if there is one.
    peak: Line<crate::ledger::Ledger>,
    board: Board,
    meters: usize,
    sync_time: Option<Nanos>,
}

impl Shared {
    pub(crate) fn new(limit: Limit, meters: usize, sync_time: Option<Nanos>) -> Arc<Self> {
        Arc::new(Self {
            published: Published::new(limit),
            ledger: Ledger::new(),
            beside: Beside::new(),
            peak: Line(crate::ledger::Ledger::default()),
            board: Board::new(meters, limit.rate),
            meters,
            sync_time,
        })
    }
}

impl crate::coordination::Shared for Shared {
    fn meter(self: Arc<Self>, place: Place) -> Box<dyn Meter> {
        Box::new(QueueMeter::new(self, place))
    }

    fn set_limit(&self, limit: Limit) {
        self.published.set(limit);
        self.board.make_due();
    }

    fn spent_until(&self, _now: Nanos) -> Nanos {
        // Leases count as used: a process that takes over does not have them.
        self.ledger.limit().sold()
    }

    fn resume(&self, spent: Nanos) {
        self.ledger.limit().resume(spent);
        self.peak.resume(spent);
    }
}

/// The second ledger of a limit with a peak rate.
struct PeakPace {
    pace: Pace,
    depth: Nanos,
    mtu: Bytes,
    /// The time from which the lease may be used, in common time.
    ready: Nanos,
}

struct QueueMeter {
    shared: Arc<Shared>,
    edition: Edition,
    terms: Terms,
    clock: Clock,
    pace: Pace,
    peak: Option<PeakPace>,
    /// The lease: unused credit, and the time until which it holds, by the meter's clock.
    held: Bytes,
    expires: Nanos,
    /// The most to buy in advance: the share times the duration of a lease.
    lease: Bytes,
    /// The size of the next lease: it grows while leases are used up.
    ahead: Bytes,
    /// What this meter may still buy within its share.
    allowance: Allowance,
    /// Whether the queue was empty at the last check.
    rested: bool,
    /// The level of that share.
    level: u64,
    /// Whether a purchase leaves a reserve for requests that do not yield.
    yields: bool,
    /// Whether any request of this meter ever yielded: then there is a reserve.
    has_yielded: bool,
    weight: Weight,
    /// Its value when the allowance was last checked.
    weighed: Weight,
    share: Share,
    /// Bytes sent since `since`, in common time.
    sent: Bytes,
    since: Nanos,
    /// Bytes sent as of the last reported batch.
    reported: Bytes,
    /// The smallest backlog after a batch since `since`: the standing queue, without passing
    /// bursts.
    least_backlog: Bytes,
    /// The time until which the last packet must wait.
    waiting_until: Nanos,
    /// The time until which this meter's published demand holds, and when to publish it again.
    published_until: Nanos,
    next_publication: Nanos,
    /// Whether the queue has overflowed since `since`.
    has_overflowed: bool,
    /// The rate of the last sample, if there was one since this meter became active.
    used: Option<Rate>,
    /// Whether the queue was never empty while the last sample was taken, or overflowed.
    stands: bool,
    scratch: Vec<Demand>,
    contact: Contact,
    place: Place,
}

impl QueueMeter {
    fn new(shared: Arc<Shared>, place: Place) -> Self {
        let edition = shared.published.read();
        let terms = Terms::new(edition.limit, shared.meters, shared.sync_time);
        shared.board.weigh(place.number(), Weight::ONE);
        let mut meter = Self {
            terms,
            clock: Clock::new(),
            pace: Pace::new(terms.rate),
            peak: peak(&edition.limit),
            held: Bytes::ZERO,
            expires: Nanos::MAX,
            lease: Bytes::ZERO,
            ahead: Bytes::ZERO,
            allowance: Allowance::new(terms.rate, terms.least_allowance),
            rested: true,
            level: terms.rate.bits_per_sec(),
            yields: false,
            has_yielded: false,
            weight: Weight::ONE,
            weighed: Weight::ONE,
            share: Share::WHOLE,
            sent: Bytes::ZERO,
            since: Nanos::ZERO,
            reported: Bytes::ZERO,
            least_backlog: Bytes::ZERO,
            waiting_until: Nanos::ZERO,
            published_until: Nanos::ZERO,
            next_publication: Nanos::ZERO,
            used: None,
            has_overflowed: false,
            stands: false,
            scratch: Vec::with_capacity(shared.meters),
            contact: Contact::default(),
            edition,
            shared,
            place,
        };
        meter.follow_level();
        meter
    }

    #[cold]
    fn follow_limit(&mut self, now: Nanos) {
        self.edition = self.shared.published.read();
        let limit = &self.edition.limit;
        self.terms = Terms::new(*limit, self.shared.meters, self.shared.sync_time);
        self.pace = Pace::new(limit.rate);
        self.peak = peak(limit);
        // The lease was bought at another rate, and may be far too large at this one.
        self.held = Bytes::ZERO;
        self.ahead = Bytes::ZERO;
        let common = self.clock.common(now);
        self.shared.ledger.limit().forgive(common);
        self.shared.peak.forgive(common);
        self.level = limit.rate.bits_per_sec();
        // At the old rate the wait may be long, and the meter would demand its share all that time.
        self.waiting_until = self.waiting_until.min(common);
        self.next_publication = common;
        self.follow_level();
        self.allowance.clear(common);
    }

    /// Adjusts the allowance to the present level.
    fn follow_level(&mut self) {
        let whole = u128::from(self.terms.rate.bits_per_sec());
        let part = u128::from(self.level) * u128::from(self.weight.0) / u128::from(Weight::ONE.0);
        let part = part.min(whole);
        let rate = Rate::from_bits_per_sec(part as u64);
        self.lease = rate.bytes_in(self.terms.lease);
        self.allowance = self.allowance.at_rate(rate, self.terms.least_allowance);
        let share = (part << 16).checked_div(whole).unwrap_or(0);
        self.share = Share(share as u32);
    }

    /// The sum of all shares, in bits per second: what the limit leaves to meters, adjusted so that
    /// the credit beyond the reserve returns to the cushion.
    fn shared(&self, now: Nanos) -> u64 {
        let Terms { rate, cushion, sync_time, .. } = self.terms;
        let reserve = if self.has_yielded { self.terms.reserve } else { Nanos::ZERO };
        let wanted = cushion + reserve;
        let credit = self.shared.ledger.credit(now).min(wanted + cushion);
        let time = cushion.0.saturating_mul(LEAST_REFILL_PART);
        let time = sync_time.0.saturating_mul(REFILL).max(time).max(1);
        let beside = self.shared.beside.rate(now);
        let rate = i128::from(rate.bits_per_sec().saturating_sub(beside.bits_per_sec()));
        let missing = i128::from(wanted.0) - i128::from(credit.0);
        u64::try_from(rate - rate * missing / i128::from(time)).unwrap_or(u64::MAX)
    }

    /// Reads the level, and computes it for all if it is this meter's turn.
    fn consult(&mut self, now: Nanos) {
        if self.shared.board.claim_turn(now, self.terms.sync_time) {
            self.tell(self.least_backlog, now);
            self.shared.board.divide(self.shared(now), now, &mut self.scratch);
            self.contact.reads += self.shared.meters as u64 - 1;
        }
        let level = self.shared.board.level();
        if level != self.level {
            self.contact.reads += 1;
            self.level = level;
            self.follow_level();
        }
    }

    /// Publishes this meter's demand: unlimited while its queue stands or overflows, otherwise its
    /// send rate. `backlog` is what is queued now.
    fn tell(&mut self, backlog: Bytes, now: Nanos) {
        let sync_time = self.terms.sync_time;
        let passed = now.since(self.since);
        let sampled = passed >= sync_time && self.sent >= self.terms.sample
            || passed.0 >= sync_time.0.saturating_mul(LONGEST_SAMPLE);
        if now > self.published_until {
            // Active again: its old rate is meaningless.
            self.used = None;
            self.start_sample(backlog, now);
        } else if sampled {
            self.used = Some(Rate::of(self.sent, passed));
            self.stands = self.least_backlog != Bytes::ZERO || self.has_overflowed;
            self.start_sample(backlog, now);
        }
        let demand = match self.used {
            Some(used) if !self.stands => used,
            None if backlog == Bytes::ZERO => Rate::default(),
            _ => self.terms.rate,
        };
        let hold = Nanos(sync_time.0.saturating_mul(HOLD)).max(LEAST_HOLD);
        self.published_until = now.max(self.waiting_until) + hold;
        self.next_publication = now + sync_time;
        self.shared.board.tell(self.place.number(), demand, self.published_until);
    }

    fn start_sample(&mut self, backlog: Bytes, now: Nanos) {
        self.sent = Bytes::ZERO;
        self.reported = Bytes::ZERO;
        self.least_backlog = backlog;
        self.has_overflowed = false;
        self.since = now;
    }

    /// Buys what `cost` needs beyond the lease, or more.
    #[inline(never)]
    fn buy(&mut self, cost: Bytes, own_now: Nanos) -> Take {
        let now = self.clock.follow(self.shared.ledger.latest(), own_now);
        self.consult(now);
        if self.weighed != self.weight {
            self.allowance.reweigh(self.weighed, self.weight, now);
            self.weighed = self.weight;
        }
        if self.rested {
            self.rested = false;
            self.allowance.rest(cost, now);
        }
        let need = cost - self.held;
        let granted = self.allowance.affords(need, now);
        let in_share = granted.is_ok();
        let keep = self.keep(in_share, now);
        let more = self.affordable(keep, in_share, now);
        let in_advance = more > need && self.buy_exactly(more, keep, in_share, false, now).is_ok();
        if !in_advance && let Err(when) = self.buy_exactly(need, keep, in_share, true, now) {
            // Whichever is first: enough credit for this meter, or its allowance.
            let when = match granted {
                Ok(()) => when,
                Err(granted) => granted.max(when - keep).min(when.max(now + self.terms.retry)),
            };
            self.waiting_until = when;
            return Take::Wait(self.clock.own(when).max(own_now + Nanos(1)));
        }
        self.ahead = Bytes(self.ahead.max(need).0 * 2).min(self.lease);
        self.expires = own_now + self.terms.lease;
        self.use_held(cost, own_now)
    }

    /// How much credit a meter leaves: the reserve if it yields; beyond its share also the cushion,
    /// and more if it has had much already.
    fn keep(&self, in_share: bool, now: Nanos) -> Nanos {
        let Terms { depth, cushion, .. } = self.terms;
        let reserve = if self.yields { self.terms.reserve } else { Nanos::ZERO };
        if in_share {
            return reserve;
        }
        let left = Nanos(self.allowance.borrowed(now).0 / BORROWED_PART).min(Nanos(depth.0 / 2));
        reserve + cushion.max(left)
    }

    /// How much this meter may buy in advance: the cushion is for packets that leave now, not for
    /// those that may come. Leases held when others wake up are an overshoot, too.
    fn affordable(&self, keep: Nanos, in_share: bool, now: Nanos) -> Bytes {
        let Terms { rate, depth, cushion, .. } = self.terms;
        let credit = self.shared.ledger.credit(now).min(depth);
        let mut most = self.ahead.min(rate.bytes_in(credit - keep - cushion));
        if in_share {
            most = most.min(self.allowance.worth(now));
        }
        self.peak.as_ref().map_or(most, |peak| most.min(peak.mtu))
    }

    /// Buys `bytes` and leaves `keep` in credit. Within the share, if `packet` is true, a packet
    /// longer than the cushion may leave less, because others leave only the cushion: otherwise it
    /// would never find enough.
    ///
    /// # Errors
    /// When it can be bought, by the common time.
    fn buy_exactly(
        &mut self,
        bytes: Bytes,
        keep: Nanos,
        in_share: bool,
        packet: bool,
        now: Nanos,
    ) -> Result<(), Nanos> {
        let Some((span, pace)) = self.pace.delay(bytes) else { return Err(Nanos::MAX) };
        let Terms { depth, cushion, .. } = self.terms;
        let span_needed = if in_share && packet { span.min(cushion) } else { span };
        let least = span_needed + keep;
        if let Err(when) = self.shared.ledger.sell(span, least.min(depth), depth, now) {
            self.contact.reads += 1;
            return Err(when);
        }
        self.contact.updates += 1;
        self.pace = pace;
        self.held += bytes;
        if in_share {
            self.allowance.charge(bytes, now);
        } else {
            self.allowance.borrow(bytes, now);
        }
        if let Some(peak) = &mut self.peak
            && let Some((span, pace)) = peak.pace.delay(bytes)
        {
            peak.pace = pace;
            peak.ready = self.shared.peak.promise(span, peak.depth, now);
        }
        Ok(())
    }

    /// Uses what is held, which is at least `cost`, unless the peak rate forbids it yet.
    #[inline]
    fn use_held(&mut self, cost: Bytes, now: Nanos) -> Take {
        if let Some(peak) = &self.peak
            && peak.ready > self.clock.common(now)
        {
            return Take::Wait(self.clock.own(peak.ready));
        }
        self.held = self.held - cost;
        self.sent += cost;
        Take::Granted
    }

    /// The lease has expired. Its rest goes back to the others, except after a stall: credit that
    /// old would be an overshoot by now.
    #[cold]
    fn expire(&mut self, now: Nanos) {
        if now.since(self.expires) < STALL {
            self.give_back();
        }
        self.held = Bytes::ZERO;
        // Less next time, but not from one packet on again: it was nearly right.
        self.ahead = Bytes(self.ahead.0 / 2);
    }

    /// Gives back credit that was bought and will not be used.
    #[cold]
    fn give_back(&mut self) {
        self.shared.ledger.limit().take_back(self.pace.refund(self.held));
        self.allowance.refund(self.held);
        self.contact.updates += 1;
        self.held = Bytes::ZERO;
    }
}

/// A meter's bucket for the limit's peak rate, if there is one.
fn peak(limit: &Limit) -> Option<PeakPace> {
    limit.peak.map(|peak| PeakPace {
        pace: Pace::new(peak.rate),
        depth: peak.rate.time_for(peak.mtu),
        mtu: peak.mtu,
        ready: Nanos::ZERO,
    })
}

impl Meter for QueueMeter {
    fn stamp(&mut self, _cost: Bytes, _now: Nanos) -> Option<Nanos> {
        Some(Nanos::ZERO)
    }

    #[inline]
    fn take(&mut self, cost: Bytes, _edt: Nanos, now: Nanos) -> Take {
        if !self.shared.published.is_current(&self.edition) {
            self.follow_limit(now);
        }
        if now > self.expires && self.held != Bytes::ZERO && self.peak.is_none() {
            self.expire(now);
        }
        if cost <= self.held { self.use_held(cost, now) } else { self.buy(cost, now) }
    }

    fn owe(&mut self, bytes: Bytes, now: Nanos) {
        let now = self.clock.common(now);
        if let Some((span, pace)) = self.pace.delay(bytes) {
            self.pace = pace;
            self.shared.ledger.limit().owe(span, now);
            self.shared.beside.add(bytes);
            self.contact.updates += 1;
        }
    }

    fn report(&mut self, backlog: Backlog, now: Nanos) {
        let idle = backlog.is_empty() && self.sent == self.reported;
        self.reported = self.sent;
        self.least_backlog = self.least_backlog.min(backlog.bytes);
        if backlog.is_empty() {
            self.rested = true;
        }
        if idle {
            if self.held != Bytes::ZERO {
                self.give_back();
                self.ahead = Bytes::ZERO;
            }
            return;
        }
        let now = self.clock.common(now);
        if now >= self.next_publication {
            self.tell(backlog.bytes, now);
        }
    }

    fn share(&self) -> Share {
        self.share
    }

    fn part_of_burst(&self) -> Share {
        Share::WHOLE
    }

    fn longest(&self) -> Bytes {
        self.edition.limit.shape().longest()
    }

    fn overflowed(&mut self) {
        self.has_overflowed = true;
    }

    fn weigh(&mut self, weight: Weight) {
        if weight != self.weight {
            self.weight = weight;
            self.shared.board.weigh(self.place.number(), weight);
            self.follow_level();
        }
    }

    fn yields(&mut self, yields: bool) {
        self.yields = yields;
        self.has_yielded |= yields;
    }

    fn contact(&self) -> Contact {
        self.contact
    }
}

impl Drop for QueueMeter {
    /// A lost worker has no demand and keeps no credit.
    fn drop(&mut self) {
        if self.held != Bytes::ZERO {
            self.give_back();
        }
        // The place orders this before the writes of the next holder.
        self.shared.board.tell(self.place.number(), Rate::default(), Nanos::ZERO);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::coordination::Shared as _;
    use crate::place::Places;
    use loom::thread;

    #[test]
    fn loom_two_meters_never_send_more_than_the_burst_at_once_and_leave_nothing_behind() {
        const COST: Bytes = Bytes(9_000);
        loom::model(|| {
            let rate = Rate::from_bits_per_sec(8_000_000_000);
            let limit = Limit { rate, burst: COST, peak: None, backlog: Bytes(1 << 20) };
            let shared = Shared::new(limit, 2, None);
            let places = Places::new(2);
            let send = |meter: &mut Box<dyn Meter>| {
                let mut sent = Bytes::ZERO;
                while meter.take(COST, Nanos::ZERO, Nanos(1_000)) == Take::Granted {
                    sent += COST;
                }
                meter.report(Backlog { packets: 1, bytes: COST }, Nanos(1_000));
                sent
            };
            let mut meter = Arc::clone(&shared).meter(places.take(0));
            let other = thread::spawn(move || (send(&mut meter), meter));
            let mut meter = Arc::clone(&shared).meter(places.take(1));
            let sent = send(&mut meter);
            let (sent_there, meter_there) = other.join().unwrap();
            let burst = rate.bytes_in(Nanos::from_micros(32)).max(Bytes(6 * 9_000));
            let sent = sent + sent_there;
            assert!(sent >= COST && sent <= burst, "{sent:?}");
            drop((meter, meter_there));
            let mut demands = Vec::new();
            shared.board.divide(1_000, Nanos::ZERO, &mut demands);
            assert!(demands.is_empty());
        });
    }
}
