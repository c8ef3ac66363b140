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
use narrows_roundtrip::{Trip, take_trips};
use std::sync::atomic::AtomicU64;

/// Trips between two looks (`TRIPS_MAX`).
const TRIPS: usize = 512;
/// Where they begin in `struct line`, in words.
const FIRST: usize = 8;
/// Segments that are timed (`AWAITED_MAX`), and the words of each.
const AWAITED: usize = 2048;
const AWAITED_WORDS: usize = 3;
/// `struct line`, in words.
const WORDS: usize = FIRST + TRIPS + AWAITED * AWAITED_WORDS;

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
    pub fn take(&self) -> Vec<Trip> {
        take_trips(&self.words[0], &self.read, &self.words[FIRST..FIRST + TRIPS])
    }
}
