//! The decisions, see the crate's rules.

use crate::baselines::{Baselines, Trip};
use crate::history::{Full, History, Past};
use narrows_units::{Bytes, Nanos, Rate};

/// How long a turn is meant to be: a fraction of the time in which a queue gets long. Shorter turns
/// have too few trips in them.
pub const TURN: Nanos = Nanos::from_millis(50);
/// How often to look whether a turn has to end early, see [`Controller::is_urgent`]: a line that
/// falls to a quarter of its rate gets 30 ms of queue in such a time.
pub const GLANCE: Nanos = Nanos::from_millis(10);
/// The excess that means a queue on a line without jitter: more than the packets of a burst that
/// wait for each other at 5 Mbit/s, a third of what a call notices (ITU-T G.114 budgets).
pub const DELAY: Nanos = Nanos::from_millis(10);
/// … or so many full packets at the rate in force, if that is longer: a receiver delays its
/// acknowledgement until the next segment of the flow (RFC 9293, section 3.8.6.3), which at low
/// rates waits for those of other flows.
const PACKETS: f64 = 6.0;
/// How long an acknowledgement waits at most (Linux; RFC 9293 allows half a second).
const WAIT: f64 = 0.040;
/// If the packets of a connection are so far apart, all of its acknowledgements wait so long.
const APART: f64 = 0.030;
/// … or so many times what packets of a connection are apart.
const APART_TIMES: f64 = 1.1;
/// What was known of a line counts as if it had been seen for so long, or for so many times what
/// packets of a connection are apart: trips of less than that are not exact.
const PRIOR: f64 = 0.030;
const PRIOR_APART: f64 = 6.0;
/// Senders beyond a line that fell go on for a round trip, and for so long: until the backlog of
/// the limit is gone, and acknowledgements that waited.
const UNTOLD: f64 = 0.030;
/// So many times the excess of a cut, after it, is a line that has fallen once more.
const FELL: f64 = 2.0;
/// What passed a limit in so many seconds is what it passes.
const PASSED: f64 = 0.3;
/// A full packet on the wire, in bits.
const PACKET: f64 = 1514.0 * 8.0;
/// The share of lost segments that means a full short buffer. Radio loses less than a percent
/// behind its own retransmissions; one flow of CUBIC at its limit does not lose that many, either.
pub const LOSS: f64 = 0.05;
/// How long the rate holds without load.
pub const IDLE_AFTER: Nanos = Nanos::from_secs(10);

/// The end of a turn is not exact.
const HALF_GLANCE: Nanos = Nanos(GLANCE.0 / 2);
/// The part of a full line's rate that is set, so that its queue stays empty.
const BELOW: f64 = 0.98;
/// … behind the line, where senders are a round trip away.
const BELOW_BEHIND: f64 = 0.96;
/// How much less is set if the queue grows by a second a second: a rate that is computed from a
/// steep rise, and so from few trips, is not exact.
const LESS_IF_STEEP: f64 = 0.05;
/// The part of a line's rate that drains its queue: the less, the sooner it is empty; never
/// nothing, so that acknowledgements and calls pass.
const DRAIN: f64 = 0.1;
/// The longest drain. A longer queue needs another cut.
const DRAIN_MOST: f64 = 1.0;
/// A limit binds if this part of its rate passes, or there is a backlog.
const BINDS: f64 = 0.9;
/// A direction is loaded if this part of its rate passes.
const LOADED: f64 = 0.5;
/// … or if it was bound so many seconds ago: behind a line that became slow less arrives.
const LOADED_FOR: f64 = 2.0;
/// The least growth of the rate in a second, near the rate at which the line was full last.
const SLOW: f64 = 0.10;
/// The most, far beyond.
const FAST: f64 = 2.0;
/// Beyond this part of the rate at which the line was full, growth gets faster.
const BEYOND: f64 = 1.03;
/// By how much it gets faster in a second: to double every 200 ms.
const FASTER: f64 = 32.0;
/// How far the excess may be from its mean, in mean deviations, before it means a queue.
const JITTER: f64 = 4.0;
/// The weight of a turn in the mean deviation of an unloaded line: of some seconds.
const JITTER_WEIGHT: f64 = 0.02;
/// Beyond this no jitter is believed.
const JITTER_MOST: f64 = 0.050;
/// A cut has worked if this part of the excess is gone.
const WORKED: f64 = 0.2;
/// Cuts without effect after which it is the path.
const CUTS_IN_VAIN: u32 = 3;
/// How many times a queue the cut after one in vain drains.
const PROOF: f64 = 2.0;
/// How fast an idle limit returns to its configured rate, a second.
const RETURN: f64 = 0.02;
/// Segments after which a share of losses means something.
const SEGMENTS: f64 = 40.0;
/// The weight of the past in the counts of segments, a turn: of half a second.
const LOSS_FADES: f64 = 0.9;

