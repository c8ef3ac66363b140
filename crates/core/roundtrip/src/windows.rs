//! Round trips and losses of hosts, or of classes, in the last seconds.
//!
//! Windows are those of the heaviest hosts: reports are of the last complete one. A window is a
//! hash table of [`SETS`] sets with [`WAYS`] entries; a new key replaces the entry with the least
//! data in its set. So keys with much traffic stay, and those are the ones of interest.
//!
//! Memory: 50 kB for hosts, 33 kB for classes, and 388 bytes for each with a round trip.

use crate::trips::Trips;
use narrows_units::Nanos;

const SETS: usize = 64;
const WAYS: usize = 4;

/// An entry of a window.
pub trait Known: Clone {
    /// Its key.
    type Key: Copy + PartialEq;

    /// An empty entry, with the empty `trips`.
    fn of(key: Self::Key, trips: Trips) -> Self;

    /// Its key.
    fn key(&self) -> Self::Key;

    /// The bits of a key that are hashed.
    fn bits(key: Self::Key) -> u64;

    /// The amount of data in it.
    fn weight(&self) -> u64;

    /// Its round trips.
    fn trips_mut(&mut self) -> &mut Trips;

    /// Adds another queue's data of the same key.
    fn merge(&mut self, other: &Self);
}

/// Merges another queue's entries into `all`.
pub fn merge<E: Known>(into: &mut Vec<E>, from: &[E]) {
    for other in from {
        match into.iter_mut().find(|known| known.key() == other.key()) {
            Some(known) => known.merge(other),
            None => into.push(other.clone()),
        }
    }
}

/// A window.
struct Window<E> {
    /// Its number, counted from time 0.
    number: u64,
    /// By set. A place that is not used keeps its memory.
    places: Vec<(bool, E)>,
}

/// Two windows of entries: the one that is being filled, and the last complete one.
pub(crate) struct Windows<E> {
    length: Nanos,
    filling: Window<E>,
    finished: Window<E>,
}

impl<E: Known> Windows<E> {
    /// Empty windows of this length. `nobody` is the key of unused places.
    pub(crate) fn new(length: Nanos, nobody: E::Key) -> Self {
        let unused = || (false, E::of(nobody, Trips::default()));
        let window = || Window {
            number: 0,
            places: std::iter::repeat_with(unused).take(SETS * WAYS).collect(),
        };
        Self { length, filling: window(), finished: window() }
    }

    /// The entry of `key` at `now`, to add to.
    pub(crate) fn of(&mut self, key: E::Key, now: Nanos) -> &mut E {
        let number = now.0 / self.length.0;
        if number != self.filling.number {
            std::mem::swap(&mut self.filling, &mut self.finished);
            self.filling.number = number;
            self.filling.places.iter_mut().for_each(|(is_used, _)| *is_used = false);
        }
        let set = set(E::bits(key)) * WAYS;
        let places = &mut self.filling.places[set..set + WAYS];
        let known = places.iter().position(|(is_used, one)| *is_used && one.key() == key);
        let at = known.unwrap_or_else(|| {
            let weight = |(is_used, one): &(bool, E)| if *is_used { one.weight() + 1 } else { 0 };
            let lightest = (0..WAYS).min_by_key(|at| weight(&places[*at])).unwrap_or(0);
            let trips = std::mem::take(places[lightest].1.trips_mut());
            places[lightest] = (true, E::of(key, trips.cleared()));
            lightest
        });
        &mut places[at].1
    }

    /// The entries of the last window that is complete at `now`. Allocates.
    pub(crate) fn complete(&self, now: Nanos) -> Vec<E> {
        let last = (now.0 / self.length.0).checked_sub(1);
        let window = [&self.filling, &self.finished];
        let window = window.into_iter().find(|window| Some(window.number) == last);
        let used = window.into_iter().flat_map(|window| &window.places);
        used.filter(|(is_used, _)| *is_used).map(|(_, one)| one.clone()).collect()
    }
}

fn set(bits: u64) -> usize {
    (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % SETS
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::known::Host;
    use crate::losses::Losses;
    use std::net::IpAddr;

    const WINDOW: Nanos = Nanos::from_secs(3);

    fn host(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    fn hosts() -> Windows<Host> {
        Windows::new(WINDOW, host(0))
    }

    #[test]
    fn a_window_is_reported_once_complete_and_not_for_long() {
        let mut hosts = hosts();
        hosts.of(host(1), WINDOW).to.segments += 5;
        hosts.of(host(1), WINDOW + Nanos(7)).trips.record(Nanos(1_000_000));
        assert!(hosts.complete(WINDOW).is_empty(), "it goes on");
        let complete = hosts.complete(WINDOW + WINDOW);
        assert_eq!(complete.len(), 1);
        assert_eq!((complete[0].address, complete[0].to.segments), (host(1), 5));
        assert!(hosts.complete(WINDOW + WINDOW + WINDOW).is_empty(), "that is long ago");
        assert!(hosts.of(host(1), WINDOW + WINDOW).trips.is_empty(), "a new one is empty");
        hosts.of(host(1), WINDOW + WINDOW + WINDOW);
        assert_eq!(hosts.of(host(1), WINDOW + WINDOW + WINDOW).to, Losses::default());
    }

    #[test]
    fn entries_with_much_data_stay() {
        let mut hosts = hosts();
        for heavy in 0..20 {
            hosts.of(host(heavy), WINDOW).to.segments += 1000;
        }
        for light in 100..5_000 {
            hosts.of(host(light), WINDOW).to.segments += 1;
        }
        let complete = hosts.complete(WINDOW + WINDOW);
        assert!(complete.len() <= SETS * WAYS);
        let heavy = complete.iter().filter(|host| host.to.segments == 1000).count();
        assert!(heavy >= 19, "{heavy}");
    }
}
