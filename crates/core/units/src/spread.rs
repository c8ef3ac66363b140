//! A compact histogram of times.
//!
//! *Idea.* Buckets grow with the times that they count, four to each power of two, so each time is
//! known to within 12.5 %, whether it is microseconds or seconds. The first bucket takes all times
//! below [`Spread::SHORTEST`], the last one all that exceed the others.
//!
//! *Memory.* A table of 396 bytes, and none as long as all times fall into one bucket: among many
//! classes few have sent. Counts are 32 bits wide. A count that overflows carries into a second
//! table, which is allocated at the first overflow.
//!
//! *Repeated times.* The last bucket is counted beside the table: a time in the same bucket as the
//! one before it does not touch the table, which may be out of the cache.
//!
//! Cost: an index from the position of the highest bit, and one or two words incremented.
//!
//! *Non-goals.* Exact extremes; times within 1 % (`narrows-shaper` has such a histogram for each
//! port).

use crate::Nanos;

/// Four buckets to a power of two.
const STEP_BITS: u32 = 2;
/// Times below two to this power of nanoseconds go into the first bucket.
const SHORTEST_BITS: u32 = 10;
/// Times from two to this power of nanoseconds go into the last one: 17 s.
const LONGEST_BITS: u32 = 34;
/// The number of buckets.
const SIZE: usize = (((LONGEST_BITS - SHORTEST_BITS) << STEP_BITS) + 1) as usize;
/// The difference between a bucket's number and the leading bits of its times.
const FIRST: u64 = ((SHORTEST_BITS as u64) << STEP_BITS) - 1;

/// A histogram of times in buckets that are known to within 12.5 %. Empty, it takes no table.
#[derive(Clone, Debug, Default)]
pub struct Spread {
    table: Option<Box<Table>>,
    /// Times of the bucket that was counted last which are not in the table,
    recent: u32,
    /// and which bucket that is.
    bucket: u8,
}

#[derive(Clone, Debug)]
struct Table {
    counts: [u32; SIZE],
    /// How often each count has overflowed.
    carries: Option<Box<[u32; SIZE]>>,
}

/// Equal if every bucket has the same count.
impl PartialEq for Spread {
    fn eq(&self, other: &Self) -> bool {
        self.counts().eq(other.counts())
    }
}

impl Eq for Spread {}

impl Spread {
    /// Shorter times are not distinguished.
    pub const SHORTEST: Nanos = Nanos(1 << SHORTEST_BITS);

    /// Counts `time`.
    #[inline(always)]
    pub fn record(&mut self, time: Nanos) {
        self.add(bucket(time), 1);
    }

    /// Counts `time` that many times.
    #[inline]
    pub fn record_times(&mut self, time: Nanos, times: u32) {
        self.add(bucket(time), times);
    }

    #[inline(always)]
    fn add(&mut self, bucket: usize, times: u32) {
        if usize::from(self.bucket) == bucket
            && let Some(recent) = self.recent.checked_add(times)
        {
            self.recent = recent;
            return;
        }
        self.settle();
        (self.bucket, self.recent) = (bucket as u8, times);
    }

    /// Adds the pending times to the table.
    #[inline]
    fn settle(&mut self) {
        let (bucket, times) = (usize::from(self.bucket), std::mem::take(&mut self.recent));
        if times > 0 {
            self.table.get_or_insert_with(Table::new).add(bucket, times);
        }
    }

    /// Adds what `other` counted.
    pub fn merge(&mut self, other: &Self) {
        if let Some(other) = &other.table {
            self.table.get_or_insert_with(Table::new).merge(other);
        }
        if other.recent > 0 {
            self.add(usize::from(other.bucket), other.recent);
        }
    }

    /// Resets the counts and keeps the memory.
    pub fn clear(&mut self) {
        self.recent = 0;
        if let Some(table) = &mut self.table {
            table.counts.fill(0);
            table.carries = None;
        }
    }

    /// Whether no time was counted.
    pub fn is_empty(&self) -> bool {
        self.counts().next().is_none()
    }

    /// The middle of each bucket that is not empty, in ascending order, with its count.
    pub fn counts(&self) -> impl Iterator<Item = (Nanos, u64)> {
        let in_table = |at: usize| self.table.as_ref().map_or(0, |table| table.count(at));
        let recent = |at: usize| if at == usize::from(self.bucket) { self.recent } else { 0 };
        let counts = (0..SIZE).map(move |at| (at, in_table(at) + u64::from(recent(at))));
        counts.filter(|(_, count)| *count > 0).map(|(at, count)| (middle(at), count))
    }

    /// The quantile `of`, to within 12.5 %. `None` if there are no times.
    pub fn quantile(&self, of: f64) -> Option<Nanos> {
        let all: u64 = self.counts().map(|(_, count)| count).sum();
        let wanted = (all as f64 * of).ceil() as u64;
        let mut seen = 0;
        let mut counts = self.counts();
        let reached = counts.find(|(_, count)| {
            seen += count;
            seen >= wanted
        });
        reached.map(|(time, _)| time).or_else(|| self.counts().last().map(|(time, _)| time))
    }
}

impl Table {
    #[cold]
    fn new() -> Box<Self> {
        Box::new(Self { counts: [0; SIZE], carries: None })
    }