/// Where the limit is, seen in the direction of its packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Packets pass the limit and then the line, as an upload does.
    Before,
    /// Packets pass the line and then the limit, as a download does.
    Behind,
}

/// The least rate, the one to begin with and to return to, and the most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    least: Rate,
    usual: Rate,
    most: Rate,
}

impl Bounds {
    /// These bounds, if `least` is more than nothing and the rates are in order.
    pub fn new(least: Rate, usual: Rate, most: Rate) -> Option<Self> {
        let in_order = least <= usual && usual <= most;
        (least > Rate::default() && in_order).then_some(Self { least, usual, most })
    }

    /// The least rate.
    pub fn least(&self) -> Rate {
        self.least
    }

    /// The rate to begin with and to return to.
    pub fn usual(&self) -> Rate {
        self.usual
    }

    /// The highest rate.
    pub fn most(&self) -> Rate {
        self.most
    }
}

/// What a controller has found out about its line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// The rate in force, or the one after a drain.
    pub rate: Rate,
    /// The rate at which the line was full last, if it was.
    pub full_at: Option<Rate>,
}

/// What was seen since the turn before.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    /// When the turn ends, by any clock that does not go back.
    pub now: Nanos,
    /// What came to the limit.
    pub arrived: Bytes,
    /// What it let pass.
    pub sent: Bytes,
    /// What waits at the limit at the end.
    pub backlog: Bytes,
    /// The round trips beyond the line's port.
    pub trips: &'a [Trip],
    /// Segments that were sent into the line and observed.
    pub segments: u64,
    /// Those of them that the line lost.
    pub lost: u64,
    /// Whether the line holds back the other direction, see [`Controller::is_held_back`].
    pub other_is_held_back: bool,
}

/// Why the rate is what it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Nothing has been seen yet, or nothing speaks for another rate.
    Holds,
    /// The limit binds and there is no queue in the line.
    Rises,
    /// Trips take longer than on an empty line: there is a queue, which drains.
    Delay,
    /// The queue has drained.
    Drained,
    /// The line loses segments.
    Loss,
    /// Cuts did not shorten the trips: the path is another one.
    Path,
    /// Nothing binds: back to the configured rate.
    Idle,
}

impl Reason {
    /// A word for tables and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Rises => "rises",
            Self::Delay => "delay",
            Self::Drained => "drained",
            Self::Loss => "loss",
            Self::Path => "path",
            Self::Idle => "idle",
        }
    }
}

/// The outcome of a turn.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Decision {
    /// The rate from now on.
    pub rate: Rate,
    /// Why.
    pub reason: Reason,
    /// The excess of the newest trips, zero if there were none.
    pub excess: Nanos,
}

/// A cut that is under way.
#[derive(Clone, Copy, Debug)]
struct Drain {
    /// The rate before the cut, and when that was.
    before: f64,
    cut: f64,
    /// When the queue is gone, in seconds.
    until: f64,
    /// When trips tell about it.
    known: f64,
    /// The rate then.
    after: f64,
    /// The excess at the cut, and the longest since.
    excess: f64,
    longest: f64,
}

/// The rate of one direction.
#[derive(Clone, Debug)]
pub struct Controller {
    side: Side,
    bounds: Bounds,
    baselines: Baselines,
    history: History,
    /// The end of the turn before.
    last: Option<Nanos>,
    /// In bits per second, as all rates here.
    rate: f64,
    reason: Reason,
    drain: Option<Drain>,
    /// From when to when few packets left, because of a drain, in seconds.
    scarce: Option<(f64, f64)>,
    /// The rate at which the line was full last.
    full_at: Option<f64>,
    /// Growth a second.
    growth: f64,
    /// The mean deviation of the excess, in seconds.
    jitter: f64,
    /// The shortest base known, in seconds.
    base: f64,
    /// Since when it was bound last, in seconds; infinite if never.
    unbound: f64,
    /// Cuts that had no effect, and the rate before the first.
    in_vain: u32,
    before_cuts: f64,
    /// Turns in a row with too much excess.
    long: u32,
    segments: f64,
    lost: f64,
}

