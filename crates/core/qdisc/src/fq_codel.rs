//! `fq_codel`: a queue for each flow, kept short by CoDel.
//!
//! The hash of a packet's headers chooses one of a fixed number of queues. Queues take turns by
//! deficit round robin; a queue that was just empty goes before backlogged ones, so a sparse flow
//! does not wait behind a bulk flow. Each queue has its own CoDel ([`crate::codel`]), so only flows
//! that build a queue are signalled.
//!
//! *Too many packets, or too much memory* ([`overflow`]): the flow with most bytes loses up to
//! `drop_batch` packets, or half of its backlog, from the head, where the sender notices soonest.
//! Its CoDel counts them and continues from there.
//!
//! *A queue without packets keeps its state*, as in Linux: a flow that comes back is met where it
//! was left. It has memory from its first packet on.
//!
//! *Limits* (`limit`, `memory_limit`) are each queue's of the port, as they are in Linux below
//! `mq`.
//!
//! Source: RFC 8290, RFC 8289; `tc-fq_codel(8)`, whose defaults and figures these are
//! (`net/sched/sch_fq_codel.c`). It differs in this: which flow has most bytes is known within a
//! fifth, where Linux looks at all of them each time ([`crate::lengths`]); and no flow gets more
//! frames than are left for others.
//!
//! Cost: a bucket and the two lines of a flow, besides the packet's. Memory: 4 bytes for each of
//! `flows`, and 128 for each that has ever had packets, which grows by doubling.
//!
//! Non-goals: filters that choose the flow, fairness between hosts (`cake`).

mod config;
mod departure;
mod figures;
mod flow;
mod overflow;

use crate::codel::{Aqm, Signals};
use crate::flow_table::FlowTable;
use crate::lengths::Lengths;
use crate::rotation::Rotation;
use crate::{Detail, Handover, Next, Qdisc, Spec, Stats, Verdict, Weight};
use flow::{Flow, Standing};
use narrows_packet::{Backlog, Batch, DropReason, PacketId, Packets, Reading};
use narrows_units::Nanos;

pub use config::{Config, FLOWS_MAX, Hosts, QUANTUM_MAX, QUANTUM_MIN};
pub use figures::Figures;

/// How many packets ahead a batch of arrivals touches buckets, and then flows.
const AHEAD: usize = 8;
const NEAR: usize = 4;

/// An instance: one queue's.
pub(crate) struct FqCodel {
    config: Config,
    aqm: Aqm,
    flows: FlowTable<Flow>,
    /// Flows that have just got packets.
    new: Rotation,
    /// Old flows: backlogged, or so at their last turn.
    old: Rotation,
    lengths: Lengths,
    backlog: Backlog,
    /// The memory of what is queued, in bytes.
    memory: u64,
    signals: Signals,
    /// The counters; the other figures are computed on demand.
    counted: Figures,
    /// All but the backlog.
    stats: Stats,
}

impl FqCodel {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            aqm: config.aqm(),
            flows: FlowTable::new(config.flows),
            new: Rotation::EMPTY,
            old: Rotation::EMPTY,
            lengths: Lengths::new(),
            backlog: Backlog::default(),
            memory: 0,
            signals: Signals::default(),
            counted: Figures::default(),
            stats: Stats::default(),
            config,
        }
    }

    /// The flow of `id`, by number: its hash, scaled.
    #[inline]
    fn key(&self, packets: &Packets, id: PacketId) -> u32 {
        let hash = u64::from(packets.headers(id).flow);
        ((hash * u64::from(self.config.flows)) >> u32::BITS) as u32
    }

    #[inline]
    fn place(&mut self, packets: &Packets, id: PacketId) -> u32 {
        let key = self.key(packets, id);
        self.flows.find(key).unwrap_or_else(|| self.flows.add(Flow::new(key)))
    }

    /// Puts `id` at the end of the flow at `place`.
    #[inline]
    fn push(&mut self, packets: &mut Packets, id: PacketId, place: u32) {
        let len = packets.len(id);
        let flow = &mut self.flows[place as usize];
        flow.queue.push_back_of(packets, id, len);
        if flow.standing == Standing::Idle {
            flow.standing = Standing::New;
            flow.deficit = self.config.quantum as i32;
            self.counted.new_flow_count += 1;
            self.counted.new_flows_len += 1;
            self.new.push_back(&mut self.flows, place);
        }
        self.backlog.packets += 1;
        self.backlog.bytes.0 += len.0;
        self.memory += packets.memory_for(len).0;
        if self.lengths.is_live() {
            self.lengths.changed(&mut self.flows, place);
        }
    }

    #[cold]
    fn discard(&mut self, packets: &mut Packets, id: PacketId, reason: DropReason) {
        self.stats.drops += 1;
        packets.discard(id, reason);
    }

    #[inline]
    fn sent(&mut self, packets: &Packets, id: PacketId) {
        self.stats.sent_packets += 1;
        self.stats.sent_bytes += packets.len(id).0;
    }

    fn figures(&self) -> Figures {
        Figures { signals: self.signals, memory_used: self.memory, ..self.counted }
    }
}

