//! The tree: a link, two sites, six subscribers, three applications each.
//!
//! Rates below a class add up to a little less than its own, so that each lends some of its own
//! rate, and no rate is assured twice. The first subscriber has twice the share of borrowed rate.

use crate::bed::{CLIENT_IP, CLIENT_MAC, SINK_MAC};
use anyhow::Result;
use etherparse::PacketBuilder;
use narrows_coordination::TreeStrategy;
use narrows_qdisc::htb::Class;
use narrows_units::{Bytes, Nanos, Rate, wire::Overhead};
use std::collections::BTreeMap;

/// Subscribers, those of the first site first.
pub(super) const SUBSCRIBERS: usize = 6;
/// Applications of each.
pub(super) const APPLICATIONS: usize = 3;
/// Leaves: the applications of the first subscriber, and so on.
pub(super) const LEAVES: usize = SUBSCRIBERS * APPLICATIONS;

/// The size of a bucket: its rate for this long, so a worker that waits for its core for as long
/// loses none of the rate.
const BURST: Nanos = Nanos::from_millis(20);
/// The least of it: four full frames.
const BURST_MIN: u64 = 4 * 1514;
/// The queue limit of a leaf: its assured rate or its ceiling for this long, whichever is more.
/// Long enough for a sender or a worker that waits for its core, and short enough to drain before
/// [a phase is measured](super::SETTLING).
const QUEUE: Nanos = Nanos::from_millis(100);
const QUEUE_AT_CEIL: Nanos = Nanos::from_millis(25);
/// The fewest frames that may wait in one queue of it.
const QUEUE_MIN: u64 = 4;
/// Flows of a leaf, which take all queues.
const FLOWS: u16 = 16;
/// The proportion in which subscribers share borrowed rate, in bytes.
const QUANTUM: u32 = 3000;
/// The first subscriber's part, over that of others.
const GOLD: u32 = 2;
/// The offset of the headers that identify leaves.
const DESTINATION: usize = 30;
const PORT: usize = 36;
/// Bytes of a frame that say which leaf it is of.
pub(super) const TELLING: usize = PORT + 2;

const MBIT: u64 = 1_000_000;
/// The link, in Mbit/s.
const LINK: u64 = 80;

struct Site {
    name: &'static str,
    /// Its rate and its ceiling, in Mbit/s.
    limits: [u64; 2],
    /// Those of each of its subscribers.
    subscriber: [u64; 2],
    /// The assured rate of each of their applications.
    applications: [u64; APPLICATIONS],
}

const SITES: [Site; 2] = [
    Site { name: "north", limits: [44, 80], subscriber: [14, 40], applications: [1, 6, 4] },
    Site { name: "south", limits: [32, 50], subscriber: [10, 20], applications: [1, 5, 3] },
];

struct Application {
    name: &'static str,
    /// Its destination port.
    port: u16,
    /// Its frames, in bytes.
    frame: usize,
    prio: u8,
    /// In Mbit/s, if it is not the subscriber's.
    ceil: Option<u64>,
}

const APPLICATION: [Application; APPLICATIONS] = [
    Application { name: "call", port: 5060, frame: 200, prio: 0, ceil: Some(2) },
    Application { name: "web", port: 443, frame: 1000, prio: 1, ceil: None },
    Application { name: "bulk", port: 6881, frame: 1514, prio: 2, ceil: None },
];

/// A class of the tree.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Its name in tables.
    pub(super) name: String,
    /// The number of its class below `1:`.
    pub(super) id: u32,
    /// How many classes are above it.
    pub(super) depth: usize,
    pub(super) class: Class,
    /// Its weight among its siblings, where those share by weight and not by quantum.
    weight: u32,
    /// Its number among the leaves, if it is one.
    pub(super) leaf: Option<usize>,
}

/// The name of an application, by its number.
pub(super) fn application(number: usize) -> &'static str {
    APPLICATION[number].name
}

/// Bytes of the frames of a leaf.
pub(super) fn frame_bytes(leaf: usize) -> usize {
    APPLICATION[leaf % APPLICATIONS].frame
}

