//! The results of a run: estimates beside rates.

use super::host::Seen;
use super::setup::{Case, Setup};
use narrows_units::{Bytes, Nanos, Rate};
use std::collections::BTreeMap;

/// The result for one host in one phase. Rates are in Gbit/s, errors in percent of the measured
/// rate.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The number of the phase, from 0.
    pub phase: usize,
    /// The host.
    pub host: u32,
    /// The measured rate.
    pub measured: f64,
    /// The estimate, as it was read, on average.
    pub mean: f64,
    /// At its least.
    pub least: f64,
    /// At its greatest.
    pub most: f64,
    /// The mean absolute error.
    pub mean_error: f64,
    /// At worst.
    pub largest_error: f64,
    /// By how many wheels packets were held off from where the measured rate belongs, at worst.
    pub wheels_off: u32,
    /// How soon the estimate was near the measured rate.
    pub near: Near,
}

/// How long after the phase's beginning an estimate first was as near as this; none if it never
/// was.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Near {
    /// Within 10 %.
    pub ten: Option<Nanos>,
    /// Within 5 %.
    pub five: Option<Nanos>,
}

/// By phase and host.
pub(super) fn rows(setup: &Setup, case: &Case, course: &BTreeMap<u32, Seen>) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut begin = Nanos::ZERO;
    for (number, phase) in case.phases.iter().enumerate() {
        let end = begin + phase.length;
        rows.extend(
            course.iter().map(|(&host, seen)| row(setup, seen, number, host, (begin, end))),
        );
        begin = end;
    }
    rows
}

fn row(setup: &Setup, seen: &Seen, phase: usize, host: u32, span: (Nanos, Nanos)) -> Row {
    let (begin, end) = span;
    let first = (begin.0 / setup.window.0) as usize;
    let windows = &seen.bytes[first..(end.0 / setup.window.0) as usize];
    let rates: Vec<f64> =
        windows.iter().map(|it| gbit(Rate::of(Bytes(*it), setup.window))).collect();
    let measured = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    let mut row = Row {
        phase,
        host,
        measured,
        mean: 0.0,
        least: f64::MAX,
        most: 0.0,
        mean_error: 0.0,
        largest_error: 0.0,
        wheels_off: 0,
        near: Near { ten: near(seen, span, measured, 0.1), five: near(seen, span, measured, 0.05) },
    };
    let mut count = 0_u32;
    let mut at = begin + setup.settle;
    while at < end {
        let known = seen.estimates.partition_point(|(since, _)| *since <= at);
        let bits = known.checked_sub(1).map_or(0, |last| seen.estimates[last].1);
        let estimate = bits as f64 / 1e9;
        let actual = rates[(at.0 / setup.window.0) as usize - first];
        let error = (estimate / actual - 1.0).abs() * 100.0;
        row.mean += estimate;
        row.least = row.least.min(estimate);
        row.most = row.most.max(estimate);
        row.mean_error += error;
        row.largest_error = row.largest_error.max(error);
        let wheels = wheel(setup, estimate).abs_diff(wheel(setup, actual));
        row.wheels_off = row.wheels_off.max(wheels);
        count += 1;
        at += setup.every;
    }
    row.mean /= f64::from(count.max(1));
    row.mean_error /= f64::from(count.max(1));
    row
}

fn gbit(rate: Rate) -> f64 {
    rate.bits_per_sec() as f64 / 1e9
}

/// The wheel of a packet at `gbit` Gbit/s: the power of two of nanoseconds within its time.
fn wheel(setup: &Setup, gbit: f64) -> u32 {
    ((setup.frame.0 * 8) as f64 / gbit).max(1.0).log2() as u32
}

/// How long after the beginning of `span` the estimate first is within `part` of `measured`.
fn near(seen: &Seen, span: (Nanos, Nanos), measured: f64, part: f64) -> Option<Nanos> {
    let (begin, end) = span;
    let is_near = |bits: u64| (bits as f64 / 1e9 / measured - 1.0).abs() <= part;
    let known = seen.estimates.partition_point(|(since, _)| *since <= begin).saturating_sub(1);
    let mut changes = seen.estimates[known..].iter().take_while(|(since, _)| *since < end);
    changes.find(|(_, bits)| is_near(*bits)).map(|(since, _)| since.since(begin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimator::{Phase, Shaping};

    const MILLI: Nanos = Nanos::from_millis(1);

    fn setup() -> Setup {
        Setup {
            frame: Bytes(1500),
            ahead: 4,
            every: Nanos::from_micros(100),
            window: MILLI,
            settle: Nanos::from_micros(200),
            seed: 1,
            cases: vec![],
        }
    }

    #[test]
    fn estimates_are_compared_with_the_window_in_which_they_are_read() {
        let phase = Phase { length: MILLI, shaping: Shaping::Together(Rate::default()) };
        let case = Case {
            name: String::new(),
            hosts: vec![3],
            start: None,
            phases: vec![phase.clone(), phase],
            paper: None,
        };
        // 1 Gbit/s and then 2, which the estimate follows 300 us later.
        let micros = Nanos::from_micros;
        let estimates = vec![
            (Nanos::ZERO, 1_040_000_000),
            (micros(1_300), 1_950_000_000),
            (micros(1_500), 2_000_000_000),
        ];
        let seen = Seen { estimates, bytes: vec![125_000, 250_000] };
        let rows = rows(&setup(), &case, &BTreeMap::from([(3, seen)]));
        let [first, second] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((first.measured, second.measured), (1.0, 2.0));
        assert!((first.mean_error - 4.0).abs() < 1e-9 && (first.mean - 1.04).abs() < 1e-9);
        assert_eq!(first.near, Near { ten: Some(Nanos::ZERO), five: Some(Nanos::ZERO) });
        assert!((second.largest_error - 48.0).abs() < 1e-9);
        assert_eq!((second.least, second.most, second.wheels_off), (1.04, 2.0, 1));
        assert_eq!(second.near, Near { ten: Some(micros(300)), five: Some(micros(300)) });
    }

    #[test]
    fn an_estimate_that_never_converges_is_reported() {
        let seen = Seen { estimates: vec![(Nanos::ZERO, 5)], bytes: vec![125_000] };
        assert_eq!(near(&seen, (Nanos::ZERO, MILLI), 1.0, 0.1), None);
    }
}
