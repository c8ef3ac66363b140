//! Filters in the driver, in front of either plane: rates for each source, headers, marks.

use crate::sets::{dropped, frame_from, send};
use crate::setup::{assert_balanced, assert_refused, run, shared_turn, tc};
use narrows_testbed::accounting::Books;
use narrows_testbed::narrows::Instance;
use narrows_testbed::{Testbed, frames};
use serde_json::Value;

/// The statistics of the first action of the first filter at ingress.
#[track_caller]
fn figures(instance: &Instance) -> Value {
    let text = instance.tc("-s -j filter show dev port-a ingress").unwrap();
    let shown: Value = serde_json::from_str(&text).unwrap();
    let with = shown.as_array().unwrap().iter().find(|one| one["options"]["actions"].is_array());
    with.unwrap()["options"]["actions"][0]["stats"].clone()
}

fn source(number: u8) -> [u8; 4] {
    [203, 0, 113, number]
}

#[test]
fn each_source_has_a_rate_and_is_blocked_above_it_on_both_planes() {
    let Some(_turn) = shared_turn() else { return };
    for plane in ["xsk", "xdp"] {
        let bed = Testbed::up(2).unwrap();
        let instance = run(&bed, &["--plane", plane]);
        let mut books = Books::open(&bed).unwrap();
        instance.tc("qdisc add dev port-a clsact").unwrap();
        // One packet a second with a burst of fifty: few more pass, however slow the machine is.
        instance
            .tc(
                "filter add dev port-a ingress protocol ip pref 10 matchall action police pkts_rate 1 \
                 pkts_burst 50 conform-exceed drop/continue per src block 900s newcomers 30",
            )
            .unwrap();
        for number in 1..=5 {
            send(&bed, &frame_from(source(number)), 40);
        }
        assert_eq!(dropped(&mut books, &instance), 0, "{plane}: all conform");
        send(&bed, &frame_from(source(1)), 500);
        let gone = dropped(&mut books, &instance);
        assert!((400..500).contains(&gone), "{plane}: {gone} of 540");
        let seen = figures(&instance);
        let (over, blocked) = (seen["over"].as_u64().unwrap(), seen["blocked"].as_u64().unwrap());
        // Two CPUs may detect it at once.
        assert!((1..=3).contains(&over) && over + blocked == gone, "{plane}: {seen}");
        assert_eq!(seen["newcomers"], 0, "{plane}: {seen}");
        assert_eq!(seen["packets"], 700, "{plane}: {seen}");
        // A flood of unknown sources: at most the allowed newcomers pass, and known sources
        // continue.
        for number in 100..250 {
            send(&bed, &frame_from(source(number)), 1);
        }
        let seen = figures(&instance);
        let strangers = seen["newcomers"].as_u64().unwrap();
        assert!((1..=125).contains(&strangers), "{plane}: {seen}");
        send(&bed, &frame_from(source(5)), 5);
        assert_eq!(dropped(&mut books, &instance), gone + strangers, "{plane}: the known one");
        let shown = instance.tc("-s filter show dev port-a ingress").unwrap();
        assert!(shown.contains("per src block 900s room 65536 newcomers 30"), "{plane}: {shown}");
        assert!(shown.contains(&format!("over {over} blocked {blocked} ")), "{plane}: {shown}");
        // Another filter is another program, which takes over the state.
        instance
            .tc("filter add dev port-a ingress pref 5 flower ip_proto icmp action drop")
            .unwrap();
        send(&bed, &frame_from(source(1)), 10);
        assert_eq!(dropped(&mut books, &instance), gone + strangers + 10, "{plane}: still blocked");
        assert_balanced(&mut books, &instance);
    }
}

#[test]
fn headers_are_looked_at_in_the_driver_and_marks_are_known_to_classes_behind_it() {
    let Some(_turn) = shared_turn() else { return };
    let bed = Testbed::up(2).unwrap();
    let instance = run(&bed, &[]);
    let mut books = Books::open(&bed).unwrap();
    for line in [
        "qdisc add dev port-a clsact",
        "qdisc add dev port-b root handle 1: htb default 20",
        "class add dev port-b parent 1: classid 1:10 htb rate 1gbit burst 1m",
        "class add dev port-b parent 1: classid 1:20 htb rate 1gbit burst 1m",
        "filter add dev port-b parent 1: pref 1 handle 5 fw classid 1:10",
        "filter add dev port-a ingress protocol ip pref 1 flower src_ip 203.0.113.1 action skbedit mark 5 continue",
        "filter add dev port-a ingress protocol ip pref 2 flower src_ip 203.0.113.2 action skbedit mark 6 continue",
        "filter add dev port-a ingress pref 3 handle 6 fw action drop",
        "filter add dev port-a ingress protocol ip pref 4 u32 match ip src 203.0.113.3/32 match udp dst 9 0xffff action drop",
        "filter add dev port-a ingress protocol ip pref 5 flower ip_proto tcp tcp_flags 0x2/0x12 action drop",
    ] {
        instance.tc(line).unwrap();
    }
    for (number, times) in [(1, 70), (2, 30), (3, 20), (4, 50)] {
        send(&bed, &frame_from(source(number)), times);
    }
    // A SYN, and an ACK.
    for flags in [0x02, 0x10] {
        let mut frame = frames::udp(frames::port(1), narrows_testbed::bed::SINK_MAC, 100).unwrap();
        frame[23] = 6;
        frame[47] = flags;
        send(&bed, &frame, 7);
    }
    assert_eq!(dropped(&mut books, &instance), 30 + 20 + 7);
    let classes = instance.tc("-s -j class show dev port-b").unwrap();
    let classes: Value = serde_json::from_str(&classes).unwrap();
    let packets = |handle: &str| {
        let class = classes.as_array().unwrap().iter().find(|class| class["handle"] == handle);
        class.unwrap()["stats"]["packets"].as_u64().or(class.unwrap()["packets"].as_u64())
    };
    assert_eq!((packets("1:10"), packets("1:20")), (Some(70), Some(57)), "{classes:#}");
    // The workers count the marks.
    let shown = instance.tc("-s filter show dev port-a ingress").unwrap();
    assert!(shown.contains("skbedit") && shown.contains(" 70 pkt (dropped 0"), "{shown}");
    // State that only the driver has does not reach the workers.
    let words = "filter add dev port-a ingress pref 6 matchall action police pkts_rate 9 pkts_burst 9 \
                 conform-exceed drop/pipe per dst action skbedit mark 7 continue";
    assert_refused(&tc(&bed, words), 2, &["knows nothing of sets, of policers"]);
    assert_balanced(&mut books, &instance);
}
