//! Edits, with the rules of the kernel's `tc_modify_qdisc()` and `tc_get_qdisc()`.

use crate::automatic::Automatic;
use crate::classful::{MINOR_MAX, must_be_unassigned};
use crate::kind::Site;
use crate::{
    CLASSFUL_DEPTH, ClassEdit, ClassId, ClassParams, Classes, Ends, FleetPlace, Handle, Kind,
    MAX_DEPTH, Node, Params, Parent, Policy, PolicyError, PortFacts, PortPolicy, is_intermediate,
    pacing,
};
use narrows_classify::ActionId;
use std::sync::Arc;

/// The verb of a command, with the flags of the rtnetlink request that `tc` sends for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Create it; fail if it exists (create, exclusive).
    Add,
    /// Create it or replace what is there (create, replace).
    Replace,
    /// Change the parameters of an existing one (no flags).
    Change,
    /// Delete it.
    Delete,
}

/// One change to the qdiscs of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edit {
    /// The verb.
    pub verb: Verb,
    /// The place.
    pub parent: Option<Parent>,
    /// The handle.
    pub handle: Option<Handle>,
    /// The kind and its parameters.
    pub params: Option<Params>,
}

impl Policy {
    /// This policy with `edit` applied to port `dev`.
    ///
    /// # Errors
    /// What the kernel would refuse. This policy does not change.
    pub fn edit(&self, dev: &str, edit: &Edit, facts: &PortFacts) -> Result<Self, PolicyError> {
        self.clone().with_qdisc(dev, edit, facts)
    }

    /// This policy with `edit` applied to port `dev`, in place: a policy that nobody else has
    /// copied is changed without a copy of any part of it.
    ///
    /// # Errors
    /// As [`Policy::edit`]. The policy is gone then.
    pub fn with_qdisc(
        mut self,
        dev: &str,
        edit: &Edit,
        facts: &PortFacts,
    ) -> Result<Self, PolicyError> {
        let given = Arc::clone(&self.given);
        let next = &mut self;
        let mut allocator = Automatic { last: next.last_automatic, before: given.get(dev) };
        let port = next.ports.entry(dev.to_owned()).or_default();
        let name = edit.params.as_ref().and_then(Params::fleet).map(|fleet| &fleet.name);
        let before = name.and_then(|name| port.fleet.get(name).copied());
        let gone = match edit.verb {
            Verb::Delete => port.delete(edit, facts)?,
            _ => port.modify(edit, facts, &mut allocator)?,
        };
        if let Some(name) = name {
            port.check_shared(name, before)?;
        }
        if port.is_empty() {
            next.ports.remove(dev);
        }
        next.last_automatic = allocator.last;
        if let Some(name) = name {
            next.check_shared(dev, name)?;
        }
        next.settle_actions(&gone);
        Ok(self)
    }
}

impl Policy {
    /// This policy with `edit` applied to the classes of port `dev`.
    ///
    /// # Errors
    /// What the kernel would refuse, and what it accepts to the operator's harm. This policy does
    /// not change.
    pub fn edit_class(&self, dev: &str, edit: &ClassEdit) -> Result<Self, PolicyError> {
        self.clone().with_class(dev, edit)
    }

