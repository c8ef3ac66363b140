//! The host plane: limits for what this host's own stack sends, at its port's egress.
//!
//! The kernel of a test machine may have no `fq`. Then limits police. What holds in both ways is
//! tested here, and departure times on kernels with `fq` in virtual machines.

use crate::setup::{
    NARROWS, Scratch, assert_refused, hang_up, narrows, paced, port_in, show, tc, turn_to_count,
    turn_to_measure, wait_for, wait_until,
};
use narrows_testbed::Testbed;
use narrows_testbed::bed::{CLIENT_IP, PORT_B, SERVER_IP};
use narrows_testbed::counters::{Counters, Counts};
use narrows_testbed::narrows::Instance;
use serde_json::Value;
use std::net::UdpSocket;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A bed whose middle is the sender.
pub fn bed() -> Testbed {
    let bed = Testbed::up(2).unwrap();
    bed.send_from_the_port().unwrap();
    bed
}

fn run(bed: &Testbed, arguments: &[&str]) -> Instance {
    let words = [&["run", "--plane", "host", "--ports", PORT_B], arguments].concat();
    Instance::start_command(bed, Path::new(NARROWS), &words).unwrap()
}

/// What the server's device has received since it was opened.
pub struct Received(Counters, Counts);

impl Received {
    pub fn open(bed: &Testbed) -> Self {
        let [_, server] = bed.ends();
        let mut counters = Counters::of(server.namespace, server.device).unwrap();
        let now = counters.read().unwrap();
        Self(counters, now)
    }

    pub fn counts(&mut self) -> Counts {
        self.0.read().unwrap() - self.1
    }
}

/// Sends datagrams to a port of the server for a while, at so many bits a second, from the stack.
/// Returns how many.
pub fn send(bed: &Testbed, port: u16, bits: f64, time: Duration) -> u64 {
    const PAYLOAD: usize = 1000;
    let bind = || Ok(UdpSocket::bind((CLIENT_IP, 0))?);
    let socket = bed.shaper().enter(bind).unwrap();
    // A packet that is dropped at once is an error to some kernels.
    let send = || drop(socket.send_to(&[7; PAYLOAD], (SERVER_IP, port)));
    paced(PAYLOAD, bits, time, send)
}

/// The packets that a class has sent and dropped.
fn sent_by(bed: &Testbed, class: &str) -> [u64; 2] {
    let output = narrows(bed, &["tc", "-s", "-j", "class", "show", "dev", PORT_B]);
    let classes: Value = serde_json::from_slice(&output.stdout).unwrap();
    let classes = classes.as_array().unwrap();
    let found = classes.iter().find(|shown| shown["handle"] == class).unwrap();
    ["packets", "drops"].map(|key| found["stats"][key].as_u64().unwrap())
}

/// Asserts that every packet is where the counters say. Returns what was sent and dropped.
#[track_caller]
fn assert_accounted(bed: &Testbed, received: &mut Received) -> [u64; 2] {
    // What still waits for its time departs first.
    sleep(Duration::from_millis(300));
    let counts = received.counts();
    let shown = show(bed);
    let port = port_in(&shown, PORT_B);
    let [sent, dropped] = ["tx_packets", "drops"].map(|key| port["total"][key].as_u64().unwrap());
    assert_eq!(sent, counts.rx_packets, "{shown:#}");
    assert_eq!(shown["conservation"]["unaccounted"], 0, "{shown:#}");
    [sent, dropped]
}

#[test]
fn what_this_host_sends_is_held_to_the_limit_and_every_packet_is_accounted_for() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = bed();
    let instance = run(&bed, &[]);
    instance.tc("qdisc add dev port-b root tbf rate 20mbit burst 30k latency 50ms").unwrap();
    let mut received = Received::open(&bed);
    let begin = Instant::now();
    let offered = send(&bed, 9, 60e6, Duration::from_secs(2));
    let seconds = begin.elapsed().as_secs_f64();
    let [sent, dropped] = assert_accounted(&bed, &mut received);
    assert_eq!(sent + dropped, offered);
    let bits = received.counts().rx_bytes as f64 * 8.0;
    // Half of a second's error of timing of a busy machine, and the burst.
    let most = 20e6 * (seconds + 0.35) + 30_000.0 * 8.0;
    assert!((20e6 * 2.0 * 0.95..most).contains(&bits), "{bits} bits in {seconds} s");
}

