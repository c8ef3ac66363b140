//! FlowValve's rules with real packets: weights, borrow labels and its own examples, measured where
//! packets arrive, on the plane with queues and on the one without.

use crate::htb::{loads, ports};
use crate::policing::{NATIVE, XDP};
use crate::setup::{Scratch, assert_balanced, assert_refused, flood, run, tc, turn_to_measure};
use narrows_testbed::Testbed;
use narrows_testbed::accounting::Books;
use narrows_testbed::bed::{CLIENT, CLIENT_MAC, SERVER, SERVER_IP, SINK_MAC};
use narrows_testbed::capture::{Arrival, Capture};
use narrows_testbed::flood::{Flood, Pace, Running};
use narrows_testbed::frames;
use narrows_units::Nanos;
use std::net::Ipv4Addr;
use std::thread::sleep;
use std::time::Duration;

/// The planes, by the arguments that select them: with queues, in the drivers, and behind them.
const PLANES: [&[&str]; 3] = [&[], &NATIVE, &XDP];

/// From a change on, until rates are measured.
const SETTLE: Duration = Duration::from_millis(700);
/// Windows, of which the median counts: a worker that waits for its core leaves its part to others.
const WINDOWS: usize = 5;
const WINDOW: Duration = Duration::from_millis(400);
/// The length of each frame.
const FRAME: usize = 1000;
/// The allowed deviation of a rate, as a fraction of it, or of the root's rate.
const TOLERANCE: f64 = 0.04;
const TOLERANCE_OF_ROOT: f64 = 0.02;
const ROOT: f64 = 40e6;

/// Where a frame has its sender's address and port.
const SOURCE: usize = 26;
const SOURCE_PORT: usize = 34;

/// Three classes of the weights 1, 2 and 4, with next to nothing assured. What the second one
/// leaves only the first one may have. Bursts outlast the time for which a worker may wait for its
/// core.
fn weighted() -> Vec<String> {
    let mut lines = vec![
        "qdisc add dev port-b root handle 1: htb default 30 coordination flowvalve".to_owned(),
        "class add dev port-b parent 1: classid 1:1 htb rate 40mbit burst 60k cburst 60k".into(),
    ];
    for (class, words) in [
        (10, "weight 1 borrow 1:20,1:30"),
        (20, "weight 2 borrow none"),
        (30, "weight 4 borrow none"),
    ] {
        lines.push(format!(
            "class add dev port-b parent 1:1 classid 1:{class} htb rate 1mbit ceil 40mbit \
             burst 40k cburst 60k {words}"
        ));
        // So that a class that pauses does so soon.
        lines.push(format!("qdisc add dev port-b parent 1:{class} pfifo limit 50"));
    }
    for (pref, class) in [(1, 10), (2, 20)] {
        let of = ports(pref - 1);
        lines.push(format!(
            "filter add dev port-b parent 1: protocol ip pref {pref} flower ip_proto udp \
             src_port {}-{} classid 1:{class}",
            of[0],
            of[of.len() - 1]
        ));
    }
    lines
}

/// The rates of the groups that `group` tells apart, in bits per second at the server: the medians
/// over windows.
fn received<const N: usize>(bed: &Testbed, group: impl Fn(&[u8]) -> Option<usize>) -> [f64; N] {
    let capture = Capture::of_times(bed.server(), SERVER, "ip").unwrap();
    sleep(WINDOW * (WINDOWS as u32 + 1));
    let (arrivals, missed) = capture.arrivals().unwrap();
    assert_eq!(missed, 0, "of {}", arrivals.len());
    let first = arrivals.first().expect("packets arrive").at;
    let window = Nanos(WINDOW.as_nanos() as u64);
    let mut bytes = [[0; WINDOWS]; N];
    for Arrival { at, bytes: frame } in &arrivals {
        let number = (at.since(first).0 / window.0) as usize;
        if let (Some(group), 0..WINDOWS) = (group(frame), number) {
            bytes[group][number] += FRAME;
        }
    }
    bytes.map(|mut windows| {
        windows.sort_unstable();
        windows[WINDOWS / 2] as f64 * 8.0 / WINDOW.as_secs_f64()
    })
}

