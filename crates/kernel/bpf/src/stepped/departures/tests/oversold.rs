//! Rates that are assured but do not fit below a ceiling.

use super::super::{Departures, Packet};
use super::host::{BEGIN, MS, SECOND, excess};
use crate::tree::layout::Class;
use narrows_units::Nanos;
use std::collections::BTreeMap;

const MBIT: u64 = 125_000;
/// The class whose ceiling is too low for what is assured below it; a leaf right below it; and one
/// below a class between.
const TOP: u32 = 2;
const NEAR: u32 = 3;
const BETWEEN: u32 = 4;
const FAR: u32 = 5;

/// The tree. `TOP` has this rate, so has `NEAR`, and what is below `BETWEEN` has three quarters.
fn classes(rate: u64) -> BTreeMap<u32, Class> {
    let class = |rate, parent, child, sibling| Class {
        rate,
        ceil: rate,
        burst: 2 * MS,
        limit: if child == 0 { 50 * MS } else { 200 * MS },
        target: if child == 0 { 20 * MS } else { u64::MAX },
        interval: 100 * MS,
        quantum: 1,
        parent,
        child,
        sibling,
        ..Class::default()
    };
    BTreeMap::from([
        (1, class(10 * rate, 0, TOP, 0)),
        (TOP, class(rate, 1, NEAR, 0)),
        (NEAR, class(rate, TOP, 0, BETWEEN)),
        (BETWEEN, class(rate * 3 / 4, TOP, FAR, 0)),
        (FAR, class(rate * 3 / 4, BETWEEN, 0, 0)),
    ])
}

/// When packets of so many bytes depart, and of which leaf, that come in this order.
fn departures(
    classes: &BTreeMap<u32, Class>,
    bytes: u64,
    packets: impl Iterator<Item = (u64, u32, u32)>,
) -> Vec<(u64, u32)> {
    let mut tree = Departures::new(classes);
    let mut depart = |(at, leaf, hash): (u64, u32, u32)| {
        let packet = Packet { leaf, cost: bytes, hash, host: 0, asked: Nanos::ZERO, is_ecn: true };
        Some((tree.ask(Nanos(BEGIN + at), &packet).1?.0, leaf))
    };
    let mut departed: Vec<_> = packets.filter_map(&mut depart).collect();
    departed.sort_unstable();
    departed
}

#[test]
fn assured_rates_that_do_not_fit_are_reduced_in_proportion() {
    const BYTES: u64 = 1500;
    for mbit in [10, 100, 1000] {
        let rate = mbit * MBIT;
        // Each leaf sends twice what all may.
        let gap = BYTES * SECOND / (2 * rate);
        let packets = (0..10 * SECOND / gap).flat_map(|turn| {
            [NEAR, FAR].map(|leaf| (turn * gap + u64::from(leaf) * 100, leaf, turn as u32 % 4))
        });
        let departed = departures(&classes(rate), BYTES, packets);
        let until = BEGIN + SECOND..BEGIN + 9 * SECOND;
        let part = |leaf| {
            let of = departed.iter().filter(|(at, of)| until.contains(at) && *of == leaf);
            of.count() as f64 * BYTES as f64 / (8 * rate) as f64
        };
        let [near, far] = [NEAR, FAR].map(part);
        assert!((0.96..=1.01).contains(&(near + far)), "{mbit} Mbit/s: {near} and {far}");
        assert!((near / far - 4.0 / 3.0).abs() < 0.1, "{mbit} Mbit/s: {near} and {far}");
    }
}

/// Neither leaf seems to want anything while the other one sends.
#[test]
fn a_ceiling_holds_for_packets_that_are_few_and_far_between() {
    const BYTES: u64 = 2900;
    const RATE: u64 = 43_750;
    for gap in [34 * MS, 40 * MS, 50 * MS] {
        let turns = 0..60 * SECOND / gap;
        let packets = turns.map(|turn| (turn * gap, [NEAR, FAR][turn as usize % 2], 0));
        let departed = departures(&classes(RATE), BYTES, packets);
        let excess = excess(RATE, departed.iter().map(|(at, _)| (*at, BYTES)));
        // The limit, what may be owed besides, slots, and a packet of each.
        let most = RATE * (200 + 25 + 6) / 1000 + 2 * BYTES;
        assert!(excess <= most, "every {} ms: {excess} of {most}", gap / MS);
    }
}
