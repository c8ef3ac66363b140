//! What may leave: the ceiling of each class of an `htb` at the root, the upper limit of one of an
//! `hfsc`, the rate of a `tbf` there.
//!
//! Each has a bucket that is full at first, and nothing that leaves may find it empty. That of an
//! upper limit has no depth that counts: a class that others keep from its limit may have all of it
//! later. A frame counts with its own bytes here; with what is added to it, qdiscs only sell less.

use super::BEGIN;
use super::ports::Sent;
use narrows_coordination::{Strategy, TreeKind, TreeStrategy};
use narrows_policy::{Handle, Key, NodeStats, Plan};
use narrows_qdisc::hfsc::Curve;
use narrows_qdisc::{Config, Stats, hfsc};
use narrows_units::{Bytes, Nanos, Rate};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// No bucket of a tree is smaller, in time at its rate and in bytes.
const LEAST: (f64, f64) = (0.000_25, 4.0 * FULL);
/// And none of a `tbf`.
const LEAST_BURST: (f64, f64) = (0.000_032, 6.0 * 1538.0);
/// A full frame, in bytes.
const FULL: f64 = 1514.0;
/// What rounding may add, as a part.
const ROUNDING: f64 = 0.001;
/// Under a lock the rules are the kernel's. Tokens are whole nanoseconds, which counts at high
/// rates; no debt is longer than a minute, which counts at rates of some bits a second; and classes
/// that are within their rates pass the ceilings above.
const LOCK: (f64, RangeInclusive<Rate>) =
    (0.02, Rate::from_bits_per_sec(1_000)..=Rate::from_bits_per_sec(1_000_000_000));

/// A bucket, in bytes.
struct Bucket {
    rate: f64,
    depth: f64,
    level: f64,
    at: Nanos,
}

impl Bucket {
    fn new(rate: Rate, depth: f64, rounding: f64) -> Self {
        let rate = rate.bits_per_sec() as f64 / 8.0 * (1.0 + rounding);
        let depth = depth * (1.0 + rounding) + 2.0 * FULL;
        Self { rate, depth, level: depth, at: Nanos::ZERO }
    }

    /// One of which all is left that was earned since runs began, and nothing else.
    fn without_a_depth(self) -> Self {
        Self { level: 2.0 * FULL, at: BEGIN, ..self }
    }

    fn take(&mut self, len: Bytes, now: Nanos) -> bool {
        let earned = self.rate * now.since(self.at).as_secs_f64();
        self.level = (self.level + earned).min(self.depth) - len.0 as f64;
        self.at = now;
        self.level >= 0.0
    }
}

/// A class.
struct Class {
    parent: Option<u32>,
    is_leaf: bool,
    /// None if nothing is promised.
    bucket: Option<Bucket>,
    sent: u64,
}

/// The token buckets of a policy: one for each class with a ceiling, one for a `tbf` at the root.
#[derive(Default)]
pub(super) struct Ceilings {
    root: Option<Bucket>,
    classes: BTreeMap<u32, Class>,
    default: u32,
}

impl Ceilings {
    pub(super) fn new(plan: &Plan) -> Self {
        let root = plan.roots.first().filter(|_| plan.above.is_none());
        let Some(root) = root else { return Self::default() };
        match (plan.nodes.get(root).map(|node| &*node.config), root.handle) {
            (Some(Config::Htb(htb)), Some(handle)) => {
                Self { root: None, classes: classes(plan, handle), default: htb.default }
            }
            (Some(Config::Tbf(tbf)), Some(handle)) => {
                let shared = plan.limits.get(&handle).map(|(shared, _)| shared.strategy);
                let is_exact = shared.is_none_or(|strategy| strategy == Strategy::FAIR);
                let bytes = tbf.rate.bits_per_sec() as f64 / 8.0 * LEAST_BURST.0;
                let depth = bytes.max(LEAST_BURST.1).max(tbf.burst.0 as f64);
                let bucket = Bucket::new(tbf.rate, depth, ROUNDING);
                Self { root: is_exact.then_some(bucket), ..Self::default() }
            }
            _ => Self::default(),
        }
    }

    /// # Panics
    /// If that is too much.
    pub(super) fn sent(&mut self, sent: &Sent, now: Nanos) {
        let is_within = self.root.as_mut().is_none_or(|bucket| bucket.take(sent.len, now));
        assert!(is_within, "more than the rate has left");
        let is_leaf = |id: &u32| self.classes.get(id).is_some_and(|class| class.is_leaf);
        let leaf = [sent.class, self.default].into_iter().find(is_leaf);
        if let Some(class) = leaf.and_then(|leaf| self.classes.get_mut(&leaf)) {
            class.sent += 1;
        }
        let mut at = leaf;
        while let Some(id) = at
            && let Some(class) = self.classes.get_mut(&id)
        {
            let is_within = class.bucket.as_mut().is_none_or(|it| it.take(sent.len, now));
            assert!(is_within, "more than the ceiling of class {id:x} has left");
            at = class.parent;
        }
    }

