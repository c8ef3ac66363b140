//! The course of a run.

use super::flow::{Flow, Stamped};
use super::host::Host;
use super::link::Link;
use super::outcome::{Class, Outcome};
use super::packet::{ACK, Kind, Packet};
use super::setup::{Late, Setup, Structure};
use super::sources::Sources;
use super::topology::{Route, Topology};
use super::workload::{self, Plan};
use crate::traffic::seed::hash;
use narrows_packet::{PacketId, Packets};
use narrows_qdisc::pacing::Slot;
use narrows_units::{Nanos, Rate};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Packets that all hosts together can hold: 64 MiB of metadata.
const PACKETS: u32 = 1 << 20;

/// The part of a packet that is not in its metadata while it is held.
#[derive(Clone, Copy)]
struct Held {
    flow: u32,
    transmission: u32,
    len: u32,
}

/// Packets that hosts hold: their metadata, and which numbers are free.
struct Pool {
    packets: Packets,
    held: Vec<Held>,
    free: Vec<PacketId>,
}

impl Pool {
    fn new() -> Self {
        Self { packets: Packets::new(PACKETS), held: Vec::new(), free: Vec::new() }
    }

    /// A number for `held`; none if all are in use.
    fn take(&mut self, held: Held, now: Nanos) -> Option<PacketId> {
        let id = match self.free.pop() {
            Some(id) => id,
            None if (self.held.len() as u32) < PACKETS => {
                self.held.push(held);
                PacketId(self.held.len() as u32 - 1)
            }
            None => return None,
        };
        self.held[id.0 as usize] = held;
        self.packets.arrive(id, held.len, now);
        Some(id)
    }

    /// Returns the packet `id`; its number is free again.
    fn give_back(&mut self, id: PacketId) -> Held {
        self.free.push(id);
        self.held[id.0 as usize]
    }
}

/// A network in a run.
pub(super) struct Engine<'a> {
    setup: &'a Setup,
    now: Nanos,
    /// Links, then hosts, then the agenda.
    sources: Sources,
    links: Vec<Link>,
    hosts: Vec<Host>,
    pool: Pool,
    plans: Vec<Plan>,
    /// By flow, there and back.
    routes: Vec<[Route; 2]>,
    /// Those that have begun and are not complete.
    flows: Vec<Option<Box<Flow>>>,
    /// Flows that have begun.
    begun: usize,
    /// Flows that are complete.
    complete: usize,
    /// When a flow may have waited long enough for an acknowledgement.
    deadlines: BinaryHeap<Reverse<(Nanos, u32)>>,
    batch: Vec<PacketId>,
    outcome: Outcome,
}

impl<'a> Engine<'a> {
    pub(super) fn new(setup: &'a Setup, structure: Structure) -> Self {
        let patterns = workload::patterns(&setup.traffic, setup.topology.hosts(), setup.seed);
        let plans = workload::plan(&setup.traffic, &setup.topology, &patterns, setup.seed);
        Self::with_plans(setup, structure, plans)
    }

    /// The fabric of `setup` with other flows, in the order of their starts.
    pub(super) fn with_plans(setup: &'a Setup, structure: Structure, plans: Vec<Plan>) -> Self {
        let Setup { topology, traffic, seed, .. } = setup;
        let links = topology.links();
        let patterns = workload::patterns(traffic, topology.hosts(), *seed);
        let count = topology.hosts();
        let host = |pattern| Host::new(pattern, structure.calendar(), structure.bundles(count));
        let hosts: Vec<Host> = patterns.into_iter().map(host).collect();
        let route = |(flow, plan): (u64, &Plan)| {
            let there = topology.route(plan.from, plan.to, hash(*seed, [flow, 0, 0]));
            [there, topology.route(plan.to, plan.from, hash(*seed, [flow, 1, 0]))]
        };
        let mut engine = Self {
            setup,
            now: Nanos::ZERO,
            sources: Sources::new(links.len() + hosts.len() + 1),
            links,
            hosts,
            pool: Pool::new(),
            routes: (0..).zip(&plans).map(route).collect(),
            flows: plans.iter().map(|_| None).collect(),
            plans,
            begun: 0,
            complete: 0,
            deadlines: BinaryHeap::new(),
            batch: Vec::new(),
            outcome: Outcome::default(),
        };
        engine.set_agenda();
        engine
    }

