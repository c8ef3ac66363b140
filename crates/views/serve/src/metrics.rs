//! Metrics for Prometheus: text format 0.0.4.
//!
//! Root qdiscs have the names of node_exporter's `qdisc` collector, so dashboards for those work.
//! Other metrics begin with `narrows_`. Base units, `_total` on counters only. The number of
//! classes and qdiscs with metrics is limited; the omitted ones are counted.

mod fleet;
mod instance;
mod port;
mod services;
mod text;
mod tree;
mod watched;

use narrows_snapshot::Snapshot;
use std::sync::Arc;
use std::time::Duration;
use text::Exposition;
pub(crate) use watched::watched;

/// The input of the metrics.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The instance, if it answers.
    pub snapshot: Option<Arc<Snapshot>>,
    /// The age of the snapshot.
    pub age: Duration,
    /// Events seen since the exporter started.
    pub events: u64,
}

/// The metrics of `sample`, with at most `classes_max` classes and qdiscs of each port, and as many
/// servers and shared limits.
pub fn exposition(sample: &Sample, classes_max: usize) -> String {
    let mut text = Exposition::default();
    text.gauge("narrows_up", "Whether the instance answers.")
        .add(&[], u64::from(sample.snapshot.is_some()));
    if let Some(now) = &sample.snapshot {
        instance::write(&mut text, now, sample);
        port::write(&mut text, now);
        services::write(&mut text, now, classes_max);
        fleet::write(&mut text, now, classes_max);
        tree::write(&mut text, now, classes_max);
    }
    text.finish()
}
