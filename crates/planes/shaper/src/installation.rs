//! A running plan: what its queues share, and how a changed plan is reconciled with it.
//!
//! The plan says what should run, by key. An [`Installation`] holds the live state: the limits that
//! queues share, their common counts, and the name ([`NodeId`]) under which each qdisc runs on
//! every queue. [`Installation::reconcile`] compares two plans: a qdisc with the same key that can
//! carry on keeps its name, and with it its queues, its credit and its meters; any other gets a new
//! name, and the workers build it.
//!
//! *One rule of sameness.* A qdisc carries on if its parent does, its key is the same, it has a
//! size table as before or none,
//! [`Config::carries_on`](narrows_qdisc::Config::carries_on) agrees, and it keeps the same limit by
//! the same strategy with the same number of queues. This is decided nowhere else.
//!
//! *The order of a change, so that a bad one changes nothing:* make the plans of every port; if all
//! succeed reconcile each, [`Installation::commit`], and give every queue's worker its
//! specification.

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use narrows_classify::{
    Action, ActionId, ActionStats, Actions, Blocks, Classification, Classifier, Counters, Filters,
    PaceRate, PersistentMap, Running,
};
use narrows_coordination::{Change, Coordination, Destinations, SharedPolicer, SharedTree, Spent};
use narrows_packet::Paces;
use narrows_policy::{
    BoundAction, Handle, Key, NodeStats, Parent, Plan, PlanClass, PlanNode, SharedLimit, filling,
};
use narrows_qdisc::{Config, Ends, Feedback, Metering, NodeId, Spec, Stats, pacing};
use narrows_units::Nanos;
use plan_classes::PlanClasses;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

mod plan_classes;

/// A running plan: the state that its queues share, and the names of its qdiscs.
pub struct Installation {
    plan: Plan,
    names: OrdMap<Key, NodeId>,
    /// The last name that was given out.
    last_name: u64,
    limits: BTreeMap<Handle, Arc<Coordination>>,
    /// The classes of each `htb`.
    trees: BTreeMap<Handle, SharedTree>,
    /// The classifier, by the qdisc that queues run.
    classifications: BTreeMap<Key, Arc<Classification>>,
    /// The filters at both ends of the port.
    ends: Ends,
    /// Their actions, which keep their counters through changes of filters.
    actions: Actions,
    /// The rates that they give to flows.
    paces: Paces,
    /// The port's congestion feedback, once any queue has used it. It outlives the qdisc:
    /// congestion is the same for any qdisc, and expires by itself.
    destinations: Option<Arc<Destinations>>,
    /// The limits that carry on.
    kept: Vec<Handle>,
    /// How the classes of trees that carry on change; of a tree that is missing here, any may have.
    changes: BTreeMap<Handle, Change>,
}

/// By the handle of a tree, numbers of classes.
type Changed = BTreeMap<Handle, BTreeSet<u32>>;

