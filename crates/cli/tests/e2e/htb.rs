//! One tree of classes over four queues, with real packets.

use crate::setup::{
    NARROWS, Scratch, assert_balanced, complaint, flood, narrows, port_in, run, turn_to_measure,
    turn_to_measure_alone, wait_for,
};
use narrows_testbed::accounting::Books;
use narrows_testbed::flood::Running;
use narrows_testbed::narrows::Instance;
use narrows_testbed::tree::demo;
use narrows_testbed::{Testbed, frames};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// The allowed deviation of a rate, as a fraction: see `limits`. A worker that waits for its core
/// leaves its part to other classes meanwhile, so the deviation may also be this fraction of the
/// root's rate.
const TOLERANCE: f64 = 0.04;
const TOLERANCE_BITS: f64 = 0.03 * 40e6;

/// Flows that land on all queues, by a hash that the kernel draws at boot: of so many, each queue
/// has more than half of a quarter. With less, a class could have less on a queue than its part
/// there.
const FLOWS: u16 = 256;

/// The commands that create a tree. Its bursts outlast the time for which a worker may wait for its
/// core.
pub(crate) fn tree() -> Vec<String> {
    let classes = [
        "qdisc add dev port-b root handle 1: htb default 30",
        "class add dev port-b parent 1: classid 1:1 htb rate 40mbit burst 60k cburst 60k",
        "class add dev port-b parent 1:1 classid 1:10 htb rate 10mbit ceil 40mbit burst 40k \
         cburst 60k",
        "class add dev port-b parent 1:1 classid 1:20 htb rate 10mbit ceil 40mbit burst 40k \
         cburst 60k prio 1",
        "class add dev port-b parent 1:1 classid 1:30 htb rate 4mbit ceil 8mbit burst 20k \
         cburst 20k prio 2",
    ];
    let filter = |(pref, class): (u16, u16)| {
        let ports = ports(pref - 1);
        let (first, last) = (ports[0], ports[ports.len() - 1]);
        format!(
            "filter add dev port-b parent 1: protocol ip pref {pref} flower ip_proto udp \
             src_port {first}-{last} classid 1:{class}"
        )
    };
    let filters = [(1, 10), (2, 20)].map(filter);
    classes.map(str::to_owned).into_iter().chain(filters).collect()
}

/// Loads all classes above their rates.
pub(crate) fn loads(bed: &Testbed) -> Vec<Running> {
    (0..3).map(|group| flood(bed, &ports(group), 1000, 45e6)).collect()
}

/// Lets the slowest class have all of the root's rate, so that its queues, which hold a thousand
/// packets each, do not take seconds to drain.
pub(crate) fn drain(instance: &Instance) {
    instance
        .tc("class change dev port-b classid 1:30 htb rate 4mbit ceil 40mbit burst 20k cburst 60k")
        .unwrap();
}

/// Asserts the assured rates, and that the best priority gets the rest.
#[track_caller]
fn assert_shared(instance: &Instance) {
    sleep(Duration::from_millis(500));
    assert_rates(instance, &[("1:1", 40e6), ("1:10", 26e6), ("1:20", 10e6), ("1:30", 4e6)]);
}

/// The source ports of the flows of a class.
pub(crate) fn ports(group: u16) -> Vec<u16> {
    (0..FLOWS).map(|flow| frames::port(group * FLOWS + flow)).collect()
}

/// The bytes sent by each class, and when, in seconds by the instance's own clock: on a busy
/// machine the program that asks starts sooner or later.
fn sent(instance: &Instance) -> (f64, BTreeMap<String, u64>) {
    let output = instance.command("show").args(["--json", "--trees"]).output().unwrap();
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    // The class of a tbf has no statistics.
    let sent = |class: &Value| {
        let bytes = class["stats"]["bytes"].as_u64()?;
        Some((class["handle"].as_str().unwrap().to_owned(), bytes))
    };
    let classes =
        port_in(&shown, "port-b")["classes"].as_array().unwrap().iter().filter_map(sent).collect();
    (shown["uptime_s"].as_f64().unwrap(), classes)
}

/// The number of windows in which a rate is measured: see `limits`.
const WINDOWS: usize = 5;
/// The length of a window.
const WINDOW: Duration = Duration::from_millis(400);

/// Asserts the rates of these classes, in bits per second: the median of some windows. It is known,
/// and measuring ends, once most windows are near.
#[track_caller]
pub(crate) fn assert_rates(instance: &Instance, due: &[(&str, f64)]) {
    let mut windows: Vec<BTreeMap<String, f64>> = Vec::new();
    let (mut since, mut before) = sent(instance);
    while windows.len() < WINDOWS {
        sleep(WINDOW);
        let (now, after) = sent(instance);
        let bits = |class: &String| (after[class] - before[class]) as f64 * 8.0;
        let rate = |class: &String| (class.clone(), bits(class) / (now - since));
        windows.push(after.keys().map(rate).collect());
        (since, before) = (now, after);
        let near = |class, limit| windows.iter().filter(move |it| is_near(it[class], limit));
        if due.iter().all(|&(class, limit)| near(class, limit).count() > WINDOWS / 2) {
            return;
        }
    }
    for &(class, limit) in due {
        let mut rates: Vec<f64> = windows.iter().map(|it| it[class]).collect();
        rates.sort_by(f64::total_cmp);
        assert!(is_near(rates[WINDOWS / 2], limit), "{class}: {windows:?} instead of {limit}");
    }
}

