//! A plan: what the queues of one port run, as plain data.
//!
//! [`Plan::of`] lays out the tree of a port over a number of queues. Every qdisc has a [`Key`] that
//! identifies it in other plans, whatever is above, below or beside it. Every limit that queues
//! share has one, too. A plan has no running parts: it can be compared and printed. The data plane
//! (workers over AF_XDP, or the simulator) installs it, and compares keys to see which qdiscs
//! continue.
//!
//! *A change* ([`Plan::next`]) lays out again what a command touches, if it touches only classes of
//! a tree and the rates above it; the two plans share the rest. After any other change everything
//! is laid out anew.
//!
//! *Non-goals.* Deciding what continues, and building it: the installation does that.

use crate::{
    BoundAction, ClassId, Classes, FrontTerm, Handle, Kind, Node, Parent, PolicyError, PortPolicy,
};
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use layout::{Layout, changed};
use narrows_classify::{Filters, PersistentMap, Rules};
use narrows_coordination::{Label, Limit, Strategy, TreeKind};
use narrows_qdisc::{Class, Config, Stats};
use narrows_units::counted;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

mod layout;
mod port_limit;

pub use port_limit::PortLimit;

/// Identifies a qdisc across the plans of a port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// Its place.
    pub parent: Parent,
    /// `None` for a default qdisc: the `bfifo` in a `tbf`, `noqueue` on an unconfigured port.
    pub handle: Option<Handle>,
}

/// One qdisc, on every queue that runs it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanNode {
    /// Its kind and parameters, shared between equal qdiscs.
    pub config: Arc<Config>,
    /// The limit that it shares with other queues; see [`Plan::limits`].
    pub limit: Option<Handle>,
    /// The number of classful qdiscs above it.
    pub level: u8,
    /// Its children, in order, except those in the classes of a tree; see [`Plan::classes`].
    pub children: Vec<Key>,
    /// The class of a tree that contains it.
    pub within: Within,
}

/// The class of a tree that contains a qdisc. A direct child of the class does not store the
/// number, so that equal children of many classes can share one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Within {
    /// None.
    None,
    /// The class that is its parent.
    Parent,
    /// This class, as an indirect ancestor.
    Class(ClassId),
}

impl Within {
    /// The value for a qdisc at `parent` inside `class`.
    pub(crate) fn of(class: Option<ClassId>, parent: Parent) -> Self {
        match class {
            None => Self::None,
            Some(class) if parent == Parent::Class(class) => Self::Parent,
            Some(class) => Self::Class(class),
        }
    }

    /// The class that contains the qdisc `key`.
    pub fn class(self, key: &Key) -> Option<ClassId> {
        match (self, key.parent) {
            (Self::Class(class), _) | (Self::Parent, Parent::Class(class)) => Some(class),
            _ => None,
        }
    }
}

/// A class of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanClass {
    /// Its parameters.
    pub class: Class,
    /// Its leaf qdisc, if it has no child classes.
    pub leaf: Option<Key>,
    /// FlowValve's parameters, if set.
    pub label: Option<Box<Label>>,
}

/// A limit that queues share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedLimit {
    /// How they divide it.
    pub strategy: Strategy,
    /// The limit.
    pub limit: Limit,
    /// Whether they divide it by host and tin, and so count hosts together.
    pub counts_hosts: bool,
}

/// The statistics of one qdisc of a port, over all queues.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeStats {
    /// Its place.
    pub parent: Parent,
    /// Its handle; `None` for a default qdisc such as the `bfifo` in a `tbf`.
    pub handle: Option<Handle>,
    /// The statistics.
    pub stats: Stats,
}

/// What the queues of a port run; see the module's documentation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// The handle of the root if it is an `mq` or a `cake_mq`, which runs on no queue.
    pub above: Option<Handle>,
    /// All qdiscs.
    pub nodes: OrdMap<Key, Arc<PlanNode>>,
    /// The root of each queue.
    pub roots: Vec<Key>,
    /// The classes of each tree, by handle and class number.
    pub classes: BTreeMap<Handle, OrdMap<u32, Arc<PlanClass>>>,
    /// What schedules the classes of each tree, by handle.
    pub trees: BTreeMap<Handle, TreeKind>,
    /// The classification rules, by root, if there are any.
    pub rules: BTreeMap<Key, Rules>,
    /// The filters that run in the driver, before everything else.
    pub front: Vec<FrontTerm>,
    /// The remaining filters at ingress, and the filters at egress, which run before the qdiscs.
    pub ends: [Filters; 2],
    /// The actions of these filters.
    pub actions: PersistentMap<BoundAction>,
    /// The limits, by the handle of the qdisc that has them, with the number of queues that share
    /// each.
    pub limits: BTreeMap<Handle, (SharedLimit, usize)>,
}

impl Plan {
    /// The qdiscs that `before` does not have, or not so. It costs what has changed, if one plan
    /// was made of the other.
    pub fn changed_qdiscs<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a Config> {
        before.nodes.diff(&self.nodes).filter_map(|change| match change {
            DiffItem::Add(_, node) | DiffItem::Update { new: (_, node), .. } => Some(&*node.config),
            DiffItem::Remove(..) => None,
        })
    }

    /// Lays out the tree of `port` over `queues` queues. A port without a policy runs `noqueue`. A
    /// limit at the root is the port's: all queues share it. Below `mq`, each queue has a limit of
    /// its own.
    ///
    /// # Errors
    /// No queues; an `mq` or a `cake_mq` with one queue; an `mq` with a child for a queue that the
    /// port does not have; a `cake` on several queues whose rate follows the arrivals.
    pub fn of(port: &PortPolicy, queues: usize) -> Result<Self, PolicyError> {
        check(port, queues)?;
        Ok(Layout::new(port, queues, Self::default()).anew())
    }

