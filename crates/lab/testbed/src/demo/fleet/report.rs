//! The results of the fleet's demo, as a table and as JSON, and whether they are as they should be.

use super::{BOXES, BURST, LIMIT};
use crate::table;
use crate::together::Samples;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The sum is judged over windows of this length.
const WINDOW: Duration = Duration::from_millis(100);
/// How long after its beginning a phase counts for what is used: loans move at once, but what was
/// lent to a box that nobody hears ends with its lease, routes are made again each second, and an
/// instance that has just begun waits for 3 s until nothing that it may have lent is used.
const SETTLING: Duration = Duration::from_secs(1);
const SETTLING_IF_UPSET: Duration = Duration::from_millis(3_500);
/// A box has its share within this part of the limit of it.
const NEAR: f64 = 0.05;
/// The steps of the plotted series.
pub(super) const STEP: Duration = Duration::from_millis(100);
/// What has to be used, in percent, of what can be.
const USED: f64 = 95.0;

/// One phase.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What happens.
    pub name: &'static str,
    /// When it begins and ends, in seconds.
    pub span_s: [f64; 2],
    /// What is due to each box, in bits per second.
    pub due_bps: [f64; BOXES],
    /// What each box delivered once it had settled.
    pub delivered_bps: Vec<f64>,
    /// After how many milliseconds each box had its share, within a twentieth of the limit; none
    /// if it never had.
    pub settled_ms: Option<u64>,
    /// The most bytes beyond the limit in any tenth of a second; negative below it.
    pub above_bytes: f64,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The limit, in bits per second.
    pub limit_bps: f64,
    /// The phases.
    pub rows: Vec<Row>,
    /// By how much the sum exceeded the limit, beyond what the boxes' buckets hold, in percent of
    /// the limit, in the worst tenth of a second.
    pub exceeded_percent: f64,
    /// What was used, in percent of what could be.
    pub used_percent: f64,
    /// Packets that are not accounted for.
    pub unaccounted: u64,
    /// The words of `narrows` that set the limit.
    pub commands: Vec<String>,
    /// Whether all is as it should be.
    pub is_met: bool,
    /// The rates over time, each with the time of its middle in seconds.
    #[serde(skip)]
    pub(super) series: Vec<(f64, Vec<f64>)>,
}

impl Row {
    pub(super) fn new(
        name: &'static str,
        due_bps: [f64; BOXES],
        is_upset: bool,
        samples: &Samples,
        [from, to]: [Duration; 2],
    ) -> Self {
        let settling = if is_upset { SETTLING_IF_UPSET } else { SETTLING };
        let delivered_bps = samples.rates(from + settling.min((to - from) * 2 / 3), to);
        let has_its_share = |at: &Duration| {
            let rates = samples.rates(at.saturating_sub(WINDOW), *at);
            let near = |(is, due): (&f64, f64)| (is - due).abs() <= LIMIT * NEAR;
            rates.len() == BOXES && rates.iter().zip(due_bps).all(near)
        };
        let step = Duration::from_millis(10);
        let times = (1..).map(|number| from + step * number).take_while(|at| *at <= to);
        let settled = times.into_iter().find(has_its_share);
        Self {
            name,
            span_s: [from.as_secs_f64(), to.as_secs_f64()],
            due_bps,
            delivered_bps,
            settled_ms: settled.map(|at| (at - from).as_millis() as u64),
            above_bytes: samples.excess(LIMIT, WINDOW, from, to).bytes,
        }
    }

    fn due(&self) -> f64 {
        self.due_bps.iter().sum()
    }

    fn delivered(&self) -> f64 {
        self.delivered_bps.iter().sum()
    }

    /// What a line says of it.
    pub(super) fn outcome(&self) -> String {
        format!("{} Mbit/s, due {}", shown(&self.delivered_bps), shown(&self.due_bps))
    }
}

fn shown(rates: &[f64]) -> String {
    rates.iter().map(|rate| format!("{:.1}", rate / 1e6)).collect::<Vec<_>>().join(" / ")
}

