//! One tree of classes for all qdiscs of a plan.
//!
//! *Classes.* Each class of each qdisc is a class of the program's tree, and so is each `tbf`. The
//! classes of a qdisc in a class are below that one. What only orders (`prio`, `drr`, `ets`) has
//! classes with next to no assured rate, which borrow the rate of the class above by their order
//! and their weight. Without a rate above there is nothing to order, because nothing waits: such a
//! class only counts, and what is in it begins a tree of its own.
//!
//! *By FlowValve's rules* a tree has labels instead: the weight of a class, and from whom it
//! borrows. It is at the root, and what is in its classes is a FIFO or nothing: its classes meter
//! by themselves, and know no classes of another qdisc.
//!
//! *Scopes.* What has filters or an order of its own, a qdisc or a class of an `htb`, becomes a
//! scope, in which the program looks for a packet's class. A scope leads to classes, or to scopes
//! within it.
//!
//! *Without a path.* A packet that another qdisc names a class that is not there goes the way of
//! packets without a class, in each qdisc on it: as in the qdiscs of the other plane, to which the
//! classification has no more to say then.

use crate::numbers::DIRECT;
use crate::rates::{Own, Rates};
use crate::{Enforcement, Name, Refusal};
use narrows_bpf::tree::layout::PRIORITIES;
use narrows_classify::{Filter, Otherwise, Rules};
use narrows_coordination::{Label, Lenders, Strategy, TreeKind, TreeStrategy};
use narrows_policy::{Handle, Key, Plan, PlanClass};
use narrows_qdisc::htb::Unclassified;
use narrows_qdisc::{Config, bands, fifo, fq_codel, htb, tbf};
use narrows_units::wire::Overhead;
use narrows_units::{Bytes, Nanos};
use std::collections::{BTreeMap, BTreeSet};

/// The frame by which a limit in packets is reckoned, in bytes.
const FRAME: u64 = 1514;
/// The least burst by FlowValve's rules: two full frames.
const BURST_MIN: Bytes = Bytes(2 * FRAME);

/// The classes of a plan, and how packets find them.
pub(crate) struct Tree<'a> {
    pub(crate) classes: BTreeMap<Name, Class>,
    /// The outermost one first.
    pub(crate) scopes: Vec<Scope<'a>>,
    /// What priorities name.
    pub(crate) names: BTreeMap<u32, Target>,
    /// Where packets of a class go that no qdisc in it classifies.
    pub(crate) ends: BTreeMap<Name, Target>,
    plan: &'a Plan,
    enforcement: Enforcement,
    /// The length of packets where it is not that of frames.
    stab: Overhead,
}

/// A class.
pub(crate) struct Class {
    /// The class above it.
    pub(crate) parent: Option<Name>,
    /// Where its rates come from; `None` if nothing limits it.
    pub(crate) own: Option<Own>,
    /// Its rates, as far as the classes above let them pass.
    pub(crate) rates: Option<Rates>,
    /// Who borrows first.
    pub(crate) prio: u8,
    /// Its weight within that.
    pub(crate) quantum: u32,
    /// Its virtual queue, if it is a leaf.
    pub(crate) queue: Option<Queue>,
    /// The class of an `htb` whose assured rate is also its own: the nearest one above, if what is
    /// between them only orders or limits.
    pub(crate) lender: Option<Name>,
    /// The lender of the classes below it.
    lends: Option<Name>,
    /// What it has by FlowValve's rules; `None` by HTB's.
    pub(crate) valve: Option<Valve>,
}

/// What a class has by FlowValve's rules.
pub(crate) struct Valve {
    /// Its weight among those beside it with the same priority.
    pub(crate) weight: u32,
    /// Those from which it borrows; `None` if they follow from the tree.
    pub(crate) lenders: Option<Vec<Name>>,
    /// What its bucket holds, and that of its ceiling, beyond an epoch's worth.
    pub(crate) bursts: [Bytes; 2],
}

impl Valve {
    /// Of the class `class` of the qdisc `handle`, with the label `label`.
    fn of(handle: Handle, class: &htb::Class, label: &Label) -> Self {
        let lenders = match label.lenders {
            Lenders::Beside => None,
            named @ Lenders::Only(_) => Some(named.named().map(|id| (handle, id)).collect()),
        };
        let bursts = [class.burst, class.cburst].map(|burst| burst.max(BURST_MIN));
        Self { weight: label.weight(), lenders, bursts }
    }
}

