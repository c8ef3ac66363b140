//! Which class of a queue sends next.
//!
//! A class waits for one of three things, each of which has a structure of its own:
//!
//! * *Its own rate or ceiling*: for a time. Nobody shares the reason.
//! * *A lender*: in the [wait queue](wait_queue) of the class above it, ordered by virtual time.
//!   What a lender refuses to the first that waits for it, it refuses to all; so the lender waits
//!   for the time at which it has credit, and those in its queue cost nothing.
//! * *The ceiling of a class above it*, although it has credit of its own: in the line of those
//!   that this class [holds up](inner).
//!
//! *Order, as in HTB.* Classes with credit of their own take turns, better priorities first. Then
//! the lenders lend, the lowest first, the best priority first, and within a priority to the class
//! with the least virtual time. A class that is held up by its own ceiling only, because nobody
//! waits for the class above it, borrows already in the turn in which it has credit of its own:
//! otherwise it would have two turns for each group of packets.
//!
//! *Between queues* the first of each wait queue stands for all: it compares virtual times with
//! those of other queues ([`claim`](super::claim)), and what it waits for is announced to them. A
//! class that has had more than other queues' classes lets others ask, and waits for a time.
//!
//! Source: M. Devera, `sch_htb.c` (feeds and wait queues); P. Goyal, H. Vin, H. Cheng, "Start-time
//! fair queueing" (1996).
//!
//! Cost: for a class with credit of its own, a purchase. For one that borrows, an entry in the
//! calendar of times more, and one in the wait queue of its lender.

use super::Queue;
use super::buying::Lack;
use super::node::{Limit, Node};
use super::queue_handle::QueueHandle;
use calendar::Calendar;
use event::Event;
use inner::Inner;
use leaf::{Leaf, Mark, NONE, State};
use lenders::Lenders;
use narrows_cpu::prefetch;
use narrows_packet::Reading;
use narrows_qdisc::htb::{ClassMeter, Grant, LINGER, LeafClass, Stage, Then};
use narrows_qdisc::{Census, Weight};
use narrows_units::{Bytes, Nanos};
use ready::Ready;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use wait_queue::{LetsPass, WaitQueue};

mod calendar;
mod event;
mod heap;
mod inner;
mod leaf;
mod lenders;
mod ready;
mod sleep;
mod wait_queue;

/// The most times in the calendar for a leaf: one, and an earlier one that was added before it came
/// due.
const TIMES_A_LEAF: usize = 2;

/// The most times for a wait queue: two at which it may lend, two at which it opens, and one at
/// which its class lets those pass that it holds up.
const TIMES_A_QUEUE: usize = 5;

/// So few wait queues stay in a cache.
const NEAR: usize = 256;

/// How the leaf comes to its turn that has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// It may have credit of its own.
    Own,
    /// So it had, and a class above held it up.
    Released,
    /// The class of this wait queue may lend to it.
    Borrows(u32),
}

/// Chooses the class of one queue that sends next.
pub(super) struct Scheduler {
    queue: Queue,
    /// Whether other queues send for the tree, too, as of the last batch.
    has_others: bool,
    /// What each leaf waits for, apart from all else: an arrival needs no more.
    marks: Vec<Mark>,
    leaves: Vec<Option<Leaf>>,
    inners: Vec<Inner>,
    vacant_inners: Vec<u32>,
    /// The topmost class that answers for a class, and for which, once it has been charged.
    topmost: Option<(u32, Arc<Node>)>,
    /// The places of classes that have none above them.
    roots: Vec<u32>,
    queues: Vec<WaitQueue>,
    vacant_queues: Vec<u32>,
    /// How many of them do not let borrowers pass, or did not when that was last checked.
    closed: u32,
    /// The places of classes with children, by the serial number of each.
    places: HashMap<u64, u32>,
    ready: Ready,
    /// How many classes hold leaves up,
    holding: u32,
    /// and which may let those pass again.
    released: VecDeque<u32>,
    lenders: Lenders,
    /// What the only root lets pass of what is lent below it, if it does not let all pass.
    lets_pass: Option<LetsPass>,
    times: Calendar,
    /// Leaves without packets, and when to check whether that is still so: in the order of these
    /// times, because all linger equally long.
    lingering: VecDeque<(Nanos, u32)>,
    turn: Turn,
    /// How many classes above the leaf whose turn it is the lender stands,
    steps: usize,
    /// how much it lends,
    lent: Bytes,
    /// and whether that is all that it has.
    is_last_loan: bool,
}

