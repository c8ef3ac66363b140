//! Filters of all kinds, their actions, and where they are.

use crate::host::TwoPorts;
use narrows_tc::{execute, load, save};
use proptest::prelude::*;

/// A tree with an inner class below the root class, and `clsact` on the same port.
fn tree() -> TwoPorts {
    let mut host = TwoPorts::with_queues(4);
    for line in [
        "qdisc add dev right root handle 1: htb default 30",
        "class add dev right parent 1: classid 1:1 htb rate 100mbit",
        "class add dev right parent 1:1 classid 1:2 htb rate 50mbit",
        "class add dev right parent 1:2 classid 1:10 htb rate 20mbit",
        "class add dev right parent 1:2 classid 1:20 htb rate 20mbit",
        "class add dev right parent 1:1 classid 1:30 htb rate 20mbit",
        "qdisc add dev right clsact",
    ] {
        host.ok(line);
    }
    host
}

/// Saving and loading a policy yields the same policy.
#[track_caller]
fn survives(host: &TwoPorts) {
    let text = save(&host.policy);
    let again = load(&text, "saved", &TwoPorts::with_queues(4));
    assert_eq!(again.as_ref(), Ok(&host.policy), "{text}");
}

#[test]
fn marks_and_expressions_are_shown_as_tc_shows_them() {
    let mut host = tree();
    host.ok("filter add dev right parent 1: pref 1 handle 0x10/0xf0 fw classid 1:20");
    host.ok("filter add dev right parent 1: pref 2 basic match u32( u16 0x1122 0xffff at 4 ) \
             and not meta( nf_mark gt 24 ) classid 1:20");
    assert_eq!(
        host.ok("filter show dev right parent 1:"),
        "filter protocol all pref 1 fw chain 0 \n\
         filter protocol all pref 1 fw chain 0 handle 0x10/0xf0 classid 1:20 \n\
         filter protocol all pref 2 basic chain 0 \n\
         filter protocol all pref 2 basic chain 0 handle 0x1 flowid 1:20 \n  \
         u32(11220000/ffff0000 at 4)\n  AND NOT meta(nf_mark gt 24)\n\n"
    );
    let json = host.ok("-j filter show dev right pref 1");
    assert!(json.contains(r#""fw":{"mark":"0x10","mask":"0xf0"}"#), "{json}");
    host.fails("filter add dev right pref 1 handle 5/0xff fw classid 1:20", 2);
    host.fails("filter add dev right pref 3 fw classid 1:20", 2);
    host.fails("filter add dev right pref 3 handle 5 fw", 2);
    host.fails("filter add dev right pref 3 handle 5/4294967296 fw classid 1:20", 1);
    host.fails("filter add dev right pref 3 basic match ipset( x src ) classid 1:20", 2);
    survives(&host);
}

#[test]
fn routes_are_shown_as_tc_shows_them_in_the_order_of_the_kernel_and_metrics_in_the_same_style() {
    let mut host = tree();
    for words in ["metric 1024", "to 10 metric 7", "from 2", "to 10", "from 2 to 0xa"] {
        host.ok(&format!(
            "filter add dev right parent 1: protocol ip prio 10 route {words} classid 1:10"
        ));
    }
    let head = "filter protocol ip pref 10 route chain 0";
    assert_eq!(
        host.ok("filter show dev right parent 1:"),
        format!(
            "{head} \n\
             {head} fh 0x40000001 flowid 1:10 metric 1024 \n\
             {head} fh 0x40000002 flowid 1:10 to 10 metric 7 \n\
             {head} fh 0x0002000a flowid 1:10 to 10 from 2 \n\
             {head} fh 0xffff000a flowid 1:10 to 10 \n\
             {head} fh 0x00028000 flowid 1:10 from 2 \n"
        )
    );
    let json = host.ok("-j filter show dev right pref 10");
    let options = r#""options":{"fh":"0x0002000a","flowid":"1:10","to":10,"from":2}"#;
    assert!(json.contains(options), "{json}");
    let options = r#""options":{"fh":"0x40000002","flowid":"1:10","to":10,"metric":7}"#;
    assert!(json.contains(options), "{json}");
    survives(&host);
    // One of these realms is there; another class takes its place, and a metric's number stays.
    let add = "filter add dev right parent 1: protocol ip prio 10 route";
    host.fails(&format!("{add} to 10 classid 1:20"), 2);
    let replace = "filter replace dev right parent 1: protocol ip prio 10";
    host.ok(&format!("{replace} route to 10 classid 1:20"));
    host.ok(&format!("{replace} handle 0x40000001 route metric 5 classid 1:20"));
    host.ok("filter del dev right parent 1: protocol ip prio 10 handle 0x28000 route");
    let shown = host.ok("filter show dev right parent 1:");
    assert!(shown.contains("fh 0xffff000a flowid 1:20 to 10 "), "{shown}");
    assert!(shown.contains("fh 0x40000001 flowid 1:20 metric 5 "), "{shown}");
    assert!(!shown.contains("fh 0x00028000"), "{shown}");
    survives(&host);
    for (words, why, code) in [
        ("to 256", "\"to\": a realm, 0 to 255", 1),
        ("from internet", "\"from\": a realm", 1),
        ("metric 4294967295", "0 to 4294967294", 1),
        ("metric", "", 1),
        ("fromif left", "skbedit mark", 2),
        ("order 1", "pref", 2),
        ("table 5", "What is \"table\"", 1),
    ] {
        let complaint = host.fails(&format!("{add} {words} classid 1:10"), code);
        assert!(complaint.contains(why), "{words}: {complaint}");
    }
    let handle = "filter add dev right parent 1: protocol ip prio 10 handle";
    host.fails(&format!("{handle} 0xffff000b route to 10 classid 1:10"), 2);
    host.fails(&format!("{handle} 0xffff010b route to 11 classid 1:10"), 1);
    host.fails(&format!("{handle} 0xffff000b route metric 9 classid 1:10"), 2);
    // It takes its route behind the ingress, and before the egress.
    host.ok("filter add dev right egress route to 10 action drop");
    let complaint = host.fails("filter add dev right ingress route to 10 action drop", 2);
    assert!(complaint.contains("at a qdisc there"), "{complaint}");
}

#[test]
fn expressions_are_read_with_and_without_blanks_and_parentheses() {
    let mut host = tree();
    for (words, shown) in [
        (
            "cmp(u16 at 2 layer network mask 0xff00 eq 256)",
            "cmp(u16 at 2 layer 1 mask 0xff00 eq 256)",
        ),
        ("cmp( u8 at -14 layer link trans gt 3 )", "cmp(u8 at -14 layer 0 trans gt 3)"),
        ("nbyte(abc at 0 layer 2)", "nbyte(61 62 63 \"abc\" at 0 layer 2)"),
        ("meta(pkt_len shift 2 mask 0xff lt 9)", "meta(pkt_len shift 2 mask 0x000000ff lt 9)"),
        (
            "meta(vlan eq 7) or ( meta(protocol eq 2048) and not cmp(u8 at 0 eq 5) )",
            "meta(vlan eq 7)\n  OR (\n    meta(protocol eq 2048)\n    AND NOT cmp(u8 at 0 layer 1 eq 5)\n  )",
        ),
    ] {
        host.ok(&format!("filter add dev right pref 5 basic match {words} classid 1:30"));
        let all = host.ok("filter show dev right pref 5");
        assert!(all.contains(&format!("\n  {shown}\n")), "{words}: {all}");
        survives(&host);
        host.ok("filter del dev right pref 5");
    }
    for words in
        ["cmp(u8 at 0 eq", "and", "( meta(vlan eq 7)", "meta(x eq 1)", "nbyte(a'b at 0)", "text(x)"]
    {
        host.fails(&format!("filter add dev right pref 5 basic match {words} classid 1:30"), 1);
    }
}

#[test]
fn flower_has_the_keys_that_frames_have() {
    let mut host = tree();
    host.ok("filter add dev right pref 1 protocol 802.1Q flower vlan_id 7 vlan_prio 3 \
             vlan_ethtype ip dst_mac 02:00:00:00:00:01 src_mac 02:00:00:00:00:00/8 ip_proto tcp \
             ip_tos 0xb8/0xfc ip_ttl 64 dst_ip 10.0.0.0/8 dst_port 80-90 tcp_flags 0x2/0x12 \
             ip_flags nofrag classid 1:30");
    let shown = host.ok("filter show dev right pref 1");
    let keys = "\n  vlan_id 7\n  vlan_prio 3\n  vlan_ethtype ip\n  dst_mac 02:00:00:00:00:01\n  \
                src_mac 02:00:00:00:00:00/ff:00:00:00:00:00\n  eth_type ipv4\n  ip_proto tcp\n  \
                ip_tos 184/0xfc\n  ip_ttl 64\n  dst_ip 10.0.0.0/8\n  dst_port 80-90\n  \
                tcp_flags 0x2/12\n  ip_flags nofrag\n  not_in_hw\n";
    assert!(shown.contains(keys), "{shown}");
    host.ok(
        "filter add dev right pref 2 protocol ip flower ip_proto icmp type 8 code 0 classid 1:30",
    );
    let shown = host.ok("filter show dev right pref 2");
    assert!(shown.contains("\n  icmp_type 8\n  icmp_code 0\n"), "{shown}");
    for words in [
        "protocol ip flower vlan_id 7",
        "protocol ip flower tcp_flags 2",
        "protocol ip flower type 8",
        "protocol 0x88a8 flower cvlan_id 7",
        "protocol 0x88a8 flower vlan_ethtype ip cvlan_id 7",
        "protocol 0x88a8 flower vlan_ethtype 802.1Q cvlan_id 4096",
        "protocol 0x88a8 flower vlan_ethtype 802.1Q cvlan_prio 8",
        "protocol 0x88a8 flower vlan_ethtype 802.1Q cvlan_ethtype 802.1Q",
        "protocol 0x88a8 flower vlan_ethtype 802.1Q cvlan_ethtype ipv6 dst_ip 10.0.0.1",
        "flower mpls_label 5",
        "flower dst_mac 02:00",
        "flower ip_flags x",
    ] {
        host.fails(&format!("filter add dev right pref 3 {words} classid 1:30"), 1);
    }
    survives(&host);
}

#[test]
fn flower_has_the_keys_of_a_second_tag() {
    let mut host = tree();
    host.ok("filter add dev right pref 1 protocol 0x88a8 flower vlan_id 100 vlan_prio 1 \
             vlan_ethtype 802.1q cvlan_id 7 cvlan_prio 5 cvlan_ethtype ip dst_ip 10.1.0.0/16 \
             classid 1:30");
    let shown = host.ok("filter show dev right pref 1");
    let keys = "\n  vlan_id 100\n  vlan_prio 1\n  vlan_ethtype 802.1Q\n  cvlan_id 7\n  \
                cvlan_prio 5\n  cvlan_ethtype ip\n  eth_type ipv4\n  dst_ip 10.1.0.0/16\n";
    assert!(shown.contains(keys), "{shown}");
    host.ok("filter add dev right pref 2 protocol 0x9100 flower vlan_id 5 classid 1:30");
    host.ok("filter add dev right pref 3 protocol 0x88a8 matchall classid 1:30");
    survives(&host);
}

#[test]
fn one_filter_is_had_by_its_number() {
    let mut host = tree();
    host.ok("filter add dev right parent 1: protocol ip pref 1 u32 match ip dport 80 0xffff flowid 1:30");
    host.ok("filter add dev right parent 1: protocol ip pref 2 u32 match ip dport 81 0xffff flowid 1:30");
    let shown = host.ok("filter get dev right parent 1: protocol ip pref 2 handle 801::800 u32");
    assert_eq!(
        shown,
        "filter parent 1: protocol ip pref 2 u32 chain 0 fh 801::800 order 2048 key ht 801 bkt 0 \
         *flowid 1:30 not_in_hw \n  match 00000051/0000ffff at 20\n"
    );
    for (words, why, code) in [
        ("parent 1: protocol ip pref 9 handle 800::1 u32", "priority/protocol not found", 2),
        ("parent 1: protocol ip pref 1 handle 1 flower", "kind does not match", 2),
        ("parent 1: protocol ip pref 1 handle 800::900 u32", "handle not found", 2),
        ("parent 1: protocol ip pref 1 handle 1 u32", "Illegal filter ID", 1),
        ("parent 1: pref 1 handle 1 u32", "Must specify filter protocol", 255),
        ("parent 1: protocol ip pref 1 u32", "Must specify filter handle", 255),
    ] {
        let complaint = host.fails(&format!("filter get dev right {words}"), code);
        assert!(complaint.contains(why), "{words}: {complaint}");
    }
}

#[test]
fn filters_at_an_inner_class_go_on_below_it() {
    let mut host = tree();
    host.ok(
        "filter add dev right parent 1:2 protocol ip pref 1 flower dst_ip 10.0.0.0/8 classid 1:10",
    );
    host.ok("filter add dev right parent 1: pref 1 matchall classid 1:2");
    assert!(host.ok("filter show dev right parent 1:2").contains("classid 1:10"));
    assert!(!host.ok("filter show dev right").contains("classid 1:10"), "those at the qdisc");
    for (line, why) in [
        ("filter add dev right parent 1:2 pref 2 matchall classid 1:30", "one below it"),
        ("filter add dev right parent 1:2 pref 2 matchall classid 1:2", "one below it"),
        ("filter add dev right parent 1:10 pref 2 matchall classid 1:20", "No class is below 1:10"),
        ("class del dev right classid 1:10", "in use"),
    ] {
        let complaint = host.fails(line, 2);
        assert!(complaint.contains(why), "{line}: {complaint}");
    }
    survives(&host);
}

#[test]
fn filters_may_assign_an_inner_class_before_it_has_filters_and_after() {
    let mut host = tree();
    let warns = |host: &mut TwoPorts, line: &str, class: &str| {
        let outcome = host.tc(line);
        let warning = format!(
            "Warning: htb: filters assign packets to {class}, which has classes below it: they go \
             to the default class until filters at {class} assign them.\n"
        );
        assert_eq!((outcome.code, outcome.stderr), (0, warning), "{line}");
    };
    warns(&mut host, "filter add dev right parent 1: pref 1 matchall classid 1:2", "1:2");
    survives(&host);
    host.ok("filter add dev right parent 1:2 pref 1 matchall classid 1:10");
    host.ok("filter add dev right parent 1:2 pref 2 matchall classid 1:20");
    host.ok("filter del dev right parent 1:2 pref 1");
    warns(&mut host, "filter del dev right parent 1:2", "1:2");
    assert_eq!(host.ok("filter show dev right parent 1:2"), "");
    survives(&host);
    // A leaf to which filters assign packets becomes an inner class, and a leaf again.
    host.ok("filter add dev right parent 1: pref 2 matchall classid 1:20");
    warns(&mut host, "class add dev right parent 1:20 classid 1:21 htb rate 1mbit", "1:20");
    warns(&mut host, "class add dev right parent 1:20 classid 1:22 htb rate 1mbit", "1:20");
    host.ok("filter add dev right parent 1:20 pref 1 matchall classid 1:22");
    survives(&host);
    for class in ["1:2", "1:20", "1:22"] {
        let complaint = host.fails(&format!("class del dev right classid {class}"), 2);
        assert!(complaint.contains("in use"), "{class}: {complaint}");
    }
    warns(&mut host, "filter del dev right parent 1:20", "1:20");
    host.ok("class del dev right classid 1:21");
    host.ok("class del dev right classid 1:22");
    host.ok("qdisc add dev right parent 1:20 handle 20: pfifo limit 5");
    survives(&host);
}

#[test]
fn actions_are_shown_as_tc_shows_them() {
    let mut host = tree();
    host.ok("filter add dev right ingress protocol ip pref 1 flower dst_ip 10.0.0.1 \
             action police rate 1mbit burst 10k conform-exceed drop/pipe action skbedit mark 5 pass");
    host.ok("filter add dev right egress pref 7 matchall action skbedit priority 1:20");
    host.ok("filter add dev right egress pref 8 matchall action drop random determ pass 10");
    assert_eq!(
        host.ok("filter show dev right ingress"),
        "filter protocol ip pref 1 flower chain 0 \n\
         filter protocol ip pref 1 flower chain 0 handle 0x1 \n  eth_type ipv4\n  dst_ip 10.0.0.1\n  \
         not_in_hw\n\taction order 1:  police 0x1 rate 1Mbit burst 10Kb mtu 2Kb action drop/pipe \
         overhead 0b \n\tref 1 bind 1 \n\n\taction order 2: skbedit  mark 5 pass\n\t index 1 ref 1 \
         bind 1\n\n"
    );
    let shown = host.ok("-s filter show dev right egress");
    assert!(shown.contains("skbedit  priority 1:20 pipe\n\t index 2 ref 1 bind 1\n"), "{shown}");
    assert!(
        shown.contains(
            "gact action drop\n\t random type determ pass val 10\n\t index 1 ref 1 bind 1\n"
        ),
        "{shown}"
    );
    assert!(shown.contains("\tAction statistics:\n\tSent 0 bytes 0 pkt (dropped 0, "), "{shown}");
    let json: serde_json::Value =
        serde_json::from_str(&host.ok("-j filter show dev right ingress")).unwrap();
    assert_eq!(json[1]["options"]["actions"][0]["kind"], "police");
    assert_eq!(json[1]["options"]["actions"][0]["rate"], 125_000);
    survives(&host);
}

#[test]
fn a_pace_is_shown_changed_and_survives() {
    let mut host = tree();
    host.ok("qdisc add dev left root flowbundler");
    host.ok("filter add dev right egress pref 1 matchall action pace rate 5mbit");
    host.ok("filter add dev right egress pref 2 matchall action pace rate 1gbit continue index 9");
    let shown = host.ok("filter show dev right egress");
    assert!(
        shown.contains("action order 1: pace rate 5Mbit pipe\n\t index 1 ref 1 bind 1\n"),
        "{shown}"
    );
    assert!(shown.contains("pace rate 1Gbit continue\n\t index 9 ref 1 bind 1\n"), "{shown}");
    let json: serde_json::Value =
        serde_json::from_str(&host.ok("-j filter show dev right egress")).unwrap();
    let action = &json[1]["options"]["actions"][0];
    assert_eq!((&action["kind"], &action["rate"]), (&"pace".into(), &625_000.into()));
    survives(&host);
    host.ok("filter add dev right egress pref 4 matchall action pace set-rate plans src index 20");
    assert!(host.ok("actions get action pace index 20").contains("pace set-rate plans src pipe"));
    let json: serde_json::Value =
        serde_json::from_str(&host.ok("-j filter show dev right egress pref 4")).unwrap();
    let action = &json[json.as_array().unwrap().len() - 1]["options"]["actions"][0];
    assert_eq!((&action["set"], &action["address"]), (&"plans".into(), &"src".into()));
    host.ok("actions change action pace rate 8mbit index 1");
    assert!(host.ok("actions list action pace").contains("pace rate 8Mbit pipe"));
    host.ok("filter add dev right egress pref 3 matchall action pace index 9");
    assert!(host.ok("actions get action pace index 9").contains("ref 2 bind 2"));
    survives(&host);
    for (action, why) in [
        ("pace", "say which rate"),
        ("pace rate 0", "a rate from 8bit on"),
        ("pace set-rate plans", "and src or dst"),
        ("pace set-rate plans both", "and src or dst"),
        ("pace set-rate a,b dst", "the name of a set"),
        ("pace set-rate plans dst rate 1mbit", "duplicate \"rate\""),
        ("pace rate fast", "a rate from 8bit on"),
        ("pace rate 1mbit rate 2mbit", "duplicate \"rate\""),
        ("pace rate 1mbit index 65536", "from 1 to 65535"),
        ("pace index 77", "index 77"),
    ] {
        let refused =
            host.tc(&format!("filter add dev right egress pref 9 matchall action {action}"));
        assert!(refused.code != 0 && refused.stderr.contains(why), "{action}: {}", refused.stderr);
    }
    host.fails("actions add action pace rate 1mbit index 65536", 255);
}

#[test]
fn a_pace_without_a_qdisc_that_keeps_it_is_said() {
    let mut host = tree();
    let outcome = host.tc("filter add dev right egress pref 1 matchall action pace rate 5mbit");
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("add flowbundler, eiffel, carousel or fq"),
        "{}",
        outcome.stderr
    );
    host.ok("qdisc add dev left root fq");
    host.ok("filter add dev right egress pref 2 matchall action pace rate 5mbit");
}

#[test]
fn a_pace_in_the_driver_is_refused() {
    let mut host = tree();
    host.ok("qdisc add dev left root fq");
    host.ok("filter add dev right ingress pref 1 matchall action pace rate 5mbit");
    let refused = host.tc(
        "filter add dev right ingress protocol ip pref 2 basic match ipset(bad src) action drop",
    );
    assert!(refused.stderr.contains("Flows are paced behind the driver"), "{}", refused.stderr);
}

#[test]
fn an_action_is_shared_by_its_number_and_goes_with_its_last_filter() {
    let mut host = tree();
    host.ok("actions add action police rate 1mbit burst 10k drop index 7");
    host.ok("filter add dev right ingress pref 1 matchall action police index 7");
    host.ok("filter add dev right egress pref 1 matchall action police index 7");
    host.ok("filter add dev right egress pref 2 matchall action drop");
    let shown = host.ok("actions list action police");
    assert!(shown.starts_with("total acts 1\n") && shown.contains("ref 3 bind 2"), "{shown}");
    survives(&host);
    host.fails("actions del action police index 7", 255);
    host.fails("actions flush action police", 1);
    host.fails("actions add action police rate 2mbit burst 10k drop index 7", 255);
    host.ok("actions change action police rate 2mbit burst 10k drop index 7");
    assert!(host.ok("filter show dev right ingress").contains("rate 2Mbit"));
    host.ok("qdisc del dev right clsact");
    assert!(
        host.ok("actions list action police").contains("ref 1 bind 0"),
        "it was added by itself"
    );
    assert_eq!(host.ok("actions list action gact"), "total acts 0\n\n");
    host.ok("actions del action police index 7");
    host.fails("actions get action police index 7", 255);
    survives(&host);
}

#[test]
fn impossible_actions_are_refused_with_a_reason() {
    let mut host = tree();
    for (action, why) in [
        ("goto chain 5", "one chain"),
        ("pedit x", "changes no packet"),
        ("police burst 5k", "MUST be specified"),
        ("police rate 1mbit", "'burst' requires 'rate'"),
        ("police rate 1mbit burst 5k peakrate 2mbit", "'mtu' is required"),
        ("police rate 1mbit burst 5k pkts_rate 5 pkts_burst 5", "not allowed in same action"),
        ("police avrate 1mbit", "give rate and burst"),
        ("skbedit", "say what to set"),
    ] {
        let complaint =
            host.fails(&format!("filter add dev right ingress pref 1 matchall action {action}"), 1);
        assert!(complaint.contains(why), "{action}: {complaint}");
    }
    // By itself, an action does nothing. So these can be added, and no filter can have them.
    for (action, shown, why) in [
        (
            "mirred egress mirror dev left",
            "mirred (Egress Mirror to device left) pipe\n\tindex 5",
            "a packet leaves once",
        ),
        (
            "mirred ingress mirror dev lo jump 3",
            "mirred (Ingress Mirror to device lo) jump 3\n\tindex 5",
            "come in by the ports",
        ),
        (
            "mirred ingress redirect dev lo",
            "mirred (Ingress Redirect to device lo) stolen\n\tindex 5",
            "come in by the ports",
        ),
        (
            "skbedit queue_mapping 1 mark 5",
            "skbedit queue_mapping 1 mark 5 pipe\n",
            "keep their order",
        ),
        ("skbedit ptype host pass", "skbedit  ptype host pass\n", "whomever it is for"),
        ("skbedit inheritdsfield", "skbedit  inheritdsfield pipe\n", "by ip_tos"),
    ] {
        let filter = "filter add dev right ingress pref 1 matchall action";
        let complaint = host.fails(&format!("{filter} {action}"), 2);
        assert!(complaint.contains(why), "{action}: {complaint}");
        let kind = action.split(' ').next().unwrap();
        host.ok(&format!("actions add action {action} index 5"));
        let listed = host.ok(&format!("actions list action {kind}"));
        assert!(listed.contains(shown), "{action}: {listed}");
        survives(&host);
        let complaint = host.fails(&format!("{filter} {kind} index 5"), 2);
        assert!(complaint.contains(why), "{action}: {complaint}");
        host.ok(&format!("actions flush action {kind}"));
    }
    // Nor can one that a filter has become such.
    host.ok("actions add action skbedit mark 1 index 5");
    host.ok("filter add dev right ingress pref 1 matchall action skbedit index 5");
    host.fails("actions replace action skbedit queue_mapping 1 index 5", 255);
    host.ok("filter del dev right ingress pref 1");
    host.ok("actions replace action skbedit queue_mapping 1 index 5");
    host.fails("filter add dev right ingress pref 1 matchall action police index 9", 2);
    let complaint = host.fails("filter add dev right ingress pref 1 matchall action x", 255);
    assert!(complaint.contains("there is no action"), "{complaint}");
    host.fails("filter add dev right ingress pref 1 matchall action drop cookie abc", 255);
    host.fails("filter add dev right ingress pref 1 matchall classid 1:x", 1);
    host.fails("filter add dev right ingress pref 1 matchall classid 98765fedcg", 1);
    host.fails("filter add dev left ingress pref 1 matchall action drop", 2);
    host.fails("filter add dev right ingress pref 1 u32 divisor 256", 2);
    host.fails("filter add dev right ingress chain 5 pref 1 matchall action drop", 1);
}

#[test]
fn a_protocol_that_no_frame_has_is_accepted_with_a_warning() {
    let mut host = tree();
    for (protocol, shown, is_of_none) in [
        ("802_2", "802_2", false),
        ("802_3", "802_3", false),
        ("1", "802_3", false),
        ("4", "802_2", false),
        ("aarp", "aarp", false),
        ("loop", "loop", true),
        ("snap", "snap", true),
        ("localtalk", "localtalk", true),
        ("255", "[255]", true),
    ] {
        let filter = format!("filter add dev right ingress protocol {protocol} pref 1 matchall");
        let outcome = host.tc(&format!("{filter} action drop"));
        assert_eq!(outcome.code, 0, "{protocol}: {}", outcome.stderr);
        let is_warned = outcome.stderr.contains("one with a length is 802_3 or 802_2");
        assert_eq!(is_warned, is_of_none, "{protocol}: {}", outcome.stderr);
        let listed = host.ok("filter show dev right ingress");
        assert!(listed.contains(&format!("protocol {shown} pref 1 ")), "{protocol}: {listed}");
        survives(&host);
        host.ok(&format!("filter del dev right ingress protocol {protocol} pref 1"));
    }
}

#[test]
fn of_a_long_number_of_a_class_the_last_eight_digits_count() {
    let mut host = tree();
    for (number, shown) in [("98765fedcb", "765f:edcb"), ("0x100010002", "1:2"), ("10002", "1:2")] {
        host.ok(&format!("filter add dev right ingress pref 1 matchall classid {number}"));
        let listed = host.ok("filter show dev right ingress");
        assert!(listed.contains(&format!("flowid {shown} ")), "{number}: {listed}");
        survives(&host);
        host.ok("filter del dev right ingress pref 1");
    }
}

#[test]
fn words_without_effect_are_shown_again() {
    let mut host = tree();
    for (action, shown) in [
        (
            "pass no_percpu",
            "gact action pass\n\t random type none pass val 0\n\t index 1 ref 1 bind 0\n\tno_percpu\n",
        ),
        ("drop no_percpu skip_hw", "\tno_percpu\tskip_hw\n"),
        ("jump 3", "gact action jump 3\n"),
        ("gact jump 0x1ff index 7", "gact action jump 511\n"),
    ] {
        host.ok(&format!("actions add action {action}"));
        let listed = host.ok("actions list action gact");
        assert!(listed.contains(shown), "{action}: {listed}");
        survives(&host);
        host.ok("actions flush action gact");
    }
    host.fails("actions add action jump 512", 255);
    host.fails("actions add action gact jump", 255);
    for (mark, shown) in [
        ("1", " mark 1 pipe"),
        ("1/0xffffffff", " mark 1/0xffffffff pipe"),
        ("3/2", " mark 2/0x2 pipe"),
    ] {
        host.ok(&format!("actions add action skbedit mark {mark}"));
        assert!(host.ok("actions list action skbedit").contains(shown), "{mark}");
        survives(&host);
        host.ok("actions flush action skbedit");
    }
    for (kind, shown) in [
        ("matchall", "handle 0x1 \n  skip_hw\n  not_in_hw"),
        ("flower", "handle 0x1 \n  skip_hw\n  not_in_hw"),
        ("u32 match u32 0 0", "terminal flowid skip_hw not_in_hw "),
    ] {
        host.ok(&format!("filter add dev right ingress pref 1 {kind} skip_hw action drop"));
        let listed = host.ok("filter show dev right ingress");
        assert!(listed.contains(shown), "{kind}: {listed}");
        survives(&host);
        host.ok("filter del dev right ingress pref 1");
    }
    // An action of its own is given to hardware if its filters are.
    host.ok("actions add action drop index 4");
    let line = "filter add dev right ingress pref 1 matchall skip_hw action gact index 4";
    assert!(host.fails(line, 2).contains("Mismatch between action and filter offload flags"));
    host.ok("actions replace action drop index 4 skip_hw");
    host.ok(line);
    survives(&host);
}

#[test]
fn an_expression_may_come_as_the_one_word_that_a_shell_makes_of_quotes() {
    let mut host = tree();
    let line = "filter add dev right pref 1 basic match 'cmp(u8 at 0 layer link mask 0xff gt 10) and \
                not u32(u16 0x1122 0xffff at nexthdr+0)' classid 1:20";
    let outcome = execute(&shlex::split(line).unwrap(), &mut host);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""));
    let shown = host.ok("filter show dev right pref 1");
    let expected =
        "cmp(u8 at 0 layer 0 mask 0xff gt 10)\n  AND NOT u32(11220000/ffff0000 at nexthdr+0)";
    assert!(shown.contains(expected), "{shown}");
    survives(&host);
}