/// The parameters of a virtual queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Queue {
    pub(crate) limit: Bytes,
    /// Whether it was configured explicitly.
    pub(crate) is_stated: bool,
    /// The AQM's target and interval, where a `codel` says them.
    pub(crate) aqm: Option<[Nanos; 2]>,
    /// Among whom its rate is shared first.
    pub(crate) hosts: fq_codel::Hosts,
}

impl Queue {
    fn of(limit: Bytes) -> Self {
        Self { limit, is_stated: false, aqm: None, hosts: fq_codel::Hosts::None }
    }

    fn of_packets(packets: u32) -> Self {
        Self::of(Bytes(u64::from(packets) * FRAME))
    }
}

/// Where a packet's class is looked up: a qdisc with classes, or a class with filters.
pub(crate) struct Scope<'a> {
    /// The major number of its qdisc; 0 if it is a class.
    pub(crate) major: u32,
    /// The target of what names another class.
    pub(crate) unknown: Target,
    /// The targets of what no filter matches, by priority.
    pub(crate) otherwise: [Target; PRIORITIES],
    pub(crate) filters: Vec<(&'a Filter, Target)>,
}

/// Where a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// To this class.
    Class(Name),
    /// On to this scope.
    Scope(usize),
    /// It is dropped.
    Nowhere,
}

/// How packets come into a qdisc.
#[derive(Clone, Copy)]
struct Entry {
    /// By its filters.
    classified: Target,
    /// Without a path.
    otherwise: Target,
}

/// What a qdisc is in.
#[derive(Clone, Copy)]
enum At {
    /// The port.
    Root,
    /// A class without a rate.
    Free(Name),
    /// A class of the tree.
    Class(Name),
}

impl At {
    fn parent(self) -> Option<Name> {
        if let Self::Class(name) = self { Some(name) } else { None }
    }
}

impl<'a> Tree<'a> {
    /// The classes below `root`, for limits that hold by `enforcement`; `None` if there is none.
    pub(crate) fn of(
        plan: &'a Plan,
        root: Key,
        enforcement: Enforcement,
    ) -> Result<Option<Self>, Refusal> {
        let outermost = below_stab(plan, root);
        if matches!(config(plan, outermost), None | Some(Config::Noqueue | Config::Fifo(_))) {
            return Ok(None);
        }
        let (classes, scopes, names, ends) = Default::default();
        let stab = Overhead::NONE;
        let mut tree = Self { classes, scopes, names, ends, plan, enforcement, stab };
        let Entry { classified, otherwise } = tree.place(root, plan.rules.get(&root), At::Root)?;
        if tree.scopes.is_empty() {
            let (unknown, otherwise) = (otherwise, [classified; PRIORITIES]);
            tree.scopes.push(Scope { major: 0, unknown, otherwise, filters: Vec::new() });
        }
        Ok(Some(tree))
    }

    /// The qdisc at `key`, with what is below it.
    fn place(&mut self, key: Key, rules: Option<&'a Rules>, at: At) -> Result<Entry, Refusal> {
        match (config(self.plan, key), key.handle) {
            (Some(Config::Tbf(tbf)), Some(handle)) => self.tbf(key, handle, tbf, rules, at),
            (Some(Config::Htb(htb)), Some(handle)) => self.htb(handle, *htb, rules, at),
            (Some(Config::Bands(bands)), Some(handle)) => self.bands(key, handle, bands, rules, at),
            (Some(Config::Stab(overhead)), _) => {
                let before = std::mem::replace(&mut self.stab, *overhead);
                let entry = self.place(below_stab(self.plan, key), rules, at);
                self.stab = before;
                entry
            }
            (config, _) => self.leaf(self.queue(config)?, at),
        }
    }

    /// The charge of a frame for what is charged `own`, with the length of packets there.
    fn charge(&self, own: Overhead) -> Result<Overhead, Refusal> {
        let what = "overhead, mpu or linklayer below a stab with cells";
        let instead = "say them in one place";
        self.stab.then(own).ok_or(Refusal::Filter { what, instead })
    }

