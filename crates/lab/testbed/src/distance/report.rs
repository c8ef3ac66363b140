//! The benchmark's results, as a table and as JSON, and whether they are as they should be.

use super::{BOXES, BURST, Cell, KEPT, LIMIT, NEAR, PART, SLEEPER, TWENTY_MS, tbf};
use crate::machine::Machine;
use crate::spread::{self, Spread};
use crate::table;
use crate::together::Samples;
use anyhow::{Context, Result};
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The sum is judged over windows of this length.
const WINDOW: Duration = Duration::from_millis(100);
/// How exactly a wait is known: the sampler reads about as often.
const STEP: Duration = Duration::from_millis(4);

/// What one round measured in a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    /// None of boxes that say nothing to each other.
    round_trip_ms: Option<f64>,
    /// None if it never had its share.
    wait_ms: Option<f64>,
    used_percent: f64,
    above_bytes: f64,
}

impl Sample {
    /// Of what the servers' devices received from `from`, when the sleeper woke, to `to`. It sent
    /// for `awake`.
    pub(super) fn new(
        round_trip_ms: Option<f64>,
        samples: &Samples,
        [from, to]: [Duration; 2],
        awake: Duration,
    ) -> Self {
        let has_its_share = |at: &Duration| {
            let rates = samples.rates(*at, *at + KEPT);
            rates.get(SLEEPER).is_some_and(|rate| *rate >= PART * NEAR)
        };
        let end = (from + awake).saturating_sub(KEPT);
        let mut times = (0..).map(|number| from + STEP * number).take_while(|at| *at <= end);
        let had = times.find(has_its_share);
        Self {
            round_trip_ms,
            wait_ms: had.map(|at| (at - from).as_secs_f64() * 1e3),
            used_percent: samples.rates(from, to).iter().sum::<f64>() / LIMIT * 100.0,
            above_bytes: samples.excess(LIMIT, WINDOW, from, to).bytes,
        }
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.wait_ms {
            Some(wait) => write!(f, "its share after {wait:.0} ms")?,
            None => f.write_str("it never had its share")?,
        }
        write!(f, ", {:.1} % used", self.used_percent)
    }
}

/// One network, or what is divided.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// The mean round trip between two boxes, in milliseconds; none where they say nothing to each
    /// other.
    pub round_trip_ms: Option<Spread>,
    /// How long the box that woke waited for its share, in milliseconds; none if it never had it.
    pub wait_ms: Option<Spread>,
    /// In how many rounds it never had it.
    pub never: usize,
    /// What was used of the limit, in percent.
    pub used_percent: Spread,
    /// The most bytes beyond the limit that all servers received in any tenth of a second; negative
    /// below it.
    pub above_bytes: Spread,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where it was measured.
    #[serde(flatten)]
    pub machine: Machine,
    /// The limit of all boxes, in bits per second.
    pub limit_bps: f64,
    /// The networks, and last what is divided.
    pub rows: Vec<Row>,
    /// By how much the sum exceeded the limit, beyond what the boxes' buckets hold, in percent of
    /// the limit, in the worst tenth of a second.
    pub exceeded_percent: f64,
    /// Packets that are not accounted for.
    pub unaccounted: u64,
    /// The words of `narrows` that set the limit.
    pub command: String,
    /// Whether the limit was kept, no packet is missing, and all that woke had their shares.
    pub is_met: bool,
}

impl Row {
    /// Of its rounds; none without any.
    fn new(cell: Cell, rounds: &[Sample]) -> Option<Self> {
        let of = |value: fn(&Sample) -> f64| Spread::of(rounds.iter().map(value));
        let some = |value: fn(&Sample) -> Option<f64>| Spread::of(rounds.iter().filter_map(value));
        Some(Self {
            name: cell.name(),
            round_trip_ms: some(|sample| sample.round_trip_ms),
            wait_ms: some(|sample| sample.wait_ms),
            never: rounds.iter().filter(|sample| sample.wait_ms.is_none()).count(),
            used_percent: of(|sample| sample.used_percent)?,
            above_bytes: of(|sample| sample.above_bytes)?,
        })
    }