    /// This policy with `edit` applied to the classes of port `dev`, in place: a policy that nobody
    /// else has copied is changed without a copy of any part of it.
    ///
    /// # Errors
    /// As [`Policy::edit_class`]. The policy is gone then.
    pub fn with_class(mut self, dev: &str, edit: &ClassEdit) -> Result<Self, PolicyError> {
        let next = &mut self;
        let major = match (edit.class, edit.parent) {
            (Some(ClassId { major, .. }), _) if major != 0 => major,
            (_, Some(Parent::Class(ClassId { major, .. }))) => major,
            _ => 0,
        };
        let none = || PolicyError::NoClasses { major };
        let port = next.ports.get_mut(dev).ok_or_else(none)?;
        let handle = Handle::new(major).or_else(|| port.root().map(|root| root.handle));
        let node = handle.and_then(|handle| port.find(handle)).ok_or_else(none)?;
        let handle = node.handle;
        let is_inner = port.upwards(node).skip(1).any(|above| above.kind.classful().is_some());
        if edit.class.is_some_and(|class| class.minor > MINOR_MAX && is_inner) {
            return Err(PolicyError::WideClass(handle));
        }
        let place = edit.class.map(|class| FleetPlace::Class(handle.class(class.minor)));
        let name = match &edit.params {
            Some(ClassParams::Htb(params)) => params.fleet.as_ref().map(|fleet| &fleet.name),
            _ => None,
        };
        let before = name.and_then(|name| port.fleet.get(name).copied());
        let was_shared = place.and_then(|place| port.shared_at(place)).cloned();
        let changed = port.change_node(handle, |Node { kind, .. }| match kind {
            Kind::Htb(htb) => htb.edit(handle, edit),
            Kind::Hfsc(hfsc) => hfsc.edit(handle, edit),
            Kind::Drr(drr) => drr.edit(handle, edit),
            Kind::Ets(ets) => ets.edit(handle, edit),
            Kind::Prio(prio) if prio.is_fast() => Err(none()),
            Kind::Prio(_) => Err(PolicyError::FixedClasses { handle, kind: "prio" }),
            _ => Err(none()),
        });
        let Changed { without_qdisc, mut gone } = changed.ok_or_else(none)??;
        if let Some(place) = place {
            let is_shared = port.shared_at(place).cloned();
            port.rename_shared(place, was_shared, is_shared);
        }
        if let Some(name) = name {
            port.check_shared(name, before)?;
        }
        if let Some(class) = without_qdisc {
            gone.extend(port.take(Parent::Class(handle.class(class))));
        }
        if let Some(name) = name {
            next.check_shared(dev, name)?;
        }
        next.settle_actions(&gone);
        Ok(self)
    }
}

/// Side effects of a change to a class.
#[derive(Default)]
pub(crate) struct Changed {
    /// The class that lost its qdisc, because it is gone or has child classes now.
    pub(crate) without_qdisc: Option<u32>,
    /// The actions of filters that were attached to a removed class.
    pub(crate) gone: Vec<ActionId>,
}

impl Policy {
    /// This policy with a `clsact` on port `dev`, or an `ingress` unless `has_egress`; or with
    /// neither, if `verb` is `Delete`.
    ///
    /// # Errors
    /// What the kernel would refuse. This policy does not change.
    pub fn edit_ends(&self, dev: &str, verb: Verb, has_egress: bool) -> Result<Self, PolicyError> {
        if is_intermediate(dev) && verb != Verb::Delete {
            return Err(PolicyError::Redirect(format!(
                "{dev} has no ends of its own: give ingress and clsact to the ports."
            )));
        }
        let mut next = self.clone();
        let port = next.ports.entry(dev.to_owned()).or_default();
        let wanted = Ends { has_egress, ..Ends::default() };
        let mut gone = Vec::new();
        match (verb, &port.ends) {
            (Verb::Delete, None) => return Err(PolicyError::NoSuchHandle),
            (Verb::Delete, Some(present)) if present.has_egress != has_egress => {
                return Err(PolicyError::OtherKindThere { present: present.kind() });
            }
            (Verb::Delete, Some(present)) => {
                let filters = present.ingress.iter().chain(present.egress.iter());
                gone = filters.flat_map(|(_, filter)| filter.actions.clone()).collect();
                port.ends = None;
            }
            (Verb::Change, None) => return Err(PolicyError::NothingToChange),
            (Verb::Add, Some(present)) => {
                return Err(PolicyError::Exists { kind: present.kind(), handle: Handle::ENDS });
            }
            (_, Some(present)) if present.has_egress != has_egress => {
                let (handle, present) = (Handle::ENDS, present.kind());
                return Err(PolicyError::OtherKind { handle, present });
            }
            (_, Some(_)) => {}
            (_, None) => port.ends = Some(wanted),
        }
        if port.is_empty() {
            next.ports.remove(dev);
        }
        next.settle_actions(&gone);
        Ok(next)
    }
}