fn is_near(rate: f64, limit: f64) -> bool {
    (rate - limit).abs() <= (TOLERANCE * limit).max(TOLERANCE_BITS)
}

#[test]
fn classes_share_one_rate_over_all_queues_as_htb_says() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(4).unwrap();
    let instance = run(&bed, &[]);
    tree().iter().for_each(|line| drop(instance.tc(line).unwrap()));
    let mut books = Books::open(&bed).unwrap();
    let loads = loads(&bed);
    assert_shared(&instance);
    // Under load, without losing a packet.
    instance
        .tc("class change dev port-b classid 1:10 htb rate 10mbit ceil 20mbit burst 40k cburst 60k")
        .unwrap();
    sleep(Duration::from_millis(300));
    assert_rates(&instance, &[("1:10", 20e6), ("1:20", 16e6)]);
    instance.tc("filter del dev port-b pref 1").unwrap();
    instance.tc("class del dev port-b classid 1:10").unwrap();
    sleep(Duration::from_millis(300));
    assert_rates(&instance, &[("1:20", 36e6)]);
    for load in loads {
        load.stop().unwrap();
    }
    drain(&instance);
    assert_balanced(&mut books, &instance);
}

#[test]
fn a_tree_in_a_policy_file_holds_from_the_start_and_after_an_upgrade() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(4).unwrap();
    let policy = Scratch::new("tree.tc", &tree().join("\n"));
    let instance = run(&bed, &["-b", policy.path()]);
    let _loads = loads(&bed);
    assert_shared(&instance);
    let before = instance.tc("class show dev port-b").unwrap();
    let upgraded = narrows(&bed, &["upgrade"]);
    assert!(upgraded.status.success(), "{}", complaint(&upgraded));
    assert_eq!(instance.tc("class show dev port-b").unwrap(), before);
    assert_shared(&instance);
}

#[test]
fn a_class_takes_any_qdisc_and_it_can_be_replaced_under_load() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(4).unwrap();
    let instance = run(&bed, &[]);
    tree().iter().for_each(|line| drop(instance.tc(line).unwrap()));
    let mut books = Books::open(&bed).unwrap();
    let load = flood(&bed, &ports(0), 1000, 45e6);
    for kind in [
        "cake",
        "fq",
        "flowbundler",
        "fq_codel",
        "codel",
        "sfq",
        "netem delay 5ms",
        "pfifo limit 50",
    ] {
        instance.tc(&format!("qdisc replace dev port-b parent 1:10 {kind}")).unwrap();
        let queued = |show: &Value| show["ports"][1]["total"]["backlog_packets"].as_u64();
        wait_for(&bed, kind, |show| queued(show) > Some(4));
        assert_rates(&instance, &[("1:10", 40e6)]);
    }
    instance.tc("qdisc del dev port-b root").unwrap();
    load.stop().unwrap();
    assert_balanced(&mut books, &instance);
}

#[test]
fn a_providers_tree_is_shown_with_every_packet_accounted_for() {
    let Some(_turn) = turn_to_measure() else { return };
    let options = demo::Options { program: NARROWS.into(), phase: Duration::from_secs(1) };
    let report = demo::run(&options).unwrap();
    assert_eq!(report.unaccounted, 0, "{report}");
    // Every class that offered traffic got some, and the link was never exceeded.
    let shares = |depth| report.classes.iter().filter(move |class| class.depth == depth);
    for share in shares(3).flat_map(|class| &class.phases) {
        assert!(share.asked_bps == 0.0 || share.delivered_bps > 0.0, "{report}");
    }
    for share in shares(0).flat_map(|class| &class.phases) {
        assert!(share.delivered_bps < 80e6 * 1.05, "{report}");
    }
    assert!(demo::svg(&report).unwrap().contains("south-3"));
}

/// The benchmark's tree of many classes, with few of them: in both systems each packet finds its
/// class, so ceilings hold.
#[test]
fn the_kernel_and_narrows_keep_the_same_ceilings() {
    let Some(_turn) = turn_to_measure_alone() else { return };
    let words = ["bench", "tree-real", "--classes", "300", "--seconds", "1", "--rounds", "1"];
    let run = Command::new(NARROWS).args(words).arg("--json").output().unwrap();
    assert!(run.status.success(), "{}", complaint(&run));
    let report: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert!(report["skipped"].is_null(), "{report}");
    let rows = report["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().filter_map(|row| row["system"].as_str()).collect();
    assert_eq!(names, ["bridge-htb", "narrows-htb", "bridge-htb", "narrows-htb"]);
    for row in rows {
        let percent = row["ceilings_percent"]["median"].as_f64().unwrap();
        assert!((1.0..105.0).contains(&percent), "{report}");
    }
}
