//! A tree of classes: whose it is, and when it changes.

use crate::policies::install;
use narrows_coordination::TreeStrategy;
use narrows_policy::{
    ClassEdit, ClassId, ClassParams, Edit, HtbLabel, HtbOptions, HtbParams, Params, Parent, Policy,
    PortFacts, Verb,
};
use narrows_qdisc::Spec;
use narrows_units::{Bytes, Rate, wire::Overhead};

/// A port with an `htb` and nothing else.
fn root() -> Policy {
    let params = Some(Params::Htb(HtbOptions::default()));
    let edit = Edit { verb: Verb::Add, parent: Some(Parent::Root), handle: None, params };
    Policy::default().edit("eth0", &edit, &PortFacts::ETHERNET).unwrap()
}

/// This policy with a class of this many Mbit/s, or with another rate.
fn with_class(policy: &Policy, verb: Verb, minor: u32, mbit: u64) -> Policy {
    let rate = Rate::from_bits_per_sec(mbit * 1_000_000);
    let params = HtbParams {
        rate,
        ceil: rate,
        burst: Bytes(1_600),
        cburst: Bytes(1_600),
        prio: 0,
        quantum: None,
        overhead: Overhead::NONE,
        label: HtbLabel::default(),
        fleet: None,
    };
    let class = Some(ClassId { major: 0, minor });
    let edit = ClassEdit {
        verb,
        parent: Some(Parent::Root),
        class,
        params: Some(ClassParams::Htb(params)),
    };
    policy.edit_class("eth0", &edit).unwrap()
}

/// What a queue knows of the rate of class 16, if there is one, in Mbit/s: its quantum is a tenth.
fn rate(spec: &Spec) -> Option<u64> {
    let leaf = spec.tree.as_ref().unwrap().leaf(16)?;
    Some(u64::from(leaf.quantum) * 10 * 8 / 1_000_000)
}

#[test]
fn a_queue_that_begins_finds_the_classes_before_anything_is_committed() {
    let (_, specs) = install(&with_class(&root(), Verb::Add, 16, 5), 4, None);
    assert_eq!(specs.iter().map(rate).collect::<Vec<_>>(), [Some(5); 4]);
    assert!(specs.iter().all(|spec| spec.classification.is_some() && spec.children.is_empty()));
}

#[test]
fn a_tree_that_carries_on_changes_when_that_is_committed() {
    let before = with_class(&root(), Verb::Add, 16, 5);
    let (installation, specs) = install(&before, 4, None);
    let after = with_class(&before, Verb::Change, 16, 7);
    let (next, next_specs) = install(&after, 4, Some(&installation));
    assert!(next_specs.iter().all(|spec| spec.tree.is_none()), "they keep their schedulers");
    assert_eq!(next_specs[0].id, specs[0].id);
    assert_eq!(rate(&specs[0]), Some(5));
    next.commit();
    assert_eq!(rate(&specs[0]), Some(7));
    // On another number of queues it is another tree.
    let (_, next_specs) = install(&after, 2, Some(&next));
    assert_eq!((rate(&next_specs[1]), next_specs[0].id == specs[0].id), (Some(7), false));
}

#[test]
fn a_tree_that_is_kept_in_another_way_is_another_tree_below_the_same_qdiscs() {
    let before = with_class(&root(), Verb::Add, 16, 5);
    let (installation, specs) = install(&before, 4, None);
    let coordination = Some(TreeStrategy::FlowValve);
    let params = Some(Params::Htb(HtbOptions { coordination, ..HtbOptions::default() }));
    let handle = before.port("eth0").root().map(|root| root.handle);
    let edit = Edit { verb: Verb::Change, parent: Some(Parent::Root), handle, params };
    let after = before.edit("eth0", &edit, &PortFacts::ETHERNET).unwrap();
    let (next, next_specs) = install(&after, 4, Some(&installation));
    assert_eq!(next_specs.iter().map(rate).collect::<Vec<_>>(), [Some(5); 4], "with its classes");
    assert_eq!(next_specs[0].id, specs[0].id, "what is queued stays");
    let (_, next_specs) = install(&with_class(&after, Verb::Change, 16, 7), 4, Some(&next));
    assert!(next_specs.iter().all(|spec| spec.tree.is_none()), "and then carries on");
}
