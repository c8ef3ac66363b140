//! Which class of a queue sends next.
//!
//! 1. Of the leaves that have to be served now to keep their deadlines, the one with the earliest
//!    deadline.
//! 2. Otherwise from the root downwards, of the active children whose upper limits let them be
//!    served, the one with the least virtual time.
//!
//! A leaf of which a packet has come first says what that costs, in a turn of its own: its deadline
//! depends on that.
//!
//! *Between queues.* Real-time service needs no order among queues: each serves its leaves when
//! they are due. For link sharing, a queue that waits for an upper limit announces the virtual
//! times of the classes that it waits with, at each class below that limit. A queue whose own next
//! class is more than two frames ahead of those leaves them the credit, and waits until they have
//! come for it. Credit of an upper limit that nobody takes is not lost, so nothing is. Classes that
//! no limit above them holds up compete for nothing, and do not wait for each other.
//!
//! Cost: a turn changes three tournaments at each class on the way to the root, and two of all
//! leaves for its deadline.

use super::Queue;
use super::children::Children;
use super::class::{Class, Curves, both, weight};
use super::curve::{earlier, is_before};
use super::winners::{NONE, Winners};
use crate::tree::virtual_time::{LEAD, virtual_span};
use narrows_packet::Reading;
use narrows_qdisc::hfsc::Service;
use narrows_qdisc::htb::{Grant, LeafClass, Then, Times};
use narrows_qdisc::{Census, Weight};
use narrows_units::{Bytes, Nanos};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The place of the root, which is the qdisc itself.
const ROOT: u32 = 0;

/// At no more classes than this, a queue announces what it waits for, and for no more leaves.
const ANNOUNCED_MOST: usize = 256;

/// The weight of a queue of a leaf among its queues, in bytes.
const QUEUE_WEIGHT: u64 = 1514;

/// What a leaf waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Packets.
    Idle,
    /// A turn in which it says what its next packet costs.
    Asks,
    /// Its turn.
    Active,
    /// A time, before which its qdisc has no packets.
    Held,
}

/// What the turn is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// To learn what the next packet costs.
    Cost,
    RealTime,
    LinkShare,
}

/// Where a class is in its parent, on this queue.
struct Place {
    class: Arc<Class>,
    curves: Curves,
    /// The place of the class above it, and its place among that one's children.
    parent: u32,
    at: u32,
    /// Until when it leaves credit to other queues.
    stands_aside: u64,
    /// Whether it is active on this queue.
    is_active: bool,
}

/// A leaf class, as this queue sees it.
struct Leaf {
    id: u32,
    place: Place,
    state: State,
    /// What its next packet costs.
    next: Bytes,
    /// Whether a deadline is for its next packet.
    is_due: bool,
    /// The queue's virtual time and weight among the queues of the class; a weight of 0 while it
    /// has no packets.
    time: u64,
    weight: u64,
    part: Weight,
    /// When to ask its qdisc again that had no packets; [`Nanos::MAX`] for never.
    held_until: Nanos,
}

/// A class with children, as this queue sees it.
struct Inner {
    id: u32,
    place: Place,
    children: Children,
    /// By place among the children: a leaf, or (`Err`) a class with children.
    members: Vec<Option<Result<u32, u32>>>,
    /// Vacant places among them.
    vacant: Vec<u32>,
    /// How many members there are.
    count: u32,
    /// Those that have children.
    inners: Vec<u32>,
    /// Until when a child leaves credit to other queues, and the least virtual time of those that
    /// do.
    aside: Option<(u64, u64)>,
}

/// Chooses the class of one queue that sends next.
pub(super) struct Scheduler {
    queue: Queue,
    leaves: Vec<Option<Leaf>>,
    inners: Vec<Option<Inner>>,
    /// Vacant places among them.
    vacant: Vec<u32>,
    by_id: HashMap<u32, u32>,
    /// Leaves that say what their next packets cost.
    asking: VecDeque<u32>,
    /// Leaves with deadlines, by the time from which on they are eligible,
    waiting: Winners,
    /// and those that are, by deadline.
    eligible: Winners,
    held: Times,
    /// Classes at which something is announced, each behind the class above it, and when they open;
    /// kept to allocate once.
    announcing: Vec<(u32, u64)>,
    turn: Turn,
    /// When it was asked last.
    now: u64,
}

