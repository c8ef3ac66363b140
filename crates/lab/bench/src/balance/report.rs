//! The results, as a table and as JSON.

use super::Shape;
use crate::qdisc::median;
use serde::Serialize;
use std::fmt;

/// Everything.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// A row for each system under each load.
    pub rows: Vec<Row>,
}

/// One system under one load.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Its name: `tx`, `narrows`, `narrows-recorded`, `lru`.
    pub system: &'static str,
    /// `known`: packets of connections that exist. `new`: each packet begins one.
    pub flows: &'static str,
    /// How many connections there are.
    pub connections: u32,
    /// How many servers there are.
    pub servers: u16,
    /// CPUs at once.
    pub cpus: usize,
    /// Thousands of packets a second on all CPUs together, by `ns_per_packet`.
    pub kpps: f64,
    /// CPU time of a packet on each CPU; the median over all repeats.
    pub ns_per_packet: f64,
    /// The time in addition to `tx`, within each repeat; the median.
    pub ns_above: f64,
}

impl Row {
    /// The row of `shape` from the `costs` of all repeats.
    pub(super) fn new(shape: Shape, costs: &[f64], above: f64) -> Self {
        let ns_per_packet = median(costs.to_vec());
        Self {
            system: shape.system.name(),
            flows: if shape.are_new { "new" } else { "known" },
            connections: shape.connections,
            servers: shape.servers,
            cpus: shape.cpus,
            kpps: shape.cpus as f64 * 1e6 / ns_per_packet,
            ns_per_packet,
            ns_above: above,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<16} {:<5} {:>11} {:>7} {:>4} {:>8} {:>9} {:>9}",
            "system", "flows", "connections", "servers", "cpus", "kpps", "ns/packet", "above tx"
        )?;
        for row in &self.rows {
            let has_servers = row.system.starts_with("narrows");
            writeln!(
                f,
                "{:<16} {:<5} {:>11} {:>7} {:>4} {:>8.0} {:>9.1} {:>9.1}",
                row.system,
                row.flows,
                row.connections,
                if has_servers { row.servers.to_string() } else { String::new() },
                row.cpus,
                row.kpps,
                row.ns_per_packet,
                row.ns_above
            )?;
        }
        Ok(())
    }
}
