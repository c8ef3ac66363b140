//! Which class of a queue sends next.
//!
//! A class waits for one of three things, each of which has a structure of its own:
//!
//! * *Its own rate or ceiling*: for a time. Nobody shares the reason.
//! * *A lender*: in the wait queue of each class above it ([`feed`]), ordered by virtual time. What
//!   a lender refuses to the first that waits for it, it refuses to all; so the lender waits for
//!   the time at which it has credit, and those in its queue cost nothing.
//! * *The ceiling of a class above it*, although it has credit of its own: in the line of those
//!   that this class [holds](inner::Inner::held).
//!
//! *Order, as in HTB.* Classes with credit of their own take turns, better priorities first. Then
//! the lenders lend, the lowest first, the best priority first, and within a priority to the class
//! with the least virtual time.
//!
//! *Between queues* the first of each wait queue stands for all: it compares virtual times with
//! those of other queues ([`claim`](super::claim)), and what it waits for is announced to them.
//!
//! *Wait queues are kept lazily.* A class that is served from elsewhere, or runs empty, stays in
//! them until it comes first.
//!
//! Source: M. Devera, `sch_htb.c` (feeds and wait queues); P. Goyal, H. Vin, H. Cheng, "Start-time
//! fair queueing" (1996).
//!
//! Cost: for a class with credit of its own, a purchase. For one that borrows, an entry in the
//! calendar of times more, and one in the wait queue of its lender.

use super::node::{Limit, Node};
use super::queue_handle::QueueHandle;
use super::{Queue, buying::Lack};
use feed::{Child, Feed, NOWHERE, is_before};
use inner::{Inner, NONE};
use narrows_cpu::prefetch;
use narrows_packet::Reading;
use narrows_qdisc::htb::{ClassMeter, Grant, LeafClass, PRIORITIES, Stage, Then, Times, Turns};
use narrows_qdisc::{Census, Weight};
use narrows_units::{Bytes, Nanos};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

mod feed;
mod inner;

/// How long a class without packets still counts as active, so that a sparse class does not come
/// and go with each packet.
const LINGER: Nanos = Nanos::from_millis(1);

/// The most times in the calendar for a leaf: one, and an earlier one that was added before it came
/// due.
const TIMES_A_LEAF: usize = 2;

/// What a leaf waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Packets.
    Idle,
    /// Its turn.
    Ready,
    /// Credit of its own, or of a class above it.
    Borrows,
    /// The ceiling of a class above it.
    Held,
    /// A time.
    Waits,
}

struct Leaf {
    handle: QueueHandle,
    state: State,
    prio: u8,
    /// The place of the class above it, or [`NONE`].
    parent: u32,
    /// In which feeds of the class above it it is: a bit for each lender, by how many classes are
    /// above that one.
    feeds: u16,
    /// At which of these lenders it lets others ask before.
    aside: u16,
    /// For which classes above it its waiting was announced: a bit for each, by the same count.
    announced: u16,
    /// Whether a check at `lingers_until` is scheduled.
    is_looked_after: bool,
    /// When it asks again.
    until: Nanos,
    /// When to check whether it does; [`Nanos::MAX`] for never.
    looked_at: Nanos,
    /// The time until which it counts as active without packets.
    lingers_until: Nanos,
}

impl Leaf {
    fn node(&self) -> &Node {
        &self.handle.node
    }

    /// Its virtual time at the lender that has `depth` classes above it.
    #[inline]
    fn time_at(&self, lender: &Node) -> u64 {
        let steps = self.node().depth() - lender.depth();
        self.node().time(steps, lender.counted(Limit::Rate))
    }
}

/// Something that comes at a time.
#[derive(Clone, Copy)]
enum Event {
    /// A leaf asks again.
    Leaf(u32),
    /// A class lends to this priority again.
    Lends(u32, usize),
    /// The ceiling of a class lets borrowers of this priority pass again.
    Opens(u32, usize),
    /// The ceiling of a class lets those with credit of their own pass again.
    Releases(u32),
}

