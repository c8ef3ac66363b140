//! Compiles a plan into the contents of maps.

use crate::rules::tables;
use crate::terms::{Acting, terms};
use crate::{Name, Numbers, Refusal};
use narrows_bpf::tree::layout::{self, LEVELS_MAX, NOWHERE, PRIORITIES};
use narrows_bpf::tree::{Image, Names};
use narrows_classify::{Filter, Otherwise, Rules};
use narrows_coordination::{Strategy, TreeStrategy};
use narrows_policy::{Handle, Key, Plan, PlanClass};
use narrows_qdisc::htb::{Class, Unclassified};
use narrows_qdisc::{Config, fifo, tbf};
use narrows_units::wire::Framing;
use narrows_units::{Bytes, Nanos};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The frame by which a limit in packets is reckoned, in bytes.
const FRAME: u64 = 1514;
/// The shortest virtual queue: what a burst of a driver's poll and a CPU that waits need.
const LIMIT_MIN: Nanos = Nanos::from_millis(5);
/// The default maximum. The rate may be exceeded by this much at once, so it must not be long; and
/// a flow can make up for only this much after a drop, so it must not be short. docs/xdp.md has the
/// effect of both.
const LIMIT_MAX: Nanos = Nanos::from_millis(100);
/// The longest virtual queue if a `tbf` sets it, rather than a qdisc's default.
const LIMIT_MAX_STATED: Nanos = Nanos::from_millis(250);
/// The AQM's target is all of the virtual queue but this part, unless a `codel` sets another one.
/// In this part a flow grows until the sender notices the drop.
const TARGET_BELOW: u64 = 10;
/// How long senders have to respond, unless a `codel` says so (RFC 8289).
const INTERVAL: Nanos = Nanos::from_millis(100);
/// The time for which a busy CPU buys at once. Short compared with the virtual queue for any number
/// of CPUs.
const BATCH: u32 = 50_000;

/// A plan, ready to be installed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compiled {
    /// The contents of the maps.
    pub image: Image,
    /// The numbers of its classes.
    pub numbers: Numbers,
}

/// The program's plan for `plan`. Classes that are in `before` keep their numbers.
///
/// # Errors
/// If this plane cannot run it, in a sentence that says what can.
pub fn compile(plan: &Plan, before: &Numbers) -> Result<Compiled, Refusal> {
    let root = single_root(plan)?;
    // Those at ingress run in front.
    if plan.ends.iter().any(|filters| !filters.is_empty()) {
        let instead = "give them to ingress of the other port";
        return Err(Refusal::Filter { what: "filters at egress of a port", instead });
    }
    let Some(tree) = Tree::of(plan, root)? else {
        return Ok(Compiled { image: Image::default(), numbers: Numbers::default() });
    };
    let rules = plan.rules.get(&root);
    let names = tree.classes.keys().map(|id| -> Name { (tree.handle, *id) });
    let actions = rules.into_iter().flat_map(filters).flat_map(|filter| filter.actions.clone());
    let numbers = before.next(names, actions)?;
    let acting = Acting { actions: &plan.actions, numbers: &numbers };
    let image = tree.image(rules, &acting)?;
    Ok(Compiled { image, numbers })
}

/// The filters of a qdisc.
fn filters(rules: &Rules) -> impl Iterator<Item = &Filter> {
    let at_root = rules.filters.get(&0).into_iter();
    at_root.flat_map(|filters| filters.iter()).map(|(_, filter)| -> &Filter { filter })
}

/// The plan of all queues.
fn single_root(plan: &Plan) -> Result<Key, Refusal> {
    match plan.roots.split_first() {
        Some((root, others)) if plan.above.is_none() && others.iter().all(|one| one == root) => {
            Ok(*root)
        }
        _ => Err(Refusal::NeedsQueue("mq")),
    }
}

/// The classes of a plan.
struct Tree {
    /// The qdisc that has them.
    handle: Handle,
    classes: BTreeMap<u32, Leaf>,
    /// The class of packets that have none; `None` if they pass, 0 if they are dropped.
    otherwise: Option<u32>,
}

/// A class, with its virtual queue if it is a leaf.
struct Leaf {
    class: Class,
    queue: Option<Queue>,
}

/// The parameters of a virtual queue.
#[derive(Clone, Copy)]
struct Queue {
    limit: Bytes,
    /// Whether it was configured explicitly.
    is_stated: bool,
    /// The AQM's target and interval, where a `codel` says them.
    aqm: Option<[Nanos; 2]>,
}

