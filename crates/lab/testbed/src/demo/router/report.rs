//! The results of the router's demo, as a table and as JSON, and whether they are as they should
//! be.

use super::{INTERVAL, Phase, System};
use crate::diamond::Node;
use crate::probe::Sample;
use crate::table;
use narrows_units::Rate;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The least part of the packets that must take the path of the phase.
const SHARE: f64 = 0.95;
/// The longest silence: the time after which BGP misses a neighbour that says nothing.
const SILENCE_MS: f64 = 3000.0;
/// How much less the delay on the slow link must be with `cake`.
const LESS: f64 = 4.0;

/// One phase under one system.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What is at the limits.
    pub system: &'static str,
    /// What happens.
    pub phase: &'static str,
    /// Whether it is the failure of a link.
    pub is_failure: bool,
    /// The path that the flows should take.
    pub by: &'static str,
    /// The part of the packets that took it.
    pub share_percent: f64,
    /// The rate at the receiver's device, in bits per second of whole frames.
    pub delivered_bps: u64,
    /// The longest time without an answer after the change: requests in a row that had none.
    pub silence_ms: f64,
    /// Half of the round trips took at most this long.
    pub median_ms: Option<f64>,
    /// And 99 in 100.
    pub p99_ms: Option<f64>,
    /// Requests.
    pub sent: usize,
    /// Those without an answer.
    pub lost: usize,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The phases, under one system after the other.
    pub rows: Vec<Row>,
    /// The longest silence after the failure of a link; none without a failure.
    pub silence_ms: Option<f64>,
    /// Whether the flows took the path of every phase.
    pub has_moved: bool,
    /// The longest 99th percentile of the round trips on the slow path, with a plain queue and with
    /// `cake`.
    pub slow_p99_ms: [Option<f64>; 2],
    /// Packets of both instances that are not accounted for.
    pub unaccounted: u64,
    /// The words of `narrows tc` that set the limits in both routers.
    pub tc: Vec<String>,
    /// Whether all is as it should be.
    pub is_met: bool,
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

pub(super) fn mbit(bps: u64) -> String {
    format!("{:.1} Mbit/s", bps as f64 / 1e6)
}

/// The percentile `percent` of `trips`, which are in order.
fn percentile(trips: &[Duration], percent: usize) -> Option<f64> {
    let place = (trips.len() * percent).div_ceil(100).max(1) - 1;
    trips.get(place).copied().map(millis)
}

/// The time that the most requests in a row without an answer take.
fn silence(samples: &[Sample]) -> Duration {
    let runs = samples.split(|sample| sample.round_trip.is_some());
    INTERVAL * u32::try_from(runs.map(<[Sample]>::len).max().unwrap_or(0)).unwrap_or(u32::MAX)
}

impl Row {
    /// The row of `phase`, with the requests sent during its change and those sent after.
    pub(super) fn new(
        system: System,
        phase: &Phase,
        (delivered, share): (Rate, f64),
        change: &[Sample],
        after: &[Sample],
    ) -> Self {
        let mut trips: Vec<Duration> =
            after.iter().filter_map(|sample| sample.round_trip).collect();
        trips.sort_unstable();
        Self {
            system: system.name(),
            phase: phase.name,
            is_failure: phase.change.is_some_and(|(_, _, is_up)| !is_up),
            by: phase.by.name(),
            share_percent: share * 100.0,
            delivered_bps: delivered.bits_per_sec(),
            silence_ms: millis(silence(change)),
            median_ms: percentile(&trips, 50),
            p99_ms: percentile(&trips, 99),
            sent: after.len(),
            lost: after.len() - trips.len(),
        }
    }

    fn cells(&self) -> [String; 8] {
        let shown = |millis: Option<f64>| millis.map_or("-".into(), |ms| format!("{ms:.1} ms"));
        [
            self.system.to_owned(),
            self.phase.to_owned(),
            format!("{:.1} % by {}", self.share_percent, self.by),
            mbit(self.delivered_bps),
            format!("{:.0} ms", self.silence_ms),
            shown(self.median_ms),
            shown(self.p99_ms),
            format!("{} of {}", self.lost, self.sent),
        ]
    }
}

