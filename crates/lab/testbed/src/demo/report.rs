//! The results of the demo, as a table and as JSON.

use crate::accounting::Direction;
use crate::counters::Counts;
use crate::ping::Stats;
use crate::table;
use narrows_units::{Bytes, Nanos, Rate};
use serde::Serialize;
use std::fmt;

/// Replaces a deviation if the sender offered less than the limit.
const NOT_JUDGED: &str = "not judged";
/// Bytes of an Ethernet header.
const ETHERNET_HEADER: u64 = 14;

/// One load under one limit.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The limit; none if there was none.
    pub limit_bps: Option<u64>,
    /// `UDP` or `TCP`.
    pub traffic: &'static str,
    /// The words of `narrows tc` that set the limit.
    pub tbf: Option<String>,
    /// The rate that the client's stack passed to its device, in bits of frames per second.
    pub offered_bps: u64,
    /// Frames that were sent and not received, in percent of those sent.
    pub dropped_percent: f64,
    /// The rate that the server's device received, in bits of frames per second.
    pub delivered_bps: u64,
    /// The deviation from the limit; none without a limit, or if less than the limit was offered,
    /// so that nothing can be judged.
    pub deviation_percent: Option<f64>,
    /// The share of each queue, in percent.
    pub queue_shares: Vec<f64>,
    /// The median round trip.
    pub ping_median_us: Option<u128>,
    /// The 99th percentile.
    pub ping_p99_us: Option<u128>,
    /// Echo requests sent.
    pub ping_sent: u64,
    /// Answered ones.
    pub ping_received: u64,
    /// CPU time of Narrows, in percent of one core.
    pub cpu_percent: f64,
    /// TCP segments retransmitted.
    pub retransmits: u64,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The loads and limits, in the order in which they were run.
    pub rows: Vec<Row>,
    /// The largest deviation from a limit, either way, of the rows that can be judged; none if
    /// there are none.
    pub worst_deviation_percent: Option<f64>,
    /// Rows with a limit, for which less than the limit was offered.
    pub not_judged: usize,
    /// The median of all round trips under a limit.
    pub median_ping_us: Option<u128>,
    /// Where the frames went, client to server and back.
    pub directions: [Books; 2],
    /// Unaccounted frames, both directions together.
    pub unaccounted: u64,
}

/// A [`Direction`] in JSON.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Books {
    #[serde(flatten)]
    direction: Direction,
    unaccounted: i64,
}

impl From<Direction> for Books {
    fn from(direction: Direction) -> Self {
        Self { direction, unaccounted: direction.unaccounted() }
    }
}

impl Row {
    /// The row in a few words.
    pub(super) fn outcome(&self) -> String {
        let delivered = rate(Rate::from_bits_per_sec(self.delivered_bps));
        let judgement = match self.deviation_percent {
            Some(percent) => format!(" ({percent:+.2} %)"),
            None if self.is_not_judged() => {
                format!(" ({NOT_JUDGED}: only {} offered)", rate(self.offered()))
            }
            None => String::new(),
        };
        format!("{delivered}{judgement} delivered, ping {}", micros(self.ping_median_us))
    }

    fn offered(&self) -> Rate {
        Rate::from_bits_per_sec(self.offered_bps)
    }

    /// Whether less than the limit was offered.
    fn is_not_judged(&self) -> bool {
        self.limit_bps.is_some() && self.deviation_percent.is_none()
    }

    fn cells(&self) -> [String; 10] {
        let shares: Vec<String> =
            self.queue_shares.iter().map(|share| format!("{share:.0}")).collect();
        [
            self.limit_bps.map_or("none".into(), |bps| Rate::from_bits_per_sec(bps).to_string()),
            self.traffic.to_owned(),
            rate(self.offered()),
            format!("{:.1} %", self.dropped_percent),
            rate(Rate::from_bits_per_sec(self.delivered_bps)),
            match self.deviation_percent {
                Some(percent) => format!("{percent:+.3} %"),
                None if self.is_not_judged() => NOT_JUDGED.into(),
                None => "-".into(),
            },
            format!("{} %", shares.join(" / ")),
            micros(self.ping_median_us),
            micros(self.ping_p99_us),
            format!("{:.0} %", self.cpu_percent),
        ]
    }
}

