//! One queue of a class: its part of what the class may send.

use super::claim::{Claim, Right};
use super::node::{Limit, Node};
use super::virtual_time::{LEAD, VirtualTimeGroup, bytes, virtual_span};
use narrows_qdisc::{RANKS, Weight};
use narrows_units::{Bytes, Nanos};
use std::sync::Arc;

/// One queue's handle of a leaf class. In order of access.
#[repr(C)]
pub(super) struct QueueHandle {
    pub(super) node: Arc<Node>,
    /// Bought so far, in bytes.
    pub(super) total: u64,
    /// Its weight in the group of the class's queues, while it is in that.
    weight: u64,
    /// Whether it is in that group. A queue that alone sends for the class is not.
    is_member: bool,
    /// Whether packets are queued.
    is_active: bool,
    /// The rank of its next packet: there is a group for each rank.
    rank: u8,
    /// The queue's weight among the queues of the class.
    part: Weight,
    /// Its virtual time in the group.
    place: u64,
    /// The time that it announced there when it was refused; 0 if it was not.
    wanted: Nanos,
    /// Its virtual times in groups of other ranks. Made with the first other rank.
    places: Option<Box<[u64; RANKS]>>,
}

impl QueueHandle {
    /// How many of its bytes a turn touches that is paid for by the class's own credit.
    #[cfg(test)]
    pub(super) const OF_A_TURN: usize = std::mem::offset_of!(Self, places);

    pub(super) fn new(node: Arc<Node>) -> Self {
        node.add_handle();
        Self {
            node,
            total: 0,
            place: 0,
            places: None,
            weight: 0,
            part: Weight::ONE,
            rank: 0,
            is_member: false,
            is_active: false,
            wanted: Nanos::ZERO,
        }
    }

    fn weight_among_queues(&self) -> u64 {
        let quantum = u64::from(self.node.quantum());
        (quantum * u64::from(self.part.0) / u64::from(Weight::ONE.0)).max(1)
    }

    /// Joins the group of the class's queues, if others send for it, too.
    #[inline]
    pub(super) fn join(&mut self) {
        if !self.is_member && self.node.is_shared() {
            self.is_member = true;
            self.weight = self.weight_among_queues();
            self.join_group();
        }
    }

