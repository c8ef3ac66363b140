//! Many TCP flows over many queues.

use crate::harness::row;
use narrows_sim::measure::{GroupMeasure, Measure};

/// The paper's, in microseconds.
const P99_US: f64 = 400.0;

#[test]
fn a_ping_beside_1024_tcp_flows_on_40_queues_is_as_fast_as_in_the_paper() {
    for strategy in ["equal", "fair"] {
        let short = ["run.warmup=100ms", "run.length=50ms"];
        let row = row("cake-mq-tcp", strategy, &short);
        row.within("p99, us", row.get(Measure::P99Us), 0.0..=P99_US);
        row.within("pings lost", row.of("ping", GroupMeasure::Drops), 0.0..=0.0);
        row.within("utilisation", row.get(Measure::Utilization), 0.95..=1.005);
    }
}