impl Event {
    const IS_INNER: u32 = 1 << 31;
    const KINDS: u32 = 2 * PRIORITIES as u32 + 1;

    fn to_number(self) -> u32 {
        let (place, kind) = match self {
            Self::Leaf(place) => return place,
            Self::Lends(place, prio) => (place, prio as u32),
            Self::Opens(place, prio) => (place, (PRIORITIES + prio) as u32),
            Self::Releases(place) => (place, 2 * PRIORITIES as u32),
        };
        Self::IS_INNER | (place * Self::KINDS + kind)
    }

    fn of_number(number: u32) -> Self {
        if number & Self::IS_INNER == 0 {
            return Self::Leaf(number);
        }
        let number = number & !Self::IS_INNER;
        let (place, kind) = (number / Self::KINDS, (number % Self::KINDS) as usize);
        match kind {
            kind if kind < PRIORITIES => Self::Lends(place, kind),
            kind if kind < 2 * PRIORITIES => Self::Opens(place, kind - PRIORITIES),
            _ => Self::Releases(place),
        }
    }
}

/// From whom the class buys whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum From {
    /// From itself.
    Own,
    /// From the class at this place.
    Lender(u32),
}

/// See the module's documentation.
pub(super) struct Scheduler {
    queue: Queue,
    /// Whether other queues send for the tree, too, as of the last batch.
    has_others: bool,
    leaves: Vec<Option<Leaf>>,
    inners: Vec<Inner>,
    vacant: Vec<u32>,
    /// The places of classes with children, by the serial number of each.
    places: HashMap<u64, u32>,
    /// Leaves that may have credit of their own, by priority.
    ready: [Turns; PRIORITIES],
    /// Classes whose ceilings let those pass again that they held.
    released: VecDeque<u32>,
    /// Classes that may lend, by how many classes are above them and by priority.
    lenders: Vec<[VecDeque<u32>; PRIORITIES]>,
    times: Times,
    /// Leaves without packets, and when to check whether that is still so: in the order of these
    /// times, because all linger equally long.
    lingering: VecDeque<(Nanos, u32)>,
    from: From,
    /// How many classes above the leaf whose turn it is the lender stands.
    steps: usize,
}

impl Scheduler {
    pub(super) fn new(queue: Queue) -> Self {
        Self {
            queue,
            has_others: false,
            leaves: Vec::new(),
            inners: Vec::new(),
            vacant: Vec::new(),
            places: HashMap::new(),
            ready: Default::default(),
            released: VecDeque::new(),
            lenders: Vec::new(),
            times: Times::default(),
            lingering: VecDeque::new(),
            from: From::Own,
            steps: 0,
        }
    }

    #[inline]
    fn leaf_mut(&mut self, place: u32) -> Option<&mut Leaf> {
        self.leaves.get_mut(place as usize)?.as_mut()
    }

    /// The place of the class `node`, which has children.
    fn open_inner(&mut self, node: &Arc<Node>) -> u32 {
        if let Some(&place) = self.places.get(&node.serial) {
            return place;
        }
        let parent = node.parent.as_ref().map_or(NONE, |parent| self.open_inner(parent));
        if let Some(above) = self.inners.get_mut(parent as usize) {
            above.children += 1;
        }
        let inner = Inner::new(Arc::clone(node), parent);
        if self.lenders.len() <= inner.depth {
            self.lenders.resize_with(inner.depth + 1, Default::default);
        }
        let place = match self.vacant.pop() {
            Some(place) => {
                self.inners[place as usize] = inner;
                place
            }
            None => {
                self.inners.push(inner);
                self.inners.len() as u32 - 1
            }
        };
        self.places.insert(node.serial, place);
        place
    }

    /// One child less of the class at `place`, and of those above that have none then.
    fn close_inner(&mut self, mut place: u32) {
        while let Some(inner) = self.inners.get_mut(place as usize) {
            inner.children -= 1;
            if inner.children > 0 {
                return;
            }
            self.places.remove(&inner.node.serial);
            self.released.retain(|one| *one != place);
            for prio in 0..PRIORITIES {
                self.unlist(place, prio);
                for depth in 0..self.inners[place as usize].depth {
                    self.detach(place, prio, depth);
                }
            }
            self.vacant.push(place);
            place = self.inners[place as usize].parent;
        }
    }

