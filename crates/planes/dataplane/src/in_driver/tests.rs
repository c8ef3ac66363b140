//! Filters at qdiscs give a packet the same class in the driver as in a worker.

use crate::random::{basic, filter, flower, frames, mark, route, words};
use narrows_bpf::test_run;
use narrows_bpf::tree::Tree;
use narrows_bpf::{Does, Entry, Front, FrontMaps, FrontPort, Hook, Step, Term, Then, XdpMode};
use narrows_classify::{
    Action, ActionId, ActionKind, Actions, Classification, Control, Counters, Filter, Filters,
    Found, Matches, Rules, Running, Subject,
};
use narrows_packet::RouteTaken;
use narrows_policy::{ActionFlags, BoundAction, Handle, Plan};
use narrows_tc::OfflineHost;
use narrows_units::Nanos;
use narrows_xdp::{Compiled, Enforcement, Numbers, Refusal, compile};
use proptest::collection::vec;
use proptest::prelude::{
    Just, ProptestConfig, Strategy, TestCaseError, any, prop_assert_eq, prop_oneof, proptest,
};
use std::collections::BTreeMap;
use std::sync::Arc;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// The loopback device: nothing is sent in a test run.
const OTHER: u32 = 1;

/// A qdisc with a default class, and one that chooses by priority; with the qdisc that has the
/// classes, and some of these. No packet exceeds its rate.
const TREES: [(&str, u32, [u32; 3]); 2] = [
    (
        "qdisc add dev nrw-a root handle 1: htb default 30\n\
         class add dev nrw-a parent 1: classid 1:10 htb rate 100gbit burst 10m\n\
         class add dev nrw-a parent 1: classid 1:20 htb rate 100gbit burst 10m\n\
         class add dev nrw-a parent 1: classid 1:30 htb rate 100gbit burst 10m\n",
        1,
        [0x10, 0x20, 0x30],
    ),
    (
        "qdisc add dev nrw-a root handle 2: tbf rate 100gbit burst 10m latency 100ms\n\
         qdisc add dev nrw-a parent 2:1 handle 1: prio\n",
        1,
        [1, 2, 3],
    ),
];

/// The actions, by index from 1 on.
const GACTS: [Control; 4] = [Control::Drop, Control::Continue, Control::Pass, Control::Pipe];

fn gact(index: u32) -> ActionId {
    ActionId { kind: ActionKind::Gact, index }
}

/// Filters of all kinds, with a number of a class and indices of actions.
fn filters() -> impl Strategy<Value = Vec<(Filter, usize, Vec<u32>)>> {
    let matches = prop_oneof![
        4 => flower(), 2 => words(), 4 => basic(), 1 => Just(Matches::All), 1 => mark(),
        2 => route(),
    ];
    let actions = prop_oneof![
        5 => Just(Vec::new()), 1 => Just(vec![1]), 2 => Just(vec![2]), 1 => Just(vec![3]),
        1 => Just(vec![4, 2]), 1 => Just(vec![4, 4, 1]), 1 => Just(vec![4]),
    ];
    let filter = (filter(matches), 1_u16..9, 0_usize..4, actions);
    let filter = filter
        .prop_map(|(filter, pref, class, actions)| (Filter { pref, ..filter }, class, actions));
    vec(filter, 1..60)
}

