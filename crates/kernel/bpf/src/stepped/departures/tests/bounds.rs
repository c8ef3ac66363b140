//! What holds whatever is sent.

use super::super::{Departures, Packet};
use super::host::{BEGIN, MS, SECOND, excess};
use crate::tree::{assured, layout::Class};
use narrows_units::Nanos;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The slots of a calendar, and how long the shortest lasts: `programs/calendar.h`.
const SLOTS: u64 = 128;
const SLOT: u64 = 1 << 20;
/// `EARLY_PART`, `EARLY_AHEAD` and `SPARSE_MAX` of `programs/depart.h`.
const EARLY_PART: u64 = 2;
const EARLY_AHEAD: u64 = 5 * MS;
const SPARSE_MAX: u64 = 1600;

/// `CREDIT_MAX` and `SHARED_MAX` of `programs/span.h`.
const CREDIT_MAX: u64 = 1 << 32;
const SHARED_MAX: u64 = 25 * MS;

/// How long a slot of a class lasts.
fn slot(class: &Class) -> u64 {
    std::iter::successors(Some(SLOT), |slot| Some(slot * 2))
        .find(|slot| (class.burst.min(CREDIT_MAX) + class.limit) / slot <= SLOTS * 7 / 8)
        .unwrap_or(SLOT)
}

/// A packet: how long after the one before, its bytes, its flow, and how long it asks to wait.
type Sent = (u64, u64, u32, u64);

fn sent() -> impl Strategy<Value = Vec<Sent>> {
    let bytes = prop_oneof![60..1600_u64, 1600..70_000_u64, Just(1 << 40)];
    let gap = prop_oneof![Just(0), 0..100_000_u64, 0..100 * MS];
    let asked = prop_oneof![4 => Just(0), 1 => 0..2 * SECOND];
    prop::collection::vec((gap, bytes, 0..40_u32, asked), 1..600)
}

proptest! {
    #[test]
    fn one_limit_is_never_exceeded_by_more_than_its_burst_and_what_departs_early(
        packets in sent(),
        mbit in prop_oneof![1..100_u64, 100..10_000_u64],
        burst in prop_oneof![0..20 * MS, 0..SECOND, 0..200 * SECOND],
        limit in 5 * MS..200 * MS,
        target in MS..200 * MS,
    ) {
        let rate = mbit * 125_000;
        let class = Class {
            rate, ceil: rate, burst, limit, target, interval: 100 * MS, quantum: 1,
            ..Class::default()
        };
        let mut tree = Departures::new(&BTreeMap::from([(1, class)]));
        let mut departures = Vec::new();
        let (mut now, mut longest) = (BEGIN, 0);
        for (gap, cost, hash, asked) in packets {
            now += gap;
            let asked = Nanos(if asked == 0 { 0 } else { now + asked });
            let packet = Packet { leaf: 1, cost, hash, host: 0, asked, is_ecn: true };
            if let (_, Some(at)) = tree.ask(Nanos(now), &packet) {
                prop_assert!(at.0 >= now && at >= asked);
                // What asks for later than a calendar goes is booked as late as it goes.
                if asked.0 <= now + limit / 2 {
                    departures.push((at.0, cost));
                    longest = longest.max(cost);
                }
            }
        }
        // Whatever was before: an idle class refuses nothing that it can sell within its limit.
        let idle = Nanos(now + 10 * SECOND);
        let packet = Packet { leaf: 1, cost: 1000, hash: 41, host: 0, asked: Nanos::ZERO, is_ecn: false };
        prop_assert_eq!(tree.ask(idle, &packet).1, Some(idle));
        departures.sort_unstable();
        let last = departures.last().map_or(0, |(at, _)| at - BEGIN);
        let seconds = |ns: u64| ns as f64 / 1e9;
        // In the slot of its own time a packet waits for no other there.
        let credit = seconds(burst.min(CREDIT_MAX) + 2 * slot(&class));
        let early = (seconds(last + EARLY_AHEAD) / EARLY_PART as f64)
            .min(seconds(SLOTS * slot(&class)));
        let most = rate as f64 * (credit + early) + (2 * longest + SPARSE_MAX) as f64;
        let excess = excess(rate, departures.into_iter());
        prop_assert!(excess as f64 <= most, "{excess} of {most}");
    }
}

/// The root, and the number of the first class below it.
const ROOT: u32 = 1;
const FIRST: u32 = 2;

/// A class: what it is below, of those before it; its assured part and its ceiling, in hundredths
/// of the root's rate; its priority and its weight.
type Below = (prop::sample::Index, u64, u64, u8, u32);

