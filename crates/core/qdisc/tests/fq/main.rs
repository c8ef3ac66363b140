//! `fq` through the trait, in virtual time.

mod laws;
mod port;

use narrows_packet::{DropReason, Ecn, Headers};
use narrows_qdisc::fq::{Beyond, Config};
use narrows_qdisc::{Handover, Next, Verdict};
use narrows_units::{Nanos, Rate};
use port::{DSCP, Port, flow, spec};

fn limited(bits_per_sec: u64) -> Config {
    Config { max_rate: Some(Rate::from_bits_per_sec(bits_per_sec)), ..Config::default() }
}

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

#[test]
fn over_a_second_a_flow_gets_its_rate_within_a_round() {
    // Above the low-rate threshold that is a quantum, which is two frames, below it one.
    for (kbit, at_a_time) in
        [(100, 1514), (550, 1514), (551, 3028), (10_000, 3028), (100_000, 3028)]
    {
        for len in [1514, 1000, 61] {
            let mut port = Port::new(limited(kbit * 1000));
            let start = port.now;
            port.keep_full(&[(flow(1), len)], 50, start + ms(1500));
            let sent = port.sent_after(1, start + ms(500)) as i64;
            let expected = (kbit * 1000 / 8) as i64;
            let error = (sent - expected).abs();
            assert!(error <= at_a_time, "{kbit} kbit/s, {len}: {sent} of {expected}");
        }
    }
}

#[test]
fn the_first_burst_is_paid_for() {
    let mut port = Port::new(limited(10_000_000));
    let start = port.now;
    port.keep_full(&[(flow(1), 1514)], 50, start + ms(1000));
    let sent = port.sent_after(1, Nanos::ZERO);
    assert!((1_250_000..1_250_000 + 15_140 + 1514).contains(&sent), "{sent}");
    let at_once = port.left.iter().filter(|left| left.at == start).count();
    assert_eq!(at_once, 10);
}

#[test]
fn silence_earns_nothing() {
    let config = Config { initial_quantum: 3028, ..limited(10_000_000) };
    let mut port = Port::new(config);
    for _ in 0..3 {
        port.now += ms(2000);
        let start = port.now;
        port.keep_full(&[(flow(1), 1514)], 50, start + ms(100));
        let sent = port.sent_after(1, start - Nanos(1));
        assert!((125_000..125_000 + 2 * 3028).contains(&sent), "{sent}");
        port.leave_all();
    }
}

#[test]
fn a_flow_that_waits_delays_no_other() {
    let mut port = Port::new(limited(8_000_000));
    let start = port.now;
    for _ in 0..100 {
        port.arrive(flow(1), 1000);
    }
    while port.leave(16) == 16 {}
    let Next::Held(at) = port.next else { panic!("{:?}", port.next) };
    assert_eq!(at, start + Nanos::from_micros(16_000), "16 packets of the first quantum");
    port.arrive(flow(2), 1000);
    assert_eq!(port.leave(16), 1);
    assert_eq!((port.left[port.left.len() - 1].flow, port.now), (2, start));
    assert_eq!((port.figures().throttled_flows, port.figures().throttled), (1, 1));
}

#[test]
fn where_several_wait_the_timer_may_be_late_and_the_rate_is_kept() {
    let config = Config { timer_slack: Nanos::from_micros(100), ..limited(10_000_000) };
    let mut port = Port::new(config);
    let start = port.now;
    let flows: Vec<_> = (0..7).map(|id| (flow(id), 1514)).collect();
    port.keep_full(&flows, 20, start + ms(1500));
    for id in 0..7 {
        let sent = port.sent_after(id, start + ms(500)) as i64;
        assert!((sent - 1_250_000).abs() <= 3028, "{id}: {sent}");
    }
    assert!(port.figures().latency > Nanos::ZERO);
}

#[test]
fn without_pacing_everything_leaves_at_once() {
    let mut port = Port::new(Config { pacing: false, ..limited(8_000) });
    for id in 0..20 {
        port.arrive(flow(id), 1514);
        port.arrive(flow(id), 1514);
    }
    assert_eq!(port.leave(64), 40);
    assert_eq!(port.next, Next::Empty);
}

#[test]
fn bands_share_by_weight_without_starvation() {
    let mut port = Port::new(Config::default());
    for _ in 0..4_000 {
        for (band, dscp) in DSCP.into_iter().enumerate() {
            while port.queued.get(&(band as u32)).map_or(0, |queue| queue.len()) < 3 {
                port.arrive(Headers { dscp, ..flow(band as u32) }, 1500);
            }
        }
        assert_eq!(port.leave(1), 1);
    }
    let sent = [0, 1, 2].map(|band| port.sent_after(band, Nanos::ZERO) as f64 / 6e6);
    for (share, weight) in sent.into_iter().zip([9.0, 3.0, 1.0]) {
        assert!((share - weight / 13.0).abs() < 0.05, "{sent:?}");
    }
}