    /// Changes the feed of the class at `place` from which the one with `depth` above it lends to
    /// `prio`.
    #[inline]
    fn change_feed(
        &mut self,
        place: u32,
        prio: usize,
        depth: usize,
        change: impl FnOnce(&mut Feed, &mut dyn FnMut(u32, u32)),
    ) {
        let mut feed = std::mem::take(&mut self.inners[place as usize].of(prio).feeds[depth]);
        let inners = &mut self.inners;
        change(&mut feed, &mut |inner, position| {
            inners[inner as usize].of(prio).positions[depth] = position;
        });
        self.inners[place as usize].of(prio).feeds[depth] = feed;
    }

    /// The first child has changed in the feed of the class at `place`: those above follow.
    #[inline]
    fn refresh(&mut self, mut place: u32, prio: usize, depth: usize) {
        while self.inners[place as usize].depth > depth {
            let parent = self.inners[place as usize].parent;
            let own = self.inners[place as usize].of(prio);
            let time = own.feeds[depth].first_time().filter(|_| own.closed_until.is_none());
            let position = own.positions[depth];
            self.change_feed(parent, prio, depth, |feed, mut moved| match (time, position) {
                (Some(time), NOWHERE) => feed.insert(time, Child::inner(place), &mut moved),
                (Some(time), position) => feed.set(position, time, &mut moved),
                (None, NOWHERE) => {}
                (None, position) => feed.remove(position, &mut moved),
            });
            place = parent;
        }
    }

    /// Takes the class at `place` out of the feed above it.
    fn detach(&mut self, place: u32, prio: usize, depth: usize) {
        let Inner { parent, borrowers, .. } = &self.inners[place as usize];
        let (parent, position) =
            (*parent, borrowers[prio].as_ref().map_or(NOWHERE, |own| own.positions[depth]));
        if position != NOWHERE {
            self.change_feed(parent, prio, depth, |feed, mut moved| {
                feed.remove(position, &mut moved);
            });
            self.refresh(parent, prio, depth);
        }
    }

    fn unlist(&mut self, place: u32, prio: usize) {
        let inner = &mut self.inners[place as usize];
        let depth = inner.depth;
        if let Some(own) = &mut inner.borrowers[prio]
            && std::mem::take(&mut own.is_listed)
        {
            self.lenders[depth][prio].retain(|one| *one != place);
        }
    }

    /// Lists the class at `place` as a lender, if leaves wait for it and it may have credit.
    #[inline]
    fn list(&mut self, place: u32, prio: usize, now: Nanos) {
        let inner = &mut self.inners[place as usize];
        let depth = inner.depth;
        let own = inner.of(prio);
        if !own.is_listed && own.waiting > 0 && own.lends_from <= now {
            own.is_listed = true;
            self.lenders[depth][prio].push_back(place);
        }
    }

    /// The leaf at `place` takes turns from now on.
    #[inline]
    fn make_ready(&mut self, place: u32) {
        if let Some(leaf) = self.leaf_mut(place) {
            leaf.state = State::Ready;
            let prio = usize::from(leaf.prio);
            self.ready[prio].push(place);
        }
    }

    /// The leaf at `place` asks again at `until`.
    #[inline]
    fn wait(&mut self, place: u32, state: State, until: Nanos) {
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        (leaf.state, leaf.until) = (state, until);
        if until < leaf.looked_at {
            leaf.looked_at = until;
            self.times.insert(until, place);
        }
    }

