//! The base of each path, and by how much a trip exceeds it.
//!
//! A base is the minimum of a sliding window in two halves, so that it follows a path that became
//! longer after [`WINDOW`] at the latest, at the cost of two words a path. A path without trips
//! for that long is forgotten, and a new one takes the place of the one that was silent longest.

use narrows_units::Nanos;
use std::collections::HashMap;

/// Paths that are known at a time.
pub const PATHS: usize = 256;
/// How long a minimum counts at least; at most twice as long.
const WINDOW: Nanos = Nanos::from_secs(15);
/// A connection that made a trip in this time is active.
const ACTIVE: Nanos = Nanos::from_secs(1);
/// A path that is known for less may have been new in a queue: others count more.
const SETTLED: Nanos = Nanos::from_secs(2);

/// A round trip, or another delay with a constant part, beyond the port of the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trip {
    /// Which trips are comparable: the peer, as a hash of its address.
    pub path: u64,
    /// The connection, as a hash.
    pub flow: u32,
    /// How long it took.
    pub time: Nanos,
}

/// A path's minima.
#[derive(Clone, Copy, Debug)]
struct Path {
    since: Nanos,
    /// It came after the last move: its minima have it in them.
    is_moved: bool,
    seen: Nanos,
    /// When the present half of the window began.
    began: Nanos,
    /// The minimum of the half before, and of this one.
    halves: [Nanos; 2],
    /// The shortest of this turn, and the newest.
    turn: Option<(Nanos, Nanos)>,
}

impl Path {
    fn base(&self) -> Nanos {
        self.halves[0].min(self.halves[1])
    }

    fn record(&mut self, time: Nanos, now: Nanos) {
        if now.since(self.began) >= WINDOW {
            self.halves = [self.halves[1], time];
            self.began = now;
        }
        self.halves[1] = self.halves[1].min(time);
        self.turn = Some((self.turn.map_or(time, |(shortest, _)| shortest.min(time)), time));
        self.seen = now;
    }
}

/// The excess of a turn.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Excess {
    /// The lower quartile over paths of each one's shortest trip above its base, in seconds.
    pub(crate) seconds: f64,
    /// The same of each one's newest trip.
    pub(crate) newest: f64,
    /// How many trips it is of.
    pub(crate) trips: usize,
    /// The shortest base of these paths, in seconds.
    pub(crate) base: f64,
}

impl Excess {
    /// This excess if all trips are longer by `wait` seconds for another reason.
    pub(crate) fn without(self, wait: f64) -> Self {
        let less = |of: f64| (of - wait).max(0.0);
        Self { seconds: less(self.seconds), newest: less(self.newest), ..self }
    }

    /// This excess, but no less than `least` seconds, which the newest trips say.
    pub(crate) fn at_least(self, least: f64) -> Self {
        Self { seconds: self.seconds.max(least), newest: self.newest.max(least), ..self }
    }
}

/// The bases of all paths beyond a port.
#[derive(Clone, Debug, Default)]
pub struct Baselines {
    paths: HashMap<u64, Path>,
    /// Connections, and when each made a trip last.
    flows: HashMap<u32, Nanos>,
    /// How much longer than their minima say all paths are that have not moved.
    moved: Nanos,
}

impl Baselines {
    /// Takes the trips of a turn that ends at `now`. Returns their excess, if there are any.
    pub fn turn(&mut self, trips: &[Trip], now: Nanos) -> Option<Excess> {
        self.paths.retain(|_, path| now.since(path.seen) < WINDOW);
        for path in self.paths.values_mut() {
            path.turn = None;
        }
        self.flows.retain(|_, seen| now.since(*seen) < ACTIVE);
        for &Trip { path, flow, time } in trips {
            if self.flows.len() < PATHS {
                self.flows.insert(flow, now);
            }
            self.make_room(path);
            let new = Path {
                since: now,
                is_moved: true,
                seen: now,
                began: now,
                halves: [time; 2],
                turn: None,
            };
            let path = self.paths.entry(path).or_insert(new);
            path.record(time, now);
            if !path.is_moved {
                // A trip as short as before says that nothing, or less, has moved.
                self.moved = self.moved.min(time - path.base());
            }
        }
        let of_turn = |is_settled: bool| -> Vec<(&Path, Nanos, Nanos)> {
            let paths = self.paths.values();
            let paths = paths.filter(|path| (now.since(path.since) >= SETTLED) == is_settled);
            paths.filter_map(|path| path.turn.map(|(least, last)| (path, least, last))).collect()
        };
        let settled = of_turn(true);
        let paths = if settled.is_empty() { of_turn(false) } else { settled };
        let above = |path: &Path, time: Nanos| (time - self.base(path)).as_secs_f64();
        Some(Excess {
            seconds: quartile(paths.iter().map(|(path, least, _)| above(path, *least)))?,
            newest: quartile(paths.iter().map(|(path, _, last)| above(path, *last)))?,
            trips: trips.len(),
            base: paths.iter().map(|(path, ..)| path.base()).min()?.as_secs_f64(),
        })
    }

