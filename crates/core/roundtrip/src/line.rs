//! The single round trips beyond a port, for the controller that follows the rate of the line.
//!
//! *Idea.* A controller that sets a rate several times a second needs trips of the last moment, one
//! by one and with their hosts, not distributions over seconds. While somebody watches, all queues
//! write them into one ring, and the watcher takes them out.
//!
//! *Memory ordering.* A place is one word, so it is never seen half-written. A writer counts
//! itself in and then writes; a reader that comes in between finds 0 and misses that trip. A reader
//! that is too slow misses what was overwritten. Both are sampling.

use crate::sync::{AtomicU64, Ordering};
use narrows_units::Nanos;

/// Trips between two looks of the watcher. Only one under the model checker.
const PLACES: usize = if cfg!(loom) { 1 } else { 1024 };
/// A trip is in microseconds below these bits, its connection above, and its host above that.
const TIME_BITS: u32 = 24;
const CONNECTION_BITS: u32 = 16;

/// A single round trip beyond a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trip {
    /// A hash of the host beyond.
    pub host: u64,
    /// A hash of the connection.
    pub connection: u32,
    /// How long it took, to the microsecond, and at least one.
    pub time: Nanos,
}

impl Trip {
    /// The trip in a word of a ring; none in an empty one.
    fn of(word: u64) -> Option<Self> {
        let time = Nanos::from_micros(word & ((1 << TIME_BITS) - 1));
        let connection = (word >> TIME_BITS & ((1 << CONNECTION_BITS) - 1)) as u32;
        let host = word >> (TIME_BITS + CONNECTION_BITS);
        (word != 0).then_some(Self { host, connection, time })
    }
}

/// Takes the trips that were written into a ring of `places` since the last call, the oldest first;
/// of more than it has room for, the newest. `next` counts the trips that were written, and `read`
/// is this reader's. A word has a trip's time in microseconds in its lowest 24 bits, a hash of the
/// connection in 16 above, and a hash of the host above those.
pub fn take_trips(next: &AtomicU64, read: &AtomicU64, places: &[AtomicU64]) -> Vec<Trip> {
    let next = next.load(Ordering::Relaxed);
    let read = read.swap(next, Ordering::Relaxed);
    let new = next.wrapping_sub(read).min(places.len() as u64);
    let words = (next.wrapping_sub(new)..next).map(|at| at as usize % places.len());
    let words = words.map(|at| places[at].swap(0, Ordering::Relaxed));
    words.filter_map(Trip::of).collect()
}

/// What a watcher takes: the trips and the fate of segments since it last looked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// The oldest first.
    pub trips: Vec<Trip>,
    /// Segments that left.
    pub segments: u64,
    /// Those of them that were lost beyond the port.
    pub lost: u64,
}

/// The trips of a port.
pub(crate) struct Line {
    is_watched: AtomicU64,
    next: AtomicU64,
    read: AtomicU64,
    places: Box<[AtomicU64]>,
    segments: AtomicU64,
    lost: AtomicU64,
}

impl Line {
    pub(crate) fn new() -> Self {
        Self {
            is_watched: AtomicU64::new(0),
            next: AtomicU64::new(0),
            read: AtomicU64::new(0),
            places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
            segments: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Whether anybody watches.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn watch(&self, is_watched: bool) {
        self.is_watched.store(u64::from(is_watched), Ordering::Relaxed);
    }

    /// Records a trip of a connection to a host, with these hashes.
    pub(crate) fn record(&self, host: u64, connection: u64, trip: Nanos) {
        // All bits of the hashes count.
        let mixed = |hash: u64| hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let host = mixed(host) >> (TIME_BITS + CONNECTION_BITS);
        let connection = mixed(connection) >> (u64::BITS - CONNECTION_BITS);
        let who = host << CONNECTION_BITS | connection;
        let micros = (trip.0 / 1_000).clamp(1, (1 << TIME_BITS) - 1);
        let at = self.next.fetch_add(1, Ordering::Relaxed) as usize % PLACES;
        self.places[at].store(who << TIME_BITS | micros, Ordering::Relaxed);
    }

    /// Counts segments that left, and those of them that were lost beyond.
    pub(crate) fn count(&self, segments: u64, lost: u64) {
        self.segments.fetch_add(segments, Ordering::Relaxed);
        self.lost.fetch_add(lost, Ordering::Relaxed);
    }

    /// What has come since the last call. For one watcher.
    pub(crate) fn take(&self) -> Seen {
        Seen {
            trips: take_trips(&self.next, &self.read, &self.places),
            segments: self.segments.swap(0, Ordering::Relaxed),
            lost: self.lost.swap(0, Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn trips_are_taken_once_in_order_and_hosts_are_told_apart() {
        let line = Line::new();
        let ms = Nanos::from_millis;
        for (host, connection, time) in [(1, 7, 20), (2, 8, 90), (1, 9, 21)] {
            line.record(host, connection, ms(time));
        }
        line.count(10, 1);
        let Seen { trips, segments, lost } = line.take();
        assert_eq!([trips[0].time, trips[1].time, trips[2].time], [20, 90, 21].map(ms));
        assert!(trips[0].host == trips[2].host && trips[0].host != trips[1].host);
        assert!(trips[0].connection != trips[2].connection, "connections to a host are told apart");
        assert_eq!((segments, lost), (10, 1));
        assert_eq!(line.take(), Seen::default());
    }

    #[test]
    fn who_looks_too_late_gets_the_newest() {
        let line = Line::new();
        for micros in 1..=3 * PLACES as u64 {
            line.record(7, 7, Nanos::from_micros(micros));
        }
        let trips = line.take().trips;
        assert_eq!(trips.len(), PLACES);
        assert_eq!(trips.last().map(|it| it.time), Some(Nanos::from_micros(3 * PLACES as u64)));
    }
}
