//! Edits, with the rules of the kernel's `tc_modify_qdisc()` and `tc_get_qdisc()`.

use crate::automatic::Automatic;
use crate::{
    Cake, ClassId, Fifo, FifoUnit, FqParams, Handle, Kind, MAX_DEPTH, Mq, Node, Params, Parent,
    Policy, PolicyError, PortFacts, PortPolicy, Tbf, TbfParams, pacing,
};

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
        let (child, default) = match &node.kind {
            Kind::Tbf(tbf) => (tbf.inner.as_deref(), "bfifo"),
            Kind::Mq(mq) => {
                check_queue(class, facts)?;
                (mq.children.get(&class.minor), "noqueue")
            }
            Kind::Cake(Cake { multi: true, .. }) => {
                check_queue(class, facts)?;
                (None, "cake")
            }
            kind @ (Kind::Noqueue
            | Kind::Fifo(_)
            | Kind::Cake(_)
            | Kind::Fq(_)
            | Kind::Pacing(_)) => {
                return Err(PolicyError::NotClassful { handle: node.handle, kind: kind.name() });
            }
        };
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
        match (&mut node.kind, params) {
            (Kind::Fifo(fifo), Params::Fifo(_, limit)) => fifo.limit = limit.unwrap_or(fifo.limit),
            (Kind::Tbf(tbf), Params::Tbf(params)) => {
                params.check(own_queue)?;
                tbf.params =
                    TbfParams { strategy: params.strategy.or(tbf.params.strategy), ..*params };
                // As in the kernel, a FIFO inside gets the filter's limit as its own, in
                // whatever it counts.
                if let Some(Node { kind: Kind::Fifo(fifo), .. }) = tbf.inner.as_deref_mut() {
                    fifo.limit = u32::try_from(params.limit.0).unwrap_or(u32::MAX);
                }
            }
            (Kind::Cake(cake), Params::Cake { options, .. }) => {
                *cake = cake.changed(options, facts, own_queue)?;
            }
            (Kind::Fq(fq), Params::Fq(options)) => *fq = fq.changed(options)?,
            (Kind::Pacing(config), Params::Pacing { options, .. }) => {
                *config = options.on(*config, facts);
            }
            (Kind::Mq(_), Params::Mq) if facts.queues == Some(1) => {
                return Err(PolicyError::MqNeedsQueues);
            }
            _ => {}
        }
        Ok(())
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
                    || self.find(handle).is_some_and(|node| matches!(node.kind, Kind::Mq(_)))
            }),
        };
        let kind = match &edit.params {
            None => return Err(PolicyError::UnknownKind(None)),
            Some(Params::Unknown(name)) => {
                return Err(PolicyError::UnknownKind(Some(name.clone())));
            }
            Some(Params::Noqueue) => Kind::Noqueue,
            Some(Params::Fifo(unit, limit)) => {
                let default = match unit {
                    FifoUnit::Packets => facts.tx_queue_len,
                    FifoUnit::Bytes => facts.tx_queue_len.saturating_mul(facts.frame()),
                };
                Kind::Fifo(Fifo { unit: *unit, limit: limit.unwrap_or(default) })
            }
            Some(Params::Tbf(params)) => {
                params.check(own_queue)?;
                Kind::Tbf(Tbf { params: *params, inner: None })
            }
            Some(Params::Cake { multi, options }) => match (multi, parent, facts.queues) {
                (true, Parent::Class(_), _) => return Err(PolicyError::CakeMqNotRoot),
                (true, Parent::Root, Some(0 | 1)) => return Err(PolicyError::CakeMqNeedsQueues),
                _ => Kind::Cake(Cake::new(*multi, options, facts, own_queue)?),
            },
            Some(Params::Fq(options)) => Kind::Fq(FqParams::made(options, facts)?),
            Some(Params::Pacing { structure, options }) => {
                Kind::Pacing(options.alone(*structure, facts))
            }
            Some(Params::Mq) => match (parent, facts.queues) {
                (Parent::Class(_), _) => return Err(PolicyError::MqNotRoot),
                (Parent::Root, Some(0 | 1)) => return Err(PolicyError::MqNeedsQueues),
                (Parent::Root, _) => Kind::Mq(Mq::default()),
            },
        };
        let handle = match edit.handle {
            Some(handle) => handle,
            None => handles.next(self, parent)?,
        };
        let node = Node { handle, parent, kind };
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
        let parent = self.root.as_mut().and_then(|root| root.find_mut(handle)).ok_or(missing)?;
        match &mut parent.kind {
            Kind::Tbf(_) if noqueue => {
                Err(PolicyError::NoqueueInClass("a tbf holds a bfifo with its own limit"))
            }
            Kind::Mq(_) if noqueue => {
                Err(PolicyError::NoqueueInClass("a queue sends at once what it has"))
            }
            Kind::Tbf(tbf) => {
                tbf.inner = Some(Box::new(node));
                Ok(())
            }
            Kind::Mq(mq) => {
                mq.children.insert(class.minor, node);
                Ok(())
            }
            Kind::Cake(Cake { multi: true, .. }) => Err(PolicyError::CakeMqChild),
            kind @ (Kind::Noqueue
            | Kind::Fifo(_)
            | Kind::Cake(_)
            | Kind::Fq(_)
            | Kind::Pacing(_)) => Err(PolicyError::NotClassful { handle, kind: kind.name() }),
        }
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
            Some(root) => root.handle != handle && matches!(root.kind, Kind::Mq(_)),
            None => false,
        }
    }

    /// Whether `parent` is a queue of a `cake_mq`, whose `cake`s are its own.
    fn is_queue_of_cake_mq(&self, parent: Parent) -> bool {
        let Parent::Class(ClassId { major, .. }) = parent else { return false };
        let node = Handle::new(major).and_then(|handle| self.find(handle));
        node.is_some_and(|node| matches!(node.kind, Kind::Cake(Cake { multi: true, .. })))
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
                match &mut parent.kind {
                    Kind::Tbf(tbf) => tbf.inner = None,
                    Kind::Mq(mq) => drop(mq.children.remove(&class.minor)),
                    Kind::Noqueue
                    | Kind::Fifo(_)
                    | Kind::Cake(_)
                    | Kind::Fq(_)
                    | Kind::Pacing(_) => {}
                }
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
