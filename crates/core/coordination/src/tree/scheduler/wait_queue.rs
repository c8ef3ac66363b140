//! Who waits for what a class lends, or for what its ceiling lets pass: its wait queues, one for
//! each priority.
//!
//! A wait queue has the leaves directly below the class, and the wait queues of the classes
//! directly below it. Each level is ordered by the virtual times at that level's class. So the
//! first of a wait queue is found from class to class, and where a ceiling binds, those below it
//! are in the order of what it has let pass.
//!
//! *Wait queues are kept lazily.* A leaf that is served from elsewhere, or runs empty, stays in its
//! wait queue until it comes first; and so does one whose virtual time has advanced.

use super::calendar::Calendar;
use super::event::Event;
use super::heap::{Child, Heap, NOWHERE, is_before};
use super::leaf::{Leaf, NONE, State};
use super::lenders::Lenders;
use super::{Scheduler, Turn};
use crate::sync::Ordering;
use crate::tree::buying::{Lack, Loan};
use crate::tree::node::{Limit, Node};
use narrows_qdisc::htb::Grant;
use narrows_units::{Bytes, Nanos};
use std::sync::Arc;

/// What is lent below a root may have to wait for the root's ceiling. All wait for the same who
/// borrow from classes as high as this one, with the same priority or a worse one; and so do those
/// who borrow from classes further up, because more has to be left for others there.
#[derive(Clone, Copy)]
pub(super) struct LetsPass {
    until: Nanos,
    /// How many classes are above the lender.
    depth: usize,
    prio: u8,
}

/// A lender puts off so often when it lends before a leaf asks again: what the leaf needs may have
/// become less, because a better priority has no packets any more.
const PUT_OFF_MOST: u32 = 16;

/// The classes that wait for one limit of one class, of one priority.
///
/// What a leaf touches that comes to wait is in the first cache line.
#[repr(C, align(64))]
pub(super) struct WaitQueue {
    /// From when on the class lends,
    pub(super) lends_from: Nanos,
    /// and when to check whether it does; [`Nanos::MAX`] for never.
    looked_at: Nanos,
    /// From when on its ceiling lets borrowers pass; zero if it does.
    pub(super) closed_until: Nanos,
    /// The virtual time of the leaf to which it lent nothing before.
    refused: u64,
    /// The times that were announced to other queues, by limit; zero for none.
    announced: [Nanos; 2],
    /// How many leaves wait in it, and how many of the wait queues directly below it have some.
    pub(super) waiting: u32,
    /// The first leaf in it or in one below it, or [`NONE`].
    pub(super) first: u32,
    /// The wait queue of the class above that one, or [`NONE`].
    pub(super) above: u32,
    /// Whether it is among the lenders.
    is_listed: bool,
    pub(super) prio: u8,

    pub(super) node: Arc<Node>,
    heap: Heap,
    /// How much credit of its own its class has when it lends; zero if that is not known.
    needs: Nanos,
    /// How often that has put its time off since a leaf asked.
    put_off: u32,
    /// The place of its class.
    pub(super) inner: u32,
    /// Its position in the heap of the one above.
    position: u32,
}

impl WaitQueue {
    pub(super) fn new(node: &Arc<Node>, inner: u32, above: u32, prio: u8) -> Self {
        Self {
            node: Arc::clone(node),
            inner,
            above,
            prio,
            heap: Heap::default(),
            first: NONE,
            position: NOWHERE,
            waiting: 0,
            is_listed: false,
            lends_from: Nanos::ZERO,
            needs: Nanos::ZERO,
            put_off: 0,
            looked_at: Nanos::MAX,
            refused: 0,
            closed_until: Nanos::ZERO,
            announced: [Nanos::ZERO; 2],
        }
    }

    #[inline]
    pub(super) fn depth(&self) -> usize {
        self.node.depth()
    }

