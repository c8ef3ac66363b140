//! Nanoseconds per packet, structure beside structure.

use crate::Structure;
use serde::Serialize;
use std::time::Instant;

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Packets through each structure in one repeat.
    pub packets: u64,
    /// Repeats, of which the median counts. Structures take turns within each.
    pub repeats: usize,
}

impl Default for Options {
    /// Below two seconds in all.
    fn default() -> Self {
        Self { packets: 100_000, repeats: 41 }
    }
}

/// The cost of one structure.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub structure: String,
    /// Queues that took turns.
    pub queues: usize,
    /// From arrival to departure; the median over all repeats.
    pub ns_per_packet: f64,
    /// The time divided by the floor's, within each repeat; the median.
    pub ratio: f64,
}

/// Measures `structures`, the first of which is the floor.
pub fn run(structures: &[Structure], options: Options) -> Vec<Row> {
    let mut workloads: Vec<_> = structures.iter().map(|structure| structure.workload()).collect();
    let mut costs = vec![Vec::with_capacity(options.repeats); structures.len()];
    for workload in &mut workloads {
        workload.run(options.packets);
    }
    for _ in 0..options.repeats {
        for (workload, costs) in workloads.iter_mut().zip(&mut costs) {
            let start = Instant::now();
            let packets = workload.run(options.packets);
            costs.push(start.elapsed().as_nanos() as f64 / packets as f64);
        }
    }
    let floor = costs.first().cloned().unwrap_or_default();
    let rows = structures.iter().zip(costs);
    rows.map(|(structure, costs)| Row {
        structure: structure.name(),
        queues: structure.queues(),
        ratio: median(costs.iter().zip(&floor).map(|(cost, floor)| cost / floor).collect()),
        ns_per_packet: median(costs),
    })
    .collect()
}

/// The middle one (the upper of two); NaN if there is none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_structure_is_measured_against_the_first() {
        let structures = Structure::all();
        let rows = run(&structures, Options { packets: 100, repeats: 3 });
        assert_eq!(rows.len(), structures.len());
        assert_eq!(rows[0].ratio, 1.0);
        assert!(rows.iter().all(|row| row.ns_per_packet > 0.0));
    }
}
