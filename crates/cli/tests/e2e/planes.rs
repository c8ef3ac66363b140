//! The same policy and traffic on both planes and in the simulator.

use crate::htb::{drain, loads, ports, tree};
use crate::policing::{NATIVE, XDP};
use crate::setup::{NARROWS, Scratch, run, turn};
use narrows_testbed::Testbed;
use narrows_testbed::accounting::{Books, Direction, directions};
use narrows_testbed::narrows::Instance;
use narrows_testbed::window::{Delivered, Meter};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::Duration;

/// The allowed difference between the shares of a class.
const SHARES_APART: f64 = 0.01;
/// The allowed difference between the total rates, as a fraction of the root's.
const RATES_APART: f64 = 0.01;
const ROOT: f64 = 40e6;
/// The length of each frame that [`loads`] sends.
const FRAME_BITS: f64 = 8.0 * 1000.0;
/// What it sends to each class, in bits per second.
const LOAD: f64 = 45e6;
const CLASSES: [&str; 3] = ["1:10", "1:20", "1:30"];

/// How often counters are read, and how many of these steps a measurement has.
const STEP: Duration = Duration::from_millis(250);
const STEPS: usize = 4;
/// How many steps there may be until a measurement is undisturbed.
const STEPS_MAX: usize = 20;
/// How often the counters are read at rest until they agree.
const TRIES: usize = 8;
/// The deviations of a measurement that nothing disturbed, as fractions: of the total rate from the
/// root's, and of each class's load from [`LOAD`]. A worker that waits for its core for longer than
/// a burst leaves some of the rate unused; a sender that waits leaves its class's to other classes.
const RATE_OFF: f64 = RATES_APART / 2.0;
const LOAD_OFF: f64 = 0.02;

/// The result of a run.
#[derive(Debug)]
struct Outcome {
    /// The share of each class.
    shares: BTreeMap<String, f64>,
    /// The total rate, in bits per second.
    rate: f64,
}

impl Outcome {
    /// From the amount of each class, in any unit.
    fn new(classes: &BTreeMap<String, f64>, rate: f64) -> Self {
        let sum: f64 = classes.values().sum();
        let shares = classes.iter().map(|(class, got)| (class.clone(), got / sum)).collect();
        Self { shares, rate }
    }
}

/// The packets sent and dropped of each leaf so far.
fn leaves(instance: &Instance) -> BTreeMap<String, [u64; 2]> {
    let shown = instance.tc("-s -j class show dev port-b").unwrap();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let class = |name: &&str| {
        let class = shown.as_array().unwrap().iter().find(|class| class["handle"] == **name);
        let stats = &class.unwrap()["stats"];
        let figures = ["packets", "drops"].map(|figure| stats[figure].as_u64().unwrap());
        ((*name).to_owned(), figures)
    };
    CLASSES.iter().map(class).collect()
}

/// The least disturbed second, judged by the load of each class and by the total rate, not by what
/// each class got.
fn measured(bed: &Testbed, instance: &Instance) -> Outcome {
    let [_, server] = bed.ends();
    let mut meter = Meter::at(server).unwrap();
    let mut read = || (meter.read().unwrap(), leaves(instance));
    let mut readings = vec![read()];
    let mut best: Option<(f64, Outcome)> = None;
    while readings.len() <= STEPS_MAX && best.as_ref().is_none_or(|(off, _)| *off > 1.0) {
        sleep(STEP);
        readings.push(read());
        let Some(start) = readings.len().checked_sub(STEPS + 1) else { continue };
        let [before, after] = [&readings[start], &readings[readings.len() - 1]];
        // Of frames: a veth counts some of them without their Ethernet headers.
        let delivered = Delivered::between(&before.0, &after.0);
        let rate = delivered.packets_per_second() * FRAME_BITS;
        let since =
            |class: &str, figure: usize| (after.1[class][figure] - before.1[class][figure]) as f64;
        let grown = CLASSES.map(|class| (class.to_owned(), since(class, 0)));
        let frames = LOAD / FRAME_BITS * delivered.span.0 as f64 / 1e9;
        let off_load = |class| (since(class, 0) + since(class, 1)) / frames - 1.0;
        let off = CLASSES.map(|class| off_load(class).abs() / LOAD_OFF).into_iter();
        let off = off.fold((rate / ROOT - 1.0).abs() / RATE_OFF, f64::max);
        if best.as_ref().is_none_or(|(least, _)| off < *least) {
            best = Some((off, Outcome::new(&BTreeMap::from(grown), rate)));
        }
    }
    let (off, outcome) = best.unwrap();
    println!("{off:.2} of what may disturb it, after {} readings", readings.len());
    outcome
}