/// As in every manual of the last twenty years.
#[test]
fn a_policer_at_ingress_may_name_a_missing_class() {
    let mut host = TwoPorts::with_queues(4);
    host.ok("qdisc add dev right handle ffff: ingress");
    host.ok("filter add dev right parent ffff: protocol ip prio 50 u32 match ip src 0.0.0.0/0 \
         police rate 7mbit burst 1m drop cookie c0ffee flowid :1");
    assert_eq!(
        host.ok("filter get dev right parent ffff: protocol ip prio 50 handle 800::800 u32"),
        "filter parent ffff: protocol ip pref 50 u32 chain 0 fh 800::800 order 2048 key ht 800 bkt 0 \
         flowid :1 not_in_hw \n  match 00000000/00000000 at 12\n\
         \taction order 1:  police 0x1 rate 7Mbit burst 1Mb mtu 2Kb action drop overhead 0b \n\
         \tref 1 bind 1 \n\tcookie c0ffee\n\n"
    );
    for all in ["0/0", "any", "10/0"] {
        host.ok(&format!(
            "filter replace dev right parent ffff: pref 60 u32 match ip dst {all} action drop"
        ));
    }
    host.ok("filter add dev right parent ffff: pref 61 u32 match ip dst 10.1/16 action drop");
    let shown = host.ok("filter show dev right ingress pref 61");
    assert!(shown.contains("match 0a010000/ffff0000 at 16"), "{shown}");
    for wrong in ["10.1.2.3.4", "10..1", "256", "+1", "", "x"] {
        let line = format!(
            "filter add dev right parent ffff: pref 62 u32 match ip dst {wrong}/8 action drop"
        );
        host.fails(&line, 1);
    }
    survives(&host);
}

