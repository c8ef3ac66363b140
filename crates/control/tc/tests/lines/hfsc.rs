//! `hfsc`, its classes and its filters.
//!
//! The text of the tree and of its statistics is, byte for byte, what iproute2 6.1 prints for a
//! kernel's answer with these numbers.

use crate::host::TwoPorts;
use narrows_policy::{Handle, NodeStats, Parent, Plan};
use narrows_qdisc::hfsc::{Curve, Service};
use narrows_qdisc::htb::{Figures, LeafFigures};
use narrows_qdisc::{Detail, Stats};
use narrows_tc::{load, save};
use narrows_units::{Bytes, Nanos, Rate};
use proptest::prelude::*;

/// A port of four queues with a root class, two leaves below it and a filter.
fn tree() -> TwoPorts {
    let mut host = TwoPorts::with_queues(4);
    for line in [
        "qdisc add dev right root handle 1: hfsc default 20",
        "class add dev right parent 1: classid 1:1 hfsc sc rate 50mbit ul rate 50mbit",
        "class add dev right parent 1:1 classid 1:10 hfsc sc umax 1500b dmax 10ms rate 5mbit",
        "class add dev right parent 1:1 classid 1:20 hfsc ls m1 20mbit d 10ms m2 10mbit",
        "filter add dev right parent 1: protocol ip pref 1 flower dst_ip 10.0.0.0/8 classid 1:10",
    ] {
        host.ok(line);
    }
    host
}

/// The classes as `tc` shows them.
const CLASSES: &str = "class hfsc 1: root \n\
    class hfsc 1:1 parent 1: sc m1 0bit d 0us m2 50Mbit ul m1 0bit d 0us m2 50Mbit \n\
    class hfsc 1:10 parent 1:1 sc m1 0bit d 7.6ms m2 5Mbit \n\
    class hfsc 1:20 parent 1:1 ls m1 20Mbit d 10ms m2 10Mbit \n";

#[test]
fn a_tree_is_shown_as_tc_shows_it() {
    let mut host = tree();
    let shown = "qdisc hfsc 1: root refcnt 5 default 20 \n";
    assert_eq!(host.ok("qdisc show dev right"), shown);
    assert_eq!(host.ok("class show dev right"), CLASSES);
    assert_eq!(host.ok("-d class show dev right"), CLASSES);
    host.ok("qdisc add dev right parent 1:20 handle 20: pfifo limit 5");
    let leaf = "class hfsc 1:20 parent 1:1 leaf 20: ls m1 20Mbit d 10ms m2 10Mbit \n";
    assert_eq!(host.ok("class show dev right classid 1:20"), leaf);
    assert_eq!(
        host.ok("-g class show dev right"),
        "+---(1:) hfsc \n     +---(1:1) hfsc sc m1 0bit d 0us m2 50Mbit ul m1 0bit d 0us m2 50Mbit \n          \
         +---(1:10) hfsc sc m1 0bit d 7.6ms m2 5Mbit \n          \
         +---(1:20) hfsc ls m1 20Mbit d 10ms m2 10Mbit \n"
    );
    // Without a default there is no word for it.
    host.ok("qdisc change dev right root handle 1: hfsc");
    assert_eq!(host.ok("qdisc show dev right root"), "qdisc hfsc 1: root refcnt 5 \n");
}

#[test]
fn json_has_curves_in_bytes_per_second_and_microseconds() {
    let mut host = tree();
    let json = host.ok("-j class show dev right");
    let parsed: serde_json::Value = serde_json::from_str(&json).expect(&json);
    let (sc, ul) = (&parsed[2]["sc"], &parsed[1]["ul"]);
    assert_eq!(*sc, serde_json::json!({"m1": 0, "d": 7600, "m2": 625_000}));
    assert_eq!(*ul, serde_json::json!({"m1": 0, "d": 0, "m2": 6_250_000}));
    assert_eq!(parsed[1]["parent"], "1:");
    assert_eq!(parsed[0]["root"], true);
    let json = host.ok("-j qdisc show dev right");
    let parsed: serde_json::Value = serde_json::from_str(&json).expect(&json);
    assert_eq!(parsed[0]["options"], serde_json::json!({"default": "0x20"}));
}