    /// Whether its ceiling does not let borrowers pass, or did not when that was last checked.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.closed_until != Nanos::ZERO
    }

    /// Whether its class lends to whom asks, as far as is known: nobody waits for it.
    #[inline]
    pub(super) fn lends_at_once(&self, now: Nanos) -> bool {
        self.waiting == 0 && self.lends_from <= now && !self.is_closed()
    }

    /// Puts it, which is at the place `at`, among the lenders if leaves wait in it and its class
    /// may lend.
    #[inline]
    fn list(&mut self, at: u32, lenders: &mut Lenders, now: Nanos) {
        if !self.is_listed && self.waiting > 0 && self.lends_from <= now {
            self.is_listed = true;
            lenders.push(self.depth(), self.prio.into(), at);
        }
    }

    /// Schedules the time at which its class lends again.
    #[inline]
    fn schedule(&mut self, at: u32, times: &mut Calendar) {
        if self.lends_from < self.looked_at {
            self.looked_at = self.lends_from;
            times.insert(self.lends_from, Event::Lends(at).to_number());
        }
    }

    /// It lends as soon as its class has as much credit as it will have if nobody buys until then.
    #[inline]
    fn remember_needs(&mut self, now: Nanos) {
        let (ledger, bucket) = self.node.rate();
        self.put_off = 0;
        self.needs = self.lends_from - ledger.due(Nanos::ZERO, bucket.depth, now);
    }

    /// How much longer its class gathers credit, so that what `leaf` and others want takes one look
    /// and not several. A packet that waits alone is not delayed. Nor is one where the rate is the
    /// ceiling, as at most roots: nobody else could use the credit meanwhile.
    #[inline]
    fn gathers(&self, leaf: &Leaf) -> Nanos {
        let Some((_, bucket)) = self.node.rate_apart() else { return Nanos::ZERO };
        let (least, want) = (leaf.least(), Bytes(leaf.want.into()));
        let want = leaf.handle.batch(Limit::Ceil, least, want);
        let batch = if self.waiting > 1 {
            let want = want.max(Bytes(least.0 * u64::from(self.waiting)));
            want.min(bucket.batch_of_several()).max(self.node.batch(Limit::Rate, least, want))
        } else {
            self.node.batch(Limit::Rate, least, want)
        };
        bucket.pace.span(0, Bytes(batch.0.saturating_sub(least.0)))
    }

    /// Whether other queues have bought more than their shares, so that `leaf` has a better right
    /// than it had.
    #[inline]
    fn is_behind(&self, leaf: &Leaf) -> bool {
        let group = &self.node.borrowers(self.node.counted(Limit::Rate))[leaf.node().prio()];
        let weight = u64::from(leaf.node().quantum());
        group.is_behind(leaf.time(&self.node, Limit::Rate), weight)
    }

    /// When it lends, if classes that go first have bought meanwhile.
    #[inline]
    fn lends_later(&mut self, now: Nanos) -> Option<Nanos> {
        let (ledger, bucket) = self.node.rate();
        let due = ledger.due(self.needs.min(bucket.depth), bucket.depth, now);
        let is_later = due > now && self.needs > Nanos::ZERO && !self.is_listed;
        self.put_off += u32::from(is_later);
        (is_later && self.put_off <= PUT_OFF_MOST).then_some(due)
    }

    /// The `leaf` at `place`, `steps` below its class, waits in it, which is at the place `at`, or
    /// in one below it.
    #[inline(always)]
    fn has_come(
        &mut self,
        at: u32,
        (leaf, place, steps): (&mut Leaf, u32, usize),
        (lenders, times): (&mut Lenders, &mut Calendar),
        now: Nanos,
    ) {
        if self.lends_from > now {
            // Only the first asks.
            let is_first = self.first == place;
            let time = || leaf.node().time(steps, self.node.counted(Limit::Rate));
            if is_first && is_before(time(), self.refused) {
                // It may have a better right than the one that was refused.
                self.lends_from = now;
            } else {
                if self.announced[Limit::Rate as usize] == Nanos::ZERO {
                    self.announce(Limit::Rate, leaf, self.lends_from, now);
                }
                self.schedule(at, times);
            }
        }
        self.list(at, lenders, now);
    }

    /// Announces to other queues that the `leaf` waits for `limit` until `until`.
    pub(super) fn announce(&mut self, limit: Limit, leaf: &mut Leaf, until: Nanos, now: Nanos) {
        leaf.announced |= 1 << self.depth();
        let leaf = leaf.node();
        let (prio, weight) = (leaf.prio(), u64::from(leaf.quantum()));
        let kind = limit as usize;
        let limit = self.node.counted(limit);
        let group = &self.node.borrowers(limit)[prio];
        let place = leaf.place(leaf.depth() - self.depth(), limit);
        let from = place.load(Ordering::Relaxed);
        let to = group.floor(from, weight);
        if to != from {
            // If another queue has bought meanwhile, the class is less far behind.
            let _ = place.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        }
        self.announced[kind] = group.want(to, until, now);
    }

    /// Withdraws what was announced, after `leaf` has had its turn or waits no longer.
    #[inline(always)]
    pub(super) fn withdraw(&mut self, leaf: &Node, now: Nanos) {
        if self.announced != [Nanos::ZERO; 2] {
            self.withdraw_announced(leaf, now);
        }
    }

    #[inline(never)]
    fn withdraw_announced(&mut self, leaf: &Node, now: Nanos) {
        let prio = leaf.prio();
        for limit in Limit::BOTH {
            let wanted = std::mem::take(&mut self.announced[limit as usize]);
            if wanted != Nanos::ZERO {
                let limit = self.node.counted(limit);
                let group = &self.node.borrowers(limit)[prio];
                group.withdraw(wanted, now);
                let place = leaf.place(leaf.depth() - self.depth(), limit);
                group.stop_waiting(place.load(Ordering::Relaxed), now);
            }
        }
    }
}

