//! A path that is longer, worse, slower, beside a sorted list and some statistics.

use crate::port::{Left, Port, capable, flow, ms};
use narrows_packet::DropReason;
use narrows_qdisc::netem::{
    Config, Distribution, Happening, Loss, Probability, RateLimit, Reorder, SlotDelay, Slotting,
};
use narrows_qdisc::{Config as AnyConfig, Next, Spec, Verdict};
use narrows_units::{Bytes, Nanos, Rate, wire::Overhead};
use proptest::prelude::*;

fn port(config: Config) -> Port {
    Port::new(AnyConfig::Netem(config))
}

fn percent(percent: f64) -> Happening {
    let probability = Probability((percent / 100.0 * f64::from(u32::MAX)) as u32);
    Happening { probability, correlation: Probability::NEVER }
}

fn rate(bits: u64) -> Option<RateLimit> {
    let rate = Rate::from_bits_per_sec(bits);
    Some(RateLimit { rate, overhead: 0, cell: 0, cell_overhead: 0 })
}

/// A packet of 1000 bytes every `gap` until `count` have come; all leave.
fn stream(port: &mut Port, count: u32, gap: Nanos) {
    for _ in 0..count {
        port.arrive(capable(1), 1000);
        let next = port.now + gap;
        port.leave_until(next);
    }
    port.leave_all();
}

fn delay(left: &Left) -> Nanos {
    left.at - left.came
}

#[test]
fn every_packet_takes_the_delay_to_the_nanosecond() {
    let mut port = port(Config { delay: ms(20), ..Config::default() });
    stream(&mut port, 1000, Nanos(333_333));
    assert_eq!(port.left.len(), 1000);
    assert!(port.left.iter().all(|left| delay(left) == ms(20)));
    assert!(port.left.iter().is_sorted_by_key(|left| left.number));
}

#[test]
fn jitter_stays_within_its_bounds_and_uses_them() {
    let mut port = port(Config { delay: ms(20), jitter: ms(2), ..Config::default() });
    stream(&mut port, 20_000, ms(5));
    let delays: Vec<f64> = port.left.iter().map(|left| delay(left).0 as f64 / 1e6).collect();
    assert!(delays.iter().all(|delay| (18.0..=22.0).contains(delay)));
    let mean = delays.iter().sum::<f64>() / delays.len() as f64;
    let near = |edge: f64| delays.iter().any(|delay| (delay - edge).abs() < 0.01);
    assert!((mean - 20.0).abs() < 0.05 && near(18.0) && near(22.0), "{mean}");
}

#[test]
fn jitter_reorders_close_packets() {
    let config = Config { delay: ms(20), jitter: ms(5), limit: 10_000, ..Config::default() };
    let mut port = port(Config { distribution: Distribution::Normal, ..config });
    stream(&mut port, 5_000, Nanos::from_micros(100));
    assert!(!port.left.iter().is_sorted_by_key(|left| left.number));
    assert!(port.left.iter().is_sorted_by_key(|left| left.at));
}

#[test]
fn one_in_a_hundred_is_lost() {
    let mut port = port(Config { loss: Loss::Random(percent(1.0)), ..Config::default() });
    stream(&mut port, 100_000, Nanos(1000));
    let lost = port.drops(DropReason::Loss);
    assert!((900..1100).contains(&lost), "{lost}");
    assert_eq!(lost, port.dropped.len() as u64);
}

#[test]
fn with_ecn_marks_replace_losses() {
    let mut port =
        port(Config { loss: Loss::Random(percent(10.0)), ecn: true, ..Config::default() });
    stream(&mut port, 10_000, Nanos(1000));
    let marked = port.left.iter().filter(|left| left.is_marked).count();
    assert!(port.dropped.is_empty() && (800..1200).contains(&marked), "{marked}");
}

