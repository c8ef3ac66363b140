//! The order and selection of listed classes and filters.

use crate::host::TwoPorts;
use narrows_packet::Backlog;
use narrows_policy::{Handle, NodeStats, Parent};
use narrows_qdisc::Stats;
use narrows_tc::{ClassNames, CommandLine, execute_named};
use narrows_units::Bytes;
use std::sync::Arc;

const TBF: &str =
    "qdisc replace dev right root handle 1: tbf rate 1234560bit burst 32k latency 5ms";

#[test]
fn the_classes_are_those_that_tbf_and_mq_make_themselves() {
    let mut host = TwoPorts::with_queues(2);
    assert_eq!(host.ok("class show dev right"), "");
    host.ok(TBF);
    assert_eq!(host.ok("class show dev right"), "class tbf 1:1 parent 1: \n");
    host.ok("qdisc add dev right parent 1:1 handle a: pfifo limit 9");
    assert_eq!(host.ok("class show dev right"), "class tbf 1:1 parent 1: leaf a: \n");
    assert_eq!(
        host.ok("-j class show dev right"),
        "[{\"class\":\"tbf\",\"handle\":\"1:1\",\"parent\":\"1:\",\"leaf\":\"0xa\"}]\n"
    );
    host.ok("qdisc replace dev left root handle 2: mq");
    host.ok("qdisc add dev left parent 2:2 handle 7: pfifo limit 9");
    assert_eq!(
        host.ok("qdisc show dev left"),
        "qdisc mq 2: root \nqdisc noqueue 0: parent 2:1 \nqdisc pfifo 7: parent 2:2 limit 9p\n"
    );
    let both = "class mq 2:1 root \nclass mq 2:2 root leaf 7: \n";
    assert_eq!(host.ok("class show dev left"), both);
    assert_eq!(host.ok("class show dev left parent 2:"), both);
    assert_eq!(host.ok("class show dev left classid 2:1"), "class mq 2:1 root \n");
    for nothing in ["dev left root", "dev left qdisc 1:", ""] {
        assert_eq!(host.ok(&format!("class show {nothing}")), "", "{nothing}");
    }
    host.ok("qdisc replace dev left root cake");
    assert_eq!(host.ok("class show dev left"), "");
}

#[test]
fn a_class_of_mq_has_the_figures_of_its_qdisc() {
    let mut host = TwoPorts::with_queues(2);
    host.ok("qdisc replace dev left root handle 2: mq");
    host.ok("qdisc add dev left parent 2:2 handle 7: pfifo limit 9");
    let backlog = Backlog { packets: 3, bytes: Bytes(2048) };
    let stats = Stats { sent_packets: 10, backlog, ..Stats::default() };
    let parent = Parent::Class(Handle::new(2).unwrap().class(2));
    host.stats.push(NodeStats { parent, handle: Handle::new(7), stats });
    let shown = host.ok("-s class show dev left classid 2:2");
    assert!(shown.contains(" Sent 0 bytes 10 pkt (") && shown.contains("2Kb 3p"), "{shown}");
    let json: serde_json::Value =
        serde_json::from_str(&host.ok("-s -j class show dev left")).unwrap();
    assert_eq!(
        (&json[0]["stats"]["packets"], &json[1]["stats"]["packets"]),
        (&0.into(), &10.into())
    );
}

#[test]
fn there_are_no_filters_and_lists_say_so() {
    let mut host = TwoPorts::with_queues(2);
    assert_eq!(host.ok("filter show dev left parent 1: protocol ip"), "");
    assert_eq!(host.ok("-j filter show dev left"), "[]\n");
    assert!(host.fails("filter show dev nope", 1).contains("\"nope\""));
}

#[test]
fn rates_may_count_by_1024_and_lines_may_be_one() {
    let mut host = TwoPorts::with_queues(1);
    host.ok(TBF);
    let shown = "qdisc tbf 1: root refcnt 2 rate 1205Kibit burst 32Kb lat 5ms ";
    assert_eq!(host.ok("-iec qdisc show dev right"), format!("{shown}\n"));
    assert_eq!(host.ok("-iec -o qdisc show dev right"), format!("{shown}\\"));
    assert!(host.ok("-iec -j qdisc show dev right").contains("\"rate\":154320"));
    host.ok("qdisc replace dev right root cake bandwidth 1mibit");
    assert!(host.ok("-iec qdisc show dev right").contains("bandwidth 1Mibit"));
}

