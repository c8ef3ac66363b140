//! Other rates of a plan have in the maps what a compilation would have there.
//!
//! Random trees of `tbf`, `htb`, `prio`, `drr` and `ets`, one in the other, and changes of their
//! numbers, of which some are no rates. The reference is a compilation of the plan that is laid out
//! anew.

use narrows_policy::{Plan, Policy};
use narrows_tc::OfflineHost;
use narrows_xdp::{Enforcement, Numbers, changed_rates, compile};
use proptest::collection::vec;
use proptest::prelude::*;

const DEV: &str = "nrw-a";
/// The numbers that a policy of [`lines`] has.
const NUMBERS: usize = 8;

/// A qdisc, whose numbers are taken from those of the policy.
#[derive(Clone, Debug)]
enum Draft {
    Fifo,
    Codel,
    Tbf(Box<Draft>),
    Bands(usize, Vec<Draft>),
    /// A class for each, below one of those before or the root.
    Htb(Vec<(usize, Draft)>),
}

fn drafts() -> impl Strategy<Value = Draft> {
    let leaf = prop_oneof![3 => Just(Draft::Fifo), 1 => Just(Draft::Codel)];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let classes = vec((0_usize..5, inner.clone()), 1..5);
        prop_oneof![
            2 => inner.clone().prop_map(|below| Draft::Tbf(Box::new(below))),
            1 => (0_usize..3, vec(inner, 2..4)).prop_map(|(kind, below)| Draft::Bands(kind, below)),
            3 => classes.prop_map(Draft::Htb),
        ]
    })
}

/// Commands under construction.
struct Writer<'a> {
    lines: Vec<String>,
    handle: u32,
    numbers: std::iter::Cycle<std::slice::Iter<'a, u64>>,
}

impl Writer<'_> {
    fn number(&mut self) -> u64 {
        *self.numbers.next().unwrap()
    }

    fn draft(&mut self, draft: &Draft, place: &str) {
        let handle = self.handle;
        self.handle += 1;
        let add = format!("qdisc add dev {DEV} {place} handle {handle:x}:");
        match draft {
            // What waits in one keeps the limit of the `tbf` round it.
            Draft::Fifo => self.lines.push(format!("{add} pfifo limit 50")),
            Draft::Codel => self.lines.push(format!("{add} codel")),
            Draft::Tbf(below) => {
                let (rate, burst) = (self.number(), 10 + self.number());
                let words = format!("tbf rate {rate}mbit burst {burst}k limit 300k");
                self.lines.push(format!("{add} {words}"));
                self.draft(below, &format!("parent {handle:x}:1"));
            }
            Draft::Bands(kind, below) => {
                let bands = below.len();
                let kind = match kind {
                    0 => format!("prio bands {bands}"),
                    1 => format!("ets bands {bands} strict 1"),
                    _ => "drr".to_owned(),
                };
                self.lines.push(format!("{add} {kind}"));
                for (band, below) in (1..).zip(below) {
                    if kind == "drr" {
                        let quantum = 1500 + self.number();
                        let class = format!("parent {handle:x}: classid {handle:x}:{band:x}");
                        self.lines
                            .push(format!("class add dev {DEV} {class} drr quantum {quantum}"));
                    }
                    self.draft(below, &format!("parent {handle:x}:{band:x}"));
                }
            }
            Draft::Htb(classes) => {
                self.lines.push(format!("{add} htb default 1"));
                let parent = |place: usize| classes[place].0 % (place + 1);
                for place in 0..classes.len() {
                    let (rate, more, quantum) = (self.number(), self.number(), self.number());
                    let above = match parent(place) {
                        0 => String::new(),
                        above => format!("{above:x}"),
                    };
                    self.lines.push(format!(
                        "class add dev {DEV} parent {handle:x}:{above} classid {handle:x}:{:x} htb \
                         rate {rate}mbit ceil {}mbit quantum {}",
                        place + 1,
                        rate + more,
                        1000 + quantum,
                    ));
                }
                for (place, (_, below)) in classes.iter().enumerate() {
                    let is_inner = (0..classes.len()).any(|other| parent(other) == place + 1);
                    if !is_inner {
                        self.draft(below, &format!("parent {handle:x}:{:x}", place + 1));
                    }
                }
            }
        }
    }
}

/// The policy of `draft` with these numbers, if it is one that `tc` takes.
fn policy(draft: &Draft, numbers: &[u64]) -> Option<Policy> {
    let numbers = numbers.iter().cycle();
    let mut writer = Writer { lines: Vec::new(), handle: 1, numbers };
    writer.draft(draft, "root");
    narrows_tc::load(&(writer.lines.join("\n") + "\n"), "policy", &OfflineHost::default()).ok()
}

fn numbers() -> impl Strategy<Value = Vec<u64>> {
    // Rates that bound each other, and some that do not.
    vec(prop_oneof![4 => 1_u64..30, 1 => 100_u64..400], NUMBERS)
}

/// Changes one after the other: each sets some of the numbers.
fn changes() -> impl Strategy<Value = Vec<Vec<(usize, u64)>>> {
    vec(vec((0..NUMBERS, 1_u64..400), 1..4), 1..6)
}