impl Scheduler {
    pub(super) fn new(queue: Queue) -> Self {
        let class = queue.root();
        let place = Place::new(class, Curves::default(), NONE, 0);
        place.class.is_opened();
        Self {
            queue,
            leaves: Vec::new(),
            inners: vec![Some(Inner::new(ROOT, place))],
            vacant: Vec::new(),
            by_id: HashMap::from([(ROOT, ROOT)]),
            asking: VecDeque::new(),
            waiting: Winners::default(),
            eligible: Winners::default(),
            held: Times::default(),
            announcing: Vec::new(),
            turn: Turn::Cost,
            now: 0,
        }
    }

    fn leaf(&mut self, place: u32) -> Option<&mut Leaf> {
        self.leaves.get_mut(place as usize)?.as_mut()
    }

    fn inner(&mut self, place: u32) -> Option<&mut Inner> {
        self.inners.get_mut(place as usize)?.as_mut()
    }

    /// The place of a leaf, or (`Err`) of a class with children; `None` for the root, which is
    /// below no other.
    fn place(&mut self, member: Result<u32, u32>) -> Option<&mut Place> {
        match member {
            Ok(leaf) => self.leaf(leaf).map(|leaf| &mut leaf.place),
            Err(ROOT) => None,
            Err(inner) => self.inner(inner).map(|inner| &mut inner.place),
        }
    }

    /// The place of the class `id`, which has children.
    fn open_inner(&mut self, id: u32) -> Option<u32> {
        if let Some(place) = self.by_id.get(&id) {
            return Some(*place);
        }
        let (class, curves, parent) = self.queue.open(id)?;
        let parent = self.open_inner(parent.unwrap_or(ROOT))?;
        let place = match self.vacant.pop() {
            Some(place) => place,
            None => {
                self.inners.push(None);
                self.inners.len() as u32 - 1
            }
        };
        let at = self.inner(parent)?.add(Err(place));
        let place_of = Place::new(class, curves, parent, at);
        place_of.class.is_opened();
        self.inners[place as usize] = Some(Inner::new(id, place_of));
        self.by_id.insert(id, place);
        Some(place)
    }

    /// One member less of the class at `place`, and of those above that have none then.
    fn leave_inner(&mut self, mut place: u32, mut at: u32) {
        while let Some(inner) = self.inner(place) {
            if let Some(Err(gone)) = inner.members[at as usize].take() {
                inner.inners.retain(|one| *one != gone);
            }
            inner.vacant.push(at);
            inner.count -= 1;
            if inner.count > 0 || place == ROOT {
                return;
            }
            let above = (inner.place.parent, inner.place.at);
            inner.place.class.is_closed();
            let id = inner.id;
            self.by_id.remove(&id);
            self.inners[place as usize] = None;
            self.vacant.push(place);
            (place, at) = above;
        }
    }

    /// The leaf at `place` says what its next packet costs.
    fn ask(&mut self, place: u32) {
        if let Some(leaf) = self.leaf(place)
            && leaf.state != State::Asks
        {
            leaf.state = State::Asks;
            self.asking.push_back(place);
        }
    }

    /// The leaf at `place` has packets, of which the next costs `next`.
    fn begin_period(&mut self, place: u32, next: Bytes, now: u64) {
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        (leaf.state, leaf.next) = (State::Active, next);
        if let Some(curve) = &leaf.place.curves.real_time {
            if !std::mem::replace(&mut leaf.is_due, true) {
                leaf.place.class.enter_real_time(curve, now);
            }
            self.set_deadline(place, now);
        }
        self.enter(place, now);
    }

    /// The leaf at `place` is active, and so are the classes above it.
    fn enter(&mut self, place: u32, now: u64) {
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        if leaf.place.curves.link_share.is_none() || leaf.place.is_active {
            return;
        }
        leaf.weight = leaf.weight_among_queues();
        leaf.place.class.waiting.join(leaf.weight);
        leaf.time = leaf.place.class.waiting.start(leaf.time, leaf.weight);
        let (mut member, mut fit_from) = (Ok(place), 0);
        while let Some(one) = self.place(member) {
            let (parent, at) = (one.parent, one.at);
            let Some(Some(above)) = self.inners.get(parent as usize) else { return };
            let greatest = above.children.greatest();
            let Some(one) = self.place(member) else { return };
            if !std::mem::replace(&mut one.is_active, true) {
                one.class.enter(&one.curves, greatest, now);
            }
            let (time, fit) = (one.class.virtual_time(), both(fit_from, one.fit_from()));
            let Some(above) = self.inner(parent) else { return };
            above.children.set(at, time, fit, now);
            (member, fit_from) = (Err(parent), above.children.fit_from());
        }
    }