impl Installation {
    /// Prepares the change from `previous` to `plan`, and the specification for each queue's
    /// worker. Nothing that runs changes before [`Installation::commit`].
    pub fn reconcile(plan: Plan, previous: Option<&Self>) -> (Self, Vec<Spec>) {
        let actions = actions(&plan, previous);
        let paces = paces(&plan, previous);
        let classification = |(key, rules)| {
            let before = previous.and_then(|previous| previous.classifications.get(key));
            let before = before.map(AsRef::as_ref);
            (*key, Arc::new(Classification::of(rules, &actions, before)))
        };
        let classifications = plan.rules.iter().map(classification).collect();
        let end = |index: usize, filters: &Filters| {
            let before = previous.and_then(|previous| previous.ends[index].as_deref());
            let blocks = Blocks::from([(0, filters.clone())]);
            (!filters.is_empty()).then(|| Arc::new(classifier_of(&blocks, &actions, before)))
        };
        let ends = [end(0, &plan.ends[0]), end(1, &plan.ends[1])];
        let mut next = Self {
            plan,
            names: OrdMap::new(),
            last_name: previous.map_or(0, |previous| previous.last_name),
            limits: BTreeMap::new(),
            trees: BTreeMap::new(),
            classifications,
            ends,
            actions,
            paces,
            destinations: previous.and_then(|previous| previous.destinations.clone()),
            kept: Vec::new(),
            changes: BTreeMap::new(),
        };
        let roots = next.plan.roots.clone();
        match previous.and_then(|previous| Some((previous, changes(&previous.plan, &next.plan)?))) {
            Some((previous, changed)) => next.follow(previous, changed),
            None => roots.chunk_by(|one, other| one == other).for_each(|run| {
                next.name(run[0], previous);
            }),
        }
        for handle in next.trees.keys().filter(|handle| !next.keeps_tree(**handle, previous)) {
            // No queue uses it yet, and the first one must find its classes.
            next.commit_tree(*handle);
        }
        let specs = roots.iter().enumerate();
        let specs = specs.map(|(queue, root)| {
            let classification = next.classifications.get(root).cloned();
            let ends = next.ends.clone();
            let paces = Some(next.paces.clone()).filter(|paces| !paces.is_empty());
            Spec { classification, ends, paces, ..next.spec(*root, queue, previous) }
        });
        let specs = specs.collect();
        (next, specs)
    }

    /// Names all qdiscs as in `previous`, from which only the classes `changed` and their contents
    /// differ. Everything else carries on.
    fn follow(&mut self, previous: &Self, changed: Changed) {
        self.names = previous.names.clone();
        self.limits = previous.limits.clone();
        self.kept = self.limits.keys().copied().collect();
        self.trees = previous.trees.clone();
        let leaf = |plan: &Plan, handle: &Handle, id: &u32| plan.classes.get(handle)?.get(id)?.leaf;
        let all =
            || changed.iter().flat_map(|(handle, ids)| ids.iter().map(move |id| (handle, id)));
        // Removals first: a qdisc may have moved from one class to another.
        for gone in all().filter_map(|(handle, id)| leaf(&previous.plan, handle, id)) {
            previous.plan.below(gone).iter().for_each(|key| {
                self.names.remove(key);
            });
        }
        let present: Vec<Key> =
            all().filter_map(|(handle, id)| leaf(&self.plan, handle, id)).collect();
        present.into_iter().for_each(|key| self.name(key, Some(previous)));
        let prepared = changed.into_iter().filter_map(|(handle, ids)| {
            let before = previous.classes(handle)?;
            let ids = ids.into_iter().collect();
            Some((handle, Change::of(&before, Arc::new(self.classes(handle)?), ids)?))
        });
        self.changes = prepared.collect();
    }

    /// The classes of the tree `handle`.
    fn classes(&self, handle: Handle) -> Option<PlanClasses> {
        Some(PlanClasses {
            classes: self.plan.classes.get(&handle)?.clone(),
            nodes: self.plan.nodes.clone(),
            names: self.names.clone(),
        })
    }

    /// Names the qdisc `key` and those below it: as in `above` if they carry on.
    fn name(&mut self, key: Key, above: Option<&Self>) {
        let Some(node) = self.plan.nodes.get(&key).cloned() else { return };
        let above = above.filter(|previous| previous.carries_on(&key, &node, &self.plan));
        let kept = above.and_then(|previous| previous.names.get(&key).copied());
        let name = kept.unwrap_or_else(|| {
            self.last_name += 1;
            NodeId(self.last_name)
        });
        self.names.insert(key, name);
        if let Some(handle) = node.limit
            && let Some((shared, queues)) = self.plan.limits.get(&handle)
        {
            let present = above.and_then(|previous| previous.limits.get(&handle));
            if present.is_some() && !self.kept.contains(&handle) {
                self.kept.push(handle);
            }
            let limit = || Coordination::new(shared.strategy, shared.limit, *queues);
            self.limits.entry(handle).or_insert_with(|| present.cloned().unwrap_or_else(limit));
        }
        if let (Config::Htb(_), Some(handle)) = (&*node.config, key.handle) {
            let kind = self.plan.trees.get(&handle).copied().unwrap_or_default();
            let present = above.and_then(|previous| previous.trees.get(&handle).cloned());
            let present = present.filter(|tree| tree.kind() == kind);
            self.trees.insert(handle, present.unwrap_or_else(|| SharedTree::new(kind)));
        }
        node.children.iter().for_each(|child| self.name(*child, above));
        let leaves = self.plan.leaves(key);
        filling(&leaves).for_each(|leaf| self.name(*leaf, above));
    }

