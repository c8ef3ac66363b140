//! `stab`: packets count with another length, for a qdisc and those below it.
//!
//! As in the kernel, each command that makes or changes a qdisc states its size table, too: without
//! the words it has none from then on.
//!
//! *Refused:* at a qdisc that queues nothing itself, at `cake`, which computes lengths itself, and
//! below or above another one: each packet has one length.

use crate::{Edit, Handle, Kind, Node, Parent, Policy, PolicyError, PortFacts, PortPolicy, Verb};
use narrows_units::wire::{Framing, Overhead};

/// A size table, as `tc` states it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stab {
    /// Bytes that are added to each frame (`overhead`).
    pub overhead: i32,
    /// The shortest length (`mpu`).
    pub mpu: u32,
    /// How the link divides frames, if it was given (`linklayer`).
    pub linklayer: Option<Framing>,
    /// The longest packet of `tc`'s table (`mtu`), and how many entries it has (`tsize`); 0 without
    /// a table. Lengths here are exact, so these are only shown.
    pub table: [u32; 2],
}

impl Stab {
    /// The length of a frame.
    pub fn charge(&self) -> Overhead {
        Overhead {
            per_frame: self.overhead,
            minimum: self.mpu,
            framing: self.linklayer.unwrap_or_default(),
        }
    }
}

impl Policy {
    /// As [`Policy::with_qdisc`], with the size table of that qdisc.
    ///
    /// # Errors
    /// As that; or if a size table is not possible there. The policy is gone then.
    pub fn with_sized_qdisc(
        self,
        dev: &str,
        edit: &Edit,
        stab: Option<&Stab>,
        facts: &PortFacts,
    ) -> Result<Self, PolicyError> {
        let mut next = self.with_qdisc(dev, edit, facts)?;
        if edit.verb == Verb::Delete {
            return Ok(next);
        }
        let port = next.ports.get_mut(dev);
        let at = port.as_ref().and_then(|port| Some(port.named(edit)?.handle));
        if let (Some(port), Some(handle)) = (port, at) {
            port.set_stab(handle, stab)?;
        }
        Ok(next)
    }
}

impl PortPolicy {
    /// The qdisc that `edit` has made or changed.
    fn named(&self, edit: &Edit) -> Option<&Node> {
        match edit.parent {
            Some(parent) => self.in_place(self.place(parent)),
            None => self.find(edit.handle?),
        }
    }

    fn set_stab(&mut self, handle: Handle, stab: Option<&Stab>) -> Result<(), PolicyError> {
        let node = self.find(handle).filter(|node| node.stab.as_deref() != stab);
        if node.is_some() {
            self.change_node(handle, |node| node.stab = stab.copied().map(Box::new));
        }
        match self.find(handle) {
            Some(node) if stab.is_some() => self.check_stab(node),
            _ => Ok(()),
        }
    }

    fn check_stab(&self, node: &Node) -> Result<(), PolicyError> {
        let refuse = |why: String| Err(PolicyError::Stab(why));
        match &node.kind {
            Kind::Noqueue | Kind::Mq => {
                return refuse(format!(
                    "{} queues nothing itself: give stab to the qdiscs of its queues.",
                    node.kind.name()
                ));
            }
            Kind::Cake(_) => {
                return refuse(
                    "cake computes the length on the wire itself: give it overhead, mpu and atm."
                        .to_owned(),
                );
            }
            _ => {}
        }
        let other = self.upwards(node).chain(self.below(node));
        let mut other = other.filter(|other| other.handle != node.handle && other.stab.is_some());
        match other.next() {
            Some(other) => refuse(format!(
                "{} has a stab already, and each packet has one length: give it to one of them, the outermost for all below it.",
                other.handle
            )),
            None => Ok(()),
        }
    }

    /// The qdisc at `parent`, if the operator put one there.
    pub(crate) fn node_at(&self, parent: Parent) -> Option<&Node> {
        self.in_place(self.place(parent))
    }
}
