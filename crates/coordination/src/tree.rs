//! A tree of classes that all queues keep together.
//!
//! Each class has an assured rate, and a ceiling that it never exceeds. It lends the rate that it
//! does not use, through the classes above it (HTB's rules, `tc-htb(8)`). The flows of one class
//! land on many queues, and it is still one class with one rate. No queue owns a class, and no lock
//! is taken: as with `fair` for one limit, exactness and fairness are two mechanisms that do not
//! depend on each other.
//!
//! *A ledger at every node, for the rate and for the ceiling* ([`ledger`]). A queue buys what it is
//! about to send, at its class and at every class above it. If one of them has too little credit,
//! it buys nothing at any. So the sum of no node exceeds its ceiling in any window by more than its
//! burst, even if queues see outdated state of each other. Credit is used at once or returned: no
//! queue holds any.
//!
//! *A race at every lender* ([`race`]). Virtual times decide the proportions in which classes
//! borrow: the lender has one, which its sales advance, and so does each class that borrows from
//! it. A class that is two frames ahead leaves to a waiting class everything that would not be lost
//! soon; so does a class of a worse priority. So no rate is lost, and no class has to know how many
//! others there are or on which cores. Queues that send for the same class run a race of their own,
//! in the same way.
//!
//! *Cushions in HTB's order.* At a ceiling, assured traffic may use all credit. Borrowers leave a
//! part of it, and a larger one the higher the lender stands. So an assured packet finds credit at
//! once, and between cores, too, assured traffic goes before borrowed traffic.
//!
//! *Waiting is published.* A queue that is refused writes at the lender until when it waits. Rights
//! differ only while a queue waits: a class that its own ceiling delays, or that wants less than
//! its share, slows no other down, and the race continues from the position of those that buy.
//!
//! Differences from the kernel's HTB: a ceiling also holds for assured traffic (there, children
//! whose rates add up to more than their parent's ceiling exceed it); a burst below [`LEAST_TIME`]
//! at the rate, or below [`LEAST_FRAMES`], counts as that; 16 levels instead of 8.
//!
//! *Non-goals.* Queues, packets and the order of classes on one queue: they belong to the qdisc.
//!
//! Cost: a purchase takes two atomic updates for each class on the way to the root (one where rate
//! and ceiling are the same), two for each class up to the lender, and one for the queues. It
//! covers the packets that leave together, up to a quantum.
//!
//! Source: M. Devera, `sch_htb.c` and its theory; start-time fair queueing (P. Goyal, H. Vin, H.
//! Cheng, 1996) for the races; FlowValve (CoNEXT'21) for the idea of a tree without a lock.
//!
//! [`LEAST_TIME`]: terms::LEAST_TIME
//! [`LEAST_FRAMES`]: terms::LEAST_FRAMES

use crate::sync::{AtomicU32, Mutex, Ordering, lock};
use crate::trees::from_above;
use log::Log;
use narrows_packet::Reading;
use narrows_qdisc::htb::{Class, ClassMeter, LeafClass, TreeMeter};
use narrows_qdisc::{Census, Config, NodeId, Spec};
use node::Node;
use seat::Seat;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub(crate) mod ledger;
mod log;
mod node;
mod race;
mod seat;
mod terms;

/// What waits below a leaf class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Below {
    /// Its name.
    pub id: NodeId,
    /// Its kind and parameters, shared with others that are alike.
    pub config: Arc<Config>,
    /// How many qdiscs with classes are above it.
    pub level: u8,
    /// The qdiscs below it.
    pub children: Vec<Self>,
}

impl Below {
    /// One with nothing below it, in a class of an `htb` at the root.
    pub fn new(id: NodeId, config: impl Into<Arc<Config>>) -> Self {
        Self { id, config: config.into(), level: 1, children: Vec::new() }
    }

    /// What a queue builds.
    pub(crate) fn spec(&self) -> Spec {
        let Self { id, config, level, children } = self;
        let children = children.iter().map(Self::spec).collect();
        Spec { id: *id, level: *level, children, ..Spec::new((**config).clone()) }
    }

    /// What it and those below it want to know of packets.
    pub(crate) fn reading(&self) -> Reading {
        let own = self.config.reading();
        self.children.iter().fold(own, |reading, child| reading.and(child.reading()))
    }
}

/// A class, and what waits below it.
struct Member {
    node: Arc<Node>,
    class: Class,
    below: Option<Below>,
}

/// What is known of all classes.
#[derive(Default)]
struct Members {
    /// By their number.
    classes: HashMap<u32, Box<Member>>,
    /// What qdiscs below them want to know of packets, with how many of them do.
    readings: Vec<(Reading, usize)>,
    log: Log,
    /// How many nodes have been made.
    made: u64,
}

/// The classes of a tree; see the module's documentation.
#[derive(Default)]
pub struct Tree {
    /// Locked when a class comes, goes or is first used by a queue.
    members: Mutex<Members>,
    /// How many queues have a seat.
    queues: AtomicU32,
}

impl Tree {
    /// One without classes.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Makes the classes what `classes` says. A class carries on, with its credit and its debt,
    /// where it is below the same classes as before. What queues have to do for it depends on what
    /// changes.
    ///
    /// # Panics
    /// Where a parent is none of them: the policy sees to that.
    pub fn become_these(&self, classes: &BTreeMap<u32, (Class, Option<Below>)>) {
        let mut members = lock(&self.members);
        match members.changes_to(classes) {
            Some(changes) => members.change(&changes, classes),
            None => members.replace(classes),
        }
    }

