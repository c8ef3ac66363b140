//! Strict bands and bands that take turns, over four queues, with real packets.

use crate::htb::{assert_rates, ports};
use crate::setup::{assert_balanced, flood, run, turn_to_measure};
use narrows_testbed::Testbed;
use narrows_testbed::accounting::Books;
use narrows_testbed::narrows::Instance;
use std::thread::sleep;
use std::time::Duration;

/// The time in which the backlog from before a change leaves.
const SETTLE: Duration = Duration::from_millis(500);

fn tc(instance: &Instance, lines: &[&str]) {
    lines.iter().for_each(|line| drop(instance.tc(line).unwrap()));
}

/// Filters UDP from the ports of `group` to `class`; the qdisc decides about everything else.
fn assign(instance: &Instance, parent: &str, group: u16, class: &str) {
    let ports = ports(group);
    let (first, last) = (ports[0], ports[ports.len() - 1]);
    let pref = group + 1;
    let line = format!(
        "filter add dev port-b parent {parent} protocol ip pref {pref} flower ip_proto udp \
         src_port {first}-{last} classid {class}"
    );
    instance.tc(&line).unwrap();
}

#[test]
fn a_good_band_on_few_queues_goes_before_a_worse_one_on_all() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(4).unwrap();
    let instance = run(&bed, &[]);
    tc(
        &instance,
        &[
            "qdisc add dev port-b root handle 1: tbf rate 40mbit burst 60k latency 50ms",
            "qdisc add dev port-b parent 1: handle 2: prio bands 2 priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
        ],
    );
    assign(&instance, "2:", 0, "2:1");
    let mut books = Books::open(&bed).unwrap();
    let low = flood(&bed, &ports(1), 1000, 45e6);
    // They need more than the fair share of the queues that they land on.
    let high = flood(&bed, &ports(0)[..2], 1000, 30e6);
    sleep(SETTLE);
    assert_rates(&instance, &[("2:1", 30e6), ("2:2", 10e6)]);
    high.stop().unwrap();
    sleep(SETTLE);
    assert_rates(&instance, &[("2:2", 40e6)]);
    // Fewer bands, under load: packets queued in the removed band are dropped, and counted.
    tc(&instance, &["qdisc replace dev port-b parent 1: handle 3: prio bands 3"]);
    sleep(SETTLE);
    assert_rates(&instance, &[("3:2", 40e6)]);
    low.stop().unwrap();
    assert_balanced(&mut books, &instance);
}

#[test]
fn turns_are_in_proportion_to_quanta_over_all_queues_and_follow_a_change() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(4).unwrap();
    let instance = run(&bed, &[]);
    tc(
        &instance,
        &[
            "qdisc add dev port-b root handle 1: tbf rate 40mbit burst 60k latency 50ms",
            "qdisc add dev port-b parent 1: handle 2: drr",
            "class add dev port-b parent 2: classid 2:1 drr quantum 6000",
            "class add dev port-b parent 2: classid 2:2 drr quantum 2000",
        ],
    );
    assign(&instance, "2:", 0, "2:1");
    assign(&instance, "2:", 1, "2:2");
    let mut books = Books::open(&bed).unwrap();
    // One of them on at most two queues.
    let loads = [flood(&bed, &ports(0), 1000, 45e6), flood(&bed, &ports(1)[..2], 1000, 45e6)];
    sleep(SETTLE);
    assert_rates(&instance, &[("2:1", 30e6), ("2:2", 10e6)]);
    tc(&instance, &["class change dev port-b classid 2:2 drr quantum 6000"]);
    sleep(SETTLE);
    assert_rates(&instance, &[("2:1", 20e6), ("2:2", 20e6)]);
    for load in loads {
        load.stop().unwrap();
    }
    assert_balanced(&mut books, &instance);
}

#[test]
fn bands_below_a_class_have_filters_of_their_own() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(4).unwrap();
    let instance = run(&bed, &[]);
    tc(
        &instance,
        &[
            "qdisc add dev port-b root handle 1: htb default 20",
            "class add dev port-b parent 1: classid 1:1 htb rate 40mbit burst 60k cburst 60k",
            "class add dev port-b parent 1:1 classid 1:10 htb rate 30mbit burst 60k cburst 60k",
            "class add dev port-b parent 1:1 classid 1:20 htb rate 10mbit burst 60k cburst 60k",
            "qdisc add dev port-b parent 1:10 handle 10: prio bands 2 priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
            "qdisc add dev port-b parent 10:2 fq",
        ],
    );
    assign(&instance, "1:", 0, "1:10");
    assign(&instance, "1:", 1, "1:10");
    assign(&instance, "10:", 0, "10:1");
    let mut books = Books::open(&bed).unwrap();
    // The queues of a class share its rate equally. On any queues, the flows of the good band are
    // within their queues' share.
    let loads = [(0, 6e6), (1, 45e6), (2, 45e6)];
    let loads = loads.map(|(group, rate)| flood(&bed, &ports(group), 1000, rate));
    sleep(SETTLE);
    assert_rates(&instance, &[("1:10", 30e6), ("1:20", 10e6), ("10:1", 6e6), ("10:2", 24e6)]);
    for load in loads {
        load.stop().unwrap();
    }
    // Its queues would take three seconds to drain.
    tc(
        &instance,
        &["class change dev port-b classid 1:20 htb rate 10mbit ceil 40mbit burst 60k cburst 60k"],
    );
    assert_balanced(&mut books, &instance);
}

#[test]
fn each_queue_of_an_mq_has_a_tree_of_its_own() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(2).unwrap();
    let instance = run(&bed, &[]);
    tc(&instance, &["qdisc add dev port-b root handle 1: mq"]);
    for queue in [1, 2] {
        let lines = [
            format!("qdisc add dev port-b parent 1:{queue} handle {queue}0: htb default 1"),
            format!(
                "class add dev port-b parent {queue}0: classid {queue}0:1 htb rate {queue}0mbit \
                 burst 40k cburst 40k"
            ),
        ];
        lines.iter().for_each(|line| drop(instance.tc(line).unwrap()));
    }
    let mut books = Books::open(&bed).unwrap();
    let load = flood(&bed, &ports(0), 1000, 80e6);
    sleep(SETTLE);
    assert_rates(&instance, &[("10:1", 10e6), ("20:1", 20e6)]);
    load.stop().unwrap();
    assert_balanced(&mut books, &instance);
}
