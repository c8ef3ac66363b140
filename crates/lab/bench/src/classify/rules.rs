//! Sets of filters, the same on every machine, and packets for them.

use narrows_classify::{Filter, Filters, Flower, Matches, PortRange, Prefix};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// The common ranges of addresses: 1.0.0.0 to 223.255.255.255,
const RANGE_V4: std::ops::Range<u32> = 0x0100_0000..0xe000_0000;
/// and the first 12 bits of those of IPv6.
const RANGES_V6: [u128; 6] = [0x200, 0x240, 0x260, 0x280, 0x2a0, 0x2c0];
/// How many networks of 32 bits IPv6 prefixes are in.
const NETWORKS_V6: u32 = 20_000;

/// Which filters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rules {
    /// 100,000 single addresses.
    Addresses,
    /// 100,000 prefixes of 8 to 32 bits, most of 24 as in a routing table, the longest first.
    Prefixes,
    /// 100,000 prefixes of IPv6 of 16 to 64 bits, most of 48 or 32, the longest first.
    PrefixesV6,
    /// 1,000 filters of ten masks over addresses, ports and protocol.
    Mixed,
}

/// The fields of a packet that the filters compare.
#[derive(Clone, Copy)]
pub(super) struct Flow {
    pub(super) is_v6: bool,
    pub(super) source: u128,
    pub(super) destination: u128,
    pub(super) ports: (u16, u16),
    pub(super) is_tcp: bool,
}