impl Scheduler {
    /// The leaf at `place`, which has no credit of its own for a while, may borrow until then: it
    /// waits for all classes above it.
    #[inline(never)]
    pub(super) fn wait_for_lenders(&mut self, place: u32, now: Nanos) {
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        leaf.handle.announce_arrival(leaf.own_from);
        leaf.handle.node.enter();
        if !std::mem::replace(&mut leaf.is_queued, true) {
            self.join(place);
        }
        let Self { leaves, marks, queues, lenders, times, closed, .. } = self;
        let Some(Some(leaf)) = leaves.get_mut(place as usize) else { return };
        let before = std::mem::replace(&mut marks[place as usize].state, State::Borrows);
        let due = std::mem::take(&mut leaf.own_from);
        leaf.wait(place, due, times);
        let (mut at, mut steps) = (leaf.queue, 0);
        // One that has borrowed, and goes on waiting, changes nothing. Nor does one that is neither
        // the only one nor the first change those above, which lend if they can, unless they could
        // not because all who waited were behind a ceiling.
        let (mut is_only, mut changes) = (true, before != State::Borrows);
        while changes && let Some(queue) = queues.get_mut(at as usize) {
            steps += 1;
            queue.waiting += u32::from(is_only);
            is_only &= queue.waiting == 1;
            queue.has_come(at, (leaf, place, steps), (lenders, times), now);
            changes = is_only || queue.first == place || *closed > 0;
            at = queue.above;
        }
        let is_shared = leaf.handle.is_shared();
        if *closed > 0 {
            self.open_above(place, now);
        }
        if is_shared {
            self.announce_to_queues(place, now);
        }
    }

    /// Puts the leaf at `place` into its wait queue.
    fn join(&mut self, place: u32) {
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        let queue = leaf.queue;
        let time = self.time_in(queue, place);
        self.change(queue, |heap, mut moved| heap.insert(time, Child::leaf(place), &mut moved));
        self.update(queue);
    }

    /// Opens the wait queues above the leaf at `place` that could have opened, but were to wait for
    /// lenders above them. One of these may lend to it now.
    #[inline(never)]
    fn open_above(&mut self, place: u32, now: Nanos) {
        let mut at = self.queue_above(place, 1);
        while let Some(queue) = self.queues.get(at as usize) {
            let above = queue.above;
            if queue.is_closed() {
                self.opens(at, now);
            }
            at = above;
        }
    }

    /// Announces to the other queues of the class of the leaf at `place` until when it waits, once
    /// no lender is left that it has not asked.
    #[inline]
    pub(super) fn announce_to_queues(&mut self, place: u32, now: Nanos) {
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        if !leaf.handle.is_shared() {
            return;
        }
        let (mut at, mut first) = (leaf.queue, leaf.until);
        while let Some(queue) = self.queues.get(at as usize) {
            first = first.min(queue.lends_from);
            at = queue.above;
        }
        if first > now {
            leaf.handle.announce(first, now);
        }
    }