#[test]
fn classes_filters_at_both_ends_and_a_reload_work_on_one_port() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = bed();
    let policy = Scratch::new(
        "host-plane.tc",
        "qdisc add dev port-b root handle 1: htb default 30\n\
         class add dev port-b parent 1: classid 1:1 htb rate 100mbit\n\
         class add dev port-b parent 1:1 classid 1:10 htb rate 50mbit ceil 100mbit\n\
         class add dev port-b parent 1:1 classid 1:30 htb rate 50mbit ceil 100mbit\n\
         qdisc add dev port-b parent 1:30 fq_codel\n\
         filter add dev port-b parent 1: protocol ip pref 1 flower ip_proto udp dst_port 10 \
         classid 1:10\n",
    );
    let instance = run(&bed, &["--batch", policy.path()]);
    let mut received = Received::open(&bed);
    let ten = send(&bed, 10, 5e6, Duration::from_millis(400));
    let other = send(&bed, 11, 5e6, Duration::from_millis(400));
    let [sent, dropped] = assert_accounted(&bed, &mut received);
    assert_eq!([sent, dropped], [ten + other, 0]);
    assert_eq!(sent_by(&bed, "1:10"), [ten, 0]);
    assert_eq!(sent_by(&bed, "1:30"), [other, 0]);

    instance.tc("qdisc add dev port-b clsact").unwrap();
    instance
        .tc("filter add dev port-b ingress protocol ip pref 1 flower ip_proto udp action drop")
        .unwrap();
    let (from, to) = (bed.server(), CLIENT_IP);
    let back = from.enter(|| Ok(UdpSocket::bind((SERVER_IP, 0))?)).unwrap();
    for _ in 0..20 {
        back.send_to(&[7; 100], (to, 12)).unwrap();
    }
    wait_for(&bed, "dropped", |shown| shown["conservation"]["dropped"]["filter"] == 20);
    hang_up(&instance);
    wait_until("read again", Duration::from_secs(5), || {
        !String::from_utf8_lossy(&tc(&bed, "filter show dev port-b ingress").stdout).contains("udp")
    });
    let again = send(&bed, 10, 5e6, Duration::from_millis(200));
    assert_eq!(sent_by(&bed, "1:10"), [ten + again, 0]);
}

#[test]
fn an_upgrade_goes_on_with_limits_and_counters_and_the_end_lets_all_pass() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = bed();
    let mut instance = run(&bed, &[]);
    instance.tc("qdisc add dev port-b root tbf rate 1mbit burst 10k latency 10ms").unwrap();
    let mut received = Received::open(&bed);
    let first = send(&bed, 9, 20e6, Duration::from_millis(500));
    instance.upgrade().unwrap();
    let second = send(&bed, 9, 20e6, Duration::from_millis(500));
    let [sent, dropped] = assert_accounted(&bed, &mut received);
    assert_eq!(sent + dropped, first + second);
    assert!(dropped > (first + second) / 2, "{sent} of {} were sent", first + second);
    drop(instance);
    let before = received.counts().rx_packets;
    let free = send(&bed, 9, 20e6, Duration::from_millis(300));
    sleep(Duration::from_millis(100));
    assert_eq!(received.counts().rx_packets - before, free);
}

#[test]
fn what_this_plane_cannot_do_is_refused_with_what_can() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = bed();
    let no_ports = narrows(&bed, &["run", "--plane", "host", "--router", "port-a,port-b"]);
    assert_refused(&no_ports, 1, &["leave out --stick, --router and --switch"]);
    let one = narrows(&bed, &["run", "--ports", PORT_B]);
    assert_refused(&one, 1, &["--plane host"]);
    let instance = run(&bed, &[]);
    for (words, what) in [
        ("qdisc add dev port-b root cake bandwidth 10mbit", "cannot run cake"),
        ("qdisc add dev port-b root handle 1: mq", "cannot run mq"),
    ] {
        assert_refused(&tc(&bed, words), 2, &[what, "use htb", "--plane xsk"]);
    }
    assert!(instance.show().unwrap().ports[0].own_traffic.is_some());
    // Nothing of it is in force.
    let mut received = Received::open(&bed);
    let sent = send(&bed, 9, 5e6, Duration::from_millis(200));
    let [passed, dropped] = assert_accounted(&bed, &mut received);
    assert_eq!([passed, dropped], [sent, 0]);
}
