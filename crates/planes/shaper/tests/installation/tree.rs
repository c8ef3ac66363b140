//! The specifications for workers, and how their figures come back.

use crate::policies::{fits, has_meter, install, kept, tbf_params};
use narrows_packet::Backlog;
use narrows_policy::{
    ClassId, Edit, FifoUnit, Handle, NodeStats, Params, Parent, Policy, PolicyError, PortFacts,
    Verb,
};
use narrows_qdisc::{Config, Metering, Slot, Spec, Stats, fifo};
use narrows_units::Bytes;

const ANY: PortFacts = PortFacts::ETHERNET;

fn tbf(mbit: u64) -> Params {
    Params::Tbf(tbf_params(mbit))
}

fn pfifo(limit: u32) -> Params {
    Params::Fifo(FifoUnit::Packets, Some(limit))
}

fn set(policy: &Policy, parent: (u32, u32), handle: u32, params: Params) -> Policy {
    let (major, minor) = parent;
    let class = Parent::Class(ClassId { major, minor });
    let parent = if major == 0 { Parent::Root } else { class };
    let (parent, handle, params) = (Some(parent), Handle::new(handle), Some(params));
    policy.edit("eth0", &Edit { verb: Verb::Replace, parent, handle, params }, &ANY).unwrap()
}

const ROOT: (u32, u32) = (0, 0);

#[test]
fn a_port_without_a_policy_runs_noqueue() {
    let (_, specs) = install(&Policy::default(), 2, None);
    assert_eq!(specs.len(), 2);
    assert!(specs.iter().all(|spec| spec.config == Config::Noqueue));
}

#[test]
fn a_filter_at_the_root_has_a_meter_for_every_queue_and_a_fifo_inside() {
    let (_, specs) = install(&set(&Policy::default(), ROOT, 1, tbf(10)), 4, None);
    assert_eq!(specs.len(), 4);
    for spec in specs {
        assert!(matches!(spec.config, Config::Tbf(_)) && has_meter(&spec));
        let inner = &spec.children[0];
        assert_eq!(inner.config, Config::Fifo(fifo::Config::Bytes(Bytes(100_000))));
        drop(Slot::new(spec));
    }
}

#[test]
fn another_rate_keeps_meters_and_queues() {
    let policy = set(&Policy::default(), ROOT, 1, tbf(10));
    let (before, first) = install(&policy, 4, None);
    let (after, specs) = install(&set(&policy, ROOT, 1, tbf(20)), 4, Some(&before));
    assert_eq!(kept(&first, &specs), [true; 4]);
    for (before, spec) in first.iter().zip(&specs) {
        assert!(matches!(spec.metering, Metering::Kept));
        assert_eq!(before.children[0].id, spec.children[0].id);
    }
    after.commit();
}

#[test]
fn another_qdisc_is_new_with_all_below_it() {
    let policy = set(&Policy::default(), ROOT, 1, tbf(10));
    let policy = set(&policy, (1, 1), 5, pfifo(9));
    let (before, first) = install(&policy, 4, None);
    let other = set(&set(&policy, ROOT, 2, tbf(10)), (2, 1), 5, pfifo(9));
    for (other, queues) in [(other, 4), (policy.clone(), 3)] {
        let (_, specs) = install(&other, queues, Some(&before));
        assert!(!kept(&first, &specs).contains(&true));
        for (before, spec) in first.iter().zip(&specs) {
            assert!(has_meter(spec) && before.children[0].id != spec.children[0].id);
        }
    }
}

#[test]
fn a_new_child_does_not_touch_its_parent() {
    let policy = set(&Policy::default(), ROOT, 1, tbf(10));
    let (before, first) = install(&policy, 4, None);
    let (_, specs) = install(&set(&policy, (1, 1), 2, pfifo(9)), 4, Some(&before));
    assert_eq!(kept(&first, &specs), [true; 4]);
    for (before, spec) in first.iter().zip(&specs) {
        assert!(matches!(spec.metering, Metering::Kept), "its credit is kept");
        assert_ne!(before.children[0].id, spec.children[0].id);
    }
}

#[test]
fn the_children_of_mq_are_their_queues_alone() {
    let policy = set(&Policy::default(), ROOT, 1, Params::Mq);
    let policy = set(&policy, (1, 2), 20, tbf(10));
    let (before, first) = install(&policy, 3, None);
    assert_eq!(first[0].config, Config::Noqueue);
    assert!(matches!(first[1].config, Config::Tbf(_)));
    assert_eq!(first[2].config, Config::Noqueue);

    let more = set(&policy, (1, 1), 10, pfifo(5));
    let more = set(&more, (1, 2), 20, tbf(20));
    let (_, specs) = install(&more, 3, Some(&before));
    // A qdisc, another rate, nothing.
    assert_eq!(kept(&first, &specs), [false, true, true]);
}

