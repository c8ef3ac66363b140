//! Four queues against one: CAKE on every queue must behave as a single CAKE.

use crate::harness::{Row, rows};
use narrows_sim::measure::{GroupMeasure, Measure};

/// The same point on one queue and on four, at 20 and at 50 Mbit/s.
fn both(name: &str, overrides: &[&str]) -> impl Iterator<Item = (Row, Row)> {
    rows(name, "one queue", overrides).into_iter().zip(rows(name, "fair", overrides))
}

/// All of the limit leaves.
fn full(row: &Row) {
    row.within("utilisation", row.get(Measure::Utilization), 0.998..=1.001);
}

#[test]
fn the_backlog_of_four_queues_is_as_small_as_of_one() {
    for (one, four) in both("cake-standing", &["run.length=10s"]) {
        full(&four);
        // Departures of four queues are delayed so that several leave at once, each for itself.
        let most = 1.02 * one.get(Measure::P50Us) + 125.0;
        four.within("median, us", four.get(Measure::P50Us), 0.0..=most);
        // The longest wait is that of a flow that has just missed its turn, one in eight packets.
        let round = 8.0 * 1514.0 * 8.0 / four.get(Measure::MbitPerSec);
        let longest = one.get(Measure::P99Us) + 1.2 * round;
        four.within("99th percentile, us", four.get(Measure::P99Us), 0.0..=longest);
    }
}

#[test]
fn a_host_with_one_tcp_flow_has_as_much_on_four_queues_as_on_one() {
    for (one, four) in both("cake-hosts-far", &[]) {
        full(&four);
        let least = one.part("one") - 0.03;
        four.within("the host with one flow", four.part("one"), least.max(0.46)..=0.515);
    }
    for equal in rows("cake-hosts-far", "equal", &[]) {
        equal.within("the same where queues are equal", equal.part("one"), 0.0..=0.25);
    }
}

#[test]
fn a_light_flow_waits_on_no_queue_longer_than_on_one() {
    for (name, light) in [("cake-light", "light"), ("cake-call", "call")] {
        for (one, four) in both(name, &[]) {
            full(&four);
            let longest = one.of(light, GroupMeasure::P99Us);
            four.within("99th percentile, us", four.of(light, GroupMeasure::P99Us), 0.0..=longest);
            four.within("lost", four.of(light, GroupMeasure::Drops), 0.0..=0.0);
        }
    }
}

#[test]
fn a_light_flow_waits_no_longer_where_there_are_tins() {
    let strategies = "strategies=[\
        { name = \"one queue\", words = \"cake bandwidth {rate}\", queues = 1 }, \
        { name = \"fair\", words = \"cake bandwidth {rate} coordination fair\" }]";
    let light = ["traffic.0.load=88%", "traffic.1.load=22%", "traffic.1.flows=1"];
    for (one, four) in both("cake-light", &[&[strategies], &light[..]].concat()) {
        full(&four);
        let longest = one.of("light", GroupMeasure::P99Us);
        let range = 0.0..=longest;
        four.within("99th percentile, us", four.of("light", GroupMeasure::P99Us), range);
    }
}

/// In bursts: the gap between two packets is sometimes half of the average.
#[test]
fn a_light_flow_of_a_host_with_bulk_waits_on_its_own_queue_no_longer_than_on_the_same() {
    let uneven = ["traffic.0.load=88%", "traffic.1.load=22%", "traffic.1.flows=1"];
    let of_group = |group: usize| {
        [format!("traffic.{group}.kind=uneven"), format!("traffic.{group}.common_hosts=true")]
    };
    let of_groups: Vec<String> = [0, 1].into_iter().flat_map(of_group).collect();
    let load: Vec<&str> = uneven.into_iter().chain(of_groups.iter().map(String::as_str)).collect();
    let on = |strategy: &str, more: &[&str]| {
        let words = "cake bandwidth {rate} besteffort triple-isolate";
        let queues = if strategy == "one" { ", queues = 1" } else { "" };
        let row = format!("strategies=[{{ name = \"{strategy}\", words = \"{words}\"{queues} }}]");
        rows("cake-light", strategy, &[&load[..], &[&row], more].concat())
    };
    for (one, four) in on("one", &[]).into_iter().zip(on("four", &["traffic.1.spread=[0,1,0,0]"])) {
        full(&four);
        let longest = one.of("light", GroupMeasure::P99Us);
        let range = 0.0..=longest;
        four.within("99th percentile, us", four.of("light", GroupMeasure::P99Us), range);
    }
}