/// All classes, each before those below it.
pub(super) fn nodes() -> Vec<Node> {
    let mut nodes = vec![node("link", 1, 0, None, [LINK; 2])];
    for (number, site) in (0..).zip(&SITES) {
        let site_id = 0x10 * (number + 1);
        nodes.push(node(site.name, site_id, 1, Some(1), site.limits));
        for place in 1..=(SUBSCRIBERS / SITES.len()) as u32 {
            let id = site_id + place;
            let name = format!("{}-{place}", site.name);
            let weight = if id == 0x11 { GOLD } else { 1 };
            nodes.push(Node { weight, ..node(&name, id, 2, Some(site_id), site.subscriber) });
            for (number, application) in (1..).zip(&APPLICATION) {
                let name = format!("{name} {}", application.name);
                let limits =
                    [site.applications[number - 1], application.ceil.unwrap_or(site.subscriber[1])];
                let mut leaf = node(&name, id * 0x10 + number as u32, 3, Some(id), limits);
                leaf.class.prio = application.prio;
                leaf.class.quantum = QUANTUM * weight;
                leaf.leaf = Some(nodes.iter().filter(|node| node.leaf.is_some()).count());
                nodes.push(leaf);
            }
        }
    }
    nodes
}

fn node(name: &str, id: u32, depth: usize, parent: Option<u32>, limits: [u64; 2]) -> Node {
    let [rate, ceil] = limits.map(|mbit| Rate::from_bits_per_sec(mbit * MBIT));
    let burst = |rate: Rate| Bytes(rate.bytes_in(BURST).0.max(BURST_MIN));
    let class = Class {
        parent,
        rate,
        ceil,
        burst: burst(rate),
        cburst: burst(ceil),
        prio: 0,
        quantum: QUANTUM,
        overhead: Overhead::NONE,
    };
    Node { name: name.to_owned(), id, depth, class, weight: 1, leaf: None }
}

/// The classes by number, as the fluid model takes them.
pub(super) fn classes(nodes: &[Node]) -> BTreeMap<u32, Class> {
    nodes.iter().map(|node| (node.id, node.class)).collect()
}

/// The words of `tc` that make the tree on `port`. What may wait at a leaf waits in `queues`, of
/// each of which the limit is a part.
pub(super) fn commands(nodes: &[Node], port: &str, queues: u64) -> Vec<String> {
    commands_by(TreeStrategy::default(), nodes, port, queues)
}

/// The same tree, kept by `strategy`. Linux's own `tc` has only the default.
///
/// By FlowValve's rules leaves share by weight within their own parent, whatever their quantum: so
/// the first subscriber has its part as a weight.
pub(super) fn commands_by(
    strategy: TreeStrategy,
    nodes: &[Node],
    port: &str,
    queues: u64,
) -> Vec<String> {
    let coordination = match strategy == TreeStrategy::default() {
        true => String::new(),
        false => format!(" coordination {}", strategy.name()),
    };
    let mut lines = vec![format!("qdisc add dev {port} root handle 1: htb{coordination}")];
    for Node { id, class, leaf, weight, .. } in nodes {
        let parent = class.parent.map_or("1:".to_owned(), |parent| format!("1:{parent:x}"));
        let [rate, ceil] = [class.rate, class.ceil].map(|rate| rate.bits_per_sec() / MBIT);
        let Class { burst, cburst, prio, quantum, .. } = class;
        let borrows = match leaf {
            Some(_) => format!(" prio {prio} quantum {quantum}"),
            None if strategy == TreeStrategy::FlowValve => format!(" weight {weight}"),
            None => String::new(),
        };
        lines.push(format!(
            "class add dev {port} parent {parent} classid 1:{id:x} htb rate {rate}mbit \
             ceil {ceil}mbit burst {} cburst {}{borrows}",
            burst.0, cburst.0
        ));
    }
    for node in nodes {
        let Some(leaf) = node.leaf else { continue };
        let Node { id, class, .. } = node;
        let bytes = class.rate.bytes_in(QUEUE).max(class.ceil.bytes_in(QUEUE_AT_CEIL)).0;
        let limit = (bytes / frame_bytes(leaf) as u64 / queues).max(QUEUE_MIN);
        lines.push(format!("qdisc add dev {port} parent 1:{id:x} pfifo limit {limit}"));
        let [a, b, c, d] = address(leaf);
        lines.push(format!(
            "filter add dev {port} parent 1: protocol ip pref 1 u32 match ip dst {a}.{b}.{c}.{d}/32 \
             match ip dport {} 0xffff flowid 1:{id:x}",
            APPLICATION[leaf % APPLICATIONS].port
        ));
    }
    lines
}

