//! Which flow is on which queue, and what part of the rate each flow there has.
//!
//! *Idea.* A [`Placement`] follows from seed, group and epoch alone. So the queues agree on it
//! without sharing state, and none is stored: each queue derives its part when an epoch begins.
//!
//! *Principles.* Where the parts of queues are given, a queue's rate is its part exactly, and
//! only how many flows it is divided among is rounded: every queue with load has one, and each
//! further flow goes to where a flow would otherwise have the most (D'Hondt's rule).
//!
//! *Non-goals.* RSS's hash itself: a flow's queue is simply random.

use crate::setup::Spread;
use crate::traffic::pace::Share;
use crate::traffic::seed::{Purpose, generator};
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_distr::{Distribution, Gamma};
use rand_pcg::Pcg64;

/// Parts are rounded to this part of all.
const WHOLE: f64 = 4_294_967_296.0;

/// One epoch's.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Placement {
    /// By flow of the group.
    pub(crate) queue_of: Vec<u16>,
    /// By queue: what each flow on it has of the group's rate.
    pub(crate) share_on: Vec<Share>,
}

/// The flows to place, and how.
#[derive(Clone, Debug)]
pub(crate) struct Placing {
    pub(crate) seed: u64,
    pub(crate) group: usize,
    pub(crate) flows: u32,
    pub(crate) queues: usize,
    pub(crate) spread: Spread,
}

impl Placing {
    /// Where flows are in `epoch`. The first, number 0, is as the spread says; in those that
    /// follow, given parts are shuffled and flows in turn become random ones.
    pub(crate) fn in_epoch(&self, epoch: u64) -> Placement {
        let mut chance = generator(self.seed, self.group, Purpose::Spread, epoch);
        match &self.spread {
            Spread::RoundRobin if epoch == 0 => {
                self.even(|flow| (flow as usize % self.queues) as u16)
            }
            Spread::RoundRobin | Spread::Hash => self.even(|_| self.any_queue(&mut chance)),
            Spread::Parts(parts) => {
                let mut parts = parts.clone();
                parts.resize(self.queues, 0.0);
                if epoch > 0 {
                    parts.shuffle(&mut chance);
                }
                self.by_parts(&parts)
            }
            Spread::Dirichlet(concentration) => {
                self.by_parts(&self.dirichlet(*concentration, &mut chance))
            }
        }
    }

    /// A random queue.
    pub(crate) fn any_queue(&self, chance: &mut Pcg64) -> u16 {
        chance.random_range(0..self.queues as u32) as u16
    }

    fn even(&self, queue: impl FnMut(u32) -> u16) -> Placement {
        let share = Share { part: 1, of: 1, among: self.flows };
        Placement {
            queue_of: (0..self.flows).map(queue).collect(),
            share_on: vec![share; self.queues],
        }
    }

    fn by_parts(&self, parts: &[f64]) -> Placement {
        let total: f64 = parts.iter().sum();
        let parts: Vec<u64> =
            parts.iter().map(|part| (part / total * WHOLE).round() as u64).collect();
        let of = parts.iter().sum();
        let among = shared_out(self.flows, &parts);
        let share = |(&part, &among): (&u64, &u32)| Share { part, of, among: among.max(1) };
        Placement {
            queue_of: (0u16..)
                .zip(&among)
                .flat_map(|(queue, &flows)| std::iter::repeat_n(queue, flows as usize))
                .collect(),
            share_on: parts.iter().zip(&among).map(share).collect(),
        }
    }

    /// Symmetric: gamma variates, which need only be divided by their sum.
    fn dirichlet(&self, concentration: f64, chance: &mut Pcg64) -> Vec<f64> {
        let gamma = Gamma::new(concentration, 1.0).ok();
        let mut parts: Vec<f64> =
            (0..self.queues).map(|_| gamma.map_or(0.0, |gamma| gamma.sample(chance))).collect();
        // The smaller the concentration, the nearer one part is to all; so near that every
        // variate underflows a float.
        if parts.iter().sum::<f64>() < f64::MIN_POSITIVE {
            parts.fill(0.0);
            parts[usize::from(self.any_queue(chance))] = 1.0;
        }
        parts
    }
}

