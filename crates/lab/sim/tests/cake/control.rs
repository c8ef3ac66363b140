//! CoDel and BLUE in a closed loop.

use crate::harness::{row, rows};
use narrows_sim::measure::{GroupMeasure, Measure};

const INTERVAL_MS: f64 = 100.0;

/// How many drops RFC 8289's law has made `ms` after the first one: the next comes interval /
/// sqrt(count) after the last. COBALT counts from when the target was exceeded, where the RFC has
/// no drop yet: the first one is an interval later, as there, and the second comes an interval /
/// sqrt(2) after it instead of a whole one.
fn law(ms: f64) -> f64 {
    let (mut count, mut at) = (1.0_f64, 0.0);
    loop {
        at += INTERVAL_MS / (count + 1.0).sqrt();
        if at > ms {
            return count;
        }
        count += 1.0;
    }
}

#[test]
fn drops_of_an_unresponsive_flow_follow_the_control_law() {
    let row = row("cake-law", "cake", &[]);
    let drops = row.series("drops, packets");
    let bin = drops[1].0 - drops[0].0;
    let first = drops.iter().find(|(_, dropped)| *dropped > 0.0).map(|(at, _)| *at);
    let first = first.expect("it is dropped from");
    // At 150 % the delay is 5 ms after some 15 ms, then an interval has to pass.
    row.within("the first drop, ms", first, 105.0..=135.0);
    let mut dropped = 0.0;
    for (at, more) in drops {
        dropped += more;
        if *at >= first {
            let (early, late) = (law(at - first - bin), law(at - first + bin));
            row.within(&format!("drops by {at} ms"), dropped, early - 1.0..=late + 1.0);
        }
    }
    assert!(dropped > 50.0, "{dropped}");
}

#[test]
fn one_tcp_flow_fills_the_link_and_stands_near_the_target() {
    let short = ["run.length=20s"];
    // With a tenth of the round trip standing when it is signalled to, Reno has 55 % of the path's
    // product after it has halved: 82 % on average on the way back up. Cubic reduces to 70 %.
    let utilization = [0.81..=0.85, 0.9..=1.001];
    for (row, utilization) in rows("cake-codel", "cake", &short).into_iter().zip(utilization) {
        row.within("utilisation", row.get(Measure::Utilization), utilization);
        row.within("99th percentile, us", row.get(Measure::P99Us), 4_000.0..=6_500.0);
        row.within("drops", row.of("download", GroupMeasure::Drops), 1.0..=100.0);
    }
    for row in rows("cake-codel", "tbf", &short) {
        row.within("median without CAKE, us", row.get(Measure::P50Us), 50_000.0..=1e6);
    }
}

#[test]
fn a_tcp_stack_of_bytes_is_controlled_as_well() {
    let one =
        ["traffic.download.control=cubic", "traffic.download.stack=smoltcp", "run.length=10s"];
    let row = row("cake-codel", "cake", &one);
    row.within("utilisation", row.get(Measure::Utilization), 0.8..=1.001);
    row.within("median, us", row.get(Measure::P50Us), 0.0..=10_000.0);
}

#[test]
fn ecn_flows_lose_nothing_and_others_are_not_marked() {
    let row = row("cake-ecn", "cake", &["run.length=2s"]);
    row.within("drops", row.of("capable", GroupMeasure::Drops), 0.0..=0.0);
    row.within("marks", row.of("capable", GroupMeasure::Marks), 10.0..=1e6);
    row.within("drops of the others", row.of("deaf", GroupMeasure::Drops), 10.0..=1e6);
    row.within("marks of the others", row.of("deaf", GroupMeasure::Marks), 0.0..=0.0);
    row.within("what they get", row.part("capable"), 0.475..=0.525);
}
