//! Classful qdiscs: their trees, and the qdiscs below their classes.

use crate::policies::install;
use narrows_policy::{Plan, Policy, PortFacts};
use narrows_qdisc::{Config, Spec};
use narrows_tc::{Host, execute};

/// A port with four queues.
#[derive(Default)]
struct Port(Policy);

impl Host for Port {
    fn devices(&self) -> Vec<String> {
        vec!["eth0".to_owned()]
    }

    fn port(&self, dev: &str) -> Option<PortFacts> {
        (dev == "eth0").then_some(PortFacts { queues: Some(4), ..PortFacts::ETHERNET })
    }

    fn policy(&self) -> Policy {
        self.0.clone()
    }

    fn apply(&mut self, policy: Policy) -> Result<(), String> {
        self.0 = policy;
        Ok(())
    }
}

fn policy(lines: &[&str]) -> Policy {
    let mut port = Port::default();
    for line in lines {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        assert_eq!(execute(&args, &mut port).stderr, "", "{line}");
    }
    port.0
}

const MQ: [&str; 5] = [
    "qdisc add dev eth0 root handle 1: mq",
    "qdisc add dev eth0 parent 1:1 handle 10: htb",
    "class add dev eth0 parent 10: classid 10:1 htb rate 1mbit",
    "qdisc add dev eth0 parent 1:2 handle 20: htb",
    "class add dev eth0 parent 20: classid 20:2 htb rate 2mbit",
];

fn classes(spec: &Spec) -> [bool; 2] {
    let tree = spec.tree.as_ref().unwrap();
    [1, 2].map(|id| tree.leaf(id).is_some())
}

#[test]
fn each_htb_below_an_mq_has_a_tree_of_its_own() {
    let before = policy(&MQ);
    let (installation, specs) = install(&before, 4, None);
    assert_eq!([classes(&specs[0]), classes(&specs[1])], [[true, false], [false, true]]);
    assert!(specs[2].tree.is_none());
    let more = "class add dev eth0 parent 20: classid 20:1 htb rate 2mbit";
    let (next, next_specs) = install(&policy(&[&MQ[..], &[more]].concat()), 4, Some(&installation));
    assert!(next_specs.iter().all(|spec| spec.tree.is_none()), "they keep their schedulers");
    next.commit();
    assert_eq!([classes(&specs[0]), classes(&specs[1])], [[true, false], [true, true]]);
}

#[test]
fn a_class_s_qdisc_comes_with_all_below_it() {
    let policy = policy(&[
        "qdisc add dev eth0 root handle 1: htb",
        "class add dev eth0 parent 1: classid 1:1 htb rate 1mbit",
        "qdisc add dev eth0 parent 1:1 handle 10: prio bands 2 priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
        "qdisc add dev eth0 parent 10:2 handle 11: drr",
        "class add dev eth0 parent 11: classid 11:7 drr",
    ]);
    let (_, specs) = install(&policy, 4, None);
    let prio = specs[3].tree.as_ref().unwrap().leaf(1).unwrap().qdisc;
    assert_eq!((prio.level, prio.children.len()), (1, 2));
    assert_eq!((prio.children[1].level, prio.children[1].children.len()), (2, 1));
    assert!(matches!(prio.children[0].config, Config::Fifo(_)));
    let tree = specs[3].tree.as_ref().unwrap();
    assert!(tree.reading().class && specs[0].classification.is_some());
}

#[test]
fn bands_below_a_shared_rate_are_one_tree_that_follows_a_change() {
    let lines = |bands: &'static str| {
        [
            "qdisc add dev eth0 root handle 1: tbf rate 10mbit burst 30k limit 100k",
            "qdisc add dev eth0 parent 1: handle 2: prio",
            bands,
        ]
    };
    let before = policy(&lines("qdisc change dev eth0 parent 1: prio bands 3"));
    let (installation, specs) = install(&before, 4, None);
    let leaf = |id| specs[2].children[0].tree.as_ref().unwrap().leaf(id);
    assert!(leaf(3).is_some() && leaf(4).is_none());
    let after = policy(&lines("qdisc change dev eth0 parent 1: prio bands 4"));
    let (next, next_specs) = install(&after, 4, Some(&installation));
    assert_eq!(next_specs[2].children[0].id, specs[2].children[0].id, "it carries on");
    assert!(next_specs[2].children[0].tree.is_none());
    next.commit();
    assert!(leaf(4).is_some());
    let band = &next.plan().classes.values().next().unwrap()[&4];
    assert_eq!(band.class.htb().unwrap().prio, 3);
    // A single queue shares its bands with no other.
    let plan = Plan::of(after.port("eth0"), 1).unwrap();
    assert!(!plan.nodes.values().any(|node| matches!(*node.config, Config::Htb(_))));
}
