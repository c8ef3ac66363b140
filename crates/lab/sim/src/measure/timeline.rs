//! Values over the time of a run, to plot.

use super::Series;
use narrows_units::Nanos;

/// Points of a series.
const POINTS: u64 = 500;

/// A number for each five hundredth of the run.
pub(super) struct Timeline {
    bin: Nanos,
    bins: Vec<u64>,
}

impl Timeline {
    /// For a run that is over at `end`.
    pub(super) fn new(end: Nanos) -> Self {
        let bin = Nanos(end.0.div_ceil(POINTS).max(1));
        Self { bin, bins: vec![0; end.0.div_ceil(bin.0) as usize] }
    }

    fn value_at(&mut self, at: Nanos) -> Option<&mut u64> {
        self.bins.get_mut((at.0 / self.bin.0) as usize)
    }

    /// Adds `amount` to the number for `at`.
    #[inline]
    pub(super) fn add(&mut self, at: Nanos, amount: u64) {
        if let Some(value) = self.value_at(at) {
            *value += amount;
        }
    }

    /// Makes the number for `at` at least `amount`.
    #[inline]
    pub(super) fn raise(&mut self, at: Nanos, amount: u64) {
        if let Some(value) = self.value_at(at) {
            *value = amount.max(*value);
        }
    }

    /// Every number times `scale`, at the middle of its time.
    pub(super) fn series(&self, name: &str, scale: f64) -> Series {
        let point = |(number, value): (usize, &u64)| {
            let middle = (number as f64 + 0.5) * self.bin.0 as f64;
            (middle / 1e6, *value as f64 * scale)
        };
        Series { name: name.to_owned(), points: self.bins.iter().enumerate().map(point).collect() }
    }

    /// The factor from bytes to a rate in Gbit/s.
    pub(super) fn gbit_per_byte(&self) -> f64 {
        8.0 / self.bin.0 as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_has_a_point_for_each_part_of_the_run() {
        let mut bytes = Timeline::new(Nanos::from_millis(1));
        bytes.add(Nanos(0), 100);
        bytes.add(Nanos(1999), 150);
        bytes.raise(Nanos(2000), 10);
        bytes.raise(Nanos(2001), 7);
        bytes.add(Nanos::from_millis(1), 1000);
        let series = bytes.series("rate, Gbit/s", bytes.gbit_per_byte());
        assert_eq!(series.points.len(), 500);
        assert_eq!(series.points[0], (0.001, 1.0));
        assert_eq!(series.points[1], (0.003, 0.04));
        assert_eq!(series.points[499], (0.999, 0.0));
    }

    #[test]
    fn a_run_of_a_few_nanoseconds_has_fewer_points() {
        assert_eq!(Timeline::new(Nanos(3)).series("x", 1.0).points.len(), 3);
    }
}
