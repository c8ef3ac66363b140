//! A plan at work: what its queues share, and how a changed plan is reconciled with it.
//!
//! The plan says what is to run, by key. An [`Installation`] holds what is alive of it: the limits
//! that queues share, what they tell each other, and the name ([`NodeId`]) under which each qdisc
//! runs on every queue. [`Installation::reconcile`] compares two plans: a qdisc with the same key
//! that can carry on keeps its name, and with it its queues, its credit and its seats; anything
//! else gets a new name, and the workers build it.
//!
//! *One rule of sameness.* A qdisc carries on if what it hangs from does, its key is the same,
//! [`Config::carries_on`](narrows_qdisc::Config::carries_on) says so, and it keeps the same limit by the same strategy with the same
//! number of queues. Nobody else decides this.
//!
//! *The order of a change, so that a bad one changes nothing:* make the plans of every port; if all
//! went well reconcile each, [`Installation::commit`], and give every queue's worker its
//! specification.

use narrows_classify::Classifier;
use narrows_coordination::{Below, Coordination, Destinations, Tree};
use narrows_policy::{Handle, Key, NodeStats, Parent, Plan, PlanClass, PlanNode, SharedLimit};
use narrows_qdisc::htb::Class;
use narrows_qdisc::{Config, Hearsay, Metering, NodeId, Spec, Stats, pacing};
use narrows_units::Nanos;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// See the module's documentation.
pub struct Installation {
    plan: Plan,
    names: BTreeMap<Key, NodeId>,
    /// The last name that was given out.
    last_name: u64,
    limits: BTreeMap<Handle, Arc<Coordination>>,
    /// The classes of the `htb` at the root, where there is one.
    tree: Option<Arc<Tree>>,
    /// What assigns packets to them.
    classifier: Arc<Classifier>,
    /// What the queues hear of destinations, once any of them has listened. It stays the port's
    /// whatever runs there next: what is congested is so for any qdisc, and is forgotten by its
    /// time.
    destinations: Option<Arc<Destinations>>,
    /// The limits that carry on.
    kept: Vec<Handle>,
}

impl Installation {
    /// What it takes to run `plan` where `previous` runs, and what each queue's worker is to take
    /// over. Nothing that runs has changed before [`Installation::commit`].
    pub fn reconcile(plan: Plan, previous: Option<&Self>) -> (Self, Vec<Spec>) {
        let classifier = Arc::new(Classifier::new(plan.filters.clone()));
        let mut next = Self {
            plan,
            names: BTreeMap::new(),
            last_name: previous.map_or(0, |previous| previous.last_name),
            limits: BTreeMap::new(),
            tree: None,
            classifier,
            destinations: previous.and_then(|previous| previous.destinations.clone()),
            kept: Vec::new(),
        };
        let roots = next.plan.roots.clone();
        for (queue, root) in roots.iter().enumerate() {
            if queue == 0 || roots[queue - 1] != *root {
                next.name(*root, previous);
            }
        }
        if !next.keeps_tree(previous) {
            // Nobody uses it yet, and whoever begins to is to find its classes.
            next.commit_tree();
        }
        let specs = roots.iter().enumerate();
        let specs = specs.map(|(queue, root)| next.spec(*root, queue, previous)).collect();
        (next, specs)
    }

