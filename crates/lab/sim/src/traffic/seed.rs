//! Random generators: one for each thing that is random.
//!
//! Every generator is seeded from the run's seed, the group of flows, its purpose and an index (a
//! queue, an epoch). So a group that is added, or a queue that draws more often than another,
//! changes nothing for the others.

use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64;

/// The purpose of a generator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// Phases, intervals and lengths of the packets on one queue (the index).
    Packets = 1,
    /// Which flow is on which queue, in one epoch (the index).
    Spread = 2,
    /// Which flow ends when, and where the next begins.
    Churn = 3,
    /// When flows of TCP begin.
    Starts = 4,
    /// The hash of a flow's ports.
    Flows = 5,
    /// The hash of a source's address.
    Sources = 6,
    /// The hash of a destination's address.
    Destinations = 7,
}

/// The generator of `group` for `purpose`.
pub(crate) fn generator(seed: u64, group: usize, purpose: Purpose, index: u64) -> Pcg64 {
    Pcg64::seed_from_u64(hash(seed, [group as u64, purpose as u64, index]))
}

/// A number that follows from `seed` and `words`, and says nothing about either.
pub(crate) fn hash(seed: u64, words: [u64; 3]) -> u64 {
    words.iter().fold(mix(seed), |state, &word| mix(state ^ mix(word)))
}

/// SplitMix64's step (Steele, Lea, Flood, 2014): neighbours end up far apart.
fn mix(word: u64) -> u64 {
    let z = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// An exponential number of mean 1.
pub(crate) fn exponential(chance: &mut Pcg64) -> f64 {
    Exp1.sample(chance)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;

    #[test]
    fn generators_differ_in_all_that_names_them() {
        let first = |seed, group, purpose, index| -> u64 {
            generator(seed, group, purpose, index).random()
        };
        let drawn = [
            first(1, 0, Purpose::Packets, 0),
            first(2, 0, Purpose::Packets, 0),
            first(1, 1, Purpose::Packets, 0),
            first(1, 0, Purpose::Spread, 0),
            first(1, 0, Purpose::Packets, 1),
        ];
        for (i, a) in drawn.iter().enumerate() {
            assert!(drawn[..i].iter().all(|b| a != b), "{drawn:?}");
        }
        assert_eq!(drawn[0], first(1, 0, Purpose::Packets, 0));
    }
}