/// The qdisc found in a place.
enum Found {
    /// A qdisc that the operator put there.
    Set(Handle),
    /// The default qdisc of this place, with the name of its kind.
    Default(&'static str),
}

impl PortPolicy {
    /// The qdisc at `parent`; the outer `None` if no qdisc has the parent's major number.
    fn at(&self, parent: Parent, facts: &PortFacts) -> Result<Option<Found>, PolicyError> {
        let Parent::Class(class) = parent else {
            let set = self.root().map(|root| Found::Set(root.handle));
            return Ok(Some(set.unwrap_or(Found::Default("noqueue"))));
        };
        let Some(node) = Handle::new(class.major).and_then(|handle| self.find(handle)) else {
            return Ok(None);
        };
        let classes = node.kind.classes();
        let Some(default) = classes.default() else {
            let kind = node.kind.name();
            return Err(PolicyError::NotClassful { handle: node.handle, kind });
        };
        if let Classes::Queues | Classes::Alike = classes {
            check_queue(class, facts)?;
        }
        if let Some(classful) = node.kind.classful() {
            let class = node.handle.class(class.minor);
            if !classful.has_class(class.minor) {
                return Err(PolicyError::NoSuchClass(class));
            }
            if classful.is_inner(class.minor) {
                return Err(PolicyError::InnerClass(class));
            }
        }
        let child = self.child(node, classes.key(class.minor));
        Ok(Some(child.map_or(Found::Default(default), |child| Found::Set(child.handle))))
    }

    fn modify(
        &mut self,
        edit: &Edit,
        facts: &PortFacts,
        handles: &mut Automatic<'_>,
    ) -> Result<Vec<ActionId>, PolicyError> {
        let Some(parent) = edit.parent else {
            let handle = edit.handle.ok_or(PolicyError::NoPlace)?;
            return self.change(handle, edit, facts);
        };
        if let Parent::Class(ClassId::INGRESS) = parent {
            return Err(PolicyError::Ingress);
        }
        let at = self.at(parent, facts)?;
        if self.is_queue_of_cake_mq(parent) {
            return Err(PolicyError::CakeMqChild);
        }
        let present = match (at, parent) {
            (Some(Found::Set(handle)), _) => Some(handle),
            (Some(Found::Default(_)), _) => None,
            (None, Parent::Class(ClassId { major, .. })) => {
                return Err(PolicyError::NoParent { major });
            }
            (None, Parent::Root) => None,
        };
        match (present, edit.handle) {
            (Some(present), Some(wanted)) if present != wanted => {
                if edit.verb != Verb::Replace {
                    return Err(PolicyError::NeedsReplace { present, wanted });
                }
                self.must_be_free(wanted)?;
                self.create(parent, edit, facts, handles)
            }
            (None, wanted) => {
                if let Some(wanted) = wanted {
                    self.must_be_free(wanted)?;
                }
                if edit.verb == Verb::Change {
                    return Err(PolicyError::NothingToChange);
                }
                self.create(parent, edit, facts, handles)
            }
            // Without a handle, another kind replaces the present one, even with `add` and
            // `change`: the kernel has no other way to tell what is meant.
            (Some(present), None) if self.is_of_another_kind(present, edit) => {
                self.create(parent, edit, facts, handles)
            }
            (Some(present), _) => self.change(present, edit, facts),
        }
    }

    fn must_be_free(&self, handle: Handle) -> Result<(), PolicyError> {
        match self.find(handle) {
            Some(node) => Err(PolicyError::CannotMove { handle, at: node.parent }),
            None => Ok(()),
        }
    }

    fn is_of_another_kind(&self, present: Handle, edit: &Edit) -> bool {
        match (self.find(present), &edit.params) {
            (Some(node), Some(params)) => node.kind.name() != params.kind_name(),
            _ => false,
        }
    }

