//! The metrics as Prometheus reads them.

use narrows_serve::{Sample, exposition};
use narrows_snapshot::{
    Class, Conservation, Delays, LineFigures, Losses, Port, Qdisc, Queue, RoundTrip, RoundTrips,
    SlowPath, Snapshot, Worker,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const MAX: usize = 500;

fn class(minor: usize) -> Class {
    let mut class = Class {
        kind: "htb".into(),
        handle: format!("1:{minor:x}").into(),
        root: minor == 1,
        parent: (minor > 1).then(|| "1:1".into()),
        rate: Some(1_250_000),
        ceil: Some(2_500_000),
        ..Class::default()
    };
    class.stats.figures.bytes = minor as u64 * 1000;
    if minor == 2 {
        class.stats.delays = Delays::new(vec![(230.0, 5), (3_600.0, 4), (2e6, 1)]);
        class.stats.round_trip = Some(RoundTrip { min_us: 20_100, p50_us: 24_000, p99_us: 60_000 });
        class.stats.losses = Some(Losses { segments: 50, before: 1, beyond: 0 });
    }
    class.stats.detail = serde_json::from_str(r#"{"lended":7,"borrowed":8}"#).unwrap();
    class
}

fn instance(classes: usize) -> Snapshot {
    let htb: Qdisc = serde_json::from_str(
        r#"{"kind":"htb","handle":"1:","root":true,"bytes":18446744073709551615,"packets":5,
            "drops":4,"requeues":3,"overlimits":2,"qlen":1,"backlog":1500}"#,
    )
    .unwrap();
    let cake: Qdisc = serde_json::from_str(
        r#"{"kind":"cake","handle":"10:","parent":"1:2",
            "tins":[{"threshold_rate":125000,"avg_delay_us":2500,"sparse_flows":2,"bulk_flows":1,
                     "delays":{"p50_us":1.5,"counts":[[1500,3]]}}]}"#,
    )
    .unwrap();
    let mut port = Port {
        name: "eth1".into(),
        qdisc: "htb".into(),
        mtu: 1500,
        delays: Delays::new(vec![(12.0, 7), (300.0, 2), (2e6, 1)]),
        round_trips: Some(RoundTrips {
            times: Delays::new(vec![(20_000.0, 3)]),
            losses: Losses { segments: 100, before: 2, beyond: 3 },
        }),
        per_queue: vec![Queue::default(), Queue { tx_bytes: 9, ..Queue::default() }],
        qdiscs: vec![htb, cake],
        classes: (1..=classes).map(class).collect(),
        ..Port::default()
    };
    port.total.drops_by_reason.insert("aqm".into(), 4);
    port.slow_path = Some(SlowPath {
        sent_packets: 11,
        sent_bytes: 1_100,
        dropped_packets: 12,
        dropped_bytes: 1_200,
    });
    port.kernel_drops.rx_ring_full = 6;
    Snapshot {
        state: "running".into(),
        uptime_s: 61.5,
        ports: vec![port, Port { name: "eth\"2".into(), no_carrier: true, ..Port::default() }],
        services: Vec::new(),
        workers: vec![Worker { cpu_s: 1.5, silent_s: Some(2.0), ..Worker::default() }],
        conservation: Conservation {
            received: 20,
            dropped: [("aqm".to_owned(), 4)].into(),
            unaccounted: -1,
            ..Conservation::default()
        },
        ..Snapshot::default()
    }
}

fn metrics(snapshot: Option<Snapshot>, classes_max: usize) -> String {
    let snapshot = snapshot.map(Arc::new);
    exposition(&Sample { snapshot, age: Duration::from_millis(250), events: 3 }, classes_max)
}

#[track_caller]
fn assert_has(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|one| one == *line), "{line}\nis not in\n{text}");
    }
}

#[test]
fn root_qdiscs_have_the_names_of_node_exporter() {
    let labels = r#"{device="eth1",kind="htb"}"#;
    let text = metrics(Some(instance(1)), MAX);
    for (metric, value) in [
        // Not 1.8446744073709552e19: a counter keeps its last digit.
        ("bytes_total", "18446744073709551615"),
        ("packets_total", "5"),
        ("drops_total", "4"),
        ("requeues_total", "3"),
        ("overlimits_total", "2"),
        ("current_queue_length", "1"),
        ("backlog", "1500"),
    ] {
        assert_has(&text, &[&format!("node_qdisc_{metric}{labels} {value}")]);
    }
    assert!(!text.contains("kind=\"cake\""), "only root qdiscs");
}

