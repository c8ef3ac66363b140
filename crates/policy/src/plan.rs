//! A plan: what the queues of one port run, as plain data.
//!
//! [`Plan::of`] lays the tree of a port out over a number of queues. Every qdisc has a [`Key`] by
//! which it is found again in another plan, whatever stands above it, below it or beside it; every
//! limit that queues share has one, too. Nothing in a plan is alive: it can be compared, printed, and
//! held against another. Whoever runs it (workers over AF_XDP, the simulator) installs it, and tells
//! from the keys what carries on.
//!
//! *A change* ([`Plan::next`]) lays out again what a command touches, where that is in the classes of
//! an `htb`; what is the same in two plans is shared between them. Anything else is laid out anew.
//!
//! *Non-goals.* What carries on, and what is built: that is the installation's.

use crate::{
    BoundAction, ClassId, Classes, FrontTerm, Handle, Kind, Node, Parent, PolicyError, PortPolicy,
};
use imbl::OrdMap;
use layout::{Layout, changed_classes};
use narrows_classify::{Filters, Rules, Sheaf};
use narrows_coordination::{Label, Limit, Strategy, TreeStrategy};
use narrows_qdisc::htb::Class;
use narrows_qdisc::{Config, Stats};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

mod layout;

/// By what a qdisc is the same in two plans of a port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// Where it hangs.
    pub parent: Parent,
    /// `None` for what nobody put there: the `bfifo` in a `tbf`, `noqueue` on an idle port.
    pub handle: Option<Handle>,
}

/// One qdisc, on every queue that runs it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanNode {
    /// Its kind and parameters, shared with others that are alike.
    pub config: Arc<Config>,
    /// The limit that it shares with other queues, as [`Plan::limits`] has it.
    pub limit: Option<Handle>,
    /// How many qdiscs with classes are above it.
    pub level: u8,
    /// What is below it, in order; not that which is in the classes of a tree, as
    /// [`Plan::classes`] has it.
    pub children: Vec<Key>,
    /// The class of a tree that it is in, or below.
    pub within: Within,
}

/// In which class of a tree a qdisc is. What is just in it does not say which: so those of many
/// classes that are alike are one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Within {
    /// In none.
    None,
    /// In the one at which it hangs.
    Parent,
    /// In this one, with others between.
    Class(ClassId),
}

impl Within {
    /// That of what hangs at `parent`, in `class` or below it.
    pub(crate) fn of(class: Option<ClassId>, parent: Parent) -> Self {
        match class {
            None => Self::None,
            Some(class) if parent == Parent::Class(class) => Self::Parent,
            Some(class) => Self::Class(class),
        }
    }

    /// The class, of what is called `key`.
    pub fn class(self, key: &Key) -> Option<ClassId> {
        match (self, key.parent) {
            (Self::Class(class), _) | (Self::Parent, Parent::Class(class)) => Some(class),
            _ => None,
        }
    }
}

/// A class of an `htb`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanClass {
    /// Its parameters.
    pub class: Class,
    /// What its packets wait in, where no class is below it.
    pub leaf: Option<Key>,
    /// What FlowValve's rules want to know of it beyond its parameters.
    pub label: Option<Box<Label>>,
}

/// A limit that queues keep together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedLimit {
    /// How they divide it.
    pub strategy: Strategy,
    /// What they keep.
    pub limit: Limit,
    /// Whether they share it out by host and tin, and so count them together.
    pub counts_hosts: bool,
}

/// The figures of one qdisc of a port, all queues together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeStats {
    /// Where it hangs.
    pub parent: Parent,
    /// Its handle; `None` for what nobody put there, such as the `bfifo` in a `tbf`.
    pub handle: Option<Handle>,
    /// What it has done.
    pub stats: Stats,
}

