//! The effects and refusals of edits, case by case and against a naive model.
//! `crates/control/tc/tests/parity` compares them with a kernel.

mod policies;

use narrows_coordination::Strategy;
use narrows_policy::{
    CakeOptions, ClassId, Edit, FifoUnit, Handle, Kind, MAX_DEPTH, Params, Parent, Policy,
    PolicyError, PortFacts, PrioParams, TbfParams, Verb,
};
use narrows_qdisc::tbf::Peak;
use narrows_qdisc::{netem, red};
use narrows_units::{Bytes, Rate};
use policies::tbf_params;
use proptest::prelude::{
    Just, Strategy as _, prop, prop_assert, prop_assert_eq, prop_oneof, proptest,
};

const FOUR_QUEUES: PortFacts = PortFacts { queues: Some(4), ..PortFacts::ETHERNET };
const ROOT: Option<Parent> = Some(Parent::Root);
const RED: red::Config = red::Config {
    limit: 400_000,
    min: 30_000,
    max: 90_000,
    avpkt: 1000,
    burst: 55,
    bandwidth: Rate::from_bits_per_sec(10_000_000),
    probability: u32::MAX / 50,
    ecn: false,
    harddrop: false,
    nodrop: false,
    adaptive: false,
    stream: 0,
};

fn class(major: u32, minor: u32) -> Option<Parent> {
    Some(Parent::Class(ClassId { major, minor }))
}

fn tbf(mbit: u64) -> Option<Params> {
    Some(Params::Tbf(tbf_params(mbit)))
}

fn pfifo(limit: u32) -> Option<Params> {
    Some(Params::Fifo(FifoUnit::Packets, Some(limit)))
}

fn cake(multi: bool) -> Params {
    Params::Cake { multi, options: CakeOptions::default() }
}

fn edit(verb: Verb, parent: Option<Parent>, handle: u32, params: Option<Params>) -> Edit {
    Edit { verb, parent, handle: Handle::new(handle), params }
}

fn apply(policy: &Policy, edit: Edit) -> Result<Policy, PolicyError> {
    policy.edit("eth0", &edit, &FOUR_QUEUES)
}

/// The policy that results from these edits.
fn made(edits: impl IntoIterator<Item = Edit>) -> Policy {
    edits.into_iter().fold(Policy::default(), |policy, edit| apply(&policy, edit).unwrap())
}

fn root_handle(policy: &Policy) -> u32 {
    policy.port("eth0").root().unwrap().handle.major()
}

#[test]
fn handles_are_given_out_from_8001_on_and_not_twice() {
    let policy = made([edit(Verb::Add, ROOT, 0, tbf(1)), edit(Verb::Delete, ROOT, 0, None)]);
    let policy = apply(&policy, edit(Verb::Add, ROOT, 0, pfifo(5))).unwrap();
    assert_eq!(root_handle(&policy), 0x8002);
    let taken = made([
        edit(Verb::Add, ROOT, 0x8001, tbf(1)),
        edit(Verb::Add, class(0x8001, 1), 0, pfifo(5)),
    ]);
    assert!(taken.port("eth0").find(Handle::new(0x8002).unwrap()).is_some());
}

#[test]
fn handles_are_counted_over_all_ports() {
    let add = edit(Verb::Add, ROOT, 0, pfifo(5));
    let policy = Policy::default().edit("a", &add, &FOUR_QUEUES).unwrap();
    let policy = policy.edit("b", &add, &FOUR_QUEUES).unwrap();
    assert_eq!(policy.port("b").root().unwrap().handle.major(), 0x8002);
}

#[test]
fn the_default_is_noqueue_and_cannot_be_deleted() {
    let policy = Policy::default();
    assert_eq!(policy.port("eth0").root(), None);
    let refused = apply(&policy, edit(Verb::Delete, ROOT, 0, None));
    assert_eq!(refused, Err(PolicyError::Default));
}

#[test]
fn deleting_the_root_takes_everything_below_it() {
    let policy = made([
        edit(Verb::Add, ROOT, 1, tbf(1)),
        edit(Verb::Add, class(1, 1), 2, pfifo(5)),
        edit(Verb::Delete, ROOT, 0, None),
    ]);
    assert_eq!(policy, Policy::default());
    assert_eq!(policy.ports().count(), 0);
}

