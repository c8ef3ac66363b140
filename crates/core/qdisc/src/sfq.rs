//! `sfq`: flows take turns, and the longest loses.
//!
//! The hash of a packet's headers chooses one of `divisor` places: its flow. Flows with packets
//! take turns by deficit round robin. When there are too many packets, one of the longest flow is
//! dropped: the last, or with `headdrop` the first. Two flows that hash to one place are treated as
//! one. `perturb` limits how long: it changes the hash now and then, and sorts the queued packets
//! anew, each flow in order.
//!
//! *Limits* are each queue's of the port: `limit` packets, `flows` flows with packets at once,
//! `depth` packets of a flow.
//!
//! Source: P. McKenney, "Stochastic Fairness Queueing" (INFOCOM 1990); `tc-sfq(8)`
//! (`net/sched/sch_sfq.c`). It differs in this: of flows with more than eight packets the longest
//! is known within a fifth, and nothing is dropped when places are drawn anew.
//!
//! Cost: a flow is a cache line, found through one bucket. To drop the last packet of a flow costs
//! O(`depth`). Memory: 4 bytes for each of `divisor`, 64 for each flow that has packets, which
//! grows by doubling.
//!
//! Non-goals: RED within flows (`redflowlimit`), queue management (`fq_codel`).

mod config;
mod flow;

use crate::flow_table::FlowTable;
use crate::lengths::Lengths;
use crate::rotation::Rotation;
use crate::{Handover, Next, Qdisc, Spec, Stats, Verdict, Weight};
use flow::Flow;
use narrows_packet::{Backlog, Batch, DropReason, Fifo, PacketId, Packets, Reading};
use narrows_units::Nanos;

pub use config::{Config, DEPTH_MAX, DIVISOR_MAX};

/// Lists by length are given up when this share of the limit is free again.
const RELIEF: u32 = 4;
/// 2^32 divided by the golden ratio: the step between hash keys.
const STEP: u32 = 0x9e37_79b1;

/// An instance: one queue's.
pub(crate) struct Sfq {
    config: Config,
    flows: FlowTable<Flow>,
    rotation: Rotation,
    lengths: Lengths,
    /// The key that is mixed into hashes.
    salt: u32,
    /// When the hash changes next.
    perturbs_at: Nanos,
    backlog: Backlog,
    /// All but the backlog.
    stats: Stats,
}

