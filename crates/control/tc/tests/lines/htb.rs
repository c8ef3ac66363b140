//! `htb`, its classes and its filters.

use crate::host::TwoPorts;
use narrows_coordination::{TreeKind, TreeStrategy};
use narrows_policy::{Handle, NodeStats, Parent, Plan};
use narrows_qdisc::htb::{Figures, LeafFigures};
use narrows_qdisc::{Detail, Stats};
use narrows_tc::{OfflineHost, load, save};
use proptest::prelude::*;

/// A port of four queues with a root class, two leaves below it and a filter.
fn tree() -> TwoPorts {
    let mut host = TwoPorts::with_queues(4);
    for line in [
        "qdisc add dev right root handle 1: htb default 20",
        "class add dev right parent 1: classid 1:1 htb rate 100mbit",
        "class add dev right parent 1:1 classid 1:10 htb rate 20mbit ceil 100mbit prio 1",
        "class add dev right parent 1:1 classid 1:20 htb rate 30mbit ceil 50mbit quantum 3000",
        "filter add dev right parent 1: protocol ip pref 1 flower dst_ip 10.0.0.0/8 classid 1:10",
    ] {
        host.ok(line);
    }
    host
}

#[test]
fn a_tree_is_shown_as_tc_shows_it() {
    let mut host = tree();
    assert_eq!(
        host.ok("qdisc show dev right"),
        "qdisc htb 1: root refcnt 5 r2q 10 default 0x20 direct_packets_stat 0 direct_qlen 1000\n"
    );
    assert_eq!(
        host.ok("class show dev right"),
        "class htb 1:1 root rate 100Mbit ceil 100Mbit burst 1600b cburst 1600b \n\
         class htb 1:10 parent 1:1 prio 1 rate 20Mbit ceil 100Mbit burst 1600b cburst 1600b \n\
         class htb 1:20 parent 1:1 prio 0 rate 30Mbit ceil 50Mbit burst 1600b cburst 1600b \n"
    );
    let detailed = host.ok("-d class show dev right classid 1:20");
    assert!(detailed.contains("quantum 3000 ") && detailed.contains("level 0 "), "{detailed}");
    assert_eq!(
        host.ok("filter show dev right"),
        "filter parent 1: protocol ip pref 1 flower chain 0 \n\
         filter parent 1: protocol ip pref 1 flower chain 0 handle 0x1 classid 1:10 \n  \
         eth_type ipv4\n  dst_ip 10.0.0.0/8\n  not_in_hw\n"
    );
    for line in ["class show dev right", "filter show dev right", "-s class show dev right"] {
        let json = host.ok(&format!("-j {line}"));
        let parsed: serde_json::Value = serde_json::from_str(&json).expect(&json);
        assert!(!parsed.as_array().unwrap().is_empty(), "{line}");
    }
}

#[test]
fn a_class_has_the_figures_of_those_below_it() {
    let mut host = tree();
    let mut figures = Figures::default();
    for (class, granted) in [(0x10, [3, 4]), (0x20, [5, 0])] {
        let sent = granted.iter().sum();
        let mut leaf = LeafFigures { sent_packets: sent, drops: 2, ..LeafFigures::default() };
        leaf.granted[..2].copy_from_slice(&granted);
        leaf.tokens = vec![[6_400, -640], [64, 128]];
        figures.leaves.insert(class, leaf);
    }
    let detail = Some(Detail::Htb(Box::new(figures)));
    let stats = Stats { detail, ..Stats::default() };
    host.stats.push(NodeStats { parent: Parent::Root, handle: Handle::new(1), stats });
    let root = host.ok("-s class show dev right classid 1:1");
    assert!(root.contains(" Sent 0 bytes 12 pkt (dropped 4,"), "{root}");
    assert!(root.contains(" lended: 4 borrowed: 0 giants: 0\n tokens: 1 ctokens: 2\n\n"), "{root}");
    let leaf = host.ok("-s class show dev right classid 1:10");
    assert!(
        leaf.contains(" lended: 3 borrowed: 4 giants: 0\n tokens: 100 ctokens: -10\n"),
        "{leaf}"
    );
}

#[test]
fn a_ceiling_below_the_rate_is_what_a_class_gets() {
    let mut host = tree();
    let line = "class add dev right parent 1:1 classid 1:30 htb rate 2mbit ceil 1mbit";
    let outcome = host.tc(line);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("the ceil of 1:30 is below its rate"), "{}", outcome.stderr);
    // It is shown as given, and the queues know no rate above the ceiling.
    let shown = host.ok("class show dev right classid 1:30");
    assert!(shown.contains("rate 2Mbit ceil 1Mbit"), "{shown}");
    let plan = narrows_policy::Plan::of(host.policy.port("right"), 4).unwrap();
    let class = &plan.classes.values().next().unwrap().get(&0x30).unwrap().class;
    let class = class.htb().unwrap();
    assert_eq!((class.rate, class.ceil.bits_per_sec()), (class.ceil, 1_000_000));
}

