//! Pacing on real packets: each flow keeps its own rate with even gaps, and packets that leave
//! together belong to different flows. Rates are those of the paper's figures, in Mbit/s for its
//! Gbit/s (D. Shan et al., ToN 2025), since two cores send and receive all of it.

use crate::setup::{flood, run, show, turn_to_measure};
use narrows_testbed::accounting::Books;
use narrows_testbed::bed::SERVER;
use narrows_testbed::capture::Capture;
use narrows_testbed::narrows::Instance;
use narrows_testbed::pacing::{Trace, by_source_port, gaps, whole};
use narrows_testbed::{Testbed, frames};
use narrows_units::Nanos;
use serde_json::Value;
use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

/// The time in which the queues of flows fill that offer 1.5 times their rate.
const WARM_UP: Duration = Duration::from_millis(500);
/// The length of the measurement.
const WINDOW: Duration = Duration::from_millis(1000);
/// The allowed deviation of the rate in percent: a machine that pauses at the end of the window
/// takes away this much.
const TOLERANCE: f64 = 10.0;
/// The size of all frames, in bytes.
pub(crate) const FRAME: usize = 1000;

/// The arrival times at the server within a window, by flow.
pub(crate) fn arriving(bed: &Testbed) -> BTreeMap<u16, Vec<Nanos>> {
    sleep(WARM_UP);
    let capture = Capture::of_times(bed.server(), SERVER, "udp").unwrap();
    sleep(WINDOW);
    let (arrivals, missed) = capture.arrivals().unwrap();
    assert_eq!(missed, 0);
    by_source_port(&arrivals)
}

pub(crate) fn traces(flows: &BTreeMap<u16, Vec<Nanos>>, ports: &[u16], bits: f64) -> Vec<Trace> {
    let packet_nanos = FRAME as f64 * 8e9 / bits;
    ports.iter().map(|port| Trace { at: flows[port].clone(), packet_nanos }).collect()
}

#[track_caller]
pub(crate) fn assert_paced(traces: &[Trace], what: &str) {
    let off = whole(traces).unwrap();
    println!("{what}: {:+.2} %", off.median);
    assert!(off.median.abs() <= TOLERANCE, "{what}: {off:?} %");
    // Unpaced, packets that are sent together arrive together.
    let gaps = gaps(traces).unwrap();
    assert!((0.6..1.6).contains(&gaps.p50), "{what}: {gaps:?}");
}

/// The sum over port B's queues.
fn total(show: &Value) -> &Value {
    &show["ports"][1]["total"]
}

#[test]
fn a_flow_is_paced_and_its_excess_dropped_at_its_limit() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(1).unwrap();
    let instance = run(&bed, &[]);
    for qdisc in ["flowbundler", "carousel", "eiffel", "fq"] {
        let mut books = Books::open(&bed).unwrap();
        let words = format!("{qdisc} maxrate 20mbit flow_limit 50");
        instance.tc(&format!("qdisc replace dev port-b root {words}")).unwrap();
        let before = total(&show(&bed))["drops"].as_u64().unwrap();
        let ports = [frames::port(0)];
        let load = flood(&bed, &ports, FRAME, 30e6);
        let flows = arriving(&bed);
        load.stop().unwrap();
        assert_paced(&traces(&flows, &ports, 20e6), qdisc);
        let devices = books.settle().unwrap();
        let after = show(&bed);
        let dropped = total(&after)["drops"].as_u64().unwrap() - before;
        assert_eq!(devices.client.tx_packets, devices.server.rx_packets + dropped, "{after:#}");
        let reasons = total(&after)["drops_by_reason"].as_object().unwrap();
        assert!(reasons.keys().eq(["flow_limit"]), "{after:#}");
    }
}

#[test]
fn packets_of_different_flows_leave_with_one_kick() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(1).unwrap();
    let instance = run(&bed, &[]);
    // Each flow has a packet every 40 ms, and all flows together one every 156 us.
    instance.tc("qdisc add dev port-b root flowbundler maxrate 200kbit flow_limit 5").unwrap();
    let ports: Vec<u16> = (0..256).map(frames::port).collect();
    let load = flood(&bed, &ports, FRAME, 256.0 * 300e3);
    sleep(WARM_UP);
    let count = |name: &str| total(&show(&bed))[name].as_u64().unwrap();
    let before = ["tx_packets", "tx_kicks"].map(count);
    sleep(WINDOW);
    let after = ["tx_packets", "tx_kicks"].map(count);
    load.stop().unwrap();
    let [packets, kicks] = [after[0] - before[0], after[1] - before[1]];
    assert!(packets > 1000 && kicks > 0, "{packets} packets, {kicks} kicks");
    assert!(packets / kicks >= 8, "{packets} packets, {kicks} kicks");
}

