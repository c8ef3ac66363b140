//! `mirred` and `ifb`: the lines with which tools shape what comes in at a port.

use crate::host::TwoPorts;
use narrows_tc::{OfflineHost, Options, execute, execute_batch, load, save};
use proptest::prelude::{Strategy, prop, prop_assert, prop_assert_eq, proptest};

const ALL: &str = "filter add dev left parent ffff: protocol all prio 10 u32 match u32 0 0 flowid 1:1 action mirred egress redirect dev ifb0";

/// Runs a line that must succeed, and returns its note.
#[track_caller]
fn noted(host: &mut TwoPorts, line: &str) -> String {
    let outcome = host.tc(line);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, ""), "tc {line}: {}", outcome.stderr);
    outcome.stderr
}

/// What the port `right` runs, as the lines that make it.
fn right(host: &TwoPorts) -> String {
    let in_force = host.policy.in_force("right", "left").unwrap();
    let nodes = in_force.nodes().into_iter();
    nodes.map(|node| format!("{} {} {};", node.kind.name(), node.handle, node.parent)).collect()
}

#[test]
fn what_comes_in_at_a_port_is_shaped_at_the_other_in_either_order() {
    for qdisc_first in [true, false] {
        let mut host = TwoPorts::with_queues(4);
        let mut lines = [
            "qdisc add dev left handle ffff: ingress",
            ALL,
            "qdisc add dev ifb0 root handle 1: htb default 11",
        ];
        if qdisc_first {
            lines.rotate_right(1);
        }
        let notes: Vec<String> = lines.iter().map(|line| noted(&mut host, line)).collect();
        let last = "Note: what comes in at left, of any protocol, leaves at right: the qdiscs of ifb0 are in force at the egress of right.\n";
        assert_eq!(notes[2], last);
        assert_eq!(notes[0].contains("waits for a filter"), qdisc_first, "{}", notes[0]);
        host.ok("class add dev ifb0 parent 1: classid 1:11 htb rate 10mbit");
        host.ok("qdisc add dev ifb0 parent 1:11 handle 11: sfq");
        assert_eq!(right(&host), "htb 1: root;sfq 11: parent 1:11;");
        assert!(host.ok("qdisc show dev ifb0").starts_with("qdisc htb 1: root refcnt 5 r2q 10"));
        assert!(host.ok("class show dev ifb0").starts_with("class htb 1:11 root leaf 11:"));
        let all = host.ok("qdisc show");
        assert!(all.contains("qdisc htb 1: dev ifb0 root"), "{all}");
        assert!(all.contains("qdisc noqueue 0: dev right root"), "{all}");
    }
}

#[test]
fn the_qdiscs_wait_before_the_filter_comes_and_after_it_goes() {
    let mut host = TwoPorts::with_queues(4);
    noted(&mut host, "qdisc add dev ifb0 root handle 1: tbf rate 1mbit burst 10k latency 20ms");
    assert_eq!(right(&host), "");
    let shown = host.ok("qdisc show dev ifb0");
    assert!(shown.starts_with("qdisc tbf 1: root refcnt 5 pending rate 1Mbit"), "{shown}");
    let json = host.ok("-j qdisc show dev ifb0");
    assert!(json.contains("\"pending\":true"), "{json}");
    host.ok("qdisc add dev left ingress");
    noted(&mut host, ALL);
    assert!(!host.ok("qdisc show dev ifb0").contains("pending"));
    assert_eq!(right(&host), "tbf 1: root;");
    host.ok("qdisc del dev left ingress");
    assert_eq!(right(&host), "");
    assert!(host.ok("qdisc show dev ifb0").contains("pending"));
    host.ok("qdisc del dev ifb0 root");
    assert_eq!(host.policy, TwoPorts::with_queues(4).policy);
}

