//! The one qdisc below another: of a `tbf`, a `red`, a `netem`.

use crate::fifo::Fifo;
use crate::sink::Sink;
use crate::{Above, Config, Handover, Next, NodeId, Qdisc, Spec, Stats, Verdict};
use narrows_packet::{Backlog, PacketId, Packets};
use narrows_units::Nanos;

/// Where packets wait. The FIFO that almost every such qdisc has is a special case, to avoid
/// virtual calls per packet.
enum Place {
    Fifo(Fifo),
    Other(Box<dyn Qdisc>),
}

/// The one qdisc below another, and its name.
pub(crate) struct Inner {
    place: Place,
    /// Its name.
    id: NodeId,
}

impl Inner {
    /// The qdisc of `spec`, empty.
    pub(crate) fn new(spec: Spec) -> Self {
        let id = spec.id;
        let place = match spec {
            Spec { config: Config::Fifo(config), children, .. } if children.is_empty() => {
                Place::Fifo(Fifo::new(Some(config)))
            }
            other => Place::Other(other.build()),
        };
        Self { place, id }
    }

    /// That of the only one of `children`.
    ///
    /// # Panics
    /// If there is not exactly one.
    pub(crate) fn of(mut children: Vec<Spec>, kind: &str) -> Spec {
        let inner = children.pop().filter(|_| children.is_empty());
        inner.unwrap_or_else(|| panic!("a {kind} has exactly one qdisc below it"))
    }

    pub(crate) fn qdisc(&self) -> &dyn Qdisc {
        match &self.place {
            Place::Fifo(fifo) => fifo,
            Place::Other(other) => other.as_ref(),
        }
    }

    pub(crate) fn qdisc_mut(&mut self) -> &mut dyn Qdisc {
        match &mut self.place {
            Place::Fifo(fifo) => fifo,
            Place::Other(other) => other.as_mut(),
        }
    }

    #[inline]
    pub(crate) fn backlog(&self) -> Backlog {
        match &self.place {
            Place::Fifo(fifo) => fifo.backlog(),
            Place::Other(other) => other.backlog(),
        }
    }

    #[inline]
    pub(crate) fn enqueue(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        match &mut self.place {
            Place::Fifo(fifo) => fifo.enqueue(packets, id, now),
            Place::Other(other) => other.enqueue(packets, id, now),
        }
    }

    #[inline(always)]
    pub(crate) fn dequeue_one(
        &mut self,
        packets: &mut Packets,
        now: Nanos,
    ) -> Result<PacketId, Next> {
        match &mut self.place {
            Place::Fifo(fifo) => fifo.dequeue_one(packets, now),
            Place::Other(other) => other.dequeue_one(packets, now),
        }
    }

    /// Moves packets that may leave at `now` into `out`, while there is room. `leave` comes first
    /// for each.
    #[inline(always)]
    pub(crate) fn release<S: Sink>(
        &mut self,
        packets: &mut Packets,
        now: Nanos,
        out: &mut S,
        mut leave: impl FnMut(&mut Packets, PacketId),
    ) -> Next {
        while out.has_room() {
            match self.dequeue_one(packets, now) {
                Ok(id) => {
                    leave(packets, id);
                    out.push(id);
                }
                Err(next) => return next,
            }
        }
        Next::Now
    }

    /// Whether it only drops arrivals, never queued packets.
    #[inline]
    pub(crate) fn drops_only_arrivals(&self) -> bool {
        matches!(self.place, Place::Fifo(_))
    }

    /// Applies `spec`. Queued packets stay queued, in order. Returns whether another qdisc has
    /// taken its place.
    pub(crate) fn take_over(&mut self, spec: Spec, handover: &mut Handover<'_>) -> bool {
        if spec.id == self.id {
            self.qdisc_mut().retune(spec, handover);
            return false;
        }
        let mut before = std::mem::replace(self, Self::new(spec));
        handover.hand_over(before.qdisc_mut(), self.qdisc_mut());
        true
    }

    /// Adds its figures, with its name, and those of what is below it.
    pub(crate) fn stats_below(&self, above: Above, into: &mut Vec<Stats>) {
        let own = into.len();
        self.qdisc().stats_below(above, into);
        if let Some(own) = into.get_mut(own) {
            (own.id, own.flows) = (self.id, self.qdisc().flows());
        }
    }
}
