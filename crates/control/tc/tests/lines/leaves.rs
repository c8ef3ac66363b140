//! `codel`, `fq_codel`, `sfq` and `netem`, word by word, and their statistics byte for byte as `tc`
//! prints them.

use crate::host::TwoPorts;
use narrows_packet::Backlog;
use narrows_policy::{Handle, Kind, NodeStats, Parent};
use narrows_qdisc::{Detail, Stats, codel, fq_codel};
use narrows_tc::{load, save};
use narrows_units::{Bytes, Nanos};
use proptest::prelude::*;

#[track_caller]
fn shown(kind: &str, words: &str) -> String {
    let mut host = TwoPorts { looks_up: true, ..TwoPorts::with_queues(1) };
    host.ok(&format!("qdisc add dev right handle 1: root {kind} {words}"));
    let text = host.ok("qdisc show dev right");
    let head = format!("qdisc {kind} 1: root refcnt 2 ");
    text.strip_prefix(&head).unwrap().trim_end_matches('\n').to_owned()
}

#[track_caller]
fn json(kind: &str, words: &str) -> serde_json::Value {
    let mut host = TwoPorts { looks_up: true, ..TwoPorts::with_queues(1) };
    host.ok(&format!("qdisc add dev right handle 1: root {kind} {words}"));
    let text = host.ok("-j qdisc show dev right");
    serde_json::from_str::<serde_json::Value>(&text).unwrap()[0]["options"].clone()
}

#[test]
fn an_fq_codel_is_shown_as_tc_shows_it() {
    const DEFAULT: &str = "limit 10240p flows 1024 quantum 1514 target 5ms interval 100ms memory_limit 32Mb ecn drop_batch 64 ";
    for (words, from, to) in [
        ("", "limit", "limit"),
        ("limit 1000", "10240p", "1000p"),
        ("flows 256", "flows 1024", "flows 256"),
        ("quantum 9000", "quantum 1514", "quantum 9000"),
        ("quantum 1", "quantum 1514", "quantum 256"),
        ("target 2ms", "target 5ms", "target 2ms"),
        ("target 1ms", "target 5ms", "target 999us"),
        ("interval 50ms", "interval 100ms", "interval 50ms"),
        ("memory_limit 100000", "32Mb", "100000b"),
        ("noecn", "ecn ", ""),
        ("noecn ecn", "ecn ", "ecn "),
        ("ce_threshold 2ms", "interval", "ce_threshold 2ms interval"),
        (
            "ce_threshold 2ms ce_threshold_selector 0x1/3",
            "interval",
            "ce_threshold 2ms ce_threshold_selector 0x1/0x3 interval",
        ),
        ("drop_batch 1", "drop_batch 64", "drop_batch 1"),
        ("hosts dst", "drop_batch 64 ", "drop_batch 64 hosts dst "),
        ("hosts src nat", "drop_batch 64 ", "drop_batch 64 hosts src nat "),
        ("hosts dst nat hosts dst", "drop_batch 64 ", "drop_batch 64 hosts dst "),
        ("hosts dst hosts none", "drop_batch 64 ", "drop_batch 64 "),
        // As in tc, 0 counts as not given.
        ("limit 0 flows 0 target 0 drop_batch 0", "limit", "limit"),
    ] {
        assert!(DEFAULT.contains(from));
        assert_eq!(shown("fq_codel", words), DEFAULT.replacen(from, to, 1), "{words}");
    }
}

#[test]
fn times_come_back_as_the_kernel_keeps_them() {
    let options = json("fq_codel", "ce_threshold 1ms ce_threshold_selector 1/3");
    let expected = serde_json::json!({
        "limit": 10240, "flows": 1024, "quantum": 1514, "target": 4999, "ce_threshold": 999,
        "ce_threshold_selector": 1, "ce_threshold_mask": 3, "interval": 99999,
        "memory_limit": 33554432, "ecn": true, "drop_batch": 64,
    });
    assert_eq!(options, expected);
    let expected = serde_json::json!({ "limit": 1000, "target": 4999, "interval": 99999 });
    assert_eq!(json("codel", ""), expected);
    let inside = json("fq_codel", "hosts src nat");
    assert_eq!([&inside["hosts"], &inside["nat"]], [&"src".into(), &serde_json::json!(true)]);
}