    /// The leaf at `place` is due at another time.
    fn set_deadline(&mut self, place: u32, now: u64) {
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        let Some(curve) = &leaf.place.curves.real_time else { return };
        let (eligible, deadline) = leaf.place.class.eligible_and_deadline(curve, leaf.next);
        if is_before(now, eligible) {
            self.eligible.remove(place);
            self.waiting.set(place, eligible);
        } else {
            self.waiting.remove(place);
            self.eligible.set(place, deadline);
        }
    }

    /// The leaf at `place` has no deadline.
    fn leave_real_time(&mut self, place: u32) {
        if let Some(leaf) = self.leaf(place)
            && std::mem::take(&mut leaf.is_due)
        {
            leaf.place.class.leave_real_time();
            self.waiting.remove(place);
            self.eligible.remove(place);
        }
    }

    /// The virtual times of the leaf at `place`, which has been served, and of those above it. With
    /// `is_last`, it has no more packets.
    fn advance(&mut self, place: u32, is_last: bool, now: u64) {
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        if is_last && leaf.place.is_active {
            let _: bool = leaf.place.class.waiting.leave(std::mem::take(&mut leaf.weight));
        }
        let (mut member, mut fit_from, mut leaves) = (Ok(place), 0, is_last);
        let mut are_held_up = false;
        while let Some(one) = self.place(member) {
            let (parent, at) = (one.parent, one.at);
            let curve = one.curves.link_share.filter(|_| one.is_active);
            let change = curve.map(|curve| {
                let time = one.class.advance(&curve);
                let own = one.class.fit_from(&one.curves);
                if are_held_up || own > now {
                    one.class.withdraw(now);
                }
                if leaves {
                    one.is_active = false;
                    one.class.leave();
                }
                (time, both(fit_from, both(own, one.stands_aside)))
            });
            let Some(above) = self.inner(parent) else { return };
            match change {
                Some(_) if leaves => above.children.remove(at),
                Some((time, fit)) => above.children.set(at, time, fit, now),
                None => {}
            }
            leaves = leaves && change.is_some() && above.children.is_empty();
            (member, fit_from) = (Err(parent), above.children.fit_from());
            are_held_up = fit_from > now && above.aside(now).is_none();
        }
    }

    /// From when on `member` may be served has changed, or its virtual time, and so it has for
    /// those above.
    fn refit(&mut self, mut member: Result<u32, u32>, now: u64) {
        while let Some(one) = self.place(member) {
            let (parent, at) = (one.parent, one.at);
            let (time, fit) = (one.class.virtual_time(), one.fit_from());
            let fit = match member {
                Ok(_) => fit,
                Err(inner) => {
                    both(fit, self.inner(inner).map_or(0, |inner| inner.children.fit_from()))
                }
            };
            let Some(above) = self.inner(parent) else { return };
            if above.children.has(at) {
                above.children.set(at, time, fit, now);
            }
            member = Err(parent);
        }
    }

    /// The eligible leaf with the earliest deadline.
    fn next_in_real_time(&mut self, now: u64) -> Option<u32> {
        while let Some((place, eligible)) = self.waiting.first()
            && !is_before(now, eligible)
        {
            self.waiting.remove(place);
            self.set_deadline(place, now);
        }
        loop {
            let (place, deadline) = self.eligible.first()?;
            let Some(Some(leaf)) = self.leaves.get(place as usize) else { return None };
            if leaf.place.class.is_shared() {
                // Another queue may have served it.
                self.set_deadline(place, now);
                if self.eligible.key(place) != Some(deadline) {
                    continue;
                }
            }
            return Some(place);
        }
    }

