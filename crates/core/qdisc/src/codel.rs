//! `codel`: one queue that does not stay long.
//!
//! First in, first out, up to a limit. When a packet leaves, CoDel ([`law`]) decides by its delay
//! whether it is dropped and the next one leaves instead, or whether it is marked (with `ecn`, if
//! it is ECN-capable). With `ce_threshold` every ECN-capable packet with at least that delay is
//! marked: shallow marking for senders that expect it (DCTCP).
//!
//! *The limit* is each queue's, and a packet that comes when it is reached is dropped.
//!
//! Source: RFC 8289; `tc-codel(8)`, whose defaults and figures these are (`net/sched/sch_codel.c`).
//!
//! Cost: a FIFO's, and CoDel's two comparisons a packet. Headers are read only to mark.
//!
//! Non-goals: flows (`fq_codel`), unresponsive senders (`cake`).

mod aqm;
mod config;
mod figures;
mod law;

use crate::{Detail, Handover, Next, Qdisc, Spec, Stats, Verdict};
use narrows_packet::{Backlog, Batch, DropReason, Fifo, PacketId, Packets, Reading};
use narrows_units::Nanos;

pub(crate) use aqm::{Aqm, Fate, mark};
pub(crate) use law::{Codel, Terms, after};

pub use config::{CeThreshold, Config, Selector};
pub use figures::{Figures, Signals, State};

/// An instance: one queue's.
pub(crate) struct CodelQueue {
    config: Config,
    aqm: Aqm,
    queue: Fifo,
    codel: Codel,
    signals: Signals,
    overlimit: u64,
    /// The delay of the last checked packet.
    sojourn: Nanos,
    /// The time of the last call.
    now: Nanos,
    /// All but the backlog, which the queue knows.
    stats: Stats,
}

impl CodelQueue {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            aqm: config.aqm(),
            config,
            queue: Fifo::new(),
            codel: Codel::new(),
            signals: Signals::default(),
            overlimit: 0,
            sojourn: Nanos::ZERO,
            now: Nanos::ZERO,
            stats: Stats::default(),
        }
    }

    /// Takes out the packet that leaves at `now`, and drops those before it that CoDel signals.
    #[inline]
    fn depart(&mut self, packets: &mut Packets, now: Nanos) -> Option<PacketId> {
        self.now = now;
        loop {
            let Some(id) = self.queue.pop_front(packets) else {
                self.codel.ran_empty();
                return None;
            };
            let behind = self.queue.backlog().bytes;
            self.sojourn = now.since(packets.meta(id).arrival);
            let aqm = &self.aqm;
            match aqm.judge(packets, id, &mut self.codel, behind, now, &mut self.signals) {
                Fate::Leaves => {
                    self.stats.sent_packets += 1;
                    self.stats.sent_bytes += packets.len(id).0;
                    return Some(id);
                }
                Fate::Dropped => self.drop(packets, id, DropReason::Aqm),
            }
        }
    }

    #[cold]
    fn drop(&mut self, packets: &mut Packets, id: PacketId, reason: DropReason) {
        self.stats.drops += 1;
        packets.discard(id, reason);
    }

    fn figures(&self) -> Figures {
        Figures {
            state: self.codel.state(&self.aqm.terms, self.sojourn, self.now),
            signals: self.signals,
            drop_overlimit: self.overlimit,
        }
    }
}

impl Qdisc for CodelQueue {
    fn reading(&self) -> Reading {
        self.config.reading()
    }

    #[inline]
    fn enqueue(&mut self, packets: &mut Packets, id: PacketId, _now: Nanos) -> Verdict {
        if self.queue.backlog().packets < self.config.limit {
            self.queue.push_back(packets, id);
            return Verdict::Queued;
        }
        self.overlimit += 1;
        self.drop(packets, id, DropReason::Limit);
        Verdict::Dropped
    }

    fn refuse_all(&mut self, packets: &mut Packets, ids: &[PacketId]) {
        self.stats.refuse_all(packets, ids);
    }

    #[inline]
    fn dequeue(&mut self, packets: &mut Packets, now: Nanos, out: &mut Batch) -> Next {
        while out.has_room() {
            let Some(id) = self.depart(packets, now) else { return Next::Empty };
            out.push(id);
        }
        if self.queue.backlog().is_empty() { Next::Empty } else { Next::Now }
    }

    #[inline]
    fn dequeue_one(&mut self, packets: &mut Packets, now: Nanos) -> Result<PacketId, Next> {
        self.depart(packets, now).ok_or(Next::Empty)
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    fn stats(&self, into: &mut Vec<Stats>) {
        let detail = Some(Detail::Codel(Box::new(self.figures())));
        into.push(Stats { backlog: self.queue.backlog(), detail, ..self.stats.clone() });
    }

    fn retune(&mut self, spec: Spec, _handover: &mut Handover<'_>) {
        let crate::Config::Codel(config) = spec.config else {
            panic!("a codel cannot be retuned to {:?}", spec.config)
        };
        self.aqm = config.aqm();
        self.config = config;
    }

    fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        self.queue.pop_front(packets)
    }

    fn adopt(&mut self, packets: &mut Packets, id: PacketId, _now: Nanos) {
        self.queue.push_back(packets, id);
    }
}
