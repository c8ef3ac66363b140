//! Converts the program's counters into the figures of qdiscs and classes.

use crate::numbers::DIRECT;
use crate::{Name, Numbers};
use narrows_bpf::tree::{ClassCounters, Totals};
use narrows_policy::{Handle, Key, NodeStats, Parent, Plan};
use narrows_qdisc::htb::{Figures, LeafFigures};
use narrows_qdisc::{Config, Detail, Stats};
use std::collections::BTreeMap;

/// The counters of a port's program.
pub struct Counted {
    /// Everything that was to leave there since its root qdisc was installed.
    pub totals: Totals,
    /// By the numbers of classes.
    pub classes: BTreeMap<u32, ClassCounters>,
}

/// The figures of every qdisc of `plan`, whose classes have `numbers`. A qdisc with classes has the
/// sum of what is in them, and so has a class with another qdisc in it.
pub fn figures(plan: &Plan, numbers: &Numbers, counted: &Counted) -> Vec<NodeStats> {
    let mut sums = Sums { plan, numbers, counted, all: BTreeMap::new() };
    if let Some(root) = plan.roots.first() {
        sums.add(*root, None);
    }
    let stats_of = |key: Key| {
        let mut stats = match sums.all.get(&key) {
            Some(counters) if key.parent != Parent::Root => stats(counters),
            _ => of_all(&counted.totals),
        };
        stats.detail = sums.detail(key);
        NodeStats { parent: key.parent, handle: key.handle, stats }
    };
    plan.keys().into_iter().map(stats_of).collect()
}

/// The numbers of the classes that are gone since `before`, which was that of `plan`, each with its
/// successor class: the one that was round it and is still there. It takes over what they counted.
pub fn successor_classes(plan: &Plan, before: &Numbers, after: &Numbers) -> Vec<(u32, Name)> {
    let keys: BTreeMap<Handle, Key> =
        plan.nodes.keys().filter_map(|key| Some((key.handle?, *key))).collect();
    let round = |(qdisc, _): &Name| {
        let Parent::Class(class) = keys.get(qdisc)?.parent else { return None };
        let above = Handle::new(class.major)?;
        let is_class =
            places(plan, *keys.get(&above)?).iter().any(|(name, _)| name.1 == class.minor);
        Some((above, if is_class { class.minor } else { 0 }))
    };
    let gone = before.named().filter(|(name, _)| after.get(*name).is_none());
    let successor = |(name, number)| {
        let mut round = std::iter::successors(Some(name), round);
        Some((number, round.find(|name| after.get(*name).is_some())?))
    };
    gone.filter_map(successor).collect()
}

/// What was counted in qdiscs.
struct Sums<'a> {
    plan: &'a Plan,
    numbers: &'a Numbers,
    counted: &'a Counted,
    all: BTreeMap<Key, ClassCounters>,
}

impl Sums<'_> {
    /// What the class `name` counted itself.
    fn counters(&self, name: Name) -> ClassCounters {
        let number = self.numbers.get(name);
        number.and_then(|number| self.counted.classes.get(&number)).copied().unwrap_or_default()
    }

    /// Adds up the qdisc at `key`, which is in the class `within`, and those below it.
    fn add(&mut self, key: Key, within: Option<Name>) {
        let mut sum = ClassCounters::default();
        if is_leaf(self.plan, key) {
            sum += within.map(|name| self.counters(name)).unwrap_or_default();
        } else {
            for (name, leaf) in places(self.plan, key) {
                self.add(leaf, Some(name));
                sum += self.class(name, leaf);
            }
            sum += key.handle.map(|handle| self.counters((handle, DIRECT))).unwrap_or_default();
        }
        self.all.insert(key, sum);
    }

    /// What was counted in the class `name`, which has the qdisc `leaf` in it.
    fn class(&self, name: Name, leaf: Key) -> ClassCounters {
        let mut sum = self.counters(name);
        if !is_leaf(self.plan, leaf) {
            sum += self.all.get(&leaf).copied().unwrap_or_default();
        }
        sum
    }

    fn detail(&self, key: Key) -> Option<Detail> {
        match &*self.plan.nodes.get(&key)?.config {
            Config::Htb(_) => {
                let places = places(self.plan, key).into_iter();
                let leaves =
                    places.map(|(name, leaf)| (name.1, leaf_figures(&self.class(name, leaf))));
                let direct = self.counters((key.handle?, DIRECT));
                let direct_packets = direct.own_packets + direct.borrowed_packets;
                let figures = Figures { direct_packets, leaves: leaves.collect() };
                Some(Detail::Htb(Box::new(figures)))
            }
            Config::Bands(_) => Some(Detail::Bands(Box::default())),
            _ => None,
        }
    }
}

