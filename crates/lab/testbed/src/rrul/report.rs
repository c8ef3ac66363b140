//! The results, as a table and as JSON, and whether the targets were reached.

use super::cell::{self, MARKS, Outcome};
use super::system::System;
use crate::machine::Machine;
use crate::table;
use crate::trips::Trips;
use narrows_coordination::jain;
use narrows_units::Rate;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The most delay that CAKE may add for 99 in 100 probes, in milliseconds: above [`SLOW`], and
/// below.
const ADDED_MS: f64 = 5.0;
const ADDED_SLOW_MS: f64 = 15.0;
/// Limits up to this, in bits per second, are slow: a full frame alone takes 0.24 ms at 50 Mbit/s.
const SLOW: u64 = 50_000_000;
/// The least Jain's index of equal flows.
const JAIN: f64 = 0.98;
/// The probes that are the sparse flows; the others, and `ping`, are what delay is judged by.
const SPARSE: [&str; 2] = ["DNS-like", "VoIP-like"];
/// The probe whose delays are drawn.
const DRAWN: &str = "UDP CS0";

/// The results of one kind of probe.
#[derive(Clone, Debug, Serialize)]
pub struct Delay {
    /// Which.
    pub probe: &'static str,
    /// Its code point.
    pub dscp: u8,
    /// Requests sent under load.
    pub sent: u64,
    /// Those that had no answer.
    pub lost: u64,
    /// Half of the round trips at rest took at most this long.
    pub idle_median_us: Option<f64>,
    /// By how much the load made the median longer than that.
    pub added_median_us: Option<f64>,
    /// And the 99th percentile.
    pub added_p99_us: Option<f64>,
}

/// One direction.
#[derive(Clone, Debug, Serialize)]
pub struct Way {
    /// The rate at the receiver's device, in bits per second of whole frames.
    pub delivered_bps: u64,
    /// Payload of each TCP flow, in bits per second, in the order of their marks.
    pub flows_bps: Vec<f64>,
    /// Jain's index of these, if they should be equal.
    pub jain: Option<f64>,
    /// The share of each queue, in percent.
    pub queue_percent: Vec<f64>,
}

/// One system at one limit.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub system: &'static str,
    /// Whether it is CAKE, which the targets are for.
    pub is_cake: bool,
    /// The limit of each direction; none if there was none.
    pub limit_bps: Option<u64>,
    /// The words of `narrows tc` that set it.
    pub tc: Vec<String>,
    /// The probes.
    pub delays: Vec<Delay>,
    /// The round trips of UDP CS0 under load: every percentile from the 0th to the 100th, in
    /// microseconds above the median at rest.
    pub added_percentiles_us: Vec<f64>,
    /// Client to server.
    pub up: Way,
    /// Server to client.
    pub down: Way,
    /// Frames that Narrows dropped, of the whole load.
    pub dropped_by_narrows: u64,
    /// Frames that some device had no room for, of the whole load.
    pub dropped_by_devices: u64,
    /// CPU time of Narrows, in percent of one core.
    pub cpu_percent: f64,
}

/// The results against the targets at one limit, the worst of all rows with CAKE.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The limit.
    pub limit_bps: u64,
    /// The longest 99th percentile of the delay added to ping and UDP probes, in milliseconds.
    pub added_p99_ms: f64,
    /// The most that it may be.
    pub added_p99_ms_most: f64,
    /// The least index of equal flows.
    pub jain: f64,
    /// The least that it must be.
    pub jain_least: f64,
    /// Lost packets of sparse flows; the target is none.
    pub sparse_lost: u64,
    /// Whether all of it was reached.
    pub is_met: bool,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where it was measured.
    #[serde(flatten)]
    pub machine: Machine,
    /// Code points of the TCP flows of each direction.
    pub marks: [u8; 4],
    /// The systems.
    pub rows: Vec<Row>,
    /// The targets.
    pub verdicts: Vec<Verdict>,
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

