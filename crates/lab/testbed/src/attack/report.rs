//! The transactions that each system kept, as a table and as JSON.

use super::placement::Cores;
use crate::table;
use serde::Serialize;
use std::fmt;

/// A system during a flood of one rate.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub system: &'static str,
    /// Packets that the flood sent, a second.
    pub flood_pps: f64,
    /// The intended rate; `None` for the maximum.
    pub wanted_pps: Option<f64>,
    /// Whether there was no flood.
    pub is_idle: bool,
    /// Transactions a second.
    pub transactions: f64,
    /// The fraction of its transactions without a flood.
    pub share: f64,
}

/// All of them.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Which core did what.
    pub cores: Cores,
    /// The medians over rounds.
    pub rows: Vec<Row>,
}

impl Report {
    /// The medians over `rounds`, each of which has the same rows.
    pub(super) fn over(rounds: &[Vec<Row>], cores: Cores) -> Self {
        let Some(first) = rounds.first() else { return Self { cores, rows: Vec::new() } };
        let rows = first.iter().enumerate().map(|(place, row)| {
            let median = |figure: &dyn Fn(&Row) -> f64| {
                let mut figures: Vec<f64> =
                    rounds.iter().map(|rows| figure(&rows[place])).collect();
                figures.sort_by(f64::total_cmp);
                figures[figures.len() / 2]
            };
            Row {
                flood_pps: median(&|row| row.flood_pps),
                transactions: median(&|row| row.transactions),
                share: median(&|row| row.share),
                ..row.clone()
            }
        });
        Self { cores, rows: rows.collect() }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (flood, kept) = (self.flood_pps / 1e6, self.share * 100.0);
        write!(f, "{flood:.2} Mpps, {:.0} transactions/s, {kept:.1} %", self.transactions)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table =
            table::of_figures(0, ["system", "flood, Mpps", "transactions/s", "kept, %"]);
        for row in &self.rows {
            table.add_row([
                row.system.to_owned(),
                if row.is_idle { "-".to_owned() } else { format!("{:.2}", row.flood_pps / 1e6) },
                format!("{:.0}", row.transactions),
                format!("{:.1}", row.share * 100.0),
            ]);
        }
        writeln!(f, "{table}\n{}", self.cores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(transactions: f64) -> Row {
        Row {
            system: "narrows",
            flood_pps: 1e6,
            wanted_pps: None,
            is_idle: false,
            transactions,
            share: transactions / 1e4,
        }
    }

    #[test]
    fn the_median_over_rounds_counts() {
        let rounds = [row(9e3), row(1e3), row(8e3)].map(|row| vec![row]);
        let cores = Cores { ends: 0, shaper: 3 };
        let report = Report::over(&rounds, cores);
        assert_eq!(report.rows[0].transactions, 8e3);
        assert!(report.to_string().contains("80.0"), "{report}");
        assert!(report.to_string().contains("core 3: reception"), "{report}");
        assert!(Report::over(&[], cores).rows.is_empty());
    }
}
