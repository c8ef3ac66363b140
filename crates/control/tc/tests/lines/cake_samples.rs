//! The output of the real `tc` for `cake` and `cake_mq`, parsed into statistics and printed again,
//! byte for byte.
//!
//! `samples/cake*` are of iproute2 7.3 on Linux 7.3 under load. Text and JSON were taken a moment
//! apart, so each is parsed on its own. `samples/tc61_*` are iproute2 6.1's output for a kernel's
//! answer with numbers of every width, the same in text and JSON; it did not have `active queues`
//! yet.

use crate::host::TwoPorts;
use narrows_packet::Backlog;
use narrows_policy::{ClassId, Handle, NodeStats, Parent};
use narrows_qdisc::cake::{Figures, TinFigures};
use narrows_qdisc::{Detail, Stats};
use narrows_units::{Bytes, Nanos, Rate};
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

fn sample(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lines/samples").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A host with a qdisc of these words at the root of `right`.
fn made(queues: u16, words: &str) -> TwoPorts {
    let mut host = TwoPorts::with_queues(queues);
    let outcome = host.tc(&format!("qdisc add dev right root handle 1: {words}"));
    assert_eq!(outcome.code, 0, "{words}: {}", outcome.stderr);
    host
}

fn place(parent: Option<&str>) -> (Parent, Option<Handle>) {
    let Some(class) = parent else { return (Parent::Root, Handle::new(1)) };
    let minor = class.strip_prefix("1:").unwrap().parse().unwrap();
    (Parent::Class(ClassId { major: 1, minor }), None)
}

/// Zero means none, as in the kernel's initial values.
fn sizes(least: u64, most: u64) -> Option<(u32, u32)> {
    ((least, most) != (65_535, 0)).then_some((least as u32, most as u32))
}

fn from_json(qdisc: &Value) -> NodeStats {
    let (parent, handle) = place(qdisc["parent"].as_str());
    let number = |key: &str| qdisc[key].as_u64().unwrap_or(0);
    let backlog = Backlog { packets: number("qlen") as u32, bytes: Bytes(number("backlog")) };
    let tin = |tin: &Value| {
        let number = |key: &str| tin[key].as_u64().unwrap();
        let time = |key: &str| Nanos::from_micros(number(key));
        TinFigures {
            threshold: Rate::from_bytes_per_sec(number("threshold_rate")),
            target: time("target_us"),
            interval: time("interval_us"),
            peak_delay: time("peak_delay_us"),
            average_delay: time("avg_delay_us"),
            base_delay: time("base_delay_us"),
            backlog: Bytes(number("backlog_bytes")),
            packets: number("sent_packets"),
            bytes: number("sent_bytes"),
            way_indirect_hits: number("way_indirect_hits"),
            way_misses: number("way_misses"),
            way_collisions: number("way_collisions"),
            drops: number("drops"),
            marks: number("ecn_mark"),
            ack_drops: number("ack_drops"),
            sparse_flows: number("sparse_flows") as u32,
            bulk_flows: number("bulk_flows") as u32,
            unresponsive_flows: number("unresponsive_flows") as u32,
            max_len: number("max_pkt_len") as u32,
            quantum: number("flow_quantum") as u32,
        }
    };
    let cake = qdisc["tins"].as_array().map(|tins| {
        Box::new(Figures {
            memory_used: Bytes(number("memory_used")),
            memory_limit: Bytes(number("memory_limit")),
            capacity_estimate: Rate::from_bytes_per_sec(number("capacity_estimate")),
            network_size: sizes(number("min_network_size"), number("max_network_size")),
            adjusted_size: sizes(number("min_adj_size"), number("max_adj_size")),
            active_queues: number("active_queues") as u32,
            average_offset: number("avg_hdr_offset") as u32,
            instances: 64,
            own_memory: Bytes(123_456),
            tins: tins.iter().map(tin).collect(),
            ..Figures::default()
        })
    });
    let stats = Stats {
        sent_bytes: number("bytes"),
        sent_packets: number("packets"),
        drops: number("drops"),
        overlimits: number("overlimits"),
        requeues: number("requeues"),
        backlog,
        detail: cake.map(Detail::Cake),
        ..Stats::default()
    };
    NodeStats { parent, handle, stats }
}

/// The number at the beginning of `text`, in base units: `3.74ms` in ns.
fn scaled(text: &str, units: &[(&str, f64)]) -> u64 {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (_, scale) = units.iter().find(|(unit, _)| *unit == &text[end..]).expect(text);
    (text[..end].parse::<f64>().unwrap() * scale).round() as u64
}

fn time(text: &str) -> Nanos {
    Nanos(scaled(text, &[("us", 1e3), ("ms", 1e6), ("s", 1e9)]))
}

fn size(text: &str) -> Bytes {
    Bytes(scaled(text, &[("b", 1.0), ("Kb", 1024.0), ("Mb", 1_048_576.0)]))
}

fn rate(text: &str) -> Rate {
    Rate::from_bits_per_sec(scaled(text, &[("bit", 1.0), ("Kbit", 1e3), ("Mbit", 1e6)]))
}

/// The statistics of one qdisc with at most one tin, parsed from its block of the text.
fn from_text(block: &str) -> NodeStats {
    let parent = block.lines().next().unwrap().split_once(" parent ");
    let (parent, handle) = place(parent.and_then(|(_, rest)| rest.split(' ').next()));
    let numbers: Vec<Vec<u64>> = block
        .lines()
        .skip(1)
        .map(|line| {
            let parts = line.split(|c: char| !c.is_ascii_digit());
            parts.filter_map(|digits| digits.parse().ok()).collect()
        })
        .collect();
    let (sent, queued) = (&numbers[0], &numbers[1]);
    let rows: HashMap<&str, &str> = block
        .lines()
        .skip(3)
        .filter_map(|line| line.trim().rsplit_once(": ").or(line.trim().split_once(' ')))
        .map(|(label, value)| (label, value.trim()))
        .collect();
    let number = |label: &str| rows[label].parse::<u64>().unwrap();
    let pair = |label: &str| {
        let (least, most) = rows[label].split_once('/').unwrap();
        sizes(least.trim().parse().unwrap(), most.trim().parse().unwrap())
    };
    let cake = rows.get("memory used").map(|memory| {
        let (used, limit) = memory.split_once(" of ").unwrap();
        let tin = TinFigures {
            threshold: rate(rows["thresh"]),
            target: time(rows["target"]),
            interval: time(rows["interval"]),
            peak_delay: time(rows["pk_delay"]),
            average_delay: time(rows["av_delay"]),
            base_delay: time(rows["sp_delay"]),
            backlog: size(rows["backlog"]),
            packets: number("pkts"),
            bytes: number("bytes"),
            way_indirect_hits: number("way_inds"),
            way_misses: number("way_miss"),
            way_collisions: number("way_cols"),
            drops: number("drops"),
            marks: number("marks"),
            ack_drops: number("ack_drop"),
            sparse_flows: number("sp_flows") as u32,
            bulk_flows: number("bk_flows") as u32,
            unresponsive_flows: number("un_flows") as u32,
            max_len: number("max_len") as u32,
            quantum: number("quantum") as u32,
        };
        Box::new(Figures {
            memory_used: size(used),
            memory_limit: size(limit),
            capacity_estimate: rate(rows["capacity estimate"]),
            network_size: pair("min/max network layer size"),
            adjusted_size: pair("min/max overhead-adjusted size"),
            active_queues: number("active queues") as u32,
            average_offset: number("average network hdr offset") as u32,
            instances: 64,
            own_memory: Bytes(123_456),
            tins: vec![tin],
            ..Figures::default()
        })
    });
    let stats = Stats {
        sent_bytes: sent[0],
        sent_packets: sent[1],
        drops: sent[2],
        overlimits: sent[3],
        requeues: sent[4],
        backlog: Backlog { packets: queued[1] as u32, bytes: Bytes(queued[0]) },
        detail: cake.map(Detail::Cake),
        ..Stats::default()
    };
    NodeStats { parent, handle, stats }
}

/// The blocks of a text, one for each qdisc.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    let starts: Vec<_> = text.match_indices("qdisc ").map(|(at, _)| at).collect();
    let ends: Vec<_> = starts.iter().skip(1).copied().chain([text.len()]).collect();
    starts.into_iter().zip(ends).map(|(start, end)| &text[start..end])
}

