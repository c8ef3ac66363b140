//! The hosts at one end of a tin's flows, and how many flows of each are backlogged.
//!
//! A flow's quantum is divided by the number of its host's backlogged flows, so that a host with
//! many gets no more than one with few. Flows on other queues of the port count as well: each queue
//! publishes its own through a [`Census`], for flows that have used up a quantum, and reads the
//! totals from time to time. A flow counts for some time after its queue empties (`windows.rs`).
//!
//! Source: "Piece of CAKE", section III-B (host isolation). Across queues it is ours: the open
//! question of mq-cake (Netdev 0x19, section 6).
//!
//! Cost: a lookup for a flow that was not known; a line for each turn of a bulk flow.

use super::neighbours::Neighbours;
use super::slab::{NONE, Slab};
use super::ways::{Found, Ways};
use crate::{Census, HostKey};

/// A host.
#[derive(Default)]
struct Host {
    key: u64,
    way: u16,
    /// Flows that refer to it.
    flows: u16,
    /// The backlogged ones of these.
    standing: u16,
    /// The number that the census knows.
    published: u16,
    /// Flows backlogged on other queues, as of `asked`.
    elsewhere: u16,
    /// The edition of the census that was asked.
    asked: u16,
    /// The most backlogged flows on any queue in `window`, and in that or the one before.
    most: u16,
    recently: u16,
    window: u16,
}

impl Host {
    /// The present window is `window`.
    #[inline(always)]
    fn follow(&mut self, window: u16) {
        if self.window != window {
            self.begin(window);
        }
    }

    #[cold]
    fn begin(&mut self, window: u16) {
        let follows = window.wrapping_sub(self.window) == 1;
        let before = if follows { self.most } else { 0 };
        // Each change checks the window first.
        self.most = self.standing;
        self.recently = self.standing.max(before);
        self.window = window;
    }

    /// The number of backlogged flows.
    #[inline(always)]
    fn count(&mut self, standing: u16) {
        self.most = self.most.max(standing);
        self.recently = self.recently.max(standing);
    }
}

/// The hosts of one tin and end.
pub(super) struct Hosts {
    ways: Ways,
    slab: Slab<Host>,
    /// Distinguishes tins and ends.
    salt: u64,
    /// The present window of time.
    window: u16,
}

impl Hosts {
    pub(super) fn new(salt: u64, window: u16) -> Self {
        Self { ways: Ways::new(), slab: Slab::new(), salt, window }
    }

    /// Another window of time has begun.
    pub(super) fn begin_window(&mut self, window: u16) {
        self.window = window;
    }

    /// The host of a flow that is new here, by the hash of its address.
    #[inline]
    pub(super) fn enter(&mut self, hash: u32) -> u16 {
        let (way, found) = self.ways.find(hash, true);
        let mut place = self.ways.slot(way);
        if place == NONE {
            place = self.slab.take();
            self.ways.hold(way, place);
        }
        let host = &mut self.slab[place];
        if found == Found::Free {
            let (key, window) = (key(hash, self.salt), self.window);
            *host = Host { key, way, window, ..Host::default() };
        }
        host.flows += 1;
        if host.flows == 1 {
            self.ways.set_busy(way, true);
        }
        place
    }

    /// The flow is forgotten.
    #[inline]
    pub(super) fn leave(&mut self, place: u16) {
        let host = &mut self.slab[place];
        host.flows -= 1;
        if host.flows == 0 {
            self.ways.set_busy(host.way, false);
        }
    }

    /// One of its flows gets a backlog, or loses it.
    #[inline]
    pub(super) fn stand(&mut self, place: u16, begins: bool) {
        let host = &mut self.slab[place];
        host.follow(self.window);
        host.standing = if begins { host.standing + 1 } else { host.standing - 1 };
        host.count(host.standing);
    }

    /// Tells siblings of one more backlogged flow, or one less.
    pub(super) fn tell(&mut self, place: u16, begins: bool, census: &mut dyn Census) {
        let host = &mut self.slab[place];
        host.published = if begins { host.published + 1 } else { host.published - 1 };
        census.count(HostKey(host.key), if begins { 1 } else { -1 });
    }

    /// New siblings know no hosts yet.
    pub(super) fn forget_published_figures(&mut self) {
        for place in 0..self.slab.taken() {
            self.slab[place].published = 0;
        }
    }

    /// How many of its flows are backlogged here, or were a short time ago. For an instance without
    /// siblings.
    #[inline(always)]
    pub(super) fn own_load(&mut self, place: u16) -> u16 {
        let host = &mut self.slab[place];
        host.follow(self.window);
        host.recently
    }

    /// How many of its flows are backlogged on any queue, or were a short time ago; at least one.
    #[inline(always)]
    pub(super) fn load(&mut self, place: u16, neighbours: &Neighbours) -> u32 {
        let host = &mut self.slab[place];
        let Neighbours { census, edition, .. } = neighbours;
        if host.asked != *edition {
            host.asked = *edition;
            let others = census.flows(HostKey(host.key)).saturating_sub(u32::from(host.published));
            host.elsewhere = u16::try_from(others).unwrap_or(u16::MAX);
        }
        host.follow(self.window);
        host.count(host.standing.saturating_add(host.elsewhere));
        // A flow that waits without packets counts, but is not remembered: siblings may not know
        // it, and this queue would give it a lower weight than they do.
        let published = host.published.saturating_add(host.elsewhere);
        u32::from(host.recently.max(published)).max(1)
    }

