//! The words that other people's programs use: spellings, numbers, selectors and messages.

use crate::host::TwoPorts;
use narrows_tc::{load, save};

/// An `htb` with a class, and nothing else.
fn tree() -> TwoPorts {
    let mut host = TwoPorts::with_queues(4);
    host.ok("qdisc add dev right root handle 1: htb default 1");
    host.ok("class add dev right parent 1: classid 1:1 htb rate 100mbit");
    host
}

/// What `filter show` prints of the selectors of `u32 MATCHES`.
#[track_caller]
fn selectors(host: &mut TwoPorts, protocol: &str, matches: &str) -> Vec<String> {
    host.ok(&format!(
        "filter add dev right parent 1: protocol {protocol} pref 1 u32 {matches} flowid 1:1"
    ));
    let shown = host.ok("filter show dev right parent 1:");
    let text = save(&host.policy);
    let again = load(&text, "saved", &TwoPorts::with_queues(4));
    assert_eq!(again.as_ref(), Ok(&host.policy), "{text}");
    host.ok("filter del dev right parent 1:");
    let lines = shown.lines().filter_map(|line| line.strip_prefix("  match "));
    lines.map(str::to_owned).collect()
}

#[test]
fn a_selector_of_nothing_matches_everything_in_any_width_with_or_without_a_place() {
    let mut host = tree();
    for width in ["u32", "u16", "u8"] {
        for value in ["0", "0x0", "00"] {
            let matches = format!("match {width} {value} 0");
            assert_eq!(selectors(&mut host, "all", &matches), ["00000000/00000000 at 0"]);
        }
    }
    assert_eq!(selectors(&mut host, "all", "match u32 5 0 at 12"), ["00000000/00000000 at 12"]);
    assert_eq!(selectors(&mut host, "ip", "match ip dst any"), ["00000000/00000000 at 16"]);
    assert!(selectors(&mut host, "ipv6", "match ip6 dst any").is_empty());
}

#[test]
fn selectors_are_merged_and_placed_as_tc_does() {
    let mut host = tree();
    for (protocol, matches, shown) in [
        ("ip", "match u8 5 ff at 1 match u8 6 ff at 2", &["00050600/00ffff00 at 0"][..]),
        ("ip", "match u16 5 ff at 1", &["00000005/000000ff at 0"]),
        ("ip", "match u16 0x10 0xffff at 0x10", &["00100000/ffff0000 at 16"]),
        ("ip", "match u16 1 1 at nexthdr+012", &["00000001/00000001 at nexthdr+8"]),
        ("ip", "match ip sport 5 0xffff match ip dport 6 0xffff", &["00050006/ffffffff at 20"]),
        ("ip", "match tcp src 5 0xffff at 4", &["00050000/ffff0000 at nexthdr+4"]),
        ("ip", "match ip dst 10.0.0.0/255.0.0.0", &["0a000000/ff000000 at 16"]),
        ("ip", "match ip src 0x0a.010/0x10", &["0a080000/ffff0000 at 12"]),
        ("ip", "m ip dsf 5 ff", &["00050000/00ff0000 at 0"]),
        ("ipv6", "match ip6 priority 5 0xff", &["00500000/0ff00000 at 0"]),
        ("ipv6", "match ip6 flowlabel 0x12345 fffff", &["00012345/000fffff at 0"]),
        ("ipv6", "match ip6 icmp_type 5 ff match ip6 icmp_code 3 ff", &["05030000/ffff0000 at 40"]),
        ("ipv6", "match ip6 dst 1::/33", &["00010000/ffffffff at 24", "00000000/80000000 at 28"]),
    ] {
        assert_eq!(selectors(&mut host, protocol, matches), shown, "{matches}");
    }
}

#[test]
fn a_refused_selector_says_which_word_is_at_fault() {
    let mut host = tree();
    for (words, why) in [
        ("match", "one of ip, ip6"),
        ("match ipx src 1", "\"ipx\""),
        ("match ip prot 5 ff", "\"prot\""),
        ("match ip tos 0x105 ff", "\"0x105\""),
        ("match ip tos 5 1ff", "\"1ff\""),
        ("match ip tos 5", "\"flowid\" is not a hexadecimal mask of 8 bits"),
        ("match ip tos 5 ff at", "offset"),
        ("match u32 5 ff at 2", "at 2"),
        ("match ip dst 10.0.0.0/255.0.255.0", "\"10.0.0.0/255.0.255.0\""),
        ("match ip sport 5 ffff match ip sport 6 ffff", "two values"),
        ("match mark 1 1", "fw"),
    ] {
        let complaint = host.fails(
            &format!("filter add dev right parent 1: protocol ip pref 1 u32 {words} flowid 1:1"),
            1,
        );
        assert!(complaint.contains(why), "{words}: {complaint}");
    }
    let mut sentences: Vec<String> = ["link", "hashkey", "offset", "sample", "divisor"]
        .map(|word| {
            let line = format!("filter add dev right parent 1: pref 1 u32 {word} 1 flowid 1:1");
            host.fails(&line, 2).replace(word, "WORD")
        })
        .to_vec();
    sentences.sort();
    sentences.dedup();
    assert_eq!(sentences.len(), 5);
}