#[test]
fn a_codel_is_shown_as_tc_shows_it() {
    for (words, expected) in [
        ("", "limit 1000p target 5ms interval 100ms "),
        ("ecn", "limit 1000p target 5ms interval 100ms ecn "),
        ("limit 1500 target 3ms", "limit 1500p target 3ms interval 100ms "),
        (
            "interval 20ms ce_threshold 2ms",
            "limit 1000p target 5ms ce_threshold 2ms interval 20ms ",
        ),
    ] {
        assert_eq!(shown("codel", words), expected, "{words}");
    }
}

#[test]
fn an_sfq_is_shown_as_tc_shows_it() {
    for (words, expected) in [
        ("", "limit 127p quantum 1514b depth 127 divisor 1024 "),
        ("limit 8", "limit 8p quantum 1514b depth 127 divisor 1024 "),
        ("perturb 10", "limit 127p quantum 1514b depth 127 divisor 1024 perturb 10sec "),
        ("quantum 9000", "limit 127p quantum 9000b depth 127 divisor 1024 "),
        ("divisor 512", "limit 127p quantum 1514b depth 127 divisor 512 "),
        ("flows 20 depth 10 limit 500", "limit 200p quantum 1514b depth 10 divisor 1024 "),
        ("headdrop", "limit 127p quantum 1514b depth 127 headdrop divisor 1024 "),
    ] {
        assert_eq!(shown("sfq", words), expected, "{words}");
    }
    let mut host = TwoPorts::with_queues(1);
    host.ok("qdisc add dev right handle 1: root sfq");
    assert!(host.ok("-d qdisc show dev right").contains("depth 127 flows 128 divisor 1024 "));
}

#[test]
fn a_netem_is_shown_as_tc_shows_it() {
    for (words, expected) in [
        ("", "limit 1000"),
        ("limit 200", "limit 200"),
        ("delay 100ms", "limit 1000 delay 100ms"),
        ("latency 20ms 2ms", "limit 1000 delay 20ms  2ms"),
        (
            "limit 5000 delay 20ms 2ms 25% loss 1% rate 10mbit",
            "limit 5000 delay 20ms  2ms 25% loss 1% rate 10Mbit",
        ),
        ("delay 20ms 2ms distribution normal", "limit 1000 delay 20ms  2ms"),
        ("loss random 0.3% 25%", "limit 1000 loss 0.3% 25%"),
        ("drop 1", "limit 1000 loss 1%"),
        ("loss state 5%", "limit 1000 loss state p13 5% p31 95% p32 0% p23 100% p14 0%"),
        ("loss state 1% 2% 3% 4% 5%", "limit 1000 loss state p13 1% p31 2% p32 3% p23 4% p14 5%"),
        ("loss gemodel 1%", "limit 1000 loss gemodel p 1% r 99% 1-h 100% 1-k 0%"),
        ("loss gemodel 1% 10% 70% 0.1%", "limit 1000 loss gemodel p 1% r 10% 1-h 70% 1-k 0.1%"),
        ("loss 1% ecn", "limit 1000 loss 1% ecn "),
        ("corrupt 0.1%", "limit 1000 corrupt 0.1%"),
        ("duplicate 1% 25%", "limit 1000 duplicate 1% 25%"),
        ("dup 2% loss 1% corrupt 3%", "limit 1000 loss 1% duplicate 2% corrupt 3%"),
        ("delay 10ms reorder 25% 50% gap 5", "limit 1000 delay 10ms reorder 25% 50% gap 5"),
        ("delay 10ms reorder 25%", "limit 1000 delay 10ms reorder 25% gap 1"),
        ("rate 256kbit", "limit 1000 rate 256Kbit"),
        (
            "rate 5kbit 20 100 5",
            "limit 1000 rate 5Kbit packetoverhead 20 cellsize 100 celloverhead 5",
        ),
        ("rate 1mbit -14", "limit 1000 rate 1Mbit packetoverhead -14"),
        (
            "rate 1mbit 010 0x10 -0x5",
            "limit 1000 rate 1Mbit packetoverhead 8 cellsize 16 celloverhead -5",
        ),
        ("slot 800us", "limit 1000 slot 800us 800us"),
        ("slot 10us 1ms packets 4 bytes 3k", "limit 1000 slot 10us 1ms packets 4 bytes 3072"),
        ("slot distribution normal 1ms 100us", "limit 1000 slot distribution 1ms 100us"),
        ("seed 42", "limit 1000 seed 42"),
    ] {
        assert_eq!(shown("netem", words), expected, "{words}");
    }
}

