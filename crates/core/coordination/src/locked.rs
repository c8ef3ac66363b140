//! `lock`: the kernel's `htb`, as it behaves, for several queues under one lock.
//!
//! This is the baseline for trees without a lock. The rules are those of `sch_htb.c`, packet by
//! packet: a class with tokens at its rate and at its ceiling sends; one with tokens at its ceiling
//! only borrows from the lowest ancestor that may send. Among borrowers from the same class, the
//! best priority goes first; within a priority they take turns by `quantum`. A packet is charged up
//! to the root.
//!
//! *Two defects are the kernel's, and kept.* A class with tokens sends even if its ancestors have
//! none, so **if the rates below a class add up to more than its ceiling, the sum exceeds it**. And
//! **traffic within a class's rate goes before borrowed traffic of any priority**, so `prio` has no
//! effect between classes whose rates suffice. Other effects that were observed in Linux
//! (FlowValve's section II) are not imitated.
//!
//! *Differences.* In the kernel, a device takes packets from one queue, and the next packet is
//! chosen when it leaves. Here each queue asks for itself, and a refused queue is told when to ask
//! again. So the order is decided among the queues that have said that they wait. A burst counts as
//! at least a full frame and 250 us of the rate, as in `fair`: no worker is as punctual as a burst
//! of 1600 bytes requires at 10 Gbit/s.
//!
//! Cost: the lock, for each packet.
//!
//! Source: M. Devera, `sch_htb.c` (Linux 6.12).

use crate::Below;
use crate::roster::Roster;
use crate::sync::{Mutex, lock};
use crate::trees::from_above;
use class::{LockedClass, Mode};
use narrows_packet::Reading;
use narrows_qdisc::htb::{Alone, Class, ClassMeter, Grant, LeafClass, Meters, Scheduler};
use narrows_units::{Bytes, Nanos};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

mod class;
mod turns;

/// The classes of a tree; see the module's documentation.
#[derive(Default)]
pub struct Tree {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    classes: HashMap<u32, LockedClass>,
    roster: Roster,
    /// How many meters have been taken.
    meters: u32,
}

impl Tree {
    /// See [`SharedTree::replace_classes`](crate::SharedTree::replace_classes).
    pub(crate) fn replace_classes(&self, classes: &BTreeMap<u32, (Class, Option<Below>)>) {
        let mut state = lock(&self.state);
        let mut before = std::mem::take(&mut state.classes);
        let mut is_new = BTreeMap::new();
        for id in from_above(classes, classes.keys().copied()) {
            let (class, _) = &classes[&id];
            let above_is_new = class.parent.is_some_and(|parent| is_new[&parent]);
            let present = before
                .remove(&id)
                .filter(|present| !above_is_new && present.parent() == class.parent);
            is_new.insert(id, present.is_none());
            let mut present = present.unwrap_or_default();
            present.set(class);
            state.classes.insert(id, present);
        }
        state.roster = Roster::new(classes.clone());
    }

    /// The scheduler of one queue.
    pub(crate) fn scheduler(self: &Arc<Self>) -> Box<dyn Scheduler> {
        Box::new(Alone::new(Queue { tree: Arc::clone(self) }))
    }
}

struct Queue {
    tree: Arc<Tree>,
}

impl Meters for Queue {
    fn leaf(&self, id: u32) -> Option<LeafClass> {
        lock(&self.tree.state).roster.leaf(id)
    }

    fn class(&self, id: u32) -> Option<Class> {
        lock(&self.tree.state).roster.class(id)
    }

    fn meter(&self, id: u32) -> Option<Box<dyn ClassMeter>> {
        let mut state = lock(&self.tree.state);
        state.classes.get(&id)?;
        state.meters += 1;
        let (tree, number) = (Arc::clone(&self.tree), state.meters);
        Some(Box::new(QueueMeter { tree, class: id, number, time: 0, lender: 0 }))
    }

    fn reading(&self) -> Reading {
        lock(&self.tree.state).roster.reading()
    }

    fn owe(&mut self, id: u32, bytes: Bytes, now: Nanos) {
        let mut state = lock(&self.tree.state);
        let top = state.roster.topmost(id);
        if let Some(class) = top.and_then(|top| state.classes.get_mut(&top)) {
            class.owe(bytes, now);
        }
    }
}

/// A queue's meter at a class.
struct QueueMeter {
    tree: Arc<Tree>,
    class: u32,
    /// Its number among all meters.
    number: u32,
    /// Its time among the queues of the class.
    time: u64,
    /// The distance to the last lender, in classes.
    lender: u8,
}

impl State {
    /// A class and its ancestors; empty if the class is gone.
    fn path(&self, class: u32) -> impl Iterator<Item = (u32, &LockedClass)> {
        let find = |id: u32| Some((id, self.classes.get(&id)?));
        std::iter::successors(find(class), move |(_, at)| find(at.parent()?))
    }