#[test]
fn a_default_of_none_is_a_zero_without_a_base() {
    let mut host = TwoPorts::with_queues(1);
    for (words, text) in [("", "\"default\":\"0\""), (" default 1f", "\"default\":\"0x1f\"")] {
        host.ok(&format!("qdisc replace dev right root handle 1: htb{words}"));
        let json = host.ok("-j qdisc show dev right");
        assert!(json.contains(text), "{json}");
    }
}

#[test]
fn traps_of_the_kernel_are_refused_with_a_reason() {
    let mut host = tree();
    for (line, why) in [
        ("class add dev right parent 1:7 classid 1:30 htb rate 1mbit", "no class 1:7"),
        ("class add dev right parent 1:1 classid 1:10 htb rate 1mbit", "1:10 is there already"),
        ("class change dev right classid 1:30 htb rate 1mbit", "no class 1:30"),
        ("class add dev right parent 1:1 htb rate 1mbit", "classid ID"),
        ("class add dev right parent 1:1 classid 2:30 htb rate 1mbit", "2"),
        ("class del dev right classid 1:1", "in use"),
        ("class del dev right classid 1:10", "in use"),
        ("class del dev right classid 1:99", "no class 1:99"),
        ("class add dev left parent 1: classid 1:1 htb rate 1mbit", "There is no htb"),
        ("qdisc add dev right parent 1:1 pfifo", "1:1 has classes below it"),
        ("qdisc add dev right parent 1:99 pfifo", "no class 1:99"),
        ("qdisc add dev right parent 1:10 tbf rate 1mbit burst 5k limit 5k", "give it a ceil"),
        ("qdisc add dev right parent 1:10 cake bandwidth 1mbit", "give it a ceil"),
        ("qdisc add dev right parent 1:10 htb", "below a class"),
        ("qdisc add dev right parent 1:10 mq", ""),
        ("filter add dev right pref 1 matchall classid 1:10", "Protocol mismatch"),
        ("filter add dev right protocol ip pref 1 matchall classid 1:10", "kind does not match"),
        ("filter add dev right pref 2 u32 match ip tos 5 ff classid 1:99", "class doesn't exist"),
        ("filter add dev right pref 2 matchall", "classid ID"),
        ("filter add dev left pref 2 matchall classid 1:10", "Parent Qdisc doesn't exists"),
        ("filter del dev right pref 9", "not found"),
        ("filter del dev right protocol ip", "Cannot flush"),
    ] {
        let complaint = host.fails(line, 2);
        assert!(complaint.contains(why), "{line}: {complaint}");
    }
    for (line, code) in [
        ("class add dev right parent 1:1 classid 1:30 htb", 1),
        ("class add dev right parent 1:1 classid 1:30 htb rate x", 1),
        ("class add dev right parent 1:1 classid 1:30 htb rate 1mbit rate 1mbit", 1),
        ("class add dev right parent 1:1 classid x htb rate 1mbit", 255),
        ("class add dev right parent 1:1 handle 1:30 htb rate 1mbit", 255),
        ("class add dev right parent 1:1 classid 1:30 fq_codel", 1),
        ("class add dev nope parent 1:1 classid 1:30 htb rate 1mbit", 1),
        ("filter add dev right pref 2 flower dst_ip 10.0.0.1 classid 1:10", 1),
        ("filter add dev right protocol ip pref 2 flower dst_port 80 classid 1:10", 1),
        ("filter add dev right pref 2 u32 classid 1:10", 2),
        ("filter add dev right pref 2 u32 match ip dst x classid 1:10", 1),
        ("filter add dev right pref 2 matchall action mirred egress redirect dev left", 2),
        ("filter add dev right pref 70000 matchall classid 1:10", 255),
        ("filter add dev right ingress matchall classid 1:10", 2),
    ] {
        host.fails(line, code);
    }
}

#[test]
fn unlikely_values_are_warned_about() {
    let mut host = tree();
    let outcome = host.tc("class add dev right parent 1:1 classid 1:30 htb rate 60mbit");
    assert_eq!(outcome.code, 0);
    assert!(outcome.stderr.starts_with("Warning: htb: the rates of the classes below 1:1"));
    let outcome = host.tc("class add dev right parent 1:20 classid 1:21 htb rate 1mbit");
    assert!(outcome.stderr.contains("the default class 1:20 has classes below it"));
}