#[test]
fn netems_json_is_in_seconds_and_parts_of_one() {
    let options = json("netem", "delay 20ms 2ms 25% loss 1% rate 10mbit");
    let expected = serde_json::json!({
        "limit": 1000,
        "delay": { "delay": 0.02, "jitter": 0.002, "correlation": 0.25 },
        "loss-random": { "loss": 0.01, "correlation": 0 },
        "rate": { "rate": 1250000, "packetoverhead": 0, "cellsize": 0, "celloverhead": 0 },
        "ecn": false, "gap": 0,
    });
    assert_eq!(options, expected);
    let options = json(
        "netem",
        "loss gemodel 1% 10% delay 1ms 1ms distribution normal reorder 50% slot 1ms 2ms",
    );
    let expected = serde_json::json!({ "p": 0.01, "r": 0.1, "1-h": 1, "1-k": 0 });
    assert_eq!(options["loss-gemodel"], expected);
    let slot =
        serde_json::json!({ "min-delay": 0.001, "max-delay": 0.002, "packets": 0, "bytes": 0 });
    assert_eq!((&options["slot"], &options["gap"]), (&slot, &serde_json::json!(1)));
}

#[test]
fn netem_replaces_all_parameters_and_others_the_named_ones() {
    let mut host = TwoPorts::with_queues(4);
    let options = |host: &mut TwoPorts| host.ok("qdisc show dev right");
    host.ok("qdisc add dev right root handle 1: netem delay 10ms loss 1%");
    host.ok("qdisc change dev right root handle 1: netem delay 5ms");
    assert!(options(&mut host).ends_with("limit 1000 delay 5ms\n"));
    host.ok("qdisc del dev right root");
    host.ok("qdisc add dev right root handle 1: fq_codel limit 7 ce_threshold 1ms");
    host.ok("qdisc change dev right root handle 1: fq_codel noecn");
    let text = options(&mut host);
    assert!(text.contains("limit 7p") && text.contains("ce_threshold") && !text.contains(" ecn"));
    host.ok("qdisc del dev right root");
    host.ok("qdisc add dev right root handle 1: codel limit 7");
    host.ok("qdisc change dev right root handle 1: codel target 2ms");
    assert!(options(&mut host).contains("limit 7p target 2ms"));
}

#[test]
fn they_stand_at_the_root_below_mq_below_a_tbf_and_below_classes() {
    for kind in ["codel", "fq_codel", "sfq", "netem delay 1ms"] {
        let mut host = TwoPorts::with_queues(4);
        host.ok(&format!("qdisc add dev left root {kind}"));
        host.ok("qdisc add dev right root handle 1: mq");
        host.ok(&format!("qdisc add dev right parent 1:2 handle 2: {kind}"));
        host.ok("qdisc add dev right parent 1:3 handle 3: tbf rate 1mbit burst 9k latency 5ms");
        host.ok(&format!("qdisc add dev right parent 3:1 handle 4: {kind}"));
        if !kind.starts_with("netem") {
            let complaint = host.fails("qdisc add dev right parent 2:1 pfifo", 2);
            assert!(complaint.contains("not classful"), "{complaint}");
        }
        host.ok("qdisc del dev right root");
        host.ok("qdisc add dev right root handle 1: htb");
        host.ok("class add dev right parent 1: classid 1:1 htb rate 1mbit");
        host.ok(&format!("qdisc add dev right parent 1:1 handle 10: {kind}"));
    }
    let mut host = TwoPorts::with_queues(4);
    host.ok("qdisc add dev right root handle 1: htb");
    host.ok("class add dev right parent 1: classid 1:1 htb rate 1mbit");
    let complaint = host.fails("qdisc add dev right parent 1:1 netem rate 1mbit", 2);
    assert!(complaint.contains("the class has one"), "{complaint}");
}

