//! The tree itself: ports and their qdiscs.
//!
//! A policy is copied for each command, and a port may have 100,000 qdiscs and classes. So they
//! stand in maps that share between two copies whatever is the same in both: a copy costs a few
//! pointers, a change the path to what it touches, and two versions are compared where they differ.

use crate::action::ActionSet;
use crate::automatic::Given;
use crate::{ClassId, Classes, Ends, Handle, Kind, Parent};
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use narrows_classify::ActionId;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

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
    pub(crate) given: Arc<BTreeMap<String, Given>>,
    pub(crate) actions: ActionSet,
}

impl Policy {
    /// An empty policy in which a qdisc for which nobody names a handle gets the one that the
    /// qdisc in its place has in this one, if that was automatic: so a file that is read again
    /// names what did not change as before, whatever lines were added above it.
    pub fn anew(&self) -> Self {
        let given = |port: &PortPolicy| {
            let automatic = port.qdiscs.range(Handle::FIRST_AUTOMATIC..);
            automatic.map(|(handle, node)| (node.parent, *handle)).collect()
        };
        let given = self.ports.iter().map(|(dev, port)| (dev.clone(), given(port)));
        let given = Arc::new(given.collect());
        Self { given, last_automatic: self.last_automatic, ..Self::default() }
    }

    /// This policy, complete: new qdiscs get handles of their own from here on.
    pub fn complete(mut self) -> Self {
        self.given = Arc::default();
        self
    }

    /// The tree of port `dev`.
    pub fn port(&self, dev: &str) -> &PortPolicy {
        static DEFAULT: LazyLock<PortPolicy> = LazyLock::new(PortPolicy::default);
        self.ports.get(dev).unwrap_or(&DEFAULT)
    }

    /// The ports that have a qdisc of their own, by name.
    pub fn ports(&self) -> impl Iterator<Item = (&str, &PortPolicy)> {
        self.ports.iter().map(|(dev, port)| (dev.as_str(), port))
    }
}

/// Two policies are the same if all ports have the same trees, whatever handle would be next.
impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        self.ports == other.ports && self.actions == other.actions
    }
}

impl Eq for Policy {}

/// The tree of one port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortPolicy {
    /// All qdiscs that somebody put there.
    qdiscs: OrdMap<Handle, Arc<Node>>,
    /// Where each of them is found: its place, with the number of its class as
    /// [`Classes::key`] has it.
    places: OrdMap<Parent, Handle>,
    /// Those that others may stand below.
    holders: OrdMap<Handle, ()>,
    /// How many of them want to know what addresses were before network address translation.
    translating: usize,
    /// What filters packets at its two ends.
    pub ends: Option<Ends>,
    /// The actions of all filters of the instance, as [`Policy::actions`] has them.
    pub(crate) actions: Option<ActionSet>,
}

impl PortPolicy {
    /// The qdisc at the root; without one the port is `noqueue` by default.
    pub fn root(&self) -> Option<&Node> {
        self.in_place(Parent::Root)
    }

    /// All qdiscs that somebody put there, each before those below it.
    pub fn nodes(&self) -> Vec<&Node> {
        self.root().map_or(Vec::new(), |root| self.below(root))
    }

    /// The qdisc `node` and all below it, each before those below it.
    pub(crate) fn below<'a>(&'a self, node: &'a Node) -> Vec<&'a Node> {
        let mut nodes = Vec::new();
        self.collect(node, &mut nodes);
        nodes
    }

