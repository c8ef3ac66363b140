//! Frame lengths, drawn from a weighted list.

use rand::RngExt;
use rand_pcg::Pcg64;

/// Lengths and how often each occurs.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    /// Each length, and the part of all 2³² draws at which the next begins.
    below: Vec<(u64, u32)>,
    mean: f64,
}

/// The number of distinct draws.
const DRAWS: f64 = 4_294_967_296.0;

impl Sizes {
    /// Lengths in bytes with their weights; those of weight zero never occur.
    pub(crate) fn new(sizes: &[(u32, f64)]) -> Self {
        let total: f64 = sizes.iter().map(|&(_, weight)| weight).sum();
        let mut below = Vec::new();
        let (mut sum, mut mean) = (0.0, 0.0);
        for &(len, weight) in sizes.iter().filter(|&&(_, weight)| weight > 0.0) {
            sum += weight;
            mean += f64::from(len) * weight / total;
            below.push(((sum / total * DRAWS) as u64, len));
        }
        Self { below, mean }
    }

    /// In bytes.
    pub(crate) fn mean(&self) -> f64 {
        self.mean
    }

    /// A length in bytes. Where there is only one, nothing is drawn.
    pub(crate) fn draw(&self, chance: &mut Pcg64) -> u32 {
        let Some((&(_, last), others)) = self.below.split_last() else { return 0 };
        if others.is_empty() {
            return last;
        }
        let drawn = u64::from(chance.random::<u32>());
        others.iter().find(|&&(end, _)| drawn < end).map_or(last, |&(_, len)| len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::seed::{Purpose, generator};

    #[test]
    fn lengths_occur_in_proportion_to_their_weights() {
        let sizes = Sizes::new(&[(64, 7.0), (594, 4.0), (9000, 0.0), (1518, 1.0)]);
        let mut chance = generator(1, 0, Purpose::Packets, 0);
        let drawn: Vec<u32> = (0..120_000).map(|_| sizes.draw(&mut chance)).collect();
        let part = |len| drawn.iter().filter(|&&l| l == len).count() as f64 / 120_000.0;
        assert!((part(64) - 7.0 / 12.0).abs() < 0.01);
        assert!((part(594) - 4.0 / 12.0).abs() < 0.01);
        assert!((part(1518) - 1.0 / 12.0).abs() < 0.01);
        let mean = drawn.iter().map(|&l| f64::from(l)).sum::<f64>() / 120_000.0;
        assert!((mean / sizes.mean() - 1.0).abs() < 0.02);
    }
}