#[test]
fn invalid_values_are_refused_with_valid_ones() {
    let mut host = TwoPorts::with_queues(1);
    for (words, code, what) in [
        ("fq_codel limit -1", 1, "limit"),
        ("fq_codel flows 65537", 2, "1 to 65536"),
        ("fq_codel quantum 2000000", 2, "Invalid quantum"),
        ("fq_codel ce_threshold_selector 1", 1, "0x1/0x3"),
        ("fq_codel ce_threshold_selector 256/1", 1, "0x1/0x3"),
        ("fq_codel target 5hours", 1, "target"),
        ("fq_codel lim 5", 1, "Usage: ... fq_codel"),
        ("fq_codel help", 1, "drop_batch SIZE"),
        ("fq_codel hosts both", 1, "illegal value for \"hosts\": \"both\": src, dst, or none."),
        ("fq_codel hosts none nat", 1, "write \"hosts src nat\" or \"hosts dst nat\""),
        ("fq_codel nat", 1, "What is \"nat\"?"),
        ("fq_codel limit", 255, "limit 10240"),
        ("codel limit x", 1, "limit"),
        ("codel flows 5", 1, "What is \"flows\"?"),
        ("codel help", 1, "Usage: ... codel"),
        ("sfq divisor 3", 2, "power of two"),
        ("sfq limit 1", 1, "must be > 1"),
        ("sfq limit 0", 1, "must be > 1"),
        ("sfq redflowlimit 100000", 1, "fq_codel"),
        ("sfq perturb 3000000", 2, "2147484"),
        ("sfq perturb -10", 2, "2147484"),
        ("sfq perturb x", 1, "2147484"),
        ("sfq limit 2 depth 1 flows 1", 2, "invalid limit"),
        ("sfq limit 2 depth 1 divisor 1", 2, "invalid limit"),
        ("sfq help", 1, "Usage: ... sfq"),
        ("netem delay", 255, "delay 20ms"),
        ("netem delay 1hour", 1, "delay"),
        ("netem loss 101%", 1, "a percentage"),
        ("netem loss 1% loss 2%", 1, "duplicate loss argument"),
        ("netem loss sometimes", 1, "random, state or gemodel"),
        ("netem duplicate 101%", 1, "a percentage"),
        ("netem reorder 25%", 1, "reordering not possible without specifying some delay"),
        ("netem gap 5", 1, "gap specified without reorder probability"),
        ("netem ecn", 1, "ecn requested without loss model"),
        ("netem distribution normal", 1, "distribution specified but no latency"),
        ("netem delay 1ms 1ms distribution flat", 1, "paretonormal"),
        ("netem rate 10%", 1, "10%"),
        ("netem rate 1mbit 0 48 -48", 1, "-CELLSIZE"),
        ("netem slot 2ms 1ms", 1, "not below the shortest"),
        ("netem slot distribution normal 1ms 0", 1, "slot distribution"),
        ("netem speed 5", 1, "What is \"speed\"?"),
        ("netem help", 1, "gemodel"),
    ] {
        let complaint = host.fails(&format!("qdisc add dev right root {words}"), code);
        assert!(complaint.contains(what), "{words}: {complaint}");
    }
    host.ok("qdisc add dev right handle 1: root fq_codel");
    let complaint = host.fails("qdisc change dev right handle 1: root fq_codel flows 5", 2);
    assert!(complaint.contains("delete it"), "{complaint}");
    host.ok("qdisc change dev right handle 1: root fq_codel flows 1024");
}

#[test]
fn a_limit_that_the_path_does_not_fit_is_warned_of() {
    let mut host = TwoPorts::with_queues(1);
    let outcome = host.tc("qdisc add dev right root netem delay 100ms rate 1gbit");
    assert_eq!(outcome.code, 0);
    assert!(outcome.stderr.contains("Give limit 8257"), "{}", outcome.stderr);
    assert_eq!(
        host.tc("qdisc replace dev right root netem delay 100ms rate 1gbit limit 8257").stderr,
        ""
    );
}

