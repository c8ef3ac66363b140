//! What workers are to build, and how their figures come back.

mod policies;

use narrows_packet::Backlog;
use narrows_policy::{
    ClassId, Edit, FifoUnit, Handle, Installed, NodeStats, Params, Parent, Policy, PolicyError,
    PortFacts, Update, Verb,
};
use narrows_qdisc::{Config, Spec, Stats, fifo};
use narrows_units::Bytes;
use policies::{compile, tbf_params};

const ANY: PortFacts = PortFacts::ETHERNET;

fn tbf(mbit: u64) -> Params {
    Params::Tbf(tbf_params(mbit))
}

fn pfifo(limit: u32) -> Params {
    Params::Fifo(FifoUnit::Packets, Some(limit))
}

fn set(policy: &Policy, parent: (u16, u16), handle: u16, params: Params) -> Policy {
    let (major, minor) = parent;
    let class = Parent::Class(ClassId { major, minor });
    let parent = if major == 0 { Parent::Root } else { class };
    let (parent, handle, params) = (Some(parent), Handle::new(handle), Some(params));
    policy.edit("eth0", &Edit { verb: Verb::Replace, parent, handle, params }, &ANY).unwrap()
}

const ROOT: (u16, u16) = (0, 0);

fn retuned(update: &Update) -> Option<&Spec> {
    match update {
        Update::Retune(spec) => Some(spec),
        Update::Replace(_) => None,
    }
}

fn replaced(update: &Update) -> Option<&Spec> {
    match update {
        Update::Replace(spec) => Some(spec),
        Update::Retune(_) => None,
    }
}

#[test]
fn a_port_without_a_policy_runs_noqueue() {
    let (_, updates) = compile(&Policy::default(), 2, None);
    assert_eq!(updates.len(), 2);
    assert!(updates.iter().all(|update| replaced(update).unwrap().config == Config::Noqueue));
}

#[test]
fn a_filter_at_the_root_has_a_seat_for_every_queue_and_a_fifo_inside() {
    let (_, updates) = compile(&set(&Policy::default(), ROOT, 1, tbf(10)), 4, None);
    assert_eq!(updates.len(), 4);
    for update in &updates {
        let spec = replaced(update).unwrap();
        assert!(matches!(spec.config, Config::Tbf(_)) && spec.meter.is_some());
        let inner = &spec.children[0];
        assert_eq!(inner.config, Config::Fifo(fifo::Config::Bytes(Bytes(100_000))));
    }
    for update in updates {
        let (Update::Replace(spec) | Update::Retune(spec)) = update;
        drop(spec.build());
    }
}

#[test]
fn another_rate_keeps_seats_and_queues() {
    let policy = set(&Policy::default(), ROOT, 1, tbf(10));
    let (before, _seats) = compile(&policy, 4, None);
    let (after, updates) = compile(&set(&policy, ROOT, 1, tbf(20)), 4, Some(&before));
    for update in &updates {
        let spec = retuned(update).unwrap();
        assert!(spec.meter.is_none() && spec.children[0].meter.is_none());
    }
    after.commit();
}

#[test]
fn another_shape_gets_everything_new() {
    let policy = set(&Policy::default(), ROOT, 1, tbf(10));
    let (before, _seats) = compile(&policy, 4, None);
    for (other, queues) in [
        (set(&policy, ROOT, 2, tbf(10)), 4),
        (set(&policy, (1, 1), 2, pfifo(9)), 4),
        (set(&policy, ROOT, 2, pfifo(9)), 4),
        (policy.clone(), 3),
    ] {
        let (_, updates) = compile(&other, queues, Some(&before));
        assert!(updates.iter().all(|update| replaced(update).is_some()));
    }
}

