//! Filters in the driver, in front of either plane: rates for each source, headers, marks.

use crate::policing::{NATIVE, XDP};
use crate::sets::{dropped, frame_from, send};
use crate::setup::{assert_balanced, assert_refused, run, show, tc, turn_to_count};
use narrows_testbed::accounting::Books;
use narrows_testbed::narrows::Instance;
use narrows_testbed::{Testbed, frames};
use serde_json::Value;
use std::collections::BTreeMap;

/// The statistics of the first action of the first filter at ingress.
#[track_caller]
pub(crate) fn figures(instance: &Instance) -> Value {
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
    let Some(_turn) = turn_to_count() else { return };
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
    let Some(_turn) = turn_to_count() else { return };
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

/// How many packets each class of `port-b` has sent.
pub fn by_class(instance: &Instance) -> BTreeMap<String, u64> {
    let shown = instance.tc("-s -j class show dev port-b").unwrap();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let packets = |class: &Value| {
        let sent = class["stats"]["packets"].as_u64().or(class["packets"].as_u64());
        (class["handle"].as_str().unwrap().to_owned(), sent.unwrap_or(0))
    };
    shown.as_array().unwrap().iter().map(packets).collect()
}

#[test]
fn what_filters_set_where_packets_come_in_decides_the_class_on_both_planes() {
    let Some(_turn) = turn_to_count() else { return };
    let mut seen = Vec::new();
    for plane in ["xsk", "xdp"] {
        let bed = Testbed::up(2).unwrap();
        let instance = run(&bed, &["--plane", plane]);
        let mut books = Books::open(&bed).unwrap();
        let from = |number: u8| {
            format!(
                "filter add dev port-a ingress protocol ip pref {number} flower \
                 src_ip 203.0.113.{number} action"
            )
        };
        let class = |minor: u8| {
            format!("class add dev port-b parent 1: classid 1:{minor} htb rate 1gbit burst 1m")
        };
        let lines = [
            "qdisc add dev port-a clsact".to_owned(),
            "qdisc add dev port-b root handle 1: htb default 40".to_owned(),
            class(10),
            class(20),
            class(30),
            class(40),
            "filter add dev port-b parent 1: pref 1 handle 5 fw classid 1:10".to_owned(),
            "filter add dev port-b parent 1: pref 2 handle 0x100/0xf00 fw classid 1:20".to_owned(),
            "filter add dev port-b parent 1: protocol ip pref 3 flower src_ip 203.0.113.4 \
             classid 1:30"
                .to_owned(),
            format!("{} skbedit mark 5 continue", from(1)),
            format!("{} skbedit mark 0x1ff continue", from(2)),
            // A class that is named comes before filters: by mark, and by address.
            format!("{} skbedit priority 1:30 mark 5 continue", from(3)),
            format!("{} skbedit priority 1:20 continue", from(4)),
            // There is no such class, and this is another qdisc's.
            format!("{} skbedit priority 1:99 mark 5 continue", from(5)),
            format!("{} skbedit priority 9:30 continue", from(6)),
            format!("{} skbedit mark 6 continue", from(7)),
            "filter add dev port-a ingress pref 8 handle 6 fw action drop".to_owned(),
            // From here on no other filter is asked.
            format!("{} pass", from(9)),
        ];
        lines.iter().for_each(|line| drop(instance.tc(line).unwrap()));
        for number in 1..=9 {
            send(&bed, &frame_from(source(number)), 10 + usize::from(number));
        }
        assert_eq!(dropped(&mut books, &instance), 17, "{plane}");
        let classes = by_class(&instance);
        let expected = [("1:10", 11), ("1:20", 12 + 14), ("1:30", 13), ("1:40", 15 + 16 + 18 + 19)];
        let expected = expected.map(|(class, sent)| (class.to_owned(), sent));
        assert_eq!(classes, BTreeMap::from(expected), "{plane}");
        // What names a class that goes has none.
        instance.tc("filter del dev port-b parent 1: pref 3").unwrap();
        instance.tc("class del dev port-b classid 1:30").unwrap();
        send(&bed, &frame_from(source(3)), 5);
        assert_balanced(&mut books, &instance);
        assert_eq!(by_class(&instance)["1:40"], classes["1:40"] + 5, "{plane}");
        let shown = instance.tc("-s filter show dev port-a ingress").unwrap();
        let lines = shown.lines().filter(|line| line.contains(" pkt ")).map(str::to_owned);
        let mut lines: Vec<String> = lines.collect();
        // A worker does not see what is dropped before it.
        let of_dropped = lines.remove(6);
        let counted = if plane == "xsk" { " 0 pkt" } else { " 17 pkt" };
        assert!(of_dropped.contains(counted), "{plane}: {of_dropped}");
        seen.push((classes, lines));
    }
    assert_eq!(seen[0], seen[1], "filters count the same, too");
}

/// Asserts that `narrows show` tells what each CPU counted, and of no workers and their queues.
#[track_caller]
fn assert_cpus(shown: &Value) {
    assert_eq!(shown["workers"].as_array().map(Vec::len), Some(0), "{shown:#}");
    for port in shown["ports"].as_array().unwrap() {
        assert_eq!((&port["counted_by"], &port["queues"]), (&"cpu".into(), &2.into()), "{port:#}");
        let cpus = port["per_queue"].as_array().unwrap();
        for figure in ["rx_packets", "tx_bytes", "drops"] {
            let sum: u64 = cpus.iter().map(|cpu| cpu[figure].as_u64().unwrap()).sum();
            assert_eq!(port["total"][figure], sum, "{figure}: {port:#}");
        }
    }
    let online = std::thread::available_parallelism().unwrap().get();
    assert!(shown["ports"][0]["per_queue"].as_array().unwrap().len() >= online, "{shown:#}");
}

#[test]
fn without_workers_filters_that_look_up_sets_or_police_may_set_marks_once() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let instance = run(&bed, &["--plane", "xdp"]);
    let mut books = Books::open(&bed).unwrap();
    for line in [
        "qdisc add dev port-a clsact",
        "qdisc add dev port-b root handle 1: htb default 20",
        "class add dev port-b parent 1: classid 1:10 htb rate 1gbit burst 1m",
        "class add dev port-b parent 1: classid 1:20 htb rate 1gbit burst 1m",
        "filter add dev port-b parent 1: pref 1 handle 5 fw classid 1:10",
        "filter add dev port-a ingress protocol ip pref 1 flower src_ip 203.0.113.1 action police \
         pkts_rate 1 pkts_burst 50 conform-exceed drop/pipe action skbedit mark 5",
        "filter add dev port-a ingress pref 2 matchall action skbedit mark 6",
    ] {
        instance.tc(line).unwrap();
    }
    for number in 1..=2 {
        send(&bed, &frame_from(source(number)), 40);
    }
    assert_eq!(dropped(&mut books, &instance), 0);
    let classes = by_class(&instance);
    assert_eq!((classes["1:10"], classes["1:20"]), (40, 40));
    assert_cpus(&show(&bed));
    for (words, why) in [
        ("ingress pref 3 matchall action drop random determ pass 9", "random drops"),
        ("egress pref 3 matchall action skbedit mark 5", "at egress"),
    ] {
        let line = format!("filter add dev port-a {words}");
        assert_refused(&tc(&bed, &line), 2, &[why, "--plane xsk"]);
    }
    assert_balanced(&mut books, &instance);
}

