//! The course of a run.

use super::flow::Flow;
use super::host::{Held, Host};
use super::outcome::Outcome;
use super::setup::{Case, Setup};
use crate::fabric::link::Link;
use crate::fabric::packet::{ACK, FULL, Kind, Packet};
use crate::fabric::sources::Sources;
use crate::traffic::seed::{Purpose, generator, hash};
use narrows_units::Nanos;
use rand::RngExt;

/// Flows begin at random within so much time.
const STAGGER: Nanos = Nanos::from_millis(10);
/// How often it is looked whether a flow has waited for too long.
const TICK: Nanos = Nanos::from_millis(1);

/// A network in a run.
pub(super) struct Engine<'a> {
    setup: &'a Setup,
    now: Nanos,
    /// Links, then hosts, then the agenda.
    sources: Sources,
    /// From each sender to the switch, to the receiver, from the receiver, to each sender.
    links: Vec<Link>,
    hosts: Vec<Host>,
    /// Those of the first host, then those of the second …
    flows: Vec<Flow>,
    flows_per_host: u32,
    /// By flow.
    starts: Vec<Nanos>,
    left: Vec<Held>,
    outcome: Outcome,
}

impl<'a> Engine<'a> {
    pub(super) fn new(setup: &'a Setup, case: &Case, seed: u64) -> Result<Self, String> {
        let senders = setup.senders as usize;
        let at_host = setup.propagation + setup.host_delay;
        let from_host = || Link::new(setup.line, at_host, None);
        let to_host = || Link::new(setup.line, at_host, Some(setup.buffer));
        let mut links: Vec<Link> = (0..senders).map(|_| from_host()).collect();
        links.extend([to_host(), from_host()]);
        links.extend((0..senders).map(|_| to_host()));
        let round_trip = links[0].passage(FULL) + links[senders].passage(FULL);
        let round_trip =
            round_trip + links[senders + 1].passage(ACK) + links[senders + 2].passage(ACK);
        let host = |number: u64| Host::new(&case.qdisc, hash(seed, [number, 0, 0]));
        let hosts = (0..u64::from(setup.senders)).map(host).collect::<Result<Vec<_>, _>>()?;
        let flows = senders * case.flows as usize;
        let mut chance = generator(seed, 0, Purpose::Starts, 0);
        let mut sources = Sources::new(links.len() + senders + 1);
        sources.set(links.len() + senders, Nanos::ZERO);
        Ok(Self {
            setup,
            now: Nanos::ZERO,
            sources,
            links,
            hosts,
            flows: (0..flows).map(|_| Flow::new(round_trip)).collect(),
            flows_per_host: case.flows,
            starts: (0..flows).map(|_| Nanos(chance.random_range(0..STAGGER.0))).collect(),
            left: Vec::new(),
            outcome: Outcome::default(),
        })
    }

    /// Runs until the end.
    pub(super) fn run(&mut self) {
        while let Some((at, source)) = self.sources.next()
            && at < self.setup.end()
        {
            self.now = at;
            if source < self.links.len() {
                self.arrive(source);
            } else if let host = source - self.links.len()
                && host < self.hosts.len()
            {
                self.look(host);
            } else {
                self.tick();
            }
        }
    }

    /// The outcome.
    pub(super) fn finish(mut self) -> Outcome {
        for host in &self.hosts {
            self.outcome.books.under_way += u64::from(host.backlog());
            self.outcome.congestion += host.congestion();
        }
        for link in &self.links {
            self.outcome.books.under_way += link.data_under_way();
        }
        self.outcome
    }

    fn is_measured(&self) -> bool {
        self.now >= self.setup.warmup
    }

    fn host_of(&self, flow: u32) -> usize {
        (flow / self.flows_per_host) as usize
    }

    /// A packet arrives at the end of `link`.
    fn arrive(&mut self, link: usize) {
        let Some(packet) = self.links[link].arrive() else { return };
        self.sources.set(link, self.links[link].next_at());
        let senders = self.hosts.len();
        match packet.kind {
            Kind::Data { .. } if link < senders => {
                let is_dropped = self.forward(senders, packet).is_none();
                self.outcome.books.dropped += u64::from(is_dropped);
            }
            Kind::Data { marked } => {
                self.outcome.books.delivered += 1;
                if self.is_measured() {
                    self.outcome.packets += 1;
                    self.outcome.bytes += u64::from(packet.len);
                    self.outcome.marked += u64::from(marked);
                }
                let kind = Kind::Ack { marked, delivered: self.now };
                self.forward(senders + 1, Packet { len: ACK, kind, ..packet });
            }
            Kind::Ack { .. } if link == senders + 1 => {
                self.forward(senders + 2 + self.host_of(packet.flow), packet);
            }
            Kind::Ack { marked, .. } => self.hear(packet.flow, packet.transmission, marked),
        }
    }

    /// Passes `packet` to `link`. Returns when it has left; `None` if it was dropped.
    fn forward(&mut self, link: usize, packet: Packet) -> Option<Nanos> {
        let left = self.links[link].send(packet, self.now)?;
        self.sources.set(link, self.links[link].next_at());
        Some(left)
    }

    /// The sender receives an answer: first its qdisc, then TCP.
    fn hear(&mut self, number: u32, transmission: u32, marked: bool) {
        let host = self.host_of(number);
        let flow = &mut self.flows[number as usize];
        if let Some(stamp) = flow.stamp(transmission) {
            self.hosts[host].hear(number, marked, stamp, self.now);
        }
        flow.sender.acked(transmission, marked, self.now);
        self.send(number);
        self.set_host(host);
    }

    /// Lets a flow send what it may.
    fn send(&mut self, number: u32) {
        let host = self.host_of(number);
        let stamp = self.hosts[host].stamp(self.now);
        let flow = &mut self.flows[number as usize];
        while let Some(transmission) = flow.send(stamp, self.now) {
            self.outcome.books.sent += 1;
            let held = Held { flow: number, transmission };
            if !self.hosts[host].enqueue(held, stamp, self.now) {
                self.outcome.books.dropped += 1;
                flow.has_left();
            }
        }
    }

    /// A host's device has sent something, or its qdisc may have something to send.
    fn look(&mut self, host: usize) {
        while let Some(number) = self.hosts[host].device.sent(self.now) {
            self.flows[number as usize].has_left();
            self.send(number);
        }
        let mut left = std::mem::take(&mut self.left);
        self.hosts[host].take_due(self.now, &mut left);
        if self.is_measured() {
            self.outcome.batches += u64::from(!left.is_empty());
            self.outcome.sent += left.len() as u64;
        }
        for Held { flow, transmission } in left.drain(..) {
            let kind = Kind::Data { marked: false };
            let packet = Packet { flow, transmission, len: FULL, hop: 0, kind };
            // A host's own line takes everything.
            if let Some(at) = self.forward(host, packet) {
                self.hosts[host].device.give(flow, at);
            }
        }
        self.left = left;
        self.set_host(host);
    }

    fn set_host(&mut self, host: usize) {
        self.sources.set(self.links.len() + host, self.hosts[host].next_at());
    }

    /// Starts due flows, and handles time-outs.
    fn tick(&mut self) {
        for number in 0..self.flows.len() {
            let start = self.starts[number];
            if start > self.now {
                continue;
            }
            self.flows[number].sender.expire(self.now);
            self.send(number as u32);
        }
        (0..self.hosts.len()).for_each(|host| self.set_host(host));
        let starts = self.starts.iter().filter(|start| **start > self.now);
        let next = starts.fold(self.now + TICK, |next, start| next.min(*start));
        self.sources.set(self.links.len() + self.hosts.len(), next);
    }
}
