//! Cores, shaper and next hop in virtual time.
//!
//! Everything that happens is an event on one agenda: a core executes a step of its worker,
//! closed-loop traffic acts, a fault begins, the operator changes something. Open-loop traffic
//! needs no events: a worker that polls gets what has arrived by then. Packets sent by a step leave
//! while its core is busy, pass the next hop, and are measured and received at the other end, all
//! in order of time.
//!
//! *Time.* A step begins at `t`, with its core's clock read: `now = t + offset + 1 s`. The core is
//! busy for as long as the cost model says: a step, each packet that leaves (a queued packet is
//! paid for when it leaves), each that is dropped, each cache line of a sibling that is read, each
//! update of the line that all update and the wait for it, each section under the lock that all
//! take and the wait for that. The `k`-th of `n` packets leaves when `k/n` of that has passed.
//!
//! *Races.* Reads and writes of a step take effect at `t + u`, with `u` uniform in 0 to
//! [`Cores::staleness`](crate::setup::Cores::staleness): steps are *executed* in the order of these
//! moments and not of their clocks. So a worker that acts on `now` sees its siblings up to that
//! much later, or they see it: each sees the others as of a bounded, random time ago. Within a step
//! memory does not change: coordination shares single words and locked sections, and `loom` checks
//! those. A core's steps do not overlap: the next one's clock is read when this one has been
//! executed and the core is free again.
//!
//! *Faults.* A core that stalls executes nothing, and reads its clock when it resumes. Packets that
//! it had sent before are with the device and leave.
//!
//! *Conservation.* At the end every offered packet is somewhere ([`Books`]); otherwise the run
//! panics with its seed.
//!
//! *Non-goals.* Several cores per queue or several queues per core; caches beyond those lines; the
//! return path.
//!
//! Cost: an entry in a heap for each step and each act, some comparisons for each packet; nothing
//! is allocated per packet.

mod agenda;
mod clock;
mod core;
mod departures;
pub(crate) mod drain;
mod io;
mod line;
mod lock;
mod next_hop;
mod shaper;
mod slots;

pub(crate) use io::Tally;
pub(crate) use next_hop::Passage;

use self::agenda::{Agenda, Event};
use self::core::{Core, Stepped};
use self::departures::{Departure, Departures};
use self::line::ContendedLine;
use self::lock::Lock;
use self::next_hop::NextHop;
use crate::measure::{Books, Outcome, Recorder};
use crate::setup::{FaultKind, MAX_QUEUES, Setup};
use crate::traffic::{self, ClosedLoop, Delivery, Load, Offer};
use narrows_packet::DropCounters;
use narrows_qdisc::Meter;
use narrows_units::{Bytes, Nanos};
use std::collections::VecDeque;
use std::sync::Arc;

/// The default shortest packet, in bytes.
const SHORTEST: u32 = 60;

/// Why a run cannot be.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The words for the qdisc are refused.
    #[error("{0}")]
    Qdisc(String),
    /// Something else of the setup makes no sense.
    #[error("{0}")]
    Setup(String),
}

/// Runs `setup`. Reports the finished part (0 to 1) to `progress` now and then.
///
/// # Errors
/// If the qdisc's words are refused, or the setup makes no sense.
///
/// # Panics
/// If the books do not add up: that is a bug, and the message has the seed.
pub fn run(setup: &Setup, progress: &mut dyn FnMut(f64)) -> Result<Outcome, SimError> {
    check(setup)?;
    run_with(setup, traffic::load(setup), progress)
}

/// Runs `setup` as [`run`] does, with custom traffic; the traffic of `setup` then only names the
/// groups of `load`.
///
/// # Errors
/// If the qdisc's words are refused, or the setup makes no sense.
///
/// # Panics
/// If the books do not add up, or `load` has not one source for each queue.
pub fn run_with(
    setup: &Setup,
    load: Load,
    progress: &mut dyn FnMut(f64),
) -> Result<Outcome, SimError> {
    check(setup)?;
    let mut engine = Engine::new(setup, load, None)?;
    engine.run(progress);
    Ok(engine.finish())
}

/// Gives queue number `.0` its meter at the port's limit.
pub type Meters<'a> = dyn FnMut(usize) -> Box<dyn Meter> + 'a;

/// Runs `setup` as [`run`] does, with a custom strategy: wherever the words give a queue a meter at
/// a shared limit, it gets one from `meters` instead. The strategy in the words is then unused.
///
/// A meter costs its core no time unless it says how often it touches lines that others write
/// ([`Meter::contact`]).
///
/// # Errors
/// As [`run`], and where `setup` changes its words: such meters would not learn of the new limit.
///
/// # Panics
/// As [`run`].
pub fn run_with_meters(
    setup: &Setup,
    meters: &mut Meters<'_>,
    progress: &mut dyn FnMut(f64),
) -> Result<Outcome, SimError> {
    check(setup)?;
    if !setup.changes.is_empty() {
        return Err(SimError::Setup(
            "Meters of one's own do not learn of a changed limit: leave out `changes`.".into(),
        ));
    }
    let mut engine = Engine::new(setup, traffic::load(setup), Some(meters))?;
    engine.run(progress);
    Ok(engine.finish())
}