impl Rules {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Addresses, Self::Prefixes, Self::PrefixesV6, Self::Mixed];

    /// Their name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Addresses => "addresses",
            Self::Prefixes => "prefixes",
            Self::PrefixesV6 => "prefixes-v6",
            Self::Mixed => "mixed",
        }
    }

    /// Those of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rules| rules.name() == name)
    }

    /// How many filters.
    pub fn count(self) -> usize {
        match self {
            Self::Addresses | Self::Prefixes | Self::PrefixesV6 => 100_000,
            Self::Mixed => 1_000,
        }
    }

    /// Whether they are for IPv6.
    fn are_v6(self) -> bool {
        self == Self::PrefixesV6
    }

    /// Any address.
    fn address(self, random: &mut Pcg64Mcg) -> u128 {
        if !self.are_v6() {
            return u128::from(random.random_range(RANGE_V4));
        }
        let network = random.random_range(0..NETWORKS_V6);
        let range = RANGES_V6[network as usize % RANGES_V6.len()];
        // The same 20 bits for the same network, and scattered.
        let bits = u128::from(network.wrapping_mul(0x9e37_79b1) >> 12);
        range << 116 | bits << 96 | random.random::<u128>() >> 32
    }

    /// The filters.
    pub fn filters(self) -> Filters {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let mut filters = Filters::default();
        let mut number = 0;
        while filters.len() < self.count() {
            number += 1;
            let (pref, flower) = self.flower(number, &mut random);
            let class = number % 60_000 + 2;
            let matches = Matches::Flower(flower);
            let protocol = if self.are_v6() { IPV6 } else { IPV4 };
            let filter = Filter::new(pref, number, protocol, matches, class);
            filters.insert(filter.order(), Arc::new(filter));
        }
        filters
    }

    fn flower(self, number: u32, random: &mut Pcg64Mcg) -> (u16, Flower) {
        let mut prefix = |len: u8| {
            let address = self.address(random);
            let address = match self.are_v6() {
                true => IpAddr::from(Ipv6Addr::from_bits(address)),
                false => IpAddr::from(Ipv4Addr::from_bits(address as u32)),
            };
            Prefix::new(address, len)
        };
        match self {
            Self::Addresses => (1, Flower { destination: prefix(32), ..Flower::default() }),
            Self::Prefixes => {
                let len = match number % 20 {
                    0..=11 => 24,
                    12..=16 => 16 + (number / 20 % 8) as u8,
                    17 => 8 + (number / 20 % 8) as u8,
                    _ => 25 + (number / 20 % 8) as u8,
                };
                (33 - u16::from(len), Flower { destination: prefix(len), ..Flower::default() })
            }
            Self::PrefixesV6 => {
                let len = match number % 20 {
                    0..=8 => 48,
                    9..=11 => 32,
                    12..=15 => 33 + (number / 20 % 15) as u8,
                    16 => 16 + (number / 20 % 16) as u8,
                    _ => 49 + (number / 20 % 16) as u8,
                };
                (65 - u16::from(len), Flower { destination: prefix(len), ..Flower::default() })
            }
            Self::Mixed => {
                let port = 1024 + (number / 10 * 7 % 8192) as u16;
                let one = Some(PortRange { first: port, last: port });
                let tcp = Flower { protocol: Some(6), ..Flower::default() };
                let flower = match number % 10 {
                    0 => Flower { destination: prefix(32), ..tcp },
                    1 => Flower { destination: prefix(24), ..tcp },
                    2 => Flower { destination: prefix(24), destination_port: one, ..tcp },
                    3 => Flower { source: prefix(24), ..Flower::default() },
                    4 => Flower { source: prefix(32), ..Flower::default() },
                    5 => Flower { source: prefix(16), destination: prefix(16), ..tcp },
                    6 => Flower { destination: prefix(28), ..Flower::default() },
                    7 => Flower { destination_port: one, ..tcp },
                    8 => Flower { source_port: one, destination: prefix(12), ..tcp },
                    _ => Flower { source: prefix(20), ..tcp },
                };
                (1 + (number % 10) as u16, flower)
            }
        }
    }

    /// The frames of packets, nine of ten of which a filter matches.
    pub fn frames(self, count: usize) -> Vec<[u8; 64]> {
        self.flows(count).iter().map(Flow::frame).collect()
    }

    /// Packets, nine of ten of which a filter matches.
    pub(super) fn flows(self, count: usize) -> Vec<Flow> {
        let filters = self.filters();
        let flowers: Vec<Flower> = filters
            .iter()
            .filter_map(|(_, filter)| match &filter.matches {
                Matches::Flower(flower) => Some(*flower),
                _ => None,
            })
            .collect();
        let mut random = Pcg64Mcg::seed_from_u64(2);
        let flow = |index: usize| {
            let mut any: Flow = Flow {
                is_v6: self.are_v6(),
                source: self.address(&mut random),
                destination: self.address(&mut random),
                ports: (random.random(), random.random()),
                is_tcp: true,
            };
            if !index.is_multiple_of(10) {
                let flower = flowers[random.random_range(0..flowers.len())];
                let within = |prefix: Option<Prefix>, any: u128| {
                    prefix.map_or(any, |prefix| prefix.bits().0 | any & !prefix.mask())
                };
                any.source = within(flower.source, any.source);
                any.destination = within(flower.destination, any.destination);
                any.ports.0 = flower.source_port.map_or(any.ports.0, |port| port.first);
                any.ports.1 = flower.destination_port.map_or(any.ports.1, |port| port.first);
            }
            any
        };
        (0..count).map(flow).collect()
    }
}

impl Flow {
    /// A frame with these fields.
    pub(super) fn frame(&self) -> [u8; 64] {
        let mut frame = [0; 64];
        let mut put = |at: usize, bytes: &[u8]| frame[at..at + bytes.len()].copy_from_slice(bytes);
        let protocol = if self.is_tcp { 6 } else { 17 };
        let transport = if self.is_v6 {
            put(12, &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 10, protocol, 64]);
            put(22, &self.source.to_be_bytes());
            put(38, &self.destination.to_be_bytes());
            54
        } else {
            put(12, &[0x08, 0x00, 0x45, 0, 0, 50]);
            put(22, &[64, protocol]);
            put(26, &(self.source as u32).to_be_bytes());
            put(30, &(self.destination as u32).to_be_bytes());
            34
        };
        put(transport, &self.ports.0.to_be_bytes());
        put(transport + 2, &self.ports.1.to_be_bytes());
        frame
    }
}