    /// The memory that it has allocated, in bytes.
    pub(super) fn memory(&self) -> usize {
        Ways::memory() + self.slab.memory()
    }
}

/// Mixes an address's hash with the tin and the end.
fn key(hash: u32, salt: u64) -> u64 {
    HostKey::mixed(u64::from(hash).wrapping_add(salt.wrapping_mul(0x9e37_79b9_7f4a_7c15))).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[derive(Default)]
    struct Modelled {
        flows: Vec<u16>,
        standing: u32,
        /// The most that stood, by window.
        most: HashMap<u16, u32>,
    }

    proptest! {
        /// The oracle is a map from address to flows, and flows that stood in each window.
        #[test]
        fn every_host_knows_how_many_of_its_flows_stand_or_stood_a_short_time_ago(
            steps in prop::collection::vec((0u32..60, 0usize..5), 1..500),
        ) {
            let mut hosts = Hosts::new(1, 0);
            let mut model: HashMap<u32, Modelled> = HashMap::new();
            let mut window = 0;
            for (number, step) in steps {
                // Few enough for all sets: no collisions.
                let hash = number << 16 | number;
                let Modelled { flows, standing, .. } = model.entry(hash).or_default();
                match step {
                    0 => {
                        let place = hosts.enter(hash);
                        prop_assert!(flows.iter().all(|other| *other == place));
                        flows.push(place);
                    }
                    1 if flows.len() as u32 > *standing => hosts.leave(flows.pop().unwrap()),
                    2 if flows.len() as u32 > *standing => {
                        hosts.stand(flows[0], true);
                        *standing += 1;
                    }
                    3 if *standing > 0 => {
                        hosts.stand(flows[0], false);
                        *standing -= 1;
                    }
                    4 if number < 10 => {
                        window += if number == 0 { 2 } else { 1 };
                        hosts.begin_window(window);
                    }
                    _ => {}
                }
                for Modelled { flows, standing, most } in model.values_mut() {
                    let present = most.entry(window).or_default();
                    *present = (*present).max(*standing);
                    let before = most.get(&window.wrapping_sub(1)).copied().unwrap_or_default();
                    if let Some(flow) = flows.first() {
                        prop_assert_eq!(u32::from(hosts.own_load(*flow)), before.max(most[&window]));
                    }
                }
            }
        }
    }

    /// A census in which every host has this many flows.
    struct Everywhere(u32);

    impl Census for Everywhere {
        fn count(&mut self, _host: HostKey, change: i32) {
            self.0 = self.0.saturating_add_signed(change);
        }

        fn flows(&self, _host: HostKey) -> u32 {
            self.0
        }

        fn tell(&mut self, _tins: &[crate::TinCensus]) {}

        fn sum(&self, _tins: &mut [crate::TinCensus]) {}
    }

    #[test]
    fn flows_elsewhere_count_and_own_ones_count_once() {
        let mut hosts = Hosts::new(0, 0);
        let place = hosts.enter(7);
        let mut neighbours = Neighbours::new(Box::new(Everywhere(5)));
        hosts.stand(place, true);
        hosts.tell(place, true, &mut *neighbours.census);
        assert_eq!(hosts.load(place, &neighbours), 6);
        neighbours.census = Box::new(Everywhere(1));
        assert_eq!(hosts.load(place, &neighbours), 6, "asked once an edition");
        neighbours.edition += 1;
        hosts.begin_window(2);
        assert_eq!(hosts.load(place, &neighbours), 1);
    }

    #[test]
    fn a_flow_that_only_waits_for_its_turn_counts_while_it_waits_and_is_not_remembered() {
        let mut hosts = Hosts::new(0, 0);
        let place = hosts.enter(7);
        let mut neighbours = Neighbours::new(Box::new(Everywhere(1)));
        assert_eq!(hosts.load(place, &neighbours), 1);
        hosts.tell(place, true, &mut *neighbours.census);
        assert_eq!(hosts.load(place, &neighbours), 2);
        hosts.tell(place, false, &mut *neighbours.census);
        assert_eq!(hosts.load(place, &neighbours), 1);
    }

    #[test]
    fn backlogged_flows_count_for_one_more_whole_window() {
        let mut hosts = Hosts::new(0, 5);
        let place = hosts.enter(7);
        let neighbours = Neighbours::new(Box::new(Everywhere(0)));
        (0..3).for_each(|_| hosts.stand(place, true));
        assert_eq!(hosts.load(place, &neighbours), 3);
        (0..3).for_each(|_| hosts.stand(place, false));
        assert_eq!(hosts.load(place, &neighbours), 3);
        hosts.begin_window(6);
        hosts.stand(place, true);
        assert_eq!(hosts.load(place, &neighbours), 3, "the window before counts");
        hosts.begin_window(7);
        assert_eq!(hosts.load(place, &neighbours), 1);
    }
}
