//! Classes with service curves over several queues, with real packets.

use crate::htb::assert_rates;
use crate::limits::{TOLERANCE, assert_near, rate_at_server};
use crate::setup::{
    Scratch, assert_balanced, complaint, flood, port_in, run, tc, turn_to_count, turn_to_measure,
    wait_for,
};
use narrows_testbed::accounting::Books;
use narrows_testbed::bed::{PORT_B, SERVER};
use narrows_testbed::capture::Capture;
use narrows_testbed::narrows::Instance;
use narrows_testbed::{Testbed, frames, steering};
use serde_json::Value;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The time in which a share settles.
const SETTLE: Duration = Duration::from_millis(500);

/// The tree of most tests: what is sent is at most 40 Mbit/s, and 1:10 and 1:20 share it.
const TREE: [&str; 4] = [
    "qdisc add dev port-b root handle 1: hfsc",
    "class add dev port-b parent 1: classid 1:1 hfsc ls rate 40mbit ul rate 40mbit",
    "class add dev port-b parent 1:1 classid 1:10 hfsc ls rate 28mbit",
    "class add dev port-b parent 1:1 classid 1:20 hfsc ls rate 12mbit",
];

/// A call: 160 bytes each 20 ms, due within 5 ms.
const CALL: &str = "class add dev port-b parent 1:1 classid 1:30 hfsc rt umax 160b dmax 5ms rate \
                    100kbit";

fn load(instance: &Instance, lines: &[&str]) {
    lines.iter().for_each(|line| drop(instance.tc(line).unwrap()));
}

/// Filters UDP from each of `ports` to `class`.
fn assign(instance: &Instance, ports: &[u16], class: &str) {
    for port in ports {
        let line = format!(
            "filter add dev port-b parent 1: protocol ip pref {port} flower ip_proto udp src_port \
             {port} classid {class}"
        );
        instance.tc(&line).unwrap();
    }
}

/// The counters of the class `id` of port B.
fn class(instance: &Instance, id: &str) -> Value {
    let output = instance.command("show").args(["--json", "--trees"]).output().unwrap();
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let classes = port_in(&shown, PORT_B)["classes"].as_array().unwrap();
    let class = classes.iter().find(|class| class["handle"] == id);
    class.unwrap_or_else(|| panic!("no {id} in {classes:#?}"))["stats"].clone()
}

/// Waits until the class `id` has sent `packets`. Returns its counters then.
fn wait_until_sent(instance: &Instance, id: &str, packets: u64) -> Value {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let class = class(instance, id);
        if class["packets"] == packets {
            return class;
        }
        assert!(Instant::now() < deadline, "{id} has not sent {packets} packets: {class:#}");
        sleep(Duration::from_millis(50));
    }
}

/// Bytes that came at the server within some seconds, from each of two lists of ports.
fn received(bed: &Testbed, span: Duration, of: [&[u16]; 2]) -> [f64; 2] {
    let capture = Capture::of_times(bed.server(), SERVER, "udp and dst port 9").unwrap();
    sleep(span);
    let (arrivals, missed) = capture.arrivals().unwrap();
    assert_eq!(missed, 0, "tcpdump missed frames");
    of.map(|ports| {
        let is_one = |bytes: &[u8]| ports.contains(&u16::from_be_bytes([bytes[34], bytes[35]]));
        // All frames are alike.
        arrivals.iter().filter(|arrival| is_one(&arrival.bytes)).count() as f64
    })
}

#[test]
fn classes_on_two_queues_share_their_limit_as_their_curves_say() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(2).unwrap();
    let flows = steering::flows(&bed, 4).unwrap();
    let instance = run(&bed, &[]);
    load(&instance, &TREE);
    // Each class has a queue of its own, so that no queue sees both.
    assign(&instance, &flows[0], "1:10");
    assign(&instance, &flows[1], "1:20");
    let mut books = Books::open(&bed).unwrap();
    let loads = [&flows[0], &flows[1]].map(|ports| flood(&bed, ports, 1000, 45e6));
    assert_near(rate_at_server(&bed, 40e6), 40e6, TOLERANCE, "both");
    assert_rates(&instance, &[("1:1", 40e6), ("1:10", 28e6), ("1:20", 12e6)]);
    let [one, other] = received(&bed, Duration::from_secs(2), [&flows[0], &flows[1]]);
    let share = one / (one + other);
    println!("at the server {one} and {other} frames: a share of {share:.4}");
    assert!((share - 0.7).abs() < 0.03, "{one} and {other}");
    // Other shares hold at once, and what one leaves the other has.
    load(&instance, &["class change dev port-b classid 1:20 hfsc ls rate 28mbit"]);
    sleep(SETTLE);
    assert_rates(&instance, &[("1:10", 20e6), ("1:20", 20e6)]);
    let [one, other] = loads;
    one.stop().unwrap();
    sleep(SETTLE);
    assert_rates(&instance, &[("1:20", 40e6)]);
    other.stop().unwrap();
    assert_balanced(&mut books, &instance);
}

