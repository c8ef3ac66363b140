//! Lays out a tree over queues, from scratch or where it has changed.
//!
//! *Incremental changes* are classes of a tree that are added, removed or changed, with their
//! qdiscs. This is what a subscriber is, and there may be 100,000. Each changed class is laid out
//! again, with its ancestors, as it may be their first child or have been their last. The filters
//! are laid out again, too. A `tbf` above all classes that stays where it is, with another rate, is
//! such a change, too: a limit that follows a line gets one up to 20 times a second. Any other
//! change lays out everything.

use super::{Key, Plan, PlanClass, PlanNode, Within, check_node, filling};
use crate::classful::{Classful, TreeRules};
use crate::kind::fifo_config;
use crate::shared::Shared;
use crate::{
    ClassId, Classes, Ends, Fifo, Handle, Kind, Node, Parent, PolicyError, PortPolicy, Reach, Stab,
};
use imbl::OrdMap;
use narrows_qdisc::{Class, Config};
use narrows_units::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// More than all frames can hold.
const NO_LIMIT: Bytes = Bytes(1 << 40);

/// A plan under construction.
pub(super) struct Layout<'a> {
    port: &'a PortPolicy,
    queues: usize,
    plan: Plan,
    /// The last parameters and the last qdisc: the next one is often equal and then shares them.
    last: Arc<Config>,
    last_node: Option<Arc<PlanNode>>,
}

/// The place of a qdisc.
#[derive(Clone, Copy)]
struct At {
    /// The number of classful qdiscs above it.
    level: u8,
    /// How many queues run it.
    queues: usize,
    /// The class of a tree that contains it.
    within: Option<ClassId>,
}

impl<'a> Layout<'a> {
    /// Starts from `plan`.
    pub(super) fn new(port: &'a PortPolicy, queues: usize, plan: Plan) -> Self {
        Self { port, queues, plan, last: Arc::new(Config::Noqueue), last_node: None }
    }

    /// Lays out everything.
    pub(super) fn anew(mut self) -> Plan {
        let root = self.port.root();
        let classes = root.map_or(Classes::None, |root| root.kind.classes());
        for queue in 0..self.queues {
            // Queues beyond the class numbers of `mq` run the default.
            let minor = u32::from(u16::try_from(queue + 1).unwrap_or(0));
            let key = match (root, classes) {
                (Some(root), Classes::Queues | Classes::Alike) => {
                    self.plan.above = Some(root.handle);
                    let at = Parent::Class(root.handle.class(minor));
                    match classes {
                        Classes::Alike => self.add_alike(root, at),
                        _ => self.add_root(self.port.child(root, minor), at, 1),
                    }
                }
                (root, _) => match self.plan.roots.first() {
                    // All queues run the same.
                    Some(&first) => first,
                    None => self.add_root(root, Parent::Root, self.queues),
                },
            };
            self.plan.roots.push(key);
        }
        self.add_filters();
        self.plan
    }

    /// Changes the initial plan in what `changed` names.
    pub(super) fn change(mut self, changed: &Changed) -> Result<Plan, PolicyError> {
        let Changed { classes, limits } = changed;
        for node in limits.iter().filter_map(|handle| self.port.find(*handle)) {
            check_node(node, self.queues)?;
            self.change_limit(node);
        }
        // Removals first: a qdisc may have moved from one class to another.
        classes.iter().for_each(|class| self.remove_class(*class));
        for class in classes {
            self.add_class(*class)?;
        }
        self.add_filters();
        Ok(self.plan)
    }

    /// Lays out again the `tbf` `node`, which is in no class of a tree, and the FIFO that it has if
    /// there is no other qdisc in it.
    fn change_limit(&mut self, node: &Node) {
        let queues = self.queues_of(node);
        let key = Key { parent: node.parent, handle: Some(node.handle) };
        let Some(planned) = self.plan.nodes.get(&key).cloned() else { return };
        let PlanNode { level, children, .. } = &*planned;
        self.insert_of(node, key, At { level: *level, queues, within: None });
        self.change_node(key, |node| node.children.clone_from(children));
        match (self.port.child(node, 1), node.kind.classes()) {
            (Some(below), _) => self.leave_limit_to_classes(key, below),
            (None, Classes::One(Some(fifo))) => {
                self.add_leaf(node, 1, &fifo, At { level: *level, queues, within: None });
            }
            (None, _) => {}
        }
    }