#[test]
fn the_queues_of_mq_need_not_be_alike() {
    let policy = set(&Policy::default(), ROOT, 1, Params::Mq);
    let policy = set(&policy, (1, 2), 2, tbf(20));
    let policy = set(&policy, (2, 1), 3, tbf(10));
    let (_, specs) = install(&policy, 2, None);
    assert_eq!(specs[0].config, Config::Noqueue);
    let inner = &specs[1].children[0];
    assert!(matches!(inner.config, Config::Tbf(_)) && has_meter(inner));
}

#[test]
fn mq_must_fit_the_port() {
    let policy = set(&Policy::default(), ROOT, 1, Params::Mq);
    assert_eq!(fits(&policy, 0), Err(PolicyError::NoQueues));
    assert_eq!(fits(&policy, 1), Err(PolicyError::MqNeedsQueues));
    let fifth = set(&policy, (1, 5), 0, pfifo(5));
    assert!(matches!(fits(&fifth, 4), Err(PolicyError::NoClass(_))));
    assert_eq!(fits(&fifth, 5), Ok(()));
}

fn sent(packets: u64, of: &Spec) -> Stats {
    let backlog = Backlog { packets: 1, bytes: Bytes(100) };
    let (sent_packets, sent_bytes) = (packets, packets * 100);
    Stats { sent_packets, sent_bytes, backlog, id: of.id, ..Stats::default() }
}

fn figures(nodes: &[NodeStats]) -> Vec<(String, Option<u32>, u64)> {
    let figure = |node: &NodeStats| {
        (node.parent.to_string(), node.handle.map(Handle::major), node.stats.sent_packets)
    };
    nodes.iter().map(figure).collect()
}

#[test]
fn queues_that_run_the_same_tree_are_summed_node_by_node() {
    let policy = set(&Policy::default(), ROOT, 1, tbf(10));
    let policy = set(&policy, (1, 1), 2, pfifo(5));
    let (installed, specs) = install(&policy, 2, None);
    let queue = |outer, inner| vec![sent(outer, &specs[0]), sent(inner, &specs[0].children[0])];
    let nodes = installed.gather(&[queue(1, 2), queue(10, 20)]);
    let root = ("root".to_owned(), Some(1), 11);
    assert_eq!(figures(&nodes), [root, ("parent 1:1".to_owned(), Some(2), 22)]);
    assert_eq!(nodes[0].stats.backlog, Backlog { packets: 2, bytes: Bytes(200) });
}

#[test]
fn mq_is_the_sum_of_its_queues() {
    let policy = set(&Policy::default(), ROOT, 1, Params::Mq);
    let policy = set(&policy, (1, 2), 20, tbf(10));
    let (installed, specs) = install(&policy, 2, None);
    let second = vec![sent(10, &specs[1]), sent(20, &specs[1].children[0])];
    let nodes = installed.gather(&[vec![sent(1, &specs[0])], second]);
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
fn figures_of_a_lagging_queue_count_only_for_qdiscs_that_carry_on() {
    let policy = set(&Policy::default(), ROOT, 1, tbf(10));
    let (before, first) = install(&policy, 2, None);
    let policy = set(&policy, (1, 1), 2, pfifo(5));
    let (after, specs) = install(&policy, 2, Some(&before));
    let new = vec![sent(1, &specs[0]), sent(2, &specs[0].children[0])];
    let old = vec![sent(10, &first[0]), sent(20, &first[0].children[0])];
    let root = ("root".to_owned(), Some(1), 11);
    let nodes = after.gather(&[new, old]);
    assert_eq!(figures(&nodes), [root, ("parent 1:1".to_owned(), Some(2), 2)]);
    assert!(after.gather(&[]).iter().all(|node| node.stats == Stats::default()));
}

#[test]
fn a_plan_can_be_read() {
    let policy = set(&Policy::default(), ROOT, 1, Params::Mq);
    let policy = set(&policy, (1, 2), 20, tbf(10));
    let (installed, _) = install(&policy, 3, None);
    let plan = installed.plan().to_string();
    let lines: Vec<_> = plan.lines().map(|line| line.split(": Tbf").next().unwrap()).collect();
    assert_eq!(
        lines[..4],
        [
            "limit 14: 10 Mbit/s over 1 queue by equal",
            "qdisc 0: parent 1:1 on 1 queue: Noqueue",
            "qdisc 14: parent 1:2 on 1 queue",
            "qdisc 0: parent 14:1 on 1 queue: Fifo(Bytes(100000 bytes))",
        ]
    );
}
