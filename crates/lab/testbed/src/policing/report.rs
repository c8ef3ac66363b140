//! The benchmark's results, as a table and as JSON.

use super::cell::Found;
use crate::machine::Machine;
use crate::table;
use narrows_units::Rate;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// One system at one limit with one number of flows.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `narrows-xdp`, `plain drop` or `kernel police`.
    pub system: &'static str,
    /// In bits per second.
    pub limit: u64,
    /// TCP flows.
    pub flows: usize,
    /// Frames that arrived, in percent of the limit: their headers included.
    pub percent: f64,
    /// The rates at the receivers, in percent of the limit.
    pub payload_percent: f64,
    /// The second in which least arrived, in percent of the limit.
    pub least_second_percent: f64,
    /// The second with the most.
    pub most_second_percent: f64,
    /// The deviation of a second of a UDP flood above the limit, in percent.
    pub flood_off_percent: f64,
}

impl Row {
    pub(super) fn new(
        system: &'static str,
        limit: Rate,
        flows: usize,
        found: &Found,
        flood_off_percent: f64,
    ) -> Self {
        let percent = |rate: f64| rate / limit.bits_per_sec() as f64 * 100.0;
        let [least, most] = found.seconds;
        Self {
            system,
            limit: limit.bits_per_sec(),
            flows,
            percent: percent(found.frames),
            payload_percent: percent(found.payload),
            least_second_percent: percent(least),
            most_second_percent: percent(most),
            flood_off_percent,
        }
    }
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where it was measured.
    #[serde(flatten)]
    pub machine: Machine,
    /// The `latency` of `tbf`, in milliseconds.
    pub queue_ms: u64,
    /// The systems at each limit.
    pub rows: Vec<Row>,
    /// Notes that are not in the rows.
    pub notes: Vec<String>,
}

impl Report {
    pub(super) fn new(rows: Vec<Row>, notes: Vec<String>, queue: Duration) -> Self {
        Self { machine: Machine::here(), queue_ms: queue.as_millis() as u64, rows, notes }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, queue_ms, rows, notes } = self;
        writeln!(f, "{machine}; CUBIC, 20 ms of round trip, virtual queue of {queue_ms} ms\n")?;
        let heads = [
            "system",
            "limit",
            "flows",
            "% of limit",
            "payload %",
            "least second %",
            "most second %",
            "flood off by %",
        ];
        let mut table = table::of_figures(0, heads);
        for row in rows {
            table.add_row([
                row.system.to_owned(),
                Rate::from_bits_per_sec(row.limit).to_string(),
                row.flows.to_string(),
                format!("{:.1}", row.percent),
                format!("{:.1}", row.payload_percent),
                format!("{:.1}", row.least_second_percent),
                format!("{:.1}", row.most_second_percent),
                format!("{:+.2}", row.flood_off_percent),
            ]);
        }
        writeln!(f, "{table}")?;
        notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_shown_in_percent_of_the_limit() {
        let found = Found { frames: 96e6, payload: 91e6, seconds: [80e6, 104e6] };
        let limit = Rate::from_bits_per_sec(100_000_000);
        let row = Row::new("narrows-xdp", limit, 8, &found, -0.1);
        let report = Report::new(vec![row], vec!["none".into()], Duration::from_millis(100));
        let text = report.to_string();
        for part in ["narrows-xdp", "96.0", "91.0", "80.0", "104.0", "-0.10", "note: none"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(serde_json::to_string(&report).unwrap().contains("\"flows\":8"));
    }
}