#[test]
fn a_fifo_without_a_limit_holds_what_the_device_says() {
    let jumbo = PortFacts { mtu: 9000, tx_queue_len: 10, ..FOUR_QUEUES };
    let add = edit(Verb::Add, ROOT, 0, Some(Params::Fifo(FifoUnit::Bytes, None)));
    let policy = Policy::default().edit("eth0", &add, &jumbo).unwrap();
    let root = policy.port("eth0").root().unwrap();
    assert!(matches!(root.kind, Kind::Fifo(fifo) if fifo.limit == 90_140));
}

#[test]
fn a_changed_filter_sets_the_limit_of_the_fifo_inside() {
    let policy = made([
        edit(Verb::Add, ROOT, 1, tbf(1)),
        edit(Verb::Add, class(1, 1), 2, pfifo(5)),
        edit(Verb::Change, ROOT, 1, tbf(2)),
    ]);
    let inner = policy.port("eth0").find(Handle::new(2).unwrap()).unwrap();
    assert!(matches!(inner.kind, Kind::Fifo(fifo) if fifo.limit == 100_000));
}

#[test]
fn a_coordination_stays_until_another_is_named() {
    let locked = TbfParams { strategy: Some(Strategy::Lock), ..tbf_params(1) };
    let strategy = |policy: &Policy| match &policy.port("eth0").root().unwrap().kind {
        Kind::Tbf(tbf) => tbf.strategy(),
        _ => unreachable!(),
    };
    let policy = made([
        edit(Verb::Add, ROOT, 1, Some(Params::Tbf(locked.clone()))),
        edit(Verb::Replace, ROOT, 1, tbf(2)),
    ]);
    assert_eq!(strategy(&policy), Strategy::Lock);
    let policy = apply(&policy, edit(Verb::Replace, ROOT, 2, tbf(2))).unwrap();
    assert_eq!(strategy(&policy), narrows_coordination::Strategy::default());
}

#[test]
fn coordination_needs_more_than_one_queue() {
    let policy = made([edit(Verb::Add, ROOT, 1, Some(Params::Mq))]);
    let locked = TbfParams { strategy: Some(Strategy::Lock), ..tbf_params(1) };
    let refused =
        apply(&policy, edit(Verb::Add, class(1, 1), 2, Some(Params::Tbf(locked.clone()))));
    assert_eq!(refused, Err(PolicyError::CoordinationUnderMq));
    let policy = apply(&policy, edit(Verb::Add, class(1, 1), 2, tbf(1))).unwrap();
    let refused =
        apply(&policy, edit(Verb::Change, class(1, 1), 2, Some(Params::Tbf(locked.clone()))));
    assert_eq!(refused, Err(PolicyError::CoordinationUnderMq));
    let refused =
        apply(&policy, edit(Verb::Add, class(2, 1), 3, Some(Params::Tbf(locked.clone()))));
    assert_eq!(refused, Err(PolicyError::CoordinationUnderMq));
}

#[test]
fn a_filter_that_nothing_could_pass_is_refused() {
    let rate = Rate::from_bits_per_sec(1_000_000);
    let peak = |rate, mtu| Some(Peak { rate, mtu: Bytes(mtu) });
    for wrong in [
        TbfParams { rate: Rate::default(), ..tbf_params(1) },
        TbfParams { burst: Bytes::ZERO, ..tbf_params(1) },
        TbfParams { peak: peak(rate, 1500), ..tbf_params(1) },
        TbfParams { peak: peak(Rate::from_bits_per_sec(2_000_000), 0), ..tbf_params(1) },
    ] {
        let refused = apply(&Policy::default(), edit(Verb::Add, ROOT, 0, Some(Params::Tbf(wrong))));
        assert!(matches!(refused, Err(PolicyError::Tbf(_))), "{refused:?}");
    }
}

#[test]
fn mq_needs_queues() {
    let one = PortFacts { queues: Some(1), ..PortFacts::ETHERNET };
    let add = edit(Verb::Add, ROOT, 0, Some(Params::Mq));
    assert_eq!(Policy::default().edit("eth0", &add, &one), Err(PolicyError::MqNeedsQueues));
    assert!(Policy::default().edit("eth0", &add, &PortFacts::ETHERNET).is_ok());
}

