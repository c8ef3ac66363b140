//! What comes at which time.
//!
//! A circle of slots, each a tick long, holds what comes within a millisecond; a heap holds the
//! rest. Nothing moves from the heap into the circle: it is looked at when it is due. A slot's
//! entries are a list in no order. When its tick is over all of them are due at once; those of the
//! tick that has begun are compared with the clock: nothing comes early. Thousands of classes that
//! began at the same time have the same times, so a long list is gone through once, and the first
//! time in it is remembered.
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

/// The first time in the circle if it has to be looked for.
const UNKNOWN: Nanos = Nanos::ZERO;

#[derive(Clone, Copy)]
struct Entry {
    at: Nanos,
    number: u32,
    next: u32,
}

/// Timers of one queue, by tick.
pub(super) struct Calendar {
    entries: Vec<Entry>,
    /// The first entry that is in no list.
    vacant: u32,
    /// The first of those that are due and have not been taken.
    due: u32,
    /// The first entry of each slot.
    slots: Box<[u32; SLOTS]>,
    /// The tick before which all slots are empty: that of the last look.
    head: u64,
    /// The first time in the slots, [`UNKNOWN`], or [`Nanos::MAX`] if they are empty;
    first: Nanos,
    /// and what comes then, if it is known.
    first_number: u32,
    /// Which slots have entries, a bit for each.
    filled: [u64; SLOTS / WORD],
    /// Which of these words are not zero.
    words: u16,
    far: Times,
}