#[test]
fn the_ends_of_a_port_come_and_go() {
    let mut host = TwoPorts::with_queues(1);
    host.ok("qdisc add dev left ingress");
    assert_eq!(
        host.ok("qdisc show dev left"),
        "qdisc noqueue 0: root refcnt 2 \nqdisc ingress ffff: parent ffff:fff1 ---------------- \n"
    );
    host.fails("qdisc add dev left ingress", 2);
    host.fails("filter add dev left egress pref 1 matchall action drop", 2);
    host.ok("filter add dev left parent ffff: pref 1 matchall action drop");
    survives(&host);
    host.fails("qdisc del dev left clsact", 2);
    host.ok("qdisc del dev left ingress");
    assert_eq!(save(&host.policy), "");
}

fn action() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("drop".to_owned()),
        Just("drop cookie a1b2c3".to_owned()),
        Just("pass random netrand drop 3".to_owned()),
        Just("skbedit priority 1:30 mark 0x5/0xff".to_owned()),
        (8_u64..1 << 34).prop_map(|rate| format!("pace rate {rate}bit")),
        (8_u64..1 << 34, 1_u64..1 << 20, 0_u16..100).prop_map(|(rate, burst, overhead)| format!(
            "police rate {rate}bit burst {burst} overhead {overhead} conform-exceed continue/pipe"
        )),
        (1_u64..1 << 20, 1_u64..1 << 10)
            .prop_map(|(rate, burst)| format!("police pkts_rate {rate} pkts_burst {burst} drop")),
    ]
}