impl Scheduler {
    pub(super) fn new(queue: Queue) -> Self {
        Self {
            queue,
            has_others: false,
            marks: Vec::new(),
            leaves: Vec::new(),
            inners: Vec::new(),
            vacant_inners: Vec::new(),
            topmost: None,
            roots: Vec::new(),
            queues: Vec::new(),
            vacant_queues: Vec::new(),
            closed: 0,
            places: HashMap::new(),
            ready: Ready::default(),
            holding: 0,
            released: VecDeque::new(),
            lenders: Lenders::default(),
            lets_pass: None,
            times: Calendar::default(),
            lingering: VecDeque::new(),
            turn: Turn::Own,
            steps: 0,
            lent: Bytes::ZERO,
            is_last_loan: false,
        }
    }

    #[inline]
    fn leaf_mut(&mut self, place: u32) -> Option<&mut Leaf> {
        self.leaves.get_mut(place as usize)?.as_mut()
    }

    /// The leaf at `place` takes turns from now on.
    #[inline]
    fn make_ready(&mut self, place: u32) {
        if let Some(mark) = self.marks.get_mut(place as usize) {
            mark.state = State::Ready;
            self.ready.push(mark.prio, place);
        }
    }

    /// The leaf at `place` asks again at `until`.
    #[inline]
    fn wait(&mut self, place: u32, state: State, until: Nanos) {
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        self.marks[place as usize].state = state;
        leaf.wait(place, until, &mut self.times);
    }

    /// The leaf at `place`, which was to be looked at at `at`, may ask again.
    #[inline]
    fn look_at(&mut self, place: u32, at: Nanos, now: Nanos) {
        let Self { leaves, marks, queues, ready, times, .. } = self;
        let Some(Some(leaf)) = leaves.get_mut(place as usize) else { return };
        let mark = &mut marks[place as usize];
        if leaf.looked_at != at {
            return;
        }
        leaf.looked_at = Nanos::MAX;
        if !mark.state.has_time() {
            return;
        }
        if leaf.until > now {
            return leaf.wait(place, leaf.until, times);
        }
        if leaf.own_from > now {
            return self.wait_for_lenders(place, now);
        }
        if mark.state == State::Borrows {
            leaf.leave_lenders(queues, now);
        }
        mark.state = State::Ready;
        ready.push(mark.prio, place);
    }