    /// Whether others send for the class, too, as far as this queue knows.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        self.is_member
    }

    /// For how much of `limit` it waits that wants `want`, or `least`. Where queues share the
    /// class, no queue waits for more than a packet.
    #[inline]
    pub(super) fn batch(&self, limit: Limit, least: Bytes, want: Bytes) -> Bytes {
        if self.is_member { least } else { self.node.batch(limit, least, want) }
    }

    /// Whether it has announced to other queues of the class that it waits.
    #[inline]
    pub(super) fn was_refused(&self) -> bool {
        self.wanted != Nanos::ZERO
    }

    /// Joins the group of its rank.
    fn join_group(&mut self) {
        self.queues().join(self.weight);
        self.place = self.queues().start(self.place, self.weight);
    }

    /// The group of the queues of the class that are of its rank.
    #[inline]
    fn queues(&self) -> &VirtualTimeGroup {
        self.node.queues(self.rank.into())
    }

    /// The queue's claim within its class.
    #[inline]
    pub(super) fn claim(&self, now: Nanos) -> Claim {
        if self.is_member { self.claim_among_queues(now) } else { Claim::ASSURED }
    }

    pub(super) fn claim_among_queues(&self, now: Nanos) -> Claim {
        let queues = self.queues();
        let outranked = if self.rank == 0 { Nanos::ZERO } else { self.outranked_until() };
        let is_outranked = outranked > now;
        let Some((of_last, until)) = queues.ahead_of_last(self.place, self.weight, now) else {
            if is_outranked {
                let right = Right::without(false, true);
                return Claim { right, later: Right::Assured, at: outranked };
            }
            // No other queue waits: the others have what they want.
            return Claim::ASSURED;
        };
        // Before then the other queues of the class have not bought their shares.
        let ahead = queues.ahead(self.place, self.weight).unwrap_or_default();
        let others = queues.bytes(ahead).max(bytes(of_last, self.weight).min(LEAD));
        let others = self.node.terms.ceil().pace.span(0, others);
        let at = until.max(now + others).max(outranked);
        Claim { right: Right::without(true, is_outranked), later: Right::Assured, at }
    }

    /// The time until which a queue of the class with a better rank waits.
    #[inline(never)]
    fn outranked_until(&self) -> Nanos {
        let better = 0..usize::from(self.rank);
        let better = better.map(|rank| self.node.queues(rank).wanted_until());
        better.max().unwrap_or_default()
    }

    /// Announces to the other queues that it waits until `until`.
    #[inline]
    pub(super) fn announce(&mut self, until: Nanos, now: Nanos) {
        if self.is_member {
            self.wanted = self.queues().want(self.place, until, now);
        }
    }

    /// Tells queues of worse ranks that it comes at `due` or before.
    #[inline]
    pub(super) fn announce_arrival(&mut self, due: Nanos) {
        if self.is_member && self.node.has_ranks() {
            self.wanted = self.queues().announce_arrival(due);
        }
    }

    /// It has bought `bytes`.
    #[inline]
    pub(super) fn bought(&mut self, bytes: Bytes, now: Nanos) {
        self.total = self.total.wrapping_add(bytes.0);
        if self.is_member {
            let from = self.place;
            self.place = from.wrapping_add(virtual_span(bytes, self.weight));
            self.queues().advance(from, self.place, bytes, self.weight);
            self.withdraw(now);
        }
    }

    /// It returns `bytes` of the last purchase.
    pub(super) fn returned(&mut self, bytes: Bytes) {
        self.total = self.total.wrapping_sub(bytes.0);
        if self.is_member {
            self.place = self.place.wrapping_sub(virtual_span(bytes, self.weight));
            self.queues().returned(bytes, self.weight);
        }
    }

    /// Withdraws what it announced.
    fn withdraw(&mut self, now: Nanos) {
        if self.was_refused() {
            let wanted = std::mem::take(&mut self.wanted);
            self.queues().withdraw(wanted, now);
            self.queues().stop_waiting(self.place, now);
        }
    }

    /// Sets its weight among the queues of the class.
    pub(super) fn weigh(&mut self, part: Weight) {
        if self.part == part {
            return;
        }
        self.part = part;
        if self.is_member {
            let weight = self.weight_among_queues();
            let before = std::mem::replace(&mut self.weight, weight);
            self.queues().join(self.weight);
            let _: bool = self.queues().leave(before);
        }
    }

    /// Its next packet has this rank from `now` on.
    pub(super) fn rank(&mut self, rank: u8, now: Nanos) {
        let rank = rank.min(RANKS as u8 - 1);
        if rank == self.rank {
            return;
        }
        self.withdraw(now);
        let before = usize::from(std::mem::replace(&mut self.rank, rank));
        let places = self.places.get_or_insert_default();
        places[before] = self.place;
        self.place = places[usize::from(rank)];
        if self.is_member {
            self.join_group();
            let _: bool = self.node.queues(before).leave(self.weight);
        }
    }

    /// Packets are queued here from now on, or no longer.
    #[inline]
    pub(super) fn set_active(&mut self, active: bool) {
        if active != self.is_active {
            self.change_activity(active);
        }
    }

    #[inline(never)]
    fn change_activity(&mut self, active: bool) {
        self.is_active = active;
        if active {
            return self.join();
        }
        let weight = std::mem::take(&mut self.weight);
        if !std::mem::take(&mut self.is_member) || self.queues().leave(weight) {
            self.node.retire();
        }
    }

    /// Nothing is queued here now. If leaving at once changes nothing, neither for the other queues
    /// of the class nor for this one when it has packets again, it leaves and returns `true`.
    pub(super) fn try_leave(&mut self) -> bool {
        // Alone in its group, and where it would start again, it can as well leave. A class that
        // is in groups above it lingers there.
        let queues = self.queues();
        let is_free = !self.is_member
            || (queues.is_alone(self.weight)
                && queues.start(self.place, self.weight) == self.place);
        let leaves = is_free && !self.node.has_entered();
        if leaves {
            self.set_active(false);
        }
        leaves
    }
}

