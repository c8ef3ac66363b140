//! The average length, and what it does to an arrival.
//!
//! Each arrival moves the average by 1/2^W of its distance to the present length, in fixed point
//! with W bits behind the point. For an empty queue, packets that could have been sent meanwhile
//! count as arrivals at length 0: the table says how much of the average remains. Between the
//! thresholds drops are spaced evenly: the gap to the next is uniform up to twice its mean.
//!
//! *Adaptive:* each half second the probability moves so that the average stays in the middle of
//! the range: up by a quarter of itself, at most one percent, or down by a tenth.

use super::config::{CELLS, Config};
use narrows_units::{Bytes, Nanos};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

/// How often the probability is adapted.
const PERIOD: Nanos = Nanos::from_millis(500);
/// The periods after which it is at its bound: those of a longer silence are not looked at.
const PERIODS_MAX: u64 = 64;
/// One percent, in 1/2^32.
const PERCENT: u32 = 42_949_673;
/// The bounds between which the probability is adapted.
const PROBABILITY: std::ops::RangeInclusive<u32> = PERCENT..=50 * PERCENT;
/// The seed of all instances, which differ by their stream.
const SEED: u64 = 0x7265_6400;

/// What becomes of an arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// It is queued.
    Queue,
    /// It is marked or dropped by chance.
    Early,
    /// It is marked or dropped as all others are.
    Hard,
}

/// The average queue length, and the decision that it makes about an arrival.
pub(super) struct Law {
    /// The thresholds, in fixed point.
    min: u64,
    max: u64,
    /// Bits behind the point.
    log: u8,
    range: u32,
    /// Between these, in bytes, an adaptive probability stays.
    target: [u64; 2],
    probability: u32,
    /// The probability by byte of the range.
    divisor: u32,
    idle: Box<[u8; CELLS]>,
    cell: u8,
    /// The average in fixed point.
    average: u64,
    /// Packets queued between the thresholds since the last drop; `None` below them.
    since: Option<u64>,
    /// When it exceeds this, it is dropped.
    gap: u64,
    /// Since when the queue is empty, if it is.
    idle_since: Option<Nanos>,
    /// When the probability is adapted next; `None` until the first call, or never.
    adapts: Option<Nanos>,
    is_adaptive: bool,
    chances: Pcg32,
}

impl Law {
    /// That of `config`, for an empty queue.
    pub(super) fn new(config: &Config) -> Self {
        // Checked when the parameters were stated: what does not fit has the nearest that does.
        let log = config.ewma().unwrap_or(1);
        let (cell, idle) = config.idle().unwrap_or_else(|_| (0, Box::new([31; CELLS])));
        let range = config.max.saturating_sub(config.min).max(1);
        let fifth = u64::from(range / 5);
        let min = u64::from(config.min);
        Self {
            min: min << log,
            max: u64::from(config.max) << log,
            log,
            range,
            target: [min + 2 * fifth, min + 3 * fifth],
            probability: config.probability,
            divisor: (config.probability / range).max(1),
            idle,
            cell,
            average: 0,
            since: None,
            gap: 0,
            idle_since: Some(Nanos::ZERO),
            adapts: None,
            is_adaptive: config.adaptive,
            chances: Pcg32::new(SEED, config.stream),
        }
    }

    /// A packet comes at `now`, when `queued` are there.
    #[inline]
    pub(super) fn arrival(&mut self, queued: Bytes, now: Nanos) -> Action {
        if self.is_adaptive {
            self.adapt(now);
        }
        self.average = match self.idle_since.take() {
            Some(since) => self.after_rest(since, now),
            // Both in bytes with the point behind the lowest bits of what is added.
            None => (self.average + queued.0) - (self.average >> self.log),
        };
        if self.average < self.min {
            self.since = None;
            return Action::Queue;
        }
        if self.average >= self.max {
            self.since = None;
            return Action::Hard;
        }
        self.between()
    }

    /// The decision between the thresholds.
    fn between(&mut self) -> Action {
        let Some(since) = self.since.map(|since| since + 1) else {
            (self.since, self.gap) = (Some(0), self.draw());
            return Action::Queue;
        };
        let above = (self.average - self.min) >> self.log;
        if above.saturating_mul(since) < self.gap {
            self.since = Some(since);
            return Action::Queue;
        }
        (self.since, self.gap) = (Some(0), self.draw());
        Action::Early
    }