impl Report {
    pub(super) fn new(rows: Vec<Row>, pings: &Stats, directions: [Direction; 2]) -> Self {
        let worst = rows.iter().filter_map(|row| row.deviation_percent).map(f64::abs);
        Self {
            worst_deviation_percent: worst.reduce(f64::max),
            not_judged: rows.iter().filter(|row| row.is_not_judged()).count(),
            median_ping_us: pings.median().map(|ping| ping.as_micros()),
            unaccounted: directions.iter().map(|way| way.unaccounted().unsigned_abs()).sum(),
            directions: directions.map(Books::from),
            rows,
        }
    }
}

/// The table, its explanation, and the summary line.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = table::of_figures(
            1,
            [
                "limit",
                "load",
                "offered",
                "dropped",
                "delivered",
                "deviation",
                "per queue",
                "ping median",
                "ping p99",
                "CPU",
            ],
        );
        for row in &self.rows {
            table.add_row(row.cells());
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "offered: frames given to the sender's device; delivered: frames at the receiver, both \
             with Ethernet header; dropped: of those sent; ping: beside the load, through the same \
             port; CPU: of one core"
        )?;
        if self.not_judged > 0 {
            writeln!(
                f,
                "{NOT_JUDGED}: in {} rows the sender could not offer the limit; run this again on a \
                 machine with less to do",
                self.not_judged
            )?;
        }
        let mut tbfs: Vec<&str> = self.rows.iter().filter_map(|row| row.tbf.as_deref()).collect();
        tbfs.dedup();
        for tbf in tbfs {
            writeln!(f, "set by: narrows tc {tbf}")?;
        }
        for (Books { direction, unaccounted }, way) in
            self.directions.iter().zip(["client to server", "server to client"])
        {
            writeln!(
                f,
                "{way}: {} frames = {} received + {} dropped by narrows + {} by devices \
                 + {} queued + {} for the box, {} unaccounted",
                direction.handed_over,
                direction.received,
                direction.dropped_by_narrows,
                direction.dropped_by_devices,
                direction.queued,
                direction.to_kernel,
                unaccounted
            )?;
        }
        writeln!(
            f,
            "demo: worst deviation {} %, median ping {} us, {} packets unaccounted",
            self.worst_deviation_percent.map_or("no".into(), |percent| format!("{percent:.2}")),
            self.median_ping_us.map_or("no".into(), |ping| ping.to_string()),
            self.unaccounted
        )
    }
}

/// The share of each queue in the increase from `before` to `after`, in percent.
pub(super) fn shares(before: &[u64], after: &[u64]) -> Vec<f64> {
    let sent: Vec<u64> =
        after.iter().zip(before).map(|(after, before)| after.saturating_sub(*before)).collect();
    let total = sent.iter().sum::<u64>().max(1) as f64;
    sent.iter().map(|bytes| *bytes as f64 / total * 100.0).collect()
}

/// The rate passed to a device in `span`, including frames that it dropped. A device whose peer
/// runs an XDP program counts bytes without Ethernet headers.
pub(super) fn offered(given: &Counts, span: Nanos) -> Rate {
    let mean = given.tx_bytes / given.tx_packets.max(1) + ETHERNET_HEADER;
    Rate::of(Bytes(mean * (given.tx_packets + given.tx_dropped)), span)
}

/// The share of `sent` that was not received, in percent.
pub(super) fn missing(sent: u64, received: u64) -> f64 {
    sent.saturating_sub(received) as f64 / sent.max(1) as f64 * 100.0
}

/// A rate to four digits or so, in its unit.
pub(super) fn rate(rate: Rate) -> String {
    match rate.bits_per_sec() as f64 {
        bps if bps >= 1e9 => format!("{:.4} Gbit/s", bps / 1e9),
        bps => format!("{:.2} Mbit/s", bps / 1e6),
    }
}