/// The same tree, whose packets get their classes where they come in: by a mark, and by name.
fn tree_by_edits() -> Vec<String> {
    let set = |group: u16, pref: u16, what: &str| {
        let ports = ports(group);
        let (first, last) = (ports[0], ports[ports.len() - 1]);
        format!(
            "filter add dev port-a ingress protocol ip pref {pref} flower ip_proto udp \
             src_port {first}-{last} action skbedit {what} continue"
        )
    };
    let is_filter = |line: &String| line.starts_with("filter");
    let mut lines: Vec<String> = tree().into_iter().filter(|line| !is_filter(line)).collect();
    lines.extend([
        "filter add dev port-b parent 1: pref 1 handle 5 fw classid 1:10".to_owned(),
        "qdisc add dev port-a clsact".to_owned(),
        set(0, 1, "mark 5"),
        set(1, 2, "priority 1:20"),
    ]);
    lines
}

/// Runs `tree` on the plane that `arguments` select. Asserts that classes, port and devices agree
/// on every packet.
fn on_plane(arguments: &[&str], tree: &[String]) -> Outcome {
    let bed = Testbed::up(4).unwrap();
    bed.take_redirected(true).unwrap();
    let instance = run(&bed, arguments);
    tree.iter().for_each(|line| drop(instance.tc(line).unwrap()));
    let mut books = Books::open(&bed).unwrap();
    let loads = loads(&bed);
    sleep(Duration::from_millis(500));
    let outcome = measured(&bed, &instance);
    for load in loads {
        load.stop().unwrap();
    }
    drain(&instance);
    // A worker that waits for its core for long is shown by its last report.
    for tries in 1.. {
        let devices = books.settle().unwrap();
        let [forth, back] = directions(&devices, &instance.show().unwrap()).unwrap();
        let leaves = leaves(&instance);
        let of_leaves = |figure: usize| leaves.values().map(|it| it[figure]).sum::<u64>();
        let counted = [of_leaves(0), of_leaves(1)];
        let unaccounted = [&forth, &back].map(Direction::unaccounted);
        let due = [forth.received, forth.dropped_by_narrows];
        if (counted, unaccounted) == (due, [0, 0]) {
            break;
        }
        assert!(tries < TRIES, "{arguments:?}: {leaves:?}, {forth:#?}, {back:#?}");
    }
    outcome
}

/// The outcome in virtual time, which is the same each time.
static SIMULATED: LazyLock<Outcome> = LazyLock::new(simulated);

/// Runs in virtual time, with greedy senders for each class.
fn simulated() -> Outcome {
    let policy = tree().join("\n");
    let apps = CLASSES.map(|class| {
        let minor = &class[2..];
        format!("[[app]]\nname = \"{class}\"\nclass = \"{minor}\"\nflows = 4\n")
    });
    let scenario = format!(
        "title = \"Three classes\"\n\
         [tree]\nline = \"1gbit\"\nbuffer = \"1mb\"\nround_trip = \"1ms\"\ntime_out = \"10ms\"\n\
         frame = 1000\nsettle = \"500ms\"\nwindow = \"100ms\"\n\
         [[scheduler]]\nname = \"fair\"\ncoordination = \"fair\"\npolicy = '''\n{policy}\n'''\n\
         {}\
         [[phase]]\nlength = \"2s\"\napps = {CLASSES:?}\n[run]\nseed = 1\n",
        apps.join("")
    );
    let file = Scratch::new("planes.toml", &scenario);
    let output = Command::new(NARROWS).args(["sim", file.path(), "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let phase = &report["rows"][0]["gbit"][0];
    let rate = |class: &str| {
        let gbit = phase[class].as_f64().unwrap_or_else(|| panic!("{report:#}"));
        (class.to_owned(), gbit * 1e9)
    };
    let rates: BTreeMap<String, f64> = CLASSES.iter().map(|class| rate(class)).collect();
    Outcome::new(&rates, rates.values().sum())
}

#[test]
fn one_policy_gives_each_class_the_same_on_both_planes_and_in_the_simulator() {
    let Some(_turn) = turn() else { return };
    let tree = tree();
    let [xsk, xdp] = [on_plane(&[], &tree), on_plane(&NATIVE, &tree)];
    println!("xsk {xsk:?}\nxdp {xdp:?}\nsimulated {:?}", *SIMULATED);
    assert_alike(&[&xsk, &xdp, &SIMULATED]);
}

#[test]
fn classes_that_filters_set_where_packets_come_in_get_the_same_on_both_planes() {
    let Some(_turn) = turn() else { return };
    let tree = tree_by_edits();
    // At tcx, where the other test has it in the drivers.
    let [xsk, xdp] = [on_plane(&[], &tree), on_plane(&XDP, &tree)];
    println!("xsk {xsk:?}\nxdp {xdp:?}\nsimulated {:?}", *SIMULATED);
    assert_alike(&[&xsk, &xdp, &SIMULATED]);
}

#[track_caller]
fn assert_alike(outcomes: &[&Outcome]) {
    let pairs = (1..outcomes.len()).flat_map(|end| (0..end).map(move |start| (start, end)));
    for (one, other) in pairs.map(|(one, other)| (outcomes[one], outcomes[other])) {
        assert!((one.rate - other.rate).abs() < RATES_APART * ROOT, "{one:?}, {other:?}");
        for class in CLASSES {
            let apart = (one.shares[class] - other.shares[class]).abs();
            assert!(apart < SHARES_APART, "{class}: {one:?}, {other:?}");
        }
    }
}
