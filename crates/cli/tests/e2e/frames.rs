//! Frames: neither direction takes the other's, and none is lost.

use crate::setup::wait_for;
use crate::setup::{
    assert_balanced, flood, flood_from, ip, narrows, run, set_mtu, show, turn_to_count,
    turn_to_measure,
};
use narrows_testbed::accounting::Books;
use narrows_testbed::bed::{CLIENT_MAC, PORT_B, SERVER};
use narrows_testbed::flood::{Flood, Pace};
use narrows_testbed::ping::Ping;
use narrows_testbed::{Testbed, frames};
use serde_json::Value;
use std::thread::sleep;
use std::time::Duration;

/// Asserts that all frames of each worker are accounted for.
#[track_caller]
fn assert_frames_add_up(show: &Value) {
    for worker in show["workers"].as_array().unwrap() {
        let count = |key: &str| worker[key].as_u64().unwrap();
        let keys = ["free_frames", "receiving_frames", "waiting_frames", "sending_frames"];
        assert_eq!(keys.map(count).iter().sum::<u64>(), count("frames"), "{worker:#}");
        assert_eq!(count("stray_frames"), 0);
    }
}

fn no_frame(show: &Value, port: usize) -> u64 {
    show["ports"][port]["total"]["drops_by_reason"]["no_frame"].as_u64().unwrap_or(0)
}

#[test]
fn a_flood_one_way_takes_no_frame_from_the_other() {
    let Some(_turn) = turn_to_count() else { return };
    for limit in [
        "tbf rate 2mbit burst 16k limit 20m",
        "tbf rate 2mbit burst 16k latency 60s",
        "fq maxrate 1mbit limit 100000 flow_limit 100000",
        "carousel maxrate 1mbit limit 100000",
    ] {
        let bed = Testbed::up(1).unwrap();
        let instance = run(&bed, &["--frames", "1024"]);
        instance.tc(&format!("qdisc add dev port-a root handle 1: {limit}")).unwrap();
        let mut books = Books::open(&bed).unwrap();
        // From the server, so that echo requests share only the worker with it. No host has the
        // destination address, so nothing answers.
        let ports: Vec<u16> = (0..8).map(frames::port).collect();
        let load = flood_from(bed.server(), SERVER, &ports, 60, 10e6);
        wait_for(&bed, "out of frames that way", |show| no_frame(show, 0) > 100);
        // The direction under test is full of packets, too, which all pass.
        let before = show(&bed);
        let forth = flood(&bed, &ports, 60, 2e6);
        sleep(Duration::from_secs(1));
        forth.stop().unwrap();
        let after = show(&bed);
        let tx = |show: &Value| show["ports"][1]["total"]["tx_packets"].as_u64().unwrap();
        assert_eq!(no_frame(&after, 1), 0, "{limit}: {after:#}");
        assert!(tx(&after) > tx(&before) + 1000, "{limit}: {after:#}");
        assert_frames_add_up(&after);
        load.stop().unwrap();
        // The backlog leaves with the qdisc that holds it.
        instance.tc("qdisc replace dev port-a root noqueue").unwrap();
        assert_balanced(&mut books, &instance);
        assert_frames_add_up(&show(&bed));
    }
}

#[test]
fn pings_pass_against_a_flood_of_short_packets() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let instance = run(&bed, &[]);
    // From client to server; answers take the other direction.
    instance.tc("qdisc add dev port-a root tbf rate 10mbit burst 128k latency 1s").unwrap();
    instance.tc("qdisc add dev port-b root cake unlimited").unwrap();
    let flood = Flood {
        frames: frames::udp_flows(&[frames::port(0)], CLIENT_MAC, 60).unwrap(),
        pace: Pace::Packets(300_000.0),
        limit: Duration::from_secs(20),
        core: None,
    };
    let load = flood.start(bed.server(), SERVER).unwrap();
    // A limit in bytes, which allows far more of the shortest packets than there are frames.
    wait_for(&bed, "out of frames that way", |show| no_frame(show, 0) > 100);
    let before = show(&bed);
    let ping = Ping::start(&bed, Duration::from_secs(30)).unwrap();
    sleep(Duration::from_secs(3));
    drop(ping);
    let after = show(&bed);
    drop(load);
    // tc counts them as the qdisc's drops.
    let shown = instance.tc("-s -j qdisc show dev port-a").unwrap();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert!(shown[0]["drops"].as_u64() >= Some(no_frame(&after, 0)), "{shown:#}");
    let requests = |show: &Value| show["ports"][1]["total"]["tx_packets"].as_u64().unwrap();
    assert_eq!(no_frame(&after, 1), 0, "{after:#}");
    assert!(requests(&after) > requests(&before) + 50, "{after:#}");
    assert_frames_add_up(&after);
}

