//! A core: a worker, a clock with an offset, and time that steps take.
//!
//! A core reads its clock at `t`, touches memory a moment later, and is busy for the cost of its
//! step. Then it steps again if there was something to do, or sleeps until the time that the worker
//! asked for or, if the worker listens, until a packet arrives; and wakes up late. A core that has
//! not fallen asleep by then is not late.

use super::SimError;
use super::clock::Clock;
use super::departures::{Departure, Departures};
use super::io::{SimIo, Tally};
use super::line::ContendedLine;
use super::lock::{Lock, Sections};
use super::shaper::Shaper;
use super::slots::Slots;
use crate::measure::Books;
use crate::setup::{Cores, Costs, LockScope, Sends};
use crate::traffic::{Offer, Source};
use narrows_forwarding::PortId;
use narrows_packet::{DropCounters, Headers};
use narrows_qdisc::Spec;
use narrows_qdisc::{Contact, Contacts};
use narrows_shaper::{Activity, UNSEEN_MAX, Worker};
use narrows_units::Nanos;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use std::ops::Range;
use std::sync::Arc;

/// A core.
pub(super) struct Core {
    number: usize,
    /// `None` once it is dead.
    worker: Option<Worker<SimIo>>,
    /// How far it is, if it sends slot by slot.
    slots: Option<Slots>,
    contacts: Arc<Contacts>,
    /// The part of them that is accounted for.
    paid: Contact,
    /// Packets dropped, as of the last step.
    drops: u64,
    clock: Clock,
    random: Pcg64,
    jitter: Nanos,
    staleness: Nanos,
    /// When it reads its clock next, and when it then touches memory.
    due: Nanos,
    touches: Nanos,
    /// Changes with each new `due`.
    appointment: u64,
    /// If it listens: how late it wakes up on an arrival.
    listening: Option<Nanos>,
    /// The end of the last step.
    free_at: Nanos,
    /// The end of the last stall.
    stalled_until: Nanos,
    /// As of its death.
    last_books: Books,
    last_tally: Tally,
    last_drops: DropCounters,
}

/// What a step has taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stepped {
    /// How long the core is busy.
    pub(super) busy: Nanos,
    /// It had been asleep.
    pub(super) woke: bool,
}

/// When a core executes its next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Appointment {
    pub(super) at: Nanos,
    pub(super) number: u64,
}

impl Core {
    /// Core `number`, asleep, with its `shaper` and the open-loop traffic of its queue.
    pub(super) fn new(
        number: usize,
        shaper: Shaper,
        (source, headers): (Box<dyn Source>, Arc<[Headers]>),
        (cores, sends): (&Cores, Sends),
        seed: u64,
        measured: Range<Nanos>,
    ) -> Self {
        // A stream for each core, so that one more core changes nothing for the others.
        let mut random = Pcg64::seed_from_u64(seed ^ (number as u64 + 1).rotate_left(48));
        let most = cores.clock_offset.0 as i64;
        let clock = Clock::new(random.random_range(-most..=most));
        let io = SimIo::new(source, headers, shaper.frames, measured);
        let mut core = Self {
            number,
            worker: Some(Worker::new(io, shaper.frames, shaper.qdiscs)),
            slots: (sends == Sends::SlotBySlot).then(Slots::default),
            contacts: shaper.contacts,
            paid: Contact::default(),
            drops: 0,
            clock,
            random,
            jitter: cores.jitter,
            staleness: cores.staleness,
            due: Nanos::MAX,
            touches: Nanos::MAX,
            appointment: 0,
            listening: None,
            free_at: Nanos::ZERO,
            stalled_until: Nanos::ZERO,
            last_books: Books::default(),
            last_tally: Default::default(),
            last_drops: Default::default(),
        };
        core.sleep(Nanos::MAX, true);
        core
    }

    fn up_to(&mut self, most: Nanos) -> Nanos {
        if most == Nanos::ZERO { most } else { Nanos(self.random.random_range(0..=most.0)) }
    }