    /// Sets the parameters of the qdisc `handle`. Returns the actions of filters that are removed
    /// with its classes.
    fn change(
        &mut self,
        handle: Handle,
        edit: &Edit,
        facts: &PortFacts,
    ) -> Result<Vec<ActionId>, PolicyError> {
        let own_queue = self.is_under_mq(handle);
        let node = self.find(handle).ok_or(PolicyError::NoSuchQdisc(handle))?;
        let name = node.kind.name();
        if edit.verb == Verb::Add {
            return Err(PolicyError::Exists { kind: name, handle });
        }
        let Some(params) = &edit.params else { return Ok(Vec::new()) };
        if params.kind_name() != name {
            return Err(PolicyError::OtherKind { handle, present: name });
        }
        let site = Site { facts, parent: node.parent, own_queue };
        let mut kind = node.kind.clone();
        kind.change(params, &site)?;
        let mut gone = Vec::new();
        if let Some(classful) = kind.classful() {
            must_be_unassigned(&kind, handle, |minor| classful.has_class(minor))?;
            // Classes made by the operator stay.
            if kind.classes() == Classes::Bands {
                let children = self.children(node).map(|(minor, _)| minor);
                let without_band = children.filter(|minor| !classful.has_class(*minor));
                for minor in without_band.collect::<Vec<u32>>() {
                    gone.extend(self.take(Parent::Class(handle.class(minor))));
                }
            }
        }
        self.change_node(handle, |node| node.kind = kind.clone());
        if let Classes::One(_) = kind.classes() {
            let child = self.find(handle).and_then(|node| self.child(node, 1));
            if let Some(child) = child.map(|child| child.handle) {
                self.change_node(child, |child| kind.rules().changed_above(child));
            }
        }
        let Some(node) = self.find(handle) else { return Ok(gone) };
        if let Parent::Class(class) = node.parent
            && node.kind.rules().plan(2).1.is_some()
            && let Some(above) = self.tree_at(class)
        {
            return Err(PolicyError::RateBelowClass { above, kind: name });
        }
        pacing::check(self, node)?;
        Ok(gone)
    }

    /// Creates a qdisc at `parent`, in place of the present one.
    fn create(
        &mut self,
        parent: Parent,
        edit: &Edit,
        facts: &PortFacts,
        handles: &mut Automatic<'_>,
    ) -> Result<Vec<ActionId>, PolicyError> {
        let own_queue = match parent {
            Parent::Root => false,
            Parent::Class(class) => Handle::new(class.major).is_some_and(|handle| {
                self.is_under_mq(handle)
                    || self.find(handle).is_some_and(|node| node.kind.classes() == Classes::Queues)
            }),
        };
        let params = edit.params.as_ref().ok_or(PolicyError::UnknownKind(None))?;
        let kind = Kind::new(params, &Site { facts, parent, own_queue })?;
        let handle = match edit.handle {
            Some(handle) => handle,
            None => handles.next(self, parent)?,
        };
        let node = Node { handle, parent, kind, stab: None };
        let gone = match parent {
            Parent::Root => self.put(node),
            Parent::Class(class) => self.graft(class, node)?,
        };
        let Some(node) = self.find(handle) else { return Ok(gone) };
        pacing::check(self, node)?;
        let classful = self.upwards(node).filter(|node| node.kind.classful().is_some());
        if classful.count() > CLASSFUL_DEPTH {
            return Err(PolicyError::ClassfulTooDeep);
        }
        Ok(gone)
    }

    /// Attaches `node` at `class` of its parent, in place of the present qdisc. Returns the actions
    /// of filters that are removed with that.
    fn graft(&mut self, class: ClassId, node: Node) -> Result<Vec<ActionId>, PolicyError> {
        let missing = PolicyError::NoParent { major: class.major };
        let handle = Handle::new(class.major).ok_or(missing.clone())?;
        let parent = self.find(handle).ok_or(missing)?;
        if self.upwards(parent).count() >= MAX_DEPTH {
            return Err(PolicyError::TooDeep);
        }
        let above = self.tree_at(class);
        let noqueue = matches!(node.kind, Kind::Noqueue);
        let keeps_a_rate = node.kind.rules().plan(2).1.is_some();
        let has_rates = node.kind.tree().is_some() || keeps_a_rate;
        let above = above.filter(|_| has_rates);
        match parent.kind.classes() {
            Classes::None | Classes::Hidden => {
                Err(PolicyError::NotClassful { handle, kind: parent.kind.name() })
            }
            Classes::Alike => Err(PolicyError::CakeMqChild),
            Classes::One(Some(_)) if noqueue => {
                Err(PolicyError::NoqueueInClass("a tbf or red holds a bfifo with its own limit"))
            }
            Classes::One(None) if noqueue => {
                Err(PolicyError::NoqueueInClass("a netem without one passes its packets on"))
            }
            Classes::Queues if noqueue => Err(PolicyError::NoqueueInClass(
                "a queue without a qdisc sends its packets at once",
            )),
            Classes::Made | Classes::Bands if noqueue => {
                Err(PolicyError::NoqueueInClass("a class holds a pfifo"))
            }
            Classes::One(_) | Classes::Queues | Classes::Made | Classes::Bands => match above {
                Some(above) => Err(PolicyError::RateBelowClass { above, kind: node.kind.name() }),
                None => Ok(self.put(node)),
            },
        }
    }