    /// The leaf at `place`, of which the next packet costs `cost`, has no credit of its own before
    /// `due`.
    fn wait_for_credit(&mut self, place: u32, cost: Bytes, due: Nanos, now: Nanos) {
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        let opens = leaf.handle.ceil_due(cost, now);
        if opens > now || leaf.parent == NONE {
            let until = if opens > now { opens } else { due };
            leaf.handle.announce(until, now);
            return self.wait(place, State::Waits, until);
        }
        leaf.handle.comes(due);
        leaf.handle.node.enter();
        let (parent, prio) = (leaf.parent, usize::from(leaf.prio));
        self.wait(place, State::Borrows, due);
        let mut above = parent;
        while let Some(inner) = self.inners.get_mut(above as usize) {
            let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
            let (next, depth, time) = (inner.parent, inner.depth, leaf.time_at(&inner.node));
            let is_new = leaf.feeds & (1 << depth) == 0;
            leaf.feeds |= 1 << depth;
            let own = inner.of(prio);
            own.waiting += 1;
            if own.lends_from > now {
                if is_before(time, own.refused) {
                    // It may have a better right than the one that was refused.
                    own.lends_from = now;
                } else if !own.is_announced() {
                    let until = own.lends_from;
                    leaf.announced |= 1 << depth;
                    inner.announce(Limit::Rate, leaf.node(), until, now);
                }
            }
            if is_new {
                self.change_feed(parent, prio, depth, |feed, mut moved| {
                    feed.insert(time, Child::leaf(place), &mut moved);
                });
                self.refresh(parent, prio, depth);
            }
            self.list(above, prio, now);
            above = next;
        }
        self.announce_to_queues(place, now);
    }

    /// Announces to the other queues of the class of the leaf at `place` until when it waits, once
    /// no lender is left that it has not asked.
    fn announce_to_queues(&mut self, place: u32, now: Nanos) {
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        if !leaf.handle.is_shared() {
            return;
        }
        let (mut above, mut first) = (leaf.parent, leaf.until);
        while let Some(inner) = self.inners.get_mut(above as usize) {
            if leaf.aside & (1 << inner.depth) == 0 {
                first = first.min(inner.of(usize::from(leaf.prio)).lends_from);
            }
            above = inner.parent;
        }
        if first > now {
            leaf.handle.announce(first, now);
        }
    }

    /// The leaf at `place` waits for lenders no longer.
    #[inline]
    fn leave_lenders(&mut self, place: u32, now: Nanos) {
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        if leaf.state != State::Borrows {
            return;
        }
        leaf.state = State::Ready;
        let aside = std::mem::take(&mut leaf.aside);
        let (mut above, prio) = (leaf.parent, usize::from(leaf.prio));
        while let Some(inner) = self.inners.get_mut(above as usize) {
            if aside & (1 << inner.depth) == 0 {
                let own = inner.of(prio);
                own.waiting -= 1;
                if own.waiting == 0 {
                    inner.withdraw(&leaf.handle.node, now);
                }
            }
            above = inner.parent;
        }
    }

    /// The first leaf that waits for the class at `lender`.
    fn first_borrower(&mut self, lender: u32, prio: usize) -> Option<u32> {
        let depth = self.inners[lender as usize].depth;
        loop {
            let mut at = lender;
            let (time, place) = loop {
                let own = self.inners[at as usize].of(prio);
                match own.feeds[depth].first() {
                    Some((time, child)) => match child.get() {
                        Ok(place) => break (time, place),
                        Err(inner) => at = inner,
                    },
                    None => return None,
                }
            };
            let node = &self.inners[lender as usize].node;
            let actual = self.leaves[place as usize]
                .as_ref()
                .filter(|leaf| leaf.state == State::Borrows && leaf.aside & (1 << depth) == 0)
                .map(|leaf| leaf.time_at(node));
            match actual {
                Some(actual) if actual == time => return Some(place),
                Some(actual) => self.change_feed(at, prio, depth, |feed, mut moved| {
                    feed.set(0, actual, &mut moved);
                }),
                None => {
                    if let Some(leaf) = self.leaf_mut(place) {
                        leaf.feeds &= !(1 << depth);
                    }
                    self.change_feed(at, prio, depth, |feed, mut moved| {
                        feed.remove(0, &mut moved);
                    });
                }
            }
            self.refresh(at, prio, depth);
        }
    }

