//! `fq`, word by word, and its statistics byte for byte as `tc` prints them.
//!
//! `samples/tc61_fq_*` are iproute2 6.1's output for a kernel's answer with numbers of every width.
//! It did not have bands and `offload_horizon` yet, which are checked separately.

use crate::host::TwoPorts;
use narrows_packet::Backlog;
use narrows_policy::{Handle, Kind, NodeStats, Parent};
use narrows_qdisc::fq::Figures;
use narrows_qdisc::{Detail, Stats};
use narrows_tc::{load, save};
use narrows_units::{Bytes, Nanos};
use proptest::prelude::*;

/// The output for one created without any words.
const DEFAULT: &str = "limit 10000p flow_limit 100p buckets 1024 orphan_mask 1023 bands 3 priomap \
                       1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1 weights 589824 196608 65536 quantum 3028b \
                       initial_quantum 15140b low_rate_threshold 550Kbit refill_delay 40ms \
                       timer_slack 10us horizon 10s horizon_drop offload_horizon 0us ";
const ALL: &str = "limit 5000 flow_limit 50 quantum 4096 initial_quantum 20000 nopacing defrate \
                   1mbit maxrate 10mbit buckets 4000 refill_delay 100ms orphan_mask 0xff \
                   low_rate_threshold 100kbit ce_threshold 4ms timer_slack 123456 horizon 2.5s \
                   horizon_cap";

#[track_caller]
fn shown(words: &str) -> String {
    let mut host = TwoPorts::with_queues(1);
    host.ok(&format!("qdisc add dev right handle 1: root fq {words}"));
    let text = host.ok("qdisc show dev right");
    text.strip_prefix("qdisc fq 1: root refcnt 2 ").unwrap().trim_end_matches('\n').to_owned()
}

#[test]
fn parameters_of_tc_testing_are_shown() {
    for (words, from, to) in [
        ("", "limit 10000p", "limit 10000p"),
        ("limit 3000", "limit 10000p", "limit 3000p"),
        ("flow_limit 300", "flow_limit 100p", "flow_limit 300p"),
        ("quantum 9000", "quantum 3028b init", "quantum 9000b init"),
        ("initial_quantum 900000", "initial_quantum 15140b", "initial_quantum 900000b"),
        ("maxrate 100000", "15140b", "15140b maxrate 100Kbit"),
        ("defrate 1mbit", "15140b", "15140b defrate 1Mbit"),
        ("nopacing", "1023", "1023 nopacing"),
        ("nopacing pacing", "1023", "1023"),
        ("refill_delay 100ms", "refill_delay 40ms", "refill_delay 100ms"),
        ("low_rate_threshold 0", "low_rate_threshold 550Kbit ", ""),
        ("buckets 256", "buckets 1024", "buckets 256"),
        ("buckets 0", "buckets 1024", "buckets 1024"),
        ("orphan_mask 255", "orphan_mask 1023", "orphan_mask 255"),
        ("timer_slack 100", "timer_slack 10us", "timer_slack 100ns"),
        ("ce_threshold 100us", "40ms", "40ms ce_threshold 100us"),
        ("horizon 100us", "horizon 10s", "horizon 100us"),
        ("horizon_cap", "horizon_drop", "horizon_cap"),
        ("offload_horizon 0", "0us", "0us"),
        ("weights 20000 30000 40000", "589824 196608 65536", "20000 30000 40000"),
        (
            "bands 3 priomap 0 1 2 0 1 2 0 1 2 0 1 2 0 1 2 0",
            "1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1",
            "0 1 2 0 1 2 0 1 2 0 1 2 0 1 2 0",
        ),
    ] {
        assert!(DEFAULT.contains(from));
        assert_eq!(shown(words), DEFAULT.replacen(from, to, 1), "{words}");
    }
}

#[test]
fn a_change_sets_what_it_names_and_zero_takes_a_rate_back() {
    let mut host = TwoPorts::with_queues(4);
    host.ok("qdisc add dev right root handle 1: fq maxrate 8mbit limit 7 ce_threshold 1ms");
    host.ok("qdisc change dev right root handle 1: fq flow_limit 8 ce_threshold 4294967295");
    let config = |host: &TwoPorts| match &host.policy.port("right").root().unwrap().kind {
        Kind::Fq(fq) => fq.config,
        other => panic!("{other:?}"),
    };
    let changed = config(&host);
    assert_eq!((changed.limit, changed.flow_limit, changed.ce_threshold), (7, 8, None));
    assert!(changed.max_rate.is_some());
    host.ok("qdisc change dev right root handle 1: fq maxrate 0");
    assert_eq!(config(&host).max_rate, None);
}

