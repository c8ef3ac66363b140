//! A series of changes of classes and their contents: the tree follows the plan, and a qdisc keeps
//! its name if it can carry on, however the change was found.

use crate::policies::install;
use narrows_policy::{
    CakeOptions, ClassEdit, ClassId, ClassParams, Edit, FifoUnit, Handle, HtbLabel, HtbOptions,
    HtbParams, Key, Params, Parent, Plan, Policy, PortFacts, PrioParams, Verb,
};
use narrows_qdisc::{Config, NodeId, Spec};
use narrows_shaper::Installation;
use narrows_units::{Bytes, Rate, wire::Overhead};
use proptest::prelude::*;
use std::collections::BTreeMap;

const DEV: &str = "eth0";

#[derive(Clone, Debug)]
enum Change {
    Qdisc(Edit),
    Class(ClassEdit),
}

impl Change {
    fn on(&self, policy: Policy) -> Policy {
        let changed = match self {
            Self::Qdisc(edit) => policy.edit(DEV, edit, &PortFacts::ETHERNET),
            Self::Class(edit) => policy.edit_class(DEV, edit),
        };
        changed.unwrap_or(policy)
    }
}

fn at(major: u32, minor: u32) -> Parent {
    Parent::Class(ClassId { major, minor })
}

fn class(verb: Verb, above: u32, minor: u32, mbit: u64) -> Change {
    let rate = Rate::from_bits_per_sec(mbit * 1_000_000);
    let (burst, prio, quantum) = (Bytes(1600), 0, None);
    let (overhead, label) = (Overhead::NONE, HtbLabel::default());
    let (ceil, cburst, fleet) = (rate, burst, None);
    let params = HtbParams { rate, ceil, burst, cburst, prio, quantum, overhead, label, fleet };
    let params = (verb != Verb::Delete).then_some(ClassParams::Htb(params));
    let (parent, class) = (Some(at(1, above)), Some(ClassId { major: 1, minor }));
    Change::Class(ClassEdit { verb, parent, class, params })
}

fn qdisc(verb: Verb, parent: Parent, handle: u32, params: Params) -> Change {
    let params = (verb != Verb::Delete).then_some(params);
    Change::Qdisc(Edit { verb, parent: Some(parent), handle: Handle::new(handle), params })
}

fn htb(r2q: u32) -> Params {
    Params::Htb(HtbOptions { r2q: Some(r2q), ..HtbOptions::default() })
}

fn changes() -> impl Strategy<Value = Change> {
    let verbs = || prop_oneof![3 => Just(Verb::Replace), 1 => Just(Verb::Delete)];
    let kinds = prop_oneof![
        (1..9_u32).prop_map(|limit| Params::Fifo(FifoUnit::Packets, Some(limit))),
        Just(Params::Cake { multi: false, options: CakeOptions::default() }),
        Just(Params::Prio(PrioParams::default())),
        Just(Params::Drr),
    ];
    let parents = prop_oneof![
        4 => (1..8_u32).prop_map(|minor| at(1, minor)),
        2 => (2..5_u32, 1..4_u32).prop_map(|(major, minor)| at(major, minor)),
    ];
    prop_oneof![
        6 => (verbs(), 0..8_u32, 1..8_u32, 1..4_u64)
            .prop_map(|(verb, above, minor, mbit)| class(verb, above, minor, mbit)),
        6 => (verbs(), parents, 0..6_u32, kinds)
            .prop_map(|(verb, parent, handle, params)| qdisc(verb, parent, handle, params)),
        1 => (1..4_u32).prop_map(|r2q| qdisc(Verb::Change, Parent::Root, 1, htb(r2q))),
    ]
}

/// The running qdiscs in classes, by key.
type Runs = BTreeMap<Key, (Config, NodeId)>;

/// Records `spec`, which runs for `key`, and all below it, after comparing them with `plan`.
fn note(plan: &Plan, key: Key, spec: &Spec, runs: &mut Runs) {
    let node = &plan.nodes[&key];
    assert_eq!((&spec.config, spec.level), (&*node.config, node.level), "{key}");
    assert_eq!(spec.children.len(), node.children.len(), "{key}");
    node.children.iter().zip(&spec.children).for_each(|(key, spec)| note(plan, *key, spec, runs));
    let is_only = runs.insert(key, (spec.config.clone(), spec.id)).is_none();
    assert!(is_only, "{key} is in two classes");
}

/// Compares the names of `key` and of the qdiscs below it with those in `before`.
fn check(plan: &Plan, key: Key, runs: &Runs, before: &Runs, last: NodeId, above: bool) {
    let (config, id) = &runs[&key];
    let present = before.get(&key).filter(|(present, _)| above && present.carries_on(config));
    match present {
        Some((_, name)) => assert_eq!(id, name, "{key} carries on"),
        None => assert!(*id > last, "{key} is new"),
    }
    for child in &plan.nodes[&key].children {
        check(plan, *child, runs, before, last, present.is_some());
    }
}

proptest! {
    #[test]
    fn the_tree_follows_the_plan_and_compatible_qdiscs_carry_on(
        changes in prop::collection::vec(changes(), 1..40), together in 1..4_usize,
    ) {
        let begun = [
            qdisc(Verb::Add, Parent::Root, 1, htb(10)),
            class(Verb::Add, 0, 1, 9),
            class(Verb::Add, 1, 2, 3),
            class(Verb::Add, 1, 3, 3),
        ];
        let mut policy = begun.iter().fold(Policy::default(), |policy, change| change.on(policy));
        let (mut installed, mut specs) = install(&policy, 2, None);
        let scheduler = specs.remove(0).tree.unwrap();
        let handle = Handle::new(1).unwrap();
        let mut before = Runs::new();
        let mut last = NodeId(0);
        for changes in [&[][..]].into_iter().chain(changes.chunks(together)) {
            let next = changes.iter().fold(policy.clone(), |policy, change| change.on(policy));
            let plan = installed.plan().next(policy.port(DEV), next.port(DEV)).unwrap();
            let (new, next_specs) = Installation::reconcile(plan, Some(&installed));
            prop_assert!(next_specs.iter().all(|spec| spec.tree.is_none()), "the tree carries on");
            new.commit();
            let (plan, mut runs) = (new.plan(), Runs::new());
            for id in 0..10 {
                let planned = plan.classes[&handle].get(&id);
                let leaf = scheduler.leaf(id);
                let planned_leaf = planned.filter(|class| class.leaf.is_some());
                let planned_leaf = planned_leaf.and_then(|class| class.class.htb());
                prop_assert_eq!(
                    leaf.as_ref().map(|leaf| (leaf.quantum, leaf.overhead)),
                    planned_leaf.map(|class| (class.quantum, class.overhead))
                );
                prop_assert_eq!(scheduler.meter(id).is_some(), planned.is_some());
                if let (Some(leaf), Some(key)) = (leaf, planned.and_then(|class| class.leaf)) {
                    note(plan, key, &leaf.qdisc, &mut runs);
                }
            }
            if !before.is_empty() {
                for key in plan.classes[&handle].values().filter_map(|class| class.leaf) {
                    check(plan, key, &runs, &before, last, true);
                }
            }
            last = runs.values().map(|(_, id)| *id).max().unwrap_or(last).max(last);
            // All queues together have a figure for each qdisc, and for no other.
            let gathered: Vec<_> =
                new.gather(&[]).iter().map(|at| (at.parent, at.handle)).collect();
            let keys: Vec<_> = plan.keys().iter().map(|key| (key.parent, key.handle)).collect();
            prop_assert_eq!(gathered, keys);
            (installed, policy, before) = (new, next, runs);
        }
    }
}
