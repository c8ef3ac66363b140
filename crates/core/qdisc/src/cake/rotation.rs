//! Whose turn it is: lists of flows, and a wheel of rounds.
//!
//! Deficit round robin lets every flow send a quantum per round. If flows count for less than
//! others (one of a host's thousand), their quantum is a few bytes, and a plain list would be
//! walked hundreds of times before one of them may send a packet. So a flow that has used up its
//! quantum goes to the round in which it will be able to pay: [`Wheel`] has a list for each of the
//! next [`ROUNDS`] rounds, and a bit for each list that is not empty. Rounds in which no flow can
//! pay cost nothing.
//!
//! A flow that needs more rounds than there are waits in the last of them and is queued again.
//!
//! Source: M. Shreedhar, G. Varghese, "Efficient fair queuing using deficit round-robin"; DRR++ in
//! "Piece of CAKE", section III-B; rounds on a wheel are ours.
//!
//! Cost: O(1); four bytes of the flow, and of its predecessor in the list, which was just written
//! and so is still in the cache.

use super::slab::{NONE, Slab};

/// Rounds ahead, this one included.
pub(super) const ROUNDS: u32 = 64;

/// An entry's neighbours; undefined if it is in no list.
#[derive(Clone, Copy)]
pub(super) struct Link {
    next: u16,
    /// Maintained only in lists with removal anywhere.
    previous: u16,
}

impl Link {
    pub(super) const NOBODY: Self = Self { next: NONE, previous: NONE };
}

/// An entry of a list.
pub(super) trait Linked {
    fn link(&self) -> Link;
    fn link_mut(&mut self) -> &mut Link;

    /// The next entry.
    #[inline(always)]
    fn next(&self) -> u16 {
        self.link().next
    }
}

/// A list of flows, linked through the slab in which they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    head: u16,
    /// Undefined if there is no head.
    tail: u16,
}

impl List {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE };

    /// The first.
    #[inline]
    pub(super) fn front(&self) -> Option<u16> {
        (self.head != NONE).then_some(self.head)
    }

    /// Puts `id`, which is in no list, behind all others.
    #[inline]
    pub(super) fn push_back(&mut self, slab: &mut Slab<impl Linked>, id: u16) {
        if self.head == NONE {
            self.head = id;
            *slab[id].link_mut() = Link::NOBODY;
        } else {
            slab[self.tail].link_mut().next = id;
            *slab[id].link_mut() = Link { next: NONE, previous: self.tail };
        }
        self.tail = id;
    }

    /// Appends `id`, which is unlinked, to a list from which only the first is taken.
    #[inline(always)]
    pub(super) fn append(&mut self, slab: &mut Slab<impl Linked>, id: u16) {
        debug_assert_eq!(slab[id].next(), NONE);
        if self.head == NONE {
            self.head = id;
        } else {
            slab[self.tail].link_mut().next = id;
        }
        self.tail = id;
    }

    /// Takes the first, which is followed by `next`. The successor is not updated: a list is used
    /// either with this at its head, or anywhere with [`List::remove`].
    #[inline]
    pub(super) fn pop_front(&mut self, next: u16) {
        self.head = next;
    }

    /// Takes `id` out, wherever it is.
    #[inline]
    pub(super) fn remove(&mut self, slab: &mut Slab<impl Linked>, id: u16) {
        let Link { next, previous } = slab[id].link();
        match previous {
            NONE => self.head = next,
            previous => slab[previous].link_mut().next = next,
        }
        match next {
            NONE => self.tail = previous,
            next => slab[next].link_mut().previous = previous,
        }
    }
}

/// The rounds to come.
pub(super) struct Wheel {
    lists: [List; ROUNDS as usize],
    /// Which of them are not empty.
    occupied: u64,
    /// The present round's.
    now: u32,
}

impl Wheel {
    pub(super) const fn new() -> Self {
        Self { lists: [List::EMPTY; ROUNDS as usize], occupied: 0, now: 0 }
    }

    /// Appends `id`, which is unlinked, to the round that comes `rounds` later: 1 to 63.
    #[inline]
    pub(super) fn put(&mut self, slab: &mut Slab<impl Linked>, id: u16, rounds: u32) {
        let at = (self.now + rounds) % ROUNDS;
        self.occupied |= 1 << at;
        self.lists[at as usize].append(slab, id);
    }

    /// The first entry of this round.
    #[inline]
    pub(super) fn first(&self) -> Option<u16> {
        self.lists[(self.now % ROUNDS) as usize].front()
    }

    /// The current entry. Advances to the next round that is not empty.
    #[inline]
    pub(super) fn front(&mut self) -> Option<u16> {
        if let Some(id) = self.first() {
            return Some(id);
        }
        if self.occupied == 0 {
            return None;
        }
        let ahead = self.occupied.rotate_right(self.now).trailing_zeros();
        self.now = (self.now + ahead) % ROUNDS;
        self.lists[self.now as usize].front()
    }

    /// Takes the next one, which is followed by `next`.
    #[inline(always)]
    pub(super) fn pop_front(&mut self, next: u16) {
        self.lists[(self.now % ROUNDS) as usize].pop_front(next);
        if next == NONE {
            self.occupied &= !(1 << self.now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    struct One(Link);

    impl Default for One {
        fn default() -> Self {
            Self(Link::NOBODY)
        }
    }

    impl Linked for One {
        fn link(&self) -> Link {
            self.0
        }

        fn link_mut(&mut self) -> &mut Link {
            &mut self.0
        }
    }

    fn slab(number: usize) -> Slab<One> {
        let mut slab = Slab::new();
        (0..number).for_each(|_| assert!(slab.take() < 300));
        slab
    }

    proptest! {
        /// The oracle is a `VecDeque`.
        #[test]
        fn a_list_keeps_the_order_of_its_remaining_items(
            steps in prop::collection::vec((0u16..64, any::<bool>()), 1..300),
        ) {
            let mut slab = slab(64);
            let mut list = List::EMPTY;
            let mut model: VecDeque<u16> = VecDeque::new();
            for (id, oldest) in steps {
                if let Some(at) = model.iter().position(|other| *other == id) {
                    let id = if oldest { model[0] } else { id };
                    list.remove(&mut slab, id);
                    model.remove(if oldest { 0 } else { at });
                } else {
                    list.push_back(&mut slab, id);
                    model.push_back(id);
                }
                prop_assert_eq!(list.front(), model.front().copied());
            }
        }

        /// The oracle keeps the number of the round in which each comes.
        #[test]
        fn each_item_comes_in_its_round_and_in_order(
            steps in prop::collection::vec(prop::option::weighted(0.6, 1u32..ROUNDS), 1..300),
        ) {
            let mut slab = slab(300);
            let mut wheel = Wheel::new();
            let mut model: Vec<(u64, usize, u16)> = Vec::new();
            let mut round = 0;
            for (order, step) in steps.into_iter().enumerate() {
                let id = order as u16;
                match step {
                    Some(rounds) => {
                        *slab[id].link_mut() = Link::NOBODY;
                        wheel.put(&mut slab, id, rounds);
                        model.push((round + u64::from(rounds), order, id));
                    }
                    None => {
                        model.sort_unstable();
                        let expected = model.first().copied();
                        let front = wheel.front();
                        prop_assert_eq!(front, expected.map(|(_, _, id)| id));
                        if front.is_some() {
                            let next = front.map_or(NONE, |id| slab[id].next());
                            wheel.pop_front(next);
                        }
                        if let Some((due, _, _)) = expected {
                            round = due;
                            model.remove(0);
                        }
                    }
                }
            }
        }
    }
}
