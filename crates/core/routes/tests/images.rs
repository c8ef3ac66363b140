//! The image agrees with the prefixes for every address, after any sequence of changes.

use narrows_image::{Full, Prefix, Words};
use narrows_routes::Number;
use narrows_routes::image::{Family, Layout, Source};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use std::collections::BTreeMap;

/// The naive model: all prefixes, and a search through all of them.
#[derive(Default, Debug)]
struct Naive(BTreeMap<Prefix, Number>, bool);

impl Source for Naive {
    /// Few, or as if there were many.
    fn prefixes(&self) -> usize {
        if self.1 { 1_000_000 } else { self.0.len() }
    }

    fn number_of(&self, place: Prefix) -> Number {
        let covering = self.0.iter().filter(|(it, _)| it.len <= place.len && it.covers(place.bits));
        covering.max_by_key(|(it, _)| it.len).map_or(Number::DEFAULT, |(_, number)| *number)
    }

    fn within(&self, place: Prefix) -> impl Iterator<Item = (Prefix, Number)> {
        let inside = move |it: &Prefix| it.len > place.len && place.covers(it.bits);
        self.0.iter().filter(move |(it, _)| inside(it)).map(|(it, number)| (*it, *number))
    }
}

/// Close to each other, so that prefixes meet, at the borders of /8, /16, /18 and /24.
fn v4() -> impl Strategy<Value = u128> {
    let high = prop_oneof![Just(0x0a00_0000_u32), Just(0x0a00_3f00), Just(0x0aff_ff00)];
    (high, 0..0x4100_u32).prop_map(|(high, low)| u128::from(high.wrapping_add(low)) << 96)
}

fn v4_len() -> BoxedStrategy<u8> {
    prop_oneof![1 => 6..=17_u8, 6 => 18..=24_u8, 6 => 25..=32_u8].boxed()
}

/// Alike up to some bit, at which some of them differ: long common parts and short ones.
fn v6() -> impl Strategy<Value = u128> {
    let begin = prop_oneof![4 => Just(0x2001_0db8_u128 << 96), 1 => Just(u128::MAX), 1 => Just(0)];
    let bit = || prop_oneof![0..128_u32, 28..40_u32, 60..68_u32, 120..128_u32];
    (begin, bit(), bit(), 0..4_u128, 0..128_u32)
        .prop_map(|(begin, one, other, few, at)| begin ^ 1 << one ^ 1 << other ^ few << at)
}

/// As dense as those of a full table: many fields, and prefixes that are alone in a part.
fn dense_v6() -> impl Strategy<Value = u128> {
    let begin = prop_oneof![4 => Just(0x2a00_u128), 2 => Just(0x2a01), 1 => Just(0x2000)];
    let few = prop_oneof![2 => any::<u32>(), 1 => 0..4_u32];
    (begin, few, 0..4_u128)
        .prop_map(|(begin, bits, low)| begin << 112 | u128::from(bits) << 80 | low << 60 | low)
}

fn v6_len() -> BoxedStrategy<u8> {
    prop_oneof![1 => 4..=18_u8, 8 => 19..=64_u8, 4 => 65..=127_u8, 6 => Just(128_u8)].boxed()
}

/// A prefix with a number, or without.
type Change = (Prefix, Option<Number>);

fn changes(
    bits: BoxedStrategy<u128>,
    len: BoxedStrategy<u8>,
) -> impl Strategy<Value = Vec<Change>> {
    // Few numbers, so that neighbours have the same; some more, so that lists are long.
    let number = prop_oneof![1 => Just(None), 3 => (1..4_u16).prop_map(Some), 1 => any::<u16>().prop_map(Some)];
    let change = (bits, len, number)
        .prop_map(|(bits, len, number)| (Prefix::new(bits, len), number.map(Number)));
    proptest::collection::vec(change, 0..120)
}

