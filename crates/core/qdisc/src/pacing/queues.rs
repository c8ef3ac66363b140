//! A pacing qdisc with queue management: every flow has a queue of its own, and only its first
//! packet is in the calendar.
//!
//! Packets that are stamped on arrival wait in one structure in the order of their times. Then it
//! is too late for queue management: a promised time stands, and a flow that exceeds its rate waits
//! for as long as its limit allows. Here a packet gets no time until it is the first of its flow,
//! its *head*. When a head's time has come, CoDel decides by its sojourn time: the head leaves,
//! with or without a mark, or it is dropped, and then the next packet of its flow leaves instead.
//!
//! *Promises*, in addition to those of a [`Pacer`](super::Pacer) (nothing early, nothing more than
//! a slot late if the caller asks, a flow in order and at most two frames of it in a slot):
//! - *The same times.* Without a drop, packets leave when they would under a `Pacer` with the same
//!   parameters: a head's time follows from its predecessor's departure time, not from when the
//!   caller asked.
//! - *A dropped packet uses none of its flow's time.*
//! - *A new rate applies at once* to queued packets, that of the qdisc or one that a filter gave,
//!   without compensation for the past.
//! - *The last packet of a flow is not dropped*, nor one with at most a frame behind it.
//! - *At the limit*, the packet behind the head of one of the longest flows is dropped, not the
//!   arrival; unless every flow has only its head.
//!
//! *The horizon* is checked for the time at which a packet would leave if all before it did; with
//! `horizon_cap` it leaves at the horizon at the latest, once it is the head.
//!
//! Source: `tc-fq(8)` has the queues, RFC 8289 the control law, D. Shan et al., "Fast and Accurate
//! Software Traffic Shaping With Inter-Flow Batching" (ToN 2025) the calendar. Queue management
//! behind the shaper is ours.
//!
//! Cost: on arrival the flow's line and the packet's; at departure two lines of the flow, the
//! packet, and the next one of its flow, which then goes into the calendar. The calendar holds at
//! most one packet per flow. O(1); O(flows) when the rate changes and when the limit is reached.
//!
//! Non-goals: spacing packets to one host (`bundles.rs`), turns between flows without a rate (`fq`,
//! `cake`).

mod departure;
mod flow;
mod table;

use super::account::Account;
use super::stamp::{Moment, Terms};
use super::{Beyond, Calendar, Codel, Config, Figures, Signals, Slot};
use crate::lengths::Lengths;
use crate::{Handover, Next, Qdisc, Spec, Stats, Verdict, Weight, codel};
use flow::{Flow, Head};
use narrows_packet::{Backlog, Batch, DropReason, Paces, PacketId, Packets, Reading};
use narrows_units::{Bytes, Nanos};
use table::Table;

/// How many packets ahead a batch of arrivals touches buckets, and then flows.
const AHEAD: usize = 8;
const NEAR: usize = 4;
/// Heads that are taken at once, so that flows can be touched before they are needed.
const HEADS: usize = 32;
/// Lists by length are given up when this share of the limit is free again.
const RELIEF: u32 = 4;

/// An instance: one queue's.
pub struct Queues<C> {
    config: Config,
    terms: Terms,
    codel: codel::Terms,
    /// Whether it marks what can be marked.
    ecn: bool,
    table: Table,
    lengths: Lengths,
    calendar: C,
    /// Makes an empty one.
    make: fn(&Config) -> C,
    account: Account,
    /// Due heads; empty between calls.
    due: Batch,
    /// Flows with packets.
    standing: u32,
    /// Whether heads have times by terms that hold no longer.
    is_outdated: bool,
    /// The rates by which heads with rates of their own have their times.
    paces: Paces,
    signals: Signals,
}

impl<C: Calendar> Queues<C> {
    /// An instance with `codel` that holds heads in the calendar that `calendar` makes, empty and
    /// as `config` says.
    pub fn new(config: Config, codel: Codel, calendar: fn(&Config) -> C) -> Self {
        Self {
            terms: Terms::new(&config),
            codel: law(&config, codel),
            ecn: codel.ecn,
            table: Table::new(),
            lengths: Lengths::new(),
            calendar: calendar(&config),
            make: calendar,
            config,
            account: Account::new(),
            due: Batch::new(HEADS),
            standing: 0,
            is_outdated: false,
            paces: Paces::default(),
            signals: Signals::default(),
        }
    }

    /// The key of the flow of `id`.
    #[inline]
    fn key(&self, packets: &Packets, id: PacketId) -> u32 {
        self.config.key.of(packets, id)
    }

    /// The flow of `id`, which is new where nothing is known of it.
    #[inline]
    fn flow(&mut self, packets: &Packets, id: PacketId, now: Nanos) -> u32 {
        let key = self.key(packets, id);
        let Self { config, terms, codel, table, .. } = self;
        table.flows.find(key).unwrap_or_else(|| {
            table.add(key, |flow| {
                let terms = terms.of(flow.departure.pace, packets.paces(), config);
                flow.is_at_rest(&terms, codel, now)
            })
        })
    }

