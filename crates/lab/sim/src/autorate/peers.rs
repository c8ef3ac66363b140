//! The rules of cake-autorate 3, from its documents and its defaults.
//!
//! Six reflectors are asked in turn, so that an answer comes every 50 ms. Each has a base of its
//! one-way delay, which falls fast (weight 0.9) and rises slowly (0.001). Bufferbloat is three of
//! six delays of more than 30 ms above the base; then the rate is multiplied by 0.99 to 0.75, the
//! less the nearer the smoothed delay (weight 0.095) is to 60 ms, and holds for 300 ms. Under high
//! load, three quarters of the rate, every answer raises the rate by 4 % to 0 %: by all of it up to
//! a smoothed delay of 10 ms, and by nothing at 30 ms. Under low load it goes 1 % a second towards
//! its base rate. Load is measured every 200 ms.

use narrows_units::{Bytes, Nanos, Rate};
use std::collections::VecDeque;

/// Reflectors, and how often each is asked.
pub(super) const REFLECTORS: usize = 6;
/// How often one of them is asked.
pub(super) const ASKED_EVERY: Nanos = Nanos::from_millis(50);

const FALLS: f64 = 0.9;
const RISES: f64 = 0.001;
const SMOOTH: f64 = 0.095;
/// Milliseconds.
const DELAYED: f64 = 30.0;
const LEAST_CUT_AT: f64 = 30.0;
const MOST_CUT_AT: f64 = 60.0;
const MOST_RISE_TO: f64 = 10.0;
const WINDOW: usize = 6;
const OF_WINDOW: usize = 3;
const LEAST_CUT: f64 = 0.99;
const MOST_CUT: f64 = 0.75;
const MOST_RISE: f64 = 1.04;
const HIGH_LOAD: f64 = 0.75;
const REFRACTORY: Nanos = Nanos::from_millis(300);
const DECAYS_EVERY: Nanos = Nanos::from_secs(1);
const DECAY: f64 = 0.99;
const RETURN: f64 = 1.01;
const MEASURED_EVERY: Nanos = Nanos::from_millis(200);

/// The rate by these rules.
pub(super) struct CakeAutorate {
    bounds: [f64; 2],
    usual: f64,
    rate: f64,
    /// By reflector, in milliseconds.
    bases: [Option<f64>; REFLECTORS],
    smoothed: [f64; REFLECTORS],
    delays: VecDeque<bool>,
    cut_at: Option<Nanos>,
    decayed_at: Nanos,
    measured_at: Nanos,
    passed: Bytes,
    load: f64,
}

impl CakeAutorate {
    pub(super) fn new([least, usual, most]: [Rate; 3]) -> Self {
        let [least, usual, most] = [least, usual, most].map(|rate| rate.bits_per_sec() as f64);
        Self {
            bounds: [least, most],
            usual,
            rate: usual,
            bases: [None; REFLECTORS],
            smoothed: [0.0; REFLECTORS],
            delays: VecDeque::new(),
            cut_at: None,
            decayed_at: Nanos::ZERO,
            measured_at: Nanos::ZERO,
            passed: Bytes::ZERO,
            load: 0.0,
        }
    }

    /// So much passed the limit.
    pub(super) fn passed(&mut self, bytes: Bytes, now: Nanos) {
        self.passed += bytes;
        let span = now - self.measured_at;
        if span >= MEASURED_EVERY {
            self.load = self.passed.0 as f64 * 8.0 / span.as_secs_f64() / self.rate;
            (self.measured_at, self.passed) = (now, Bytes::ZERO);
        }
    }

    /// An answer of a reflector, with its one-way delay. Returns the rate.
    pub(super) fn answer(&mut self, reflector: usize, delay: Nanos, now: Nanos) -> Rate {
        let delay = delay.as_secs_f64() * 1e3;
        let base = self.bases[reflector].get_or_insert(delay);
        let weight = if delay >= *base { RISES } else { FALLS };
        *base += weight * (delay - *base);
        let above = delay - *base;
        self.smoothed[reflector] += SMOOTH * (above - self.smoothed[reflector]);
        if self.delays.len() == WINDOW {
            self.delays.pop_front();
        }
        self.delays.push_back(above > DELAYED);
        let smoothed = self.smoothed.iter().sum::<f64>() / REFLECTORS as f64;
        let is_bloated = self.delays.iter().filter(|is_long| **is_long).count() >= OF_WINDOW;
        let is_refractory = self.cut_at.is_some_and(|at| now - at <= REFRACTORY);
        if is_bloated {
            if !is_refractory {
                let part = (smoothed - LEAST_CUT_AT) / (MOST_CUT_AT - LEAST_CUT_AT);
                self.rate *= LEAST_CUT - part.clamp(0.0, 1.0) * (LEAST_CUT - MOST_CUT);
                self.cut_at = Some(now);
            }
        } else if self.load >= HIGH_LOAD {
            if !is_refractory {
                let part = (LEAST_CUT_AT - smoothed) / (LEAST_CUT_AT - MOST_RISE_TO);
                self.rate *= 1.0 + part.clamp(0.0, 1.0) * (MOST_RISE - 1.0);
            }
        } else if now - self.decayed_at >= DECAYS_EVERY {
            self.rate = if self.rate > self.usual {
                (self.rate * DECAY).max(self.usual)
            } else {
                (self.rate * RETURN).min(self.usual)
            };
            self.decayed_at = now;
        }
        let [least, most] = self.bounds;
        self.rate = self.rate.clamp(least, most);
        Rate::from_bits_per_sec(self.rate as u64)
    }
}