proptest! {
    #[test]
    fn saved_filters_classify_the_same(
        list in prop::collection::vec((0..4_u8, prop::collection::vec(action(), 0..3), 1_u32..99), 0..12),
    ) {
        let mut host = tree();
        for (pref, (place, actions, mark)) in (1..).zip(list) {
            let place = ["parent 1:", "ingress", "egress", "parent 1:2"][usize::from(place)];
            let class = match (place, actions.is_empty()) {
                ("parent 1:", true) => " classid 1:30",
                ("parent 1:2", _) => " classid 1:10",
                (_, true) => " classid :3",
                _ => "",
            };
            let actions: String = actions.iter().map(|action| format!(" action {action}")).collect();
            let line = format!("filter add dev right {place} pref {pref} handle {mark} fw{class}{actions}");
            // There may be a warning about a small burst.
            prop_assert_eq!(host.tc(&line).code, 0, "{}", line);
        }
        let text = save(&host.policy);
        let again = load(&text, "saved", &TwoPorts::with_queues(4));
        prop_assert_eq!(again.as_ref(), Ok(&host.policy), "{}", text);
    }
}

#[test]
fn sets_are_looked_up_where_packets_come_in() {
    let mut host = tree();
    let at = "filter add dev right ingress protocol ip pref";
    host.ok(&format!("{at} 10 basic match ipset(friends src) action pass"));
    host.ok(&format!("{at} 20 basic match ipset(bad src) or (ipset(mail src,dst) and not ipset(friends dst)) action drop"));
    let shown = host.ok("filter show dev right ingress");
    assert!(shown.contains("ipset(friends src)"), "{shown}");
    assert!(shown.contains("ipset(mail src,dst)"), "{shown}");
    let port = host.policy.port("right").clone();
    let sets = port.sets();
    let names: Vec<&str> = sets.iter().map(AsRef::as_ref).collect();
    assert_eq!(names, ["friends", "bad", "mail", "friends"]);
    // The saved commands create the same policy.
    let saved = save(&host.policy);
    let again = load(&saved, "-", &TwoPorts::with_queues(4)).unwrap();
    assert_eq!(save(&again), saved);
    for (line, why) in [
        ("egress pref 1 basic match ipset(bad src) action drop", "say ingress"),
        ("parent 1: pref 1 basic match ipset(bad src) classid 1:10", "say ingress"),
        (
            "ingress protocol ip pref 5 matchall action police rate 1mbit burst 9k",
            "conform-exceed drop/continue",
        ),
        (
            "ingress protocol ip pref 5 matchall action drop random determ pass 9",
            "not support random drops",
        ),
        (
            "ingress protocol ip pref 5 matchall action police rate 1mbit burst 9k linklayer atm drop",
            "not support linklayer",
        ),
        (
            "ingress protocol ip pref 5 basic match ipset(bad src) action skbedit mark 5 continue",
            "knows nothing of sets",
        ),
        (
            "ingress protocol ip pref 15 flower ip_proto udp action skbedit mark 5 continue",
            "before those that pass",
        ),
        (
            "ingress protocol ip pref 30 matchall action police rate 1mbit burst 9k peakrate 2mbit \
             mtu 2k drop",
            "pref 10 passes",
        ),
        (
            "ingress protocol ip pref 5 basic match ipset(bad src) and meta(nf_mark gt 2) action drop",
            "only ipset()",
        ),
        ("ingress protocol ip pref 5 basic match ipset(bad) action drop", "ipset(blocklist src)"),
        (
            "ingress protocol ip pref 5 basic match ipset(bad source) action drop",
            "ipset(blocklist src)",
        ),
    ] {
        let code = if why.starts_with("ipset(") { 1 } else { 2 };
        let refused = host.fails(&format!("filter add dev right {line}"), code);
        assert!(refused.contains(why), "{line}: {refused}");
    }
    // Without a filter that passes packets, others may follow in the workers.
    host.ok("filter del dev right ingress pref 10");
    host.ok("filter add dev right ingress protocol ip pref 30 matchall action police rate 1mbit burst 9k");
}

