//! Maglev's look-up table: which server has which slot.
//!
//! Each server has an order of all slots of its own, by the hash of its name. They take turns, and
//! who has its turn takes the next slot of its order that is free. Servers of less weight than the
//! heaviest miss turns. So all have as many slots as their weights say, up to one, and if a server
//! goes, its slots are dealt out and few others change.
//!
//! Source: Maglev (NSDI 2016), section 3.4. The paper does not say how weights count; turns in
//! proportion keep the order of turns, and so the slots, nearly the same if one weight changes.

use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::net::IpAddr;

/// A server that gets slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// What is written into its slots.
    pub(crate) number: u16,
    /// What its order of slots comes from.
    pub(crate) address: IpAddr,
    /// At least 1.
    pub(crate) weight: u16,
}

/// The orders of slots of one server.
struct Order {
    at: u32,
    skip: u32,
    /// The turns that it has saved up, in units of the largest weight.
    saved: u32,
    part: Part,
}

/// Two hashes of `address`, which are the same on all machines.
fn hashes(address: IpAddr) -> [u64; 2] {
    [0, 1].map(|key| {
        let mut hasher = SipHasher13::new_with_keys(0, key);
        match address {
            IpAddr::V4(address) => hasher.write(&address.octets()),
            IpAddr::V6(address) => hasher.write(&address.octets()),
        }
        hasher.finish()
    })
}

/// Deals out `slots` slots, a prime number, to `parts`. Empty if there is nobody.
///
/// Cost: about `slots × ln(slots)` steps in all.
pub(crate) fn deal(parts: &[Part], slots: usize) -> Vec<u16> {
    let Some(heaviest) = parts.iter().map(|part| u32::from(part.weight)).max() else {
        return Vec::new();
    };
    let slots = slots as u32;
    let mut orders: Vec<Order> = parts
        .iter()
        .map(|&part| {
            let [at, skip] = hashes(part.address);
            let at = (at % u64::from(slots)) as u32;
            Order { at, skip: (skip % u64::from(slots - 1)) as u32 + 1, saved: 0, part }
        })
        .collect();
    // The order of servers in a file must not matter.
    orders.sort_by_key(|order| order.part.address);
    let mut dealt: Vec<Option<u16>> = vec![None; slots as usize];
    let mut left = slots;
    while left > 0 {
        for order in &mut orders {
            order.saved += u32::from(order.part.weight);
            if order.saved < heaviest {
                continue;
            }
            order.saved -= heaviest;
            while dealt[order.at as usize].is_some() {
                order.at = (order.at + order.skip) % slots;
            }
            dealt[order.at as usize] = Some(order.part.number);
            left -= 1;
            if left == 0 {
                break;
            }
        }
    }
    dealt.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::net::Ipv4Addr;

    const SLOTS: usize = 65_537;

    fn part(number: u16, weight: u16) -> Part {
        let address = IpAddr::from(Ipv4Addr::from(0x0a00_0000 + u32::from(number)));
        Part { number, address, weight }
    }

    fn slots_of(dealt: &[u16]) -> BTreeMap<u16, usize> {
        let mut all = BTreeMap::new();
        dealt.iter().for_each(|number| *all.entry(*number).or_default() += 1);
        all
    }

    proptest! {
        /// The oracle is the proportion: each has what its weight says, and one slot more or less.
        #[test]
        fn each_has_as_many_slots_as_its_weight_says(
            weights in prop::collection::vec(1u16..100, 1..40),
        ) {
            let parts: Vec<Part> =
                (1..).zip(&weights).map(|(number, weight)| part(number, *weight)).collect();
            let all: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
            let dealt = deal(&parts, 4_093);
            prop_assert_eq!(dealt.len(), 4_093);
            let slots = slots_of(&dealt);
            for part in parts {
                let due = 4_093.0 * f64::from(part.weight) / all as f64;
                let has = slots.get(&part.number).copied().unwrap_or(0) as f64;
                prop_assert!((has - due).abs() <= 1.0 + due / 50.0, "{has} of {due}");
            }
        }
    }

    #[test]
    fn the_order_of_servers_does_not_matter() {
        let parts: Vec<Part> = (1..50).map(|number| part(number, number)).collect();
        let reversed: Vec<Part> = parts.iter().rev().copied().collect();
        assert_eq!(deal(&parts, SLOTS), deal(&reversed, SLOTS));
    }

    /// Maglev's promise, in its paper's figures: with 65,537 slots and 100 servers less than one
    /// slot in a hundred changes beside those of the server that goes.
    #[test]
    fn a_server_that_goes_moves_few_slots_of_others() {
        let parts: Vec<Part> = (1..=100).map(|number| part(number, 1)).collect();
        let before = deal(&parts, SLOTS);
        for gone in [1, 50, 100] {
            let rest: Vec<Part> =
                parts.iter().filter(|part| part.number != gone).copied().collect();
            let after = deal(&rest, SLOTS);
            let moved = before.iter().zip(&after).filter(|(a, b)| a != b && **a != gone).count();
            assert!(moved * 100 < SLOTS, "{moved} slots");
        }
    }

    #[test]
    fn without_servers_there_are_no_slots() {
        assert_eq!(deal(&[], SLOTS), Vec::<u16>::new());
    }
}
