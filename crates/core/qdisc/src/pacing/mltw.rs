//! FlowBundler's multi-level timing wheel: packets of different flows leave together, those of one
//! flow never do.
//!
//! *Slots.* Every time has exactly one slot, and its wheel follows from the time itself: wheel `w`
//! has the times that are odd multiples of 2^w nanoseconds. A flow's departures are rounded up to a
//! power of two no longer than the time between two of its packets ([`Slot::spacing`]). So the
//! slower the flow, the rounder its times, and packets that are rounded to the same time share a
//! slot, whatever their rates. (In the paper each wheel holds all multiples of its granularity, and
//! packets move to the coarsest wheel that has the same time. That leaves every other slot of each
//! wheel empty for ever; here a wheel of as many slots reaches twice as far.)
//!
//! *Asking.* A bitmap says which slots of a wheel have packets and each wheel knows the first of
//! them, so the next departure is the minimum over the wheels in use. Nothing is scanned: after an
//! idle gap of any length the next slot is found as after none.
//!
//! *Distant times.* A wheel reaches over twice its number of slots. A later packet waits in a slot
//! of a coarser wheel, at a time before its own, and moves from there to its slot, with others of
//! the same 64th of a turn. Where it waits depends only on its own time and on how far the wheel
//! has turned, so two packets with the same departure time never overtake each other on the way.
//!
//! *Chains.* A slot is a [`Chain`], first in, first out (`chain.rs`). A due slot is ready as it is,
//! whatever its length; only slots with packets of later times are searched. No packet metadata is
//! read on the way, and the order is written side by side.
//!
//! Source: D. Shan et al., "Fast and Accurate Software Traffic Shaping With Inter-Flow Batching"
//! (ToN 2025), section IV.B and Alg. 1 and 2. Differs, besides: times are rounded up and never
//! down, the past is now, a call takes all that is due.
//!
//! Cost: insertion computes a slot, writes the packet's time, its number and the slot, and for the
//! first packet of a slot two bits; departure copies numbers, and for each slot searches one
//! wheel's bits and compares the wheels in use. Some 50 instructions per packet more than a ring
//! buffer if slots are full, 100 if rates are mixed (`narrows bench wheels`). Memory: 8 bytes per
//! slot and 64 wheels, 0.5 MiB with 1024 slots, of which only those that were ever used are
//! touched, and a cache line for each slot in use and for every 15 packets.
//!
//! Non-goals: a flow's rate (`pacer.rs`), how many packets may wait.

use super::chain::{Chain, Chunks, IDS};
use super::{Calendar, Slot};
use narrows_packet::{Batch, PacketId, Packets};
use narrows_units::Nanos;

/// Wheels: as many as there are powers of two of nanoseconds.
const WHEELS: usize = 64;
/// A wheel's turn has this many parts, as a power of two, and all but one of them are in reach at
/// any time. With more parts, fewer packets move on at once, but distant packets move more often.
const PARTS: u32 = 6;
/// No time is later, so that rounding up cannot overflow: 146 years.
const LATEST: u64 = 1 << 62;
/// Chains in addition to those of the slots: ready packets, overdue packets, and packets being
/// sorted.
const TAKEN: usize = 3;
/// Nothing is due.
const NEVER: u64 = u64::MAX;

/// The state of one wheel.
#[derive(Clone, Copy)]
struct Wheel {
    /// The time of its first slot with packets.
    first: u64,
    /// Which words of its slots' bits are not zero.
    words: u64,
}

