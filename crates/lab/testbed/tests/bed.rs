//! The testbed itself, with the kernel's bridge where Narrows will stand. Needs root;
//! without it, each test says that it was skipped.

use narrows_testbed::bed::{CLIENT, PORT_B, SERVER, SERVER_MAC, SINK_MAC, tc};
use narrows_testbed::bridge::Bridge;
use narrows_testbed::capture::Capture;
use narrows_testbed::counters::Counters;
use narrows_testbed::flood::{Flood, Pace};
use narrows_testbed::iperf::{Iperf, Traffic};
use narrows_testbed::ping::Ping;
use narrows_testbed::raw::RawSocket;
use narrows_testbed::window::{Delivered, Meter};
use narrows_testbed::{Testbed, frames, requirements, stale, steering};
use narrows_units::Rate;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

macro_rules! skip_without_root {
    () => {
        if !requirements::is_root() {
            eprintln!("SKIPPED: needs root, for network namespaces");
            return;
        }
    };
}

fn exists(namespace: &str) -> bool {
    Path::new("/run/netns").join(namespace).exists()
}

fn flood(flows: &[u16], packets_per_second: f64) -> Flood {
    Flood {
        frames: frames::udp_flows(flows, SINK_MAC, 200).unwrap(),
        pace: Pace::Packets(packets_per_second),
        limit: Duration::from_secs(10),
        core: None,
    }
}

/// Frames that each queue of the client's device sends while `flows` are sent.
fn queues_taken(bed: &Testbed, flows: &[u16]) -> Vec<u64> {
    tc(bed.client(), &format!("qdisc replace dev {CLIENT} root handle 1: mq")).unwrap();
    let running = flood(flows, 20_000.0).start(bed.client(), CLIENT).unwrap();
    sleep(Duration::from_millis(200));
    running.stop().unwrap();
    let json = tc(bed.client(), &format!("-s -j qdisc show dev {CLIENT}")).unwrap();
    let qdiscs: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    (1..=bed.queues())
        .map(|n| {
            let child = qdiscs.iter().find(|q| q["parent"] == format!("1:{n}")).unwrap();
            child["packets"].as_u64().unwrap()
        })
        .collect()
}

#[test]
fn nothing_is_left_of_a_testbed_that_was_dropped() {
    skip_without_root!();
    let bed = Testbed::up(2).unwrap();
    let names = [bed.client(), bed.shaper(), bed.server()].map(|n| n.name().to_owned());
    assert!(names.iter().all(|name| exists(name)));
    let mut sleeper = bed.shaper().command("sleep").arg("60").spawn().unwrap();
    drop(bed);
    assert!(!names.iter().any(|name| exists(name)));
    assert_eq!(sleeper.wait().unwrap().signal(), Some(15), "what ran inside was ended");
}

#[test]
#[ignore = "holds a testbed until it is killed, for the test below"]
fn a_testbed_is_held() {
    let bed = Testbed::up(1).unwrap();
    println!("\nholds {}", bed.shaper().name());
    sleep(Duration::from_secs(60));
}

#[test]
fn a_testbed_of_a_killed_owner_is_removed() {
    skip_without_root!();
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_testbed_is_held", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let held = lines
        .map(|line| line.unwrap())
        .find_map(|line| line.strip_prefix("holds ").map(str::to_owned));
    let held = held.expect("a testbed");
    assert!(exists(&held));
    owner.kill().unwrap();
    owner.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    while exists(&held) && Instant::now() < deadline {
        sleep(Duration::from_millis(20));
    }
    assert!(!exists(&held), "the guard removes what a killed process left");
}

#[test]
fn namespaces_of_the_dead_are_swept_and_of_the_living_are_not() {
    skip_without_root!();
    let mut dead = Command::new("true").stdout(Stdio::null()).spawn().unwrap();
    let stale_name = format!("nrw-srv-{}-0", dead.id());
    dead.wait().unwrap();
    assert!(Command::new("ip").args(["netns", "add", &stale_name]).status().unwrap().success());
    let bed = Testbed::up(1).unwrap();
    assert!(!exists(&stale_name), "building a testbed sweeps");
    stale::sweep().unwrap();
    assert!(exists(bed.server().name()));
}

#[test]
fn a_flood_reaches_every_queue_evenly() {
    skip_without_root!();
    let bed = Testbed::up(4).unwrap();
    let flows = steering::flows(&bed, 4).unwrap();
    let taken = queues_taken(&bed, &flows.concat());
    let total: u64 = taken.iter().sum();
    assert!(total > 1000, "{taken:?}");
    for queue in &taken {
        assert!(queue.abs_diff(total / 4) <= 16, "{taken:?}");
    }
}

