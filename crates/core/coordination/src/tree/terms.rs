//! A class's rate, ceiling and bursts, as every queue reads them.
//!
//! A change stores one figure after the other. A queue that reads in between uses, for one
//! purchase, a new rate with an old burst. The operator asked for both, a moment apart.
//!
//! Memory ordering: relaxed. Each figure is valid by itself.

use super::node::Limit;
use crate::byte_time::ByteTime;
use crate::ledger::Ledger;
use crate::sync::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use narrows_qdisc::htb::{Class, PRIORITIES};
use narrows_units::{Bytes, Nanos, Rate};

/// No bucket is smaller than this time at its rate, so a queue that wakes up slightly late loses
/// nothing.
pub(super) const LEAST_TIME: Nanos = Nanos::from_micros(250);

/// Nor smaller than this many full frames: the one that leaves, and cushions.
pub(super) const LEAST_FRAMES: u64 = 4;

/// No purchase takes more than this part of a bucket at once, so that there is something left for
/// others; but a packet may.
const MOST_PART: u64 = 4;

/// A class that has many packets waits until it has credit for several: for as much as it earns in
/// this time, and no more than this part of its bucket;
const BATCH_TIME: Nanos = Nanos::from_micros(50);
const BATCH_PART: u64 = 8;

/// or for this many full frames, if it earns them within [`LEAST_TIME`] and if they are no more
/// than [a part](MOST_PART) of its bucket.
const BATCH_FRAMES: u64 = 3;

/// The unit of such a batch, in bytes.
const BATCH_UNIT: u64 = 64;

/// A full frame.
pub(super) const FRAME: Bytes = Bytes(1514);

/// A bucket: how fast it fills, and how much it holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) pace: ByteTime,
    pub(super) depth: Nanos,
}

impl Bucket {
    fn of(rate: Rate, burst: Bytes) -> Self {
        let pace = ByteTime::of(rate);
        let frames = Bytes(LEAST_FRAMES * FRAME.0);
        let depth = pace.span(0, burst.max(frames)).max(LEAST_TIME);
        Self { pace, depth }
    }

    /// Whether it has credit for whatever `other` has sold, if both began full.
    #[inline]
    pub(super) fn covers(self, other: Self) -> bool {
        self.pace.is_no_slower(other.pace) && self.depth >= other.depth
    }

    /// For how much a lender waits at most if several classes wait for it: as much as it earns
    /// within [`LEAST_TIME`], and no more than [a part](BATCH_PART) of its bucket.
    #[inline]
    pub(super) fn batch_of_several(self) -> Bytes {
        self.pace.bytes(LEAST_TIME.min(Nanos(self.depth.0 / BATCH_PART)))
    }

    /// When `ledger`, of which this is the bucket, has `bytes`, which follow `before` others.
    #[inline]
    pub(super) fn due(self, ledger: &Ledger, before: u64, bytes: Bytes, now: Nanos) -> Nanos {
        ledger.due(self.pace.span(before, bytes).min(self.depth), self.depth, now)
    }
}

#[derive(Default)]
struct Shape {
    pace: AtomicU64,
    depth: AtomicU64,
}

impl Shape {
    fn set(&self, bucket: Bucket) {
        self.pace.store(bucket.pace.word(), Ordering::Relaxed);
        self.depth.store(bucket.depth.0, Ordering::Relaxed);
    }

    #[inline]
    fn get(&self) -> Bucket {
        Bucket {
            pace: ByteTime::of_word(self.pace.load(Ordering::Relaxed)),
            depth: Nanos(self.depth.load(Ordering::Relaxed)),
        }
    }
}

/// The rate and the ceiling of a class.
#[derive(Default)]
pub(super) struct Terms {
    rate: Shape,
    ceil: Shape,
}

impl Terms {
    pub(super) fn new(class: &Class) -> Self {
        let terms = Self::default();
        terms.set(class);
        terms
    }

    pub(super) fn set(&self, class: &Class) {
        self.rate.set(Bucket::of(class.rate, class.burst));
        self.ceil.set(Bucket::of(class.ceil.max(class.rate), class.cburst));
    }