/// What the queues of a port run; see the module's documentation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// The handle of the root where that is an `mq` or a `cake_mq`, which is on no queue.
    pub above: Option<Handle>,
    /// All qdiscs.
    pub nodes: OrdMap<Key, Arc<PlanNode>>,
    /// What each queue runs.
    pub roots: Vec<Key>,
    /// By the handle of an `htb`, its classes, by their numbers.
    pub classes: BTreeMap<Handle, OrdMap<u32, Arc<PlanClass>>>,
    /// By the same, how the queues keep them together.
    pub trees: BTreeMap<Handle, TreeStrategy>,
    /// By what queues run, what assigns packets to classes there, if anything has some.
    pub rules: BTreeMap<Key, Rules>,
    /// What is asked of packets that come in before anything else, in the driver.
    pub front: Vec<FrontTerm>,
    /// What filters packets where they come in, behind that, and where they go out, before
    /// qdiscs do.
    pub ends: [Filters; 2],
    /// What these filters do.
    pub actions: Sheaf<BoundAction>,
    /// The limits, by the handle of the qdisc that has them, with how many queues share each.
    pub limits: BTreeMap<Handle, (SharedLimit, usize)>,
}

impl Plan {
    /// The tree of `port` laid out over `queues` queues. A port without a policy runs `noqueue`. A
    /// limit at the root is the port's: all queues share it. Below `mq` each queue has its own.
    ///
    /// # Errors
    /// A port without queues, an `mq` or a `cake_mq` on a port with one, an `mq` with a child for a
    /// queue that the port does not have, a `cake` whose rate follows what comes in on several
    /// queues.
    pub fn of(port: &PortPolicy, queues: usize) -> Result<Self, PolicyError> {
        check(port, queues)?;
        Ok(Layout::new(port, queues, Self::default()).anew())
    }

    /// The tree of `port`, laid out as this plan lays out `before`. It takes time by what differs
    /// between both, where that is classes of an `htb` and what is in them.
    ///
    /// # Errors
    /// As [`Plan::of`].
    pub fn next(&self, before: &PortPolicy, port: &PortPolicy) -> Result<Self, PolicyError> {
        let queues = self.queues();
        match changed_classes(before, port) {
            Some(changes) => Layout::new(port, queues, self.clone()).change(&changes),
            None => Self::of(port, queues),
        }
    }

    /// The same, of `port`, with as many filters in the driver as it saves anything.
    #[must_use]
    pub fn with_driver(mut self, port: &PortPolicy) -> Self {
        if port.ends.is_some() {
            (self.front, self.ends[0]) = port.split(crate::Reach::Possible);
        }
        self
    }

    /// How many queues it is for.
    pub fn queues(&self) -> usize {
        self.roots.len()
    }

    /// The keys of all qdiscs, each before those below it, in the order of the queues.
    pub fn keys(&self) -> Vec<Key> {
        self.runs().flat_map(|(root, _)| self.below(root)).collect()
    }

    /// The keys of the qdisc `root` and of all below it, depth first.
    pub fn below(&self, root: Key) -> Vec<Key> {
        let mut keys = Vec::new();
        self.collect(root, &mut keys);
        keys
    }

    /// What queues run, each tree once, with how many queues in a row run it.
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

    /// What is in the classes of `key`, where that is a tree.
    pub fn leaves(&self, key: Key) -> Vec<Key> {
        let classes = key.handle.and_then(|handle| self.classes.get(&handle));
        classes.into_iter().flatten().filter_map(|(_, class)| class.leaf).collect()
    }
}

/// All of `sorted` in the order in which a persistent map takes the least memory. Where its nodes are
/// full they split in the middle, so keys that come one after the other leave each of them half full:
/// every second one comes first, and the others fill up what these leave.
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

/// A line for each limit and each qdisc, as `tc` names them.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (handle, (shared, queues)) in &self.limits {
            let (strategy, rate) = (shared.strategy.name(), shared.limit.rate);
            writeln!(f, "limit {handle} {rate} over {queues} queues by {strategy}")?;
        }
        for (handle, classes) in &self.classes {
            for (id, class) in classes {
                writeln!(f, "class {handle}{id:x} {:?}", class.class)?;
            }
        }
        for (root, queues) in self.runs() {
            let nodes = self.below(root).into_iter();
            for (key, node) in nodes.filter_map(|key| Some((key, self.nodes.get(&key)?))) {
                writeln!(f, "qdisc {key} on {queues} queues: {:?}", node.config)?;
            }
        }
        Ok(())
    }
}

/// Refuses what this number of queues cannot run.
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
                "The port has {queues} queues, so there is no {}.",
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