    /// Whether the qdisc `key` carries on as `node` of `plan`.
    fn carries_on(&self, key: &Key, node: &PlanNode, plan: &Plan) -> bool {
        let terms = |of: &Plan, handle: Option<Handle>| {
            let (SharedLimit { strategy, counts_hosts, .. }, queues) = *of.limits.get(&handle?)?;
            Some((strategy, counts_hosts, queues))
        };
        self.plan.nodes.get(key).is_some_and(|present| {
            present.config.carries_on(&node.config)
                && is_sized(&self.plan, key) == is_sized(plan, key)
                && present.limit == node.limit
                && terms(&self.plan, present.limit) == terms(plan, node.limit)
                && self.plan.queues() == plan.queues()
        })
    }

    /// The specification for the worker of `queue` at `key`.
    fn spec(&mut self, key: Key, queue: usize, previous: Option<&Self>) -> Spec {
        let (Some(node), Some(&id)) = (self.plan.nodes.get(&key).cloned(), self.names.get(&key))
        else {
            unreachable!("the plan has no {key}")
        };
        let is_new = previous.and_then(|previous| previous.names.get(&key)) != Some(&id);
        let mut config = (*node.config).clone();
        // Random numbers are each queue's own.
        match &mut config {
            Config::Netem(netem) => netem.stream = queue as u64,
            Config::Red(red) => red.stream = queue as u64,
            _ => {}
        }
        let mut spec = Spec { id, level: node.level, ..Spec::new(config) };
        if let Some(handle) = node.limit
            && let Some(limit) = self.limits.get(&handle)
        {
            spec.metering = Metering::Kept;
            if is_new && let Some((shared, queues)) = self.plan.limits.get(&handle) {
                // A limit of one queue has one meter, whichever queue that is.
                spec.metering = Metering::Shared(limit.meter(if *queues > 1 { queue } else { 0 }));
                spec.census = shared.counts_hosts.then(|| limit.census());
            }
        }
        if let (Config::Htb(_), Some(handle)) = (&spec.config, key.handle)
            && let Some(tree) = self.trees.get(&handle)
        {
            // With another strategy it is another tree, under the same queues.
            let is_new = is_new || !self.keeps_tree(handle, previous);
            spec.tree = is_new.then(|| tree.scheduler());
            // The tree hands out the qdiscs below its classes.
            return spec;
        }
        spec.feedback = self.feedback(&spec.config);
        spec.children =
            node.children.iter().map(|child| self.spec(*child, queue, previous)).collect();
        spec
    }

    /// The port's feedback board, for a qdisc that uses it. A retuned qdisc may start to use it
    /// only now.
    fn feedback(&mut self, config: &Config) -> Option<Box<dyn Feedback>> {
        let Config::Pacing(pacing::Config { safeguard: true, .. }) = config else { return None };
        Some(self.destinations.get_or_insert_with(Destinations::new).feedback())
    }

    /// Sets the new parameters of limits that carry on. Called after everything has been validated
    /// and before the specifications are sent.
    pub fn commit(&self) {
        for handle in &self.kept {
            if let (Some(limit), Some((shared, _))) =
                (self.limits.get(handle), self.plan.limits.get(handle))
            {
                limit.set_limit(shared.limit);
            }
        }
        self.trees.keys().for_each(|handle| self.commit_tree(*handle));
    }