#[test]
fn a_pref_has_4095_filters_of_u32_and_its_gaps_are_filled() {
    let mut host = tree();
    let line = "filter add dev right parent 1: protocol ip pref 1 u32 match u32 0 0 flowid 1:1";
    for _ in 0..4095 {
        host.ok(line);
    }
    assert!(host.fails(line, 2).contains("another pref"));
    let shown = host.ok("filter show dev right parent 1:");
    assert!(shown.contains("fh 800::1 ") && shown.contains("fh 800::fff "));
    host.ok("filter del dev right parent 1: protocol ip pref 1 handle 800::805 u32");
    host.ok(line);
    assert!(host.fails(line, 2).contains("another pref"));
}

#[test]
fn a_table_is_named_as_the_one_that_is_there() {
    let mut host = tree();
    let add = |pref: u16, words: &str| {
        format!(
            "filter add dev right parent 1: protocol ip pref {pref} u32 {words} match u32 0 0 flowid 1:1"
        )
    };
    for words in ["ht 800:", "ht 800::", "ht 800:0:", "ht fff:", "order 7", ""] {
        host.ok(&add(1, words));
    }
    assert!(host.ok("filter show dev right parent 1:").contains("fh 800::7 order 7 "));
    host.ok(&add(2, "ht 801::"));
    assert!(host.fails(&add(2, "ht 800:"), 2).contains("hash table not found"));
    host.fails(&add(1, "ht 800"), 1);
    host.fails(&add(1, "order x"), 1);
}

#[test]
fn words_of_a_filter_may_be_abbreviated_as_in_tc() {
    let mut host = tree();
    for (line, part) in [
        ("proto ip prio 1 u32 m u32 0 0 cl 1:1", "protocol ip pref 1 u32"),
        ("prot ip pri 2 u32 mat u32 0 0 classi 1:1", "protocol ip pref 2 u32"),
        ("pro ip pre 3 matchall class 1:1", "protocol ip pref 3 matchall"),
        ("pro ip p 0x10 matchall cl 1:1", "protocol ip pref 16 matchall"),
        ("protocol ip pref 010 handle 5/0xff fw flow 1:1", "pref 8 fw chain 0 handle 0x5/0xff"),
        ("pro ip p 4 flower ip_p udp dst_p 53 cl 1:1", "dst_port 53"),
        ("pro ip p 5 flower dst_i 10.0.0.0/255.0.0.0 cl 1:1", "dst_ip 10.0.0.0/8"),
        ("pro ip p 6 matchall ac police rate 1mbit burst 5k dro", "action drop"),
        ("c 0 pro ip p 7 matchall cl 1:1", "pref 7"),
    ] {
        host.ok(&format!("filter add dev right parent 1: {line}"));
        let shown = host.ok("filter show dev right parent 1:");
        assert!(shown.contains(part), "{line}\n{shown}");
        host.ok("filter del dev right parent 1:");
    }
    assert_eq!(host.ok("filter show dev right parent 1: chain 1"), "");
}

#[test]
fn every_name_of_an_ethertype_is_read_and_printed() {
    let mut host = tree();
    for (name, printed) in [
        ("802.1ad", "802.1ad"),
        ("802.1AD", "802.1ad"),
        ("ppp_ses", "ppp_ses"),
        ("ppp_disc", "ppp_disc"),
        ("mpls_uc", "mpls_uc"),
        ("MPLS_MC", "mpls_mc"),
        ("802_3", "802_3"),
        ("802_2", "802_2"),
        ("lldp", "LLDP"),
        ("ipv4", "ip"),
        ("0x8864", "ppp_ses"),
        ("2048", "ip"),
        ("04000", "ip"),
        ("9999", "[9999]"),
    ] {
        host.ok(&format!("filter add dev right parent 1: protocol {name} pref 1 matchall cl 1:1"));
        let shown = host.ok("filter show dev right parent 1:");
        assert!(
            shown.starts_with(&format!("filter protocol {printed} pref 1 ")),
            "{name}\n{shown}"
        );
        let again = load(&save(&host.policy), "saved", &TwoPorts::with_queues(4));
        assert_eq!(again.as_ref(), Ok(&host.policy));
        host.ok("filter del dev right parent 1:");
    }
    for name in ["8021ad", "70000", "0x", "-1", "cfm"] {
        host.fails(&format!("filter add dev right parent 1: protocol {name} pref 1 matchall"), 255);
    }
}