    /// Runs until nothing happens any more: all flows are complete.
    ///
    /// # Errors
    /// If hosts hold more packets than there can be.
    pub(super) fn run(&mut self, progress: &mut dyn FnMut(f64)) -> Result<(), String> {
        let mut reported = 0;
        while let Some((at, source)) = self.sources.next() {
            debug_assert!(at >= self.now, "{at} comes after {}", self.now);
            self.now = at;
            self.outcome.events += 1;
            if source < self.links.len() {
                self.arrive(source)?;
            } else if let host = source - self.links.len()
                && host < self.hosts.len()
            {
                self.look(host)?;
            } else {
                self.begin_and_expire()?;
            }
            if self.complete == self.plans.len() {
                // Time-outs of complete flows are ignored.
                break;
            }
            if self.complete * 1000 / self.plans.len() > reported {
                reported = self.complete * 1000 / self.plans.len();
                progress(reported as f64 / 1000.0);
            }
        }
        Ok(())
    }

    /// The outcome.
    pub(super) fn finish(mut self) -> Outcome {
        for host in &self.hosts {
            let batches = &mut self.outcome.batches[host.pattern as usize];
            batches.batches += host.batches;
            batches.packets += host.packets;
            self.outcome.books.under_way += u64::from(host.held());
        }
        for link in &self.links {
            self.outcome.marked += link.marked;
            self.outcome.books.under_way += link.data_under_way();
        }
        self.outcome.end = self.now;
        self.outcome
    }

    /// A packet arrives at the end of `link`: on to the next, or to its host.
    fn arrive(&mut self, link: usize) -> Result<(), String> {
        let Some(mut packet) = self.links[link].arrive() else { return Ok(()) };
        self.sources.set(link, self.links[link].next_at());
        packet.hop += 1;
        let is_data = matches!(packet.kind, Kind::Data { .. });
        let [there, back] = &self.routes[packet.flow as usize];
        match (if is_data { there } else { back }).link(packet.hop) {
            Some(next) => {
                let is_dropped = self.forward(next, packet).is_none();
                self.outcome.books.dropped += u64::from(is_dropped && is_data);
            }
            None => match packet.kind {
                Kind::Data { marked } => {
                    self.outcome.books.delivered += 1;
                    let first = back.link(0);
                    let kind = Kind::Ack { marked, delivered: self.now };
                    let ack = Packet { len: ACK, hop: 0, kind, ..packet };
                    if let Some(first) = first {
                        self.forward(first, ack);
                    }
                }
                Kind::Ack { marked, delivered } => {
                    self.hear(packet.flow, packet.transmission, marked, delivered)?;
                }
            },
        }
        Ok(())
    }

    /// Passes `packet` to `link`. Returns when it has left; `None` if it was dropped.
    #[inline]
    fn forward(&mut self, link: usize, packet: Packet) -> Option<Nanos> {
        let left = self.links[link].send(packet, self.now)?;
        if self.sources.get(link) == Nanos::MAX {
            self.sources.set(link, self.links[link].next_at());
        }
        Some(left)
    }

    /// The sender receives an acknowledgement.
    fn hear(
        &mut self,
        number: u32,
        transmission: u32,
        marked: bool,
        delivered: Nanos,
    ) -> Result<(), String> {
        let Some(flow) = &mut self.flows[number as usize] else { return Ok(()) };
        flow.sender.acked(transmission, marked, self.now);
        if !flow.sender.is_complete() {
            return self.send(number);
        }
        let Plan { start, bytes, pattern, .. } = flow.plan;
        let completion = &mut self.outcome.completions[pattern as usize][Class::of(bytes) as usize];
        completion.add(delivered.since(start));
        self.hosts[flow.plan.from as usize].flows -= 1;
        self.flows[number as usize] = None;
        self.complete += 1;
        Ok(())
    }

    /// A connection's equal share of the line of `host`.
    fn share(&self, host: usize) -> Rate {
        let line = self.setup.topology.downlink.bytes_per_sec();
        Rate::from_bytes_per_sec(line / u64::from(self.hosts[host].flows.max(1)))
    }