impl Default for Calendar {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            vacant: NONE,
            due: NONE,
            slots: Box::new([NONE; SLOTS]),
            head: 0,
            first: Nanos::MAX,
            first_number: NONE,
            filled: [0; SLOTS / WORD],
            words: 0,
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
        if at < self.first {
            (self.first, self.first_number) = (at, number);
        }
        let slot = tick as usize % SLOTS;
        let entry = Entry { at, number, next: self.slots[slot] };
        self.slots[slot] = match self.entries.get_mut(self.vacant as usize) {
            Some(place) => {
                let taken = std::mem::replace(&mut self.vacant, place.next);
                *place = entry;
                taken
            }
            None => self.add(entry),
        };
        self.filled[slot / WORD] |= 1 << (slot % WORD);
        self.words |= 1 << (slot / WORD);
    }

    /// The place of `entry`, which is more than there have been at a time before.
    #[cold]
    fn add(&mut self, entry: Entry) -> u32 {
        self.entries.push(entry);
        self.entries.len() as u32 - 1
    }

    /// The slot has no entries left.
    fn mark_empty(&mut self, slot: usize) {
        let word = slot / WORD;
        self.filled[word] &= !(1 << (slot % WORD));
        if self.filled[word] == 0 {
            self.words &= !(1 << word);
        }
    }

    /// The first tick of which the slot has entries.
    fn first_tick(&self) -> Option<u64> {
        if self.words == 0 {
            return None;
        }
        let head = self.head as usize % SLOTS;
        let first = head / WORD;
        let bits = self.filled[first] & u64::MAX << (head % WORD);
        let (word, bits) = if bits != 0 {
            (first, bits)
        } else {
            // From the next word on, and in the end what is before the head in its word.
            let next = self.words.rotate_right(first as u32 + 1).trailing_zeros() as usize;
            let word = (first + 1 + next) % (SLOTS / WORD);
            (word, self.filled[word])
        };
        let slot = word * WORD + bits.trailing_zeros() as usize;
        Some(self.head + ((slot + SLOTS - head) % SLOTS) as u64)
    }

    /// The first time, and what comes then.
    pub(super) fn first(&mut self) -> Option<(Nanos, u32)> {
        if self.first == UNKNOWN {
            self.find_first();
        }
        match self.far.first() {
            Some(at) if at < self.first => self.far.first_flow().map(|number| (at, number)),
            _ => (self.first < Nanos::MAX).then_some((self.first, self.first_number)),
        }
    }

    /// Looks for the first time in the slots.
    #[inline(never)]
    fn find_first(&mut self) {
        self.first = Nanos::MAX;
        if let Some(tick) = self.first_tick() {
            let mut at = self.slots[tick as usize % SLOTS];
            while let Some(entry) = self.entries.get(at as usize) {
                if entry.at < self.first {
                    (self.first, self.first_number) = (entry.at, entry.number);
                }
                at = entry.next;
            }
        }
    }

    /// Takes one that comes at `now` or before.
    #[inline]
    pub(super) fn pop(&mut self, now: Nanos) -> Option<(Nanos, u32)> {
        if self.due == NONE && !self.gather(now) {
            self.far.first().filter(|at| *at <= now)?;
            return self.far.pop();
        }
        let entry = self.entries.get_mut(self.due as usize)?;
        let Entry { at, number, next } = *entry;
        entry.next = self.vacant;
        self.vacant = std::mem::replace(&mut self.due, next);
        Some((at, number))
    }

    /// Gathers those of the first slot that come at `now` or before. Returns whether there are any.
    fn gather(&mut self, now: Nanos) -> bool {
        if self.first > now {
            self.head = self.head.max(tick(now));
            return false;
        }
        if let Some(first) = self.first_tick()
            && first <= tick(now)
        {
            self.head = first;
            let slot = first as usize % SLOTS;
            let list = std::mem::replace(&mut self.slots[slot], NONE);
            if first < tick(now) {
                self.due = list;
                self.first = UNKNOWN;
            } else {
                self.part(list, now);
            }
            if self.slots[slot] == NONE {
                self.mark_empty(slot);
            }
            self.due != NONE
        } else {
            self.head = self.head.max(tick(now));
            false
        }
    }

    /// Those of `list` that come at `now` or before are due, and the others go back to the slot of
    /// the head. Both in the same order.
    fn part(&mut self, list: u32, now: Nanos) {
        self.first = Nanos::MAX;
        let (mut at, mut last) = (list, [NONE; 2]);
        let slot = self.head as usize % SLOTS;
        while let Some(&Entry { at: time, number, next }) = self.entries.get(at as usize) {
            let stays = time > now;
            if stays && time < self.first {
                (self.first, self.first_number) = (time, number);
            }
            let last = &mut last[usize::from(stays)];
            match self.entries.get_mut(*last as usize) {
                Some(last) => last.next = at,
                None if stays => self.slots[slot] = at,
                None => self.due = at,
            }
            *last = at;
            at = next;
        }
        for last in last {
            if let Some(last) = self.entries.get_mut(last as usize) {
                last.next = NONE;
            }
        }
        if self.first == Nanos::MAX {
            self.first = UNKNOWN;
        }
    }

    /// Takes out the first, which is `number`, and comes at `at`.
    pub(super) fn take_first(&mut self, at: Nanos, number: u32) {
        if self.take_from(tick(at).max(self.head) as usize % SLOTS, at, number) {
            self.first = UNKNOWN;
        } else if self.far.first() == Some(at) {
            self.far.pop();
        }
    }

    /// Takes one out of this slot. Returns whether it was there.
    fn take_from(&mut self, slot: usize, time: Nanos, number: u32) -> bool {
        let (mut before, mut at) = (NONE, self.slots[slot]);
        while let Some(&Entry { at: one, number: other, next }) = self.entries.get(at as usize) {
            if (one, other) == (time, number) {
                match self.entries.get_mut(before as usize) {
                    Some(before) => before.next = next,
                    None => self.slots[slot] = next,
                }
                if self.slots[slot] == NONE {
                    self.mark_empty(slot);
                }
                self.entries[at as usize].next = std::mem::replace(&mut self.vacant, at);
                return true;
            }
            (before, at) = (at, next);
        }
        false
    }

    /// Removes all of this number, while none is due.
    pub(super) fn remove(&mut self, number: u32) {
        self.far.retain(|one| one != number);
        for slot in 0..SLOTS {
            let mut at = std::mem::replace(&mut self.slots[slot], NONE);
            while let Some(&Entry { number: one, next, .. }) = self.entries.get(at as usize) {
                let list = if one == number { &mut self.vacant } else { &mut self.slots[slot] };
                self.entries[at as usize].next = std::mem::replace(list, at);
                at = next;
            }
            if self.slots[slot] == NONE {
                self.mark_empty(slot);
            }
        }
        self.first = UNKNOWN;
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
                        if let Some((at, number)) = calendar.first() {
                            calendar.take_first(at, number);
                            prop_assert!(model.remove(&(at, number)));
                        }
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
                let first = calendar.first();
                prop_assert_eq!(first.map(|(at, _)| at), model.first().map(|(at, _)| *at));
                prop_assert!(first.is_none_or(|first| model.contains(&first)));
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
