//! A port: how Narrows is attached, what the port carries, and what was lost outside the queues.

use crate::{Class, Delays, Heaviest, LineFigures, Qdisc, Queue, RoundTrips};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How limits hold for what a host sends itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OwnTraffic {
    /// Packets wait in `fq` until their departure times.
    Shaped,
    /// Nothing holds packets: those without room are dropped.
    Policed,
}

/// A port.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Port {
    /// The interface's name.
    pub name: String,
    /// Where programs run: in XDP's mode `native` or `generic`, or at `tcx`.
    #[serde(default)]
    pub xdp: String,
    /// `zero-copy` or `copy`.
    #[serde(default)]
    pub copy: String,
    /// Whether there is no carrier, so that the kernel drops what is sent here.
    #[serde(default)]
    pub no_carrier: bool,
    /// Its MTU in bytes.
    #[serde(default)]
    pub mtu: u32,
    /// Queue pairs served; on the XDP plane, which needs no pairs, receive queues.
    #[serde(default)]
    pub queues: u32,
    /// The kind of its root qdisc.
    #[serde(default)]
    pub qdisc: String,
    /// The rate set at its root, in bits per second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate_set_bps: Option<u64>,
    /// Where that rate follows a line (`autorate`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub follows: Option<LineFigures>,
    /// The memory of the largest `cake` instance on it, in bytes, without packets and without what
    /// instances share.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub instance_bytes: Option<u64>,
    /// The rate of departures in the last second, in bits per second of frames.
    #[serde(default)]
    pub tx_rate_bps: u64,
    /// The rate of arrivals in the last second, in bits per second of frames.
    #[serde(default)]
    pub rx_rate_bps: u64,
    /// All queues together.
    pub total: Queue,
    /// What each of `per_queue` is.
    #[serde(default)]
    pub counted_by: CountedBy,
    /// In the host plane: how limits hold for what this host sends here.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub own_traffic: Option<OwnTraffic>,
    /// Each queue; on the XDP plane and the host plane, each CPU.
    pub per_queue: Vec<Queue>,
    /// Frames for the host itself, passed to the kernel.
    pub to_self: u64,
    /// Frames passed to the kernel because their queue has no worker.
    pub unserved: u64,
    /// Frames passed to the kernel because they are in no VLAN that is a port. Of a device with
    /// several ports, at the first of them.
    #[serde(default)]
    pub others: u64,
    /// In a router and a switch: what became of frames that arrived here, by outcome. `routed`,
    /// `by_flow` and `switched` ones leave through a port, all others but those of `blackhole` went
    /// to the kernel.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub routes: BTreeMap<String, u64>,
    /// Where services are balanced: what became of frames that arrived here, by outcome. `balanced`
    /// and `redirected` ones left towards a server, `answered` ones back; `local`, `elsewhere`,
    /// `fragment` and `unrecorded` ones went to this host; all others were dropped.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub balance: BTreeMap<String, u64>,
    /// Where a user's own program runs first: its verdicts. `pass` ones went on to this port's
    /// filters, `tx` and `redirect` ones left, all others were dropped.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub front: BTreeMap<String, u64>,
    /// Where services have connection ids of QUIC.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub connection_ids: Option<ConnectionIds>,
    /// What the kernel itself sent through this port, beside the queues: its own packets, and those
    /// that it forwards. Only where they are charged to the port's limits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub slow_path: Option<SlowPath>,
    /// Frames that bypassed a silent worker: passed to the kernel, or dropped if Narrows fails
    /// closed.
    #[serde(default)]
    pub stalled: u64,
    /// The delays in Narrows of packets that left here.
    #[serde(default)]
    pub delays: Delays,
    /// Round trips beyond the port, if the instance measures them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub round_trips: Option<RoundTrips>,
    /// The hosts and flows with the most bytes leaving here.
    #[serde(default)]
    pub heaviest: Heaviest,
    /// Frames that the kernel lost between driver and worker.
    #[serde(default)]
    pub kernel_drops: KernelDrops,
    /// Frames that the device itself lost while the ports were joined.
    #[serde(default)]
    pub device_losses: DeviceLosses,
    /// Its qdiscs, root first. Only where the request asks for the tree.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub qdiscs: Vec<Qdisc>,
    /// Its classes, each after the class above it. Only where the request asks for the tree.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub classes: Vec<Class>,
}

/// What the kernel itself sends through a port, in frames as they are on the wire. What came to the
/// port's egress is the sum of both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SlowPath {
    /// Frames sent, and charged to the limits.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames dropped, since they exceeded the limits or a filter said so.
    pub dropped_packets: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
}

/// Packets that arrived here, of services with connection ids of QUIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ConnectionIds {
    /// They went to the server that their connection id names.
    pub named: u64,
    /// Their id names no server that is there, and they went where others go: at the beginning of
    /// each connection.
    pub others: u64,
}

/// By what a port's packets are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CountedBy {
    /// By queue pair, each with a worker.
    #[default]
    Queue,
    /// By CPU: programs in the driver run where a packet comes in, and have no queues.
    Cpu,
}

impl CountedBy {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Cpu => "cpu",
        }
    }
}

