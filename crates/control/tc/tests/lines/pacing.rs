//! `carousel`, `eiffel`, `flowbundler`: the effect of their words, refusals, output.

use crate::host::TwoPorts;
use narrows_policy::{Handle, NodeStats, Parent};
use narrows_qdisc::pacing::{Figures, Signals};
use narrows_qdisc::{Detail, Stats};
use narrows_units::Bytes;

const KINDS: [&str; 3] = ["carousel", "eiffel", "flowbundler"];
const TBF: &str = "tbf rate 1gbit burst 128k latency 5ms";

/// The options as shown.
#[track_caller]
fn shown(kind: &str, words: &str) -> String {
    let mut host = TwoPorts::with_queues(4);
    host.ok(&format!("qdisc add dev right handle 1: root {kind} {words}"));
    let text = host.ok("qdisc show dev right");
    let options = text.strip_prefix(&format!("qdisc {kind} 1: root refcnt 5 ")).unwrap();
    options.trim_end().to_owned()
}

/// The options of one created without any words, with `from` replaced by `to`.
fn default_with(kind: &str, changes: &[(&str, &str)]) -> String {
    let slots = match kind {
        "flowbundler" => "granularity 1ns slots 1024 apart flows nosafeguard",
        _ => "granularity 1us",
    };
    let text = format!("limit 10000p flow_limit 100p horizon 10s horizon_drop {slots} flows");
    changes.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    })
}

#[test]
fn every_word_does_what_is_shown() {
    for kind in KINDS {
        for (words, changes) in [
            ("", vec![]),
            ("limit 7", vec![("10000p", "7p")]),
            ("flow_limit 4294967295", vec![("100p", "4294967295p")]),
            ("maxrate 100mbit", vec![("horizon", "maxrate 100Mbit horizon")]),
            ("maxrate 100mbit maxrate 0", vec![]),
            ("hostrate 50mbit", vec![("horizon 10s", "hostrate 50Mbit horizon 10s")]),
            ("hostrate 50mbit hostrate 0", vec![]),
            ("horizon 250us", vec![("10s", "250us")]),
            ("horizon_cap", vec![("horizon_drop", "horizon_cap")]),
            ("horizon_cap horizon_drop", vec![]),
            ("hosts flows", vec![]),
        ] {
            assert_eq!(shown(kind, words), default_with(kind, &changes), "{kind} {words}");
        }
        for (given, granularity) in [("8us", "8us"), ("1500ns", "1500ns"), ("1ms", "1000us")] {
            let shown = shown(kind, &format!("granularity {given}"));
            assert!(shown.contains(&format!("granularity {granularity} ")), "{shown}");
        }
    }
    assert!(shown("eiffel", "flows hosts").ends_with(" hosts"));
    let words = "slots 64 apart hosts safeguard";
    assert!(shown("flowbundler", words).contains(&format!(" {words} ")));
}

#[test]
fn what_is_shown_can_be_typed_again() {
    let words = "limit 9p flow_limit 8p maxrate 7Mbit horizon 6s horizon_cap granularity 5us hosts";
    let typed = words.replace("9p", "9").replace("8p", "8");
    assert_eq!(shown("eiffel", &typed), words);
}

#[test]
fn a_change_sets_what_it_names() {
    let mut host = TwoPorts::with_queues(1);
    host.ok("qdisc add dev right root handle 1: flowbundler maxrate 5mbit limit 9 hosts slots 128");
    host.ok("qdisc change dev right root flowbundler flow_limit 3");
    let text = host.ok("qdisc show dev right");
    assert!(text.contains("limit 9p flow_limit 3p maxrate 5Mbit "), "{text}");
    assert!(text.contains("slots 128 apart flows nosafeguard hosts"), "{text}");
    host.ok("qdisc replace dev right root carousel");
    assert!(host.ok("qdisc show dev right").contains(&default_with("carousel", &[])));
}

#[test]
fn json_has_numbers() {
    let mut host = TwoPorts::with_queues(1);
    host.ok("qdisc add dev right root flowbundler maxrate 8mbit horizon 2s granularity 100ns");
    let json: serde_json::Value =
        serde_json::from_str(&host.ok("-j qdisc show dev right")).unwrap();
    let options = &json[0]["options"];
    for (key, value) in [
        ("limit", 10_000),
        ("flow_limit", 100),
        ("maxrate", 1_000_000),
        ("horizon", 2_000_000),
        ("granularity_ns", 100),
        ("slots", 1024),
    ] {
        assert_eq!(options[key], value, "{key}");
    }
    assert_eq!((&options["flowmode"], &options["horizon_drop"]), (&"flows".into(), &true.into()));
}