    /// `trip` as it is at least, if its acknowledgement may have waited for `wait`: nothing if it
    /// then says nothing.
    pub(crate) fn shortened(&self, trip: &Trip, wait: Nanos) -> Option<Trip> {
        let base = self.base(self.paths.get(&trip.path)?);
        let time = trip.time - wait;
        (time > base).then_some(Trip { time, ..*trip })
    }

    /// How many connections made trips in the last second, as far as they are counted.
    pub(crate) fn flows(&self) -> usize {
        self.flows.len()
    }

    /// The least excess of the last `count` of `trips` whose paths are settled, in seconds, if
    /// there are so many. Takes nothing.
    pub(crate) fn newest(&self, trips: &[Trip], count: usize, now: Nanos) -> Option<f64> {
        let above = trips.iter().rev().filter_map(|trip| {
            let path = self.paths.get(&trip.path)?;
            let is_settled = now.since(path.since) >= SETTLED;
            is_settled.then(|| (trip.time - self.base(path)).as_secs_f64())
        });
        let last: Vec<f64> = above.take(count).collect();
        (last.len() == count).then(|| last.into_iter().fold(f64::INFINITY, f64::min))
    }

    /// The base of `path`, as far as it has moved.
    fn base(&self, path: &Path) -> Nanos {
        path.base() + if path.is_moved { Nanos::ZERO } else { self.moved }
    }

    /// All paths have become longer by `by`, until a trip says otherwise.
    pub(crate) fn moved(&mut self, by: Nanos) {
        for path in self.paths.values_mut() {
            let now = if path.is_moved { Nanos::ZERO } else { self.moved };
            path.halves = path.halves.map(|half| half + now);
            path.is_moved = false;
        }
        self.moved = by;
    }

    /// Forgets the path that was silent longest, if `path` is new and there are too many.
    fn make_room(&mut self, path: u64) {
        if self.paths.len() < PATHS || self.paths.contains_key(&path) {
            return;
        }
        let oldest = self.paths.iter().min_by_key(|(key, path)| (path.seen, **key));
        if let Some(key) = oldest.map(|(key, _)| *key) {
            self.paths.remove(&key);
        }
    }
}

/// What at least three quarters reach: an acknowledgement may wait for the next segment of its
/// connection, which makes a trip longer and never shorter.
fn quartile(of: impl Iterator<Item = f64>) -> Option<f64> {
    let mut all: Vec<f64> = of.collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len().checked_sub(1)? / 4).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    fn trip(path: u64, time: u64) -> Trip {
        Trip { path, flow: 0, time: ms(time) }
    }

    #[test]
    fn the_excess_is_what_exceeds_the_shortest_trip_of_the_path() {
        let mut baselines = Baselines::default();
        baselines.turn(&[trip(1, 20), trip(2, 80)], ms(50));
        let excess = baselines.turn(&[trip(1, 35), trip(1, 33), trip(2, 95)], ms(100)).unwrap();
        assert!((excess.seconds - 0.013).abs() < 1e-9, "{excess:?}");
        assert_eq!((excess.trips, excess.base), (3, 0.02));
    }

    #[test]
    fn a_path_that_became_longer_has_a_new_base_within_two_windows() {
        let mut baselines = Baselines::default();
        baselines.turn(&[trip(1, 20)], ms(0));
        let mut last = None;
        for turn in 1..=2 * WINDOW.0 / 50_000_000 + 1 {
            last = baselines.turn(&[trip(1, 60)], ms(50 * turn));
        }
        assert_eq!(last.map(|excess| excess.seconds), Some(0.0));
    }

    #[test]
    fn a_path_that_is_new_in_a_queue_does_not_hide_it() {
        let mut baselines = Baselines::default();
        for turn in 0..60 {
            baselines.turn(&[trip(1, 20)], ms(50 * turn));
        }
        let excess = baselines.turn(&[trip(1, 70), trip(2, 90), trip(3, 95)], ms(3_000));
        assert_eq!(excess.map(|excess| excess.seconds), Some(0.05));
    }

    #[test]
    fn no_more_paths_are_kept_than_there_is_room_for() {
        let mut baselines = Baselines::default();
        for path in 0..10 * PATHS as u64 {
            baselines.turn(&[trip(path, 20)], ms(path));
            assert!(baselines.paths.len() <= PATHS);
        }
    }

    #[test]
    fn paths_that_moved_have_no_excess_until_one_of_them_moves_back() {
        let mut baselines = Baselines::default();
        let seconds = |excess: Option<Excess>| excess.map(|excess| excess.seconds);
        for turn in 0..60 {
            baselines.turn(&[trip(1, 20), trip(2, 30)], ms(50 * turn));
        }
        baselines.moved(ms(40));
        let excess = baselines.turn(&[trip(1, 60), trip(2, 70), trip(3, 90)], ms(3_000));
        assert_eq!(seconds(excess), Some(0.0));
        // The first one tells for the other.
        baselines.turn(&[trip(1, 20)], ms(3_050));
        assert_eq!(seconds(baselines.turn(&[trip(2, 70)], ms(3_100))), Some(0.04));
    }

    #[test]
    fn a_turn_without_trips_has_no_excess() {
        assert_eq!(Baselines::default().turn(&[], ms(50)), None);
    }
}