/// A frame of [`frame_from`] with a tag of IEEE 802.1Q.
fn tagged(number: u8, vlan: u16) -> Vec<u8> {
    let mut frame = frame_from(source(number));
    let [high, low] = vlan.to_be_bytes();
    frame.splice(12..12, [0x81, 0, high, low]);
    frame
}

#[test]
fn filters_of_any_kind_at_a_qdisc_choose_classes_alike_on_both_planes_and_at_both_hooks() {
    let Some(_turn) = turn_to_count() else { return };
    let mut seen = Vec::new();
    let planes: [(&[&str], &str); 3] =
        [(&["--plane", "xsk"], "native"), (&NATIVE, "native"), (&XDP, "tcx")];
    for (arguments, hook) in planes {
        let bed = Testbed::up(2).unwrap();
        bed.take_redirected(hook == "native").unwrap();
        let instance = run(&bed, arguments);
        assert_eq!(show(&bed)["ports"][0]["xdp"], hook, "{arguments:?}");
        let mut books = Books::open(&bed).unwrap();
        instance.tc("qdisc add dev port-b root handle 1: htb default 40").unwrap();
        for minor in [10, 20, 30, 40] {
            let class = format!("parent 1: classid 1:{minor} htb rate 1gbit burst 1m");
            instance.tc(&format!("class add dev port-b {class}")).unwrap();
        }
        for filter in [
            "protocol ip pref 1 u32 match ip src 203.0.113.1/32 match udp dst 9 0xffff \
             classid 1:10",
            "pref 2 basic match cmp(u8 at 15 layer 1 eq 2) and not meta(pkt_len gt 200) \
             classid 1:20",
            "protocol ip pref 3 flower src_ip 203.0.113.3 ip_ttl 64 classid 1:30",
            "protocol ip pref 4 u32 match ip src 203.0.113.4/32 action drop",
            "protocol ip pref 5 flower src_ip 203.0.113.5 action continue",
            "protocol ip pref 6 flower src_ip 203.0.113.4/30 classid 1:30",
            "protocol 802.1Q pref 7 flower vlan_id 5 classid 1:20",
            "protocol ip pref 8 flower src_ip 203.0.113.9 classid 1:10 action pass",
        ] {
            instance.tc(&format!("filter add dev port-b parent 1: {filter}")).unwrap();
        }
        for number in 1..=9 {
            send(&bed, &frame_from(source(number)), 10 + usize::from(number));
        }
        send(&bed, &tagged(10, 5), 50);
        send(&bed, &tagged(10, 6), 70);
        assert_eq!(dropped(&mut books, &instance), 14, "{arguments:?}");
        let reasons = &show(&bed)["ports"][1]["total"]["drops_by_reason"];
        assert_eq!(reasons["filter"], 14, "{arguments:?}: {reasons}");
        let sent = by_class(&instance);
        let expected =
            [("1:10", 11 + 19), ("1:20", 12 + 50), ("1:30", 13 + 15 + 16 + 17), ("1:40", 18 + 70)];
        let expected = expected.map(|(class, sent)| (class.to_owned(), sent));
        assert_eq!(sent, BTreeMap::from(expected), "{arguments:?}");
        let shown = instance.tc("-s filter show dev port-b parent 1:").unwrap();
        let lines: Vec<String> =
            shown.lines().filter(|line| line.contains(" pkt ")).map(str::to_owned).collect();
        assert!(lines.len() == 3 && lines[0].contains(" 14 pkt (dropped 14"), "{lines:?}");
        // They change with the plan, and what stays counts on.
        instance.tc("filter del dev port-b parent 1: pref 1").unwrap();
        send(&bed, &frame_from(source(1)), 5);
        send(&bed, &frame_from(source(2)), 6);
        assert_balanced(&mut books, &instance);
        let after = by_class(&instance);
        assert_eq!([after["1:40"], after["1:20"]], [sent["1:40"] + 5, sent["1:20"] + 6]);
        seen.push((after, lines));
    }
    assert_eq!(seen[0], seen[1], "in the driver");
    assert_eq!(seen[0], seen[2], "at tcx");
}