    /// The next borrower, and its lender.
    fn next_borrower(&mut self) -> Option<(u32, u32)> {
        for depth in (0..self.lenders.len()).rev() {
            for prio in 0..PRIORITIES {
                while let Some(&lender) = self.lenders[depth][prio].front() {
                    if let Some(place) = self.first_borrower(lender, prio) {
                        return Some((place, lender));
                    }
                    self.lenders[depth][prio].pop_front();
                    self.inners[lender as usize].of(prio).is_listed = false;
                }
            }
        }
        None
    }

    /// The class `steps` above the leaf at `place`.
    fn above(&self, place: u32, steps: usize) -> u32 {
        let mut above = self.leaves[place as usize].as_ref().map_or(NONE, |leaf| leaf.parent);
        for _ in 1..steps {
            above = self.inners[above as usize].parent;
        }
        above
    }

    /// The leaf at `place` has credit of its own, and something above it lacks it.
    fn hold(&mut self, place: u32, lack: Lack, now: Nanos) {
        let above = self.above(place, lack.steps);
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        leaf.state = State::Held;
        leaf.handle.announce(lack.until, now);
        leaf.handle.node.enter();
        let inner = &mut self.inners[above as usize];
        leaf.announced |= 1 << inner.depth;
        inner.announce(Limit::Ceil, leaf.handle.node.as_ref(), lack.until, now);
        inner.held.push_back(place);
        if inner.holds_until <= now || inner.held.len() == 1 {
            inner.holds_until = lack.until;
            self.times.insert(lack.until, Event::Releases(above).to_number());
        }
    }

    /// The leaf at `place` cannot borrow from the class at `lender`, `steps` above it.
    fn refused(&mut self, place: u32, lender: u32, steps: usize, lack: Lack, now: Nanos) {
        let Lack { steps: at, limit, until, ceilings, is_late, .. } = lack;
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        let prio = usize::from(leaf.prio);
        if at == 0 {
            leaf.handle.announce(until, now);
            self.leave_lenders(place, now);
            return self.wait(place, State::Waits, until);
        }
        let node = Arc::clone(&leaf.handle.node);
        let mut above = leaf.parent;
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        for step in 1..=at.max(steps) {
            let Some(inner) = self.inners.get_mut(above as usize) else { break };
            if ceilings & (1 << step) != 0 {
                leaf.announced |= 1 << inner.depth;
                inner.announce(Limit::Ceil, &node, until, now);
            }
            if step == steps && (at >= steps || limit == Limit::Rate) {
                leaf.announced |= 1 << inner.depth;
                inner.announce(Limit::Rate, &node, until, now);
            }
            above = inner.parent;
        }
        if is_late {
            self.stand_aside(place, lender, until);
            return self.announce_to_queues(place, now);
        }
        if at >= steps {
            let limit = self.inners[lender as usize].node.counted(Limit::Rate);
            let time = node.time(steps, limit);
            let own = self.inners[lender as usize].of(prio);
            own.lends_from = until;
            own.refused = time;
            own.is_listed = false;
            let depth = self.inners[lender as usize].depth;
            self.lenders[depth][prio].pop_front();
            self.times.insert(until, Event::Lends(lender, prio).to_number());
        } else {
            let closed = self.above(place, at);
            self.close_to(closed, prio, until);
        }
        self.announce_to_queues(place, now);
    }

    /// No borrower of `prio` below the class at `place` passes it before `until`.
    fn close_to(&mut self, place: u32, prio: usize, until: Nanos) {
        let depth = self.inners[place as usize].depth;
        self.inners[place as usize].of(prio).closed_until = Some(until);
        (0..depth).for_each(|depth| self.detach(place, prio, depth));
        self.times.insert(until, Event::Opens(place, prio).to_number());
    }

    /// The leaf at `place` asks the class at `lender` again at `until`, and lets others ask before.
    /// What was announced for it remains.
    fn stand_aside(&mut self, place: u32, lender: u32, until: Nanos) {
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        let inner = &mut self.inners[lender as usize];
        leaf.aside |= 1 << inner.depth;
        inner.of(usize::from(leaf.prio)).waiting -= 1;
        let until = until.min(leaf.until);
        self.wait(place, State::Borrows, until);
    }