    /// The leaf that link sharing serves next.
    fn next_in_link_share(&mut self, now: u64) -> Option<u32> {
        'from_root: loop {
            let mut at = ROOT;
            loop {
                let Some(Some(inner)) = self.inners.get_mut(at as usize) else { return None };
                let Some((child, time)) = inner.children.next(now) else {
                    if at == ROOT {
                        return None;
                    }
                    // Its fit time is outdated.
                    self.refit(Err(at), now);
                    let Some(Some(inner)) = self.inners.get(at as usize) else { return None };
                    if inner.children.fit_from() <= now {
                        return None;
                    }
                    continue 'from_root;
                };
                let member = inner.members[child as usize]?;
                let is_shared = inner.place.class.is_shared();
                let mut lead = 0;
                if is_shared {
                    let of = match member {
                        Ok(leaf) => &self.leaves[leaf as usize].as_ref()?.place,
                        Err(inner) => &self.inners[inner as usize].as_ref()?.place,
                    };
                    let (present, weight) = (of.class.virtual_time(), of.weight());
                    lead = of.lead();
                    let Some(Some(inner)) = self.inners.get_mut(at as usize) else { return None };
                    if present != time {
                        // Another queue has served it.
                        self.refit(member, now);
                        continue;
                    }
                    let waiting = &inner.place.class.waiting;
                    if let Some((_, due)) = waiting.ahead_of_last(time, weight, Nanos(now)) {
                        if at == ROOT {
                            return None;
                        }
                        self.stand_aside(Err(at), due, now);
                        continue 'from_root;
                    }
                }
                let Some(Some(inner)) = self.inners.get_mut(at as usize) else { return None };
                inner.serves(time, lead, now);
                match member {
                    Err(below) => at = below,
                    Ok(place) => {
                        let leaf = self.leaves[place as usize].as_mut()?;
                        if is_shared && leaf.place.class.is_shared() {
                            let waiting = &leaf.place.class.waiting;
                            let ahead = waiting.ahead_of_last(leaf.time, leaf.weight, Nanos(now));
                            if let Some((_, due)) = ahead {
                                self.stand_aside(Ok(place), due, now);
                                continue 'from_root;
                            }
                        }
                        return Some(place);
                    }
                }
            }
        }
    }

    /// The child `member` leaves credit to other queues until `until`.
    fn stand_aside(&mut self, member: Result<u32, u32>, until: Nanos, now: u64) {
        let Some(one) = self.place(member) else { return };
        one.stands_aside = until.0;
        let (parent, time) = (one.parent, one.class.virtual_time());
        if let Some(above) = self.inner(parent) {
            let (latest, least) = above.aside(now).unwrap_or((until.0, time));
            above.aside = Some((latest.max(until.0), earlier(least, time)));
        }
        self.refit(member, now);
    }

    /// The classes from the leaf at `place` upwards, the root left out.
    fn path(&self, place: u32) -> impl Iterator<Item = &Place> {
        let leaf = self.leaves.get(place as usize).and_then(Option::as_ref);
        let above = |place: &&Place| match place.parent {
            ROOT => None,
            parent => Some(&self.inners.get(parent as usize)?.as_ref()?.place),
        };
        std::iter::successors(leaf.map(|leaf| &leaf.place), above)
    }

    /// Serves `bytes` to the leaf at `place`, if the upper limits let them pass.
    fn serve_in_link_share(&mut self, place: u32, bytes: Bytes, now: u64) -> bool {
        let refused = self.path(place).position(|one| !one.class.sell(&one.curves, bytes, now));
        if let Some(refused) = refused {
            let paid = self.path(place).take(refused);
            paid.for_each(|one| one.class.take_back(&one.curves, bytes));
            // Another queue was faster.
            self.refit(Ok(place), now);
            return false;
        }
        self.path(place).for_each(|one| one.class.serve(&one.curves, bytes, false, now));
        self.has_bought(place, bytes);
        true
    }

    /// Advances the queue's own virtual time at the leaf at `place`.
    fn has_bought(&mut self, place: u32, bytes: Bytes) {
        if let Some(leaf) = self.leaf(place)
            && leaf.weight > 0
            && leaf.place.class.is_shared()
        {
            let from = leaf.time;
            leaf.time = from.wrapping_add(virtual_span(bytes, leaf.weight));
            leaf.place.class.waiting.advance(from, leaf.time, bytes, leaf.weight);
        }
    }

    /// Announces to other queues what this one waits for: of each class that an upper limit of its
    /// own or above it closes, the child that will be served first when it opens, and of each leaf
    /// this queue. A child that its own limit holds up longer than that has no claim, because the
    /// others need not wait for it. What other queues have served meanwhile is learnt first: a
    /// claim of a time that has passed would keep all waiting for nobody.
    fn announce(&mut self, now: u64) {
        let Self { inners, announcing, .. } = self;
        let shared = |at: u32| {
            let inner = inners.get(at as usize)?.as_ref()?;
            inner.place.class.is_shared().then_some(inner)
        };
        if shared(ROOT).is_none() {
            return;
        }
        announcing.clear();
        announcing.push((ROOT, 0));
        let mut next = 0;
        while next < ANNOUNCED_MOST
            && let Some((at, opens)) = announcing.get_mut(next)
        {
            next += 1;
            let Some(inner) = shared(*at) else { continue };
            *opens = both(*opens, inner.place.fit_from());
            let opens = *opens;
            let below = inner.inners.iter().take(ANNOUNCED_MOST);
            let below = below.filter(|below| shared(**below).is_some());
            announcing.extend(below.map(|below| (*below, opens)));
        }
        let mut left = ANNOUNCED_MOST;
        // From when on a class may be served depends on those below it.
        for next in (0..next).rev() {
            let (at, opens) = self.announcing[next];
            let first = self.first_child(at, opens, now);
            let Some(Some(inner)) = self.inners.get(at as usize) else { continue };
            if let Some((time, fit_from)) = first
                && opens > now
                && fit_from <= opens
            {
                inner.place.class.waiting.want(time, Nanos(opens), Nanos(now));
            }
            // Whichever is first here, another queue may be about to serve any of them.
            let members = inner.members.iter().flatten().take(left);
            left -= left.min(inner.count as usize);
            let leaves = members.filter_map(|one| self.leaves[one.ok()? as usize].as_ref());
            for leaf in leaves.filter(|leaf| leaf.weight > 0 && leaf.place.class.is_shared()) {
                let opens = both(opens, leaf.place.fit_from());
                if opens > now {
                    leaf.place.class.waiting.want(leaf.time, Nanos(opens), Nanos(now));
                }
            }
        }
    }

    /// The virtual time of the child of the class at `at` that will be served first when that one
    /// `opens`, and from when on it may be served; 0 for now.
    fn first_child(&mut self, at: u32, opens: u64, now: u64) -> Option<(u64, u64)> {
        loop {
            let inner = self.inner(at)?;
            let (child, time, fit_from) = inner.children.first(opens, now)?;
            let member = inner.members[child as usize]?;
            if self.place(member)?.class.virtual_time() == time {
                return Some((time, fit_from));
            }
            // Another queue has served it.
            self.refit(member, now);
        }
    }
}