#[test]
fn a_class_has_the_figures_of_those_below_it() {
    let mut host = tree();
    let mut figures = Figures::default();
    for (class, work) in [(0x10, 600), (0x20, 400)] {
        let mut leaf = LeafFigures { sent_bytes: work, sent_packets: 1, ..LeafFigures::default() };
        let service = |period, work, real_time| {
            let [work, real_time] = [work, real_time].map(Bytes);
            Service { period, work, real_time }
        };
        leaf.service =
            vec![service(3, work, if class == 0x10 { 64 } else { 0 }), service(1, 1000, 0)];
        figures.leaves.insert(class, leaf);
    }
    let detail = Some(Detail::Htb(Box::new(figures)));
    let stats = Stats { detail, ..Stats::default() };
    host.stats.push(NodeStats { parent: Parent::Root, handle: Handle::new(1), stats });
    let all = host.ok("-s class show dev right");
    let of = |id: &str| all.split("class hfsc ").find(|it| it.starts_with(id)).unwrap();
    let shown = |id: &str| of(id).split_once('\n').unwrap().1.to_owned();
    let sent = |bytes, packets, of_kind: &str| {
        format!(
            " Sent {bytes} bytes {packets} pkt (dropped 0, overlimits 0 requeues 0) \n \
             backlog 0b 0p requeues 0\n{of_kind} \n\n"
        )
    };
    assert_eq!(shown("1: root"), sent(1000, 2, " period 0 level 2"));
    assert_eq!(shown("1:1 "), sent(1000, 2, " period 1 work 1000 bytes level 1"));
    let leaf = " period 3 work 600 bytes rtwork 64 bytes level 0";
    assert_eq!(shown("1:10 "), sent(600, 1, leaf));
    assert_eq!(shown("1:20 "), sent(400, 1, " period 3 work 400 bytes level 0"));
    let json = host.ok("-s -j class show dev right classid 1:10");
    let parsed: serde_json::Value = serde_json::from_str(&json).expect(&json);
    for (key, value) in [("period", 3), ("work", 600), ("rtwork", 64), ("level", 0), ("bytes", 600)]
    {
        assert_eq!(parsed[0]["stats"][key], value, "{key}: {json}");
    }
}

/// The curve of a class that is added with these words.
#[track_caller]
fn curve(words: &str) -> Curve {
    let mut host = tree();
    let line = format!("class add dev right parent 1:1 classid 1:30 hfsc ls {words}");
    let outcome = host.tc(&line);
    assert_eq!(outcome.code, 0, "{line}: {}", outcome.stderr);
    let plan = Plan::of(host.policy.port("right"), 4).unwrap();
    let class = plan.classes.values().next().unwrap().get(&0x30).unwrap().class;
    class.hfsc().unwrap().link_share.unwrap()
}

#[test]
fn a_curve_has_two_forms_and_words_that_can_be_abbreviated() {
    let of = |m1, micros, m2| {
        let [m1, m2] = [m1, m2].map(Rate::from_bits_per_sec);
        Curve { m1, d: Nanos::from_micros(micros), m2 }
    };
    for (words, expected) in [
        ("m2 10mbit", of(0, 0, 10_000_000)),
        ("d 10ms m2 10mbit", of(0, 10_000, 10_000_000)),
        ("m1 20mbit d 10ms m2 10mbit", of(20_000_000, 10_000, 10_000_000)),
        // As in tc, the bend may be missing.
        ("m1 20mbit m2 10mbit", of(20_000_000, 0, 10_000_000)),
        ("m 20mbit d 10ms m2 10mbit", of(20_000_000, 10_000, 10_000_000)),
        ("m1 20mbit d 10ms m2 0", of(20_000_000, 10_000, 0)),
        ("rate 10mbit", of(0, 0, 10_000_000)),
        ("r 10mbit", of(0, 0, 10_000_000)),
        // What d begins is found in the second form, too.
        ("d 10ms r 10mbit", of(0, 10_000, 10_000_000)),
        ("u 1540 d 5ms r 10000", of(2_464_000, 5_000, 10_000)),
        ("umax 1500b dmax 53ms rate 400kbit", of(0, 23_000, 400_000)),
        ("umax 1500 dmax 10ms rate 1200kbit", of(0, 0, 1_200_000)),
        ("umax 1500 dmax 7ms rate 1200kbit", of(1_714_288, 7_000, 1_200_000)),
        // tc computes this in 32 bits.
        ("umax 10000 dmax 1s rate 100kbit", of(0, 200_000, 100_000)),
        ("umax 1mb dmax 1s rate 0", of(8_388_608, 1_000_000, 0)),
        ("m2 34359738360bit", of(0, 0, 34_359_738_360)),
    ] {
        assert_eq!(curve(words), expected, "{words}");
    }
}