    /// # Panics
    /// If the `stats` of the root on a queue have more packets of a class than have left, or none
    /// of a class that the queue has sent for.
    pub(super) fn agree(&self, stats: &Stats) {
        let Some(figures) = stats.detail.as_ref().and_then(|detail| detail.htb()) else { return };
        for (id, figures) in &figures.leaves {
            let sent = self.classes.get(id).map_or(0, |class| class.sent);
            assert!(figures.sent_packets <= sent, "class {id:x} counts what has not left");
        }
        let direct = figures.direct_packets;
        let counted: u64 = figures.leaves.values().map(|leaf| leaf.sent_packets).sum();
        assert_eq!(counted + direct, stats.sent_packets, "packets have left that no class counts");
        let has_default = self.classes.get(&self.default).is_some_and(|class| class.is_leaf);
        assert!(direct == 0 || !has_default, "{direct} packets have left beside the default class");
    }
}

/// Checks what each `tbf` of `plan` has sent in the time `since` its start, and each class without
/// others below it, wherever they are: `nodes` has the counters of all queues.
///
/// # Panics
/// If that is too much.
pub(super) fn totals(plan: &Plan, nodes: &[NodeStats], since: Nanos) {
    let queues = plan.queues() as f64;
    let most = |rate: Rate, burst: Bytes| {
        let rate = rate.bits_per_sec() as f64 / 8.0;
        let burst = (burst.0 as f64).max(rate * LEAST.0) + 6.0 * FULL;
        (rate * since.as_secs_f64() + burst * queues) * (1.0 + ROUNDING)
    };
    for NodeStats { parent, handle, stats } in nodes {
        let node = plan.nodes.get(&Key { parent: *parent, handle: *handle });
        let Some(handle) = handle else { continue };
        let figures = stats.detail.as_ref().and_then(|detail| detail.htb());
        for (id, figures) in figures.into_iter().flat_map(|figures| &figures.leaves) {
            let class = plan.classes.get(handle).and_then(|classes| classes.get(id));
            let class = class.and_then(|class| class.class.hfsc());
            let Some(rate) = class.and_then(upper_limit) else { continue };
            let rate = rate.bits_per_sec() as f64 / 8.0;
            let most = (rate * since.as_secs_f64() + 2.0 * FULL * queues) * (1.0 + ROUNDING);
            let sent = figures.sent_bytes as f64;
            assert!(sent <= most, "class {handle}{id:x} has sent {sent} bytes of {most}");
        }
        if let Some(Config::Tbf(tbf)) = node.map(|node| &*node.config) {
            let sent = stats.sent_bytes as f64;
            assert!(sent <= most(tbf.rate, tbf.burst), "{handle} has sent {sent} bytes");
        }
        let is_fair = plan.trees.get(handle).is_none_or(|it| *it == TreeKind::default());
        let leaves = figures.filter(|_| is_fair).map(|figures| &figures.leaves);
        for (id, figures) in leaves.into_iter().flatten() {
            let class = plan.classes.get(handle).and_then(|classes| classes.get(id));
            let Some(class) = class.and_then(|class| class.class.htb()) else { continue };
            let (sent, most) = (figures.sent_bytes as f64, most(class.ceil, class.cburst));
            assert!(sent <= most, "class {handle}{id:x} has sent {sent} bytes of {most}");
        }
    }
}

fn classes(plan: &Plan, handle: Handle) -> BTreeMap<u32, Class> {
    let kind = plan.trees.get(&handle).copied().unwrap_or_default();
    let classes = plan.classes.get(&handle).into_iter().flatten();
    // Real time passes the upper limits of its class and of those above it.
    let real_time = classes
        .clone()
        .filter(|(_, class)| class.class.hfsc().is_some_and(|class| class.real_time.is_some()));
    let above = |id: &u32| plan.classes.get(&handle)?.get(id)?.class.parent();
    let has_real_time: BTreeSet<u32> =
        real_time.flat_map(|(id, _)| std::iter::successors(Some(*id), above)).collect();
    let class = |(id, class): (&u32, &std::sync::Arc<narrows_policy::PlanClass>)| {
        let is_leaf = class.leaf.is_some();
        let &narrows_qdisc::htb::Class { parent, ceil, cburst, .. } = match &class.class {
            narrows_qdisc::Class::Htb(class) => class,
            narrows_qdisc::Class::Hfsc(class) => {
                let rate = upper_limit(class).filter(|_| !has_real_time.contains(id));
                let bucket = rate.map(|rate| Bucket::new(rate, f64::INFINITY, ROUNDING));
                let bucket = bucket.map(Bucket::without_a_depth);
                return Some((*id, Class { parent: class.parent, is_leaf, bucket, sent: 0 }));
            }
        };
        let least = LEAST.1.max(ceil.bits_per_sec() as f64 / 8.0 * LEAST.0);
        let depth = least.max(cburst.0 as f64);
        let bucket = match kind {
            TreeKind::Htb(TreeStrategy::Fair) => Some(Bucket::new(ceil, depth, ROUNDING)),
            TreeKind::Htb(TreeStrategy::Lock) if LOCK.1.contains(&ceil) && class.leaf.is_some() => {
                Some(Bucket::new(ceil, depth, LOCK.0))
            }
            _ => None,
        };
        Some((*id, Class { parent, is_leaf, bucket, sent: 0 }))
    };
    classes.filter_map(class).collect()
}

/// The steepest slope of the upper limit of a class, if it may send by link sharing alone.
fn upper_limit(class: &hfsc::Class) -> Option<Rate> {
    let Curve { m1, m2, .. } = class.upper_limit.filter(|_| class.real_time.is_none())?;
    // A slope of 0 counts as this much.
    Some(m1.max(m2).max(Rate::from_bits_per_sec(2)))
}
