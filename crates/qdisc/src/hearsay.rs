//! What the queues of a port hear of destinations: a board of words that all of them read and
//! write.
//!
//! What a receiver says of the way to it comes in on whichever queue the network card has chosen,
//! which need not be the one that the data leaves by. So whoever hears something writes it down
//! where whoever sends looks: a few words for each bucket of destinations. What they mean is the
//! qdisc's (`pacing/safeguard.rs`); here they are numbers that are read and replaced whole. What
//! stands behind the board of a port is the `coordination` layer's; a queue by itself has an
//! [`Alone`].
//!
//! Everything on it is a hint that may be a little old, and is forgotten by its time: nothing has
//! to be taken back when a queue goes.

use std::cell::Cell;

/// Buckets for destinations. Two destinations in one bucket are one.
pub const DESTINATIONS: usize = 512;

/// A word of a bucket; none is as good as 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Word {
    /// The greatest time stamp that has left, and when.
    Newest,
    /// The time stamp that is expected back, and when it left.
    UnderWay,
    /// The shortest round trip, and when it was seen.
    Shortest,
    /// Until when the way there is congested, and how long that lasts.
    Congestion,
}

impl Word {
    /// How many a bucket has.
    pub const COUNT: usize = 4;
}

/// One queue's view of the board. `bucket` is below [`DESTINATIONS`]; implementations may panic
/// where it is not.
pub trait Hearsay: Send {
    /// What stands in `word` of `bucket`.
    fn read(&self, bucket: usize, word: Word) -> u64;

    /// Writes `new` where `old` still stands. Whether it did; else somebody else was first.
    fn replace(&self, bucket: usize, word: Word, old: u64, new: u64) -> bool;

    /// The greatest number that anybody has raised. Cheap as long as nobody raises another.
    fn greatest(&self) -> u64;

    /// Makes the greatest number `number` where it is less.
    fn raise(&self, number: u64);
}

/// The board of a queue by itself.
pub struct Alone {
    greatest: Cell<u64>,
    words: Box<[[Cell<u64>; Word::COUNT]]>,
}

impl Default for Alone {
    fn default() -> Self {
        let words = (0..DESTINATIONS).map(|_| Default::default()).collect();
        Self { greatest: Cell::new(0), words }
    }
}

impl Hearsay for Alone {
    fn read(&self, bucket: usize, word: Word) -> u64 {
        self.words[bucket][word as usize].get()
    }

    fn replace(&self, bucket: usize, word: Word, old: u64, new: u64) -> bool {
        let cell = &self.words[bucket][word as usize];
        let stands = cell.get() == old;
        if stands {
            cell.set(new);
        }
        stands
    }

    fn greatest(&self) -> u64 {
        self.greatest.get()
    }

    fn raise(&self, number: u64) {
        self.greatest.set(self.greatest.get().max(number));
    }
}
