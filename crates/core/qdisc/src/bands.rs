//! `prio`, `drr`, `ets`: classes in an order, or by turns.
//!
//! All three are one qdisc. Ordered classes come first, each only when those before it have nothing
//! to send. Behind them, classes with a quantum take turns by deficit round robin. `prio` has only
//! the former, `drr` only the latter, `ets` both. Packets of a class leave in the order of the
//! qdisc below it.
//!
//! *Deficit round robin.* In its turn, a class sends while its deficit lasts. When its next packet
//! is longer than the deficit, the deficit grows by the quantum and the class goes to the end of
//! the line. A class that runs empty leaves the line, and comes back with a quantum. So over any
//! time in which two classes have something to send, they send in proportion to their quanta,
//! within a quantum and a packet each.
//!
//! *The next packet is held,* because its length decides which class is next. It has left the qdisc
//! below already, but counts as queued there.
//!
//! *A class that waits is skipped.* A qdisc below may hold packets back until a time (`fq`, `tbf`).
//! Its class then leaves the line until that time, or until something comes for it. (In the kernel
//! such a class stalls all others of `drr` and `ets`.)
//!
//! *Classes on one queue.* Each queue has classes of its own; the queues of a port share only the
//! rate of a qdisc above. The order of classes between queues is not decided here. But if the
//! queues share the rate of a class above, they exchange what that takes: the order
//! ([`Qdisc::ranking`]), and the share of each class on each queue ([`siblings`]).
//!
//! Packets are classified before they come here:
//! [`Meta::class_at`](narrows_packet::Meta::class_at) is the class's number. A packet without a
//! class goes to [`Config::otherwise`]; without that it is dropped, as in `drr`.
//!
//! Cost: a table look-up to enqueue, and the call of the qdisc below. To dequeue, a call of that
//! for each packet by turns, and for each batch in order. Classes that have nothing to send cost
//! nothing in the line, and a comparison each in the order.
//!
//! Source: `tc-prio(8)`, `tc-drr(8)`, `tc-ets(8)`, `sch_prio.c`, `sch_drr.c`, `sch_ets.c`;
//! M. Shreedhar, G. Varghese, "Efficient fair queueing using deficit round robin" (1995);
//! IEEE 802.1Q, 8.6.8 (enhanced transmission selection).

use crate::draining::Draining;
use crate::places::Places;
use crate::rotation::Rotation;
use crate::sink::Sink;
use crate::{
    Above, Census, Config as AnyConfig, Detail, Handover, Next, Qdisc, RANKS, Ranking, Spec, Stats,
    Verdict, Weight,
};
use class::{State, Turn};
use narrows_packet::{Backlog, Batch, DropReason, PacketId, Packets, Reading};
use narrows_units::{Bytes, Nanos, Spread};
use siblings::Siblings;
use std::collections::BTreeMap;

mod class;
mod siblings;

/// The smallest quantum: with smaller ones a frame would take too many turns.
pub const QUANTUM_MIN: u32 = 256;

/// The largest quantum.
pub const QUANTUM_MAX: u32 = 1 << 20;

/// The name of the qdisc. A qdisc never changes its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discipline {
    /// Classes in an order.
    Prio,
    /// Classes that take turns, made on demand.
    Drr,
    /// Ordered classes, followed by others that take turns.
    Ets,
}

/// Parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Its name.
    pub discipline: Discipline,
    /// Its classes. Those in an order come first, in that order.
    pub classes: Vec<Class>,
    /// The class of packets without a class, or with one that does not exist.
    pub otherwise: Option<u16>,
}

/// A class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Class {
    /// Its number.
    pub id: u16,
    /// Its quantum; `None` for an ordered class.
    pub quantum: Option<u32>,
}

/// Statistics of these kinds only.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// The deficits of backlogged classes, by class, summed over all queues.
    pub deficits: BTreeMap<u16, u64>,
    /// The delays of sent packets, by class.
    pub delays: BTreeMap<u16, Spread>,
}

