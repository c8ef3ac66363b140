//! The accounting of one pacing qdisc: its backlog, sent and dropped packets, and statistics.
//!
//! Non-goals: whose packets they were (`flows.rs`, `queues/table.rs`).

use super::Figures;
use super::stamp::Bundle;
use crate::overlimits::Overlimits;
use crate::{Detail, Next, Stats, Verdict};
use narrows_packet::{Backlog, Batch, DropReason, PacketId, Packets};
use narrows_units::{Bytes, Nanos};

pub(super) struct Account {
    backlog: Backlog,
    /// All but the backlog.
    stats: Stats,
    /// The statistics, without those kept elsewhere.
    pub(super) figures: Figures,
    overlimits: Overlimits,
    bundle: Bundle,
}

impl Account {
    pub(super) fn new() -> Self {
        Self {
            backlog: Backlog::default(),
            stats: Stats::default(),
            figures: Figures::default(),
            overlimits: Overlimits::default(),
            bundle: Bundle::new(),
        }
    }

    /// The backlog.
    #[inline]
    pub(super) const fn backlog(&self) -> Backlog {
        self.backlog
    }

    /// How long a slot should be at most, as a power of two of nanoseconds.
    #[inline]
    pub(super) const fn slot(&self) -> u32 {
        self.bundle.power()
    }

    /// A packet of `len` bytes is queued.
    #[inline]
    pub(super) fn queued(&mut self, len: Bytes) {
        self.backlog.packets += 1;
        self.backlog.bytes += len;
    }

    /// `id` is no longer queued.
    #[inline]
    pub(super) fn left(&mut self, packets: &mut Packets, id: PacketId) {
        let meta = packets.meta_mut(id);
        // A qdisc above would take this time for a meter's stamp.
        meta.edt = Nanos::ZERO;
        let len = Bytes::from(meta.len);
        self.backlog.packets -= 1;
        self.backlog.bytes.0 -= len.0;
    }

    /// A packet is queued that another qdisc had queued before.
    pub(super) fn adopted(&mut self) {
        self.overlimits.adopted();
    }

    /// Counts packets sent at `now`.
    #[inline]
    pub(super) fn sent(&mut self, packets: u32, bytes: u64, now: Nanos) {
        if packets > 0 {
            self.stats.sent_packets += u64::from(packets);
            self.stats.sent_bytes += bytes;
            self.bundle.count(packets, now);
        }
    }

    /// Drops `id`, which is not queued.
    #[cold]
    pub(super) fn dropped(
        &mut self,
        packets: &mut Packets,
        id: PacketId,
        reason: DropReason,
    ) -> Verdict {
        self.stats.drops += 1;
        match reason {
            DropReason::FlowLimit => self.figures.flow_limit_drops += 1,
            DropReason::Horizon => self.figures.horizon_drops += 1,
            _ => {}
        }
        packets.discard(id, reason);
        Verdict::Dropped
    }

    /// Drops `ids`, for which no frame is left.
    pub(super) fn refuse_all(&mut self, packets: &mut Packets, ids: &[PacketId]) {
        self.stats.refuse_all(packets, ids);
    }

    /// `out` holds all that may leave at `now`, as far as there was room. Returns when to ask
    /// again, as [`Account::held`] does.
    #[inline]
    pub(super) fn taken(&mut self, out: &Batch, next: Option<Nanos>, now: Nanos) -> Next {
        if !out.has_room() && !self.backlog.is_empty() {
            return Next::Now;
        }
        self.held(next, now)
    }

    /// Nothing more may leave at `now`. Returns when to ask again, if a packet may leave at `next`.
    #[inline]
    pub(super) fn held(&mut self, next: Option<Nanos>, now: Nanos) -> Next {
        if self.backlog.is_empty() {
            self.overlimits.passed(&mut self.stats, 0);
        } else {
            self.overlimits.refused(&mut self.stats, self.backlog.packets);
        }
        next.map_or(Next::Empty, |at| Next::Held(at.max(now)))
    }

    /// A parent has taken the sent packet, and may not take the next one yet.
    #[inline]
    pub(super) fn gave_one(&mut self) {
        self.overlimits.passed(&mut self.stats, self.backlog.packets);
    }

    /// Its figures, together with those in `figures`.
    pub(super) fn stats(&self, figures: Figures) -> Stats {
        let detail = Some(Detail::Pacing(Box::new(figures)));
        Stats { backlog: self.backlog, detail, ..self.stats.clone() }
    }
}
