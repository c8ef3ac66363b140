//! Weighted max–min shares of one limit, tier by tier.
//!
//! Demand has tiers: what is assured to classes comes first, then what borrows, by priority. Each
//! tier is filled before the next gets anything; within a tier, boxes are filled at the same level
//! per weight until each has its demand. What nobody demands is nobody's share: it stays with its
//! owner, unless somebody borrows it ([`matching`](crate::matching)).
//!
//! All is integer arithmetic over boxes in one order, so that boxes with the same facts compute the
//! same shares to the last bit.
//!
//! Cost: O(tiers × n log n) for n boxes.

use serde::{Deserialize, Serialize};

/// Tiers of demand: assured rates, and eight priorities of what borrows.
pub const TIERS: usize = 9;

/// A demand without bound: the limit itself is what holds the box back.
pub const GREEDY: u64 = u64::MAX;

/// The demand of a box by tier, in bits per second. [`GREEDY`] is a demand without bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Demand(pub [u64; TIERS]);

impl Demand {
    /// A demand of one tier.
    pub fn of(tier: usize, bps: u64) -> Self {
        let mut tiers = [0; TIERS];
        tiers[tier] = bps;
        Self(tiers)
    }

    /// All tiers together.
    pub fn total_bps(&self) -> u64 {
        self.0.iter().fold(0, |sum, &tier| sum.saturating_add(tier))
    }

    /// Whether a tier has no bound.
    pub fn is_greedy(&self) -> bool {
        self.0.contains(&GREEDY)
    }
}

/// What a box claims of a limit. Rates are in bits per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Its weight against other boxes; 0 counts as 1. At most 2^48, so that products with a rate
    /// and a thousand boxes stay below 2^128.
    pub weight: u64,
    /// What it owns.
    pub owned_bps: u64,
    /// What it has in any case, as far as the limit reaches.
    pub floor_bps: u64,
    /// The most that it may have. A floor above it counts as much.
    pub most_bps: u64,
    /// Its demand.
    pub demand: Demand,
}

/// The shares of `capacity_bps` for the boxes with these claims, in bits per second. They sum to
/// the capacity if the demands do.
pub fn shares(capacity_bps: u64, claims: &[Claim]) -> Vec<u64> {
    let mut room = Room::default();
    room.divide(capacity_bps, claims);
    room.given
}

/// The memory of divisions, of which an agent makes thousands a second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Room {
    given: Vec<u64>,
    goal: Vec<u64>,
    demanded: Vec<u64>,
    /// The boxes that want more.
    open: Vec<usize>,
}

impl Room {
    /// [`shares`], in memory that was used before.
    pub(crate) fn divide(&mut self, capacity_bps: u64, claims: &[Claim]) -> &[u64] {
        let Self { given, goal, demanded, open } = self;
        given.clear();
        given.resize(claims.len(), 0);
        goal.clear();
        goal.extend(claims.iter().map(|claim| claim.floor_bps.min(claim.most_bps)));
        let mut left = fill(capacity_bps, claims, given, goal, open);
        demanded.clear();
        demanded.resize(claims.len(), 0);
        // Few tiers have any demand, and a look at all claims for each takes longer than the rest.
        let mut is_demanded = [false; TIERS];
        for claim in claims {
            for (tier, demand) in is_demanded.iter_mut().zip(claim.demand.0) {
                *tier |= demand > 0;
            }
        }
        for tier in (0..TIERS).filter(|tier| is_demanded[*tier]) {
            if left == 0 {
                break;
            }
            for (index, claim) in claims.iter().enumerate() {
                demanded[index] = demanded[index].saturating_add(claim.demand.0[tier]);
                goal[index] = goal[index].max(demanded[index].min(claim.most_bps));
            }
            left = fill(left, claims, given, goal, open);
        }
        given
    }
}

