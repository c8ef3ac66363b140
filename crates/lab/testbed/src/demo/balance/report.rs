//! The results of the balancer's demo, as a table and as JSON, and whether they are as they should
//! be.

use crate::table;
use crate::web::SERVERS;
use serde::Serialize;
use std::fmt;

/// One phase.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What happens.
    pub name: &'static str,
    /// Whether a server is gone before anybody says so.
    pub may_fail: bool,
    /// How long it takes.
    pub seconds: u64,
    /// Requests.
    pub sent: u64,
    /// Those that failed.
    pub failed: u64,
    /// Connections that began at each server.
    pub began: [u64; SERVERS],
    /// Packets that filters dropped.
    pub filtered: u64,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The phases.
    pub rows: Vec<Row>,
    /// Requests of all phases.
    pub sent: u64,
    /// Those that failed.
    pub failed: u64,
    /// Packets that are not accounted for.
    pub unaccounted: u64,
    /// The words of `narrows` that changed something.
    pub commands: Vec<String>,
    /// Whether all is as it should be.
    pub is_met: bool,
}

impl Row {
    /// Which part of the connections began at each server, in percent.
    fn spread(&self) -> String {
        let all = self.began.iter().sum::<u64>().max(1);
        let percent = self.began.map(|began| format!("{:.0}", began as f64 * 100.0 / all as f64));
        percent.join(" / ")
    }
}

impl Report {
    pub(super) fn new(rows: Vec<Row>, commands: Vec<String>, unaccounted: u64) -> Self {
        let sent = rows.iter().map(|row| row.sent).sum();
        let failed = rows.iter().map(|row| row.failed).sum();
        let is_met = unaccounted == 0
            && !rows.is_empty()
            && rows.iter().all(|row| row.sent > 0 && (row.failed == 0 || row.may_fail));
        Self { rows, sent, failed, unaccounted, commands, is_met }
    }
}

/// The table, its explanation, and the summary line.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = ["phase", "requests/s", "failed", "connections to web1-4", "dropped"];
        let mut table = table::of_figures(0, header);
        for row in &self.rows {
            table.add_row([
                row.name.to_owned(),
                (row.sent / row.seconds.max(1)).to_string(),
                format!("{} of {}", row.failed, row.sent),
                format!("{} %", row.spread()),
                row.filtered.to_string(),
            ]);
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "connections: which part of those that began; dropped: packets of the flood, by a filter. \
             narrows health takes a killed server out after two failed checks, 500 ms apart: until \
             then requests to it fail"
        )?;
        for words in &self.commands {
            writeln!(f, "set by: narrows {words}")?;
        }
        writeln!(
            f,
            "demo-balance: {} requests failed of {}, {} packets unaccounted{}",
            self.failed,
            self.sent,
            self.unaccounted,
            if self.is_met { "" } else { ": NOT as it should be" }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(failed: u64, may_fail: bool) -> Row {
        let (seconds, sent, began, filtered) = (2, 1000, [25, 25, 0, 50], 7);
        Row { name: "web3 is killed", may_fail, seconds, sent, failed, began, filtered }
    }

    #[test]
    fn the_last_line_sums_it_up() {
        let rows = vec![row(0, false), row(12, true)];
        let report = Report::new(rows, vec!["balance list".into()], 0);
        assert!(report.is_met);
        let text = report.to_string();
        let last = "demo-balance: 12 requests failed of 2000, 0 packets unaccounted";
        assert_eq!(text.lines().last().unwrap(), last);
        for shown in ["25 / 25 / 0 / 50 %", "12 of 1000", "500 ", "narrows balance list"] {
            assert!(text.contains(shown), "{shown} in\n{text}");
        }
    }

    #[test]
    fn a_request_that_fails_elsewhere_and_a_missing_packet_are_faults() {
        assert!(!Report::new(vec![row(1, false)], Vec::new(), 0).is_met);
        let missing = Report::new(vec![row(0, false)], Vec::new(), 1);
        assert!(missing.to_string().ends_with("1 packets unaccounted: NOT as it should be\n"));
        assert!(!Report::new(Vec::new(), Vec::new(), 0).is_met);
    }
}