    fn draw(&mut self) -> u64 {
        u64::from(self.chances.next_u32() / self.divisor)
    }

    /// The queue is empty at `now`.
    #[inline]
    pub(super) fn rests(&mut self, now: Nanos) {
        self.idle_since.get_or_insert(now);
    }

    /// The queue has packets at `now` that have not arrived here.
    pub(super) fn wakes(&mut self, now: Nanos) {
        if let Some(since) = self.idle_since.take() {
            self.average = self.after_rest(since, now);
        }
    }

    /// What remains of the average at `now`.
    fn after_rest(&self, since: Nanos, now: Nanos) -> u64 {
        let most = (CELLS as u64 - 1) << self.cell;
        let micros = (now.since(since).0 / 1_000).min(most);
        match self.idle[(micros >> self.cell) as usize % CELLS] {
            // The table is too coarse for the begin: linear, down to a half.
            0 => {
                let less = self.average.saturating_mul(micros) >> self.cell;
                self.average - less.min(self.average.div_ceil(2))
            }
            shift => self.average >> shift,
        }
    }

    /// Adapts the probability as often as it is due at `now`.
    fn adapt(&mut self, now: Nanos) {
        let Some(mut due) = self.adapts else {
            self.adapts = Some(now + PERIOD);
            return;
        };
        let missed = now.since(due).0 / PERIOD.0;
        due += Nanos(missed.saturating_sub(PERIODS_MAX) * PERIOD.0);
        while due <= now {
            let average = match self.idle_since.filter(|since| *since <= due) {
                Some(since) => self.after_rest(since, due),
                None => self.average,
            };
            self.move_probability(average >> self.log);
            due += PERIOD;
        }
        self.adapts = Some(due);
    }

