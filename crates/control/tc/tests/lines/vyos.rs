//! VyOS: the lines that its policies become in its tests of QoS, and what those read back.
//!
//! Source: vyos-1x, `smoketest/scripts/cli/test_qos.py` (tests 1 to 16) and `python/vyos/qos`. The
//! lines are written down here in our own form, with the values of its first interface. A test of
//! VyOS passes if each of its lines succeeds and each figure that it looks at is there.

use crate::host::TwoPorts;
use serde_json::{Value, json};

/// A port that has run all `lines`, `{}` being its name.
#[track_caller]
fn after(lines: &[&str]) -> TwoPorts {
    let mut host = TwoPorts::with_queues(1);
    run(&mut host, lines);
    host
}

#[track_caller]
fn run(host: &mut TwoPorts, lines: &[&str]) {
    for line in lines {
        let line = line.replace("{}", "right");
        let outcome = host.tc(&line);
        assert_eq!(outcome.code, 0, "tc {line}\n{}", outcome.stderr);
    }
}

/// The options of the first qdisc, whose kind is `kind`.
#[track_caller]
fn options(host: &mut TwoPorts, kind: &str) -> Value {
    let shown: Value =
        serde_json::from_str(&host.ok("-detail -json qdisc show dev right")).unwrap();
    assert_eq!(shown[0]["kind"], kind);
    shown[0]["options"].clone()
}

#[track_caller]
fn has(shown: &str, parts: &[&str]) {
    for part in parts {
        assert!(shown.contains(part), "no {part} in\n{shown}");
    }
}

#[test]
fn test_01_cake() {
    let mut host = after(&[
        "qdisc add dev {} root handle 1: cake egress bandwidth 1000000000 rtt 200ms dual-srchost",
    ]);
    let options = options(&mut host, "cake");
    assert_eq!(options["bandwidth"], 125_000_000);
    assert_eq!(options["rtt"], 200_000);
    assert_eq!(options["flowmode"], "dual-srchost");
    for (key, value) in [("ingress", false), ("nat", false), ("raw", true)] {
        assert_eq!(options[key], value, "{key}");
    }
}

#[test]
fn test_02_drop_tail() {
    let mut host = after(&["qdisc add dev {} root pfifo limit 50"]);
    assert_eq!(options(&mut host, "pfifo")["limit"], 50);
}

#[test]
fn test_03_fair_queue() {
    let mut host = after(&["qdisc add dev {} root sfq perturb 10 limit 5"]);
    let options = options(&mut host, "sfq");
    assert_eq!((&options["perturb"], &options["limit"]), (&json!(10), &json!(5)));
}

#[test]
fn test_04_fq_codel() {
    let mut host = after(&[
        "qdisc add dev {} root fq_codel quantum 1500 flows 512 interval 100ms limit 2048 target 5ms noecn",
    ]);
    let options = options(&mut host, "fq_codel");
    for (key, value) in [("quantum", 1500), ("flows", 512), ("limit", 2048)] {
        assert_eq!(options[key], value, "{key}");
    }
    assert_eq!((&options["interval"], &options["target"]), (&json!(99_999), &json!(4999)));
}

