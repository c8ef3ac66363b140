//! `hfsc`: what an edit does to the curves of classes, and what queues are told of them.

use narrows_coordination::TreeKind;
use narrows_policy::{
    ClassEdit, ClassId, ClassParams, Edit, Handle, HfscCurves, Kind, Params, Parent, Plan, Policy,
    PolicyError, PortFacts, Verb,
};
use narrows_qdisc::hfsc::Curve;
use narrows_qdisc::htb::{DEPTH_MAX, Unclassified};
use narrows_qdisc::{Config, hfsc};
use narrows_units::{Nanos, Rate};

const DEV: &str = "eth0";

fn mbit(rate: u64) -> Option<Curve> {
    Some(Curve::line(Rate::from_bits_per_sec(rate * 1_000_000)))
}

fn curves(real_time: u64, link_share: u64, upper_limit: u64) -> HfscCurves {
    let curve = |rate| mbit(rate).filter(|_| rate != 0);
    let [real_time, link_share, upper_limit] = [real_time, link_share, upper_limit].map(curve);
    HfscCurves { real_time, link_share, upper_limit }
}

fn id(minor: u32) -> ClassId {
    ClassId { major: 1, minor }
}

fn root() -> Policy {
    let (parent, handle) = (Some(Parent::Root), Handle::new(1));
    let params = Some(Params::Hfsc { default: 3 });
    let edit = Edit { verb: Verb::Add, parent, handle, params };
    Policy::default().edit(DEV, &edit, &PortFacts::ETHERNET).unwrap()
}

/// A class below `at`, which is the qdisc if 0.
fn edit(verb: Verb, at: u32, minor: u32, curves: HfscCurves) -> ClassEdit {
    let params = (verb != Verb::Delete).then_some(ClassParams::Hfsc(curves));
    ClassEdit { verb, parent: Some(Parent::Class(id(at))), class: Some(id(minor)), params }
}

fn added(policy: &Policy, at: u32, minor: u32, curves: HfscCurves) -> Policy {
    policy.edit_class(DEV, &edit(Verb::Add, at, minor, curves)).unwrap()
}

fn curves_of(policy: &Policy, minor: u32) -> HfscCurves {
    let Some(Kind::Hfsc(hfsc)) = policy.port(DEV).root().map(|root| &root.kind) else { panic!() };
    hfsc.classes.get(minor).unwrap().curves
}

fn planned(policy: &Policy, minor: u32) -> hfsc::Class {
    let plan = Plan::of(policy.port(DEV), 2).unwrap();
    *plan.classes[&Handle::new(1).unwrap()][&minor].class.hfsc().unwrap()
}

#[test]
fn a_tree_is_planned_with_its_curves() {
    let policy = added(&added(&root(), 0, 1, curves(0, 9, 9)), 1, 2, curves(2, 3, 4));
    let plan = Plan::of(policy.port(DEV), 2).unwrap();
    let handle = Handle::new(1).unwrap();
    assert_eq!(plan.trees[&handle], TreeKind::Hfsc);
    let HfscCurves { real_time, link_share, upper_limit } = curves(2, 3, 4);
    let class = hfsc::Class { parent: Some(1), real_time, link_share, upper_limit };
    assert_eq!(planned(&policy, 2), class);
    assert!(plan.classes[&handle][&2].leaf.is_some() && plan.classes[&handle][&1].leaf.is_none());
    let Config::Htb(config) = &*plan.nodes[&plan.roots[0]].config else { panic!() };
    assert_eq!((config.default, config.unclassified), (3, Unclassified::Dropped));
}

#[test]
fn a_change_replaces_the_curves_that_it_names() {
    let policy = added(&root(), 0, 1, curves(1, 2, 3));
    let change = |given| {
        let changed = policy.edit_class(DEV, &edit(Verb::Change, 0, 1, given)).unwrap();
        curves_of(&changed, 1)
    };
    assert_eq!(change(curves(0, 5, 0)), curves(1, 5, 3));
    // Zeros remove nothing.
    let zero = Some(Curve { d: Nanos(7), ..Curve::default() });
    let zeros = HfscCurves { real_time: zero, link_share: zero, upper_limit: zero };
    assert_eq!(change(zeros), curves(1, 2, 3));
    assert_eq!(change(HfscCurves { upper_limit: zero, ..curves(4, 0, 0) }), curves(4, 2, 3));
}

#[test]
fn a_class_with_rt_alone_shares_by_the_same_curve_once_it_has_a_class_below() {
    let above = added(&root(), 0, 1, curves(1, 0, 0));
    assert_eq!(planned(&above, 1).real_time, mbit(1));
    let both = added(&above, 1, 2, curves(3, 0, 0));
    assert_eq!(curves_of(&both, 1), curves(1, 1, 0));
    assert_eq!(planned(&both, 1).real_time, None, "only leaves have packets that can be late");
    assert_eq!(planned(&both, 1).link_share, mbit(1));
    // A leaf again, it keeps both, as in the kernel.
    let gone = both.edit_class(DEV, &edit(Verb::Delete, 1, 2, curves(0, 0, 0))).unwrap();
    assert_eq!((planned(&gone, 1).real_time, planned(&gone, 1).link_share), (mbit(1), mbit(1)));
    // A class that shares already keeps its own curve.
    let sharing = added(&added(&root(), 0, 1, curves(1, 5, 0)), 1, 2, curves(3, 0, 0));
    assert_eq!(curves_of(&sharing, 1), curves(1, 5, 0));
}