#[test]
fn one_in_twenty_is_corrupt_and_arrives() {
    let mut port = port(Config { corrupt: percent(5.0), ..Config::default() });
    stream(&mut port, 20_000, Nanos(1000));
    let corrupt = port.left.iter().filter(|left| left.is_corrupt).count();
    assert!(port.left.len() == 20_000 && (850..1150).contains(&corrupt), "{corrupt}");
}

#[test]
fn a_share_does_not_wait() {
    let reorder = Some(Reorder { happening: percent(25.0), gap: 1 });
    let mut port = port(Config { delay: ms(10), reorder, ..Config::default() });
    stream(&mut port, 20_000, ms(1));
    let early = port.left.iter().filter(|left| delay(left) == Nanos::ZERO).count();
    assert!((4_700..5_300).contains(&early), "{early}");
    assert!(port.left.iter().all(|left| [Nanos::ZERO, ms(10)].contains(&delay(left))));
    assert_eq!(port.stats().requeues, early as u64);
}

#[test]
fn with_a_gap_and_certainty_every_fifth_does_not_wait() {
    let reorder = Some(Reorder { happening: percent(100.0), gap: 5 });
    let mut port = port(Config { delay: ms(10), reorder, ..Config::default() });
    stream(&mut port, 100, ms(1));
    for left in &port.left {
        let expected = if left.number % 5 == 4 { Nanos::ZERO } else { ms(10) };
        assert_eq!(delay(left), expected, "{left:?}");
    }
}

#[test]
fn the_rate_is_kept_behind_the_delay() {
    let config = Config { delay: ms(20), rate: rate(8_000_000), ..Config::default() };
    let mut port = port(config);
    let start = port.now;
    // Twice as fast as they pass: one takes 1 ms.
    stream(&mut port, 400, Nanos::from_micros(500));
    let end = port.left.last().unwrap().at - start;
    assert_eq!((port.left[0].at - start, end), (ms(21), ms(420)));
    assert!(port.left.windows(2).all(|pair| pair[1].at - pair[0].at == ms(1)));
}

#[test]
fn a_late_caller_loses_none_of_the_rate() {
    let mut port = port(Config { delay: ms(20), rate: rate(8_000_000), ..Config::default() });
    port.arrive_all((0..100).map(|_| flow(1)), 1000);
    port.now += ms(70);
    assert_eq!(port.leave(64), 50, "one each ms since the first had arrived");
    assert_eq!(port.next, Next::Held(port.now + ms(1)));
}

#[test]
fn a_single_packet_takes_the_delay_and_its_own_time() {
    let mut port = port(Config { delay: ms(20), rate: rate(8_000_000), ..Config::default() });
    stream(&mut port, 10, ms(50));
    assert!(port.left.iter().all(|left| delay(left) == ms(21)));
}

#[test]
fn packets_that_wait_for_the_rate_do_not_delay_those_under_way() {
    let mut port = port(Config { delay: ms(5), rate: rate(80_000), ..Config::default() });
    port.arrive_all((0..3).map(|_| flow(1)), 1000);
    port.leave(8);
    let Next::Held(at) = port.next else { panic!("{:?}", port.next) };
    assert_eq!(at, port.now + ms(105));
}

#[test]
fn the_limit_counts_packets_under_way() {
    let mut port = port(Config { delay: ms(10), limit: 5, ..Config::default() });
    let queued = (0..9).filter(|_| port.arrive(flow(1), 100) == Verdict::Queued).count();
    assert_eq!((queued, port.drops(DropReason::Limit)), (5, 4));
}

#[test]
fn packets_gather_for_a_slot() {
    let delay = SlotDelay::Between(ms(10), ms(10));
    let slots = Some(Slotting { delay, packets: 4, bytes: 0 });
    let mut port = port(Config { slots, ..Config::default() });
    stream(&mut port, 200, ms(1));
    let mut times: Vec<_> = port.left.iter().map(|left| left.at).collect();
    times.dedup();
    for time in &times {
        let together = port.left.iter().filter(|left| left.at == *time).count();
        assert!(together <= 4, "{together} at {time:?}");
    }
    // Four leave every 10 ms, while one arrives every ms.
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= ms(9)));
    assert!(port.left.last().unwrap().at - port.left[0].came > ms(480));
}