fn with_figures(host: &mut TwoPorts, detail: Detail) -> (String, serde_json::Value) {
    host.stats = vec![NodeStats {
        parent: Parent::Root,
        handle: Handle::new(1),
        stats: Stats {
            sent_bytes: 3028,
            sent_packets: 2,
            drops: 5,
            backlog: Backlog { packets: 1, bytes: Bytes(1514) },
            detail: Some(detail),
            ..Stats::default()
        },
    }];
    let text = host.ok("-s qdisc show dev right");
    let json = serde_json::from_str::<serde_json::Value>(&host.ok("-s -j qdisc show dev right"));
    (text.split_once('\n').unwrap().1.to_owned(), json.unwrap()[0].clone())
}

const COMMON: &str =
    " Sent 3028 bytes 2 pkt (dropped 5, overlimits 0 requeues 0) \n backlog 1514b 1p requeues 0\n";

#[test]
fn the_figures_of_an_fq_codel_are_tcs_to_the_byte() {
    let mut host = TwoPorts::with_queues(1);
    host.ok("qdisc add dev right root handle 1: fq_codel");
    let signals = codel::Signals { ecn_mark: 4, ce_mark: 0, max_packet: 1514 };
    let few = fq_codel::Figures {
        signals,
        drop_overlimit: 3,
        new_flow_count: 73,
        new_flows_len: 1,
        old_flows_len: 3,
        ..fq_codel::Figures::default()
    };
    let (text, _) = with_figures(&mut host, Detail::FqCodel(Box::new(few)));
    let expected = "  maxpacket 1514 drop_overlimit 3 new_flow_count 73 ecn_mark 4\n  new_flows_len 1 old_flows_len 3\n";
    assert_eq!(text, format!("{COMMON}{expected}"));
    let all = fq_codel::Figures {
        signals: codel::Signals { ce_mark: 9, ..signals },
        memory_used: 2048,
        drop_overmemory: 2,
        ..few
    };
    let (text, json) = with_figures(&mut host, Detail::FqCodel(Box::new(all)));
    assert!(text.contains("ecn_mark 4 ce_mark 9 memory_used 2048 drop_overmemory 2\n"), "{text}");
    assert_eq!((&json["ce_mark"], &json["new_flows_len"]), (&9.into(), &1.into()));
}

#[test]
fn the_figures_of_a_codel_are_tcs_to_the_byte() {
    let mut host = TwoPorts::with_queues(1);
    host.ok("qdisc add dev right root handle 1: codel");
    let state = codel::State {
        count: 5,
        last_count: 2,
        sojourn: Nanos::from_micros(6200),
        is_dropping: false,
        drop_next_nanos: -3_000_000,
    };
    let figures = codel::Figures { state, ..codel::Figures::default() };
    let (text, json) = with_figures(&mut host, Detail::Codel(Box::new(figures)));
    let expected = "  count 5 lastcount 2 ldelay 6.2ms drop_next -3ms\n  maxpacket 0 ecn_mark 0 drop_overlimit 0\n";
    assert_eq!(text, format!("{COMMON}{expected}"));
    assert_eq!((&json["drop_next"], &json["ldelay"]), (&(-2999).into(), &6199.into()));
    let figures = codel::Figures {
        state: codel::State { is_dropping: true, drop_next_nanos: 44_000, ..state },
        signals: codel::Signals { ecn_mark: 1, ce_mark: 2, max_packet: 60 },
        drop_overlimit: 7,
    };
    let (text, json) = with_figures(&mut host, Detail::Codel(Box::new(figures)));
    assert!(text.contains("ldelay 6.2ms dropping drop_next 43us\n"), "{text}");
    assert!(text.contains("  maxpacket 60 ecn_mark 1 drop_overlimit 7 ce_mark 2\n"), "{text}");
    assert_eq!(json["dropping"], true);
}