    /// The lender of `class` at `now`, and its distance in classes.
    ///
    /// # Errors
    /// The time until which another borrower waits.
    fn lender(&self, class: u32, borrow: bool, now: Nanos) -> Result<(u32, u8), Nanos> {
        let mut next = Nanos::MAX;
        for (steps, (id, at)) in (0..).zip(self.path(class)) {
            match at.mode(now) {
                Mode::Sends => return Ok((id, steps)),
                Mode::Borrows(until) => next = next.min(until),
                Mode::Waits(until) => return Err(next.min(until)),
            }
            if !borrow {
                break;
            }
        }
        Err(next)
    }

    /// Whether another waiting borrower of `lender` goes first.
    ///
    /// # Errors
    /// The time until which.
    fn turn(
        &self,
        meter: &QueueMeter,
        (lender, steps): (u32, u8),
        now: Nanos,
    ) -> Result<(), Nanos> {
        let (own, lender) = (&self.classes[&meter.class], &self.classes[&lender]);
        own.queues.may(meter.number, meter.time, now)?;
        if steps == 0 {
            return Ok(());
        }
        let prio = own.prio();
        for better in &lender.borrowers[..prio] {
            better.check_idle(now)?;
        }
        lender.borrowers[prio].may(meter.class, own.time, now)
    }

    /// Registers that the meter waits for a loan, and until when.
    fn wait(&mut self, meter: &QueueMeter, until: Nanos, now: Nanos) {
        let Some(own) = self.classes.get_mut(&meter.class) else { return };
        own.queues.wait(meter.number, meter.time, until, now);
        let (prio, time, mut next) = (own.prio(), own.time, own.parent());
        if matches!(own.mode(now), Mode::Waits(_)) {
            // It waits for its own ceiling, not for a sibling.
            return;
        }
        while let Some(above) = next.and_then(|id| self.classes.get_mut(&id)) {
            above.borrowers[prio].wait(meter.class, time, until, now);
            next = above.parent().filter(|_| !matches!(above.mode(now), Mode::Waits(_)));
        }
    }

    fn buy(
        &mut self,
        meter: &mut QueueMeter,
        bytes: Bytes,
        borrow: bool,
        now: Nanos,
    ) -> Result<Grant, Nanos> {
        if !self.classes.contains_key(&meter.class) {
            // Its queue will learn of it.
            return Err(now + Nanos::from_millis(1));
        }
        let found = self.lender(meter.class, borrow, now);
        let granted = found.and_then(|lender| self.turn(meter, lender, now).map(|()| lender));
        let (lender, steps) = granted.map_err(|until| {
            let until = until.max(now + Nanos(1));
            if borrow {
                self.wait(meter, until, now);
            }
            until
        })?;
        let charge = |at: &mut LockedClass, below: u8| at.charge(bytes, below >= steps, now);
        let (mut next, mut below) = (Some(meter.class), 0);
        while let Some(at) = next.and_then(|id| self.classes.get_mut(&id)) {
            charge(at, below);
            (next, below) = (at.parent(), below + 1);
        }
        let mut moved = None;
        if let Some(own) = self.classes.get_mut(&meter.class) {
            let weight = own.quantum();
            meter.time = own.queues.serve(meter.time, bytes, 1);
            moved = (steps > 0).then(|| (own.prio(), own.time, weight));
        }
        if let Some((prio, time, weight)) = moved
            && let Some(at) = self.classes.get_mut(&lender)
        {
            let time = at.borrowers[prio].serve(time, bytes, weight);
            if let Some(own) = self.classes.get_mut(&meter.class) {
                own.time = time;
            }
        }
        meter.lender = steps;
        Ok(Grant::lent(bytes, steps))
    }
}

impl ClassMeter for QueueMeter {
    fn buy(&mut self, least: Bytes, _: Bytes, borrow: bool, now: Nanos) -> Result<Grant, Nanos> {
        let tree = Arc::clone(&self.tree);
        lock(&tree.state).buy(self, least, borrow, now)
    }

    fn give_back(&mut self, bytes: Bytes) {
        let mut state = lock(&self.tree.state);
        let (mut next, mut below) = (Some(self.class), 0);
        while let Some(at) = next.and_then(|id| state.classes.get_mut(&id)) {
            at.put_back(bytes, below >= self.lender);
            (next, below) = (at.parent(), below + 1);
        }
    }

    /// A class registers as waiting when it is refused.
    fn set_active(&mut self, _: bool) {}

    fn tokens(&self, now: Nanos) -> Vec<[i64; 2]> {
        let state = lock(&self.tree.state);
        state.path(self.class).map(|(_, at)| at.tokens(now)).collect()
    }
}