    /// Whether the leaf at `place`, which was to be looked at at `at`, asks again by `by`. If it
    /// asks later, it is looked at then.
    #[inline]
    fn asks_by(&mut self, place: u32, at: Nanos, by: Nanos) -> bool {
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return false };
        if leaf.looked_at != at {
            return false;
        }
        let (state, until) = (self.marks[place as usize].state, leaf.until);
        let waits = state.has_time();
        if waits && until <= by {
            return true;
        }
        leaf.looked_at = Nanos::MAX;
        if waits {
            self.wait(place, state, until);
        }
        false
    }

    #[inline]
    fn come(&mut self, event: Event, at: Nanos, now: Nanos) {
        match event {
            Event::Leaf(place) => self.look_at(place, at, now),
            Event::Lends(queue) => self.lends(queue, at, now),
            Event::Opens(queue) => self.opens(queue, now),
            Event::Releases(inner) => self.releases(inner, now),
        }
    }

    fn has_lingered(&mut self, place: u32, now: Nanos) {
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        let is_idle = self.marks[place as usize].state == State::Idle;
        if !std::mem::take(&mut leaf.is_looked_after) || !is_idle {
            return;
        }
        if leaf.lingers_until > now {
            leaf.is_looked_after = true;
            self.lingering.push_back((leaf.lingers_until, place));
        } else {
            leaf.handle.set_active(false);
        }
    }

    /// The leaf at `place` wants `want` bytes, or at least `least`. It takes turns if it has them
    /// of its own, and waits otherwise.
    #[inline(never)]
    fn wait_for_turn(&mut self, place: u32, least: Bytes, want: Bytes, now: Nanos) {
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        leaf.least = least.0 as u32;
        let due = leaf.handle.own_due(leaf.handle.batch(Limit::Rate, least, want), now);
        if due <= now {
            self.leave_after_loan(place, now);
            return self.make_ready(place);
        }
        // In a cache line that a class that need not wait does not touch.
        leaf.want = want.0 as u32;
        let opens = leaf.handle.ceil_due(leaf.handle.batch(Limit::Ceil, least, want), now);
        if opens <= now && leaf.queue != NONE {
            leaf.own_from = due;
            return self.wait_for_lenders(place, now);
        }
        let (state, until) = if opens > now { (State::Closed, opens) } else { (State::Waits, due) };
        leaf.own_from = if leaf.queue == NONE { Nanos::ZERO } else { due };
        leaf.handle.announce(until, now);
        let before = std::mem::replace(&mut self.marks[place as usize].state, state);
        leaf.wait(place, until, &mut self.times);
        if before == State::Borrows {
            self.has_left_lenders(place, now);
        }
    }

    /// Prefetches what the next turns need, and tells `others` to do the same.
    #[inline(never)]
    fn prefetch_turns(&mut self, others: &mut dyn FnMut(Stage, &[u32])) {
        let Self { ready, leaves, has_others, .. } = self;
        ready.look_ahead(|stage, places| {
            let those = places.iter().filter_map(|place| leaves.get(*place as usize));
            match stage {
                // To see whether there is a leaf would be to wait for it.
                Stage::Leaf => those.for_each(prefetch),
                Stage::Parts => those.flatten().for_each(|leaf| {
                    leaf.node().prefetch_own();
                    if *has_others {
                        leaf.node().prefetch_shared();
                    }
                }),
                Stage::Turn => those.flatten().for_each(|leaf| {
                    if let Some(above) = &leaf.node().parent {
                        above.prefetch_own();
                    }
                }),
            }
            others(stage, places);
        });
    }
}

impl narrows_qdisc::htb::Scheduler for Scheduler {
    fn leaf(&self, id: u32) -> Option<LeafClass> {
        self.queue.leaf(id)
    }

    fn census(&self, id: u32) -> Option<Box<dyn Census>> {
        self.queue.census(id)
    }

    fn changes(&mut self) -> Option<Vec<u32>> {
        self.topmost = None;
        self.queue.changes()
    }

    fn owe(&mut self, id: u32, bytes: Bytes, now: Nanos) {
        if self.topmost.as_ref().is_none_or(|(of, _)| *of != id) {
            self.topmost = self.queue.topmost(id).map(|node| (id, node));
        }
        if let Some((_, node)) = &self.topmost {
            node.owe(bytes, now);
        }
    }

    fn reading(&self) -> Reading {
        self.queue.reading()
    }

