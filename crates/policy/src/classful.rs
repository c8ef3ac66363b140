//! Qdiscs with classes to which filters assign packets: `htb`, `prio`, `drr`, `ets`.

use crate::assignments::Assignments;
use crate::{Fifo, FifoUnit, Handle, Kind, Node, Parent, PolicyError, PortPolicy};
use narrows_classify::{Blocks, Otherwise, Rules};
use narrows_packet::INNER_LEVELS;
use std::collections::BTreeMap;

/// How many of them may stand one below the other.
pub const CLASSFUL_DEPTH: usize = INNER_LEVELS + 1;

/// The last number of a class where there is room for 16 bits: of every kind but `htb`, and of an
/// `htb` below another qdisc with classes.
pub(crate) const MINOR_MAX: u32 = 0xffff;

/// What they have in common.
pub trait Classful {
    /// Whether there is a class of this number.
    fn has_class(&self, minor: u32) -> bool;

    /// Whether other classes are below that one, so that it has no packets itself.
    fn is_inner(&self, _minor: u32) -> bool {
        false
    }

    /// The classes that packets can be in, by number.
    fn leaves(&self) -> Vec<u32>;

    /// How many packets the `pfifo` of a class holds in which nobody put a qdisc.
    fn leaf_limit(&self) -> u32;

    /// The class above that one, where there is one.
    fn parent(&self, _minor: u32) -> Option<u32> {
        None
    }

    /// How many classes are above that one.
    fn depth(&self, minor: u32) -> usize {
        std::iter::successors(self.parent(minor), |above| self.parent(*above)).count()
    }

    /// The filters, by the class at which they are; 0 for the qdisc itself.
    fn filters(&self) -> &Blocks;

    /// The class of packets that no filter assigns to one.
    fn otherwise(&self) -> Otherwise;

    /// What is in a class in which nobody put a qdisc.
    fn leaf(&self) -> Fifo {
        Fifo { unit: FifoUnit::Packets, limit: self.leaf_limit() }
    }
}

impl Kind {
    /// What it has classes for, where filters assign packets to them.
    pub fn classful(&self) -> Option<&dyn Classful> {
        match self {
            Self::Htb(htb) => Some(htb),
            Self::Prio(prio) => Some(prio),
            Self::Drr(drr) => Some(drr),
            Self::Ets(ets) => Some(ets),
            _ => None,
        }
    }

    /// Its filters, and to which classes they assign packets.
    pub(crate) fn assignments(&self) -> Option<&Assignments> {
        match self {
            Self::Htb(htb) => Some(&htb.filters),
            Self::Prio(prio) => Some(&prio.filters),
            Self::Drr(drr) => Some(&drr.filters),
            Self::Ets(ets) => Some(&ets.filters),
            _ => None,
        }
    }

    /// The same, to change.
    pub(crate) fn assignments_mut(&mut self) -> Option<&mut Assignments> {
        match self {
            Self::Htb(htb) => Some(&mut htb.filters),
            Self::Prio(prio) => Some(&mut prio.filters),
            Self::Drr(drr) => Some(&mut drr.filters),
            Self::Ets(ets) => Some(&mut ets.filters),
            _ => None,
        }
    }
}

impl PortPolicy {
    /// What assigns packets that come to `node` to classes, there and below.
    pub(crate) fn rules(&self, node: &Node) -> Option<Rules> {
        let mut below: BTreeMap<Handle, Vec<&Node>> = BTreeMap::new();
        // The others have no filters, and nothing below them.
        for holder in self.holders() {
            if let Parent::Class(class) = holder.parent
                && let Some(above) = Handle::new(class.major)
            {
                below.entry(above).or_default().push(holder);
            }
        }
        rules(node, &below)
    }

    /// The outermost qdisc with classes that filters choose, where all packets that leave through the
    /// port come to the same one: below an `mq` each queue has its own.
    pub fn outermost(&self) -> Option<Handle> {
        Some(self.rules(self.root()?)?).and_then(|rules| Handle::new(rules.major))
    }
}

/// The rules of `node`, where `below` has what stands below each qdisc.
fn rules(node: &Node, below: &BTreeMap<Handle, Vec<&Node>>) -> Option<Rules> {
    let mut children = below.get(&node.handle).into_iter().flatten();
    let Some(classful) = node.kind.classful() else {
        // What stands in a tbf.
        return children.find_map(|child| rules(child, below));
    };
    let child = |child: &&Node| {
        let Parent::Class(class) = child.parent else { return None };
        Some((class.minor, rules(child, below)?))
    };
    // At a class that has none below it there is nothing to go on with.
    let filters = classful.filters().iter();
    let filters = filters.filter(|(at, _)| **at == 0 || classful.is_inner(**at));
    Some(Rules {
        major: node.handle.major(),
        filters: filters.map(|(at, filters)| (*at, filters.clone())).collect(),
        otherwise: classful.otherwise(),
        below: children.filter_map(child).collect(),
    })
}

/// Refuses to take away classes of a `kind` to which filters assign packets; `stays` says which
/// stay.
pub(crate) fn must_be_unassigned(
    kind: &Kind,
    handle: Handle,
    stays: impl Fn(u32) -> bool,
) -> Result<(), PolicyError> {
    let mut assigned = kind.assignments().into_iter().flat_map(Assignments::classes);
    match assigned.find(|class| !stays(*class)) {
        Some(class) => {
            let (kind, class) = (kind.name().to_uppercase(), handle.class(class));
            Err(PolicyError::ClassAssigned { kind, class })
        }
        None => Ok(()),
    }
}
