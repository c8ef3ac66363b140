//! Interfaces that disappear or change under traffic.

use crate::setup::{
    complaint, devices, flood, ip, run, set_mtu, show, tc, turn_to_count, wait_for,
};
use narrows_testbed::accounting::{Books, directions};
use narrows_testbed::bed::{PORT_A, PORT_B, SERVER};
use narrows_testbed::counters::Counters;
use narrows_testbed::flood::Running;
use narrows_testbed::{Testbed, frames};
use serde_json::Value;
use std::thread::sleep;
use std::time::Duration;

const POLICY: &str = "qdisc add dev port-b root handle 1: tbf rate 30mbit burst 100k latency 20ms";

fn load(bed: &Testbed) -> Running {
    let ports: Vec<u16> = (0..32).map(frames::port).collect();
    flood(bed, &ports, 500, 10e6)
}

fn sent(show: &Value) -> u64 {
    show["ports"][1]["total"]["tx_packets"].as_u64().unwrap()
}

fn events(show: &Value) -> String {
    show["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event.as_str().unwrap())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Waits until frames arrive at the server under the policy, with counters that continued.
#[track_caller]
fn assert_recovered(bed: &Testbed, before: &Value) -> Value {
    let running = wait_for(bed, "running again", |show| show["state"] == "running");
    assert!(sent(&running) >= sent(before), "counters began anew: {running:#}");
    let mut server = Counters::of(bed.server(), SERVER).unwrap();
    let arrived = server.read().unwrap().rx_packets;
    // Counted from here, because much may have been sent since the interruption.
    let running = show(bed);
    let now = wait_for(bed, "forwarding again", |show| sent(show) > sent(&running) + 500);
    assert!(server.read().unwrap().rx_packets > arrived + 200, "nothing arrives: {now:#}");
    assert_eq!(now["conservation"]["unaccounted"], 0, "{now:#}");
    let output = tc(bed, "qdisc show dev port-b");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains("rate 30Mbit"), "{shown}{}", complaint(&output));
    now
}

#[test]
fn an_interface_that_vanishes_is_waited_for_and_joined_again() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(4).unwrap();
    let mut instance = run(&bed, &[]);
    instance.tc(POLICY).unwrap();
    let _load = load(&bed);
    let before = wait_for(&bed, "forwarding", |show| sent(show) > 500);
    ip(bed.shaper(), &format!("link del {PORT_B}"));
    let waiting = wait_for(&bed, "waiting", |show| show["state"] == "waiting");
    assert!(events(&waiting).contains("port-b is gone"), "{waiting:#}");
    assert!(waiting["waiting_for"].as_str().unwrap().contains("port-b"), "{waiting:#}");
    assert!(sent(&waiting) >= sent(&before), "{waiting:#}");
    // A policy can be set meanwhile.
    let output = tc(&bed, "qdisc replace dev port-a root pfifo limit 500");
    assert!(output.status.success(), "{}", complaint(&output));

    let ends = format!("netns {} address 02:6e:72:77:00:02", bed.server().name());
    ip(
        bed.shaper(),
        &format!(
            "link add name {PORT_B} numtxqueues 4 numrxqueues 4 type veth peer name {SERVER} {ends} \
             numtxqueues 4 numrxqueues 4"
        ),
    );
    let offloads = "tx off tso off gso off gro off sg off";
    for (namespace, device) in &devices(&bed)[2..] {
        let words: Vec<&str> = ["-K", device].into_iter().chain(offloads.split(' ')).collect();
        namespace.run("ethtool", &words).unwrap();
        ip(namespace, &format!("link set dev {device} up"));
    }
    let now = assert_recovered(&bed, &waiting);
    assert_eq!(now["ports"][0]["qdisc"], "pfifo");
    assert!(instance.is_running());

    // Fail-open also covers the interface that came back.
    instance.kill().unwrap();
    let mut server = Counters::of(bed.server(), SERVER).unwrap();
    sleep(Duration::from_millis(300));
    let arrived = server.read().unwrap().rx_packets;
    sleep(Duration::from_millis(300));
    assert!(server.read().unwrap().rx_packets > arrived, "nothing is forwarded after the kill");
}

