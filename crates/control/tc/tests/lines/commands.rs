//! Narrows' own behaviour: added words, warnings, hints, statistics, the answers of a host.
//! `parity` compares the rest with `tc` itself.

use crate::host::TwoPorts;
use narrows_packet::Backlog;
use narrows_policy::{Handle, NodeStats, Parent};
use narrows_qdisc::Stats;
use narrows_tc::{CommandLine, Options, execute_batch, load};
use narrows_units::Bytes;

const TBF: &str = "qdisc replace dev right root tbf rate 1mbit burst 32k latency 5ms";

#[test]
fn a_rate_that_queues_share_says_how() {
    let mut four = TwoPorts::with_queues(4);
    four.ok(TBF);
    assert_eq!(
        four.ok("qdisc show dev right"),
        "qdisc tbf 8001: root refcnt 5 rate 1Mbit burst 32Kb lat 5ms coordination fair \n"
    );
    let mut one = TwoPorts::with_queues(1);
    one.ok(TBF);
    assert_eq!(
        one.ok("qdisc show dev right"),
        "qdisc tbf 8001: root refcnt 2 rate 1Mbit burst 32Kb lat 5ms \n"
    );
    let mut mq = TwoPorts::with_queues(4);
    mq.ok("qdisc add dev right root handle 1: mq");
    mq.ok("qdisc add dev right parent 1:1 tbf rate 1mbit burst 32k latency 5ms");
    assert!(!mq.ok("qdisc show dev right").contains("coordination"));
}

