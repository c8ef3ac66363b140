//! A pacing qdisc: stamps what comes, and lets it leave when its time has come.
//!
//! One packet after the other gets the time at which its flow may send it (`stamp.rs`) and goes into a
//! calendar, whichever that is. So this is what `carousel`, `eiffel` and `flowbundler` have in common: limits,
//! flows, figures.
//!
//! *What it promises*, over any calendar: nothing leaves before its time, nor later than a
//! slot after it if somebody asks; a flow's packets leave in order, and in no slot more than two frames of
//! them, or what their rate yields in a slot of a structure whose slots are longer. A packet whose time has come
//! already is not rounded to a slot, so a flow that sends little waits for nothing. Flows are the same where
//! their 32-bit hashes are: they have one rate then, and are one flow in everything.
//!
//! *The rate decides on arrival.* Another `maxrate` acts on what comes from then on; what is queued
//! leaves at the time that it was told. What lies beyond the horizon is dropped; where it is to leave at the
//! horizon instead, it does, however much else of its flow does.
//!
//! *What may not leave together.* `flowbundler` keeps packets of a flow apart, or, where it is told so, whatever
//! goes to one host (`bundles.rs`), and those of hosts of which is heard that what goes to them meets on the way
//! (`safeguard.rs`).
//!
//! *A rate for all flows together* is a `tbf`'s above this one: it decides at release, so that of
//! two times the later one counts, and knows the other queues of a port. A flow is on one queue
//! and so has its rate there; a host whose flows come in on several queues has it on each.
//!
//! Source: D. Shan et al., "Fast and Accurate Software Traffic Shaping With Inter-Flow Batching" (ToN
//! 2025); A. Saeed et al., "Carousel: Scalable Traffic Shaping at End Hosts" (SIGCOMM 2017). Limits and their
//! names are those of `tc-fq(8)`.
//!
//! Cost: the packet's line, the flow's half line on arrival and at departure, and the calendar's own. Batches touch
//! flows before they are needed.
//!
//! Non-goals: rates that senders set for themselves, queue management.

use super::bundles::Bundles;
use super::flows::Flows;
use super::stamp::{Bundle, Moment, Terms};
use super::{Beyond, Calendar, Config, Figures, Key, Slot, Structure};
use crate::{Alone, Hearsay, Next, Qdisc, Spec, Stats, Verdict};
use narrows_packet::{Backlog, Batch, DropReason, PacketId, Packets, Reading};
use narrows_units::{Bytes, Nanos};

/// How many packets ahead a batch of arrivals touches flows.
const AHEAD: usize = 8;

/// An instance: one queue's.
pub struct Pacer<C> {
    config: Config,
    terms: Terms,
    bundle: Bundle,
    flows: Flows,
    calendar: C,
    /// By destination, where what goes to one may not leave together.
    bundles: Option<Bundles>,
    backlog: Backlog,
    /// All but the backlog.
    stats: Stats,
    /// All but what others know.
    figures: Figures,
}

impl<C: Calendar> Pacer<C> {
    /// An instance that holds packets in `calendar`, which is empty and as `config` has it, and listens
    /// with `hearsay`, if it does.
    pub fn new(config: Config, hearsay: Option<Box<dyn Hearsay>>, calendar: C) -> Self {
        Self {
            terms: Terms::new(&config),
            bundles: by_destination(&config, hearsay),
            config,
            bundle: Bundle::new(),
            flows: Flows::new(),
            calendar,
            backlog: Backlog::default(),
            stats: Stats::default(),
            figures: Figures::default(),
        }
    }

    /// What tells the flow of `id` apart.
    #[inline]
    fn key(&self, packets: &Packets, id: PacketId) -> u32 {
        self.config.key.of(packets, id)
    }

