//! The safeguard learns from real TCP about congestion on the way to a host, on another queue than
//! the one that the data leaves by, and spaces that host's packets.
//!
//! Two testbeds in a row, with a bridge in between: the near instance of Narrows paces flows, the
//! far one is the bottleneck where their bundles meet. All data takes one queue of the near
//! instance, and all returning packets take the other.

use crate::setup::{ip, run, show, turn_to_measure};
use narrows_testbed::bed::{CLIENT, SERVER};
use narrows_testbed::capture::Capture;
use narrows_testbed::narrows::Instance;
use narrows_testbed::tcp::{Flow, Flows, Running};
use narrows_testbed::{Testbed, steering};
use narrows_units::Nanos;
use serde_json::Value;
use std::thread::sleep;
use std::time::Duration;

const FLOWS: usize = 8;
/// A packet of each flow every 12 ms, leaving together in slots of 8.4 ms; all flows together are
/// slower than the bottleneck.
const PACED: &str = "flowbundler maxrate 1mbit flow_limit 20";
/// Packets no further apart than this have left together: far less than the millisecond in which
/// all flows have a packet, far more than the duration of a batch.
const TOGETHER: Nanos = Nanos::from_micros(300);
/// The time between the starts of two flows: slightly more than some packets of a flow take.
const BETWEEN: Duration = Duration::from_micros(61_500);
/// The time in which TCP fills its queues, and the safeguard is active most of the time.
const WARM_UP: Duration = Duration::from_millis(1500);
/// The length of a measurement,
const WINDOW: Duration = Duration::from_millis(1500);
/// and how many are made at most if the machine is busy.
const WINDOWS: usize = 4;

struct Chain {
    near: Testbed,
    far: Testbed,
}

impl Chain {
    fn up(ecn: &str) -> Self {
        let (near, far) = (Testbed::up(2).unwrap(), Testbed::up(2).unwrap());
        let middle = near.server();
        ip(far.client(), &format!("link set dev {CLIENT} netns {}", middle.name()));
        ip(middle, &format!("addr flush dev {SERVER}"));
        ip(middle, "link add name br0 type bridge");
        for (number, device) in [SERVER, CLIENT].into_iter().enumerate() {
            // The ends have the addresses that they had.
            let mac = format!("address 02:6e:72:77:01:0{number}");
            ip(middle, &format!("link set dev {device} {mac} master br0 up"));
        }
        ip(middle, "link set dev br0 up");
        steering::pin_device(near.client(), CLIENT, 0).unwrap();
        steering::pin_device(middle, SERVER, 1).unwrap();
        for end in [near.client(), far.server()] {
            end.set("ipv4.tcp_ecn", ecn).unwrap();
        }
        Self { near, far }
    }

    /// Flows whose packets have different times: flows that start together stay together, whatever
    /// slots they get.
    fn flows(&self) -> Vec<Running> {
        let ([client, _], [_, server]) = (self.near.ends(), self.far.ends());
        let open = || Flows::open(&self.near, client, server, &[Flow { dscp: 0, queue: 0 }]);
        let opened: Vec<Flows> = (0..FLOWS).map(|_| open().unwrap()).collect();
        let start = |flows: Flows| {
            sleep(BETWEEN);
            flows.start().unwrap()
        };
        opened.into_iter().map(start).collect()
    }

    /// How many packets leave the near instance together, on average.
    fn together(&self) -> f64 {
        sleep(WARM_UP);
        let capture = Capture::of_times(self.near.server(), SERVER, "tcp").unwrap();
        sleep(WINDOW);
        let (arrivals, missed) = capture.arrivals().unwrap();
        assert_eq!(missed, 0);
        let apart = arrivals.windows(2).filter(|pair| pair[1].at.since(pair[0].at) > TOGETHER);
        let groups = apart.count() + 1;
        assert!(groups > 20, "{} packets in {groups} groups", arrivals.len());
        arrivals.len() as f64 / groups as f64
    }
}

/// How often the paced port has learned of congestion.
fn heard(near: &Instance) -> u64 {
    let listed = near.tc("-s -j qdisc show dev port-b").unwrap();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    listed[0]["congestion"].as_u64().unwrap_or_else(|| panic!("{listed:#}"))
}

/// The packets sent by each queue of port number `port` of the near instance.
fn sent(chain: &Chain, port: usize) -> Vec<u64> {
    let now = show(&chain.near);
    let queues = now["ports"][port]["per_queue"].as_array().unwrap();
    queues.iter().map(|queue| queue["tx_packets"].as_u64().unwrap()).collect()
}

/// Runs flows through a bottleneck of `far`, without the safeguard and then with it. With it, less
/// than one part in `parts` may leave together.
fn try_it(ecn: &str, far: &[&str], parts: f64) {
    let chain = Chain::up(ecn);
    let (near, bottleneck) = (run(&chain.near, &[]), run(&chain.far, &[]));
    for words in far {
        bottleneck.tc(&format!("qdisc replace dev port-b {words}")).unwrap();
    }
    near.tc(&format!("qdisc replace dev port-b root {PACED}")).unwrap();
    let load = chain.flows();
    let without = chain.together();
    assert_eq!(heard(&near), 0);
    near.tc("qdisc change dev port-b root flowbundler safeguard").unwrap();
    // A worker that waited for its core sends all overdue packets together.
    let mut with = f64::INFINITY;
    for _ in 0..WINDOWS {
        with = with.min(chain.together());
        if without > parts * with {
            break;
        }
    }
    let times = heard(&near);
    load.into_iter().for_each(|flow| flow.stop().unwrap());
    let (data, answers) = (sent(&chain, 1), sent(&chain, 0));
    eprintln!("{without:.2} packets together, {with:.2} with the safeguard, {times} times heard");
    assert!(data[0] > 100 && data[1] < data[0] / 10, "data leaves by queue 0: {data:?}");
    assert!(answers[1] > 100 && answers[0] < answers[1] / 10, "and is answered on 1: {answers:?}");
    assert!(times > 0);
    assert!(
        without > parts * with,
        "{with} packets leave together where it is heard, not {without}"
    );
}

#[test]
fn marks_that_come_back_on_another_queue_keep_packets_apart() {
    let Some(_turn) = turn_to_measure() else { return };
    let tbf = "root handle 1: tbf rate 10mbit burst 3k latency 200ms";
    try_it("1", &[tbf, "parent 1:1 fq ce_threshold 3ms"], 2.0);
}

#[test]
fn so_do_time_stamps_that_take_longer_to_come_back() {
    let Some(_turn) = turn_to_measure() else { return };
    // One packet at a time is timed, and not every one has waited behind others.
    try_it("0", &["root handle 1: tbf rate 10mbit burst 3k latency 200ms"], 1.25);
}