/// Raises what is given towards the goals, by the same amount per weight for each until it has its
/// goal. Returns what is left of `left`.
fn fill(
    left: u64,
    claims: &[Claim],
    given: &mut [u64],
    goal: &[u64],
    open: &mut Vec<usize>,
) -> u64 {
    let weight = |index: usize| u128::from(claims[index].weight.max(1));
    let missing = |given: &[u64], index: usize| goal[index].saturating_sub(given[index]);
    // Often there is enough for all.
    let wanted: u128 = (0..claims.len()).map(|index| u128::from(missing(given, index))).sum();
    if wanted <= u128::from(left) {
        for (given, goal) in std::iter::zip(given, goal) {
            *given = (*given).max(*goal);
        }
        return left - u64::try_from(wanted).unwrap_or(left);
    }
    open.clear();
    open.extend((0..claims.len()).filter(|&index| missing(given, index) > 0));
    // Those with the least missing per weight are full first.
    open.sort_unstable_by(|&a, &b| {
        let left = u128::from(missing(given, a)) * weight(b);
        left.cmp(&(u128::from(missing(given, b)) * weight(a))).then(a.cmp(&b))
    });
    let mut left = u128::from(left);
    let mut weights: u128 = open.iter().map(|&index| weight(index)).sum();
    for &index in &*open {
        // The part of one weight among those that are still open. The last takes what is left, so
        // that rounding loses nothing.
        let part = left * weight(index) / weights;
        let part = part.min(u128::from(missing(given, index)));
        given[index] += u64::try_from(part).unwrap_or(u64::MAX);
        left -= part;
        weights -= weight(index);
    }
    u64::try_from(left).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(demand_bps: u64) -> Claim {
        Claim {
            weight: 1,
            owned_bps: 0,
            floor_bps: 0,
            most_bps: u64::MAX,
            demand: Demand::of(1, demand_bps),
        }
    }

    #[test]
    fn a_small_demand_is_met_and_the_rest_is_equal() {
        assert_eq!(shares(900, &[claim(100), claim(GREEDY), claim(GREEDY)]), [100, 400, 400]);
    }

    #[test]
    fn what_nobody_demands_is_nobodys_share() {
        assert_eq!(shares(400, &[claim(0), claim(150), claim(20), claim(30)]), [0, 150, 20, 30]);
    }

    #[test]
    fn what_is_assured_comes_before_what_borrows() {
        let assured = Claim { demand: Demand::of(0, 600), ..claim(0) };
        assert_eq!(shares(900, &[assured, claim(GREEDY)]), [600, 300]);
    }

    #[test]
    fn a_better_priority_is_filled_first() {
        let worse = Claim { demand: Demand::of(2, GREEDY), ..claim(0) };
        assert_eq!(shares(900, &[worse, claim(500)]), [400, 500]);
    }

    #[test]
    fn a_box_never_has_more_than_its_most() {
        let little = Claim { most_bps: 50, ..claim(GREEDY) };
        assert_eq!(shares(900, &[little, claim(GREEDY)]), [50, 850]);
        assert_eq!(shares(900, &[little]), [50]);
    }

    #[test]
    fn an_idle_box_keeps_its_floor() {
        let idle = Claim { floor_bps: 8, ..claim(0) };
        assert_eq!(shares(1_000, &[idle, claim(GREEDY)]), [8, 992]);
    }

    /// The definition, slowly: each step gives one bit per second to the box with the least per
    /// weight above what the steps began with.
    fn slowly(capacity_bps: u64, claims: &[Claim]) -> Vec<u64> {
        let mut given = vec![0_u64; claims.len()];
        let mut left = capacity_bps;
        let mut goals =
            vec![claims.iter().map(|c| c.floor_bps.min(c.most_bps)).collect::<Vec<_>>()];
        for tier in 0..TIERS {
            let before = goals[tier].clone();
            let demanded =
                |c: &Claim| c.demand.0[..=tier].iter().fold(0_u64, |s, &t| s.saturating_add(t));
            goals.push(
                claims
                    .iter()
                    .zip(before)
                    .map(|(c, b)| b.max(demanded(c).min(c.most_bps)))
                    .collect(),
            );
        }
        for goal in goals {
            let began = given.clone();
            while left > 0 {
                let level =
                    |i: usize| (given[i] - began[i] + 1) as f64 / claims[i].weight.max(1) as f64;
                let open = (0..claims.len()).filter(|&i| given[i] < goal[i]);
                let Some(next) = open.min_by(|&a, &b| level(a).total_cmp(&level(b))) else { break };
                given[next] += 1;
                left -= 1;
            }
        }
        given
    }

    fn claims() -> impl Strategy<Value = Vec<Claim>> {
        let tier = prop_oneof![4 => Just(0_u64), 3 => 0..200_u64, 1 => Just(GREEDY)];
        let most = prop_oneof![3 => Just(u64::MAX), 1 => 0..300_u64];
        let claim = (1..5_u64, 0..20_u64, most, proptest::array::uniform9(tier));
        let claim = claim.prop_map(|(weight, floor_bps, most_bps, tiers)| Claim {
            weight,
            owned_bps: 0,
            floor_bps,
            most_bps,
            demand: Demand(tiers),
        });
        proptest::collection::vec(claim, 1..6)
    }

    proptest! {
        #[test]
        fn shares_are_what_filling_slowly_gives(capacity in 0..1_000_u64, claims in claims()) {
            let shares = shares(capacity, &claims);
            let slowly = slowly(capacity, &claims);
            // Each fill rounds once for each box.
            for (a, b) in shares.iter().zip(&slowly) {
                prop_assert!(a.abs_diff(*b) <= 2 * TIERS as u64, "{shares:?} {slowly:?}");
            }
            prop_assert_eq!(shares.iter().sum::<u64>(), slowly.iter().sum::<u64>());
        }

        #[test]
        fn no_box_has_more_than_its_most_and_all_no_more_than_the_capacity(
            capacity in any::<u64>(),
            claims in claims(),
        ) {
            let shares = shares(capacity, &claims);
            let sum: u128 = shares.iter().map(|&share| u128::from(share)).sum();
            prop_assert!(sum <= u128::from(capacity));
            for (share, claim) in shares.iter().zip(&claims) {
                prop_assert!(*share <= claim.most_bps);
            }
        }
    }
}
