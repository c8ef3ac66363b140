//! The XDP plane: limits in the driver, without queues and without workers.

use crate::htb::{assert_rates, ports};
use crate::setup::{
    assert_balanced, assert_refused, flood, narrows, run, show, tc, turn_to_count, turn_to_measure,
};
use narrows_testbed::accounting::Books;
use narrows_testbed::bed::SERVER;
use narrows_testbed::counters::Counters;
use narrows_testbed::ping::Ping;
use narrows_testbed::window::{Delivered, Meter};
use narrows_testbed::{Testbed, frames};
use serde_json::Value;
use std::thread::sleep;
use std::time::Duration;

pub(crate) const XDP: [&str; 2] = ["--plane", "xdp"];

/// In the drivers, where ports accept redirected frames.
pub(crate) const NATIVE: [&str; 4] = ["--plane", "xdp", "--xdp", "native"];

fn steady() -> Vec<u16> {
    (0..32).map(frames::port).collect()
}

/// The rate at the server over half a second, in bits per second.
fn rate_at_server(bed: &Testbed) -> f64 {
    let [_, server] = bed.ends();
    let mut meter = Meter::at(server).unwrap();
    let before = meter.read().unwrap();
    sleep(Duration::from_millis(500));
    let after = meter.read().unwrap();
    Delivered::between(&before, &after).rate().bits_per_sec() as f64
}

#[track_caller]
fn assert_rate(bed: &Testbed, limit: f64) {
    // After the first bursts, the best of three: a sender may have to wait for its core.
    sleep(Duration::from_millis(300));
    let rates: Vec<f64> = (0..3).map(|_| rate_at_server(bed)).collect();
    let off = |rate: &f64| (rate / limit - 1.0).abs();
    assert!(rates.iter().any(|rate| off(rate) < 0.005), "{rates:?} instead of {limit}");
    assert!(rates.iter().all(|rate| *rate < limit * 1.01), "{rates:?} instead of {limit}");
}

#[test]
fn a_rate_is_exact_at_any_hook_and_every_frame_is_accounted_for() {
    let Some(_turn) = turn_to_measure() else { return };
    for hook in ["generic", "native", "tcx"] {
        let bed = Testbed::up(4).unwrap();
        if hook == "native" {
            bed.take_redirected(true).unwrap();
        }
        let instance = run(&bed, &[&XDP[..], &["--xdp", hook]].concat());
        let mut books = Books::open(&bed).unwrap();
        let now = show(&bed);
        assert_eq!(
            (&now["ports"][0]["xdp"], &now["ports"][0]["copy"]),
            (&hook.into(), &"none".into())
        );
        let load = flood(&bed, &steady(), 1000, 80e6);
        for rate in [20e6, 50e6] {
            let words = "qdisc replace dev port-b root handle 1: tbf burst 20k latency 20ms rate";
            instance.tc(&format!("{words} {rate}")).unwrap();
            assert_rate(&bed, rate);
        }
        load.stop().unwrap();
        let (_, [forth, _]) = assert_balanced(&mut books, &instance);
        assert!(forth.dropped_by_narrows > 1000, "{forth:?}");
        // All outputs show the same numbers.
        let now = show(&bed);
        let total = &now["ports"][1]["total"];
        let qdiscs = instance.tc("-s -j qdisc show dev port-b").unwrap();
        let qdiscs: Value = serde_json::from_str(&qdiscs).unwrap();
        assert!(qdiscs[0]["packets"].as_u64() > Some(10_000), "{qdiscs:#}");
        assert_eq!(now["conservation"]["unaccounted"], 0);
        assert_eq!(total["drops"].as_u64(), Some(forth.dropped_by_narrows));
        assert_eq!(total["backlog_packets"], 0);
    }
}

#[test]
fn classes_borrow_as_htb_says_and_change_under_load() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(4).unwrap();
    bed.take_redirected(true).unwrap();
    let instance = run(&bed, &XDP);
    let mut books = Books::open(&bed).unwrap();
    for line in [
        "qdisc add dev port-b root handle 1: htb default 30",
        "class add dev port-b parent 1: classid 1:1 htb rate 40mbit burst 60k",
        "class add dev port-b parent 1:1 classid 1:10 htb rate 10mbit ceil 40mbit",
        "class add dev port-b parent 1:1 classid 1:20 htb rate 10mbit ceil 40mbit prio 1",
        "class add dev port-b parent 1:1 classid 1:30 htb rate 4mbit ceil 8mbit prio 2",
    ] {
        instance.tc(line).unwrap();
    }
    for (pref, class) in [(1, 10), (2, 20)] {
        let of = ports(pref - 1);
        instance
            .tc(&format!(
                "filter add dev port-b parent 1: protocol ip pref {pref} flower ip_proto udp \
                 src_port {}-{} classid 1:{class}",
                of[0],
                of[of.len() - 1]
            ))
            .unwrap();
    }
    let loads: Vec<_> = (0..3).map(|group| flood(&bed, &ports(group), 1000, 45e6)).collect();
    sleep(Duration::from_millis(500));
    assert_rates(&instance, &[("1:1", 40e6), ("1:10", 26e6), ("1:20", 10e6), ("1:30", 4e6)]);
    instance.tc("class change dev port-b classid 1:10 htb rate 10mbit ceil 20mbit").unwrap();
    sleep(Duration::from_millis(300));
    assert_rates(&instance, &[("1:10", 20e6), ("1:20", 16e6)]);
    instance.tc("filter del dev port-b pref 1").unwrap();
    instance.tc("class del dev port-b classid 1:10").unwrap();
    sleep(Duration::from_millis(300));
    assert_rates(&instance, &[("1:20", 36e6)]);
    // An impossible command changes nothing.
    assert_refused(&tc(&bed, "qdisc add dev port-b parent 1:20 cake"), 2, &["cake", "--plane xsk"]);
    assert_rates(&instance, &[("1:20", 36e6)]);
    for load in loads {
        load.stop().unwrap();
    }
    assert_balanced(&mut books, &instance);
}