#[test]
fn test_05_limiter() {
    let mut host = after(&[
        "qdisc add dev {} handle ffff: ingress",
        "filter add dev {} parent ffff: prio 15 protocol all u32 match ip dport 22 0xffff flowid ffff:1",
        "filter add dev {} parent ffff: prio 15 protocol all u32 match ip dport 22 0xffff flowid ffff:1 action police conform-exceed pipe/continue rate 3000000000 burst 100Kb mtu 1600 flowid ffff:1",
        "filter add dev {} parent ffff: prio 20 protocol all u32 match ip6 dport 22 0xffff flowid ffff:2",
        "filter add dev {} parent ffff: prio 20 protocol all u32 match ip6 dport 22 0xffff flowid ffff:2 action police conform-exceed drop rate 1000000000 burst 15k flowid ffff:2",
        "filter replace dev {} parent ffff: prio 255 protocol all basic action police conform-exceed drop/ok rate 500000000 burst 200kb mtu 3000 flowid ffff:3",
    ]);
    let filters: Value =
        serde_json::from_str(&host.ok("-detail -json filter show dev right ingress")).unwrap();
    let acting = filters.as_array().unwrap().iter().map(|filter| &filter["options"]);
    let acting: Vec<&Value> = acting.filter(|options| options.get("actions").is_some()).collect();
    let of = |class: &str| *acting.iter().find(|options| options["flowid"] == class).unwrap();
    for (class, offset) in [("ffff:1", 20), ("ffff:2", 40)] {
        let found = &of(class)["match"];
        assert_eq!((&found["off"], &found["value"]), (&json!(offset), &json!("16")), "{class}");
    }
    has(
        &host.ok("-details filter show dev right ingress"),
        &[
            "filter parent ffff: protocol all pref 20 u32 chain 0",
            "rate 1Gbit burst 15Kb mtu 2Kb action drop overhead 0b linklayer ethernet",
            "filter parent ffff: protocol all pref 15 u32 chain 0",
            "rate 3Gbit burst 100Kb mtu 1600b action pipe/continue overhead 0b linklayer ethernet",
            "rate 500Mbit burst 200Kb mtu 3000b action drop overhead 0b linklayer ethernet",
            "filter parent ffff: protocol all pref 255 basic chain 0",
        ],
    );
}

#[test]
fn test_06_network_emulator() {
    let mut host = after(&[
        "qdisc add dev {} root netem rate 1000000000 limit 5 delay 2ms drop 4% corrupt 1% reorder 6% duplicate 3%",
    ]);
    let options = options(&mut host, "netem");
    assert_eq!(options["rate"]["rate"], 125_000_000);
    assert_eq!(options["limit"], 5);
    for (key, of, value) in [
        ("corrupt", "corrupt", 0.01),
        ("duplicate", "duplicate", 0.03),
        ("loss-random", "loss", 0.04),
        ("reorder", "reorder", 0.06),
        ("delay", "delay", 0.002),
    ] {
        assert_eq!(options[key][of], value, "{key}");
    }
}

#[test]
fn test_07_priority_queue() {
    let mut lines = vec![
        "qdisc add dev {} root handle 1: prio bands 6 priomap 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5"
            .to_owned(),
    ];
    lines.extend((1..=5).map(|class| format!("qdisc add dev {{}} parent 1:{class} pfifo")));
    for class in 1..=5 {
        lines.push(format!("qdisc replace dev {{}} parent 1:{class} pfifo"));
        let match_port = format!("u32 match ip dport {} 0xffff flowid 1:{class}", 1000 + class);
        lines.push(format!("filter add dev {{}} parent 1: prio {class} protocol all {match_port}"));
    }
    lines.push("qdisc replace dev {} parent 1:6 pfifo limit 10".to_owned());
    after(&lines.iter().map(String::as_str).collect::<Vec<_>>());
}

/// The only one that fails: `gred` keeps virtual queues by a number in the packet's mark, which
/// frames at a port do not have.
#[test]
fn test_08_random_detect() {
    let mut host = TwoPorts::with_queues(1);
    let complaint =
        host.fails("qdisc add dev right root handle 1:0 gred setup DPs 8 default 0 grio", 1);
    assert!(complaint.contains("gred"), "{complaint}");
}

#[test]
fn test_09_rate_control() {
    let mut host = after(&["qdisc add dev {} root tbf rate 5000000 burst 20 latency 5ms"]);
    let options = options(&mut host, "tbf");
    assert_eq!((&options["mpu"], &options["rate"]), (&json!(0), &json!(625_000)));
}

#[test]
fn test_10_round_robin() {
    // Its classes name themselves as their parents.
    let mut host = after(&[
        "qdisc add dev {} root handle 1: drr",
        "class replace dev {} parent 1:1 classid 1:1 drr",
        "qdisc replace dev {} parent 1:1 pfifo",
        "class replace dev {} parent 1:1 classid 1:2 drr",
        "qdisc replace dev {} parent 1:2 pfifo",
        "filter add dev {} parent 1: prio 1 protocol all u32 match ip dport 22 0xffff flowid 1:1",
        "filter add dev {} parent 1: prio 2 protocol all u32 match ip6 dport 22 0xffff flowid 1:2",
        "class replace dev {} parent 1:1 classid 1:3 drr",
        "qdisc replace dev {} parent 1:3 sfq",
    ]);
    assert_eq!(options(&mut host, "drr"), json!({}));
    let shown = host.ok("class show dev right");
    assert_eq!(shown.matches("class drr 1:").count(), 3, "{shown}");
    assert_eq!(shown.matches(" root ").count(), 3, "{shown}");
}

