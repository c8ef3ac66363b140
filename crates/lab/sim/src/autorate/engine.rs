//! The course of a run.

use super::line::{Line, Queue};
use super::outcome::{Delays, Row};
use super::peers::{ASKED_EVERY, CakeAutorate, REFLECTORS};
use super::receiver::{Receiver, Segment};
use super::shaper::Shaper;
use super::{Case, Rules, Setup};
use crate::setup::Control;
use crate::tcp::control;
use crate::tcp::sender::Sender;
use crate::traffic::seed::{Purpose, generator, hash};
use narrows_autorate::{Bounds, Controller, GLANCE, Side, Trip, Turn};
use narrows_units::{Bytes, Nanos, Rate};
use rand::RngExt;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// A full segment in its frame.
const FULL: Bytes = Bytes(1514);
/// A packet of the call, and of a reflector.
const SMALL: Bytes = Bytes(120);
/// How often the call sends.
const CALL: Nanos = Nanos::from_millis(10);
/// How often a connection's round trip is taken, as by `narrows_roundtrip`.
const TIMED_EVERY: Nanos = Nanos::from_millis(10);
/// Flows begin within so much time.
const STAGGER: Nanos = Nanos::from_millis(500);
/// How long the time after a fall is.
const AFTER_FALL: Nanos = Nanos::from_secs(1);

/// A packet.
#[derive(Clone, Copy, Debug)]
enum Packet {
    /// A segment of a connection.
    Data {
        flow: u32,
        segment: u64,
        transmission: u64,
        /// When the acknowledgement left the box that made the sender send it.
        asked: Nanos,
        /// When it left the limit, before the line, if its round trip is taken.
        timed: Option<Nanos>,
    },
    /// A packet of the call, sent then.
    Call(Nanos),
    /// A question to a reflector, sent then.
    Probe(usize, Nanos),
}

impl Packet {
    fn len(&self) -> Bytes {
        if matches!(self, Self::Data { .. }) { FULL } else { SMALL }
    }

    /// The hash of its flow.
    fn flow(&self) -> u32 {
        let number = match self {
            Self::Data { flow, .. } => u64::from(*flow) + 10,
            Self::Call(_) => 1,
            Self::Probe(..) => 2,
        };
        hash(number, [3, 0, 0]) as u32 | 1
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// A flow begins, or may have waited for too long.
    Wake(u32),
    /// A flow hears that this transmission has arrived, by an acknowledgement that left then.
    Ack(u32, u64, Nanos),
    /// A round trip of a flow is over.
    Trip(u32, Nanos),
    /// A receiver has waited for long enough for a second segment.
    Acknowledges(u32),
    /// The call sends.
    Call,
    /// A reflector is asked.
    Ask(usize),
    /// Its answer has come; the one-way delay.
    Answer(usize, Nanos),
    /// The next packets of `coming` are at the box.
    Comes,
    /// The end of a turn of the rules, if it is the one of this number.
    Turn(u64),
    /// The rules look whether the turn has to end.
    Glance,
}

/// When a flow's round trips are taken: one at a time, and not too often.
#[derive(Clone, Copy, Default, Debug)]
struct Timer {
    /// The one that is under way: when its packet left the box.
    awaited: Option<Nanos>,
    /// When the next one may begin.
    next: Nanos,
    /// Whether the first packet after that is left out, as every other time: see
    /// `narrows_roundtrip`.
    skips: bool,
    skips_next: bool,
}

impl Timer {
    /// A packet leaves at `now` whose answer can be timed. Whether it is.
    fn begins(&mut self, now: Nanos, side: Side) -> bool {
        if self.awaited.is_some() || self.next > now {
            return false;
        }
        if std::mem::take(&mut self.skips) && side == Side::Before {
            return false;
        }
        self.skips_next = !self.skips_next;
        self.skips = self.skips_next;
        (self.awaited, self.next) = (Some(now), now + TIMED_EVERY);
        true
    }
}

enum Who {
    Narrows(Box<Controller>),
    Peer(Box<CakeAutorate>),
    Nobody,
}

/// Called each turn, see [`super::observe`].
type Each<'a> = &'a mut dyn FnMut(Nanos, Rate, Rate, Nanos);

pub(super) struct Engine<'a> {
    setup: &'a Setup,
    side: Side,
    line: &'a Line,
    now: Nanos,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    /// So that events of one moment keep their order.
    number: u64,
    flows: Vec<Sender>,
    receivers: Vec<Receiver>,
    timers: Vec<Timer>,
    shaper: Shaper<Packet>,
    queue: Queue<'a, Packet>,
    /// On their way to the box.
    coming: std::collections::VecDeque<Packet>,
    who: Who,
    /// Lost in the line and not sent again yet.
    lost: BTreeSet<(u32, u64)>,
    turns: u64,
    /// Since the last turn.
    trips: Vec<Trip>,
    arrived: Bytes,
    sent: Bytes,
    segments: u64,
    lost_again: u64,
    /// Results.
    carried: Bytes,
    delays: Delays,
    after_falls: Delays,
    falls: Vec<Nanos>,
    newest: Nanos,
    changes: u64,
    each: Option<Each<'a>>,
}

