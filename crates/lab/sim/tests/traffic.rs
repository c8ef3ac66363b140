//! Open-loop traffic: how much of it comes, when, and where.

use narrows_sim::setup::{Cores, Costs, Kind, Port, Run, Sends, Setup, Spread, Traffic};
use narrows_sim::traffic::{Offer, load, validate};
use narrows_units::{Nanos, Rate};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

fn group(kind: Kind) -> Traffic {
    Traffic {
        name: "bulk".into(),
        kind,
        flows: 40,
        start: Nanos::ZERO,
        stop: Nanos::MAX,
        sizes: vec![(1514, 1.0)],
        spread: Spread::RoundRobin,
        respread: None,
        lifetime: None,
        headers: Default::default(),
    }
}

fn constant(mbit: u64) -> Kind {
    Kind::Constant(Rate::from_bits_per_sec(mbit * 1_000_000))
}

fn setup(queues: usize, traffic: Vec<Traffic>) -> Setup {
    let (jitter, clock_offset, staleness) = (Nanos::ZERO, Nanos::ZERO, Nanos::ZERO);
    let costs = Costs {
        step_ns: 0.,
        packet_ns: 0.,
        drop_ns: 0.,
        line_read_ns: 0.,
        line_update_ns: 0.,
        lock_handover_ns: 0.,
        qdisc_handover_ns: 0.,
    };
    Setup {
        seed: 7,
        port: Port {
            queues,
            rate: Rate::default(),
            qdisc: Vec::new(),
            weights: Vec::new(),
            lock: Default::default(),
            sends: Sends::AllDue,
        },
        cores: Cores { jitter, clock_offset, staleness, costs },
        traffic,
        next_hop: None,
        run: Run { warmup: Nanos::ZERO, length: Nanos::from_secs(1), event: None },
        faults: Vec::new(),
        changes: Vec::new(),
        traces: Vec::new(),
    }
}

/// Everything that comes, by queue.
fn all(setup: &Setup) -> Vec<Vec<Offer>> {
    validate(setup).unwrap();
    let drain = |mut source: Box<dyn narrows_sim::traffic::Source>| {
        let mut offers = Vec::new();
        while source.next_at() < Nanos::MAX {
            offers.push(source.take());
        }
        offers
    };
    load(setup).sources.into_iter().map(drain).collect()
}

fn bytes<'a>(offers: impl IntoIterator<Item = &'a Offer>) -> u64 {
    offers.into_iter().map(|offer| u64::from(offer.len)).sum()
}

fn mbit(offers: &[Offer]) -> f64 {
    bytes(offers) as f64 * 8.0 / 1e6
}

/// Whether `offers` are in order, within the run and on `queue`.
fn check(offers: &[Offer], queue: usize) {
    assert!(offers.is_sorted_by_key(|offer| offer.at));
    assert!(offers.iter().all(|offer| offer.at < Nanos(SECOND) && offer.queue == queue));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_flow_of_a_constant_rate_is_within_a_packet_of_its_part(
        seed: u64,
        bits_per_sec in 10_000_000u64..2_000_000_000,
        flows in 1u32..200,
        queues in 1usize..40,
        sizes in prop::collection::vec((60u32..9216, 0.1f64..9.0), 1..4),
    ) {
        let kind = Kind::Constant(Rate::from_bits_per_sec(bits_per_sec));
        let longest = sizes.iter().map(|&(len, _)| len).max().unwrap();
        let setup =
            Setup { seed, ..setup(queues, vec![Traffic { flows, sizes, ..group(kind) }]) };
        let mut by_flow = vec![0; flows as usize];
        for (queue, offers) in all(&setup).iter().enumerate() {
            check(offers, queue);
            for offer in offers {
                prop_assert_eq!(offer.flow as usize % queues, queue);
                by_flow[offer.flow as usize] += u64::from(offer.len);
            }
        }
        let due = bits_per_sec as f64 / 8.0 / f64::from(flows);
        for sent in by_flow {
            prop_assert!((sent as f64 - due).abs() <= f64::from(longest) + 1.0, "{sent} of {due}");
        }
    }

    #[test]
    fn any_parts_are_kept(
        seed: u64,
        parts in prop::collection::vec(0.01f64..10.0, 1..16),
        more in 0u32..30,
    ) {
        let flows = parts.len() as u32 + more;
        let total: f64 = parts.iter().sum();
        let spread = Spread::Parts(parts.clone());
        let setup =
            Setup { seed, ..setup(16, vec![Traffic { flows, spread, ..group(constant(500)) }]) };
        for (queue, offers) in all(&setup).iter().enumerate() {
            let mut here: Vec<u32> = offers.iter().map(|offer| offer.flow).collect();
            here.sort_unstable();
            here.dedup();
            let due = parts.get(queue).unwrap_or(&0.0) / total * 500e6 / 8.0;
            let off = (bytes(offers) as f64 - due).abs();
            prop_assert!(off <= 1514.0 * here.len() as f64 + 1.0, "{off} bytes off");
        }
    }

    #[test]
    fn a_respread_changes_where_the_load_is_and_not_how_much(
        seed: u64,
        // A hundred slots, so that every queue has its turn.
        every in 500u64..10_000,
        spread in prop_oneof![
            Just(Spread::Hash),
            Just(Spread::Dirichlet(0.5)),
            Just(Spread::Parts(vec![0.8, 0.2, 0.0, 0.0])),
        ],
    ) {
        let respread = Some(Nanos::from_micros(every));
        let group = Traffic { flows: 16, respread, spread, ..group(constant(500)) };
        let setup = Setup { seed, ..setup(8, vec![group]) };
        let offers = all(&setup);
        for (queue, offers) in offers.iter().enumerate() {
            check(offers, queue);
            prop_assert!(!offers.is_empty());
        }
        // A slot is at most a packet off, and a queue has at most as many as there are flows.
        let off = bytes(offers.iter().flatten()).abs_diff(500_000_000 / 8);
        prop_assert!(off <= 8 * 16 * 1514, "{off} bytes off");
    }
}