    /// Lets a flow send what it may.
    fn send(&mut self, number: u32) -> Result<(), String> {
        let Plan { from, to, .. } = self.plans[number as usize];
        let from = from as usize;
        let share = self.setup.traffic.shared.then(|| self.share(from));
        let Some(flow) = &mut self.flows[number as usize] else { return Ok(()) };
        let mut is_any = false;
        while let Some(stamped) = flow.send(self.now, share) {
            let Stamped { transmission, len, departure, spacing } = stamped;
            let held = Held { flow: number, transmission, len };
            let id = self.pool.take(held, self.now).ok_or_else(|| {
                format!("hosts hold more than {PACKETS} packets: a smaller load, or fewer flows")
            })?;
            let late = match self.setup.late {
                Late::NextSlot => self.now + Nanos(1),
                Late::AtOnce => Nanos::ZERO,
            };
            let host = &mut self.hosts[from];
            let spacing = host.spacing(to, departure, spacing, self.now);
            let slot = Slot { at: departure.max(late), behind: flow.behind, spacing };
            flow.behind = host.hold(&mut self.pool.packets, id, slot, self.now);
            self.outcome.books.sent += 1;
            is_any = true;
        }
        if is_any {
            self.set_host(from);
        }
        Ok(())
    }

    /// A host's device has sent something, or its calendar has something that is due.
    fn look(&mut self, host: usize) -> Result<(), String> {
        while let Some(number) = self.hosts[host].device.sent(self.now) {
            if let Some(flow) = &mut self.flows[number as usize] {
                flow.has_left();
                self.send(number)?;
            }
        }
        let mut batch = std::mem::take(&mut self.batch);
        self.hosts[host].take_due(&mut self.pool.packets, self.now, &mut batch);
        for id in batch.drain(..) {
            let slot = self.pool.packets.meta(id).edt;
            let Held { flow, transmission, len } = self.pool.give_back(id);
            self.hosts[host].left(self.plans[flow as usize].to, slot, len, self.now);
            let kind = Kind::Data { marked: false };
            let packet = Packet { flow, transmission, len, hop: 0, kind };
            // A host's own line takes everything.
            if let Some(first) = self.routes[flow as usize][0].link(0)
                && let Some(left) = self.forward(first, packet)
            {
                self.hosts[host].device.give(flow, left);
            }
        }
        self.batch = batch;
        self.set_host(host);
        Ok(())
    }

    fn set_host(&mut self, host: usize) {
        self.sources.set(self.links.len() + host, self.hosts[host].next_at(self.now));
    }

    /// Starts due flows, and handles time-outs.
    fn begin_and_expire(&mut self) -> Result<(), String> {
        while let Some(&plan) = self.plans.get(self.begun)
            && plan.start <= self.now
        {
            let number = self.begun;
            self.begun += 1;
            let [there, back] = &self.routes[number];
            let round_trip = Topology::round_trip(&self.links, there, back);
            let flow = Flow::new(plan, round_trip, self.setup.traffic.max_rate);
            self.flows[number] = Some(Box::new(flow));
            self.hosts[plan.from as usize].flows += 1;
            self.send(number as u32)?;
            self.watch(number as u32);
        }
        while let Some(&Reverse((at, number))) = self.deadlines.peek()
            && at <= self.now
        {
            self.deadlines.pop();
            if let Some(flow) = &mut self.flows[number as usize] {
                flow.sender.expire(self.now);
                self.send(number)?;
                self.watch(number);
            }
        }
        self.set_agenda();
        Ok(())
    }

    /// Looks at a flow again when it may have waited for too long.
    fn watch(&mut self, number: u32) {
        if let Some(flow) = &self.flows[number as usize] {
            // A flow without packets in flight is held back by its own host, and checked a moment
            // later.
            let at = flow.sender.deadline().max(self.now + Nanos::from_millis(1));
            self.deadlines.push(Reverse((at, number)));
        }
    }

    fn set_agenda(&mut self) {
        let start = self.plans.get(self.begun).map_or(Nanos::MAX, |plan| plan.start);
        let deadline = self.deadlines.peek().map_or(Nanos::MAX, |Reverse((at, _))| *at);
        self.sources.set(self.links.len() + self.hosts.len(), start.min(deadline));
    }
}