    #[inline]
    pub(super) fn rate(&self) -> Bucket {
        self.rate.get()
    }

    #[inline]
    pub(super) fn ceil(&self) -> Bucket {
        self.ceil.get()
    }
}

/// A number of bytes in [units](BATCH_UNIT).
fn units(bytes: u64) -> u16 {
    u16::try_from(bytes / BATCH_UNIT).unwrap_or(u16::MAX)
}

/// The most of a class that is bought at once, in [units](BATCH_UNIT).
#[derive(Default)]
pub(super) struct Most(AtomicU16);

impl Most {
    pub(super) fn new(class: &Class) -> Self {
        let most = Self::default();
        most.set(class);
        most
    }

    pub(super) fn set(&self, class: &Class) {
        let earned = class.ceil.bytes_per_sec() / (1_000_000_000 / LEAST_TIME.0);
        let most = class.cburst.0.max(LEAST_FRAMES * FRAME.0).max(earned) / MOST_PART;
        self.0.store(units(most), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn get(&self) -> Bytes {
        Bytes(u64::from(self.0.load(Ordering::Relaxed)) * BATCH_UNIT)
    }
}

/// When it is a class's turn.
#[derive(Default)]
pub(super) struct Portion {
    /// In bytes; the lowest bits are the priority.
    quantum_and_prio: AtomicU32,
}

impl Portion {
    pub(super) fn new(class: &Class) -> Self {
        let portion = Self::default();
        portion.set(class);
        portion
    }

    pub(super) fn set(&self, class: &Class) {
        let prio = u32::from(class.prio).min(PRIORITIES as u32 - 1);
        let quantum = class.quantum.clamp(1, u32::MAX >> 3);
        self.quantum_and_prio.store(quantum << 3 | prio, Ordering::Relaxed);
    }

    /// In bytes, at least one.
    #[inline]
    pub(super) fn quantum(&self) -> u32 {
        self.quantum_and_prio.load(Ordering::Relaxed) >> 3
    }

    /// Below [`PRIORITIES`].
    #[inline]
    pub(super) fn prio(&self) -> usize {
        (self.quantum_and_prio.load(Ordering::Relaxed) & 7) as usize
    }
}

/// For how much a class waits at once if it has many packets: in [units](BATCH_UNIT), at the rate
/// in the lower half of the word, at the ceiling in the upper one.
#[derive(Default)]
pub(super) struct Batches(AtomicU32);

impl Batches {
    pub(super) fn new(class: &Class) -> Self {
        let new = Self::default();
        new.set(class);
        new
    }

    pub(super) fn set(&self, class: &Class) {
        let limits = [(class.rate, class.burst), (class.ceil.max(class.rate), class.cburst)];
        let batches = limits.map(|(rate, burst)| {
            let in_time = |time: Nanos| rate.bytes_per_sec() / (1_000_000_000 / time.0);
            let bucket = burst.0.max(LEAST_FRAMES * FRAME.0).max(in_time(LEAST_TIME));
            let frames = in_time(LEAST_TIME).min(BATCH_FRAMES * FRAME.0).min(bucket / MOST_PART);
            let bytes = in_time(BATCH_TIME).min(bucket / BATCH_PART).max(frames);
            u32::from(units(bytes))
        });
        self.0.store(batches[0] | batches[1] << 16, Ordering::Relaxed);
    }

    /// For how much of this limit.
    #[inline]
    pub(super) fn get(&self, limit: Limit) -> Bytes {
        let batches = self.0.load(Ordering::Relaxed);
        let units = match limit {
            Limit::Rate => batches & 0xffff,
            Limit::Ceil => batches >> 16,
        };
        Bytes(u64::from(units) * BATCH_UNIT)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn no_bucket_is_too_small_to_wake_up_for() {
        let bucket = |mbit: u64, burst| {
            Bucket::of(Rate::from_bits_per_sec(mbit * 1_000_000), Bytes(burst)).depth
        };
        assert_eq!(bucket(10_000, 1_600), LEAST_TIME);
        assert_eq!(bucket(8, 1_600), Nanos(4 * 1_514_000));
        assert_eq!(bucket(1_000, 1_250_000), Nanos::from_millis(10));
    }
}