impl Figures {
    /// Adds those of another queue.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (class, deficit) in &other.deficits {
            *self.deficits.entry(*class).or_default() += deficit;
        }
        for (class, delays) in &other.delays {
            self.delays.entry(*class).or_default().merge(delays);
        }
    }
}

/// A `prio`, `drr` or `ets`: ordered classes, and behind them classes that take turns.
pub(crate) struct Bands {
    config: Config,
    level: u8,
    reading: Reading,
    /// By number, the place of a class in the next table and one more; 0 if there is none.
    places: Places,
    classes: Vec<class::Class>,
    /// The number of ordered classes.
    strict: usize,
    /// Backlogged classes that take turns.
    line: Rotation,
    /// Classes that wait for a time before they take turns.
    waiting: Rotation,
    /// The first of these times.
    wakes: Nanos,
    /// Its siblings: the same qdisc on other queues of a class.
    siblings: Option<Siblings>,
    /// The place of the class whose packet left last.
    last: Option<u32>,
    draining: Draining,
    backlog: Backlog,
    /// All but drops and backlog.
    stats: Stats,
    /// Packets that came, those dropped included.
    came: u64,
}

impl Bands {
    /// # Panics
    /// If there is not one qdisc for each class.
    pub(crate) fn new(
        config: Config,
        level: u8,
        children: Vec<Spec>,
        census: Option<Box<dyn Census>>,
    ) -> Self {
        assert_eq!(config.classes.len(), children.len(), "each class has one qdisc below it");
        let classes = config.classes.iter().zip(children);
        let classes = classes.map(|(class, child)| class::Class::new(*class, child)).collect();
        let mut new = Self {
            config,
            level,
            reading: Reading::NOTHING,
            places: Places::default(),
            classes,
            strict: 0,
            line: Rotation::EMPTY,
            waiting: Rotation::EMPTY,
            wakes: Nanos::MAX,
            siblings: census.map(Siblings::new),
            last: None,
            draining: Draining::default(),
            backlog: Backlog::default(),
            stats: Stats::default(),
            came: 0,
        };
        new.index();
        new
    }

    /// Derives parameters from the classes.
    fn index(&mut self) {
        self.places.clear();
        self.strict = self.config.classes.partition_point(|class| class.quantum.is_none());
        self.reading = Reading { class: true, ..Reading::NOTHING };
        self.backlog = Backlog::default();
        for (place, class) in (1..).zip(&self.classes) {
            self.places.set(u32::from(class.id), place);
            self.reading = self.reading.and(class.queue.qdisc().reading());
            self.backlog += class.queue.backlog();
        }
    }

    /// The place of the class of `id`.
    #[inline]
    fn place_of(&self, packets: &Packets, id: PacketId) -> Option<u32> {
        let place = |class: u32| self.places.get(class).checked_sub(1);
        let class = packets.meta(id).class_at(self.level);
        place(class).or_else(|| place(u32::from(self.config.otherwise?)))
    }

    fn count(&mut self, before: Backlog, after: Backlog) {
        self.backlog.packets = self.backlog.packets - before.packets + after.packets;
        self.backlog.bytes = self.backlog.bytes - before.bytes + after.bytes;
    }

    /// A packet may have arrived for the class at `place`.
    #[inline]
    fn wake(&mut self, place: u32) {
        let class = &mut self.classes[place as usize];
        if (place as usize) < self.strict {
            // What came need not wait.
            class.state = State::Idle;
            return;
        }
        match class.state {
            State::Idle if !class.queue.backlog().is_empty() => {
                class.begin();
                self.line.push_back(&mut self.classes, place);
            }
            State::Waiting(_) => {
                // What came need not wait.
                class.state = State::Waiting(Nanos::ZERO);
                self.wakes = Nanos::ZERO;
            }
            State::Idle | State::InLine => {}
        }
        self.count_among_siblings(place);
    }

    /// Tells the other queues whether the class at `place`, which takes turns, has packets here.
    #[inline]
    fn count_among_siblings(&mut self, place: u32) {
        let Some(siblings) = &mut self.siblings else { return };
        let class = &mut self.classes[place as usize];
        let has_packets = !class.queue.backlog().is_empty();
        if has_packets != class.is_counted {
            class.is_counted = has_packets;
            siblings.count(class.id, has_packets);
        }
    }

