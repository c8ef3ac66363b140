//! Limits in front of the balancer: a rate for each service, and a pool that all of them share.

use crate::balance::{Farm, VIP, assert_balanced, server_ip};
use crate::setup::{show, turn_to_measure};
use narrows_testbed::bed::{CLIENT, CLIENT_IP, CLIENT_MAC, SERVER_MAC};
use narrows_testbed::counters::Counters;
use narrows_testbed::flood::{Flood, Pace};
use narrows_testbed::frames::udp4;
use std::net::Ipv4Addr;
use std::thread::sleep;
use std::time::{Duration, Instant};

const VIPS: [Ipv4Addr; 2] = [VIP, Ipv4Addr::new(198, 18, 0, 101)];
/// Where `udp4` sends to: discard.
const PORT: u16 = 9;
const LENGTH: usize = 1000;

/// The megabits a second that arrive at each service's server while `services` are flooded.
fn rates(farm: &Farm, services: &[Ipv4Addr]) -> [f64; 2] {
    let macs = [CLIENT_MAC, SERVER_MAC];
    let frame = |vip: &Ipv4Addr| udp4(7, macs, [CLIENT_IP, *vip], LENGTH).unwrap();
    let frames = services.iter().map(frame).collect();
    let limit = Duration::from_secs(30);
    let flood = Flood { frames, pace: Pace::Bits(60e6), limit, core: None };
    let flood = flood.start(farm.bed.client(), CLIENT).unwrap();
    // Bursts pass first. They are long enough for a sender that stands still meanwhile.
    sleep(Duration::from_secs(1));
    let mut servers = ["s1", "s2"].map(|device| Counters::of(farm.bed.server(), device).unwrap());
    let begin = Instant::now();
    let before = servers.each_mut().map(|server| server.read().unwrap().rx_packets);
    sleep(Duration::from_secs(3));
    let after = servers.each_mut().map(|server| server.read().unwrap().rx_packets);
    let seconds = begin.elapsed().as_secs_f64();
    flood.stop().unwrap();
    [0, 1].map(|n| (after[n] - before[n]) as f64 * LENGTH as f64 * 8.0 / 1e6 / seconds)
}

#[track_caller]
fn assert_within_one_percent(rate: f64, expected: f64) {
    assert!((rate / expected - 1.0).abs() < 0.01, "{rate} Mbit/s, not {expected}");
}

#[test]
fn each_service_has_its_rate_and_what_it_exceeds_comes_from_a_shared_pool() {
    let Some(_turn) = turn_to_measure() else { return };
    let farm = Farm::up();
    let mut instance = farm.start(&[]);
    for (vip, number) in VIPS.iter().zip(1..) {
        farm.balance(&format!("add -u {vip}:{PORT} -s mh"));
        farm.balance(&format!("add -u {vip}:{PORT} -r {}", server_ip(number)));
    }
    farm.wait_for_ways();
    for words in [
        "qdisc add dev port-a clsact",
        "filter add dev port-a ingress pref 1 protocol ip flower dst_ip 198.18.0.100 \
         action police rate 8mbit burst 400k conform-exceed continue/pass",
        "filter add dev port-a ingress pref 2 protocol ip flower dst_ip 198.18.0.101 \
         action police rate 4mbit burst 400k conform-exceed continue/pass",
        "filter add dev port-a ingress pref 3 protocol ip flower dst_ip 198.18.0.100/31 \
         action police rate 4mbit burst 400k conform-exceed drop/pass",
    ] {
        instance.tc(words).unwrap();
    }
    for upgraded in [false, true] {
        if upgraded {
            instance.upgrade().unwrap();
        }
        let [first, second] = rates(&farm, &VIPS);
        assert!(first > 7.92 && second > 3.96, "each has its rate: {first}, {second} Mbit/s");
        assert_within_one_percent(first + second, 16.0);
        let [first, second] = rates(&farm, &VIPS[..1]);
        assert_within_one_percent(first, 12.0);
        assert!(second < 0.04, "the other is sent nothing: {second} Mbit/s");
    }
    let shown = show(&farm.bed);
    assert_balanced(&shown);
    let dropped = &shown["conservation"]["dropped"];
    let filtered = dropped["filter"].as_u64();
    assert!(filtered > Some(10_000), "the filters dropped the rest: {dropped}");
}