#[test]
fn the_coordination_can_be_chosen_and_what_is_shown_can_be_typed() {
    let mut host = TwoPorts::with_queues(4);
    for words in [
        "coordination lock",
        "coordination fair",
        "coordination fair sync 500us",
        "coordination edt",
        "coordination equal sync 0us",
        "coordination equal sync 500us",
    ] {
        host.ok(&format!("{TBF} {words}"));
        assert!(host.ok("qdisc show dev right").ends_with(&format!(" {words} \n")), "{words}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&host.ok("-j qdisc show dev right")).unwrap();
    assert_eq!(json[0]["options"]["coordination"], "equal");
    assert_eq!(json[0]["options"]["sync_time"], 500);
    host.ok(&format!("{TBF} coordination equal"));
    assert!(host.ok("qdisc show dev right").ends_with(" coordination equal \n"));
    host.ok(&format!("{TBF} sync 1ms"));
    assert!(host.ok("qdisc show dev right").ends_with(" coordination fair sync 1000us \n"));
}

#[test]
fn a_coordination_that_cannot_be_is_refused() {
    let mut host = TwoPorts::with_queues(4);
    for (words, named) in [
        ("coordination", "\"coordination\" wants a value"),
        ("coordination fast", "\"fast\""),
        ("coordination lock coordination edt", "duplicate \"coordination\""),
        ("coordination lock sync 1ms", "\"sync\""),
        ("coordination equal sync 500ns", "\"500ns\""),
        ("coordination fair sync 0", "coordination equal"),
        ("sync 0", "coordination equal"),
        ("coordination equal sync soon", "\"soon\""),
    ] {
        let code = if words == "coordination" { 255 } else { 1 };
        assert!(host.fails(&format!("{TBF} {words}"), code).contains(named), "{words}");
    }
    host.ok("qdisc add dev right root handle 1: mq");
    let line = "qdisc add dev right parent 1:1 tbf rate 1mbit burst 32k limit 9k coordination lock";
    assert!(host.fails(line, 2).contains("coordination"));
}

#[test]
fn ptm_is_a_link_layer_here() {
    let mut host = TwoPorts::with_queues(1);
    host.ok(&format!("{TBF} linklayer ptm overhead 22"));
    assert!(host.ok("qdisc show dev right").ends_with("overhead 22 linklayer ptm \n"));
}

#[test]
fn a_bucket_smaller_than_a_frame_is_allowed_with_a_warning() {
    let mut host = TwoPorts::with_queues(1);
    let outcome = host.tc("qdisc add dev right root tbf rate 1mbit burst 1000 latency 5ms");
    assert_eq!(outcome.code, 0);
    assert!(outcome.stderr.starts_with("Warning: tbf: burst 1000b"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("at least burst 1514"), "{}", outcome.stderr);
    let peak = "peakrate 2mbit mtu 1520 overhead 24";
    let outcome = host
        .tc(&format!("qdisc change dev right root tbf rate 1mbit burst 32k latency 5ms {peak}"));
    assert!(outcome.stderr.contains("at least mtu 1538"), "{}", outcome.stderr);
}

#[test]
fn a_share_of_the_speed_is_refused_with_a_reason() {
    let line = "qdisc add dev right root tbf rate 10% burst 32k latency 5ms";
    let complaint = TwoPorts::with_queues(1).fails(line, 1);
    assert!(complaint.contains("\"10%\"") && complaint.contains("100mbit"), "{complaint}");
}

#[test]
fn a_backlog_that_no_number_holds_is_refused() {
    let line = "qdisc add dev right root tbf rate 40gbit burst 1mb latency 2s";
    assert!(TwoPorts::with_queues(1).fails(line, 1).contains("latency of 2s"));
}

#[test]
fn complaints_say_what_to_type_instead() {
    let mut host = TwoPorts::with_queues(4);
    assert!(host.fails("qdisc add dev wrong root pfifo", 1).contains("left, right"));
    assert!(host.fails("qdisc add root pfifo", 2).contains("dev NAME"));
    host.ok(TBF);
    let again = "qdisc add dev right root tbf rate 1mbit burst 32k latency 5ms";
    assert!(host.fails(again, 2).contains("use replace"));
    assert!(host.fails("qdisc add dev right parent 8001:1 noqueue", 2).contains("bfifo"));
    assert!(host.fails("qdisc del dev right handle 8001:", 2).contains("root"));
}

#[test]
fn a_refused_command_changes_nothing() {
    let mut host = TwoPorts::with_queues(4);
    host.refusal = Some("the port is away".to_owned());
    assert_eq!(host.fails(TBF, 2), "Error: the port is away\n");
}

#[test]
fn statistics_are_those_of_the_qdisc_in_that_place() {
    let mut host = TwoPorts::with_queues(2);
    host.ok("qdisc add dev right root handle 1: tbf rate 1mbit burst 32k latency 5ms");
    host.ok("qdisc add dev right parent 1:1 handle 2: pfifo limit 9");
    let backlog = Backlog { packets: 3, bytes: Bytes(2048) };
    let stats = Stats {
        sent_bytes: 1000,
        sent_packets: 10,
        drops: 1,
        overlimits: 2,
        backlog,
        ..Stats::default()
    };
    host.stats.push(NodeStats { parent: Parent::Root, handle: Handle::new(1), stats });
    let shown = host.ok("-s qdisc show dev right");
    let lines: Vec<_> = shown.lines().collect();
    assert_eq!(lines[1], " Sent 1000 bytes 10 pkt (dropped 1, overlimits 2 requeues 0) ");
    assert_eq!(lines[2], " backlog 2Kb 3p requeues 0");
    assert_eq!(lines[4], " Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0) ");
    let json: serde_json::Value =
        serde_json::from_str(&host.ok("-s -j qdisc show dev right")).unwrap();
    assert_eq!((&json[0]["backlog"], &json[0]["qlen"]), (&2048.into(), &3.into()));
}

#[test]
fn all_ports_are_shown_in_the_order_of_the_host() {
    let mut host = TwoPorts::with_queues(2);
    host.ok("qdisc add dev right root pfifo limit 9");
    assert_eq!(
        host.ok("qdisc"),
        "qdisc noqueue 0: dev left root refcnt 2 \n\
         qdisc pfifo 8001: dev right root refcnt 3 limit 9p\n"
    );
}

#[test]
fn a_batch_is_named_and_left_to_the_caller() {
    let args: Vec<String> = ["-s", "-b", "file"].map(str::to_owned).to_vec();
    let line = CommandLine::parse(&args).unwrap();
    assert_eq!(line.batch.as_deref(), Some("file"));
    assert!(line.options.statistics);
    assert!(TwoPorts::with_queues(2).fails("-b file", 1).contains("\"file\""));
}

#[test]
fn a_policy_file_is_accepted_anywhere_among_the_options() {
    for words in [
        ["--policy", "file", "-s", "-b", "batch"].as_slice(),
        &["-s", "--policy", "file", "-b", "batch"],
        &["-s", "-b", "batch", "--policy=file"],
    ] {
        let line = CommandLine::parse(&words.iter().map(|&word| word.into()).collect::<Vec<_>>());
        let line = line.unwrap();
        assert_eq!(line.policy.as_deref(), Some("file"), "{words:?}");
        assert_eq!(line.batch.as_deref(), Some("batch"), "{words:?}");
        assert!(line.options.statistics && line.words.is_empty(), "{words:?}");
    }
    assert!(CommandLine::parse(&["--policy".to_owned()]).is_err());
    assert!(TwoPorts::with_queues(2).fails("--policy file qdisc show", 1).contains("\"file\""));
}

#[test]
fn a_batch_applies_the_lines_before_a_failing_one() {
    let mut host = TwoPorts::with_queues(2);
    let text = "qdisc add dev left root pfifo limit 1\nqdisc add dev wrong root pfifo\n\
                qdisc add dev right root pfifo limit 2\n";
    let outcome = execute_batch(text, "file", &Options::default(), &mut host);
    assert_eq!(outcome.code, 1);
    assert!(outcome.stderr.ends_with("Command failed file:2\n"), "{}", outcome.stderr);
    assert_eq!(host.policy.ports().count(), 1);
    let force = Options { force: true, ..Options::default() };
    execute_batch(text, "file", &force, &mut host);
    assert_eq!(host.policy.ports().count(), 2);
}

#[test]
fn a_policy_file_is_good_as_a_whole_or_not_at_all() {
    let host = TwoPorts::with_queues(2);
    let good = "# limits\nqdisc replace dev left root tbf rate 1mbit burst 32k latency 5ms\n";
    assert_eq!(load(good, "file", &host).unwrap().ports().count(), 1);
    let bad = format!("{good}qdisc replace dev nope root pfifo\n\nqdisc replace dev left\n");
    let complaint = load(&bad, "file", &host).unwrap_err();
    assert!(complaint.contains("file:3") && complaint.contains("file:5"), "{complaint}");
}
