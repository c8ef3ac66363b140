//! Classful qdiscs with filters: `htb`, `hfsc`, `prio`, `drr`, `ets`.

use crate::assignments::Assignments;
use crate::{Fifo, FifoUnit, Handle, Kind, Node, Parent, PolicyError, PortPolicy};
use narrows_classify::{Blocks, Filters, Otherwise, Rules};
use narrows_coordination::{Label, TreeKind};
use narrows_packet::INNER_LEVELS;
use narrows_qdisc::Class;
use std::collections::BTreeMap;

/// How deep classful qdiscs may nest.
pub const CLASSFUL_DEPTH: usize = INNER_LEVELS + 1;

/// The last class number where there are only 16 bits: in every kind but `htb`, and in an `htb`
/// below another classful qdisc.
pub(crate) const MINOR_MAX: u32 = 0xffff;

/// What these kinds have in common.
pub trait Classful {
    /// Whether the class exists.
    fn has_class(&self, minor: u32) -> bool;

    /// Whether the class has child classes, and so no packets of its own.
    fn is_inner(&self, _minor: u32) -> bool {
        false
    }

    /// The leaf classes, by number.
    fn leaves(&self) -> Vec<u32>;

    /// The limit, in packets, of the default `pfifo` of a class.
    fn leaf_limit(&self) -> u32;

    /// The parent of the class, if it has one.
    fn parent(&self, _minor: u32) -> Option<u32> {
        None
    }

    /// The number of ancestors of the class.
    fn depth(&self, minor: u32) -> usize {
        std::iter::successors(self.parent(minor), |above| self.parent(*above)).count()
    }

    /// The filters, by the class to which they are attached; 0 for the qdisc itself.
    fn filters(&self) -> &Blocks;

    /// The inner classes that have no filters and to which others assign packets: these go to the
    /// default class.
    fn unfiltered(&self) -> Vec<u32> {
        Vec::new()
    }

    /// The class of packets that no filter matches.
    fn otherwise(&self) -> Otherwise;

    /// The default qdisc of a class.
    fn leaf(&self) -> Fifo {
        Fifo { unit: FifoUnit::Packets, limit: self.leaf_limit() }
    }
}

/// What the kinds whose classes are a tree have in common.
pub(crate) trait TreeRules: Classful {
    /// What schedules the classes.
    fn tree(&self) -> TreeKind;

    /// How many classes there are.
    fn len(&self) -> usize;

    /// The numbers of the classes, in order.
    fn numbers(&self) -> Vec<u32>;

    /// The class in the form that queues use, and FlowValve's parameters, if set.
    fn class(&self, minor: u32) -> Option<(Class, Option<Box<Label>>)>;

    /// The classes in which `next` differs; `None` if anything else but its filters differs.
    fn changes(&self, next: &Kind) -> Option<Vec<u32>>;

    /// What happens to packets without a class.
    fn unclassified(&self) -> &'static str;

    /// A warning about settings that are allowed but probably not meant, after a change to the
    /// class `minor`.
    fn warning(&self, handle: Handle, minor: u32) -> Option<String>;
}

impl Kind {
    /// The tree, if the classes of this kind are one.
    pub(crate) fn tree(&self) -> Option<&dyn TreeRules> {
        match self {
            Self::Htb(htb) => Some(htb),
            Self::Hfsc(hfsc) => Some(hfsc),
            _ => None,
        }
    }

    /// A warning about settings that are allowed but probably not meant, after a change to the
    /// class `minor` of this qdisc.
    pub fn class_warning(&self, handle: Handle, minor: u32) -> Option<String> {
        let tree = self.tree()?;
        let above = tree.parent(minor);
        let warning = tree.warning(handle, minor);
        let warning =
            warning.or_else(|| above.and_then(|above| self.filter_warning(handle, above)));
        warning.or_else(|| self.default_warning(handle))
    }

    /// A warning if filters assign packets to the class `minor`, which has classes below it and no
    /// filters to choose one. As in the kernel, these packets go to the default class.
    pub(crate) fn filter_warning(&self, handle: Handle, minor: u32) -> Option<String> {
        let inner = self.tree()?.is_inner(minor).then_some(minor);
        let unfiltered = self.assignments()?.unfiltered(inner.into_iter());
        let (kind, class) = (self.name(), handle.class(*unfiltered.first()?));
        Some(format!(
            "Warning: {kind}: filters assign packets to {class}, which has classes below it: they \
             go to the default class until filters at {class} assign them."
        ))
    }

