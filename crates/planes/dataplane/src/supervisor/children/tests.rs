//! What runs follows what is wanted, whatever happens in between.

use super::*;
use narrows_link::LinkStatus;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Processes of no kernel: they run until a test ends them.
#[derive(Default)]
struct Fake {
    next: i32,
    alive: BTreeMap<i32, Target>,
    asked: BTreeSet<i32>,
    killed: BTreeSet<i32>,
    reloads: Vec<i32>,
    forgotten: Vec<String>,
    refuses: bool,
}

impl Processes for Fake {
    fn start(&mut self, target: &Target) -> io::Result<Pid> {
        if self.refuses {
            return Err(io::ErrorKind::NotFound.into());
        }
        let is_double = |other: &Target| other.label() == target.label() || other.is_at(target);
        assert!(!self.alive.values().any(is_double), "{target:?} is there: {:?}", self.alive);
        self.next += 1;
        self.alive.insert(self.next, target.clone());
        Ok(Pid::from_raw(self.next).unwrap())
    }

    fn signal(&mut self, process: Pid, signal: Signal) {
        let id = process.as_raw_nonzero().get();
        assert!(self.alive.contains_key(&id), "{id} is no process");
        match signal {
            Signal::TERM => assert!(self.asked.insert(id), "{id} was asked to end before"),
            Signal::KILL => assert!(self.killed.insert(id)),
            Signal::HUP => self.reloads.push(id),
            other => panic!("{id} gets {other:?}"),
        }
    }

    fn forget(&mut self, target: &Target) {
        self.forgotten.push(target.label());
    }
}

fn pid(id: i32) -> Pid {
    Pid::from_raw(id).unwrap()
}

/// Devices with these names, each with its index, are wanted.
fn wanted(devices: &[(u32, &str)]) -> Wanted {
    let status = |&(ifindex, name): &(u32, &str)| LinkStatus {
        ifindex,
        name: name.to_owned(),
        up: true,
        ethernet: true,
        ..LinkStatus::default()
    };
    let devices: Vec<LinkStatus> = devices.iter().map(status).collect();
    super::super::wanted::wanted(&[], &["*".parse().unwrap()], devices.iter()).0
}

fn running(children: &Children<Fake>) -> Vec<String> {
    children.processes.alive.values().map(Target::label).collect()
}

const SECOND: Nanos = Nanos::from_secs(1);

#[test]
fn a_device_that_is_renamed_ends_under_the_old_name_before_it_starts_under_the_new_one() {
    let mut children = Children::new(Fake::default());
    children.reconcile(&wanted(&[(7, "veth1")]), SECOND);
    children.hear(pid(1), Notice::Ready);
    let renamed = wanted(&[(7, "veth2")]);
    children.reconcile(&renamed, SECOND);
    assert_eq!(running(&children), ["veth1"]);
    assert!(children.processes.asked.contains(&1));
    children.processes.alive.clear();
    children.ended(pid(1), "exit", SECOND);
    children.reconcile(&renamed, SECOND);
    assert_eq!(running(&children), ["veth2"]);
    assert_eq!(children.processes.forgotten, ["veth1"]);
}

#[test]
fn a_process_that_ends_by_itself_starts_again_after_a_while_and_others_go_on() {
    let mut children = Children::new(Fake::default());
    let wanted = wanted(&[(1, "a"), (2, "b")]);
    children.reconcile(&wanted, SECOND);
    assert!(!children.are_settled(&wanted, SECOND));
    children.hear(pid(1), Notice::Ready);
    children.processes.alive.remove(&2);
    children.ended(pid(2), "signal", SECOND);
    assert!(children.are_settled(&wanted, SECOND), "one shapes and the other one has failed");
    children.reconcile(&wanted, SECOND);
    assert_eq!(running(&children), ["a"]);
    assert_eq!(children.next(SECOND), SECOND + SECOND);
    children.reconcile(&wanted, SECOND + SECOND);
    assert_eq!(running(&children), ["a", "b"]);
}

#[test]
fn a_process_that_cannot_be_started_is_tried_again() {
    let mut children = Children::new(Fake { refuses: true, ..Fake::default() });
    let wanted = wanted(&[(1, "a")]);
    children.reconcile(&wanted, SECOND);
    assert!(children.are_settled(&wanted, SECOND) && running(&children).is_empty());
    children.processes.refuses = false;
    children.reconcile(&wanted, SECOND + SECOND);
    assert_eq!(running(&children), ["a"]);
}

#[test]
fn a_process_that_has_taken_over_is_the_one_that_is_kept() {
    let mut children = Children::new(Fake::default());
    let device = wanted(&[(1, "a")]);
    children.reconcile(&device, SECOND);
    children.hear(pid(1), Notice::Ready);
    let target = children.processes.alive.remove(&1).unwrap();
    children.processes.alive.insert(9, target);
    children.hear(pid(1), Notice::ReplacedBy(pid(9)));
    // The one before ends.
    children.ended(pid(1), "exit", SECOND);
    children.reconcile(&device, SECOND + SECOND + SECOND);
    assert_eq!(running(&children), ["a"]);
    children.reconcile(&wanted(&[]), SECOND);
    assert!(children.processes.asked.contains(&9));
}