    fn come(&mut self, event: Event, at: Nanos, now: Nanos) {
        match event {
            Event::Leaf(place) => {
                let Some(leaf) = self.leaf_mut(place) else { return };
                if leaf.looked_at != at {
                    return;
                }
                leaf.looked_at = Nanos::MAX;
                if !matches!(leaf.state, State::Borrows | State::Waits) {
                    return;
                }
                let (state, until) = (leaf.state, leaf.until);
                if until > now {
                    return self.wait(place, state, until);
                }
                self.leave_lenders(place, now);
                self.make_ready(place);
            }
            Event::Lends(place, prio) => self.list(place, prio, now),
            Event::Opens(place, prio) => {
                let depth = self.inners[place as usize].depth;
                let own = self.inners[place as usize].of(prio);
                if own.closed_until.is_some_and(|until| until <= now) {
                    own.closed_until = None;
                    (0..depth).for_each(|depth| self.refresh(place, prio, depth));
                    // Lenders above may have found nobody to lend to.
                    let mut above = self.inners[place as usize].parent;
                    while above != NONE {
                        self.list(above, prio, now);
                        above = self.inners[above as usize].parent;
                    }
                }
            }
            Event::Releases(place) => {
                let inner = &self.inners[place as usize];
                if inner.holds_until <= now
                    && !inner.held.is_empty()
                    && !self.released.contains(&place)
                {
                    self.released.push_back(place);
                }
            }
        }
    }

    fn has_lingered(&mut self, place: u32, now: Nanos) {
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        if !std::mem::take(&mut leaf.is_looked_after) || leaf.state != State::Idle {
            return;
        }
        if leaf.lingers_until > now {
            leaf.is_looked_after = true;
            self.lingering.push_back((leaf.lingers_until, place));
        } else {
            leaf.handle.set_active(false);
        }
    }

    /// A leaf that a class held and holds no longer.
    fn next_released(&mut self, now: Nanos) -> Option<u32> {
        while let Some(inner) = self.released.pop_front() {
            if self.inners[inner as usize].holds_until > now {
                continue;
            }
            while let Some(place) = self.inners[inner as usize].held.pop_front() {
                let leaf = self.leaves[place as usize].as_ref();
                if leaf.is_some_and(|leaf| leaf.state == State::Held) {
                    if !self.inners[inner as usize].held.is_empty() {
                        self.released.push_back(inner);
                    }
                    return Some(place);
                }
            }
        }
        None
    }