    /// The virtual queue that replaces a qdisc.
    fn queue(&self, config: Option<&Config>) -> Result<Queue, Refusal> {
        let with_aqm = |limit: u32, target: Nanos, interval: Nanos| {
            let aqm = Some([target, interval]);
            Ok(Queue { aqm, ..Queue::of_packets(limit) })
        };
        match config {
            None | Some(Config::Noqueue) => Ok(Queue::of(Bytes::ZERO)),
            Some(Config::Fifo(fifo::Config::Packets(limit))) => Ok(Queue::of_packets(*limit)),
            Some(Config::Fifo(fifo::Config::Bytes(limit))) => Ok(Queue::of(*limit)),
            Some(Config::Codel(codel)) => with_aqm(codel.limit, codel.target, codel.interval),
            // There each class is fair to its flows.
            Some(Config::FqCodel(fq)) if self.enforcement.is_at_host() => {
                let queue = with_aqm(fq.limit, fq.target, fq.interval)?;
                Ok(Queue { hosts: fq.hosts, ..queue })
            }
            Some(Config::Fq(fq)) if self.enforcement.is_at_host() => {
                Ok(Queue::of_packets(fq.limit))
            }
            Some(other) => Err(self.needs_queue(kind(other))),
        }
    }

    /// The refusal of what only queues can do.
    fn needs_queue(&self, what: &'static str) -> Refusal {
        if self.enforcement.is_at_host() {
            Refusal::NotAtHost(what)
        } else {
            Refusal::NeedsQueue(what)
        }
    }

    /// A virtual queue.
    fn leaf(&mut self, queue: Queue, at: At) -> Result<Entry, Refusal> {
        let name = match at {
            At::Class(name) => name,
            At::Root | At::Free(_) if queue.aqm.is_some() => {
                return Err(self.needs_queue("codel or fq_codel without a rate above it"));
            }
            At::Free(name) => {
                let (parent, own, rates, lender, lends) = (None, None, None, None, None);
                let (prio, quantum, queue, valve) = (0, 1, None, None);
                let class =
                    Class { parent, own, rates, prio, quantum, queue, lender, lends, valve };
                self.classes.insert(name, class);
                name
            }
            At::Root => {
                return Ok(Entry { classified: Target::Nowhere, otherwise: Target::Nowhere });
            }
        };
        if let Some(class) = self.classes.get_mut(&name) {
            class.queue = Some(queue);
        }
        let here = Target::Class(name);
        Ok(Entry { classified: here, otherwise: here })
    }

    fn tbf(
        &mut self,
        key: Key,
        handle: Handle,
        tbf: &tbf::Config,
        rules: Option<&'a Rules>,
        at: At,
    ) -> Result<Entry, Refusal> {
        if tbf.peak.is_some() {
            return Err(Refusal::PeakRate);
        }
        let limits = self.plan.limits.get(&handle);
        if limits.is_some_and(|(shared, _)| shared.strategy != Strategy::FAIR) {
            return Err(Refusal::Coordination("coordination"));
        }
        let below = self.plan.nodes.get(&key).and_then(|node| node.children.first()).copied();
        if let Some(below) = below
            && let Some(Config::Htb(htb)) = config(self.plan, below)
            && htb.unclassified == Unclassified::Dropped
        {
            // Its bands share its rate as classes of a tree, whose root keeps that.
            return self.place(below, rules, at);
        }
        let name = (handle, 0);
        let own = Own::Says(Rates::of_tbf(tbf, self.charge(tbf.overhead)?));
        self.add(name, at.parent(), own, (0, 1), false);
        let entry = match below {
            Some(below) => self.place(below, rules, At::Class(name))?,
            None => self.leaf(Queue::of(tbf.limit), At::Class(name))?,
        };
        let queue = self.classes.get_mut(&name).and_then(|class| class.queue.as_mut());
        if let Some(queue) = queue {
            queue.limit = queue.limit.min(tbf.limit);
            queue.is_stated = true;
        }
        Ok(entry)
    }

