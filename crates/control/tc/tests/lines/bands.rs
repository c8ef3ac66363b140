//! `prio`, `drr`, `ets`, their classes and their filters.

use crate::host::TwoPorts;
use narrows_packet::Backlog;
use narrows_policy::{Handle, NodeStats, Parent};
use narrows_qdisc::{Detail, Stats, bands};
use narrows_tc::{load, save};
use narrows_units::Bytes;

#[test]
fn a_prio_is_shown_as_tc_shows_it() {
    let mut host = TwoPorts::with_queues(4);
    host.ok("qdisc add dev right root handle 1: prio");
    host.ok("qdisc add dev right parent 1:2 handle 20: pfifo limit 7");
    assert_eq!(
        host.ok("qdisc show dev right"),
        "qdisc prio 1: root refcnt 5 bands 3 priomap 1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1 \n\
         qdisc pfifo 20: parent 1:2 limit 7p\n"
    );
    assert_eq!(
        host.ok("class show dev right"),
        "class prio 1:1 parent 1: \nclass prio 1:2 parent 1: leaf 20: \nclass prio 1:3 parent 1: \n"
    );
    assert!(host.ok("qdisc show dev right invisible").contains("qdisc pfifo 0: parent 1:3 limit"));
    assert_eq!(
        host.ok("-j class show dev right classid 1:2"),
        "[{\"class\":\"prio\",\"handle\":\"1:2\",\"parent\":\"1:\",\"leaf\":\"0x20\"}]\n"
    );
    let json: serde_json::Value =
        serde_json::from_str(&host.ok("-j qdisc show dev right")).unwrap();
    assert_eq!(json[0]["options"]["bands"], 3);
    assert_eq!(json[0]["options"]["priomap"].as_array().unwrap().len(), 16);
}

#[test]
fn a_drr_is_shown_as_tc_shows_it() {
    let mut host = TwoPorts::with_queues(4);
    host.ok("qdisc add dev right root handle 1: drr");
    host.ok("class add dev right parent 1: classid 1:1 drr quantum 3k");
    host.ok("class add dev right parent 1: classid 1:2 drr");
    host.ok("qdisc add dev right parent 1:2 handle 20: pfifo");
    assert_eq!(host.ok("qdisc show dev right root"), "qdisc drr 1: root refcnt 5 \n");
    assert_eq!(
        host.ok("class show dev right"),
        "class drr 1:1 root quantum 3Kb \nclass drr 1:2 root leaf 20: quantum 1514b \n"
    );
    let stats = Stats {
        sent_packets: 3,
        sent_bytes: 300,
        drops: 2,
        backlog: Backlog { packets: 1, bytes: Bytes(100) },
        ..Stats::default()
    };
    let parent = Parent::Class(Handle::new(1).unwrap().class(2));
    host.stats.push(NodeStats { parent, handle: Handle::new(0x20), stats });
    let deficits = [(2, 1_414)].into();
    let detail = Some(Detail::Bands(Box::new(bands::Figures { deficits, ..Default::default() })));
    let stats = Stats { detail, ..Stats::default() };
    host.stats.push(NodeStats { parent: Parent::Root, handle: Handle::new(1), stats });
    assert_eq!(
        host.ok("-s class show dev right classid 1:2"),
        "class drr 1:2 root leaf 20: quantum 1514b \n \
         Sent 300 bytes 3 pkt (dropped 2, overlimits 0 requeues 0) \n \
         backlog 100b 1p requeues 0\n \
         deficit 1414b \n"
    );
    let json: serde_json::Value =
        serde_json::from_str(&host.ok("-s -j class show dev right classid 1:2")).unwrap();
    assert_eq!(json[0]["quantum"], 1514);
    assert_eq!(json[0]["stats"]["deficit"], 1414);
    // As in the kernel, a parent that is a class counts as the qdisc.
    host.ok("class add dev right parent 1:9 classid 1:3 drr");
    assert!(host.ok("class show dev right").contains("class drr 1:3 root "));
    host.ok("class del dev right classid 1:3");
    host.ok("class change dev right classid 1:2 drr quantum 100");
    assert!(host.ok("class show dev right classid 1:2").contains("quantum 256b"), "as the kernel");
}