    /// Stamps `id` and lets it wait for its time; `bounded` is whether limits hold.
    #[inline]
    fn hold(
        &mut self,
        packets: &mut Packets,
        id: PacketId,
        now: Nanos,
        bounded: bool,
    ) -> Result<(), DropReason> {
        let key = self.key(packets, id);
        let len = packets.meta(id).len.0;
        let Self { config, terms, bundle, bundles, flows, calendar, figures, .. } = self;
        let flow = flows.get(key, now);
        if bounded && flow.queued() >= config.flow_limit {
            return Err(DropReason::FlowLimit);
        }
        // Who comes late has not saved up the time since.
        let mut departure = flow.next().max(Moment::at(now));
        let mut at = departure.rounded_up();
        if at <= flow.slot && flow.bytes.saturating_add(len) > terms.allowance {
            // What would be too much for the slot goes behind it, as if it had stood there.
            let behind = terms.after(Moment::at(flow.slot), len);
            departure = behind.max(Moment::at(flow.slot + Nanos(1)));
            at = departure.rounded_up();
        }
        let horizon = Nanos(now.0.saturating_add(config.horizon.0));
        if bounded && at > horizon {
            if config.beyond == Beyond::Drop {
                return Err(DropReason::Horizon);
            }
            figures.horizon_caps += 1;
            (departure, at) = (Moment::at(horizon), horizon);
        }
        figures.throttled += u64::from(at > now);
        let mut spacing = if at <= now { 0 } else { terms.spacing(bundle.power()) };
        if let Some(bundles) = bundles {
            let destination = packets.headers(id).destination;
            let known = config.maxrate.unwrap_or_default();
            if at <= now {
                bundles.came_late(destination, known, now);
            } else {
                spacing = bundles
                    .spacing(destination, known, now)
                    .map_or(spacing, |apart| apart.clamp(terms.spacing(0), spacing));
            }
        }
        let slot = Slot { at, behind: flow.slot, spacing };
        let leaves = calendar.insert(packets, id, slot, now);
        flow.bytes = if leaves == flow.slot { flow.bytes.saturating_add(len) } else { len };
        flow.slot = leaves;
        flow.set_next(terms.after(departure, len));
        let first = flow.push();
        flows.stands(first);
        self.backlog.packets += 1;
        self.backlog.bytes += Bytes(u64::from(len));
        Ok(())
    }

    #[cold]
    fn discard(&mut self, packets: &mut Packets, id: PacketId, reason: DropReason) -> Verdict {
        self.stats.drops += 1;
        match reason {
            DropReason::FlowLimit => self.figures.flow_limit_drops += 1,
            DropReason::Horizon => self.figures.horizon_drops += 1,
            _ => {}
        }
        packets.discard(id, reason);
        Verdict::Dropped
    }

    /// Counts that `id` is here no longer.
    #[inline]
    fn release(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) {
        let key = self.key(packets, id);
        self.flows.left(key);
        if let Some(bundles) = &mut self.bundles {
            let destination = packets.headers(id).destination;
            let meta = packets.meta(id);
            bundles.left(destination, meta.edt, meta.len.into(), now);
            bundles.tell(destination, || packets.acknowledgement(id), now);
        }
        let meta = packets.meta_mut(id);
        // To whoever is above, a time in there would be a meter's.
        meta.edt = Nanos::ZERO;
        let len = Bytes::from(meta.len);
        self.backlog.packets -= 1;
        self.backlog.bytes.0 -= len.0;
    }

    /// When there is something to take.
    fn next(&self, now: Nanos) -> Next {
        self.calendar.next().map_or(Next::Empty, |at| Next::Held(at.max(now)))
    }
}

impl<C: Calendar> Qdisc for Pacer<C> {
    fn reading(&self) -> Reading {
        let echoes = self.bundles.as_ref().is_some_and(Bundles::listens);
        Reading { headers: true, acknowledgements: echoes, echoes, ..Reading::NOTHING }
    }

    fn overhear(&mut self, packets: &Packets, ids: &[PacketId], now: Nanos) {
        let Some(bundles) = &mut self.bundles else { return };
        for &id in ids {
            let source = packets.headers(id).source;
            let is_congested = bundles.hear(source, &packets.acknowledgement(id), now);
            self.figures.congestion += u64::from(is_congested);
        }
    }

    #[inline]
    fn enqueue(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        if self.backlog.packets >= self.config.limit {
            return self.discard(packets, id, DropReason::Limit);
        }
        match self.hold(packets, id, now, true) {
            Ok(()) => Verdict::Queued,
            Err(reason) => self.discard(packets, id, reason),
        }
    }