    fn htb(
        &mut self,
        handle: Handle,
        htb: htb::Config,
        rules: Option<&'a Rules>,
        at: At,
    ) -> Result<Entry, Refusal> {
        let by_valve = match self.plan.trees.get(&handle) {
            None | Some(TreeKind::Htb(TreeStrategy::Fair)) => false,
            Some(TreeKind::Htb(TreeStrategy::FlowValve)) => self.may_have_valves(at)?,
            Some(TreeKind::Htb(TreeStrategy::Lock)) => {
                return Err(Refusal::Coordination("coordination"));
            }
            Some(TreeKind::Hfsc) => return Err(self.needs_queue("hfsc")),
        };
        let scope = self.open();
        // Bands that share a rate are classes of a tree, too.
        let is_bands = htb.unclassified == Unclassified::Dropped;
        let classes: BTreeMap<u32, &PlanClass> = self
            .plan
            .classes
            .get(&handle)
            .into_iter()
            .flatten()
            .map(|(id, class)| (*id, &**class))
            .collect();
        let ids = from_above(&classes);
        let prios = prios(&classes, &ids);
        for &id in &ids {
            let narrows_qdisc::Class::Htb(class) = classes[&id].class else { continue };
            let parent = class.parent.map_or(at.parent(), |parent| Some((handle, parent)));
            let own = Own::Says(Rates::of_class(&class, self.charge(class.overhead)?));
            let prio = if by_valve { Some(class.prio) } else { prios.get(&id).copied() };
            let order = (prio.unwrap_or(0), class.quantum);
            self.add((handle, id), parent, own, order, !is_bands);
            if by_valve && let Some(added) = self.classes.get_mut(&(handle, id)) {
                let label = classes[&id].label.as_deref().copied().unwrap_or_default();
                added.valve = Some(Valve::of(handle, &class, &label));
            }
        }
        let inner: BTreeSet<u32> =
            classes.values().filter_map(|class| class.class.parent()).collect();
        let mut entries = BTreeMap::new();
        for (&id, class) in &classes {
            if let Some(leaf) = class.leaf.filter(|_| !inner.contains(&id)) {
                if by_valve {
                    self.may_be_behind_a_valve(leaf)?;
                }
                let rules = below(rules, id);
                entries.insert(id, self.place(leaf, rules, At::Class((handle, id)))?);
            }
        }
        let otherwise = match (entries.get(&htb.default), htb.unclassified) {
            (Some(entry), _) => entry.otherwise,
            (None, Unclassified::Dropped) => Target::Nowhere,
            (None, Unclassified::Sent(limit)) => {
                // Classes have assured rates: without one it would get nothing beside them.
                let order = (0, bands::QUANTUM_MAX);
                let at = self.band((handle, DIRECT), at, Own::Assured, order);
                self.leaf(Queue::of_packets(limit), at)?.otherwise
            }
        };
        let default = Otherwise::Class(htb.default);
        Ok(self.close(scope, handle, rules, default, &entries, otherwise))
    }

    /// Whether a tree by FlowValve's rules may be there: always, or this refuses it.
    fn may_have_valves(&self, at: At) -> Result<bool, Refusal> {
        if self.enforcement.is_at_host() {
            return Err(Refusal::NotAtHost("htb with coordination flowvalve"));
        }
        let (what, instead) = ("coordination flowvalve in another qdisc", "give it to the root");
        match at {
            At::Root => Ok(true),
            At::Free(_) | At::Class(_) => Err(Refusal::Filter { what, instead }),
        }
    }

    /// Refuses what by FlowValve's rules is in no class.
    fn may_be_behind_a_valve(&self, leaf: Key) -> Result<(), Refusal> {
        let (what, instead) = match config(self.plan, leaf) {
            Some(Config::Codel(_)) => (
                "codel below coordination flowvalve",
                "leave it out, since nothing waits there that it could look at",
            ),
            Some(Config::Tbf(_) | Config::Htb(_) | Config::Bands(_) | Config::Stab(_)) => (
                "qdiscs with rates, classes or a stab below coordination flowvalve",
                "give rates and classes to the htb itself",
            ),
            _ => return Ok(()),
        };
        Err(Refusal::Filter { what, instead })
    }