/// A multi-level timing wheel.
pub struct Mltw {
    /// Those of wheel 0, then those of wheel 1, and so on: each a [`Chain`], as a number.
    slots: Vec<u64>,
    /// What chains are made of.
    chunks: Chunks,
    /// Which of them have packets.
    occupied: Vec<u64>,
    /// In which of them something rests.
    rested: Vec<u64>,
    wheels: [Wheel; WHEELS],
    /// Which wheels have packets.
    active: u64,
    /// The time of the first slot with packets.
    earliest: u64,
    /// All slots up to this time are empty.
    front: u64,
    /// Packets that have left their slot and were not taken yet.
    ready: Chain,
    /// Packets that arrived after their time; they leave after `ready`.
    overdue: Chain,
    /// Slots of a wheel: 2^`size`.
    reach: u64,
    size: u32,
    /// Within how many times its lowest bit a time is in reach, whatever the front is.
    near: u64,
}

impl Mltw {
    /// The fewest slots that a wheel can have, and the most.
    pub const SLOTS: std::ops::RangeInclusive<u32> = 64..=4096;

    /// An empty one with `slots` slots a wheel.
    ///
    /// # Panics
    /// Where `slots` is no power of two or not within [`Mltw::SLOTS`].
    pub fn new(slots: u32) -> Self {
        assert!(slots.is_power_of_two() && Self::SLOTS.contains(&slots), "{slots} slots");
        let all = WHEELS * slots as usize;
        Self {
            slots: vec![0; all],
            chunks: Chunks::new(all + TAKEN),
            occupied: vec![0; all / 64],
            rested: vec![0; all / 64],
            wheels: [Wheel { first: NEVER, words: 0 }; WHEELS],
            active: 0,
            earliest: NEVER,
            front: 0,
            ready: Chain::default(),
            overdue: Chain::default(),
            reach: u64::from(slots),
            near: u64::from(slots) * 2 - ((u64::from(slots) * 2) >> PARTS),
            size: slots.ilog2(),
        }
    }

    fn is_empty(&self) -> bool {
        self.earliest == NEVER && self.ready.is_empty() && self.overdue.is_empty()
    }

    /// The slot of wheel `wheel` for `time`, counted over all wheels.
    #[inline]
    fn slot(&self, wheel: u32, time: u64) -> usize {
        ((wheel as usize) << self.size) | (((time >> wheel) >> 1) & (self.reach - 1)) as usize
    }

    /// Whether a packet that leaves at `time`, ahead of the front, can take its place already:
    /// there is no slot in between that is for the same bits. Nearly always so, but for one part of
    /// a turn; there [`Mltw::rest`] knows.
    #[inline]
    fn is_near(&self, time: u64) -> bool {
        let least = time & time.wrapping_neg();
        // A product that wraps is of a slot so long that either answer will do.
        time - self.front < least.wrapping_mul(self.near)
    }

    /// The time at which a packet that leaves at `time` takes its place or the next rest on its way
    /// there.
    ///
    /// At its place it must be less than a whole turn ahead of the front. The borders between the
    /// parts of a turn, which are slots of coarser wheels, decide this: it rests at the border that
    /// is one part less than a turn before it, until the front has reached that.
    fn rest(&self, mut time: u64) -> u64 {
        loop {
            let border = (time.trailing_zeros() + self.size + 1 - PARTS).min(63);
            let part = time >> border;
            if part < (self.front >> border) + (1 << PARTS) {
                return time;
            }
            time = (part + 1 - (1 << PARTS)) << border;
        }
    }

    /// Puts `id` into the slot for `time`, and returns the slot.
    #[inline(always)]
    fn put(&mut self, packets: &Packets, id: PacketId, time: u64) -> usize {
        let wheel = wheel_of(time);
        let slot = self.slot(wheel, time);
        let bits = &mut self.slots[slot];
        let mut chain = Chain(*bits);
        if chain.is_full() {
            self.put_first(packets, id, time);
        } else {
            chain.append(&mut self.chunks, id);
            *bits = chain.0;
        }
        slot
    }

    /// Puts `id` into the slot for `time` as the first one in the slot, or in a chunk.
    #[inline(never)]
    fn put_first(&mut self, packets: &Packets, id: PacketId, time: u64) {
        let wheel = wheel_of(time);
        let slot = self.slot(wheel, time);
        let mut chain = Chain(self.slots[slot]);
        if chain.is_empty() {
            self.occupy(wheel, slot, time);
        }
        chain.push_back(&mut self.chunks, packets, id);
        self.slots[slot] = chain.0;
    }

