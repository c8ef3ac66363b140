//! A pacing qdisc: stamps arrivals, and lets each leave when its time has come.
//!
//! Each packet gets the time at which its flow may send it (`stamp.rs`) and goes into a calendar of
//! any kind. So this is what `carousel`, `eiffel` and `flowbundler` have in common: limits, flows,
//! statistics.
//!
//! *Promises*, over any calendar: no packet leaves before its time, nor more than a slot after it
//! if the caller asks; a flow's packets leave in order, and at most two frames of them in a slot,
//! or what their rate yields in a slot of a structure with longer slots. A packet whose time has
//! already come is not rounded to a slot, so a sparse flow does not wait. Flows with equal 32-bit
//! hashes are one flow, with one rate.
//!
//! *A rate for each flow.* A packet may have a rate that a filter gave it
//! ([`narrows_packet::Paces`]); `maxrate` is the upper bound of all. After a packet its flow waits
//! for as long as that takes at the lower of both, so packets of one flow may have different rates.
//!
//! *A second rate.* Besides that of connections, hosts may have one, or the other way round
//! (`beside.rs`); the latest time counts.
//!
//! *The rate applies on arrival.* A lower rate applies to later arrivals; queued packets leave
//! at the time that they got. A higher one also applies to queued packets (`pacer/renewal.rs`). A
//! packet beyond the horizon is dropped; with `horizon_cap` it leaves at the horizon, however much
//! else of its flow does.
//!
//! *What may not leave together.* `flowbundler` spaces packets of a flow, or with `apart hosts` all
//! packets to one host (`bundles.rs`, `turns.rs`), and packets to congested destinations
//! (`safeguard.rs`).
//!
//! *For a total rate*, put a `tbf` above: it decides at release, so the later of both times counts,
//! and it coordinates with the other queues of a port. A flow is on one queue and has its rate
//! there; a host whose flows arrive on several queues has it on each.
//!
//! Source: D. Shan et al., "Fast and Accurate Software Traffic Shaping With Inter-Flow Batching"
//! (ToN 2025); A. Saeed et al., "Carousel: Scalable Traffic Shaping at End Hosts" (SIGCOMM 2017).
//! Limits and their names are those of `tc-fq(8)`.
//!
//! Cost: the packet's line, the flow's half line on arrival and at departure, and the calendar's
//! own. Batches prefetch flows.
//!
//! Non-goals: rates that senders set for themselves, queue management.

use super::account::Account;
use super::beside::Beside;
use super::bundles::Bundles;
use super::flows::Flows;
use super::stamp::{Moment, Terms};
use super::{Beyond, Calendar, Config, Figures, Key, Slot, Structure};
use crate::acknowledgements::Acknowledgements;
use crate::{Alone, Feedback, Handover, Next, Qdisc, Spec, Stats, Verdict, Weight};
use narrows_packet::{Backlog, Batch, DropReason, Paces, PacketId, Packets, Reading};
use narrows_units::{Bytes, Nanos};

mod renewal;

/// How many packets ahead a batch of arrivals touches flows.
const AHEAD: usize = 8;

/// An instance: one queue's.
pub struct Pacer<C> {
    config: Config,
    terms: Terms,
    flows: Flows,
    /// A second rate, of hosts or connections.
    beside: Option<Beside>,
    calendar: C,
    /// Makes an empty calendar.
    make: fn(&Config) -> C,
    /// Whether what waits has times by a `maxrate` that has risen since.
    is_outdated: bool,
    /// The rates by which packets with rates of their own have their times.
    paces: Paces,
    /// By destination, if packets to one destination may not leave together.
    bundles: Option<Bundles>,
    acknowledgements: Acknowledgements,
    account: Account,
}

impl<C: Calendar> Pacer<C> {
    /// An instance that holds packets in the calendar that `calendar` makes, empty and as `config`
    /// says, and shares congestion feedback through `feedback`, if any.
    pub fn new(
        config: Config,
        feedback: Option<Box<dyn Feedback>>,
        calendar: fn(&Config) -> C,
    ) -> Self {
        Self {
            terms: Terms::new(&config),
            bundles: by_destination(&config, feedback),
            flows: Flows::new(),
            beside: Beside::of(&config),
            calendar: calendar(&config),
            make: calendar,
            is_outdated: false,
            paces: Paces::default(),
            config,
            acknowledgements: Acknowledgements::default(),
            account: Account::new(),
        }
    }

    /// The key of the flow of `id`.
    #[inline]
    fn key(&self, packets: &Packets, id: PacketId) -> u32 {
        self.config.key.of(packets, id)
    }