#[test]
fn invalid_values_are_refused_with_a_reason() {
    let mut host = TwoPorts::with_queues(4);
    for kind in KINDS {
        for (words, named, code) in [
            ("limit", "\"limit\" wants a value", 255),
            ("limit 0", "\"0\": a number of packets", 1),
            ("flow_limit -1", "\"-1\"", 1),
            ("maxrate fast", "\"fast\"", 1),
            ("horizon 0", "\"0\"", 1),
            ("granularity 0", "1ns to 1s", 1),
            ("granularity 0ns", "1ns to 1s", 1),
            ("granularity 2s", "1ns to 1s", 1),
            ("quantum 1514", "What is \"quantum\"?", 1),
            ("help", "Usage:", 1),
        ] {
            let complaint = host.fails(&format!("qdisc add dev right root {kind} {words}"), code);
            assert!(complaint.contains(named), "{complaint}");
        }
    }
    assert!(
        host.fails("qdisc add dev right root flowbundler apart all", 1).contains("flows or hosts")
    );
    for slots in ["32", "100", "8192", "many"] {
        let line = format!("qdisc add dev right root flowbundler slots {slots}");
        assert!(host.fails(&line, 1).contains("a power of two from 64 to 4096"));
    }
    let line = "qdisc add dev right root eiffel slots 1024";
    assert!(host.fails(line, 1).contains("What is \"slots\"?"));
    host.ok("qdisc add dev right root handle 1: eiffel");
    assert!(host.fails("qdisc add dev right parent 1:1 pfifo", 2).contains("only tbf, htb"));
}

#[test]
fn the_rate_beside_that_of_flows_is_of_what_is_no_flow() {
    let mut host = TwoPorts::with_queues(4);
    host.ok("qdisc add dev right root handle 1: flowbundler hosts maxrate 50mbit flowrate 10mbit");
    assert!(host.ok("qdisc show dev right").contains(" maxrate 50Mbit flowrate 10Mbit "));
    let twice = host.fails("qdisc change dev right root handle 1: flowbundler hostrate 9mbit", 2);
    assert!(twice.contains("maxrate is the rate of each destination"), "{twice}");
    let codel = host.fails("qdisc change dev right root handle 1: flowbundler codel", 2);
    assert!(codel.contains("Give hostrate 0 or flowrate 0, or nocodel"), "{codel}");
    // What was a flow's rate is not that of a host.
    host.ok("qdisc change dev right root handle 1: flowbundler flows");
    assert!(!host.ok("qdisc show dev right").contains("rate 10Mbit"));
    let twice = host.fails("qdisc change dev right root handle 1: flowbundler flowrate 9mbit", 2);
    assert!(twice.contains("maxrate is the rate of each flow"), "{twice}");
}

#[test]
fn one_stands_in_a_tbf_and_at_a_queue_of_an_mq() {
    let mut host = TwoPorts::with_queues(4);
    host.ok(&format!("qdisc add dev right root handle 1: {TBF}"));
    host.ok("qdisc add dev right parent 1:1 handle 2: flowbundler maxrate 10mbit");
    assert!(host.ok("qdisc show dev right").contains("flowbundler 2: parent 1:1 limit"));
    host.ok("qdisc add dev left root handle 1: mq");
    host.ok("qdisc add dev left parent 1:2 carousel");
}

#[test]
fn two_that_stamp_do_not_stand_one_above_the_other() {
    let mut host = TwoPorts::with_queues(4);
    host.ok(&format!("qdisc add dev right root handle 1: {TBF} coordination edt"));
    let below = "qdisc add dev right parent 1:1 handle 2: flowbundler";
    let complaint = host.fails(below, 2);
    assert!(complaint.contains("Give 1: coordination fair, equal or lock."), "{complaint}");
    host.ok(&format!("qdisc add dev right parent 1:1 handle 2: {TBF}"));
    let deeper = "qdisc add dev right parent 2:1 handle 3: eiffel";
    assert!(host.fails(deeper, 2).contains("and the eiffel below it"));
    host.ok(&format!("qdisc change dev right root handle 1: {TBF} coordination equal"));
    host.ok(deeper);
    let above = format!("qdisc change dev right root handle 1: {TBF} coordination edt");
    assert!(host.fails(&above, 2).contains("coordination edt"));
}

#[test]
fn figures_are_shown_in_the_manner_of_fq() {
    let mut host = TwoPorts::with_queues(2);
    host.ok("qdisc add dev right root handle 1: flowbundler maxrate 1mbit");
    let figures = Figures {
        flows: 9,
        throttled_flows: 4,
        throttled: 77,
        flow_limit_drops: 3,
        horizon_drops: 2,
        horizon_caps: 1,
        congestion: 4,
        codel: None,
        memory: Bytes(2 << 20),
    };
    let stats = Stats { detail: Some(Detail::Pacing(Box::new(figures))), ..Stats::default() };
    host.stats.push(NodeStats { parent: Parent::Root, handle: Handle::new(1), stats });
    let shown = host.ok("-s qdisc show dev right");
    let lines: Vec<_> = shown.lines().collect();
    assert_eq!(lines[3], "  flows 9 (inactive 5 throttled 4) memory 2Mb");
    assert_eq!(
        lines[4],
        "  throttled 77 flows_plimit 3 horizon_drops 2 horizon_caps 1 congestion 4"
    );
    let json: serde_json::Value =
        serde_json::from_str(&host.ok("-s -j qdisc show dev right")).unwrap();
    assert_eq!((&json[0]["inactive_flows"], &json[0]["memory"]), (&5.into(), &(2 << 20).into()));
}