#[test]
fn an_ets_is_shown_as_tc_shows_it() {
    let mut host = TwoPorts::with_queues(4);
    host.ok(
        "qdisc add dev right root handle 1: ets bands 4 strict 1 quanta 3000 2000 priomap 0 1 2",
    );
    assert_eq!(
        host.ok("qdisc show dev right"),
        "qdisc ets 1: root refcnt 5 bands 4 strict 1 quanta 3000 2000 1514 \
         priomap 0 1 2 3 3 3 3 3 3 3 3 3 3 3 3 3 \n"
    );
    host.ok("class change dev right classid 1:2 ets quantum 5000");
    assert_eq!(
        host.ok("class show dev right"),
        "class ets 1:1 root \nclass ets 1:2 root quantum 5000 \n\
         class ets 1:3 root quantum 2000 \nclass ets 1:4 root quantum 1514 \n"
    );
    host.ok("qdisc change dev right root ets strict 2");
    assert!(host.ok("qdisc show dev right").contains("bands 2 strict 2 priomap 1 1 1"));
}

#[test]
fn a_saved_policy_loads_as_the_same_policy() {
    let mut host = TwoPorts::with_queues(4);
    for line in [
        "qdisc add dev right root handle 1: htb default 20",
        "class add dev right parent 1: classid 1:10 htb rate 20mbit",
        "class add dev right parent 1: classid 1:20 htb rate 20mbit",
        "qdisc add dev right parent 1:10 handle 10: prio bands 2 priomap 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1",
        "qdisc add dev right parent 10:2 handle 12: drr",
        "class add dev right parent 12: classid 12:1 drr quantum 3000",
        "class add dev right parent 12: classid 12:2 drr",
        "qdisc add dev right parent 12:2 handle 13: fq",
        "qdisc add dev right parent 1:20 handle 20: ets strict 1 quanta 4000 2000 priomap 2 1",
        "filter add dev right parent 1: protocol ip pref 1 flower dst_ip 10.0.0.0/8 classid 1:10",
        "filter add dev right parent 10: protocol ip pref 1 flower ip_proto udp classid 10:2",
        "filter add dev right parent 12: pref 7 matchall classid 12:1",
        "filter add dev right parent 20: protocol ip pref 1 flower ip_proto tcp classid 20:3",
    ] {
        host.ok(line);
    }
    let saved = save(&host.policy);
    let again = load(&saved, "file", &host).expect(&saved);
    assert_eq!(save(&again), saved);
    assert!(saved.contains("class replace dev right parent 12: classid 12:1 drr quantum 3000\n"));
    // As in tc, a requested parent is not repeated.
    let shown = host.ok("filter show dev right parent 10:");
    assert!(shown.contains("filter protocol ip pref 1 flower chain 0 handle 0x1 classid 10:2"));
    assert_eq!(host.ok("filter show dev right").matches("classid").count(), 1, "the root's alone");
}