    /// Why `flow` may not get more packets at `now`, if so.
    #[inline]
    fn refuses(&self, packets: &Packets, flow: u32, now: Nanos) -> Option<DropReason> {
        let flow = &self.table.flows[flow as usize];
        if let Some(reason) = self.config.refuses(flow.queued(), packets) {
            return Some(reason);
        }
        let horizon = Nanos(now.0.saturating_add(self.config.horizon.0));
        let drops = self.config.beyond == Beyond::Drop;
        let terms = self.terms_after(packets, flow);
        (drops && flow.end(&terms) > Moment::at(horizon)).then_some(DropReason::Horizon)
    }

    /// The terms for the last packet of `flow` that was stamped.
    #[inline]
    fn terms_after(&self, packets: &Packets, flow: &Flow) -> Terms {
        self.terms.of(flow.departure.pace, packets.paces(), &self.config)
    }

    /// Queues `id`, of the flow `at`.
    #[inline]
    fn hold(&mut self, packets: &mut Packets, id: PacketId, at: u32, now: Nanos) {
        let flow = &mut self.table.flows[at as usize];
        let len = packets.len(id);
        self.account.queued(len);
        if flow.stands {
            flow.queue.push_back_of(packets, id, len);
            self.account.figures.throttled += 1;
            if self.lengths.is_live() {
                self.lengths.changed(&mut self.table.flows, at);
            }
            return;
        }
        flow.stands = true;
        self.standing += 1;
        let leaves = self.stamp(packets, at, id, Moment::at(now));
        self.account.figures.throttled += u64::from(leaves > now);
        self.insert(packets, at, id, leaves, now);
    }

    /// Gives `id`, which becomes the head of the flow `at`, its time: no earlier than `since`.
    #[inline]
    fn stamp(&mut self, packets: &Packets, at: u32, id: PacketId, since: Moment) -> Nanos {
        let meta = packets.meta(id);
        let latest = match self.config.beyond {
            Beyond::Drop => Nanos::MAX,
            Beyond::Cap => Nanos(meta.arrival.0.saturating_add(self.config.horizon.0)),
        };
        let (pace, len) = (packets.headers(id).pace, meta.len.0);
        let terms = self.terms.of(pace, packets.paces(), &self.config);
        let last = self.terms_after(packets, &self.table.flows[at as usize]);
        let flow = &mut self.table.flows[at as usize];
        let is_capped = flow.stamp(&last, &Head { terms, len, pace }, since, latest);
        self.account.figures.horizon_caps += u64::from(is_capped);
        flow.departure.at().rounded_up()
    }

    /// Lets `id`, the head of the flow `at`, wait in the calendar until `leaves`.
    #[inline]
    fn insert(&mut self, packets: &mut Packets, at: u32, id: PacketId, leaves: Nanos, now: Nanos) {
        let spacing = if leaves <= now {
            0
        } else {
            let terms = self.terms_after(packets, &self.table.flows[at as usize]);
            terms.spacing(self.account.slot())
        };
        let flow = &mut self.table.flows[at as usize];
        let slot = Slot { at: leaves, behind: flow.slot, spacing };
        flow.settle(self.calendar.insert(packets, id, slot, now));
    }

    /// The head of the flow `at` was sent or dropped: the next packet is the head, and waits.
    #[inline]
    fn follow(&mut self, packets: &mut Packets, at: u32, now: Nanos) {
        let flow = &mut self.table.flows[at as usize];
        let Some(next) = flow.queue.pop_front(packets) else {
            flow.stands = false;
            self.standing -= 1;
            return;
        };
        if self.lengths.is_live() {
            self.lengths.changed(&mut self.table.flows, at);
        }
        let since = Moment::at(packets.meta(next).arrival);
        let leaves = self.stamp(packets, at, next, since);
        self.insert(packets, at, next, leaves, now);
    }

    /// Counts packets sent at `now`.
    #[inline]
    fn count(&mut self, packets: u32, bytes: u64, now: Nanos) {
        self.account.sent(packets, bytes, now);
        if self.lengths.is_live() && self.account.backlog().packets < self.relief() {
            self.lengths.end(&mut self.table.flows);
        }
    }

    /// With fewer packets than this no flow is too long.
    fn relief(&self) -> u32 {
        self.config.limit - self.config.limit / RELIEF
    }

    /// Makes room: drops the packet behind the head of the longest flow. Whether there was any.
    #[cold]
    fn make_room(&mut self, packets: &mut Packets) -> bool {
        if !self.lengths.is_live() {
            self.lengths.begin(&mut self.table.flows);
        }
        let Some(at) = self.lengths.longest() else { return false };
        let queue = &mut self.table.flows[at as usize].queue;
        let Some(id) = queue.pop_front(packets) else { return false };
        self.lengths.changed(&mut self.table.flows, at);
        self.account.left(packets, id);
        self.signals.overlimit += 1;
        self.account.dropped(packets, id, DropReason::Limit);
        true
    }
}

