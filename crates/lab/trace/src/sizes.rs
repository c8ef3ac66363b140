//! How much a flow carries, in bytes or in segments: drawn from points of a cumulative
//! distribution, with straight lines between them.

use rand::RngExt;
use rand_pcg::Pcg64;

/// A distribution of sizes, in bytes or in segments.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// Size, and which part of all flows is no larger. Both grow; the last part is 1.
    points: Vec<(f64, f64)>,
}

impl Sizes {
    /// From `points`: a size, and which part of all flows is no larger. From zero on, of which
    /// there is nothing.
    ///
    /// # Errors
    /// If they are none, do not grow, or do not end at 1.
    pub fn new(points: &[(u64, f64)]) -> Result<Self, String> {
        let mut all = vec![(0.0, 0.0)];
        for &(size, part) in points {
            let (last_size, last_part) = all[all.len() - 1];
            let size = size as f64;
            if size <= last_size || part < last_part || !part.is_finite() {
                return Err(format!("{size} bytes, {part}: sizes and their parts have to grow"));
            }
            all.push((size, part));
        }
        if all.last().map(|(_, part)| *part) != Some(1.0) {
            return Err("the last part has to be 1: that of all flows".to_owned());
        }
        Ok(Self { points: all })
    }

    /// The mean.
    pub fn mean(&self) -> f64 {
        let lines = self.points.windows(2);
        lines.map(|line| (line[0].0 + line[1].0) / 2.0 * (line[1].1 - line[0].1)).sum()
    }

    /// A size, at least one.
    pub fn draw(&self, chance: &mut Pcg64) -> u64 {
        let drawn: f64 = chance.random();
        let next = self.points.partition_point(|(_, part)| *part <= drawn).max(1);
        let Some(&(high, above)) = self.points.get(next) else { return 1 };
        let (low, below) = self.points[next - 1];
        let size = low + (high - low) * (drawn - below) / (above - below);
        (size as u64).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn sizes_follow_the_distribution_s_points() {
        let sizes = Sizes::new(&[(1000, 0.5), (2000, 0.5), (10_000, 1.0)]).unwrap();
        assert_eq!(sizes.mean(), 250.0 + 3000.0);
        let mut chance = Pcg64::seed_from_u64(1);
        let drawn: Vec<u64> = (0..100_000).map(|_| sizes.draw(&mut chance)).collect();
        assert!(drawn.iter().all(|size| (1..=10_000).contains(size)));
        // Nothing is between the two points with the same part.
        assert!(!drawn.iter().any(|size| (1001..2000).contains(size)));
        let small = drawn.iter().filter(|size| **size <= 1000).count() as f64 / 100_000.0;
        assert!((small - 0.5).abs() < 0.01, "{small}");
        let mean = drawn.iter().sum::<u64>() as f64 / 100_000.0;
        assert!((mean / sizes.mean() - 1.0).abs() < 0.02, "{mean}");
    }

    #[test]
    fn points_that_are_no_distribution_are_refused() {
        for points in [&[][..], &[(10, 0.5)], &[(10, 0.5), (10, 1.0)], &[(10, 0.5), (20, 0.4)]] {
            assert!(Sizes::new(points).is_err(), "{points:?}");
        }
    }
}