    /// After a turn, the leaf at `place` has more packets, of which the next costs `cost`.
    #[inline]
    fn has_more(&mut self, place: u32, cost: Bytes, now: Nanos) {
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        let due = leaf.handle.own_due(cost, now);
        if due > now {
            self.wait_for_credit(place, cost, due, now);
        } else {
            self.make_ready(place);
        }
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
        self.queue.changes()
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
        }
        let prio = node.prio();
        self.leaves[at] = Some(Leaf {
            handle: QueueHandle::new(node),
            state: State::Idle,
            prio: prio as u8,
            parent,
            feeds: 0,
            aside: 0,
            announced: 0,
            is_looked_after: false,
            until: Nanos::MAX,
            looked_at: Nanos::MAX,
            lingers_until: Nanos::ZERO,
        });
        let room = self.leaves.capacity();
        self.ready[prio].make_room(room);
        self.times.make_room(TIMES_A_LEAF * room);
        self.lingering.reserve_exact(room.saturating_sub(self.lingering.len()));
        true
    }

    fn close(&mut self, place: u32) {
        if self.leaf_mut(place).is_none() {
            return;
        }
        self.leave_feeds(place);
        let Some(leaf) = self.leaves[place as usize].take() else { return };
        self.ready[usize::from(leaf.prio)].retain(|one| one != place);
        self.times.retain(|one| one != place);
        self.lingering.retain(|(_, one)| *one != place);
        if leaf.state == State::Held {
            self.inners.iter_mut().for_each(|inner| inner.held.retain(|one| *one != place));
        }
        self.close_inner(leaf.parent);
    }

    fn is_current(&self, place: u32) -> bool {
        let leaf = self.leaves.get(place as usize).and_then(Option::as_ref);
        leaf.is_some_and(|leaf| self.queue.is_current(&leaf.handle.node))
    }

    fn retune(&mut self, place: u32, _: Nanos) {
        self.leave_feeds(place);
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        let prio = leaf.handle.node.prio() as u8;
        let before = std::mem::replace(&mut leaf.prio, prio);
        let room = self.leaves.capacity();
        self.ready[usize::from(prio)].make_room(room);
        if before != prio {
            self.ready[usize::from(before)].retain(|one| one != place);
        }
        match self.leaf_mut(place).map(|leaf| leaf.state) {
            Some(State::Ready) if before != prio => self.make_ready(place),
            Some(State::Waits) => self.make_ready(place),
            _ => {}
        }
    }

    #[inline]
    fn arrived(&mut self, place: u32, _: Nanos) {
        if self.leaf_mut(place).is_some_and(|leaf| leaf.state == State::Idle) {
            self.make_ready(place);
        }
    }

    fn hasten(&mut self, place: u32) {
        let now = Nanos::ZERO;
        let Some(leaf) = self.leaf_mut(place) else { return };
        match leaf.state {
            State::Idle | State::Ready => {}
            State::Borrows => {
                self.leave_lenders(place, now);
                self.make_ready(place);
            }
            State::Held => {
                self.inners.iter_mut().for_each(|inner| inner.held.retain(|one| *one != place));
                self.make_ready(place);
            }
            State::Waits => self.make_ready(place),
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

    fn begin(&mut self, now: Nanos, _: Bytes) {
        self.has_others = self.queue.has_others();
        while let Some(at) = self.times.first()
            && at <= now
            && let Some((at, number)) = self.times.pop()
        {
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
        (self.from, self.steps) = (From::Own, 0);
        if !self.released.is_empty()
            && let Some(place) = self.next_released(now)
        {
            return Some(place);
        }
        if let Some(place) = self.ready.iter_mut().find_map(Turns::pop) {
            return Some(place);
        }
        let (place, lender) = self.next_borrower()?;
        self.from = From::Lender(lender);
        self.steps = self.leaves[place as usize].as_ref()?.node().depth()
            - self.inners[lender as usize].depth;
        Some(place)
    }

    fn acquire(&mut self, place: u32, least: Bytes, want: Bytes, now: Nanos) -> Option<Grant> {
        let (steps, from, has_others) = (self.steps, self.from, self.has_others);
        let leaf = self.leaf_mut(place)?;
        leaf.handle.set_active(true);
        match from {
            From::Own => {
                if has_others {
                    leaf.handle.node.expect_purchase();
                }
                match leaf.handle.buy_own(least, want, now) {
                    Ok(bytes) => {
                        self.withdraw_above(place, now);
                        return Some(Grant { bytes, lender: 0 });
                    }
                    Err(Lack { steps: 0, limit: Limit::Rate, until, .. }) => {
                        self.wait_for_credit(place, least, until, now);
                    }
                    Err(Lack { steps: 0, until, .. }) => {
                        leaf.handle.announce(until, now);
                        self.wait(place, State::Waits, until);
                    }
                    Err(lack) => self.hold(place, lack, now),
                }
            }
            From::Lender(lender) => match leaf.handle.borrow_up_to(steps, least, now) {
                Ok(steps) => {
                    leaf.announced = u16::MAX;
                    self.steps = steps;
                    self.leave_lenders(place, now);
                    self.withdraw_above(place, now);
                    return Some(Grant { bytes: least, lender: steps as u8 });
                }
                // Further down there is credit, but others go first.
                Err(Lack { has: true, steps, until, .. }) => {
                    let below = self.above(place, steps);
                    if let Some(Some(leaf)) = self.leaves.get_mut(place as usize) {
                        let inner = &mut self.inners[below as usize];
                        leaf.announced |= 1 << inner.depth;
                        inner.announce(Limit::Rate, leaf.node(), until, now);
                    }
                    self.stand_aside(place, lender, until);
                    self.announce_to_queues(place, now);
                }
                Err(lack) => self.refused(place, lender, steps, lack, now),
            },
        }
        None
    }

    fn finish(&mut self, place: u32, unused: Bytes, then: Then, now: Nanos) {
        let steps = self.steps;
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        if unused > Bytes::ZERO {
            leaf.handle.give_back(steps, unused);
        }
        match then {
            Then::More(Some(cost)) => self.has_more(place, cost, now),
            Then::More(None) => {
                self.leave_lenders(place, now);
                self.make_ready(place);
            }
            Then::Held(at) => {
                if at > now + LINGER {
                    leaf.handle.set_active(false);
                }
                self.leave_lenders(place, now);
                self.wait(place, State::Waits, at);
            }
            Then::Empty => {
                self.leave_lenders(place, now);
                let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
                leaf.state = State::Idle;
                if !leaf.handle.rests() {
                    leaf.lingers_until = now + LINGER;
                    if !std::mem::replace(&mut leaf.is_looked_after, true) {
                        self.lingering.push_back((leaf.lingers_until, place));
                    }
                }
            }
        }
    }

    fn end(&mut self, _: Nanos) -> Option<Nanos> {
        let lingers = self.lingering.front().map(|(at, _)| *at);
        self.times.first().into_iter().chain(lingers).min()
    }

    fn tokens(&self, place: u32, now: Nanos) -> Vec<[i64; 2]> {
        let leaf = self.leaves.get(place as usize).and_then(Option::as_ref);
        leaf.map(|leaf| leaf.node().tokens(now)).unwrap_or_default()
    }

    fn meter(&self, id: u32) -> Option<Box<dyn ClassMeter>> {
        self.queue.meter(id)
    }

    fn look_ahead(&mut self, others: &mut dyn FnMut(Stage, u32)) {
        let Self { ready, leaves, .. } = self;
        let Some(turns) = ready.iter_mut().find(|turns| !turns.is_empty()) else { return };
        if !turns.is_due() {
            return;
        }
        turns.look_ahead(|stage, place| {
            if let Some(Some(leaf)) = leaves.get(place as usize) {
                match stage {
                    Stage::Leaf => prefetch(leaf),
                    Stage::Parts => leaf.node().prefetch_own(),
                    Stage::Turn => {
                        if let Some(above) = &leaf.node().parent {
                            above.prefetch_own();
                        }
                    }
                }
            }
            others(stage, place);
        });
    }
}

impl Scheduler {
    /// Withdraws what was announced for the leaf at `place`, which has bought.
    #[inline]
    fn withdraw_above(&mut self, place: u32, now: Nanos) {
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        let announced = std::mem::take(&mut leaf.announced);
        if announced == 0 {
            return;
        }
        let mut above = leaf.parent;
        while let Some(inner) = self.inners.get_mut(above as usize) {
            if announced & (1 << inner.depth) != 0 {
                inner.withdraw(&leaf.handle.node, now);
            }
            above = inner.parent;
        }
    }

    /// Takes the leaf at `place` out of all feeds; if it waits there, it takes turns.
    fn leave_feeds(&mut self, place: u32) {
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        let (waits, parent) = (leaf.state == State::Borrows, leaf.parent);
        let (prio, feeds) = (usize::from(leaf.prio), std::mem::take(&mut leaf.feeds));
        self.leave_lenders(place, Nanos::ZERO);
        for depth in (0..u16::BITS as usize).filter(|depth| feeds & (1 << depth) != 0) {
            self.change_feed(parent, prio, depth, |feed, mut moved| {
                feed.retain(|child| child != Child::leaf(place), &mut moved);
            });
            self.refresh(parent, prio, depth);
        }
        if waits {
            self.make_ready(place);
        }
    }
}