#[test]
fn classes_are_drawn_as_tc_draws_them() {
    let mut host = TwoPorts::with_queues(4);
    for line in [
        "qdisc replace dev right root handle 1: htb default 10",
        "class add dev right parent 1: classid 1:1 htb rate 1mbit",
        "class add dev right parent 1: classid 1:2 htb rate 10mbit ceil 20mbit",
        "class add dev right parent 1:2 classid 1:10 htb rate 2mbit",
        "class add dev right parent 1:2 classid 1:20 htb rate 3mbit",
        "class add dev right parent 1:20 classid 1:21 htb rate 3mbit",
    ] {
        host.ok(line);
    }
    // The output of tc 6.1, except for the bursts of 3 Mbit/s and the line after each branch.
    assert_eq!(
        host.ok("-g class show dev right"),
        "+---(1:1) htb prio 0 rate 1Mbit ceil 1Mbit burst 1600b cburst 1600b \n\
         +---(1:2) htb rate 10Mbit ceil 20Mbit burst 1600b cburst 1600b \n     \
         +---(1:10) htb prio 0 rate 2Mbit ceil 2Mbit burst 1600b cburst 1600b \n     \
         +---(1:20) htb rate 3Mbit ceil 3Mbit burst 1600b cburst 1600b \n          \
         +---(1:21) htb prio 0 rate 3Mbit ceil 3Mbit burst 1600b cburst 1600b \n"
    );
    let sent = "Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0) ";
    assert_eq!(
        host.ok("-g -s class show dev right"),
        format!(
            "+---(1:1) htb prio 0 rate 1Mbit ceil 1Mbit burst 1600b cburst 1600b \n\
             |         {sent}\n\
             |         backlog 0b 0p requeues 0\n\
             |     \n\
             +---(1:2) htb rate 10Mbit ceil 20Mbit burst 1600b cburst 1600b \n     \
             |    {sent}\n     \
             |    backlog 0b 0p requeues 0\n     \
             |\n     \
             +---(1:10) htb prio 0 rate 2Mbit ceil 2Mbit burst 1600b cburst 1600b \n     \
             |          {sent}\n     \
             |          backlog 0b 0p requeues 0\n     \
             |     \n     \
             +---(1:20) htb rate 3Mbit ceil 3Mbit burst 1600b cburst 1600b \n          \
             |     {sent}\n          \
             |     backlog 0b 0p requeues 0\n          \
             |\n          \
             +---(1:21) htb prio 0 rate 3Mbit ceil 3Mbit burst 1600b cburst 1600b \n                     \
             {sent}\n                     \
             backlog 0b 0p requeues 0\n"
        )
    );
    host.ok("qdisc replace dev right root handle 2: drr");
    host.ok("class add dev right parent 2: classid 2:7 drr");
    assert_eq!(host.ok("-g class show dev right"), "+---(2:7) drr quantum 1514b \n");
}

#[test]
fn complaints_have_tc_s_words() {
    let mut host = TwoPorts::with_queues(4);
    for (parameters, why) in [
        ("prio bands x", "illegal value for \"bands\""),
        ("prio foo", "What is \"foo\"?"),
        ("prio help", "Usage: ... prio bands NUMBER priomap P1 P2"),
        ("prio bands 2 priomap 2", "\"priomap\" element is out of bands"),
        ("prio priomap 0 priomap 1", "Error: duplicate priomap"),
        ("prio priomap x", "Illegal \"priomap\" element"),
        ("prio priomap 0 bands 4", "belongs before"),
        ("prio priomap 0 1 2 0 1 2 0 1 2 0 1 2 0 1 2 0 1", "\"priomap\" index > TC_PRIO_MAX=15"),
        ("drr foo", "What is \"foo\"?\nUsage: ... drr"),
        ("ets", "One of \"bands\", \"quanta\" or \"strict\" needs to be specified"),
        ("ets bands 0", "One of \"bands\", \"quanta\" or \"strict\" needs to be specified"),
        ("ets bands 17", "The number of \"bands\" must be <= 16"),
        ("ets bands 3 bands 4", "Duplicate \"bands\""),
        ("ets strict 2 strict 3", "Duplicate \"strict\""),
        ("ets strict x", "illegal value for \"strict\""),
        ("ets bands 3 quanta 0", "\"quanta\" must be > 0"),
        ("ets quanta 1500 quanta 3", "Duplicate \"quanta\""),
        ("ets quanta x", "Illegal \"quanta\" element"),
        ("ets bands 2 strict 3", "Not enough total bands to cover all the strict bands and quanta"),
        ("ets bands 3 priomap 3", "\"priomap\" element is out of bounds"),
        ("ets bands 3 priomap 0 priomap 1", "Duplicate \"priomap\""),
        (
            "ets bands 2 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
            "\"priomap\" index cannot be higher than 15",
        ),
        ("ets bands 2 priomap x", "Illegal \"priomap\" element"),
    ] {
        let complaint = host.fails(&format!("qdisc replace dev right root {parameters}"), 1);
        assert!(complaint.contains(why), "{parameters}: {complaint}");
    }
    host.fails("qdisc replace dev right root ets bands 2 quanta", 255);
    for (parameters, why) in [
        ("prio bands 1", "bands are 2 to 16"),
        ("prio bands 17", "bands are 2 to 16"),
        ("prio bands 2", "give all 16 elements"),
    ] {
        let complaint = host.fails(&format!("qdisc replace dev right root {parameters}"), 2);
        assert!(complaint.contains(why), "{parameters}: {complaint}");
    }
}

