//! The plan after a change equals the plan built from scratch.

use narrows_classify::{Flower, Matches, PortRange};
use narrows_policy::{
    CakeOptions, ClassEdit, ClassId, ClassParams, Edit, FifoUnit, FilterEdit, Handle, HfscCurves,
    HtbLabel, HtbOptions, HtbParams, Params, Parent, Plan, Policy, PolicyError, PortFacts,
    PrioParams, Verb,
};
use narrows_qdisc::hfsc::Curve;
use narrows_units::{Bytes, Rate, wire::Overhead};
use proptest::prelude::*;
use std::sync::Arc;

mod policies;

const DEV: &str = "eth0";

/// A change of any sort.
#[derive(Clone, Debug)]
enum Change {
    Qdisc(Edit),
    Class(ClassEdit),
    Filter(FilterEdit),
}

impl Change {
    fn on(&self, policy: &Policy) -> Result<Policy, PolicyError> {
        match self {
            Self::Qdisc(edit) => policy.edit(DEV, edit, &PortFacts::ETHERNET),
            Self::Class(edit) => policy.edit_class(DEV, edit),
            Self::Filter(edit) => policy.edit_filter(DEV, edit),
        }
    }
}

fn class(major: u32, minor: u32) -> Parent {
    Parent::Class(ClassId { major, minor })
}

fn htb_params(mbit: u64) -> HtbParams {
    let rate = Rate::from_bits_per_sec(mbit * 1_000_000);
    let (burst, prio, quantum) = (Bytes(1600), 0, None);
    let (overhead, label) = (Overhead::NONE, HtbLabel::default());
    let (ceil, cburst, fleet) = (rate, burst, None);
    HtbParams { rate, ceil, burst, cburst, prio, quantum, overhead, label, fleet }
}

fn curves(real_time: u64, link_share: u64) -> ClassParams {
    let curve = |mbit| match mbit {
        0 => None,
        mbit => Some(Curve::line(Rate::from_bits_per_sec(mbit * 1_000_000))),
    };
    ClassParams::Hfsc(HfscCurves {
        real_time: curve(real_time),
        link_share: curve(link_share),
        upper_limit: None,
    })
}

fn verbs() -> impl Strategy<Value = Verb> {
    prop_oneof![
        4 => Just(Verb::Add), 4 => Just(Verb::Replace), 2 => Just(Verb::Change), 4 => Just(Verb::Delete)
    ]
}

/// Some class numbers exceed 16 bits.
fn minors() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0..8_u32, 1 => 0x1_0000..0x1_0002_u32]
}

fn qdiscs() -> impl Strategy<Value = Change> {
    let htb = |r2q| Params::Htb(HtbOptions { r2q, ..HtbOptions::default() });
    let kinds = prop_oneof![
        2 => prop_oneof![Just(None), Just(Some(7))].prop_map(htb),
        2 => (0..3_u32).prop_map(|default| Params::Hfsc { default }),
        2 => Just(Params::Prio(PrioParams::default())),
        1 => Just(Params::Drr),
        1 => Just(Params::Mq),
        2 => (4..7_u64).prop_map(|mbit| Params::Tbf(policies::tbf_params(mbit))),
        3 => (1..5_u32).prop_map(|limit| Params::Fifo(FifoUnit::Packets, Some(limit))),
        2 => Just(Params::Cake { multi: false, options: CakeOptions::default() }),
    ];
    let parents = prop_oneof![
        2 => Just(Parent::Root), 6 => (1..6_u32, minors()).prop_map(|(major, minor)| class(major, minor))
    ];
    (verbs(), parents, 0..6_u32, kinds).prop_map(|(verb, parent, handle, kind)| {
        let params = (verb != Verb::Delete).then_some(kind);
        Change::Qdisc(Edit { verb, parent: Some(parent), handle: Handle::new(handle), params })
    })
}

fn classes() -> impl Strategy<Value = Change> {
    let params = prop_oneof![
        4 => (1..4_u64).prop_map(|mbit| ClassParams::Htb(htb_params(mbit))),
        4 => (0..3_u64, 0..3_u64).prop_map(|(rt, ls)| curves(rt, ls)),
        1 => Just(ClassParams::Drr { quantum: None }),
    ];
    (verbs(), 1..4_u32, minors(), minors(), params).prop_map(|(verb, major, at, minor, params)| {
        let (parent, class) = (Some(class(major, at)), Some(ClassId { major, minor }));
        let params = (verb != Verb::Delete).then_some(params);
        Change::Class(ClassEdit { verb, parent, class, params })
    })
}