/// How many terms of port "right" run in the driver, and the prefs of the filters in the workers.
fn split(host: &TwoPorts) -> (usize, Vec<u16>) {
    let (terms, rest) = host.policy.port("right").split(narrows_policy::Reach::Possible);
    (terms.len(), rest.iter().map(|(_, filter)| filter.pref).collect())
}

#[test]
fn dropping_filters_run_in_the_driver_if_all_before_them_can() {
    let mut host = tree();
    let add = |host: &mut TwoPorts, words: &str| {
        host.ok(&format!("filter add dev right ingress {words}"))
    };
    add(&mut host, "protocol ip pref 20 flower src_ip 10.0.0.0/8 classid 1:10 action continue");
    assert_eq!(split(&host), (0, vec![20]), "it drops nothing");
    add(&mut host, "protocol ip pref 30 u32 match ip protocol 17 0xff action drop");
    assert_eq!(split(&host), (2, vec![]));
    add(
        &mut host,
        "protocol ip pref 10 flower ip_proto tcp dst_port 22 action skbedit mark 5 continue",
    );
    assert_eq!(split(&host), (3, vec![10]), "what it sets is set again");
    add(&mut host, "pref 40 matchall action police rate 9mbit burst 90k");
    assert_eq!(split(&host), (3, vec![10, 40]), "reclassify is for workers");
    add(&mut host, "pref 25 matchall action pass");
    assert_eq!(split(&host), (0, vec![10, 20, 25, 30, 40]), "not all can, behind one that passes");
    host.ok("filter del dev right ingress pref 40");
    assert_eq!(split(&host), (4, vec![10]));
}