fn check(setup: &Setup) -> Result<(), SimError> {
    let refuse = |why: String| Err(SimError::Setup(why));
    let queues = setup.port.queues;
    if !(1..=MAX_QUEUES).contains(&queues) {
        return refuse(format!("A port of {queues} queues: write 1 to {MAX_QUEUES}."));
    }
    if setup.port.rate.is_zero() {
        return refuse(
            "The rate of the port is 0: write the limit that is measured against.".into(),
        );
    }
    if setup.run.length == Nanos::ZERO {
        return refuse("The run has no length: write how long it is measured, as 100ms.".into());
    }
    let fault = setup.faults.iter().find(|fault| fault.queue >= queues);
    if let Some(fault) = fault {
        return refuse(format!(
            "A fault on queue {}: the queues are 0 to {}.",
            fault.queue,
            queues - 1
        ));
    }
    core::check(&setup.cores)
}

/// Closed-loop traffic, and when it acts.
struct Closed {
    traffic: Box<dyn ClosedLoop>,
    acts_at: Nanos,
    appointment: u64,
}

/// A run.
struct Engine<'a> {
    setup: &'a Setup,
    now: Nanos,
    agenda: Agenda,
    cores: Vec<Core>,
    line: ContendedLine,
    lock: Lock,
    departures: Departures,
    next_hop: Option<NextHop>,
    /// Packets of closed-loop traffic in and behind the next hop.
    deliveries: VecDeque<(Nanos, Delivery)>,
    closed: Vec<Closed>,
    /// By flow: its closed-loop traffic, if any.
    closed_of: Vec<Option<usize>>,
    /// Packets that closed-loop traffic has just sent.
    offers: Vec<Offer>,
    /// By change of the setup.
    changes: Vec<shaper::Change>,
    recorder: Recorder,
}

impl<'a> Engine<'a> {
    fn new(
        setup: &'a Setup,
        load: Load,
        meters: Option<&mut Meters<'_>>,
    ) -> Result<Self, SimError> {
        let queues = setup.port.queues;
        let Load { sources, closed, groups, headers } = load;
        assert_eq!(sources.len(), queues, "each queue has a source");
        let mut closed_of = vec![None; groups.len()];
        for (number, (flows, _)) in closed.iter().enumerate() {
            closed_of[flows.start as usize..flows.end as usize].fill(Some(number));
        }
        let recorder = Recorder::new(setup, &groups, closed.iter().map(|(flows, _)| flows));
        let measured = setup.run.warmup..setup.run.end();
        let core = |(number, (shaper, source))| {
            let traffic = (source, Arc::clone(&headers));
            let cores = (&setup.cores, setup.port.sends);
            Core::new(number, shaper, traffic, cores, setup.seed, measured.clone())
        };
        let sizes = setup.traffic.iter().flat_map(|group| &group.sizes);
        let shortest = sizes.map(|(len, _)| *len).min().unwrap_or(SHORTEST);
        let shaper::Port { shapers, changes } =
            shaper::compile(&setup.port, &setup.changes, shortest, meters)?;
        let closed = closed.into_iter().map(|(_, traffic)| Closed {
            traffic,
            acts_at: Nanos::MAX,
            appointment: 0,
        });
        let mut engine = Self {
            setup,
            now: Nanos::ZERO,
            agenda: Agenda::default(),
            cores: shapers.into_iter().zip(sources).enumerate().map(core).collect(),
            line: ContendedLine::default(),
            lock: Lock::new(setup.port.queues),
            departures: Departures::new(queues),
            next_hop: setup.next_hop.as_ref().map(NextHop::new),
            deliveries: VecDeque::new(),
            closed: closed.collect(),
            closed_of,
            offers: Vec::new(),
            changes,
            recorder,
        };
        for (fault, what) in setup.faults.iter().enumerate() {
            engine.agenda.enter(what.at, Event::Fault { fault });
        }
        for (change, what) in setup.changes.iter().enumerate() {
            engine.agenda.enter(what.at, Event::Change { change });
        }
        (0..queues).for_each(|core| engine.enter_step(core));
        (0..engine.closed.len()).for_each(|closed| engine.enter_act(closed));
        Ok(engine)
    }

    fn enter_step(&mut self, core: usize) {
        let appointment = self.cores[core].appointment();
        self.agenda.enter(appointment.at, Event::Step { core, appointment: appointment.number });
    }

    /// Enters when closed-loop traffic acts next, if that has changed.
    fn enter_act(&mut self, number: usize) {
        let closed = &mut self.closed[number];
        let at = closed.traffic.next_at();
        if at != closed.acts_at {
            closed.acts_at = at;
            closed.appointment += 1;
            let appointment = closed.appointment;
            self.agenda.enter(at.max(self.now), Event::Act { closed: number, appointment });
        }
    }