#[test]
fn test_11_shaper() {
    let mut host = after(&[
        "qdisc replace dev {} root handle 1: htb r2q 157 default 18",
        "class replace dev {} parent 1: classid 1:1 htb rate 250000000",
        "class replace dev {} parent 1:1 classid 1:17 htb rate 50000000 burst 15k quantum 1514 ceil 80000000",
        "qdisc replace dev {} parent 1:17 sfq",
        "class replace dev {} parent 1:1 classid 1:18 htb rate 20000000 burst 15k quantum 1514 prio 7 ceil 30000000",
        "qdisc replace dev {} parent 1:18 sfq",
        "filter add dev {} parent 1: protocol all prio 1 u32 match ip dst 192.0.2.8/32 flowid 1:17",
        "qdisc replace dev {} parent 1:18 sfq",
    ]);
    has(
        &host.ok("class show dev right"),
        &[
            "root rate 250Mbit ceil 250Mbit",
            "prio 0 rate 50Mbit ceil 80Mbit",
            "prio 7 rate 20Mbit ceil 30Mbit",
        ],
    );
}

#[test]
fn test_12_shaper_with_red_queue() {
    let mut host = after(&[
        "qdisc replace dev {} root handle 1: htb r2q 63 default 3",
        "class replace dev {} parent 1: classid 1:1 htb rate 100000000",
        "class replace dev {} parent 1:1 classid 1:2 htb rate 50000000 burst 15k quantum 1514",
        "qdisc replace dev {} parent 1:2 sfq",
        "class replace dev {} parent 1:1 classid 1:3 htb rate 100000000 burst 100 quantum 1514 prio 7",
        "qdisc replace dev {} parent 1:3 sfq",
        "qdisc replace dev {} parent 1:2 red limit 73728 avpkt 1024 max 18432 min 9216 burst 12 probability 0.1",
        "filter add dev {} parent 1: protocol all prio 1 u32 match ip dst 192.0.2.8/32 flowid 1:2",
        "qdisc replace dev {} parent 1:3 red limit 73728 avpkt 1024 max 18432 min 9216 burst 12 probability 0.1",
    ]);
    has(
        &host.ok("class show dev right"),
        &[
            "prio 0 rate 50Mbit ceil 50Mbit burst 15Kb",
            "prio 7 rate 100Mbit ceil 100Mbit burst 100b",
        ],
    );
    has(
        &host.ok("-d qdisc show dev right"),
        &["qdisc red", "limit 72Kb min 9Kb max 18Kb ewma 3 probability 0.1"],
    );
    run(
        &mut host,
        &[
            "qdisc replace dev {} parent 1:2 red limit 524288 avpkt 512 max 16384 min 8192 burst 21 probability 0.05",
            "qdisc replace dev {} parent 1:3 red limit 1048576 avpkt 1024 max 32768 min 16384 burst 21 probability 0.1",
        ],
    );
    has(
        &host.ok("-d qdisc show dev right"),
        &[
            "limit 1Mb min 16Kb max 32Kb ewma 3 probability 0.1",
            "limit 512Kb min 8Kb max 16Kb ewma 3 probability 0.05",
        ],
    );
}

