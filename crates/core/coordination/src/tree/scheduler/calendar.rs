//! What comes at which time.
//!
//! A circle of slots, each a tick long, holds what comes within a millisecond; a heap holds the
//! rest. Nothing moves from the heap into the circle: it is looked at when it is due. A slot's
//! entries are a list in no order, and those of the tick that has begun are compared with the
//! clock: nothing comes early.
//!
//! Source: G. Varghese, T. Lauck, "Hashed and Hierarchical Timing Wheels" (SOSP 1987), scheme 4.
//!
//! Cost: constant for what comes within the circle; O(log n) of what is in the heap for the rest.
//! Grows only with [`Calendar::make_room`].

use narrows_qdisc::htb::Times;
use narrows_units::Nanos;

/// A tick is two to the power of this many nanoseconds.
const TICK_BITS: u32 = 10;
/// Slots of the circle: a power of two.
const SLOTS: usize = 1024;
const WORD: usize = u64::BITS as usize;

/// No entry.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Entry {
    at: Nanos,
    number: u32,
    next: u32,
}

/// See the module's documentation.
pub(super) struct Calendar {
    /// The first entry of each slot.
    slots: Box<[u32; SLOTS]>,
    /// Which slots have entries, a bit for each.
    filled: [u64; SLOTS / WORD],
    entries: Vec<Entry>,
    /// The first entry that is in no slot.
    vacant: u32,
    /// How many entries are in slots.
    len: usize,
    /// The tick before which all slots are empty: that of the last look.
    head: u64,
    far: Times,
}

impl Default for Calendar {
    fn default() -> Self {
        Self {
            slots: Box::new([NONE; SLOTS]),
            filled: [0; SLOTS / WORD],
            entries: Vec::new(),
            vacant: NONE,
            len: 0,
            head: 0,
            far: Times::default(),
        }
    }
}

const fn tick(at: Nanos) -> u64 {
    at.0 >> TICK_BITS
}

impl Calendar {
    /// Makes room for `room` entries in all, so that nothing is allocated while there are no more.
    pub(super) fn make_room(&mut self, room: usize) {
        self.entries.reserve_exact(room.saturating_sub(self.entries.len()));
        self.far.make_room(room);
    }