#[test]
fn qdiscs_come_into_a_class_and_go_under_load_and_the_class_goes_on() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(4).unwrap();
    bed.take_redirected(true).unwrap();
    let instance = run(&bed, &XDP);
    let mut books = Books::open(&bed).unwrap();
    let to = |parent: &str, pref: u16, groups: [u16; 2], class: &str| {
        let [first, last] = groups.map(ports);
        format!(
            "filter add dev port-b parent {parent} protocol ip pref {pref} flower ip_proto udp \
             src_port {}-{} classid {class}",
            first[0],
            last[last.len() - 1]
        )
    };
    let tc = |lines: &[&str]| lines.iter().for_each(|line| drop(instance.tc(line).unwrap()));
    tc(&[
        "qdisc add dev port-b root handle 1: htb default 20",
        "class add dev port-b parent 1: classid 1:1 htb rate 40mbit burst 60k",
        "class add dev port-b parent 1:1 classid 1:10 htb rate 10mbit ceil 40mbit",
        "class add dev port-b parent 1:1 classid 1:20 htb rate 10mbit ceil 40mbit prio 1",
        &to("1:", 1, [0, 1], "1:10"),
    ]);
    let loads: Vec<_> = (0..3).map(|group| flood(&bed, &ports(group), 1000, 45e6)).collect();
    sleep(Duration::from_millis(300));
    let classes = [("1:10", 30e6), ("1:20", 10e6)];
    assert_rates(&instance, &classes);
    let sent = || {
        let shown = instance.tc("-s -j class show dev port-b").unwrap();
        let shown: Value = serde_json::from_str(&shown).unwrap();
        let ten = shown.as_array().unwrap().iter().find(|class| class["handle"] == "1:10");
        ten.unwrap()["stats"]["packets"].as_u64().unwrap()
    };
    let before = sent();
    let last = "1 ".repeat(16);
    let bands = format!("qdisc add dev port-b parent 1:10 handle 2: prio bands 2 priomap {last}");
    tc(&[&bands, &to("2:", 1, [0, 0], "2:1")]);
    sleep(Duration::from_millis(500));
    let in_order = [classes[0], classes[1], ("2:1", 30e6), ("2:2", 0.0)];
    assert_rates(&instance, &in_order);
    tc(&["filter del dev port-b parent 2: pref 1", &to("2:", 1, [1, 1], "2:1")]);
    sleep(Duration::from_millis(500));
    assert_rates(&instance, &in_order);
    let with_bands = sent();
    assert!(with_bands > before + 5000, "{before}, {with_bands}");
    tc(&["qdisc del dev port-b parent 1:10"]);
    assert!(sent() >= with_bands, "the class counts what was in it");
    sleep(Duration::from_millis(300));
    assert_rates(&instance, &classes);
    // What needs a queue is refused, and changes nothing.
    let words = ["cake", "--plane xsk"];
    assert_refused(&self::tc(&bed, "qdisc add dev port-b parent 1:10 cake"), 2, &words);
    for load in loads {
        load.stop().unwrap();
    }
    assert_balanced(&mut books, &instance);
}

#[test]
fn traffic_goes_on_after_a_kill_and_the_limit_while_it_is_stopped() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(4).unwrap();
    bed.take_redirected(true).unwrap();
    let mut instance = run(&bed, &XDP);
    instance.tc("qdisc add dev port-b root tbf rate 10mbit burst 20k latency 20ms").unwrap();
    let _load = flood(&bed, &steady(), 500, 20e6);
    sleep(Duration::from_millis(300));
    instance.freeze().unwrap();
    let stopped = rate_at_server(&bed);
    assert!(stopped < 10.5e6, "{stopped}");
    instance.thaw().unwrap();
    let ping = Ping::start(&bed, Duration::from_secs(10)).unwrap();
    sleep(Duration::from_millis(300));
    instance.kill().unwrap();
    sleep(Duration::from_millis(500));
    let mut server = Counters::of(bed.server(), SERVER).unwrap();
    let before = server.read().unwrap().rx_packets;
    sleep(Duration::from_millis(300));
    assert!(server.read().unwrap().rx_packets > before + 500, "nothing is forwarded after the end");
    let again = run(&bed, &XDP);
    assert!(show(&bed)["conservation"]["received"].as_u64().is_some());
    drop(again);
    let pings = ping.stop().unwrap();
    assert!(pings.longest_gap <= Duration::from_secs(1), "{pings:?}");
}

#[test]
fn a_driver_that_would_lose_frames_is_no_place_for_it() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let native = ["run", "--ports", "port-a,port-b", "--plane", "xdp", "--xdp", "native"];
    assert_refused(&narrows(&bed, &native), 1, &["leave out --xdp native", "gro on"]);
    let said = narrows(&bed, &["doctor", "port-a", "port-b", "--plane", "xdp"]);
    assert_eq!(said.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&said.stdout).contains("at tcx"));
    assert_eq!(run(&bed, &XDP).show().unwrap().ports[0].xdp, "tcx");
    // The advice solves the problem.
    bed.take_redirected(true).unwrap();
    let instance = run(&bed, &native[3..]);
    assert_eq!(instance.show().unwrap().ports[0].xdp, "native");
}
