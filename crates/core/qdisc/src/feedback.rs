//! Congestion feedback from destinations: a board of words that all queues of a port read and
//! write.
//!
//! A receiver's feedback arrives on whichever queue the network card chooses, not necessarily the
//! one that sends the data. So the queue that receives it writes it where the sending queue looks:
//! a few words for each bucket of destinations. The qdisc defines their meaning
//! (`pacing/safeguard.rs`); here they are numbers that are read and replaced whole. The
//! `coordination` layer implements a port's board; a queue without coordination has an [`Alone`].
//!
//! All of it is a hint that may be slightly old, and expires: nothing has to be revoked when a
//! queue goes.

use std::cell::Cell;

/// Buckets for destinations. Two destinations in one bucket are one.
pub const DESTINATIONS: usize = 512;

/// A word of a bucket; an empty one is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Word {
    /// The greatest time stamp that has left, and when.
    Newest,
    /// The time stamp that is expected back, and when it left.
    UnderWay,
    /// The shortest round trip, and when it was seen.
    Shortest,
    /// Until when the path there is congested, and how long that lasts.
    Congestion,
}

impl Word {
    /// How many a bucket has.
    pub const COUNT: usize = 4;
}

/// One queue's view of the board. `bucket` is below [`DESTINATIONS`]; implementations may panic if
/// it is not.
pub trait Feedback: Send {
    /// The value of `word` of `bucket`.
    fn read(&self, bucket: usize, word: Word) -> u64;

    /// Writes `new` if the value is still `old`. Returns whether it was; if not, another queue was
    /// first.
    fn replace(&self, bucket: usize, word: Word, old: u64, new: u64) -> bool;

    /// The largest number that any queue has raised. Cheap as long as it does not change.
    fn greatest(&self) -> u64;

    /// Raises the largest number to `number` if it is less.
    fn raise(&self, number: u64);
}

/// The board of a queue without coordination.
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

impl Feedback for Alone {
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