#[test]
fn an_interface_that_goes_down_and_up_again_carries_on() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let instance = run(&bed, &[]);
    instance.tc(POLICY).unwrap();
    let _load = load(&bed);
    wait_for(&bed, "forwarding", |show| sent(show) > 500);
    ip(bed.shaper(), &format!("link set dev {PORT_B} down"));
    sleep(Duration::from_millis(300));
    ip(bed.shaper(), &format!("link set dev {PORT_B} up"));
    let before = show(&bed);
    assert_recovered(&bed, &before);
}

#[test]
fn a_new_mtu_is_an_event_and_served() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let instance = run(&bed, &[]);
    instance.tc(POLICY).unwrap();
    let _load = load(&bed);
    let before = wait_for(&bed, "forwarding", |show| sent(show) > 500);
    for port in [PORT_A, PORT_B] {
        ip(bed.shaper(), &format!("link set dev {port} mtu 1400"));
    }
    let settled = |mtu: u32| {
        move |show: &Value| {
            show["state"] == "running" && (0..2).all(|port| show["ports"][port]["mtu"] == mtu)
        }
    };
    let smaller = wait_for(&bed, "at MTU 1400", settled(1400));
    assert!(events(&smaller).contains("MTU 1400 instead of 1500"), "{smaller:#}");
    let now = assert_recovered(&bed, &before);
    // To jumbo frames, in the order that an operator must use: ports first.
    for (namespace, device) in [1, 2, 0, 3].map(|place| devices(&bed)[place]) {
        ip(namespace, &format!("link set dev {device} mtu 9000"));
        wait_for(&bed, "running", |show| show["state"] == "running");
    }
    wait_for(&bed, "at MTU 9000", settled(9000));
    assert_recovered(&bed, &now);
    drop(_load);
    set_mtu(&bed, 1500);
    wait_for(&bed, "at MTU 1500", settled(1500));
}

#[test]
fn new_numbers_of_queues_are_an_event_and_served() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(4).unwrap();
    let set = |place: usize, queues: &str| {
        let (namespace, device) = devices(&bed)[place];
        namespace.run("ethtool", &["-L", device, "rx", queues, "tx", queues]).unwrap();
    };
    [0, 1, 2, 3].iter().for_each(|&place| set(place, "2"));
    let instance = run(&bed, &[]);
    instance.tc(POLICY).unwrap();
    let load = load(&bed);
    let before = wait_for(&bed, "forwarding", |show| sent(show) > 500);
    assert_eq!(before["workers"].as_array().unwrap().len(), 2);
    // The ports before their peers, which must never send on a queue that nothing receives.
    [1, 2].iter().for_each(|&place| set(place, "4"));
    let now = wait_for(&bed, "joined with 4 queues", |show| {
        show["state"] == "running" && show["ports"][0]["queues"] == 4
    });
    assert!(events(&now).contains("4 queues instead of 2"), "{now:#}");
    [0, 3].iter().for_each(|&place| set(place, "4"));
    let now = assert_recovered(&bed, &now);
    assert_eq!(now["workers"].as_array().unwrap().len(), 4);
    assert_eq!(now["ports"][1]["per_queue"].as_array().unwrap().len(), 4);
    load.stop().unwrap();
}

/// The most frames in the rings of veth when four sessions end: at 10,000 a second, those of half a
/// millisecond each time.
const UNCOUNTED: i64 = 20;

#[test]
fn traffic_flows_on_while_ports_are_joined_anew() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(4).unwrap();
    let instance = run(&bed, &[]);
    let ports: Vec<u16> = (0..32).map(frames::port).collect();
    let mut books = Books::open(&bed).unwrap();
    let load = flood(&bed, &ports, 500, 40e6);
    for mtu in [1400, 1500, 1400, 1500] {
        ip(bed.shaper(), &format!("link set dev {PORT_B} mtu {mtu}"));
        wait_for(&bed, "joined anew", |show| {
            show["state"] == "running" && show["ports"][1]["mtu"] == mtu
        });
    }
    load.stop().unwrap();
    let devices = books.settle().unwrap();
    let [forth, _] = directions(&devices, &instance.show().unwrap()).unwrap();
    // Between two sessions the bridge forwards. When a program is detached, the kernel discards the
    // frames in the veth's own ring without counting them.
    assert!((0..=UNCOUNTED).contains(&forth.unaccounted()), "{forth:#?}");
}