#[test]
fn a_word_that_was_given_must_not_be_given_again() {
    let mut host = tree();
    for (first, second) in [
        ("dev right", "dev right"),
        ("parent 1:", "parent 1:"),
        ("parent 1:", "root"),
        ("parent 1:", "ingress"),
        ("root", "parent 1:"),
        ("ingress", "egress"),
        ("prio 5", "pref 1"),
        ("protocol ip", "proto ip"),
        ("handle 800::1", "handle 800::2"),
        ("chain 0", "chain 0"),
    ] {
        let device = if first.starts_with("dev") { "" } else { "dev right" };
        let line = format!("{device} {first} {second} u32 match u32 0 0 flowid 1:1");
        for verb in ["add", "del", "replace"] {
            let complaint = host.fails(&format!("filter {verb} {line}"), 255);
            assert!(complaint.contains("duplicate"), "{line}: {complaint}");
        }
        host.fails(&format!("filter show {device} {first} {second}"), 255);
    }
    // Nothing was given.
    host.ok("filter add dev right parent none parent 1: prio 0 prio 1 matchall classid 1:1");
}

#[test]
fn the_ends_of_a_port_are_deleted_by_their_parent() {
    let mut host = TwoPorts::with_queues(4);
    for parent in ["ffff:", "ffff:fff1", "ffff:fff2", "handle ffff: parent ffff:fff1"] {
        for kind in ["clsact", "ingress"] {
            host.ok(&format!("qdisc add dev right {kind}"));
            let parent =
                if parent.starts_with("handle") { parent } else { &format!("parent {parent}") };
            host.ok(&format!("qdisc del dev right {parent}"));
            assert_eq!(host.ok("qdisc show dev right ingress"), "");
        }
    }
    host.fails("qdisc del dev right parent ffff:", 2);
    host.ok("qdisc add dev right ingress");
    host.fails("qdisc del dev right handle 5: parent ffff:", 2);
    host.ok("filter add dev right parent ffff: protocol ip prio 4 u32 match u32 0 0 flowid 1:1");
    let place_of = |host: &mut TwoPorts, asked: &str| {
        let shown = host.ok(&format!("filter show dev right {asked}"));
        let place = shown.split(" protocol ").next().unwrap_or_default();
        place.strip_prefix("filter").unwrap_or(place).trim().to_owned()
    };
    for (asked, said) in [
        ("ingress", "parent ffff:"),
        ("parent ffff:", ""),
        ("parent ffff:fff1", "parent ffff:"),
        ("parent ffff:fff2", "parent ffff:"),
    ] {
        assert_eq!(place_of(&mut host, asked), said, "{asked}");
    }
    let again = load(&save(&host.policy), "saved", &TwoPorts::with_queues(4));
    assert_eq!(again.as_ref(), Ok(&host.policy));
    host.ok("filter del dev right ingress");
    host.ok("filter add dev right ingress protocol ip prio 4 u32 match u32 0 0 flowid 1:1");
    for (asked, said) in [
        ("ingress", ""),
        ("parent ffff:", "ingress"),
        ("parent ffff:fff1", "ingress"),
        ("parent ffff:fff2", ""),
    ] {
        assert_eq!(place_of(&mut host, asked), said, "{asked}");
    }
}

#[test]
fn details_are_those_of_tc() {
    let mut host = tree();
    host.ok("qdisc change dev right root handle 1: htb default 3");
    host.ok(
        "class add dev right parent 1:1 classid 1:2 htb rate 1mbit burst 1600 cburst 1600 mpu 64",
    );
    host.ok("class add dev right parent 1:2 classid 1:3 htb rate 1mbit");
    let shown = host.ok("-d class show dev right");
    assert!(
        shown.contains("linklayer ethernet burst 1600b/1 mpu 64b cburst 1600b/1 mpu 64b level 6 "),
        "{shown}"
    );
    let level = |class: &str| {
        let line = shown.lines().find(|line| line.starts_with(&format!("class htb {class} ")));
        line.and_then(|line| line.trim_end().rsplit(' ').next()).map(str::to_owned)
    };
    assert_eq!(["1:1", "1:2", "1:3"].map(|class| level(class).unwrap()), ["7", "6", "0"]);
    host.ok("filter add dev right parent 1: protocol ip pref 1 matchall action police rate 1mbit burst 5k");
    let shown = host.ok("-d filter show dev right parent 1:");
    assert!(shown.contains("overhead 0b linklayer ethernet "), "{shown}");
    assert!(!host.ok("filter show dev right parent 1:").contains("linklayer"));
    assert!(host.ok("-d actions show action police").contains("linklayer ethernet "));
}

