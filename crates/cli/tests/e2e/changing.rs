//! A change of the policy under load loses no packet, and a refused change changes nothing.

use crate::setup::{
    Scratch, assert_balanced, assert_refused, complaint, flood, flood_from, links, narrows, run,
    show, tc, turn_to_count, wait_for,
};
use narrows_testbed::accounting::Books;
use narrows_testbed::bed::{PORT_A, PORT_B, SERVER};
use narrows_testbed::{Testbed, frames};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Policies that do not limit the load, each reached from every other.
const POLICIES: &[&str] = &[
    "qdisc replace dev port-b root handle 1: tbf rate 200mbit burst 1m limit 8m",
    "qdisc change dev port-b root handle 1: tbf rate 300mbit burst 1m limit 8m",
    "qdisc replace dev port-b root handle 1: tbf rate 200mbit burst 1m limit 8m",
    "qdisc replace dev port-b parent 1:1 handle 2: pfifo limit 5000",
    "qdisc replace dev port-b root handle 1: tbf rate 200mbit burst 1m limit 8m coordination edt",
    "qdisc replace dev port-b root handle 3: pfifo limit 5000",
    "qdisc change dev port-b root handle 3: pfifo limit 6000",
    "qdisc replace dev port-b root handle 4: bfifo limit 8m",
    "qdisc replace dev port-b root handle 5: mq",
    "qdisc replace dev port-b parent 5:1 handle 6: tbf rate 200mbit burst 1m limit 8m",
    "qdisc replace dev port-b parent 5:2 handle 7: pfifo limit 5000",
    "qdisc del dev port-b root",
    "qdisc replace dev port-b root noqueue",
];

#[test]
fn a_change_under_load_loses_no_packet() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(4).unwrap();
    let instance = run(&bed, &[]);
    let ports: Vec<u16> = (0..64).map(frames::port).collect();
    let mut books = Books::open(&bed).unwrap();
    let forth = flood(&bed, &ports, 500, 16e6);
    let back = flood_from(bed.server(), SERVER, &ports, 500, 4e6);
    let end = Instant::now() + Duration::from_secs(5);
    let mut changes = 0;
    while Instant::now() < end || changes < 2 * POLICIES.len() {
        for words in POLICIES {
            let output = tc(&bed, words);
            assert!(output.status.success(), "{words}: {}", complaint(&output));
            changes += 1;
        }
    }
    forth.stop().unwrap();
    back.stop().unwrap();
    let (devices, [forth, back]) = assert_balanced(&mut books, &instance);
    assert!(forth.received > 1000 && back.received > 250, "{devices:#?}");
    let now = show(&bed);
    let dropped = &now["conservation"]["dropped"];
    assert_eq!((forth.dropped_by_narrows, back.dropped_by_narrows), (0, 0), "{dropped}");
}

#[test]
fn queued_packets_survive_a_change_of_their_qdisc() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(4).unwrap();
    let instance = run(&bed, &[]);
    // So slow that only the burst leaves during the test.
    instance.tc("qdisc add dev port-b root handle 1: tbf rate 8kbit burst 2k limit 4m").unwrap();
    let mut books = Books::open(&bed).unwrap();
    let ports: Vec<u16> = (0..64).map(frames::port).collect();
    let queued = |show: &Value| show["ports"][1]["total"]["backlog_packets"].as_u64().unwrap();
    let load = flood(&bed, &ports, 500, 8e6);
    wait_for(&bed, "queued", |show| queued(show) >= 500);
    load.stop().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let mut before = queued(&show(&bed));
    for words in [
        "qdisc change dev port-b root handle 1: tbf rate 8kbit burst 4k limit 2m",
        "qdisc replace dev port-b root handle 1: tbf rate 8kbit burst 2k limit 4m",
        "qdisc add dev port-b parent 1:1 handle 2: pfifo limit 1000",
        "qdisc replace dev port-b root handle 1: tbf rate 8kbit burst 2k limit 4m coordination edt",
    ] {
        instance.tc(words).unwrap();
        let now = queued(&show(&bed));
        // A new bucket is full: 4 kB are 8 frames, and twice that if a queue had not yet counted.
        assert!(now + 4 * 2 * 8 >= before, "{words}: {now} queued after {before}");
        before = now;
    }
    assert!(before >= 250, "only {before} packets are left of 500");
    instance.tc("qdisc del dev port-b root").unwrap();
    let (_, [forth, _]) = assert_balanced(&mut books, &instance);
    assert_eq!((forth.dropped_by_narrows, forth.queued), (0, 0));
}