#[test]
fn a_flood_reaches_one_queue_by_its_flows_or_by_steering() {
    skip_without_root!();
    let bed = Testbed::up(4).unwrap();
    let flows = steering::flows(&bed, 4).unwrap();
    let by_flows = queues_taken(&bed, &flows[2]);
    assert!(by_flows[2] > 1000, "{by_flows:?}");
    assert_eq!(by_flows.iter().sum::<u64>(), by_flows[2], "{by_flows:?}");

    tc(bed.client(), &format!("qdisc del dev {CLIENT} root")).unwrap();
    steering::pin(&bed, 1).unwrap();
    let pinned = queues_taken(&bed, &flows.concat());
    assert_eq!(pinned.iter().sum::<u64>(), pinned[1], "{pinned:?}");

    tc(bed.client(), &format!("qdisc del dev {CLIENT} root")).unwrap();
    steering::spread(&bed).unwrap();
    assert!(queues_taken(&bed, &flows.concat()).iter().all(|taken| *taken > 0));
}

#[test]
fn every_frame_of_a_flood_is_counted_at_the_server() {
    skip_without_root!();
    let bed = Testbed::up(4).unwrap();
    let _bridge = Bridge::over(&bed).unwrap();
    let mut client = Counters::of(bed.client(), CLIENT).unwrap();
    let mut server = Counters::of(bed.server(), SERVER).unwrap();
    let (sent_before, received_before) = (client.read().unwrap(), server.read().unwrap());
    let started = Instant::now();
    let running = flood(&[frames::port(0)], 10_000.0).start(bed.client(), CLIENT).unwrap();
    sleep(Duration::from_millis(500));
    let sent = running.stop().unwrap();
    let offered = sent.packets as f64 / started.elapsed().as_secs_f64();
    sleep(Duration::from_millis(50));
    let client = client.read().unwrap() - sent_before;
    let server = server.read().unwrap() - received_before;
    assert_eq!(client.tx_packets + client.tx_dropped, sent.packets);
    assert_eq!(server.rx_packets, client.tx_packets);
    assert_eq!(server.rx_bytes, 200 * server.rx_packets);
    assert!((7_000.0..=10_500.0).contains(&offered), "asked for 10000 a second, got {offered}");
}

#[test]
fn the_kernels_own_shaper_delivers_its_rate() {
    skip_without_root!();
    let bed = Testbed::up(4).unwrap();
    let bridge = Bridge::over(&bed).unwrap();
    bridge.shape(PORT_B, "tbf rate 50mbit burst 100k latency 10ms").unwrap();
    let flows: Vec<u16> = (0..16).map(frames::port).collect();
    let running = flood(&flows, 40_000.0).start(bed.client(), CLIENT).unwrap();
    sleep(Duration::from_millis(300));
    let mut meter = Meter::at_server(&bed).unwrap();
    let start = meter.read().unwrap();
    sleep(Duration::from_secs(1));
    let end = meter.read().unwrap();
    running.stop().unwrap();
    let delivered = Delivered::between(&start, &end);
    let deviation = delivered.deviation_percent(Rate::from_bits_per_sec(50_000_000));
    assert!(deviation.abs() < 2.0, "{deviation} %");
}

#[test]
fn ping_and_iperf_pass_a_bridge() {
    skip_without_root!();
    let bed = Testbed::up(4).unwrap();
    let _bridge = Bridge::over(&bed).unwrap();
    let ping = Ping::start(&bed, Duration::from_secs(10)).unwrap();
    let mut meter = Meter::at_server(&bed).unwrap();
    let start = meter.read().unwrap();
    // More than one client has.
    let tcp = Iperf::start(&bed, Traffic::Tcp, 130, Duration::from_secs(1)).unwrap();
    assert_eq!(tcp.finish().unwrap().received.len(), 130);
    let after_tcp = meter.read().unwrap();
    let rate = Rate::from_bits_per_sec(20_000_000);
    Iperf::start(&bed, Traffic::Udp(rate), 8, Duration::from_secs(1)).unwrap().finish().unwrap();
    let end = meter.read().unwrap();
    let stats = ping.stop().unwrap();
    assert!(stats.received > 50 && stats.received <= stats.sent, "{stats:?}");
    assert!(stats.median().unwrap() <= stats.p99().unwrap());
    assert!(stats.median().unwrap() < Duration::from_millis(50), "{stats:?}");
    assert!(Delivered::between(&start, &after_tcp).bytes.0 > 1_000_000);
    assert!(Delivered::between(&after_tcp, &end).bytes.0 > 2_000_000);
}

#[test]
fn frames_arrive_as_they_were_sent_vlan_tags_included() {
    skip_without_root!();
    let bed = Testbed::up(2).unwrap();
    let _bridge = Bridge::over(&bed).unwrap();
    let plain = frames::udp(frames::port(7), SERVER_MAC, 300).unwrap();
    let mut tagged = plain[..12].to_vec();
    tagged.extend([0x81, 0x00, 0x20, 0x2a]);
    tagged.extend(&plain[12..]);
    let unknown: Vec<u8> =
        SINK_MAC.into_iter().chain([2; 6]).chain([0x88, 0xb5]).chain([9; 50]).collect();
    let sent = vec![plain, tagged, unknown];
    let capture = Capture::start(bed.server(), SERVER, "").unwrap();
    let socket = RawSocket::open(bed.client(), CLIENT).unwrap();
    assert_eq!(socket.send(&sent).unwrap(), 3);
    assert_eq!(capture.wait_for(3, Duration::from_secs(5)), sent);
    assert_eq!(capture.stop().unwrap(), sent);
}