#[test]
fn what_the_kernel_refuses_of_classes_is_refused_in_the_same_words() {
    let mut host = TwoPorts::with_queues(4);
    for (kind, line, code, why) in [
        ("prio", "class add dev right parent 1: classid 1:7 prio", 1, "\"prio\" is classless"),
        ("prio", "class del dev right classid 1:1", 2, "Operation not supported"),
        ("prio", "qdisc add dev right parent 1:4 pfifo", 2, "Specified class not found"),
        ("prio", "qdisc add dev right parent 1:1 noqueue", 2, "Cannot assign noqueue"),
        ("prio", "filter add dev right pref 1 matchall classid 1:4", 2, "class doesn't exist"),
        ("prio", "filter add dev right parent 2: pref 1 matchall classid 1:1", 2, "Parent Qdisc"),
        ("prio", "filter add dev right parent 1:1 pref 1 matchall classid 1:1", 2, "Parent Qdisc"),
        ("drr", "class add dev right parent 1: classid 1:7 drr quantum x", 1, "illegal value"),
        ("drr", "class add dev right parent 1: classid 1:7 drr foo", 1, "What is \"foo\"?"),
        ("drr", "class add dev right parent 1: classid 1:7 drr quantum 0", 2, "cannot be zero"),
        ("drr", "class add dev right parent 2:1 classid 1:7 drr", 2, "give parent 1:"),
        ("drr", "class add dev right parent 1: classid 2:7 drr", 2, "There is no"),
        ("drr", "class add dev right parent 1: drr", 2, "classid ID"),
        ("drr", "class change dev right classid 1:7 drr", 2, "no class 1:7"),
        ("drr", "class add dev right parent 1: classid 1:7 htb rate 1mbit", 2, "1: is a drr"),
        (
            "ets bands 3 strict 1",
            "class add dev right classid 1:9 ets quantum 2000",
            2,
            "Fine-grained",
        ),
        ("ets bands 3 strict 1", "class del dev right classid 1:1", 2, "Fine-grained"),
        (
            "ets bands 3 strict 1",
            "class change dev right classid 1:1 ets quantum 9",
            2,
            "Strict bands",
        ),
        (
            "ets bands 3 strict 1",
            "class change dev right classid 1:2 ets quantum 0",
            1,
            "must be > 0",
        ),
        (
            "ets bands 3 strict 1",
            "class change dev right classid 1:2 drr quantum 9",
            2,
            "1: is a ets",
        ),
    ] {
        host.ok(&format!("qdisc replace dev right root handle 1: {kind}"));
        let complaint = host.fails(line, code);
        assert!(complaint.contains(why), "{line}: {complaint}");
        host.ok("qdisc del dev right root");
    }
}

#[test]
fn bands_go_with_their_qdiscs_but_not_while_filters_assign_packets_to_them() {
    let mut host = TwoPorts::with_queues(4);
    host.ok("qdisc add dev right root handle 1: prio bands 4 priomap 3");
    host.ok("qdisc add dev right parent 1:4 handle 40: pfifo");
    host.ok("filter add dev right parent 1: pref 1 matchall classid 1:4");
    let complaint = host.fails("qdisc change dev right root prio", 2);
    assert!(complaint.contains("PRIO class is in use"), "{complaint}");
    host.ok("filter del dev right parent 1: pref 1");
    host.ok("qdisc change dev right root prio");
    assert!(!host.ok("qdisc show dev right").contains("40:"));
    host.ok("qdisc replace dev right root handle 2: drr");
    host.ok("class add dev right parent 2: classid 2:1 drr");
    host.ok("filter add dev right parent 2: pref 1 matchall classid 2:1");
    let complaint = host.fails("class del dev right classid 2:1", 2);
    assert!(complaint.contains("DRR class is in use"), "{complaint}");
}

