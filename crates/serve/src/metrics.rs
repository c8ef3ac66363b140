//! Metrics for Prometheus: text format 0.0.4.
//!
//! Root qdiscs have the names that node_exporter's `qdisc` collector gives them, so dashboards made
//! for those work; what that collector does not know is named `narrows_`. Base units, `_total` on
//! counters only. Classes and qdiscs with metrics are limited: those that a limit leaves out are
//! counted.

mod instance;
mod port;
mod text;
mod tree;

use narrows_snapshot::Snapshot;
use std::sync::Arc;
use std::time::Duration;
use text::Exposition;

/// What metrics are made of.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The instance, where it answers.
    pub snapshot: Option<Arc<Snapshot>>,
    /// How old the snapshot is.
    pub age: Duration,
    /// Events seen since the exporter started.
    pub events: u64,
}

/// The metrics of `sample`, with at most `classes_max` classes and as many qdiscs.
pub fn exposition(sample: &Sample, classes_max: usize) -> String {
    let mut text = Exposition::default();
    text.gauge("narrows_up", "Whether the instance answers.")
        .add(&[], u64::from(sample.snapshot.is_some()));
    if let Some(now) = &sample.snapshot {
        instance::write(&mut text, now, sample);
        port::write(&mut text, now);
        tree::write(&mut text, now, classes_max);
    }
    text.finish()
}