    /// `number` comes at `at`.
    #[inline]
    pub(super) fn insert(&mut self, at: Nanos, number: u32) {
        let tick = tick(at).max(self.head);
        if tick - self.head >= SLOTS as u64 {
            return self.far.insert(at, number);
        }
        let slot = tick as usize % SLOTS;
        let entry = Entry { at, number, next: self.slots[slot] };
        self.slots[slot] = match self.entries.get_mut(self.vacant as usize) {
            Some(place) => {
                let taken = std::mem::replace(&mut self.vacant, place.next);
                *place = entry;
                taken
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        self.filled[slot / WORD] |= 1 << (slot % WORD);
        self.len += 1;
    }

    /// The first tick of which the slot has entries.
    #[inline]
    fn first_tick(&self) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        let head = self.head as usize % SLOTS;
        // The word of the head is looked at twice: from the head on, and in the end before it.
        let words = (0..=SLOTS / WORD).map(|word| (head / WORD + word) % (SLOTS / WORD));
        let mut mask = u64::MAX << (head % WORD);
        for word in words {
            let bits = self.filled[word] & mask;
            if bits != 0 {
                let slot = word * WORD + bits.trailing_zeros() as usize;
                return Some(self.head + ((slot + SLOTS - head) % SLOTS) as u64);
            }
            mask = u64::MAX;
        }
        None
    }

    /// The first time.
    pub(super) fn first(&self) -> Option<Nanos> {
        let mut first = self.far.first().unwrap_or(Nanos::MAX);
        if let Some(tick) = self.first_tick() {
            let mut at = self.slots[tick as usize % SLOTS];
            while let Some(entry) = self.entries.get(at as usize) {
                first = first.min(entry.at);
                at = entry.next;
            }
        }
        (first < Nanos::MAX).then_some(first)
    }

    /// Takes one that comes at `now` or before.
    #[inline]
    pub(super) fn pop(&mut self, now: Nanos) -> Option<(Nanos, u32)> {
        if let Some(tick_of_slot) = self.first_tick()
            && tick_of_slot <= tick(now)
        {
            self.head = tick_of_slot;
            let taken = self.take(tick_of_slot as usize % SLOTS, now);
            if taken.is_some() {
                return taken;
            }
        }
        self.head = self.head.max(tick(now));
        self.far.first().filter(|at| *at <= now)?;
        self.far.pop()
    }

    /// Takes one that comes at `first`, which is the first time of all and may be in the future.
    pub(super) fn pop_first(&mut self, first: Nanos) -> Option<(Nanos, u32)> {
        if let Some(tick) = self.first_tick() {
            let taken = self.take(tick as usize % SLOTS, first);
            if taken.is_some() {
                return taken;
            }
        }
        self.far.pop()
    }

    /// Takes one from this slot that comes at `until` or before.
    #[inline]
    fn take(&mut self, slot: usize, until: Nanos) -> Option<(Nanos, u32)> {
        let (mut before, mut at) = (NONE, self.slots[slot]);
        while let Some(&Entry { at: time, number, next }) = self.entries.get(at as usize) {
            if time <= until {
                match self.entries.get_mut(before as usize) {
                    Some(before) => before.next = next,
                    None => self.slots[slot] = next,
                }
                if self.slots[slot] == NONE {
                    self.filled[slot / WORD] &= !(1 << (slot % WORD));
                }
                self.entries[at as usize].next = std::mem::replace(&mut self.vacant, at);
                self.len -= 1;
                return Some((time, number));
            }
            (before, at) = (at, next);
        }
        None
    }

    /// Removes all of this number.
    pub(super) fn remove(&mut self, number: u32) {
        self.far.retain(|one| one != number);
        for slot in 0..SLOTS {
            let mut at = std::mem::replace(&mut self.slots[slot], NONE);
            while let Some(&Entry { number: one, next, .. }) = self.entries.get(at as usize) {
                let list = if one == number { &mut self.vacant } else { &mut self.slots[slot] };
                self.entries[at as usize].next = std::mem::replace(list, at);
                self.len -= usize::from(one == number);
                at = next;
            }
            if self.slots[slot] == NONE {
                self.filled[slot / WORD] &= !(1 << (slot % WORD));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Compared with a sorted set: none comes early, none is forgotten, and the first is known.
        #[test]
        fn each_comes_at_its_time(
            acts in prop::collection::vec((0..8, 0u64..3_000_000, 0u32..40), 0..400),
        ) {
            let (mut calendar, mut model) = (Calendar::default(), BTreeSet::new());
            let mut now = Nanos::from_secs(7);
            for (act, span, number) in acts {
                match act {
                    0 => {
                        calendar.remove(number);
                        model.retain(|(_, one)| *one != number);
                    }
                    // Some are overdue already.
                    1..5 => {
                        let at = (now + Nanos(span)) - Nanos(5_000);
                        if model.insert((at, number)) {
                            calendar.insert(at, number);
                        }
                    }
                    5 => {
                        let first = model.first().map(|(at, _)| *at);
                        let taken = first.and_then(|first| calendar.pop_first(first));
                        prop_assert_eq!(taken.map(|(at, _)| at), first);
                        prop_assert!(taken.is_none_or(|taken| model.remove(&taken)));
                    }
                    _ => {
                        now += Nanos(span / 4);
                        let mut due = BTreeSet::new();
                        while let Some(entry) = calendar.pop(now) {
                            prop_assert!(due.insert(entry));
                        }
                        let later = model.split_off(&(now + Nanos(1), 0));
                        prop_assert_eq!(due, std::mem::replace(&mut model, later));
                    }
                }
                prop_assert_eq!(calendar.first(), model.first().map(|(at, _)| *at));
            }
        }
    }

    #[test]
    fn with_room_for_all_nothing_is_allocated() {
        let mut calendar = Calendar::default();
        calendar.make_room(100);
        let memory = calendar.entries.as_ptr();
        for round in 0..10u64 {
            (0..100).for_each(|one| calendar.insert(Nanos(round << 20 | u64::from(one)), one));
            while calendar.pop(Nanos::MAX).is_some() {}
        }
        assert_eq!(calendar.entries.as_ptr(), memory);
    }
}
