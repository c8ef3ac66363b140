//! The line: a queue in front of a rate that follows a schedule.
//!
//! The schedule is known, so a packet's departure is known on arrival, also when the rate changes
//! while it leaves.

use narrows_units::{Bytes, Nanos, Rate};
use std::collections::VecDeque;

/// A rate, for some time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// How long.
    pub lasts: Nanos,
    /// How fast the line is.
    pub rate: Rate,
}

/// A line's schedule, which begins again when it is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// The steps, at least one, none without a rate or a length.
    pub steps: Vec<Step>,
}

impl Line {
    /// How long the schedule is.
    fn period(&self) -> Nanos {
        self.steps.iter().fold(Nanos::ZERO, |sum, step| sum + step.lasts)
    }

    /// The step at `now`, and how long it goes on.
    fn at(&self, now: Nanos) -> (Rate, Nanos) {
        let mut into = Nanos(now.0 % self.period().0.max(1));
        for step in &self.steps {
            if into < step.lasts {
                return (step.rate, step.lasts - into);
            }
            into = into - step.lasts;
        }
        (Rate::from_bits_per_sec(1), Nanos::from_secs(1))
    }

    /// The rate at `now`.
    pub fn rate_at(&self, now: Nanos) -> Rate {
        self.at(now).0
    }

    /// When so many bits have left that begin to leave at `from`.
    fn leaves(&self, from: Nanos, bits: f64) -> Nanos {
        let (mut now, mut left) = (from, bits);
        loop {
            let (rate, lasts) = self.at(now);
            let rate = rate.bits_per_sec() as f64;
            let whole = rate * lasts.as_secs_f64();
            if left <= whole {
                return now + Nanos((left / rate * 1e9) as u64 + 1);
            }
            left -= whole;
            now += lasts;
        }
    }

    /// What it can carry from `from` to `to`, in bits.
    pub(super) fn capacity(&self, from: Nanos, to: Nanos) -> f64 {
        let (mut now, mut bits) = (from, 0.0);
        while now < to {
            let (rate, lasts) = self.at(now);
            let lasts = lasts.min(to - now);
            bits += rate.bits_per_sec() as f64 * lasts.as_secs_f64();
            now += lasts;
        }
        bits
    }

    /// When the rate falls to less than two thirds, from `from` to `to`.
    pub(super) fn falls(&self, from: Nanos, to: Nanos) -> Vec<Nanos> {
        let mut falls = Vec::new();
        let (mut now, mut before) = (Nanos::ZERO, None);
        while now < to {
            let (rate, lasts) = self.at(now);
            let is_fall = before
                .is_some_and(|before: Rate| rate.bits_per_sec() * 3 < before.bits_per_sec() * 2);
            if is_fall && now >= from {
                falls.push(now);
            }
            before = Some(rate);
            now += lasts;
        }
        falls
    }
}

/// The queue in front of a line.
pub(super) struct Queue<'a, P> {
    line: &'a Line,
    buffer: Bytes,
    free_at: Nanos,
    held: Bytes,
    leaving: VecDeque<(Nanos, Bytes, P)>,
}

impl<'a, P> Queue<'a, P> {
    pub(super) fn new(line: &'a Line, buffer: Bytes) -> Self {
        let (free_at, held) = (Nanos::ZERO, Bytes::ZERO);
        Self { line, buffer, free_at, held, leaving: VecDeque::new() }
    }

    /// Takes a packet; gives it back if there is no room.
    pub(super) fn send(&mut self, packet: P, len: Bytes, now: Nanos) -> Result<(), P> {
        if self.held + len > self.buffer {
            return Err(packet);
        }
        self.held += len;
        self.free_at = self.line.leaves(self.free_at.max(now), len.0 as f64 * 8.0);
        self.leaving.push_back((self.free_at, len, packet));
        Ok(())
    }

    /// When the next packet has left; [`Nanos::MAX`] if none is there.
    pub(super) fn next_at(&self) -> Nanos {
        self.leaving.front().map_or(Nanos::MAX, |(at, ..)| *at)
    }

    /// The packet that has left, with its length.
    pub(super) fn take(&mut self) -> Option<(Bytes, P)> {
        let (_, len, packet) = self.leaving.pop_front()?;
        self.held = Bytes(self.held.0.saturating_sub(len.0));
        Some((len, packet))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Line {
        let step = |mbit: u64| Step {
            lasts: Nanos::from_secs(10),
            rate: Rate::from_bits_per_sec(mbit * 1_000_000),
        };
        Line { name: "halves".to_owned(), steps: vec![step(20), step(10)] }
    }

    #[test]
    fn a_packet_that_leaves_over_a_fall_takes_as_long_as_both_rates_say() {
        let from = Nanos::from_millis(9_500);
        let left = line().leaves(from, 20e6);
        assert!(left.0.abs_diff(Nanos::from_secs(11).0) < 10, "{left:?}");
    }

    #[test]
    fn capacity_is_the_sum_over_the_schedule_and_falls_are_found() {
        let bits = line().capacity(Nanos::from_secs(5), Nanos::from_secs(25));
        assert!((bits - 300e6).abs() < 1.0, "{bits}");
        let falls = line().falls(Nanos::from_secs(5), Nanos::from_secs(45));
        assert_eq!(falls, [10, 30].map(Nanos::from_secs));
    }

    #[test]
    fn packets_leave_in_order_and_what_does_not_fit_is_given_back() {
        let line = line();
        let mut queue = Queue::new(&line, Bytes(3_000));
        assert_eq!(queue.send(1, Bytes(1_500), Nanos::ZERO), Ok(()));
        assert_eq!(queue.send(2, Bytes(1_500), Nanos::ZERO), Ok(()));
        assert_eq!(queue.send(3, Bytes(1_500), Nanos::ZERO), Err(3));
        assert!(queue.next_at().0.abs_diff(600_000) < 5);
        assert_eq!(
            [queue.take(), queue.take(), queue.take()].map(|it| it.map(|it| it.1)),
            [Some(1), Some(2), None]
        );
    }
}
