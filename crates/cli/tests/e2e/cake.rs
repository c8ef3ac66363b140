//! CAKE on real packets: one rate over all queues, marks instead of losses, short delays, and
//! packet conservation.

use crate::limits::{TOLERANCE, assert_near, rate_at_server};
use crate::setup::{
    assert_balanced, complaint, flood, run, show, tc, turn_to_count, turn_to_measure,
};
use narrows_testbed::accounting::Books;
use narrows_testbed::bed::{SERVER, SERVER_MAC};
use narrows_testbed::capture::Capture;
use narrows_testbed::narrows::Instance;
use narrows_testbed::ping::Ping;
use narrows_testbed::raw::RawSocket;
use narrows_testbed::tcp::{Flow, Flows, Running};
use narrows_testbed::{Testbed, frames, steering};
use serde_json::Value;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The time in which TCP finds its rate.
const WARM_UP: Duration = Duration::from_secs(1);

/// The output of `narrows tc -s -j qdisc show dev port-b`.
fn listed(instance: &Instance) -> Vec<Value> {
    serde_json::from_str(&instance.tc("-s -j qdisc show dev port-b").unwrap()).unwrap()
}

/// The sum of a counter over all tins of a `cake`.
fn in_all_tins(cake: &Value, figure: &str) -> u64 {
    let tins = cake["tins"].as_array().unwrap_or_else(|| panic!("no tins: {cake:#}"));
    tins.iter().map(|tin| tin[figure].as_u64().unwrap()).sum()
}

/// TCP from the client to the server: a flow on each queue, unmarked.
fn tcp_load(bed: &Testbed) -> Running {
    let [client, server] = bed.ends();
    let wanted: Vec<Flow> = (0..4).map(|queue| Flow { dscp: 0, queue }).collect();
    Flows::open(bed, client, server, &wanted).unwrap().start().unwrap()
}

#[test]
fn cake_keeps_its_rate_over_all_queues_and_its_figures_add_up() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(4).unwrap();
    let flows = steering::flows(&bed, 8).unwrap();
    let instance = run(&bed, &[]);
    instance.tc("qdisc replace dev port-b root cake bandwidth 100mbit besteffort").unwrap();
    let mut books = Books::open(&bed).unwrap();
    // Long frames: a worker that goes before the sender wakes up for each.
    let load = flood(&bed, &flows.concat(), 1500, 130e6);
    let rate = rate_at_server(&bed, 100e6);
    let now = show(&bed);
    println!("workers and queues: {:#} {:#}", now["workers"], now["ports"][1]);
    println!("the flood: {:?}", load.stop().unwrap());
    assert_near(rate, 100e6, TOLERANCE, "cake");
    let (_, [forth, _]) = assert_balanced(&mut books, &instance);
    let [cake] = &listed(&instance)[..] else { panic!("{:#?}", listed(&instance)) };
    let figure = |name: &str| cake[name].as_u64().unwrap_or_else(|| panic!("{name}: {cake:#}"));
    assert_eq!(cake["kind"], "cake");
    assert_eq!(figure("packets"), forth.received, "{cake:#}");
    assert_eq!((figure("qlen"), figure("backlog")), (0, 0), "{cake:#}");
    assert!(figure("drops") > 0 && figure("drops") <= forth.dropped_by_narrows, "{cake:#}");
    assert_eq!(
        in_all_tins(cake, "sent_packets"),
        figure("packets") + figure("drops") + figure("qlen"),
        "{cake:#}"
    );
    assert_eq!(in_all_tins(cake, "drops"), figure("drops"), "{cake:#}");
}

#[test]
fn tcp_that_understands_marks_is_marked_and_loses_nothing() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(4).unwrap();
    let instance = run(&bed, &[]);
    for end in bed.ends() {
        end.namespace.set("ipv4.tcp_ecn", "1").unwrap();
    }
    instance.tc("qdisc replace dev port-b root cake bandwidth 50mbit besteffort").unwrap();
    let load = tcp_load(&bed);
    sleep(Duration::from_secs(2));
    load.stop().unwrap();
    let cake = &listed(&instance)[0];
    assert!(in_all_tins(cake, "ecn_mark") > 0, "{cake:#}");
    assert_eq!(in_all_tins(cake, "drops"), 0, "{cake:#}");
}

/// The position of an IPv4 header in a frame without tags.
const HEADER: std::ops::Range<usize> = 14..34;
const SERVICE: usize = 15;