impl Controller {
    /// The controller of a limit on this side of its line, which begins at the usual rate.
    pub fn new(side: Side, bounds: Bounds) -> Self {
        Self {
            side,
            bounds,
            baselines: Baselines::default(),
            history: History::default(),
            last: None,
            rate: bounds.usual.bits_per_sec() as f64,
            reason: Reason::Holds,
            drain: None,
            scarce: None,
            full_at: None,
            growth: SLOW,
            jitter: 0.0,
            base: 0.0,
            unbound: f64::INFINITY,
            in_vain: 0,
            before_cuts: 0.0,
            long: 0,
            segments: 0.0,
            lost: 0.0,
        }
    }

    /// What another controller of the same limit goes on with.
    pub fn found(&self) -> Found {
        // The rate of a drain is over soon, and too low for whoever does not know of it.
        let rate = self.drain.map_or(self.rate, |drain| drain.after);
        let bits = |bits: f64| Rate::from_bits_per_sec(bits as u64);
        Found { rate: bits(rate), full_at: self.full_at.map(bits) }
    }

    /// Goes on with what another controller found, as far as the bounds allow.
    #[must_use]
    pub fn resume(mut self, found: Found) -> Self {
        self.set(found.rate.bits_per_sec() as f64);
        self.full_at = found.full_at.map(|rate| rate.bits_per_sec() as f64);
        self
    }

    /// Why the rate is what it is.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The rate in force.
    pub fn rate(&self) -> Rate {
        let rate = Rate::from_bits_per_sec(self.rate as u64);
        rate.max(self.bounds.least).min(self.bounds.most)
    }

    /// The bounds.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Goes on within other bounds.
    pub fn rebound(&mut self, bounds: Bounds) {
        self.bounds = bounds;
        self.set(self.rate);
    }

    /// Whether the line holds this direction back: less comes through than the limit allows, though
    /// it was bound shortly before. Known behind the line only.
    pub fn is_held_back(&self) -> bool {
        let arrives = self.history.arrivals(0.1);
        self.side == Side::Behind
            && (0.05..LOADED_FOR).contains(&self.unbound)
            && arrives < BINDS * self.rate
            && arrives > self.rate / 20.0
    }

    /// Whether a queue may appear in the line soon, as this direction is loaded: only then turns
    /// are worth ending early.
    pub fn is_loaded(&self) -> bool {
        self.drain.is_some() || self.unbound <= LOADED_FOR
    }

    /// Whether to end the turn now, at `now`, as these `trips` of it say that there is a queue, or
    /// as a drain is over. To be asked every [`GLANCE`]; changes nothing.
    pub fn is_urgent(&self, trips: &[Trip], now: Nanos) -> bool {
        let Some(last) = self.last.filter(|last| now.since(*last) + HALF_GLANCE >= GLANCE) else {
            return false;
        };
        if let Some(drain) = self.drain {
            let seconds = now.as_secs_f64() + HALF_GLANCE.as_secs_f64();
            let ends = seconds >= drain.until && self.reason != Reason::Drained;
            return ends || !trips.is_empty();
        }
        let is_loaded = self.unbound + now.since(last).as_secs_f64() <= LOADED_FOR;
        is_loaded && self.newest(trips, now) > self.delay()
    }

