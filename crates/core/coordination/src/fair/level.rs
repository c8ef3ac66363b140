//! Water filling: the max-min fair level.
//!
//! Every queue gets its demand, but at most its weight times the level; the level is the highest at
//! which everything fits. Queues that demand less than that leave the rest to the others, in
//! proportion to their weights (Bertsekas and Gallager, Data Networks, 6.5.2).
//!
//! Cost: a few passes over the demands; one for each group of queues that turns out to be
//! satisfied.

use narrows_qdisc::Weight;

/// A queue's demand, in bits per second, and its weight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Demand {
    pub(super) bits_per_sec: u64,
    pub(super) weight: Weight,
}

/// The level at which `demands` fill `rate`, in bits per second for a weight of one; all of
/// `rate` if they do not. Reorders them.
pub(super) fn fill(rate: u64, demands: &mut [Demand]) -> u64 {
    let mut left = u128::from(rate);
    let mut wanting = demands;
    loop {
        let weights: u128 = wanting.iter().map(|demand| u128::from(demand.weight.0)).sum();
        if weights == 0 {
            return rate;
        }
        // Queues whose demand is met at this level go to the front.
        let mut content = 0;
        let mut granted = 0;
        for index in 0..wanting.len() {
            let Demand { bits_per_sec, weight } = wanting[index];
            if u128::from(bits_per_sec) * weights <= left * u128::from(weight.0) {
                granted += u128::from(bits_per_sec);
                wanting.swap(index, content);
                content += 1;
            }
        }
        if content == 0 {
            let level = left * u128::from(Weight::ONE.0) / weights;
            return u64::try_from(level).unwrap_or(u64::MAX).min(rate);
        }
        left -= granted.min(left);
        wanting = &mut wanting[content..];
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn demands(list: &[(u64, u32)]) -> Vec<Demand> {
        let demand = |&(bits_per_sec, weight): &(u64, u32)| Demand {
            bits_per_sec,
            weight: Weight(weight * Weight::ONE.0),
        };
        list.iter().map(demand).collect()
    }

    fn level(rate: u64, list: &[(u64, u32)]) -> u64 {
        fill(rate, &mut demands(list))
    }

    #[test]
    fn the_heavy_queue_gets_what_the_light_one_leaves() {
        assert_eq!(level(100, &[(100, 1), (20, 1)]), 80);
    }

    #[test]
    fn queues_that_all_want_more_get_equal_parts() {
        assert_eq!(level(100, &[(90, 1), (70, 1), (50, 1), (40, 1)]), 25);
    }

    #[test]
    fn twice_the_weight_is_twice_the_part() {
        assert_eq!(level(90, &[(90, 1), (90, 2)]), 30);
    }

    #[test]
    fn if_all_demands_fit_the_level_is_the_rate() {
        assert_eq!(level(100, &[(10, 1), (20, 1)]), 100);
        assert_eq!(level(100, &[]), 100);
    }

    /// The definition, by bisection in real numbers.
    fn oracle(rate: u64, demands: &[Demand]) -> f64 {
        let used = |level: f64| -> f64 {
            let part = |demand: &Demand| {
                let part = level * f64::from(demand.weight.0) / f64::from(Weight::ONE.0);
                part.min(demand.bits_per_sec as f64)
            };
            demands.iter().map(part).sum()
        };
        let (mut low, mut high) = (0.0, rate as f64);
        if used(high * 1e6) <= rate as f64 {
            return high;
        }
        high *= 1e6;
        for _ in 0..200 {
            let middle = (low + high) / 2.0;
            if used(middle) <= rate as f64 { low = middle } else { high = middle }
        }
        low.min(rate as f64)
    }

    proptest! {
        #[test]
        fn the_level_is_the_highest_that_fits(
            rate in 1u64..1_000_000_000_000,
            list in prop::collection::vec((0u64..1_000_000_000_000, 1u32..2_000), 0..65),
        ) {
            let list = list.iter().map(|&(bits_per_sec, weight)| Demand {
                bits_per_sec,
                weight: Weight(weight),
            });
            let mut list: Vec<Demand> = list.collect();
            let expected = oracle(rate, &list);
            let level = fill(rate, &mut list) as f64;
            prop_assert!((level - expected).abs() <= 2.0 + expected * 1e-6, "{level}, not {expected}");
        }
    }
}