#[test]
fn the_children_of_mq_are_their_queues_alone() {
    let policy = set(&Policy::default(), ROOT, 1, Params::Mq);
    let policy = set(&policy, (1, 2), 20, tbf(10));
    let (before, updates) = compile(&policy, 3, None);
    let configs: Vec<_> =
        updates.iter().map(|update| replaced(update).unwrap().config.clone()).collect();
    assert_eq!(configs[0], Config::Noqueue);
    assert!(matches!(configs[1], Config::Tbf(_)));
    assert_eq!(configs[2], Config::Noqueue);

    let more = set(&policy, (1, 1), 10, pfifo(5));
    let more = set(&more, (1, 2), 20, tbf(20));
    let (_, updates) = compile(&more, 3, Some(&before));
    assert!(replaced(&updates[0]).is_some(), "queue 0 got a qdisc");
    assert!(retuned(&updates[1]).is_some(), "queue 1 got another rate");
    assert!(retuned(&updates[2]).is_some(), "queue 2 got nothing");
}

#[test]
fn the_queues_of_mq_need_not_be_alike() {
    let policy = set(&Policy::default(), ROOT, 1, Params::Mq);
    let policy = set(&policy, (1, 2), 2, tbf(20));
    let policy = set(&policy, (2, 1), 3, tbf(10));
    let (_, updates) = compile(&policy, 2, None);
    assert_eq!(replaced(&updates[0]).unwrap().config, Config::Noqueue);
    let inner = &replaced(&updates[1]).unwrap().children[0];
    assert!(matches!(inner.config, Config::Tbf(_)) && inner.meter.is_some());
}

#[test]
fn mq_must_fit_the_port() {
    let policy = set(&Policy::default(), ROOT, 1, Params::Mq);
    let port =
        |policy: &Policy, queues| Installed::compile(policy.port("eth0"), queues, None).map(|_| ());
    assert_eq!(port(&policy, 0), Err(PolicyError::NoQueues));
    assert_eq!(port(&policy, 1), Err(PolicyError::MqNeedsQueues));
    let fifth = set(&policy, (1, 5), 0, pfifo(5));
    assert!(matches!(port(&fifth, 4), Err(PolicyError::NoClass(_))));
    assert_eq!(port(&fifth, 5), Ok(()));
}

fn sent(packets: u64) -> Stats {
    let backlog = Backlog { packets: 1, bytes: Bytes(100) };
    Stats { sent_packets: packets, sent_bytes: packets * 100, backlog, ..Stats::default() }
}

fn figures(nodes: &[NodeStats]) -> Vec<(String, Option<u16>, u64)> {
    let figure = |node: &NodeStats| {
        (node.parent.to_string(), node.handle.map(Handle::major), node.stats.sent_packets)
    };
    nodes.iter().map(figure).collect()
}

#[test]
fn queues_that_run_the_same_tree_are_summed_node_by_node() {
    let policy = set(&Policy::default(), ROOT, 1, tbf(10));
    let policy = set(&policy, (1, 1), 2, pfifo(5));
    let (installed, _) = compile(&policy, 2, None);
    let nodes = installed.gather(&[vec![sent(1), sent(2)], vec![sent(10), sent(20)]]);
    let root = ("root".to_owned(), Some(1), 11);
    assert_eq!(figures(&nodes), [root, ("parent 1:1".to_owned(), Some(2), 22)]);
    assert_eq!(nodes[0].stats.backlog, Backlog { packets: 2, bytes: Bytes(200) });
}

#[test]
fn mq_is_the_sum_of_its_queues() {
    let policy = set(&Policy::default(), ROOT, 1, Params::Mq);
    let policy = set(&policy, (1, 2), 20, tbf(10));
    let (installed, _) = compile(&policy, 2, None);
    let nodes = installed.gather(&[vec![sent(1)], vec![sent(10), sent(20)]]);
    assert_eq!(
        figures(&nodes),
        [
            ("root".to_owned(), Some(1), 11),
            ("parent 1:1".to_owned(), None, 1),
            ("parent 1:2".to_owned(), Some(20), 10),
            ("parent 14:1".to_owned(), None, 20),
        ]
    );
}

#[test]
fn a_queue_that_lags_behind_is_no_harm() {
    let (installed, _) = compile(&set(&Policy::default(), ROOT, 1, tbf(10)), 2, None);
    let nodes = installed.gather(&[vec![], vec![sent(1), sent(2), sent(3)]]);
    assert_eq!(nodes.len(), 2);
    assert_eq!(nodes[0].stats.sent_packets, 1);
    assert_eq!(installed.gather(&[]), []);
}