#[test]
fn a_bad_command_changes_nothing() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let instance = run(&bed, &[]);
    instance
        .tc("qdisc add dev port-b root handle 1: tbf rate 5mbit burst 20k latency 20ms")
        .unwrap();
    instance.tc("qdisc add dev port-b parent 1:1 handle 2: pfifo limit 77").unwrap();
    let before = instance.tc("qdisc show").unwrap();
    assert!(before.contains("tbf 1:") && before.contains("limit 77p"), "{before}");
    for (words, code) in [
        ("qdisc add dev port-b root tbf rate fast burst 20k latency 20ms", 1),
        ("qdisc add dev port-b root tbf rate 5mbit latency 20ms", 1),
        ("qdisc change dev port-b root handle 1: tbf rate 5mbit burst 20k", 1),
        ("qdisc add dev port-b root handle 9: pfifo", 2),
        ("qdisc change dev port-b root handle 1: pfifo limit 5", 2),
        ("qdisc del dev port-a root", 2),
        ("qdisc add dev port-b parent 7:1 pfifo", 2),
        ("qdisc replace dev port-b root cakewalk", 2),
        ("qdisc add dev port-b root handle 1: mq extra", 1),
        ("filter add dev port-b", 2),
        ("qdisc brew dev port-b", 255),
    ] {
        let output = tc(&bed, words);
        assert_eq!(output.status.code(), Some(code), "{words}: {}", complaint(&output));
        assert!(!complaint(&output).is_empty(), "{words}: nothing said");
        assert_eq!(instance.tc("qdisc show").unwrap(), before, "{words}");
    }
    // No instance is asked about a device that belongs to none.
    let output = tc(&bed, "qdisc add dev eth9 root pfifo");
    assert_refused(&output, 1, &["eth9"]);
    assert_eq!(instance.tc("qdisc show").unwrap(), before);
}

#[test]
fn a_policy_file_is_in_force_before_the_first_packet() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(4).unwrap();
    let policy = Scratch::new(
        "good.tc",
        "# both directions\n\
         qdisc add dev port-b root handle 1: tbf rate 20mbit burst 50k latency 20ms\n\
         qdisc add dev port-a root handle 8: mq\n\
         qdisc add dev port-a parent 8:2 pfifo limit 12\n",
    );
    let instance = run(&bed, &["-b", policy.path()]);
    let shown = instance.tc("qdisc show").unwrap();
    assert!(shown.contains("tbf 1: dev port-b root"), "{shown}");
    assert!(shown.contains("limit 12p"), "{shown}");
    wait_for(&bed, "limited", |show| show["ports"][1]["rate_set_bps"] == 20_000_000);
}

#[test]
fn a_bad_policy_file_is_refused_by_line_before_anything_is_touched() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let before = links(&bed);
    let ports = format!("{PORT_A},{PORT_B}");
    for (name, text, words) in [
        (
            "word.tc",
            "qdisc add dev port-b root pfifo\nqdisc add dev port-a root pfifo limit x\n",
            &["word.tc:2", "limit"][..],
        ),
        ("port.tc", "qdisc add dev port-z root pfifo limit 3\n", &["port-z"]),
        (
            "queues.tc",
            "qdisc add dev port-b root handle 1: mq\nqdisc add dev port-b parent 1:9 \
            pfifo\n",
            &["queues.tc:2", "1:1 to 1:2"],
        ),
    ] {
        let policy = Scratch::new(name, text);
        let output = narrows(&bed, &["run", "--ports", &ports, "-b", policy.path()]);
        assert_refused(&output, 1, words);
        assert_eq!(links(&bed), before, "{name} left something behind");
    }
    let output = narrows(&bed, &["run", "--ports", &ports, "-b", "/nowhere/to/be.found"]);
    assert_refused(&output, 1, &["/nowhere/to/be.found"]);
}