    /// The leaf at `place` waits for lenders no longer, which has just borrowed if it did before.
    #[inline]
    pub(super) fn leave_after_loan(&mut self, place: u32, now: Nanos) {
        let mark = &mut self.marks[place as usize];
        if mark.state == State::Borrows {
            mark.state = State::Ready;
            self.has_left_lenders(place, now);
        }
    }

    /// The leaf at `place`, which has just borrowed, waits for lenders no longer.
    #[inline(never)]
    pub(super) fn has_left_lenders(&mut self, place: u32, now: Nanos) {
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        leaf.leave_lenders(&mut self.queues, now);
        leaf.announced = u16::MAX;
        self.withdraw_above(place, now);
    }

    /// The leaf at `place` waits for lenders no longer.
    #[inline]
    pub(super) fn leave_lenders(&mut self, place: u32, now: Nanos) {
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        let mark = &mut self.marks[place as usize];
        if mark.state != State::Borrows {
            return;
        }
        mark.state = State::Ready;
        leaf.leave_lenders(&mut self.queues, now);
    }

    /// Withdraws what was announced for the leaf at `place`, which has bought.
    #[inline]
    pub(super) fn withdraw_above(&mut self, place: u32, now: Nanos) {
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        let announced = std::mem::take(&mut leaf.announced);
        if announced == 0 {
            return;
        }
        let mut at = leaf.queue;
        while let Some(queue) = self.queues.get_mut(at as usize) {
            if announced & (1 << queue.depth()) != 0 {
                queue.withdraw(&leaf.handle.node, now);
            }
            at = queue.above;
        }
    }

    /// Changes the heap of the wait queue `at`.
    #[inline]
    fn change(&mut self, at: u32, change: impl FnOnce(&mut Heap, &mut dyn FnMut(u32, u32))) {
        let mut heap = std::mem::take(&mut self.queues[at as usize].heap);
        let queues = &mut self.queues;
        change(&mut heap, &mut |queue, position| queues[queue as usize].position = position);
        self.queues[at as usize].heap = heap;
    }

    /// The virtual time of the leaf at `place` that orders it in the wait queue `at`.
    #[inline]
    fn time_in(&self, at: u32, place: u32) -> u64 {
        let leaf = self.leaves[place as usize].as_ref();
        leaf.map_or(0, |leaf| leaf.time(&self.queues[at as usize].node, Limit::Ceil))
    }

    /// The first has changed in the wait queue `at`, or its virtual time has: those above follow.
    ///
    /// Where it comes later above than the one before it, it stays where that was until it comes
    /// first, as a leaf does.
    #[inline]
    fn update(&mut self, mut at: u32) {
        loop {
            let queue = &self.queues[at as usize];
            let first = match queue.heap.first().map(|(_, child)| child.get()) {
                None => NONE,
                Some(Ok(leaf)) => leaf,
                Some(Err(below)) => self.queues[below as usize].first,
            };
            let (above, position) = (queue.above, queue.position);
            let is_closed = queue.is_closed();
            self.queues[at as usize].first = first;
            if above == NONE {
                return;
            }
            let time = (first != NONE && !is_closed).then(|| self.time_in(above, first));
            match (time, position) {
                (None, NOWHERE) => return,
                (Some(time), position)
                    if position != NOWHERE
                        && !is_before(time, self.queues[above as usize].heap.time(position)) =>
                {
                    if position != 0 || self.queues[above as usize].first == first {
                        return;
                    }
                }
                _ => self.change(above, |heap, mut moved| match (time, position) {
                    (Some(time), NOWHERE) => heap.insert(time, Child::queue(at), &mut moved),
                    (Some(time), position) => heap.set(position, time, &mut moved),
                    (None, position) => heap.remove(position, &mut moved),
                }),
            }
            at = above;
        }
    }

