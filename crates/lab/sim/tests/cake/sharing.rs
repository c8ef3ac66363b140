//! Flows and hosts, on one queue and over several.

use crate::harness::{row, rows};
use narrows_sim::measure::{GroupMeasure, Measure};

/// Ratios to their fair shares.
const FAIR: std::ops::RangeInclusive<f64> = 0.95..=1.05;

#[test]
fn a_flood_takes_only_its_own_share() {
    for row in rows("cake-flood", "cake", &["run.warmup=2s", "run.length=3s"]) {
        // Nine share what the pings leave.
        let share = (1.0 - row.part("ping")) / 9.0;
        row.within("the flood's share", row.part("flood") / share, 0.0..=1.05);
        row.within("the TCP flows' share", row.part("tcp") / (8.0 * share), FAIR);
        for flow in row.flows("tcp") {
            row.within("a TCP flow's share", flow, FAIR);
        }
        row.within("pings lost", row.of("ping", GroupMeasure::Drops), 0.0..=0.0);
        row.within("the slowest ping, us", row.of("ping", GroupMeasure::MaxUs), 0.0..=5_000.0);
    }
    // A queue's share, of which TCP there gets next to nothing.
    let without = &rows("cake-flood", "tbf", &["run.length=1s", "port.isolation=flows"])[0];
    without.within("the flood's part without CAKE", without.part("flood"), 0.2..=1.0);
    without.within("pings lost without CAKE", without.of("ping", GroupMeasure::Drops), 1.0..=1e6);
}

#[test]
fn equal_tcp_flows_get_equal_rates_on_unequal_queues() {
    let fair = row("cake-flows", "fair", &[]);
    for flow in fair.flows("tcp") {
        fair.within("a flow's share", flow, FAIR);
    }
    fair.within("Jain's index", fair.get(Measure::JainFlows), 0.98..=1.0);
    fair.within("utilisation", fair.get(Measure::Utilization), 0.97..=1.001);
    let equal = row("cake-flows", "equal", &["run.length=1s"]);
    equal.within("Jain's index of equal", equal.get(Measure::JainFlows), 0.0..=0.8);
}

/// Of the limit: half, give or take 3 %.
const HALF: std::ops::RangeInclusive<f64> = 0.485..=0.515;

#[test]
fn a_host_with_32_flows_on_four_queues_gets_as_much_as_one_with_one_flow() {
    let short = ["run.warmup=2s", "run.length=2s"];
    let isolation = "port.isolation=dual-srchost,dual-dsthost,triple-isolate";
    for name in ["cake-hosts", "cake-hosts-tcp"] {
        for row in rows(name, "cake", &[&short[..], &[isolation]].concat()) {
            row.within("the host with one flow", row.part("one"), HALF);
            row.within("the host with 32", row.part("many"), HALF);
            row.within("utilisation", row.get(Measure::Utilization), 0.97..=1.001);
        }
    }
}

#[test]
fn without_host_isolation_a_flow_among_33_gets_a_33rd() {
    let row = row("cake-hosts", "cake", &["run.length=1s", "port.isolation=flows"]);
    row.within("the share of one", row.part("one") * 33.0, FAIR);
    for flow in row.flows("many") {
        row.within("the share of one of 32", flow, FAIR);
    }
}
