//! What a purchase takes of the ledgers, from the class up to the root.
//!
//! The ceiling of each class on the way lets it pass, the lender sells it at its rate, and the
//! classes above the lender are charged at theirs, which may put them in debt. Where a ledger has
//! too little, because another queue was faster, what was taken below it goes back: a purchase is
//! whole or has no effect.

use super::claim::Right;
use super::node::{Limit, Node};
use super::terms::{Bucket, FRAME};
use crate::ledger::Ledger;
use narrows_units::{Bytes, Nanos};

/// Assured traffic may put the classes above in debt for this long: `mbuffer`, as in the kernel.
pub(super) const LONGEST_DEBT: Nanos = Nanos::from_secs(60);

/// What a purchase would take, as a look finds.
pub(super) struct Offer {
    /// What the class has of its own, beside what is lent by the class directly above it.
    pub(super) own: Bytes,
    /// How many classes above this one the lender stands.
    pub(super) lender: usize,
    /// Whether it may owe the lender a frame.
    pub(super) owes: bool,
}

impl Offer {
    /// Of the class itself.
    pub(super) const OWN: Self = Self { own: Bytes::ZERO, lender: 0, owes: false };
}

impl Node {
    /// How much the class has of its own for a queue that has bought `before`: `least` bytes, or up
    /// to `want`. `None` if it has too little.
    #[inline]
    pub(super) fn offer_own(
        &self,
        least: Bytes,
        want: Bytes,
        before: u64,
        now: Nanos,
    ) -> Option<Bytes> {
        let (ledger, Bucket { pace, depth }) = self.rate();
        let credit = ledger.credit(depth, now)?;
        let has = |bytes| pace.span(before, bytes).min(depth) <= credit;
        if !has(least) {
            return None;
        }
        if want > least {
            let most = want.min(self.most());
            let or_batch = || Some(self.batch(Limit::Rate, least, want)).filter(|some| has(*some));
            if most > least
                && let Some(some) = if has(most) { Some(most) } else { or_batch() }
            {
                return Some(some.min(self.most_on_path()).max(least));
            }
        }
        Some(least)
    }

    /// The most that may be bought at once, here and above.
    pub(super) fn most_on_path(&self) -> Bytes {
        self.path().map(Self::most).min().unwrap_or(Bytes::ZERO)
    }

    /// Buys `bytes`, which follow `before` others, by `offer`. Returns whether it could; otherwise
    /// nothing has been bought.
    pub(super) fn take(&self, bytes: Bytes, before: u64, offer: &Offer, now: Nanos) -> bool {
        // The look has seen that enough is left for others. This makes sure of the purchase itself.
        let sell = |ledger: &Ledger, Bucket { pace, depth }: Bucket, owes| {
            let span = pace.span(before, bytes);
            let least = if owes { span - pace.span(0, FRAME) } else { span };
            ledger.sell(span, least.min(depth), depth, now)
        };
        if offer.own > Bytes::ZERO {
            let (ledger, Bucket { pace, depth }) = self.rate();
            let span = pace.span(before, offer.own);
            if !ledger.sell(span, span.min(depth), depth, now) {
                return false;
            }
        }
        let (mut at, mut steps) = (self, 0);
        loop {
            let (rate, ceil) = (at.terms.rate(), at.terms.ceil());
            let is_apart = rate != ceil;
            let is_covered = is_apart && at.is_covered(ceil);
            let mut is_sold = is_covered || sell(&at.sales.ceil, ceil, false);
            if is_apart && steps >= offer.lender && is_sold {
                if steps > offer.lender {
                    let span = rate.pace.span(before, bytes);
                    at.sales.rate.charge(span, rate.depth, LONGEST_DEBT, now);
                } else if !sell(&at.sales.rate, rate, offer.owes) {
                    if !is_covered {
                        at.sales.ceil.take_back(ceil.pace.span(before, bytes));
                    }
                    is_sold = false;
                }
            }
            if !is_sold {
                self.undo(bytes, before, offer.lender, steps);
                if offer.own > Bytes::ZERO {
                    let (ledger, bucket) = self.rate();
                    ledger.take_back(bucket.pace.span(before, offer.own));
                }
                return false;
            }
            let Some(above) = &at.parent else { return true };
            (at, steps) = (above, steps + 1);
        }
    }