    /// Puts `id`, which leaves at `time`, into its place, or where it rests on its way there.
    #[inline]
    fn put_or_rest(&mut self, packets: &Packets, id: PacketId, time: u64) {
        let rest = self.rest(time);
        let slot = self.put(packets, id, rest);
        if rest != time {
            self.rested[slot / 64] |= 1 << (slot % 64);
        }
    }

    /// Inserts `id`, which leaves at `time`, if that may be past or far away, or if all slots are
    /// empty and the wheels lag behind the clock. Returns when it leaves.
    #[inline(never)]
    fn put_aside(&mut self, packets: &mut Packets, id: PacketId, time: u64, now: Nanos) -> u64 {
        if self.is_empty() {
            self.front = self.front.max(now.0.min(LATEST));
        }
        if time <= self.front {
            self.overdue.push_back(&mut self.chunks, packets, id);
            return time;
        }
        let time = time.min(LATEST);
        packets.meta_mut(id).edt = Nanos(time);
        self.put_or_rest(packets, id, time);
        time
    }

    /// The slot `slot` for `time` of the wheel `wheel` has packets.
    #[inline]
    fn occupy(&mut self, wheel: u32, slot: usize, time: u64) {
        self.occupied[slot / 64] |= 1 << (slot % 64);
        let word = (slot / 64) & (self.words() - 1);
        let known = &mut self.wheels[wheel as usize % WHEELS];
        known.words |= 1 << word;
        known.first = known.first.min(time);
        self.active |= 1 << wheel;
        self.earliest = self.earliest.min(time);
    }

    /// Words of bits that a wheel has.
    #[inline]
    fn words(&self) -> usize {
        1 << (self.size - 6)
    }

    /// The first slot is due, and no packet is ready: its packets become ready, or move on.
    #[inline]
    fn open(&mut self, packets: &Packets) {
        let time = self.earliest;
        let wheel = wheel_of(time);
        let slot = self.slot(wheel, time);
        let chain = Chain(std::mem::take(&mut self.slots[slot]));
        self.front = time;
        self.clear(wheel, slot, time);
        if self.rested[slot / 64] & 1 << (slot % 64) == 0 {
            self.ready = chain;
        } else {
            self.rested[slot / 64] &= !(1 << (slot % 64));
            self.sift(packets, chain, time);
        }
    }

    /// Of the packets in the slot for `time`, some are ready, and the others move on.
    #[cold]
    fn sift(&mut self, packets: &Packets, mut chain: Chain, time: u64) {
        let mut some = [PacketId(0); IDS];
        while !chain.is_empty() {
            let count = chain.take(&mut self.chunks, packets, &mut some);
            for &id in &some[..count] {
                let leaves = packets.meta(id).edt.0;
                if leaves <= time {
                    self.ready.push_back(&mut self.chunks, packets, id);
                } else {
                    self.put_or_rest(packets, id, leaves);
                }
            }
        }
    }

