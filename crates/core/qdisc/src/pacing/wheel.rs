//! A timing wheel: a circle of slots, each a tick long, of which one turn spans the horizon.
//!
//! [`Carousel`](super::Carousel) and [`Eiffel`](super::Eiffel) are this wheel and differ only in
//! how they [`Search`] it for the next slot that holds packets.
//!
//! A packet is in the slot of the first tick that is no earlier than its time. The circle begins at
//! `head`: a slot represents the one tick in `head .. head + slots` that maps to it. The head moves
//! when a slot is emptied, and catches up with the clock when a packet arrives that is out of
//! reach. Beside the circle there are three more lists:
//! - *ready*: the packets of the slot that was reached last, the oldest on top. Slots are stacks,
//!   so they are reversed once, when they fall due.
//! - *late*: packets for a tick before `head`. They leave after those that are ready and before any
//!   slot, so that none overtakes its predecessor.
//! - *beyond*: packets more than a turn ahead, in order of arrival. They are filed again when the
//!   first of them falls due. While any is there, packets with the same time or a later one join
//!   them: none can get into a slot before its predecessor. A packet is filed again at most once
//!   per turn.
//!
//! The head depends on the clock and never on a packet's slot: of the first two packets into an
//! empty wheel, the second may leave first.
//!
//! Source: G. Varghese, T. Lauck, "Hashed and Hierarchical Timing Wheels" (SOSP 1987), scheme 4; A.
//! Saeed et al., "Carousel" (SIGCOMM 2017).
//!
//! Cost: a packet is written when it arrives, when its slot falls due, and when it leaves; its slot
//! twice. Nothing is allocated. A slot is four bytes, in memory that the system provides on first
//! touch.
//!
//! Non-goals: order between flows within a slot.

use super::ticks::Ticks;
use super::{Calendar, Slot};
use narrows_packet::{PacketId, Packets, Stack};
use narrows_units::Nanos;
use std::cell::Cell;

#[cfg(test)]
mod tests;

/// The longest circle: a gigabyte of slots, if all are touched. With a longer horizon, packets are
/// filed again later.
const SLOTS_MAX: u64 = 1 << 28;

/// How many slots [`Calendar::next`] may look at that hold nothing.
const LOOKAHEAD: u64 = 1024;

/// No tick.
const NEVER: u64 = u64::MAX;

/// How the next slot that holds packets is found.
pub trait Search: Send {
    /// For a circle of `slots`, a power of two, that hold nothing.
    fn new(slots: usize) -> Self;

    /// The slot at `index`, which held nothing, does now.
    fn filled(&mut self, index: usize);

    /// The slot at `index` holds nothing any more.
    fn emptied(&mut self, index: usize);

    /// The first tick from `from` on whose slot holds packets, or a tick at `until` or later with
    /// none before it. At least one slot must hold packets. `slots` are those of the circle; zero
    /// means empty.
    fn search(&self, slots: &[u32], from: u64, until: u64) -> u64;

    /// Its own memory in bytes.
    fn memory(&self) -> usize;
}

/// A timing wheel that finds its next slot by `S`.
pub struct Wheel<S> {
    ticks: Ticks,
    /// The top of each slot's [`Stack`].
    slots: Box<[u32]>,
    search: S,
    /// Where the circle begins, at most one tick after the clock's: slots before it are empty.
    head: u64,
    /// No slot before this tick holds packets; [`NEVER`] if none does. Caches earlier searches.
    earliest: Cell<u64>,
    /// The number of slots with packets.
    filled: usize,
    ready: Stack,
    late: Stack,
    beyond: Stack,
    /// The first tick of packets beyond the circle, or [`NEVER`]. All packets in slots are earlier.
    beyond_from: u64,
}

impl<S: Search> Wheel<S> {
    /// An empty wheel of slots that are `granularity` long, at least a nanosecond. Packets that
    /// leave within `horizon` are in a slot at once. Allocates only here.
    pub fn new(granularity: Nanos, horizon: Nanos) -> Self {
        let ticks = Ticks::of(granularity);
        // One more for the tick that has begun, one more because the horizon is rounded up.
        let wanted = ticks.first(horizon).saturating_add(2).min(SLOTS_MAX);
        let count = wanted.next_power_of_two() as usize;
        Self {
            ticks,
            slots: vec![0; count].into_boxed_slice(),
            search: S::new(count),
            head: 0,
            earliest: Cell::new(NEVER),
            filled: 0,
            ready: Stack::default(),
            late: Stack::default(),
            beyond: Stack::default(),
            beyond_from: NEVER,
        }
    }

    #[inline]
    fn index(&self, tick: u64) -> usize {
        tick as usize & (self.slots.len() - 1)
    }

    /// The tick that has begun last.
    #[inline]
    fn current(&self, now: Nanos) -> u64 {
        self.ticks.last(now).min(NEVER - 1)
    }

    /// The tick of a packet that leaves at `at`, and its time. An overdue packet does not wait for
    /// the next tick.
    #[inline]
    fn place(&self, at: Nanos, now: Nanos) -> (u64, Nanos) {
        if at <= now {
            return (self.ticks.last(at), at);
        }
        let tick = self.ticks.first(at);
        (tick, self.ticks.time(tick))
    }

    /// Whether there is a slot for `tick`, which is not before the head.
    #[inline]
    fn reaches(&self, tick: u64) -> bool {
        tick - self.head < self.slots.len() as u64 && tick < self.beyond_from
    }