    /// Takes what was seen in a turn, and decides.
    pub fn turn(&mut self, turn: &Turn<'_>) -> Decision {
        let Some(before) = self.last.replace(turn.now) else {
            self.baselines.turn(turn.trips, turn.now);
            return self.decision();
        };
        let length = turn.now.since(before).as_secs_f64();
        if length <= 0.0 {
            return self.decision();
        }
        let now = turn.now.as_secs_f64();
        let trips: Vec<Trip> =
            turn.trips.iter().filter_map(|trip| self.believed(trip, now, length)).collect();
        let excess = self.baselines.turn(&trips, turn.now);
        let wait = self.wait();
        let newest = self.newest(&trips, turn.now);
        let excess = excess.map(|excess| excess.without(wait).at_least(newest));
        if let Some(excess) = excess {
            self.base = excess.base;
        }
        let past = Past {
            length,
            arrived: turn.arrived.0 as f64 * 8.0,
            sent: turn.sent.0 as f64 * 8.0,
            excess: excess.map(|excess| excess.seconds),
            newest: excess.map_or(0.0, |excess| excess.newest),
        };
        self.history.push(past);
        let passes = past.sent / length;
        let binds = turn.backlog > Bytes::ZERO || passes >= BINDS * self.rate;
        self.unbound = if binds { 0.0 } else { self.unbound + length };
        self.segments = self.segments * LOSS_FADES + turn.segments as f64;
        self.lost = self.lost * LOSS_FADES + turn.lost.min(turn.segments) as f64;

        if let Some(drain) = self.drain {
            self.drains(drain, now, length, excess.map(|excess| excess.seconds));
            return self.decision();
        }
        let is_loaded = self.unbound <= LOADED_FOR || passes >= LOADED * self.rate;
        let limit = self.delay();
        let is_long = excess.is_some_and(|excess| excess.seconds > limit);
        self.long = match excess {
            Some(_) if is_long => self.long + 1,
            Some(_) => 0,
            None => self.long,
        };
        if let Some(excess) = excess
            && is_long
            && is_loaded
            && !turn.other_is_held_back
            // One trip may have waited for a delayed acknowledgement.
            && (self.long >= 2 || excess.trips >= 2 || newest > limit)
        {
            self.cut(now, length, excess.newest.max(excess.seconds));
        } else if self.segments >= SEGMENTS
            && self.lost > LOSS * self.segments
            && is_loaded
            && self.side == Side::Before
        {
            self.loses();
        } else if self.unbound <= 0.0 {
            self.rises(length, excess.map_or(0.0, |excess| excess.seconds));
        } else if self.unbound >= IDLE_AFTER.as_secs_f64() && passes < LOADED * self.rate {
            self.returns(length);
        } else {
            self.reason = Reason::Holds;
        }
        // Jitter is what an empty line has: unbound, or well below the rate at which it was full.
        let is_empty = self.unbound > 0.0
            || self.full_at.is_some_and(|full| self.rate < (1.0 + BELOW) / 2.0 * full);
        if let Some(excess) = excess
            && !is_long
            && is_empty
        {
            self.jitter += JITTER_WEIGHT * (excess.seconds - self.jitter);
        }
        self.decision()
    }

    /// What to believe of `trip`, which was over in the last `length` seconds. If its packet left
    /// during a drain or just before, the receiver may have waited for the next one of the
    /// connection, which came late.
    fn believed(&self, trip: &Trip, now: f64, length: f64) -> Option<Trip> {
        let left = now - trip.time.as_secs_f64();
        let is_of_drain = self.scarce.is_some_and(|(from, to)| left >= from && left - length <= to);
        if self.side == Side::Before && is_of_drain {
            self.baselines.shortened(trip, Nanos((WAIT * 1e9) as u64))
        } else {
            Some(*trip)
        }
    }

    /// How much longer all trips are, in seconds, as acknowledgements wait at the receivers:
    /// packets of so many connections are far apart at this rate. Where they are nearer to each
    /// other some acknowledgements do not wait, and these count.
    fn wait(&self) -> f64 {
        let is_wide = self.side == Side::Before && self.apart(self.rate_before_drain()) > APART;
        if is_wide { WAIT } else { 0.0 }
    }

    /// How far apart packets of a connection are at `rate`, in seconds.
    fn apart(&self, rate: f64) -> f64 {
        self.baselines.flows() as f64 * PACKET / rate
    }

    /// The least excess of the newest trips, in seconds: of so many that they say for certain
    /// whether there is a queue. Behind the line no acknowledgement waits.
    fn newest(&self, trips: &[Trip], now: Nanos) -> f64 {
        let enough = match self.side {
            Side::Before => self.baselines.flows().clamp(2, 3),
            Side::Behind => 2,
        };
        let of = |count| self.baselines.newest(trips, count, now).unwrap_or(0.0);
        // Whatever a receiver waits, it is not longer than that.
        (of(enough) - self.wait()).max(of(1) - WAIT)
    }

    /// The excess that means a queue, in seconds.
    fn delay(&self) -> f64 {
        let packets = (PACKETS * PACKET / self.rate).min(JITTER_MOST);
        let apart = match self.side {
            Side::Before => self.apart(self.rate_before_drain()).min(WAIT),
            Side::Behind => 0.0,
        };
        DELAY
            .as_secs_f64()
            .max(packets)
            .max(APART_TIMES * apart)
            .max((JITTER * self.jitter).min(JITTER_MOST))
    }