    fn run(&mut self, progress: &mut dyn FnMut(f64)) {
        let end = self.setup.run.end();
        let tick = Nanos((end.0 / 100).max(1));
        let mut next_progress = Nanos::ZERO;
        loop {
            let departure = self.departures.next_at();
            let delivery = self.deliveries.front().map_or(Nanos::MAX, |(at, _)| *at);
            let event = self.agenda.next_at();
            // No event can make a packet leave earlier, so departures come first.
            let now = departure.min(delivery).min(event);
            if now >= end {
                break;
            }
            debug_assert!(now >= self.now, "{now} comes after {}", self.now);
            self.now = now;
            if departure == now {
                self.depart();
            } else if delivery == now {
                self.deliver();
            } else {
                self.happen();
            }
            if now >= next_progress {
                progress(now.0 as f64 / end.0 as f64);
                next_progress = now + tick;
            }
        }
        progress(1.0);
    }

    fn depart(&mut self) {
        let Some(Departure { at, offer, marked }) = self.departures.take() else { return };
        self.recorder.left(at, &offer, marked);
        let (out, marked) = match &mut self.next_hop {
            None => (at, marked),
            Some(next_hop) => {
                let passage = next_hop.arrive(at, Bytes(u64::from(offer.len)), offer.ect);
                self.recorder.passed(at, &offer, &passage);
                let Some((out, here)) = passage.out else { return };
                (out, marked || here)
            }
        };
        self.recorder.came_out(out, &offer);
        if self.closed_of.get(offer.flow as usize).is_some_and(Option::is_some) {
            self.deliveries.push_back((out, Delivery { offer, marked }));
        }
    }

    fn deliver(&mut self) {
        let Some((at, delivery)) = self.deliveries.pop_front() else { return };
        if let Some(number) = self.closed_of[delivery.offer.flow as usize] {
            self.closed[number].traffic.delivered(&delivery, at);
            self.enter_act(number);
        }
    }

    fn happen(&mut self) {
        match self.agenda.take() {
            Some(Event::Step { core, appointment }) => self.step(core, appointment),
            Some(Event::Act { closed, appointment }) => self.act(closed, appointment),
            Some(Event::Fault { fault }) => self.fail(fault),
            Some(Event::Change { change }) => self.change(change),
            None => {}
        }
    }

    fn step(&mut self, number: usize, appointment: u64) {
        let Self { cores, setup, line, lock, departures, .. } = self;
        let core = &mut cores[number];
        if core.appointment().number != appointment {
            return;
        }
        let (costs, scope) = (&setup.cores.costs, setup.port.lock);
        if let Some(Stepped { busy, woke }) = core.step(costs, scope, line, lock, departures) {
            self.recorder.stepped(self.now, core.sent(), busy, woke);
            for offer in core.lost() {
                self.recorder.dropped(self.now, offer);
            }
        }
        self.enter_step(number);
    }

    fn act(&mut self, number: usize, appointment: u64) {
        let closed = &mut self.closed[number];
        if closed.appointment != appointment {
            return;
        }
        closed.acts_at = Nanos::MAX;
        let mut offers = std::mem::take(&mut self.offers);
        closed.traffic.act(self.now, &mut offers);
        for offer in offers.drain(..) {
            if self.cores[offer.queue].offer(offer) {
                self.enter_step(offer.queue);
            }
        }
        self.offers = offers;
        self.enter_act(number);
    }

    fn fail(&mut self, number: usize) {
        let fault = self.setup.faults[number];
        let core = &mut self.cores[fault.queue];
        match fault.kind {
            FaultKind::Stall(duration) => core.stall(fault.at + duration),
            FaultKind::Death => core.die(fault.at, self.setup.seed),
        }
    }

    fn change(&mut self, number: usize) {
        for (core, update) in self.changes[number].make().into_iter().enumerate() {
            self.cores[core].update(update, self.now);
            self.enter_step(core);
        }
    }

    /// Adds everything up.
    fn finish(mut self) -> Outcome {
        let mut books = Books::default();
        let mut drops = DropCounters::default();
        let mut tallies: Vec<Tally> = Vec::with_capacity(self.cores.len());
        for core in &mut self.cores {
            // Arrivals while the core slept count as offered, too.
            core.take_in_until(Nanos(self.setup.run.end().0 - 1));
            books.merge(&core.books(self.setup.seed));
            drops.merge(&core.drops());
            tallies.push(core.tally());
        }
        let unaccounted = books.unaccounted();
        assert_eq!(unaccounted, 0, "packets unaccounted for, seed {}: {books:?}", self.setup.seed);
        let measured = self.recorder.finish(&tallies);
        Outcome { books, drops, unaccounted, ..measured }
    }
}