#[test]
fn the_last_class_below_gone_its_parent_is_a_leaf_again() {
    let mut host = tree();
    host.ok("qdisc add dev right parent 1:20 handle 20: pfifo limit 5");
    let outcome = host.tc("class add dev right parent 1:20 classid 1:21 htb rate 1mbit");
    assert_eq!(outcome.code, 0);
    assert!(!host.ok("qdisc show dev right").contains("pfifo 20:"), "as in the kernel");
    host.ok("class del dev right classid 1:21");
    host.ok("qdisc add dev right parent 1:20 handle 20: pfifo limit 5");
}

#[test]
fn words_of_u32_are_parsed() {
    let mut host = tree();
    for (words, shown) in [
        ("ip src 10.1.2.0/24", "0a010200/ffffff00 at 12"),
        ("ip protocol 6 0xff", "00060000/00ff0000 at 8"),
        ("ip tos 0xb8 0xfc", "00b80000/00fc0000 at 0"),
        ("ip dport 80 0xffff", "00000050/0000ffff at 20"),
        ("ip sport 80 ffff", "00500000/ffff0000 at 20"),
        ("u16 0x50 0xffff at nexthdr+2", "00000050/0000ffff at nexthdr+0"),
        ("u8 0x10 0xf0 at 3", "00000010/000000f0 at 0"),
        ("ip6 dst 2001:db8::/32", "20010db8/ffffffff at 24"),
    ] {
        host.ok(&format!("filter add dev right pref 9 u32 match {words} flowid 1:10"));
        let all = host.ok("filter show dev right pref 9");
        assert!(all.contains(&format!("  match {shown}\n")), "{words}: {all}");
        host.ok("filter del dev right pref 9");
    }
}

fn class_words() -> impl Strategy<Value = String> {
    let label = prop_oneof![
        Just(String::new()),
        (1u32.., 0x100u16..).prop_map(|(weight, id)| format!(" weight {weight} borrow 1:{id:x}")),
        Just(" borrow 1:ff,:fe,1:fd".to_owned()),
        Just(" borrow none".to_owned()),
    ];
    let quantum = prop::option::of(1u32..1 << 20);
    (1u64..1 << 34, 0u64..1 << 20, 0u8..8, quantum, 0u16..100, label).prop_map(
        |(rate, more, prio, quantum, overhead, label)| {
            let ceil = rate + more;
            let quantum = quantum.map_or(String::new(), |quantum| format!(" quantum {quantum}"));
            format!(
                "rate {}bit ceil {}bit prio {prio}{quantum} overhead {overhead} burst {}{label}",
                rate.max(8),
                ceil.max(8),
                2000 + more
            )
        },
    )
}

fn filter_words() -> impl Strategy<Value = String> {
    let flower = (any::<[u8; 4]>(), 0u8..33, any::<u8>(), 0u16..60_000, 0u16..5_000).prop_map(
        |([a, b, c, d], len, tos, port, more)| {
            let last = port + more;
            format!(
                "protocol ip flower ip_proto udp ip_tos {tos:#x}/0xfc src_ip {a}.{b}.{c}.{d}/{len} \
                 dst_port {port}-{last}"
            )
        },
    );
    let words = (any::<u32>(), any::<u32>(), -3i16..30, any::<bool>()).prop_map(
        |(value, mask, place, behind)| {
            let from = if behind { "nexthdr+" } else { "" };
            format!("u32 match u32 {value:#x} {mask:#x} at {from}{}", place * 4)
        },
    );
    prop_oneof![flower, words, Just("protocol ipv6 matchall".to_owned())]
}

proptest! {
    #[test]
    fn a_saved_tree_loads_the_same(
        classes in prop::collection::vec((class_words(), any::<prop::sample::Index>()), 1..12),
        filters in prop::collection::vec(filter_words(), 0..6),
    ) {
        let mut host = TwoPorts::with_queues(4);
        host.ok("qdisc add dev right root handle 1: htb default 1 r2q 7 direct_qlen 9");
        for (number, (words, parent)) in classes.iter().enumerate() {
            let parent = parent.index(number + 1);
            let line = format!("class add dev right parent 1:{parent:x} classid 1:{:x} htb {words}", number + 1);
            prop_assert_eq!(host.tc(&line).code, 0, "{}", line);
        }
        let last = classes.len();
        for (pref, words) in (1..).zip(&filters) {
            let (protocol, rest) = match words.strip_prefix("protocol ") {
                Some(rest) => rest.split_once(' ').unwrap(),
                None => ("all", words.as_str()),
            };
            let line = format!("filter add dev right parent 1: protocol {protocol} pref {pref} {rest} classid 1:{last:x}");
            let outcome = host.tc(&line);
            prop_assert_eq!(outcome.code, 0, "{}: {}", line, outcome.stderr);
        }
        let text = save(&host.policy);
        let again = load(&text, "saved", &TwoPorts::with_queues(4));
        prop_assert_eq!(again.as_ref(), Ok(&host.policy), "{}", text);
    }
}

