//! Leaves that may have credit of their own: better priorities first, those of one in turn.

use narrows_qdisc::htb::{PRIORITIES, Stage, Turns};

/// Leaves that may be served now, by priority.
#[derive(Default)]
pub(super) struct Ready {
    turns: [Turns; PRIORITIES],
    /// The priorities of which there are some, a bit for each.
    prios: u8,
}

impl Ready {
    /// Makes room for `room` leaves of `prio` in all.
    pub(super) fn make_room(&mut self, prio: u8, room: usize) {
        self.turns[usize::from(prio)].make_room(room);
    }

    /// Adds a leaf behind all others.
    #[inline]
    pub(super) fn push(&mut self, prio: u8, place: u32) {
        self.turns[usize::from(prio)].push(place);
        self.prios |= 1 << prio;
    }

    /// Takes the first leaf.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<u32> {
        let turns = self.first()?;
        let place = turns.pop();
        if turns.is_empty() {
            self.prios &= self.prios - 1;
        }
        place
    }

    /// Removes the leaf at `place`, which has `prio`.
    pub(super) fn remove(&mut self, prio: u8, place: u32) {
        let turns = &mut self.turns[usize::from(prio)];
        turns.retain(|one| one != place);
        if turns.is_empty() {
            self.prios &= !(1 << prio);
        }
    }

    /// Whether the next leaf has passed all stages, or that is not worth it.
    #[inline]
    pub(super) fn is_prepared(&self) -> bool {
        self.turns.get(self.prios.trailing_zeros() as usize).is_none_or(|turns| !turns.is_due())
    }

    /// Passes the next leaves through the stages.
    #[inline]
    pub(super) fn look_ahead(&mut self, pass: impl FnMut(Stage, &[u32])) {
        if let Some(turns) = self.first() {
            turns.look_ahead(pass);
        }
    }

    /// Those of the best priority.
    #[inline]
    fn first(&mut self) -> Option<&mut Turns> {
        self.turns.get_mut(self.prios.trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_priorities_come_first() {
        let mut ready = Ready::default();
        for (prio, place) in [(7, 1), (3, 2), (3, 3), (0, 4), (5, 5)] {
            ready.push(prio, place);
        }
        ready.remove(5, 5);
        let all: Vec<_> = std::iter::from_fn(|| ready.pop()).collect();
        assert_eq!(all, [4, 2, 3, 1]);
    }
}