impl Report {
    pub(super) fn new(
        rows: Vec<Row>,
        samples: &Samples,
        commands: Vec<String>,
        unaccounted: u64,
    ) -> Self {
        let worst = rows.iter().map(|row| row.above_bytes).fold(0.0, f64::max);
        let in_window = LIMIT / 8.0 * WINDOW.as_secs_f64();
        let exceeded = (worst - f64::from(BURST) * BOXES as f64).max(0.0) / in_window * 100.0;
        let due: f64 = rows.iter().map(Row::due).sum();
        // What a box has beyond its share does not make up for what another lacks.
        let used = |row: &Row| row.delivered().min(row.due());
        let used = rows.iter().map(used).sum::<f64>() / due.max(1.0) * 100.0;
        let is_met = exceeded == 0.0 && used >= USED && unaccounted == 0 && !rows.is_empty();
        Self {
            limit_bps: LIMIT,
            rows,
            exceeded_percent: exceeded,
            used_percent: used,
            unaccounted,
            commands,
            is_met,
            series: samples.series(STEP),
        }
    }
}

/// The table, its explanation, and the summary line.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header =
            ["phase", "due, Mbit/s", "delivered, Mbit/s", "sum", "had it after", "most in 100 ms"];
        let mut table = table::of_figures(0, header);
        for row in &self.rows {
            table.add_row([
                row.name.to_owned(),
                shown(&row.due_bps),
                shown(&row.delivered_bps),
                format!("{:.2}", row.delivered() / 1e6),
                row.settled_ms.map_or_else(|| "never".to_owned(), |ms| format!("{ms} ms")),
                format!("{:+.1} kB", row.above_bytes / 1e3),
            ]);
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "limit: {:.0} Mbit/s for {BOXES} boxes, {:.0} owned by each; due: max-min of what can \
             be used (what a box owns that nobody hears stays its own); had it after: each box its \
             share over 100 ms, within {:.0} % of the limit; most in 100 ms: what all received \
             beyond the limit, of which the buckets explain {} kB",
            LIMIT / 1e6,
            super::SAFE / 1e6,
            NEAR * 100.0,
            f64::from(BURST) * BOXES as f64 / 1e3
        )?;
        for words in &self.commands {
            writeln!(f, "set by, on each box: narrows {words}")?;
        }
        writeln!(
            f,
            "demo-fleet: limit exceeded by {:.2} %, used {:.1} %, {} packets unaccounted{}",
            self.exceeded_percent,
            self.used_percent,
            self.unaccounted,
            if self.is_met { "" } else { ": NOT as it should be" }
        )
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn report() -> Report {
        let row = |name, begin: f64| Row {
            name,
            span_s: [begin, begin + 6.0],
            due_bps: [80e6, 0.0, 0.0, 0.0],
            delivered_bps: vec![79.2e6, 0.0, 0.0, 0.0],
            settled_ms: Some(120),
            above_bytes: 12_345.0,
        };
        let rows = vec![row("box 1 alone", 0.0), row("mended", 6.0)];
        let series = (0..120).map(|step| (f64::from(step) / 10.0, vec![79.2e6, 0.0, 0.0, 0.0]));
        let empty = Samples::default();
        let report = Report::new(rows, &empty, vec!["tc qdisc".into()], 0);
        Report { series: series.collect(), ..report }
    }

    #[test]
    fn the_last_line_sums_it_up() {
        let report = report();
        assert!(report.is_met);
        let text = report.to_string();
        let last = "demo-fleet: limit exceeded by 0.00 %, used 99.0 %, 0 packets unaccounted";
        assert_eq!(text.lines().last().unwrap(), last);
        for shown in ["79.2 / 0.0 / 0.0 / 0.0", "120 ms", "+12.3 kB", "narrows tc qdisc"] {
            assert!(text.contains(shown), "{shown} in\n{text}");
        }
    }

    #[test]
    fn what_no_bucket_explains_is_said() {
        let mut rows = report().rows;
        rows[0].above_bytes = 50_000.0;
        let report = Report::new(rows, &Samples::default(), Vec::new(), 0);
        assert!(!report.is_met);
        assert!(report.to_string().contains("exceeded by 1.00 %"), "{report}");
    }
}