    /// Its next step.
    pub(super) fn appointment(&self) -> Appointment {
        Appointment { at: self.touches, number: self.appointment }
    }

    /// Reads its clock at `due` the next time.
    fn appoint(&mut self, due: Nanos) {
        self.due = due;
        self.touches = due + self.up_to(self.staleness);
        self.appointment += 1;
    }

    /// When it wakes up for what happens at `at` if it sleeps `late`.
    fn wakes(&self, at: Nanos, late: Nanos) -> Nanos {
        if at <= self.free_at { self.free_at } else { at + late }
    }

    /// Sleeps until `until`, or until an arrival if it listens; otherwise polls in between.
    fn sleep(&mut self, until: Nanos, listens: bool) {
        let until = if listens { until } else { until.min(self.free_at + UNSEEN_MAX) };
        let late = self.up_to(self.jitter);
        self.listening = listens.then_some(late);
        let arrival = match &self.worker {
            Some(worker) if listens => worker.io().next_arrival(),
            _ => Nanos::MAX,
        };
        let due = self.wakes(until.min(arrival), late);
        self.appoint(due);
    }

    /// Executes the scheduled step, with the cores' memory as of that moment. Returns what it
    /// takes; nothing if the core is stalled or dead.
    pub(super) fn step(
        &mut self,
        costs: &Costs,
        scope: LockScope,
        line: &mut ContendedLine,
        lock: &mut Lock,
        departures: &mut Departures,
    ) -> Option<Stepped> {
        let (start, touches) = (self.due, self.touches);
        if touches < self.stalled_until {
            self.appoint(self.stalled_until);
            return None;
        }
        let worker = self.worker.as_mut()?;
        worker.io_mut().begin(start);
        let now = self.clock.read(start);
        let activity = match &mut self.slots {
            Some(slots) => slots.step(worker, now, self.clock),
            None => worker.step(now),
        };

        let contact = self.contacts.read();
        let drops = worker.counters(PortId::SECOND).drops.total();
        let left = worker.io().left();
        let count = left.len() as u64;
        let sections = contact.locked - self.paid.locked;
        let updates = contact.updates - self.paid.updates - sections;
        let dropped = drops - self.drops;
        let packets = costs.packet_ns * count as f64 + costs.drop_ns * dropped as f64;
        let lines = costs.line_read_ns * (contact.reads - self.paid.reads) as f64
            + line.update(self.number, touches, updates, costs.line_update_ns, costs.line_read_ns);
        let (sections, unlocked) = match scope {
            LockScope::Bucket => {
                (Sections::of_bucket(sections, costs), costs.step_ns + packets + lines)
            }
            LockScope::Qdisc => {
                (Sections::of_qdisc(count + dropped, packets, costs), costs.step_ns + lines)
            }
        };
        let fetch = costs.line_read_ns;
        let work = unlocked + lock.take(self.number, touches, sections, unlocked, fetch);
        self.drops = drops;
        self.paid = contact;
        // Time passes at any costs.
        let busy = Nanos(((work + 0.5) as u64).max(1));
        for (number, &(offer, marked)) in left.iter().enumerate() {
            let spent = u128::from(busy.0) * (number as u128 + 1) / u128::from(count);
            // Not before it has touched the packet.
            let at = (start + Nanos(spent as u64)).max(touches);
            departures.add(self.number, Departure { at, offer, marked });
        }
        let woke = start > self.free_at;
        self.free_at = (start + busy).max(touches);
        match activity {
            Activity::Busy | Activity::Blocked(_) => {
                self.listening = None;
                self.appoint(self.free_at);
            }
            Activity::Idle(pause) => {
                let until = self.clock.when(pause.until);
                self.sleep(until, pause.listen.has(PortId::FIRST));
            }
        }
        Some(Stepped { busy, woke })
    }

