//! Those that wait directly below a class, in the order of their virtual times there.
//!
//! An implicit heap of four-fold nodes. A child that is itself a wait queue learns its position, so
//! that it can move when its own first child changes; a leaf stays where it is until it comes
//! first.
//!
//! Cost: O(log n) to insert, to take out, and to move.

/// A child: a leaf, or the wait queue of a class below, by place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Child(u32);

impl Child {
    const IS_QUEUE: u32 = 1 << 31;

    pub(super) const fn leaf(place: u32) -> Self {
        Self(place)
    }

    pub(super) const fn queue(place: u32) -> Self {
        Self(place | Self::IS_QUEUE)
    }

    /// The place of a leaf, or (`Err`) of a wait queue.
    #[inline]
    pub(super) const fn get(self) -> Result<u32, u32> {
        if self.0 & Self::IS_QUEUE == 0 { Ok(self.0) } else { Err(self.0 & !Self::IS_QUEUE) }
    }
}

/// Children of a node of the heap.
const ARITY: usize = 4;

/// No position.
pub(super) const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    time: u64,
    child: Child,
}

/// Whether the virtual time `one` comes before `other`. Virtual times wrap.
#[inline]
pub(super) fn is_before(one: u64, other: u64) -> bool {
    (one.wrapping_sub(other) as i64) < 0
}

/// A heap by virtual time.
#[derive(Default, Debug)]
pub(super) struct Heap {
    entries: Vec<Entry>,
}

impl Heap {
    /// The first child, and its time.
    #[inline]
    pub(super) fn first(&self) -> Option<(u64, Child)> {
        self.entries.first().map(|entry| (entry.time, entry.child))
    }

    /// The time of the child at `position`.
    #[inline]
    pub(super) fn time(&self, position: u32) -> u64 {
        self.entries[position as usize].time
    }

    /// Adds `child`. `moved` learns each wait queue's new position.
    #[inline]
    pub(super) fn insert(&mut self, time: u64, child: Child, moved: &mut impl FnMut(u32, u32)) {
        self.entries.push(Entry { time, child });
        self.rise(self.entries.len() - 1, moved);
    }

    /// Gives the child at `position` another time.
    #[inline]
    pub(super) fn set(&mut self, position: u32, time: u64, moved: &mut impl FnMut(u32, u32)) {
        let position = position as usize;
        let before = std::mem::replace(&mut self.entries[position].time, time);
        if is_before(time, before) {
            self.rise(position, moved);
        } else {
            self.sink(position, moved);
        }
    }

    /// Takes out the child at `position`.
    #[inline]
    pub(super) fn remove(&mut self, position: u32, moved: &mut impl FnMut(u32, u32)) {
        let position = position as usize;
        let gone = self.entries.swap_remove(position);
        if let Err(queue) = gone.child.get() {
            moved(queue, NOWHERE);
        }
        if position < self.entries.len() {
            if is_before(self.entries[position].time, gone.time) {
                self.rise(position, moved);
            } else {
                self.sink(position, moved);
            }
        }
    }

    /// Takes out all for which `stays` is false.
    pub(super) fn retain(
        &mut self,
        stays: impl Fn(Child) -> bool,
        moved: &mut impl FnMut(u32, u32),
    ) {
        let entries = std::mem::take(&mut self.entries);
        for Entry { time, child } in entries {
            if stays(child) {
                self.insert(time, child, moved);
            } else if let Err(queue) = child.get() {
                moved(queue, NOWHERE);
            }
        }
    }

    #[inline]
    fn put(&mut self, position: usize, entry: Entry, moved: &mut impl FnMut(u32, u32)) {
        self.entries[position] = entry;
        if let Err(queue) = entry.child.get() {
            moved(queue, position as u32);
        }
    }

    #[inline]
    fn rise(&mut self, mut position: usize, moved: &mut impl FnMut(u32, u32)) {
        let entry = self.entries[position];
        while position > 0 {
            let parent = (position - 1) / ARITY;
            if !is_before(entry.time, self.entries[parent].time) {
                break;
            }
            self.put(position, self.entries[parent], moved);
            position = parent;
        }
        self.put(position, entry, moved);
    }

    #[inline]
    fn sink(&mut self, mut position: usize, moved: &mut impl FnMut(u32, u32)) {
        let entry = self.entries[position];
        loop {
            let first = position * ARITY + 1;
            let Some((least, child)) = self.least_of(first) else { break };
            if !is_before(child.time, entry.time) {
                break;
            }
            self.put(position, child, moved);
            position = least;
        }
        self.put(position, entry, moved);
    }

    /// Of the children from the position `first` on, the one that comes first, and its position.
    #[inline]
    fn least_of(&self, first: usize) -> Option<(usize, Entry)> {
        let children = self.entries.get(first..)?;
        let earlier = |one: usize, other: usize| {
            if is_before(children[other].time, children[one].time) { other } else { one }
        };
        let least = match children.len() {
            0 => return None,
            ARITY.. => earlier(earlier(0, 1), earlier(2, 3)),
            len => (1..len).fold(0, earlier),
        };
        Some((first + least, children[least]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    proptest! {
        /// Compared with a sorted set, with times on both sides of the wrap.
        #[test]
        fn the_first_child_has_the_lowest_time(
            acts in prop::collection::vec((0..4, 0u32..24, 0u64..1000), 0..300),
        ) {
            let (mut heap, mut model) = (Heap::default(), BTreeSet::new());
            let (mut positions, mut times) = (BTreeMap::new(), BTreeMap::new());
            for (at, (act, place, time)) in (0..).zip(acts) {
                // No two times are the same.
                let time = time << 16 | at;
                let wrapping = time.wrapping_sub(1 << 25);
                let position = positions.get(&place).copied().unwrap_or(NOWHERE);
                let mut moved = |place, position| {
                    positions.insert(place, position);
                };
                match (act, times.get(&place).copied()) {
                    (0, Some(before)) => {
                        heap.remove(position, &mut moved);
                        times.remove(&place);
                        model.remove(&(before, place));
                    }
                    (1, Some(before)) => {
                        heap.set(position, wrapping, &mut moved);
                        times.insert(place, time);
                        model.remove(&(before, place));
                        model.insert((time, place));
                    }
                    (2, Some(_)) => {
                        heap.retain(|child| child != Child::queue(place), &mut moved);
                        let before = times.remove(&place).unwrap();
                        model.remove(&(before, place));
                    }
                    (_, None) => {
                        heap.insert(wrapping, Child::queue(place), &mut moved);
                        times.insert(place, time);
                        model.insert((time, place));
                    }
                    (_, Some(_)) => {}
                }
                let first = heap.first().map(|(time, child)| (time.wrapping_add(1 << 25), child));
                prop_assert_eq!(
                    first,
                    model.first().map(|(time, place)| (*time, Child::queue(*place)))
                );
                let knows = |(place, position): (&u32, &u32)| {
                    (*position == NOWHERE) != times.contains_key(place)
                };
                prop_assert!(positions.iter().all(knows));
            }
        }
    }
}