impl Qdisc for FqCodel {
    fn reading(&self) -> Reading {
        Config::READING
    }

    #[inline]
    fn enqueue(&mut self, packets: &mut Packets, id: PacketId, _now: Nanos) -> Verdict {
        let place = self.place(packets, id);
        if self.flows[place as usize].queue.backlog().packets > packets.spare_frames() {
            self.discard(packets, id, DropReason::NoFrame);
            return Verdict::Dropped;
        }
        self.push(packets, id, place);
        if self.is_full() {
            self.drop_batch(packets);
            return Verdict::Dropped;
        }
        Verdict::Queued
    }

    fn enqueue_all(&mut self, packets: &mut Packets, ids: &[PacketId], now: Nanos) {
        for &id in ids.iter().take(AHEAD) {
            self.flows.prefetch_bucket(self.key(packets, id));
        }
        for (index, &id) in ids.iter().enumerate() {
            if let Some(&later) = ids.get(index + AHEAD) {
                self.flows.prefetch_bucket(self.key(packets, later));
            }
            if let Some(&soon) = ids.get(index + NEAR) {
                self.prefetch(self.key(packets, soon));
            }
            let _: Verdict = self.enqueue(packets, id, now);
        }
    }

    fn refuse_all(&mut self, packets: &mut Packets, ids: &[PacketId]) {
        self.stats.refuse_all(packets, ids);
    }

    fn dequeue(&mut self, packets: &mut Packets, now: Nanos, out: &mut Batch) -> Next {
        while out.has_room() {
            let Some(id) = self.depart(packets, now) else { return Next::Empty };
            out.push(id);
        }
        if self.backlog.is_empty() { Next::Empty } else { Next::Now }
    }

    #[inline]
    fn dequeue_one(&mut self, packets: &mut Packets, now: Nanos) -> Result<PacketId, Next> {
        self.depart(packets, now).ok_or(Next::Empty)
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn weight(&self) -> Weight {
        Weight::of_flows(self.counted.new_flows_len + self.counted.old_flows_len)
    }

    fn flows(&self) -> Option<u32> {
        Some(self.counted.new_flows_len + self.counted.old_flows_len)
    }

    fn stats(&self, into: &mut Vec<Stats>) {
        let detail = Some(Detail::FqCodel(Box::new(self.figures())));
        into.push(Stats { backlog: self.backlog, detail, ..self.stats.clone() });
    }

    fn retune(&mut self, spec: Spec, _handover: &mut Handover<'_>) {
        let crate::Config::FqCodel(config) = spec.config else {
            panic!("an fq_codel cannot be retuned to {:?}", spec.config)
        };
        self.aqm = config.aqm();
        self.config = config;
    }

    fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        self.drain_one(packets)
    }

    fn adopt(&mut self, packets: &mut Packets, id: PacketId, _now: Nanos) {
        let place = self.place(packets, id);
        self.push(packets, id, place);
    }
}
