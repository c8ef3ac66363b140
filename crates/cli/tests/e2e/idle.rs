//! An idle instance uses next to no resources, and its output is consistent.

use crate::setup::{flood, narrows, run, show, turn_to_count, turn_to_measure, wait_for};
use narrows_testbed::{Testbed, frames};
use serde_json::Value;
use std::thread::sleep;
use std::time::{Duration, Instant};

#[test]
fn idle_costs_less_than_three_percent_of_a_core() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(4).unwrap();
    let instance = run(&bed, &[]);
    instance.tc("qdisc add dev port-b root tbf rate 100mbit burst 100k latency 20ms").unwrap();
    sleep(Duration::from_millis(300));
    let (start, before) = (Instant::now(), instance.cpu().unwrap());
    sleep(Duration::from_secs(2));
    let share = (instance.cpu().unwrap() - before).as_secs_f64() / start.elapsed().as_secs_f64();
    assert!(share < 0.03, "{:.1} % of a core", share * 100.0);
}

fn sum(queues: &Value, key: &str) -> u64 {
    queues.as_array().unwrap().iter().map(|queue| queue[key].as_u64().unwrap()).sum()
}

fn assert_adds_up(show: &Value) {
    assert_eq!(show["conservation"]["unaccounted"], 0, "{show:#}");
    let mut received = 0;
    for port in show["ports"].as_array().unwrap() {
        for key in [
            "rx_packets",
            "rx_bytes",
            "tx_packets",
            "tx_bytes",
            "tx_kicks",
            "backlog_packets",
            "backlog_bytes",
            "drops",
        ] {
            assert_eq!(port["total"][key], sum(&port["per_queue"], key), "{key}: {port:#}");
        }
        let reasons = port["total"]["drops_by_reason"].as_object().unwrap();
        let drops: u64 = reasons.values().map(|count| count.as_u64().unwrap()).sum();
        assert_eq!(port["total"]["drops"], drops);
        received += port["total"]["rx_packets"].as_u64().unwrap();
    }
    assert_eq!(show["conservation"]["received"], received);
}

#[test]
fn shown_counters_add_up_at_any_moment() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(4).unwrap();
    let instance = run(&bed, &[]);
    instance.tc("qdisc add dev port-b root tbf rate 10mbit burst 20k latency 20ms").unwrap();
    let ports: Vec<u16> = (0..32).map(frames::port).collect();
    let load = flood(&bed, &ports, 300, 20e6);
    for _ in 0..20 {
        assert_adds_up(&show(&bed));
    }
    let shown = show(&bed);
    assert_eq!(shown["state"], "running");
    for (place, name) in ["port-a", "port-b"].into_iter().enumerate() {
        let port = &shown["ports"][place];
        assert_eq!(port["name"], name);
        assert_eq!((&port["xdp"], &port["copy"]), (&"native".into(), &"copy".into()));
        assert_eq!((&port["mtu"], &port["queues"]), (&1500.into(), &4.into()));
    }
    assert_eq!(shown["ports"][1]["qdisc"], "tbf");
    assert_eq!(shown["ports"][1]["rate_set_bps"], 10_000_000);
    assert_eq!(shown["workers"].as_array().unwrap().len(), 4);
    let rate = |show: &Value| show["ports"][1]["tx_rate_bps"].as_f64().unwrap();
    wait_for(&bed, "measured", |show| (9e6..11e6).contains(&rate(show)));
    load.stop().unwrap();
    let text = String::from_utf8(narrows(&bed, &["show", "port-b"]).stdout).unwrap();
    for words in [
        "narrows running for",
        "port-b: native copy",
        "rate 10 Mbit/s",
        "worker 3: cpu",
        "0 unaccounted",
    ] {
        assert!(text.contains(words), "no {words:?} in\n{text}");
    }
}
