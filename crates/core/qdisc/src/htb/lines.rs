//! Classes that wait for the same credit, in lines.
//!
//! If a class has no credit, thousands of classes below it may be refused until the same time. If
//! each of them asked again then, a packet would cost as much as there are classes. So each lender
//! has a line. One of its children stands *before* the line and asks for all of them: if it is
//! refused, the others would be refused, too. When it has been served, the first of the line takes
//! its place.
//!
//! *Lines of lines.* The child before its parent's line stands in the line of the grandparent if it
//! waits for that one too, and so on. So for each class, one waiting descendant asks for all.
//!
//! *The first of a line is the child that has had the least*
//! ([`ClassMeter::place_in_line`](super::ClassMeter::place_in_line)), however long it has waited.
//! So children are served in proportion to their quanta, whatever the lengths of their packets, and
//! a class that leaves the line for a moment to use its own rate loses nothing.
//!
//! A class stands in at most one line. A line is a pairing heap linked through the leaves: it
//! allocates nothing when it grows.
//!
//! Source: M. Fredman, R. Sedgewick, D. Sleator, R. Tarjan, "The pairing heap" (1986).
//!
//! Cost: O(1) to join, O(log n) to leave, amortized.

use super::DEPTH_MAX;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// No class.
const NONE: u32 = u32::MAX;

/// A class's place in its line.
#[derive(Clone, Copy)]
pub(super) struct Place {
    line: u32,
    /// The first of those that are behind it,
    child: u32,
    /// the next one behind the same class,
    next: u32,
    /// and the one before it there, or that class.
    before: u32,
    /// Lower comes first; it wraps.
    pub(super) turn: u64,
}

impl Place {
    /// In no line.
    pub(super) const NOWHERE: Self =
        Self { line: NONE, child: NONE, next: NONE, before: NONE, turn: 0 };
}

/// An entry of a line.
pub(super) trait Standing {
    /// Its place.
    fn in_line(&mut self) -> &mut Place;

    /// Its turn in the line.
    fn turn(&self) -> u64;
}

/// The highest of the lines for which a class asks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Top(u32);

impl Top {
    /// It asks for itself.
    pub(super) const NONE: Self = Self(NONE);
}

/// One line.
#[derive(Clone, Copy)]
struct Line {
    first: u32,
    /// The class that asks for the line, and is not in it. Without one the line is empty.
    before: u32,
    /// The next lower line for which the same class asks.
    below: u32,
    /// The level of its class above the leaves.
    level: u8,
}

/// The lines of one queue, by what each waits for. A line is kept once it was needed, until there
/// are many that nobody uses.
#[derive(Default)]
pub(super) struct Lines {
    lines: Vec<Line>,
    /// Those that have no name.
    vacant: Vec<u32>,
    by_id: HashMap<u64, u32, BuildHasherDefault<Multiply>>,
}

impl Lines {
    /// The line `id`, at a class `level` above the leaves.
    #[inline]
    pub(super) fn of(&mut self, id: u64, level: u8) -> u32 {
        let Self { lines, vacant, by_id } = self;
        *by_id.entry(id).or_insert_with(|| {
            let new = Line { first: NONE, before: NONE, below: NONE, level };
            if let Some(line) = vacant.pop() {
                lines[line as usize] = new;
                return line;
            }
            lines.push(new);
            lines.len() as u32 - 1
        })
    }

    /// Forgets the lines for which no class asks, if there are more than `most` lines. Returns
    /// whether it did: then the number of a line may be that of another one from now on.
    pub(super) fn forget_unused(&mut self, most: usize) -> bool {
        let is_due = self.by_id.len() > most;
        if is_due {
            let Self { lines, vacant, by_id } = self;
            by_id.retain(|_, line| {
                let is_used = lines[*line as usize].before != NONE;
                if !is_used {
                    vacant.push(*line);
                }
                is_used
            });
        }
        is_due
    }

    /// The level of the class of `line` above the leaves.
    #[inline]
    pub(super) fn level(&self, line: u32) -> u8 {
        self.lines[line as usize].level
    }