#[test]
fn how_a_tree_is_kept_is_shown_and_saved_where_it_is_not_as_usual() {
    let mut host = tree();
    host.ok("qdisc change dev right root handle 1: htb coordination flowvalve");
    let shown = "qdisc htb 1: root refcnt 5 r2q 10 default 0x20 coordination flowvalve \
                 direct_packets_stat 0 direct_qlen 1000\n";
    assert_eq!(host.ok("qdisc show dev right"), shown);
    assert!(host.ok("-j qdisc show dev right").contains("\"coordination\":\"flowvalve\""));
    host.ok("class change dev right parent 1:1 classid 1:10 htb rate 9mbit weight 2 borrow :20");
    assert!(
        host.ok("class show dev right classid 1:10").ends_with("weight 2 borrow 1:20 \n"),
        "the lender's number is whole"
    );
    host.ok("class change dev right parent 1:1 classid 1:10 htb rate 9mbit borrow none");
    assert!(host.ok("-j class show dev right classid 1:10").contains("\"borrow\":\"none\""));
    let text = save(&host.policy);
    assert_eq!(load(&text, "saved", &TwoPorts::with_queues(4)).as_ref(), Ok(&host.policy));
    let outcome = host.tc("qdisc change dev right root handle 1: htb coordination fair");
    assert_eq!(outcome.code, 0);
    let again = host.tc("class change dev right parent 1:1 classid 1:10 htb rate 9mbit weight 7");
    assert!(again.stderr.contains("count under \"coordination flowvalve\" only"), "{again:?}");
}

#[test]
fn invalid_labels_are_refused_with_a_suggestion() {
    let mut host = tree();
    let class = "class change dev right parent 1:1 classid 1:10 htb rate 1mbit";
    for (words, code, why) in [
        ("weight 0", 1, "a number from 1"),
        ("weight 1 weight 1", 1, "duplicate \"weight\""),
        ("borrow", 255, "borrow 1:10,1:20"),
        ("borrow 1:20,,", 1, "up to 8 classes"),
        ("borrow root", 1, "up to 8 classes"),
        ("borrow 1:1,1:2,1:3,1:4,1:5,1:6,1:7,1:8,1:9", 1, "up to 8 classes"),
        ("borrow 1:10", 2, "leave it out"),
        ("borrow 2:20", 2, "not from 2:20"),
        ("borrow 1:", 2, "not from 1:"),
    ] {
        let complaint = host.fails(&format!("{class} {words}"), code);
        assert!(complaint.contains(why), "{words}: {complaint}");
    }
    for words in ["coordination edt", "coordination", "coordination lock coordination lock"] {
        let line = format!("qdisc change dev right root handle 1: htb {words}");
        assert_ne!(host.tc(&line).code, 0, "{words}");
    }
}

/// The policy files of FlowValve's examples.
const EXAMPLES: [(&str, &str); 4] = [
    ("motivation", include_str!("../../../../../examples/flowvalve/motivation.tc")),
    ("motivation-htb", include_str!("../../../../../examples/flowvalve/motivation-htb.tc")),
    ("fair-queueing", include_str!("../../../../../examples/flowvalve/fair-queueing.tc")),
    ("weighted", include_str!("../../../../../examples/flowvalve/weighted.tc")),
];

#[test]
fn the_examples_of_flowvalve_are_policies() {
    let host = OfflineHost::default();
    for (name, text) in EXAMPLES {
        let policy = load(text, name, &host).unwrap_or_else(|why| panic!("{why}"));
        let again = load(&save(&policy), name, &host);
        assert_eq!(again.as_ref(), Ok(&policy), "{name}");
        let plan = Plan::of(policy.port("eth1"), 4).unwrap();
        let [classes] = plan.classes.values().collect::<Vec<_>>()[..] else { panic!("{name}") };
        let leaves = classes.values().filter(|class| class.leaf.is_some()).count();
        assert_eq!(leaves, if name == "motivation-htb" { 3 } else { 4 }, "{name}");
        let [kind] = plan.trees.values().collect::<Vec<_>>()[..] else { panic!("{name}") };
        let flowvalve = TreeKind::Htb(TreeStrategy::FlowValve);
        assert_eq!(*kind == flowvalve, name != "motivation-htb", "{name}");
        assert_eq!(plan.rules.len(), 1, "{name}");
    }
}
