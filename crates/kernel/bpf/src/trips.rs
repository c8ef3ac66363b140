//! Round trips beyond a port whose line somebody follows: what programs of a port and user space
//! share (`programs/lines.h`, `programs/trips.h`).
//!
//! *Idea.* Programs time segments of TCP by their time stamps and write each trip into a ring, in
//! one word. User space takes the words out. A word is never seen half-written; a reader that is
//! too slow misses what was overwritten, which is sampling.
//!
//! Non-goals: what is made of trips; losses.

use crate::load::{LoadError, explained};
use crate::mapped::Mapped;
use libbpf_rs::MapHandle;
use narrows_units::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};

/// Trips between two looks (`TRIPS_MAX`).
const TRIPS: usize = 512;
/// Where they begin in `struct line`, in words.
const FIRST: usize = 8;
/// Segments that are timed (`AWAITED_MAX`), and the words of each.
const AWAITED: usize = 2048;
const AWAITED_WORDS: usize = 3;
/// `struct line`, in words.
const WORDS: usize = FIRST + TRIPS + AWAITED * AWAITED_WORDS;
/// A trip is in microseconds below these bits, its connection above, and its host above that.
const TIME_BITS: u32 = 24;
const CONNECTION_BITS: u32 = 16;

/// A round trip beyond a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimedTrip {
    /// A hash of the host beyond.
    pub host: u64,
    /// A hash of the connection.
    pub connection: u32,
    /// How long it took, to the microsecond, and at least one.
    pub time: Nanos,
}

impl TimedTrip {
    fn of(word: u64) -> Option<Self> {
        let time = Nanos::from_micros(word & ((1 << TIME_BITS) - 1));
        let connection = (word >> TIME_BITS & ((1 << CONNECTION_BITS) - 1)) as u32;
        let host = word >> (TIME_BITS + CONNECTION_BITS);
        (word != 0).then_some(Self { host, connection, time })
    }
}

/// The line beyond a port, as its programs see it. It is on 52 kB of memory of the kernel.
pub struct TripsBeyond {
    words: Mapped<AtomicU64>,
    read: AtomicU64,
}

impl TripsBeyond {
    /// One that no program knows yet.
    ///
    /// # Errors
    /// If the kernel has no memory for it, or lacks privileges.
    pub fn new() -> Result<Self, LoadError> {
        let words = explained(|| Mapped::of_one_value("line", WORDS))?;
        Ok(Self { words, read: AtomicU64::new(0) })
    }

    /// What programs write to.
    pub(crate) fn map(&self) -> &MapHandle {
        self.words.map()
    }

    /// The trips since the last call, the oldest first; no more than 512. For one reader.
    pub fn take(&self) -> Vec<TimedTrip> {
        let next = self.words[0].load(Ordering::Relaxed);
        let read = self.read.swap(next, Ordering::Relaxed);
        let new = next.wrapping_sub(read).min(TRIPS as u64);
        let places = (next.wrapping_sub(new)..next).map(|at| FIRST + at as usize % TRIPS);
        let words = places.map(|at| self.words[at].swap(0, Ordering::Relaxed));
        words.filter_map(TimedTrip::of).collect()
    }
}
