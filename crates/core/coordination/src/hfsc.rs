//! A tree of classes with service curves, which all queues keep together.
//!
//! A class has up to three curves. By its *real-time* curve a leaf is served before a deadline,
//! whatever the classes above it are due. By *link sharing* the children of a class divide among
//! themselves what it gets, in proportion to their curves: by virtual time. What link sharing
//! serves never exceeds the *upper limit* of a class. Service by the real-time curve counts for
//! link sharing, too, and not the other way round: so a class that has had its share keeps its
//! deadlines, and one that is served by its deadlines gets no more than its share besides.
//!
//! *What queues share* is in [`class`]: how much a class has had, and how far it has come on its
//! [curves](curve), in words that each change by one atomic update. So a class has one service
//! curve on any number of queues, and no queue waits for another. On one queue everything is as in
//! the kernel.
//!
//! *What a queue has for itself* is in [`scheduler`]: its leaves by deadline, and the children of
//! each class by virtual time.
//!
//! *Differences from the kernel.* Times are in nanoseconds instead of 64 of them, and slopes are
//! exact from 2 bit/s to 400 Gbit/s. A slope of 0 counts as 2 bit/s.
//!
//! *Non-goals.* Queues and packets: they belong to the qdisc.
//!
//! Source: I. Stoica, H. Zhang, T. S. E. Ng, "A hierarchical fair service curve algorithm for
//! link-sharing, real-time and priority services" (1997); `sch_hfsc.c`; `tc-hfsc(7)`.

use crate::sync::{AtomicU32, Mutex, Ordering, lock};
use crate::{Below, Classes};
use class::{Class, Curves};
use narrows_packet::Reading;
use narrows_qdisc::htb::{self, LeafClass};
use narrows_qdisc::{Census, hfsc};
use narrows_units::wire::Overhead;
use scheduler::Scheduler;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

mod children;
mod class;
mod curve;
mod scheduler;
mod winners;

/// The classes of a tree.
#[derive(Default)]
pub struct Tree {
    members: Mutex<Members>,
    root: Arc<Class>,
    /// How many queues there are.
    queues: AtomicU32,
}

#[derive(Default)]
struct Members {
    classes: BTreeMap<u32, (hfsc::Class, Option<Below>)>,
    /// What queues share of the classes that they have opened, with the parent of each.
    shared: HashMap<u32, (Option<u32>, Arc<Class>)>,
}

impl Tree {
    /// Applies `classes`. A class keeps what it has had if its ancestors are the same as before.
    pub(crate) fn replace(&self, classes: &dyn Classes) {
        let mut members = lock(&self.members);
        let of = |id| Some((id, (classes.curves(id)?, classes.below(id))));
        members.classes = classes.ids().filter_map(of).collect();
        let Members { classes, shared } = &mut *members;
        let is_same = |id: &u32| {
            let parent = classes.get(id).map(|(class, _)| class.parent);
            parent.is_some() && parent == shared.get(id).map(|(parent, _)| *parent)
        };
        let above = |id: &u32| classes.get(id)?.0.parent;
        let keeps = |id: u32| std::iter::successors(Some(id), above).all(|id| is_same(&id));
        let gone: Vec<u32> = shared.keys().copied().filter(|id| !keeps(*id)).collect();
        for id in gone {
            shared.remove(&id);
        }
    }

    /// The scheduler of one queue.
    pub(crate) fn scheduler(self: &Arc<Self>) -> Box<dyn htb::Scheduler> {
        // Relaxed: only the census is made for several queues, and it may be made later.
        self.queues.fetch_add(1, Ordering::Relaxed);
        Box::new(Scheduler::new(Queue(Arc::clone(self))))
    }
}

impl Members {
    /// What queues share of the class `id`, made if it does not exist; `None` if there is no such
    /// class, or if its parent is missing.
    fn shared(&mut self, id: u32, root: &Arc<Class>) -> Option<Arc<Class>> {
        if let Some((_, shared)) = self.shared.get(&id) {
            return Some(Arc::clone(shared));
        }
        let parameters = self.classes.get(&id)?.0;
        let parent = parameters.parent;
        let above = match parent {
            Some(parent) => self.shared(parent, root)?,
            None => Arc::clone(root),
        };
        let class = Arc::new(Class::new(Some(above), &Curves::of(&parameters)));
        self.shared.insert(id, (parent, Arc::clone(&class)));
        Some(class)
    }
}

/// One queue of a tree.
struct Queue(Arc<Tree>);

impl Drop for Queue {
    fn drop(&mut self) {
        self.0.queues.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Queue {
    fn leaf(&self, id: u32) -> Option<LeafClass> {
        let members = lock(&self.0.members);
        let qdisc = members.classes.get(&id)?.1.as_ref()?.spec();
        Some(LeafClass { overhead: Overhead::NONE, quantum: 0, qdisc })
    }

    /// What queues share of the class `id`, its parameters, and its parent.
    fn open(&self, id: u32) -> Option<(Arc<Class>, Curves, Option<u32>)> {
        let mut members = lock(&self.0.members);
        let class = members.shared(id, &self.0.root)?;
        let (parameters, _) = members.classes.get(&id)?;
        Some((class, Curves::of(parameters), parameters.parent))
    }

    fn root(&self) -> Arc<Class> {
        Arc::clone(&self.0.root)
    }

    fn census(&self, id: u32) -> Option<Box<dyn Census>> {
        let has_others = self.0.queues.load(Ordering::Relaxed) > 1;
        has_others.then(|| self.open(id)).flatten().map(|(class, ..)| class.census())
    }

    fn reading(&self) -> Reading {
        let members = lock(&self.0.members);
        let below = members.classes.values().filter_map(|(_, below)| below.as_ref());
        below.fold(Reading::NOTHING, |reading, below| reading.and(below.reading()))
    }
}
