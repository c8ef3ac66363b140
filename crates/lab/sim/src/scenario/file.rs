//! The format of a scenario's file.
//!
//! The types here define the keys and their types; `cases.rs` reads their values, once sweeps and
//! templates have been resolved.

use super::costs;
use super::error::Wrong;
use super::overridden::at;
use super::quantity::Quantity;
use crate::measure::{GroupMeasure, Measure};
use crate::setup::{Costs, LockScope, Sends};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::{Table, Value};

/// A file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) title: String,
    pub(super) source: Option<String>,
    /// Each a word (or several) for `{strategy}`, or a table: see [`StrategyRow`].
    pub(super) strategies: Vec<Value>,
    pub(super) measures: Vec<Measure>,
    #[serde(default)]
    pub(super) group_measures: Vec<GroupMeasure>,
    pub(super) port: PortTable,
    #[serde(default)]
    pub(super) cores: CoresTable,
    pub(super) traffic: Vec<TrafficTable>,
    pub(super) next_hop: Option<NextHopTable>,
    pub(super) run: RunTable,
    #[serde(default)]
    pub(super) fault: Vec<FaultTable>,
    #[serde(default)]
    pub(super) change: Vec<ChangeTable>,
    /// A table, or several: each a product of its own.
    pub(super) sweep: Option<Value>,
    #[serde(default)]
    pub(super) paper: Vec<PaperTable>,
}

/// A strategy that needs more than words behind `coordination`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct StrategyRow {
    /// Its name in results.
    pub(super) name: String,
    /// The value of `{strategy}`.
    pub(super) words: String,
    /// Keys of `[port]` that are different for it.
    #[serde(flatten)]
    pub(super) port: Table,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct PortTable {
    pub(super) queues: Quantity,
    pub(super) rate: Quantity,
    pub(super) qdisc: String,
    #[serde(default)]
    pub(super) weights: Vec<f64>,
    #[serde(default)]
    pub(super) lock: LockScope,
    #[serde(default)]
    pub(super) sends: Sends,
    /// Other names of templates: `{burst}`, `{sync}`.
    #[serde(flatten)]
    pub(super) words: BTreeMap<String, Quantity>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CoresTable {
    pub(super) jitter: Option<Quantity>,
    pub(super) clock_offset: Option<Quantity>,
    pub(super) staleness: Option<Quantity>,
    /// The machine whose lines they share: a name, or a file of `narrows bench coordination
    /// --json`.
    pub(super) machine: Option<String>,
    /// What a shared line costs, times this.
    pub(super) line_factor: Option<f64>,
    #[serde(default)]
    pub(super) costs: CostsTable,
}

impl CoresTable {
    /// The costs of `cores` cores.
    pub(super) fn costs(&self, cores: usize) -> Result<Costs, Wrong> {
        let shared = costs::on(self.machine.as_deref(), cores).map_err(at("cores.machine"))?;
        let shared = costs::times(shared, self.line_factor).map_err(at("cores.line_factor"))?;
        let costs = self.costs.over(shared);
        if costs.all().all(|cost| (0.0..=1e9).contains(&cost)) {
            return Ok(costs);
        }
        Err(Wrong::new("cores.costs", "a cost is 0 to 1e9 nanoseconds"))
    }
}

/// Differences from the measured cost model.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CostsTable {
    step_ns: Option<f64>,
    packet_ns: Option<f64>,
    drop_ns: Option<f64>,
    line_read_ns: Option<f64>,
    line_update_ns: Option<f64>,
    lock_handover_ns: Option<f64>,
    qdisc_handover_ns: Option<f64>,
}

impl CostsTable {
    pub(super) fn over(self, measured: Costs) -> Costs {
        Costs {
            step_ns: self.step_ns.unwrap_or(measured.step_ns),
            packet_ns: self.packet_ns.unwrap_or(measured.packet_ns),
            drop_ns: self.drop_ns.unwrap_or(measured.drop_ns),
            line_read_ns: self.line_read_ns.unwrap_or(measured.line_read_ns),
            line_update_ns: self.line_update_ns.unwrap_or(measured.line_update_ns),
            lock_handover_ns: self.lock_handover_ns.unwrap_or(measured.lock_handover_ns),
            qdisc_handover_ns: self.qdisc_handover_ns.unwrap_or(measured.qdisc_handover_ns),
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrafficTable {
    pub(super) name: Option<String>,
    pub(super) kind: KindWord,
    pub(super) load: Option<Quantity>,
    pub(super) on: Option<Quantity>,
    pub(super) off: Option<Quantity>,
    pub(super) stack: Option<StackWord>,
    pub(super) control: Option<ControlWord>,
    pub(super) rtt: Option<Quantity>,
    pub(super) interval: Option<Quantity>,
    pub(super) pace: Option<Quantity>,
    pub(super) queued: Option<Quantity>,
    pub(super) flows: Option<Quantity>,
    pub(super) size: Option<Quantity>,
    pub(super) sizes: Option<Vec<(Quantity, f64)>>,
    /// A word, parts by queue, or `{ dirichlet = CONCENTRATION }`.
    pub(super) spread: Option<Value>,
    pub(super) start: Option<Quantity>,
    pub(super) stop: Option<Quantity>,
    pub(super) respread: Option<Quantity>,
    pub(super) lifetime: Option<Quantity>,
    pub(super) source_hosts: Option<Quantity>,
    pub(super) destination_hosts: Option<Quantity>,
    #[serde(default)]
    pub(super) common_hosts: bool,
    pub(super) dscp: Option<Quantity>,
    pub(super) filter_rate: Option<Quantity>,
    #[serde(default)]
    pub(super) ecn: bool,
    /// A capture file, or `bursty`.
    pub(super) trace: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum KindWord {
    Constant,
    Uneven,
    Poisson,
    OnOff,
    Tcp,
    Backlogged,
    Ping,
    Trace,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum StackWord {
    Model,
    Smoltcp,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ControlWord {
    Cubic,
    Reno,
    Dctcp,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NextHopTable {
    pub(super) rate: Quantity,
    pub(super) buffer: Quantity,
    pub(super) mark_above: Option<Quantity>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunTable {
    pub(super) warmup: Option<Quantity>,
    pub(super) length: Quantity,
    pub(super) event: Option<Quantity>,
    pub(super) seed: Option<Quantity>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FaultTable {
    pub(super) queue: Quantity,
    pub(super) at: Quantity,
    pub(super) stall: Option<Quantity>,
    #[serde(default)]
    pub(super) death: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangeTable {
    pub(super) at: Quantity,
    pub(super) qdisc: String,
}

/// A paper's values at a point.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PaperTable {
    /// By path, the value that the point has there; empty for every point.
    #[serde(default)]
    pub(super) at: Table,
    pub(super) strategy: String,
    pub(super) measure: Measure,
    pub(super) value: f64,
}