#[test]
fn samples_of_linux_7_3_are_printed_as_they_were() {
    for (name, words) in [
        ("cake_10_4q", "cake bandwidth 10mbit besteffort"),
        ("cake_50_4q", "cake bandwidth 50mbit besteffort"),
        ("cake_50_80-20", "cake bandwidth 50mbit besteffort"),
        ("cake_mq_200_4q", "cake_mq bandwidth 200mbit besteffort"),
        ("cake_mq_200_80-20", "cake_mq bandwidth 200mbit besteffort"),
    ] {
        let mut host = made(4, words);
        let json = sample(&format!("{name}.json"));
        let parsed: Value = serde_json::from_str(&json).unwrap();
        host.stats = parsed.as_array().unwrap().iter().map(from_json).collect();
        assert_eq!(host.ok("-s -j qdisc show dev right"), json, "{name}.json");

        let text = sample(&format!("{name}.txt"));
        host.stats = blocks(&text).map(from_text).collect();
        assert_eq!(host.ok("-s qdisc show dev right"), text, "{name}.txt");
        // -d adds nothing, in either format.
        assert_eq!(host.ok("-s -d qdisc show dev right"), text, "{name}.txt");
    }
}

#[test]
fn tins_and_options_of_every_sort_are_printed_as_by_tc() {
    for (name, words) in [
        ("tc61_diffserv3", "cake bandwidth 10mbit autorate-ingress"),
        ("tc61_diffserv4", "cake diffserv4 nat wash ingress ack-filter ethernet"),
        (
            "tc61_diffserv8",
            "cake diffserv8 flowblind ack-filter-aggressive no-split-gso atm overhead -4 \
             fwmark 0xff00",
        ),
        ("tc61_precedence", "cake precedence dual-srchost raw overhead 5 memlimit 32mb"),
        ("tc61_besteffort", "cake besteffort overhead 0 interplanetary memlimit 1000"),
    ] {
        let mut host = made(1, words);
        let json = sample(&format!("{name}.json"));
        let parsed: Value = serde_json::from_str(&json).unwrap();
        host.stats = parsed.as_array().unwrap().iter().map(from_json).collect();
        let ours = host.ok("-s -j qdisc show dev right");
        assert_eq!(ours.replace("\"active_queues\":0,", ""), json, "{name}.json");
        let ours = host.ok("-s -j -p qdisc show dev right");
        let ours = ours.replace("\"active_queues\": 0,\n        ", "");
        assert_eq!(ours, sample(&format!("{name}.pretty.json")), "{name}.pretty.json");
        let ours = host.ok("-s qdisc show dev right");
        let line = format!(" active queues: {:>25}\n", 0);
        assert_eq!(ours.replace(&line, ""), sample(&format!("{name}.txt")), "{name}.txt");
    }
}
