//! Who lends to whom.
//!
//! Boxes that own more than they need have a surplus, those that need more than they own a deficit.
//! The boxes stand in a ring, and a deficit is met by the next surpluses after its box. So a box
//! borrows from few others; a demand that grows or shrinks changes the last of its loans and leaves
//! the others, and those of other boxes, as they are, unless two boxes want one surplus. What
//! nobody borrows stays with its owner. A box that computes the ring alone gets the same loans as
//! any other.
//!
//! Cost: O(n + loans) for n boxes, and as much again where a box that lent everything is passed
//! over: each is passed over once.
//!
//! Non-goals: the fewest changes from one matching to the next. A loan that shrinks is given back
//! by the borrower at once, which costs one message.

/// A loan, by the boxes' indices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loan {
    /// Who lends.
    pub lender: usize,
    /// Who borrows.
    pub borrower: usize,
    /// How much, in bits per second.
    pub bps: u64,
}

/// The loans that give each box what it needs, as far as what the boxes own reaches. No two have
/// the same lender and borrower.
pub fn loans(owned_bps: &[u64], needed_bps: &[u64]) -> Vec<Loan> {
    let (mut room, mut loans) = (Room::default(), Vec::new());
    room.find(owned_bps, needed_bps, &mut loans);
    loans
}

/// The memory of matchings, of which an agent makes thousands a second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Room {
    surplus: Vec<u64>,
    ring: Ring,
}

impl Room {
    /// [`loans`] into memory that was used before.
    pub(crate) fn find(&mut self, owned_bps: &[u64], needed_bps: &[u64], loans: &mut Vec<Loan>) {
        let Self { surplus, ring } = self;
        loans.clear();
        surplus.clear();
        surplus.extend(
            std::iter::zip(owned_bps, needed_bps)
                .map(|(owned, needed)| owned.saturating_sub(*needed)),
        );
        let mut left: u128 = surplus.iter().map(|&surplus| u128::from(surplus)).sum();
        ring.next.clear();
        ring.next.extend(0..owned_bps.len());
        for borrower in 0..owned_bps.len() {
            let mut deficit = needed_bps[borrower].saturating_sub(owned_bps[borrower]);
            let mut lender = borrower;
            while deficit > 0 && left > 0 {
                lender = ring.open(lender, surplus);
                let bps = surplus[lender].min(deficit);
                surplus[lender] -= bps;
                deficit -= bps;
                left -= u128::from(bps);
                loans.push(Loan { lender, borrower, bps });
            }
        }
    }
}

/// The boxes, each with one that follows it and before which none has a surplus.
#[derive(Clone, Debug, Default)]
struct Ring {
    next: Vec<usize>,
}

impl Ring {
    /// The first box with a surplus, from `at` on. There is one.
    fn open(&mut self, at: usize, surplus: &[u64]) -> usize {
        let mut found = at;
        while surplus[found] == 0 {
            self.next[found] = match self.next[found] {
                same if same == found => (found + 1) % surplus.len(),
                next => next,
            };
            found = self.next[found];
        }
        // The way that was found is a step the next time.
        let mut passed = at;
        while passed != found {
            passed = std::mem::replace(&mut self.next[passed], found);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn loan(lender: usize, borrower: usize, bps: u64) -> Loan {
        Loan { lender, borrower, bps }
    }

    #[test]
    fn a_deficit_is_met_by_the_boxes_that_follow() {
        assert_eq!(
            loans(&[100; 4], &[0, 250, 80, 0]),
            [loan(2, 1, 20), loan(3, 1, 100), loan(0, 1, 30)]
        );
    }

    #[test]
    fn a_demand_that_grows_leaves_the_loans_of_others() {
        let before = loans(&[100; 6], &[150, 0, 0, 150, 0, 0]);
        let after = loans(&[100; 6], &[180, 0, 0, 150, 0, 0]);
        assert_eq!(before, [loan(1, 0, 50), loan(4, 3, 50)]);
        assert_eq!(after, [loan(1, 0, 80), loan(4, 3, 50)]);
    }

    /// The definition, slowly: around the ring for each box.
    fn slowly(owned: &[u64], needed: &[u64]) -> Vec<Loan> {
        let boxes = owned.len();
        let mut lent = vec![0; boxes];
        let mut loans = Vec::new();
        for borrower in 0..boxes {
            let mut deficit = needed[borrower].saturating_sub(owned[borrower]);
            for step in 1..boxes {
                let lender = (borrower + step) % boxes;
                let bps =
                    (owned[lender].saturating_sub(needed[lender]) - lent[lender]).min(deficit);
                if bps > 0 {
                    lent[lender] += bps;
                    deficit -= bps;
                    loans.push(loan(lender, borrower, bps));
                }
            }
        }
        loans
    }

    proptest! {
        #[test]
        fn loans_are_what_walking_around_the_ring_gives(
            boxes in proptest::collection::vec((0..300_u64, 0..300_u64), 0..20),
        ) {
            let (owned, needed): (Vec<_>, Vec<_>) = boxes.into_iter().unzip();
            prop_assert_eq!(loans(&owned, &needed), slowly(&owned, &needed));
        }

        #[test]
        fn each_box_has_what_it_needs_if_all_own_enough(
            boxes in proptest::collection::vec((0..1_000_u64, 0..1_000_u64), 1..20),
        ) {
            let (mut owned, needed): (Vec<_>, Vec<_>) = boxes.into_iter().unzip();
            owned[0] += needed.iter().sum::<u64>();
            let mut has = owned.clone();
            let mut pairs = BTreeSet::new();
            for Loan { lender, borrower, bps } in loans(&owned, &needed) {
                prop_assert!(bps > 0 && lender != borrower);
                prop_assert!(pairs.insert((lender, borrower)));
                has[lender] -= bps;
                has[borrower] += bps;
            }
            for (has, needed) in has.iter().zip(&needed) {
                prop_assert!(has >= needed);
            }
        }
    }
}