    fn wait(&self) -> String {
        let wait = spread::shown(self.wait_ms, 0);
        if self.never > 0 { format!("{wait}, {} times never", self.never) } else { wait }
    }
}

impl Report {
    /// Of the rounds of each cell.
    pub(super) fn new(measured: &[(Cell, Vec<Sample>)], unaccounted: u64) -> Result<Self> {
        let rows = measured.iter().map(|(cell, rounds)| Row::new(*cell, rounds));
        let rows = rows.collect::<Option<Vec<Row>>>().context("no round was whole")?;
        let worst = rows.iter().map(|row| row.above_bytes.max).fold(0.0, f64::max);
        let in_window = LIMIT / 8.0 * WINDOW.as_secs_f64();
        let buckets = f64::from(BURST) * BOXES as f64;
        let exceeded_percent = (worst - buckets).max(0.0) / in_window * 100.0;
        let all_had_theirs = rows.iter().all(|row| row.never == 0);
        Ok(Self {
            machine: Machine::here(),
            limit_bps: LIMIT,
            is_met: exceeded_percent == 0.0 && unaccounted == 0 && all_had_theirs,
            rows,
            exceeded_percent,
            unaccounted,
            command: format!("tc {}", tbf(Cell::Shared(TWENTY_MS))),
        })
    }
}

/// The table, its explanation, and the summary line.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.machine)?;
        let mut table = table::of_figures(
            0,
            ["boxes", "round trip, ms", "wait, ms", "used, %", "most in 100 ms, kB"],
        );
        for row in &self.rows {
            let Spread { median, min, max } = row.above_bytes;
            table.add_row([
                row.name.to_owned(),
                spread::shown(row.round_trip_ms, 1),
                row.wait(),
                row.used_percent.shown(1),
                format!("{:+.1} ({:+.1} to {:+.1})", median / 1e3, min / 1e3, max / 1e3),
            ]);
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "medians and extremes of all rounds; {BOXES} boxes at {:.0} Mbit/s, of which one wakes \
             and sleeps; wait: until it delivers {:.0} % of its part for {} ms; most in 100 ms: \
             what all servers received beyond the limit, of which the buckets explain {} kB\n\
             set by, on each box: narrows {}",
            LIMIT / 1e6,
            NEAR * 100.0,
            KEPT.as_millis(),
            f64::from(BURST) * BOXES as f64 / 1e3,
            self.command
        )?;
        writeln!(
            f,
            "bench-fleet-distance: limit exceeded by {:.2} %, {} packets unaccounted{}",
            self.exceeded_percent,
            self.unaccounted,
            if self.is_met { "" } else { ": NOT as it should be" }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(wait_ms: Option<f64>, above_bytes: f64) -> Report {
        let round_trip_ms = Some(40.3);
        let sample = Sample { round_trip_ms, wait_ms, used_percent: 99.2, above_bytes };
        let divided = Sample {
            round_trip_ms: None,
            wait_ms: Some(4.0),
            used_percent: 87.5,
            above_bytes: 0.0,
        };
        let measured =
            [(Cell::Shared(TWENTY_MS), vec![sample; 3]), (Cell::Divided, vec![divided; 3])];
        Report::new(&measured, 0).unwrap()
    }

    #[test]
    fn each_network_has_a_row() {
        let report = report(Some(96.0), 5_000.0);
        assert!(report.is_met);
        let text = report.to_string();
        let last = "bench-fleet-distance: limit exceeded by 0.00 %, 0 packets unaccounted";
        assert_eq!(text.lines().last().unwrap(), last);
        for shown in ["20 ms apart", "a quarter each", "96 (96-96)", "99.2 (99.2-99.2)", "40.3"] {
            assert!(text.contains(shown), "{shown} in\n{text}");
        }
    }

    #[test]
    fn what_falls_short_is_said() {
        let never = report(None, 5_000.0);
        assert!(never.to_string().contains("3 times never"), "{never}");
        let above = report(Some(96.0), 66_000.0);
        assert!(above.to_string().contains("exceeded by 10.00 %"), "{above}");
        for report in [never, above] {
            assert!(!report.is_met && report.to_string().contains("NOT as it should be"));
        }
    }
}