#[test]
fn with_unknown_queues_every_class_of_mq_is_accepted() {
    let facts = PortFacts::ETHERNET;
    let add = edit(Verb::Add, ROOT, 1, Some(Params::Mq));
    let policy = Policy::default().edit("eth0", &add, &facts).unwrap();
    assert!(policy.edit("eth0", &edit(Verb::Add, class(1, 0xffff), 0, pfifo(5)), &facts).is_ok());
    assert!(policy.edit("eth0", &edit(Verb::Add, class(1, 0), 0, pfifo(5)), &facts).is_err());
}

#[test]
fn the_outermost_classful_qdisc_is_one_that_all_packets_pass() {
    let prio = || Some(Params::Prio(PrioParams::default()));
    let outermost = |policy: &Policy| policy.port("eth0").outermost().map(Handle::major);
    let policy = made([
        edit(Verb::Add, ROOT, 1, tbf(1)),
        edit(Verb::Add, class(1, 1), 2, prio()),
        edit(Verb::Add, class(2, 1), 3, prio()),
    ]);
    assert_eq!(outermost(&policy), Some(2));
    let policy =
        made([edit(Verb::Add, ROOT, 1, Some(Params::Mq)), edit(Verb::Add, class(1, 1), 2, prio())]);
    assert_eq!(outermost(&policy), None, "each queue has its own");
    assert_eq!(outermost(&made([edit(Verb::Add, ROOT, 1, tbf(1))])), None);
}

#[test]
fn trees_have_a_bottom() {
    let mut policy = made([edit(Verb::Add, ROOT, 1, tbf(1))]);
    let depth = u32::try_from(MAX_DEPTH).unwrap();
    for handle in 2..=depth {
        policy = apply(&policy, edit(Verb::Add, class(handle - 1, 1), handle, tbf(1))).unwrap();
    }
    let refused = apply(&policy, edit(Verb::Add, class(depth, 1), depth + 1, tbf(1)));
    assert_eq!(refused, Err(PolicyError::TooDeep));
}

#[test]
fn a_port_runs_out_of_handles_only_when_all_are_taken() {
    // Not all 32766 handles, but a wrap from the last to the first.
    let policy = made([edit(Verb::Add, ROOT, 0xfffe, tbf(1))]);
    let policy = apply(&policy, edit(Verb::Add, class(0xfffe, 1), 0, pfifo(5))).unwrap();
    assert!(policy.port("eth0").find(Handle::FIRST_AUTOMATIC).is_some());
}

/// Kinds with one class.
const ONE: [&str; 3] = ["tbf", "red", "netem"];

/// The kernel's rules over a flat table, as simple as possible.
#[derive(Clone, Default)]
struct Model {
    rows: Vec<Row>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Row {
    handle: u32,
    parent: Parent,
    kind: &'static str,
}

impl Model {
    fn row(&self, handle: u32) -> Option<Row> {
        self.rows.iter().copied().find(|row| row.handle == handle)
    }

    /// The row in that place; an error if the place does not exist.
    fn at(&self, parent: Parent) -> Result<Option<Row>, ()> {
        match parent {
            Parent::Root => Ok(self.rows.iter().copied().find(|row| row.parent == Parent::Root)),
            Parent::Class(id) => {
                let holder = self.row(id.major).ok_or(())?;
                let same_place = |row: &Row| match row.parent {
                    Parent::Class(other) if ONE.contains(&holder.kind) => other.major == id.major,
                    other => other == parent,
                };
                match holder.kind {
                    "mq" if !(1..=4).contains(&id.minor) => Err(()),
                    "mq" | "tbf" | "red" | "netem" => {
                        Ok(self.rows.iter().copied().find(same_place))
                    }
                    _ => Err(()),
                }
            }
        }
    }

    fn remove(&mut self, handle: u32) {
        self.rows.retain(|row| row.handle != handle);
        let orphans = self
            .rows
            .iter()
            .filter(|row| matches!(row.parent, Parent::Class(id) if id.major == handle));
        let orphans: Vec<u32> = orphans.map(|row| row.handle).collect();
        orphans.into_iter().for_each(|orphan| self.remove(orphan));
    }