#[test]
fn test_13_shaper_delete_only_rule() {
    // The ceiling of a class is below its rate.
    let shaper = [
        "qdisc replace dev {} root handle 1: htb r2q 10 default 1f",
        "class replace dev {} parent 1: classid 1:1 htb rate 10000000",
        "class replace dev {} parent 1:1 classid 1:1e htb rate 50000000 burst 15k quantum 1514 prio 5 ceil 5000000",
        "qdisc replace dev {} parent 1:1e sfq",
        "class replace dev {} parent 1:1 classid 1:1f htb rate 100000000 burst 100 quantum 1514 prio 7",
        "qdisc replace dev {} parent 1:1f sfq",
    ];
    let mut host = after(&shaper);
    run(
        &mut host,
        &[
            "filter add dev {} parent 1: prio 5 protocol all u32 match ip src 10.1.1.0/24 flowid 1:1e",
        ],
    );
    has(
        &host.ok("class show dev right"),
        &[
            "prio 5 rate 50Mbit ceil 5Mbit burst 15Kb",
            "prio 7 rate 100Mbit ceil 100Mbit burst 100b",
        ],
    );
    assert_ne!(host.ok("filter show dev right"), "");
    run(&mut host, &["qdisc del dev {} root"]);
    run(&mut host, &shaper);
    assert_eq!(host.ok("filter show dev right"), "");
}

#[test]
fn test_14_policy_limiter_marked_traffic() {
    let mut host = after(&[
        "qdisc add dev {} handle ffff: ingress",
        "filter add dev {} parent ffff: prio 20 protocol all handle 100 fw action police conform-exceed drop/ok rate 20000000000 burst 3760k flowid ffff:64",
        "filter replace dev {} parent ffff: prio 255 protocol all basic action police conform-exceed drop/ok rate 1000000000 burst 125000000b flowid ffff:65",
    ]);
    has(
        &host.ok("filter show dev right ingress"),
        &[
            "filter parent ffff: protocol all pref 20 fw chain 0",
            "action order 1:  police 0x1 rate 20Gbit burst 3760Kb mtu 2Kb action drop overhead 0b",
            "filter parent ffff: protocol all pref 255 basic chain 0",
            "action order 1:  police 0x2 rate 1Gbit burst 125000000b mtu 2Kb action drop overhead 0b",
        ],
    );
}

#[test]
fn test_15_traffic_match_group() {
    let mut host = after(&[
        "qdisc replace dev {} root handle 1: htb r2q 63 default 15",
        "class replace dev {} parent 1: classid 1:1 htb rate 100000000",
        "class replace dev {} parent 1:1 classid 1:a htb rate 40000000 burst 15k quantum 1514 prio 1",
        "qdisc replace dev {} parent 1:a sfq",
        "class replace dev {} parent 1:1 classid 1:14 htb rate 30000000 burst 15k quantum 1514 prio 2",
        "qdisc replace dev {} parent 1:14 sfq",
        "class replace dev {} parent 1:1 classid 1:15 htb rate 20000000 burst 15k quantum 1514 prio 7",
        "qdisc replace dev {} parent 1:15 sfq",
        "filter add dev {} parent 1: prio 1 protocol all u32 match ip dsfield 40 0xff flowid 1:a",
        "filter add dev {} parent 1: prio 1 protocol all u32 match ip dsfield 136 0xff flowid 1:a",
        "filter add dev {} parent 1: prio 1 protocol all u32 match ip dsfield 152 0xff flowid 1:a",
        "filter add dev {} parent 1: prio 1 protocol all u32 match ip dsfield 128 0xff flowid 1:a",
        "filter add dev {} parent 1: prio 2 protocol all u32 match ip dsfield 184 0xff flowid 1:14",
        "filter add dev {} parent 1: prio 2 protocol all u32 match ip dsfield 160 0xff flowid 1:14",
    ]);
    let selectors = ["28", "88", "98", "80", "a0", "b8"];
    let selectors = selectors.map(|byte| format!("match 00{byte}0000/00ff0000"));
    let shown = host.ok("-details filter show dev right");
    has(&shown, &selectors.each_ref().map(String::as_str));
    run(&mut host, &["qdisc del dev {} root"]);
    assert_eq!(host.ok("-s filter show dev right"), "");
}

/// Without a policy at the port, nothing becomes of its groups.
#[test]
fn test_16_wrong_traffic_match_group() {
    let mut host = TwoPorts::with_queues(1);
    assert_eq!(host.ok("filter show dev right"), "");
    host.ok("-detail -json qdisc show dev right");
}