    fn enqueue_all(&mut self, packets: &mut Packets, ids: &[PacketId], now: Nanos) {
        for &id in ids.iter().take(AHEAD) {
            self.flows.approach(self.key(packets, id));
        }
        for (index, &id) in ids.iter().enumerate() {
            if let Some(&later) = ids.get(index + AHEAD) {
                self.flows.approach(self.key(packets, later));
            }
            let _: Verdict = self.enqueue(packets, id, now);
        }
    }

    fn dequeue(&mut self, packets: &mut Packets, now: Nanos, out: &mut Batch) -> Next {
        let (start, before) = (out.len(), self.backlog);
        self.calendar.release(packets, now, out);
        for &id in &out.as_slice()[start..] {
            self.flows.approach(self.key(packets, id));
        }
        for &id in &out.as_slice()[start..] {
            self.release(packets, id, now);
        }
        let left = before.packets - self.backlog.packets;
        if left > 0 {
            self.stats.sent_packets += u64::from(left);
            self.stats.sent_bytes += (before.bytes - self.backlog.bytes).0;
            self.bundle.count(left, now);
        }
        match (self.backlog.is_empty(), out.has_room()) {
            (true, _) => Next::Empty,
            (false, false) => Next::Now,
            (false, true) => {
                self.stats.overlimits += 1;
                self.next(now)
            }
        }
    }

    fn dequeue_one(&mut self, packets: &mut Packets, now: Nanos) -> Result<PacketId, Next> {
        let Some(id) = self.calendar.pop(packets, now) else {
            self.stats.overlimits += u64::from(!self.backlog.is_empty());
            return Err(self.next(now));
        };
        let before = self.backlog.bytes;
        self.release(packets, id, now);
        self.stats.sent_packets += 1;
        self.stats.sent_bytes += (before - self.backlog.bytes).0;
        self.bundle.count(1, now);
        Ok(id)
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn stats(&self, into: &mut Vec<Stats>) {
        let memory = size_of::<Self>() + self.flows.memory() + self.calendar.memory();
        let figures = Figures {
            flows: self.flows.remembered(),
            throttled_flows: self.flows.standing(),
            memory: Bytes(memory as u64),
            ..self.figures
        };
        let pacing = Some(Box::new(figures));
        into.push(Stats { backlog: self.backlog, pacing, ..self.stats.clone() });
    }

    fn fits(&self, spec: &Spec) -> bool {
        let crate::Config::Pacing(config) = &spec.config else { return false };
        spec.children.is_empty() && config.shape() == self.config.shape()
    }

    fn retune(&mut self, spec: Spec, _now: Nanos) {
        assert!(self.fits(&spec), "{:?} does not fit a {:?}", spec.config, self.config);
        let crate::Config::Pacing(config) = spec.config else { return };
        self.terms = Terms::new(&config);
        if (config.apart, config.safeguard) != (self.config.apart, self.config.safeguard) {
            self.bundles = by_destination(&config, spec.hearsay);
        } else if let (Some(bundles), Some(hearsay)) = (&mut self.bundles, spec.hearsay) {
            bundles.listen_with(hearsay);
        }
        self.config = config;
    }

    fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        let id = self.calendar.drain(packets)?;
        // Nobody will ask this instance for anything again, and what is taken back has not left.
        self.bundles = None;
        self.release(packets, id, Nanos::ZERO);
        Some(id)
    }

    fn adopt(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) {
        let held = self.hold(packets, id, now, false);
        debug_assert_eq!(held, Ok(()), "only limits could say no");
    }
}

/// What is to be known of destinations.
fn by_destination(config: &Config, hearsay: Option<Box<dyn Hearsay>>) -> Option<Bundles> {
    if config.structure != Structure::FlowBundler {
        return None;
    }
    let by_host = config.apart == Key::Hosts;
    let frame = Bytes(u64::from(config.frame));
    let bundles = (by_host || config.safeguard).then(|| Bundles::new(frame, by_host))?;
    if !config.safeguard {
        return Some(bundles);
    }
    Some(bundles.with_safeguard(hearsay.unwrap_or_else(|| Box::new(Alone::default()))))
}