/// Whether the qdisc at `key` is the virtual queue of the class in which it is.
fn is_leaf(plan: &Plan, key: Key) -> bool {
    let config = plan.nodes.get(&key).map(|node| &*node.config);
    !matches!(config, Some(Config::Htb(_) | Config::Bands(_) | Config::Tbf(_)))
}

/// The qdiscs in the one at `key`, each with the class in which it is.
fn places(plan: &Plan, key: Key) -> Vec<(Name, Key)> {
    let (Some(node), Some(handle)) = (plan.nodes.get(&key), key.handle) else { return Vec::new() };
    match &*node.config {
        Config::Htb(_) => {
            let classes = plan.classes.get(&handle).into_iter().flatten();
            classes.filter_map(|(id, class)| Some(((handle, *id), class.leaf?))).collect()
        }
        Config::Bands(bands) => {
            let ids = bands.classes.iter().map(|class| (handle, u32::from(class.id)));
            ids.zip(node.children.iter().copied()).collect()
        }
        _ => node.children.first().map(|child| ((handle, 0), *child)).into_iter().collect(),
    }
}

fn stats(counters: &ClassCounters) -> Stats {
    Stats {
        sent_bytes: counters.bytes,
        sent_packets: counters.own_packets + counters.borrowed_packets,
        drops: counters.aqm_drops + counters.limit_drops,
        ..Stats::default()
    }
}

fn of_all(totals: &Totals) -> Stats {
    let Totals { limit_drops, aqm_drops, unclassified_drops, port_gone_drops, .. } = *totals;
    Stats {
        sent_bytes: totals.sent_bytes,
        sent_packets: totals.sent_packets,
        drops: limit_drops + aqm_drops + unclassified_drops + port_gone_drops,
        overlimits: limit_drops + aqm_drops,
        ..Stats::default()
    }
}