    /// The kind of the tree whose class `class` is, or is below.
    fn tree_at(&self, class: ClassId) -> Option<&'static str> {
        let node = Handle::new(class.major).and_then(|handle| self.find(handle))?;
        let tree = self.upwards(node).find(|node| node.kind.tree().is_some());
        tree.map(|tree| tree.kind.name())
    }

    /// Whether `handle` is below an `mq`, directly or not, and so belongs to one queue.
    fn is_under_mq(&self, handle: Handle) -> bool {
        match self.root() {
            Some(root) => root.handle != handle && root.kind.classes() == Classes::Queues,
            None => false,
        }
    }

    /// Whether `parent` is a queue of a `cake_mq`, which manages the `cake`s of its queues itself.
    fn is_queue_of_cake_mq(&self, parent: Parent) -> bool {
        let Parent::Class(ClassId { major, .. }) = parent else { return false };
        let node = Handle::new(major).and_then(|handle| self.find(handle));
        node.is_some_and(|node| node.kind.classes() == Classes::Alike)
    }

    /// Returns the actions of the filters that are removed.
    fn delete(&mut self, edit: &Edit, facts: &PortFacts) -> Result<Vec<ActionId>, PolicyError> {
        let found = match edit.parent {
            Some(parent) => match (self.at(parent, facts)?, parent) {
                (Some(found), _) => found,
                (None, Parent::Class(ClassId { major, .. })) => {
                    return Err(PolicyError::NoSuchParent { major });
                }
                (None, Parent::Root) => Found::Default("noqueue"),
            },
            None => match edit.handle.filter(|&handle| self.find(handle).is_some()) {
                Some(handle) => Found::Set(handle),
                None => return Err(PolicyError::NoSuchHandle),
            },
        };
        let (present, kind) = match found {
            Found::Default(kind) => (None, kind),
            Found::Set(handle) => {
                (Some(handle), self.find(handle).map_or("noqueue", |node| node.kind.name()))
            }
        };
        if let (Some(wanted), Some(present)) = (edit.handle, present)
            && wanted != present
        {
            return Err(PolicyError::OtherHandle(present));
        }
        if edit.params.as_ref().is_some_and(|params| params.kind_name() != kind) {
            return Err(PolicyError::OtherKindThere { present: kind });
        }
        if edit.parent.is_some_and(|parent| self.is_queue_of_cake_mq(parent)) {
            return Err(PolicyError::CakeMqDelete);
        }
        let present = present.ok_or(PolicyError::Default)?;
        match edit.parent {
            None => {
                let at = self.find(present).map_or(Parent::Root, |node| node.parent);
                Err(PolicyError::NoClassid(at))
            }
            Some(parent) => Ok(self.take(parent)),
        }
    }
}

/// Classes of `mq` are the port's queues, counted from 1.
fn check_queue(class: ClassId, facts: &PortFacts) -> Result<(), PolicyError> {
    let last = u32::from(facts.queues.unwrap_or(u16::MAX));
    if (1..=last).contains(&class.minor) {
        return Ok(());
    }
    let major = class.major;
    Err(PolicyError::NoClass(format!(
        "The queues of this port are {major:x}:1 to {major:x}:{last:x}."
    )))
}