#[test]
fn what_only_the_kernel_matches_is_refused_with_what_to_give_instead() {
    let mut host = TwoPorts::with_queues(1);
    host.ok("qdisc add dev left clsact");
    for (filter, instead) in [
        ("protocol ip flower ct_state +trk action drop", "tcp_flags"),
        ("protocol ip flower enc_key_id 5 action drop", "header of the tunnel"),
        ("protocol arp flower arp_op request action drop", "match u16 1 0xffff at 6"),
        ("protocol mpls_uc flower mpls_label 5 action drop", "leave it out"),
        ("flower hw_tc 1", "a classid"),
        ("protocol all flower num_of_vlans 2 action drop", "cvlan_id"),
        ("flower skip_sw action drop", "leave it out"),
        ("bpf obj x.o sec y", "--front"),
        ("protocol ip flow hash keys src divisor 1024", "dual-srchost"),
        ("protocol ip cgroup", "addresses to flower"),
        ("protocol ip tcindex mask 0xfc shift 2", "ip_tos 0xb8/0xfc"),
        ("protocol ip rsvp session 10.0.0.1", "ports to flower"),
    ] {
        let code = if filter.contains("skip_sw") { 2 } else { 1 };
        let complaint = host.fails(&format!("filter add dev left ingress {filter}"), code);
        assert!(complaint.contains(instead), "{filter}: {complaint}");
    }
    host.ok("filter add dev left ingress protocol arp u32 match u16 1 0xffff at 6 action drop");
}

