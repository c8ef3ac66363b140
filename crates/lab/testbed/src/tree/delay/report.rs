//! The results, as a table and as JSON.

use crate::machine::Machine;
use crate::spread::Spread;
use crate::table;
use narrows_units::{Nanos, Rate};
use serde::Serialize;
use std::fmt;

/// The delays of one turn, in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    mean: f64,
    deviation: f64,
    median: f64,
    p99: f64,
    /// What arrived, in bits per second.
    delivered: f64,
}

impl Sample {
    /// Of frames with these delays; `None` if there are none.
    pub(super) fn new(mut delays: Vec<Nanos>, delivered: f64) -> Option<Self> {
        delays.sort_unstable();
        let micros: Vec<f64> = delays.iter().map(|delay| delay.0 as f64 / 1e3).collect();
        let count = micros.len() as f64;
        let mean = micros.iter().sum::<f64>() / count;
        let squares = micros.iter().map(|delay| (delay - mean).powi(2)).sum::<f64>();
        let at = |part: usize| micros.get(part * micros.len() / 100).copied();
        Some(Self {
            mean,
            deviation: (squares / count).sqrt(),
            median: at(50)?,
            p99: at(99)?,
            delivered,
        })
    }
}

/// One system under one load. Spreads are over the rounds; delays are in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The system's name.
    pub system: &'static str,
    /// What was offered, in percent of the limit.
    pub offered_percent: u32,
    /// The mean delay.
    pub mean_us: Spread,
    /// The standard deviation of the delays of one round.
    pub deviation_us: Spread,
    /// Half of the frames took at most that.
    pub median_us: Spread,
    /// All frames but a hundredth took at most that.
    pub p99_us: Spread,
    /// What arrived, in bits per second.
    pub delivered_bps: Spread,
}

impl Row {
    pub(super) fn of(
        system: &'static str,
        offered_percent: u32,
        rounds: &[Sample],
    ) -> Option<Self> {
        let over = |figure: fn(&Sample) -> f64| Spread::of(rounds.iter().map(figure));
        Some(Self {
            system,
            offered_percent,
            mean_us: over(|round| round.mean)?,
            deviation_us: over(|round| round.deviation)?,
            median_us: over(|round| round.median)?,
            p99_us: over(|round| round.p99)?,
            delivered_bps: over(|round| round.delivered)?,
        })
    }
}

/// All of them.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where it was measured.
    #[serde(flatten)]
    pub machine: Machine,
    /// The limit, in bits per second.
    pub limit_bps: u64,
    /// The systems.
    pub rows: Vec<Row>,
    /// Systems that were not measured, and why.
    pub absent: Vec<String>,
}

impl Report {
    pub(super) fn new(limit: Rate, rows: Vec<Row>, absent: Vec<String>) -> Self {
        Self { machine: Machine::here(), limit_bps: limit.bits_per_sec(), rows, absent }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        let mut table = table::of_figures(
            0,
            ["system", "offered %", "mean us", "deviation us", "median us", "p99 us", "Mbit/s"],
        );
        for row in &self.rows {
            table.add_row([
                row.system.to_owned(),
                row.offered_percent.to_string(),
                row.mean_us.shown(1),
                row.deviation_us.shown(1),
                row.median_us.shown(1),
                row.p99_us.shown(1),
                format!("{:.1}", row.delivered_bps.median / 1e6),
            ]);
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "one-way, from the sender's clock to the kernel's stamp at the receiver; of {} Mbit/s that \
             four applications share equally; medians over the rounds (least-most)",
            self.limit_bps / 1_000_000
        )?;
        table::write_notes(f, std::iter::empty(), self.absent.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_the_mean_and_the_deviation_of_all_frames() {
        let micros = |all: &[u64]| all.iter().map(|us| Nanos::from_micros(*us)).collect();
        let sample = Sample::new(micros(&[4, 2, 4, 9, 5, 4, 5, 7]), 1e6).unwrap();
        assert_eq!((sample.mean, sample.deviation), (5.0, 2.0));
        assert_eq!((sample.median, sample.p99), (5.0, 9.0));
        assert_eq!(Sample::new(Vec::new(), 0.0), None);
    }

    #[test]
    fn a_row_is_over_the_rounds() {
        let round = |mean| Sample { mean, deviation: 1.0, median: 2.0, p99: 3.0, delivered: 4e6 };
        let row = Row::of("bridge", 90, &[3.0, 1.0, 2.0].map(round)).unwrap();
        assert_eq!((row.mean_us.median, row.mean_us.max), (2.0, 3.0));
        assert!(Row::of("bridge", 90, &[]).is_none());
        let absent = vec!["rte_sched: not installed".to_owned()];
        let report = Report::new(Rate::from_bits_per_sec(200_000_000), vec![row], absent);
        let text = report.to_string();
        assert!(text.contains("2.0 (1.0-3.0)") && text.contains("of 200 Mbit/s"), "{text}");
        assert!(text.ends_with("not measured: rte_sched: not installed\n"), "{text}");
        let json = serde_json::to_value(report).unwrap();
        assert_eq!(
            (&json["rows"][0]["system"], &json["limit_bps"]),
            (&"bridge".into(), &200_000_000.into())
        );
    }
}