#[test]
fn it_stands_at_the_root_below_a_tbf_and_below_mq_and_takes_no_child() {
    let mut host = TwoPorts::with_queues(4);
    host.ok("qdisc add dev right root handle 1: mq");
    host.ok("qdisc add dev right parent 1:2 handle 2: fq");
    host.ok("qdisc add dev right parent 1:3 handle 3: tbf rate 1mbit burst 9k latency 5ms");
    host.ok("qdisc add dev right parent 3:1 handle 4: fq");
    assert_eq!(host.ok("qdisc show dev right").matches("qdisc fq").count(), 2);
    let complaint = host.fails("qdisc add dev right parent 2:1 pfifo", 2);
    assert!(complaint.contains("2: is a fq"), "{complaint}");
}

#[test]
fn invalid_values_are_refused_with_their_word() {
    let mut host = TwoPorts::with_queues(1);
    for (words, code, what) in [
        ("limit -1", 1, "limit"),
        ("limit 10k", 1, "10k"),
        ("flow_limit", 255, "flow_limit"),
        ("maxrate fast", 1, "maxrate"),
        ("timer_slack 5s", 1, "timer_slack"),
        ("horizon 2h", 1, "horizon"),
        ("bands 4 priomap 1", 1, "3 bands"),
        ("bands 3 weights 1 2 3", 1, "priomap"),
        ("bands 3 priomap 1 2", 255, "priomap"),
        ("bands 3 priomap 1 2 3 0 0 0 0 0 0 0 0 0 0 0 0 0", 2, "priomap"),
        ("weights 20000 20000", 255, "weights"),
        ("weights 1 2 3", 2, "16384"),
        ("weights 20000 20000 20000 weights 20000 20000 20000", 1, "duplicate"),
        ("quantum 0", 2, "quantum"),
        ("buckets 1", 2, "buckets"),
        ("offload_horizon 1ms", 2, "offload_horizon"),
        ("lim 5", 1, "What is \"lim\"?"),
        ("help", 1, "Usage: fq"),
    ] {
        let complaint = host.fails(&format!("qdisc add dev right root fq {words}"), code);
        assert!(complaint.contains(what), "{words}: {complaint}");
    }
}

fn cut(text: &str, from: &str, to: &str) -> String {
    let start = text.find(from).unwrap_or_else(|| panic!("no {from} in {text}"));
    let end = start + text[start..].find(to).unwrap_or_else(|| panic!("no {to} in {text}"));
    format!("{}{}", &text[..start], &text[end..])
}

/// Without the keys that `tc` 6.1 did not have, which are the same in all samples.
fn as_of_61(format: &str, text: &str) -> String {
    let (list, blank) = if format == "-j -p" { ("[ ", " ") } else { ("[", "") };
    if format.is_empty() {
        let text = cut(text, "bands 3 priomap", "quantum");
        let text = text.replacen("offload_horizon 0us ", "", 1);
        return text.replacen(" band0_pkts 0 band1_pkts 5 band2_pkts 0", "", 1);
    }
    let priomap = format!("\"priomap \":{blank}{list}1,2,2,2,1,2,0,0,1,1,1,1,1,1,1,1{blank}]");
    assert!(text.contains(&priomap), "{text}");
    let text = cut(text, "\"bands\"", "\"quantum\"");
    let start = text.find(',').map(|_| text.find(",\"offload_horizon\"")).unwrap_or_default();
    let text = match start {
        Some(_) => cut(&text, ",\"offload_horizon\"", "}"),
        None => cut(&text, ",\n            \"offload_horizon\"", "\n        },"),
    };
    let next = if text.contains("next_packet_delay") { "\"next_packet" } else { "\"gc\"" };
    cut(&text, "\"band0_pkts\"", next)
}