    /// The class that asks for `line`.
    #[inline]
    pub(super) fn asker(&self, line: u32) -> Option<u32> {
        Some(self.lines[line as usize].before).filter(|place| *place != NONE)
    }

    /// Whether the first of `line` comes before a class with this `turn`.
    #[inline]
    pub(super) fn goes_before(&self, leaves: &[impl Standing], line: u32, turn: u64) -> bool {
        let first = self.lines[line as usize].first;
        first != NONE && is_before(leaves[first as usize].turn(), turn)
    }

    /// The level of the highest of the lines of `top`.
    #[inline]
    pub(super) fn level_of(&self, top: Top) -> u8 {
        if top.0 == NONE { 0 } else { self.level(top.0) }
    }

    /// Makes the class at `place` ask for `line`, in addition to those of `top`.
    #[inline]
    pub(super) fn put_before(&mut self, top: &mut Top, place: u32, line: u32) {
        let at = &mut self.lines[line as usize];
        (at.before, at.below) = (place, top.0);
        *top = Top(line);
    }

    /// Stops asking for the lines of `top` at classes above `level`. Returns these lines, the
    /// lowest first, and leaves the others in `top`.
    #[inline]
    pub(super) fn take_above(&mut self, top: &mut Top, level: u8) -> ([u32; DEPTH_MAX], usize) {
        let (mut lines, mut count) = ([NONE; DEPTH_MAX], 0);
        while top.0 != NONE && self.level(top.0) > level {
            lines[count] = top.0;
            count += 1;
            let at = &mut self.lines[top.0 as usize];
            at.before = NONE;
            top.0 = std::mem::replace(&mut at.below, NONE);
        }
        lines[..count].reverse();
        (lines, count)
    }

    /// Puts the class at `place` into `line`, where it has this `turn`.
    #[inline]
    pub(super) fn insert(
        &mut self,
        leaves: &mut [impl Standing],
        place: u32,
        line: u32,
        turn: u64,
    ) {
        *leaves[place as usize].in_line() = Place { line, turn, ..Place::NOWHERE };
        let first = &mut self.lines[line as usize].first;
        *first = meld(leaves, *first, place);
    }

    /// Takes the class at `place` out of its line, if it is in one.
    #[inline]
    pub(super) fn remove(&mut self, leaves: &mut [impl Standing], place: u32) {
        let at = std::mem::replace(leaves[place as usize].in_line(), Place::NOWHERE);
        if at.line == NONE {
            return;
        }
        let rest = merge(leaves, at.child);
        let first = &mut self.lines[at.line as usize].first;
        if *first == place {
            *first = rest;
            return;
        }
        let before = leaves[at.before as usize].in_line();
        *(if before.child == place { &mut before.child } else { &mut before.next }) = at.next;
        if at.next != NONE {
            leaves[at.next as usize].in_line().before = at.before;
        }
        *first = meld(leaves, *first, rest);
    }

    /// Takes out the first class of `line`.
    #[inline]
    pub(super) fn pop_front(&mut self, leaves: &mut [impl Standing], line: u32) -> Option<u32> {
        let first = self.lines[line as usize].first;
        if first == NONE {
            return None;
        }
        self.remove(leaves, first);
        Some(first)
    }
}

/// Whether the turn `one` comes before `other`.
#[inline]
fn is_before(one: u64, other: u64) -> bool {
    (one.wrapping_sub(other) as i64) < 0
}

/// Links the later of the classes `one` and `other` behind the earlier, which it returns. Each is
/// the root of its heap, or [`NONE`].
#[inline]
fn meld(leaves: &mut [impl Standing], one: u32, other: u32) -> u32 {
    if one == NONE || other == NONE {
        return one.min(other);
    }
    let turn = |place: u32| leaves[place as usize].turn();
    let is_other = is_before(turn(other), turn(one));
    let (first, behind) = if is_other { (other, one) } else { (one, other) };
    let next = std::mem::replace(&mut leaves[first as usize].in_line().child, behind);
    if next != NONE {
        leaves[next as usize].in_line().before = behind;
    }
    let at = leaves[behind as usize].in_line();
    (at.before, at.next) = (first, next);
    first
}

