//! The same policy and traffic on both planes and in the simulator.

use crate::htb::{drain, loads, ports, tree};
use crate::policing::{NATIVE, XDP};
use crate::setup::{NARROWS, Scratch, run, turn_to_measure};
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
const CLASSES: Classes = ["1:10", "1:20", "1:30"];
/// The leaf classes of a tree, in the order of the loads.
type Classes = [&'static str; 3];

/// How often counters are read, and how many of these steps a measurement has.
const STEP: Duration = Duration::from_millis(250);
const STEPS: usize = 4;
/// How many steps there may be until a measurement is undisturbed.
const STEPS_MAX: usize = 32;
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
fn leaves(instance: &Instance, classes: Classes) -> BTreeMap<String, [u64; 2]> {
    let shown = instance.tc("-s -j class show dev port-b").unwrap();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let class = |name: &&str| {
        let class = shown.as_array().unwrap().iter().find(|class| class["handle"] == **name);
        let stats = &class.unwrap()["stats"];
        let figures = ["packets", "drops"].map(|figure| stats[figure].as_u64().unwrap());
        ((*name).to_owned(), figures)
    };
    classes.iter().map(class).collect()
}

/// The least disturbed second, judged by the load of each class and by the total rate, not by what
/// each class got.
fn measured(bed: &Testbed, instance: &Instance, classes: Classes) -> Outcome {
    let [_, server] = bed.ends();
    let mut meter = Meter::at(server).unwrap();
    let mut read = || (meter.read().unwrap(), leaves(instance, classes));
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
        let grown = classes.map(|class| (class.to_owned(), since(class, 0)));
        let frames = LOAD / FRAME_BITS * delivered.span.0 as f64 / 1e9;
        let off_load = |class| (since(class, 0) + since(class, 1)) / frames - 1.0;
        let off = classes.map(|class| off_load(class).abs() / LOAD_OFF).into_iter();
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

/// Runs `tree` with these leaves on the plane that `arguments` select. Asserts that classes, port
/// and devices agree on every packet.
fn on_plane(arguments: &[&str], tree: &[String], classes: Classes) -> Outcome {
    let bed = Testbed::up(4).unwrap();
    bed.take_redirected(true).unwrap();
    let instance = run(&bed, arguments);
    tree.iter().for_each(|line| drop(instance.tc(line).unwrap()));
    let mut books = Books::open(&bed).unwrap();
    let loads = loads(&bed);
    sleep(Duration::from_millis(500));
    let outcome = measured(&bed, &instance, classes);
    for load in loads {
        load.stop().unwrap();
    }
    if classes == CLASSES {
        drain(&instance);
    }
    // A worker that waits for its core for long is shown by its last report.
    for tries in 1.. {
        let devices = books.settle().unwrap();
        let [forth, back] = directions(&devices, &instance.show().unwrap()).unwrap();
        let leaves = leaves(&instance, classes);
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
static SIMULATED: LazyLock<Outcome> = LazyLock::new(|| simulated(&tree(), &CLASSES));

/// Runs `tree` in virtual time, with greedy senders for each of `classes` of its root.
fn simulated(tree: &[String], classes: &[&str]) -> Outcome {
    let is_plain = |line: &&String| !line.starts_with("filter");
    let policy: Vec<&str> = tree.iter().filter(is_plain).map(String::as_str).collect();
    let policy = policy.join("\n");
    let apps = classes.iter().map(|class| {
        let minor = &class[2..];
        format!("[[app]]\nname = \"{class}\"\nclass = \"{minor}\"\nflows = 4\n")
    });
    let scenario = format!(
        "title = \"Three classes\"\n\
         [tree]\nline = \"1gbit\"\nbuffer = \"1mb\"\nround_trip = \"1ms\"\ntime_out = \"10ms\"\n\
         frame = 1000\nsettle = \"500ms\"\nwindow = \"100ms\"\n\
         [[scheduler]]\nname = \"fair\"\ncoordination = \"fair\"\npolicy = '''\n{policy}\n'''\n\
         {}\
         [[phase]]\nlength = \"2s\"\napps = {classes:?}\n[run]\nseed = 1\n",
        apps.collect::<String>()
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
    let rates: BTreeMap<String, f64> = classes.iter().map(|class| rate(class)).collect();
    Outcome::new(&rates, rates.values().sum())
}

#[test]
fn one_policy_gives_each_class_the_same_on_both_planes_and_in_the_simulator() {
    let Some(_turn) = turn_to_measure() else { return };
    let tree = tree();
    let [xsk, xdp] = [on_plane(&[], &tree, CLASSES), on_plane(&NATIVE, &tree, CLASSES)];
    println!("xsk {xsk:?}\nxdp {xdp:?}\nsimulated {:?}", *SIMULATED);
    assert_alike(&[&xsk, &xdp, &SIMULATED]);
}

#[test]
fn classes_that_filters_set_where_packets_come_in_get_the_same_on_both_planes() {
    let Some(_turn) = turn_to_measure() else { return };
    let tree = tree_by_edits();
    // At tcx, where the other test has it in the drivers.
    let [xsk, xdp] = [on_plane(&[], &tree, CLASSES), on_plane(&XDP, &tree, CLASSES)];
    println!("xsk {xsk:?}\nxdp {xdp:?}\nsimulated {:?}", *SIMULATED);
    assert_alike(&[&xsk, &xdp, &SIMULATED]);
}

/// Qdiscs that share, in a class of an `htb` and beside one.
fn tree_with_bands() -> Vec<String> {
    let mut lines = vec![
        "qdisc add dev port-b root handle 1: htb default 20".to_owned(),
        "class add dev port-b parent 1: classid 1:1 htb rate 40mbit burst 60k cburst 60k".into(),
        "class add dev port-b parent 1:1 classid 1:10 htb rate 10mbit ceil 40mbit burst 40k \
         cburst 60k"
            .into(),
        "class add dev port-b parent 1:1 classid 1:20 htb rate 10mbit ceil 40mbit burst 40k \
         cburst 60k prio 1"
            .into(),
        "qdisc add dev port-b parent 1:10 handle 2: ets bands 2 quanta 1500 4500".into(),
    ];
    lines.extend(to_classes("2:", ["2:1", "2:2"]));
    // To the qdisc in the class first.
    let (first, last) = (ports(0)[0], ports(1)[ports(1).len() - 1]);
    lines.push(format!(
        "filter add dev port-b parent 1: protocol ip pref 9 flower ip_proto udp src_port \
         {first}-{last} classid 1:10"
    ));
    lines
}

/// Filters at `parent` that assign the loads to `classes`.
fn to_classes<const N: usize>(parent: &str, classes: [&str; N]) -> Vec<String> {
    let filter = |(pref, class): (u16, &str)| {
        let ports = ports(pref - 1);
        format!(
            "filter add dev port-b parent {parent} protocol ip pref {pref} flower ip_proto udp \
             src_port {}-{} classid {class}",
            ports[0],
            ports[ports.len() - 1]
        )
    };
    (1..).zip(classes).map(filter).collect()
}

#[test]
fn bands_in_a_class_share_it_on_both_planes_and_the_class_gets_what_it_gets_simulated() {
    let Some(_turn) = turn_to_measure() else { return };
    let (tree, classes) = (tree_with_bands(), ["2:1", "2:2", "1:20"]);
    let [xsk, xdp] = [on_plane(&[], &tree, classes), on_plane(&NATIVE, &tree, classes)];
    println!("xsk {xsk:?}\nxdp {xdp:?}");
    assert_alike(&[&xsk, &xdp]);
    let of_htb = |outcome: Outcome| {
        let [first, second, beside] = classes.map(|class| outcome.shares[class]);
        let shares = [("1:10".to_owned(), first + second), ("1:20".to_owned(), beside)];
        Outcome { shares: shares.into(), rate: outcome.rate }
    };
    let simulated = simulated(&tree, &["1:10", "1:20"]);
    println!("simulated {simulated:?}");
    assert_alike(&[&of_htb(xsk), &of_htb(xdp), &simulated]);
}

#[test]
fn bands_below_a_rate_and_rates_below_bands_get_the_same_on_both_planes() {
    let Some(_turn) = turn_to_measure() else { return };
    let line = str::to_owned;
    let drr = |class: u32| {
        let quantum = 1500 * class;
        format!("class add dev port-b parent 2: classid 2:{class} drr quantum {quantum}")
    };
    let mut below_a_rate = vec![
        line("qdisc add dev port-b root handle 1: tbf rate 40mbit burst 60k latency 50ms"),
        line("qdisc add dev port-b parent 1: handle 2: drr"),
    ];
    below_a_rate.extend((1..=3).map(drr));
    below_a_rate.extend(to_classes("2:", ["2:1", "2:2", "2:3"]));
    let mut above_rates = vec![line("qdisc add dev port-b root handle 1: prio bands 3")];
    above_rates.extend([(1, 8), (2, 12), (3, 20)].map(|(band, mbit)| {
        let tbf = format!("tbf rate {mbit}mbit burst 30k latency 50ms");
        format!("qdisc add dev port-b parent 1:{band} handle {}: {tbf}", band + 1)
    }));
    above_rates.extend(to_classes("1:", ["1:1", "1:2", "1:3"]));
    for (tree, classes, due) in [
        (below_a_rate, ["2:1", "2:2", "2:3"], [1.0 / 6.0, 1.0 / 3.0, 0.5]),
        (above_rates, ["1:1", "1:2", "1:3"], [0.2, 0.3, 0.5]),
    ] {
        let [xsk, xdp] = [on_plane(&[], &tree, classes), on_plane(&XDP, &tree, classes)];
        println!("xsk {xsk:?}\nxdp {xdp:?}");
        let shares = classes.map(str::to_owned).into_iter().zip(due);
        let due = Outcome { shares: shares.collect(), rate: ROOT };
        assert_alike(&[&xsk, &xdp, &due]);
    }
}

#[track_caller]
fn assert_alike(outcomes: &[&Outcome]) {
    let pairs = (1..outcomes.len()).flat_map(|end| (0..end).map(move |start| (start, end)));
    for (one, other) in pairs.map(|(one, other)| (outcomes[one], outcomes[other])) {
        assert!((one.rate - other.rate).abs() < RATES_APART * ROOT, "{one:?}, {other:?}");
        for class in one.shares.keys() {
            let apart = (one.shares[class] - other.shares[class]).abs();
            assert!(apart < SHARES_APART, "{class}: {one:?}, {other:?}");
        }
    }
}