impl Place {
    const fn new(class: Arc<Class>, curves: Curves, parent: u32, at: u32) -> Self {
        Self { class, curves, parent, at, stands_aside: 0, is_active: false }
    }

    /// Has other curves from `now` on.
    fn follow(&mut self, curves: Curves, now: u64) {
        let before = std::mem::replace(&mut self.curves, curves);
        self.class.follow(&before, &self.curves, now);
    }

    /// From when on it may be served, as far as that depends on itself.
    #[inline]
    fn fit_from(&self) -> u64 {
        both(self.class.fit_from(&self.curves), self.stands_aside)
    }

    /// By how much it may be ahead of one on another queue, in virtual time.
    #[inline]
    fn lead(&self) -> u64 {
        let curve = self.curves.link_share.as_ref();
        curve.map_or(0, |curve| curve.byte_time().span(0, LEAD).0)
    }

    /// Its weight among those that wait beside it.
    #[inline]
    fn weight(&self) -> u64 {
        self.curves.link_share.as_ref().map_or(1, weight)
    }
}

impl Leaf {
    fn weight_among_queues(&self) -> u64 {
        (QUEUE_WEIGHT * u64::from(self.part.0) / u64::from(Weight::ONE.0)).max(1)
    }
}

impl Inner {
    /// The class `id`, without members.
    fn new(id: u32, place: Place) -> Self {
        Self {
            id,
            place,
            children: Children::default(),
            members: Vec::new(),
            vacant: Vec::new(),
            count: 0,
            inners: Vec::new(),
            aside: None,
        }
    }

    /// Until when a child leaves credit to other queues at `now`, and the least virtual time of
    /// those that do.
    #[inline]
    fn aside(&self, now: u64) -> Option<(u64, u64)> {
        self.aside.filter(|(until, _)| *until > now)
    }