#[test]
fn even_intervals_stay_even_at_400_gbit() {
    let mut setup = setup(1, vec![Traffic { flows: 1, ..group(constant(400_000)) }]);
    setup.run.length = Nanos::from_millis(10);
    let offers = &all(&setup)[0];
    assert!(offers.windows(2).all(|pair| (30..=31).contains(&(pair[1].at - pair[0].at).0)));
    assert!(bytes(offers).abs_diff(500_000_000) <= 1514);
}

#[test]
fn flows_are_out_of_step() {
    let offers = &all(&setup(1, vec![group(constant(100))]))[0];
    let first: Vec<Nanos> = offers[..40].iter().map(|offer| offer.at).collect();
    assert!(first.windows(2).filter(|pair| pair[0] == pair[1]).count() < 2);
    let gaps = first.windows(2).map(|pair| (pair[1] - pair[0]).0);
    // 40 phases in 4.8 ms: even gaps would all be 121 us.
    assert!(gaps.clone().max() > Some(240_000) && gaps.min() < Some(60_000));
}

#[test]
fn poisson_traffic_has_its_rate_and_the_spread_of_its_intervals() {
    let sizes = vec![(64, 7.0), (594, 4.0), (1518, 1.0)];
    let poisson = Kind::Poisson(Rate::from_bits_per_sec(500_000_000));
    let offers = &all(&setup(1, vec![Traffic { sizes, ..group(poisson) }]))[0];
    check(offers, 0);
    assert!((mbit(offers) / 500.0 - 1.0).abs() < 0.02, "{}", mbit(offers));
    let gaps: Vec<f64> = offers.windows(2).map(|p| (p[1].at - p[0].at).0 as f64).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    // The deviation of an exponential distribution is its mean.
    assert!((variance.sqrt() / mean - 1.0).abs() < 0.02);
}

#[test]
fn uneven_traffic_has_its_rate_and_intervals_that_vary_by_half() {
    let kind = Kind::Uneven(Rate::from_bits_per_sec(100_000_000));
    let offers = &all(&setup(1, vec![Traffic { flows: 1, ..group(kind) }]))[0];
    assert!((mbit(offers) / 100.0 - 1.0).abs() < 0.01, "{}", mbit(offers));
    let even = 1514.0 * 8.0 * 10.0;
    let part = |pair: &[Offer]| (pair[1].at - pair[0].at).0 as f64 / even;
    let parts: Vec<f64> = offers.windows(2).map(part).collect();
    assert!(parts.iter().all(|part| (0.499..=1.501).contains(part)));
    let quarters = [0.5, 0.75, 1.0, 1.25].map(|from| {
        let within = parts.iter().filter(|part| (from..from + 0.25).contains(*part));
        within.count() as f64 / parts.len() as f64
    });
    assert!(quarters.iter().all(|quarter| (quarter - 0.25).abs() < 0.02), "{quarters:?}");
}