/// The rate at which each of `ports` arrives at the server, in bits a second.
fn rates(bed: &Testbed, ports: &[u16]) -> Vec<f64> {
    let flows = arriving(bed);
    let rate = |port: &u16| {
        let at = flows.get(port).map_or(&[][..], Vec::as_slice);
        let (Some(first), Some(last)) = (at.first(), at.last()) else { return 0.0 };
        (at.len() - 1) as f64 * FRAME as f64 * 8e9 / last.since(*first).0.max(1) as f64
    };
    ports.iter().map(rate).collect()
}

/// Gives the flow from each of `ports` its rate, in Mbit/s, by an action with the number of its
/// place.
fn give(instance: &Instance, ports: &[u16], mbits: &[u32]) {
    instance.tc("qdisc add dev port-b clsact").unwrap();
    for ((index, port), mbit) in (1..).zip(ports).zip(mbits) {
        let matches = format!("flower ip_proto udp src_port {port}");
        let action = format!("action pace rate {mbit}mbit index {index}");
        let line =
            format!("filter add dev port-b egress protocol ip pref {index} {matches} {action}");
        instance.tc(&line).unwrap();
    }
}

#[test]
fn flows_of_different_rates_leave_from_one_qdisc_each_at_its_own() {
    let Some(_turn) = turn_to_measure() else { return };
    // Fig. 7, and Fig. 17b.
    for mbits in [[3, 6, 6, 12], [2, 4, 6, 8]] {
        let bed = Testbed::up(1).unwrap();
        let instance = run(&bed, &[]);
        let ports: Vec<u16> = (0..4).map(frames::port).collect();
        for (number, qdisc) in
            ["flowbundler", "flowbundler codel", "carousel", "eiffel", "fq"].into_iter().enumerate()
        {
            instance.tc(&format!("qdisc replace dev port-b root {qdisc} flow_limit 50")).unwrap();
            if number == 0 {
                give(&instance, &ports, &mbits);
            }
            let load = flood(&bed, &ports, FRAME, 4.0 * 15e6);
            let flows = arriving(&bed);
            load.stop().unwrap();
            for (port, mbit) in ports.iter().zip(mbits) {
                let what = format!("{qdisc}: a flow of {mbit} Mbit/s");
                assert_paced(&traces(&flows, &[*port], f64::from(mbit) * 1e6), &what);
            }
        }
    }
}

#[test]
fn a_flow_has_its_own_rate_under_one_for_all_and_a_changed_rate_at_once() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(1).unwrap();
    let instance = run(&bed, &[]);
    // Fig. 16b: one flow has 1, 6, and 1 again, two have 2, and all together 5.
    // A burst that outlasts a worker's pause.
    instance.tc("qdisc add dev port-b root handle 1: tbf rate 5mbit burst 20k limit 1mb").unwrap();
    instance.tc("qdisc add dev port-b parent 1:1 handle 2: flowbundler flow_limit 20").unwrap();
    let ports: Vec<u16> = (0..3).map(frames::port).collect();
    give(&instance, &ports, &[1, 2, 2]);
    let load = flood(&bed, &ports, FRAME, 3.0 * 8e6);
    let near = |rate: f64, mbit: f64| (rate / (mbit * 1e6) - 1.0).abs() <= TOLERANCE / 100.0;
    let change = |mbit: u32| {
        let line = format!("actions change action pace rate {mbit}mbit index 1");
        instance.tc(&line).unwrap();
    };
    for mbit in [1, 6, 1] {
        change(mbit);
        let rates = rates(&bed, &ports);
        let all: f64 = rates.iter().sum();
        println!("{mbit} Mbit/s: {rates:.0?}, {all:.0} bit/s in all");
        assert!(near(all, 5.0), "{mbit}: {rates:?}");
        if mbit == 1 {
            assert!(near(rates[0], 1.0) && near(rates[1], 2.0) && near(rates[2], 2.0), "{rates:?}");
        } else {
            // More than before, and the others no more than their rate.
            assert!(rates[0] > 1.4e6 && rates[1] < 2.2e6 && rates[2] < 2.2e6, "{rates:?}");
        }
    }
    load.stop().unwrap();
}