/// A tree with a root of this rate. Assured rates may add up to more than the rate above them.
fn tree_of(rate: u64, below: &[Below]) -> BTreeMap<u32, Class> {
    let inner = Class {
        rate,
        ceil: rate,
        burst: 2 * MS,
        limit: 200 * MS,
        target: u64::MAX,
        interval: 100 * MS,
        quantum: 1,
        ..Class::default()
    };
    let mut classes = BTreeMap::from([(ROOT, inner)]);
    for ((parent, assured, ceil, prio, quantum), number) in below.iter().zip(FIRST..) {
        let parent = ROOT + parent.index((number - ROOT) as usize) as u32;
        let part = |hundredths: u64| (rate * hundredths / 100).max(1);
        let (rate, ceil) = (part(*assured), part(*ceil.max(assured)));
        let (limit, prio, quantum) = (50 * MS, *prio, *quantum);
        let class = Class { rate, ceil, limit, target: 5 * MS, prio, quantum, parent, ..inner };
        classes.insert(number, class);
        let first =
            classes.get_mut(&parent).map_or(0, |above| std::mem::replace(&mut above.child, number));
        if let Some(class) = classes.get_mut(&number) {
            class.sibling = first;
        }
        if let Some(above) = classes.get_mut(&parent) {
            (above.limit, above.target) = (inner.limit, inner.target);
        }
    }
    assured::fit(&mut classes);
    classes
}

/// Packets that come together: how long after those before, how many, the bytes of each in 2^-16 of
/// the longest, and their flow.
type Burst = (u64, usize, u64, u32);

/// Bursts, at most so far apart. Leaves whose bursts are few and far between seem to want nothing
/// in turn, and those whose bursts are close want everything.
fn bursts() -> impl Strategy<Value = Vec<Burst>> {
    let of = |(pause, count): (u64, usize)| {
        prop::collection::vec((0..pause, 1..count, 0..1_u64 << 16, 0..40_u32), 1..600)
    };
    (prop_oneof![Just(40 * MS), MS..80 * MS], prop_oneof![Just(60_usize), 2..4_usize])
        .prop_flat_map(of)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn no_class_of_a_tree_exceeds_its_ceiling_by_more_than_what_departs_ahead(
        below in prop::collection::vec(
            (
                any::<prop::sample::Index>(),
                prop_oneof![0..60_u64, 60..100_u64],
                1..100_u64,
                0..4_u8,
                1..10_000_u32,
            ),
            1..12,
        ),
        mbit in prop_oneof![5..20_u64, 5..100_u64, 100..10_000_u64],
        longest in prop_oneof![Just(3000_u64), 1500..70_000_u64],
        bursts in bursts(),
    ) {
        let rate = mbit * 125_000;
        let classes = tree_of(rate, &below);
        let leaves: Vec<u32> =
            classes.iter().filter(|(_, class)| class.child == 0).map(|(leaf, _)| *leaf).collect();
        let mut tree = Departures::new(&classes);
        let mut departures = Vec::new();
        let mut now = BEGIN;
        for (gap, packets, part, hash) in bursts {
            now += gap;
            let cost = 60 + (((longest - 60) * part) >> 16);
            let leaf = leaves[hash as usize % leaves.len()];
            for number in 0..packets as u64 {
                // Clocks of CPUs are not quite the same.
                let at = now + number * 1000 - 500 * (number % 3);
                let packet = Packet { leaf, cost, hash, host: 0, asked: Nanos::ZERO, is_ecn: true };
                if let (_, Some(departure)) = tree.ask(Nanos(at), &packet) {
                    prop_assert!(departure.0 >= at);
                    departures.push((departure.0, cost, leaf));
                }
            }
            now += packets as u64 * 1000;
        }
        departures.sort_unstable();
        for (number, class) in &classes {
            let is_below = |leaf: u32| {
                let above = |number: &u32| Some(classes[number].parent).filter(|it| *it != 0);
                std::iter::successors(Some(leaf), above).any(|it| it == *number)
            };
            let of = departures.iter().filter(|(_, _, leaf)| is_below(*leaf));
            let excess = excess(class.ceil, of.map(|(at, bytes, _)| (*at, *bytes)));
            // What is assured, and what is early, departs before its bytes here, which begin within
            // the limit. A class above others owes some of them besides: what it sells in the time
            // that a change of shares takes, and a packet; and the last one ends behind the limit.
            // A leaf's rate changes: in what a higher one leaves free of slots that were full, up
            // to four packets begin that end behind it.
            let (owed, packets) = if class.child == 0 { (0, 4) } else { (SHARED_MAX, 2) };
            let ahead = class.burst + class.limit + owed + 2 * slot(class);
            let most = class.ceil * ahead / SECOND + packets * longest;
            prop_assert!(excess <= most, "class {number}: {excess} of {most}");
        }
    }
}
