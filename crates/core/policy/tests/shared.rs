//! When queues share the bands below a rate, and when each has its own.

use narrows_coordination::Strategy;
use narrows_policy::{
    Edit, EtsOptions, Handle, HtbOptions, Params, Parent, Plan, Policy, PortFacts, PrioParams,
    TbfParams, Verb,
};
use narrows_qdisc::Config;
use narrows_qdisc::htb::CLASS_MAX;
use narrows_units::{Bytes, Rate, wire::Overhead};

fn tbf() -> TbfParams {
    TbfParams {
        rate: Rate::from_bits_per_sec(10_000_000),
        burst: Bytes(30_000),
        limit: Bytes(100_000),
        peak: None,
        overhead: Overhead { per_frame: 24, ..Overhead::NONE },
        strategy: None,
        fleet: None,
        autorate: None,
    }
}

/// The plan for `below` in `tbf` on that many queues.
fn plan(tbf: TbfParams, below: Params, queues: usize) -> Plan {
    plan_of(&[Params::Tbf(tbf), below], queues)
}

/// The plan for `qdiscs`, each in the first class of the one before it, on that many queues.
fn plan_of(qdiscs: &[Params], queues: usize) -> Plan {
    let mut parent = Parent::Root;
    let mut policy = Policy::default();
    for (handle, params) in (1..).zip(qdiscs.iter().cloned()) {
        let (verb, number) = (Verb::Add, Handle::new(handle));
        let edit = Edit { verb, parent: Some(parent), handle: number, params: Some(params) };
        policy = policy.edit("eth0", &edit, &PortFacts::ETHERNET).unwrap();
        parent = Parent::Class(Handle::new(handle).unwrap().class(1));
    }
    Plan::of(policy.port("eth0"), queues).unwrap()
}

fn prio() -> Params {
    Params::Prio(PrioParams::default())
}

fn runs_tree(plan: &Plan) -> bool {
    plan.nodes.values().any(|node| matches!(*node.config, Config::Htb(_)))
}

#[test]
fn bands_below_a_shared_rate_are_classes_of_one_tree() {
    let plan = plan(tbf(), prio(), 4);
    assert!(runs_tree(&plan) && plan.limits.is_empty(), "{plan}");
    let classes = &plan.classes[&Handle::new(2).unwrap()];
    let of = |id: u32| classes[&id].class.htb().unwrap();
    let prios: Vec<u8> = (1..=3).map(|id| of(id).prio).collect();
    assert_eq!(prios, [0, 1, 2]);
    assert!((1..=3).all(|id| classes[&id].leaf.is_some() && of(id).ceil == tbf().rate));
    let root = &classes[&of(1).parent.unwrap()];
    let class = root.class.htb().unwrap();
    assert_eq!((class.rate, class.burst), (tbf().rate, tbf().burst));
    assert_eq!((root.leaf, class.overhead), (None, tbf().overhead));
    assert_eq!(plan.rules.len(), 1);
}

#[test]
fn each_queue_has_its_own_bands_where_queues_have_seats_in_one() {
    for below in [Params::Tbf(tbf()), Params::Htb(HtbOptions::default())] {
        let plan = plan_of(&[Params::Tbf(tbf()), prio(), below], 2);
        assert!(plan.limits.contains_key(&Handle::new(1).unwrap()), "{plan}");
        assert!(!plan.classes.contains_key(&Handle::new(2).unwrap()), "{plan}");
    }
}

#[test]
fn a_default_that_no_class_can_have_is_refused() {
    let htb = |default| {
        let options = HtbOptions { default: Some(default), ..HtbOptions::default() };
        let (verb, parent) = (Verb::Add, Some(Parent::Root));
        let edit = Edit { verb, parent, handle: None, params: Some(Params::Htb(options)) };
        Policy::default().edit("eth0", &edit, &PortFacts::ETHERNET)
    };
    assert!(htb(CLASS_MAX).is_ok());
    assert!(htb(CLASS_MAX + 1).unwrap_err().to_string().contains("1 to 7fffffff"));
}

#[test]
fn bands_by_turns_have_one_priority_and_their_quanta_behind_those_in_order() {
    let options = EtsOptions { bands: 4, strict: 2, quanta: vec![3_000, 1_000], priomap: vec![] };
    let plan = plan(tbf(), Params::Ets(options), 4);
    let classes = &plan.classes[&Handle::new(2).unwrap()];
    let of = |id: u32| {
        let class = classes[&id].class.htb().unwrap();
        (class.prio, class.quantum)
    };
    assert_eq!([of(1).0, of(2).0], [0, 1]);
    assert_eq!([of(3), of(4)], [(2, 3_000), (2, 1_000)]);
}

#[test]
fn each_queue_has_its_own_bands_where_there_is_nothing_to_share_or_no_tree_for_it() {
    let many = PrioParams { bands: 9, ..PrioParams::default() };
    let locked = TbfParams { strategy: Some(Strategy::Lock), ..tbf() };
    for (plan, why) in [
        (plan(tbf(), prio(), 1), "one queue"),
        (plan(locked, prio(), 4), "another coordination"),
        (plan(tbf(), Params::Prio(many), 4), "more places than priorities"),
    ] {
        assert!(!runs_tree(&plan), "{why}");
        assert_eq!(plan.limits.len(), 1, "{why}");
    }
}

#[test]
fn the_limit_of_a_port_is_that_of_its_root_whatever_queues_share_it() {
    let limit = |plan: &Plan| plan.port_limit().map(|limit| (limit.rate, limit.overhead));
    let of_tbf = Some((tbf().rate, tbf().overhead));
    for queues in [1, 4] {
        assert_eq!(limit(&plan_of(&[Params::Tbf(tbf())], queues)), of_tbf);
        assert_eq!(limit(&plan_of(&[prio(), Params::Tbf(tbf())], queues)), None, "of a band");
        assert_eq!(limit(&plan_of(&[prio()], queues)), None);
    }
    let bands = plan(tbf(), prio(), 4);
    assert!(runs_tree(&bands));
    assert_eq!(limit(&bands), of_tbf, "bands below a rate are a tree");
    assert_eq!(limit(&plan_of(&[Params::Mq, Params::Tbf(tbf())], 2)), None, "of a queue");
}
