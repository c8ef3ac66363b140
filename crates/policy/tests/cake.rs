//! What workers are to build for `cake` and `cake_mq`, and how their figures come back.

mod policies;

use narrows_coordination::Strategy;
use narrows_packet::Backlog;
use narrows_policy::{
    CakeOptions, Edit, Handle, Installed, Params, Parent, Policy, PolicyError, PortFacts, Update,
    Verb,
};
use narrows_qdisc::cake::{Config as Cake, Figures, Isolation};
use narrows_qdisc::{Config, Spec, Stats};
use narrows_units::{Bytes, Rate};
use policies::compile;

const ANY: PortFacts = PortFacts::ETHERNET;
fn nothing() -> CakeOptions {
    CakeOptions::default()
}

fn mbit(mbit: u64) -> CakeOptions {
    CakeOptions { rate: Some(Rate::from_bits_per_sec(mbit * 1_000_000)), ..nothing() }
}

fn edit(policy: &Policy, parent: Parent, handle: u16, params: Params) -> Policy {
    let (verb, parent) = (Verb::Replace, Some(parent));
    let (handle, params) = (Handle::new(handle), Some(params));
    policy.edit("eth0", &Edit { verb, parent, handle, params }, &ANY).unwrap()
}

fn root(policy: &Policy, multi: bool, options: CakeOptions) -> Policy {
    edit(policy, Parent::Root, 1, Params::Cake { multi, options })
}

fn spec(update: &Update) -> &Spec {
    let (Update::Replace(spec) | Update::Retune(spec)) = update;
    spec
}

fn cake(update: &Update) -> &Cake {
    match &spec(update).config {
        Config::Cake(config) => config,
        other => panic!("{other:?}"),
    }
}

fn is_retuned(update: &Update) -> bool {
    matches!(update, Update::Retune(_))
}

#[test]
fn queues_that_share_a_rate_have_seats_and_know_the_whole_rate() {
    for multi in [false, true] {
        let policy = root(&Policy::default(), multi, mbit(100));
        let (_, updates) = compile(&policy, 4, None);
        assert_eq!(updates.len(), 4);
        for update in &updates {
            assert!(spec(update).meter.is_some());
            assert_eq!(cake(update).rate, Some(Rate::from_bits_per_sec(100_000_000)));
            assert_eq!(cake(update).frame, ANY.frame());
        }
    }
}

#[test]
fn what_stands_alone_or_is_unlimited_keeps_a_clock_of_its_own() {
    let (_, alone) = compile(&root(&Policy::default(), false, mbit(100)), 1, None);
    assert!(spec(&alone[0]).meter.is_none());
    let (_, unlimited) = compile(&root(&Policy::default(), true, nothing()), 4, None);
    assert!(unlimited.iter().all(|update| spec(update).meter.is_none()));
    let policy = edit(&Policy::default(), Parent::Root, 1, Params::Mq);
    let class = Parent::Class(Handle::new(1).unwrap().class(2));
    let policy = edit(&policy, class, 2, Params::Cake { multi: false, options: mbit(100) });
    let (_, updates) = compile(&policy, 4, None);
    assert!(spec(&updates[1]).meter.is_none());
    assert_eq!(spec(&updates[0]).config, Config::Noqueue);
}

#[test]
fn other_parameters_keep_the_queues_and_another_sharing_does_not() {
    for multi in [false, true] {
        let policy = root(&Policy::default(), multi, mbit(100));
        let (before, _seats) = compile(&policy, 4, None);
        let compiled = |options| compile(&root(&policy, multi, options), 4, Some(&before)).1;
        for options in [mbit(200), CakeOptions { wash: Some(true), ..nothing() }] {
            let updates = compiled(options);
            assert!(updates.iter().all(is_retuned));
            assert!(updates.iter().all(|update| spec(update).meter.is_none()));
        }
        let flows = CakeOptions { isolation: Some(Isolation::Flows), ..nothing() };
        let updates = compiled(flows);
        assert!(updates.iter().all(|update| !is_retuned(update) && spec(update).meter.is_some()));
        for options in [mbit(0), CakeOptions { strategy: Some(Strategy::Lock), ..nothing() }] {
            assert!(compiled(options).iter().all(|update| !is_retuned(update)));
        }
        let other =
            edit(&policy, Parent::Root, 2, Params::Cake { multi: !multi, options: mbit(100) });
        assert!(!is_retuned(&compile(&other, 4, Some(&before)).1[0]));
    }
    let alone = root(&Policy::default(), false, mbit(100));
    let (before, _seats) = compile(&alone, 1, None);
    let (_, updates) = compile(&root(&alone, false, mbit(0)), 1, Some(&before));
    assert!(is_retuned(&updates[0]), "alone there is no sharing to change");
}

#[test]
fn a_cake_mq_or_a_rate_that_follows_must_fit_the_port() {
    let port =
        |policy: &Policy, queues| Installed::compile(policy.port("eth0"), queues, None).map(|_| ());
    let multi = root(&Policy::default(), true, mbit(100));
    assert_eq!(port(&multi, 1), Err(PolicyError::CakeMqNeedsQueues));
    assert_eq!(port(&multi, 2), Ok(()));
    // On paper nobody knows how many queues there will be.
    let follows = CakeOptions { autorate: Some(true), ..mbit(100) };
    let follows = root(&Policy::default(), false, follows);
    assert_eq!(port(&follows, 1), Ok(()));
    assert_eq!(port(&follows, 2), Err(PolicyError::AutorateShared("cake")));
}

fn sent(packets: u64) -> Stats {
    let cake = Some(Box::new(Figures { memory_used: Bytes(packets), ..Figures::default() }));
    let backlog = Backlog { packets: 1, bytes: Bytes(100) };
    Stats { sent_packets: packets, backlog, cake, ..Stats::default() }
}

#[test]
fn a_cake_is_one_entry_with_the_figures_of_all_queues() {
    let (installed, _) = compile(&root(&Policy::default(), false, mbit(100)), 2, None);
    let nodes = installed.gather(&[vec![sent(1)], vec![sent(10)]]);
    assert_eq!(nodes.len(), 1);
    assert_eq!((nodes[0].parent, nodes[0].handle), (Parent::Root, Handle::new(1)));
    assert_eq!(nodes[0].stats.sent_packets, 11);
    assert_eq!(nodes[0].stats.cake.as_ref().unwrap().memory_used, Bytes(11));
}

#[test]
fn a_cake_mq_is_a_plain_sum_and_an_entry_for_each_queue() {
    let (installed, _) = compile(&root(&Policy::default(), true, mbit(100)), 2, None);
    let nodes = installed.gather(&[vec![sent(1)], vec![sent(10)]]);
    let entries: Vec<_> = nodes
        .iter()
        .map(|node| {
            let cake = node.stats.cake.as_ref().map(|cake| cake.memory_used.0);
            (node.parent.to_string(), node.handle, node.stats.sent_packets, cake)
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