#[test]
fn a_call_is_not_late_beside_a_flood_on_all_queues() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(2).unwrap();
    let flows = steering::flows(&bed, 4).unwrap();
    let instance = run(&bed, &[]);
    load(&instance, &TREE[..3]);
    load(&instance, &[CALL, "qdisc add dev port-b parent 1:10 pfifo limit 300"]);
    let (caller, others) = flows[0].split_first().unwrap();
    assign(&instance, &[others, &flows[1]].concat(), "1:10");
    assign(&instance, &[*caller], "1:30");
    let mut books = Books::open(&bed).unwrap();
    let flooding = flood(&bed, &[others, &flows[1]].concat(), 1000, 60e6);
    sleep(SETTLE);
    let call = flood(&bed, &[*caller], 160, 64e3);
    assert_near(rate_at_server(&bed, 40e6), 40e6, TOLERANCE, "beside a call");
    sleep(Duration::from_secs(3));
    let sent = call.stop().unwrap().packets;
    let called = wait_until_sent(&instance, "1:30", sent);
    let flooded = class(&instance, "1:10");
    let delay = |of: &Value, what: &str| of["delays"][what].as_f64().unwrap();
    let shown =
        ["p50_us", "p99_us", "max_us"].map(|what| [delay(&called, what), delay(&flooded, what)]);
    println!("{sent} packets of a call; call and flood at p50, p99 and most: {shown:?} us");
    assert!(sent > 150, "{sent}");
    assert_eq!(called["drops"], 0, "{called:#}");
    // On each queue 300 packets are queued, which take 120 ms at the whole rate. A worker may wait
    // for its core.
    assert!(delay(&flooded, "p50_us") > 60_000.0, "{shown:?}");
    assert!(delay(&called, "p50_us") < 6_000.0, "{shown:?}");
    assert!(delay(&called, "p99_us") * 2.0 < delay(&flooded, "p50_us"), "{shown:?}");
    flooding.stop().unwrap();
    assert_balanced(&mut books, &instance);
}

#[test]
fn packets_without_a_class_are_dropped_and_counted_until_there_is_one() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let flows = steering::flows(&bed, 2).unwrap();
    let instance = run(&bed, &[]);
    load(&instance, &TREE);
    assign(&instance, &flows[0], "1:10");
    let mut books = Books::open(&bed).unwrap();
    let known = flood(&bed, &flows[0], 500, 2e6);
    let unknown = flood(&bed, &flows[1], 500, 2e6);
    sleep(SETTLE);
    known.stop().unwrap();
    let unknown = unknown.stop().unwrap().packets;
    let (_, [forth, _]) = assert_balanced(&mut books, &instance);
    assert!(unknown > 100 && forth.received > 100, "{forth:?}");
    assert_eq!(forth.dropped_by_narrows, unknown);
    wait_for(&bed, "counted", |show| show["conservation"]["dropped"]["unclassified"] == unknown);
    assert_eq!(class(&instance, "1:10")["drops"], 0);
    // A default that does not exist helps as little; one that does takes them all.
    load(&instance, &["qdisc change dev port-b root handle 1: hfsc default 99"]);
    let lost = flood(&bed, &flows[1], 500, 2e6);
    sleep(SETTLE);
    let lost = lost.stop().unwrap().packets;
    let (_, [forth, _]) = assert_balanced(&mut books, &instance);
    assert_eq!(forth.dropped_by_narrows, unknown + lost);
    load(&instance, &["qdisc change dev port-b root handle 1: hfsc default 20"]);
    let had = flood(&bed, &flows[1], 500, 2e6);
    sleep(SETTLE);
    let had = had.stop().unwrap().packets;
    let (_, [forth, _]) = assert_balanced(&mut books, &instance);
    assert_eq!(forth.dropped_by_narrows, unknown + lost);
    wait_until_sent(&instance, "1:20", had);
}

/// `period`, `work` and `rtwork` of the class `id`, as `tc -s -j` shows them.
fn service(instance: &Instance, id: &str) -> [u64; 3] {
    let shown = instance.tc(&format!("-s -j class show dev {PORT_B}")).unwrap();
    let classes: Vec<Value> = serde_json::from_str(&shown).unwrap();
    let is_one = |class: &&Value| class["handle"] == id;
    let class = classes.iter().find(is_one).unwrap_or_else(|| panic!("no {id} in {shown}"));
    let figure = |key: &str| {
        let figure = class["stats"].get(key).or(class.get(key));
        figure.and_then(Value::as_u64).unwrap_or_else(|| panic!("no {key} in {class:#}"))
    };
    ["period", "work", "rtwork"].map(figure)
}

