//! The classes of one direction: their parents and their rates.

use super::devices::Circuit;
use super::network::Network;
use crate::draft::Draft;

/// The class of the uplink.
pub(super) const ROOT: u32 = 1;
/// The class of all other hosts.
pub(super) const DEFAULT: u32 = 2;
/// The first class of a node or a circuit.
const FIRST: u32 = 3;
/// The most nodes and circuits on a port.
pub(super) const CLASSES_MAX: usize = 1_000_000;

/// The class number after `minor`. A class and its qdisc share the number, and `ffff:` is the
/// handle of `clsact`, so it is skipped.
fn behind(minor: u32) -> u32 {
    if minor + 1 == 0xffff { 0x1_0000 } else { minor + 1 }
}

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
    /// `uplink` is in kbit/s. There are at most [`CLASSES_MAX`] nodes and circuits.
    pub(super) fn grow(
        network: &Network,
        circuits: &[Circuit],
        direction: usize,
        uplink: Option<u64>,
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
        let mut minor = FIRST;
        for node in nodes {
            let above = node.parent.map(|parent| places[parent]);
            let limit = above.map_or(whole, |above| above.ceil);
            let ceil = node.most[direction].unwrap_or(limit).clamp(RATE_MIN, limit);
            let parent = above.map_or(ROOT, |above| above.minor);
            places.push(Place { minor, parent, rate: 0, ceil });
            minor = behind(minor);
        }
        let mut leaves = Vec::with_capacity(circuits.len());
        for (circuit, parent) in circuits.iter().zip(&parents) {
            if parent.is_none() && !circuit.parent.is_empty() && direction == 0 {
                let what = "a parent node is not in network.json: the circuit is below the root";
                draft.report(what, &format!("{}, circuit {}", circuit.parent, circuit.id));
            }
            let above = parent.map(|parent| places[parent]);
            let limit = above.map_or(whole, |above| above.ceil);
            let ceil = circuit.most[direction].clamp(RATE_MIN.min(limit), limit);
            let rate = circuit.least[direction].max(RATE_MIN).min(ceil);
            leaves.push(Place {
                minor,
                parent: above.map_or(ROOT, |above| above.minor),
                rate,
                ceil,
            });
            minor = behind(minor);
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
                let what = "circuits are assured more than their node carries: its ceiling is kept";
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_class_has_the_number_that_means_the_ends_of_a_port() {
        assert_eq!([behind(3), behind(0xfffe), behind(0x1_0000)], [4, 0x1_0000, 0x1_0001]);
    }
}
