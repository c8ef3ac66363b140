//! One policy and one traffic on both planes and in the simulator.

use crate::htb::{loads, rates, tree};
use crate::policing::{XDP, take_redirected};
use crate::setup::{NARROWS, Scratch, assert_balanced, run, turn};
use narrows_testbed::Testbed;
use narrows_testbed::accounting::Books;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// How far what a class gets of what all get may be apart.
const SHARES_APART: f64 = 0.01;
/// And its rate, as a part of the root's: a worker that waits for its core leaves some of that unused.
const RATES_APART: f64 = 0.03;
const ROOT: f64 = 40e6;
const CLASSES: [&str; 3] = ["1:10", "1:20", "1:30"];

/// What all of them get.
fn sum(rates: &BTreeMap<String, f64>) -> f64 {
    CLASSES.iter().map(|class| rates[*class]).sum()
}

/// What each class gets on the plane that `arguments` ask for, in bits a second. Demands that classes,
/// port and devices agree on every packet.
fn on_plane(arguments: &[&str]) -> BTreeMap<String, f64> {
    let bed = Testbed::up(4).unwrap();
    take_redirected(&bed);
    let instance = run(&bed, arguments);
    tree().iter().for_each(|line| drop(instance.tc(line).unwrap()));
    let mut books = Books::open(&bed).unwrap();
    let loads = loads(&bed);
    sleep(Duration::from_millis(500));
    // Whoever waits for a core sends less, never more: so the time when most was sent counts.
    let tries = (0..3).map(|_| rates(&instance));
    let rates = tries.max_by(|one, other| sum(one).total_cmp(&sum(other))).unwrap();
    for load in loads {
        load.stop().unwrap();
    }
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
    rates
}

/// The same in virtual time: greedy senders for each class.
fn simulated() -> BTreeMap<String, f64> {
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
    CLASSES.iter().map(|class| rate(class)).collect()
}

#[test]
fn one_policy_gives_each_class_the_same_on_both_planes_and_in_the_simulator() {
    let Some(_turn) = turn() else { return };
    let [xsk, xdp, sim] = [on_plane(&[]), on_plane(&XDP), simulated()];
    println!("xsk {xsk:?}\nxdp {xdp:?}\nsim {sim:?}");
    for class in CLASSES {
        for (one, other) in [(&xsk, &xdp), (&xsk, &sim), (&xdp, &sim)] {
            let apart = (one[class] - other[class]).abs() / ROOT;
            let shares = (one[class] / sum(one) - other[class] / sum(other)).abs();
            let is_near = apart < RATES_APART && shares < SHARES_APART;
            assert!(is_near, "{class}: xsk {xsk:?}, xdp {xdp:?}, simulated {sim:?}");
        }
    }
}