#[test]
fn qdiscs_with_classes_stand_below_each_other_three_deep() {
    let mut host = TwoPorts::with_queues(4);
    host.ok("qdisc add dev right root handle 1: tbf rate 10mbit burst 10k limit 50k");
    host.ok("qdisc add dev right parent 1: handle 2: prio");
    host.ok("qdisc add dev right parent 2:1 handle 3: htb");
    host.ok("class add dev right parent 3: classid 3:1 htb rate 1mbit");
    host.ok("qdisc add dev right parent 3:1 handle 4: ets bands 2");
    let complaint = host.fails("qdisc add dev right parent 4:1 handle 5: drr", 2);
    assert!(complaint.contains("at most 3 deep"), "{complaint}");
    let complaint = host.fails("qdisc add dev right parent 4:1 cake bandwidth 1mbit", 2);
    assert!(complaint.contains("give it a ceil"), "{complaint}");
    host.ok("qdisc add dev right parent 2:2 handle 6: tbf rate 1mbit burst 10k limit 50k");
}

#[test]
fn a_pfifo_fast_is_a_prio_whose_classes_nobody_sees() {
    let mut host = TwoPorts::with_queues(1);
    host.ok("qdisc add dev right root pfifo_fast");
    host.ok("qdisc replace dev right root handle 1: pfifo_fast");
    let shown =
        "qdisc pfifo_fast 1: root refcnt 2 bands 3 priomap 1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1 \n";
    assert_eq!(host.ok("qdisc show dev right"), shown);
    assert_eq!(host.ok("qdisc show dev right invisible"), shown);
    assert_eq!(host.ok("class show dev right"), "");
    let text = narrows_tc::save(&host.policy);
    assert_eq!(text, "qdisc replace dev right root handle 1: pfifo_fast\n");
    assert_eq!(
        narrows_tc::load(&text, "saved", &TwoPorts::with_queues(1)).as_ref(),
        Ok(&host.policy)
    );
    for (line, code, why) in [
        ("qdisc add dev right root pfifo_fast limit 5", 1, "takes none"),
        ("qdisc add dev right parent 1:1 pfifo", 2, "not classful"),
        ("filter add dev right parent 1: pref 1 matchall classid 1:1", 2, "Parent Qdisc"),
        ("filter add dev right pref 1 matchall classid 1:1", 2, "Parent Qdisc"),
        ("class change dev right classid 1:1 drr", 2, "There is no htb"),
        ("qdisc del dev right root handle 2:", 2, "The qdisc there is 1:"),
    ] {
        let complaint = host.fails(line, code);
        assert!(complaint.contains(why), "{line}: {complaint}");
    }
    // It runs what a prio does.
    let fast = narrows_policy::Plan::of(host.policy.port("right"), 1).unwrap();
    host.ok("qdisc del dev right root");
    host.ok("qdisc replace dev right root handle 1: prio");
    assert_eq!(fast, narrows_policy::Plan::of(host.policy.port("right"), 1).unwrap());
    host.ok("qdisc replace dev right root handle 2: htb default 10");
    host.ok("class add dev right parent 2: classid 2:10 htb rate 1mbit");
    host.ok("qdisc add dev right parent 2:10 pfifo_fast");
}

#[test]
fn an_htb_stands_at_a_queue_of_an_mq() {
    let mut host = TwoPorts::with_queues(4);
    host.ok("qdisc add dev right root handle 1: mq");
    for queue in [1, 2] {
        host.ok(&format!("qdisc add dev right parent 1:{queue} handle {queue}0: htb default 1"));
        let class = format!("parent {queue}0: classid {queue}0:1");
        host.ok(&format!("class add dev right {class} htb rate {queue}mbit"));
        host.ok(&format!(
            "filter add dev right parent {queue}0: pref 1 matchall classid {queue}0:1"
        ));
    }
    let shown = host.ok("class show dev right qdisc 20:");
    assert!(shown.starts_with("class htb 20:1 root prio 0 rate 2Mbit"), "{shown}");
    assert!(host.ok("filter show dev right parent 20:").contains("id 20:1"));
}