impl Drop for QueueHandle {
    fn drop(&mut self) {
        self.set_active(false);
        self.node.remove_handle();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::tree::node::Limit;
    use narrows_qdisc::htb::Class;
    use narrows_units::{Rate, wire::Overhead};

    const NOW: Nanos = Nanos::from_secs(1);
    const PACKET: Bytes = Bytes(1_500);

    fn class(mbit: u64) -> Class {
        let (rate, ceil) =
            (Rate::from_bits_per_sec(mbit * 1_000_000), Rate::from_bits_per_sec(1 << 30));
        let (burst, cburst) = (Bytes(10_000), Bytes(1 << 20));
        let overhead = Overhead::NONE;
        Class { parent: None, rate, ceil, burst, cburst, prio: 0, quantum: 10_000, overhead }
    }

    fn handles<const COUNT: usize>(node: &Arc<Node>) -> [QueueHandle; COUNT] {
        std::array::from_fn(|_| QueueHandle::new(Arc::clone(node)))
    }

    #[test]
    fn a_queue_rests_at_once_where_it_is_alone() {
        let node = Arc::new(Node::new(1, 1, &class(1_000), None));
        let [mut one, mut other] = handles(&node);
        one.set_active(true);
        one.buy_own(PACKET, PACKET, NOW).unwrap();
        assert!(one.try_leave() && node.queues(0).is_empty());
        one.set_active(true);
        other.set_active(true);
        assert!(!one.try_leave() && !other.try_leave(), "each would leave its part to the other");
        other.set_active(false);
        assert!(one.try_leave());
    }

    #[test]
    fn a_queue_that_has_less_or_more_than_it_would_start_with_does_not_rest_at_once() {
        let node = Arc::new(Node::new(1, 1, &class(1_000), None));
        let [mut one, mut other] = handles(&node);
        one.set_active(true);
        other.set_active(true);
        other.buy_own(PACKET, PACKET, NOW).unwrap();
        other.set_active(false);
        assert!(!one.try_leave(), "it is behind, and has a right to more");
    }

    #[test]
    fn a_class_that_has_borrowed_does_not_rest_at_once() {
        let root = Arc::new(Node::new(1, 1, &class(1_000), None));
        let node = Arc::new(Node::new(2, 2, &class(1), Some(root)));
        let [mut handle] = handles(&node);
        handle.set_active(true);
        while handle.buy_own(PACKET, PACKET, NOW).is_ok() {}
        assert_eq!(handle.borrow(1, PACKET, PACKET, NOW), Ok(PACKET));
        assert!(!handle.try_leave(), "it is in the group of its lender");
        handle.set_active(false);
        handle.set_active(true);
        assert!(handle.try_leave());
    }

    /// What each of `asking` buys of the class's own credit meanwhile, as soon as it may.
    fn run(asking: &mut [&mut QueueHandle], from: Nanos, span: Nanos) -> Vec<u64> {
        let (mut bought, mut due) = (vec![0; asking.len()], vec![from; asking.len()]);
        let mut now = from;
        while now < from + span {
            for (at, handle) in asking.iter_mut().enumerate() {
                if due[at] > now {
                    continue;
                }
                match handle.buy_own(PACKET, PACKET, now) {
                    Ok(bytes) => bought[at] += bytes.0,
                    Err(lack) => {
                        due[at] = lack.until;
                        handle.announce(lack.until, now);
                    }
                }
            }
            now += Nanos::from_micros(1);
        }
        bought
    }

    #[test]
    fn a_queue_shares_with_another_and_is_in_no_group_otherwise() {
        const SPAN: Nanos = Nanos::from_millis(10);
        // 125 bytes a microsecond.
        const ALL: u64 = 125 * SPAN.0 / 1_000;
        let within = |bought: u64, due: u64, frames: u64| bought.abs_diff(due) <= frames * PACKET.0;
        let node = Arc::new(Node::new(1, 1, &class(1_000), None));
        let group_time = || node.queues(0).start(0, 1);
        let [mut one] = handles(&node);
        one.set_active(true);
        run(&mut [&mut one], NOW, SPAN);
        let mut now = NOW + SPAN;
        for _ in 0..3 {
            let before = group_time();
            let bought = run(&mut [&mut one], now, SPAN);
            assert!(within(bought[0], ALL, 1), "alone: {bought:?} of {ALL}");
            assert!(node.queues(0).is_empty() && group_time() == before, "there is no group");
            let [mut other] = handles(&node);
            other.set_active(true);
            let bought = run(&mut [&mut one, &mut other], now + SPAN, SPAN);
            assert!(within(bought.iter().sum(), ALL, 1), "both: {bought:?} of {ALL}");
            assert!(within(bought[0], bought[1], 4), "in equal parts: {bought:?}");
            other.set_active(false);
            drop(other);
            let bought = run(&mut [&mut one], now + SPAN + SPAN, SPAN);
            assert!(within(bought[0], ALL, 1), "alone again: {bought:?} of {ALL}");
            one.set_active(false);
            one.set_active(true);
            now = now + SPAN + SPAN + SPAN;
        }
    }

    #[test]
    fn the_last_queue_to_rest_takes_the_class_out_of_the_groups_above_whoever_put_it_there() {
        let root = Arc::new(Node::new(1, 1, &class(1_000), None));
        let node = Arc::new(Node::new(2, 2, &class(1), Some(Arc::clone(&root))));
        let [mut one] = handles(&node);
        one.set_active(true);
        while one.buy_own(PACKET, PACKET, NOW).is_ok() {}
        one.borrow(1, PACKET, PACKET, NOW).unwrap();
        let [mut other] = handles(&node);
        other.set_active(true);
        // It has not asked since the other one came.
        one.set_active(false);
        assert!(!root.borrowers(Limit::Ceil)[0].is_empty(), "the other one has packets");
        other.set_active(false);
        assert!(root.borrowers(Limit::Ceil)[0].is_empty() && node.queues(0).is_empty());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::ledger::Ledger;
    use crate::tree::node::Limit;
    use crate::tree::purchase::LONGEST_DEBT;
    use crate::tree::terms::Bucket;
    use loom::model::Builder;
    use loom::thread;
    use narrows_qdisc::htb::Class;
    use narrows_units::{Rate, wire::Overhead};

    const NOW: Nanos = Nanos::from_secs(1);
    const PACKET: Bytes = Bytes(1_500);

    fn class(parent: Option<u32>, mbit: u64) -> Class {
        let rate = Rate::from_bits_per_sec(mbit * 1_000_000);
        // One that is no lower than that above it would not be sold.
        let ceil = if parent.is_some() { 900_000_000 } else { 1_000_000_000 };
        let ceil = Rate::from_bits_per_sec(ceil);
        let (burst, overhead) = (Bytes(7_000), Overhead::NONE);
        Class { parent, rate, ceil, burst, cburst: burst, prio: 0, quantum: 10_000, overhead }
    }

    /// Two queues leave, and each may be the last. They may have seen that they share the class, or
    /// not.
    #[test]
    fn loom_a_class_that_has_entered_leaves_with_its_last_queue_whoever_put_it_there() {
        loom::model(|| {
            let root = Arc::new(Node::new(1, 1, &class(None, 1_000), None));
            let node = Arc::new(Node::new(2, 2, &class(Some(1), 1), Some(Arc::clone(&root))));
            assert!(root.borrowers(Limit::Ceil)[0].is_empty());
            let mut one = QueueHandle::new(Arc::clone(&node));
            one.set_active(true);
            let other = {
                let node = Arc::clone(&node);
                thread::spawn(move || {
                    let mut handle = QueueHandle::new(node);
                    handle.set_active(true);
                    handle.set_active(false);
                })
            };
            one.join();
            node.enter();
            one.set_active(false);
            other.join().unwrap();
            assert!(root.borrowers(Limit::Ceil)[0].is_empty() && node.queues(0).is_empty());
        });
    }

    /// Leaves `rest` in the ledger.
    fn drain((ledger, Bucket { pace, depth }): (&Ledger, Bucket), rest: Bytes) {
        ledger.charge(depth - pace.span(0, rest), depth, LONGEST_DEBT, NOW);
    }

    /// Two classes below `root` each want a packet, of their own or (`borrows`) from the root,
    /// which lets one pass. One gets it. The other may find out only when it has bought at some
    /// ledgers: it gives that back.
    fn one_buys_and_the_other_gives_back(root: &Arc<Node>, borrows: bool) {
        let [mut one, mut other] = [2, 3].map(|id| {
            let node = Node::new(id, u64::from(id), &class(Some(1), 1), Some(Arc::clone(root)));
            if borrows {
                drain(node.rate(), Bytes::ZERO);
            }
            let mut handle = QueueHandle::new(Arc::new(node));
            handle.set_active(true);
            handle
        });
        assert!(root.borrowers(Limit::Ceil)[0].is_empty());
        let before = one.node.tokens(NOW);
        let buy = move |handle: &mut QueueHandle| {
            let bought = match borrows {
                true => handle.borrow(1, PACKET, PACKET, NOW),
                false => handle.buy_own(PACKET, PACKET, NOW),
            };
            u32::from(bought == Ok(PACKET))
        };
        let other = thread::spawn(move || (buy(&mut other), other));
        let bought = buy(&mut one);
        let (bought_too, other) = other.join().unwrap();
        assert_eq!(bought + bought_too, 1, "there is credit for one");
        let buckets = [&one.node, root].map(|node| [node.rate().1, node.terms.ceil()]);
        let paid = |handle: &QueueHandle, bought: u32| {
            // A borrower pays nothing at the rate of its class.
            let packets = [[if borrows { 0 } else { bought }, bought], [1, 1]];
            for (at, now) in handle.node.tokens(NOW).into_iter().enumerate() {
                for ledger in 0..2 {
                    let span = buckets[at][ledger].pace.span(0, PACKET).0 as i64;
                    let due = i64::from(packets[at][ledger]) * span;
                    assert_eq!(before[at][ledger] - now[ledger], due);
                }
            }
        };
        paid(&one, bought);
        paid(&other, bought_too);
    }

    #[test]
    fn loom_a_class_whose_ceiling_above_another_was_faster_at_gives_back_what_it_has_bought() {
        let mut model = Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let rate = Rate::from_bits_per_sec(10_000_000);
            let root = Node::new(1, 1, &Class { ceil: rate, ..class(None, 10) }, None);
            drain(root.rate(), Bytes(2_000));
            one_buys_and_the_other_gives_back(&Arc::new(root), false);
        });
    }

