//! The cost of finding a packet's class: tables compared with a walk over the filters, a hash map
//! and a prefix trie.
//!
//! Packets are plain frames with addresses drawn from those that filters name, 90 % of them with a
//! filter that matches, in an order that no cache can foresee. All structures get the same ones, in
//! turns, so each finds little of its memory in the caches. The peers get only the address. The
//! tables are measured three times: from the keys of a packet, from its bytes, and from its bytes
//! without the others in between ([`WARM`]).

mod rules;
mod work;

pub use rules::Rules;
pub use work::{Subject, Work};

use crate::qdisc::median;
use narrows_classify::{Actions, Blocks, Classifier, Filter, Filters};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// The name of the tables that look up the same 4,096 packets again and again, alone.
pub const WARM: &str = "tables, warm";

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Look-ups of each structure in one repeat; a walk over many filters does fewer.
    pub packets: u64,
    /// Repeats, of which the median counts.
    pub repeats: usize,
}

impl Default for Options {
    /// Repeats of a few hundred microseconds, most of which a busy machine does not interrupt.
    fn default() -> Self {
        Self { packets: 4_096, repeats: 201 }
    }
}

/// The results.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Look-ups.
    pub rows: Vec<Row>,
    /// Changes.
    pub changes: Vec<Change>,
}

/// The cost of a look-up.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Which filters.
    pub rules: String,
    /// How many there are.
    pub filters: usize,
    /// The compared look-ups.
    pub structure: String,
    /// The median over all repeats.
    pub ns_per_packet: f64,
    /// The time divided by that of the tables, within each repeat; the median.
    pub ratio: f64,
}

/// The cost of making tables, and of changing one filter.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Change {
    /// Which filters.
    pub rules: String,
    /// How many there are.
    pub filters: usize,
    /// To make the tables of all of them.
    pub build_ms: f64,
    /// To give one filter another class: in the list of filters, and in the tables.
    pub change_us: f64,
    /// The memory of the tables.
    pub table_bytes: usize,
}

/// Measures all structures on all filters.
pub fn run(options: &Options) -> Report {
    let mut report = Report { rows: Vec::new(), changes: Vec::new() };
    for rules in Rules::ALL {
        let subjects = Subject::of(rules);
        let mut works: Vec<_> = subjects.iter().map(|subject| Work::new(*subject, rules)).collect();
        let mut costs = vec![Vec::with_capacity(options.repeats); works.len()];
        let cost = |work: &mut Work| {
            let packets = work.at_most(options.packets);
            let start = Instant::now();
            std::hint::black_box(work.run(packets));
            start.elapsed().as_nanos() as f64 / packets as f64
        };
        for repeat in 0..=options.repeats {
            for (work, costs) in works.iter_mut().zip(&mut costs) {
                let cost = cost(work);
                if repeat > 0 {
                    costs.push(cost);
                }
            }
        }
        let tables = subjects.iter().position(|subject| *subject == Subject::Tables);
        let tables = tables.map_or(Vec::new(), |tables| costs[tables].clone());
        let mut names: Vec<&str> = subjects.iter().map(|subject| subject.name()).collect();
        let from_bytes = subjects.iter().position(|subject| *subject == Subject::TablesFromBytes);
        if let Some(from_bytes) = from_bytes {
            names.push(WARM);
            costs.push((0..options.repeats).map(|_| cost(&mut works[from_bytes])).collect());
        }
        for (name, costs) in names.into_iter().zip(costs) {
            let ratios = costs.iter().zip(&tables).map(|(cost, table)| cost / table).collect();
            report.rows.push(Row {
                rules: rules.name().to_owned(),
                filters: rules.count(),
                structure: name.to_owned(),
                ns_per_packet: median(costs),
                ratio: median(ratios),
            });
        }
        report.changes.push(change(rules, options.repeats));
    }
    report
}

fn change(rules: Rules, repeats: usize) -> Change {
    let mut filters: Filters = rules.filters();
    let start = Instant::now();
    let mut classifier = Classifier::new(filters.clone());
    let build_ms = start.elapsed().as_nanos() as f64 / 1e6;
    let orders: Vec<u64> = filters.iter().map(|(order, _)| order).collect();
    let mut costs = Vec::with_capacity(repeats);
    for repeat in 0..repeats {
        let order = orders[repeat * 7919 % orders.len()];
        let Some(present) = filters.get(order).cloned() else { continue };
        let start = Instant::now();
        let mut next = filters.clone();
        next.insert(order, Arc::new(Filter { class: present.class ^ 1, ..(*present).clone() }));
        let changed = classifier.with(&Blocks::from([(0, next.clone())]), &Actions::default());
        costs.push(start.elapsed().as_nanos() as f64 / 1e3);
        (filters, classifier) = (next, changed);
    }
    Change {
        rules: rules.name().to_owned(),
        filters: filters.len(),
        build_ms,
        change_us: median(costs),
        table_bytes: classifier.bytes(),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<10} {:>7}  {:<18} {:>10} {:>9}",
            "filters", "", "structure", "ns/packet", "ratio"
        )?;
        for row in &self.rows {
            let Row { rules, filters, structure, ns_per_packet, ratio } = row;
            writeln!(
                f,
                "{rules:<10} {filters:>7}  {structure:<18} {ns_per_packet:>10.1} {ratio:>9.2}"
            )?;
        }
        for change in &self.changes {
            let Change { rules, filters, build_ms, change_us, table_bytes } = change;
            writeln!(
                f,
                "{rules:<10} {filters:>7}  made in {build_ms:.1} ms, one changed in \
                 {change_us:.0} us, {:.1} MiB",
                *table_bytes as f64 / f64::from(1 << 20)
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_find_the_same_class_where_the_destination_decides() {
        for rules in [Rules::Addresses, Rules::Prefixes, Rules::PrefixesV6] {
            let sums = Subject::of(rules).into_iter().filter(|of| *of != Subject::Walk);
            let sums: Vec<u64> = sums.map(|subject| Work::new(subject, rules).run(2_000)).collect();
            assert!(sums[0] > 0 && sums.iter().all(|sum| *sum == sums[0]), "{rules:?}: {sums:?}");
        }
    }
}