    fn bands(
        &mut self,
        key: Key,
        handle: Handle,
        bands: &bands::Config,
        rules: Option<&'a Rules>,
        at: At,
    ) -> Result<Entry, Refusal> {
        let scope = self.open();
        let strict = bands.classes.iter().filter(|class| class.quantum.is_none()).count();
        let children = self.plan.nodes.get(&key).map_or(&[][..], |node| &node.children);
        let mut entries = BTreeMap::new();
        for ((place, class), child) in bands.classes.iter().enumerate().zip(children) {
            let id = u32::from(class.id);
            // Those that take turns are behind all others.
            let order = (place.min(strict) as u8, class.quantum.unwrap_or(bands::QUANTUM_MAX));
            let at = self.band((handle, id), at, Own::Lent, order);
            entries.insert(id, self.place(*child, below(rules, id), at)?);
        }
        let default = bands.otherwise.map_or(0, u32::from);
        let otherwise = entries.get(&default).map_or(Target::Nowhere, |entry| entry.otherwise);
        let default = Otherwise::Class(default);
        Ok(self.close(scope, handle, rules, default, &entries, otherwise))
    }

    /// The class `name`, which has what the class above it has, in `at`; what is in it has this
    /// place.
    fn band(&mut self, name: Name, at: At, own: Own, order: (u8, u32)) -> At {
        let above = at.parent().and_then(|above| self.classes.get(&above)?.rates);
        if above.is_none() {
            return At::Free(name);
        }
        self.add(name, at.parent(), own, order, false);
        At::Class(name)
    }

    /// Adds a class whose rates are `own`, as far as the class above lets them pass; `order` is its
    /// priority and weight. Whether it is a class of an `htb`, whose assured rate serves what is in
    /// it.
    fn add(
        &mut self,
        name: Name,
        parent: Option<Name>,
        own: Own,
        (prio, quantum): (u8, u32),
        is_of_htb: bool,
    ) {
        let above = parent.and_then(|parent| self.classes.get(&parent));
        let lender = above.and_then(|above| above.lends).filter(|_| !is_of_htb);
        let is_outermost = is_outermost(name, parent);
        let rates = own.below(above.and_then(|above| above.rates), is_outermost);
        let lends = if is_of_htb { Some(name) } else { lender };
        let (own, queue, valve) = (Some(own), None, None);
        let class = Class { parent, own, rates, prio, quantum, queue, lender, lends, valve };
        self.classes.insert(name, class);
    }

    /// A new scope, not filled yet.
    fn open(&mut self) -> usize {
        let (unknown, otherwise) = (Target::Nowhere, [Target::Nowhere; PRIORITIES]);
        self.scopes.push(Scope { major: 0, unknown, otherwise, filters: Vec::new() });
        self.scopes.len() - 1
    }

    /// Fills the scope `at` of the qdisc `handle` with `rules`, or only a `default` without them,
    /// and adds those of its classes with filters. `entries` are its leaf classes; packets of
    /// others go to `unknown`.
    fn close(
        &mut self,
        at: usize,
        handle: Handle,
        rules: Option<&'a Rules>,
        default: Otherwise,
        entries: &BTreeMap<u32, Entry>,
        unknown: Target,
    ) -> Entry {
        self.ends.extend(entries.iter().map(|(id, entry)| ((handle, *id), entry.otherwise)));
        let leaf = |id: u32| entries.get(&id).map_or(unknown, |entry| entry.classified);
        let otherwise = match rules.map_or(default, |rules| rules.otherwise) {
            Otherwise::Class(id) => [leaf(id); PRIORITIES],
            Otherwise::Priority(map) => map.map(leaf),
        };
        let blocks = || rules.into_iter().flat_map(|rules| &rules.filters);
        let inner = blocks().filter(|(id, filters)| **id != 0 && !filters.is_empty());
        let inner: BTreeMap<u32, usize> = inner.map(|(id, _)| (*id, self.open())).collect();
        // Only an `htb` has inner classes, and its default is the same for all priorities.
        let unfiltered = blocks().filter(|(id, filters)| **id != 0 && filters.is_empty());
        let unfiltered: BTreeSet<u32> = unfiltered.map(|(id, _)| *id).collect();
        let target = |id: u32| match inner.get(&id) {
            Some(at) => Target::Scope(*at),
            None if unfiltered.contains(&id) => otherwise[0],
            None => leaf(id),
        };
        for (id, filters) in blocks().filter(|(_, filters)| !filters.is_empty()) {
            let scope = &mut self.scopes[inner.get(id).copied().unwrap_or(at)];
            let assigned = filters.iter().map(|(_, filter)| (&**filter, target(filter.class)));
            (scope.filters, scope.otherwise) = (assigned.collect(), otherwise);
        }
        let scope = &mut self.scopes[at];
        (scope.unknown, scope.otherwise) = (unknown, otherwise);
        if let Some(rules) = rules {
            scope.major = rules.major;
            let named = entries.keys().chain(inner.keys()).chain(&unfiltered);
            // As priorities say them: with 16 bits for each number.
            let fits = |number: u32| (1..=u32::from(u16::MAX)).contains(&number);
            let named = named.filter(|id| fits(rules.major) && fits(**id));
            self.names.extend(named.map(|id| (rules.major << 16 | id, target(*id))));
        }
        Entry { classified: Target::Scope(at), otherwise: unknown }
    }
}