    /// Stamps `id` and queues it until its time; `bounded` is whether limits apply.
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
        let Self { config, terms, bundles, flows, beside, calendar, account, .. } = self;
        let own = packets.pace(id);
        let slowed = own.and_then(|own| terms.slowed(&own, config));
        let rate = if slowed.is_some() { own.map(|own| own.rate) } else { config.maxrate };
        let terms = slowed.as_ref().unwrap_or(terms);
        let flow = flows.get(key, now);
        if bounded && let Some(reason) = config.refuses(flow.queued(), packets) {
            return Err(reason);
        }
        // A late packet has not saved up the time since.
        let mut departure = flow.next().max(Moment::at(now));
        if let Some(beside) = beside {
            departure = departure.max(beside.earliest(packets, id, now));
        }
        let mut at = departure.rounded_up();
        if at <= flow.slot && flow.bytes.saturating_add(len) > terms.allowance {
            // A packet that would be too much for the slot goes behind it.
            let behind = terms.after(Moment::at(flow.slot), len);
            departure = behind.max(Moment::at(flow.slot + Nanos(1)));
            at = departure.rounded_up();
        }
        let horizon = Nanos(now.0.saturating_add(config.horizon.0));
        if bounded && at > horizon {
            if config.beyond == Beyond::Drop {
                return Err(DropReason::Horizon);
            }
            account.figures.horizon_caps += 1;
            (departure, at) = (Moment::at(horizon), horizon);
        }
        if let Some(beside) = beside {
            beside.accept(packets, id, len, now);
        }
        account.figures.throttled += u64::from(at > now);
        let mut spacing = if at <= now { 0 } else { terms.spacing(account.slot()) };
        if let Some(bundles) = bundles {
            let destination = packets.headers(id).destination;
            let apart = bundles.spacing(destination, rate.unwrap_or_default(), now);
            if at <= now {
                bundles.came_late(destination, now);
            } else {
                spacing = apart.map_or(spacing, |apart| apart.clamp(terms.spacing(0), spacing));
            }
        }
        let slot = Slot { at, behind: flow.slot, spacing };
        let leaves = calendar.insert(packets, id, slot, now);
        flow.bytes = if leaves == flow.slot { flow.bytes.saturating_add(len) } else { len };
        flow.slot = leaves;
        flow.set_next(terms.after(departure, len));
        let first = flow.push();
        flows.stands(first);
        account.queued(Bytes(u64::from(len)));
        Ok(())
    }

    /// Postpones those of `out` from `start` on whose destinations would get too much at once.
    /// Returns whether the turn of one has come already.
    fn postpone(
        &mut self,
        packets: &mut Packets,
        out: &mut Batch,
        start: usize,
        now: Nanos,
    ) -> bool {
        let Self { bundles: Some(bundles), calendar, .. } = self else { return false };
        let mut is_due = false;
        out.retain_from(start, |id| {
            let Some(at) = bundles.postpone(packets, id, now) else { return true };
            calendar.insert(packets, id, Slot::exactly(at), now);
            is_due |= at <= now;
            false
        });
        is_due
    }

    /// `id` leaves.
    #[inline]
    fn release(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) {
        if let Some(bundles) = &mut self.bundles {
            let acknowledgement = || self.acknowledgements.of(packets, id);
            bundles.tell(packets.headers(id).destination, acknowledgement, now);
        }
        self.leave(packets, id);
    }

    /// Takes the packet that would leave next, ignoring its time, out of the calendar.
    fn take_back(&mut self, packets: &mut Packets) -> Option<PacketId> {
        loop {
            let id = self.calendar.drain(packets)?;
            let bundles = self.bundles.as_ref();
            let Some(at) = bundles.and_then(|bundles| bundles.take_back(packets, id)) else {
                return Some(id);
            };
            self.calendar.insert(packets, id, Slot::exactly(at), Nanos::ZERO);
        }
    }

    /// Counts that `id` is here no longer.
    #[inline]
    fn leave(&mut self, packets: &mut Packets, id: PacketId) {
        let key = self.key(packets, id);
        self.flows.left(key);
        self.account.left(packets, id);
    }
}

impl<C: Calendar> Qdisc for Pacer<C> {
    fn reading(&self) -> Reading {
        let echoes = self.bundles.as_ref().is_some_and(Bundles::listens);
        Reading { headers: true, acknowledgements: echoes, echoes, ..Reading::NOTHING }
    }

    fn observe_reverse(&mut self, packets: &Packets, ids: &[PacketId], now: Nanos) {
        let Some(bundles) = &mut self.bundles else { return };
        for &id in ids {
            let source = packets.headers(id).source;
            let is_congested = bundles.hear(source, &packets.acknowledgement(id), now);
            self.account.figures.congestion += u64::from(is_congested);
        }
    }