    fn open(&mut self, place: u32, id: u32) -> bool {
        let Some(node) = self.queue.node(id) else { return false };
        self.close(place);
        let parent = node.parent.as_ref().map_or(NONE, |parent| self.open_inner(parent));
        if let Some(above) = self.inners.get_mut(parent as usize) {
            above.children += 1;
        }
        let at = place as usize;
        if self.leaves.len() <= at {
            if self.leaves.capacity() <= at {
                self.leaves.reserve(at + 1 - self.leaves.len());
                narrows_cpu::ask_for_huge_pages(&mut self.leaves);
            }
            self.leaves.resize_with(at + 1, || None);
            self.marks.resize(self.leaves.len(), Mark::default());
        }
        let prio = node.prio() as u8;
        let queue = self.open_queue(parent, prio);
        self.marks[at] = Mark { state: State::Idle, prio };
        self.leaves[at] = Some(Leaf {
            handle: QueueHandle::new(node),
            is_queued: false,
            is_looked_after: false,
            announced: 0,
            parent,
            queue,
            least: 0,
            until: Nanos::MAX,
            own_from: Nanos::ZERO,
            looked_at: Nanos::MAX,
            lingers_until: Nanos::ZERO,
            want: 0,
        });
        let room = self.leaves.capacity();
        self.ready.make_room(prio, room);
        self.times.make_room(TIMES_A_LEAF * room + TIMES_A_QUEUE * self.queues.len());
        self.lingering.reserve_exact(room.saturating_sub(self.lingering.len()));
        true
    }

    fn close(&mut self, place: u32) {
        if self.leaf_mut(place).is_none() {
            return;
        }
        self.leave_queue(place);
        self.leave_held(place);
        let Some(leaf) = self.leaves[place as usize].take() else { return };
        self.ready.remove(std::mem::take(&mut self.marks[place as usize]).prio, place);
        self.times.remove(Event::Leaf(place).to_number());
        self.lingering.retain(|(_, one)| *one != place);
        self.close_inner(leaf.parent);
    }

    fn is_current(&self, place: u32) -> bool {
        let leaf = self.leaves.get(place as usize).and_then(Option::as_ref);
        leaf.is_some_and(|leaf| self.queue.is_current(&leaf.handle.node))
    }

    fn retune(&mut self, place: u32) {
        self.leave_queue(place);
        self.leave_held(place);
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        let (prio, parent) = (leaf.handle.node.prio() as u8, leaf.parent);
        let before = std::mem::replace(&mut self.marks[place as usize].prio, prio);
        leaf.own_from = Nanos::ZERO;
        let queue = self.open_queue(parent, prio);
        if let Some(leaf) = self.leaf_mut(place) {
            leaf.queue = queue;
        }
        self.ready.make_room(prio, self.leaves.capacity());
        if self.marks[place as usize].state != State::Idle {
            self.ready.remove(before, place);
            self.make_ready(place);
        }
    }

    #[inline]
    fn arrived(&mut self, place: u32) {
        if self.marks.get(place as usize).is_some_and(|mark| mark.state == State::Idle) {
            self.make_ready(place);
        }
    }

    fn reconsider(&mut self, place: u32) {
        let Some(Mark { state, .. }) = self.marks.get(place as usize) else { return };
        if state.has_time() || *state == State::Held {
            self.leave_held(place);
            self.leave_lenders(place, Nanos::ZERO);
            self.make_ready(place);
        }
    }

    fn weigh(&mut self, place: u32, weight: Weight) {
        if let Some(leaf) = self.leaf_mut(place) {
            leaf.handle.weigh(weight);
        }
    }

    fn rank(&mut self, place: u32, rank: u8, now: Nanos) {
        if let Some(leaf) = self.leaf_mut(place) {
            leaf.handle.rank(rank, now);
        }
    }

    fn begin(&mut self, now: Nanos) {
        self.has_others = self.queue.has_others();
        while let Some((at, number)) = self.times.pop(now) {
            self.come(Event::of_number(number), at, now);
        }
        while let Some(&(at, place)) = self.lingering.front()
            && at <= now
        {
            self.lingering.pop_front();
            self.has_lingered(place, now);
        }
    }

    fn next(&mut self, now: Nanos) -> Option<u32> {
        (self.turn, self.steps, self.lent) = (Turn::Own, 0, Bytes::ZERO);
        if !self.released.is_empty()
            && let Some(place) = self.next_released(now)
        {
            self.turn = Turn::Released;
            return Some(place);
        }
        if self.nothing_passes(now) {
            return None;
        }
        match self.ready.pop() {
            Some(place) => Some(place),
            None => self.next_borrower(now),
        }
    }