#[test]
fn a_new_flow_goes_before_backlogged_ones() {
    let mut port = Port::new(Config { initial_quantum: 3028, ..Config::default() });
    for _ in 0..30 {
        (1..5).for_each(|id| assert_eq!(port.arrive(flow(id), 1514), Verdict::Queued));
    }
    port.leave(20);
    port.arrive(flow(9), 100);
    // Whose turn it is at the moment ends it.
    port.leave(3);
    assert!(port.left[20..].iter().any(|left| left.flow == 9), "{:?}", &port.left[20..]);
}

#[test]
fn limits_are_those_of_flows_and_of_bands() {
    let mut port = Port::new(Config { limit: 5, flow_limit: 3, ..Config::default() });
    (0..4).for_each(|_| {
        port.arrive(flow(1), 100);
    });
    assert_eq!((port.figures().flow_limit_drops, port.drops(DropReason::FlowLimit)), (1, 1));
    (2..6).for_each(|id| {
        port.arrive(flow(id), 100);
    });
    assert_eq!((port.figures().band_drops, port.drops(DropReason::Limit)), ([0, 2, 0], 2));
    let bulk = Headers { dscp: DSCP[2], ..flow(7) };
    assert_eq!(port.arrive(bulk, 100), Verdict::Queued);
    assert_eq!(port.figures().band_packets, [0, 5, 1]);
}

#[test]
fn address_resolution_goes_before_everything() {
    let mut port = Port::new(Config::default());
    (1..4).for_each(|id| {
        port.arrive(flow(id), 1514);
    });
    port.arrive(Headers { is_arp: true, ..flow(99) }, 60);
    port.leave(1);
    assert_eq!(port.left[0].flow, 99);
    assert_eq!(port.figures().highprio, 1);
}

#[test]
fn a_stamped_packet_waits_for_its_time_up_to_the_horizon() {
    for (beyond, expected) in [(Beyond::Drop, 2), (Beyond::Cap, 3)] {
        let config = Config { horizon: ms(100), beyond, ..Config::default() };
        let mut port = Port::new(config);
        let start = port.now;
        port.arrive_for(flow(1), 1000, start + ms(7));
        port.arrive_for(flow(1), 1000, start + ms(100));
        port.arrive_for(flow(1), 1000, start + ms(101));
        port.leave_all();
        let left: Vec<_> = port.left.iter().map(|left| left.at - start).collect();
        assert_eq!(left, [ms(7), ms(100), ms(100)][..expected]);
        let figures = port.figures();
        let counted = (figures.horizon_drops, figures.horizon_caps);
        assert_eq!(counted, if beyond == Beyond::Drop { (1, 0) } else { (0, 1) });
        assert_eq!(port.drops(DropReason::Horizon), counted.0);
    }
}

#[test]
fn packets_that_leave_late_are_marked_if_they_can_be() {
    let mut port = Port::new(Config { ce_threshold: Some(ms(5)), ..Config::default() });
    port.arrive(flow(1), 1000);
    port.arrive(Headers { ecn: Ecn::NotCapable, ..flow(2) }, 1000);
    port.now += ms(5);
    port.arrive(flow(3), 1000);
    port.now += Nanos(1);
    port.leave(16);
    let marked: Vec<_> = port.left.iter().map(|left| (left.flow, left.is_marked)).collect();
    assert_eq!(marked, [(1, true), (2, false), (3, false)]);
    assert_eq!(port.figures().ce_marks, 1);
}

#[test]
fn flows_that_the_mask_does_not_tell_apart_are_one() {
    let mut port = Port::new(Config { flow_limit: 10, orphan_mask: 7, ..Config::default() });
    (0..100).for_each(|id| {
        port.arrive(flow(id), 100);
    });
    assert_eq!((port.figures().flows, port.qdisc.backlog().packets), (8, 80));
}

#[test]
fn flows_that_were_silent_for_long_are_forgotten_when_others_come() {
    let mut port = Port::new(Config { orphan_mask: u32::MAX, ..Config::default() });
    for id in 0..1000 {
        port.arrive(flow(id), 100);
        port.leave(16);
        port.now += ms(10);
    }
    port.leave(16);
    let figures = port.figures();
    assert!((300..320).contains(&figures.flows), "{}", figures.flows);
    assert_eq!(u64::from(figures.flows) + figures.gc, 1000);
}

#[test]
fn a_higher_rate_counts_at_once() {
    let mut port = Port::new(limited(8_000));
    let start = port.now;
    (0..20).for_each(|_| {
        port.arrive(flow(1), 1000);
    });
    while port.leave(16) == 16 {}
    assert!(matches!(port.next, Next::Held(at) if at >= start + ms(1000)));
    let now = port.now;
    port.qdisc.retune(spec(limited(8_000_000)), &mut Handover::new(&mut port.packets, now));
    port.leave_all();
    assert!(port.now - start < ms(30), "{:?}", port.now - start);
    port.check();
}

#[test]
fn other_flows_or_bands_need_another_instance() {
    let present = spec(Config::default()).config;
    let fits = |config| present.carries_on(&spec(config).config);
    assert!(fits(Config { limit: 1, buckets: 64, pacing: false, ..Config::default() }));
    assert!(!fits(Config { orphan_mask: 255, ..Config::default() }));
    assert!(!fits(Config { priomap: [0; 16], ..Config::default() }));
}
