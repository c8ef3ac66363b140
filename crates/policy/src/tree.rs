//! The tree itself: ports, qdiscs, their parameters.

use crate::automatic::Given;
use crate::{
    Cake, CakeOptions, FqOptions, FqParams, Handle, PacingOptions, Parent, Tbf, TbfParams,
};
use narrows_qdisc::pacing::{self, Structure};
use std::collections::BTreeMap;

/// How many qdiscs may stand one below the other. Each is a call deeper on a worker's stack
/// for every packet; the kernel bounds its loops by the same number.
pub const MAX_DEPTH: usize = 8;

/// The trees of all ports. A port that is not in it has the default, `noqueue`.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    pub(crate) ports: BTreeMap<String, PortPolicy>,
    /// The last handle that was given out automatically. As in the kernel one counter serves
    /// all ports, so that a handle rarely means two things in one day.
    pub(crate) last_automatic: Option<Handle>,
    /// By port, the automatic handles of a policy that this one is to take the place of.
    pub(crate) given: BTreeMap<String, Given>,
}

impl Policy {
    /// An empty policy in which a qdisc for which nobody names a handle gets the one that the
    /// qdisc in its place has in this one, if that was automatic: so a file that is read again
    /// names what did not change as before, whatever lines were added above it.
    pub fn anew(&self) -> Self {
        let automatic = |node: &&Node| node.handle >= Handle::FIRST_AUTOMATIC;
        let given = |port: &PortPolicy| {
            let nodes = port.nodes().into_iter().filter(automatic);
            nodes.map(|node| (node.parent, node.handle)).collect()
        };
        let given = self.ports.iter().map(|(dev, port)| (dev.clone(), given(port))).collect();
        Self { given, last_automatic: self.last_automatic, ..Self::default() }
    }

    /// This policy, complete: new qdiscs get handles of their own from here on.
    pub fn complete(mut self) -> Self {
        self.given.clear();
        self
    }

    /// The tree of port `dev`.
    pub fn port(&self, dev: &str) -> &PortPolicy {
        const DEFAULT: &PortPolicy = &PortPolicy { root: None };
        self.ports.get(dev).unwrap_or(DEFAULT)
    }

    /// The ports that have a qdisc of their own, by name.
    pub fn ports(&self) -> impl Iterator<Item = (&str, &PortPolicy)> {
        self.ports.iter().map(|(dev, port)| (dev.as_str(), port))
    }
}

/// Two policies are the same if all ports have the same trees, whatever handle would be next.
impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        self.ports == other.ports
    }
}

impl Eq for Policy {}

/// The tree of one port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortPolicy {
    /// The qdisc at the root; without one the port is `noqueue` by default.
    pub root: Option<Node>,
}

impl PortPolicy {
    /// All qdiscs that somebody put there, each before those below it.
    pub fn nodes(&self) -> Vec<&Node> {
        let mut nodes = Vec::new();
        if let Some(root) = &self.root {
            root.collect(&mut nodes);
        }
        nodes
    }

    /// The qdisc with that handle.
    pub fn find(&self, handle: Handle) -> Option<&Node> {
        self.nodes().into_iter().find(|node| node.handle == handle)
    }
}

/// A qdisc in its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its number, unique on the port.
    pub handle: Handle,
    /// Where it hangs, as it was given (`1:` and `1:1` are the same place under a `tbf`).
    pub parent: Parent,
    /// What it is, with what is below it.
    pub kind: Kind,
}

