//! Behaviour when the process is gone.

use crate::setup::{NARROWS, flood, ip, run, show, turn_to_count, wait_for};
use narrows_testbed::bed::{PORT_A, PORT_B, SERVER};
use narrows_testbed::counters::Counters;
use narrows_testbed::narrows::Instance;
use narrows_testbed::ping::Ping;
use narrows_testbed::{Testbed, frames};
use serde_json::Value;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// The longest interruption of traffic; the guarantee is one second.
const GAP: Duration = Duration::from_secs(1);

/// The most pings lost over two ends and a start: those in a queue or a ring of the process that is
/// gone. At one per 10 ms, that is at most one or two each time.
const LOST: u64 = 6;

fn ports() -> Vec<u16> {
    (0..32).map(frames::port).collect()
}

#[track_caller]
fn assert_no_program_left(bed: &Testbed) {
    for port in [PORT_A, PORT_B] {
        let text = ip(bed.shaper(), &format!("-d link show dev {port}"));
        assert!(!text.contains("xdp"), "{text}");
        // The bridge holds its port in promiscuous mode once.
        let wanted = if text.contains("master") { "promiscuity 1 " } else { "promiscuity 0 " };
        assert!(text.contains(wanted), "{text}");
    }
}

/// Whether frames still arrive at the server.
fn flows(bed: &Testbed) -> bool {
    let mut server = Counters::of(bed.server(), SERVER).unwrap();
    let before = server.read().unwrap().rx_packets;
    sleep(Duration::from_millis(300));
    server.read().unwrap().rx_packets > before
}

fn received(show: &Value) -> u64 {
    show["conservation"]["received"].as_u64().unwrap()
}

/// Runs Narrows under load, ends it with `end`, and asserts that traffic continues and that the
/// next instance takes over.
fn traffic_goes_on_after(end: impl FnOnce(Instance)) {
    let bed = Testbed::up(4).unwrap();
    let instance = run(&bed, &[]);
    instance.tc("qdisc add dev port-b root tbf rate 50mbit burst 100k latency 20ms").unwrap();
    let _load = flood(&bed, &ports(), 500, 20e6);
    let ping = Ping::start(&bed, Duration::from_secs(30)).unwrap();
    sleep(Duration::from_millis(500));
    end(instance);
    sleep(Duration::from_millis(1200));
    assert!(flows(&bed), "nothing is forwarded after the end");
    assert_no_program_left(&bed);

    let again = Instance::start(&bed, Path::new(NARROWS), &[]).unwrap();
    let before = received(&show(&bed));
    wait_for(&bed, "taken over", |show| received(show) > before + 1000);
    drop(again);
    assert!(flows(&bed), "nothing is forwarded after the second end");
    let stats = ping.stop().unwrap();
    assert!(stats.longest_gap <= GAP, "{stats:?}");
    assert!(stats.received > 100 && stats.lost <= LOST, "{stats:?}");
}

#[test]
fn traffic_goes_on_after_a_kill() {
    let Some(_turn) = turn_to_count() else { return };
    traffic_goes_on_after(|instance| {
        instance.kill().unwrap();
    });
}

#[test]
fn traffic_goes_on_after_a_request_to_end_which_sums_up() {
    let Some(_turn) = turn_to_count() else { return };
    traffic_goes_on_after(|instance| {
        let (status, log) = instance.stop().unwrap();
        assert_eq!(status.code(), Some(0), "{log}");
        assert!(log.contains(", 0 unaccounted"), "{log}");
    });
}

#[test]
fn traffic_stops_with_the_process_where_that_was_asked_for() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(4).unwrap();
    let instance = run(&bed, &["--fail-closed"]);
    let _load = flood(&bed, &ports(), 500, 20e6);
    assert!(flows(&bed));
    assert_eq!(show(&bed)["fail"], "closed");
    instance.kill().unwrap();
    sleep(Duration::from_millis(200));
    assert!(!flows(&bed), "frames are forwarded without a forwarder");
    assert_no_program_left(&bed);
    let links = ip(bed.shaper(), "-o link show type bridge");
    assert_eq!(links, "", "a bridge was left behind");
    let _again = run(&bed, &["--fail-closed"]);
    assert!(flows(&bed));
}
