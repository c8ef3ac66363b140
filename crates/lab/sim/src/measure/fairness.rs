//! How fairly a limit was divided.
//!
//! A division is max–min fair if no queue can get more unless one with less (by weight) gets less.
//! The shares are found by water filling: vessels as wide as the weights and as high as the
//! demands. Jain's index of the ratios of actual to fair share says how near a division is to that;
//! only queues that want more count, since the others get what they want.
//!
//! Source of max–min fairness: Bertsekas and Gallager, *Data Networks*, 6.5.2.

/// Someone who shares.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// Its demand; infinity if it takes all that it can get.
    pub(super) wanted: f64,
    /// The rate that it got.
    pub(super) got: f64,
    /// Its weight.
    pub(super) weight: f64,
}

/// A demand counts as more than the fair share only if it exceeds it by this fraction: a load at
/// exactly the limit is above or below by chance.
const MARGIN: f64 = 0.01;

/// The max–min fair parts of `capacity`.
fn fair_parts(capacity: f64, claims: &[Claim]) -> Vec<f64> {
    let mut order: Vec<usize> =
        (0..claims.len()).filter(|&number| claims[number].weight > 0.0).collect();
    let height = |number: usize| claims[number].wanted / claims[number].weight;
    order.sort_by(|&a, &b| height(a).total_cmp(&height(b)));
    let mut parts = vec![0.0; claims.len()];
    let mut left = capacity;
    let mut weight: f64 = order.iter().map(|&number| claims[number].weight).sum();
    for number in order {
        let claim = claims[number];
        parts[number] = claim.wanted.min(left * claim.weight / weight);
        left -= parts[number];
        weight -= claim.weight;
    }
    parts
}

/// Jain's index over those that want more than their fair share, each by the ratio of what it got
/// to that share; `None` if there are fewer than two.
pub(super) fn of_claims(capacity: f64, claims: &[Claim]) -> Option<f64> {
    let parts = fair_parts(capacity, claims);
    let ratios: Vec<f64> = claims
        .iter()
        .zip(parts)
        .filter(|(claim, part)| *part > 0.0 && claim.wanted > part * (1.0 + MARGIN))
        .map(|(claim, part)| claim.got / part)
        .collect();
    jain(&ratios)
}

/// Jain's index; `None` for fewer than two, or if all are zero.
pub(super) fn jain(shares: &[f64]) -> Option<f64> {
    let index = narrows_coordination::jain(shares);
    (shares.len() > 1 && !index.is_nan()).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim((wanted, got, weight): (f64, f64, f64)) -> Claim {
        Claim { wanted, got, weight }
    }

    #[test]
    fn small_demands_are_met_and_the_others_share_the_rest_by_weight() {
        let claims = [(10.0, 0.0, 1.0), (90.0, 0.0, 2.0), (f64::INFINITY, 0.0, 1.0)].map(claim);
        assert_eq!(fair_parts(100.0, &claims), [10.0, 60.0, 30.0]);
        assert_eq!(fair_parts(160.0, &claims), [10.0, 90.0, 60.0]);
    }

    #[test]
    fn fairness_counts_only_unmet_demands() {
        let of = |claims: &[(f64, f64, f64)]| {
            of_claims(100.0, &claims.iter().copied().map(claim).collect::<Vec<_>>())
        };
        // The light one got its demand and has no effect on the index.
        assert_eq!(of(&[(10.0, 10.0, 1.0), (80.0, 45.0, 1.0), (90.0, 45.0, 1.0)]), Some(1.0));
        assert_eq!(of(&[(80.0, 80.0, 1.0), (80.0, 0.0, 1.0)]), Some(0.5));
        assert_eq!(of(&[(90.0, 75.0, 3.0), (90.0, 25.0, 1.0)]), Some(1.0));
        assert_eq!(of(&[(10.0, 10.0, 1.0), (95.0, 90.0, 1.0)]), None, "one alone");
        assert_eq!(of(&[(50.1, 50.0, 1.0), (50.1, 50.0, 1.0)]), None, "all have what they want");
        assert_eq!(jain(&[0.0, 0.0]), None);
    }

    proptest! {
        #[test]
        fn fair_shares_use_the_whole_limit_and_exceed_no_demand(
            capacity in 1.0..1e9_f64,
            claims in prop::collection::vec((0.0..1e9_f64, 0.1..10.0_f64), 1..20),
        ) {
            let claims: Vec<Claim> =
                claims.into_iter().map(|(wanted, weight)| claim((wanted, 0.0, weight))).collect();
            let parts = fair_parts(capacity, &claims);
            let wanted: f64 = claims.iter().map(|claim| claim.wanted).sum();
            let used: f64 = parts.iter().sum();
            prop_assert!((used - wanted.min(capacity)).abs() <= 1e-6 * capacity);
            let height = |number: usize| parts[number] / claims[number].weight;
            let highest = (0..parts.len()).map(height).fold(0.0, f64::max);
            for (number, claim) in claims.iter().enumerate() {
                prop_assert!(parts[number] <= claim.wanted);
                let content = parts[number] == claim.wanted;
                prop_assert!(content || height(number) >= highest * (1.0 - 1e-6));
            }
        }
    }
}
