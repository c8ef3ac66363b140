//! `cake nat` on real packets: the kernel's connection tracking distinguishes hosts behind one
//! address.

use crate::setup::{complaint, flood, run, tc, turn_to_measure};
use narrows_testbed::bed::SERVER;
use narrows_testbed::capture::Capture;
use narrows_testbed::translation::hide;
use narrows_testbed::{Testbed, frames};
use std::net::Ipv4Addr;
use std::thread::sleep;
use std::time::Duration;

/// The flows of one host; the other one has a single flow.
const MANY: u16 = 7;

/// The first flow's share of the UDP packets that arrive at the server.
fn first_flows_share(bed: &Testbed) -> f64 {
    let capture = Capture::start(bed.server(), SERVER, "udp").unwrap();
    sleep(Duration::from_secs(1));
    let arrived = capture.stop().unwrap();
    assert!(arrived.len() > 1000, "{} packets", arrived.len());
    let port = frames::port(0).to_be_bytes();
    let first = arrived.iter().filter(|frame| frame[34..36] == port).count();
    first as f64 / arrived.len() as f64
}

#[test]
fn hosts_behind_one_address_share_evenly_with_nat_and_only_with_it() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(1).unwrap();
    let instance = run(&bed, &[]);
    let words = "qdisc replace dev port-b root cake bandwidth 10mbit besteffort dual-srchost";
    let with_nat = tc(&bed, &format!("{words} nat"));
    assert!(with_nat.status.success(), "{}", complaint(&with_nat));
    if complaint(&with_nat).contains("no conntrack look-up") {
        eprintln!("SKIPPED: this kernel offers no conntrack look-up");
        return;
    }
    let ports: Vec<u16> = (0..=MANY).map(frames::port).collect();
    for (index, port) in (0_u16..).zip(&ports) {
        let host = if index == 0 { 1 } else { 2 };
        if let Err(error) = hide(bed.shaper(), Ipv4Addr::new(10, 0, 0, host), *port) {
            eprintln!("SKIPPED: {error:#}");
            return;
        }
    }
    // Each flow offers 7.5 Mbit/s: more than half of the rate.
    let load = flood(&bed, &ports, 500, 60e6);
    let alone = 1.0 / f64::from(MANY + 1);
    for (word, expected) in [("nat", 0.5), ("nonat", alone), ("nat", 0.5)] {
        instance.tc(&format!("{words} {word}")).unwrap();
        sleep(Duration::from_millis(500));
        let share = first_flows_share(&bed);
        assert!((share - expected).abs() < 0.05, "{word}: {share:.3} instead of {expected}");
    }
    load.stop().unwrap();
}