    /// Names the qdisc `key` and those below it: as `above` has them where they carry on.
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
        if let Config::Htb(_) = node.config {
            let present = above.and_then(|previous| previous.tree.clone());
            self.tree = Some(present.unwrap_or_default());
        }
        for child in node.children {
            self.name(child, above);
        }
    }

    /// Whether the qdisc `key` carries on as `node` of `plan`.
    fn carries_on(&self, key: &Key, node: &PlanNode, plan: &Plan) -> bool {
        let terms = |of: &Plan, handle: Option<Handle>| {
            let (SharedLimit { strategy, counts_hosts, .. }, queues) = *of.limits.get(&handle?)?;
            Some((strategy, counts_hosts, queues))
        };
        self.plan.nodes.get(key).is_some_and(|present| {
            present.config.carries_on(&node.config)
                && present.limit == node.limit
                && terms(&self.plan, present.limit) == terms(plan, node.limit)
                && self.plan.queues() == plan.queues()
        })
    }

    /// What the worker of `queue` is to run at `key`.
    fn spec(&mut self, key: Key, queue: usize, previous: Option<&Self>) -> Spec {
        let (Some(node), Some(&id)) = (self.plan.nodes.get(&key).cloned(), self.names.get(&key))
        else {
            unreachable!("the plan has no {key}")
        };
        let is_new = previous.and_then(|previous| previous.names.get(&key)) != Some(&id);
        let mut spec = Spec { id, ..Spec::new(node.config) };
        if let Some(handle) = node.limit
            && let Some(limit) = self.limits.get(&handle)
        {
            spec.metering = Metering::Kept;
            if is_new && let Some((shared, queues)) = self.plan.limits.get(&handle) {
                // A limit of one queue has one seat, whichever queue that is.
                spec.metering = Metering::Shared(limit.seat(if *queues > 1 { queue } else { 0 }));
                spec.census = shared.counts_hosts.then(|| limit.census());
            }
        }
        if let (Config::Htb(_), Some(tree)) = (&spec.config, &self.tree) {
            spec.tree = is_new.then(|| tree.seat());
            spec.classifier = Some(Arc::clone(&self.classifier));
            // What is below its classes is the tree's to hand out.
            return spec;
        }
        spec.hearsay = self.hearsay(&spec.config);
        spec.children =
            node.children.into_iter().map(|child| self.spec(child, queue, previous)).collect();
        spec
    }

    /// The view of what the port's queues hear, for a qdisc that listens. One that is retuned may
    /// only now begin to.
    fn hearsay(&mut self, config: &Config) -> Option<Box<dyn Hearsay>> {
        let Config::Pacing(pacing::Config { safeguard: true, .. }) = config else { return None };
        Some(self.destinations.get_or_insert_with(Destinations::new).hearsay())
    }

    /// Sets the new figures of the limits that carry on. To be called once everything has been
    /// validated and before the specifications are sent.
    pub fn commit(&self) {
        for handle in &self.kept {
            if let (Some(limit), Some((shared, _))) =
                (self.limits.get(handle), self.plan.limits.get(handle))
            {
                limit.set_limit(shared.limit);
            }
        }
        self.commit_tree();
    }

    /// Whether its tree is that of `previous`.
    fn keeps_tree(&self, previous: Option<&Self>) -> bool {
        let before = previous.and_then(|previous| previous.tree.as_ref());
        match (&self.tree, before) {
            (Some(tree), Some(before)) => Arc::ptr_eq(tree, before),
            _ => false,
        }
    }

    fn commit_tree(&self) {
        if let Some(tree) = &self.tree {
            tree.become_these(&self.classes());
        }
    }

    /// The classes of the tree, with the names of the qdiscs below them.
    fn classes(&self) -> BTreeMap<u32, (Class, Option<Below>)> {
        let below = |key: Key| {
            let config = self.plan.nodes.get(&key)?.config.clone();
            Some(Below { id: *self.names.get(&key)?, config })
        };
        let class =
            |(id, class): (&u32, &PlanClass)| (*id, (class.class, class.leaf.and_then(below)));
        self.plan.classes.iter().map(class).collect()
    }

    /// What runs.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The figures of every qdisc of the port. `per_queue[i]` is what `Slot::stats` of queue `i`
    /// yields. Below an `mq` or a `cake_mq` each queue's qdiscs are entries of their own, and it is
    /// their sum; otherwise the queues run the same tree and each entry is a sum over them.
    ///
    /// The figures of a qdisc that a queue has not replaced yet are nobody's any more.
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
            // As in the kernel it is a sum of what every qdisc counts, and no more.
            let mut stats = Stats::default();
            let roots = self.plan.roots.iter().filter_map(|root| self.names.get(root));
            roots.filter_map(|name| sums.get(name)).for_each(|root| stats.merge(root));
            stats.detail = None;
            nodes.push(NodeStats { parent: Parent::Root, handle: Some(handle), stats });
        }
        for key in self.plan.keys() {
            let name = self.names.get(&key);
            let stats = name.and_then(|name| sums.remove(name)).unwrap_or_default();
            nodes.push(NodeStats { parent: key.parent, handle: key.handle, stats });
        }
        nodes
    }

    /// Up to when each of its limits has been used up: what an equal policy on as many queues goes
    /// on from in another process ([`Installation::resume`]).
    pub fn spent_until(&self, now: Nanos) -> BTreeMap<Handle, Nanos> {
        self.limits.iter().map(|(handle, limit)| (*handle, limit.spent_until(now))).collect()
    }

    /// Has its limits, which nobody has used yet, begin where those of another process ended: each
    /// as used up until its time in `spent`, and until `now` where it has none.
    pub fn resume(&self, spent: &BTreeMap<Handle, Nanos>, now: Nanos) {
        for (handle, limit) in &self.limits {
            limit.resume(spent.get(handle).copied().unwrap_or(now));
        }
    }
}