    /// Whether the tree of `handle` is that of `previous`.
    fn keeps_tree(&self, handle: Handle, previous: Option<&Self>) -> bool {
        let before = previous.and_then(|previous| previous.trees.get(&handle));
        match (self.trees.get(&handle), before) {
            (Some(tree), Some(before)) => tree.is(before),
            _ => false,
        }
    }

    fn commit_tree(&self, handle: Handle) {
        let Some(tree) = self.trees.get(&handle) else { return };
        if self.changes.get(&handle).is_some_and(|change| tree.apply(change)) {
            return;
        }
        let Some(classes) = self.classes(handle) else { return };
        let label = |(id, class): (&u32, &Arc<PlanClass>)| Some((*id, *class.label.as_deref()?));
        let labels = classes.classes.iter().filter_map(label).collect();
        tree.replace_classes(Arc::new(classes), &labels);
    }

    /// The counters of each action at this port.
    pub fn action_stats(&self) -> impl Iterator<Item = (ActionId, ActionStats)> {
        let counted = |bound: &BoundAction| {
            let running = self.actions.get(bound.id.key())?;
            Some((bound.id, running.counters().stats()))
        };
        self.plan.actions.iter().filter_map(move |(_, bound)| counted(bound))
    }

    /// What runs.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The figures of every qdisc of the port. `per_queue[i]` is the result of `Slot::stats` of
    /// queue `i`. Below an `mq` or a `cake_mq` each queue's qdiscs are separate entries, and the
    /// parent is their sum; otherwise the queues run the same tree and each entry is a sum over
    /// them.
    ///
    /// Figures of a qdisc that a queue has not replaced yet belong to no present qdisc.
    pub fn gather(&self, per_queue: &[Vec<Stats>]) -> Vec<NodeStats> {
        let mut sums: HashMap<NodeId, Stats> = HashMap::new();
        for stats in per_queue.iter().flatten() {
            match sums.get_mut(&stats.id) {
                Some(sum) => sum.merge(stats),
                None => drop(sums.insert(stats.id, stats.clone())),
            }
        }
        let mut nodes = Vec::with_capacity(self.names.len() + 1);
        if let Some(handle) = self.plan.above {
            // As in the kernel it is the sum of the basic counters only.
            let mut stats = Stats::default();
            let roots = || {
                let names = self.plan.roots.iter().filter_map(|root| self.names.get(root));
                names.filter_map(|name| sums.get(name))
            };
            roots().for_each(|root| stats.merge(root));
            stats.detail = None;
            stats.flows = roots().map(|root| root.flows).sum();
            nodes.push(NodeStats { parent: Parent::Root, handle: Some(handle), stats });
        }
        for key in self.plan.keys() {
            let name = self.names.get(&key);
            let stats = name.and_then(|name| sums.remove(name)).unwrap_or_default();
            nodes.push(NodeStats { parent: key.parent, handle: key.handle, stats });
        }
        nodes
    }

    /// How far its limits are used: an equal policy on as many queues in another process continues
    /// from there ([`Installation::resume`]).
    pub fn spent_until(&self, now: Nanos) -> Used {
        let limits = self.limits.iter();
        let trees = self.trees.iter();
        Used {
            limits: limits.map(|(handle, limit)| (*handle, limit.spent_until(now))).collect(),
            classes: trees.map(|(handle, tree)| (*handle, tree.spent(now))).collect(),
        }
    }

    /// Starts its unused limits where those of another process ended: each is used up to its time
    /// in `used`, or to `now` if it has none. Classes that are not in it have their whole credit.
    pub fn resume(&self, used: &Used, now: Nanos) {
        for (handle, limit) in &self.limits {
            limit.resume(used.limits.get(handle).copied().unwrap_or(now));
        }
        for (handle, tree) in &self.trees {
            tree.resume(used.classes.get(handle).map_or(&[], Vec::as_slice));
        }
    }
}

