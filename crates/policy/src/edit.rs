//! Edits, with the rules of the kernel's `tc_modify_qdisc()` and `tc_get_qdisc()`.

use crate::automatic::Automatic;
use crate::kind::Site;
use crate::{
    ClassEdit, ClassId, Classes, Handle, Kind, MAX_DEPTH, Node, Params, Parent, Policy,
    PolicyError, PortFacts, PortPolicy, pacing,
};
use std::collections::BTreeMap;

/// What an edit does, with the flags of the rtnetlink request that `tc` sends for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Make a new one (create, exclusive).
    Add,
    /// Make it so, whatever is there (create, replace).
    Replace,
    /// Set parameters of what is there (no flags).
    Change,
    /// Take it away.
    Delete,
}

/// One change to the tree of one port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edit {
    /// What to do.
    pub verb: Verb,
    /// Where.
    pub parent: Option<Parent>,
    /// With which handle.
    pub handle: Option<Handle>,
    /// The kind and its parameters.
    pub params: Option<Params>,
}

impl Policy {
    /// This policy with `edit` made on port `dev`.
    ///
    /// # Errors
    /// What the kernel would refuse; this policy is as it was.
    pub fn edit(&self, dev: &str, edit: &Edit, facts: &PortFacts) -> Result<Self, PolicyError> {
        let mut next = self.clone();
        let port = next.ports.entry(dev.to_owned()).or_default();
        let mut allocator = Automatic { last: self.last_automatic, before: self.given.get(dev) };
        match edit.verb {
            Verb::Delete => port.delete(edit, facts)?,
            _ => port.modify(edit, facts, &mut allocator)?,
        }
        pacing::check(port)?;
        if port.root.is_none() {
            next.ports.remove(dev);
        }
        next.last_automatic = allocator.last;
        Ok(next)
    }
}

impl Policy {
    /// This policy with `edit` made to the classes of port `dev`.
    ///
    /// # Errors
    /// What the kernel would refuse, and what is a trap there; this policy is as it was.
    pub fn edit_class(&self, dev: &str, edit: &ClassEdit) -> Result<Self, PolicyError> {
        let mut next = self.clone();
        let major = match (edit.class, edit.parent) {
            (Some(ClassId { major, .. }), _) if major != 0 => major,
            (_, Some(Parent::Class(ClassId { major, .. }))) => major,
            _ => 0,
        };
        let root = next.ports.get_mut(dev).and_then(|port| port.root.as_mut());
        let node = root.filter(|root| major == 0 || root.handle.major() == major);
        let Some(Node { handle, kind: Kind::Htb(htb), children, .. }) = node else {
            return Err(PolicyError::NoHtb { major });
        };
        if let Some(class) = htb.edit(*handle, edit)? {
            children.remove(&class);
        }
        Ok(next)
    }
}