#[test]
fn what_the_kernel_refuses_is_refused() {
    let policy = added(&added(&root(), 0, 1, curves(0, 9, 0)), 1, 2, curves(2, 0, 0));
    let change = |edit: &ClassEdit| policy.edit_class(DEV, edit).unwrap_err().to_string();
    for (edit, why) in [
        (edit(Verb::Add, 7, 3, curves(1, 0, 0)), "no class 1:7"),
        (edit(Verb::Add, 1, 2, curves(1, 0, 0)), "1:2 is there already"),
        (edit(Verb::Change, 1, 3, curves(1, 0, 0)), "no class 1:3"),
        (edit(Verb::Change, 0, 2, curves(1, 0, 0)), "1:2 is below 1:1"),
        (edit(Verb::Replace, 2, 1, curves(1, 0, 0)), "1:1 is below 1:"),
        (edit(Verb::Add, 1, 3, curves(0, 0, 0)), "give rt, ls or sc"),
        (edit(Verb::Add, 1, 3, curves(1, 0, 1)), "Upper-limit Service Curve without Link-Share"),
        (edit(Verb::Add, 1, 0x1_0000, curves(1, 0, 0)), "1:1 to 1:ffff"),
        (edit(Verb::Delete, 0, 1, curves(0, 0, 0)), "HFSC class in use"),
    ] {
        let said = change(&edit);
        assert!(said.contains(why), "{edit:?}: {said}");
    }
    let params = Some(ClassParams::Drr { quantum: None });
    let other = ClassEdit { params, ..edit(Verb::Add, 1, 3, curves(0, 0, 0)) };
    assert!(change(&other).contains("its classes are hfsc's and not drr's"));
}

#[test]
fn a_class_without_a_parent_is_below_the_qdisc_and_a_change_needs_none() {
    let edit = ClassEdit { parent: None, ..edit(Verb::Add, 0, 1, curves(0, 9, 0)) };
    let policy = root().edit_class(DEV, &edit).unwrap();
    let policy = added(&policy, 1, 2, curves(2, 0, 0));
    let change = ClassEdit { parent: None, ..self::edit(Verb::Change, 0, 2, curves(3, 0, 0)) };
    let policy = policy.edit_class(DEV, &change).unwrap();
    assert_eq!(planned(&policy, 2).parent, Some(1));
    assert_eq!(planned(&policy, 2).real_time, mbit(3));
}

#[test]
fn classes_nest_as_deep_as_those_of_an_htb() {
    let last = DEPTH_MAX as u32;
    let deepest =
        (1..=last).fold(root(), |policy, minor| added(&policy, minor - 1, minor, curves(0, 1, 0)));
    let deeper = edit(Verb::Add, last, last + 1, curves(0, 1, 0));
    let refused = deepest.edit_class(DEV, &deeper).unwrap_err();
    assert!(matches!(&refused, PolicyError::Hfsc(why) if why.contains("too deep")), "{refused}");
}

#[test]
fn curves_that_cannot_all_be_had_are_warned_about() {
    let policy = added(&root(), 0, 1, curves(0, 10, 10));
    let policy = added(&policy, 1, 2, curves(6, 0, 0));
    let warning = |policy: &Policy, minor| {
        let root = policy.port(DEV).root().unwrap();
        root.kind.class_warning(root.handle, minor)
    };
    let enough = added(&policy, 1, 3, curves(4, 0, 0));
    assert_eq!(warning(&enough, 3), None);
    let more = added(&policy, 1, 4, curves(5, 0, 0));
    let said = warning(&more, 4).unwrap();
    assert!(said.contains("add up to 11 Mbit/s, more than the 10 Mbit/s"), "{said}");
    let change = edit(Verb::Change, 1, 4, curves(0, 1, 0));
    assert!(warning(&more.edit_class(DEV, &change).unwrap(), 4).is_some());
    assert_eq!(warning(&added(&more, 1, 8, curves(0, 1, 0)), 8), None, "it has no part in it");
    // The rt of an inner class counts for nothing, and a root class without ul may have all.
    let inner = added(&added(&policy, 2, 5, curves(4, 0, 0)), 2, 6, curves(6, 0, 0));
    assert_eq!(warning(&inner, 6), None);
    assert_eq!(warning(&added(&more, 0, 7, curves(0, 1, 0)), 7), None);
    // Packets of a default class that has classes below it go nowhere.
    let default = added(&added(&root(), 0, 3, curves(0, 1, 0)), 3, 4, curves(0, 1, 0));
    let said = warning(&default, 4).unwrap();
    assert!(said.contains("the default class 1:3") && said.ends_with("are dropped."), "{said}");
}