#[test]
fn what_tc_refuses_is_refused_with_its_words() {
    let mut host = tree();
    let usage = "Usage: ... hfsc [ [ rt SC ] [ ls SC ] | [ sc SC ] ] [ ul SC ]";
    for (words, code, said) in [
        ("", 1, "HFSC: no parameters given\n"),
        ("", 1, usage),
        ("ul rate 1mbit", 1, "HFSC: Upper-limit Service Curve without Link-Share Service Curve\n"),
        ("rt rate 1mbit ul rate 1mbit", 1, "without Link-Share Service Curve\n"),
        ("rt m1 0 d 10ms m2 0", 1, "HFSC: Service Curve has two zero slopes\nHFSC: Illegal \"rt\""),
        // tc itself ends with a floating point exception.
        ("rt rate 0", 1, "HFSC: Service Curve has two zero slopes\nHFSC: Illegal \"rt\""),
        ("rt m1 5mbit rate 1mbit", 1, "HFSC: Illegal \"rt\""),
        ("sc x", 1, "HFSC: Illegal \"sc\""),
        ("ul umax 5k rate 1mbit", 1, "HFSC: umax given but dmax is zero.\nHFSC: Illegal \"ul\""),
        (
            "ls rate 100gbit",
            1,
            "HFSC: Illegal \"rate\": \"100gbit\": a slope is at most 34359738360bit",
        ),
        ("ls rate 10%", 1, "HFSC: Illegal \"rate\": \"10%\": a share of the device's speed"),
        ("ls m1 x d 1 m2 3", 1, "HFSC: Illegal \"m1\": \"x\""),
        ("ls d 5000s m2 3", 1, "HFSC: Illegal \"d\": \"5000s\": a time"),
        ("ls umax 5gb dmax 1 rate 3", 1, "HFSC: Illegal \"umax\": \"5gb\": a size"),
        ("ls umax 1mb dmax 1us rate 3", 1, "HFSC: Illegal \"umax\""),
        ("rt m2 1mbit m2 2mbit", 1, "HFSC: What is \"m2\" ?\n"),
        ("x", 1, "HFSC: What is \"x\" ?\n"),
        ("help", 1, usage),
        ("sc", 255, "Command line is not complete"),
        ("sc m1 1mbit d 10ms", 255, "Command line is not complete"),
        ("sc rate", 255, "Command line is not complete"),
    ] {
        let line = format!("class add dev right parent 1:1 classid 1:30 hfsc {words}");
        let complaint = host.fails(&line, code);
        assert!(complaint.contains(said), "{words}: {complaint}");
    }
    for (words, code, said) in [
        ("x", 1, "HFSC: What is \"x\" ?\nUsage: ... hfsc [ default CLASSID ]"),
        ("help", 1, "Usage: ... hfsc [ default CLASSID ]"),
        ("default 12345", 1, "HFSC: Illegal \"default\""),
        ("default 1 def 2", 1, "HFSC: Double \"default\""),
        ("default", 255, "Command line is not complete"),
    ] {
        let complaint = host.fails(&format!("qdisc add dev left root hfsc {words}"), code);
        assert!(complaint.contains(said), "{words}: {complaint}");
    }
}