impl<'a> Engine<'a> {
    pub(super) fn new(setup: &'a Setup, case: &Case) -> Result<Self, String> {
        let line = setup.lines.get(case.line).ok_or("there is no such line")?;
        let begin = match case.rules {
            Rules::Least => setup.least,
            Rules::Most => setup.most,
            _ => setup.usual,
        };
        let words = match case.side {
            Side::Before => "besteffort",
            Side::Behind => "besteffort ingress",
        };
        let bounds = Bounds::new(setup.least, setup.usual, setup.most)
            .ok_or("write least, usual and most in this order")?;
        let who = match case.rules {
            Rules::Narrows => Who::Narrows(Box::new(Controller::new(case.side, bounds))),
            Rules::CakeAutorate => {
                Who::Peer(Box::new(CakeAutorate::new([setup.least, setup.usual, setup.most])))
            }
            Rules::Least | Rules::Most => Who::Nobody,
        };
        let mut engine = Self {
            setup,
            side: case.side,
            line,
            now: Nanos::ZERO,
            events: BinaryHeap::new(),
            number: 0,
            flows: (0..setup.flows)
                .map(|_| Sender::new(control::new(Control::Cubic), false))
                .collect(),
            receivers: vec![Receiver::default(); setup.flows as usize],
            timers: vec![Timer::default(); setup.flows as usize],
            shaper: Shaper::new(words, begin)?,
            queue: Queue::new(line, setup.buffer),
            coming: std::collections::VecDeque::new(),
            who,
            lost: BTreeSet::new(),
            turns: 0,
            trips: Vec::new(),
            arrived: Bytes::ZERO,
            sent: Bytes::ZERO,
            segments: 0,
            lost_again: 0,
            carried: Bytes::ZERO,
            delays: Delays::new(),
            after_falls: Delays::new(),
            falls: line.falls(setup.settle, setup.length),
            newest: Nanos::ZERO,
            changes: 0,
            each: None,
        };
        let mut chance = generator(setup.seed, 0, Purpose::Starts, 0);
        for flow in 0..setup.flows {
            engine.at(Nanos(chance.random_range(0..STAGGER.0)), Event::Wake(flow));
        }
        engine.at(CALL, Event::Call);
        engine.at(ASKED_EVERY, Event::Ask(0));
        // Not at the moments at which the line changes.
        engine.at(Nanos(chance.random_range(0..setup.turn.0)), Event::Turn(0));
        engine.at(Nanos(chance.random_range(0..GLANCE.0)), Event::Glance);
        Ok(engine)
    }

    pub(super) fn observe(&mut self, each: Each<'a>) {
        self.each = Some(each);
    }