    /// The slot `slot` for `time` of the wheel `wheel` is empty now.
    #[inline]
    fn clear(&mut self, wheel: u32, slot: usize, time: u64) {
        let words = self.words();
        let (word, bit) = (slot / 64, slot % 64);
        let here = word & (words - 1);
        self.occupied[word] &= !(1 << bit);
        let rest = self.occupied[word];
        let known = &mut self.wheels[wheel as usize % WHEELS];
        // The distance to the next slot: in this word, in another one, or earlier in this one.
        let ahead = rest & (NEVER << bit);
        if ahead != 0 {
            known.first = time + ((u64::from(ahead.trailing_zeros()) - bit as u64) << wheel << 1);
        } else {
            if rest == 0 {
                known.words &= !(1 << here);
            }
            known.first = if known.words != 0 {
                let later = known.words & (NEVER << here << 1);
                let next = if later != 0 { later } else { known.words }.trailing_zeros() as usize;
                let first = self.occupied[(word - here) | next].trailing_zeros() as usize;
                let distance = (next * 64 + first).wrapping_sub(here * 64 + bit) & (words * 64 - 1);
                time + ((distance as u64) << wheel << 1)
            } else {
                self.active &= !(1 << wheel);
                NEVER
            };
        }
        let mut earliest = NEVER;
        let mut active = self.active;
        while active != 0 {
            earliest = earliest.min(self.wheels[active.trailing_zeros() as usize % WHEELS].first);
            active &= active - 1;
        }
        self.earliest = earliest;
    }

    /// Takes ready packets, regardless of time.
    #[inline]
    fn take(&mut self) -> Option<PacketId> {
        let Self { ready, overdue, chunks, .. } = self;
        ready.pop_front(chunks).or_else(|| overdue.pop_front(chunks))
    }
}

impl Calendar for Mltw {
    // One place of a qdisc's arrival calls it, and what it is called with need not be put together
    // there.
    #[inline(always)]
    fn insert(&mut self, packets: &mut Packets, id: PacketId, slot: Slot, now: Nanos) -> Nanos {
        let Nanos(at) = slot.at;
        let time = if at <= now.0 {
            at
        } else {
            let mask = 1_u64.wrapping_shl(slot.spacing) - 1;
            at.saturating_add(mask) & !mask
        };
        let time = time.max(slot.behind.0);
        packets.meta_mut(id).edt = Nanos(time);
        if time > self.front && self.is_near(time) {
            self.put(packets, id, time);
            return Nanos(time);
        }
        Nanos(self.put_aside(packets, id, time, now))
    }

    #[inline]
    fn pop(&mut self, packets: &mut Packets, now: Nanos) -> Option<PacketId> {
        loop {
            if let Some(id) = self.take() {
                return Some(id);
            }
            if self.earliest > now.0 {
                self.front = self.front.max(now.0.min(LATEST));
                return None;
            }
            self.open(packets);
        }
    }

    #[inline]
    fn release(&mut self, packets: &mut Packets, now: Nanos, out: &mut Batch) {
        loop {
            let Self { ready, overdue, chunks, .. } = self;
            fill(out, ready, chunks, packets);
            if !overdue.is_empty() {
                fill(out, overdue, chunks, packets);
            }
            if !out.has_room() {
                return;
            }
            if self.earliest > now.0 {
                self.front = self.front.max(now.0.min(LATEST));
                return;
            }
            self.open(packets);
        }
    }

    fn next(&self) -> Option<Nanos> {
        if !self.ready.is_empty() || !self.overdue.is_empty() {
            return Some(Nanos(self.front));
        }
        (self.earliest != NEVER).then_some(Nanos(self.earliest))
    }

    fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        loop {
            if let Some(id) = self.take() {
                return Some(id);
            }
            if self.earliest == NEVER {
                return None;
            }
            self.open(packets);
        }
    }

    fn memory(&self) -> usize {
        let bits = self.slots.capacity() + self.occupied.capacity() + self.rested.capacity();
        size_of::<Self>() + bits * size_of::<u64>() + self.chunks.memory()
    }
}

/// Moves packets of `chain` into `out` while there is room.
#[inline]
fn fill(out: &mut Batch, chain: &mut Chain, chunks: &mut Chunks, packets: &Packets) {
    loop {
        let count = chain.take(chunks, packets, out.free());
        if count == 0 {
            return;
        }
        out.filled(count);
    }
}

/// The wheel that has the slot for `time`.
#[inline]
fn wheel_of(time: u64) -> u32 {
    // The highest bit means the end of time, so there is always a bit to find.
    (time | 1 << 63).trailing_zeros()
}

#[cfg(test)]
mod tests;