    /// Buys `bytes`, which follow `before` others, from the class `lender` above this one by
    /// `right`, if each class on the way has them after what goes first. Returns whether it could;
    /// otherwise nothing has been bought.
    pub(super) fn take_by_right(
        &self,
        bytes: Bytes,
        before: u64,
        (lender, right): (usize, Right),
        now: Nanos,
    ) -> bool {
        let above = right.above(self.prio());
        let (mut at, mut steps) = (self, 0);
        loop {
            let (rate, ceil) = (at.terms.rate(), at.terms.ceil());
            let is_apart = rate != ceil;
            let is_covered = is_apart && at.is_covered(ceil);
            let by = match steps {
                0 => Right::Assured,
                _ if steps > lender => above,
                _ if steps == lender && !is_apart => right,
                // Below that others may go first, which takes a search to see.
                _ => Right::without(true, true),
            };
            let mut is_sold = is_covered || by.buys(&at.sales.ceil, ceil, before, bytes, now);
            if is_apart && is_sold && steps > lender {
                let span = rate.pace.span(before, bytes);
                at.sales.rate.charge(span, rate.depth, LONGEST_DEBT, now);
            } else if is_apart && is_sold && steps == lender {
                is_sold = right.buys(&at.sales.rate, rate, before, bytes, now);
                if !is_sold && !is_covered {
                    at.sales.ceil.take_back(ceil.pace.span(before, bytes));
                }
            }
            if !is_sold {
                self.undo(bytes, before, lender, steps);
                return false;
            }
            let Some(next) = &at.parent else { return true };
            (at, steps) = (next, steps + 1);
        }
    }

    /// Gives back `bytes` that followed `before` others, at the first `classes` on the way up.
    pub(super) fn undo(&self, bytes: Bytes, before: u64, lender: usize, classes: usize) {
        let back = |ledger: &Ledger, bucket: Bucket| {
            ledger.take_back(bucket.pace.span(before, bytes));
        };
        for (steps, at) in self.path().enumerate().take(classes) {
            let (apart, ceil) = (at.rate_apart(), at.terms.ceil());
            if apart.is_none() || !at.is_covered(ceil) {
                back(&at.sales.ceil, ceil);
            }
            if steps >= lender
                && let Some((ledger, rate)) = apart
            {
                back(ledger, rate);
            }
        }
    }
}

#[cfg(test)]
mod sample {
    use super::Node;
    use narrows_qdisc::htb::Class;
    use narrows_units::{Bytes, Nanos, Rate, wire::Overhead};
    use std::sync::Arc;

    pub(super) const NOW: Nanos = Nanos::from_secs(1);
    pub(super) const PACKET: Bytes = Bytes(1_500);

    /// A class's rate and ceiling in kbit/s, and its bursts at both in bytes.
    pub(super) type Limits = ([u64; 2], [u64; 2]);

    /// A leaf below another class.
    pub(super) fn leaf(own: Limits, above: Limits) -> Arc<Node> {
        let root = Arc::new(Node::new(1, 1, &class(None, above), None));
        Arc::new(Node::new(2, 2, &class(Some(1), own), Some(root)))
    }