/// The plan of one of [`TREES`] with as many of `filters` as there is room for, in the driver's
/// form, too. With terms all headers are read at once, so without them something else is tested.
fn planned(
    (lines, major, classes): (&str, u32, [u32; 3]),
    filters: Vec<(Filter, usize, Vec<u32>)>,
    has_terms: bool,
) -> (Plan, Compiled) {
    let policy = narrows_tc::load(lines, "policy", &OfflineHost::default()).unwrap();
    let mut plan = Plan::of(policy.port("nrw-a"), 2).unwrap();
    plan.actions = (1..)
        .zip(GACTS)
        .map(|(index, control)| {
            let (id, action) = (gact(index), Action::Gact { control, random: None });
            let (cookie, flags) = (None, ActionFlags::default());
            (id.key(), BoundAction { id, action, cookie, flags, filters: 1, stays: true })
        })
        .collect();
    let mut compiled = compile(&plan, &Numbers::default(), Enforcement::Policing).unwrap();
    for (handle, (filter, class, actions)) in (1..).zip(filters) {
        let class = match classes.get(class) {
            Some(class) => *class,
            // Only an action makes a filter without a class.
            None if actions.is_empty() => classes[0],
            None => 0,
        };
        let actions = actions.into_iter().map(gact).collect();
        let filter = Arc::new(Filter { handle, class, actions, ..filter });
        let mut next = plan.clone();
        let rules = next.rules.values_mut().next().unwrap();
        assert_eq!(rules.major, major);
        let all: &mut Filters = rules.filters.entry(0).or_default();
        all.insert(filter.order(), filter);
        match compile(&next, &Numbers::default(), Enforcement::Policing) {
            Ok(with) if !has_terms && !with.image.terms.is_empty() => {}
            Ok(with) => (plan, compiled) = (next, with),
            Err(Refusal::Room { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    (plan, compiled)
}

/// The fate of a packet: the number of its class, or dropped by a filter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Fate {
    Class(u32),
    Filtered,
}

/// How many packets the program has counted of each fate.
fn counted(tree: &Tree, numbers: &Numbers) -> BTreeMap<Fate, u64> {
    let of = |number: u32| {
        let counted = tree.class_counters(number).unwrap();
        (Fate::Class(number), counted.own_packets + counted.borrowed_packets)
    };
    let filtered = (Fate::Filtered, tree.totals().unwrap().filter_drops);
    numbers.all().map(of).chain([filtered]).collect()
}

/// The program of `compiled` at XDP or tcx, with a filter in front that sets mark and priority.
fn tree(compiled: &Compiled, at_tcx: bool, [mark, priority]: [u32; 2]) -> Tree {
    let mut tree = Tree::load(MAC, false, Entry::Own, Hook::Xdp(XdpMode::Native)).unwrap();
    if at_tcx {
        tree.move_to(Hook::Tcx).unwrap();
    }
    tree.connect(OTHER).unwrap();
    let new: Vec<u32> = compiled.numbers.all().collect();
    tree.install(compiled.image.clone(), &new).unwrap();
    if [mark, priority] != [0, 0] {
        let mark = (mark != 0).then_some((mark, u32::MAX));
        let does = Does::Edit { mark, priority: (priority != 0).then_some(priority) };
        let steps = vec![Step { does, then: Then::Pass, exceed: Then::Pass, counter: None }];
        let handed = tree.handed().unwrap();
        let entry = tree.entry();
        let port = FrontPort { own: MAC.into(), multi_buffer: false, entry, handed: Some(&handed) };
        let term = Term { steps, ..Term::any() };
        let front = Front::load(port, &[term], None, &mut FrontMaps::new().unwrap()).unwrap();
        tree.put_in_front(Some(front)).unwrap();
    }
    tree
}

fn check(
    of: (&str, u32, [u32; 3]),
    filters: Vec<(Filter, usize, Vec<u32>)>,
    frames: &[Vec<u8>],
    [mark, priority]: [u32; 2],
    route: RouteTaken,
    [has_terms, at_tcx]: [bool; 2],
) -> Result<(), TestCaseError> {
    let (plan, compiled) = planned(of, filters, has_terms);
    let tree = tree(&compiled, at_tcx, [mark, priority]);
    tree.take_route(route).unwrap();
    let Compiled { numbers, .. } = &compiled;
    let rules: &Rules = plan.rules.values().next().unwrap();
    let running = plan.actions.iter().map(|(key, bound)| {
        (key, Arc::new(Running::new(bound.action, Arc::<Counters>::default(), None)))
    });
    let running: Actions = running.collect();
    let classification = Classification::of(rules, &running, None);
    let handle = Handle::new(of.1).unwrap();
    let mut before = counted(&tree, numbers);
    for frame in frames {
        test_run::test_run(tree.program(), frame, 1).unwrap();
        let after = counted(&tree, numbers);
        let fates = after.iter().filter(|(fate, packets)| before[fate] < **packets);
        let fates: Vec<Fate> = fates.map(|(fate, _)| *fate).collect();
        let mut subject = Subject::new(frame).unwrap();
        subject.set_route(route);
        subject.set_mark(mark);
        subject.priority = priority;
        let path = classification.classify(Found::default(), &mut subject, Nanos::ZERO);
        let expected = path.map_or(Fate::Filtered, |path| {
            let number = |class| numbers.get((handle, class));
            // A class that is not there is the default, which only the first tree has.
            Fate::Class(number(path.class).or(number(0x30)).unwrap())
        });
        prop_assert_eq!(fates, vec![expected], "{:02x?}\n{:#?}", frame, rules);
        before = after;
    }
    for (id, number) in numbers.actions() {
        let acted = tree.acted(number).unwrap();
        let expected = running.get(id.key()).unwrap().counters().stats();
        prop_assert_eq!(
            (acted.packets, acted.bytes),
            (expected.packets, expected.bytes),
            "{:?}",
            id
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(36))]

    #[test]
    fn a_packet_has_the_same_class_in_the_driver_and_in_a_worker(
        of in prop_oneof![Just(TREES[0]), Just(TREES[1])],
        filters in filters(),
        frames in vec(frames(), 100),
        mark in 0_u32..3,
        priority in prop_oneof![
            3 => Just(0), 1 => Just(6_u32), 1 => Just(0x1_0002), 1 => Just(0x9_0010),
        ],
        (from, to, metric) in (0_u32..3, 0_u32..3, 0_u32..2),
        has_terms in any::<bool>(),
        at_tcx in any::<bool>(),
    ) {
        if let Err(error) = Tree::load(MAC, false, Entry::Own, Hook::Xdp(XdpMode::Native)) {
            eprintln!("SKIPPED: {error}");
            return Ok(());
        }
        let route = RouteTaken { realms: from << 16 | to, metric };
        check(of, filters, &frames, [mark, priority], route, [has_terms, at_tcx])?;
    }
}
