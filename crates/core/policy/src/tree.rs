//! The tree itself: ports and their qdiscs.
//!
//! Each command copies the policy, and a port may have 100,000 qdiscs and classes. So they are in
//! persistent maps. A copy costs a few pointers, a change copies the path to what it touches, and a
//! comparison of two versions visits only their differences.

use crate::action::ActionSet;
use crate::automatic::Given;
use crate::fleet::{FleetPlaces, taken};
use crate::{
    ClassId, Classes, Ends, FleetName, FleetPlace, Handle, Kind, Parent, PolicyError, Stab, reuse,
};
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use narrows_classify::ActionId;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// How deep qdiscs may nest. Each level is one more call on a worker's stack for every packet. The
/// kernel bounds its loops by the same number.
pub const MAX_DEPTH: usize = 8;

/// The trees of all ports. A port without an entry has the default, `noqueue`.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    pub(crate) ports: BTreeMap<String, PortPolicy>,
    /// The last automatic handle. As in the kernel, all ports share one counter, so that a handle
    /// is rarely reused within a day.
    pub(crate) last_automatic: Option<Handle>,
    /// By port, the automatic handles of the policy that this one replaces.
    pub(crate) given: Arc<BTreeMap<String, Given>>,
    pub(crate) actions: ActionSet,
    /// Whether any filter has ever looked up a set, so that filters must be checked for what the
    /// driver can do.
    pub(crate) has_looked_up: bool,
    /// Whether any has ever asked for the route that packets take, likewise.
    pub(crate) has_asked_route: bool,
}

impl Policy {
    /// An empty policy for a file that is read again. A qdisc without a handle gets the automatic
    /// handle that the qdisc in its place has in this policy. So unchanged qdiscs keep their names,
    /// whatever lines were added above them.
    pub fn anew(&self) -> Self {
        let given = |port: &PortPolicy| {
            let automatic = port.qdiscs.range(Handle::FIRST_AUTOMATIC..);
            automatic.map(|(handle, node)| (node.parent, *handle)).collect()
        };
        let given = self.ports.iter().map(|(dev, port)| (dev.clone(), given(port)));
        let given = Arc::new(given.collect());
        Self { given, last_automatic: self.last_automatic, ..Self::default() }
    }

    /// Ends the reuse of handles: new qdiscs get new handles from here on.
    pub fn complete(mut self) -> Self {
        self.given = Arc::default();
        self
    }

    /// The tree of port `dev`.
    pub fn port(&self, dev: &str) -> &PortPolicy {
        static DEFAULT: LazyLock<PortPolicy> = LazyLock::new(PortPolicy::default);
        self.ports.get(dev).unwrap_or(&DEFAULT)
    }

    /// How many qdiscs and classes of `htb`s it has.
    pub fn len(&self) -> usize {
        let of_port = |port: &PortPolicy| {
            let trees = port.holders().filter_map(|node| node.kind.tree());
            port.len() + trees.map(|tree| tree.len()).sum::<usize>()
        };
        self.ports.values().map(of_port).sum()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The ports that have a qdisc, by name.
    pub fn ports(&self) -> impl Iterator<Item = (&str, &PortPolicy)> {
        self.ports.iter().map(|(dev, port)| (dev.as_str(), port))
    }
}

/// Two policies are equal if all ports have the same trees, whatever the next automatic handle is.
impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        self.ports == other.ports && self.actions == other.actions
    }
}

impl Eq for Policy {}

/// The tree of one port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortPolicy {
    /// All qdiscs that the operator created.
    qdiscs: OrdMap<Handle, Arc<Node>>,
    /// The qdisc in each place, with class numbers as in [`Classes::key`].
    places: OrdMap<Parent, Handle>,
    /// The qdiscs that can have children.
    holders: OrdMap<Handle, ()>,
    /// How many qdiscs need the addresses before network address translation.
    translating: usize,
    /// Where the limits are that a fleet shares.
    pub(crate) fleet: FleetPlaces,
    /// The filters at the ends of the port.
    pub ends: Option<Ends>,
    /// The actions of all filters of the instance; see [`Policy::actions`].
    pub(crate) actions: Option<ActionSet>,
}

impl PortPolicy {
    /// The qdisc at the root; without one the port runs `noqueue`.
    pub fn root(&self) -> Option<&Node> {
        self.in_place(Parent::Root)
    }

    /// All qdiscs that the operator created, each before its children.
    pub fn nodes(&self) -> Vec<&Node> {
        self.root().map_or(Vec::new(), |root| self.below(root))
    }

    /// The qdisc `node` and its descendants, each before its children.
    pub(crate) fn below<'a>(&'a self, node: &'a Node) -> Vec<&'a Node> {
        let mut nodes = Vec::new();
        self.collect(node, &mut nodes);
        nodes
    }