    /// Takes the wait queue `at` out of the one above it.
    pub(super) fn detach(&mut self, at: u32) {
        let WaitQueue { above, position, .. } = self.queues[at as usize];
        if position != NOWHERE {
            self.change(above, |heap, mut moved| heap.remove(position, &mut moved));
            self.update(above);
        }
    }

    /// The wait queue `at` is no longer among the lenders.
    pub(super) fn unlist(&mut self, at: u32) {
        let queue = &mut self.queues[at as usize];
        if std::mem::take(&mut queue.is_listed) {
            self.lenders.remove(queue.node.depth(), queue.prio.into(), at);
        }
    }

    /// The first leaf that waits for the class of the wait queue `lender`.
    fn first_borrower(&mut self, lender: u32) -> Option<u32> {
        loop {
            let place = self.queues[lender as usize].first;
            let leaf = self.leaves.get_mut(place as usize)?.as_mut()?;
            let mut at = leaf.queue;
            if self.marks[place as usize].state != State::Borrows {
                leaf.is_queued = false;
                self.change(at, |heap, mut moved| heap.remove(0, &mut moved));
                self.update(at);
                continue;
            }
            // It is the first at each level, if its virtual times have not advanced.
            let outdated = loop {
                let time = self.time_in(at, place);
                if self.queues[at as usize].heap.time(0) != time {
                    break Some(time);
                }
                if at == lender {
                    break None;
                }
                at = self.queues[at as usize].above;
            };
            let Some(time) = outdated else { return Some(place) };
            self.change(at, |heap, mut moved| heap.set(0, time, &mut moved));
            self.update(at);
        }
    }

    /// The next borrower, of which it is the turn.
    #[inline(never)]
    pub(super) fn next_borrower(&mut self, now: Nanos) -> Option<u32> {
        while let Some(lender) = self.lenders.first() {
            if let Some(LetsPass { until, depth, prio }) = self.lets_pass {
                let queue = &self.queues[lender as usize];
                if until <= now {
                    self.lets_pass = None;
                } else if queue.depth() < depth || (queue.depth() == depth && queue.prio >= prio) {
                    return None;
                }
            }
            if let Some(place) = self.first_borrower(lender) {
                self.turn = Turn::Borrows(lender);
                return Some(place);
            }
            self.unlist(lender);
        }
        None
    }

    /// The wait queue of the class `steps` above the leaf at `place`.
    #[inline]
    pub(super) fn queue_above(&self, place: u32, steps: usize) -> u32 {
        let mut at = self.leaves[place as usize].as_ref().map_or(NONE, |leaf| leaf.queue);
        for _ in 1..steps {
            at = self.queues[at as usize].above;
        }
        at
    }

