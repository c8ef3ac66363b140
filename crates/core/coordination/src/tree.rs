//! A tree of classes that all queues keep together.
//!
//! Each class has an assured rate, and a ceiling that it never exceeds. The rate that it does not
//! use is lent by the classes above it (HTB's rules, `tc-htb(8)`). The flows of one class land on
//! many queues, and it is still one class with one rate. No queue owns a class, and no purchase
//! takes a lock. As with `fair` for one limit, two mechanisms do not depend on each other: ledgers
//! make the sums exact, and virtual times make the shares fair.
//!
//! *A ledger at every node, for the rate and for the ceiling* ([`ledger`](crate::ledger)). Before a
//! queue sends, it buys the bytes. At its own rate, a class buys at that rate, and at the ceilings
//! of the class and of all classes above it. A borrower buys at the rate of the lender, and at the
//! same ceilings. If one of these ledgers has too little credit, the queue buys at none. So the sum
//! of no node exceeds its ceiling in any window by more than its burst, even if queues see outdated
//! state of each other. Credit is used at once or returned: no queue holds any.
//!
//! *A group at every lender* ([`virtual_time`]). Virtual times decide the proportions in which
//! classes borrow. The group has a virtual time, which advances with all that is lent. Each
//! borrower has one, which advances with what it borrows. If a class waits for the lender, a class
//! that is more than two frames ahead of it leaves to it all credit that would not be lost soon,
//! and so does a class of a worse priority. So no credit is lost, and no class has to know how many
//! others there are or on which cores.
//!
//! *A group for the queues of a class.* Queues that send for the same class share it in the same
//! way. If bands are below the class, there is a group for each rank, and worse ranks leave credit
//! to better ones, as worse priorities do. A queue that is the only one with a handle at the class
//! is in no group: it joins with its first request after another queue has taken a handle.
//!
//! *Cushions in HTB's order.* Assured traffic may use all credit of a bucket. Borrowers leave a
//! part of it. This part is larger the nearer the lender is to the root and the more better
//! priorities are active, and for a borrower that is ahead of its group. So an assured packet finds
//! credit at once, and a packet that its own ceiling delayed finds it soon. Between cores, too,
//! assured traffic goes before borrowed traffic.
//!
//! *Waiting is published.* A queue that is refused writes at the lender until when it waits. Others
//! leave credit to it only while it waits. So a class that its own ceiling delays, or that wants
//! less than its share, slows no other class down; the group's virtual time advances with those
//! that buy.
//!
//! *Which class of a queue sends next* is decided in [`scheduler`].
//!
//! *A class costs nothing before a queue sends for it* ([`Classes`]). Its configuration is in the
//! plan, which the tree asks when a queue first sends for the class. Only then is the state that
//! queues share ([`node`]) made.
//!
//! Differences from the kernel's HTB: a ceiling also holds for assured traffic (there, children
//! whose rates add up to more than their parent's ceiling exceed it); a burst below [`LEAST_TIME`]
//! at the rate, or below [`LEAST_FRAMES`], counts as that; 16 levels instead of 8.
//!
//! *Non-goals.* Queues and packets: they belong to the qdisc.
//!
//! Cost: a purchase takes two atomic updates for each class on the way to the root (one where rate
//! and ceiling are the same), two for each class up to the lender, and one for the queues, if
//! several have a handle. It covers the packets that leave together, up to a quantum.
//!
//! Source: M. Devera, `sch_htb.c` and its theory; start-time fair queueing (P. Goyal, H. Vin, H.
//! Cheng, 1996) for the virtual times; FlowValve (CoNEXT'21) for the idea of a tree without a lock.
//!
//! [`LEAST_TIME`]: terms::LEAST_TIME
//! [`LEAST_FRAMES`]: terms::LEAST_FRAMES

