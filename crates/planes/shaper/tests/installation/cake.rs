//! The specifications for `cake` and `cake_mq`, and how their figures come back.

use crate::policies::{fits, has_meter, install, kept};
use narrows_coordination::Strategy;
use narrows_packet::Backlog;
use narrows_policy::{
    CakeOptions, Edit, Handle, Params, Parent, Policy, PolicyError, PortFacts, Verb,
};
use narrows_qdisc::cake::{Config as Cake, Figures, Isolation};
use narrows_qdisc::{Config, Detail, Metering, Spec, Stats};
use narrows_units::{Bytes, Rate};

const ANY: PortFacts = PortFacts::ETHERNET;
fn nothing() -> CakeOptions {
    CakeOptions::default()
}

fn mbit(mbit: u64) -> CakeOptions {
    CakeOptions { rate: Some(Rate::from_bits_per_sec(mbit * 1_000_000)), ..nothing() }
}

fn edit(policy: &Policy, parent: Parent, handle: u32, params: Params) -> Policy {
    let (verb, parent) = (Verb::Replace, Some(parent));
    let (handle, params) = (Handle::new(handle), Some(params));
    policy.edit("eth0", &Edit { verb, parent, handle, params }, &ANY).unwrap()
}

fn root(policy: &Policy, multi: bool, options: CakeOptions) -> Policy {
    edit(policy, Parent::Root, 1, Params::Cake { multi, options })
}

fn cake(spec: &Spec) -> &Cake {
    match &spec.config {
        Config::Cake(config) => config,
        other => panic!("{other:?}"),
    }
}

#[test]
fn queues_that_share_a_rate_have_meters_and_know_the_whole_rate() {
    for multi in [false, true] {
        let policy = root(&Policy::default(), multi, mbit(100));
        let (_, specs) = install(&policy, 4, None);
        assert_eq!(specs.len(), 4);
        for spec in &specs {
            assert!(has_meter(spec));
            assert_eq!(cake(spec).rate, Some(Rate::from_bits_per_sec(100_000_000)));
            assert_eq!(cake(spec).frame, ANY.frame());
        }
    }
}

#[test]
fn a_single_or_unlimited_cake_keeps_its_own_clock() {
    let is_own = |spec: &Spec| matches!(spec.metering, Metering::Own);
    let (_, alone) = install(&root(&Policy::default(), false, mbit(100)), 1, None);
    assert!(is_own(&alone[0]));
    let (_, unlimited) = install(&root(&Policy::default(), true, nothing()), 4, None);
    assert!(unlimited.iter().all(is_own));
    let policy = edit(&Policy::default(), Parent::Root, 1, Params::Mq);
    let class = Parent::Class(Handle::new(1).unwrap().class(2));
    let policy = edit(&policy, class, 2, Params::Cake { multi: false, options: mbit(100) });
    let (_, specs) = install(&policy, 4, None);
    assert!(is_own(&specs[1]));
    assert_eq!(specs[0].config, Config::Noqueue);
}

#[test]
fn other_parameters_keep_the_queues_and_another_sharing_does_not() {
    for multi in [false, true] {
        let policy = root(&Policy::default(), multi, mbit(100));
        let (before, first) = install(&policy, 4, None);
        let changed = |options| install(&root(&policy, multi, options), 4, Some(&before)).1;
        for options in [mbit(200), CakeOptions { wash: Some(true), ..nothing() }] {
            let specs = changed(options);
            assert_eq!(kept(&first, &specs), [true; 4]);
            assert!(specs.iter().all(|spec| matches!(spec.metering, Metering::Kept)));
        }
        let flows = CakeOptions { isolation: Some(Isolation::Flows), ..nothing() };
        let specs = changed(flows);
        assert_eq!(kept(&first, &specs), [false; 4]);
        assert!(specs.iter().all(has_meter));
        for options in [mbit(0), CakeOptions { strategy: Some(Strategy::Lock), ..nothing() }] {
            assert_eq!(kept(&first, &changed(options)), [false; 4]);
        }
        let other =
            edit(&policy, Parent::Root, 2, Params::Cake { multi: !multi, options: mbit(100) });
        assert_eq!(kept(&first, &install(&other, 4, Some(&before)).1), [false; 4]);
    }
    let alone = root(&Policy::default(), false, mbit(100));
    let (before, first) = install(&alone, 1, None);
    let (_, specs) = install(&root(&alone, false, mbit(0)), 1, Some(&before));
    assert_eq!(kept(&first, &specs), [true], "alone there is no sharing to change");
}

#[test]
fn a_cake_mq_or_a_rate_that_follows_must_fit_the_port() {
    let multi = root(&Policy::default(), true, mbit(100));
    assert_eq!(fits(&multi, 1), Err(PolicyError::CakeMqNeedsQueues));
    assert_eq!(fits(&multi, 2), Ok(()));
    // Without an instance the number of queues is unknown.
    let follows = CakeOptions { autorate: Some(true), ..mbit(100) };
    let follows = root(&Policy::default(), false, follows);
    assert_eq!(fits(&follows, 1), Ok(()));
    assert_eq!(fits(&follows, 2), Err(PolicyError::AutorateShared("cake")));
}

fn sent(packets: u64, of: &Spec) -> Stats {
    let figures = Figures { memory_used: Bytes(packets), ..Figures::default() };
    let detail = Some(Detail::Cake(Box::new(figures)));
    let backlog = Backlog { packets: 1, bytes: Bytes(100) };
    Stats { sent_packets: packets, backlog, id: of.id, detail, ..Stats::default() }
}

fn memory(stats: &Stats) -> Option<Bytes> {
    Some(stats.detail.as_ref().and_then(Detail::cake)?.memory_used)
}

#[test]
fn a_cake_is_one_entry_with_the_figures_of_all_queues() {
    let (installed, specs) = install(&root(&Policy::default(), false, mbit(100)), 2, None);
    let nodes = installed.gather(&[vec![sent(1, &specs[0])], vec![sent(10, &specs[1])]]);
    assert_eq!(nodes.len(), 1);
    assert_eq!((nodes[0].parent, nodes[0].handle), (Parent::Root, Handle::new(1)));
    assert_eq!(nodes[0].stats.sent_packets, 11);
    assert_eq!(memory(&nodes[0].stats).unwrap(), Bytes(11));
}

#[test]
fn a_cake_mq_is_a_plain_sum_and_an_entry_for_each_queue() {
    let (installed, specs) = install(&root(&Policy::default(), true, mbit(100)), 2, None);
    let nodes = installed.gather(&[vec![sent(1, &specs[0])], vec![sent(10, &specs[1])]]);
    let entries: Vec<_> = nodes
        .iter()
        .map(|node| {
            let memory = memory(&node.stats).map(|memory| memory.0);
            (node.parent.to_string(), node.handle, node.stats.sent_packets, memory)
        })
        .collect();
    assert_eq!(
        entries,
        [
            ("root".to_owned(), Handle::new(1), 11, None),
            ("parent 1:1".to_owned(), None, 1, Some(1)),
            ("parent 1:2".to_owned(), None, 10, Some(10)),
        ]
    );
}