/// The sum of an IPv4 header's words, which is all ones if its checksum is correct.
fn sum(header: &[u8]) -> u16 {
    let words = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// A frame of `port` with `service` in its header, and a correct checksum.
fn marked(port: u16, service: u8) -> Vec<u8> {
    let mut frame = frames::udp(port, SERVER_MAC, 200).unwrap();
    frame[SERVICE] = service;
    frame[24..26].fill(0);
    let checksum = !sum(&frame[HEADER]);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame
}

#[test]
fn wash_clears_code_points_on_the_wire_and_nothing_else() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(4).unwrap();
    let instance = run(&bed, &[]);
    let socket = RawSocket::open(bed.client(), narrows_testbed::bed::CLIENT).unwrap();
    // EF with ECT(0), CS1, AF41 with ECT(1).
    let services = [0xba, 0x20, 0x89];
    for (word, left) in [("nowash", services), ("wash", [0x02, 0x00, 0x01])] {
        let words = format!("qdisc replace dev port-b root cake bandwidth 100mbit {word}");
        instance.tc(&words).unwrap();
        let capture = Capture::start(bed.server(), SERVER, "udp").unwrap();
        for (flow, service) in (0..).zip(services) {
            socket.send(&[marked(frames::port(flow), service)]).unwrap();
        }
        capture.wait_for(services.len(), Duration::from_secs(5));
        let mut arrived = capture.stop().unwrap();
        // By source port, which is the order of sending.
        arrived.sort_by_key(|frame| [frame[34], frame[35]]);
        let expected: Vec<Vec<u8>> =
            (0..).zip(left).map(|(flow, service)| marked(frames::port(flow), service)).collect();
        assert_eq!(arrived, expected, "{word}");
        assert!(arrived.iter().all(|frame| sum(&frame[HEADER]) == 0xffff), "{word}");
    }
}

#[test]
fn a_ping_beside_standing_tcp_is_answered_soon_and_every_time() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(4).unwrap();
    let instance = run(&bed, &[]);
    instance.tc("qdisc replace dev port-b root cake bandwidth 20mbit").unwrap();
    let load = tcp_load(&bed);
    sleep(WARM_UP);
    let ping = Ping::start(&bed, Duration::from_secs(20)).unwrap();
    assert!(ping.wait_for_an_answer(Duration::from_secs(10)), "no ping is answered");
    let before = load.received().iter().sum::<u64>();
    sleep(Duration::from_secs(2));
    let carried = load.received().iter().sum::<u64>() - before;
    let ping = ping.stop().unwrap();
    load.stop().unwrap();
    assert!(carried * 8 > 2 * 15_000_000, "the load stood still: {carried} bytes in 2 s");
    assert!(ping.received >= 50, "{ping:?}");
    assert_eq!(ping.lost, 0, "{ping:?}");
    // Most of them: other work on the machine delays the rest.
    let most = ping.percentile(90.0).unwrap();
    assert!(most < Duration::from_millis(15), "{most:?}");
}

/// Policies that do not limit the load, each reached from every other.
const POLICIES: &[&str] = &[
    "qdisc replace dev port-b root handle 1: cake bandwidth 200mbit",
    "qdisc change dev port-b root handle 1: cake bandwidth 300mbit rtt 20ms",
    "qdisc change dev port-b root handle 1: cake bandwidth 250mbit diffserv8 dual-srchost",
    "qdisc change dev port-b root handle 1: cake bandwidth 250mbit besteffort flowblind",
    "qdisc change dev port-b root handle 1: cake bandwidth 250mbit diffserv4 triple-isolate",
    "qdisc change dev port-b root handle 1: cake unlimited overhead 38 mpu 84",
    "qdisc replace dev port-b root handle 2: cake_mq bandwidth 200mbit",
    "qdisc replace dev port-b root handle 3: tbf rate 200mbit burst 1m limit 8m",
    "qdisc replace dev port-b root handle 4: cake bandwidth 200mbit memlimit 8m wash",
    "qdisc replace dev port-b root noqueue",
];

#[test]
fn new_parameters_under_load_lose_no_packet() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(4).unwrap();
    let instance = run(&bed, &[]);
    let ports: Vec<u16> = (0..64).map(frames::port).collect();
    let mut books = Books::open(&bed).unwrap();
    let load = flood(&bed, &ports, 500, 16e6);
    let end = Instant::now() + Duration::from_secs(2);
    let mut rounds = 0;
    while Instant::now() < end || rounds < 2 {
        for words in POLICIES {
            let output = tc(&bed, words);
            assert!(output.status.success(), "{words}: {}", complaint(&output));
        }
        rounds += 1;
    }
    load.stop().unwrap();
    let (devices, [forth, _]) = assert_balanced(&mut books, &instance);
    assert!(forth.received > 1000, "{devices:#?}");
    let now = show(&bed);
    assert_eq!(forth.dropped_by_narrows, 0, "{:#}", now["conservation"]);
    assert_eq!(now["conservation"]["unaccounted"], 0);
}

#[test]
fn cake_mq_lists_a_root_and_a_child_for_each_queue() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(4).unwrap();
    let instance = run(&bed, &[]);
    instance.tc("qdisc replace dev port-b root handle 1: cake_mq bandwidth 100mbit").unwrap();
    let listed = listed(&instance);
    let (root, children) = listed.split_first().unwrap();
    assert_eq!((&root["kind"], &root["handle"]), (&"cake_mq".into(), &"1:".into()), "{root:#}");
    assert_eq!(root["root"], true);
    assert!(root["tins"].is_null(), "{root:#}");
    let parents: Vec<&str> = children.iter().filter_map(|child| child["parent"].as_str()).collect();
    // In the order of the kernel's list.
    assert_eq!(parents, ["1:4", "1:3", "1:2", "1:1"]);
    for child in children {
        assert_eq!((&child["kind"], &child["handle"]), (&"cake".into(), &"0:".into()), "{child:#}");
        assert!(child["tins"].is_array(), "{child:#}");
    }
}
