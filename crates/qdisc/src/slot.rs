//! A qdisc in its place, known by name: how a changed tree becomes what runs.
//!
//! The installation names every qdisc of a plan with a [`NodeId`] and gives the same name again to
//! one that carries on. A [`Slot`] that is given a specification compares names: the same one
//! retunes the qdisc that is there, another one builds a new qdisc, which takes in what the present
//! one holds. Parents do the same with what is below them, so a change touches the qdiscs that it
//! names and no others.
//!
//! *Principle.* Who carries on is decided in one place, by
//! [`Config::carries_on`](crate::Config::carries_on); nobody asks a running qdisc.

use crate::{Qdisc, Spec, Stats};
use narrows_classify::Classifier;
use narrows_packet::{PacketId, Packets, Reading};
use narrows_units::Nanos;
use std::sync::Arc;

/// The name of a qdisc, on all queues that run it. The installation gives each out once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NodeId(pub u64);

/// How to find out what a qdisc wants to know of a packet, and write it into the table.
pub type ReadHeaders<'a> = &'a mut dyn FnMut(PacketId, Reading, &mut Packets);

/// What it takes to hand queued packets over from one qdisc to another.
pub struct Handover<'a> {
    /// The time of the change.
    pub now: Nanos,
    packets: &'a mut Packets,
    known: Reading,
    read: Option<ReadHeaders<'a>>,
}

impl<'a> Handover<'a> {
    /// At `now`, where all that any qdisc wants to know of `packets` is known.
    pub fn new(packets: &'a mut Packets, now: Nanos) -> Self {
        Self { now, packets, known: Reading::NOTHING, read: None }
    }

    /// The same where only `known` is, and `read` finds out more.
    #[must_use]
    pub fn reading(self, known: Reading, read: ReadHeaders<'a>) -> Self {
        Self { known, read: Some(read), ..self }
    }

    /// The packets.
    pub(crate) fn packets(&mut self) -> &mut Packets {
        self.packets
    }

    /// Moves everything that is queued in `from` to `to`, in the order in which it would leave.
    pub(crate) fn hand_over(&mut self, from: &mut dyn Qdisc, to: &mut dyn Qdisc) {
        let reading = to.reading();
        self.packets.prepare(reading);
        // What only the successor wants to know of a packet nobody has read yet. Without it all
        // packets would be of one flow, and later ones of their real flows would overtake them.
        let is_unread = reading != self.known && reading != Reading::NOTHING;
        while let Some(id) = from.drain(self.packets) {
            if is_unread && let Some(read) = &mut self.read {
                read(id, reading, self.packets);
            }
            to.adopt(self.packets, id, self.now);
        }
    }
}

/// See the module's documentation.
pub struct Slot {
    id: NodeId,
    classifier: Option<Arc<Classifier>>,
    qdisc: Box<dyn Qdisc>,
}

impl Slot {
    /// The qdisc of `spec`, empty.
    pub fn new(spec: Spec) -> Self {
        Self { id: spec.id, classifier: spec.classifier.clone(), qdisc: spec.build() }
    }

    /// The qdisc's name.
    pub(crate) fn id(&self) -> NodeId {
        self.id
    }

    /// What assigns packets to its classes.
    #[inline]
    pub fn classifier(&self) -> Option<&Arc<Classifier>> {
        self.classifier.as_ref()
    }

    /// The qdisc.
    #[inline]
    pub fn qdisc(&self) -> &dyn Qdisc {
        self.qdisc.as_ref()
    }

    /// The qdisc, to act on.
    #[inline]
    pub fn qdisc_mut(&mut self) -> &mut dyn Qdisc {
        self.qdisc.as_mut()
    }

    /// Makes it what `spec` says. What is queued stays queued, in order.
    pub fn take_over(&mut self, spec: Spec, handover: &mut Handover<'_>) {
        if spec.id == self.id {
            self.classifier.clone_from(&spec.classifier);
            self.qdisc.retune(spec, handover);
            return;
        }
        let mut successor = Self::new(spec);
        handover.hand_over(self.qdisc.as_mut(), successor.qdisc.as_mut());
        *self = successor;
    }

    /// Adds its figures, with its name, and then those of the qdiscs below it.
    pub fn stats(&self, into: &mut Vec<Stats>) {
        let own = into.len();
        self.qdisc.stats(into);
        if let Some(own) = into.get_mut(own) {
            own.id = self.id;
        }
    }
}