#[test]
fn all_spellings_of_everything_are_taken() {
    for filter in [
        "parent ffff: protocol ip u32 match u32 0 0 flowid 1a1a: action mirred egress redirect dev ifb6682",
        "parent ffff: protocol ip pref 10 u32 match ip src 0.0.0.0/0 flowid :1 action mirred egress redirect dev ifb0",
        "parent ffff: protocol ipv6 u32 match u32 0 0 flowid 1:1 action mirred egress redirect dev ifb0",
        "ingress protocol all matchall action mirred egress redirect dev ifb4eth0",
        "parent ffff: protocol all prio 39999 u32 match u32 0 0 action mirred egress redirect dev eth0-ifb",
        "ingress matchall action mirred e r d ifb0",
        "ingress flower action mirred egress redirect dev ifb0 pipe",
        "ingress basic action mirred egress redirect index 7 dev ifb0",
        "ingress matchall action skbedit priority 1:10 pipe action mirred egress redirect dev ifb0",
        "ingress matchall action police rate 1mbit burst 10k conform-exceed drop/pipe action mirred egress redirect dev ifb0",
    ] {
        let mut host = TwoPorts::with_queues(1);
        host.ok("qdisc add dev left ingress");
        let note = noted(&mut host, &format!("filter add dev left {filter}"));
        assert!(note.contains("in force at the egress of right"), "{filter}: {note}");
        let text = save(&host.policy);
        assert_eq!(save(&load(&text, "f", &host).unwrap()), text);
    }
}

#[test]
fn what_would_be_only_a_part_or_another_way_is_refused_with_what_to_do() {
    let mut host = TwoPorts::with_queues(1);
    host.ok("qdisc add dev left clsact");
    host.ok("qdisc add dev right root handle 1: prio");
    for (filter, why) in [
        (
            "dev left ingress protocol ip flower dst_ip 10.0.0.0/8 action mirred egress redirect dev ifb0",
            "Only a part",
        ),
        (
            "dev left ingress protocol ip u32 match ip dst 10.0.0.0/8 action mirred egress redirect dev ifb0",
            "Only a part",
        ),
        (
            "dev left ingress protocol arp matchall action mirred egress redirect dev ifb0",
            "Only a part",
        ),
        ("dev left ingress handle 5 fw action mirred egress redirect dev ifb0", "Only a part"),
        (
            "dev left ingress matchall action police rate 1mbit burst 9k conform-exceed pass/pipe action mirred egress redirect dev ifb0",
            "Only a part",
        ),
        ("dev left ingress matchall action mirred egress redirect dev right", "is a port here"),
        ("dev left ingress matchall action mirred egress redirect dev left", "is a port here"),
        ("dev left ingress matchall action mirred egress redirect dev eth7", "is no ifb"),
        ("dev left ingress matchall action mirred egress redirect dev lo", "is no ifb"),
        ("dev left egress matchall action mirred egress redirect dev ifb0", "is for ingress"),
        ("dev right parent 1: matchall action mirred egress redirect dev ifb0", "is for ingress"),
        ("dev left ingress matchall action mirred index 9", "There is no mirred with index 9"),
        ("dev left ingress matchall action mirred egress mirror dev ifb0", "a packet leaves once"),
        ("dev left ingress matchall action mirred ingress redirect dev ifb0", "by the ports"),
        (
            "dev left ingress matchall action jump 1 action mirred egress redirect dev ifb0",
            "Only a",
        ),
    ] {
        let complaint = host.fails(&format!("filter add {filter}"), 2);
        assert!(complaint.contains(why), "{filter}: {complaint}");
    }
    for (action, why) in [
        ("mirred egress redirect", "mirred egress redirect dev ifb0"),
        ("mirred redirect dev ifb0", "mirred egress redirect dev ifb0"),
        ("mirred egress redirect dev a/b", "no device can be called"),
        ("mirred egress redirect blockid 3", "blockid"),
        ("mirred", "mirred egress redirect dev ifb0"),
    ] {
        let complaint =
            host.fails(&format!("filter add dev left ingress matchall action {action}"), 1);
        assert!(complaint.contains(why), "{action}: {complaint}");
    }
    let complaint = host.fails("qdisc add dev ifb0 ingress", 2);
    assert!(complaint.contains("no ends of its own"), "{complaint}");
    host.fails("qdisc show dev eth7", 1);
}