    /// Divides the quanta of classes in line over the queues on which they have packets.
    #[inline(never)]
    fn meet(&mut self, now: Nanos) {
        let Some(siblings) = &mut self.siblings else { return };
        let (mut most, mut due) = (1, Bytes::ZERO);
        let mut at = self.line.front();
        while let Some(place) = at {
            let class = &self.classes[place as usize];
            let queues = siblings.queues(class.id);
            most = most.max(queues);
            due += class.due(queues);
            at = self.line.behind(&mut self.classes, place);
        }
        at = self.line.front();
        while let Some(place) = at {
            let class = &mut self.classes[place as usize];
            class.divide(siblings.queues(class.id), most);
            at = self.line.behind(&mut self.classes, place);
        }
        siblings.have_met(due, now);
    }

    /// Classes whose time has come take turns again.
    #[cold]
    fn wake_waiting(&mut self, now: Nanos) {
        let mut waiting = std::mem::replace(&mut self.waiting, Rotation::EMPTY);
        self.wakes = Nanos::MAX;
        while let Some(place) = waiting.pop_front(&mut self.classes) {
            let class = &mut self.classes[place as usize];
            match class.state {
                State::Waiting(until) if until > now => {
                    self.wakes = self.wakes.min(until);
                    self.waiting.push_back(&mut self.classes, place);
                }
                _ => {
                    class.state = State::InLine;
                    self.line.push_back(&mut self.classes, place);
                }
            }
        }
    }

    fn release(&mut self, packets: &mut Packets, now: Nanos, out: &mut impl Sink) -> Next {
        if self.wakes <= now {
            self.wake_waiting(now);
        }
        if self.siblings.as_ref().is_some_and(|siblings| siblings.is_due(now)) {
            self.meet(now);
        }
        let mut held = Nanos::MAX;
        for place in 0..self.strict {
            if !out.has_room() {
                return self.when_full();
            }
            if !self.classes[place].queue.backlog().is_empty() {
                held = held.min(self.send_first(place, packets, now, out));
            }
        }
        while let Some(place) = self.line.front() {
            if !out.has_room() {
                return self.when_full();
            }
            self.take_turn(place, packets, now, out);
        }
        if !out.has_room() {
            return self.when_full();
        }
        match held.min(self.wakes) {
            Nanos::MAX => Next::Empty,
            at => Next::Held(at),
        }
    }

    /// The batch is full.
    fn when_full(&self) -> Next {
        if self.backlog.is_empty() { Next::Empty } else { Next::Now }
    }

    /// Sends packets of the ordered class at `place`. Returns until when it holds back the rest.
    #[inline]
    fn send_first(
        &mut self,
        place: usize,
        packets: &mut Packets,
        now: Nanos,
        out: &mut impl Sink,
    ) -> Nanos {
        let class = &mut self.classes[place];
        let before = class.queue.backlog();
        let (next, sent) = class.send_all(packets, now, out);
        if sent.packets != 0 {
            self.last = Some(place as u32);
            self.stats.sent_packets += u64::from(sent.packets);
            self.stats.sent_bytes += sent.bytes.0;
        }
        let after = class.queue.backlog();
        let held = match next {
            Next::At(at) | Next::Held(at) => Some(at),
            Next::Now | Next::Empty => None,
        };
        class.state = held.map_or(State::Idle, State::Waiting);
        self.count(before, after);
        held.unwrap_or(Nanos::MAX)
    }

    /// The first ordered class that may have packets.
    fn first(&self) -> Option<usize> {
        let may_send = |class: &class::Class| {
            !class.queue.backlog().is_empty() && !matches!(class.state, State::Waiting(_))
        };
        self.classes[..self.strict].iter().position(may_send)
    }