impl Delay {
    fn new(
        (probe, dscp): (&'static str, u8),
        (sent, lost): (u64, u64),
        idle: Option<Duration>,
        [median, p99]: [Option<Duration>; 2],
    ) -> Self {
        let added = |loaded: Option<Duration>| Some(micros(loaded?) - micros(idle?));
        Self {
            probe,
            dscp,
            sent,
            lost,
            idle_median_us: idle.map(micros),
            added_median_us: added(median),
            added_p99_us: added(p99),
        }
    }

    fn is_sparse_flow(&self) -> bool {
        SPARSE.contains(&self.probe)
    }

    /// Median and 99th percentile in milliseconds.
    fn shown(&self) -> String {
        // A negative value below the display precision is shown as zero.
        let tenths = |micros: f64| (micros / 100.0).round() / 10.0 + 0.0;
        let millis =
            |micros: Option<f64>| micros.map_or("-".into(), |us| format!("{:.1}", tenths(us)));
        format!("{} / {}", millis(self.added_median_us), millis(self.added_p99_us))
    }
}

fn way(system: System, way: &cell::Way) -> Way {
    let seconds = way.delivered.span.0 as f64 / 1e9;
    let flows_bps: Vec<f64> = way.flows.iter().map(|bytes| *bytes as f64 * 8.0 / seconds).collect();
    let sent = way.queues.iter().sum::<u64>().max(1) as f64;
    Way {
        delivered_bps: way.delivered.rate().bits_per_sec(),
        jain: system.heeds_no_marks().then(|| jain(&flows_bps)),
        flows_bps,
        queue_percent: way.queues.iter().map(|bytes| *bytes as f64 / sent * 100.0).collect(),
    }
}

impl Row {
    pub(super) fn new(
        system: System,
        limit: Option<Rate>,
        tc: Vec<String>,
        outcome: Outcome,
    ) -> Self {
        let Outcome { ping_idle, ping, probes, ways: [up, down], .. } = outcome;
        let mut delays = vec![Delay::new(
            ("ping", 0),
            (ping.sent, ping.lost),
            ping_idle.median(),
            [ping.median(), ping.p99()],
        )];
        let mut added_percentiles_us = Vec::new();
        for cell::Delays { probe, idle, loaded } in &probes {
            let at = |trips: &Trips, percent| trips.percentile(percent);
            let idle = at(idle, 50.0);
            delays.push(Delay::new(
                (probe.name, probe.dscp),
                (loaded.sent, loaded.lost),
                idle,
                [at(loaded, 50.0), at(loaded, 99.0)],
            ));
            if probe.name == DRAWN {
                let added =
                    |percent: u32| Some(micros(at(loaded, f64::from(percent))?) - micros(idle?));
                added_percentiles_us = (0..=100).filter_map(added).collect();
            }
        }
        let span = outcome.span.as_secs_f64();
        Self {
            system: system.name(),
            is_cake: system.is_cake(),
            limit_bps: limit.map(Rate::bits_per_sec),
            tc,
            delays,
            added_percentiles_us,
            up: way(system, &up),
            down: way(system, &down),
            dropped_by_narrows: outcome.dropped_by_narrows,
            dropped_by_devices: outcome.dropped_by_devices,
            cpu_percent: outcome.cpu.as_secs_f64() / span * 100.0,
        }
    }

    fn delay(&self, probe: &str) -> Option<&Delay> {
        self.delays.iter().find(|delay| delay.probe == probe)
    }

    /// The row in a few words.
    pub(super) fn outcome(&self) -> String {
        format!(
            "{} up, {} down, ping {} ms longer (median / p99)",
            mbit(self.up.delivered_bps),
            mbit(self.down.delivered_bps),
            self.delay("ping").map_or_else(String::new, Delay::shown)
        )
    }

    fn limit(&self) -> String {
        self.limit_bps.map_or("none".into(), |bps| Rate::from_bits_per_sec(bps).to_string())
    }

    fn jain(&self) -> Option<f64> {
        Some(f64::min(self.up.jain?, self.down.jain?))
    }