#[test]
fn pretty_selectors_of_ipv4_are_explained() {
    let mut host = tree();
    for (matches, shown) in [
        ("match ip src 10.0.0.0/8", "\n  match IP src 10.0.0.0/8\n"),
        ("match ip dst any", "\n  match IP dst 0.0.0.0/0\n"),
        (
            "match ip protocol 6 ff match ip dport 80 ffff",
            "\n  match IP protocol 6match dport 80\n",
        ),
        ("match ip sport 5 ffff match ip dport 6 ffff", "\n  match dport 6, match sport 5\n"),
        ("match ip sport 5 ffff", "\n  match sport 5\n"),
        ("match ip tos 0x10 ff", "\n  match IP dsfield 0x10\n"),
        ("match ip ihl 5 f", "\n  match IP ihl 5\n"),
        ("match ip df", "\n  match 00004000/00004000 at 4\n"),
        ("match tcp dst 5 ffff", "\n  match 00000005/0000ffff at nexthdr+0\n"),
    ] {
        host.ok(&format!(
            "filter add dev right parent 1: protocol ip pref 1 u32 {matches} flowid 1:1"
        ));
        let text = host.ok("-p filter show dev right parent 1:");
        assert!(text.ends_with(shown), "{matches}\n{text}");
        host.ok("filter del dev right parent 1:");
    }
}

#[test]
fn several_actions_are_named_at_once() {
    let mut host = TwoPorts::with_queues(4);
    let add = |host: &mut TwoPorts| {
        host.ok(
            "actions add action drop index 1 action pass index 2 action skbedit priority 0 index 3",
        );
    };
    for del in [
        "action gact index 1 action gact index 2 action skbedit index 3",
        "action gact index 1 gact index 2 skbedit ind 3",
        "actions gact i 1 gact index 2 action skbedit index 3",
    ] {
        add(&mut host);
        host.fails(&format!("actions del {del} action police index 4"), 255);
        let got = host.ok(&format!("actions get {del}"));
        assert_eq!(got.matches("index ").count(), 3, "{got}");
        host.ok(&format!("actions del {del}"));
        assert!(host.ok("actions ls action gact").contains("total acts 0"));
    }
    add(&mut host);
    assert!(host.ok("actions ls action skbedit").contains("skbedit  priority none pipe"));
    assert!(host.fails("actions del action gact", 255).contains("no index specified"));
}

#[test]
fn what_is_there_already_is_said_in_the_words_that_scripts_look_for() {
    let mut host = tree();
    host.ok("qdisc add dev right clsact");
    host.ok("filter add dev right parent 1: pref 1 handle 5 matchall classid 1:1");
    host.ok("actions add action drop index 1");
    for (line, code) in [
        ("qdisc add dev right root handle 1: htb", 2),
        ("qdisc add dev right clsact", 2),
        ("class add dev right parent 1: classid 1:1 htb rate 1mbit", 2),
        ("filter add dev right parent 1: pref 1 handle 5 matchall classid 1:1", 2),
        ("actions add action drop index 1", 255),
    ] {
        let complaint = host.fails(line, code);
        assert!(complaint.ends_with("\nRTNETLINK answers: File exists\n"), "{line}: {complaint}");
    }
    host.ok("qdisc del dev right clsact");
    for line in [
        "qdisc del dev right ingress",
        "qdisc del dev right parent ffff:",
        "class del dev right classid 1:9",
    ] {
        let complaint = host.fails(line, 2);
        assert!(
            complaint.ends_with("\nRTNETLINK answers: No such file or directory\n"),
            "{complaint}"
        );
    }
}

#[test]
fn help_is_there_without_an_instance() {
    let line = |words: &str| {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        narrows_tc::CommandLine::parse(&words).unwrap()
    };
    for (words, part) in [
        ("", "actions {"),
        ("help", "actions {"),
        ("qdisc help", "netem, red, carousel"),
        ("class help", "htb | hfsc | drr | ets PARAMETERS"),
        ("class add dev x hfsc help", "umax"),
        ("filter help", "flower"),
        ("actions help", "police"),
        ("qdisc add dev x root tbf help", "latency"),
        ("filter add dev x u32 help", "match"),
    ] {
        let outcome = narrows_tc::help(&line(words)).unwrap();
        assert!(outcome.stderr.contains(part), "{words}: {}", outcome.stderr);
    }
    for words in ["qdisc show", "qdisc show dev help", "-s class"] {
        assert_eq!(narrows_tc::help(&line(words)), None, "{words}");
    }
}
