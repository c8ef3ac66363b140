//! The course of a run.

use super::flow::Flow;
use super::gate::{Gate, Packet};
use super::outcome::Outcome;
use super::setup::{Scheduler, Setup};
use crate::traffic::seed::hash;
use narrows_units::{Bytes, Nanos, Rate};
use std::collections::VecDeque;

/// When runs begin: shared clocks count from some time before that.
const BEGIN: Nanos = Nanos::from_secs(1);
/// Connections begin at random within so much time of a phase.
const STAGGER: Nanos = Nanos::from_millis(2);
/// How often the engine checks whether a connection starts, or has timed out.
const TICK: Nanos = Nanos::from_micros(500);

pub(super) struct Engine<'a> {
    setup: &'a Setup,
    before: &'a [bool],
    line: Rate,
    now: Nanos,
    gate: Gate,
    /// Those of the first application, then those of the second …
    flows: Vec<Flow>,
    /// On their way, the first to come first: all take as long.
    acks: VecDeque<(Nanos, Packet)>,
    /// The time until which the line is busy.
    busy_until: Nanos,
    /// When queues or the line have something to do.
    pull_at: Nanos,
    tick_at: Nanos,
    phase: usize,
    phase_ends: Nanos,
    measured_from: Nanos,
    dropped: Vec<Packet>,
    outcome: Outcome,
}

impl<'a> Engine<'a> {
    pub(super) fn new(setup: &'a Setup, scheduler: &'a Scheduler) -> Result<Self, String> {
        let app = |(app, it): (usize, &super::App)| (0..it.flows).map(move |_| app);
        let flow = |app| Flow::new(app, setup.frame, setup.time_out);
        let windows = setup.length().0.div_ceil(setup.window.0) as usize;
        let mut engine = Self {
            setup,
            before: &scheduler.before,
            line: scheduler.line.unwrap_or(setup.line),
            now: BEGIN,
            gate: Gate::new(setup, scheduler)?,
            flows: setup.apps.iter().enumerate().flat_map(app).map(flow).collect(),
            acks: VecDeque::new(),
            busy_until: BEGIN,
            pull_at: Nanos::MAX,
            tick_at: BEGIN,
            phase: 0,
            phase_ends: BEGIN,
            measured_from: BEGIN,
            dropped: Vec::new(),
            outcome: Outcome { windows: vec![Bytes::ZERO; windows], ..Outcome::default() },
        };
        engine.begin_phase();
        Ok(engine)
    }

    /// Runs until the end.
    pub(super) fn run(&mut self, tell: &mut dyn FnMut(f64)) {
        let length = self.setup.length().0 as f64;
        loop {
            let ack = self.acks.front().map_or(Nanos::MAX, |(at, _)| *at);
            self.now = ack.min(self.pull_at).min(self.tick_at);
            if self.now >= self.phase_ends {
                self.now = self.phase_ends;
                self.phase += 1;
                if self.phase == self.setup.phases.len() {
                    return;
                }
                self.begin_phase();
            } else if ack == self.now {
                let Some((_, packet)) = self.acks.pop_front() else { return };
                self.flows[packet.flow as usize].acked(packet.transmission, self.now);
                self.send(packet.flow);
            } else if self.pull_at == self.now {
                self.pull();
            } else {
                for flow in 0..self.flows.len() {
                    self.flows[flow].expire(self.now);
                    self.send(flow as u32);
                }
                self.tick_at = self.now + TICK;
                tell((self.now - BEGIN).0 as f64 / length);
            }
        }
    }

    /// The outcome.
    pub(super) fn finish(mut self) -> Outcome {
        self.outcome.books.under_way = self.gate.backlog();
        self.outcome
    }

    fn begin_phase(&mut self) {
        let phase = &self.setup.phases[self.phase];
        for (number, flow) in self.flows.iter_mut().enumerate() {
            let is_sending = flow.start != Nanos::MAX;
            if phase.sends[flow.app] && !is_sending {
                let words = [number as u64, self.phase as u64, 0];
                flow.start = self.now + Nanos(hash(self.setup.seed, words) % STAGGER.0);
            } else if !phase.sends[flow.app] {
                flow.start = Nanos::MAX;
            }
        }
        self.measured_from = self.now + self.setup.settle;
        self.phase_ends = self.now + phase.length;
        self.outcome.bytes.push(vec![Bytes::ZERO; self.setup.apps.len()]);
    }

    /// Lets a connection send what it may.
    fn send(&mut self, number: u32) {
        let (now, frame) = (self.now, self.setup.frame);
        while let Some(transmission) = self.flows[number as usize].send(now) {
            self.outcome.books.sent += 1;
            let packet = Packet { flow: number, transmission };
            let app = self.flows[number as usize].app;
            match &mut self.gate {
                Gate::Driver(driver) => {
                    let (passes, _) = driver.passes(app, app, frame, now);
                    self.flows[number as usize].has_left();
                    self.tail_drop(packet, passes);
                }
                Gate::Departs(departs) => {
                    if !departs.push(packet, app, number, frame, now) {
                        self.dropped.push(packet);
                    }
                }
                Gate::Drops(meters) => {
                    let passes = meters[app].buy(frame, frame, true, now).is_ok();
                    // No more than the tree lets pass ever waits in the host.
                    self.flows[number as usize].has_left();
                    self.tail_drop(packet, passes);
                }
                Gate::Holds { before, .. } if self.before[app] => before.push_back(packet),
                Gate::Holds { queues, .. } => {
                    let class = self.setup.apps[app].class;
                    queues[app].push(packet, class, frame, now, &mut self.dropped);
                }
            }
            for packet in self.dropped.drain(..) {
                self.outcome.books.dropped += 1;
                self.flows[packet.flow as usize].has_left();
            }
        }
        if let Gate::Departs(_) | Gate::Holds { .. } = self.gate {
            self.pull_at = self.pull_at.min(now);
        }
    }

    /// `packet` has arrived at a scheduler without queues.
    fn tail_drop(&mut self, packet: Packet, passes: bool) {
        if !passes {
            self.outcome.books.dropped += 1;
            return;
        }
        self.note_passed(1);
        let waiting = self.line.bytes_in(self.busy_until - self.now);
        if waiting + self.setup.frame > self.setup.buffer {
            self.outcome.books.overflowed += 1;
            return;
        }
        self.leave(packet);
    }

    /// Queues release due packets, and the line takes a packet if it has sent the last one.
    fn pull(&mut self) {
        let passed = self.gate.fill(self.now);
        self.note_passed(passed);
        if self.busy_until <= self.now
            && let Some(packet) = self.gate.take()
        {
            self.leave(packet);
            self.flows[packet.flow as usize].has_left();
            self.send(packet.flow);
        }
        self.pull_at = self.gate.next(self.busy_until).max(self.now);
    }

    /// The scheduler has passed this many packets.
    fn note_passed(&mut self, packets: u64) {
        let window = (self.now - BEGIN).0 / self.setup.window.0;
        if let Some(passed) = self.outcome.windows.get_mut(window as usize) {
            *passed += Bytes(self.setup.frame.0 * packets);
        }
    }

    /// The line sends `packet` after its present backlog.
    fn leave(&mut self, packet: Packet) {
        let frame = self.setup.frame;
        self.busy_until = self.busy_until.max(self.now) + self.line.time_for(frame);
        self.outcome.books.delivered += 1;
        if self.now >= self.measured_from {
            let app = self.flows[packet.flow as usize].app;
            self.outcome.bytes[self.phase][app] += frame;
        }
        self.acks.push_back((self.busy_until + self.setup.round_trip, packet));
    }
}