#[test]
fn filters_before_it_may_drop_and_go_on_but_not_pass() {
    let mut host = TwoPorts::with_queues(1);
    host.ok("qdisc add dev left ingress");
    host.ok("filter add dev left ingress pref 1 flower ip_proto udp action drop");
    host.ok("filter add dev left ingress pref 2 flower ip_proto tcp action skbedit priority 1:10 continue");
    noted(
        &mut host,
        "filter add dev left ingress pref 10 matchall action mirred egress redirect dev ifb0",
    );
    for (filter, is_taken) in [
        ("pref 3 protocol ip flower dst_ip 10.0.0.1 action pass", false),
        ("pref 3 protocol ip flower dst_ip 10.0.0.1 classid 1:1", false),
        ("pref 3 protocol ip flower dst_ip 10.0.0.1 action skbedit mark 1", false),
        ("pref 3 protocol ip flower dst_ip 10.0.0.1 action police rate 1mbit burst 9k drop", false),
        (
            "pref 3 protocol ip flower dst_ip 10.0.0.1 action police rate 1mbit burst 9k conform-exceed drop/continue",
            true,
        ),
        ("pref 11 protocol ip flower dst_ip 10.0.0.1 action pass", true),
        ("pref 12 protocol ipv6 matchall action mirred egress redirect dev ifb0", true),
        ("pref 13 protocol ip matchall action mirred egress redirect dev ifb1", false),
    ] {
        let outcome = host.tc(&format!("filter add dev left ingress {filter}"));
        assert_eq!(outcome.code == 0, is_taken, "{filter}: {}", outcome.stderr);
    }
    // Nor does a redirect come behind what passes.
    host.ok("qdisc add dev right ingress");
    host.ok("filter add dev right ingress pref 1 flower ip_proto udp action pass");
    let redirect = "filter add dev right ingress pref 5 matchall action mirred egress redirect dev";
    let complaint = host.fails(&format!("{redirect} ifb1"), 2);
    assert!(complaint.contains("would not go to ifb1"), "{complaint}");
    host.ok("filter del dev right ingress pref 1");
    let complaint = host.fails(&format!("{redirect} ifb0"), 2);
    assert!(complaint.contains("one direction"), "{complaint}");
    assert!(noted(&mut host, &format!("{redirect} ifb1")).contains("leaves at left"));
}

#[test]
fn both_a_port_and_the_device_cannot_shape_the_same() {
    let mut host = TwoPorts::with_queues(1);
    host.ok("qdisc add dev left ingress");
    noted(&mut host, ALL);
    host.ok("qdisc add dev right root handle 1: pfifo");
    assert_eq!(right(&host), "pfifo 1: root;");
    noted(&mut host, "qdisc add dev ifb0 root handle 1: pfifo limit 5");
    let refused = host.policy.in_force("right", "left").unwrap_err().to_string();
    assert!(refused.contains("Delete the root of right"), "{refused}");
    // The other direction is its own.
    assert!(host.policy.in_force("left", "right").is_ok());
}

#[test]
fn the_action_is_listed_as_tc_lists_it() {
    let mut host = TwoPorts::with_queues(1);
    host.ok("qdisc add dev left ingress");
    noted(&mut host, ALL);
    let text = host.ok("filter show dev left ingress");
    let listed = "\taction order 1: mirred (Egress Redirect to device ifb0) stolen\n\tindex 1 ref 1 bind 1\n";
    assert!(text.contains(listed), "{text}");
    let actions = host.ok("actions show action mirred");
    assert!(actions.contains("(Egress Redirect to device ifb0) stolen"), "{actions}");
    let json: serde_json::Value =
        serde_json::from_str(&host.ok("-j filter show dev left ingress")).unwrap();
    let action = &json[2]["options"]["actions"][0];
    let expected = serde_json::json!({
        "order": 1, "kind": "mirred", "mirred_action": "redirect", "direction": "egress",
        "to_dev": "ifb0", "control_action": { "type": "stolen" }, "index": 1, "ref": 1, "bind": 1,
    });
    assert_eq!(action, &expected);
    noted(&mut host, "actions add action mirred egress redirect dev ifb0 index 5");
    host.ok("actions del action mirred index 5");
}