/// What is found in a place.
enum Found {
    /// A qdisc that somebody put there.
    Set(Handle),
    /// What is there when nobody put anything there, with the name of its kind.
    Default(&'static str),
}

impl PortPolicy {
    /// What is at `parent`; the outer `None` where no qdisc has the parent's major number.
    fn at(&self, parent: Parent, facts: &PortFacts) -> Result<Option<Found>, PolicyError> {
        let Parent::Class(class) = parent else {
            let set = self.root.as_ref().map(|root| Found::Set(root.handle));
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
        if let Kind::Htb(htb) = &node.kind {
            let class = node.handle.class(class.minor);
            if !htb.classes.contains_key(&class.minor) {
                return Err(PolicyError::NoSuchClass(class));
            }
            if htb.is_inner(class.minor) {
                return Err(PolicyError::InnerClass(class));
            }
        }
        let child = node.children.get(&classes.key(class.minor));
        Ok(Some(child.map_or(Found::Default(default), |child| Found::Set(child.handle))))
    }

    fn modify(
        &mut self,
        edit: &Edit,
        facts: &PortFacts,
        handles: &mut Automatic<'_>,
    ) -> Result<(), PolicyError> {
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
            // Without a handle another kind takes the place of the present one, even with
            // `add` and `change`: the kernel cannot tell otherwise what was meant.
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

    /// Sets the parameters of the qdisc `handle`.
    fn change(
        &mut self,
        handle: Handle,
        edit: &Edit,
        facts: &PortFacts,
    ) -> Result<(), PolicyError> {
        let own_queue = self.is_under_mq(handle);
        let node = self.root.as_mut().and_then(|root| root.find_mut(handle));
        let node = node.ok_or(PolicyError::NoSuchQdisc(handle))?;
        if edit.verb == Verb::Add {
            return Err(PolicyError::Exists { kind: node.kind.name(), handle });
        }
        let Some(params) = &edit.params else { return Ok(()) };
        if params.kind_name() != node.kind.name() {
            return Err(PolicyError::OtherKind { handle, present: node.kind.name() });
        }
        let site = Site { facts, parent: node.parent, own_queue };
        node.kind.change(params, &site)?;
        for child in node.children.values_mut() {
            node.kind.rules().changed_above(child);
        }
        let kind = node.kind.name();
        match self.find(handle).map(|node| (node.parent, node.kind.rules().plan(2).1.is_some())) {
            Some((Parent::Class(class), true)) if self.is_below_class(class) => {
                Err(PolicyError::RateBelowClass(kind))
            }
            _ => Ok(()),
        }
    }

    /// Puts a new qdisc at `parent`, in the place of whatever was there.
    fn create(
        &mut self,
        parent: Parent,
        edit: &Edit,
        facts: &PortFacts,
        handles: &mut Automatic<'_>,
    ) -> Result<(), PolicyError> {
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
        let node = Node { handle, parent, kind, children: BTreeMap::new() };
        match parent {
            Parent::Root => self.root = Some(node),
            Parent::Class(class) => self.graft(class, node)?,
        }
        Ok(())
    }

    /// Hangs `node` at `class` of its parent, in the place of whatever was there.
    fn graft(&mut self, class: ClassId, node: Node) -> Result<(), PolicyError> {
        let missing = PolicyError::NoParent { major: class.major };
        let handle = Handle::new(class.major).ok_or(missing.clone())?;
        if self.depth_of(handle) >= MAX_DEPTH {
            return Err(PolicyError::TooDeep);
        }
        let noqueue = matches!(node.kind, Kind::Noqueue);
        let keeps_a_rate = node.kind.rules().plan(2).1.is_some();
        let below_class = matches!(node.kind, Kind::Mq | Kind::Htb(_)) || keeps_a_rate;
        let parent = self.root.as_mut().and_then(|root| root.find_mut(handle)).ok_or(missing)?;
        let classes = parent.kind.classes();
        match classes {
            Classes::None => Err(PolicyError::NotClassful { handle, kind: parent.kind.name() }),
            Classes::Alike => Err(PolicyError::CakeMqChild),
            Classes::One(_) if noqueue => {
                Err(PolicyError::NoqueueInClass("a tbf holds a bfifo with its own limit"))
            }
            Classes::Queues if noqueue => {
                Err(PolicyError::NoqueueInClass("a queue sends at once what it has"))
            }
            Classes::Made if noqueue => Err(PolicyError::NoqueueInClass("a class holds a pfifo")),
            Classes::Made if below_class => Err(PolicyError::RateBelowClass(node.kind.name())),
            Classes::One(_) | Classes::Queues | Classes::Made => {
                parent.children.insert(classes.key(class.minor), node);
                Ok(())
            }
        }
    }

    /// Whether `class` is one of an `htb`.
    fn is_below_class(&self, class: ClassId) -> bool {
        let node = Handle::new(class.major).and_then(|handle| self.find(handle));
        node.is_some_and(|node| node.kind.classes() == Classes::Made)
    }

    /// How many qdiscs stand between the device and `handle`, itself included.
    fn depth_of(&self, handle: Handle) -> usize {
        let mut depth = 0;
        let mut at = Some(handle);
        while let Some(node) = at.and_then(|handle| self.find(handle)) {
            depth += 1;
            at = match node.parent {
                Parent::Root => None,
                Parent::Class(class) => Handle::new(class.major),
            };
        }
        depth
    }

    /// Whether `handle` hangs, directly or not, below an `mq` and so belongs to one queue.
    fn is_under_mq(&self, handle: Handle) -> bool {
        match &self.root {
            Some(root) => root.handle != handle && root.kind.classes() == Classes::Queues,
            None => false,
        }
    }

    /// Whether `parent` is a queue of a `cake_mq`, whose `cake`s are its own.
    fn is_queue_of_cake_mq(&self, parent: Parent) -> bool {
        let Parent::Class(ClassId { major, .. }) = parent else { return false };
        let node = Handle::new(major).and_then(|handle| self.find(handle));
        node.is_some_and(|node| node.kind.classes() == Classes::Alike)
    }

    fn delete(&mut self, edit: &Edit, facts: &PortFacts) -> Result<(), PolicyError> {
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
            Some(Parent::Root) => {
                self.root = None;
                Ok(())
            }
            Some(Parent::Class(class)) => {
                let parent = Handle::new(class.major)
                    .and_then(|handle| self.root.as_mut()?.find_mut(handle))
                    .ok_or(PolicyError::NoSuchParent { major: class.major })?;
                parent.children.remove(&parent.kind.classes().key(class.minor));
                Ok(())
            }
        }
    }
}

/// Classes of `mq` are the port's queues, counted from 1.
fn check_queue(class: ClassId, facts: &PortFacts) -> Result<(), PolicyError> {
    let last = facts.queues.unwrap_or(u16::MAX);
    if (1..=last).contains(&class.minor) {
        return Ok(());
    }
    let major = class.major;
    Err(PolicyError::NoClass(format!(
        "The queues of this port are {major:x}:1 to {major:x}:{last:x}."
    )))
}
