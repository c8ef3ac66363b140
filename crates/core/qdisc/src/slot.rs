//! A qdisc with its name: how a changed tree is applied to the running one.
//!
//! The installation names every qdisc of a plan with a [`NodeId`] and uses the same name again for
//! one that carries on. A [`Slot`] that gets a specification compares names: the same name retunes
//! the running qdisc, another one builds a new qdisc, which adopts the packets of the present one.
//! Parents do the same with their children, so a change touches only the qdiscs that it names.
//!
//! *Principle.* One place decides which qdisc carries on:
//! [`Config::carries_on`](crate::Config::carries_on). A running qdisc is never asked.

use crate::{Above, Ends, Qdisc, Spec, Stats};
use narrows_classify::{Classification, Classifier};
use narrows_packet::{Paces, PacketId, Packets, Reading};
use narrows_units::Nanos;
use std::sync::Arc;

/// The name of a qdisc, on all queues that run it. The installation gives each out once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NodeId(pub u64);

/// A function that parses the packet fields that a qdisc reads, and writes them into the table.
pub type ReadHeaders<'a> = &'a mut dyn FnMut(PacketId, Reading, &mut Packets);

/// The context for handing packets over from one qdisc to another.
pub struct Handover<'a> {
    /// The time of the change.
    pub now: Nanos,
    packets: &'a mut Packets,
    known: Reading,
    read: Option<ReadHeaders<'a>>,
}

impl<'a> Handover<'a> {
    /// The context at `now`, if all fields that any qdisc reads are in `packets` already.
    pub fn new(packets: &'a mut Packets, now: Nanos) -> Self {
        Self { now, packets, known: Reading::NOTHING, read: None }
    }

    /// This context if only `known` fields are in the packets, and `read` parses more.
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
        // Fields that only the successor reads were not parsed yet. Without them all packets would
        // belong to one flow, and later packets of their real flows would overtake them. Classes
        // differ below each qdisc.
        let is_unread = reading != Reading::NOTHING && (reading != self.known || reading.class);
        while let Some(id) = from.drain(self.packets) {
            if is_unread && let Some(read) = &mut self.read {
                read(id, reading, self.packets);
            }
            to.adopt(self.packets, id, self.now);
        }
    }
}

/// A running qdisc with its name, which a new specification retunes or replaces.
pub struct Slot {
    qdisc: Box<dyn Qdisc>,
    id: NodeId,
    /// None where all are empty, as in almost all slots.
    filters: Option<Box<Filters>>,
}

/// What assigns packets, what filters them, and what rates these filters give.
struct Filters {
    classification: Option<Arc<Classification>>,
    ends: Ends,
    paces: Option<Paces>,
}

impl Filters {
    fn of(spec: &Spec) -> Option<Box<Self>> {
        let Spec { classification, ends, paces, .. } = spec;
        let is_empty =
            classification.is_none() && ends.iter().all(Option::is_none) && paces.is_none();
        let filters = || Self {
            classification: classification.clone(),
            ends: ends.clone(),
            paces: paces.clone(),
        };
        (!is_empty).then(|| Box::new(filters()))
    }
}

impl Slot {
    /// The qdisc of `spec`, empty.
    pub fn new(spec: Spec) -> Self {
        let (id, filters) = (spec.id, Filters::of(&spec));
        Self { qdisc: spec.build(), id, filters }
    }

    /// The classifier for its classes, and those below it.
    #[inline]
    pub fn classification(&self) -> Option<&Arc<Classification>> {
        self.filters.as_ref()?.classification.as_ref()
    }

    /// The filters of the port whose root it is, on arrival and on departure.
    #[inline]
    pub fn ends(&self) -> [Option<&Arc<Classifier>>; 2] {
        let filters = self.filters.as_ref();
        filters.map_or([None; 2], |filters| filters.ends.each_ref().map(Option::as_ref))
    }

    /// The rates that filters give to flows, if any.
    pub fn paces(&self) -> Option<&Paces> {
        self.filters.as_ref()?.paces.as_ref()
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

    /// Whether `spec` is another qdisc, and not the same with other parameters.
    pub fn is_replaced_by(&self, spec: &Spec) -> bool {
        spec.id != self.id
    }

    /// Applies `spec`. Queued packets stay queued, in order.
    pub fn take_over(&mut self, spec: Spec, handover: &mut Handover<'_>) {
        if !self.is_replaced_by(&spec) {
            self.filters = Filters::of(&spec);
            self.qdisc_mut().retune(spec, handover);
            return;
        }
        let mut successor = Self::new(spec);
        handover.hand_over(self.qdisc_mut(), successor.qdisc_mut());
        *self = successor;
    }

    /// Adds its figures, with its name, and then those of the qdiscs below it.
    pub fn stats(&self, into: &mut Vec<Stats>) {
        self.stats_below(Above::default(), into);
    }

    /// Adds its figures and those of the qdiscs below it as seen from outside, see
    /// [`Qdisc::stats_below`].
    pub(crate) fn stats_below(&self, above: Above, into: &mut Vec<Stats>) {
        let own = into.len();
        self.qdisc().stats_below(above, into);
        if let Some(own) = into.get_mut(own) {
            (own.id, own.flows) = (self.id, self.qdisc().flows());
        }
    }
}