fn agree(
    naive: &Naive,
    (words, layout): (&Words, &Layout),
    family: Family,
    addresses: impl Iterator<Item = u128>,
) -> TestCaseResult {
    for address in addresses {
        let place = Prefix { bits: address, len: family.bits() };
        let found = layout.find(words, address);
        prop_assert_eq!(found, naive.number_of(place), "{:x}", address);
    }
    Ok(())
}

/// Addresses at both ends of each prefix, and beside them.
fn edges(changes: &[Change], family: Family) -> Vec<u128> {
    let one = 1_u128 << (128 - family.bits());
    let edges = changes.iter().flat_map(|(it, _)| {
        let last = it.last() & !(one - 1);
        [it.bits, last, it.bits.wrapping_sub(one), last.wrapping_add(one)]
    });
    edges.map(|it| it & !(one - 1)).collect()
}

fn follows(
    family: Family,
    is_large: bool,
    before: &[Change],
    batches: &[Vec<Change>],
) -> TestCaseResult {
    let mut naive = Naive(BTreeMap::new(), is_large);
    naive.0.extend(before.iter().filter_map(|(it, number)| Some((*it, (*number)?))));
    let size = Layout::size(&naive, family);
    let mut words = Words(vec![0; size]);
    let mut layout = Layout::new(&naive, family, &mut words).expect("it was measured");
    agree(&naive, (&words, &layout), family, edges(before, family).into_iter())?;
    // Room for changes.
    words.0.resize(size + (1 << 16), 0);
    for batch in batches {
        for (it, number) in batch {
            match number {
                Some(number) => drop(naive.0.insert(*it, *number)),
                None => drop(naive.0.remove(it)),
            }
        }
        let keys: Vec<Prefix> = batch.iter().map(|(it, _)| *it).collect();
        match layout.update(&naive, &keys, &mut words) {
            Ok(()) => {}
            Err(Full) => {
                let size = Layout::size(&naive, family);
                words = Words(vec![0; size + (1 << 16)]);
                layout = Layout::new(&naive, family, &mut words).expect("it was measured");
            }
        }
        agree(&naive, (&words, &layout), family, edges(batch, family).into_iter())?;
        agree(&naive, (&words, &layout), family, edges(before, family).into_iter())?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_image_of_ipv4_agrees_with_all_prefixes(
        before in changes(v4().boxed(), v4_len()),
        batches in proptest::collection::vec(changes(v4().boxed(), v4_len()), 0..3),
    ) {
        follows(Family::V4, false, &before, &batches)?;
    }

    #[test]
    fn an_image_of_ipv6_agrees_with_all_prefixes(
        before in changes(v6().boxed(), v6_len()),
        batches in proptest::collection::vec(changes(v6().boxed(), v6_len()), 0..3),
    ) {
        follows(Family::V6, false, &before, &batches)?;
    }

    #[test]
    fn an_image_of_dense_ipv6_agrees_too(
        before in changes(dense_v6().boxed(), v6_len()),
        batches in proptest::collection::vec(changes(dense_v6().boxed(), v6_len()), 1..4),
    ) {
        follows(Family::V6, false, &before, &batches)?;
    }
}

proptest! {
    // Each lays out 64 MiB a few times.
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn an_image_of_ipv4_with_a_large_top_agrees_too(
        before in changes(v4().boxed(), v4_len()),
        batches in proptest::collection::vec(changes(v4().boxed(), v4_len()), 1..3),
    ) {
        follows(Family::V4, true, &before, &batches)?;
    }
}

#[test]
fn a_prefix_with_the_number_around_it_takes_no_words() {
    let bits = 0x0a00_0000_u128 << 96;
    let mut naive = Naive::default();
    naive.0.insert(Prefix::new(bits, 8), Number(7));
    let alone = Layout::size(&naive, Family::V4);
    for host in 0..1000_u128 {
        naive.0.insert(Prefix::new(bits | host << 96, 32), Number(7));
    }
    assert_eq!(Layout::size(&naive, Family::V4), alone);
}
