//! Round robin: the order in which servers take turns.
//!
//! A server of weight 3 beside one of weight 1 does not get three connections in a row: each turn
//! goes to the server that is furthest behind.
//!
//! Source: nginx's "smooth weighted round robin" (2012); the schedule is stride scheduling's.

use crate::maglev::Part;

/// The turns of one round of `parts`, at most `most`. Empty if there is nobody.
pub(crate) fn turns(parts: &[Part], most: usize) -> Vec<u16> {
    let mut parts = parts.to_vec();
    parts.sort_by_key(|part| part.address);
    let divisor = parts.iter().fold(0, |divisor, part| gcd(divisor, i64::from(part.weight)));
    let total: i64 = parts.iter().map(|part| i64::from(part.weight)).sum();
    let round = (total / divisor.max(1)).min(most as i64);
    let mut behind = vec![0_i64; parts.len()];
    let mut turns = Vec::with_capacity(round as usize);
    for _ in 0..round {
        for (behind, part) in behind.iter_mut().zip(&parts) {
            *behind += i64::from(part.weight);
        }
        let furthest = (0..parts.len()).rev().max_by_key(|at| behind[*at]);
        let Some(at) = furthest else { break };
        behind[at] -= total;
        turns.push(parts[at].number);
    }
    turns
}

fn gcd(one: i64, other: i64) -> i64 {
    if other == 0 { one } else { gcd(other, one % other) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn parts(weights: &[u16]) -> Vec<Part> {
        let address = |number: u16| IpAddr::from(Ipv4Addr::from(u32::from(number)));
        let part =
            |(number, &weight): (u16, &u16)| Part { number, address: address(number), weight };
        (1..).zip(weights).map(part).collect()
    }

    #[test]
    fn turns_of_a_heavy_server_are_spread() {
        assert_eq!(turns(&parts(&[3, 1]), 100), [1, 1, 2, 1]);
        assert_eq!(turns(&parts(&[2, 4]), 100), [2, 1, 2]);
        assert_eq!(turns(&parts(&[1, 1, 1]), 100), [1, 2, 3]);
        assert!(turns(&[], 100).is_empty());
    }

    proptest! {
        #[test]
        fn at_no_time_has_a_server_more_than_a_turn_too_many(
            weights in prop::collection::vec(1u16..30, 1..12),
        ) {
            let total: u32 = weights.iter().map(|weight| u32::from(*weight)).sum();
            let turns = turns(&parts(&weights), 10_000);
            let mut had = vec![0_u32; weights.len()];
            for (number, server) in (1_u32..).zip(&turns) {
                had[usize::from(*server) - 1] += 1;
                for (had, weight) in had.iter().zip(&weights) {
                    let due = f64::from(number) * f64::from(*weight) / f64::from(total);
                    let most = 1.0 + weights.len() as f64 / 2.0;
                    prop_assert!((f64::from(*had) - due).abs() <= most, "{had} of {due}");
                }
            }
        }
    }
}