    #[inline]
    fn enqueue(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        self.refresh(packets, now);
        if self.account.backlog().packets >= self.config.limit {
            return self.account.dropped(packets, id, DropReason::Limit);
        }
        match self.hold(packets, id, now, true) {
            Ok(()) => Verdict::Queued,
            Err(reason) => self.account.dropped(packets, id, reason),
        }
    }

    fn enqueue_all(&mut self, packets: &mut Packets, ids: &[PacketId], now: Nanos) {
        self.refresh_all(packets, now);
        for &id in ids.iter().take(AHEAD) {
            self.flows.prefetch(self.key(packets, id));
        }
        for (index, &id) in ids.iter().enumerate() {
            if let Some(&later) = ids.get(index + AHEAD) {
                self.flows.prefetch(self.key(packets, later));
            }
            let _: Verdict = self.enqueue(packets, id, now);
        }
    }

    fn refuse_all(&mut self, packets: &mut Packets, ids: &[PacketId]) {
        self.account.refuse_all(packets, ids);
    }

    fn dequeue(&mut self, packets: &mut Packets, now: Nanos, out: &mut Batch) -> Next {
        self.refresh_all(packets, now);
        let before = self.account.backlog();
        loop {
            let start = out.len();
            self.calendar.release(packets, now, out);
            let is_due = self.postpone(packets, out, start, now);
            for &id in &out.as_slice()[start..] {
                self.flows.prefetch(self.key(packets, id));
            }
            for &id in &out.as_slice()[start..] {
                self.release(packets, id, now);
            }
            if !is_due {
                break;
            }
        }
        let after = self.account.backlog();
        self.account.sent(before.packets - after.packets, (before.bytes - after.bytes).0, now);
        self.account.taken(out, self.calendar.next(), now)
    }

    fn dequeue_one(&mut self, packets: &mut Packets, now: Nanos) -> Result<PacketId, Next> {
        self.refresh_all(packets, now);
        loop {
            let Some(id) = self.calendar.pop(packets, now) else {
                return Err(self.account.held(self.calendar.next(), now));
            };
            let bundles = self.bundles.as_mut();
            if let Some(at) = bundles.and_then(|bundles| bundles.postpone(packets, id, now)) {
                self.calendar.insert(packets, id, Slot::exactly(at), now);
                continue;
            }
            self.release(packets, id, now);
            self.account.sent(1, packets.len(id).0, now);
            self.account.gave_one();
            return Ok(id);
        }
    }

    fn backlog(&self) -> Backlog {
        self.account.backlog()
    }

    fn weight(&self) -> Weight {
        Weight::of_flows(self.flows.standing())
    }

    fn flows(&self) -> Option<u32> {
        Some(self.flows.standing())
    }

    fn stats(&self, into: &mut Vec<Stats>) {
        let beside = self.beside.as_ref().map_or(0, Beside::memory);
        let memory = size_of::<Self>() + self.flows.memory() + beside + self.calendar.memory();
        let figures = Figures {
            flows: self.flows.remembered(),
            throttled_flows: self.flows.standing(),
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
        let terms = Terms::new(&config);
        self.is_outdated |= terms.is_faster_than(&self.terms);
        self.is_outdated |= Beside::retune(&mut self.beside, &config);
        self.terms = terms;
        if !self.config.safeguard {
            self.acknowledgements.ask(now);
        }
        if (config.apart, config.safeguard) != (self.config.apart, self.config.safeguard) {
            self.bundles = match (by_destination(&config, spec.feedback), self.bundles.take()) {
                (bundles, None) => bundles,
                (Some(bundles), Some(before)) => Some(bundles.following(before)),
                // Packets are no longer spaced, but none overtakes.
                (None, Some(before)) => {
                    Some(Bundles::new(Bytes(u64::from(config.frame)), false).following(before))
                }
            };
        } else if let (Some(bundles), Some(feedback)) = (&mut self.bundles, spec.feedback) {
            bundles.listen_with(feedback);
        }
        self.config = config;
    }

    fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        let id = self.take_back(packets)?;
        self.leave(packets, id);
        Some(id)
    }

    fn adopt(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) {
        Acknowledgements::forget(packets, id);
        self.account.adopted();
        self.refresh(packets, now);
        let held = self.hold(packets, id, now, false);
        debug_assert_eq!(held, Ok(()), "only limits could say no");
    }
}

/// The state of destinations.
fn by_destination(config: &Config, feedback: Option<Box<dyn Feedback>>) -> Option<Bundles> {
    if config.structure != Structure::FlowBundler {
        return None;
    }
    let by_host = config.apart == Key::Hosts;
    let frame = Bytes(u64::from(config.frame));
    let bundles = (by_host || config.safeguard).then(|| Bundles::new(frame, by_host))?;
    if !config.safeguard {
        return Some(bundles);
    }
    Some(bundles.with_safeguard(feedback.unwrap_or_else(|| Box::new(Alone::default()))))
}