#[test]
fn what_the_kernel_refuses_is_refused_with_a_reason() {
    let mut host = tree();
    for (line, why) in [
        ("class add dev right parent 1:7 classid 1:30 hfsc sc rate 1mbit", "no class 1:7"),
        ("class add dev right parent 1:1 classid 1:10 hfsc sc rate 1mbit", "1:10 is there already"),
        ("class change dev right classid 1:30 hfsc sc rate 1mbit", "no class 1:30"),
        ("class change dev right parent 1: classid 1:10 hfsc sc rate 1mbit", "1:10 is below 1:1"),
        ("class add dev right parent 1:1 hfsc sc rate 1mbit", "classid ID"),
        ("class add dev right parent 1:1 classid 1:10000 hfsc sc rate 1mbit", "1:1 to 1:ffff"),
        ("class add dev right parent 1:1 classid 1:30 htb rate 1mbit", "hfsc's and not htb's"),
        ("class del dev right classid 1:1", "HFSC class in use"),
        ("class del dev right classid 1:10", "HFSC class in use"),
        ("qdisc add dev right parent 1:1 pfifo", "1:1 has classes below it"),
        ("qdisc add dev right parent 1:fff2 sfq limit 4", "no class 1:fff2"),
        ("qdisc add dev right parent 1:10 tbf rate 1mbit burst 5k limit 5k", "give it an ul"),
        ("qdisc add dev right parent 1:10 handle 2: hfsc", "give it an ul"),
        ("qdisc add dev right parent 1:10 htb", "below a class"),
        ("filter add dev right parent 1:1 protocol ip pref 1 matchall classid 1:1", "one below it"),
    ] {
        let complaint = host.fails(line, 2);
        assert!(complaint.contains(why), "{line}: {complaint}");
    }
}

#[test]
fn a_class_with_rt_alone_becomes_one_with_sc_when_it_gets_a_class_below() {
    let mut host = TwoPorts::with_queues(4);
    host.ok("qdisc add dev right root handle 1: hfsc default 1");
    let outcome = host.tc("class add dev right parent 1: classid 1:1 hfsc rt rate 8");
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    host.ok("qdisc add dev right parent 1:1 handle 10: pfifo limit 5");
    let add = "class add dev right parent 1:1 classid 1:2 hfsc rt rate 8";
    let outcome = host.tc(add);
    assert_eq!(outcome.code, 0);
    let forced = "Warning: Forced curve change on parent 'rt' to 'sc'.";
    assert!(outcome.stderr.starts_with(forced), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("the default class 1:1 has classes below it"));
    let shown = host.ok("class show dev right");
    let both = "class hfsc 1:1 parent 1: sc m1 0bit d 0us m2 8bit \n\
                class hfsc 1:2 parent 1:1 rt m1 0bit d 0us m2 8bit \n";
    assert!(shown.ends_with(both), "{shown}");
    assert!(!host.ok("qdisc show dev right").contains("pfifo 10:"), "its queue is gone");
    let outcome = host.tc("class add dev right parent :1 classid 1:3 hfsc rt rate 8");
    assert!(!outcome.stderr.contains("Forced"), "{}", outcome.stderr);
    // A change merges.
    host.ok("qdisc change dev right root handle 1: hfsc default 2");
    host.ok("class change dev right classid 1:2 hfsc ls rate 8mbit ul rate 9mbit");
    let merged = "class hfsc 1:2 parent 1:1 rt m1 0bit d 0us m2 8bit ls m1 0bit d 0us m2 8Mbit \
                  ul m1 0bit d 0us m2 9Mbit \n";
    assert_eq!(host.ok("class show dev right classid 1:2"), merged);
}