    /// What the line does now that there is a queue in it.
    fn full(&self, excess: f64) -> Full {
        let calm = self.delay() / 2.0;
        let lag = self.base;
        let full = match self.side {
            Side::Before => self.history.filling(calm, lag, self.prior()),
            Side::Behind => self.history.delivering(calm, 0.15).map(|full| {
                // The turn in which the line became slower is in the arrivals; the growth tells,
                // too.
                let growth = full.growth.max(0.0);
                let before = self.rate_before_drain();
                let rate = full.rate.min((before / (1.0 + growth)).max(full.rate / 2.0));
                // Senders go on at the rate before for as long as they do not know.
                let coming = (before / rate.max(self.least()) - 1.0) * (lag + UNTOLD);
                Full { rate, growth, queue: excess.max(coming) }
            }),
        };
        let full = full.unwrap_or(Full { rate: self.rate, growth: 0.0, queue: excess });
        Full { rate: full.rate.min(self.rate_before_drain()).max(self.least()), ..full }
    }

    /// The part of the line's rate that is set.
    fn below(&self) -> f64 {
        if self.side == Side::Before { BELOW } else { BELOW_BEHIND }
    }

    /// The rate that is expected from what was known before, and for how many seconds it counts.
    fn prior(&self) -> (f64, f64) {
        let rate = self.rate_before_drain();
        (self.below() * rate, PRIOR.max(PRIOR_APART * self.apart(rate)))
    }

    /// The rate at which packets were sent before the drain: the one in force, if it binds. A queue
    /// grows while more comes than the line carries, however much more the limit allows.
    fn rate_before_drain(&self) -> f64 {
        if let Some(drain) = self.drain {
            return drain.before;
        }
        match self.side {
            Side::Before => self.history.sent(PASSED).clamp(self.least(), self.rate),
            Side::Behind => self.rate,
        }
    }

    /// There is a queue in the line.
    fn cut(&mut self, now: f64, length: f64, excess: f64) {
        if self.in_vain == 0 {
            self.before_cuts = self.rate;
        }
        let full = self.full(excess);
        let before = self.rate_before_drain();
        self.scarce = Some((now - self.apart(before), now));
        self.drain_from(full, now, length, before, excess);
        self.growth = SLOW;
        self.long = 0;
    }

    fn excess_now(&self) -> f64 {
        self.history.excess().unwrap_or(0.0)
    }

    /// Lets the queue of `full` leave from `now` on.
    fn drain_from(&mut self, full: Full, now: f64, length: f64, before: f64, excess: f64) {
        let Full { rate: line, growth, queue } = full;
        let lowest = (DRAIN * line).clamp(self.least(), line);
        let drains_by = (1.0 - lowest / line).max(0.05);
        // After a cut in vain it has to be seen for certain whether there is a queue.
        let to_drain = if self.in_vain == 0 { queue } else { PROOF * queue };
        let time = (to_drain / drains_by).clamp(GLANCE.as_secs_f64(), DRAIN_MOST);
        if let Some((_, to)) = &mut self.scarce {
            *to = now + time;
        }
        self.full_at = Some(line);
        self.drain = Some(Drain {
            before,
            cut: self.drain.map_or(now, |drain| drain.cut),
            until: now + time,
            known: now + time + self.base + length.min(GLANCE.as_secs_f64()),
            after: (self.below() - LESS_IF_STEEP * growth.clamp(0.0, 1.0)) * line,
            excess,
            longest: self.drain.map_or(excess, |drain| drain.longest.max(self.excess_now())),
        });
        self.reason = Reason::Delay;
        self.set(lowest);
    }