impl Tree {
    /// The classes below `root`; `None` if nothing there keeps a rate, so everything passes.
    fn of(plan: &Plan, root: Key) -> Result<Option<Self>, Refusal> {
        let (Some(config), Some(handle)) = (config(plan, root), root.handle) else {
            return Ok(None);
        };
        if let Some((shared, _)) = plan.limits.get(&handle)
            && shared.strategy != Strategy::FAIR
        {
            return Err(Refusal::Coordination("coordination"));
        }
        match config {
            Config::Noqueue | Config::Fifo(_) => Ok(None),
            Config::Htb(_) => Self::of_htb(plan, root).map(Some),
            Config::Tbf(tbf) => {
                if tbf.peak.is_some() {
                    return Err(Refusal::PeakRate);
                }
                let below = plan.nodes.get(&root).and_then(|node| node.children.first()).copied();
                let is_tree = |key: &Key| matches!(self::config(plan, *key), Some(Config::Htb(_)));
                match below.filter(is_tree) {
                    Some(bands) => Self::of_htb(plan, bands),
                    None => Self::of_tbf(plan, handle, tbf, below),
                }
                .map(Some)
            }
            Config::Bands(_) => Err(Refusal::NoRate("prio, drr or ets")),
            other => Err(Refusal::NeedsQueue(kind(other))),
        }
    }

    /// A tree of one.
    fn of_tbf(
        plan: &Plan,
        handle: Handle,
        tbf: &tbf::Config,
        below: Option<Key>,
    ) -> Result<Self, Refusal> {
        let class = Class {
            parent: None,
            rate: tbf.rate,
            ceil: tbf.rate,
            burst: tbf.burst,
            cburst: tbf.burst,
            prio: 0,
            quantum: 1,
            overhead: tbf.overhead,
        };
        let mut queue = match below {
            Some(below) => queue(plan, below)?,
            None => Queue { limit: tbf.limit, is_stated: true, aqm: None },
        };
        queue.limit = queue.limit.min(tbf.limit);
        queue.is_stated = true;
        let classes = BTreeMap::from([(0, Leaf { class, queue: Some(queue) })]);
        Ok(Self { handle, classes, otherwise: Some(0) })
    }

    fn of_htb(plan: &Plan, at: Key) -> Result<Self, Refusal> {
        let (Some(handle), Some(Config::Htb(htb))) = (at.handle, config(plan, at)) else {
            return Err(Refusal::Nested);
        };
        if plan.trees.get(&handle).is_some_and(|strategy| *strategy != TreeStrategy::Fair) {
            return Err(Refusal::Coordination("coordination"));
        }
        let classes = || plan.classes.get(&handle).into_iter().flatten();
        let inner: BTreeSet<u32> = classes().filter_map(|(_, class)| class.class.parent).collect();
        let leaf = |(&id, class): (&u32, &Arc<PlanClass>)| {
            let queue = match class.leaf.filter(|_| !inner.contains(&id)) {
                Some(below) => Some(queue(plan, below)?),
                None => None,
            };
            Ok((id, Leaf { class: class.class, queue }))
        };
        let classes = classes().map(leaf).collect::<Result<BTreeMap<_, _>, Refusal>>()?;
        let default = htb.default;
        let is_leaf = classes.get(&default).is_some_and(|class| class.queue.is_some());
        let otherwise = match htb.unclassified {
            _ if is_leaf => Some(default),
            Unclassified::Sent(_) => None,
            Unclassified::Dropped => Some(0),
        };
        Ok(Self { handle, classes, otherwise })
    }

    fn image(&self, rules: Option<&Rules>, acting: &Acting<'_>) -> Result<Image, Refusal> {
        let number = |id: u32| acting.numbers.get((self.handle, id));
        let leaf = |id: u32| {
            let class = self.classes.get(&id).filter(|class| class.queue.is_some());
            class.and_then(|_| number(id))
        };
        // Packets without a class pass as class 0, or are dropped.
        let without = match self.otherwise {
            None => 0,
            Some(id) => leaf(id).unwrap_or(NOWHERE),
        };
        let mut image = Image { otherwise: [without; PRIORITIES], ..Image::default() };
        for (id, class) in &self.classes {
            let Some(at) = number(*id) else { continue };
            image.classes.insert(at, self.class(*id, class, number)?);
        }
        if let Some(rules) = rules {
            if !rules.below.is_empty() {
                return Err(Refusal::Nested);
            }
            if rules.filters.iter().any(|(class, filters)| *class != 0 && !filters.is_empty()) {
                let instead = "give them to the root qdisc";
                return Err(Refusal::Filter { what: "filters at classes", instead });
            }
            let of_filter = |id: u32| leaf(id).unwrap_or(without);
            let tables = tables(filters(rules), of_filter)?;
            (image.masks, image.rules) = (tables.masks, tables.rules);
            image.terms = terms(&tables.rest, acting, of_filter)?;
            let named = self.classes.keys().filter_map(|id| {
                let minor = u16::try_from(*id).ok().filter(|minor| *minor != 0)?;
                Some((minor, leaf(*id)?))
            });
            let major = rules.major;
            image.names = Names { major, classes: named.collect(), unknown: without };
            if let Otherwise::Priority(map) = &rules.otherwise {
                image.otherwise = map.map(|id| leaf(id).unwrap_or(without));
            }
        }
        Ok(image)
    }