/// The rules in the class `id` of the qdisc with `rules`.
fn below(rules: Option<&Rules>, id: u32) -> Option<&Rules> {
    rules.and_then(|rules| rules.below.get(&id))
}

/// All of `classes`, each after the one above it.
fn from_above(classes: &BTreeMap<u32, &PlanClass>) -> Vec<u32> {
    let mut ids: Vec<u32> = classes.keys().copied().collect();
    ids.sort_by_cached_key(|id| path(classes, *id).count());
    ids
}

/// The classes from `id` up to the root.
fn path<'a>(classes: &'a BTreeMap<u32, &'a PlanClass>, id: u32) -> impl Iterator<Item = u32> + 'a {
    let above = |id: &u32| classes.get(id)?.class.parent();
    std::iter::successors(Some(id), above).take(classes.len())
}

/// The best priority of a leaf below each class, or its own: an inner class borrows for those.
/// `ids` are all of them, each after the one above it.
fn prios(classes: &BTreeMap<u32, &PlanClass>, ids: &[u32]) -> BTreeMap<u32, u8> {
    let mut prios = BTreeMap::new();
    for id in ids.iter().rev() {
        let class = classes[id];
        if class.leaf.is_some()
            && let Some(htb) = class.class.htb()
        {
            better(&mut prios, *id, htb.prio);
        }
        if let (Some(parent), Some(prio)) = (class.class.parent(), prios.get(id).copied()) {
            better(&mut prios, parent, prio);
        }
    }
    prios
}

/// Sets the priority of a class, if it is better than what it has.
fn better(prios: &mut BTreeMap<u32, u8>, id: u32, prio: u8) {
    prios.entry(id).and_modify(|best| *best = prio.min(*best)).or_insert(prio);
}

/// Whether the class above the class `name` is not one of the qdisc of that, or there is none.
pub(crate) fn is_outermost(name: Name, parent: Option<Name>) -> bool {
    parent.is_none_or(|(handle, _)| handle != name.0)
}

/// The qdisc in the size table `key`, or `key` itself.
fn below_stab(plan: &Plan, key: Key) -> Key {
    match plan.nodes.get(&key) {
        Some(node) if matches!(*node.config, Config::Stab(_)) => {
            node.children.first().copied().unwrap_or(key)
        }
        _ => key,
    }
}

fn config(plan: &Plan, key: Key) -> Option<&Config> {
    plan.nodes.get(&key).map(|node| &*node.config)
}

fn kind(config: &Config) -> &'static str {
    match config {
        Config::Noqueue => "noqueue",
        Config::Fifo(_) => "pfifo",
        Config::Tbf(_) => "tbf",
        Config::Htb(_) => "htb",
        Config::Bands(_) => "prio, drr or ets",
        Config::Cake(_) => "cake",
        Config::Fq(_) => "fq",
        Config::Codel(_) => "codel",
        Config::FqCodel(_) => "fq_codel",
        Config::Sfq(_) => "sfq",
        Config::Netem(_) => "netem",
        Config::Pacing(_) => "carousel, eiffel or flowbundler",
        Config::Red(_) => "red",
        Config::Stab(_) => "stab",
    }
}
