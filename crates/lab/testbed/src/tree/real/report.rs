//! The results of the benchmark, as tables and as JSON.

use super::super::SETTLING;
use super::super::provider::Node;
use super::super::share::Share;
use super::COMPARED;
use super::cell::{Sample, Spent, System};
use crate::machine::Machine;
use crate::spread::Spread;
use crate::table;
use anyhow::{Context, Result};
use serde::Serialize;
use std::fmt;

/// Differences below this are within the fluid model's own error.
const SAME: f64 = 1e4;

/// One class in one phase under one system. Spreads are over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The system's name.
    pub system: &'static str,
    /// The phase's.
    pub phase: &'static str,
    /// The class's.
    pub class: String,
    /// How many classes are above it.
    pub depth: usize,
    /// The rate by HTB's rules for the offered load.
    pub due_bps: Spread,
    /// The delivered rate.
    pub delivered_bps: Spread,
    /// Its error in percent of the due rate; none if nothing is due.
    pub off_percent: Option<Spread>,
}

/// How priorities were kept in one phase by one system, in percent of the link.
#[derive(Clone, Debug, Serialize)]
pub struct Priority {
    /// The system's name.
    pub system: &'static str,
    /// The phase's.
    pub phase: &'static str,
    /// The rate above their own of leaves that are due no more than that, because others have
    /// priority, and that offered more.
    pub beyond_percent: Spread,
}

/// The cost of a packet.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// The system's name.
    pub system: &'static str,
    /// Packets that it took in, in a second.
    pub packets_per_second: Spread,
    /// Time of threads for each, without what the sender alone costs.
    pub threads_ns_per_packet: Spread,
    /// Time of the machine for each, without what the sender alone costs.
    pub machine_ns_per_packet: Spread,
    /// The threads' time, relative to the kernel's.
    pub threads_to_kernel: Spread,
    /// The machine's time, relative to the kernel's.
    pub machine_to_kernel: Spread,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where it was measured.
    #[serde(flatten)]
    pub machine: Machine,
    /// Rates.
    pub rows: Vec<Row>,
    /// Priorities.
    pub priorities: Vec<Priority>,
    /// Costs.
    pub costs: Vec<Cost>,
    /// The largest deviation of a class in a phase, by system in the order of the costs: of the
    /// medians over rounds.
    pub worst_percent: Vec<f64>,
}

/// What one round found of each system.
type Round = [Sample; System::ALL.len()];

impl Report {
    pub(super) fn new(nodes: &[Node], rounds: &[Round]) -> Result<Self> {
        let (mut rows, mut priorities, mut costs) = (Vec::new(), Vec::new(), Vec::new());
        for system in System::SHAPERS {
            for (number, phase) in COMPARED.iter().enumerate() {
                let of_round = |round: &Round| round[system as usize].shares[number].clone();
                let shares: Vec<Vec<Share>> = rounds.iter().map(of_round).collect();
                for (class, node) in nodes.iter().enumerate() {
                    let of_class: Vec<Share> = shares.iter().map(|shares| shares[class]).collect();
                    rows.push(row(system, phase.name, node, &of_class).context("no rounds")?);
                }
                let beyond = shares.iter().filter_map(|shares| beyond(nodes, shares));
                priorities.extend(Spread::of(beyond).map(|beyond_percent| Priority {
                    system: system.name(),
                    phase: phase.name,
                    beyond_percent,
                }));
            }
            costs.push(cost(system, rounds).context("no packets were taken in")?);
        }
        let worst = |system: System| {
            let of_system = rows.iter().filter(|row| row.system == system.name());
            let off = of_system.filter_map(|row| Some(row.off_percent?.median.abs()));
            off.fold(0.0, f64::max)
        };
        let worst_percent = System::SHAPERS.map(worst).to_vec();
        Ok(Self { machine: Machine::here(), rows, priorities, costs, worst_percent })
    }

    fn find(&self, system: System, phase: &str, class: &str) -> Option<&Row> {
        self.rows
            .iter()
            .find(|row| row.system == system.name() && row.phase == phase && row.class == class)
    }
}

fn row(system: System, phase: &'static str, node: &Node, rounds: &[Share]) -> Option<Row> {
    Some(Row {
        system: system.name(),
        phase,
        class: node.name.clone(),
        depth: node.depth,
        due_bps: Spread::of(rounds.iter().map(|share| share.due_bps))?,
        delivered_bps: Spread::of(rounds.iter().map(|share| share.delivered_bps))?,
        off_percent: Spread::of(rounds.iter().filter_map(Share::off_percent)),
    })
}

/// See [`Priority::beyond_percent`]; `None` if there is no such leaf.
fn beyond(nodes: &[Node], shares: &[Share]) -> Option<f64> {
    let link = nodes.first()?.class.rate.bits_per_sec() as f64;
    let held_back = |(node, share): (&Node, &Share)| {
        node.leaf?;
        let own = node.class.rate.bits_per_sec() as f64;
        let is_held_back = share.asked_bps > own + SAME && share.due_bps < own + SAME;
        is_held_back.then_some((share.delivered_bps - own).max(0.0))
    };
    let beyond: Vec<f64> = nodes.iter().zip(shares).filter_map(held_back).collect();
    (!beyond.is_empty()).then(|| beyond.iter().sum::<f64>() / link * 100.0)
}

