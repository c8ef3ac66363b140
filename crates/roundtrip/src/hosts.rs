//! What is known of hosts in the last seconds: round trips to them, and losses.
//!
//! Windows as those of the heaviest hosts: what is told is the last one that is over. A window has
//! [`SETS`] times [`WAYS`] hosts by hash; one that is new takes the place of the one of its set of
//! which least is known. So hosts with much traffic stay, which are those that are asked for.
//!
//! Memory: 50 kB, and 388 bytes for each host with a round trip.

use narrows_units::{Nanos, Spread};
use std::net::IpAddr;

const SETS: usize = 64;
const WAYS: usize = 4;

/// Segments with data, and what became of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Losses {
    /// Those looked at.
    pub segments: u64,
    /// Lost before they left through the port: on their way here, or here.
    pub before: u64,
    /// Lost beyond the port.
    pub beyond: u64,
}

impl Losses {
    /// Adds others.
    pub fn merge(&mut self, other: &Self) {
        self.segments += other.segments;
        self.before += other.before;
        self.beyond += other.beyond;
    }
}

/// A host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// Its address.
    pub address: IpAddr,
    /// The shortest round trip to it, beyond the port.
    pub shortest: Nanos,
    /// All of them.
    pub trips: Spread,
    /// Of what was sent to it through the port.
    pub to: Losses,
    /// Of what it sent through the port.
    pub from: Losses,
}

impl Host {
    fn new(address: IpAddr, trips: Spread) -> Self {
        let (to, from) = (Losses::default(), Losses::default());
        Self { address, shortest: Nanos::MAX, trips, to, from }
    }

    /// How much is known of it.
    fn weight(&self) -> u64 {
        let trips = u64::from(self.shortest != Nanos::MAX);
        self.to.segments + self.from.segments + trips
    }

    /// Adds what another queue knows of it.
    pub fn merge(&mut self, other: &Self) {
        self.shortest = self.shortest.min(other.shortest);
        self.trips.merge(&other.trips);
        self.to.merge(&other.to);
        self.from.merge(&other.from);
    }
}

/// The hosts of a window.
#[derive(Default)]
struct Window {
    /// From the beginning of time.
    number: u64,
    /// By set. A place that is not used keeps its memory.
    places: Vec<(bool, Host)>,
}

/// See the module's documentation.
pub(crate) struct Hosts {
    window: Nanos,
    filling: Window,
    finished: Window,
}

impl Hosts {
    /// Nothing is known, in windows of so long.
    pub(crate) fn new(window: Nanos) -> Self {
        let nobody = || (false, Host::new(IpAddr::from([0; 4]), Spread::default()));
        let window_of = || Window {
            number: 0,
            places: std::iter::repeat_with(nobody).take(SETS * WAYS).collect(),
        };
        Self { window, filling: window_of(), finished: window_of() }
    }

    /// What is known of `address` at `now`, to be added to.
    pub(crate) fn of(&mut self, address: IpAddr, now: Nanos) -> &mut Host {
        let number = now.0 / self.window.0;
        if number != self.filling.number {
            std::mem::swap(&mut self.filling, &mut self.finished);
            self.filling.number = number;
            self.filling.places.iter_mut().for_each(|(is_used, _)| *is_used = false);
        }
        let set = set(address) * WAYS;
        let places = &mut self.filling.places[set..set + WAYS];
        let known = places.iter().position(|(is_used, host)| *is_used && host.address == address);
        let at = known.unwrap_or_else(|| {
            let weight =
                |(is_used, host): &(bool, Host)| if *is_used { host.weight() + 1 } else { 0 };
            let lightest = (0..WAYS).min_by_key(|at| weight(&places[*at])).unwrap_or(0);
            let mut trips = std::mem::take(&mut places[lightest].1.trips);
            trips.clear();
            places[lightest] = (true, Host::new(address, trips));
            lightest
        });
        &mut places[at].1
    }

    /// The hosts of the last window that is over at `now`. Allocates.
    pub(crate) fn told(&self, now: Nanos) -> Vec<Host> {
        let last = (now.0 / self.window.0).checked_sub(1);
        let window = [&self.filling, &self.finished];
        let window = window.into_iter().find(|window| Some(window.number) == last);
        let used = window.into_iter().flat_map(|window| &window.places);
        used.filter(|(is_used, _)| *is_used).map(|(_, host)| host.clone()).collect()
    }
}

fn set(address: IpAddr) -> usize {
    let folded = match address {
        IpAddr::V4(address) => u64::from(u32::from(address)),
        IpAddr::V6(address) => {
            let bits = u128::from(address);
            (bits >> 64) as u64 ^ bits as u64
        }
    };
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % SETS
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    const WINDOW: Nanos = Nanos::from_secs(3);

    fn host(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    #[test]
    fn a_window_is_told_when_it_is_over_and_not_for_long() {
        let mut hosts = Hosts::new(WINDOW);
        hosts.of(host(1), WINDOW).to.segments += 5;
        hosts.of(host(1), WINDOW + Nanos(7)).trips.record(Nanos(1_000_000));
        assert!(hosts.told(WINDOW).is_empty(), "it goes on");
        let told = hosts.told(WINDOW + WINDOW);
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].address, told[0].to.segments), (host(1), 5));
        assert!(hosts.told(WINDOW + WINDOW + WINDOW).is_empty(), "that is long ago");
        assert!(hosts.of(host(1), WINDOW + WINDOW).trips.is_empty(), "a new one is empty");
        hosts.of(host(1), WINDOW + WINDOW + WINDOW);
        assert_eq!(hosts.of(host(1), WINDOW + WINDOW + WINDOW).to, Losses::default());
    }

    #[test]
    fn of_many_hosts_those_stay_of_which_much_is_known() {
        let mut hosts = Hosts::new(WINDOW);
        for heavy in 0..20 {
            hosts.of(host(heavy), WINDOW).to.segments += 1000;
        }
        for light in 100..5_000 {
            hosts.of(host(light), WINDOW).to.segments += 1;
        }
        let told = hosts.told(WINDOW + WINDOW);
        assert!(told.len() <= SETS * WAYS);
        let heavy = told.iter().filter(|host| host.to.segments == 1000).count();
        assert!(heavy >= 19, "{heavy}");
    }
}