fn percent() -> impl Strategy<Value = String> {
    (0u32..=1000).prop_map(|tenths| format!("{}%", f64::from(tenths) / 10.0))
}

fn netem_words() -> impl Strategy<Value = String> {
    let loss = prop_oneof![
        Just(String::new()),
        (percent(), percent()).prop_map(|(loss, alike)| format!(" loss random {loss} {alike}")),
        prop::array::uniform5(percent()).prop_map(|p| format!(" loss state {}", p.join(" "))),
        prop::array::uniform4(percent()).prop_map(|p| format!(" loss gemodel {}", p.join(" "))),
    ];
    let delay = (any::<u32>(), any::<u32>(), percent())
        .prop_map(|(delay, jitter, alike)| format!(" delay {delay}us {jitter}us {alike}"));
    let rate = (1u64..1 << 40, -100i32..100, 0u32..100, 0i32..50).prop_map(
        |(rate, overhead, cell, cells)| format!(" rate {rate}bit {overhead} {cell} {cells}"),
    );
    let slot = (any::<u32>(), any::<u32>(), any::<u16>()).prop_map(|(from, more, packets)| {
        format!(" slot {from}ns {}ns packets {packets}", u64::from(from).max(u64::from(more)))
    });
    let maybe =
        |words: BoxedStrategy<String>| prop::option::of(words).prop_map(Option::unwrap_or_default);
    let corrupt = (percent(), percent()).prop_map(|(p, alike)| format!(" corrupt {p} {alike}"));
    (
        loss,
        maybe(delay.boxed()),
        maybe(rate.boxed()),
        maybe(slot.boxed()),
        maybe(corrupt.boxed()),
        0u64..3,
    )
        .prop_map(|(a, b, c, d, e, seed)| format!("{a}{b}{c}{d}{e} seed {seed}"))
}

fn fq_codel_words() -> impl Strategy<Value = String> {
    (any::<u32>(), 0u32..=65_536, any::<u32>(), any::<u32>(), 0u32..=1 << 20, any::<[u8; 2]>(), any::<bool>(), 0usize..5).prop_map(
        |(limit, flows, target, threshold, quantum, [value, mask], ecn, hosts)| {
            let hosts = ["none", "src", "dst", "src nat", "dst nat"][hosts];
            let ecn = if ecn { "ecn" } else { "noecn" };
            format!("limit {limit} flows {flows} target {target}us interval {limit}us ce_threshold {threshold}us ce_threshold_selector {value}/{mask} quantum {quantum} memory_limit {threshold} drop_batch {limit} hosts {hosts} {ecn}")
        },
    )
}

proptest! {
    #[test]
    fn saved_commands_load_the_same(netem in netem_words(), fq_codel in fq_codel_words()) {
        for words in [format!("netem{netem}"), format!("fq_codel {fq_codel}")] {
            let mut host = TwoPorts::with_queues(2);
            host.tc(&format!("qdisc replace dev right root handle 1: {words}"));
            let text = save(&host.policy);
            prop_assert_eq!(&load(&text, "file", &host).unwrap(), &host.policy, "{}", text);
            if let Some(root) = host.policy.port("right").root() {
                prop_assert!(matches!(root.kind, Kind::Netem(_) | Kind::FqCodel(_)));
            }
        }
    }
}

#[test]
fn a_red_is_shown_as_tc_shows_it() {
    for (words, expected) in [
        ("limit 100000 avpkt 1000", "limit 100000b min 8333b max 25000b "),
        ("limit 1M avpkt 1500 min 100K max 200K", "limit 1Mb min 100Kb max 200Kb "),
        (
            "limit 1M avpkt 1500 min 100K max 200K ecn adaptive",
            "limit 1Mb min 100Kb max 200Kb ecn adaptive ",
        ),
        (
            "limit 1M avpkt 1500 min 100K max 200K nodrop harddrop ecn",
            "limit 1Mb min 100Kb max 200Kb ecn harddrop nodrop ",
        ),
    ] {
        assert_eq!(shown("red", words), expected, "{words}");
    }
    let mut host = TwoPorts::with_queues(1);
    host.ok("qdisc add dev right handle 1: root red limit 400000 min 30000 max 90000 avpkt 1000 burst 55 bandwidth 10mbit");
    let details = host.ok("-d qdisc show dev right");
    assert!(details.contains("max 90000b ewma 5 probability 0.02 Scell_log "), "{details}");
    assert_eq!(host.ok("class show dev right"), "class red 1:1 parent 1: \n");
    let invisible = host.ok("qdisc show dev right invisible");
    assert!(invisible.contains("qdisc bfifo 0: parent 1:1 limit 400000b"), "{invisible}");
    let options = json("red", "limit 100000 avpkt 1000 ecn");
    let expected = serde_json::json!({
        "limit": 100000, "min": 8333, "max": 25000, "ecn": true, "harddrop": false,
        "adaptive": false, "nodrop": false,
    });
    assert_eq!(options, expected);
}