/// How far limits are used, by their qdiscs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Used {
    /// The time up to which each limit of a whole qdisc is.
    pub limits: BTreeMap<Handle, Nanos>,
    /// The classes of each tree that do not have their whole credit.
    pub classes: BTreeMap<Handle, Vec<Spent>>,
}

/// Whether the qdisc `key` of `plan` has a size table: one more qdisc in its place.
fn is_sized(plan: &Plan, key: &Key) -> bool {
    let there = plan.nodes.get(&Key { handle: None, ..*key }).filter(|_| key.handle.is_some());
    there.is_some_and(|node| matches!(*node.config, Config::Stab(_)))
}

/// The classes of trees in which `next` differs from `plan`, including their contents; `None` if
/// anything else on queues differs.
fn changes(plan: &Plan, next: &Plan) -> Option<Changed> {
    let alike = |plan: &Plan| (plan.above, plan.trees.clone(), plan.limits.clone());
    let is_alike = plan.roots == next.roots
        && plan.classes.keys().eq(next.classes.keys())
        && alike(plan) == alike(next);
    if !is_alike {
        return None;
    }
    let mut changed = Changed::new();
    for (handle, classes) in &plan.classes {
        let next = next.classes.get(handle)?;
        let ids = classes.diff(next).map(|change| match change {
            DiffItem::Add(id, _) | DiffItem::Remove(id, _) => *id,
            DiffItem::Update { new: (id, _), .. } => *id,
        });
        changed.insert(*handle, ids.collect());
    }
    for change in plan.nodes.diff(&next.nodes) {
        let within = match change {
            DiffItem::Add(key, node) | DiffItem::Remove(key, node) => node.within.class(key),
            DiffItem::Update { old: (key, old), new: (_, new) } if old.within == new.within => {
                new.within.class(key)
            }
            DiffItem::Update { .. } => return None,
        };
        let class = within?;
        changed.get_mut(&Handle::new(class.major)?)?.insert(class.minor);
    }
    Some(changed)
}

/// The running actions of `plan`: those of `previous` if unchanged, otherwise new ones with the old
/// counters.
fn actions(plan: &Plan, previous: Option<&Installation>) -> Actions {
    let mut running = previous.map(|previous| previous.actions.clone()).unwrap_or_default();
    let before = previous.map(|previous| previous.plan.actions.clone()).unwrap_or_default();
    before.changes(&plan.actions, |key, _, bound| {
        let Some(BoundAction { action, .. }) = bound.copied() else {
            running.remove(key);
            return;
        };
        let present = running.get(key);
        if present.is_none_or(|present| *present.action() != action) {
            let counters = present.map(|present| Arc::clone(present.counters()));
            let policer = match &action {
                Action::Police(police) => SharedPolicer::of(police),
                _ => None,
            };
            let counters = counters.unwrap_or_else(|| Arc::new(Counters::default()));
            running.insert(key, Arc::new(Running::new(action, counters, policer)));
        }
    });
    running
}

/// The rates that the actions of `plan` give to flows. One that is gone keeps its place until
/// another takes it: packets that have it may wait.
fn paces(plan: &Plan, previous: Option<&Installation>) -> Paces {
    let none = PersistentMap::default();
    let before = previous.map_or(&none, |previous| &previous.plan.actions);
    let paces = previous.map_or_else(Paces::default, |previous| previous.paces.clone());
    let mut changes = Vec::new();
    before.changes(&plan.actions, |_, _, bound| {
        if let Some(BoundAction {
            id, action: Action::Pace { rate: PaceRate::Of(rate), .. }, ..
        }) = bound
            && let Some(id) = id.pace()
            && paces.get(id).is_none_or(|pace| pace.rate != *rate)
        {
            changes.push((id, *rate));
        }
    });
    paces.with(&changes)
}

/// The roster of `blocks`, which shares equal parts with `before`.
fn classifier_of(blocks: &Blocks, actions: &Actions, before: Option<&Classifier>) -> Classifier {
    before.unwrap_or(&Classifier::default()).with(blocks, actions)
}