impl<C> Queues<C> {
    /// Forgets what flows have sent whose next packets might leave at `now`.
    fn settle_up(&mut self, now: Nanos) {
        let Self { config, terms, paces, table, .. } = self;
        for flow in table.flows.iter_mut() {
            flow.settle_up(&terms.of(flow.departure.pace, paces, config), now);
        }
    }
}

impl<C: Calendar> Qdisc for Queues<C> {
    fn reading(&self) -> Reading {
        Reading { headers: true, ..Reading::NOTHING }
    }

    #[inline]
    fn enqueue(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        self.refresh(packets, now);
        let flow = self.flow(packets, id, now);
        if let Some(reason) = self.refuses(packets, flow, now) {
            return self.account.dropped(packets, id, reason);
        }
        let is_full = self.account.backlog().packets >= self.config.limit;
        if is_full && !self.make_room(packets) {
            return self.account.dropped(packets, id, DropReason::Limit);
        }
        self.hold(packets, id, flow, now);
        if is_full { Verdict::Dropped } else { Verdict::Queued }
    }

    fn enqueue_all(&mut self, packets: &mut Packets, ids: &[PacketId], now: Nanos) {
        for &id in ids.iter().take(AHEAD) {
            self.table.flows.prefetch_bucket(self.key(packets, id));
        }
        for (index, &id) in ids.iter().enumerate() {
            if let Some(&later) = ids.get(index + AHEAD) {
                self.table.flows.prefetch_bucket(self.key(packets, later));
            }
            if let Some(&soon) = ids.get(index + NEAR) {
                self.table.prefetch(self.key(packets, soon));
            }
            let _: Verdict = self.enqueue(packets, id, now);
        }
    }

    fn refuse_all(&mut self, packets: &mut Packets, ids: &[PacketId]) {
        self.account.refuse_all(packets, ids);
    }

    fn dequeue(&mut self, packets: &mut Packets, now: Nanos, out: &mut Batch) -> Next {
        self.refresh(packets, now);
        let (mut left, mut bytes) = (0, 0);
        while out.has_room() {
            self.due.clear();
            self.due.limit(out.room().min(HEADS));
            self.calendar.release(packets, now, &mut self.due);
            for &head in self.due.as_slice() {
                self.table.prefetch(self.key(packets, head));
            }
            if self.due.is_empty() {
                break;
            }
            for index in 0..self.due.len() {
                let head = self.due.as_slice()[index];
                if let Some(id) = self.release(packets, head, now) {
                    left += 1;
                    bytes += packets.len(id).0;
                    out.push(id);
                }
            }
        }
        self.count(left, bytes, now);
        self.account.taken(out, self.calendar.next(), now)
    }

    fn dequeue_one(&mut self, packets: &mut Packets, now: Nanos) -> Result<PacketId, Next> {
        self.refresh(packets, now);
        let Some(id) = self.take(packets, now) else {
            return Err(self.account.held(self.calendar.next(), now));
        };
        self.count(1, packets.len(id).0, now);
        self.account.gave_one();
        Ok(id)
    }

    fn backlog(&self) -> Backlog {
        self.account.backlog()
    }

    fn weight(&self) -> Weight {
        Weight::of_flows(self.standing)
    }

    fn flows(&self) -> Option<u32> {
        Some(self.standing)
    }

    fn stats(&self, into: &mut Vec<Stats>) {
        let memory = size_of::<Self>() + self.table.flows.memory() + self.calendar.memory();
        let figures = Figures {
            flows: self.table.flows.remembered(),
            throttled_flows: self.standing,
            codel: Some(self.signals),
            memory: Bytes(memory as u64),
            ..self.account.figures
        };
        into.push(self.account.stats(figures));
    }

    fn retune(&mut self, spec: Spec, handover: &mut Handover<'_>) {
        let now = handover.now;
        let crate::Config::Pacing(config) = spec.config else {
            panic!("{:?} cannot be retuned to {:?}", self.config, spec.config)
        };
        let codel = config.codel.unwrap_or_default();
        (self.codel, self.ecn) = (law(&config, codel), codel.ecn);
        let terms = Terms::new(&config);
        if terms != self.terms {
            self.is_outdated = true;
            // A flow without debt at the old rate may be forgotten already, and has no debt at the
            // new one.
            self.settle_up(now);
        }
        (self.terms, self.config) = (terms, config);
    }

    fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        let head = self.calendar.drain(packets)?;
        // This instance is not used again, so its times do not matter.
        let now = packets.meta(head).edt;
        self.account.left(packets, head);
        if let Some(at) = self.table.flows.find(self.key(packets, head)) {
            self.follow(packets, at, now);
        }
        Some(head)
    }

    fn adopt(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) {
        self.account.adopted();
        self.refresh(packets, now);
        let flow = self.flow(packets, id, now);
        self.hold(packets, id, flow, now);
    }
}

/// The law by which `codel` decides where `config` is the rest.
fn law(config: &Config, codel: Codel) -> codel::Terms {
    let Codel { target, interval, .. } = codel;
    codel::Terms { target, interval, frame: u64::from(config.frame) }
}
