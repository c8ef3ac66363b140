//! The results, as a table and as JSON.

use super::Cell;
use crate::machine::Machine;
use crate::receiving::Sample;
use crate::spread::Spread;
use crate::table;
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// What gives a verdict, and what that takes.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The verdict.
    pub verdict: &'static str,
    /// What gives it: `bare` for a program of a few instructions.
    pub system: &'static str,
    /// Run time of the thread that receives, in nanoseconds, per frame.
    pub ns_per_packet: Spread,
    /// In addition to the bare program, within each round; the median.
    pub ns_above_bare: f64,
    /// Thousands of frames in a second of the thread's time.
    pub kpps: f64,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where it was measured.
    #[serde(flatten)]
    pub machine: Machine,
    /// The rows.
    pub rows: Vec<Row>,
}

impl Report {
    pub(super) fn new(samples: &BTreeMap<Cell, Vec<Sample>>) -> Result<Self> {
        let row = |(cell, rounds): (&Cell, &Vec<Sample>)| {
            let bare = Cell { system: super::System::Bare, ..*cell };
            let bare = samples.get(&bare).context("the bare program was not measured")?;
            let above = rounds.iter().zip(bare).map(|(own, bare)| own.nanos() - bare.nanos());
            let spread = Spread::of(rounds.iter().map(Sample::nanos)).context("no round")?;
            Ok(Row {
                verdict: cell.verdict.name(),
                system: cell.system.name(cell.verdict),
                ns_per_packet: spread,
                ns_above_bare: Spread::of(above).context("no round")?.median,
                kpps: 1e6 / spread.median,
            })
        };
        let rows = samples.iter().map(row).collect::<Result<_>>()?;
        Ok(Self { machine: Machine::here(), rows })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        writeln!(f, "frames of 64 bytes from a driver; median over the rounds (least-most)")?;
        let header = ["verdict", "system", "CPU ns per frame", "above bare", "kpps of a core"];
        let mut table = table::of_figures(1, header);
        for row in &self.rows {
            table.add_row([
                row.verdict.to_owned(),
                row.system.to_owned(),
                row.ns_per_packet.shown(0),
                format!("{:.0}", row.ns_above_bare),
                format!("{:.0}", row.kpps),
            ]);
        }
        writeln!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::{System, Verdict};
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_frame_is_compared_with_the_bare_program_of_the_same_round() {
        let of = |nanos: [u64; 3]| -> Vec<Sample> {
            let one = |nanos| Sample { frames: 10, busy: Duration::from_nanos(10 * nanos) };
            nanos.map(one).to_vec()
        };
        let cell = |system| Cell { verdict: Verdict::Drop, system };
        let samples = BTreeMap::from([
            (cell(System::Bare), of([100, 200, 50])),
            (cell(System::Narrows), of([130, 220, 90])),
        ]);
        let report = Report::new(&samples).unwrap();
        let row = &report.rows[1];
        assert_eq!((row.system, row.ns_per_packet.median), ("narrows --port, a filter", 130.0));
        assert_eq!((row.ns_above_bare, row.kpps.round()), (30.0, 7692.0));
        assert!(report.to_string().contains("130 (90-220)"), "{report}");
        let without = BTreeMap::from([(cell(System::Kernel), of([1, 1, 1]))]);
        assert!(Report::new(&without).is_err());
    }
}