    /// Removes the class `id` and its qdiscs.
    fn remove_class(&mut self, id: ClassId) {
        let classes = Handle::new(id.major).and_then(|htb| self.plan.classes.get_mut(&htb));
        let class = classes.and_then(|classes| classes.remove(&id.minor));
        if let Some(leaf) = class.and_then(|class| class.leaf) {
            self.plan.below(leaf).iter().for_each(|key| drop(self.plan.nodes.remove(key)));
        }
    }

    /// Adds the class `id` and its qdiscs, if it exists.
    fn add_class(&mut self, id: ClassId) -> Result<(), PolicyError> {
        let node = Handle::new(id.major).and_then(|handle| self.port.find(handle));
        let Some(node) = node else { return Ok(()) };
        let Some(tree) = node.kind.tree().filter(|tree| tree.has_class(id.minor)) else {
            return Ok(());
        };
        let below = self.port.child(node, id.minor).map(|child| self.port.below(child));
        below.into_iter().flatten().try_for_each(|node| check_node(node, self.queues))?;
        let leaf = (!tree.is_inner(id.minor)).then(|| {
            let above = self.port.upwards(node);
            let level = above.filter(|above| above.kind.classful().is_some()).count() as u8;
            let at = At { level, queues: self.queues_of(node), within: Some(id) };
            self.add_leaf(node, id.minor, &tree.leaf(), at)
        });
        if let Some(class) = class_of(tree, id.minor, leaf) {
            let classes = self.plan.classes.entry(node.handle).or_default();
            classes.insert(id.minor, Arc::new(class));
        }
        Ok(())
    }

    /// How many queues run `node`.
    fn queues_of(&self, node: &Node) -> usize {
        let under_mq = self.port.root().is_some_and(|root| root.kind.classes() == Classes::Queues);
        if under_mq && node.parent != Parent::Root { 1 } else { self.queues }
    }

    /// Adds the filters: those that classify on each queue, and those at the ends of the port.
    fn add_filters(&mut self) {
        self.plan.rules.clear();
        for key in self.plan.roots.iter().copied().collect::<BTreeSet<Key>>() {
            // A stab, which has no handle, is in the place of its qdisc.
            let node = key.handle.and_then(|handle| self.port.find(handle));
            let node = node.or_else(|| self.port.node_at(key.parent));
            if let Some(rules) = node.and_then(|node| self.port.rules(node)) {
                self.plan.rules.insert(key, rules);
            }
        }
        (self.plan.front, self.plan.ends) = match &self.port.ends {
            Some(Ends { egress, .. }) => {
                let (front, rest) = self.port.split(Reach::Needed);
                (front, [rest, egress.clone()])
            }
            None => Default::default(),
        };
        let actions = self.port.actions.as_ref();
        self.plan.actions = actions.map(|actions| actions.all().clone()).unwrap_or_default();
    }

    /// Adds the root of `queues` queues: `node` with its descendants, or the default at `parent`.
    fn add_root(&mut self, node: Option<&Node>, parent: Parent, queues: usize) -> Key {
        let at = At { level: 0, queues, within: None };
        match node {
            Some(node) => self.add(node, at),
            None => self.insert(Key { parent, handle: None }, at, Config::Noqueue),
        }
    }

    /// Adds `node` with its descendants.
    fn add(&mut self, node: &Node, at: At) -> Key {
        let key = Key { parent: node.parent, handle: Some(node.handle) };
        self.insert_of(node, key, at);
        if let Classes::One(default) = node.kind.classes() {
            let below = self.port.child(node, 1);
            let child = match (below, default) {
                (Some(below), _) => Some(self.add(below, at)),
                (None, Some(fifo)) => Some(self.add_leaf(node, 1, &fifo, at)),
                (None, None) => None,
            };
            self.change_node(key, |node| node.children = child.into_iter().collect());
            if let Some((below, child)) = below.zip(child) {
                self.leave_limit_to_classes(key, below);
                if below.stab.is_none() {
                    self.share_bands(node, below, [key, child], at.queues);
                }
            }
        }
        if let Some(classful) = node.kind.classful() {
            let leaves = self.add_leaves(node, classful, At { level: at.level + 1, ..at });
            if let Some(tree) = node.kind.tree() {
                self.add_classes(node.handle, tree, &leaves);
            } else {
                let children = leaves.into_values().collect();
                self.change_node(key, |node| node.children = children);
            }
        }
        match &node.stab {
            Some(stab) => self.add_stab(key, stab, at),
            None => key,
        }
    }