    /// A turn of a cut that is under way.
    fn drains(&mut self, drain: Drain, now: f64, length: f64, excess: Option<f64>) {
        let soon = now + HALF_GLANCE.as_secs_f64();
        if soon >= drain.until && self.reason != Reason::Drained {
            self.reason = Reason::Drained;
            self.set(drain.after);
        }
        let has_fallen =
            excess.is_some_and(|excess| excess > FELL * drain.excess.max(self.delay()));
        // Until then trips of packets that left before the cut tell better and better what the line
        // does; longer ones say that it has fallen once more.
        if let Some(excess) = excess
            && self.side == Side::Before
            && self.in_vain == 0
            && excess > self.delay() / 2.0
            && (now - self.base - excess <= drain.cut || has_fallen)
            && let Some(full) = self.history.filling(self.delay() / 2.0, self.base, self.prior())
            && (self.reason == Reason::Delay || full.queue > self.delay())
        {
            let rate = full.rate.min(drain.before).max(self.least());
            self.drain_from(Full { rate, ..full }, now, 0.0, drain.before, drain.excess);
            return;
        }
        if let Some(excess) = excess
            && self.side == Side::Behind
            && self.in_vain == 0
            && self.reason == Reason::Delay
            && let Some(full) = self.history.delivering(self.delay() / 2.0, 0.15)
        {
            let line = full.rate.min(drain.before).max(self.least());
            // What comes now found the queue of a while ago, into which less has come since. What
            // was sent before the cut comes for a round trip.
            let part = (self.rate / line).min(1.0);
            let left = (drain.cut + self.base + UNTOLD - now).max(0.0);
            let queue = (excess * part).max((drain.before / line - 1.0) * left);
            let most = drain.longest.max(excess);
            let ends = drain.cut + self.base + UNTOLD + PROOF * most;
            let full = Full { rate: line, growth: 0.0, queue: queue.min((ends - now).max(0.0)) };
            self.drain_from(full, now, 0.0, drain.before, drain.excess);
            return;
        }
        // The line has fallen meanwhile.
        if let Some(excess) = excess
            && self.side == Side::Behind
            && has_fallen
            && self.reason == Reason::Drained
        {
            self.drain = None;
            self.in_vain = 0;
            self.cut(now, length, excess);
            return;
        }
        let Some(excess) = excess.filter(|_| soon >= drain.known) else {
            // Nobody sends any more, so nobody tells.
            if now >= drain.known + DRAIN_MOST {
                self.drain = None;
            }
            return;
        };
        self.drain = None;
        let is_same = (excess - drain.excess).abs() <= WORKED * drain.excess;
        if !is_same || excess <= self.delay() {
            self.in_vain = 0;
            return;
        }
        self.in_vain += 1;
        if self.in_vain >= CUTS_IN_VAIN {
            self.in_vain = 0;
            self.baselines.moved(Nanos((excess * 1e9) as u64));
            self.full_at = None;
            self.reason = Reason::Path;
            self.set(self.before_cuts);
        }
    }

    /// The line loses segments.
    fn loses(&mut self) {
        let delivered = self.history.sent(0.5) * (1.0 - self.lost / self.segments);
        let line = delivered.min(self.rate);
        self.full_at = Some(line);
        self.growth = SLOW;
        (self.segments, self.lost) = (0.0, 0.0);
        self.reason = Reason::Loss;
        self.set(BELOW * line);
    }

    /// The limit binds.
    fn rises(&mut self, length: f64, excess: f64) {
        if excess > self.delay() / 2.0 {
            self.growth = SLOW;
            self.reason = Reason::Holds;
            return;
        }
        let is_beyond = self.full_at.is_none_or(|full| self.rate > BEYOND * full);
        if is_beyond {
            self.growth = (self.growth * FASTER.powf(length)).min(FAST);
        }
        self.reason = Reason::Rises;
        self.set(self.rate * (1.0 + self.growth * length.min(0.2)));
    }

    /// Nothing binds.
    fn returns(&mut self, length: f64) {
        let usual = self.bounds.usual.bits_per_sec() as f64;
        let part = (RETURN * length).min(1.0);
        let step = self.rate * part;
        let next = if self.rate < usual {
            (self.rate + step).min(usual)
        } else {
            (self.rate - step).max(usual)
        };
        self.reason = Reason::Idle;
        self.growth = SLOW;
        self.set(next);
    }

    fn least(&self) -> f64 {
        self.bounds.least.bits_per_sec() as f64
    }

    fn set(&mut self, rate: f64) {
        let most = self.bounds.most.bits_per_sec() as f64;
        // Also what is not a number.
        self.rate = if rate >= self.least() { rate.min(most) } else { self.least() };
    }

    fn decision(&self) -> Decision {
        let excess = self.excess_now();
        Decision { rate: self.rate(), reason: self.reason, excess: Nanos((excess * 1e9) as u64) }
    }
}
