//! Sets of filters, the same on every machine, and packets for them.

use narrows_classify::{Filter, Filters, Flower, Matches, PortRange, Prefix};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

const IPV4: u16 = 0x0800;

/// Which filters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rules {
    /// 100,000 single addresses.
    Addresses,
    /// 100,000 prefixes of 8 to 32 bits, most of 24 as in a routing table, the longest first.
    Prefixes,
    /// 1,000 filters of ten masks over addresses, ports and protocol.
    Mixed,
}

/// The fields of a packet that the filters compare.
#[derive(Clone, Copy)]
pub(super) struct Flow {
    pub(super) source: u32,
    pub(super) destination: u32,
    pub(super) ports: (u16, u16),
    pub(super) is_tcp: bool,
}

impl Rules {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Addresses, Self::Prefixes, Self::Mixed];

    /// Their name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Addresses => "addresses",
            Self::Prefixes => "prefixes",
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
            Self::Addresses | Self::Prefixes => 100_000,
            Self::Mixed => 1_000,
        }
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
            let (protocol, handle, actions) = (IPV4, number, Vec::new());
            let filter = Filter { pref, protocol, handle, matches, class, named: 0, actions };
            filters.insert(filter.order(), Arc::new(filter));
        }
        filters
    }

    fn flower(self, number: u32, random: &mut Pcg64Mcg) -> (u16, Flower) {
        // Addresses of the common ranges: 1.0.0.0 to 223.255.255.255.
        let mut prefix = |len: u8| {
            let address: u32 = random.random_range(0x0100_0000..0xe000_0000);
            Prefix::new(IpAddr::from(Ipv4Addr::from_bits(address)), len)
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
                source: random.random_range(0x0100_0000..0xe000_0000),
                destination: random.random_range(0x0100_0000..0xe000_0000),
                ports: (random.random(), random.random()),
                is_tcp: true,
            };
            if !index.is_multiple_of(10) {
                let flower = flowers[random.random_range(0..flowers.len())];
                let within = |prefix: Option<Prefix>, any: u32| {
                    prefix.map_or(any, |prefix| {
                        prefix.bits().0 as u32 | any & !(prefix.mask() as u32)
                    })
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