    pub(super) fn class(parent: Option<u32>, (kbit, burst): Limits) -> Class {
        let [rate, ceil] = kbit.map(|kbit| Rate::from_bits_per_sec(kbit * 1_000));
        let [burst, cburst] = burst.map(Bytes);
        let overhead = Overhead::NONE;
        Class { parent, rate, ceil, burst, cburst, prio: 0, quantum: 5_000, overhead }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::queue_handle::QueueHandle;
    use super::sample::{NOW, PACKET, leaf};
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    proptest! {
        /// A queue that shares an equal class with one that never asks is the oracle: it looks at
        /// each class on the way up before it buys.
        #[test]
        fn a_queue_alone_buys_what_one_of_several_would(
            kbit in [1_000u64..20_000, 1_000u64..20_000],
            above in [1_000u64..20_000, 1_000u64..20_000],
            burst in [3_000u64..60_000, 3_000u64..60_000],
            start in 0u64..1 << 40,
            steps in prop::collection::vec((64u64..1_515, 0u64..9_000, 0u64..5, 0u64..2_000), 1..60),
        ) {
            let [node, twin] = std::array::from_fn(|_| leaf((kbit, burst), (above, burst)));
            let mut alone = QueueHandle::new(Arc::clone(&node));
            let mut oracle = QueueHandle::new(Arc::clone(&twin));
            let _silent = QueueHandle::new(Arc::clone(&twin));
            for handle in [&mut alone, &mut oracle] {
                handle.total = start;
                handle.set_active(true);
            }
            let mut now = NOW;
            for (least, more, back, micros) in steps {
                now += Nanos::from_micros(micros);
                let (least, want) = (Bytes(least), Bytes(least + more));
                match alone.buy_own(least, want, now) {
                    Ok(bytes) => {
                        prop_assert!(least <= bytes && bytes <= want);
                        prop_assert_eq!(oracle.buy_own(bytes, bytes, now), Ok(bytes));
                        let back = Bytes(back * 100).min(bytes);
                        alone.give_back(0, back);
                        oracle.give_back(0, back);
                    }
                    Err(lack) => prop_assert_eq!(oracle.buy_own(least, want, now), Err(lack)),
                }
                prop_assert_eq!(node.tokens(now), twin.tokens(now));
            }
        }
    }

    proptest! {
        /// What a class buys and borrows at once costs it what it would have one after the other.
        #[test]
        fn a_class_that_buys_and_borrows_at_once_pays_for_both(
            rate in 1_000u64..20_000,
            ceil in 20_000u64..40_000,
            above in [20_000u64..80_000, 1_000u64..20_000],
            burst in [3_000u64..60_000, 3_000u64..60_000],
            steps in prop::collection::vec((64u64..1_515, 0u64..9_000, 0u64..5, 0u64..2_000), 1..60),
        ) {
            let above = ([above[1], above[0]], burst);
            let [node, twin] = std::array::from_fn(|_| leaf(([rate, ceil], burst), above));
            let handle = |node| QueueHandle::new(Arc::clone(node));
            let [mut one, mut other] = [&node, &twin].map(handle);
            one.set_active(true);
            other.set_active(true);
            let mut now = NOW;
            for (least, more, back, micros) in steps {
                now += Nanos::from_micros(micros);
                let (least, want) = (Bytes(least), Bytes(least + more));
                let bought = one.buy_own_and_more(least, want, (|| true, false), now);
                if let Ok((bytes, lent)) = bought {
                    prop_assert!(least <= bytes && bytes <= want && lent < bytes);
                    let own = bytes - lent;
                    prop_assert_eq!(other.buy_own(own, own, now), Ok(own));
                    if lent > Bytes::ZERO {
                        prop_assert_eq!(other.borrow(1, lent, lent, now), Ok(lent));
                    }
                    let back = Bytes(back * 100).min(bytes);
                    for handle in [&mut one, &mut other] {
                        handle.give_back(1, back.min(lent));
                        handle.give_back(0, back - lent);
                    }
                }
                prop_assert_eq!(node.tokens(now), twin.tokens(now));
                let times = [&node, &twin].map(|node| Limit::BOTH.map(|limit| node.time(1, limit)));
                prop_assert_eq!(times[0], times[1]);
            }
        }
    }

    proptest! {
        /// The oracle sells at each ledger on the way, whether that can hold anything up or not.
        #[test]
        fn a_ceiling_that_is_no_lower_than_the_one_above_lets_pass_what_that_one_does(
            rate in 1_000u64..20_000,
            above in 20_000u64..40_000,
            higher in 0u64..20_000,
            burst in 6_100u64..60_000,
            deeper in 0u64..60_000,
            steps in prop::collection::vec((64u64..9_000, 0u64..5, 0u64..4_000), 1..60),
        ) {
            let own = ([rate, above + higher], [burst, burst + deeper]);
            let node = leaf(own, ([above; 2], [burst; 2]));
            let root = node.parent.as_ref().unwrap();
            // At a higher rate a bucket may last for less time, however deep it is.
            prop_assume!(node.is_covered(node.terms.ceil()));
            let buckets = [node.terms.rate(), node.terms.ceil(), root.terms.ceil()];
            let model = buckets.map(|bucket| (Ledger::default(), bucket));
            let (mut total, mut now) = (0, NOW);
            for (bytes, back, micros) in steps {
                now += Nanos::from_micros(micros);
                let sold = model.iter().take_while(|(ledger, Bucket { pace, depth })| {
                    let span = pace.span(total, Bytes(bytes));
                    ledger.sell(span, span.min(*depth), *depth, now)
                });
                let sold = sold.count();
                let has_all = sold == model.len();
                prop_assert_eq!(node.take(Bytes(bytes), total, &Offer::OWN, now), has_all);
                let back = if has_all { back * bytes / 5 } else { bytes };
                for (ledger, bucket) in model.iter().take(sold) {
                    ledger.take_back(bucket.pace.span(total + bytes - back, Bytes(back)));
                }
                if has_all {
                    node.undo(Bytes(back), total + bytes - back, 0, usize::MAX);
                    total += bytes - back;
                }
                for (ledger, at) in [(node.rate().0, 0), (root.rate().0, 2)] {
                    let (own, Bucket { depth, .. }) = &model[at];
                    prop_assert_eq!(ledger.level(*depth, now), own.level(*depth, now));
                }
                prop_assert_eq!(node.sales.ceil.sold(), Nanos::ZERO);
            }
        }
    }

    #[test]
    fn what_the_ceiling_lets_pass_is_borrowed_in_the_same_turn_if_it_is_lent() {
        // Two frames in 250 us at the ceiling, and one at the rate.
        let limits = ([50_000, 100_000], [9_000, 30_000]);
        let buy = |is_lent| {
            let node = leaf(limits, ([1_000_000; 2], [250_000; 2]));
            let mut handle = QueueHandle::new(node);
            handle.set_active(true);
            while handle.buy_own(PACKET, PACKET, NOW).is_ok() {}
            let later = NOW + Nanos::from_micros(300);
            handle.buy_own_and_more(PACKET, Bytes(3 * PACKET.0), (|| is_lent, true), later)
        };
        assert_eq!(buy(false), Ok((PACKET, Bytes::ZERO)));
        assert_eq!(buy(true), Ok((Bytes(2 * PACKET.0), PACKET)));
    }

    #[test]
    fn a_class_whose_rate_is_its_ceiling_borrows_nothing() {
        // What is bought at once is less than a batch, because of the class above.
        let node = leaf(([200_000; 2], [30_000; 2]), ([200_000; 2], [9_000; 2]));
        let mut handle = QueueHandle::new(Arc::clone(&node));
        handle.set_active(true);
        let before = node.tokens(NOW);
        let (least, want) = (Bytes(700), Bytes(6_000));
        let (bytes, lent) = handle.buy_own_and_more(least, want, (|| true, true), NOW).unwrap();
        assert!(bytes < want && lent == Bytes::ZERO, "{bytes:?}, {lent:?}");
        let span = node.terms.ceil().pace.span(0, bytes).0 as i64;
        assert_eq!(before[0][1] - node.tokens(NOW)[0][1], span, "it is paid once");
    }

    #[test]
    fn what_the_classes_above_do_not_let_pass_is_not_sold() {
        let node = leaf(([9_000; 2], [90_000; 2]), ([1_000; 2], [9_000; 2]));
        let mut handle = QueueHandle::new(Arc::clone(&node));
        handle.set_active(true);
        let sold = (0..20).filter(|_| handle.buy_own(PACKET, PACKET, NOW).is_ok()).count();
        assert_eq!(sold, 6, "of 60 in its bucket, as many as there are in the one above");
        let [own, above] = node.tokens(NOW).try_into().unwrap();
        assert_eq!((own[0], above[0]), (80_000_000 - 8_000_000, 0));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::super::queue_handle::QueueHandle;
    use super::sample::{NOW, PACKET, class, leaf};
    use super::*;
    use loom::model::Builder;
    use loom::thread;
    use std::sync::Arc;

    /// A queue buys of the class's own credit while another comes, buys and goes: each packet is
    /// sold once, at both classes.
    #[test]
    fn loom_own_credit_is_sold_once_while_another_queue_comes_and_goes() {
        let mut model = Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let limits = ([10_000; 2], [6_500; 2]);
            let node = leaf(limits, limits);
            let root = node.parent.as_ref().unwrap();
            let levels = || [&node, root].map(|at| at.sales.ceil.level(at.terms.ceil().depth, NOW));
            let before = levels();
            let other = {
                let node = Arc::clone(&node);
                thread::spawn(move || {
                    let mut handle = QueueHandle::new(node);
                    handle.set_active(true);
                    let bought = handle.buy_own(PACKET, PACKET, NOW).is_ok();
                    handle.set_active(false);
                    u32::from(bought)
                })
            };
            let take = |before| node.take(PACKET, before, &Offer::OWN, NOW);
            let mut bought = u32::from(take(0));
            if take(PACKET.0) {
                node.undo(PACKET, PACKET.0, 0, usize::MAX);
            }
            bought += other.join().unwrap();
            let span = node.terms.ceil().pace.span(0, PACKET).0 as i64;
            assert_eq!(before.map(|level| level - i64::from(bought) * span), levels());
            assert_eq!(bought, 2, "there is credit for three");
        });
    }

