//! The filters that a packet meets on its way in: those of the port where it comes in, those of the
//! port across, and those of the qdisc there.
//!
//! Its headers are read once for all of them. A mark or a class that one sets is visible to the
//! next, as with an `skb`; dropped packets reach no qdisc.

use narrows_classify::{Classification, Classifier, Path, Subject, Verdict};
use narrows_packet::{DropReason, PacketId, Packets};
use narrows_qdisc::Slot;
use narrows_units::Nanos;

/// See the module's documentation.
pub(crate) struct Filters<'a> {
    ingress: Option<&'a Classifier>,
    egress: Option<&'a Classifier>,
    qdisc: Option<&'a Classification>,
}

impl<'a> Filters<'a> {
    /// The filters for packets from the port of `here` to that of `across`.
    #[inline]
    pub(crate) fn of(here: &'a Slot, across: &'a Slot) -> Self {
        let [ingress, _] = here.ends();
        let [_, egress] = across.ends();
        Self {
            ingress: ingress.map(AsRef::as_ref),
            egress: egress.map(AsRef::as_ref),
            qdisc: across.classification().map(AsRef::as_ref),
        }
    }

    /// Whether there are any.
    #[inline]
    pub(crate) fn are_any(&self) -> bool {
        self.ingress.is_some() || self.egress.is_some() || self.qdisc.is_some()
    }

    /// Records the class of `id`, whose frame is `frame`, or drops it. Returns whether it was kept.
    #[inline]
    pub(crate) fn sort(
        &self,
        frame: &[u8],
        packets: &mut Packets,
        id: PacketId,
        now: Nanos,
    ) -> bool {
        let Some(subject) = Subject::new(frame) else {
            self.qdisc
                .map_or(Path::default(), |rules| rules.path(frame))
                .write(packets.meta_mut(id));
            return true;
        };
        let mut subject = subject.of_len(packets.meta(id).len.0);
        for filters in [self.ingress, self.egress].into_iter().flatten() {
            if filters.classify(&mut subject, now) == Verdict::Drop {
                packets.discard(id, DropReason::Filter);
                return false;
            }
        }
        let path =
            self.qdisc.map_or(Some(Path::default()), |rules| rules.classify(&mut subject, now));
        let Some(path) = path else {
            packets.discard(id, DropReason::Filter);
            return false;
        };
        path.write(packets.meta_mut(id));
        if subject.mark() != 0 {
            packets.headers_mut(id).mark = subject.mark();
        }
        true
    }
}