impl Port {
    /// The most it may send, in bits per second: the rate at its root or, for a tree, the sum of
    /// the ceilings of its topmost classes. What classes of an `hfsc` get by `rt` may be more.
    /// `None` without a limit, or if the limit is that of a tree that the snapshot does not
    /// include.
    pub fn limit_bps(&self) -> Option<u64> {
        let is_top = |class: &&Class| match self.qdisc.as_str() {
            "htb" => class.kind == "htb" && class.root,
            "hfsc" => class.kind == "hfsc" && class.is_below_root(),
            _ => false,
        };
        let top = self.classes.iter().filter(is_top);
        let ceilings: Option<Vec<u64>> = top.map(Class::most).collect();
        let tree = ceilings.into_iter().flatten().reduce(u64::saturating_add);
        self.rate_set_bps.or(tree.map(|bytes| bytes.saturating_mul(8)))
    }

    /// All packets that were lost on their way in or out, by place and reason: the queues' reasons
    /// by name, and before them `kernel` and `device`. These two may count the same packets, so the
    /// numbers must not be added up. Packets that bypassed a worker are not lost and not included.
    pub fn losses(&self) -> Vec<(String, u64)> {
        let queues = self.total.drops_by_reason.iter();
        let queues = queues.map(|(reason, count)| (reason.clone(), *count));
        let (kernel, device) = (&self.kernel_drops, &self.device_losses);
        let others = [
            ("kernel rx_ring_full", kernel.rx_ring_full),
            ("kernel rx_dropped", kernel.rx_dropped),
            ("kernel rx_invalid", kernel.rx_invalid),
            ("kernel tx_invalid", kernel.tx_invalid),
            ("device rx_dropped", device.rx_dropped),
            ("device rx_errors", device.rx_errors),
            ("device rx_missed", device.rx_missed),
            ("device tx_dropped", device.tx_dropped),
            ("device tx_errors", device.tx_errors),
        ];
        queues.chain(others.map(|(reason, count)| (reason.to_owned(), count))).collect()
    }
}

/// Losses in the kernel between a driver and the workers, from XDP_STATISTICS of `xsk(7)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelDrops {
    /// The RX ring was full.
    pub rx_ring_full: u64,
    /// Other losses on the way in.
    pub rx_dropped: u64,
    /// Times that the fill ring was empty.
    pub fill_ring_empty: u64,
    /// Descriptors refused on the way in.
    pub rx_invalid: u64,
    /// Descriptors refused on the way out.
    pub tx_invalid: u64,
}

/// The kernel's loss counters of the whole device, for frames of all programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceLosses {
    /// Received and dropped.
    pub rx_dropped: u64,
    /// Received with an error.
    pub rx_errors: u64,
    /// Missed because there was no buffer.
    pub rx_missed: u64,
    /// Not sent: no carrier, or no room.
    pub tx_dropped: u64,
    /// Not sent because of an error.
    pub tx_errors: u64,
    /// Lost with the carrier; included in `tx_errors`.
    pub tx_carrier: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(kind: &str, ceil: u64, root: bool) -> Class {
        Class { kind: kind.into(), ceil: Some(ceil), root, ..Class::default() }
    }

    #[test]
    fn a_tree_limits_a_port_to_the_ceilings_of_its_topmost_classes() {
        let classes =
            vec![class("htb", 100, true), class("htb", 50, false), class("htb", 25, true)];
        let port = Port { qdisc: "htb".into(), classes, ..Port::default() };
        assert_eq!(port.limit_bps(), Some(125 * 8));
        assert_eq!(Port { qdisc: "mq".into(), ..port }.limit_bps(), None);
    }

    #[test]
    fn a_tree_limits_a_port_if_each_of_its_topmost_classes_has_a_limit() {
        let tree = |curves: [&str; 2]| {
            let classes = curves.map(|curve| {
                format!(r#"{{"class":"hfsc","handle":"1:1","parent":"1:","{curve}":{{"m2":100}}}}"#)
            });
            let below = r#"{"class":"hfsc","handle":"1:9","parent":"1:1"}"#;
            let root = r#"{"class":"hfsc","handle":"1:","root":true}"#;
            let text = format!("[{root},{},{below}]", classes.join(","));
            let classes = serde_json::from_str(&text).unwrap();
            Port { qdisc: "hfsc".into(), classes, ..Port::default() }.limit_bps()
        };
        assert_eq!(tree(["ul", "ul"]), Some(200 * 8));
        assert_eq!(tree(["ul", "ls"]), None);
    }

    #[test]
    fn a_rate_at_the_root_is_the_limit() {
        let port = Port { qdisc: "cake".into(), rate_set_bps: Some(7), ..Port::default() };
        assert_eq!(port.limit_bps(), Some(7));
        assert_eq!(Port::default().limit_bps(), None);
    }

    #[test]
    fn losses_are_told_by_where_they_happened() {
        let mut port = Port::default();
        port.total.drops_by_reason.insert("limit".into(), 3);
        port.kernel_drops.rx_ring_full = 4;
        port.device_losses.tx_dropped = 5;
        let lost: Vec<_> = port.losses().into_iter().filter(|(_, count)| *count > 0).collect();
        let listed: Vec<_> = lost.iter().map(|(why, count)| (why.as_str(), *count)).collect();
        assert_eq!(listed, [("limit", 3), ("kernel rx_ring_full", 4), ("device tx_dropped", 5)]);
    }
}