fn micros(micros: Option<u128>) -> String {
    micros.map_or("none".into(), |micros| format!("{micros} us"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(limit_bps: Option<u64>, deviation_percent: Option<f64>) -> Row {
        Row {
            limit_bps,
            traffic: "UDP",
            tbf: limit_bps.map(|_| "qdisc replace dev port-b root tbf rate 1gbit".into()),
            offered_bps: 1_300_000_000,
            dropped_percent: 23.08,
            delivered_bps: 999_100_000,
            deviation_percent,
            queue_shares: vec![25.2, 24.8, 0.0, 50.0],
            ping_median_us: Some(412),
            ping_p99_us: None,
            ping_sent: 10,
            ping_received: 9,
            cpu_percent: 61.4,
            retransmits: 0,
        }
    }

    fn report() -> Report {
        let lost = Direction { handed_over: 12, received: 10, ..Direction::default() };
        let doubled = Direction { handed_over: 10, received: 11, ..Direction::default() };
        let rows =
            vec![row(None, None), row(Some(1_000_000_000), Some(-0.09)), row(Some(7), Some(0.04))];
        Report::new(rows, &Stats::none(), [lost, doubled])
    }

    #[test]
    fn the_last_line_sums_it_up() {
        let text = report().to_string();
        assert_eq!(
            text.lines().last().unwrap(),
            "demo: worst deviation 0.09 %, median ping no us, 3 packets unaccounted"
        );
    }

    #[test]
    fn a_row_whose_sender_offered_too_little_is_not_judged() {
        let starved = Row { offered_bps: 860_000_000, ..row(Some(1_000_000_000), None) };
        let rows = vec![row(None, None), row(Some(1_000_000_000), Some(-0.09)), starved];
        let report = Report::new(rows, &Stats::none(), Default::default());
        assert_eq!((report.not_judged, report.worst_deviation_percent), (1, Some(0.09)));
        let text = report.to_string();
        assert!(text.contains("860.00 Mbit/s") && text.contains("not judged: in 1 rows"), "{text}");
        let nothing = Report::new(vec![row(None, None)], &Stats::none(), Default::default());
        assert_eq!((nothing.not_judged, nothing.worst_deviation_percent), (0, None));
        assert!(nothing.to_string().contains("worst deviation no %"));
    }

    #[test]
    fn the_offered_load_includes_the_device_s_drops() {
        let given =
            Counts { tx_packets: 900, tx_bytes: 900 * 1500, tx_dropped: 100, ..Counts::default() };
        let second = Nanos::from_secs(1);
        assert_eq!(offered(&given, second), Rate::from_bits_per_sec(1514 * 1000 * 8));
        assert_eq!(offered(&Counts::default(), second), Rate::default());
    }

    #[test]
    fn the_table_shows_the_measurements() {
        let text = report().to_string();
        for shown in
            ["none", "999.10 Mbit/s", "-0.090 %", "25 / 25 / 0 / 50 %", "412 us", "61 %", "23.1 %"]
        {
            assert!(text.contains(shown), "{shown} in\n{text}");
        }
        assert_eq!(text.matches("set by: ").count(), 1, "the same line is said once");
    }

    #[test]
    fn json_has_a_row_for_each_load() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["rows"].as_array().unwrap().len(), 3);
        assert_eq!(json["unaccounted"], 3);
        assert_eq!(json["directions"][1]["unaccounted"], -1);
        assert!(json["rows"][0]["deviation_percent"].is_null());
    }

    #[test]
    fn missing_frames_were_sent_and_not_received() {
        assert_eq!(missing(200, 150), 25.0);
        // Counters at two places are not read at once.
        assert_eq!(missing(100, 101), 0.0);
    }

    #[test]
    fn shares_are_of_the_increment() {
        assert_eq!(shares(&[100, 0], &[130, 10]), [75.0, 25.0]);
        assert_eq!(shares(&[5], &[5]), [0.0]);
    }
}
