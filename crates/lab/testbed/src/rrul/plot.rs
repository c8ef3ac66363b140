//! The added delay as a plot.

use super::report::{Report, Row};
use crate::delays_plot::{self, Line};
use anyhow::Result;

const TITLE: &str =
    "Round trips of UDP probes beside 4 TCP flows up and 4 down: delay added to the path at rest";

/// The plot as SVG.
pub fn svg(report: &Report) -> Result<String> {
    delays_plot::svg(TITLE, &report.rows.iter().map(line).collect::<Vec<_>>())
}

fn line(row: &Row) -> Line<'_> {
    let Row { system, limit_bps, added_percentiles_us, .. } = row;
    Line { system, limit_bps: *limit_bps, added_percentiles_us }
}