#[test]
fn units_are_bytes_and_seconds() {
    assert_has(
        &metrics(Some(instance(2)), MAX),
        &[
            r#"narrows_class_transmit_bytes_total{device="eth1",classid="1:2",name="",parent="1:1"} 2000"#,
            r#"narrows_class_rate_bytes_per_second{device="eth1",classid="1:1",name="",parent="root"} 1250000"#,
            r#"narrows_class_borrowed_total{device="eth1",classid="1:2",name="",parent="1:1"} 8"#,
            r#"narrows_port_limit_bytes_per_second{device="eth1"} 2500000"#,
            r#"narrows_tin_delay_mean_seconds{device="eth1",handle="10:",parent="1:2",tin="Tin 0"} 0.0025"#,
            r#"narrows_tin_flows{device="eth1",handle="10:",parent="1:2",tin="Tin 0"} 3"#,
            r#"narrows_queue_transmit_bytes_total{device="eth1",queue="1"} 9"#,
            r#"narrows_port_lost_packets_total{device="eth1",place="queue",reason="aqm"} 4"#,
            r#"narrows_port_lost_packets_total{device="eth1",place="kernel",reason="rx_ring_full"} 6"#,
            r#"narrows_port_slow_path_transmit_packets_total{device="eth1"} 11"#,
            r#"narrows_port_slow_path_transmit_bytes_total{device="eth1"} 1100"#,
            r#"narrows_port_slow_path_drops_total{device="eth1"} 12"#,
            r#"narrows_port_slow_path_drop_bytes_total{device="eth1"} 1200"#,
            r#"narrows_port_carrier{device="eth\"2"} 0"#,
            r#"narrows_worker_silent_seconds{queue="0"} 2"#,
            r#"narrows_dropped_packets_total{reason="aqm"} 4"#,
            "narrows_unaccounted_packets -1",
            "narrows_uptime_seconds 61.5",
            "narrows_snapshot_age_seconds 0.25",
            "narrows_events_total 3",
            "narrows_up 1",
        ],
    );
}

#[test]
fn an_instance_that_is_gone_leaves_no_figures() {
    let text = metrics(None, MAX);
    let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(samples, ["narrows_up 0"]);
}