    /// Adds the size table of the qdisc `sized`, as a qdisc above it.
    fn add_stab(&mut self, sized: Key, stab: &Stab, at: At) -> Key {
        let key = self.insert(Key { handle: None, ..sized }, at, Config::Stab(stab.charge()));
        self.change_node(key, |node| node.children = vec![sized]);
        key
    }

    /// Adds the qdiscs in the classes of `node`. Returns them by class number.
    fn add_leaves(&mut self, node: &Node, classful: &dyn Classful, at: At) -> BTreeMap<u32, Key> {
        let fifo = classful.leaf();
        let is_tree = node.kind.tree().is_some();
        let leaf = |minor| {
            let within = if is_tree { Some(node.handle.class(minor)) } else { at.within };
            (minor, self.add_leaf(node, minor, &fifo, At { within, ..at }))
        };
        filling(&classful.leaves()).copied().map(leaf).collect()
    }

    /// Adds the qdisc in the class `minor` of `node`; `fifo` is the default.
    fn add_leaf(&mut self, node: &Node, minor: u32, fifo: &Fifo, at: At) -> Key {
        match self.port.child(node, minor) {
            Some(child) => self.add(child, at),
            None => {
                let parent = Parent::Class(node.handle.class(minor));
                self.insert(Key { parent, handle: None }, at, fifo_config(fifo))
            }
        }
    }

    /// Lifts the limit of the `tbf` at `key` if its child `below` is classful: each class has a
    /// limit of its own, and the backlog of one must not drop packets of another.
    fn leave_limit_to_classes(&mut self, key: Key, below: &Node) {
        if below.kind.classful().is_some() {
            self.change_node(key, |node| {
                if let Config::Tbf(tbf) = Arc::make_mut(&mut node.config) {
                    tbf.limit = NO_LIMIT;
                }
            });
        }
    }

    /// Makes `queues` share the bands of `below`, a child of `above`, if they can. Both have been
    /// added, as `keys`.
    fn share_bands(&mut self, above: &Node, below: &Node, keys: [Key; 2], queues: usize) {
        let Some(shared) = Shared::of(&above.kind, &below.kind, queues) else { return };
        let [above_key, below_key] = keys;
        if self.plan.below(below_key).iter().any(|key| self.has_shared_state(key)) {
            return;
        }
        // The tree keeps the rate.
        self.plan.limits.remove(&above.handle);
        self.change_node(above_key, |node| node.limit = None);
        let mut children = Vec::new();
        self.change_node(below_key, |node| {
            node.config = Arc::new(shared.config);
            children = std::mem::take(&mut node.children);
        });
        let bands = below.kind.classful().map_or(Vec::new(), |bands| bands.leaves());
        let leaves: BTreeMap<u32, Key> = bands.into_iter().zip(children).collect();
        for (minor, leaf) in &leaves {
            for key in self.plan.below(*leaf) {
                let within = Within::of(Some(below.handle.class(*minor)), key.parent);
                self.change_node(key, |node| node.within = within);
            }
        }
        let class = |(id, class)| {
            let (class, leaf) = (Class::Htb(class), leaves.get(&id).copied());
            (id, Arc::new(PlanClass { class, leaf, label: None }))
        };
        self.plan.classes.insert(below.handle, shared.classes.into_iter().map(class).collect());
    }

    /// Whether queues share state at the qdisc `key`: a limit, or a tree.
    fn has_shared_state(&self, key: &Key) -> bool {
        let node = self.plan.nodes.get(key);
        node.is_some_and(|node| node.limit.is_some() || matches!(*node.config, Config::Htb(_)))
    }

    /// Adds the classes of the `tree` with this `handle`; `leaves` are their qdiscs.
    fn add_classes(&mut self, handle: Handle, tree: &dyn TreeRules, leaves: &BTreeMap<u32, Key>) {
        let class = |minor: &u32| {
            Some((*minor, Arc::new(class_of(tree, *minor, leaves.get(minor).copied())?)))
        };
        let classes: OrdMap<_, _> = filling(&tree.numbers()).filter_map(class).collect();
        self.plan.trees.insert(handle, tree.tree());
        self.plan.classes.insert(handle, classes);
    }

