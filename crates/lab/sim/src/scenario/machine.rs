//! What lines cost that cores share, by number of cores, as a machine measured it.
//!
//! A machine is what `narrows bench coordination --json` printed there. Those in `machines/` are
//! known by name; any other one is a file.
//!
//! *By number of cores.* A read and an update are the curve's own figures. A lock's hand-over is
//! what a contended section takes beyond its own work: of `lock`, beyond the update of the bucket;
//! of `qdisc-lock`, beyond what a packet takes with one thread. Between two measured numbers of
//! threads costs are interpolated. Beyond the last one its figures stand, since nobody measured
//! what more cores would cost.

use crate::setup::Costs;
use serde::Deserialize;

/// Name and output of each.
const MACHINES: &[(&str, &str)] = &[
    ("xeon-2", include_str!("../../machines/xeon-2.json")),
    ("xeon-16", include_str!("../../machines/xeon-16.json")),
];

/// A machine.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Machine {
    /// By number of threads, ascending; at least one.
    curve: Vec<(usize, Costs)>,
}

/// What is read of the benchmark's output.
#[derive(Deserialize)]
struct Report {
    rows: Vec<Row>,
    curve: Vec<Point>,
}

#[derive(Deserialize)]
struct Row {
    strategy: String,
    load: String,
    threads: usize,
    mpps: f64,
}

#[derive(Deserialize)]
struct Point {
    threads: usize,
    line_read_ns: f64,
    line_update_ns: f64,
}

impl Machine {
    /// The machine `name`, or that of the file `name` if it ends in `.json`. What does not depend
    /// on lines costs as `others` say.
    ///
    /// # Errors
    /// There is none, or the file is no output of the benchmark.
    pub(super) fn named(name: &str, others: Costs) -> Result<Self, String> {
        let known = MACHINES.iter().find(|(known, _)| *known == name);
        if let Some((_, text)) = known {
            return Self::read(text, others);
        }
        let names: Vec<&str> = MACHINES.iter().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        if !name.ends_with(".json") {
            return Err(format!(
                "there is no machine \"{name}\": write {names}, or the name of a file that ends in .json"
            ));
        }
        let text = std::fs::read_to_string(name).map_err(|why| format!("{name}: {why}"))?;
        Self::read(&text, others).map_err(|why| format!("{name}: {why}"))
    }

    /// The machine that printed `text`.
    fn read(text: &str, others: Costs) -> Result<Self, String> {
        let hint = "write what `narrows bench coordination --json` prints there";
        let report: Report = serde_json::from_str(text).map_err(|why| format!("{hint}: {why}"))?;
        // Nanoseconds that a packet takes, all threads together.
        let packet = |system: &str, threads: usize| {
            let is_it = |row: &&Row| {
                row.strategy == system && row.load == "unbound" && row.threads == threads
            };
            let row = report.rows.iter().find(is_it).filter(|row| row.mpps > 0.0);
            row.map(|row| 1_000.0 / row.mpps).ok_or_else(|| {
                format!("{hint}: it has no row of {system}, unbound, with {threads} threads")
            })
        };
        let point = |point: &Point| {
            let Point { threads, line_read_ns, line_update_ns } = *point;
            let locked = packet("lock", threads)? - line_update_ns;
            let queued = packet("qdisc-lock", threads)? - packet("qdisc-lock", 1)?;
            let costs = Costs {
                line_read_ns,
                line_update_ns,
                lock_handover_ns: locked.max(0.0),
                qdisc_handover_ns: queued.max(0.0),
                ..others
            };
            Ok((threads, costs))
        };
        let curve = report.curve.iter().map(point).collect::<Result<Vec<_>, String>>()?;
        if curve.is_empty() {
            return Err(format!("{hint}, with at least two cores: it has no curve"));
        }
        if !curve.is_sorted_by(|(one, _), (next, _)| one < next) {
            return Err(format!("{hint}: its curve is not in the order of threads"));
        }
        Ok(Self { curve })
    }

    /// The costs of `cores` cores.
    pub(super) fn costs(&self, cores: usize) -> Costs {
        let above = self.curve.partition_point(|(threads, _)| *threads < cores);
        // There is at least one, so the one below is there where none is above.
        let (from, low) = self.curve[above.saturating_sub(1)];
        match self.curve.get(above) {
            Some((to, high)) if from < *to => {
                let part = cores.saturating_sub(from) as f64 / (to - from) as f64;
                low.with(*high, |low, high| low + (high - low) * part)
            }
            _ => low,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::costs::measured;
    use super::*;

    fn report(mpps: f64) -> String {
        format!(
            r#"{{ "machine": {{ "cores": 4 }}, "notes": [],
            "curve": [ {{ "threads": 2, "line_read_ns": 100.0, "line_update_ns": 20.0 }},
                       {{ "threads": 4, "line_read_ns": 200.0, "line_update_ns": 20.0 }} ],
            "rows": [ {{ "strategy": "qdisc-lock", "load": "unbound", "threads": 1, "mpps": 20.0 }},
                      {{ "strategy": "qdisc-lock", "load": "unbound", "threads": 2, "mpps": 5.0 }},
                      {{ "strategy": "qdisc-lock", "load": "unbound", "threads": 4, "mpps": {mpps} }},
                      {{ "strategy": "lock", "load": "unbound", "threads": 2, "mpps": 10.0 }},
                      {{ "strategy": "lock", "load": "unbound", "threads": 4, "mpps": 8.0 }} ] }}"#
        )
    }

    #[test]
    fn a_contended_section_beyond_its_own_work_is_the_hand_over() {
        let machine = Machine::read(&report(4.0), measured()).unwrap();
        let two = machine.costs(2);
        // 100 ns a section less 20 of its update; 200 ns a packet less 50 of it alone.
        assert_eq!((two.lock_handover_ns, two.qdisc_handover_ns), (80.0, 150.0));
        assert_eq!((two.line_read_ns, two.line_update_ns), (100.0, 20.0));
    }

    #[test]
    fn costs_are_interpolated_and_the_last_ones_stand() {
        let machine = Machine::read(&report(4.0), measured()).unwrap();
        assert_eq!(machine.costs(1), machine.costs(2));
        assert_eq!(machine.costs(3).line_read_ns, 150.0);
        assert_eq!(machine.costs(3).qdisc_handover_ns, 175.0);
        assert_eq!(machine.costs(40), machine.costs(4));
    }

    #[test]
    fn what_is_no_machine_is_refused_with_what_to_write() {
        for (name, why) in [
            ("nobody", "write xeon-2, xeon-16, or the name of a file that ends in .json"),
            ("nothing-here.json", "nothing-here.json: No such file"),
        ] {
            let refused = Machine::named(name, measured()).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        for (text, why) in [
            ("{}".to_owned(), "narrows bench coordination --json"),
            (report(0.0), "no row of qdisc-lock, unbound, with 4 threads"),
            (r#"{ "rows": [], "curve": [] }"#.to_owned(), "at least two cores"),
            (report(4.0).replace(r#""threads": 4, "line"#, r#""threads": 2, "line"#), "order"),
        ] {
            let refused = Machine::read(&text, measured()).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn every_machine_in_the_repository_can_be_named() {
        for (name, _) in MACHINES {
            let machine = Machine::named(name, measured()).unwrap();
            for (threads, costs) in &machine.curve {
                assert!(
                    *threads >= 2 && costs.line_read_ns > 0.0 && costs.line_update_ns > 0.0,
                    "{name}"
                );
                assert!(costs.qdisc_handover_ns > 0.0, "{name}, {threads} threads");
            }
        }
    }
}
