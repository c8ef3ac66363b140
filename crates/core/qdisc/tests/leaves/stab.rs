//! A size table: rates, turns and limits below it count packets as they are on the wire.

use crate::port::{Port, flow, ms};
use narrows_qdisc::{Config, Spec, fifo, fq_codel, tbf};
use narrows_units::wire::{Framing, Overhead};
use narrows_units::{Bytes, Nanos, Rate};

const ATM: Overhead = Overhead { per_frame: 10, minimum: 0, framing: Framing::Atm };

fn sized(overhead: Overhead, child: Spec) -> Port {
    Port::of(Spec { children: vec![child], ..Spec::new(Config::Stab(overhead)) })
}

fn tbf(overhead: Overhead) -> Spec {
    let config = tbf::Config {
        rate: Rate::from_bits_per_sec(8_000_000),
        burst: Bytes(4_000),
        limit: Bytes(100_000),
        peak: None,
        overhead,
    };
    let pfifo = Spec::new(Config::Fifo(fifo::Config::Packets(1000)));
    Spec { children: vec![pfifo], ..Spec::new(Config::Tbf(config)) }
}

/// Packets that leave in a second of overload.
fn in_a_second(mut port: Port, len: u32) -> usize {
    let end = port.now + Nanos::from_secs(1);
    while port.now < end {
        port.arrive_all([flow(1); 20].into_iter(), len);
        let next = port.now + ms(1);
        port.leave_until(next);
    }
    port.left.len()
}

#[test]
fn a_rate_below_it_is_charged_for_the_wire() {
    // 100 bytes and 10 more take three cells of 53.
    assert_eq!(ATM.cost(Bytes(100)), Bytes(159));
    for (overhead, len, own, cost) in [
        (ATM, 100, Overhead::NONE, 159),
        (Overhead { per_frame: 24, minimum: 84, framing: Framing::Whole }, 50, Overhead::NONE, 84),
        // The tbf's own overhead comes on top, as in Linux.
        (ATM, 100, Overhead { per_frame: 41, ..Overhead::NONE }, 200),
        (Overhead { per_frame: -14, ..Overhead::NONE }, 114, Overhead::NONE, 100),
    ] {
        let left = in_a_second(sized(overhead, tbf(own)), len) as f64;
        let expected = 1e6 / f64::from(cost);
        assert!((left - expected).abs() < 0.02 * expected, "{left} for {expected}");
    }
}

#[test]
fn figures_below_it_are_those_of_the_wire_and_above_it_those_of_frames() {
    let mut port = sized(ATM, tbf(Overhead::NONE));
    port.arrive_all([flow(1); 30].into_iter(), 100);
    port.leave(64);
    let mut stats = Vec::new();
    port.qdisc.stats(&mut stats);
    let [own, tbf, pfifo] = &stats[..] else { panic!("three") };
    assert_eq!((own.sent_packets, own.sent_bytes), (25, 2_500));
    assert_eq!((tbf.sent_packets, tbf.sent_bytes), (25, 25 * 159));
    assert_eq!((own.backlog.bytes, tbf.backlog.bytes), (Bytes(500), Bytes(5 * 159)));
    assert_eq!(pfifo.backlog.packets, 5);
    assert!(port.left.iter().all(|left| left.len == 100), "frames are as they were");
}

#[test]
fn what_is_dropped_below_it_is_gone_above_it() {
    let config = fq_codel::Config { limit: 10, drop_batch: 4, ..fq_codel::Config::default() };
    let mut port = sized(ATM, Spec::new(Config::FqCodel(config)));
    for number in 0..100 {
        port.arrive(flow(number % 5), 60 + number * 10);
        port.check();
    }
    port.leave_all();
    assert!(port.dropped.len() > 50);
}
