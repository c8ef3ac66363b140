//! Who lends to whom.
//!
//! Boxes that should have less than they own have a surplus, the others a deficit. Lay all
//! surpluses end to end on one line and all deficits on another, in the order of the boxes: where a
//! surplus and a deficit lie side by side is a loan. There are at most n − 1 loans among n boxes,
//! and a box that computes the line alone gets the same loans as any other.
//!
//! Non-goals: the fewest changes from one matching to the next. A loan that shrinks is given back
//! by the borrower at once, which costs one message.

/// The loans that bring each box from what it owns to its share: lender, borrower and amount, by
/// the boxes' indices. Where shares exceed what is owned, the last borrowers go without.
pub fn loans<'a>(
    owned_bps: &'a [u64],
    share_bps: &'a [u64],
) -> impl Iterator<Item = (usize, usize, u64)> + 'a {
    let surplus = |index: usize| owned_bps[index].saturating_sub(share_bps[index]);
    let deficit = |index: usize| share_bps[index].saturating_sub(owned_bps[index]);
    let (mut lender, mut borrower) = (0, 0);
    let (mut offered, mut needed) = (0, 0);
    std::iter::from_fn(move || {
        while offered == 0 {
            if lender == owned_bps.len() {
                return None;
            }
            offered = surplus(lender);
            lender += 1;
        }
        while needed == 0 {
            if borrower == share_bps.len() {
                return None;
            }
            needed = deficit(borrower);
            borrower += 1;
        }
        let amount = offered.min(needed);
        offered -= amount;
        needed -= amount;
        Some((lender - 1, borrower - 1, amount))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_surplus_goes_to_the_deficits_in_order() {
        let loans: Vec<_> = loans(&[500, 100, 0], &[100, 300, 200]).collect();
        assert_eq!(loans, [(0, 1, 200), (0, 2, 200)]);
    }

    proptest! {
        #[test]
        fn loans_bring_each_box_to_its_share(
            boxes in proptest::collection::vec((0..1_000_u64, 0..1_000_u64), 1..20),
        ) {
            let (owned, mut share): (Vec<_>, Vec<_>) = boxes.into_iter().unzip();
            // Shares sum to what is owned.
            let (have, mut over) = (owned.iter().sum::<u64>(), share.iter().sum::<u64>());
            for share in &mut share {
                let cut = over.saturating_sub(have).min(*share);
                *share -= cut;
                over -= cut;
            }
            share[0] += have - over;
            let mut result = owned.clone();
            let mut count = 0;
            for (lender, borrower, amount) in loans(&owned, &share) {
                prop_assert!(amount > 0 && lender != borrower);
                result[lender] -= amount;
                result[borrower] += amount;
                count += 1;
            }
            prop_assert_eq!(&result, &share);
            prop_assert!(count < owned.len());
        }
    }
}