#[test]
fn the_kernels_own_cases_are_shown() {
    // As in qdiscs/hfsc.json and infra/qdiscs.json of the kernel's tests for tc.
    for (words, shown) in [
        ("sc rate 20000 ul rate 10000", "sc m1 0bit d 0us m2 20Kbit ul m1 0bit d 0us m2 10Kbit"),
        (
            "sc umax 1540 dmax 5ms rate 10000 ul rate 10000",
            "sc m1 2464Kbit d 5ms m2 10Kbit ul m1 0bit d 0us m2 10Kbit",
        ),
        ("rt rate 20000 ls rate 10000", "rt m1 0bit d 0us m2 20Kbit ls m1 0bit d 0us m2 10Kbit"),
        (
            "rt umax 1540 dmax 5ms rate 10000 ls rate 10000",
            "rt m1 2464Kbit d 5ms m2 10Kbit ls m1 0bit d 0us m2 10Kbit",
        ),
        ("rt m1 32gbit d 1ms m2 0bit ls m1 32gbit d 1ms m2 0bit", "sc m1 32Gbit d 1ms m2 0bit"),
        ("rt m1 8 d 1 m2 0", "rt m1 8bit d 1us m2 0bit"),
        ("ls m2 10Mbit", "ls m1 0bit d 0us m2 10Mbit"),
    ] {
        let mut host = TwoPorts::with_queues(1);
        host.ok("qdisc add dev right handle 1: root hfsc def 11");
        let line = format!("class replace dev right parent 1: classid 1:1 hfsc {words}");
        assert_eq!(host.tc(&line).code, 0, "{line}");
        let shown = format!("class hfsc 1:1 parent 1: {shown} \n");
        assert_eq!(host.ok("class show dev right classid 1:1"), shown);
    }
}

fn curve_words() -> impl Strategy<Value = String> {
    let slopes = (0u64..1 << 35, 0u64..1 << 32, 8u64..1 << 34)
        .prop_map(|(m1, d, m2)| format!("m1 {}bit d {d}us m2 {m2}bit", m1 % 34_000_000_000));
    let delay = (0u32..100_000, 1_000u64..1 << 32, 8u64..1 << 34)
        .prop_map(|(umax, dmax, rate)| format!("umax {umax} dmax {dmax}us rate {rate}bit"));
    prop_oneof![slopes, delay]
}

fn class_words() -> impl Strategy<Value = String> {
    let some = |name: &'static str| curve_words().prop_map(move |curve| format!("{name} {curve} "));
    let ul = prop_oneof![Just(String::new()), some("ul")];
    let with_ls = (prop_oneof![Just(String::new()), some("rt")], some("ls"), ul.clone())
        .prop_map(|(rt, ls, ul)| rt + &ls + &ul);
    prop_oneof![some("rt"), with_ls, (some("sc"), ul).prop_map(|(sc, ul)| sc + &ul)]
}

proptest! {
    #[test]
    fn a_saved_tree_loads_the_same(
        classes in prop::collection::vec((class_words(), any::<prop::sample::Index>()), 1..12),
        changes in prop::collection::vec((class_words(), any::<prop::sample::Index>()), 0..6),
        default in 0u16..20,
    ) {
        let mut host = TwoPorts::with_queues(4);
        host.ok(&format!("qdisc add dev right root handle 1: hfsc default {default:x}"));
        let mut refused = 0;
        for (number, (words, parent)) in classes.iter().enumerate() {
            let parent = parent.index(number + 1);
            let line = format!("class add dev right parent 1:{parent:x} classid 1:{:x} hfsc {words}", number + 1);
            // Too deep, or below one that was.
            refused += usize::from(host.tc(&line).code != 0);
        }
        prop_assert!(refused < classes.len());
        for (words, class) in &changes {
            let class = class.index(classes.len()) + 1;
            host.tc(&format!("class change dev right classid 1:{class:x} hfsc {words}"));
        }
        host.tc("filter add dev right parent 1: protocol ip pref 1 matchall classid 1:1");
        let text = save(&host.policy);
        let again = load(&text, "saved", &TwoPorts::with_queues(4));
        prop_assert_eq!(again.as_ref(), Ok(&host.policy), "{}", text);
    }
}