#[test]
fn classes_have_names_where_they_are_asked_for() {
    let mut host = TwoPorts::with_queues(1);
    for line in [
        "qdisc add dev right root handle 1: htb",
        "class add dev right parent 1: classid 1:1 htb rate 10mbit",
        "class add dev right parent 1:1 classid 1:a htb rate 5mbit",
        "qdisc add dev right parent 1:a handle a: fq_codel",
        "filter add dev right parent 1: protocol ip matchall classid 1:a",
    ] {
        host.ok(line);
    }
    let names = Arc::new(ClassNames::parse("1:1 uplink\n1:a Ann\n"));
    let mut show = |line: &str| {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        execute_named(&words, Some(names.clone()), &mut host).stdout
    };
    let classes = show("-nm class show dev right");
    assert!(classes.contains("class htb Ann#1:a parent uplink#1:1 "), "{classes}");
    assert!(show("-nm -j class show dev right").contains(r#""handle":"Ann#1:a""#));
    assert!(show("-nm qdisc show dev right").contains("qdisc fq_codel a: parent Ann#1:a "));
    assert!(show("-nm filter show dev right").contains("flowid Ann#1:a "));
}

#[test]
fn options_that_change_nothing_here_are_taken() {
    let mut host = TwoPorts::with_queues(1);
    let plain = host.ok("qdisc show");
    for options in [
        "-br",
        "-color",
        "-c",
        "-color=always",
        "-N",
        "-nm",
        "-names",
        "-g",
        "-t",
        "-ts",
        "-cf file",
    ] {
        assert_eq!(host.ok(&format!("{options} qdisc show")), plain, "{options}");
    }
    let version = host.ok("-V");
    assert!(version.starts_with("tc utility, narrows-"), "{version}");
}

#[test]
fn a_namespace_is_named_and_left_to_the_caller() {
    let parse = |line: &str| {
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        CommandLine::parse(&args)
    };
    let line = parse("-s -n blue qdisc show").unwrap();
    assert_eq!(line.netns.as_deref(), Some("blue"));
    assert_eq!(line.words, ["qdisc", "show"]);
    assert_eq!(parse("-netns").unwrap_err().code, 0);
}

#[test]
fn what_is_listed_has_the_form_of_the_snapshot_for_every_kind() {
    let mut host = TwoPorts::with_queues(2);
    for root in [
        "tbf rate 1mbit burst 32k latency 5ms",
        "cake bandwidth 10mbit",
        "cake_mq bandwidth 10mbit",
        "fq",
        "flowbundler",
        "pfifo",
        "bfifo",
        "mq",
        "htb default 10",
    ] {
        host.tc("qdisc del dev right root");
        host.ok(&format!("qdisc add dev right root handle 1: {root}"));
        let listed = narrows_tc::qdiscs("right", &host);
        let qdiscs: Vec<narrows_snapshot::Qdisc> = serde_json::from_str(&listed).expect(&listed);
        let first = &qdiscs[0];
        assert_eq!(Some(first.kind.as_str()), root.split(' ').next());
        assert!(first.root && first.parent.is_none() && first.handle == "1:");
    }
    host.ok("class add dev right parent 1: classid 1:1 htb rate 8mbit");
    host.ok("class add dev right parent 1:1 classid 1:10 htb rate 1mbit ceil 8mbit prio 2");
    host.ok("qdisc add dev right parent 1:10 handle 10: cake");
    let listed = narrows_tc::classes("right", &host);
    let classes: Vec<narrows_snapshot::Class> = serde_json::from_str(&listed).expect(&listed);
    let [above, leaf] = &classes[..] else { panic!("{listed}") };
    assert!(above.root && above.parent.is_none() && above.ceil == Some(1_000_000));
    assert_eq!(leaf.parent.as_deref(), Some("1:1"));
    assert_eq!((leaf.rate, leaf.ceil, leaf.prio), (Some(125_000), Some(1_000_000), Some(2)));
    assert_eq!(leaf.leaf.as_deref(), Some("0x10"));
    assert_eq!(narrows_tc::qdiscs("absent", &host), "[]");
    assert_eq!(narrows_tc::classes("absent", &host), "[]");
}