    fn at(&mut self, at: Nanos, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, event)));
    }

    pub(super) fn run(mut self, tell: &mut dyn FnMut(f64)) -> Result<Row, String> {
        let end = self.setup.length;
        let mut told = 0;
        loop {
            let event_at = self.events.peek().map_or(Nanos::MAX, |Reverse((at, ..))| *at);
            let next = event_at.min(self.shaper.next_at()).min(self.queue.next_at());
            if next >= end {
                break;
            }
            self.now = self.now.max(next);
            if self.queue.next_at() <= self.now {
                self.leaves_line();
            } else if event_at <= self.now {
                if let Some(Reverse((_, _, event))) = self.events.pop() {
                    self.act(event)?;
                }
            } else if let Some((packet, len)) = self.shaper.dequeue(self.now) {
                self.passes_limit(packet, len);
            }
            let part = self.now.0 * 20 / end.0.max(1);
            if part > told {
                told = part;
                tell(part as f64 / 20.0);
            }
        }
        Ok(self.finish())
    }

    fn finish(self) -> Row {
        let (from, to) = (self.setup.settle, self.setup.length);
        let seconds = (to - from).as_secs_f64().max(1e-9);
        Row {
            used: self.carried.0 as f64 * 8.0 / self.line.capacity(from, to).max(1.0),
            p50_ms: self.delays.percentile_ms(50.0).unwrap_or_default(),
            p99_ms: self.delays.percentile_ms(99.0).unwrap_or_default(),
            fall_p50_ms: self.after_falls.percentile_ms(50.0),
            fall_p99_ms: self.after_falls.percentile_ms(99.0),
            changes_s: self.changes as f64 / seconds,
        }
    }

    /// From a server to the box; all of the return path's time is there, too.
    fn way(&self) -> Nanos {
        Nanos(self.setup.rtt.0 / 2)
    }

    fn act(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Wake(flow) => {
                self.flows[flow as usize].expire(self.now);
                self.sends(flow, self.now - self.way());
                let next = self.flows[flow as usize].deadline().max(self.now + CALL);
                self.at(next, Event::Wake(flow));
            }
            Event::Ack(flow, transmission, left) => {
                self.flows[flow as usize].acked(transmission as u32, false, self.now);
                self.sends(flow, left);
            }
            Event::Trip(flow, time) => {
                self.timers[flow as usize].awaited = None;
                self.trips.push(Trip { path: flow.into(), flow, time });
            }
            Event::Acknowledges(flow) => {
                let segments = self.receivers[flow as usize].expires(self.now);
                self.acknowledge(flow, &segments);
            }
            Event::Call => {
                self.offer(Packet::Call(self.now));
                self.at(self.now + CALL, Event::Call);
            }
            Event::Ask(reflector) => {
                if matches!(self.who, Who::Peer(_)) {
                    self.offer(Packet::Probe(reflector, self.now));
                    let next = (reflector + 1) % REFLECTORS;
                    self.at(self.now + ASKED_EVERY, Event::Ask(next));
                }
            }
            Event::Answer(reflector, delay) => {
                if let Who::Peer(peer) = &mut self.who {
                    let rate = peer.answer(reflector, delay, self.now);
                    self.set(rate)?;
                }
            }
            Event::Comes => {
                if let Some(packet) = self.coming.pop_front() {
                    self.enter_line(packet);
                }
            }
            Event::Turn(number) if number == self.turns => self.turn()?,
            Event::Turn(_) => {}
            Event::Glance => {
                if let Who::Narrows(controller) = &self.who
                    && controller.is_urgent(&self.trips, self.now)
                {
                    self.turn()?;
                }
                self.at(self.now + GLANCE, Event::Glance);
            }
        }
        Ok(())
    }

    /// Lets a flow send what it may.
    fn sends(&mut self, flow: u32, asked: Nanos) {
        while let Some((segment, transmission)) = self.flows[flow as usize].send(self.now) {
            self.offer(Packet::Data { flow, segment, transmission, asked, timed: None });
        }
    }

    /// A packet begins its way: at the limit, or at a server half a round trip before the line.
    fn offer(&mut self, packet: Packet) {
        match self.side {
            Side::Before => self.offer_to_limit(packet),
            Side::Behind => {
                self.coming.push_back(packet);
                self.at(self.now + self.way(), Event::Comes);
            }
        }
    }

    fn offer_to_limit(&mut self, packet: Packet) {
        self.arrived += packet.len();
        self.shaper.enqueue(packet, packet.len(), packet.flow(), self.now);
    }

    /// A packet left the limit.
    fn passes_limit(&mut self, mut packet: Packet, len: Bytes) {
        self.sent += len;
        if let Who::Peer(peer) = &mut self.who {
            peer.passed(len, self.now);
        }
        match self.side {
            Side::Before => {
                if let Packet::Data { flow, segment, timed, .. } = &mut packet {
                    let begins = self.timers[*flow as usize].begins(self.now, self.side);
                    *timed = begins.then_some(self.now);
                    self.segments += 1;
                    self.lost_again += u64::from(self.lost.remove(&(*flow, *segment)));
                }
                self.enter_line(packet);
            }
            Side::Behind => self.arrives(packet),
        }
    }

    fn enter_line(&mut self, packet: Packet) {
        if let Err(Packet::Data { flow, segment, timed, .. }) =
            self.queue.send(packet, packet.len(), self.now)
        {
            self.lost.insert((flow, segment));
            if timed.is_some() {
                self.timers[flow as usize].awaited = None;
            }
        }
    }

    fn leaves_line(&mut self) {
        let Some((len, packet)) = self.queue.take() else { return };
        if self.now >= self.setup.settle {
            self.carried += len;
        }
        match self.side {
            Side::Before => self.arrives(packet),
            Side::Behind => {
                if let Packet::Data { flow, asked, .. } = packet {
                    self.echoes(flow, asked);
                }
                self.offer_to_limit(packet);
            }
        }
    }

    /// Data of `flow` has come with the echo of the acknowledgement that left at `asked`.
    fn echoes(&mut self, flow: u32, asked: Nanos) {
        let timer = &mut self.timers[flow as usize];
        let Some(awaited) = timer.awaited.filter(|awaited| *awaited <= asked) else { return };
        timer.awaited = None;
        // The echo of a later one answers nothing that is awaited.
        if awaited == asked {
            self.trips.push(Trip { path: flow.into(), flow, time: self.now - asked });
        }
    }

    /// The receiver of `flow` acknowledges these segments now.
    fn acknowledge(&mut self, flow: u32, segments: &[Segment]) {
        if segments.is_empty() {
            return;
        }
        let back = self.back();
        for segment in segments {
            self.at(self.now + back, Event::Ack(flow, segment.transmission, self.now));
            // It is known when the acknowledgement is here.
            if let Some(passed) = segment.timed {
                self.at(self.now + back, Event::Trip(flow, self.now + back - passed));
            }
        }
        if self.side == Side::Behind {
            self.timers[flow as usize].begins(self.now, self.side);
        }
    }

    /// From the receiver back to the sender. Behind the line the receiver is near; before it, the
    /// server is half a round trip away.
    fn back(&self) -> Nanos {
        match self.side {
            Side::Before => self.setup.rtt,
            Side::Behind => self.way(),
        }
    }

    /// A packet is where it was to go.
    fn arrives(&mut self, packet: Packet) {
        let is_measured = self.now >= self.setup.settle;
        let constant = match self.side {
            Side::Before => Nanos::ZERO,
            Side::Behind => self.way(),
        };
        match packet {
            Packet::Data { flow, segment, transmission, timed, .. } => {
                let segment = Segment { number: segment, transmission, timed };
                let receiver = &mut self.receivers[flow as usize];
                let before = receiver.deadline();
                let now = receiver.comes(segment, self.now);
                if let Some(at) = receiver.deadline().filter(|_| before.is_none()) {
                    self.at(at, Event::Acknowledges(flow));
                }
                self.acknowledge(flow, &now);
            }
            Packet::Call(sent) => {
                self.newest = self.now - sent - constant;
                if is_measured {
                    self.delays.record(self.newest);
                    let after = self.falls.partition_point(|fall| *fall <= sent);
                    let is_after = after > 0 && sent - self.falls[after - 1] < AFTER_FALL;
                    if is_after {
                        self.after_falls.record(self.newest);
                    }
                }
            }
            Packet::Probe(reflector, sent) => {
                let delay = self.now - sent;
                self.at(self.now + self.back(), Event::Answer(reflector, delay));
            }
        }
    }

    fn turn(&mut self) -> Result<(), String> {
        self.turns += 1;
        self.at(self.now + self.setup.turn, Event::Turn(self.turns));
        let trips = std::mem::take(&mut self.trips);
        let turn = Turn {
            now: self.now,
            arrived: std::mem::take(&mut self.arrived),
            sent: std::mem::take(&mut self.sent),
            backlog: self.shaper.backlog(),
            trips: &trips,
            segments: std::mem::take(&mut self.segments),
            lost: std::mem::take(&mut self.lost_again),
            other_is_held_back: false,
        };
        if let Who::Narrows(controller) = &mut self.who {
            let rate = controller.turn(&turn).rate;
            self.set(rate)?;
        }
        if let Some(each) = &mut self.each {
            each(self.now, self.line.rate_at(self.now), self.shaper.rate(), self.newest);
        }
        Ok(())
    }

    fn set(&mut self, rate: Rate) -> Result<(), String> {
        let is_other = rate != self.shaper.rate();
        self.changes += u64::from(is_other && self.now >= self.setup.settle);
        self.shaper.set(rate, self.now)
    }
}