    /// The class at `place`, the first in line, takes its turn.
    #[inline]
    fn take_turn(&mut self, place: u32, packets: &mut Packets, now: Nanos, out: &mut impl Sink) {
        let class = &mut self.classes[place as usize];
        let before = class.queue.backlog();
        let (turn, sent) = class.turn(packets, now, out);
        let after = class.queue.backlog();
        if sent.packets != 0 {
            self.last = Some(place);
            self.stats.sent_packets += u64::from(sent.packets);
            self.stats.sent_bytes += sent.bytes.0;
        }
        self.count(before, after);
        self.count_among_siblings(place);
        if turn == Turn::Full {
            return;
        }
        self.line.pop_front(&mut self.classes);
        let class = &mut self.classes[place as usize];
        match turn {
            Turn::Full => {}
            Turn::Over => self.line.push_back(&mut self.classes, place),
            Turn::Empty => class.state = State::Idle,
            Turn::Held(at) => {
                class.state = State::Waiting(at);
                self.wakes = self.wakes.min(at);
                self.waiting.push_back(&mut self.classes, place);
            }
        }
    }

    /// Applies the classes of `config`. Packets of a removed class are dropped.
    fn rebuild(&mut self, config: Config, children: Vec<Spec>, handover: &mut Handover<'_>) {
        assert_eq!(config.classes.len(), children.len(), "each class has one qdisc below it");
        let mut line = Vec::new();
        for mut from in [self.line, self.waiting] {
            while let Some(place) = from.pop_front(&mut self.classes) {
                line.push(self.classes[place as usize].id);
            }
        }
        let before = std::mem::take(&mut self.classes);
        let mut before: BTreeMap<u16, _> =
            before.into_iter().map(|class| (class.id, class)).collect();
        for (class, child) in config.classes.iter().zip(children) {
            let class = match before.remove(&class.id) {
                Some(mut present) => {
                    present.retune(*class, child, handover);
                    present
                }
                None => class::Class::new(*class, child),
            };
            self.classes.push(class);
        }
        for mut gone in before.into_values() {
            if let Some(siblings) = self.siblings.as_mut().filter(|_| gone.is_counted) {
                siblings.count(gone.id, false);
            }
            while let Some(id) = gone.queue.drain(handover.packets()) {
                handover.packets().discard(id, DropReason::ClassGone);
            }
        }
        self.config = config;
        self.index();
        (self.line, self.waiting) = (Rotation::EMPTY, Rotation::EMPTY);
        (self.wakes, self.last) = (Nanos::MAX, None);
        for id in line {
            let place = self.places.get(u32::from(id)).checked_sub(1);
            if let Some(place) = place.filter(|place| *place as usize >= self.strict) {
                self.classes[place as usize].state = State::InLine;
                self.line.push_back(&mut self.classes, place);
            }
        }
        for place in 0..self.classes.len() as u32 {
            self.wake(place);
        }
    }

    #[cold]
    fn refuse(packets: &mut Packets, id: PacketId) -> Verdict {
        packets.discard(id, DropReason::Unclassified);
        Verdict::Dropped
    }
}

impl Qdisc for Bands {
    fn reading(&self) -> Reading {
        self.reading
    }

    fn observe_reverse(&mut self, packets: &Packets, ids: &[PacketId], now: Nanos) {
        for class in &mut self.classes {
            class.queue.qdisc_mut().observe_reverse(packets, ids, now);
        }
    }

    #[inline]
    fn enqueue(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        self.came += 1;
        let Some(place) = self.place_of(packets, id) else { return Self::refuse(packets, id) };
        let class = &mut self.classes[place as usize];
        let before = class.queue.backlog();
        let verdict = class.enqueue(packets, id, now);
        let after = class.queue.backlog();
        self.came += u64::from(verdict == Verdict::Copied);
        self.count(before, after);
        self.wake(place);
        verdict
    }

    fn refuse_all(&mut self, packets: &mut Packets, ids: &[PacketId]) {
        self.came += ids.len() as u64;
        self.stats.refuse_all(packets, ids);
    }

    fn dequeue(&mut self, packets: &mut Packets, now: Nanos, out: &mut Batch) -> Next {
        self.release(packets, now, out)
    }