const CODEL: &str = "codel target 5ms interval 100ms ecn flows";

#[test]
fn queue_management_has_the_words_of_codel() {
    for kind in KINDS {
        for (words, changes) in [
            ("codel", vec![("flows", CODEL)]),
            ("codel target 20ms", vec![("flows", CODEL), ("5ms", "20ms")]),
            (
                "interval 30ms target 250us",
                vec![("flows", CODEL), ("5ms", "250us"), ("100ms", "30ms")],
            ),
            ("codel noecn", vec![("flows", CODEL), ("ecn", "noecn")]),
            ("noecn ecn codel", vec![("flows", CODEL)]),
            ("target 1ms nocodel codel", vec![("flows", CODEL)]),
            ("codel target 1ms nocodel", vec![]),
        ] {
            let expected = default_with(kind, &[]);
            let expected = changes.iter().fold(expected, |text, (from, to)| {
                let at = text.rfind(from).unwrap();
                format!("{}{to}{}", &text[..at], &text[at + from.len()..])
            });
            assert_eq!(shown(kind, words), expected, "{kind} {words}");
        }
    }
}

#[test]
fn a_change_sets_of_queue_management_what_it_names() {
    let mut host = TwoPorts::with_queues(1);
    let shows = |host: &mut TwoPorts, words: &str| {
        let text = host.ok("qdisc show dev right");
        assert!(text.contains(words), "{text}");
    };
    host.ok("qdisc add dev right root handle 1: flowbundler maxrate 5mbit codel target 8ms noecn");
    host.ok("qdisc change dev right root flowbundler interval 200ms");
    shows(&mut host, "nosafeguard codel target 8ms interval 200ms noecn flows");
    host.ok("qdisc change dev right root flowbundler maxrate 6mbit");
    shows(&mut host, "nosafeguard codel target 8ms interval 200ms noecn flows");
    host.ok("qdisc change dev right root flowbundler nocodel");
    shows(&mut host, "nosafeguard flows");
    host.ok("qdisc change dev right root flowbundler codel");
    shows(&mut host, CODEL);
    let json: serde_json::Value =
        serde_json::from_str(&host.ok("-j qdisc show dev right")).unwrap();
    let codel = &json[0]["options"]["codel"];
    assert_eq!((&codel["target"], &codel["interval"]), (&5_000.into(), &100_000.into()));
    assert_eq!(codel["ecn"], true);
}

#[test]
fn queue_management_that_cannot_be_is_refused_with_a_reason() {
    let mut host = TwoPorts::with_queues(1);
    for (words, named, code) in [
        ("target", "\"target\" wants a value", 255),
        ("codel target 0", "\"0\": a time from 1us to 10s", 1),
        ("codel target 11s", "\"11s\": a time from 1us to 10s", 1),
        ("codel interval soon", "\"soon\": a time", 1),
        ("codel target 200ms", "target 200 ms is more than interval 100 ms", 2),
        ("codel apart hosts", "Give apart flows nosafeguard, or nocodel.", 2),
        ("codel safeguard", "Give apart flows nosafeguard, or nocodel.", 2),
        ("codel ce_threshold 1ms", "What is \"ce_threshold\"?", 1),
    ] {
        let line = format!("qdisc add dev right root flowbundler maxrate 1mbit {words}");
        let complaint = host.fails(&line, code);
        assert!(complaint.contains(named), "{complaint}");
    }
    host.ok("qdisc add dev right root handle 1: flowbundler codel");
    let change = "qdisc change dev right root flowbundler";
    assert!(host.fails(&format!("{change} interval 1ms"), 2).contains("more than interval 1 ms"));
    assert!(host.fails(&format!("{change} safeguard"), 2).contains("or nocodel"));
    host.ok(&format!("{change} nocodel safeguard"));
}

#[test]
fn figures_include_queue_management_if_any() {
    let mut host = TwoPorts::with_queues(1);
    host.ok("qdisc add dev right root handle 1: flowbundler maxrate 1mbit codel");
    let signals = Signals { drops: 3, marks: 5, overlimit: 7 };
    let figures = Figures { codel: Some(signals), ..Figures::default() };
    let stats = Stats { detail: Some(Detail::Pacing(Box::new(figures))), ..Stats::default() };
    host.stats.push(NodeStats { parent: Parent::Root, handle: Handle::new(1), stats });
    let shown = host.ok("-s qdisc show dev right");
    assert_eq!(shown.lines().nth(5), Some("  codel drops 3 marks 5 overlimit 7"), "{shown}");
    let json: serde_json::Value =
        serde_json::from_str(&host.ok("-s -j qdisc show dev right")).unwrap();
    for (key, value) in [("codel_drops", 3), ("codel_marks", 5), ("codel_overlimit", 7)] {
        assert_eq!(json[0][key], value);
    }
}
