//! Whole runs.

use super::engine::Engine;
use super::topology::tests::paper;
use super::workload::tests::traffic;
use super::workload::{Pattern, Plan};
use super::*;
use narrows_units::{Bytes, Nanos, Rate};

fn setup(flows: u32) -> Setup {
    Setup { topology: paper(), traffic: traffic(flows), late: Late::NextSlot, seed: 1 }
}

const STRUCTURES: [Structure; 4] = [
    Structure::Carousel(Nanos::from_micros(1)),
    Structure::Carousel(Nanos::from_micros(32)),
    Structure::FlowBundler,
    Structure::Estimating,
];

fn plan(from: u32, to: u32, bytes: u64) -> Plan {
    Plan { start: Nanos(1000), from, to, bytes, pattern: Pattern::OneToOne }
}

/// The outcome of `plans`.
fn outcome_of(setup: &Setup, structure: Structure, plans: Vec<Plan>) -> Outcome {
    let mut engine = Engine::with_plans(setup, structure, plans);
    engine.run(&mut |_| {}).unwrap();
    let outcome = engine.finish();
    assert!(outcome.books.add_up(), "{:?}", outcome.books);
    outcome
}

/// How long one flow of `bytes` takes, alone, in microseconds.
fn alone(setup: &Setup, structure: Structure, to: u32, bytes: u64) -> f64 {
    let outcome = outcome_of(setup, structure, vec![plan(0, to, bytes)]);
    outcome.all(Pattern::OneToOne).mean_us().unwrap()
}

#[test]
fn one_segment_alone_takes_half_a_round_trip_and_the_wait_for_its_slot() {
    let setup = setup(1);
    // 40 us in hosts, four links of 262 ns, and 1500 bytes twice at 10 and twice at 40 Gbit/s.
    let least = 40.0 + 4.0 * 0.262 + 3.0;
    for (structure, slot) in STRUCTURES.into_iter().zip([1.0, 32.0, 8.192, 0.512]) {
        let took = alone(&setup, structure, 143, 1448);
        assert!((least..=least + slot).contains(&took), "{structure}: {took} us");
    }
    let at_once = Setup { late: Late::AtOnce, ..setup };
    for structure in STRUCTURES {
        assert!((alone(&at_once, structure, 143, 1448) - least).abs() < 0.01);
    }
}

#[test]
fn a_long_flow_alone_is_as_fast_as_its_line() {
    let setup = setup(1);
    let bytes = 30_000_000;
    let line = bytes as f64 * 1500.0 / 1448.0 * 0.8 / 1000.0;
    for structure in STRUCTURES {
        let took = alone(&setup, structure, 143, bytes);
        // Slow start takes some round trips until the window fills the way, which is 70 packets
        // long.
        assert!((line..line + 8.0 * 120.0).contains(&took), "{structure}: {took} us, not {line}");
    }
}

#[test]
fn a_long_flow_alone_is_as_fast_as_its_limit() {
    let mut setup = setup(1);
    setup.traffic.max_rate = Some(Rate::from_bits_per_sec(2_000_000_000));
    let bytes = 10_000_000;
    let line = bytes as f64 * 1500.0 / 1448.0 * 4.0 / 1000.0;
    for structure in STRUCTURES {
        let took = alone(&setup, structure, 143, bytes);
        assert!((line..line + 4.0 * 150.0).contains(&took), "{structure}: {took} us, not {line}");
    }
}

#[test]
fn connections_to_one_host_are_spaced_by_what_is_estimated_of_all_of_them() {
    let mut setup = setup(1);
    // Their packets are 6 us apart, so each alone would have slots of 4096 ns; together they have
    // one packet in 1.5 us, and slots of 1024 ns.
    setup.traffic.max_rate = Some(Rate::from_bits_per_sec(2_000_000_000));
    setup.late = Late::AtOnce;
    let alike = |to: [u32; 4]| {
        let plans = to.map(|to| plan(0, to, 3_000_000)).to_vec();
        let batch = |structure| {
            let outcome = outcome_of(&setup, structure, plans.clone());
            outcome.batches(Pattern::OneToOne).mean().unwrap()
        };
        (batch(Structure::FlowBundler), batch(Structure::Estimating))
    };
    let (by_rate, estimated) = alike([143; 4]);
    assert!(by_rate > 2.0 * estimated, "{by_rate} packets a batch, {estimated}");
    let (by_rate, estimated) = alike([140, 141, 142, 143]);
    assert!((estimated / by_rate - 1.0).abs() < 0.1, "{by_rate} packets a batch, {estimated}");
}

#[test]
fn flows_to_one_host_are_marked_and_share_its_line_without_a_loss() {
    let setup = setup(1);
    let plans: Vec<Plan> = (0..8).map(|from| plan(from * 16, 143, 5_000_000)).collect();
    let outcome = outcome_of(&setup, Structure::Carousel(Nanos::from_micros(1)), plans);
    assert_eq!(outcome.books.dropped, 0);
    assert!(outcome.marked > 100, "{}", outcome.marked);
    let line = Nanos(8 * 5_000_000 * 1500 / 1448 * 8 / 10);
    let slower = outcome.end.0 as f64 / line.0 as f64;
    assert!((1.0..1.1).contains(&slower), "{slower}");
}

#[test]
fn packets_beyond_a_port_s_room_are_dropped_and_sent_again() {
    let mut setup = setup(1);
    setup.topology.buffer = Buffer { limit: Bytes(20_000), mark_above: Bytes(100_000) };
    let plans: Vec<Plan> = (0..8).map(|from| plan(from * 16, 143, 1_000_000)).collect();
    let outcome = outcome_of(&setup, Structure::FlowBundler, plans);
    assert!(outcome.books.dropped > 0);
    assert_eq!(outcome.all(Pattern::OneToOne).flows, 8);
    assert_eq!(outcome.marked, 0);
}

#[test]
fn every_flow_is_complete_and_every_packet_accounted_for() {
    let setup = setup(300);
    for structure in STRUCTURES {
        let outcome = run(&setup, structure, &mut |_| {}).unwrap();
        let flows: u64 = Pattern::ALL.map(|pattern| outcome.all(pattern).flows).iter().sum();
        assert_eq!(flows, 300);
        assert!(outcome.books.sent >= outcome.books.delivered && outcome.books.add_up());
        let left: u64 = Pattern::ALL.map(|pattern| outcome.batches(pattern).packets).iter().sum();
        assert!(left >= outcome.books.delivered);
    }
}

#[test]
fn a_run_is_the_same_each_time_and_another_with_another_seed() {
    let structure = Structure::FlowBundler;
    let first = run(&setup(100), structure, &mut |_| {});
    assert_eq!(first, run(&setup(100), structure, &mut |_| {}));
    assert_ne!(first, run(&Setup { seed: 2, ..setup(100) }, structure, &mut |_| {}));
}
