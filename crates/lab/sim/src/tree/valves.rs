//! FlowValve's rules on both planes, packet by packet: the program's C beside the meters of the
//! plane with queues. The same packets come to both at the same times, and in both one that gets no
//! token is gone.

use super::driver::Driver;
use super::gate::{lay_out, meters};
use super::setup::{Keeper, Scheduler};
use narrows_coordination::TreeStrategy;
use narrows_qdisc::htb::ClassMeter;
use narrows_units::{Bytes, Nanos};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fmt::Write as _;

const BEGIN: Nanos = Nanos::from_secs(1);
/// How often packets come.
const STEP: Nanos = Nanos::from_micros(50);
const FRAME: Bytes = Bytes(1000);
/// Steps of a phase, in which each class is offered the same.
const PHASE: u64 = 3_000;
/// The rate of the topmost class, in Mbit/s.
const ROOT: u32 = 200;

fn scheduler(policy: String, keeper: Keeper) -> Scheduler {
    let (name, before) = ("test".to_owned(), Vec::new());
    Scheduler { name, policy, keeper, drops: true, before, line: None }
}

/// The same classes on both planes.
struct Planes {
    queued: Vec<Box<dyn ClassMeter>>,
    driver: Driver,
}

impl Planes {
    fn new(policy: &str, classes: &[u32]) -> Self {
        let valve = TreeStrategy::FlowValve;
        let queued = scheduler(policy.to_owned(), Keeper::Workers(valve));
        let (_, specs) = lay_out(&queued, classes.len()).unwrap();
        let of_queue = specs.iter().zip(classes);
        let queued = of_queue.flat_map(|(spec, class)| meters(spec, &[*class]).unwrap());
        let driver = scheduler(policy.to_owned(), Keeper::Driver(valve));
        let driver = Driver::new(&driver, classes, classes.len()).unwrap();
        Self { queued: queued.collect(), driver }
    }

    /// Whether a packet of the class at this place passes, on each plane.
    fn ask(&mut self, place: usize, now: Nanos) -> [bool; 2] {
        let queued = self.queued[place].buy(FRAME, FRAME, true, now).is_ok();
        [queued, self.driver.passes(place, place, FRAME, now).0]
    }
}

/// The packets that pass of each class on each plane, in each phase, where so many Mbit/s are
/// offered to each.
fn passed(planes: &mut Planes, phases: &[Vec<u32>]) -> Vec<Vec<[u64; 2]>> {
    let mut now = BEGIN;
    let mut due = vec![0.0; planes.queued.len()];
    let phase = |offered: &Vec<u32>| {
        let mut passed = vec![[0; 2]; offered.len()];
        for _ in 0..PHASE {
            now += STEP;
            for (place, offered) in offered.iter().enumerate() {
                due[place] += f64::from(*offered) * 1e6 / 8.0 * STEP.as_secs_f64();
                while due[place] >= FRAME.0 as f64 {
                    due[place] -= FRAME.0 as f64;
                    let [queued, driver] = planes.ask(place, now);
                    passed[place][0] += u64::from(queued);
                    passed[place][1] += u64::from(driver);
                }
            }
        }
        passed
    };
    phases.iter().map(phase).collect()
}

/// Shares are rounded differently: a packet may pass in one epoch or the next one.
#[track_caller]
fn assert_alike(passed: &[Vec<[u64; 2]>]) {
    for of_phase in passed {
        let all: u64 = of_phase.iter().map(|[queued, _]| queued).sum();
        for [queued, driver] in of_phase {
            assert!(queued.abs_diff(*driver) <= 3 + all / 500, "{passed:?}");
        }
    }
}

/// A class of a random tree: who is above it (the topmost class, or one before it), what it may
/// borrow, and from whom.
#[derive(Clone, Debug)]
struct Random {
    above: usize,
    rate: u32,
    ceil: u32,
    prio: u32,
    weight: u32,
    /// `None` for those beside it.
    lenders: Option<Vec<usize>>,
}

fn random() -> impl Strategy<Value = Random> {
    let lenders = prop::option::of(prop::collection::vec(0..7_usize, 0..4));
    let ceil = prop_oneof![Just(ROOT), 20..ROOT];
    (0..7_usize, 1..60_u32, ceil, 0..3_u32, 1..6_u32, lenders).prop_map(
        |(above, rate, ceil, prio, weight, lenders)| Random {
            above,
            rate,
            ceil,
            prio,
            weight,
            lenders,
        },
    )
}