#[test]
fn delays_are_a_histogram_of_all_packets() {
    let text = metrics(Some(instance(1)), MAX);
    let bucket = |le: &str, count: u64| {
        format!("narrows_port_delay_seconds_bucket{{device=\"eth1\",le=\"{le}\"}} {count}")
    };
    let wanted = [("0.000016", 7), ("0.000256", 7), ("0.001024", 9), ("1.048576", 9), ("+Inf", 10)];
    for (le, count) in wanted {
        assert_has(&text, &[&bucket(le, count)]);
    }
    assert_has(&text, &[r#"narrows_port_delay_seconds_count{device="eth1"} 10"#]);
    assert!(text.contains(r#"narrows_port_delay_seconds_sum{device="eth1"} 2.0006"#), "{text}");
}

#[test]
fn classes_and_tins_that_have_sent_have_histograms() {
    let text = metrics(Some(instance(3)), MAX);
    let class = r#"{device="eth1",classid="1:2",name="",parent="1:1""#;
    assert_has(
        &text,
        &[
            &format!("narrows_class_delay_seconds_bucket{class},le=\"0.000262144\"}} 5"),
            &format!("narrows_class_delay_seconds_bucket{class},le=\"0.004194304\"}} 9"),
            &format!("narrows_class_delay_seconds_count{class}}} 10"),
            r#"narrows_tin_delay_seconds_count{device="eth1",handle="10:",parent="1:2",tin="Tin 0"} 3"#,
        ],
    );
    let classes = text.lines().filter(|line| line.starts_with("narrows_class_delay_seconds_count"));
    assert_eq!(classes.count(), 1, "the others have sent nothing");
}

#[test]
fn a_limit_that_follows_a_line_has_its_bounds_its_rate_and_its_reason() {
    assert!(!metrics(Some(instance(1)), MAX).contains("narrows_port_line"));
    let mut now = instance(1);
    now.ports[0].follows = Some(LineFigures {
        least_bps: 2_000_000,
        most_bps: 40_000_000,
        rate_bps: 9_600_000,
        reason: "drained".into(),
    });
    let rate =
        |which| format!(r#"narrows_port_line_bytes_per_second{{device="eth1",rate="{which}"}}"#);
    assert_has(
        &metrics(Some(now), MAX),
        &[
            &format!("{} 250000", rate("least")),
            &format!("{} 1200000", rate("now")),
            &format!("{} 5000000", rate("most")),
            r#"narrows_port_line_reason{device="eth1",reason="drained"} 1"#,
        ],
    );
}

#[test]
fn round_trips_are_told_where_they_are_measured() {
    let text = metrics(Some(instance(1)), MAX);
    let bucket = r#"narrows_port_round_trip_seconds_bucket{device="eth1",le="#;
    assert_has(
        &text,
        &[
            &format!("{bucket}\"0.016384\"}} 0"),
            &format!("{bucket}\"0.065536\"}} 3"),
            r#"narrows_port_segments_total{device="eth1"} 100"#,
            r#"narrows_port_segments_lost_before_total{device="eth1"} 2"#,
            r#"narrows_port_segments_lost_beyond_total{device="eth1"} 3"#,
        ],
    );
    assert!(!text.contains(r#"round_trip_seconds_count{device="eth\"2"}"#));
}

#[test]
fn round_trips_of_classes_are_those_of_the_last_window() {
    let text = metrics(Some(instance(2)), MAX);
    let of = r#"{device="eth1",classid="1:2",name="",parent="1:1"}"#;
    assert_has(
        &text,
        &[
            &format!("narrows_class_round_trip_min_seconds{of} 0.0201"),
            &format!("narrows_class_round_trip_median_seconds{of} 0.024"),
            &format!("narrows_class_round_trip_p99_seconds{of} 0.06"),
            &format!("narrows_class_segments{of} 50"),
            &format!("narrows_class_segments_lost_before{of} 1"),
            &format!("narrows_class_segments_lost_beyond{of} 0"),
        ],
    );
    let samples =
        text.lines().filter(|line| line.starts_with("narrows_class_round_trip_min_seconds{"));
    assert_eq!(samples.count(), 1, "nothing is known of the other class");
}

#[test]
fn the_limit_of_classes_is_that_of_each_direction() {
    let mut now = instance(5);
    now.ports[1].classes = now.ports[0].classes.clone();
    let text = metrics(Some(now), 3);
    let count = |device: &str| {
        let sent = format!("narrows_class_transmit_bytes_total{{device=\"{device}\"");
        text.lines().filter(|line| line.starts_with(&sent)).count()
    };
    assert_eq!(["eth1", "eth\\\"2"].map(count), [3, 3]);
    assert_has(
        &text,
        &[
            "narrows_classes_max 3",
            r#"narrows_classes_left_out{device="eth1"} 2"#,
            r#"narrows_classes_left_out{device="eth\"2"} 2"#,
        ],
    );
}

#[test]
fn classes_beyond_the_limit_are_counted_and_the_topmost_stay() {
    let text = metrics(Some(instance(10_000)), 3);
    let with = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!(with("narrows_class_transmit_bytes_total{"), 3);
    assert_has(&text, &[r#"narrows_classes_left_out{device="eth1"} 9997"#]);
    assert!(text.contains("classid=\"1:1\""));
    assert_eq!(with("narrows_tin_flows{"), 1, "both qdiscs are within the limit");
    let text = metrics(Some(instance(1)), 1);
    assert_has(&text, &[r#"narrows_qdiscs_left_out{device="eth1"} 1"#]);
}

#[test]
fn every_metric_is_declared_once_and_only_counters_are_totals() {
    let text = metrics(Some(instance(5)), MAX);
    let mut kinds = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for line in text.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            let (name, kind) = declared.split_once(' ').unwrap();
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            assert_eq!(kinds.insert(name, kind), None, "{name} is declared twice");
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap();
            let of_histogram = |suffix| {
                let name = name.strip_suffix(suffix);
                name.is_some_and(|name| kinds.get(name) == Some(&"histogram"))
            };
            let is_declared = kinds.contains_key(name)
                || ["_bucket", "_sum", "_count"].into_iter().any(of_histogram);
            assert!(is_declared, "{name} is not declared");
            let (sample, _) = line.rsplit_once(' ').unwrap();
            assert!(seen.insert(sample), "{sample} is told twice");
        }
    }
}

#[test]
fn promtool_finds_nothing_to_say() {
    let started = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = match started {
        Ok(promtool) => promtool,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("SKIPPED: promtool is not installed (Debian package prometheus)");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let text = metrics(Some(instance(5)), MAX);
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.is_empty(), "{said}");
}
