//! What becomes of a packet that is about to leave: the law applied to it, by drop or mark.

use super::{CeThreshold, Codel, Signals, Terms};
use narrows_packet::{PacketId, Packets};
use narrows_units::{Bytes, Nanos};

/// The decision on a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// It leaves, perhaps with a mark.
    Leaves,
    /// Drop it, and ask about the next one.
    Dropped,
}

/// How packets are signalled by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Aqm {
    /// The law's terms.
    pub(crate) terms: Terms,
    /// Whether packets that can be marked are, instead of dropped.
    pub(crate) ecn: bool,
    /// The delay from which packets are marked regardless of the law.
    pub(crate) ce_threshold: Option<CeThreshold>,
}

impl Aqm {
    /// The decision on `id` at `now`, of the queue with the state `codel` and so many bytes
    /// `behind` it.
    #[inline]
    pub(crate) fn judge(
        &self,
        packets: &mut Packets,
        id: PacketId,
        codel: &mut Codel,
        behind: Bytes,
        now: Nanos,
        signals: &mut Signals,
    ) -> Fate {
        let meta = packets.meta(id);
        let sojourn = now.since(meta.arrival);
        signals.max_packet = signals.max_packet.max(meta.len.0);
        if codel.signals(&self.terms, sojourn, behind.0, now) {
            if !(self.ecn && mark(packets, id)) {
                return Fate::Dropped;
            }
            signals.ecn_mark += 1;
        }
        if let Some(CeThreshold { sojourn: threshold, selector }) = self.ce_threshold
            && sojourn > threshold
            && selector.selects(&packets.headers(id))
            && mark(packets, id)
        {
            signals.ce_mark += 1;
        }
        Fate::Leaves
    }
}

/// Marks `id`, if it can be.
pub(crate) fn mark(packets: &mut Packets, id: PacketId) -> bool {
    let is_capable = packets.headers(id).ecn.is_capable();
    if is_capable {
        packets.meta_mut(id).rewrite.mark();
    }
    is_capable
}