use crate::classes::{Change, ClassList, Classes, topmost};
use crate::sync::{AtomicU32, Mutex, Ordering, lock};
use narrows_packet::Reading;
use narrows_qdisc::Census;
use narrows_qdisc::htb::{self, ClassMeter, LeafClass};
use narrows_units::Nanos;
use node::Node;
use scheduler::Scheduler;
use single::Single;
use std::collections::HashMap;
use std::sync::Arc;

mod buying;
mod claim;
mod node;
mod purchase;
mod queue_handle;
mod scheduler;
mod single;
mod terms;
pub(crate) mod virtual_time;

/// A class without its whole credit: another process continues from there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spent {
    /// Its number.
    pub class: u32,
    /// Up to when its rate is sold; zero for whole credit, or if the ceiling stands for both.
    pub rate: Nanos,
    /// Up to when its ceiling is sold, likewise.
    pub ceil: Nanos,
}

/// The state of all classes.
#[derive(Default)]
struct Members {
    list: ClassList,
    /// The shared state of classes that a queue has sent for, and of their ancestors. Of 100,000
    /// subscribers few are active at once.
    nodes: HashMap<u32, Arc<Node>>,
    /// How many nodes have been made.
    made: u64,
}

/// The classes of a tree; see the module's documentation.
#[derive(Default)]
pub struct Tree {
    /// Locked when a class comes, goes or is first used by a queue.
    members: Mutex<Members>,
    /// How many queues have a scheduler.
    queues: Arc<AtomicU32>,
}

impl Tree {
    /// One without classes.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Applies `classes`. A class keeps its credit and debt if its ancestors are the same as
    /// before. The work of the queues depends on what changes.
    pub fn replace_classes(&self, classes: Arc<dyn Classes>) {
        let mut members = lock(&self.members);
        let changed = members.changes_to(classes.as_ref());
        let change = Change::of(members.list.classes(), Arc::clone(&classes), changed);
        match change {
            Some(change) => members.apply(&change),
            None => members.replace(classes),
        }
    }

    /// Applies `change`, which was prepared of the tree's present classes. It looks at the changed
    /// classes that a queue has sent for, and at no others.
    pub fn apply(&self, change: &Change) {
        lock(&self.members).apply(change);
    }

    /// The classes that do not have their whole credit at `now`.
    pub fn spent(&self, now: Nanos) -> Vec<Spent> {
        let members = lock(&self.members);
        let nodes = members.nodes.iter();
        let spent = |(&class, node): (&u32, &Arc<Node>)| {
            node.spent(now).map(|[rate, ceil]| Spent { class, rate, ceil })
        };
        nodes.filter_map(spent).collect()
    }

    /// Continues where an equal tree of another process was, before any queue buys. Classes that
    /// do not exist are left out.
    pub fn resume(&self, spent: &[Spent]) {
        let mut members = lock(&self.members);
        for Spent { class, rate, ceil } in spent {
            if let Some(node) = members.node(*class) {
                node.resume([*rate, *ceil]);
            }
        }
    }

    /// The scheduler of one queue.
    pub fn scheduler(self: &Arc<Self>) -> Box<dyn htb::Scheduler> {
        let seen = lock(&self.members).list.end();
        // Relaxed: a queue opens a class only after it has received the newest specification.
        self.queues.fetch_add(1, Ordering::Relaxed);
        Box::new(Scheduler::new(Queue { tree: Arc::clone(self), seen }))
    }
}

impl Members {
    /// The numbers of the classes that differ in `next`, or are in only one.
    fn changes_to(&self, next: &dyn Classes) -> Vec<u32> {
        let present = self.list.classes();
        let differs = |id: &u32| {
            present.class(*id) != next.class(*id) || present.below(*id) != next.below(*id)
        };
        let gone = present.ids().filter(|id| next.class(*id).is_none());
        next.ids().filter(differs).chain(gone).collect()
    }