    /// A child is next, at this virtual time. One that leaves credit to other queues is not behind
    /// because of its upper limit, and keeps its claim.
    #[inline]
    fn serves(&self, time: u64, lead: u64, now: u64) {
        let time = self.aside(now).map_or(time, |(_, least)| earlier(least, time));
        self.place.class.serves(time, lead, now);
    }

    /// Adds `member`. Returns its place.
    fn add(&mut self, member: Result<u32, u32>) -> u32 {
        self.count += 1;
        let at = match self.vacant.pop() {
            Some(at) => at as usize,
            None => {
                self.members.push(None);
                self.members.len() - 1
            }
        };
        self.members[at] = Some(member);
        self.inners.extend(member.err());
        self.children.make_room(self.members.len());
        at as u32
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
        let changed = self.queue.changes()?;
        let now = self.now;
        for id in &changed {
            if let Some(place) = self.by_id.get(id).copied()
                && let Some(curves) = self.queue.curves(*id)
                && let Some(inner) = self.inner(place)
            {
                inner.place.follow(curves, now);
                self.refit(Err(place), now);
            }
        }
        Some(changed)
    }

    fn reading(&self) -> Reading {
        self.queue.reading()
    }

    fn open(&mut self, place: u32, id: u32) -> bool {
        let Some((class, curves, parent)) = self.queue.open(id) else { return false };
        self.close(place);
        let Some(parent) = self.open_inner(parent.unwrap_or(ROOT)) else { return false };
        let Some(above) = self.inner(parent) else { return false };
        let at = above.add(Ok(place));
        class.is_opened();
        if self.leaves.len() <= place as usize {
            self.leaves.resize_with(place as usize + 1, || None);
        }
        self.leaves[place as usize] = Some(Leaf {
            id,
            place: Place::new(class, curves, parent, at),
            state: State::Idle,
            next: Bytes::ZERO,
            is_due: false,
            time: 0,
            weight: 0,
            part: Weight::ONE,
            held_until: Nanos::MAX,
        });
        let room = self.leaves.capacity();
        self.waiting.make_room(room);
        self.eligible.make_room(room);
        self.held.make_room(room);
        self.asking.reserve(room.saturating_sub(self.asking.len()));
        true
    }

    fn close(&mut self, place: u32) {
        if self.leaf(place).is_none() {
            return;
        }
        self.leave_real_time(place);
        self.advance(place, true, self.now);
        let Some(leaf) = self.leaves[place as usize].take() else { return };
        self.asking.retain(|one| *one != place);
        self.held.retain(|one| one != place);
        leaf.place.class.is_closed();
        self.leave_inner(leaf.place.parent, leaf.place.at);
    }

    fn is_current(&self, place: u32) -> bool {
        let leaf = self.leaves.get(place as usize).and_then(Option::as_ref);
        leaf.is_some_and(|leaf| self.queue.is_current(leaf.id, &leaf.place.class))
    }

    fn retune(&mut self, place: u32) {
        // It begins a new period, on its new curves.
        self.leave_real_time(place);
        self.advance(place, true, self.now);
        let Some(id) = self.leaf(place).map(|leaf| leaf.id) else { return };
        let Some(curves) = self.queue.curves(id) else { return };
        let now = self.now;
        let Some(leaf) = self.leaf(place) else { return };
        leaf.place.follow(curves, now);
        if leaf.state == State::Active {
            self.ask(place);
        }
    }

    fn arrived(&mut self, place: u32) {
        if self.leaf(place).is_some_and(|leaf| leaf.state == State::Idle) {
            self.ask(place);
        }
    }

    fn needs_costs(&self) -> bool {
        true
    }

    fn costs(&mut self, place: u32, next: Bytes, now: Nanos) {
        if self.leaf(place).is_some_and(|leaf| leaf.state == State::Idle) {
            self.begin_period(place, next, now.0);
        }
    }

    fn reconsider(&mut self, place: u32) {
        if self.leaf(place).is_some_and(|leaf| leaf.state != State::Idle) {
            self.ask(place);
        }
    }