    #[test]
    fn loom_a_borrower_that_another_was_faster_than_gives_back_what_it_has_bought() {
        let mut model = Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let root = Node::new(1, 1, &class(None, 10), None);
            // Less than two packets, and more than one and what a borrower leaves.
            drain(root.rate(), Bytes(2_500));
            one_buys_and_the_other_gives_back(&Arc::new(root), true);
        });
    }

    /// One queue alone sends for a class while another comes, sends and goes. Both are counted or
    /// none, whatever each sees of the other: what they buy is what the ledgers have sold, and
    /// nothing of them is left in a group.
    #[test]
    fn loom_a_queue_that_comes_and_goes_leaves_nothing_behind() {
        let mut model = Builder::new();
        model.preemption_bound = Some(1);
        model.check(|| {
            let root = Arc::new(Node::new(1, 1, &class(None, 1_000), None));
            let node = Arc::new(Node::new(2, 2, &class(Some(1), 1), Some(Arc::clone(&root))));
            let level = |node: &Node| {
                let (ledger, bucket) = node.rate();
                ledger.level(bucket.depth, NOW)
            };
            assert!(root.borrowers(Limit::Ceil)[0].is_empty());
            let mut one = QueueHandle::new(Arc::clone(&node));
            one.set_active(true);
            // It has nothing of its own.
            drain(node.rate(), Bytes::ZERO);
            let before = level(&root);
            let buy = |handle: &mut QueueHandle| {
                handle.borrow(1, PACKET, PACKET, NOW).map_or(0, |_| 1u64)
            };
            let other = {
                let node = Arc::clone(&node);
                thread::spawn(move || {
                    let mut handle = QueueHandle::new(node);
                    handle.set_active(true);
                    let bought = buy(&mut handle);
                    handle.set_active(false);
                    bought
                })
            };
            let bought = buy(&mut one);
            one.set_active(false);
            let bought = bought + other.join().unwrap();
            assert!(bought >= 1, "there is credit for both, and one was first");
            let span = root.terms.rate().pace.span(0, PACKET).0;
            assert_eq!(before - level(&root), (bought * span) as i64);
            assert!(node.queues(0).is_empty(), "nobody is in the class's group");
            assert!(root.borrowers(Limit::Ceil)[0].is_empty(), "nor the class at its lender");
            // Alone again, it is held up by nothing that the other one has left.
            assert!(!node.is_shared());
            let later = NOW + Nanos::from_millis(1);
            one.set_active(true);
            assert!(one.borrow(1, PACKET, PACKET, later).is_ok());
        });
    }
}