impl Sfq {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            flows: FlowTable::new(config.divisor),
            rotation: Rotation::EMPTY,
            lengths: Lengths::new(),
            salt: 0,
            perturbs_at: Nanos::ZERO,
            backlog: Backlog::default(),
            stats: Stats::default(),
            config,
        }
    }

    /// The place of the flow of `id`.
    #[inline]
    fn key(&self, packets: &Packets, id: PacketId) -> u32 {
        let mixed = (packets.headers(id).flow ^ self.salt).wrapping_mul(STEP);
        ((u64::from(mixed) * u64::from(self.config.divisor)) >> u32::BITS) as u32
    }

    /// Changes the hash if it is time.
    #[inline]
    fn perturb(&mut self, packets: &mut Packets, now: Nanos) {
        if self.config.perturb == Nanos::ZERO || now < self.perturbs_at {
            return;
        }
        let is_first = self.perturbs_at == Nanos::ZERO;
        self.perturbs_at = now + self.config.perturb;
        if !is_first {
            self.draw_anew(packets);
        }
    }

    #[cold]
    fn draw_anew(&mut self, packets: &mut Packets) {
        let mut queued = Fifo::new();
        while let Some(place) = self.rotation.front() {
            while let Some(id) = self.flows[place as usize].queue.pop_front(packets) {
                queued.push_back(packets, id);
            }
            self.rest(place);
        }
        self.backlog = Backlog::default();
        self.salt = self.salt.wrapping_add(STEP);
        while let Some(id) = queued.pop_front(packets) {
            self.take_in(packets, id);
        }
    }

    /// Queues `id`, regardless of the limits.
    fn take_in(&mut self, packets: &mut Packets, id: PacketId) {
        let key = self.key(packets, id);
        let place = self.flows.find(key).unwrap_or_else(|| self.begin(key));
        self.push(packets, id, place);
    }

    /// A flow that gets its first packet.
    fn begin(&mut self, key: u32) -> u32 {
        let place = self.flows.add(Flow::new(key, self.config.quantum));
        self.rotation.push_back(&mut self.flows, place);
        place
    }

    /// Puts `id` at the end of the flow at `place`.
    #[inline]
    fn push(&mut self, packets: &mut Packets, id: PacketId, place: u32) {
        let len = packets.len(id);
        self.flows[place as usize].queue.push_back_of(packets, id, len);
        self.backlog.packets += 1;
        self.backlog.bytes.0 += len.0;
        self.changed(place);
    }

    #[inline]
    fn changed(&mut self, place: u32) {
        if self.lengths.is_live() {
            self.lengths.changed(&mut self.flows, place);
        }
    }

    /// The current flow, at `place`, has no packets any more: it is forgotten.
    fn rest(&mut self, place: u32) {
        self.rotation.pop_front(&mut self.flows);
        self.changed(place);
        self.flows.forget(place);
    }

    /// `id` is no longer queued.
    #[inline]
    fn left(&mut self, packets: &Packets, id: PacketId) {
        self.backlog.packets -= 1;
        self.backlog.bytes.0 -= packets.len(id).0;
    }

    /// Drops a packet of the longest flow.
    #[cold]
    fn make_room(&mut self, packets: &mut Packets) {
        if !self.lengths.is_live() {
            self.lengths.begin(&mut self.flows);
        }
        let Some(place) = self.lengths.longest() else { return };
        let Some(id) = self.flows[place as usize].drop_one(packets, self.config.headdrop) else {
            return;
        };
        self.changed(place);
        self.left(packets, id);
        self.discard(packets, id, DropReason::Limit);
    }

    #[cold]
    fn discard(&mut self, packets: &mut Packets, id: PacketId, reason: DropReason) -> Verdict {
        self.stats.drops += 1;
        packets.discard(id, reason);
        Verdict::Dropped
    }

    /// Takes out the packet that leaves next.
    #[inline]
    fn depart(&mut self, packets: &mut Packets, now: Nanos) -> Option<PacketId> {
        self.perturb(packets, now);
        if self.lengths.is_live()
            && self.backlog.packets <= self.config.limit - self.config.limit / RELIEF
        {
            self.lengths.end(&mut self.flows);
        }
        loop {
            let place = self.rotation.front()?;
            let flow = &mut self.flows[place as usize];
            if flow.allot <= 0 {
                flow.allot += i64::from(self.config.quantum);
                self.rotation.pop_front(&mut self.flows);
                self.rotation.push_back(&mut self.flows, place);
                continue;
            }
            let id = self.pop(packets, place);
            if let Some(id) = id {
                self.stats.sent_packets += 1;
                self.stats.sent_bytes += packets.len(id).0;
                return Some(id);
            }
        }
    }

    /// Takes out the first packet of the current flow, at `place`; `None` if all its packets were
    /// dropped.
    #[inline]
    fn pop(&mut self, packets: &mut Packets, place: u32) -> Option<PacketId> {
        let flow = &mut self.flows[place as usize];
        let id = flow.queue.pop_front(packets);
        if let Some(id) = id {
            flow.allot -= i64::from(packets.meta(id).len.0);
            self.left(packets, id);
        }
        if self.flows[place as usize].queue.front().is_none() {
            self.rest(place);
        } else {
            self.changed(place);
        }
        id
    }
}

impl Qdisc for Sfq {
    fn reading(&self) -> Reading {
        Config::READING
    }

    #[inline]
    fn enqueue(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        self.perturb(packets, now);
        let key = self.key(packets, id);
        let place = match self.flows.find(key) {
            Some(place) => place,
            None if self.flows.remembered() >= self.config.flows => {
                return self.discard(packets, id, DropReason::Limit);
            }
            None => self.begin(key),
        };
        let queued = self.flows[place as usize].queue.backlog().packets;
        if queued > packets.spare_frames() {
            return self.discard(packets, id, DropReason::NoFrame);
        }
        if queued >= self.config.depth {
            let mut dropped = id;
            if self.config.headdrop
                && let Some(first) = self.flows[place as usize].queue.pop_front(packets)
            {
                self.left(packets, first);
                self.push(packets, id, place);
                dropped = first;
            }
            return self.discard(packets, dropped, DropReason::FlowLimit);
        }
        self.push(packets, id, place);
        if self.backlog.packets > self.config.limit {
            self.make_room(packets);
            return Verdict::Dropped;
        }
        Verdict::Queued
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

    fn dequeue_one(&mut self, packets: &mut Packets, now: Nanos) -> Result<PacketId, Next> {
        self.depart(packets, now).ok_or(Next::Empty)
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn weight(&self) -> Weight {
        Weight::of_flows(self.flows.remembered())
    }

    fn flows(&self) -> Option<u32> {
        Some(self.flows.remembered())
    }

    fn stats(&self, into: &mut Vec<Stats>) {
        into.push(Stats { backlog: self.backlog, ..self.stats.clone() });
    }

    fn retune(&mut self, spec: Spec, _handover: &mut Handover<'_>) {
        let crate::Config::Sfq(config) = spec.config else {
            panic!("an sfq cannot be retuned to {:?}", spec.config)
        };
        self.config = config;
        self.perturbs_at = Nanos::ZERO;
    }

    fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        loop {
            let place = self.rotation.front()?;
            if let Some(id) = self.pop(packets, place) {
                return Some(id);
            }
        }
    }

    fn adopt(&mut self, packets: &mut Packets, id: PacketId, _now: Nanos) {
        self.take_in(packets, id);
    }
}