    fn weigh(&mut self, place: u32, weight: Weight) {
        let Some(leaf) = self.leaf(place) else { return };
        leaf.part = weight;
        if leaf.weight > 0 {
            let weight = leaf.weight_among_queues();
            leaf.place.class.waiting.join(weight);
            let _: bool = leaf.place.class.waiting.leave(leaf.weight);
            leaf.weight = weight;
        }
    }

    fn begin(&mut self, now: Nanos) {
        self.now = now.0;
        while let Some(at) = self.held.first()
            && at <= now
            && let Some((_, place)) = self.held.pop()
        {
            let Some(leaf) = self.leaf(place).filter(|leaf| leaf.held_until == at) else {
                continue;
            };
            leaf.held_until = Nanos::MAX;
            if leaf.state == State::Held {
                self.ask(place);
            }
        }
    }

    fn next(&mut self, now: Nanos) -> Option<u32> {
        if let Some(place) = self.asking.pop_front() {
            self.turn = Turn::Cost;
            return Some(place);
        }
        let now = now.0;
        if let Some(place) = self.next_in_real_time(now) {
            self.turn = Turn::RealTime;
            return Some(place);
        }
        self.turn = Turn::LinkShare;
        self.next_in_link_share(now)
    }

    fn acquire(&mut self, place: u32, least: Bytes, _want: Bytes, now: Nanos) -> Option<Grant> {
        let now = now.0;
        match self.turn {
            Turn::Cost => {
                self.begin_period(place, least, now);
                None
            }
            Turn::RealTime => {
                self.path(place).for_each(|one| one.class.serve(&one.curves, least, true, now));
                self.has_bought(place, least);
                let leaf = self.leaf(place)?;
                let curve = leaf.place.curves.real_time?;
                leaf.place.class.serve_in_real_time(&curve, least);
                Some(Grant::own(least))
            }
            Turn::LinkShare => {
                self.serve_in_link_share(place, least, now).then_some(Grant::lent(least, 1))
            }
        }
    }

    fn lacks_credit(&self) -> bool {
        self.turn != Turn::Cost
    }

    fn finish(&mut self, place: u32, unused: Bytes, then: Then, now: Nanos) {
        if unused > Bytes::ZERO {
            self.path(place).for_each(|one| one.class.give_back(&one.curves, unused));
            if self.turn == Turn::RealTime
                && let Some(leaf) = self.leaf(place)
                && let Some(curve) = leaf.place.curves.real_time
            {
                leaf.place.class.give_back_in_real_time(&curve, unused);
            }
        }
        let time = now.0;
        match then {
            Then::More(next) => {
                let Some(leaf) = self.leaf(place) else { return };
                if let Some((next, _)) = next {
                    leaf.next = next;
                }
                if leaf.is_due {
                    self.set_deadline(place, time);
                }
                self.advance(place, false, time);
                if next.is_none() {
                    self.ask(place);
                }
            }
            Then::Empty | Then::Held(_) => {
                self.advance(place, true, time);
                self.leave_real_time(place);
                let Some(leaf) = self.leaf(place) else { return };
                leaf.state = State::Idle;
                if let Then::Held(at) = then {
                    leaf.state = State::Held;
                    if at < leaf.held_until {
                        leaf.held_until = at;
                        self.held.insert(at, place);
                    }
                }
            }
        }
    }

    fn end(&mut self, now: Nanos) -> Option<Nanos> {
        if !self.asking.is_empty() || self.eligible.first().is_some() {
            return Some(now);
        }
        let root = self.inners[ROOT as usize].as_ref()?;
        let fit_from = Some(root.children.fit_from()).filter(|at| *at != u64::MAX);
        if fit_from.is_some_and(|until| until > now.0) {
            self.announce(now.0);
        }
        let due = self.waiting.first().map(|(_, at)| at);
        let times = [due, fit_from].into_iter().flatten().map(Nanos);
        times.chain(self.held.first()).min().map(|at| at.max(now))
    }

    fn tokens(&self, _place: u32, _now: Nanos) -> Vec<[i64; 2]> {
        Vec::new()
    }

    fn service(&self, place: u32) -> Vec<Service> {
        self.path(place).map(|one| one.class.service()).collect()
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        for place in 0..self.leaves.len() as u32 {
            narrows_qdisc::htb::Scheduler::close(self, place);
        }
        if let Some(Some(root)) = self.inners.get(ROOT as usize) {
            root.place.class.is_closed();
        }
    }
}