    fn dequeue_one(&mut self, packets: &mut Packets, now: Nanos) -> Result<PacketId, Next> {
        let mut one = None;
        let next = self.release(packets, now, &mut one);
        one.ok_or(next)
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    /// The weight of the first band's queue, or the shares of classes that take turns.
    fn weight(&self) -> Weight {
        match self.first() {
            Some(place) => self.classes[place].queue.qdisc().weight(),
            None => self.siblings.as_ref().map_or(Weight::ONE, Siblings::weight),
        }
    }

    fn flows(&self) -> Option<u32> {
        self.classes.iter().map(|class| class.queue.qdisc().flows()).sum()
    }

    fn ranking(&self) -> Ranking {
        let left = self.last.map_or(0, |place| rank(self.strict.min(place as usize)));
        let (next, bytes) = match self.first() {
            Some(place) => (rank(place), self.classes[place].queue.backlog().bytes),
            None if self.line.is_empty() => (u8::MAX, Bytes::ZERO),
            None => {
                let by_turns = self.classes[self.strict..].iter();
                let bytes = by_turns.map(|class| class.queue.backlog().bytes.0).sum();
                (rank(self.strict), Bytes(bytes))
            }
        };
        Ranking { left, next, bytes }
    }

    fn stats(&self, into: &mut Vec<Stats>) {
        self.stats_below(Above::default(), into);
    }

    fn stats_below(&self, above: Above, into: &mut Vec<Stats>) {
        let is_busy = |class: &&class::Class| {
            self.config.discipline == Discipline::Drr && !class.queue.backlog().is_empty()
        };
        let busy = self.classes.iter().filter(is_busy);
        let deficits = busy.map(|class| (class.id, class.deficit().0)).collect();
        let delays = self.classes.iter().map(|class| (class.id, class.delays.clone()));
        let delays = delays.filter(|(_, delays)| !delays.is_empty()).collect();
        let detail = Some(Detail::Bands(Box::new(Figures { deficits, delays })));
        let mut own = Stats {
            backlog: self.backlog,
            drops: self.stats.dropped_of(self.came, self.backlog),
            detail,
            ..self.stats.clone()
        };
        above.restate(&mut own);
        into.push(own);
        for (place, class) in (0..).zip(&self.classes) {
            class.stats_below(above.in_class(self.last == Some(place)), into);
        }
    }

    fn retune(&mut self, spec: Spec, handover: &mut Handover<'_>) {
        let Spec { config: AnyConfig::Bands(config), level, children, census, .. } = spec else {
            panic!("a qdisc with classes cannot be retuned to {:?}", spec.config)
        };
        self.level = level;
        if let Some(census) = census {
            // New siblings know no classes yet.
            self.siblings = Some(Siblings::new(census));
            self.classes.iter_mut().for_each(|class| class.is_counted = false);
        }
        self.rebuild(config, children, handover);
    }

    fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        let has_packets = |class: &class::Class| !class.queue.backlog().is_empty();
        let place = self.draining.next(&self.classes, has_packets)?;
        let class = &mut self.classes[place];
        let before = class.queue.backlog();
        let id = class.queue.drain(packets)?;
        let after = class.queue.backlog();
        self.count(before, after);
        // It was neither sent nor dropped here.
        self.came -= u64::from(before.packets - after.packets);
        Some(id)
    }

    fn adopt(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) {
        self.came += 1;
        let Some(place) = self.place_of(packets, id) else {
            Self::refuse(packets, id);
            return;
        };
        let class = &mut self.classes[place as usize];
        let before = class.queue.backlog();
        class.queue.adopt(packets, id, now);
        let after = class.queue.backlog();
        self.count(before, after);
        self.wake(place);
    }
}

/// The rank of the ordered class at `place`; classes that take turns have the rank after the last.
fn rank(place: usize) -> u8 {
    place.min(RANKS - 1) as u8
}

/// The bytes that a class sends in a turn.
fn quantum(class: Class) -> Bytes {
    let quantum = class.quantum.map(|quantum| quantum.clamp(QUANTUM_MIN, QUANTUM_MAX));
    Bytes(quantum.map_or(0, u64::from))
}