/// The address of the subscriber of a leaf, in the range of RFC 2544 where the bed is, too.
fn address(leaf: usize) -> [u8; 4] {
    let subscriber = leaf / APPLICATIONS;
    let in_site = SUBSCRIBERS / SITES.len();
    [198, 18, 1 + (subscriber / in_site) as u8, 1 + (subscriber % in_site) as u8]
}

/// The frames of a leaf, one for each of its flows. They go to a device that counts them and
/// throws them away.
pub(super) fn frames(leaf: usize) -> Result<Vec<Vec<u8>>> {
    let application = &APPLICATION[leaf % APPLICATIONS];
    let frame = |flow| {
        let mut frame = Vec::with_capacity(application.frame);
        PacketBuilder::ethernet2(CLIENT_MAC, SINK_MAC)
            .ipv4(CLIENT_IP.octets(), address(leaf), 64)
            .udp(crate::frames::port(flow), application.port)
            .write(&mut frame, &vec![0; application.frame - crate::frames::HEADERS])?;
        Ok(frame)
    };
    (0..FLOWS).map(frame).collect()
}

/// The leaf that a frame is of, from its first [`TELLING`] bytes.
pub(super) fn leaf_of(frame: &[u8]) -> Option<usize> {
    let address_of: [u8; 4] = frame.get(DESTINATION..DESTINATION + 4)?.try_into().ok()?;
    let port = u16::from_be_bytes(frame.get(PORT..PORT + 2)?.try_into().ok()?);
    let application = APPLICATION.iter().position(|application| application.port == port)?;
    (application..LEAVES).step_by(APPLICATIONS).find(|leaf| address(*leaf) == address_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_tells_which_leaf_it_is_of() {
        for leaf in 0..LEAVES {
            for frame in frames(leaf).unwrap() {
                assert_eq!(frame.len(), frame_bytes(leaf));
                assert_eq!(leaf_of(&frame[..TELLING]), Some(leaf));
            }
        }
        assert_eq!(leaf_of(&crate::frames::udp(1, SINK_MAC, 64).unwrap()), None);
        assert_eq!(leaf_of(&[0; 20]), None);
    }

    #[test]
    fn each_class_covers_the_assured_rates_below_it() {
        let nodes = nodes();
        assert_eq!(nodes.len(), 1 + SITES.len() + SUBSCRIBERS + LEAVES);
        for node in &nodes {
            let below = nodes.iter().filter(|below| below.class.parent == Some(node.id));
            let assured: u64 = below.clone().map(|below| below.class.rate.bits_per_sec()).sum();
            assert!(assured < node.class.rate.bits_per_sec() || node.leaf.is_some(), "{node:?}");
            assert!(below.clone().all(|below| below.depth == node.depth + 1), "{node:?}");
            assert!(below.clone().all(|below| below.class.ceil <= node.class.ceil), "{node:?}");
        }
    }

    #[test]
    fn the_tree_is_written_in_tc_s_words() {
        let lines = commands(&nodes(), "port-b", 4);
        for said in [
            "qdisc add dev port-b root handle 1: htb",
            "class add dev port-b parent 1: classid 1:1 htb rate 80mbit ceil 80mbit burst 200000 \
             cburst 200000",
            "class add dev port-b parent 1:11 classid 1:112 htb rate 6mbit ceil 40mbit burst 15000 \
             cburst 100000 prio 1 quantum 6000",
            "qdisc add dev port-b parent 1:232 pfifo limit 15",
            "filter add dev port-b parent 1: protocol ip pref 1 u32 match ip dst 198.18.2.3/32 \
             match ip dport 5060 0xffff flowid 1:231",
        ] {
            assert!(lines.iter().any(|line| line == said), "{said} in\n{}", lines.join("\n"));
        }
    }

    #[test]
    fn by_flowvalve_s_rules_the_first_subscriber_has_its_part_as_a_weight() {
        let lines = commands_by(TreeStrategy::FlowValve, &nodes(), "port-b", 4);
        assert_eq!(lines[0], "qdisc add dev port-b root handle 1: htb coordination flowvalve");
        let weights = |id: &str| {
            let class = lines.iter().find(|line| line.contains(&format!(" classid 1:{id} ")));
            class.and_then(|line| line.split_once(" weight ")).map(|(_, weight)| weight)
        };
        assert_eq!(["11", "12", "112"].map(weights), [Some("2"), Some("1"), None]);
    }
}