#[test]
fn what_a_red_has_done_is_shown_as_tc_shows_it() {
    let mut host = TwoPorts::with_queues(1);
    host.ok("qdisc add dev right handle 1: root red limit 100000 avpkt 1000");
    let figures = narrows_qdisc::red::Figures { marked: 1, early: 2, pdrop: 3 };
    let detail = Some(Detail::Red(Box::new(figures)));
    let stats = Stats { detail, ..Stats::default() };
    host.stats = vec![NodeStats { parent: Parent::Root, handle: Handle::new(1), stats }];
    let text = host.ok("-s qdisc show dev right");
    assert!(text.ends_with("requeues 0\n  marked 1 early 2 pdrop 3 other 0\n"), "{text:?}");
    let json: serde_json::Value =
        serde_json::from_str(&host.ok("-s -j qdisc show dev right")).unwrap();
    let counts = ["marked", "early", "pdrop", "other"].map(|key| json[0][key].as_u64());
    assert_eq!(counts, [Some(1), Some(2), Some(3), Some(0)]);
}

#[test]
fn a_red_that_fits_no_average_is_refused_with_what_to_give() {
    let mut host = TwoPorts::with_queues(1);
    for (words, code, why) in [
        ("", 1, "limit, avpkt"),
        ("limit 100k", 1, "limit, avpkt"),
        ("limit 100k avpkt 1000 min 50k max 20k", 1, "max is below min"),
        ("limit 400000 min 30000 max 90000 avpkt 1000 burst 3", 1, "give burst 31 or more"),
        ("limit 100k avpkt 1000 probability 1.5", 1, "a share from 0 to 1"),
        ("limit 100k avpkt 1000 probability x", 1, "a share from 0 to 1"),
        ("limit 100k avpkt 1000 nodrop", 2, "nodrop mode is only meaningful with ECN"),
        ("limit 100k avpkt 1000 qevent mark block 10", 1, "nowhere else to go"),
        ("limit 100k avpkt 1000 color", 1, "What is \"color\"?"),
        ("limit 100k avpkt", 255, "not complete"),
    ] {
        let complaint = host.fails(&format!("qdisc add dev right root red {words}"), code);
        assert!(complaint.contains(why), "{words}: {complaint}");
    }
    for (kind, nearest) in [
        ("gred", "red"),
        ("choke", "fq_codel"),
        ("sfb", "fq_codel"),
        ("pie", "codel"),
        ("fq_pie", "fq_codel"),
        ("hhf", "fq_codel"),
        ("cbq", "htb"),
        ("qfq", "drr"),
        ("mqprio", "mq"),
        ("taprio", "tbf"),
        ("etf", "fq"),
        ("cbs", "tbf"),
        ("multiq", "mq"),
        ("plug", "netem"),
        ("skbprio", "prio"),
        ("dsmark", "prio"),
        ("atm", "linklayer atm"),
        ("teql", "one queue"),
        ("pfifo_head_drop", "codel"),
        ("dualpi2", "codel"),
    ] {
        for (words, code) in [("", 2), (" limit 100", 1)] {
            let complaint = host.fails(&format!("qdisc add dev right root {kind}{words}"), code);
            assert!(complaint.contains(kind) && complaint.contains(nearest), "{kind}: {complaint}");
        }
    }
}
