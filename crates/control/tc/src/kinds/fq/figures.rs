//! What `tc -s` prints for an `fq` beyond the statistics of all qdiscs.
//!
//! Scripts parse it by its words, so it equals `tc`'s to the blank, including the key that it
//! prints twice.

use crate::notation;
use crate::render::{Json, Line};
use narrows_qdisc::fq::Figures;

const BAND_PACKETS: [&str; 3] = ["band0_pkts", "band1_pkts", "band2_pkts"];
const BAND_DROPS: [&str; 3] = ["band0_drops", "band1_drops", "band2_drops"];

pub(crate) fn figures(figures: &Figures, line: &mut Line) {
    let mut add = |key: &'static str, before: &str, value: u64, behind: &str| {
        line.add(key, Json::Number(value), &format!("{before}{key} {value}{behind}"));
    };
    add("flows", "  ", figures.flows.into(), "");
    add("inactive", " (", figures.inactive_flows.into(), "");
    add("throttled", " ", figures.throttled_flows.into(), ")");
    for (key, packets) in BAND_PACKETS.into_iter().zip(figures.band_packets) {
        add(key, " ", packets.into(), "");
    }
    let time = |line: &mut Line, key: &'static str, nanos: u64| {
        if nanos != 0 {
            line.add(key, Json::Number(nanos), &format!(" {key} {}", notation::nanos(nanos)));
        }
    };
    time(line, "next_packet_delay", figures.next_departure.unwrap_or_default().0);
    line.text("\n");
    let count = |line: &mut Line, key: &'static str, before: &str, value: u64| {
        line.add(key, Json::Number(value), &format!("{before}{key} {value}"));
    };
    count(line, "gc", "  ", figures.gc);
    count(line, "highprio", " ", figures.highprio);
    count(line, "throttled", " ", figures.throttled);
    time(line, "latency", figures.latency.0);
    let some = |line: &mut Line, key: &'static str, before: &str, value: u64| {
        if value != 0 {
            count(line, key, before, value);
        }
    };
    some(line, "ce_mark", " ", figures.ce_marks);
    some(line, "flows_plimit", " ", figures.flow_limit_drops);
    let beyond = [figures.horizon_drops, figures.horizon_caps];
    if beyond.into_iter().chain(figures.band_drops).any(|drops| drops != 0) {
        line.text("\n");
        some(line, "horizon_drops", " ", beyond[0]);
        some(line, "horizon_caps", "  ", beyond[1]);
        for (key, drops) in BAND_DROPS.into_iter().zip(figures.band_drops) {
            some(line, key, " ", drops);
        }
    }
    line.text("\n");
}