#[test]
fn figures_are_printed_as_tc_does() {
    let band_packets = [0, 5, 0];
    let none = Figures { band_packets, ..Figures::default() };
    let many = Figures {
        flows: 34,
        inactive_flows: 17,
        throttled_flows: 3,
        next_departure: Some(Nanos(1_234_567)),
        latency: Nanos(11_234),
        ce_marks: 47_622,
        horizon_drops: 5,
        horizon_caps: 6,
        gc: 9,
        highprio: 2,
        throttled: 77,
        flow_limit_drops: 2176,
        ..none
    };
    let some = Figures {
        flows: 1,
        next_departure: Some(Nanos(999)),
        latency: Nanos(1_000_000),
        horizon_caps: 1,
        throttled: 1 << 40,
        ..none
    };
    let some_words =
        "low_rate_threshold 0 timer_slack 999 quantum 18028 ce_threshold 1us horizon 1us";
    for (name, words, figures, sent, queued, drops, requeues) in [
        ("default", "", none, (0, 0), (0, 0), 0, 0),
        ("all", ALL, many, (72_149_092, 48_062), (1280, 1_937_920), 1, 2183),
        ("some", some_words, some, (1, 1), (1, 60), 0, 0),
    ] {
        let mut host = TwoPorts::with_queues(1);
        host.ok(&format!("qdisc add dev right root handle 1: fq {words}"));
        let stats = Stats {
            sent_bytes: sent.0,
            sent_packets: sent.1,
            drops,
            requeues,
            backlog: Backlog { packets: queued.0, bytes: Bytes(queued.1) },
            detail: Some(Detail::Fq(Box::new(figures))),
            ..Stats::default()
        };
        host.stats.push(NodeStats { parent: Parent::Root, handle: Handle::new(1), stats });
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lines/samples");
        for (format, extension) in [("", "txt"), ("-j", "json"), ("-j -p", "pretty.json")] {
            let printed = host.ok(&format!("-s {format} qdisc show dev right"));
            let path = format!("{folder}/tc61_fq_{name}.{extension}");
            let sample = std::fs::read_to_string(&path).expect("the sample is there");
            assert_eq!(as_of_61(format, &printed), sample, "{name}.{extension}");
        }
    }
}

#[test]
fn drops_of_bands_stand_in_the_last_line() {
    let mut host = TwoPorts::with_queues(1);
    host.ok("qdisc add dev right root handle 1: fq");
    let figures = Figures { band_drops: [1, 0, 3], ..Figures::default() };
    let stats = Stats { detail: Some(Detail::Fq(Box::new(figures))), ..Stats::default() };
    host.stats.push(NodeStats { parent: Parent::Root, handle: Handle::new(1), stats });
    let text = host.ok("-s qdisc show dev right");
    assert_eq!(text.lines().last(), Some(" band0_drops 1 band2_drops 3"));
}

/// Words of `fq` with arbitrary values, in any order.
fn words() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        prop::sample::select(vec!["pacing", "nopacing", "horizon_cap", "horizon_drop"])
            .prop_map(str::to_owned),
        any::<u32>().prop_map(|limit| format!("limit {limit}")),
        any::<u32>().prop_map(|limit| format!("flow_limit {limit:#x}")),
        (1u32..=1 << 20).prop_map(|quantum| format!("quantum {quantum}")),
        any::<u32>().prop_map(|quantum| format!("initial_quantum {}", quantum >> 1)),
        any::<u64>().prop_map(|rate| format!("maxrate {}bit", rate >> 4)),
        any::<u64>().prop_map(|rate| format!("defrate {}bit", rate >> 4)),
        any::<u64>().prop_map(|rate| format!("low_rate_threshold {}bit", rate >> 4)),
        (2u32..=256 << 10).prop_map(|buckets| format!("buckets {buckets}")),
        any::<u32>().prop_map(|mask| format!("orphan_mask {mask}")),
        any::<u32>().prop_map(|micros| format!("refill_delay {micros}")),
        any::<u32>().prop_map(|micros| format!("ce_threshold {micros}")),
        any::<u32>().prop_map(|micros| format!("horizon {micros}us")),
        any::<u32>().prop_map(|nanos| format!("timer_slack {nanos}")),
        prop::array::uniform3(16_384u32..).prop_map(|[a, b, c]| format!("weights {a} {b} {c}")),
        prop::collection::vec(0u8..3, 16).prop_map(|map| {
            let map: Vec<_> = map.iter().map(u8::to_string).collect();
            format!("bands 3 priomap {}", map.join(" "))
        }),
    ];
    prop::collection::vec(word, 0..8).prop_map(|words| words.join(" "))
}

proptest! {
    #[test]
    fn a_saved_fq_loads_the_same(first in words(), second in words()) {
        let mut host = TwoPorts::with_queues(2);
        for words in [first, second] {
            host.tc(&format!("qdisc replace dev right root fq {words}"));
        }
        let text = save(&host.policy);
        let loaded = load(&text, "file", &host).unwrap();
        prop_assert_eq!(&loaded, &host.policy, "{}", text);
        prop_assert_eq!(save(&loaded), text);
    }
}