#[test]
fn a_process_that_is_starting_reads_its_policy_again_once_it_is_ready() {
    let mut children = Children::new(Fake::default());
    children.reconcile(&wanted(&[(1, "a"), (2, "b"), (3, "c")]), SECOND);
    children.hear(pid(1), Notice::Ready);
    children.reconcile(&wanted(&[(1, "a"), (2, "b")]), SECOND);
    children.reload_all();
    assert_eq!(children.processes.reloads, [1]);
    children.hear(pid(2), Notice::Ready);
    children.hear(pid(2), Notice::Ready);
    assert_eq!(children.processes.reloads, [1, 2]);
}

#[test]
fn a_process_that_does_not_end_is_killed_once() {
    let mut children = Children::new(Fake::default());
    children.reconcile(&wanted(&[(1, "a")]), SECOND);
    children.reconcile(&wanted(&[]), SECOND);
    children.hurry(SECOND + END_TIME - Nanos(1));
    assert!(children.processes.killed.is_empty());
    assert_eq!(children.next(SECOND), SECOND + END_TIME);
    children.hurry(SECOND + END_TIME);
    children.hurry(SECOND + END_TIME + END_TIME);
    assert!(children.processes.killed.contains(&1));
}

#[test]
fn a_few_start_at_a_time_and_one_that_hangs_does_not_keep_others_for_ever() {
    let names: Vec<String> = (0..9).map(|number| format!("d{number}")).collect();
    let devices: Vec<(u32, &str)> = (1..).zip(names.iter().map(String::as_str)).collect();
    let wanted = wanted(&devices);
    let mut children = Children::new(Fake::default());
    children.reconcile(&wanted, SECOND);
    assert_eq!(running(&children).len(), STARTS);
    children.hear(pid(1), Notice::Ready);
    children.reconcile(&wanted, SECOND);
    assert_eq!(running(&children).len(), STARTS + 1);
    let later = SECOND + START_TIME;
    children.reconcile(&wanted, later);
    assert_eq!(running(&children).len(), 2 * STARTS + 1);
    assert!(!children.are_settled(&wanted, later));
    assert!(children.are_settled(&wanted, later + START_TIME), "who hangs is not waited for");
}

/// What can happen to devices and processes.
#[derive(Clone, Debug)]
enum Happens {
    /// The device with this index has this name from now on, or goes.
    Device(u32, Option<u8>),
    /// One of the processes says that it is ready,
    Ready(prop::sample::Index),
    /// or ends,
    Ends(prop::sample::Index),
    /// or another one takes over from it.
    Replaced(prop::sample::Index),
    /// So many milliseconds pass.
    Time(u64),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        (0..5_u32, prop::option::of(0..4_u8)).prop_map(|(at, name)| Happens::Device(at, name)),
        any::<prop::sample::Index>().prop_map(Happens::Ready),
        any::<prop::sample::Index>().prop_map(Happens::Ends),
        any::<prop::sample::Index>().prop_map(Happens::Replaced),
        (0..3_000_u64).prop_map(Happens::Time),
    ]
}

proptest! {
    /// [`Fake`] asserts on the way that no name and no device has two processes.
    #[test]
    fn what_runs_becomes_what_is_wanted_whatever_happens(
        story in prop::collection::vec(happens(), 0..60),
    ) {
        let mut children = Children::new(Fake::default());
        let mut devices: BTreeMap<u32, String> = BTreeMap::new();
        let mut now = SECOND;
        let wanted_now = |devices: &BTreeMap<u32, String>| {
            let devices: Vec<(u32, &str)> =
                devices.iter().map(|(&at, name)| (at, name.as_str())).collect();
            wanted(&devices)
        };
        for event in story {
            let alive: Vec<i32> = children.processes.alive.keys().copied().collect();
            match event {
                Happens::Device(at, Some(name)) => {
                    // The kernel has each name once.
                    let name = format!("d{name}");
                    if !devices.values().any(|other| *other == name) {
                        devices.insert(at, name);
                    }
                }
                Happens::Device(at, None) => drop(devices.remove(&at)),
                Happens::Time(ms) => now += Nanos::from_millis(ms),
                Happens::Ready(which) if !alive.is_empty() => {
                    children.hear(pid(*which.get(&alive)), Notice::Ready);
                }
                Happens::Ends(which) if !alive.is_empty() => {
                    let id = *which.get(&alive);
                    children.processes.alive.remove(&id);
                    children.ended(pid(id), "signal", now);
                }
                Happens::Replaced(which) if !alive.is_empty() => {
                    let id = *which.get(&alive);
                    let target = children.processes.alive.remove(&id).unwrap();
                    children.processes.next += 1;
                    let new = children.processes.next;
                    children.processes.alive.insert(new, target);
                    children.hear(pid(id), Notice::ReplacedBy(pid(new)));
                    children.ended(pid(id), "exit", now);
                }
                _ => {}
            }
            children.hurry(now);
            children.reconcile(&wanted_now(&devices), now);
        }
        let wanted = wanted_now(&devices);
        for _ in 0..8 {
            now += Nanos::from_secs(40);
            for id in children.processes.alive.keys().copied().collect::<Vec<_>>() {
                if children.processes.asked.contains(&id) {
                    children.processes.alive.remove(&id);
                    children.ended(pid(id), "exit", now);
                } else {
                    children.hear(pid(id), Notice::Ready);
                }
            }
            children.reconcile(&wanted, now);
        }
        let mut runs: Vec<&Target> = children.processes.alive.values().collect();
        runs.sort_by_key(|target| target.label());
        let wanted: Vec<&Target> = wanted.values().map(|(target, _)| target).collect();
        prop_assert_eq!(runs, wanted);
    }
}
