//! The window of a given length with the most bytes.
//!
//! Bytes are counted in bins of a fiftieth of the length, and windows begin where bins do: the
//! fullest window with any beginning has at most one more bin, 2 % of a window. A window counts if
//! it is completely within the measured time.

use narrows_units::Nanos;
use std::ops::Range;

const BINS: usize = 50;

/// Looks for the fullest window.
pub(super) struct Fullest {
    bin: Nanos,
    /// When the present bin ends.
    bin_end: Nanos,
    end: Nanos,
    /// The bins of the present window, in a ring.
    bins: [u64; BINS],
    present: usize,
    /// Complete bins, as far as they matter.
    over: usize,
    sum: u64,
    most: u64,
}

impl Fullest {
    /// For windows of `length` in `measured`.
    pub(super) fn new(length: Nanos, measured: &Range<Nanos>) -> Self {
        let bin = Nanos((length.0 / BINS as u64).max(1));
        Self {
            bin,
            bin_end: measured.start + bin,
            end: measured.end,
            bins: [0; BINS],
            present: 0,
            over: 0,
            sum: 0,
            most: 0,
        }
    }

    /// Counts bytes that left at `at`, within the measured time and in order.
    #[inline]
    pub(super) fn left(&mut self, at: Nanos, len: u32) {
        while at >= self.bin_end {
            self.close_bin();
        }
        self.bins[self.present] += u64::from(len);
        self.sum += u64::from(len);
    }

    fn close_bin(&mut self) {
        self.over = (self.over + 1).min(BINS);
        if self.over == BINS {
            self.most = self.most.max(self.sum);
        }
        self.present = (self.present + 1) % BINS;
        self.sum -= std::mem::take(&mut self.bins[self.present]);
        self.bin_end += self.bin;
    }

    /// The bytes in the fullest window; `None` if none fits into the measured time.
    pub(super) fn finish(mut self) -> Option<u64> {
        while self.bin_end <= self.end {
            self.close_bin();
        }
        (self.over == BINS).then_some(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fullest(length: u64, end: u64, departures: &[(u64, u32)]) -> Option<u64> {
        let mut fullest = Fullest::new(Nanos(length), &(Nanos(1000)..Nanos(end)));
        departures.iter().for_each(|(at, len)| fullest.left(Nanos(*at), *len));
        fullest.finish()
    }

    #[test]
    fn the_fullest_window_is_found_wherever_it_begins() {
        let departures = [(1000, 5), (1900, 10), (2100, 20), (2890, 40), (2910, 80), (9999, 1)];
        assert_eq!(fullest(1000, 10_000, &departures), Some(20 + 40 + 80));
        assert_eq!(fullest(50, 10_000, &departures), Some(40 + 80));
        assert_eq!(fullest(9000, 10_000, &departures), Some(156));
        assert_eq!(fullest(9001, 10_000, &departures), Some(156));
        assert_eq!(fullest(9050, 10_000, &departures), None);
        assert_eq!(fullest(1000, 10_000, &[]), Some(0));
    }
}
