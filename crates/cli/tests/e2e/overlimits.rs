//! `overlimits` equals that of Linux's own shaper under the same load.

use crate::setup::{flood, run, turn_to_measure};
use narrows_testbed::bed::{self, PORT_B};
use narrows_testbed::bridge::Bridge;
use narrows_testbed::{Testbed, frames, steering};
use serde_json::Value;
use std::thread::sleep;
use std::time::Duration;

/// The overlimits per sent packet, from `tc -s -j qdisc show`.
fn for_each_sent(shown: &str) -> f64 {
    let qdiscs: Value = serde_json::from_str(shown).unwrap();
    let count = |key: &str| qdiscs[0][key].as_u64().unwrap() as f64;
    assert!(count("packets") > 100.0, "{shown}");
    count("overlimits") / count("packets")
}

/// Sends `bits` a second for a while, from `ports`.
fn load(bed: &Testbed, ports: &[u16], bits: f64) {
    let load = flood(bed, ports, 1000, bits);
    sleep(Duration::from_secs(1));
    load.stop().unwrap();
}

#[test]
fn overlimits_are_counted_as_linux_counts_them() {
    let Some(_turn) = turn_to_measure() else { return };
    let shown = format!("-s -j qdisc show dev {PORT_B}");
    for (rate, bits) in [("2mbit", 3e6), ("20mbit", 21e6), ("50mbit", 150e6)] {
        let tbf = format!("tbf rate {rate} burst 20k latency 50ms");
        let linux = {
            let bed = Testbed::up(1).unwrap();
            let bridge = Bridge::over(&bed).unwrap();
            bridge.shape(PORT_B, &tbf).unwrap();
            load(&bed, &[frames::port(0)], bits);
            for_each_sent(&bed::tc(bed.shaper(), &shown).unwrap())
        };
        let bed = Testbed::up(1).unwrap();
        let instance = run(&bed, &[]);
        instance.tc(&format!("qdisc replace dev {PORT_B} root {tbf}")).unwrap();
        load(&bed, &[frames::port(0)], bits);
        let ours = for_each_sent(&instance.tc(&shown).unwrap());
        println!("{rate}: {ours:.2} overlimits for each packet sent, by Linux {linux:.2}");
        assert!((linux / 2.0..linux * 2.0).contains(&ours), "{rate}: {ours}, Linux {linux}");
    }
}

#[test]
fn a_limit_of_many_queues_counts_as_many_overlimits_as_that_of_one() {
    let Some(_turn) = turn_to_measure() else { return };
    for qdisc in ["cake bandwidth 20mbit", "tbf rate 20mbit burst 20k latency 50ms"] {
        let bed = Testbed::up(4).unwrap();
        let flows = steering::flows(&bed, 4).unwrap().concat();
        let instance = run(&bed, &[]);
        instance.tc(&format!("qdisc replace dev {PORT_B} root {qdisc}")).unwrap();
        load(&bed, &flows, 30e6);
        let shown = instance.tc(&format!("-s -j qdisc show dev {PORT_B}")).unwrap();
        let qdiscs: Value = serde_json::from_str(&shown).unwrap();
        let count = |key: &str| qdiscs[0][key].as_u64().unwrap() as f64;
        // Each arriving and each departing packet finds others waiting: as in Linux's cake_mq, to
        // one part in a thousand.
        let expected = 2.0 * count("packets") + count("drops") + count("qlen");
        let share = count("overlimits") / expected;
        println!("{qdisc}: {share:.3} overlimits for each packet that came or left");
        assert!((0.5..=1.1).contains(&share), "{shown}");
    }
}