    #[inline]
    fn file(&mut self, packets: &mut Packets, id: PacketId, tick: u64, now: Nanos) {
        if tick >= self.head && !self.reaches(tick) {
            self.file_beyond(packets, id, tick, now);
        } else {
            self.file_within(packets, id, tick);
        }
    }

    #[inline]
    fn file_within(&mut self, packets: &mut Packets, id: PacketId, tick: u64) {
        if tick < self.head {
            self.late.push(packets, id);
            return;
        }
        let index = self.index(tick);
        let mut slot = Stack::from_bits(self.slots[index]);
        if slot.is_empty() {
            self.search.filled(index);
            self.filled += 1;
            if tick < self.earliest.get() {
                self.earliest.set(tick);
            }
        }
        slot.push(packets, id);
        self.slots[index] = slot.to_bits();
    }

    /// Files a packet without a slot: the wheel was not polled for long, or the time is far away.
    #[cold]
    fn file_beyond(&mut self, packets: &mut Packets, id: PacketId, tick: u64, now: Nanos) {
        self.advance(self.current(now));
        if tick < self.head || self.reaches(tick) {
            self.file_within(packets, id, tick);
        } else {
            self.beyond.push(packets, id);
            self.beyond_from = self.beyond_from.min(tick);
        }
    }

    /// Moves the start of the circle behind `current`, the clock's tick, or to the first slot with
    /// packets.
    fn advance(&mut self, current: u64) {
        let held = self.earliest.get().min(self.beyond_from);
        self.head = self.head.max((current + 1).min(held));
    }

    /// Files the packets beyond the circle again, when their first is due. All slots are empty.
    #[cold]
    fn file_anew(&mut self, packets: &mut Packets, now: Nanos) {
        self.head = self.beyond_from;
        self.beyond_from = NEVER;
        let mut newest_first = std::mem::take(&mut self.beyond);
        let mut oldest_first = Stack::default();
        while let Some(id) = newest_first.pop(packets) {
            oldest_first.push(packets, id);
        }
        while let Some(id) = oldest_first.pop(packets) {
            let (tick, _) = self.place(packets.meta(id).edt, now);
            self.file(packets, id, tick, now);
        }
    }

    /// Empties the slot of `tick`, which is the earliest.
    #[inline]
    fn empty(&mut self, tick: u64) -> Stack {
        let index = self.index(tick);
        self.search.emptied(index);
        self.filled -= 1;
        self.earliest.set(if self.filled == 0 { NEVER } else { tick + 1 });
        Stack::from_bits(std::mem::take(&mut self.slots[index]))
    }

    /// Makes `chain` ready, and takes the oldest of it. Nothing else is ready.
    #[inline]
    fn release(&mut self, packets: &mut Packets, mut chain: Stack) -> Option<PacketId> {
        let mut oldest = chain.pop(packets)?;
        while let Some(older) = chain.pop(packets) {
            self.ready.push(packets, oldest);
            oldest = older;
        }
        Some(oldest)
    }

    /// Takes ready and late packets.
    #[inline]
    fn pop_over(&mut self, packets: &mut Packets) -> Option<PacketId> {
        if let Some(id) = self.ready.pop(packets) {
            return Some(id);
        }
        let late = std::mem::take(&mut self.late);
        self.release(packets, late)
    }

    /// The first tick whose slot holds packets, or a tick at `until` or later.
    #[inline]
    fn look(&self, until: u64) -> u64 {
        let from = self.earliest.get();
        if self.filled > 0 && from < until {
            self.earliest.set(self.search.search(&self.slots, from, until));
        }
        self.earliest.get()
    }
}

impl<S: Search> Calendar for Wheel<S> {
    #[inline]
    fn insert(&mut self, packets: &mut Packets, id: PacketId, slot: Slot, now: Nanos) -> Nanos {
        let (tick, at) = self.place(slot.at.max(slot.behind), now);
        packets.meta_mut(id).edt = at;
        self.file(packets, id, tick, now);
        at
    }

    #[inline]
    fn pop(&mut self, packets: &mut Packets, now: Nanos) -> Option<PacketId> {
        loop {
            if let Some(id) = self.pop_over(packets) {
                return Some(id);
            }
            let current = self.current(now);
            let tick = self.look(current + 1);
            if tick <= current {
                let due = self.empty(tick);
                self.head = tick + 1;
                return self.release(packets, due);
            }
            if self.beyond_from > current {
                return None;
            }
            self.file_anew(packets, now);
        }
    }

    fn next(&self) -> Option<Nanos> {
        if !self.ready.is_empty() || !self.late.is_empty() {
            // They are overdue at any time.
            return Some(Nanos::ZERO);
        }
        if self.filled > 0 {
            let tick = self.look(self.earliest.get().saturating_add(LOOKAHEAD));
            return Some(self.ticks.time(tick));
        }
        (!self.beyond.is_empty()).then(|| self.ticks.time(self.beyond_from))
    }

    /// Those beyond the horizon are taken in the order in which they came.
    fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        if let Some(id) = self.pop_over(packets) {
            return Some(id);
        }
        if self.filled > 0 {
            let tick = self.look(NEVER);
            let next = self.empty(tick);
            return self.release(packets, next);
        }
        self.beyond_from = NEVER;
        let beyond = std::mem::take(&mut self.beyond);
        self.release(packets, beyond)
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.slots) + self.search.memory()
    }
}