    fn acquire(&mut self, place: u32, least: Bytes, want: Bytes, now: Nanos) -> Option<Grant> {
        let leaf = self.leaf_mut(place)?;
        leaf.handle.set_active(true);
        leaf.least = least.0 as u32;
        if let Turn::Borrows(lender) = self.turn {
            return self.borrow(place, lender, least, want, now);
        }
        if self.holding > 0 && self.turn == Turn::Own && self.is_held_with_others(place, least, now)
        {
            return None;
        }
        let Self { leaves, queues, has_others, .. } = self;
        let leaf = leaves.get_mut(place as usize)?.as_mut()?;
        if *has_others {
            leaf.handle.node.expect_purchase();
        }
        // Nobody is known to wait for the class directly above it, nor for those further up.
        let is_lent = || {
            queues.get(leaf.queue as usize).is_some_and(|queue| queue.lends_at_once(now))
                && self.holding == 0
                && self.lets_pass.is_none()
        };
        match leaf.handle.buy_own_and_more(least, want, (is_lent, queues.len() <= NEAR), now) {
            Ok((bytes, lent)) => {
                (self.steps, self.lent) = (usize::from(lent > Bytes::ZERO), lent);
                if leaf.announced != 0 {
                    self.withdraw_above(place, now);
                }
                return Some(Grant { bytes, lent, lender: self.steps as u8 });
            }
            Err(Lack { steps: 0, limit: Limit::Rate, .. }) => {
                self.wait_for_turn(place, least, want, now);
            }
            Err(Lack { steps: 0, until, .. }) => {
                leaf.handle.announce(until, now);
                self.wait(place, State::Closed, until);
            }
            Err(lack) => self.hold(place, lack, now),
        }
        None
    }

    fn finish(&mut self, place: u32, unused: Bytes, then: Then, now: Nanos) {
        let steps = self.steps;
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        if unused > Bytes::ZERO {
            let lent = unused.min(self.lent);
            leaf.handle.give_back(steps, lent);
            if unused > lent {
                leaf.handle.give_back(0, unused - lent);
            }
        }
        match then {
            Then::More(Some((least, want))) => self.wait_for_turn(place, least, want, now),
            Then::More(None) => {
                self.leave_after_loan(place, now);
                self.make_ready(place);
            }
            Then::Held(at) => {
                if at > now + LINGER {
                    leaf.handle.set_active(false);
                }
                self.leave_after_loan(place, now);
                self.wait(place, State::Waits, at);
            }
            Then::Empty => {
                self.leave_after_loan(place, now);
                self.marks[place as usize].state = State::Idle;
                if let Some(Some(leaf)) = self.leaves.get_mut(place as usize)
                    && !leaf.handle.try_leave()
                {
                    leaf.lingers_until = now + LINGER;
                    if !std::mem::replace(&mut leaf.is_looked_after, true) {
                        self.lingering.push_back((leaf.lingers_until, place));
                    }
                }
            }
        }
        if std::mem::take(&mut self.is_last_loan)
            && let Turn::Borrows(lender) = self.turn
        {
            self.has_sold_out(lender, now);
        }
    }

    fn end(&mut self, now: Nanos) -> Option<Nanos> {
        let lingers = self.lingering.front().map(|(at, _)| *at);
        self.next_time(now).into_iter().chain(lingers).min()
    }

    fn tokens(&self, place: u32, now: Nanos) -> Vec<[i64; 2]> {
        let leaf = self.leaves.get(place as usize).and_then(Option::as_ref);
        leaf.map(|leaf| leaf.node().tokens(now)).unwrap_or_default()
    }

    fn meter(&self, id: u32) -> Option<Box<dyn ClassMeter>> {
        self.queue.meter(id)
    }

    fn look_ahead(&mut self, others: &mut dyn FnMut(Stage, &[u32])) {
        if !self.ready.is_prepared() {
            self.prefetch_turns(others);
        }
    }
}