impl Node {
    pub(crate) fn collect<'a>(&'a self, into: &mut Vec<&'a Self>) {
        into.push(self);
        match &self.kind {
            Kind::Noqueue | Kind::Fifo(_) | Kind::Cake(_) | Kind::Fq(_) | Kind::Pacing(_) => {}
            Kind::Tbf(tbf) => tbf.inner.iter().for_each(|inner| inner.collect(into)),
            Kind::Mq(mq) => mq.children.values().for_each(|child| child.collect(into)),
        }
    }

    /// The qdisc with that handle, here or below.
    pub(crate) fn find_mut(&mut self, handle: Handle) -> Option<&mut Self> {
        if self.handle == handle {
            return Some(self);
        }
        match &mut self.kind {
            Kind::Noqueue | Kind::Fifo(_) | Kind::Cake(_) | Kind::Fq(_) | Kind::Pacing(_) => None,
            Kind::Tbf(tbf) => tbf.inner.as_mut().and_then(|inner| inner.find_mut(handle)),
            Kind::Mq(mq) => mq.children.values_mut().find_map(|child| child.find_mut(handle)),
        }
    }
}

/// What a qdisc is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// No queue: what cannot leave at once is dropped.
    Noqueue,
    /// First in, first out.
    Fifo(Fifo),
    /// A token bucket filter with one qdisc inside.
    Tbf(Tbf),
    /// Common applications kept enhanced: `cake`, `cake_mq`.
    Cake(Cake),
    /// A queue for each flow, and a pace.
    Fq(FqParams),
    /// A rate for each flow: `carousel`, `eiffel`, `flowbundler`.
    Pacing(pacing::Config),
    /// One child for each queue of the port.
    Mq(Mq),
}

impl Kind {
    /// Its name on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Noqueue => "noqueue",
            Self::Fifo(fifo) => fifo.unit.kind_name(),
            Self::Tbf(_) => "tbf",
            Self::Cake(cake) => cake_name(cake.multi),
            Self::Fq(_) => "fq",
            Self::Pacing(config) => config.structure.name(),
            Self::Mq(_) => "mq",
        }
    }
}

fn cake_name(multi: bool) -> &'static str {
    if multi { "cake_mq" } else { "cake" }
}

/// `pfifo` or `bfifo`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fifo {
    /// What is counted.
    pub unit: FifoUnit,
    /// How much of it may wait.
    pub limit: u32,
}

/// What a FIFO's limit counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FifoUnit {
    /// Packets: `pfifo`.
    Packets,
    /// Bytes of frames: `bfifo`.
    Bytes,
}

impl FifoUnit {
    /// The kind's name on the command line.
    pub fn kind_name(self) -> &'static str {
        match self {
            Self::Packets => "pfifo",
            Self::Bytes => "bfifo",
        }
    }
}

/// One child for each queue of the port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Mq {
    /// The qdisc at class `n`, which is queue `n - 1`. A queue without one sends at once what
    /// it has.
    pub children: BTreeMap<u16, Node>,
}

/// The kind and parameters that a command line gives; what it leaves out is the kind's default
/// where the qdisc is new, and as it was where it is changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Params {
    /// `noqueue`
    Noqueue,
    /// `pfifo`, `bfifo`, with the limit if given.
    Fifo(FifoUnit, Option<u32>),
    /// `tbf`
    Tbf(TbfParams),
    /// `cake`, or with `multi` `cake_mq`; what is not given stays, or is the default.
    Cake {
        /// Which of the two.
        multi: bool,
        /// What is given.
        options: CakeOptions,
    },
    /// `fq`; what is not given stays, or is the default.
    Fq(FqOptions),
    /// `carousel`, `eiffel`, `flowbundler`; what is not given stays, or is the default.
    Pacing {
        /// Which of them.
        structure: Structure,
        /// What is given.
        options: PacingOptions,
    },
    /// `mq`
    Mq,
    /// A name that no kind has.
    Unknown(String),
}

impl Params {
    /// The name of the kind.
    pub fn kind_name(&self) -> &str {
        match self {
            Self::Noqueue => "noqueue",
            Self::Fifo(unit, _) => unit.kind_name(),
            Self::Tbf(_) => "tbf",
            Self::Cake { multi, .. } => cake_name(*multi),
            Self::Fq(_) => "fq",
            Self::Pacing { structure, .. } => structure.name(),
            Self::Mq => "mq",
            Self::Unknown(name) => name,
        }
    }
}