#[test]
fn a_file_reads_the_same_in_any_order_and_says_nothing() {
    let text = "qdisc add dev ifb0 root handle 1: tbf rate 1mbit burst 10k latency 20ms\n\
        qdisc add dev left handle ffff: ingress\n\
        filter add dev left parent ffff: protocol ip u32 match u32 0 0 action mirred egress redirect dev ifb0\n";
    let host = TwoPorts::with_queues(2);
    let policy = load(text, "f", &host).unwrap();
    let back: Vec<&str> = text.lines().rev().collect();
    let [filter, ingress, qdisc] = back[..] else { panic!("three") };
    assert_eq!(load(&format!("{ingress}\n{filter}\n{qdisc}\n"), "f", &host).unwrap(), policy);
    assert_eq!(load(&save(&policy), "f", &host).unwrap(), policy);
    let mut live = TwoPorts::with_queues(2);
    let outcome = execute_batch(text, "f", &Options::default(), &mut live);
    assert_eq!((outcome.code, live.policy), (0, policy));
    assert_eq!(outcome.stderr.lines().count(), 2, "{}", outcome.stderr);
}

#[test]
fn a_policy_file_takes_the_device_before_and_after_the_filter() {
    let ifb = "qdisc add dev ifb0 root handle 1: htb default 1";
    for lines in
        [[ifb, "qdisc add dev left ingress", ALL], ["qdisc add dev left ingress", ALL, ifb]]
    {
        let mut file = OfflineHost::default();
        for line in lines {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let outcome = execute(&words, &mut file);
            assert_eq!(outcome.code, 0, "{line}: {}", outcome.stderr);
        }
        let outcome = execute(&["qdisc".to_owned(), "show".to_owned()], &mut file);
        assert!(!outcome.stdout.contains("pending"), "{}", outcome.stdout);
    }
}

/// Lines about ports, intermediate devices and filters, in any order.
fn line() -> impl Strategy<Value = String> {
    let dev = || prop::sample::select(vec!["left", "right", "ifb0", "ifb1"]);
    let qdisc = prop::sample::select(vec![
        "qdisc replace dev DEV root handle 1: htb default 1",
        "qdisc replace dev DEV root handle 2: tbf rate 1mbit burst 10k latency 20ms",
        "class add dev DEV parent 1: classid 1:1 htb rate 1mbit",
        "qdisc del dev DEV root",
        "qdisc add dev DEV ingress",
        "qdisc del dev DEV ingress",
        "filter del dev DEV ingress",
        "filter add dev DEV ingress pref 3 matchall action mirred egress redirect dev ifb0",
        "filter add dev DEV ingress pref 5 u32 match u32 0 0 action mirred egress redirect dev ifb1",
        "filter add dev DEV ingress pref 4 flower ip_proto tcp action pass",
        "filter add dev DEV ingress pref 1 flower ip_proto tcp action drop",
        "actions replace action mirred egress redirect dev ifb1 index 1",
        "actions flush action mirred",
    ]);
    (dev(), qdisc).prop_map(|(dev, line)| line.replace("DEV", dev))
}

proptest! {
    /// Whatever is said in whatever order: what is accepted is saved and read back the same, and a
    /// port runs its own qdiscs, those of the one device that gets what leaves there, or says why
    /// not.
    #[test]
    fn redirects_in_any_order(lines in prop::collection::vec(line(), 1..25)) {
        let mut host = TwoPorts::with_queues(2);
        for line in lines {
            let before = host.policy.clone();
            let outcome = host.tc(&line);
            if outcome.code != 0 {
                prop_assert_eq!(&host.policy, &before, "{}", line);
                prop_assert!(!outcome.stderr.is_empty());
            }
            for (port, opposite) in [("left", "right"), ("right", "left")] {
                let own = host.policy.port(port).root().map(|root| root.handle);
                let through = host.policy.redirected(opposite);
                let through = through.and_then(|to| host.policy.port(to.as_str()).root());
                let through = through.map(|root| root.handle);
                match host.policy.in_force(port, opposite) {
                    Ok(runs) => {
                        let root = runs.root().map(|root| root.handle);
                        prop_assert_eq!(root, through.or(own));
                        prop_assert_eq!(&runs.ends, &host.policy.port(port).ends);
                    }
                    Err(_) => prop_assert!(own.is_some() && through.is_some()),
                }
            }
            let targets = ["left", "right"].map(|port| host.policy.redirected(port));
            prop_assert!(targets[0].is_none() || targets[0] != targets[1]);
            let text = save(&host.policy);
            prop_assert_eq!(&load(&text, "f", &host).unwrap(), &host.policy, "{}", text);
        }
    }
}