/// The number of the group of [`loads`] that a frame is of.
fn by_port(frame: &[u8]) -> Option<usize> {
    let port = frame.get(SOURCE_PORT..SOURCE_PORT + 2)?;
    let port = u16::from_be_bytes([port[0], port[1]]);
    (0..3).find(|group| ports(*group).contains(&port)).map(usize::from)
}

#[track_caller]
fn assert_rates<const N: usize>(what: &str, rates: [f64; N], due: [f64; N]) {
    for (rate, due) in rates.iter().zip(due) {
        let tolerance = (TOLERANCE * due).max(TOLERANCE_OF_ROOT * ROOT);
        assert!((rate - due).abs() <= tolerance, "{what}: {rates:?} instead of {due:?}");
    }
}

#[test]
fn weights_and_labels_hold_where_packets_arrive() {
    let Some(_turn) = turn_to_measure() else { return };
    for plane in PLANES {
        let bed = Testbed::up(4).unwrap();
        bed.take_redirected(plane == NATIVE).unwrap();
        let instance = run(&bed, plane);
        weighted().iter().for_each(|line| drop(instance.tc(line).unwrap()));
        let mut books = Books::open(&bed).unwrap();
        let mut loads: Vec<Running> = loads(&bed);
        sleep(SETTLE);
        // A megabit each, and 37 by weight.
        let seventh = 37e6 / 7.0;
        let all = [1e6 + seventh, 1e6 + 2.0 * seventh, 1e6 + 4.0 * seventh];
        assert_rates(&format!("{plane:?}, all"), received(&bed, by_port), all);
        // The share of the second is lent to the first, and not to the third.
        loads.remove(1).stop().unwrap();
        sleep(SETTLE);
        let lent = [all[0] + all[1], 0.0, all[2]];
        assert_rates(&format!("{plane:?}, one pauses"), received(&bed, by_port), lent);
        // It has its share again, by another weight.
        loads.push(flood(&bed, &ports(1), FRAME, 45e6));
        let change = "class change dev port-b classid 1:20 htb rate 1mbit ceil 40mbit burst 40k \
                      cburst 60k weight 5 borrow none";
        instance.tc(change).unwrap();
        sleep(SETTLE);
        let [first, second, third] = [1.0, 5.0, 4.0].map(|weight| 1e6 + weight * 3.7e6);
        let what = format!("{plane:?}, another weight");
        assert_rates(&what, received(&bed, by_port), [first, second, third]);
        for load in loads {
            load.stop().unwrap();
        }
        // What waits need not drain.
        instance.tc("qdisc del dev port-b root").unwrap();
        assert_balanced(&mut books, &instance);
    }
}

/// An example's name and text, and what sends, with the part of the whole that it is due.
type Example = (&'static str, &'static str, &'static [(Sends, f64)]);

/// FlowValve's examples, at a thousandth of their rates.
const EXAMPLES: [Example; 3] = [
    (
        "motivation",
        include_str!("../../../../examples/flowvalve/motivation.tc"),
        // A third, and of the rest 2 of 10 to ML, which KVS leaves.
        &[
            (Sends::From(2), 10.0 / 30.0),
            (Sends::KeyValues, 14.0 / 30.0),
            (Sends::From(1), 6.0 / 30.0),
        ],
    ),
    (
        "fair-queueing",
        include_str!("../../../../examples/flowvalve/fair-queueing.tc"),
        &[
            (Sends::From(0), 0.25),
            (Sends::From(1), 0.25),
            (Sends::From(2), 0.25),
            (Sends::From(3), 0.25),
        ],
    ),
    (
        "weighted",
        include_str!("../../../../examples/flowvalve/weighted.tc"),
        &[
            (Sends::From(0), 0.5),
            (Sends::From(1), 0.25),
            (Sends::From(2), 0.125),
            (Sends::From(3), 0.125),
        ],
    ),
];

/// The memcached of the motivation example.
const KEY_VALUES: u16 = 11211;

/// An application of the examples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sends {
    /// From this network of 10.0.0.0/16.
    From(u8),
    /// By TCP, from the port of the key-value store.
    KeyValues,
}