#[test]
fn a_slot_takes_so_many_bytes() {
    let delay = SlotDelay::Spread(ms(10), ms(1), Distribution::Normal);
    let slots = Some(Slotting { delay, packets: 0, bytes: 2500 });
    let mut port = port(Config { slots, ..Config::default() });
    port.arrive_all((0..30).map(|_| flow(1)), 1000);
    port.leave_all();
    let mut times: Vec<_> = port.left.iter().map(|left| left.at).collect();
    times.dedup();
    assert_eq!(times.len(), 10);
}

#[test]
fn new_parameters_apply_to_arrivals_and_lose_nothing() {
    let mut port = port(Config { delay: ms(50), ..Config::default() });
    port.arrive_all((0..5).map(|_| flow(1)), 1000);
    port.retune(AnyConfig::Netem(Config { delay: ms(10), ..Config::default() }));
    port.arrive_all((0..5).map(|_| flow(1)), 1000);
    port.leave_all();
    let delays: Vec<_> = port.left.iter().map(|left| (left.number, delay(left))).collect();
    let expected = [5, 6, 7, 8, 9, 0, 1, 2, 3, 4];
    assert_eq!(delays, expected.map(|number| (number, if number < 5 { ms(50) } else { ms(10) })));
    // Packets that wait for a removed rate leave.
    let slow = Config { rate: rate(8_000), ..Config::default() };
    port.retune(AnyConfig::Netem(slow));
    port.arrive_all((0..5).map(|_| flow(1)), 1000);
    port.now += ms(1500);
    assert_eq!(port.leave(8), 1);
    port.retune(AnyConfig::Netem(Config::default()));
    assert_eq!(port.leave(8), 4);
    // A rate that comes, changes and goes.
    for (rate, expected) in [(rate(8_000_000), ms(1)), (rate(4_000_000), ms(2)), (None, ms(0))] {
        port.retune(AnyConfig::Netem(Config { rate, ..Config::default() }));
        let before = port.left.len();
        stream(&mut port, 3, ms(10));
        assert!(port.left[before..].iter().all(|left| delay(left) == expected));
    }
}

#[test]
fn the_same_seed_meets_the_same_packets_and_another_others() {
    let lost = |seed, stream_of| {
        let loss = Loss::Random(percent(20.0));
        let mut port = port(Config { loss, seed, stream: stream_of, ..Config::default() });
        stream(&mut port, 200, Nanos(1000));
        port.dropped
    };
    assert_eq!(lost(7, 0), lost(7, 0));
    assert_ne!(lost(7, 0), lost(8, 0));
    assert_ne!(lost(7, 0), lost(7, 1));
}