#[test]
fn on_off_traffic_is_on_for_its_part_of_the_time() {
    let rate = Rate::from_bits_per_sec(400_000_000);
    let (on, off) = (Nanos::from_millis(2), Nanos::from_millis(6));
    let kind = Kind::OnOff { rate, on, off };
    let offers = &all(&setup(1, vec![Traffic { flows: 100, ..group(kind) }]))[0];
    assert!((mbit(offers) / 100.0 - 1.0).abs() < 0.05, "{}", mbit(offers));
    // A flow alone: at its rate or silent.
    let offers = &all(&setup(1, vec![Traffic { flows: 1, ..group(kind) }]))[0];
    let even = Nanos(1514 * 8 * 1000 / 400);
    let gaps: Vec<Nanos> = offers.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    assert!(gaps.iter().all(|gap| gap.0 >= even.0));
    let long = gaps.iter().filter(|gap| gap.0 > even.0 + 1).count();
    assert!((80..180).contains(&long), "{long} off times");
}

#[test]
fn every_flow_pings_at_its_interval() {
    let ping = Kind::Ping { interval: Nanos::from_millis(1) };
    let sizes = vec![(64, 1.0)];
    let offers = all(&setup(4, vec![Traffic { flows: 8, sizes, ..group(ping) }]));
    for flow in 0..8 {
        let of_flow: Vec<&Offer> =
            offers.iter().flatten().filter(|offer| offer.flow == flow).collect();
        assert_eq!(of_flow.len(), 1000);
        assert!(of_flow.windows(2).all(|p| (p[1].at - p[0].at).0.abs_diff(1_000_000) <= 1));
    }
}

#[test]
fn nothing_comes_before_the_start_or_after_the_stop() {
    let (start, stop) = (Nanos::from_millis(200), Nanos::from_millis(700));
    let offers = all(&setup(4, vec![Traffic { start, stop, ..group(constant(100)) }]));
    let mut offers = offers.iter().flatten();
    assert!(offers.clone().all(|offer| (start..stop).contains(&offer.at)));
    assert!(offers.by_ref().map(|o| u64::from(o.len)).sum::<u64>().abs_diff(6_250_000) < 40 * 1514);
}

#[test]
fn flows_that_end_are_replaced_elsewhere() {
    let lifetime = Some(Nanos::from_millis(50));
    let group = Traffic { lifetime, spread: Spread::Hash, ..group(constant(500)) };
    let offers = all(&setup(8, vec![group]));
    assert!(bytes(offers.iter().flatten()).abs_diff(62_500_000) <= 8 * 40 * 1514);
    let mut merged: Vec<&Offer> = offers.iter().flatten().collect();
    merged.sort_by_key(|offer| offer.at);
    // All flows send all the time: 12.5 Mbit/s each are 103 packets in 100 ms.
    for tenth in 0..10 {
        let mut counts = [0; 40];
        for offer in merged.iter().filter(|offer| offer.at.0 / (SECOND / 10) == tenth) {
            counts[offer.flow as usize] += 1;
        }
        assert!(counts.iter().all(|&count| (80..=125).contains(&count)), "{counts:?}");
    }
    let mut queue_of = [None; 40];
    let mut moves = 0;
    for offer in merged {
        let last = queue_of[offer.flow as usize].replace(offer.queue);
        moves += usize::from(last.is_some_and(|last| last != offer.queue));
    }
    // 40 flows of 50 ms: 800 ends in a second, seven of eight of which move.
    assert!((600..800).contains(&moves), "{moves} moves");
}

#[test]
fn the_same_seed_is_the_same_traffic_and_another_is_not() {
    let poisson = Kind::Poisson(Rate::from_bits_per_sec(50_000_000));
    let group = Traffic { spread: Spread::Hash, ..group(poisson) };
    let one = setup(8, vec![group]);
    assert_eq!(all(&one), all(&one));
    assert_ne!(all(&one), all(&Setup { seed: 8, ..one.clone() }));
}

#[test]
fn a_group_that_is_added_changes_nothing_for_the_others() {
    let poisson = Kind::Poisson(Rate::from_bits_per_sec(50_000_000));
    let first = Traffic { spread: Spread::Hash, ..group(poisson) };
    let both = setup(8, vec![first.clone(), group(constant(10))]);
    let mut offers = all(&both);
    let load = load(&both);
    assert_eq!(load.groups.len(), 80);
    assert!((0..80).all(|flow| load.groups[flow] == u16::from(flow >= 40)));
    offers.iter_mut().for_each(|queue| queue.retain(|offer| offer.flow < 40));
    assert_eq!(offers, all(&setup(8, vec![first])));
}
