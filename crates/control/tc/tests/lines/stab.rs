//! `stab`: the words, what `-d` shows, and where it is refused.

use crate::host::TwoPorts;
use narrows_tc::{load, save};

#[test]
fn a_stab_is_shown_with_details_as_tc_shows_it() {
    for (words, shown, json) in [
        ("overhead 10", "overhead 10 ", r#"{"overhead":10}"#),
        (
            "linklayer atm overhead 10 mtu 2000 mpu 64 tsize 512",
            "linklayer atm overhead 10 mpu 64 mtu 2000 tsize 512 ",
            r#"{"linklayer":"atm","overhead":10,"mpu":64,"mtu":2000,"tsize":512}"#,
        ),
        (
            "overhead -4 mpu 64",
            "overhead -4 mpu 64 mtu 2047 tsize 512 ",
            r#"{"overhead":-4,"mpu":64,"mtu":2047,"tsize":512}"#,
        ),
        (
            "linkl ethernet over 8 mtu 900 ts 3",
            "linklayer ethernet overhead 8 ",
            r#"{"linklayer":"ethernet","overhead":8}"#,
        ),
        (
            "linklayer adsl",
            "linklayer atm mtu 2047 tsize 512 ",
            r#"{"linklayer":"atm","mtu":2047,"tsize":512}"#,
        ),
    ] {
        let mut host = TwoPorts::with_queues(1);
        host.ok(&format!("qdisc add dev right root handle 1: stab {words} pfifo limit 5"));
        assert_eq!(host.ok("qdisc show dev right"), "qdisc pfifo 1: root refcnt 2 limit 5p\n");
        let text = format!("qdisc pfifo 1: root refcnt 2 limit 5p\n {shown}\n");
        assert_eq!(host.ok("-d qdisc show dev right"), text, "{words}");
        let found = host.ok("-d -j qdisc show dev right");
        assert!(found.contains(&format!(r#""stab":{json}"#)), "{found}");
        let text = save(&host.policy);
        assert_eq!(load(&text, "f", &host).unwrap(), host.policy, "{text}");
    }
}

#[test]
fn each_command_states_the_size_table_anew() {
    let mut host = TwoPorts::with_queues(1);
    let tbf = "tbf rate 1mbit burst 9k latency 9ms";
    host.ok(&format!("qdisc add dev right stab overhead 10 root handle 1: {tbf}"));
    host.ok(&format!("qdisc change dev right handle 1: stab overhead 20 {tbf}"));
    assert!(host.ok("-d qdisc show dev right").contains(" overhead 20 \n"));
    host.ok(&format!("qdisc change dev right handle 1: {tbf}"));
    assert!(!host.ok("-d qdisc show dev right").contains("\n overhead"));
}

#[test]
fn wrong_size_tables_are_refused_with_what_to_give() {
    let mut host = TwoPorts::with_queues(4);
    for (words, code, why) in [
        ("stab pfifo", 255, "give overhead, mpu or linklayer"),
        ("stab mtu 1500 pfifo", 255, "give overhead, mpu or linklayer"),
        ("stab overhead x pfifo", 255, "-65535 to 65535"),
        ("stab overhead 65536 pfifo", 255, "-65535 to 65535"),
        ("stab overhead -2147483648 pfifo", 255, "-65535 to 65535"),
        ("stab mpu -1 pfifo", 255, "without a unit"),
        ("stab overhead 1 overhead 2 pfifo", 255, "duplicate \"overhead\""),
        ("stab linklayer wifi pfifo", 255, "ethernet, atm, adsl and ptm"),
        ("stab overhead", 255, "not complete"),
        ("stab help", 255, "linklayer {ethernet"),
        ("stab overhead 10 mq", 2, "give stab to the qdiscs of its queues"),
        ("stab overhead 10 noqueue", 2, "queues nothing itself"),
        ("stab overhead 10 cake", 2, "give it overhead, mpu and atm"),
    ] {
        let complaint = host.fails(&format!("qdisc add dev right root {words}"), code);
        assert!(complaint.contains(why), "{words}: {complaint}");
    }
    host.ok("qdisc add dev right root handle 1: stab overhead 10 prio");
    let complaint = host.fails("qdisc add dev right parent 1:1 handle 2: stab overhead 5 pfifo", 2);
    assert!(complaint.contains("1: has a stab already"), "{complaint}");
    host.ok("qdisc add dev right parent 1:1 handle 2: pfifo");
    host.ok("qdisc change dev right handle 1: prio");
    host.ok("qdisc change dev right handle 2: stab overhead 5 pfifo");
    let complaint = host.fails("qdisc change dev right handle 1: stab overhead 5 prio", 2);
    assert!(complaint.contains("2: has a stab already"), "{complaint}");
}

#[test]
fn a_size_table_at_the_ends_of_a_port_is_refused_as_nothing_waits_there() {
    let mut host = TwoPorts::with_queues(1);
    for kind in ["ingress", "clsact"] {
        let line =
            format!("qdisc add dev left handle ffff: stab linklayer adsl overhead 10 {kind}");
        let complaint = host.fails(&line, 2);
        assert!(complaint.contains("give police the words overhead"), "{complaint}");
        for parent in ["root", "parent 1:1"] {
            host.fails(&format!("qdisc add dev left {parent} {kind}"), 255);
        }
    }
    assert_eq!(host.policy, TwoPorts::with_queues(1).policy);
    host.ok("qdisc add dev left parent ffff:fff1 ingress");
}
