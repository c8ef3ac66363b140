//! `flowvalve`: a tree as FlowValve keeps it on a network processor.
//!
//! *Idea.* A class has no queue and asks no other class: it gets a rate each epoch, and a token
//! bucket filled at that rate decides about its packets. The rate follows from that of the class
//! above it: a part by weight, of what classes of better priority, as *measured* in the last epoch,
//! leave. What a class does not consume of its rate fills a second bucket, its *shadow*, from which
//! others borrow, in the order of their *labels*.
//!
//! *In parallel.* Packets meter and count with atomic updates, on as many cores as there are. When
//! a bucket's epoch is over, the first core to get its lock fills it; the others do not wait
//! ([`epoch`]). Each refill reads only the class above. So a change of rate moves down one level
//! per epoch.
//!
//! *Not exact.* Rates are averages, and an epoch old or several. A class that wakes up and one that
//! does not know it yet both send, and a lender's rate and its measured rest come from different
//! epochs. So the sum may exceed the topmost class's rate while classes come and go, and a class
//! between leaf and root only measures and does not meter. `fair` avoids this; here the algorithm
//! is as published.
//!
//! *Differences from the paper.* Packets are metered on departure, not on arrival: below an `htb` a
//! packet that gets no token waits in its class's queue for the next epoch, and is not dropped.
//! (The simulator drops at once, too, as the network processor does, `narrows sim flowvalve-11a`.)
//! Bytes are counted when they are forwarded; Algorithm 1 counts in line 5 packets that it may drop
//! in line 16, which contradicts Eq. 3. HTB's words say more than a weight: `rate` is assured to
//! classes of any priority, which gives the paper's conditions ("at least 2 Gbit/s, if there are
//! 4") without templates of their own, and `ceil` is a third bucket, because nothing else limits
//! what a class borrows. A class whose label names no lenders borrows from its siblings and from
//! those above.
//!
//! *Differences from the code* (github.com/Haers/FlowValve, P4 and Micro-C): a lender's measured
//! rest is forgotten after 56 ms, not 0.9 s ([`EXPIRY`](epoch::EXPIRY)).
//!
//! *Cost.* For a purchase: an atomic update of the bucket, one of a counter for each class up to
//! the root, and where the class has too little one for each lender. For an epoch: a look at every
//! class beside it, at each class on the way.
//!
//! *Non-goals.* More classes than a network processor has (32): an epoch and a refusal cost time
//! for each class beside.
//!
//! Source: S. Xi, F. Li, X. Wang, "FlowValve: Packet Scheduling Offloaded on NP-based SmartNICs",
//! section IV and Algorithm 1.

use crate::Below;
use crate::label::Label;
use crate::line::Line;
use crate::roster::Roster;
use crate::sync::{Mutex, lock};
use crate::trees::from_above;
use graph::{Graph, State};
use narrows_packet::Reading;
use narrows_qdisc::htb::{Alone, Class, ClassMeter, LeafClass, Meters, Scheduler};
use queue_meter::QueueMeter;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

mod epoch;
mod graph;
mod queue_meter;

/// The classes of a tree; see the module's documentation.
#[derive(Default)]
pub struct Tree {
    /// Locked when a class comes, goes or is first used by a queue.
    members: Mutex<Members>,
}

#[derive(Default)]
struct Members {
    graph: Arc<Graph>,
    /// By number, the place of a class in the graph.
    places: HashMap<u32, usize>,
    roster: Roster,
}

impl Tree {
    /// See [`SharedTree::replace_classes`](crate::SharedTree::replace_classes). A meter follows
    /// when it is taken again.
    pub(crate) fn replace_classes(
        &self,
        classes: &BTreeMap<u32, (Class, Option<Below>)>,
        labels: &BTreeMap<u32, Label>,
    ) {
        let mut members = lock(&self.members);
        let (mut graph, mut places) = (Graph::default(), HashMap::new());
        let label = |id: &u32| labels.get(id).copied().unwrap_or_default();
        for id in from_above(classes, classes.keys().copied()) {
            let (class, _) = &classes[&id];
            let parent = class.parent.map(|id| places[&id]);
            let state = members.state(id, parent.map(|at| &graph.node(at).state));
            places.insert(id, graph.add(class, &label(&id), parent, state));
        }
        for (id, place) in &places {
            graph.set_lenders(*place, label(id).lenders, &places);
        }
        *members = Members { graph: Arc::new(graph), places, roster: Roster::new(classes.clone()) };
    }

    /// The scheduler of one queue.
    pub(crate) fn scheduler(self: &Arc<Self>) -> Box<dyn Scheduler> {
        Box::new(Alone::new(Queue { tree: Arc::clone(self) }))
    }
}

impl Members {
    /// The state of the class `id`, if its parent is still the one with the state `above`.
    fn state(&self, id: u32, above: Option<&Arc<Line<State>>>) -> Arc<Line<State>> {
        let present = self.places.get(&id).map(|place| self.graph.node(*place));
        let is_same = |parent: Option<usize>| match (parent, above) {
            (Some(parent), Some(above)) => Arc::ptr_eq(&self.graph.node(parent).state, above),
            (parent, above) => parent.is_none() && above.is_none(),
        };
        match present {
            Some(node) if is_same(node.parent) => Arc::clone(&node.state),
            _ => Arc::new(Line(State::default())),
        }
    }
}

struct Queue {
    tree: Arc<Tree>,
}

impl Meters for Queue {
    fn leaf(&self, id: u32) -> Option<LeafClass> {
        lock(&self.tree.members).roster.leaf(id)
    }

    fn class(&self, id: u32) -> Option<Class> {
        lock(&self.tree.members).roster.class(id)
    }

    fn meter(&self, id: u32) -> Option<Box<dyn ClassMeter>> {
        let members = lock(&self.tree.members);
        let place = *members.places.get(&id)?;
        Some(Box::new(QueueMeter::new(Arc::clone(&members.graph), place)))
    }

    fn reading(&self) -> Reading {
        lock(&self.tree.members).roster.reading()
    }
}