/// Nanoseconds for each packet taken in, of threads and of the machine, beyond what the sender
/// alone costs.
fn nanos(spent: &Spent, alone: &Spent) -> Option<[f64; 2]> {
    let [spent_cores, alone_cores] =
        [spent, alone].map(|one| [one.threads_cores, one.machine_cores]);
    let nanos = |place: usize| {
        let sending = alone_cores[place] / alone.offered_per_second * spent.offered_per_second;
        (spent_cores[place] - sending) * 1e9 / spent.taken_per_second
    };
    let is_taken = alone.offered_per_second > 0.0 && spent.taken_per_second > 0.0;
    is_taken.then(|| [nanos(0), nanos(1)])
}

fn cost(system: System, rounds: &[Round]) -> Option<Cost> {
    let of = |round: &Round, system: System| {
        let [alone, of_system] =
            [System::SenderAlone, system].map(|system| round[system as usize].cost);
        nanos(&of_system, &alone)
    };
    let own: Vec<[f64; 2]> = rounds.iter().filter_map(|round| of(round, system)).collect();
    let ratios: Vec<[f64; 2]> = rounds
        .iter()
        .filter_map(|round| {
            let ([a, b], [c, d]) = (of(round, system)?, of(round, System::Kernel)?);
            Some([a / c, b / d])
        })
        .collect();
    let part = |values: &[[f64; 2]], of: usize| Spread::of(values.iter().map(|value| value[of]));
    Some(Cost {
        system: system.name(),
        packets_per_second: Spread::of(
            rounds.iter().map(|round| round[system as usize].cost.taken_per_second),
        )?,
        threads_ns_per_packet: part(&own, 0)?,
        machine_ns_per_packet: part(&own, 1)?,
        threads_to_kernel: part(&ratios, 0)?,
        machine_to_kernel: part(&ratios, 1)?,
    })
}