    /// Hears of a packet of closed-loop traffic. Returns whether it has another appointment now.
    pub(super) fn offer(&mut self, offer: Offer) -> bool {
        let Some(worker) = &mut self.worker else {
            self.last_books.offered += 1;
            self.last_books.lost_to_fault += 1;
            return false;
        };
        worker.io_mut().offer(offer);
        let Some(late) = self.listening else { return false };
        let due = self.wakes(offer.at, late);
        let earlier = due < self.due;
        if earlier {
            self.appoint(due);
        }
        earlier
    }

    /// How many packets have left in the last step.
    pub(super) fn sent(&self) -> usize {
        self.worker.as_ref().map_or(0, |worker| worker.io().left().len())
    }

    /// The drops of the last step.
    pub(super) fn lost(&self) -> &[Offer] {
        self.worker.as_ref().map_or(&[], |worker| worker.io().lost())
    }

    /// Applies other parameters, or another qdisc, at `at`, and checks the effect.
    pub(super) fn update(&mut self, spec: Spec, at: Nanos) {
        let Some(worker) = &mut self.worker else { return };
        worker.update(PortId::SECOND, spec, self.clock.read(at));
        // Its clock does not go back behind the change.
        self.slots = self.slots.take().map(|_| Slots::default());
        if self.due > at {
            self.appoint(self.wakes(at, Nanos::ZERO));
        }
    }

    /// Its worker's drops, by reason.
    pub(super) fn drops(&self) -> DropCounters {
        self.worker.as_ref().map_or(self.last_drops, |worker| worker.counters(PortId::SECOND).drops)
    }

    /// Executes nothing before `until`.
    pub(super) fn stall(&mut self, until: Nanos) {
        self.stalled_until = self.stalled_until.max(until);
    }

    /// Drops the worker at `at`, with everything that it holds.
    pub(super) fn die(&mut self, at: Nanos, seed: u64) {
        self.take_in_until(at);
        let mut books = self.books(seed);
        books.lost_to_fault += books.queued + books.waiting;
        (books.queued, books.waiting) = (0, 0);
        self.last_books = books;
        self.last_tally = self.tally();
        self.last_drops = self.drops();
        self.worker = None;
        self.appoint(Nanos::MAX);
    }

    /// Counts arrivals up to `at`, whenever the worker would have taken them.
    pub(super) fn take_in_until(&mut self, at: Nanos) {
        if let Some(worker) = &mut self.worker {
            worker.io_mut().fill(at);
        }
    }

    /// The offered load.
    pub(super) fn tally(&self) -> Tally {
        self.worker.as_ref().map_or(self.last_tally, |worker| worker.io().tally())
    }

    /// Where everything that was offered is.
    ///
    /// # Panics
    /// If the worker has lost track of a packet.
    pub(super) fn books(&self, seed: u64) -> Books {
        let Some(worker) = &self.worker else { return self.last_books };
        let counters = worker.counters(PortId::SECOND);
        let queued = u64::from(worker.backlog(PortId::SECOND).packets);
        let unaccounted = counters.unaccounted(queued);
        assert_eq!(unaccounted, 0, "packets unaccounted for on queue {}, seed {seed}", self.number);
        let tally = worker.io().tally();
        Books {
            offered: tally.packets,
            overflowed: tally.overflowed,
            waiting: worker.io().waiting(),
            copied: counters.copied,
            sent: counters.tx_packets,
            dropped: counters.drops.total(),
            queued,
            lost_to_fault: 0,
        }
    }
}

/// Whether the cores can be like that.
pub(super) fn check(cores: &Cores) -> Result<(), SimError> {
    if cores.clock_offset > super::clock::EPOCH {
        let epoch = super::clock::EPOCH;
        return Err(SimError::Setup(format!(
            "Clocks cannot be off by {}: write at most {epoch}.",
            cores.clock_offset
        )));
    }
    match cores.costs.all().find(|cost| !(0.0..=1e9).contains(cost)) {
        Some(cost) => Err(SimError::Setup(format!(
            "A cost of {cost} ns is none: write a number from 0 to 1000000000."
        ))),
        None => Ok(()),
    }
}