fn filters() -> impl Strategy<Value = Change> {
    (verbs(), 1..3_u32, prop_oneof![3 => Just(0), 1 => minors()], minors(), 1..4_u16).prop_map(
        |(verb, major, at, minor, port)| {
            let ports = Some(PortRange { first: port, last: port });
            let flower = Flower { destination_port: ports, ..Flower::default() };
            let is_delete = verb == Verb::Delete;
            Change::Filter(FilterEdit {
                verb,
                parent: Some(class(major, at)),
                pref: Some(1),
                protocol: Some(0x0800),
                kind: Some("flower".into()),
                handle: Some(u32::from(port)),
                matches: (!is_delete).then_some(Matches::Flower(flower)),
                class: (!is_delete).then_some(ClassId { major, minor }),
                actions: Vec::new(),
                skips_hardware: false,
            })
        },
    )
}

/// An initial tree of one of the kinds, so that most changes apply; `below_a_limit` if a `tbf` is
/// above it.
fn planted_as(is_hfsc: bool, below_a_limit: bool) -> Policy {
    let fifo = |limit| Params::Fifo(FifoUnit::Packets, Some(limit));
    let qdisc = |parent, handle, params| {
        let handle = Handle::new(handle);
        Change::Qdisc(Edit { verb: Verb::Add, parent: Some(parent), handle, params: Some(params) })
    };
    let added = |at, minor| {
        let params = if is_hfsc { curves(1, 0) } else { ClassParams::Htb(htb_params(1)) };
        let (parent, class) = (Some(class(1, at)), Some(ClassId { major: 1, minor }));
        Change::Class(ClassEdit { verb: Verb::Add, parent, class, params: Some(params) })
    };
    let tree = match is_hfsc {
        true => Params::Hfsc { default: 0 },
        false => Params::Htb(HtbOptions::default()),
    };
    let limit = qdisc(Parent::Root, 5, Params::Tbf(policies::tbf_params(5)));
    let place = if below_a_limit { class(5, 1) } else { Parent::Root };
    let changes = [
        qdisc(place, 1, tree),
        added(0, 1),
        added(1, 2),
        added(1, 3),
        added(2, 4),
        qdisc(class(1, 3), 2, Params::Prio(PrioParams::default())),
        qdisc(class(2, 1), 3, fifo(7)),
        qdisc(class(1, 4), 4, fifo(8)),
    ];
    let changes = below_a_limit.then_some(&limit).into_iter().chain(&changes);
    changes.fold(Policy::default(), |policy, change| change.on(&policy).unwrap())
}

fn planted() -> Policy {
    planted_as(false, false)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_plan_that_follows_is_the_plan_made_anew(
        changes in prop::collection::vec(
            prop_oneof![3 => qdiscs(), 4 => classes(), 2 => filters()], 1..40
        ),
        queues in 1..4_usize,
        together in 1..4_usize,
        is_hfsc in any::<bool>(),
        below_a_limit in any::<bool>(),
    ) {
        let mut policy = planted_as(is_hfsc, below_a_limit);
        let mut plan = Plan::of(policy.port(DEV), queues).unwrap();
        // A policy file changes many things at once.
        for changes in changes.chunks(together) {
            let next = changes.iter().fold(policy.clone(), |policy, change| {
                change.on(&policy).unwrap_or(policy)
            });
            let anew = Plan::of(next.port(DEV), queues);
            let follows = plan.next(policy.port(DEV), next.port(DEV));
            prop_assert_eq!(&follows, &anew);
            if let Ok(laid_out) = anew {
                (policy, plan) = (next, laid_out);
            }
        }
    }
}

proptest! {
    #[test]
    fn a_policy_that_reuses_memory_is_the_same_policy_with_the_same_plan(
        one in prop::collection::vec(prop_oneof![3 => qdiscs(), 4 => classes(), 2 => filters()], 0..40),
        other in prop::collection::vec(prop_oneof![3 => qdiscs(), 4 => classes(), 2 => filters()], 0..40),
        is_hfsc in any::<bool>(),
        below_a_limit in any::<bool>(),
    ) {
        let after = |changes: &[Change]| {
            let planted = planted_as(is_hfsc, below_a_limit);
            changes.iter().fold(planted, |policy, change| change.on(&policy).unwrap_or(policy))
        };
        let (before, next) = (after(&one), after(&other));
        let reusing = next.clone().reusing(&before);
        prop_assert_eq!(&reusing, &next);
        prop_assert_eq!(reusing.port(DEV).nodes(), next.port(DEV).nodes());
        let anew = Plan::of(next.port(DEV), 2);
        if let Ok(plan) = Plan::of(before.port(DEV), 2) {
            prop_assert_eq!(&plan.next(before.port(DEV), reusing.port(DEV)), &anew);
        }
        // Whatever comes after does not notice.
        for change in &one {
            prop_assert_eq!(change.on(&reusing), change.on(&next));
        }
    }
}