#[test]
fn classes_that_come_change_and_go_under_load_lose_nothing_unaccounted() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(4).unwrap();
    let instance = run(&bed, &[]);
    load(&instance, &TREE);
    load(&instance, &[CALL, "qdisc change dev port-b root handle 1: hfsc default 20"]);
    let ports: Vec<u16> = (0..64).map(frames::port).collect();
    assign(&instance, &ports[..8], "1:10");
    assign(&instance, &ports[8..10], "1:30");
    let mut books = Books::open(&bed).unwrap();
    let flooding = flood(&bed, &ports, 500, 60e6);
    let mut before = [service(&instance, "1:1"), service(&instance, "1:30")];
    for round in 0..6 {
        for line in [
            "class change dev port-b classid 1:10 hfsc ls m1 40mbit d 10ms m2 5mbit",
            "class add dev port-b parent 1:1 classid 1:40 hfsc sc rate 1mbit ul rate 20mbit",
            "filter add dev port-b parent 1: protocol ip pref 1 flower ip_proto udp src_port \
             20020-20040 classid 1:40",
            "class change dev port-b classid 1:1 hfsc ls rate 40mbit ul rate 30mbit",
            "class add dev port-b parent 1:40 classid 1:41 hfsc ls rate 1mbit",
            "filter add dev port-b parent 1:40 protocol ip pref 1 matchall classid 1:41",
            "class change dev port-b classid 1:30 hfsc rt umax 500b dmax 20ms rate 2mbit",
            "qdisc replace dev port-b parent 1:20 fq_codel",
            "filter del dev port-b parent 1:40 pref 1",
            "filter del dev port-b pref 1",
            "class del dev port-b classid 1:41",
            "class del dev port-b classid 1:40",
            "class change dev port-b classid 1:10 hfsc ls rate 28mbit",
            "class change dev port-b classid 1:1 hfsc ls rate 40mbit ul rate 40mbit",
            "qdisc del dev port-b parent 1:20",
        ] {
            let output = tc(&bed, line);
            assert!(output.status.success(), "{line}: {}", complaint(&output));
        }
        let now = [service(&instance, "1:1"), service(&instance, "1:30")];
        for ([_, was, was_by_rt], [_, work, by_rt]) in before.into_iter().zip(now) {
            assert!(work > was && by_rt >= was_by_rt, "round {round}: {now:?}");
        }
        before = now;
    }
    let [[period, _, of_inner], [_, work, by_rt]] = before;
    assert!(period > 0, "it never began");
    assert_eq!(of_inner, 0, "only leaves are served by deadlines");
    assert_eq!(by_rt, work, "1:30 has no other curve");
    flooding.stop().unwrap();
    // Its backlog would take seconds.
    load(&instance, &["class change dev port-b classid 1:30 hfsc rt rate 40mbit"]);
    assert_balanced(&mut books, &instance);
    let text = instance.tc("-s class show dev port-b").unwrap();
    for words in ["class hfsc 1: root", " period ", " rtwork ", " level 1"] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    // The whole qdisc, with packets in it.
    let flooding = flood(&bed, &ports, 500, 60e6);
    let queued = |show: &Value| show["ports"][1]["total"]["backlog_packets"].as_u64();
    wait_for(&bed, "queued", |show| queued(show) > Some(50));
    load(&instance, &["qdisc del dev port-b root"]);
    flooding.stop().unwrap();
    assert_balanced(&mut books, &instance);
}

#[test]
fn a_policy_file_holds_from_the_start_after_an_upgrade_and_after_a_kill() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(2).unwrap();
    let flows = steering::flows(&bed, 4).unwrap();
    let filter = |(ports, class): (&[u16], u16)| {
        let line = |port: &u16| {
            format!(
                "filter add dev port-b parent 1: protocol ip pref {port} flower ip_proto udp \
                 src_port {port} classid 1:{class}"
            )
        };
        ports.iter().map(line).collect::<Vec<_>>()
    };
    let filters = [(&flows[0][..], 10), (&flows[1][..], 20)].into_iter().flat_map(filter);
    let lines: Vec<String> = TREE.map(str::to_owned).into_iter().chain(filters).collect();
    let policy = Scratch::new("hfsc.tc", &lines.join("\n"));
    let due = [("1:1", 40e6), ("1:10", 28e6), ("1:20", 12e6)];
    let mut instance = run(&bed, &["-b", policy.path()]);
    let _loads = [&flows[0], &flows[1]].map(|ports| flood(&bed, ports, 1000, 45e6));
    sleep(SETTLE);
    assert_rates(&instance, &due);
    let before = instance.tc("class show dev port-b").unwrap();
    instance.upgrade().unwrap();
    assert_eq!(instance.tc("class show dev port-b").unwrap(), before);
    sleep(SETTLE);
    assert_rates(&instance, &due);
    instance.kill().unwrap();
    let instance = run(&bed, &["-b", policy.path()]);
    assert_eq!(instance.tc("class show dev port-b").unwrap(), before);
    sleep(SETTLE);
    assert_rates(&instance, &due);
}