/// The commands of a tree, and the numbers of its leaves.
fn tree(random: &[Random]) -> (String, Vec<u32>) {
    let id = |place: usize| 0x10 + place as u32;
    let mut policy = format!(
        "qdisc add dev eth1 root handle 1: htb\n\
         class add dev eth1 parent 1: classid 1:1 htb rate {ROOT}mbit\n"
    );
    let above = |place: usize, class: &Random| (class.above < place).then_some(class.above);
    let mut inner = Vec::new();
    for (place, class) in random.iter().enumerate() {
        let Random { rate, ceil, prio, weight, lenders, .. } = class;
        let parent = above(place, class).map_or(1, id);
        inner.push(parent);
        // Nobody borrows from itself, and from nobody twice.
        let lenders = lenders.as_ref().map(|all| all.iter().filter(|it| **it != place));
        let borrow = lenders.map_or(String::new(), |lenders| {
            let lenders: BTreeSet<usize> = lenders.copied().collect();
            let names = lenders.iter().map(|lender| format!("1:{:x}", id(*lender)));
            let names = names.collect::<Vec<_>>().join(",");
            format!(" borrow {}", if names.is_empty() { "none" } else { &names })
        });
        let _ = writeln!(
            policy,
            "class add dev eth1 parent 1:{parent:x} classid 1:{:x} htb rate {rate}mbit \
             ceil {}mbit burst 20000 cburst 20000 prio {prio} weight {weight}{borrow}",
            id(place),
            ceil.max(rate)
        );
    }
    let leaves = (0..random.len()).map(id).filter(|leaf| !inner.contains(leaf)).collect();
    (policy, leaves)
}

proptest! {
    #[test]
    fn any_tree_lets_the_same_pass_on_both_planes(
        random in prop::collection::vec(random(), 1..7),
        offered in prop::collection::vec(
            prop::collection::vec(prop_oneof![Just(0), 1..100_u32, Just(300)], 7),
            1..4,
        ),
    ) {
        let (policy, leaves) = tree(&random);
        let offered: Vec<Vec<u32>> =
            offered.into_iter().map(|all| all[..leaves.len()].to_vec()).collect();
        assert_alike(&passed(&mut Planes::new(&policy, &leaves), &offered));
    }
}

#[test]
fn the_examples_let_the_same_pass_on_both_planes() {
    // At a hundredth of their rates.
    for (name, policy, classes) in [
        (
            "motivation",
            include_str!("../../../../../examples/flowvalve/motivation.tc"),
            &[0x10, 0x20, 0x31, 0x32][..],
        ),
        (
            "fair-queueing",
            include_str!("../../../../../examples/flowvalve/fair-queueing.tc"),
            &[0x10, 0x11, 0x12, 0x13],
        ),
        (
            "weighted",
            include_str!("../../../../../examples/flowvalve/weighted.tc"),
            &[0x10, 0x11, 0x12, 0x13],
        ),
    ] {
        let policy = policy.replace("1mbit", "10kbit").replace("gbit", "0mbit");
        let mut planes = Planes::new(&policy, classes);
        let all = vec![500; 4];
        let without = |pause: usize| (0..4).map(|place| u32::from(place != pause) * 500).collect();
        let phases: Vec<Vec<u32>> = vec![all.clone(), without(0), without(3), all];
        let passed = passed(&mut planes, &phases);
        assert_alike(&passed);
        let sum = |phase: usize| passed[phase].iter().map(|[_, driver]| *driver).sum::<u64>();
        assert!((0..4).all(|phase| sum(phase) > 1_000), "{name}: {passed:?}");
    }
}

#[test]
fn weights_priorities_and_labels_hold_in_the_driver() {
    let policy = "qdisc add dev eth1 root handle 1: htb
class add dev eth1 parent 1: classid 1:1 htb rate 100mbit
class add dev eth1 parent 1:1 classid 1:10 htb rate 1mbit ceil 100mbit weight 1 borrow 1:20
class add dev eth1 parent 1:1 classid 1:20 htb rate 1mbit ceil 100mbit weight 3 borrow none
class add dev eth1 parent 1:1 classid 1:30 htb rate 8mbit ceil 100mbit prio 1 borrow none
";
    let mut planes = Planes::new(policy, &[0x10, 0x20, 0x30]);
    let warm_up = vec![300, 300, 300];
    let passed = passed(
        &mut planes,
        &[warm_up.clone(), warm_up, vec![300, 0, 300], vec![300, 0, 300], vec![0, 0, 300]],
    );
    let mbit = |phase: usize| {
        let seconds = STEP.as_secs_f64() * PHASE as f64;
        let rate = |[_, driver]: &[u64; 2]| (driver * FRAME.0 * 8) as f64 / 1e6 / seconds;
        passed[phase].iter().map(rate).collect::<Vec<f64>>()
    };
    // What is assured to the worse priority, and the rest by weight beyond what is assured.
    for (phase, due) in [(1, [23.5, 68.5, 8.0]), (3, [92.0, 0.0, 8.0])] {
        for (rate, due) in mbit(phase).iter().zip(due) {
            assert!((rate - due).abs() < 1.5, "{phase}: {:?} instead of {due:?}", mbit(phase));
        }
    }
    // It takes five epochs and an expiry until all is left to the worse priority.
    assert!(mbit(4)[2] > 50.0, "{:?}", mbit(4));
}
