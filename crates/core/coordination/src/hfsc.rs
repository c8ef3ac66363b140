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

use crate::classes::{Change, ClassList, Classes};
use crate::sync::{AtomicU32, Mutex, Ordering, lock};
use class::{Class, Curves};
use narrows_packet::Reading;
use narrows_qdisc::Census;
use narrows_qdisc::htb::{self, LeafClass};
use narrows_units::wire::Overhead;
use scheduler::Scheduler;
use std::collections::HashMap;
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
    list: ClassList,
    /// What queues share of the classes that they have opened, with the parent of each.
    shared: HashMap<u32, (Option<u32>, Arc<Class>)>,
}

impl Tree {
    /// Applies `classes`. A class keeps what it has had if its ancestors are the same as before.
    pub(crate) fn replace(&self, classes: Arc<dyn Classes>) {
        let mut members = lock(&self.members);
        members.list.replace(classes);
        members.forget_moved();
    }

    /// Applies `change`, which was prepared of the tree's present classes.
    pub(crate) fn apply(&self, change: &Change) {
        let mut members = lock(&self.members);
        members.list.apply(change);
        for id in change.ids().iter().filter(|id| change.classes().curves(**id).is_none()) {
            members.shared.remove(id);
        }
    }

    /// The scheduler of one queue.
    pub(crate) fn scheduler(self: &Arc<Self>) -> Box<dyn htb::Scheduler> {
        // Relaxed: only the census is made for several queues, and it may be made later.
        self.queues.fetch_add(1, Ordering::Relaxed);
        let seen = lock(&self.members).list.end();
        Box::new(Scheduler::new(Queue { tree: Arc::clone(self), seen }))
    }
}

impl Members {
    /// Forgets what queues share of classes that are gone, or below others than before.
    fn forget_moved(&mut self) {
        let Self { list, shared } = self;
        let classes = list.classes();
        let is_same = |id: &u32| {
            let parent = classes.parent(*id);
            parent.is_some() && parent == shared.get(id).map(|(parent, _)| *parent)
        };
        let above = |id: &u32| classes.parent(*id).flatten();
        let keeps = |id: u32| std::iter::successors(Some(id), above).all(|id| is_same(&id));
        let gone: Vec<u32> = shared.keys().copied().filter(|id| !keeps(*id)).collect();
        for id in gone {
            shared.remove(&id);
        }
    }

    /// What queues share of the class `id`, made if it does not exist; `None` if there is no such
    /// class, or if its parent is missing.
    fn shared(&mut self, id: u32, root: &Arc<Class>) -> Option<Arc<Class>> {
        if let Some((_, shared)) = self.shared.get(&id) {
            return Some(Arc::clone(shared));
        }
        let parameters = self.list.classes().curves(id)?;
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
        let members = lock(&self.tree.members);
        let classes = members.list.classes();
        classes.curves(id)?;
        let qdisc = classes.below(id)?.spec();
        Some(LeafClass { overhead: Overhead::NONE, quantum: 0, qdisc })
    }

    /// What queues share of the class `id`, its parameters, and its parent.
    fn open(&self, id: u32) -> Option<(Arc<Class>, Curves, Option<u32>)> {
        let mut members = lock(&self.tree.members);
        let class = members.shared(id, &self.tree.root)?;
        let parameters = members.list.classes().curves(id)?;
        Some((class, Curves::of(&parameters), parameters.parent))
    }

    /// The parameters of the class `id`, if there is one.
    fn curves(&self, id: u32) -> Option<Curves> {
        lock(&self.tree.members).list.classes().curves(id).map(|class| Curves::of(&class))
    }

    /// Whether `class` is what queues share of the class that has the number `id` now.
    fn is_current(&self, id: u32, class: &Arc<Class>) -> bool {
        let members = lock(&self.tree.members);
        members.shared.get(&id).is_some_and(|(_, present)| Arc::ptr_eq(present, class))
    }

    fn changes(&mut self) -> Option<Vec<u32>> {
        lock(&self.tree.members).list.changes_since(&mut self.seen)
    }

    fn root(&self) -> Arc<Class> {
        Arc::clone(&self.tree.root)
    }

    fn census(&self, id: u32) -> Option<Box<dyn Census>> {
        let has_others = self.tree.queues.load(Ordering::Relaxed) > 1;
        has_others.then(|| self.open(id)).flatten().map(|(class, ..)| class.census())
    }

    fn reading(&self) -> Reading {
        lock(&self.tree.members).list.reading()
    }
}