    fn collect<'a>(&'a self, node: &'a Node, into: &mut Vec<&'a Node>) {
        into.push(node);
        self.children(node).for_each(|(_, child)| self.collect(child, into));
    }

    /// How many qdiscs somebody put there.
    pub(crate) fn len(&self) -> usize {
        self.qdiscs.len()
    }

    /// Whether nobody has put anything there.
    pub(crate) fn is_empty(&self) -> bool {
        self.qdiscs.is_empty() && self.ends.is_none()
    }

    /// The qdisc with that handle.
    pub fn find(&self, handle: Handle) -> Option<&Node> {
        self.qdiscs.get(&handle).map(AsRef::as_ref)
    }

    /// The qdiscs that somebody put below `node`, by the number of their class.
    pub fn children<'a>(&'a self, node: &Node) -> impl Iterator<Item = (u32, &'a Node)> + use<'a> {
        let class = |minor| Parent::Class(node.handle.class(minor));
        // Most have nothing below them, and need not be asked for.
        let holds = node.kind.classes() != Classes::None;
        let within = holds.then(|| self.places.range(class(0)..=class(u32::MAX)));
        within.into_iter().flatten().filter_map(|(place, handle)| match place {
            Parent::Class(class) => Some((class.minor, self.find(*handle)?)),
            Parent::Root => None,
        })
    }

    /// The qdisc that somebody put in the class `minor` of `node`.
    pub fn child(&self, node: &Node, minor: u32) -> Option<&Node> {
        self.in_place(Parent::Class(node.handle.class(minor)))
    }

    fn in_place(&self, place: Parent) -> Option<&Node> {
        self.find(*self.places.get(&place)?)
    }

    /// Those that others may stand below.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &Node> {
        self.holders.keys().filter_map(|handle| self.find(*handle))
    }

    /// The qdisc `node` and those above it, the nearest first.
    pub(crate) fn upwards<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a Node> {
        std::iter::successors(Some(node), |node| match node.parent {
            Parent::Root => None,
            Parent::Class(class) => self.find(Handle::new(class.major)?),
        })
    }

    /// The class of an `htb` that `node` is in, or below.
    pub(crate) fn tree_class(&self, node: &Node) -> Option<ClassId> {
        let above = self.upwards(node).zip(self.upwards(node).skip(1));
        above.filter(|(_, above)| matches!(above.kind, Kind::Htb(_))).find_map(|(node, _)| {
            match node.parent {
                Parent::Class(class) => Some(class),
                Parent::Root => None,
            }
        })
    }

    /// Whether any of its qdiscs wants to know what addresses were before network address
    /// translation.
    pub fn looks_up_translations(&self) -> bool {
        self.translating > 0
    }

    /// What has to be done with the qdiscs of this port to make them those of `next`: by handle,
    /// what is here and what is there.
    pub(crate) fn changes<'a>(
        &'a self,
        next: &'a Self,
    ) -> impl Iterator<Item = (Option<&'a Node>, Option<&'a Node>)> {
        self.qdiscs.diff(&next.qdiscs).map(|change| match change {
            DiffItem::Add(_, new) => (None, Some(new.as_ref())),
            DiffItem::Remove(_, old) => (Some(old.as_ref()), None),
            DiffItem::Update { old: (_, old), new: (_, new) } => {
                (Some(old.as_ref()), Some(new.as_ref()))
            }
        })
    }

    /// Changes the qdisc `handle`, whose place and kind stay what they are.
    pub(crate) fn change_node<T>(
        &mut self,
        handle: Handle,
        change: impl FnOnce(&mut Node) -> T,
    ) -> Option<T> {
        let node = Arc::make_mut(self.qdiscs.get_mut(&handle)?);
        self.translating -= usize::from(node.looks_up_translations());
        let changed = change(node);
        self.translating += usize::from(node.looks_up_translations());
        Some(changed)
    }

    /// Puts `node` in the place of what is there, and of all below that. Returns the actions of the
    /// filters that go with it.
    pub(crate) fn put(&mut self, node: Node) -> Vec<ActionId> {
        let place = self.place(node.parent);
        let gone = self.take(place);
        if node.kind.classes() != Classes::None {
            self.holders.insert(node.handle, ());
        }
        self.translating += usize::from(node.looks_up_translations());
        self.places.insert(place, node.handle);
        self.qdiscs.insert(node.handle, Arc::new(node));
        gone
    }

    /// Takes away what is at `parent`, and all below it. Returns the actions of their filters.
    pub(crate) fn take(&mut self, parent: Parent) -> Vec<ActionId> {
        let Some(node) = self.in_place(self.place(parent)).cloned() else { return Vec::new() };
        let below: Vec<Parent> = self.children(&node).map(|(_, child)| child.parent).collect();
        let mut gone: Vec<_> = below.into_iter().flat_map(|below| self.take(below)).collect();
        gone.extend(node.kind.classful().into_iter().flat_map(|classful| {
            let filters = classful.filters().values().flat_map(|filters| filters.iter());
            filters.flat_map(|(_, filter)| filter.actions.clone()).collect::<Vec<_>>()
        }));
        self.places.remove(&self.place(parent));
        self.holders.remove(&node.handle);
        self.translating -= usize::from(node.looks_up_translations());
        self.qdiscs.remove(&node.handle);
        gone
    }

    /// Where what hangs at `parent` is found.
    fn place(&self, parent: Parent) -> Parent {
        let Parent::Class(class) = parent else { return parent };
        let holder = Handle::new(class.major).and_then(|handle| self.find(handle));
        holder.map_or(parent, |holder| {
            Parent::Class(holder.handle.class(holder.kind.classes().key(class.minor)))
        })
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
}

impl Node {
    /// Whether it wants to know what addresses were before network address translation.
    fn looks_up_translations(&self) -> bool {
        matches!(&self.kind, Kind::Cake(cake) if cake.params.config.nat)
    }
}