fn mbit(bps: f64) -> String {
    format!("{:.2}", bps / 1e6)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        let systems = "due/bridge/narrows/flowvalve";
        let phases = COMPARED.iter().map(|phase| format!("{}: {systems}", phase.name));
        let header = std::iter::once("class".to_owned()).chain(phases);
        let mut table = table::of_figures(0, header.collect::<Vec<_>>());
        let (kernel, first) = (System::Kernel.name(), COMPARED[0].name);
        let of_first = |row: &&Row| row.system == kernel && row.phase == first;
        for class in self.rows.iter().filter(of_first) {
            let cell = |phase: &str| -> Option<String> {
                let rows = System::SHAPERS.map(|system| self.find(system, phase, &class.class));
                let due = mbit(rows[1]?.due_bps.median);
                let delivered = rows.iter().map(|row| Some(mbit((*row)?.delivered_bps.median)));
                let delivered = delivered.collect::<Option<Vec<_>>>()?;
                Some(format!("{due} / {}", delivered.join(" / ")))
            };
            let name = format!("{}{}", "  ".repeat(class.depth), class.class);
            let cells = COMPARED.iter().map(|phase| cell(phase.name).unwrap_or_default());
            table.add_row(std::iter::once(name).chain(cells).collect::<Vec<_>>());
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "in Mbit/s, medians over rounds; due: what HTB's rules give of what was offered, by a \
             fluid model; bridge, narrows, flowvalve: what arrived under the kernel's HTB, under \
             ours and under FlowValve's rules, without the first {} ms of a phase",
            SETTLING.as_millis()
        )?;

        let mut table = table::of_figures(
            0,
            ["phase", "system", "worst class off %", "link off %", "beyond priority %"],
        );
        for phase in COMPARED {
            for system in System::SHAPERS {
                let is_here = |row: &&Row| row.system == system.name() && row.phase == phase.name;
                let off = self.rows.iter().filter(is_here).filter_map(|row| row.off_percent);
                let worst = off.max_by(|a, b| a.median.abs().total_cmp(&b.median.abs()));
                let link = self.find(system, phase.name, "link").and_then(|row| row.off_percent);
                let beyond = self.priorities.iter().find(|priority| {
                    priority.system == system.name() && priority.phase == phase.name
                });
                let shown = |spread: Option<&Spread>| {
                    spread.map_or("-".to_owned(), |spread| spread.shown(2))
                };
                table.add_row([
                    phase.name.to_owned(),
                    system.name().to_owned(),
                    shown(worst.as_ref()),
                    shown(link.as_ref()),
                    shown(beyond.map(|priority| &priority.beyond_percent)),
                ]);
            }
        }
        writeln!(f, "\n{table}")?;
        writeln!(
            f,
            "off: delivered from due, median over the rounds (least-most); beyond priority: what \
             classes had that others come before, in per cent of the link"
        )?;

        let mut table = table::of_figures(
            0,
            ["system", "packets/s", "threads ns", "to bridge", "machine ns", "to bridge"],
        );
        for cost in &self.costs {
            table.add_row([
                cost.system.to_owned(),
                cost.packets_per_second.shown(0),
                cost.threads_ns_per_packet.shown(0),
                cost.threads_to_kernel.shown(2),
                cost.machine_ns_per_packet.shown(0),
                cost.machine_to_kernel.shown(2),
            ]);
        }
        writeln!(f, "\n{table}")?;
        writeln!(
            f,
            "for each packet taken in, sent or dropped, less what the sender alone costs; threads: \
             without what the kernel does in interrupts of idle cores; machine: all cores, on a \
             quiet machine only"
        )?;
        let [kernel, ours, valve] = self.worst_percent[..] else { return Ok(()) };
        let Some(cost) = self.costs.get(1) else { return Ok(()) };
        writeln!(
            f,
            "tree-real: worst class bridge {kernel:.2} % off, narrows {ours:.2} % off, flowvalve \
             {valve:.2} % off; a packet takes {:.2} of the bridge's time of threads, {:.2} of the \
             machine's in narrows",
            cost.threads_to_kernel.median, cost.machine_to_kernel.median
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::provider;
    use super::*;

    fn spent(cores: f64) -> Spent {
        Spent {
            offered_per_second: 10_000.0,
            taken_per_second: 10_000.0,
            threads_cores: cores / 2.0,
            machine_cores: cores,
        }
    }

    fn share(node: &Node, delivered: f64) -> Share {
        let own = node.class.rate.bits_per_sec() as f64;
        Share {
            wanted_bps: 2.0 * own,
            asked_bps: 2.0 * own,
            due_bps: own,
            delivered_bps: own * delivered,
        }
    }

    fn report() -> Report {
        let nodes = provider::nodes();
        let turn = |delivered: f64, cores: f64| Sample {
            shares: vec![nodes.iter().map(|node| share(node, delivered)).collect(); 4],
            cost: spent(cores),
        };
        let round = |ours: f64| [turn(1.0, 0.1), turn(1.1, 0.3), turn(ours, 0.2), turn(0.7, 0.4)];
        Report::new(&nodes, &[round(0.99), round(1.0), round(0.96)]).unwrap()
    }

    #[test]
    fn costs_are_without_the_senders_and_ratios_are_to_the_bridge() {
        let report = report();
        let [kernel, ours, valve] = &report.costs[..] else { panic!("{:?}", report.costs) };
        assert!((kernel.machine_ns_per_packet.median - 20_000.0).abs() < 1e-6, "{kernel:?}");
        assert!((ours.threads_ns_per_packet.median - 5_000.0).abs() < 1e-6, "{ours:?}");
        assert!((ours.machine_to_kernel.median - 0.5).abs() < 1e-9, "{ours:?}");
        assert!((valve.machine_to_kernel.median - 1.5).abs() < 1e-9, "{valve:?}");
        assert!((kernel.threads_to_kernel.median - 1.0).abs() < 1e-9, "{kernel:?}");
    }

    #[test]
    fn a_class_is_off_by_the_median_over_rounds() {
        let report = report();
        let [kernel, ours, valve] = report.worst_percent[..] else { panic!() };
        assert!((kernel - 10.0).abs() < 1e-6 && (ours - 1.0).abs() < 1e-6, "{kernel} {ours}");
        assert!((valve - 30.0).abs() < 1e-6, "{valve}");
        let text = report.to_string();
        assert_eq!(
            text.lines().last().unwrap(),
            "tree-real: worst class bridge 10.00 % off, narrows 1.00 % off, flowvalve 30.00 % off; \
             a packet takes 0.50 of the bridge's time of threads, 0.50 of the machine's in narrows"
        );
        assert!(text.contains("north-1 web") && text.contains("download"), "{text}");
    }

    #[test]
    fn excess_over_priority_counts_only_delayed_classes() {
        let nodes = provider::nodes();
        let mut shares: Vec<Share> = nodes.iter().map(|node| share(node, 1.0)).collect();
        let web = nodes.iter().position(|node| node.name == "north-1 web").unwrap();
        shares[web].delivered_bps += 8e6;
        assert!((beyond(&nodes, &shares).unwrap() - 10.0).abs() < 1e-9);
        // More is due to it: no class has priority over it.
        shares[web].due_bps += 8e6;
        assert_eq!(beyond(&nodes, &shares), Some(0.0));
        for share in &mut shares {
            share.asked_bps = share.due_bps;
        }
        assert_eq!(beyond(&nodes, &shares), None);
    }

    #[test]
    fn json_has_a_row_for_each_system_phase_and_class() {
        let json = serde_json::to_value(report()).unwrap();
        let classes = provider::nodes().len();
        assert_eq!(json["rows"].as_array().unwrap().len(), 3 * COMPARED.len() * classes);
        assert_eq!(json["costs"][0]["system"], "bridge-htb");
        assert_eq!(json["costs"][2]["system"], "narrows-flowvalve");
        assert!(json["machine"].is_string());
    }
}
