//! The same policy and traffic on both planes and in the simulator.

use crate::htb::{drain, loads, ports, sent, tree};
use crate::policing::{XDP, rate_at_server, take_redirected};
use crate::setup::{NARROWS, Scratch, assert_balanced, run, turn};
use narrows_testbed::Testbed;
use narrows_testbed::accounting::Books;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::Duration;

/// The allowed difference between the shares of a class. As large as in `htb`, because a sender
/// that waits for its core leaves its part to others. docs/xdp.md has the observed differences.
const SHARES_APART: f64 = 0.03;
/// The allowed difference between the total rates: a worker that waits for its core leaves some of
/// the rate unused.
const RATES_APART: f64 = 0.03;
const ROOT: f64 = 40e6;
const CLASSES: [&str; 3] = ["1:10", "1:20", "1:30"];

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
    take_redirected(&bed);
    let instance = run(&bed, arguments);
    tree.iter().for_each(|line| drop(instance.tc(line).unwrap()));
    let mut books = Books::open(&bed).unwrap();
    let loads = loads(&bed);
    sleep(Duration::from_millis(500));
    let before = sent(&instance);
    let rates = [(); 3].map(|()| rate_at_server(&bed));
    let after = sent(&instance);
    for load in loads {
        load.stop().unwrap();
    }
    drain(&instance);
    let (_, [forth, _]) = assert_balanced(&mut books, &instance);
    let shown = instance.tc("-s -j class show dev port-b").unwrap();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let of_leaves = |figure: &str| -> u64 {
        let classes = shown.as_array().unwrap().iter();
        let leaves = classes.filter(|class| CLASSES.contains(&class["handle"].as_str().unwrap()));
        leaves.map(|class| class["stats"][figure].as_u64().unwrap()).sum()
    };
    assert_eq!(
        [of_leaves("packets"), of_leaves("drops")],
        [forth.received, forth.dropped_by_narrows],
        "{arguments:?}: {shown:#}"
    );
    // The least disturbed one: a receiver has to wait for its core, too.
    let rate =
        rates.into_iter().min_by(|one, other| (one - ROOT).abs().total_cmp(&(other - ROOT).abs()));
    let grown = |class: &&str| ((*class).to_owned(), (after[*class] - before[*class]) as f64);
    Outcome::new(&CLASSES.iter().map(grown).collect(), rate.unwrap())
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
    let [xsk, xdp] = [on_plane(&[], &tree), on_plane(&XDP, &tree)];
    println!("xsk {xsk:?}\nxdp {xdp:?}\nsimulated {:?}", *SIMULATED);
    assert_alike(&[&xsk, &xdp, &SIMULATED]);
}

#[test]
fn classes_that_filters_set_where_packets_come_in_get_the_same_on_both_planes() {
    let Some(_turn) = turn() else { return };
    let tree = tree_by_edits();
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