    /// Buys `want` bytes, or at least `least`, for the leaf at `place` from the class of the wait
    /// queue `lender`. Where others go first there, also from those above it.
    #[inline(never)]
    pub(super) fn borrow(
        &mut self,
        place: u32,
        lender: u32,
        least: Bytes,
        want: Bytes,
        now: Nanos,
    ) -> Option<Grant> {
        let (mut at, mut aside) = (lender, None::<Nanos>);
        while let Some(queue) = self.queues.get_mut(at as usize) {
            let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return None };
            let steps = leaf.node().depth() - queue.node.depth();
            if at != lender
                && queue.lends_from > now
                && !is_before(leaf.time(&queue.node, Limit::Rate), queue.refused)
            {
                at = queue.above;
                continue;
            }
            match leaf.handle.borrow_up_to(steps, least, want, now) {
                Ok(loan) => {
                    let Loan { bytes, lender: below, .. } = loan;
                    (self.steps, self.lent) = (below, bytes);
                    self.is_last_loan =
                        below == steps && leaf.handle.is_last_loan(&loan, least, now);
                    self.turn = Turn::Borrows(at);
                    self.lenders.rotate(queue.node.depth(), queue.prio.into());
                    // If it goes on waiting, so does what was announced at the others.
                    queue.withdraw(&leaf.handle.node, now);
                    return Some(Grant::lent(bytes, below as u8));
                }
                Err(Lack { steps: 0, until, .. }) => {
                    leaf.handle.announce(until, now);
                    self.leave_lenders(place, now);
                    self.wait(place, State::Closed, until);
                    return None;
                }
                Err(lack) => {
                    at = queue.above;
                    self.announce_lack(place, steps, lack, now);
                    if !lack.is_late {
                        self.close_for(place, steps, lack, now);
                    }
                    aside = match aside {
                        Some(aside) => Some(aside.min(lack.until)),
                        None if lack.is_late => Some(lack.until),
                        None => break,
                    };
                }
            }
        }
        if let Some(until) = aside {
            self.stand_aside(place, until, now);
        }
        self.announce_to_queues(place, now);
        None
    }

    /// The class of the wait queue `lender` has just sold its last credit. The next who waits for
    /// it need not have a turn to find that out.
    #[inline(never)]
    pub(super) fn has_sold_out(&mut self, lender: u32, now: Nanos) {
        if !self.queues[lender as usize].is_listed {
            return;
        }
        let Some(place) = self.first_borrower(lender) else { return self.unlist(lender) };
        let Some(Some(leaf)) = self.leaves.get(place as usize) else { return };
        let steps = leaf.node().depth() - self.queues[lender as usize].depth();
        if let Some(lack) = leaf.handle.lacks_of(steps, leaf.least(), now) {
            let until = lack.until + self.queues[lender as usize].gathers(leaf);
            self.announce_lack(place, steps, lack, now);
            self.unlist(lender);
            self.refuse(lender, place, until);
            if !lack.is_outranked {
                self.queues[lender as usize].remember_needs(now);
            }
        }
    }

    /// Announces what the leaf at `place` lacks to borrow from the class `lender` above it.
    #[inline(always)]
    pub(super) fn announce_lack(&mut self, place: u32, lender: usize, lack: Lack, now: Nanos) {
        let Lack { steps, limit, until, ceilings, .. } = lack;
        let Self { leaves, queues, .. } = self;
        let Some(Some(leaf)) = leaves.get_mut(place as usize) else { return };
        let mut at = leaf.queue;
        for step in 1..=steps.max(lender) {
            let Some(queue) = queues.get_mut(at as usize) else { break };
            if ceilings & (1 << step) != 0 {
                queue.announce(Limit::Ceil, leaf, until, now);
            }
            if step == lender && (steps >= lender || limit == Limit::Rate) {
                queue.announce(Limit::Rate, leaf, until, now);
            }
            at = queue.above;
        }
    }

    /// What the leaf at `place` lacks to borrow from the class `lender` above it, all lack who wait
    /// for the same.
    fn close_for(&mut self, place: u32, lender: usize, lack: Lack, now: Nanos) {
        let Lack { steps, until, .. } = lack;
        if steps > lender && self.is_only_root(place, steps) {
            let at = self.queue_above(place, lender);
            let queue = &self.queues[at as usize];
            let (depth, prio) = (queue.depth(), queue.prio);
            if self.lets_pass.is_none_or(|before| before.until <= now || until <= before.until) {
                self.lets_pass = Some(LetsPass { until, depth, prio });
                self.times.insert(until, Event::Releases(self.roots[0]).to_number());
                return;
            }
        }
        if steps >= lender {
            let at = self.queue_above(place, lender);
            self.unlist(at);
            let leaf = self.leaves.get(place as usize).and_then(Option::as_ref);
            let gathers = leaf.filter(|_| steps == lender);
            let gathers = gathers.map(|leaf| self.queues[at as usize].gathers(leaf));
            self.refuse(at, place, until + gathers.unwrap_or(Nanos::ZERO));
            if steps == lender && !lack.is_outranked {
                self.queues[at as usize].remember_needs(now);
            }
        } else {
            let at = self.queue_above(place, steps);
            let queue = &mut self.queues[at as usize];
            self.closed += u32::from(!queue.is_closed());
            queue.closed_until = until;
            self.detach(at);
            self.times.insert(until, Event::Opens(at).to_number());
        }
    }

    /// The class of the wait queue `at` lends nothing to the leaf at `place` before `until`, and to
    /// no other in it.
    #[inline(always)]
    pub(super) fn refuse(&mut self, at: u32, place: u32, until: Nanos) {
        let queue = &mut self.queues[at as usize];
        (queue.lends_from, queue.needs) = (until, Nanos::ZERO);
        if let Some(leaf) = &self.leaves[place as usize] {
            queue.refused = leaf.time(&queue.node, Limit::Rate);
        }
        queue.schedule(at, &mut self.times);
    }

    /// The leaf at `place` asks again at `until`, or before if a lender that has refused lends
    /// again before. Meanwhile it lets others ask. What was announced for it remains.
    fn stand_aside(&mut self, place: u32, until: Nanos, now: Nanos) {
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        let mut until = until.min(leaf.until);
        let mut at = leaf.queue;
        let mut leaves_it = true;
        while let Some(queue) = self.queues.get_mut(at as usize) {
            queue.waiting -= u32::from(leaves_it);
            leaves_it &= queue.waiting == 0;
            if queue.lends_from > now {
                until = until.min(queue.lends_from);
            }
            at = queue.above;
        }
        self.wait(place, State::Aside, until);
    }

    /// Whether the class of the wait queue `at`, which was to be looked at at `time`, lends by `by`
    /// and leaves wait for it. If it lends later, it is looked at then.
    pub(super) fn lends_by(&mut self, at: u32, time: Nanos, by: Nanos) -> bool {
        let queue = &mut self.queues[at as usize];
        if queue.looked_at != time {
            return false;
        }
        if queue.waiting > 0 && queue.lends_from <= by {
            return true;
        }
        queue.looked_at = Nanos::MAX;
        if queue.waiting > 0 {
            queue.schedule(at, &mut self.times);
        }
        false
    }

    /// Whether the only root lets pass again at `time` what is lent below it.
    pub(super) fn lets_pass_at(&self, time: Nanos) -> bool {
        self.lets_pass.is_some_and(|lets_pass| lets_pass.until == time)
    }

    /// The class of the wait queue `at`, which was to be looked at at `time`, may lend again.
    pub(super) fn lends(&mut self, at: u32, time: Nanos, now: Nanos) {
        if self.lends_by(at, time, now) {
            let Self { queues, leaves, marks, lenders, times, has_others, .. } = self;
            let queue = &mut queues[at as usize];
            queue.looked_at = Nanos::MAX;
            if let Some(later) = queue.lends_later(now) {
                if !*has_others {
                    queue.lends_from = later;
                    return queue.schedule(at, times);
                }
                let first = leaves.get_mut(queue.first as usize).and_then(Option::as_mut);
                if let Some(leaf) = first
                    && marks[queue.first as usize].state == State::Borrows
                    && !queue.is_behind(leaf)
                {
                    queue.lends_from = later;
                    queue.announce(Limit::Rate, leaf, later, now);
                    return queue.schedule(at, times);
                }
            }
            queue.list(at, lenders, now);
        }
    }

    /// The ceiling of the class of the wait queue `at` may let borrowers pass again.
    pub(super) fn opens(&mut self, at: u32, now: Nanos) {
        if self.queues[at as usize].closed_until > now {
            return;
        }
        self.attach(at);
        // Lenders above may have found nobody to lend to.
        let mut above = self.queues[at as usize].above;
        while let Some(queue) = self.queues.get_mut(above as usize) {
            queue.list(above, &mut self.lenders, now);
            above = queue.above;
        }
    }

    /// The ceiling of the class of the wait queue `at` lets borrowers pass, as far as is known.
    pub(super) fn attach(&mut self, at: u32) {
        let queue = &mut self.queues[at as usize];
        self.closed -= u32::from(queue.is_closed());
        queue.closed_until = Nanos::ZERO;
        self.update(at);
    }

    /// Takes the leaf at `place` out of its wait queue.
    pub(super) fn leave_queue(&mut self, place: u32) {
        self.leave_lenders(place, Nanos::ZERO);
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        let queue = leaf.queue;
        if std::mem::take(&mut leaf.is_queued) {
            self.change(queue, |heap, mut moved| {
                heap.retain(|child| child != Child::leaf(place), &mut moved);
            });
            self.update(queue);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn a_leaf_that_comes_to_wait_touches_one_cache_line_of_each_wait_queue() {
        assert_eq!(offset_of!(WaitQueue, node), 64);
        assert_eq!(size_of::<WaitQueue>(), 2 * 64);
    }
}