fn leaf_figures(counters: &ClassCounters) -> LeafFigures {
    let mut figures = LeafFigures {
        sent_bytes: counters.bytes,
        sent_packets: counters.own_packets + counters.borrowed_packets,
        drops: counters.aqm_drops + counters.limit_drops,
        overlimits: counters.aqm_drops + counters.limit_drops + counters.marked,
        ..LeafFigures::default()
    };
    // Counted at the parent: the program does not report the lender.
    figures.granted[..2].copy_from_slice(&[counters.own_packets, counters.borrowed_packets]);
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Compiled, Enforcement, compile};
    use narrows_tc::OfflineHost;

    const NESTED: &str = "qdisc add dev nrw-a root handle 1: htb\n\
        class add dev nrw-a parent 1: classid 1:10 htb rate 10mbit\n\
        class add dev nrw-a parent 1: classid 1:20 htb rate 10mbit\n\
        qdisc add dev nrw-a parent 1:10 handle 2: prio bands 2 priomap 1 1 1 1 1 1 0 1 1 1 1 1 1 1 1 1\n\
        qdisc add dev nrw-a parent 2:2 handle 3: drr\n\
        class add dev nrw-a parent 3: classid 3:1 drr\n\
        class add dev nrw-a parent 3: classid 3:2 drr\n\
        qdisc add dev nrw-a parent 3:1 handle 4: pfifo limit 50\n";

    /// One packet of 100 bytes in the first leaf, two in the next one, and so on, and a drop each.
    fn counted() -> (Plan, Vec<NodeStats>) {
        let policy = narrows_tc::load(NESTED, "policy", &OfflineHost::default()).unwrap();
        let plan = Plan::of(policy.port("nrw-a"), 2).unwrap();
        let Compiled { numbers, .. } =
            compile(&plan, &Numbers::default(), Enforcement::Policing).unwrap();
        let counters = |(count, (major, id)): (u64, (u32, u32))| {
            let number = numbers.get((Handle::new(major).unwrap(), id)).unwrap();
            let (own_packets, bytes) = (count, 100 * count);
            (
                number,
                ClassCounters { own_packets, bytes, limit_drops: 1, ..ClassCounters::default() },
            )
        };
        let leaves = [(2, 1), (3, 1), (3, 2), (1, 0x20), (1, DIRECT)];
        let classes = (1..).zip(leaves).map(counters).collect();
        let totals = Totals { sent_packets: 15, limit_drops: 5, ..Totals::default() };
        let figures = figures(&plan, &numbers, &Counted { totals, classes });
        (plan, figures)
    }

    #[test]
    fn a_qdisc_in_a_class_counts_what_is_in_it() {
        let (_, figures) = counted();
        let of = |major: u32| {
            let find = |it: &&NodeStats| it.handle == Handle::new(major);
            let stats = &figures.iter().find(find).unwrap().stats;
            (stats.sent_packets, stats.drops)
        };
        assert_eq!([of(1), of(2), of(3), of(4)], [(15, 5), (6, 3), (5, 2), (2, 1)]);
        let at = |major: u32, minor: u32| {
            let parent = Parent::Class(Handle::new(major).unwrap().class(minor));
            figures.iter().find(|it| it.parent == parent).unwrap().stats.sent_bytes
        };
        assert_eq!([at(2, 1), at(3, 2), at(1, 0x20)], [100, 300, 400]);
    }

    #[test]
    fn a_class_of_an_htb_counts_what_the_qdisc_in_it_does() {
        let (_, figures) = counted();
        let root = figures.iter().find(|it| it.parent == Parent::Root).unwrap();
        let htb = root.stats.detail.as_ref().unwrap().htb().unwrap();
        assert_eq!(htb.direct_packets, 5);
        let [ten, twenty] = [&htb.leaves[&0x10], &htb.leaves[&0x20]];
        assert_eq!([ten.sent_packets, ten.drops, twenty.sent_packets], [6, 3, 4]);
        assert_eq!(ten.granted[..2], [6, 0]);
        let prio = figures.iter().find(|it| it.handle == Handle::new(2)).unwrap();
        assert!(prio.stats.detail.as_ref().unwrap().bands().is_some());
    }

    #[test]
    fn a_class_inherits_what_the_qdisc_in_it_counted() {
        let plan = |lines: &str| {
            let policy = narrows_tc::load(lines, "policy", &OfflineHost::default()).unwrap();
            Plan::of(policy.port("nrw-a"), 2).unwrap()
        };
        let (before, htb) = (plan(NESTED), NESTED.lines().take(3).collect::<Vec<_>>().join("\n"));
        let first = compile(&before, &Numbers::default(), Enforcement::Policing).unwrap().numbers;
        let without_drr = NESTED.lines().take(4).collect::<Vec<_>>().join("\n");
        for (lines, from, to) in [
            (htb, vec![(2, 1), (2, 2), (3, 1), (3, 2)], (1, 0x10)),
            (without_drr, vec![(3, 1), (3, 2)], (2, 2)),
        ] {
            let after = compile(&plan(&lines), &first, Enforcement::Policing).unwrap().numbers;
            let name = |(major, id): (u32, u32)| (Handle::new(major).unwrap(), id);
            let from = from.into_iter().map(|from| (first.get(name(from)).unwrap(), name(to)));
            assert_eq!(
                successor_classes(&before, &first, &after),
                from.collect::<Vec<_>>(),
                "{lines}"
            );
        }
    }
}