    /// A warning if the default class has classes below it.
    fn default_warning(&self, handle: Handle) -> Option<String> {
        let tree = self.tree()?;
        let Otherwise::Class(default) = tree.otherwise() else { return None };
        (default != 0 && tree.is_inner(default)).then(|| {
            format!(
                "Warning: {}: the default class {} has classes below it: packets that no filter \
                 assigns {}.",
                self.name(),
                handle.class(default),
                tree.unclassified()
            )
        })
    }

    /// The classful interface, if filters can assign packets to the classes of this kind.
    pub fn classful(&self) -> Option<&dyn Classful> {
        match self {
            Self::Htb(htb) => Some(htb),
            Self::Hfsc(hfsc) => Some(hfsc),
            Self::Prio(prio) => Some(prio),
            Self::Drr(drr) => Some(drr),
            Self::Ets(ets) => Some(ets),
            _ => None,
        }
    }

    /// The filters, and the classes to which they assign packets.
    pub(crate) fn assignments(&self) -> Option<&Assignments> {
        match self {
            Self::Htb(htb) => Some(&htb.filters),
            Self::Hfsc(hfsc) => Some(&hfsc.filters),
            Self::Prio(prio) => Some(&prio.filters),
            Self::Drr(drr) => Some(&drr.filters),
            Self::Ets(ets) => Some(&ets.filters),
            _ => None,
        }
    }

    /// The assignments of its filters, to change.
    pub(crate) fn assignments_mut(&mut self) -> Option<&mut Assignments> {
        match self {
            Self::Htb(htb) => Some(&mut htb.filters),
            Self::Hfsc(hfsc) => Some(&mut hfsc.filters),
            Self::Prio(prio) => Some(&mut prio.filters),
            Self::Drr(drr) => Some(&mut drr.filters),
            Self::Ets(ets) => Some(&mut ets.filters),
            _ => None,
        }
    }
}

impl PortPolicy {
    /// The rules that classify packets at `node` and below.
    pub(crate) fn rules(&self, node: &Node) -> Option<Rules> {
        let mut below: BTreeMap<Handle, Vec<&Node>> = BTreeMap::new();
        // Only qdiscs with children have filters.
        for holder in self.holders() {
            if let Parent::Class(class) = holder.parent
                && let Some(above) = Handle::new(class.major)
            {
                below.entry(above).or_default().push(holder);
            }
        }
        rules(node, &below)
    }

    /// The outermost classful qdisc, if all packets that leave through the port pass the same one:
    /// below an `mq`, each queue has its own.
    pub fn outermost(&self) -> Option<Handle> {
        let below = |node: &&Node| match node.kind {
            Kind::Mq => None,
            _ => self.children(node).map(|(_, child)| child).next(),
        };
        let mut chain = std::iter::successors(self.root(), below);
        chain.find(|node| node.kind.classful().is_some()).map(|node| node.handle)
    }
}

/// The rules of `node`; `below` has the children of each qdisc.
fn rules(node: &Node, below: &BTreeMap<Handle, Vec<&Node>>) -> Option<Rules> {
    let mut children = below.get(&node.handle).into_iter().flatten();
    let Some(classful) = node.kind.classful() else {
        // A tbf passes on the rules of its child.
        return children.find_map(|child| rules(child, below));
    };
    let child = |child: &&Node| {
        let Parent::Class(class) = child.parent else { return None };
        Some((class.minor, rules(child, below)?))
    };
    // A leaf class has no filters to continue with.
    let filters = classful.filters().iter();
    let filters = filters.filter(|(at, _)| **at == 0 || classful.is_inner(**at));
    let filters = filters.map(|(at, filters)| (*at, filters.clone()));
    let unfiltered = classful.unfiltered().into_iter().map(|at| (at, Filters::default()));
    let blocks: Blocks = filters.chain(unfiltered).collect();
    Some(Rules {
        major: node.handle.major(),
        filters: blocks,
        otherwise: classful.otherwise(),
        below: children.filter_map(child).collect(),
    })
}

/// Refuses to remove classes of a `kind` to which filters assign packets. `stays` says which
/// classes remain.
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