    /// Makes the classes `changed` what `of` says of them; those of which it says nothing go. False
    /// where one of them moves, or there was none before: nothing has changed then.
    ///
    /// # Panics
    /// As [`Tree::become_these`].
    pub fn change(
        &self,
        changed: &[u32],
        of: &dyn Fn(u32) -> Option<(Class, Option<Below>)>,
    ) -> bool {
        let classes: BTreeMap<u32, _> =
            changed.iter().filter_map(|id| Some((*id, of(*id)?))).collect();
        let mut members = lock(&self.members);
        let moves = |(id, (class, _)): (&u32, &(Class, Option<Below>))| {
            members.classes.get(id).is_some_and(|member| member.class.parent != class.parent)
        };
        if members.classes.is_empty() || classes.iter().any(moves) {
            return false;
        }
        members.change(changed, &classes);
        true
    }

    /// A queue's seat.
    pub fn seat(self: &Arc<Self>) -> Box<dyn TreeMeter> {
        let seen = lock(&self.members).log.end();
        // Relaxed: whoever opens a class has been given its specification after all others.
        self.queues.fetch_add(1, Ordering::Relaxed);
        Box::new(Queue { tree: Arc::clone(self), seen })
    }
}

impl Members {
    /// The numbers of the classes that are others in `classes`, or are not in both; `None` where one
    /// of them moves, and with it those below, or where there was none before.
    fn changes_to(&self, classes: &BTreeMap<u32, (Class, Option<Below>)>) -> Option<Vec<u32>> {
        if self.classes.is_empty() {
            return None;
        }
        let mut changes = Vec::new();
        for (id, (class, below)) in classes {
            match self.classes.get(id) {
                Some(member) if member.class.parent != class.parent => return None,
                Some(member) if member.class == *class && member.below == *below => {}
                _ => changes.push(*id),
            }
        }
        changes.extend(self.classes.keys().copied().filter(|id| !classes.contains_key(id)));
        Some(changes)
    }

    /// Makes the classes `changed` what `classes` says; those that are not there go.
    fn change(&mut self, changed: &[u32], classes: &BTreeMap<u32, (Class, Option<Below>)>) {
        self.log.add(changed.iter().copied());
        for id in from_above(classes, changed.iter().copied()) {
            let (class, below) = &classes[&id];
            let present = self.take(id);
            self.put(id, class, below.clone(), present);
        }
        for id in changed.iter().filter(|id| !classes.contains_key(id)) {
            self.take(*id);
        }
    }

    /// Makes the classes what `classes` says.
    fn replace(&mut self, classes: &BTreeMap<u32, (Class, Option<Below>)>) {
        let mut before = std::mem::take(&mut self.classes);
        self.readings.clear();
        self.log.forget();
        for id in from_above(classes, classes.keys().copied()) {
            let (class, below) = &classes[&id];
            let present = before.remove(&id);
            self.put(id, class, below.clone(), present);
        }
    }

    /// Takes a class out.
    fn take(&mut self, id: u32) -> Option<Box<Member>> {
        let member = self.classes.remove(&id)?;
        if let Some(below) = &member.below {
            let reading = below.reading();
            if let Some(at) = self.readings.iter().position(|(known, _)| *known == reading) {
                self.readings[at].1 -= 1;
                if self.readings[at].1 == 0 {
                    self.readings.swap_remove(at);
                }
            }
        }
        Some(member)
    }

    /// Puts a class in, which carries on as `present` where that is below the same one.
    fn put(&mut self, id: u32, class: &Class, below: Option<Below>, present: Option<Box<Member>>) {
        let above =
            |id| self.classes.get(&id).unwrap_or_else(|| panic!("there is no class {id:x}"));
        let parent = class.parent.map(|id| Arc::clone(&above(id).node));
        let is_same = |node: &Node| match (&node.parent, &parent) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        let node = match present {
            Some(member) if is_same(&member.node) => {
                member.node.terms.set(class);
                member.node
            }
            _ => {
                self.made += 1;
                Arc::new(Node::new(id, self.made, class, parent))
            }
        };
        if let Some(below) = &below {
            let reading = below.reading();
            match self.readings.iter_mut().find(|(known, _)| *known == reading) {
                Some((_, count)) => *count += 1,
                None => self.readings.push((reading, 1)),
            }
        }
        self.classes.insert(id, Box::new(Member { node, class: *class, below }));
    }
}

struct Queue {
    tree: Arc<Tree>,
    /// Up to where it has read what changed.
    seen: u64,
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.tree.queues.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TreeMeter for Queue {
    fn leaf(&self, id: u32) -> Option<LeafClass> {
        let members = lock(&self.tree.members);
        let Member { class, below, .. } = members.classes.get(&id)?.as_ref();
        Some(LeafClass { class: *class, qdisc: below.as_ref()?.spec() })
    }

    fn meter(&self, id: u32) -> Option<Box<dyn ClassMeter>> {
        let node = Arc::clone(&lock(&self.tree.members).classes.get(&id)?.node);
        Some(Box::new(Seat::new(node)))
    }

    fn census(&self, id: u32) -> Option<Box<dyn Census>> {
        if self.tree.queues.load(Ordering::Relaxed) <= 1 {
            return None;
        }
        let node = Arc::clone(&lock(&self.tree.members).classes.get(&id)?.node);
        Some(node.census())
    }

    fn is_seat_of(&self, seat: u64, id: u32) -> bool {
        let members = lock(&self.tree.members);
        members.classes.get(&id).is_some_and(|member| member.node.serial == seat)
    }

    fn changes(&mut self) -> Option<Vec<u32>> {
        let members = lock(&self.tree.members);
        let changes = members.log.since(self.seen);
        self.seen = members.log.end();
        changes
    }

    fn reading(&self) -> Reading {
        let members = lock(&self.tree.members);
        members.readings.iter().fold(Reading::NOTHING, |all, (reading, _)| all.and(*reading))
    }
}
