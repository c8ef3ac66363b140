//! The tree itself: ports and their qdiscs.

use crate::automatic::Given;
use crate::{Handle, Kind, Parent};
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
        self.root.as_ref().map_or(Vec::new(), Node::nodes)
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
    /// What it is.
    pub kind: Kind,
    /// The qdiscs that somebody put below it, by the number of their class.
    pub children: BTreeMap<u16, Self>,
}

impl Node {
    /// This one and all below it, each before those below it.
    pub fn nodes(&self) -> Vec<&Self> {
        let mut nodes = Vec::new();
        self.collect(&mut nodes);
        nodes
    }

    fn collect<'a>(&'a self, into: &mut Vec<&'a Self>) {
        into.push(self);
        self.children.values().for_each(|child| child.collect(into));
    }

    /// The qdisc with that handle, here or below.
    pub(crate) fn find_mut(&mut self, handle: Handle) -> Option<&mut Self> {
        if self.handle == handle {
            return Some(self);
        }
        self.children.values_mut().find_map(|child| child.find_mut(handle))
    }
}
