//! Both ends of a loan, one step at a time.

use narrows_lending::borrower::Borrower;
use narrows_lending::lender::Lender;
use narrows_lending::message::{Lend, Offer};

const LEASE: u64 = 2_000;

fn lend(generation: u64, echo: u64, offers: &[(u64, u64)]) -> Lend {
    let offer = |&(version, bps)| Offer { version, name: "limit".into(), bps };
    Lend { generation, echo, offers: offers.iter().map(offer).collect() }
}

/// What a borrower at `now` has after these messages of one lender.
fn after(messages: &[(u64, Lend)]) -> Borrower {
    let mut borrower = Borrower::new(LEASE);
    for (now, message) in messages {
        borrower.receive(*now, 1, message);
    }
    borrower
}

#[test]
fn a_loan_lasts_a_lease_from_the_stamp_that_was_returned() {
    let mut borrower = after(&[(1_500, lend(1, 1_000, &[(1, 5)]))]);
    assert_eq!(borrower.valid_until(), Some(3_000));
    assert!(borrower.expire(2_899, 100).is_empty());
    assert_eq!(borrower.expire(2_900, 100), ["limit"]);
    assert_eq!(borrower.held_bps("limit"), 0);
}

#[test]
fn an_offer_with_an_old_stamp_is_no_offer() {
    let renewed = (3_100, lend(1, 3_050, &[]));
    let late = (3_150, lend(1, 1_000, &[(1, 5)]));
    assert_eq!(after(&[renewed, late]).held_bps("limit"), 0);
}

#[test]
fn a_stamp_that_was_never_made_is_no_stamp() {
    assert_eq!(after(&[(1_500, lend(1, 1_501, &[(1, 5)]))]).held_bps("limit"), 0);
}

#[test]
fn an_offer_after_a_gap_waits_for_the_one_that_is_missing() {
    let second = (1_500, lend(1, 1_400, &[(2, 7)]));
    assert_eq!(after(std::slice::from_ref(&second)).held_bps("limit"), 0);
    let both = (1_600, lend(1, 1_400, &[(1, 5), (2, 7)]));
    assert_eq!(after(&[second, both]).held_bps("limit"), 7);
}

#[test]
fn an_offer_that_comes_twice_counts_once() {
    let mut borrower = after(&[(1_500, lend(1, 1_400, &[(1, 5)]))]);
    borrower.keep("limit", 2);
    borrower.receive(1_600, 1, &lend(1, 1_500, &[(1, 5)]));
    assert_eq!(borrower.held_bps("limit"), 2);
}

#[test]
fn a_new_generation_voids_the_loans_of_the_last_and_an_old_one_says_nothing() {
    let first = (1_500, lend(1, 1_400, &[(1, 5)]));
    let second = (1_600, lend(2, 1_400, &[]));
    assert_eq!(after(&[first.clone(), second.clone()]).held_bps("limit"), 0);
    assert_eq!(after(&[first.clone(), second, first]).held_bps("limit"), 0);
}

#[test]
fn what_is_offered_is_lent_until_the_borrower_confirms_less() {
    let name = "limit".into();
    let mut lender = Lender::new(LEASE);
    lender.heard(1_000, 50);
    assert!(lender.offer(1_000, &name, 9));
    let mut borrower = Borrower::new(LEASE);
    borrower.receive(60, 1, &lender.lend(1_010).unwrap());
    let mark = borrower.mark().unwrap();
    borrower.in_force(mark);
    lender.confirm(&borrower.held().unwrap());
    assert!(lender.offer(1_100, &name, 4));
    assert_eq!(lender.lent_bps("limit"), 9);
    borrower.receive(70, 1, &lender.lend(1_110).unwrap());
    lender.confirm(&borrower.held().unwrap());
    assert_eq!(lender.lent_bps("limit"), 9, "it is not in force at the borrower");
    let mark = borrower.mark().unwrap();
    borrower.in_force(mark);
    lender.confirm(&borrower.held().unwrap());
    assert_eq!(lender.lent_bps("limit"), 4);
}

#[test]
fn a_lender_waits_longer_than_the_lease_for_a_slower_clock() {
    let mut lender = Lender::new(6_400);
    lender.heard(1_000, 50);
    assert!(lender.offer(1_200, &"limit".into(), 9));
    assert!(lender.lend(1_200).is_some());
    assert!(lender.expire(1_000 + 6_400 + 100).is_empty());
    assert_eq!(lender.expire(1_000 + 6_400 + 101), ["limit"]);
    assert!(lender.lend(9_000).is_none(), "a silent borrower gets no loan");
}