    #[inline]
    fn add(&mut self, bucket: usize, times: u32) {
        let (count, carries) = self.counts[bucket].overflowing_add(times);
        self.counts[bucket] = count;
        if carries {
            self.carry(bucket, 1);
        }
    }

    #[cold]
    fn carry(&mut self, bucket: usize, times: u32) {
        let carries = self.carries.get_or_insert_with(|| Box::new([0; SIZE]));
        carries[bucket] = carries[bucket].saturating_add(times);
    }

    fn merge(&mut self, other: &Self) {
        (0..).zip(&other.counts).for_each(|(bucket, times)| self.add(bucket, *times));
        if let Some(carries) = &other.carries {
            let carried = (0..).zip(carries.iter()).filter(|(_, times)| **times > 0);
            carried.for_each(|(bucket, times)| self.carry(bucket, *times));
        }
    }

    fn count(&self, bucket: usize) -> u64 {
        let carried = self.carries.as_ref().map_or(0, |carries| u64::from(carries[bucket]));
        carried << 32 | u64::from(self.counts[bucket])
    }
}

/// The index of the bucket for `time`: the exponent of its floating-point form, then the leading
/// bits of the fraction. Rounding can move a time to the next bucket if it is within a millionth of
/// it.
#[inline(always)]
fn bucket(Nanos(time): Nanos) -> usize {
    const BIAS: u32 = (f32::MAX_EXP as u32 - 1) << STEP_BITS;
    // A time beyond half the range turns negative, and then exceeds every bucket.
    let number = (time.cast_signed() as f32).to_bits() >> (f32::MANTISSA_DIGITS - 1 - STEP_BITS);
    let number = number.wrapping_sub(BIAS + FIRST as u32) as usize;
    // One comparison for all but the ends.
    match number {
        0..SIZE => number,
        _ if time < Spread::SHORTEST.0 => 0,
        _ => SIZE - 1,
    }
}

/// The middle of a bucket.
fn middle(number: usize) -> Nanos {
    if number == 0 {
        return Nanos(Spread::SHORTEST.0 / 2);
    }
    let number = number as u64 + FIRST;
    let (power, leading) = (number >> STEP_BITS, number & ((1 << STEP_BITS) - 1));
    let width = 1 << (power - u64::from(STEP_BITS));
    Nanos(((1 << STEP_BITS) + leading) * width + width / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spread(times: &[u64]) -> Spread {
        let mut spread = Spread::default();
        times.iter().for_each(|time| spread.record(Nanos(*time)));
        spread
    }

    #[test]
    fn nothing_takes_memory_while_all_times_are_alike() {
        let mut spread = Spread::default();
        assert!(spread.is_empty() && spread.table.is_none());
        assert_eq!(spread.quantile(0.5), None);
        spread.record(Nanos(5_000));
        spread.record(Nanos(5_001));
        assert!(!spread.is_empty() && spread.table.is_none());
        let before = spread.clone();
        spread.record(Nanos(50_000));
        assert!(spread.table.is_some() && spread != before);
        spread.record(Nanos(5_000));
        let counts: Vec<_> = spread.counts().map(|(_, count)| count).collect();
        assert_eq!(counts, [3, 1]);
    }

    #[test]
    fn the_shortest_and_the_longest_times_are_counted_at_the_ends() {
        let ends = spread(&[0, 1, 1_023, u64::MAX, 1 << 40]);
        assert_eq!(ends.counts().map(|(_, count)| count).collect::<Vec<_>>(), [3, 2]);
        assert_eq!(ends.counts().next().unwrap().0, Nanos(512));
    }

    #[test]
    fn a_count_that_overflows_goes_on() {
        let mut spread = spread(&[7_000]);
        spread.record_times(Nanos(7_000), u32::MAX);
        spread.record_times(Nanos(7_000), u32::MAX);
        let all = 1 + 2 * u64::from(u32::MAX);
        assert_eq!(spread.counts().map(|(_, count)| count).collect::<Vec<_>>(), [all]);
        let mut both = spread.clone();
        both.merge(&spread);
        assert_eq!(both.counts().map(|(_, count)| count).sum::<u64>(), 2 * all);
        both.clear();
        assert!(both.is_empty());
    }

    proptest! {
        /// The oracle sorts all times.
        #[test]
        fn quantiles_are_within_an_eighth(
            times in prop::collection::vec((0_u32..34).prop_flat_map(|bits| 0_u64..1 << bits), 1..300),
            of in 0.0..1.0_f64,
            split: prop::sample::Index,
        ) {
            let (one, other) = times.split_at(split.index(times.len()));
            let mut all = spread(one);
            all.merge(&spread(other));
            let mut sorted = times.clone();
            sorted.sort_unstable();
            let rank = (times.len() as f64 * of).ceil() as usize;
            let is = sorted[rank.saturating_sub(1)];
            let quantile = all.quantile(of).unwrap().0;
            let off = quantile.abs_diff(is) as f64;
            prop_assert!(off <= is as f64 / 8.0 || is < Spread::SHORTEST.0, "{quantile} for {is}");
            prop_assert_eq!(all.counts().map(|(_, count)| count).sum::<u64>(), times.len() as u64);
        }
    }
}