    fn move_probability(&mut self, average: u64) {
        if average > self.target[1] && self.probability <= *PROBABILITY.end() {
            self.probability += PERCENT.min(self.probability / 4);
        } else if average < self.target[0] && self.probability >= *PROBABILITY.start() {
            self.probability = self.probability / 10 * 9;
        }
        let rounded =
            (u64::from(self.probability) + u64::from(self.range / 2)) / u64::from(self.range);
        self.divisor = (rounded as u32).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_units::Rate;
    use proptest::prelude::*;

    fn config(adaptive: bool, burst: u32) -> Config {
        Config {
            limit: 400_000,
            min: 30_000,
            max: 90_000,
            avpkt: 1000,
            burst,
            bandwidth: Rate::from_bits_per_sec(10_000_000),
            probability: Config::probability_of(0.02),
            ecn: false,
            harddrop: false,
            nodrop: false,
            adaptive,
            stream: 0,
        }
    }

    /// Linux's variables and steps (`include/net/red.h`), with its types; wrapping as in C.
    struct Kernel {
        qth_min: u32,
        qth_max: u32,
        wlog: u32,
        delta: u32,
        max_p: u32,
        max_p_delta: u32,
        scell_log: u32,
        stab: [u8; 256],
        qavg: u64,
        qcount: i32,
        qr: u32,
        idle: Option<u64>,
        timer: Option<u64>,
        random: Pcg32,
    }

    impl Kernel {
        fn new(config: &Config) -> Self {
            let (wlog, (cell, stab)) = (config.ewma().unwrap(), config.idle().unwrap());
            let delta = config.max - config.min;
            Self {
                qth_min: config.min << wlog,
                qth_max: config.max << wlog,
                wlog: u32::from(wlog),
                delta,
                max_p: config.probability,
                max_p_delta: (config.probability / delta).max(1),
                scell_log: u32::from(cell),
                stab: *stab,
                qavg: 0,
                qcount: -1,
                qr: 0,
                idle: Some(0),
                timer: None,
                random: Pcg32::new(SEED, 0),
            }
        }

        fn average_after_idle(&self, start: u64, now: u64) -> u64 {
            let us_idle = ((now - start) / 1000).min(255 << self.scell_log);
            let shift = self.stab[(us_idle >> self.scell_log) as usize & 255];
            if shift != 0 {
                return self.qavg >> shift;
            }
            let us_idle = (self.qavg * us_idle) >> self.scell_log;
            if us_idle < self.qavg >> 1 { self.qavg - us_idle } else { self.qavg >> 1 }
        }

        fn enqueue(&mut self, adaptive: bool, backlog: u32, now: u64) -> Action {
            if adaptive {
                let mut timer = self.timer.unwrap_or(now + 500_000_000);
                while timer <= now {
                    let idle = self.idle.filter(|start| *start <= timer);
                    let qavg =
                        idle.map_or(self.qavg, |start| self.average_after_idle(start, timer));
                    let (qavg, min) = (qavg >> self.wlog, u64::from(self.qth_min >> self.wlog));
                    let fifth = u64::from(self.delta / 5);
                    if qavg > min + 3 * fifth && self.max_p <= 50 * PERCENT {
                        self.max_p += PERCENT.min(self.max_p / 4);
                    } else if qavg < min + 2 * fifth && self.max_p >= PERCENT {
                        self.max_p = (self.max_p / 10) * 9;
                    }
                    let closest = (self.max_p + self.delta / 2) / self.delta;
                    self.max_p_delta = closest.max(1);
                    timer += 500_000_000;
                }
                self.timer = Some(timer);
            }
            self.qavg = match self.idle.take() {
                Some(start) => self.average_after_idle(start, now),
                None => {
                    self.qavg.wrapping_add(u64::from(backlog).wrapping_sub(self.qavg >> self.wlog))
                }
            };
            if self.qavg < u64::from(self.qth_min) {
                self.qcount = -1;
                return Action::Queue;
            }
            if self.qavg >= u64::from(self.qth_max) {
                self.qcount = -1;
                return Action::Hard;
            }
            self.qcount += 1;
            if self.qcount == 0 {
                self.qr = self.random.next_u32() / self.max_p_delta;
                return Action::Queue;
            }
            let above = (self.qavg - u64::from(self.qth_min)) >> self.wlog;
            if above * (self.qcount as u64) < u64::from(self.qr) {
                return Action::Queue;
            }
            self.qcount = 0;
            self.qr = self.random.next_u32() / self.max_p_delta;
            Action::Early
        }
    }

    proptest! {
        #[test]
        fn each_arrival_fares_as_in_linux(
            steps in prop::collection::vec((0u64..400_000, 0u32..8, 0u8..40), 1..3_000),
            adaptive in any::<bool>(),
            burst in 40u32..400,
            long in 0u64..40,
        ) {
            let config = config(adaptive, burst);
            let (mut law, mut kernel) = (Law::new(&config), Kernel::new(&config));
            let (mut now, mut backlog) = (1_000_000_000u64, 0u32);
            for (step, (pause, gone, rest)) in steps.into_iter().enumerate() {
                // Now and then the queue runs empty, and rests for long.
                now += if rest == 0 { pause * 10_000 * long } else { pause };
                if rest == 0 {
                    backlog = 0;
                    law.rests(Nanos(now - pause));
                    kernel.idle.get_or_insert(now - pause);
                }
                backlog = backlog.saturating_sub(gone * 400);
                let expected = kernel.enqueue(adaptive, backlog, now);
                prop_assert_eq!(law.arrival(Bytes(backlog.into()), Nanos(now)), expected, "{}", step);
                prop_assert_eq!((law.average, law.probability), (kernel.qavg, kernel.max_p));
                if expected == Action::Queue {
                    backlog = (backlog + 1500).min(config.limit);
                }
            }
        }

        /// The oracle is the definition, in floating point.
        #[test]
        fn the_average_is_an_exponentially_weighted_one(
            lengths in prop::collection::vec(0u32..200_000, 1..500),
        ) {
            let config = config(false, 55);
            let mut law = Law::new(&config);
            law.wakes(Nanos(1));
            let (mut average, weight) = (0.0, 0.5f64.powi(5));
            for length in lengths {
                law.arrival(Bytes(length.into()), Nanos(1));
                average += weight * (f64::from(length) - average);
                let kept = law.average as f64 * weight;
                prop_assert!((kept - average).abs() < 1.0 + average * 1e-9, "{kept} for {average}");
            }
        }
    }

    #[test]
    fn between_the_thresholds_drops_have_the_stated_probability() {
        let mut law = Law::new(&config(false, 55));
        law.wakes(Nanos(1));
        // In the middle of the range: half of 2 %, which even spacing makes 1/(1/p): uniform gaps
        // up to 2/p would be 1 %, gaps up to 1/p are 2 %.
        let mut drops = 0;
        for _ in 0..200_000 {
            drops += u32::from(law.arrival(Bytes(60_000), Nanos(1)) == Action::Early);
        }
        assert!((3_500..4_500).contains(&drops), "{drops}");
    }
}