#[test]
fn a_flow_that_floods_leaves_frames_to_others_of_its_direction() {
    let Some(_turn) = turn_to_count() else { return };
    for paced in ["fq", "carousel", "flowbundler"] {
        let bed = Testbed::up(1).unwrap();
        let instance = run(&bed, &[]);
        // Answers leave between the packets of a flow that could fill all frames.
        let limits = "maxrate 1mbit limit 100000 flow_limit 100000";
        instance.tc(&format!("qdisc add dev port-a root {paced} {limits}")).unwrap();
        let flood = Flood {
            frames: frames::udp_flows(&[frames::port(0)], CLIENT_MAC, 60).unwrap(),
            pace: Pace::Packets(30_000.0),
            limit: Duration::from_secs(20),
            core: None,
        };
        let load = flood.start(bed.server(), SERVER).unwrap();
        wait_for(&bed, "short of frames", |show| no_frame(show, 0) > 100);
        let ping = Ping::start(&bed, Duration::from_secs(30)).unwrap();
        sleep(Duration::from_secs(2));
        let pings = ping.stop().unwrap();
        load.stop().unwrap();
        assert!(pings.received > 50 && pings.lost * 10 < pings.sent, "{paced}: {pings:?}");
    }
}

#[test]
fn every_frame_comes_back_when_traffic_ends() {
    let Some(_turn) = turn_to_count() else { return };
    for mtu in [1500, 9000] {
        let bed = Testbed::up(2).unwrap();
        set_mtu(&bed, mtu);
        let instance = run(&bed, &["--frames", "1024"]);
        instance.tc("qdisc add dev port-b root tbf rate 20mbit burst 64k latency 100ms").unwrap();
        let mut books = Books::open(&bed).unwrap();
        let ports: Vec<u16> = (0..16).map(frames::port).collect();
        let load = flood(&bed, &ports, mtu as usize, 40e6);
        for _ in 0..10 {
            sleep(Duration::from_millis(100));
            assert_frames_add_up(&show(&bed));
        }
        load.stop().unwrap();
        assert_balanced(&mut books, &instance);
        let after = wait_for(&bed, "at rest", |show| {
            let at_rest =
                |worker: &Value| worker["waiting_frames"] == 0 && worker["sending_frames"] == 0;
            show["workers"].as_array().unwrap().iter().all(at_rest)
        });
        assert_frames_add_up(&after);
        for worker in after["workers"].as_array().unwrap() {
            // Two rings of 128, each of which is refilled when it has room for a batch of 64.
            assert!(
                (128..=256).contains(&worker["receiving_frames"].as_u64().unwrap()),
                "{after:#}"
            );
        }
    }
}

#[test]
fn packets_sent_without_a_carrier_are_reported_as_lost() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(1).unwrap();
    let instance = run(&bed, &[]);
    let lost = |show: &Value| show["ports"][1]["device_losses"]["tx_dropped"].as_u64().unwrap();
    assert_eq!(lost(&show(&bed)), 0);
    assert_eq!(show(&bed)["ports"][1]["no_carrier"], false);
    ip(bed.server(), &format!("link set dev {SERVER} down"));
    wait_for(&bed, "without a carrier", |show| show["ports"][1]["no_carrier"] == true);
    let said = |show: &Value, words: &str| {
        show["events"]
            .as_array()
            .unwrap()
            .iter()
            .any(|event| event.as_str().unwrap().contains(words))
    };
    wait_for(&bed, "said", |show| said(show, &format!("{PORT_B} has no carrier")));
    // The kernel's own packets, sent before it knew of the carrier.
    let strays = lost(&show(&bed));
    let load = flood(&bed, &[frames::port(0)], 500, 4e6);
    wait_for(&bed, "lost", |show| lost(show) > strays + 100);
    load.stop().unwrap();
    // The device is read at once; workers report ten times per second.
    let sent = |show: &Value| show["ports"][1]["total"]["tx_packets"].as_u64().unwrap();
    let now = wait_for(&bed, "counted", |show| sent(show) >= lost(show) - strays);
    assert_eq!(now["conservation"]["unaccounted"], 0);
    let text = String::from_utf8(narrows(&bed, &["show"]).stdout).unwrap();
    assert!(text.contains("no carrier: packets sent here are lost in the kernel"), "{text}");
    assert!(text.contains("lost by the device: sending "), "{text}");
    ip(bed.server(), &format!("link set dev {SERVER} up"));
    let again = format!("{PORT_B} has its carrier again");
    let now = wait_for(&bed, "said", |show| said(show, &again));
    assert_eq!(now["ports"][1]["no_carrier"], false);
    assert_frames_add_up(&now);
    drop(instance);
}
