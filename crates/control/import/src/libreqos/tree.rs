//! The classes of one direction: their parents and their rates.

use super::devices::Circuit;
use super::network::Network;
use crate::draft::Draft;

/// The class of the uplink.
pub(super) const ROOT: u32 = 1;
/// The class of all other hosts.
pub(super) const DEFAULT: u32 = 2;
/// The most nodes and circuits on a port.
pub(super) const CLASSES_MAX: usize = 1_000_000;

/// The minimum assured rate in kbit/s: an `htb` class must have a rate.
const RATE_MIN: u64 = 64;

/// The place of a class, and its rates in kbit/s.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) minor: u32,
    pub(super) parent: u32,
    pub(super) rate: u64,
    pub(super) ceil: u64,
}

/// All classes of a direction.
#[derive(Debug)]
pub(super) struct Tree {
    /// The capacity of the uplink.
    pub(super) whole: u64,
    /// The assured rate of all other hosts.
    pub(super) rest: u64,
    pub(super) nodes: Vec<Place>,
    pub(super) circuits: Vec<Place>,
}

impl Tree {
    /// `uplink` is in kbit/s. There are at most [`CLASSES_MAX`] nodes and circuits; `numbers` has
    /// those of the nodes, then of the circuits.
    pub(super) fn grow(
        network: &Network,
        circuits: &[Circuit],
        direction: usize,
        uplink: Option<u64>,
        numbers: &[u32],
        draft: &mut Draft,
    ) -> Self {
        let nodes = &network.nodes;
        let parents: Vec<Option<usize>> =
            circuits.iter().map(|circuit| network.by_name.get(&circuit.parent).copied()).collect();
        let whole = uplink.unwrap_or_else(|| {
            let tops = nodes.iter().filter(|node| node.parent.is_none());
            let given: u64 = tops.filter_map(|node| node.most[direction]).sum();
            let loose = circuits.iter().zip(&parents).filter(|(_, parent)| parent.is_none());
            given + loose.map(|(circuit, _)| circuit.most[direction]).sum::<u64>()
        });
        let whole = whole.max(RATE_MIN);
        // A node comes after its parent.
        let mut places: Vec<Place> = Vec::with_capacity(nodes.len());
        for (node, &minor) in nodes.iter().zip(numbers) {
            let above = node.parent.map(|parent| places[parent]);
            let limit = above.map_or(whole, |above| above.ceil);
            let ceil = node.most[direction].unwrap_or(limit).clamp(RATE_MIN.min(limit), limit);
            if node.most[direction].is_some_and(|most| most > limit) {
                draft.report("a node has more bandwidth than its parent, whose counts", &node.name);
            }
            let parent = above.map_or(ROOT, |above| above.minor);
            places.push(Place { minor, parent, rate: 0, ceil });
        }
        let mut leaves = Vec::with_capacity(circuits.len());
        let numbers = &numbers[nodes.len()..];
        for ((circuit, parent), &minor) in circuits.iter().zip(&parents).zip(numbers) {
            let place = format!("line {}, circuit {}", circuit.line, circuit.id);
            if parent.is_none() && !circuit.parent.is_empty() && direction == 0 {
                draft.fault(&format!(
                    "{place}: its parent node {} is not in network.json: it is below the root",
                    circuit.parent
                ));
            }
            let above = parent.map(|parent| places[parent]);
            let limit = above.map_or(whole, |above| above.ceil);
            if circuit.most[direction] > limit {
                draft.report("a maximum is above the bandwidth of its node, which counts", &place);
            }
            let ceil = circuit.most[direction].clamp(RATE_MIN.min(limit), limit);
            let rate = circuit.least[direction].max(RATE_MIN).min(ceil);
            leaves.push(Place {
                minor,
                parent: above.map_or(ROOT, |above| above.minor),
                rate,
                ceil,
            });
        }
        // Assured rates add up from the leaves.
        let mut assured = vec![0_u64; nodes.len()];
        for (leaf, parent) in leaves.iter().zip(&parents) {
            if let Some(parent) = parent {
                assured[*parent] += leaf.rate;
            }
        }
        for index in (0..nodes.len()).rev() {
            let place = &mut places[index];
            if assured[index] > place.ceil {
                let what =
                    "the minimums of a node's circuits are above its bandwidth, which counts";
                draft.report(what, &nodes[index].name);
            }
            place.rate = assured[index].clamp(RATE_MIN.min(place.ceil), place.ceil);
            if let Some(parent) = nodes[index].parent {
                assured[parent] += place.rate;
            }
        }
        let rest = (whole / 100).clamp(RATE_MIN, whole.max(RATE_MIN));
        Self { whole, rest, nodes: places, circuits: leaves }
    }
}