    fn apply(&mut self, edit: &Edit, kind: &'static str) -> Result<(), ()> {
        let wanted = edit.handle.map(Handle::major);
        let Some(parent) = edit.parent else {
            let row = wanted.and_then(|handle| self.row(handle)).ok_or(())?;
            let fine = matches!(edit.verb, Verb::Replace | Verb::Change) && row.kind == kind;
            return if fine { Ok(()) } else { Err(()) };
        };
        let present = self.at(parent)?;
        if edit.verb == Verb::Delete {
            let row = present.ok_or(())?;
            if wanted.is_some_and(|handle| handle != row.handle) || row.kind != kind {
                return Err(());
            }
            self.remove(row.handle);
            return Ok(());
        }
        if let Some(row) = present {
            let same = wanted.is_none_or(|handle| handle == row.handle);
            let change = same && (row.kind == kind || wanted.is_some());
            if change {
                return if edit.verb != Verb::Add && row.kind == kind { Ok(()) } else { Err(()) };
            }
            if !same && edit.verb != Verb::Replace {
                return Err(());
            }
        } else if edit.verb == Verb::Change {
            return Err(());
        }
        if wanted.is_some_and(|handle| self.row(handle).is_some()) {
            return Err(());
        }
        let root = parent == Parent::Root;
        if matches!(kind, "mq" | "cake_mq" | "noqueue") && !root {
            return Err(());
        }
        // Automatic handles are not used here: the model need not count.
        let handle = wanted.ok_or(())?;
        if let Some(row) = present {
            self.remove(row.handle);
        }
        self.rows.push(Row { handle, parent, kind });
        Ok(())
    }
}

/// Edits, each with the name of its kind.
fn edits() -> impl proptest::strategy::Strategy<Value = Vec<(Edit, &'static str)>> {
    let parents = prop_oneof![
        3 => Just(ROOT),
        6 => (1u32..5, 0u32..6).prop_map(|(major, minor)| class(major, minor)),
        1 => Just(None),
    ];
    let verbs = prop_oneof![
        4 => Just(Verb::Add),
        4 => Just(Verb::Replace),
        1 => Just(Verb::Change),
        2 => Just(Verb::Delete)
    ];
    let kinds = prop_oneof![
        3 => Just(("tbf", tbf(1).unwrap())),
        2 => Just(("mq", Params::Mq)),
        2 => Just(("pfifo", pfifo(5).unwrap())),
        1 => Just(("netem", Params::Netem(netem::Config::default()))),
        1 => Just(("red", Params::Red(Box::new(RED)))),
        1 => Just(("noqueue", Params::Noqueue)),
        1 => Just(("cake", cake(false))),
        1 => Just(("cake_mq", cake(true))),
    ];
    let edit =
        (verbs, parents, 0u32..5, kinds).prop_map(|(verb, parent, handle, (kind, params))| {
            (edit(verb, parent, handle, Some(params)), kind)
        });
    prop::collection::vec(edit, 1..40)
}

proptest! {
    #[test]
    fn trees_grow_as_the_flat_table_does(edits in edits()) {
        let mut policy = Policy::default();
        let mut model = Model::default();
        for (edit, kind) in edits {
            let mut expected = model.clone();
            let accepted = expected.apply(&edit, kind).is_ok();
            match apply(&policy, edit.clone()) {
                // Only the policy allocates handles; another test checks when it may.
                Ok(_) if !accepted && edit.handle.is_none() => {}
                Ok(next) => {
                    prop_assert!(accepted, "{edit:?} on {policy:?}");
                    (policy, model) = (next, expected);
                }
                Err(error) => prop_assert!(!accepted, "{edit:?} on {policy:?}: {error}"),
            }
            let port = policy.port("eth0");
            let mut rows: Vec<_> = port
                .nodes()
                .iter()
                .map(|node| Row {
                    handle: node.handle.major(),
                    parent: node.parent,
                    kind: node.kind.name(),
                })
                .collect();
            let order = |row: &Row| row.handle;
            rows.sort_by_key(order);
            model.rows.sort_by_key(order);
            prop_assert_eq!(&rows, &model.rows);
        }
    }
}