proptest! {
    /// The oracle sorts by arrival plus delay; with jitter zero the delay is known.
    #[test]
    fn packets_leave_at_their_times_and_in_no_other_order(
        steps in prop::collection::vec((0u64..3_000_000, 60u32..1514, 0u64..30), 1..200),
    ) {
        let mut port = port(Config::default());
        let mut model: Vec<(Nanos, u64)> = Vec::new();
        for (pause, len, delay) in steps {
            port.retune(AnyConfig::Netem(Config { delay: ms(delay), ..Config::default() }));
            model.push((port.now + ms(delay), port.came));
            port.arrive(flow(1), len);
            let next = port.now + Nanos(pause);
            port.leave_until(next);
        }
        port.leave_all();
        model.sort_by_key(|(at, _)| *at);
        let left: Vec<_> = port.left.iter().map(|left| (left.at, left.number)).collect();
        prop_assert_eq!(left, model);
    }

    /// With any options, all losses are counted, and no rate is exceeded.
    #[test]
    fn nothing_goes_missing(
        gaps in prop::collection::vec((0u64..2_000_000, 60u32..1514), 1..200),
        limit in 1u32..100,
        bits in prop::option::of(100_000u64..100_000_000),
        jitter in 0u64..5,
        corrupt in 0u32..30,
    ) {
        let config = Config {
            delay: ms(5),
            jitter: ms(jitter),
            limit,
            rate: bits.and_then(rate),
            loss: Loss::Random(percent(5.0)),
            corrupt: percent(f64::from(corrupt)),
            reorder: Some(Reorder { happening: percent(10.0), gap: 2 }),
            ..Config::default()
        };
        let mut port = port(config);
        let start = port.now;
        for (gap, len) in gaps {
            port.arrive(flow(1), len);
            let next = port.now + Nanos(gap);
            port.leave_until(next);
        }
        port.leave_all();
        prop_assert!(port.left.iter().all(|left| left.at >= left.came));
        if let Some(limit) = config.rate {
            let sent: u64 = port.left.iter().map(|left| u64::from(left.len)).sum();
            let passes = limit.rate.bytes_in(port.left.last().map_or(Nanos::ZERO, |left| left.at - start));
            prop_assert!(sent <= passes.0, "{sent} of {passes}");
        }
    }
}

/// A `netem` over a `tbf` with a bucket of 2000 bytes.
fn over_tbf(config: Config, bits: u64) -> Spec {
    let tbf = narrows_qdisc::tbf::Config {
        rate: Rate::from_bits_per_sec(bits),
        burst: Bytes(2_000),
        limit: Bytes(10_000),
        peak: None,
        overhead: Overhead::NONE,
    };
    let pfifo = Spec::new(AnyConfig::Fifo(narrows_qdisc::fifo::Config::Packets(1000)));
    let tbf = Spec { children: vec![pfifo], ..Spec::new(AnyConfig::Tbf(tbf)) };
    Spec { children: vec![tbf], ..Spec::new(AnyConfig::Netem(config)) }
}

#[test]
fn packets_enter_the_qdisc_below_after_their_delay() {
    let mut port = Port::of(over_tbf(Config { delay: ms(20), ..Config::default() }, 8_000_000));
    // A packet of 1000 bytes takes 1 ms of the rate; they come twice as fast, ten of them.
    stream(&mut port, 10, Nanos(500_000));
    assert_eq!(port.left.len(), 10);
    let first = port.left[0].came;
    // Two at once by the bucket, then each ms.
    for (number, left) in port.left.iter().enumerate().skip(3) {
        let expected = first + ms(20) + ms(number as u64 - 1);
        let late = left.at.0.abs_diff(expected.0);
        assert!(late <= 500_000, "{number}: {late}");
    }
    assert!(port.left.iter().all(|left| delay(left) >= ms(20)));
}

#[test]
fn the_limit_counts_what_is_under_way_and_the_qdisc_below_has_its_own() {
    let config = Config { delay: ms(5), limit: 30, ..Config::default() };
    let mut port = Port::of(over_tbf(config, 8_000));
    port.arrive_all([flow(1); 31].into_iter(), 1000);
    assert_eq!(port.dropped.len(), 1);
    port.leave_until(port.now + ms(5));
    // Ten fit the limit of 10 kB of the tbf, of which two leave at once by its bucket.
    assert_eq!((port.left.len(), port.qdisc.backlog().packets), (2, 8));
    // What is below does not count.
    port.arrive_all([flow(1); 30].into_iter(), 1000);
    assert_eq!(port.qdisc.backlog().packets, 38);
}

#[test]
fn delays_of_two_netems_add_up() {
    let below = Spec::new(AnyConfig::Netem(Config { delay: ms(7), ..Config::default() }));
    let above = AnyConfig::Netem(Config { delay: ms(5), ..Config::default() });
    let mut port = Port::of(Spec { children: vec![below], ..Spec::new(above) });
    stream(&mut port, 100, Nanos(300_000));
    assert!(port.left.iter().all(|left| delay(left) == ms(12)));
}
