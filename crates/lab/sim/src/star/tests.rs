//! Runs of a small star.

use super::{Case, Measure, Outcome, Setup, run};
use crate::fabric::Buffer;
use narrows_units::{Bytes, Nanos, Rate};

fn setup(senders: u32) -> Setup {
    Setup {
        senders,
        rate: Rate::from_bits_per_sec(4_000_000_000),
        line: Rate::from_bits_per_sec(10_000_000_000),
        buffer: Buffer { limit: Bytes(512_000), mark_above: Bytes(10_000) },
        propagation: Nanos(500),
        host_delay: Nanos::from_micros(10),
        warmup: Nanos::from_millis(20),
        length: Nanos::from_millis(20),
        runs: 1,
        seed: 1,
    }
}

fn outcome(setup: &Setup, flows: u32, words: &str) -> Outcome {
    let qdisc = words.split_whitespace().map(str::to_owned).collect();
    run(setup, &Case { flows, qdisc }).unwrap()
}

#[test]
fn one_host_s_rate_arrives_unmarked() {
    let setup = setup(1);
    let outcome = outcome(&setup, 4, "carousel maxrate 1gbit granularity 1us");
    let throughput = outcome.value(Measure::ThroughputPercent, &setup);
    assert!((throughput - 100.0).abs() < 1.0, "{throughput} %");
    assert_eq!((outcome.marked, outcome.congestion, outcome.books.dropped), (0, 0, 0));
}

#[test]
fn dctcp_keeps_an_overloaded_port_busy_and_is_marked() {
    let setup = setup(4);
    let outcome = outcome(&setup, 4, "flowbundler maxrate 1gbit safeguard");
    let throughput = outcome.value(Measure::ThroughputPercent, &setup) * 16.0 / 10.0;
    assert!((95.0..100.5).contains(&throughput), "{throughput} % of the line");
    assert!(outcome.marked > 0 && outcome.congestion > 0, "{outcome:?}");
    assert_eq!(outcome.books.dropped, 0);
}

#[test]
fn packets_beyond_a_port_s_room_are_sent_again() {
    let mut setup = setup(2);
    setup.buffer = Buffer { limit: Bytes(6_000), mark_above: Bytes(100_000) };
    let outcome = outcome(&setup, 20, "flowbundler maxrate 200mbit");
    assert!(outcome.books.dropped > 0 && outcome.marked == 0, "{outcome:?}");
}

#[test]
fn a_run_is_the_same_each_time_and_another_with_another_seed() {
    let words = "flowbundler maxrate 200mbit safeguard";
    let first = outcome(&setup(2), 20, words);
    assert_eq!(first, outcome(&setup(2), 20, words));
    assert_ne!(first, outcome(&Setup { seed: 2, ..setup(2) }, 20, words));
}

#[test]
fn words_that_tc_rejects_are_refused() {
    let qdisc = vec!["carousell".to_owned()];
    assert!(run(&setup(1), &Case { flows: 1, qdisc }).is_err());
}