/// Melds the siblings from `first` on into one heap: in pairs, and then from the last pair on.
fn merge(leaves: &mut [impl Standing], first: u32) -> u32 {
    let (mut rest, mut pairs) = (first, NONE);
    while rest != NONE {
        let one = rest;
        let other = detach(leaves, one);
        rest = if other == NONE { NONE } else { detach(leaves, other) };
        let pair = meld(leaves, one, other);
        leaves[pair as usize].in_line().next = pairs;
        pairs = pair;
    }
    let mut all = NONE;
    while pairs != NONE {
        let next = detach(leaves, pairs);
        all = meld(leaves, all, pairs);
        pairs = next;
    }
    all
}

/// Unlinks the class at `place`. Returns its next sibling.
#[inline]
fn detach(leaves: &mut [impl Standing], place: u32) -> u32 {
    let at = leaves[place as usize].in_line();
    at.before = NONE;
    std::mem::replace(&mut at.next, NONE)
}

/// Names of lines are numbers of classes: a multiplication spreads them.
#[derive(Default)]
struct Multiply(u64);

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // Fibonacci hashing (Knuth, volume 3, 6.4): 2^64 divided by the golden ratio.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    impl Standing for Place {
        fn in_line(&mut self) -> &mut Place {
            self
        }

        fn turn(&self) -> u64 {
            self.turn
        }
    }

    #[test]
    fn a_class_hands_over_the_lines_above_a_level() {
        let (mut lines, mut top) = (Lines::default(), Top::NONE);
        let [one, two, three] = [1, 2, 3].map(|level| lines.of(u64::from(level), level));
        assert_eq!(lines.of(2, 2), two, "it is known");
        [one, two, three].into_iter().for_each(|line| lines.put_before(&mut top, 7, line));
        assert_eq!((lines.level_of(top), lines.asker(two)), (3, Some(7)));
        let (taken, count) = lines.take_above(&mut top, 1);
        assert_eq!(taken[..count], [two, three]);
        assert_eq!((lines.level_of(top), lines.asker(two), lines.asker(one)), (1, None, Some(7)));
    }

    #[test]
    fn lines_that_nobody_uses_are_forgotten_when_there_are_many() {
        let (mut lines, mut top) = (Lines::default(), Top::NONE);
        let used = lines.of(1_000_000, 1);
        lines.put_before(&mut top, 7, used);
        for id in 0..100_000 {
            lines.of(id, 1);
            lines.forget_unused(100);
        }
        assert!(lines.lines.len() <= 102, "{}", lines.lines.len());
        assert_eq!((lines.of(1_000_000, 1), lines.asker(used)), (used, Some(7)));
    }

    proptest! {
        /// Compared with a sorted set, with turns on both sides of the wrap.
        #[test]
        fn the_first_of_a_line_has_the_lowest_turn(
            acts in prop::collection::vec((0..4, 0u32..24, 0u64..1000), 0..300),
        ) {
            let mut leaves = [Place::NOWHERE; 24];
            let (mut lines, mut model) = (Lines::default(), BTreeSet::new());
            let line = lines.of(1, 1);
            for (at, (act, place, turn)) in (0..).zip(acts) {
                // No two turns are the same.
                let turn = turn << 16 | at;
                let standing = model.iter().copied().find(|(_, other)| *other == place);
                let first = model.first().copied();
                match (act, standing) {
                    (0, _) => {
                        let expected = model.pop_first().map(|(_, place)| place);
                        prop_assert_eq!(lines.pop_front(&mut leaves, line), expected);
                    }
                    (1, _) => {
                        lines.remove(&mut leaves, place);
                        standing.map(|standing| model.remove(&standing));
                    }
                    (_, None) => {
                        let wrapping = turn.wrapping_sub(1 << 25);
                        let goes_before = lines.goes_before(&leaves, line, wrapping);
                        prop_assert_eq!(goes_before, first.is_some_and(|(first, _)| first < turn));
                        lines.insert(&mut leaves, place, line, wrapping);
                        model.insert((turn, place));
                    }
                    (_, Some(_)) => {}
                }
            }
        }
    }
}
