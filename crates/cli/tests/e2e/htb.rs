//! One tree of classes over four queues, with real packets.

use crate::setup::{assert_balanced, flood, run, turn, wait_for};
use narrows_testbed::accounting::Books;
use narrows_testbed::narrows::Instance;
use narrows_testbed::{Testbed, frames};
use serde_json::Value;
use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How far a rate may be off here, as a share: see `limits`.
const TOLERANCE: f64 = 0.04;

/// Flows that land on all queues.
const FLOWS: u16 = 16;

/// Bursts that outlast the time for which a worker may have to wait for its core.
fn tree(instance: &Instance) {
    for line in [
        "qdisc add dev port-b root handle 1: htb default 30",
        "class add dev port-b parent 1: classid 1:1 htb rate 40mbit burst 60k cburst 60k",
        "class add dev port-b parent 1:1 classid 1:10 htb rate 10mbit ceil 40mbit burst 40k cburst 60k",
        "class add dev port-b parent 1:1 classid 1:20 htb rate 10mbit ceil 40mbit burst 40k cburst 60k prio 1",
        "class add dev port-b parent 1:1 classid 1:30 htb rate 4mbit ceil 8mbit burst 20k cburst 20k prio 2",
    ] {
        instance.tc(line).unwrap();
    }
    for (pref, class) in [(1, 10), (2, 20)] {
        let ports = ports(pref - 1);
        let (first, last) = (ports[0], ports[ports.len() - 1]);
        instance
            .tc(&format!(
                "filter add dev port-b parent 1: protocol ip pref {pref} flower ip_proto udp \
                 src_port {first}-{last} classid 1:{class}"
            ))
            .unwrap();
    }
}

/// The source ports of the flows of a class.
fn ports(group: u16) -> Vec<u16> {
    (0..FLOWS).map(|flow| frames::port(group * FLOWS + flow)).collect()
}

/// What each class has sent, in bytes.
fn sent(instance: &Instance) -> BTreeMap<String, u64> {
    let shown = instance.tc("-s -j class show dev port-b").unwrap();
    let classes: Value = serde_json::from_str(&shown).unwrap();
    let sent = |class: &Value| {
        let bytes = class["stats"]["bytes"].as_u64().unwrap();
        (class["handle"].as_str().unwrap().to_owned(), bytes)
    };
    classes.as_array().unwrap().iter().map(sent).collect()
}

/// What each class sends, in bits a second, over `span`.
fn rates(instance: &Instance, span: Duration) -> BTreeMap<String, f64> {
    let (start, before) = (Instant::now(), sent(instance));
    sleep(span);
    let after = sent(instance);
    let seconds = start.elapsed().as_secs_f64();
    let rate = |(class, bytes): (String, u64)| {
        let bits = (bytes - before[&class]) as f64 * 8.0;
        (class, bits / seconds)
    };
    after.into_iter().map(rate).collect()
}

#[track_caller]
fn assert_near(rates: &BTreeMap<String, f64>, class: &str, limit: f64) {
    let off = rates[class] / limit - 1.0;
    assert!(off.abs() <= TOLERANCE, "{class}: {rates:?} instead of {limit}");
}

#[test]
fn classes_share_one_rate_over_all_queues_as_htb_says() {
    let Some(_turn) = turn() else { return };
    let bed = Testbed::up(4).unwrap();
    let instance = run(&bed, &[]);
    tree(&instance);
    let mut books = Books::open(&bed).unwrap();
    let loads: Vec<_> = (0..3).map(|group| flood(&bed, &ports(group), 1000, 45e6)).collect();
    sleep(Duration::from_millis(500));
    let now = rates(&instance, Duration::from_secs(2));
    // What is assured, and all that is left for the best priority.
    assert_near(&now, "1:1", 40e6);
    assert_near(&now, "1:10", 26e6);
    assert_near(&now, "1:20", 10e6);
    assert_near(&now, "1:30", 4e6);
    // Under load, and without a packet that is lost by it.
    instance
        .tc("class change dev port-b classid 1:10 htb rate 10mbit ceil 20mbit burst 40k cburst 60k")
        .unwrap();
    sleep(Duration::from_millis(300));
    let now = rates(&instance, Duration::from_secs(2));
    assert_near(&now, "1:10", 20e6);
    assert_near(&now, "1:20", 16e6);
    instance.tc("filter del dev port-b pref 1").unwrap();
    instance.tc("class del dev port-b classid 1:10").unwrap();
    sleep(Duration::from_millis(300));
    let now = rates(&instance, Duration::from_secs(2));
    assert_near(&now, "1:20", 36e6);
    for load in loads {
        load.stop().unwrap();
    }
    assert_balanced(&mut books, &instance);
}

#[test]
fn what_is_below_a_class_is_of_any_kind_and_can_be_replaced_under_load() {
    let Some(_turn) = turn() else { return };
    let bed = Testbed::up(4).unwrap();
    let instance = run(&bed, &[]);
    tree(&instance);
    let mut books = Books::open(&bed).unwrap();
    let load = flood(&bed, &ports(0), 1000, 45e6);
    for kind in ["cake", "fq", "flowbundler", "pfifo limit 50"] {
        instance.tc(&format!("qdisc replace dev port-b parent 1:10 {kind}")).unwrap();
        let queued = |show: &Value| show["ports"][1]["total"]["backlog_packets"].as_u64();
        wait_for(&bed, kind, |show| queued(show) > Some(4));
        assert_near(&rates(&instance, Duration::from_secs(1)), "1:10", 40e6);
    }
    instance.tc("qdisc del dev port-b root").unwrap();
    load.stop().unwrap();
    assert_balanced(&mut books, &instance);
}