    /// Adds the qdisc of one queue of `node`, whose queues are alike and share a limit.
    fn add_alike(&mut self, node: &Node, parent: Parent) -> Key {
        let key = Key { parent, handle: None };
        self.insert_of(node, key, At { level: 0, queues: self.queues, within: None });
        key
    }

    fn insert_of(&mut self, node: &Node, key: Key, at: At) {
        let (config, limit) = node.kind.rules().plan(at.queues);
        self.insert(key, at, config);
        if let Some(limit) = limit {
            self.plan.limits.insert(node.handle, (limit, at.queues));
            self.change_node(key, |planned| planned.limit = Some(node.handle));
        }
    }

    fn insert(&mut self, key: Key, at: At, config: Config) -> Key {
        let At { level, within, .. } = at;
        if *self.last != config {
            self.last = Arc::new(config);
        }
        let config = Arc::clone(&self.last);
        let within = Within::of(within, key.parent);
        let node = PlanNode { config, limit: None, level, children: Vec::new(), within };
        let node = match self.last_node.take() {
            Some(last) if *last == node => last,
            _ => Arc::new(node),
        };
        self.last_node = Some(Arc::clone(&node));
        self.plan.nodes.insert(key, node);
        key
    }

    fn change_node(&mut self, key: Key, change: impl FnOnce(&mut PlanNode)) {
        if let Some(node) = self.plan.nodes.get_mut(&key) {
            change(Arc::make_mut(node));
        }
    }
}

/// The class `minor` of `tree`, with the qdisc `leaf`.
fn class_of(tree: &dyn TreeRules, minor: u32, leaf: Option<Key>) -> Option<PlanClass> {
    let (class, label) = tree.class(minor)?;
    Some(PlanClass { class, leaf, label })
}

/// Where two policies of a port differ.
#[derive(Default)]
pub(super) struct Changed {
    /// The classes of trees, with their ancestors.
    classes: BTreeSet<ClassId>,
    /// The `tbf`s that are in no class of a tree.
    limits: Vec<Handle>,
}

/// Where `before` and `port`, on so many queues, differ; `None` if not only there.
pub(super) fn changed(before: &PortPolicy, port: &PortPolicy, queues: usize) -> Option<Changed> {
    let mut changed = Changed::default();
    for (old, new) in before.changes(port) {
        if let Some((old, new)) = old.zip(new)
            && old.parent == new.parent
            && old.stab == new.stab
            && let Some((before, tree)) = old.kind.tree().zip(new.kind.tree())
            && let Some(minors) = before.changes(&new.kind)
        {
            for minor in minors {
                changed.classes.insert(new.handle.class(minor));
                // It may be the first child of its parent, or have been the last.
                let above = [before, tree].into_iter().filter_map(|tree| tree.parent(minor));
                changed.classes.extend(above.map(|above| new.handle.class(above)));
            }
            continue;
        }
        if let Some((old, new)) = old.zip(new)
            && is_limit_in_place(port, old, new)
            && ![(before, old), (port, new)].iter().any(|(port, node)| shares(port, node, queues))
        {
            changed.limits.push(new.handle);
            continue;
        }
        for (port, node) in [(before, old), (port, new)] {
            if let Some(node) = node {
                changed.classes.insert(port.tree_class(node)?);
            }
        }
    }
    Some(changed)
}

/// Whether `new` of `port` is the `tbf` that `old` is, with other parameters, and above all classes
/// of trees.
fn is_limit_in_place(port: &PortPolicy, old: &Node, new: &Node) -> bool {
    let are_limits = matches!((&old.kind, &new.kind), (Kind::Tbf(_), Kind::Tbf(_)));
    are_limits && old.parent == new.parent && old.stab == new.stab && port.tree_class(new).is_none()
}

/// Whether queues may share the bands in `node`, whose classes have its rate then.
fn shares(port: &PortPolicy, node: &Node, queues: usize) -> bool {
    let below = port.child(node, 1);
    below.is_some_and(|below| Shared::of(&node.kind, &below.kind, queues).is_some())
}