    fn apply(&mut self, change: &Change) {
        let (classes, ids) = (change.classes(), change.ids());
        // Of many changed classes few have sent, and of many that have sent few change.
        let known: Vec<u32> = if self.nodes.len() < ids.len() {
            self.nodes.keys().copied().filter(|id| ids.binary_search(id).is_ok()).collect()
        } else {
            ids.iter().copied().filter(|id| self.nodes.contains_key(id)).collect()
        };
        for id in known {
            match (classes.class(id), self.nodes.get(&id)) {
                (Some(class), Some(node)) => node.set(&class),
                _ => drop(self.nodes.remove(&id)),
            }
        }
        self.list.apply(change);
    }

    /// Applies `classes`.
    fn replace(&mut self, classes: Arc<dyn Classes>) {
        let mut nodes: Vec<_> = std::mem::take(&mut self.nodes).into_iter().collect();
        // Parents first: whether a class carries on depends on them.
        nodes.sort_by_key(|(_, node)| node.depth());
        for (id, node) in nodes {
            let Some(class) = classes.class(id) else { continue };
            let parent = class.parent.and_then(|parent| self.nodes.get(&parent));
            let is_in_place = match (&node.parent, parent) {
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                (one, _) => one.is_none() && class.parent.is_none(),
            };
            if is_in_place {
                node.set(&class);
                self.nodes.insert(id, node);
            }
        }
        self.list.replace(classes);
    }

    /// The shared state of the class `id`, made if it does not exist; `None` if there is no such
    /// class, or if its parent is missing.
    fn node(&mut self, id: u32) -> Option<Arc<Node>> {
        if let Some(node) = self.nodes.get(&id) {
            return Some(Arc::clone(node));
        }
        let class = self.list.classes().class(id)?;
        let parent = match class.parent {
            Some(parent) => Some(self.node(parent)?),
            None => None,
        };
        self.made += 1;
        let node = Arc::new(Node::new(id, self.made, &class, parent));
        self.nodes.insert(id, Arc::clone(&node));
        Some(node)
    }
}

/// One queue of a tree.
struct Queue {
    tree: Arc<Tree>,
    /// The position up to which it has read the log of changes.
    seen: u64,
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.tree.queues.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Queue {
    fn leaf(&self, id: u32) -> Option<LeafClass> {
        // Under the lock, so that a queue never drops the last reference to old state.
        let members = lock(&self.tree.members);
        let classes = members.list.classes();
        Some(LeafClass::of(&classes.class(id)?, classes.below(id)?.spec()))
    }

    /// The shared state of the class `id`.
    fn node(&self, id: u32) -> Option<Arc<Node>> {
        lock(&self.tree.members).node(id)
    }

    /// The shared state of the topmost class that answers for the class `id`.
    fn topmost(&self, id: u32) -> Option<Arc<Node>> {
        let mut members = lock(&self.tree.members);
        let classes = members.list.classes();
        let top = topmost(id, classes.ids(), |id| classes.parent(id))?;
        members.node(top)
    }

    fn meter(&self, id: u32) -> Option<Box<dyn ClassMeter>> {
        Some(Box::new(Single::new(self.node(id)?)))
    }

    fn census(&self, id: u32) -> Option<Box<dyn Census>> {
        if !self.has_others() {
            return None;
        }
        Some(self.node(id)?.census())
    }

    fn has_others(&self) -> bool {
        self.tree.queues.load(Ordering::Relaxed) > 1
    }

    /// Whether `node` is the state of the class that has its number now.
    fn is_current(&self, node: &Node) -> bool {
        let members = lock(&self.tree.members);
        members.nodes.get(&node.id).is_some_and(|present| present.serial == node.serial)
    }

    fn changes(&mut self) -> Option<Vec<u32>> {
        lock(&self.tree.members).list.changes_since(&mut self.seen)
    }

    fn reading(&self) -> Reading {
        lock(&self.tree.members).list.reading()
    }
}