impl Report {
    pub(super) fn new(rows: Vec<Row>, tc: Vec<String>, unaccounted: u64) -> Self {
        let failures = rows.iter().filter(|row| row.is_failure);
        let silence_ms = failures.map(|row| row.silence_ms).reduce(f64::max);
        let has_moved = rows.iter().all(|row| row.share_percent >= SHARE * 100.0);
        let slow_p99_ms = [System::Fifo, System::Cake].map(|system| {
            let slow = |row: &&Row| row.system == system.name() && row.by == Node::Slow.name();
            // Without an answer there is no low delay.
            let p99 = rows.iter().filter(slow).map(|row| row.p99_ms.unwrap_or(f64::INFINITY));
            p99.reduce(f64::max)
        });
        let is_short = matches!(slow_p99_ms, [Some(fifo), Some(cake)] if cake * LESS <= fifo);
        let is_met = has_moved
            && silence_ms.is_some_and(|silence| silence <= SILENCE_MS)
            && is_short
            && unaccounted == 0;
        Self { rows, silence_ms, has_moved, slow_p99_ms, unaccounted, tc, is_met }
    }
}

/// The table, its explanation, and the summary line.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header =
            ["queue", "phase", "way", "delivered", "silence", "median", "p99", "requests lost"];
        let mut table = table::of_figures(1, header);
        for row in &self.rows {
            table.add_row(row.cells());
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "way: of the packets that the routers of both paths received; delivered: frames at the \
             receiver; silence: the most requests in a row without an answer after the change, one \
             every {} ms; median, p99: of round trips once TCP has the new rate",
            INTERVAL.as_millis()
        )?;
        for words in &self.tc {
            writeln!(f, "set in both routers by: narrows tc {words}")?;
        }
        let figure = |ms: Option<f64>| ms.map_or("no".into(), |ms| format!("{ms:.1}"));
        let [fifo, cake] = self.slow_p99_ms.map(figure);
        writeln!(
            f,
            "demo-router: the flow {}, at most {} ms of silence when a link fails, p99 on the slow \
             link {cake} ms with cake and {fifo} ms with fifo, {} packets unaccounted{}",
            if self.has_moved { "moved and came back" } else { "did not take every path" },
            self.silence_ms.map_or("no".into(), |ms| format!("{ms:.0}")),
            self.unaccounted,
            if self.is_met { "" } else { ": NOT as it should be" }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::PHASES;
    use super::*;

    /// Requests of which those at `lost` have no answer.
    fn samples(trip: u64, lost: &[usize]) -> Vec<Sample> {
        let sample = |number: usize| Sample {
            sent: INTERVAL * number as u32,
            round_trip: (!lost.contains(&number)).then(|| Duration::from_millis(trip)),
        };
        (0..100).map(sample).collect()
    }

    fn report(cake_ms: u64, share: f64) -> Report {
        let rows = [(System::Fifo, 600), (System::Cake, cake_ms)].into_iter().flat_map(|system| {
            PHASES.iter().map(move |phase| {
                let rate = Rate::from_bits_per_sec(19_900_000);
                let change = samples(1, &[3, 4, 5, 9]);
                Row::new(system.0, phase, (rate, share), &change, &samples(system.1, &[7]))
            })
        });
        Report::new(rows.collect(), vec!["qdisc replace dev slow root cake".into()], 0)
    }

    #[test]
    fn the_last_line_sums_it_up() {
        let report = report(4, 1.0);
        assert!(report.is_met);
        let text = report.to_string();
        assert_eq!(
            text.lines().last().unwrap(),
            "demo-router: the flow moved and came back, at most 15 ms of silence when a link fails, \
             p99 on the slow link 4.0 ms with cake and 600.0 ms with fifo, 0 packets unaccounted"
        );
        for shown in ["100.0 % by slow", "19.9 Mbit/s", "1 of 100", "narrows tc qdisc"] {
            assert!(text.contains(shown), "{shown} in\n{text}");
        }
    }

    #[test]
    fn a_long_delay_a_wrong_way_and_a_missing_packet_are_faults() {
        assert!(!report(200, 1.0).is_met);
        let lost = report(4, 0.5);
        assert!(!lost.is_met && lost.to_string().contains("did not take every path"));
        let rows = report(4, 1.0).rows;
        let missing = Report::new(rows, Vec::new(), 1);
        assert!(missing.to_string().ends_with("1 packets unaccounted: NOT as it should be\n"));
        let nothing = Report::new(Vec::new(), Vec::new(), 0);
        assert!(!nothing.is_met && nothing.to_string().contains("at most no ms"));
    }

    #[test]
    fn a_silence_is_the_longest_run_without_an_answer() {
        assert_eq!(silence(&samples(1, &[])), Duration::ZERO);
        assert_eq!(silence(&samples(1, &[1, 2, 4, 5, 6, 98])), INTERVAL * 3);
    }

    #[test]
    fn percentiles_are_of_what_came() {
        let trips: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(percentile(&trips, 50), Some(100.0));
        assert_eq!(percentile(&trips, 99), Some(198.0));
        assert_eq!(percentile(&[], 99), None);
    }
}