    fn class(
        &self,
        id: u32,
        leaf: &Leaf,
        number: impl Fn(u32) -> Option<u32>,
    ) -> Result<layout::Class, Refusal> {
        let Leaf { class, queue } = leaf;
        if class.overhead.framing != Framing::Whole {
            return Err(Refusal::Framing);
        }
        let depth = self.path(id).count();
        if depth > LEVELS_MAX {
            let (what, room) = ("classes one below the other", LEVELS_MAX);
            return Err(Refusal::Room { what, room, needed: depth });
        }
        let beside = |of: Option<u32>| move |(_, other): &(&u32, &Leaf)| other.class.parent == of;
        let ids = |(id, _): (&u32, &Leaf)| *id;
        let child = self.classes.iter().find(beside(Some(id))).map(ids);
        let sibling = self.classes.range(id + 1..).find(beside(class.parent)).map(ids);
        let numbered = |id: Option<u32>| id.and_then(&number).unwrap_or(0);
        let rate = class.rate.min(class.ceil);
        let of_queue = |queue: &Queue| {
            let most = if queue.is_stated { LIMIT_MAX_STATED } else { LIMIT_MAX };
            let limit = class.ceil.time_for(queue.limit).clamp(LIMIT_MIN, most);
            let target = Nanos(limit.0 - limit.0 / TARGET_BELOW);
            let [target, interval] = queue.aqm.unwrap_or([target, INTERVAL]);
            [limit, target, interval]
        };
        // Twice a leaf's: those that borrow may use half of it.
        let of_inner = [Nanos(2 * LIMIT_MAX.0), Nanos::MAX, INTERVAL];
        let [limit, target, interval] = queue.as_ref().map_or(of_inner, of_queue);
        let (bound, burst) = match class.parent {
            Some(_) => (class.ceil, class.cburst),
            None => (rate, class.burst),
        };
        Ok(layout::Class {
            rate: rate.bytes_per_sec(),
            ceil: class.ceil.bytes_per_sec(),
            burst: bound.time_for(burst).0,
            limit: limit.0,
            target: target.0,
            interval: interval.0,
            batch: BATCH,
            quantum: class.quantum.max(1),
            per_frame: class.overhead.per_frame,
            minimum: class.overhead.minimum,
            parent: numbered(class.parent),
            child: numbered(child),
            sibling: numbered(sibling),
            prio: u32::from(self.prio(id)),
        })
    }

    /// The classes from `id` up to the root.
    fn path(&self, id: u32) -> impl Iterator<Item = u32> + '_ {
        let above = |id: &u32| self.classes.get(id)?.class.parent;
        std::iter::successors(Some(id), above).take(self.classes.len())
    }

    /// The best priority of a leaf below `id`, or its own: an inner class borrows for those.
    fn prio(&self, id: u32) -> u8 {
        let leaves = self.classes.iter().filter(|(_, class)| class.queue.is_some());
        let below = leaves.filter(|(leaf, _)| self.path(**leaf).any(|above| above == id));
        below.map(|(_, leaf)| leaf.class.prio).min().unwrap_or(0)
    }
}

fn config(plan: &Plan, key: Key) -> Option<&Config> {
    plan.nodes.get(&key).map(|node| &*node.config)
}

/// The virtual queue that replaces the qdisc at `key`.
fn queue(plan: &Plan, key: Key) -> Result<Queue, Refusal> {
    let of = |limit: Bytes| Queue { limit, is_stated: false, aqm: None };
    let in_packets = |packets: u32| of(Bytes(u64::from(packets) * FRAME));
    match config(plan, key) {
        None | Some(Config::Noqueue) => Ok(of(Bytes::ZERO)),
        Some(Config::Fifo(fifo::Config::Packets(limit))) => Ok(in_packets(*limit)),
        Some(Config::Fifo(fifo::Config::Bytes(limit))) => Ok(of(*limit)),
        Some(Config::Codel(codel)) => {
            let aqm = Some([codel.target, codel.interval]);
            Ok(Queue { aqm, ..in_packets(codel.limit) })
        }
        Some(Config::Htb(_) | Config::Bands(_)) => Err(Refusal::Nested),
        Some(other) => Err(Refusal::NeedsQueue(kind(other))),
    }
}

fn kind(config: &Config) -> &'static str {
    match config {
        Config::Noqueue => "noqueue",
        Config::Fifo(_) => "pfifo",
        Config::Tbf(_) => "a tbf below another qdisc",
        Config::Htb(_) => "htb",
        Config::Bands(_) => "prio, drr or ets",
        Config::Cake(_) => "cake",
        Config::Fq(_) => "fq",
        Config::Codel(_) => "codel without a rate above it",
        Config::FqCodel(_) => "fq_codel",
        Config::Sfq(_) => "sfq",
        Config::Netem(_) => "netem",
        Config::Pacing(_) => "carousel, eiffel or flowbundler",
    }
}

#[cfg(test)]
mod tests;