#[test]
fn a_change_of_one_class_leaves_the_memory_of_all_others() {
    let policy = planted();
    let plan = Plan::of(policy.port(DEV), 2).unwrap();
    let params = Some(ClassParams::Htb(htb_params(2)));
    let (verb, class) = (Verb::Change, Some(ClassId { major: 1, minor: 4 }));
    let edit = ClassEdit { verb, parent: None, class, params };
    let changed = policy.edit_class(DEV, &edit).unwrap();
    let next = plan.next(policy.port(DEV), changed.port(DEV)).unwrap();
    let handle = Handle::new(1).unwrap();
    let is_shared = |id: u32| Arc::ptr_eq(&plan.classes[&handle][&id], &next.classes[&handle][&id]);
    // The class above it may have become an inner one.
    assert_eq!((1..=4).map(is_shared).collect::<Vec<_>>(), [true, false, true, false]);
    assert_eq!(
        next.classes[&handle][&4].class.htb().unwrap().rate,
        Rate::from_bits_per_sec(2_000_000)
    );
}

#[test]
fn a_changed_rate_above_a_tree_leaves_the_memory_of_all_classes() {
    let policy = planted_as(false, true);
    let plan = Plan::of(policy.port(DEV), 2).unwrap();
    let (verb, parent, handle) = (Verb::Change, Some(Parent::Root), Handle::new(5));
    let params = Some(Params::Tbf(policies::tbf_params(6)));
    let edit = Edit { verb, parent, handle, params };
    let changed = policy.edit(DEV, &edit, &PortFacts::ETHERNET).unwrap();
    let next = plan.next(policy.port(DEV), changed.port(DEV)).unwrap();
    let [before, after] = [&plan, &next].map(|plan| &plan.classes[&Handle::new(1).unwrap()]);
    assert!(before.ptr_eq(after));
    let rate = |plan: &Plan| plan.limits[&Handle::new(5).unwrap()].0.limit.rate.bits_per_sec();
    assert_eq!((rate(&plan), rate(&next)), (5_000_000, 6_000_000));
    let nodes = |plan: &Plan| plan.changed_qdiscs(&Plan::default()).count();
    assert_eq!(next.changed_qdiscs(&plan).count(), 1, "of {}", nodes(&next));
}

#[test]
fn only_an_htb_that_is_not_in_a_class_has_numbers_beyond_16_bits() {
    let wide = |major| {
        let (parent, class) = (Some(class(major, 0)), Some(ClassId { major, minor: 0x1_0000 }));
        let params = Some(ClassParams::Htb(htb_params(2)));
        ClassEdit { verb: Verb::Add, parent, class, params }
    };
    let add = |policy: &Policy, parent, handle, params| {
        let handle = Handle::new(handle);
        let edit = Edit { verb: Verb::Add, parent: Some(parent), handle, params: Some(params) };
        policy.edit(DEV, &edit, &PortFacts::ETHERNET).unwrap()
    };
    assert!(planted().edit_class(DEV, &wide(1)).is_ok());
    let htb = || Params::Htb(HtbOptions::default());
    let in_prio = add(&Policy::default(), Parent::Root, 1, Params::Prio(PrioParams::default()));
    let in_prio = add(&in_prio, class(1, 1), 2, htb());
    let refused = in_prio.edit_class(DEV, &wide(2));
    assert_eq!(refused, Err(PolicyError::WideClass(Handle::new(2).unwrap())));
    let in_tbf = add(&Policy::default(), Parent::Root, 1, Params::Tbf(policies::tbf_params(5)));
    assert!(add(&in_tbf, class(1, 1), 2, htb()).edit_class(DEV, &wide(2)).is_ok());
}

#[test]
fn behind_the_kernels_handles_come_ours() {
    let mut policy = planted();
    let fifo = Params::Fifo(FifoUnit::Packets, Some(1));
    for minor in 0x10..0x10 + 0x8010 {
        let params = Some(ClassParams::Htb(htb_params(1)));
        let (parent, id) = (Some(class(1, 1)), Some(ClassId { major: 1, minor }));
        let edit = ClassEdit { verb: Verb::Add, parent, class: id, params };
        policy = policy.edit_class(DEV, &edit).unwrap();
        let params = Some(fifo.clone());
        let parent = Some(class(1, minor));
        let edit = Edit { verb: Verb::Add, parent, handle: None, params };
        policy = policy.edit(DEV, &edit, &PortFacts::ETHERNET).unwrap();
    }
    let port = policy.port(DEV);
    let major = |minor| port.child(port.root().unwrap(), minor).unwrap().handle.major();
    assert_eq!([major(0x10), major(0x11)], [0x8001, 0x8002]);
    // 32,766 handles are taken: all from 8001: to fffe:.
    assert_eq!([major(0x10 + 0x7ff9), major(0x10 + 0x7ffa)], [0xfffa, 0x1_0000]);
}