#[test]
fn each_of_many_is_policed_where_packets_come_in_and_nowhere_else() {
    let mut host = tree();
    let words = "matchall action police pkts_rate 100 pkts_burst 20 conform-exceed drop/continue \
                 per src block 10s room 131072 newcomers 1000";
    host.ok(&format!("filter add dev right ingress pref 5 {words}"));
    let shown = host.ok("filter show dev right ingress");
    assert!(
        shown.contains(
            "action drop/continue overhead 0b per src block 10s room 131072 newcomers 1000 "
        ),
        "{shown}"
    );
    let json = host.ok("-j filter show dev right ingress");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let action = &json[1]["options"]["actions"][0];
    assert_eq!((&action["per"], &action["block"]), (&"src".into(), &10_000_000.into()));
    assert_eq!((&action["room"], &action["newcomers"]), (&131_072.into(), &1000.into()));
    let stats = host.ok("-s filter show dev right ingress");
    assert!(stats.contains("\tover 0 blocked 0 newcomers 0 \n"), "{stats}");
    survives(&host);
    assert_eq!(split(&host).0, 1);
    let police = "matchall action police rate 1mbit burst 10k conform-exceed drop/continue";
    for (line, code, why) in [
        (format!("egress pref 5 {words}"), 2, "say ingress"),
        ("egress pref 5 matchall action police index 1".to_owned(), 2, "where packets come in"),
        (format!("ingress pref 6 {police} block 10s"), 1, "require 'per src|dst|flow'"),
        (format!("ingress pref 6 {police} per mac"), 1, "src, dst or flow"),
        (format!("ingress pref 6 {police} per dst room 5"), 1, "1024 to 4194304"),
        (format!("ingress pref 6 {police} per dst newcomers 0"), 1, "from 1"),
        (
            format!("ingress pref 6 {police} per flow block 60s newcomers 4096"),
            1,
            "at most newcomers 546",
        ),
        (
            "ingress pref 6 matchall action police mtu 2k drop per src".to_owned(),
            1,
            "requires 'rate'",
        ),
        (
            "ingress pref 9 matchall action police rate 1mbit burst 9k per src".to_owned(),
            2,
            "conform-exceed drop/continue",
        ),
    ] {
        let refused = host.fails(&format!("filter add dev right {line}"), code);
        assert!(refused.contains(why), "{line}: {refused}");
    }
    // The filters after it depend on it, even if someone changes what it does.
    let refused =
        host.fails("actions change action police rate 1mbit burst 9k index 1 per src", 255);
    assert!(refused.contains("conform-exceed"), "{refused}");
    host.ok("actions change action police rate 1mbit burst 9k drop index 1 per dst");
    survives(&host);
}
