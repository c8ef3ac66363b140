//! Leaves and spines: which links there are, and which of them a packet takes.
//!
//! Every host is linked to its leaf, every leaf to every spine. Within a leaf the path is two links
//! long, else four, over a spine that is chosen for a connection and a direction by a hash (ECMP):
//! packets of a connection never overtake each other.

use super::link::{Buffer, Link};
use super::packet::{ACK, FULL};
use narrows_units::{Nanos, Rate};

/// The parts of a fabric.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// Switches that hosts are linked to.
    pub leaves: u32,
    /// Hosts at each.
    pub hosts_per_leaf: u32,
    /// Switches that leaves are linked to.
    pub spines: u32,
    /// Between a host and its leaf, each way.
    pub downlink: Rate,
    /// Between a leaf and a spine, each way.
    pub uplink: Rate,
    /// Of every port of a switch.
    pub buffer: Buffer,
    /// Of every link.
    pub propagation: Nanos,
    /// A host's time to send or to receive, in addition to its pacing and its line.
    pub host_delay: Nanos,
}

/// The links that a packet takes, by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Route {
    links: [u16; 4],
    len: u8,
}

impl Route {
    /// The link that is `hop` links on the way; none behind the last.
    #[inline]
    pub(super) fn link(&self, hop: u8) -> Option<usize> {
        (hop < self.len).then(|| usize::from(self.links[usize::from(hop)]))
    }
}

impl Topology {
    /// Hosts of all leaves.
    pub fn hosts(&self) -> u32 {
        self.leaves * self.hosts_per_leaf
    }

    /// All links, by their numbers: from each host to its leaf, to each host, from each leaf to
    /// each spine, from each spine to each leaf.
    pub(super) fn links(&self) -> Vec<Link> {
        let at_host = self.propagation + self.host_delay;
        let buffer = Some(self.buffer);
        let hosts = self.hosts();
        let ups = (0..hosts).map(|_| Link::new(self.downlink, at_host, None));
        let downs = (0..hosts).map(|_| Link::new(self.downlink, at_host, buffer));
        let between = 2 * self.leaves * self.spines;
        let between = (0..between).map(|_| Link::new(self.uplink, self.propagation, buffer));
        ups.chain(downs).chain(between).collect()
    }

    /// The way from host to host, if need be over the spine that `hash` says.
    pub(super) fn route(&self, from: u32, to: u32, hash: u64) -> Route {
        let hosts = self.hosts();
        let (up, down) = (from, hosts + to);
        let (first, last) = (from / self.hosts_per_leaf, to / self.hosts_per_leaf);
        // No fabric has more links than 16 bits count; reading a scenario sees to that.
        let short = |link: u32| link as u16;
        if first == last {
            return Route { links: [short(up), short(down), 0, 0], len: 2 };
        }
        let spine = (hash % u64::from(self.spines)) as u32;
        let to_spine = 2 * hosts + first * self.spines + spine;
        let to_leaf = 2 * hosts + self.leaves * self.spines + spine * self.leaves + last;
        Route { links: [up, to_spine, to_leaf, down].map(short), len: 4 }
    }

    /// How long a full packet and its acknowledgement take on these routes, if nothing is in their
    /// way.
    pub(super) fn round_trip(links: &[Link], there: &Route, back: &Route) -> Nanos {
        let way = |route: &Route, len: u32| -> u64 {
            (0..route.len)
                .filter_map(|hop| route.link(hop))
                .map(|link| links[link].passage(len).0)
                .sum()
        };
        Nanos(way(there, FULL) + way(back, ACK))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use narrows_units::Bytes;

    /// The paper's.
    pub(crate) fn paper() -> Topology {
        Topology {
            leaves: 9,
            hosts_per_leaf: 16,
            spines: 4,
            downlink: Rate::from_bits_per_sec(10_000_000_000),
            uplink: Rate::from_bits_per_sec(40_000_000_000),
            buffer: Buffer { limit: Bytes(512 * 1024), mark_above: Bytes(17_000) },
            propagation: Nanos(262),
            host_delay: Nanos::from_micros(20),
        }
    }

    #[test]
    fn a_round_trip_across_the_spine_takes_as_long_as_in_the_paper() {
        let topology = paper();
        let links = topology.links();
        let (there, back) = (topology.route(0, 143, 1), topology.route(143, 0, 2));
        let took = Topology::round_trip(&links, &there, &back);
        assert!(took.0.abs_diff(85_200) < 50, "{took}");
    }

    #[test]
    fn a_way_leads_over_one_spine_from_the_one_leaf_to_the_other() {
        let topology = paper();
        let links = |route: Route| (0..5).map_while(|hop| route.link(hop)).collect::<Vec<_>>();
        assert_eq!(links(topology.route(3, 15, 7)), [3, 144 + 15]);
        let (hosts, between) = (2 * 144, 36);
        for hash in 0..4 {
            let spine = hash as usize;
            let expected = [20, hosts + 4 + spine, hosts + between + spine * 9 + 8, 144 + 130];
            assert_eq!(links(topology.route(20, 130, hash)), expected);
        }
        assert_eq!(topology.links().len(), 2 * 144 + 72);
    }

    #[test]
    fn no_two_ways_share_a_number_for_different_links() {
        let topology = Topology { leaves: 3, hosts_per_leaf: 2, spines: 2, ..paper() };
        let mut seen = std::collections::BTreeSet::new();
        for (from, to) in (0..6).flat_map(|from| (0..6).map(move |to| (from, to))) {
            for hash in 0..2 {
                let route = topology.route(from, to, hash);
                seen.extend((0..4).filter_map(|hop| route.link(hop)));
            }
        }
        assert_eq!(
            seen.into_iter().collect::<Vec<_>>(),
            (0..topology.links().len()).collect::<Vec<_>>()
        );
    }
}
