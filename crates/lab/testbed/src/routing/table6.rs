//! A table of IPv6 of the Internet's size and shape, from a seed, and destinations in it.

use super::tables;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng};
use std::collections::BTreeSet;
use std::net::Ipv6Addr;

const SEED: u64 = 6;

/// Of a hundred prefixes, how many are this long: as in the Internet's table, in which nearly half
/// are a /48.
const LENGTHS: [(u8, u32); 9] =
    [(48, 46), (32, 13), (44, 11), (40, 10), (36, 6), (46, 5), (42, 4), (29, 3), (47, 2)];

/// A prefix of IPv6, of at most 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Prefix {
    network: u64,
    length: u8,
}

/// So many different prefixes.
pub(super) fn prefixes(count: usize) -> Vec<Prefix> {
    let mut random = Pcg64Mcg::seed_from_u64(SEED);
    let mut seen = BTreeSet::new();
    while seen.len() < count {
        let length = tables::length(&LENGTHS, random.next_u32() % 100);
        // 2000::/3 is what is in use.
        let network = 0x2 << 60 | random.next_u64() >> 3;
        seen.insert(Prefix { network: network & (u64::MAX << (64 - length)), length });
    }
    seen.into_iter().collect()
}

/// Addresses in `prefixes`, at random.
pub(super) fn destinations(prefixes: &[Prefix], count: usize) -> Vec<Ipv6Addr> {
    let mut random = Pcg64Mcg::seed_from_u64(!SEED);
    let mut one = || {
        let Prefix { network, length } = prefixes[random.next_u32() as usize % prefixes.len()];
        let high = network | random.next_u64() & !(u64::MAX << (64 - length));
        // Not the first one, which is every router's there.
        Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(random.next_u64() | 1))
    };
    (0..count).map(|_| one()).collect()
}

/// What `ip -6 -batch` reads, to route `prefixes` by all `gateways`, at random.
pub(super) fn commands(prefixes: &[Prefix], gateways: &[Ipv6Addr]) -> String {
    let named = |&Prefix { network, length }: &Prefix| {
        (Ipv6Addr::from_bits(u128::from(network) << 64), length)
    };
    tables::commands(prefixes.iter().map(named), gateways, SEED + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_the_same_each_time_and_has_a_full_tables_lengths() {
        let table = prefixes(10_000);
        assert_eq!(table, prefixes(10_000));
        assert_eq!(LENGTHS.iter().map(|(_, share)| share).sum::<u32>(), 100);
        let share = table.iter().filter(|prefix| prefix.length == 48).count();
        assert!((4_400..5_000).contains(&share), "{share}");
        assert!(table.iter().all(|prefix| prefix.network >> 61 == 1));
    }

    #[test]
    fn each_destination_is_in_a_prefix() {
        let table = prefixes(1_000);
        for destination in destinations(&table, 1_000) {
            let high = (destination.to_bits() >> 64) as u64;
            let is_in = |it: &Prefix| high & (u64::MAX << (64 - it.length)) == it.network;
            assert!(table.iter().any(is_in), "{destination}");
        }
    }

    #[test]
    fn commands_are_those_of_ip() {
        let one = [Prefix { network: 0x2001_0db8 << 32, length: 32 }];
        let gateway = "fd02::2".parse().unwrap();
        assert_eq!(commands(&one, &[gateway]), "route add 2001:db8::/32 via fd02::2\n");
    }
}