    /// Lays out `port`, given that this plan lays out `before`. If they differ only in classes of
    /// trees and their qdiscs, and in `tbf`s above them, the cost depends on the size of the
    /// difference.
    ///
    /// # Errors
    /// As [`Plan::of`].
    pub fn next(&self, before: &PortPolicy, port: &PortPolicy) -> Result<Self, PolicyError> {
        let queues = self.queues();
        match changed(before, port, queues) {
            Some(changed) => Layout::new(port, queues, self.clone()).change(&changed),
            None => Self::of(port, queues),
        }
    }

    /// This plan of `port`, with filters in the driver wherever that saves work.
    #[must_use]
    pub fn with_driver(mut self, port: &PortPolicy) -> Self {
        if port.ends.is_some() {
            (self.front, self.ends[0]) = port.split(crate::Reach::Possible);
        }
        self
    }

    /// This plan of `port`, with all filters at ingress in the driver, where there are no workers.
    ///
    /// # Errors
    /// One of them cannot run there.
    pub fn without_workers(mut self, port: &PortPolicy) -> Result<Self, PolicyError> {
        if port.ends.is_some() {
            self.front = port.all_in_front()?;
            self.ends[0] = Filters::default();
        }
        Ok(self)
    }

    /// The number of queues.
    pub fn queues(&self) -> usize {
        self.roots.len()
    }

    /// The keys of all qdiscs, each before its children, in the order of the queues.
    pub fn keys(&self) -> Vec<Key> {
        self.runs().flat_map(|(root, _)| self.below(root)).collect()
    }

    /// The keys of the qdisc `root` and its descendants, depth first.
    pub fn below(&self, root: Key) -> Vec<Key> {
        let mut keys = Vec::new();
        self.collect(root, &mut keys);
        keys
    }

    /// Each distinct root, with how many consecutive queues run it.
    fn runs(&self) -> impl Iterator<Item = (Key, usize)> {
        self.roots.chunk_by(|one, next| one == next).map(|run| (run[0], run.len()))
    }

    fn collect(&self, key: Key, into: &mut Vec<Key>) {
        into.push(key);
        if let Some(node) = self.nodes.get(&key) {
            node.children.iter().for_each(|child| self.collect(*child, into));
            self.leaves(key).into_iter().for_each(|leaf| self.collect(leaf, into));
        }
    }

    /// The qdiscs in the classes of `key`, if it is a tree.
    pub fn leaves(&self, key: Key) -> Vec<Key> {
        let classes = key.handle.and_then(|handle| self.classes.get(&handle));
        classes.into_iter().flatten().filter_map(|(_, class)| class.leaf).collect()
    }
}

/// Orders `sorted` so that a persistent map built from it takes the least memory. A full node
/// splits in the middle, so keys inserted in ascending order leave every node half full. This order
/// inserts every second key first; the others then fill the nodes up.
pub fn filling<T>(sorted: &[T]) -> impl Iterator<Item = &T> {
    sorted.iter().step_by(2).chain(sorted.iter().skip(1).step_by(2))
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.handle {
            Some(handle) => write!(f, "{handle} {}", self.parent),
            None => write!(f, "0: {}", self.parent),
        }
    }
}

/// One line for each limit and each qdisc, as `tc` names them.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (handle, (shared, queues)) in &self.limits {
            let (strategy, rate) = (shared.strategy.name(), shared.limit.rate);
            writeln!(f, "limit {handle} {rate} over {} by {strategy}", counted(*queues, "queue"))?;
        }
        for (handle, classes) in &self.classes {
            for (id, class) in classes {
                writeln!(f, "class {handle}{id:x} {:?}", class.class)?;
            }
        }
        for (root, queues) in self.runs() {
            let nodes = self.below(root).into_iter();
            for (key, node) in nodes.filter_map(|key| Some((key, self.nodes.get(&key)?))) {
                writeln!(f, "qdisc {key} on {}: {:?}", counted(queues, "queue"), node.config)?;
            }
        }
        Ok(())
    }
}

/// Refuses a tree that this number of queues cannot run.
fn check(port: &PortPolicy, queues: usize) -> Result<(), PolicyError> {
    let root = port.root();
    match (queues, root.map(|root| &root.kind)) {
        (0, _) => return Err(PolicyError::NoQueues),
        (1, Some(Kind::Mq)) => return Err(PolicyError::MqNeedsQueues),
        (1, Some(kind)) if kind.classes() == Classes::Alike => {
            return Err(PolicyError::CakeMqNeedsQueues);
        }
        _ => {}
    }
    if let Some(root) = root.filter(|root| root.kind.classes() == Classes::Queues) {
        return match port.children(root).last() {
            Some((last, _)) if last as usize > queues => Err(PolicyError::NoClass(format!(
                "The port has {}, so there is no {}.",
                counted(queues, "queue"),
                root.handle.class(last)
            ))),
            _ => Ok(()),
        };
    }
    port.nodes().into_iter().try_for_each(|node| check_node(node, queues))
}

/// Refuses a qdisc that this number of queues cannot run together.
fn check_node(node: &Node, queues: usize) -> Result<(), PolicyError> {
    match queues > 1 && node.kind.rules().follows_arrivals() {
        true => Err(PolicyError::AutorateShared(node.kind.name())),
        false => Ok(()),
    }
}
