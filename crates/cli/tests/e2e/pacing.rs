//! Pacing on real packets: each flow keeps its own rate with even gaps, and packets that leave
//! together belong to different flows.

use crate::setup::{flood, run, show, turn_to_measure};
use narrows_testbed::accounting::Books;
use narrows_testbed::bed::SERVER;
use narrows_testbed::capture::Capture;
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
const FRAME: usize = 1000;

/// The arrival times at the server within a window, by flow.
fn arriving(bed: &Testbed) -> BTreeMap<u16, Vec<Nanos>> {
    sleep(WARM_UP);
    let capture = Capture::of_times(bed.server(), SERVER, "udp").unwrap();
    sleep(WINDOW);
    let (arrivals, missed) = capture.arrivals().unwrap();
    assert_eq!(missed, 0);
    by_source_port(&arrivals)
}

fn traces(flows: &BTreeMap<u16, Vec<Nanos>>, ports: &[u16], bits: f64) -> Vec<Trace> {
    let packet_nanos = FRAME as f64 * 8e9 / bits;
    ports.iter().map(|port| Trace { at: flows[port].clone(), packet_nanos }).collect()
}

#[track_caller]
fn assert_paced(traces: &[Trace], what: &str) {
    let off = whole(traces).unwrap();
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
