//! Rates that flows have from the entries of sets, on real packets; and a second one by host.

use crate::pacing::{FRAME, arriving, assert_paced, traces};
use crate::sets::{from, set};
use crate::setup::{Scratch, assert_refused, run, tc, turn_to_measure};
use narrows_testbed::bed::{CLIENT, SINK_MAC};
use narrows_testbed::flood::{Flood, Pace, Running};
use narrows_testbed::{Testbed, frames};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Four flows, each from an address of its own, `bits` a second in all.
fn flood(bed: &Testbed, bits: f64) -> (Running, Vec<u16>) {
    let ports: Vec<u16> = (0..4).map(frames::port).collect();
    let frame = |(last, port): (u8, &u16)| {
        from(frames::udp(*port, SINK_MAC, FRAME).unwrap(), [10, 200, 7, last])
    };
    let frames = (1..).zip(&ports).map(frame).collect();
    let flood =
        Flood { frames, pace: Pace::Bits(bits), limit: Duration::from_secs(60), core: None };
    (flood.start(bed.client(), CLIENT).unwrap(), ports)
}

#[test]
fn flows_have_the_rates_of_the_members_of_a_set_and_new_ones_when_it_is_swapped() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(1).unwrap();
    let mut instance = run(&bed, &[]);
    instance.tc("qdisc add dev port-b clsact").unwrap();
    let pace = |name| {
        format!("filter add dev port-b egress pref 1 matchall action pace set-rate {name} src")
    };
    assert_refused(&tc(&bed, &pace("plans")), 2, &["narrows set create plans hash:net"]);
    for (name, mbits) in [("plans", [3, 6, 6, 12]), ("next", [2, 4, 6, 8])] {
        set(&bed, &format!("create {name} hash:net rate"));
        for (last, mbit) in (1..).zip(mbits) {
            set(&bed, &format!("add {name} 10.200.7.{last} rate {mbit}mbit"));
        }
    }
    set(&bed, "create plain hash:net");
    assert_refused(&tc(&bed, &pace("plain")), 2, &["have no rates"]);
    assert!(tc(&bed, &pace("plans")).status.success());
    assert!(set(&bed, "list -terse plans").contains("References: 1"));
    for qdisc in ["flowbundler", "flowbundler codel", "carousel", "eiffel", "fq"] {
        instance.tc(&format!("qdisc replace dev port-b root {qdisc} flow_limit 50")).unwrap();
        let (load, ports) = flood(&bed, 4.0 * 15e6);
        for mbits in [[3, 6, 6, 12], [2, 4, 6, 8]] {
            let flows = arriving(&bed);
            for (port, mbit) in ports.iter().zip(mbits) {
                let what = format!("{qdisc}: a member with {mbit} Mbit/s");
                assert_paced(&traces(&flows, &[*port], f64::from(mbit) * 1e6), &what);
            }
            set(&bed, "swap plans next");
        }
        load.stop().unwrap();
    }
    // The sets go over to another process, and the rates with them.
    instance.upgrade().unwrap();
    let (load, ports) = flood(&bed, 4.0 * 15e6);
    let flows = arriving(&bed);
    load.stop().unwrap();
    for (port, mbit) in ports.iter().zip([3, 6, 6, 12]) {
        let what = format!("after an upgrade: {mbit} Mbit/s");
        assert_paced(&traces(&flows, &[*port], f64::from(mbit) * 1e6), &what);
    }
}

#[test]
fn connections_at_rates_of_their_own_have_the_rate_of_their_host_together() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(1).unwrap();
    let instance = run(&bed, &[]);
    set(&bed, "create plans hash:net rate");
    for (last, mbit) in [(1, 2), (2, 8), (3, 8), (4, 8)] {
        set(&bed, &format!("add plans 10.200.7.{last} rate {mbit}mbit"));
    }
    instance.tc("qdisc add dev port-b clsact").unwrap();
    instance
        .tc("filter add dev port-b egress pref 1 matchall action pace set-rate plans src")
        .unwrap();
    for structure in ["flowbundler", "carousel", "eiffel"] {
        let words = format!("{structure} hostrate 14mbit flow_limit 20");
        instance.tc(&format!("qdisc replace dev port-b root {words}")).unwrap();
        let (load, ports) = flood(&bed, 4.0 * 10e6);
        let flows = arriving(&bed);
        load.stop().unwrap();
        let rate = |port: &u16| {
            let at = &flows[port];
            let span = at[at.len() - 1].since(at[0]).0;
            (at.len() - 1) as f64 * FRAME as f64 * 8e3 / span as f64
        };
        let rates: Vec<f64> = ports.iter().map(rate).collect();
        let all: f64 = rates.iter().sum();
        println!("{structure}: {rates:.2?}, {all:.2} Mbit/s");
        assert!((12.6..=14.3).contains(&all), "{structure}: {rates:?}");
        assert!(rates[0] <= 2.05 && rates[1..].iter().all(|rate| *rate <= 8.2), "{rates:?}");
    }
}

/// Bytes of memory of the process `id`.
fn resident(id: u32) -> u64 {
    let pages = std::fs::read_to_string(format!("/proc/{id}/statm")).unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn a_million_members_with_rates_of_their_own_take_at_most_64_bytes_each() {
    const MEMBERS: u32 = 1_000_000;
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(1).unwrap();
    let instance = run(&bed, &[]);
    instance.tc("qdisc add dev port-b root flowbundler").unwrap();
    instance.tc("qdisc add dev port-b clsact").unwrap();
    set(&bed, "create plans hash:ip maxelem 2000000 rate");
    instance
        .tc("filter add dev port-b egress pref 1 matchall action pace set-rate plans src")
        .unwrap();
    let mut text = String::new();
    for number in 0..MEMBERS {
        let [_, a, b, c] = number.to_be_bytes();
        // From 1 Mbit/s on, each its own.
        writeln!(text, "add plans 100.{a}.{b}.{c} rate {}bit", 1_000_000 + 8 * number).unwrap();
    }
    let file = Scratch::new("rates", &text);
    drop(text);
    let before = resident(instance.id());
    let start = Instant::now();
    set(&bed, &format!("restore -file {}", file.path()));
    let (took, after) = (start.elapsed(), resident(instance.id()));
    let each = (after - before) as f64 / f64::from(MEMBERS);
    println!("{MEMBERS} members in {:.2} s, {each:.1} bytes each", took.as_secs_f64());
    assert!(set(&bed, "list -terse plans").contains("Number of entries: 1000000"));
    assert!(each <= 64.0, "{each} bytes each");
    // The last of all has its own rate, 9 Mbit/s.
    let [_, a, b, c] = (MEMBERS - 1).to_be_bytes();
    let port = frames::port(0);
    let frames = vec![from(frames::udp(port, SINK_MAC, FRAME).unwrap(), [100, a, b, c])];
    let limit = Duration::from_secs(60);
    let flood = Flood { frames, pace: Pace::Bits(15e6), limit, core: None };
    let load = flood.start(bed.client(), CLIENT).unwrap();
    let flows = arriving(&bed);
    load.stop().unwrap();
    assert_paced(&traces(&flows, &[port], 9e6), "one in a million");
}