    fn collect<'a>(&'a self, node: &'a Node, into: &mut Vec<&'a Node>) {
        into.push(node);
        self.children(node).for_each(|(_, child)| self.collect(child, into));
    }

    /// The number of qdiscs that the operator created.
    pub(crate) fn len(&self) -> usize {
        self.qdiscs.len()
    }

    /// The highest handle in use from `first` to `last`.
    pub(crate) fn highest_handle(&self, first: u32, last: u32) -> Option<Handle> {
        let (first, last) = (Handle::new(first)?, Handle::new(last)?);
        self.qdiscs.range(first..=last).next_back().map(|(handle, _)| *handle)
    }

    /// Whether the operator configured nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.qdiscs.is_empty() && self.ends.is_none()
    }

    /// The qdisc with that handle.
    pub fn find(&self, handle: Handle) -> Option<&Node> {
        self.qdiscs.get(&handle).map(AsRef::as_ref)
    }

    /// The children of `node` that the operator created, by class number.
    pub fn children<'a>(&'a self, node: &Node) -> impl Iterator<Item = (u32, &'a Node)> + use<'a> {
        let class = |minor| Parent::Class(node.handle.class(minor));
        // Most have no children, which saves a look-up.
        let holds = node.kind.classes() != Classes::None;
        let within = holds.then(|| self.places.range(class(0)..=class(u32::MAX)));
        within.into_iter().flatten().filter_map(|(place, handle)| match place {
            Parent::Class(class) => Some((class.minor, self.find(*handle)?)),
            Parent::Root => None,
        })
    }

    /// The child in the class `minor` of `node`, if the operator created one.
    pub fn child(&self, node: &Node, minor: u32) -> Option<&Node> {
        self.in_place(Parent::Class(node.handle.class(minor)))
    }

    pub(crate) fn in_place(&self, place: Parent) -> Option<&Node> {
        self.find(*self.places.get(&place)?)
    }

    /// The qdiscs that can have children.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &Node> {
        self.holders.keys().filter_map(|handle| self.find(*handle))
    }

    /// The qdisc `node` and its ancestors, the nearest first.
    pub(crate) fn upwards<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a Node> {
        std::iter::successors(Some(node), |node| match node.parent {
            Parent::Root => None,
            Parent::Class(class) => self.find(Handle::new(class.major)?),
        })
    }

    /// The class of a tree that contains `node`.
    pub(crate) fn tree_class(&self, node: &Node) -> Option<ClassId> {
        let above = self.upwards(node).zip(self.upwards(node).skip(1));
        above.filter(|(_, above)| above.kind.tree().is_some()).find_map(|(node, _)| {
            match node.parent {
                Parent::Class(class) => Some(class),
                Parent::Root => None,
            }
        })
    }

    /// Whether any qdisc needs the addresses before network address translation.
    pub fn looks_up_translations(&self) -> bool {
        self.translating > 0
    }

    /// The differences between the qdiscs of this port and those of `next`: by handle, the qdisc
    /// here and the qdisc there.
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

    /// Takes over the memory of `before` for equal qdiscs; `merge` combines two that differ.
    pub(crate) fn reuse_nodes(&mut self, before: &Self, merge: impl Fn(&Node, &Node) -> Node) {
        self.qdiscs =
            reuse::map(&before.qdiscs, &self.qdiscs, |old, new| Arc::new(merge(old, new)));
        self.places = reuse::map(&before.places, &self.places, |_, new| *new);
        self.holders = reuse::map(&before.holders, &self.holders, |(), ()| ());
        self.fleet = reuse::map(&before.fleet, &self.fleet, |_, new| *new);
    }

    /// Changes the qdisc `handle`, but not its place or kind.
    pub(crate) fn change_node<T>(
        &mut self,
        handle: Handle,
        change: impl FnOnce(&mut Node) -> T,
    ) -> Option<T> {
        let node = Arc::make_mut(self.qdiscs.get_mut(&handle)?);
        self.translating -= usize::from(node.looks_up_translations());
        let shared = |node: &Node| node.fleet().map(|(fleet, _)| fleet.name.clone());
        let before = shared(node);
        let changed = change(node);
        self.translating += usize::from(node.looks_up_translations());
        let after = shared(node);
        self.rename_shared(FleetPlace::Qdisc(handle), before, after);
        Some(changed)
    }

    /// Puts `node` in its place and removes what was there, with its descendants. Returns the
    /// actions of the filters that are removed with it.
    pub(crate) fn put(&mut self, node: Node) -> Vec<ActionId> {
        let place = self.place(node.parent);
        let gone = self.take(place);
        if node.kind.classes() != Classes::None {
            self.holders.insert(node.handle, ());
        }
        self.translating += usize::from(node.looks_up_translations());
        if let Some((fleet, _)) = node.fleet() {
            self.fleet.insert(fleet.name.clone(), FleetPlace::Qdisc(node.handle));
        }
        self.places.insert(place, node.handle);
        self.qdiscs.insert(node.handle, Arc::new(node));
        gone
    }

    /// Records that the limit at `place` is shared under the name `after`, and no longer `before`.
    pub(crate) fn rename_shared(
        &mut self,
        place: FleetPlace,
        before: Option<FleetName>,
        after: Option<FleetName>,
    ) {
        if before == after {
            return;
        }
        if let Some(before) = before.filter(|name| self.fleet.get(name) == Some(&place)) {
            self.fleet.remove(&before);
        }
        if let Some(after) = after {
            self.fleet.insert(after, place);
        }
    }

    /// The name of the shared limit at `place`.
    pub(crate) fn shared_at(&self, place: FleetPlace) -> Option<&FleetName> {
        let fleet = match place {
            FleetPlace::Qdisc(handle) => self.find(handle)?.fleet().map(|(fleet, _)| fleet),
            FleetPlace::Class(class) => {
                self.find(Handle::new(class.major)?)?.class_fleet(class.minor)
            }
        };
        fleet.map(|fleet| &fleet.name)
    }

    /// Refuses `name`, which was at `before` until an edit, if it is there still and elsewhere,
    /// too.
    pub(crate) fn check_shared(
        &self,
        name: &FleetName,
        before: Option<FleetPlace>,
    ) -> Result<(), PolicyError> {
        match before {
            Some(place)
                if self.fleet.get(name) != Some(&place) && self.shared_at(place) == Some(name) =>
            {
                Err(taken(name, None, place))
            }
            _ => Ok(()),
        }
    }

    /// Takes the qdiscs of `enforced`, with the changes from `before` to `next`.
    pub(crate) fn take_nodes(&mut self, before: &Self, next: &Self, enforced: &Self) {
        let mut nodes = enforced.qdiscs.clone();
        for change in before.qdiscs.diff(&next.qdiscs) {
            match change {
                DiffItem::Add(handle, node) => drop(nodes.insert(*handle, Arc::clone(node))),
                DiffItem::Remove(handle, _) => drop(nodes.remove(handle)),
                DiffItem::Update { old: (_, old), new: (handle, new) } => {
                    let mut node = Arc::clone(new);
                    if let (Kind::Htb(old), Kind::Htb(new)) = (&old.kind, &new.kind)
                        && let Some(Kind::Htb(now)) = nodes.get(handle).map(|now| &now.kind)
                    {
                        let classes = now.classes.following(&old.classes, &new.classes);
                        if let Kind::Htb(htb) = &mut Arc::make_mut(&mut node).kind {
                            htb.classes = classes;
                        }
                    }
                    nodes.insert(*handle, node);
                }
            }
        }
        self.qdiscs = nodes;
    }

    /// Removes the qdisc at `parent` and its descendants. Returns the actions of their filters.
    pub(crate) fn take(&mut self, parent: Parent) -> Vec<ActionId> {
        let Some(node) = self.in_place(self.place(parent)).cloned() else { return Vec::new() };
        let below: Vec<Parent> = self.children(&node).map(|(_, child)| child.parent).collect();
        let mut gone: Vec<_> = below.into_iter().flat_map(|below| self.take(below)).collect();
        gone.extend(node.kind.classful().into_iter().flat_map(|classful| {
            let filters = classful.filters().values().flat_map(|filters| filters.iter());
            filters.flat_map(|(_, filter)| filter.actions.clone()).collect::<Vec<_>>()
        }));
        let shared = node.fleet().map(|(fleet, _)| fleet.name.clone());
        self.rename_shared(FleetPlace::Qdisc(node.handle), shared, None);
        if let Kind::Htb(htb) = &node.kind
            && !self.fleet.is_empty()
        {
            for (minor, class) in htb.classes.iter() {
                let name = class.params.fleet.as_ref().map(|fleet| fleet.name.clone());
                self.rename_shared(FleetPlace::Class(node.handle.class(minor)), name, None);
            }
        }
        self.places.remove(&self.place(parent));
        self.holders.remove(&node.handle);
        self.translating -= usize::from(node.looks_up_translations());
        self.qdiscs.remove(&node.handle);
        gone
    }

    /// The normalized place for `parent`.
    pub(crate) fn place(&self, parent: Parent) -> Parent {
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
    /// Its place, as given (`1:` and `1:1` are the same place under a `tbf`).
    pub parent: Parent,
    /// Its kind.
    pub kind: Kind,
    /// Its size table, if it has one.
    pub stab: Option<Box<Stab>>,
}

impl Node {
    /// Whether it needs the addresses before network address translation.
    fn looks_up_translations(&self) -> bool {
        match &self.kind {
            Kind::Cake(cake) => cake.params.config.nat,
            Kind::FqCodel(config) => config.hosts.is_inside(),
            _ => false,
        }
    }
}