impl Sends {
    /// Its frames, of flows that take all queues.
    fn frames(self) -> Vec<Vec<u8>> {
        let flow = |flow: u8| {
            let (third, port) = match self {
                Self::From(network) => (network, frames::port(flow.into())),
                Self::KeyValues => (9, KEY_VALUES),
            };
            let ips = [Ipv4Addr::new(10, 0, third, 1 + flow), SERVER_IP];
            let mut frame = frames::udp4(port, [CLIENT_MAC, SINK_MAC], ips, FRAME).unwrap();
            if self == Self::KeyValues {
                as_tcp(&mut frame);
            }
            frame
        };
        (0..32).map(flow).collect()
    }

    /// Whether a frame is of it.
    fn sent(self, frame: &[u8]) -> bool {
        let Some(port) = frame.get(SOURCE_PORT..SOURCE_PORT + 2) else { return false };
        let is_store = port == KEY_VALUES.to_be_bytes();
        match self {
            Self::From(network) => !is_store && frame[SOURCE + 2] == network,
            Self::KeyValues => is_store,
        }
    }
}

/// Makes a segment of TCP of a UDP frame: the protocol, with IP's checksum as much more, and a
/// header of five words.
fn as_tcp(frame: &mut [u8]) {
    let sum = u16::from_be_bytes([frame[24], frame[25]]);
    let (more, has_carry) = sum.overflowing_add(u16::from(frame[23]) - 6);
    frame[24..26].copy_from_slice(&(more + u16::from(has_carry)).to_be_bytes());
    (frame[23], frame[46]) = (6, 0x50);
}

/// An example's lines at port B, at a thousandth of its rates, with bursts that outlast the time
/// for which a sender or a worker may wait for its core.
fn at_port_b(example: &str) -> String {
    let smaller = example.replace("mbit", "kbit").replace("gbit", "mbit");
    let lines = smaller.lines().map(|line| match line.starts_with("class ") {
        true => format!("{} burst 40k cburst 40k\n", line.replace("dev eth1", "dev port-b")),
        false => line.replace("dev eth1", "dev port-b") + "\n",
    });
    lines.collect()
}

#[test]
fn the_examples_of_flowvalve_hold_on_both_planes() {
    let Some(_turn) = turn_to_measure() else { return };
    for (name, text, sends) in EXAMPLES {
        for plane in [&[][..], &NATIVE] {
            let bed = Testbed::up(4).unwrap();
            bed.take_redirected(plane == NATIVE).unwrap();
            let policy = Scratch::new("flowvalve.tc", &at_port_b(text));
            let instance = run(&bed, &[plane, &["-b", policy.path()]].concat());
            let mut books = Books::open(&bed).unwrap();
            let start = |(sends, _): &(Sends, f64)| {
                let (frames, pace) = (sends.frames(), Pace::Bits(30e6));
                let flood = Flood { frames, pace, limit: Duration::from_secs(60), core: None };
                flood.start(bed.client(), CLIENT).unwrap()
            };
            let loads: Vec<Running> = sends.iter().map(start).collect();
            sleep(SETTLE);
            let group = |frame: &[u8]| sends.iter().position(|(sends, _)| sends.sent(frame));
            let rates: [f64; 4] = received(&bed, group);
            let sum: f64 = rates.iter().sum();
            let what = format!("{name}, {plane:?}: {rates:?}");
            let root = if name == "motivation" { 10e6 } else { 40e6 };
            // At such rates an epoch has a few frames. So what is measured in one varies, and a
            // class lends what it seems to leave: the sum is some per cent above the root's rate.
            assert!((0.85 * root..1.1 * root).contains(&sum), "{what}");
            for (rate, (_, due)) in rates.iter().zip(sends) {
                assert!((rate / sum - due).abs() < 0.03, "{what}");
            }
            for load in loads {
                load.stop().unwrap();
            }
            instance.tc("qdisc del dev port-b root").unwrap();
            assert_balanced(&mut books, &instance);
        }
    }
}

#[test]
fn what_waits_for_nothing_is_refused_below_flowvalve_in_the_driver() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(1).unwrap();
    let instance = run(&bed, &XDP);
    weighted().iter().for_each(|line| drop(instance.tc(line).unwrap()));
    let before = instance.tc("class show dev port-b").unwrap();
    for words in [
        "qdisc replace dev port-b parent 1:10 codel",
        "qdisc replace dev port-b parent 1:10 handle 2: prio",
    ] {
        assert_refused(&tc(&bed, words), 2, &["coordination flowvalve", "--plane xsk"]);
    }
    assert_eq!(instance.tc("class show dev port-b").unwrap(), before);
}
