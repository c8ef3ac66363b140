//! A packet that a parent has taken out of the qdisc below it and may not send yet.
//!
//! To the qdisc below it has been sent; seen from outside it is still queued there.

use crate::Stats;
use narrows_packet::Backlog;
use narrows_units::{Bytes, wire::Overhead};

/// Packets that a qdisc has released and parents hold.
#[derive(Clone, Copy, Default)]
pub struct Above {
    /// Packets that a former qdisc in this place had handed over: they were queued in the present
    /// one, which has not counted them.
    inherited: Backlog,
    /// Packets that are held now.
    held: Backlog,
}

/// The charge of `backlog` as if all of its packets had the same length.
pub(crate) fn cost_of_alike(overhead: &Overhead, backlog: Backlog) -> Bytes {
    let packets = u64::from(backlog.packets);
    match backlog.bytes.0.checked_div(packets) {
        Some(mean) => Bytes(overhead.cost(Bytes(mean)).0 * packets),
        None => Bytes::ZERO,
    }
}

impl Above {
    /// With what one more parent holds, by its length: a packet that a former qdisc had handed
    /// over, and one now.
    pub(crate) fn and(mut self, inherited: Option<Bytes>, held: Option<Bytes>) -> Self {
        for (sum, len) in [(&mut self.inherited, inherited), (&mut self.held, held)] {
            sum.packets += u32::from(len.is_some());
            sum.bytes += len.unwrap_or(Bytes::ZERO);
        }
        self
    }

    /// What parents hold, where packets count with `overhead`.
    pub(crate) fn charged(self, overhead: &Overhead) -> Self {
        let charge =
            |backlog: Backlog| Backlog { bytes: cost_of_alike(overhead, backlog), ..backlog };
        Self { inherited: charge(self.inherited), held: charge(self.held) }
    }

    /// What parents hold of a class: of the one whose packet left last, if `is_last`. Packets
    /// handed over by a former qdisc have passed no class.
    pub(crate) fn in_class(self, is_last: bool) -> Self {
        if is_last { Self { held: self.held, ..Self::default() } } else { Self::default() }
    }

    /// Converts the figures of a qdisc to the view from outside.
    pub(crate) fn restate(self, stats: &mut Stats) {
        stats.sent_packets += u64::from(self.inherited.packets);
        stats.sent_bytes += self.inherited.bytes.0;
        // A qdisc that came after the packet has sent nothing.
        stats.sent_packets = stats.sent_packets.saturating_sub(u64::from(self.held.packets));
        stats.sent_bytes = stats.sent_bytes.saturating_sub(self.held.bytes.0);
        stats.backlog += self.held;
    }
}