    fn cells(&self) -> Vec<String> {
        let mut cells = vec![
            self.limit(),
            self.system.to_owned(),
            mbit(self.up.delivered_bps),
            mbit(self.down.delivered_bps),
            self.jain().map_or("-".into(), |jain| format!("{jain:.3}")),
        ];
        cells.extend(self.delays.iter().filter(|delay| !delay.is_sparse_flow()).map(Delay::shown));
        let sparse = self.delays.iter().filter(|delay| delay.is_sparse_flow());
        cells.extend(sparse.map(|delay| format!("{} of {}", delay.lost, delay.sent)));
        cells.push(format!("{:.0} %", self.cpu_percent));
        cells
    }
}

impl Verdict {
    /// At `limit_bps`, by those of `rows` that are CAKE at it; `None` if there is none.
    fn of(limit_bps: u64, rows: &[Row]) -> Option<Self> {
        let rows: Vec<&Row> =
            rows.iter().filter(|row| row.is_cake && row.limit_bps == Some(limit_bps)).collect();
        let judged =
            rows.iter().flat_map(|row| &row.delays).filter(|delay| !delay.is_sparse_flow());
        let added_p99_ms = judged
            // A probe without an answer counts as an infinite delay.
            .map(|delay| delay.added_p99_us.map_or(f64::INFINITY, |us| us / 1e3))
            .reduce(f64::max)?;
        let added_p99_ms_most = if limit_bps > SLOW { ADDED_MS } else { ADDED_SLOW_MS };
        let jain = rows.iter().filter_map(|row| row.jain()).reduce(f64::min)?;
        let sparse = rows.iter().flat_map(|row| &row.delays).filter(|delay| delay.is_sparse_flow());
        let sparse_lost = sparse.map(|delay| delay.lost).sum();
        let is_met = added_p99_ms <= added_p99_ms_most && jain >= JAIN && sparse_lost == 0;
        Some(Self {
            limit_bps,
            added_p99_ms,
            added_p99_ms_most,
            jain,
            jain_least: JAIN,
            sparse_lost,
            is_met,
        })
    }
}

impl Report {
    pub(super) fn new(rows: Vec<Row>) -> Self {
        let mut limits: Vec<u64> = rows.iter().filter_map(|row| row.limit_bps).collect();
        limits.dedup();
        Self {
            machine: Machine::here(),
            marks: MARKS,
            verdicts: limits.into_iter().filter_map(|limit| Verdict::of(limit, &rows)).collect(),
            rows,
        }
    }
}

fn mbit(bps: u64) -> String {
    format!("{:.1} Mbit/s", bps as f64 / 1e6)
}

/// The table, its explanation, and a summary line for each limit.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}; sender, shaper and receiver share its cores", self.machine)?;
        let mut header = ["limit", "system", "up", "down", "Jain"].map(str::to_owned).to_vec();
        for delay in self.rows.first().iter().flat_map(|row| &row.delays) {
            let what = if delay.is_sparse_flow() { "lost" } else { "added" };
            header.push(format!("{} {what}", delay.probe));
        }
        header.push("CPU".to_owned());
        let mut table = table::of_figures(1, header);
        for row in &self.rows {
            table.add_row(row.cells());
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "added: to the round trip at rest, median / p99 in ms; lost: requests without an \
             answer; Jain: of 4 equal flows, the worse direction; CPU: of one core"
        )?;
        for row in &self.rows {
            let shares = |way: &Way| -> String {
                let shares = way.queue_percent.iter().map(|share| format!("{share:.0}"));
                shares.collect::<Vec<_>>().join(" / ")
            };
            writeln!(
                f,
                "{}, {}: by queue {} % up, {} % down; dropped {} by narrows, {} by full rings",
                row.limit(),
                row.system,
                shares(&row.up),
                shares(&row.down),
                row.dropped_by_narrows,
                row.dropped_by_devices
            )?;
        }
        for verdict in &self.verdicts {
            writeln!(
                f,
                "latency: cake at {} adds {:.1} ms (p99, at most {} aimed at), Jain {:.3} (at \
                 least {}), {} packets of sparse flows lost (none): {}",
                Rate::from_bits_per_sec(verdict.limit_bps),
                verdict.added_p99_ms,
                verdict.added_p99_ms_most,
                verdict.jain,
                verdict.jain_least,
                verdict.sparse_lost,
                if verdict.is_met { "reached" } else { "not reached" }
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A row in which every probe was delayed by `added_ms`.
    pub(crate) fn row(system: System, limit_bps: u64, added_ms: f64, jain: f64) -> Row {
        let delay = |probe| Delay {
            probe,
            dscp: 0,
            sent: 800,
            lost: 0,
            idle_median_us: Some(100.0),
            added_median_us: Some(added_ms * 500.0),
            added_p99_us: Some(added_ms * 1000.0),
        };
        let way = Way {
            delivered_bps: limit_bps,
            flows_bps: vec![1.0; 4],
            jain: system.heeds_no_marks().then_some(jain),
            queue_percent: vec![25.0; 4],
        };
        Row {
            system: system.name(),
            is_cake: system.is_cake(),
            limit_bps: Some(limit_bps),
            tc: system.words(Some(Rate::from_bits_per_sec(limit_bps))),
            delays: ["ping", "UDP CS0", "DNS-like", "VoIP-like"].map(delay).to_vec(),
            added_percentiles_us: (0..=100)
                .map(|percent| added_ms * 10.0 * f64::from(percent))
                .collect(),
            up: way.clone(),
            down: way,
            dropped_by_narrows: 3,
            dropped_by_devices: 0,
            cpu_percent: 30.0,
        }
    }

    #[test]
    fn only_cake_is_judged_and_by_its_worst() {
        let limit = 100_000_000;
        let rows = vec![
            row(System::Plain, limit, 70.0, 0.5),
            row(System::Cake, limit, 4.0, 0.0),
            row(System::CakeBestEffort, limit, 3.0, 0.99),
        ];
        let report = Report::new(rows.clone());
        let [verdict] = &report.verdicts[..] else { panic!("{:?}", report.verdicts) };
        assert_eq!((verdict.added_p99_ms, verdict.jain, verdict.is_met), (4.0, 0.99, true));
        let failing = |change: &dyn Fn(&mut Row)| {
            let mut rows = rows.clone();
            rows.iter_mut().skip(1).for_each(change);
            !Verdict::of(limit, &rows).unwrap().is_met
        };
        assert!(failing(&|row| row.delays[0].added_p99_us = Some(5100.0)));
        assert!(failing(&|row| row.delays[1].added_p99_us = None));
        assert!(failing(&|row| row.delays[2].lost = 1));
        assert!(failing(&|row| row.down.jain = row.down.jain.map(|_| 0.97)));
        // Sparse flows are judged by loss, not by delay.
        assert!(!failing(&|row| row.delays[3].added_p99_us = Some(9e6)));
    }

    #[test]
    fn a_slow_limit_may_add_more() {
        let rows = [row(System::CakeBestEffort, 20_000_000, 14.0, 1.0)];
        assert!(Verdict::of(20_000_000, &rows).unwrap().is_met);
        let rows = [row(System::CakeBestEffort, 100_000_000, 14.0, 1.0)];
        assert!(!Verdict::of(100_000_000, &rows).unwrap().is_met);
    }

    #[test]
    fn the_table_and_the_json_show_each_system() {
        let report = Report::new(vec![
            row(System::Plain, 20_000_000, 600.0, 0.9),
            row(System::CakeBestEffort, 20_000_000, 14.0, 0.999),
        ]);
        let text = report.to_string();
        for shown in [
            "| tbf + pfifo ",
            "300.0 / 600.0",
            "0 of 800",
            "20.0 Mbit/s",
            "cake at 20 Mbit/s adds 14.0 ms",
            ": reached",
        ] {
            assert!(text.contains(shown), "{shown} in\n{text}");
        }
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["rows"][1]["delays"][0]["added_p99_us"], 14_000.0);
        assert_eq!(json["verdicts"][0]["is_met"], true);
    }
}
