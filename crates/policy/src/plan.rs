//! A plan: what the queues of one port run, as plain data.
//!
//! [`Plan::of`] lays the tree of a port out over a number of queues. Every qdisc has a [`Key`] by
//! which it is found again in another plan, whatever stands above it, below it or beside it; every
//! limit that queues share has one, too. Nothing in a plan is alive: it can be compared, printed, and
//! held against another. Whoever runs it (workers over AF_XDP, the simulator) installs it, and tells
//! from the keys what carries on.
//!
//! *Non-goals.* What carries on, and what is built: that is the installation's.

use crate::kind::fifo_config;
use crate::{Classes, Fifo, FifoUnit, Handle, Htb, Kind, Node, Parent, PolicyError, PortPolicy};
use narrows_classify::Filter;
use narrows_coordination::{Limit, Strategy};
use narrows_qdisc::htb::Class;
use narrows_qdisc::{Config, Stats};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

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
    /// Its kind and parameters.
    pub config: Config,
    /// The limit that it shares with other queues, as [`Plan::limits`] has it.
    pub limit: Option<Handle>,
    /// What is below it, in order.
    pub children: Vec<Key>,
}

/// A class of an `htb`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlanClass {
    /// Its parameters.
    pub class: Class,
    /// What its packets wait in, where no class is below it.
    pub leaf: Option<Key>,
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
    pub nodes: BTreeMap<Key, PlanNode>,
    /// What each queue runs.
    pub roots: Vec<Key>,
    /// The classes of the `htb` at the root, by their numbers.
    pub classes: BTreeMap<u32, PlanClass>,
    /// What assigns packets to classes.
    pub filters: Vec<Filter>,
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
        let mut plan = Self::default();
        let classes = port.root.as_ref().map_or(Classes::None, |root| root.kind.classes());
        for queue in 0..queues {
            // Queues beyond the numbers that a class can have run the default.
            let minor = u16::try_from(queue + 1).unwrap_or(0);
            let root = match (&port.root, classes) {
                (Some(root), Classes::Queues | Classes::Alike) => {
                    plan.above = Some(root.handle);
                    let at = Parent::Class(root.handle.class(minor));
                    match classes {
                        Classes::Alike => plan.add_alike(root, at, queues),
                        _ => plan.add(root.children.get(&minor), at, 1),
                    }
                }
                (root, _) => match plan.roots.first() {
                    // Every queue runs the same.
                    Some(&first) => first,
                    None => plan.add(root.as_ref(), Parent::Root, queues),
                },
            };
            plan.roots.push(root);
        }
        Ok(plan)
    }

    /// Adds `node` with all below it, or what is at `parent` where nobody put anything. `queues`
    /// run it.
    fn add(&mut self, node: Option<&Node>, parent: Parent, queues: usize) -> Key {
        let Some(node) = node else {
            return self.insert(Key { parent, handle: None }, Config::Noqueue);
        };
        let key = Key { parent: node.parent, handle: Some(node.handle) };
        self.insert_of(node, key, queues);
        if let Classes::One(default) = node.kind.classes() {
            let child = match node.children.values().next() {
                Some(child) => self.add(Some(child), child.parent, queues),
                None => {
                    let parent = Parent::Class(node.handle.class(1));
                    self.insert(Key { parent, handle: None }, fifo_config(&default))
                }
            };
            self.nodes.entry(key).and_modify(|node| node.children = vec![child]);
        }
        if let Kind::Htb(htb) = &node.kind {
            self.add_classes(node, key, htb, queues);
            self.filters = htb.filters().to_vec();
        }
        key
    }

    /// Adds the classes of `htb`, which is `node`, and what is below them.
    fn add_classes(&mut self, node: &Node, key: Key, htb: &Htb, queues: usize) {
        let default = Fifo { unit: FifoUnit::Packets, limit: htb.direct_limit };
        let inner: BTreeSet<u16> = htb.classes.values().filter_map(|class| class.parent).collect();
        let mut children = Vec::new();
        for (minor, class) in &htb.classes {
            let is_leaf = !inner.contains(minor);
            let leaf = is_leaf.then(|| match node.children.get(minor) {
                Some(child) => self.add(Some(child), child.parent, queues),
                None => {
                    let parent = Parent::Class(node.handle.class(*minor));
                    self.insert(Key { parent, handle: None }, fifo_config(&default))
                }
            });
            children.extend(leaf);
            self.classes.insert(u32::from(*minor), PlanClass { class: htb.class(class), leaf });
        }
        self.nodes.entry(key).and_modify(|node| node.children = children);
    }

    /// Adds the qdisc of one queue of `node`, whose queues are alike and share.
    fn add_alike(&mut self, node: &Node, parent: Parent, queues: usize) -> Key {
        let key = Key { parent, handle: None };
        self.insert_of(node, key, queues);
        key
    }

    fn insert_of(&mut self, node: &Node, key: Key, queues: usize) {
        let (config, limit) = node.kind.rules().plan(queues);
        let shared = limit.map(|limit| {
            self.limits.insert(node.handle, (limit, queues));
            node.handle
        });
        self.nodes.insert(key, PlanNode { config, limit: shared, children: Vec::new() });
    }

    fn insert(&mut self, key: Key, config: Config) -> Key {
        self.nodes.insert(key, PlanNode { config, limit: None, children: Vec::new() });
        key
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
        for child in self.nodes.get(&key).map_or(&[][..], |node| &node.children) {
            self.collect(*child, into);
        }
    }
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
        for (id, class) in &self.classes {
            writeln!(f, "class :{id:x} {:?}", class.class)?;
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
    let root = port.root.as_ref();
    match (queues, root.map(|root| &root.kind)) {
        (0, _) => return Err(PolicyError::NoQueues),
        (1, Some(Kind::Mq)) => return Err(PolicyError::MqNeedsQueues),
        (1, Some(kind)) if kind.classes() == Classes::Alike => {
            return Err(PolicyError::CakeMqNeedsQueues);
        }
        _ => {}
    }
    if let Some(root) = root.filter(|root| root.kind.classes() == Classes::Queues) {
        return match root.children.keys().next_back() {
            Some(&last) if usize::from(last) > queues => Err(PolicyError::NoClass(format!(
                "The port has {queues} queues, so there is no {}.",
                root.handle.class(last)
            ))),
            _ => Ok(()),
        };
    }
    let follows = |node: &&Node| queues > 1 && node.kind.rules().follows_arrivals();
    match port.nodes().into_iter().find(follows) {
        Some(node) => Err(PolicyError::AutorateShared(node.kind.name())),
        None => Ok(()),
    }
}
