//! A full table of the Internet's size and shape, from a seed, and destinations in it.

use super::tables;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

const SEED: u64 = 32;

/// Of a hundred prefixes, how many are this long: as in the Internet's table, in which three of
/// five are a /24.
const LENGTHS: [(u8, u32); 9] =
    [(24, 61), (23, 10), (22, 11), (21, 5), (20, 5), (19, 3), (18, 2), (17, 1), (16, 2)];

/// A prefix of IPv4.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Prefix {
    network: u32,
    length: u8,
}

/// So many different prefixes.
pub(super) fn prefixes(count: usize) -> Vec<Prefix> {
    let mut random = Pcg64Mcg::seed_from_u64(SEED);
    let mut seen = BTreeSet::new();
    while seen.len() < count {
        let drawn = random.next_u64();
        let length = tables::length(&LENGTHS, (drawn >> 32) as u32 % 100);
        let network = drawn as u32 & (u32::MAX << (32 - length));
        if is_routed(network) {
            seen.insert(Prefix { network, length });
        }
    }
    seen.into_iter().collect()
}

/// Addresses in `prefixes`, at random.
pub(super) fn destinations(prefixes: &[Prefix], count: usize) -> Vec<Ipv4Addr> {
    let mut random = Pcg64Mcg::seed_from_u64(!SEED);
    let mut one = || {
        let Prefix { network, length } = prefixes[random.next_u32() as usize % prefixes.len()];
        // Not the first one, which may be a broadcast address.
        Ipv4Addr::from_bits(network | 1 | random.next_u32() & !(u32::MAX << (32 - length)))
    };
    (0..count).map(|_| one()).collect()
}

/// What `ip -batch` reads, to route `prefixes` by all `gateways`, at random.
pub(super) fn commands(prefixes: &[Prefix], gateways: &[Ipv4Addr]) -> String {
    let named = |&Prefix { network, length }: &Prefix| (Ipv4Addr::from_bits(network), length);
    tables::commands(prefixes.iter().map(named), gateways, SEED + 1)
}

/// Whether networks that start with this are in the Internet's table, and none of the testbed's.
fn is_routed(network: u32) -> bool {
    matches!(network >> 24, 1..=223)
        && !matches!(network >> 24, 10 | 100 | 127 | 169 | 172 | 192 | 198)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_the_same_each_time_and_has_a_full_tables_lengths() {
        let table = prefixes(10_000);
        assert_eq!(table, prefixes(10_000));
        assert_eq!(LENGTHS.iter().map(|(_, share)| share).sum::<u32>(), 100);
        let share = table.iter().filter(|prefix| prefix.length == 24).count();
        assert!((5_900..6_300).contains(&share), "{share}");
    }

    #[test]
    fn each_destination_is_in_a_prefix() {
        let table = prefixes(1_000);
        for destination in destinations(&table, 1_000) {
            let is_in =
                |it: &Prefix| destination.to_bits() & (u32::MAX << (32 - it.length)) == it.network;
            assert!(table.iter().any(is_in), "{destination}");
        }
    }

    #[test]
    fn commands_are_those_of_ip() {
        let one = [Prefix { network: 0x0102_0000, length: 16 }];
        assert_eq!(
            commands(&one, &[Ipv4Addr::new(10, 2, 0, 2)]),
            "route add 1.2.0.0/16 via 10.2.0.2\n"
        );
    }
}