/// How many of `flows` each queue gets.
fn shared_out(flows: u32, parts: &[u64]) -> Vec<u32> {
    let total: u64 = parts.iter().sum();
    let exact = |part: u64| u128::from(flows) * u128::from(part) / u128::from(total.max(1));
    let mut among: Vec<u32> =
        parts.iter().map(|&part| (exact(part) as u32).max(u32::from(part > 0))).collect();
    let mut given: u32 = among.iter().sum();
    // Whether a flow on `a`, of which there are `n`, has more than one on `b`, of which there are
    // `m`.
    let more = |(a, n): (u64, u32), (b, m): (u64, u32)| {
        u128::from(a) * u128::from(m) > u128::from(b) * u128::from(n)
    };
    while given < flows {
        let loaded = (0..parts.len()).filter(|&q| parts[q] > 0);
        let Some(most) = loaded.reduce(|best, q| {
            let next = |q: usize| (parts[q], among[q] + 1);
            if more(next(q), next(best)) { q } else { best }
        }) else {
            break;
        };
        among[most] += 1;
        given += 1;
    }
    while given > flows {
        let several = (0..parts.len()).filter(|&q| among[q] > 1);
        let Some(least) = several.reduce(|best, q| {
            if more((parts[best], among[best]), (parts[q], among[q])) { q } else { best }
        }) else {
            break;
        };
        among[least] -= 1;
        given -= 1;
    }
    among
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn placing(spread: Spread, flows: u32, queues: usize) -> Placing {
        Placing { seed: 1, group: 0, flows, queues, spread }
    }

    proptest! {
        #[test]
        fn every_loaded_queue_has_a_flow_and_every_flow_a_queue(
            parts in prop::collection::vec(prop_oneof![Just(0.0), 0.001f64..100.0], 1..64),
            more in 0u32..500,
            epoch in 0u64..3,
        ) {
            let loaded = parts.iter().filter(|&&part| part > 0.0).count() as u32;
            prop_assume!(loaded > 0);
            let flows = loaded + more;
            let placed = placing(Spread::Parts(parts), flows, 64).in_epoch(epoch);
            prop_assert_eq!(placed.queue_of.len(), flows as usize);
            let mut sum = 0;
            for (queue, share) in placed.share_on.iter().enumerate() {
                let here =
                    placed.queue_of.iter().filter(|&&q| usize::from(q) == queue).count() as u32;
                prop_assert_eq!(here > 0, share.part > 0);
                prop_assert_eq!(here.max(1), share.among);
                sum += share.part;
            }
            prop_assert!(placed.share_on.iter().all(|share| share.of == sum));
        }
    }

    #[test]
    fn flows_are_shared_out_so_that_none_has_much_more_than_another() {
        assert_eq!(shared_out(10, &[80, 20]), [8, 2]);
        assert_eq!(shared_out(3, &[98, 1, 1]), [1, 1, 1]);
        assert_eq!(shared_out(4, &[98, 1, 1]), [2, 1, 1]);
        assert_eq!(shared_out(5, &[1, 0, 1]), [3, 0, 2]);
    }

    #[test]
    fn a_low_concentration_loads_few_queues_and_a_high_one_all_alike() {
        let most = |concentration| {
            let placed = placing(Spread::Dirichlet(concentration), 64, 8).in_epoch(0);
            placed.share_on.iter().map(|s| s.part as f64 / s.of as f64).fold(0.0, f64::max)
        };
        assert!(most(0.001) > 0.9);
        assert!(most(10_000.0) < 0.13);
    }

    #[test]
    fn parts_change_places_at_a_respread_and_stay_the_same_parts() {
        let placing = placing(Spread::Parts(vec![5.0, 3.0, 2.0]), 10, 8);
        let parts = |epoch| {
            let mut parts: Vec<u64> =
                placing.in_epoch(epoch).share_on.iter().map(|share| share.part).collect();
            let unsorted = parts.clone();
            parts.sort_unstable();
            (unsorted, parts)
        };
        assert_ne!(parts(0).0, parts(1).0);
        assert_eq!(parts(0).1, parts(1).1);
    }
}