fn enforcements() -> impl Strategy<Value = Enforcement> {
    prop_oneof![
        Just(Enforcement::Policing),
        Just(Enforcement::Shaping),
        Just(Enforcement::PolicingAtHost)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn rates_that_change_have_in_the_maps_what_a_compilation_has(
        draft in drafts(),
        mut numbers in numbers(),
        changes in changes(),
        enforcement in enforcements(),
    ) {
        let Some(mut before) = policy(&draft, &numbers) else { return Ok(()) };
        let mut plan = Plan::of(before.port(DEV), 2).unwrap();
        let Ok(mut compiled) = compile(&plan, &Numbers::default(), enforcement) else {
            return Ok(());
        };
        for change in changes {
            for (place, number) in change {
                numbers[place] = number;
            }
            let Some(after) = policy(&draft, &numbers) else { continue };
            let next = plan.next(before.port(DEV), after.port(DEV)).unwrap();
            let anew = Plan::of(after.port(DEV), 2).unwrap();
            prop_assert_eq!(&next, &anew);
            let compiled_anew = compile(&anew, &compiled.numbers, enforcement);
            // What the planes run stays what they run, whatever its rates.
            prop_assert!(compiled_anew.is_ok(), "{:?}", compiled_anew);
            let compiled_anew = compiled_anew.unwrap();
            match (changed_rates(&plan, &next), &mut compiled.limits) {
                (Some(changes), Some(limits)) => {
                    let classes = limits.follow(&changes);
                    for (number, class) in &classes {
                        prop_assert_ne!(compiled.image.classes.insert(*number, *class), Some(*class));
                    }
                    prop_assert_eq!(&compiled, &compiled_anew);
                }
                // A plan that is no tree has no rates.
                (Some(changes), None) => prop_assert!(changes.is_empty()),
                (None, _) => compiled = compiled_anew,
            }
            (before, plan) = (after, next);
        }
    }
}

/// The plan of these commands.
fn planned(lines: &str) -> Plan {
    let policy = narrows_tc::load(lines, "policy", &OfflineHost::default()).unwrap();
    Plan::of(policy.port(DEV), 2).unwrap()
}

/// How many entries of maps change from the commands `before` to those `after`, where limits hold
/// by `enforcement`; `None` if they differ in more than rates.
fn changed(before: &str, after: &str, enforcement: Enforcement) -> Option<usize> {
    let [before, after] = [before, after].map(planned);
    let changes = changed_rates(&before, &after)?;
    let compiled = compile(&before, &Numbers::default(), enforcement).unwrap();
    Some(compiled.limits.unwrap().follow(&changes).len())
}

const TREE: &str = "qdisc add dev nrw-a root handle 1: tbf rate 100mbit burst 100k limit 1m\n\
    qdisc add dev nrw-a parent 1:1 handle 2: htb default 2\n\
    class add dev nrw-a parent 2: classid 2:1 htb rate 90mbit\n\
    class add dev nrw-a parent 2:1 classid 2:2 htb rate 1mbit ceil 20mbit\n\
    class add dev nrw-a parent 2:1 classid 2:3 htb rate 1mbit ceil 80mbit\n";

#[test]
fn a_rate_changes_the_classes_that_it_bounds_and_no_others() {
    let with = |from: &str, to: &str| changed(TREE, &TREE.replace(from, to), Enforcement::Policing);
    assert_eq!(with("rate 100mbit", "rate 110mbit"), Some(1), "the class below has less");
    assert_eq!(with("rate 100mbit", "rate 85mbit"), Some(2), "and now it has not");
    // No class is assured more than that, and ceilings in a tree hold by themselves.
    assert_eq!(with("rate 100mbit", "rate 500kbit"), Some(4));
    assert_eq!(with("ceil 20mbit", "ceil 30mbit"), Some(1));
    assert_eq!(with("ceil 20mbit", "ceil 20mbit"), Some(0));
}

#[test]
fn where_packets_wait_the_slowest_leaf_says_how_long_the_classes_above_may_be_booked() {
    let slower = TREE.replace("ceil 20mbit", "ceil 10mbit");
    assert_eq!(changed(TREE, &slower, Enforcement::Shaping), Some(3));
    let faster = TREE.replace("ceil 80mbit", "ceil 90mbit");
    assert_eq!(changed(TREE, &faster, Enforcement::Shaping), Some(1));
}

#[test]
fn what_is_no_rate_is_compiled() {
    for (from, to) in [
        ("ceil 20mbit", "ceil 20mbit prio 3"),
        ("default 2", "default 3"),
        ("rate 100mbit", "rate 100mbit overhead 4"),
        ("rate 100mbit", "rate 100mbit coordination lock"),
        ("parent 2:1 classid 2:3", "parent 2: classid 2:3"),
        ("classid 2:3", "classid 2:4"),
    ] {
        let changed = changed(TREE, &TREE.replace(from, to), Enforcement::Policing);
        assert_eq!(changed, None, "{to}");
    }
    let filter =
        "filter add dev nrw-a parent 2: protocol ip pref 1 flower dst_ip 10.0.0.1 classid 2:3\n";
    let with = format!("{TREE}{filter}");
    assert_eq!(changed(TREE, &with, Enforcement::Policing), None);
}