    /// Two classes borrow from one lender. Each leaves it an eighth of its bucket, also if the
    /// other one buys at the same moment.
    #[test]
    fn loom_two_borrowers_leave_a_cushion_between_them() {
        let mut model = Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let own = ([1_000, 10_000], [9_000, 20_000]);
            let node = leaf(own, ([10_000; 2], [9_000; 2]));
            let root = node.parent.as_ref().unwrap();
            let other = Node::new(3, 3, &class(Some(1), own), Some(Arc::clone(root)));
            let borrow = |node: &Node| {
                let by = (1, Right::Shared(3, 0));
                (0..3).filter(|_| node.take_by_right(PACKET, 0, by, NOW)).count()
            };
            let other = thread::spawn(move || borrow(&other));
            let bought = borrow(&node) + other.join().unwrap();
            let (ledger, bucket) = root.rate();
            assert_eq!(bought, 5, "of the six packets in its bucket");
            assert!(ledger.level(bucket.depth, NOW) >= (bucket.depth.0 / 8) as i64);
        });
    }

    /// A class buys and borrows at once while another thread does the same. Only one finds enough
    /// at the class above; the other gives back also what it had of its own.
    #[test]
    fn loom_what_is_bought_and_borrowed_at_once_is_sold_once_or_given_back() {
        let mut model = Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            // Its ceiling's bucket lasts for less time than that above, so it is sold.
            let own = ([5_000, 40_000], [9_000, 20_000]);
            let node = leaf(own, ([10_000; 2], [6_500; 2]));
            let root = node.parent.as_ref().unwrap();
            let levels = |at: &Node| {
                let (rate, bucket) = at.rate();
                let ceil = at.sales.ceil.level(at.terms.ceil().depth, NOW);
                [rate.level(bucket.depth, NOW), ceil]
            };
            let before = [&node, root].map(|at| levels(at));
            let both = Bytes(3 * PACKET.0);
            let offer = || Offer { own: PACKET, lender: 1, owes: false };
            let other = {
                let node = Arc::clone(&node);
                thread::spawn(move || u64::from(node.take(both, 0, &offer(), NOW)))
            };
            let bought = u64::from(node.take(both, 0, &offer(), NOW)) + other.join().unwrap();
            assert_eq!(bought, 1, "there is credit for four packets");
            let span =
                |bucket: Bucket, packets| bucket.pace.span(0, Bytes(packets * PACKET.0)).0 as i64;
            let due = [&node, root].map(|at| [at.rate().1, at.terms.ceil()]);
            for (at, packets) in [[1, 3], [3, 3]].into_iter().enumerate() {
                let after = levels([&node, root][at]);
                for limit in 0..2 {
                    let sold = before[at][limit] - after[limit];
                    assert_eq!(sold, span(due[at][limit], packets[limit]));
                }
            }
        });
    }
}
