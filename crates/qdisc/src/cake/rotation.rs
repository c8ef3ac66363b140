//! Whose turn it is: lists of flows, and a wheel of rounds.
//!
//! Deficit round robin lets every flow send a quantum a round. Where flows count for less than
//! others (one of a host's thousand), their quantum is a few bytes, and a plain list would be walked
//! hundreds of times before one of them may send a packet. So a flow that has used up its quantum is
//! put where it will be able to pay: [`Wheel`] has a list for each of the next [`ROUNDS`] rounds, and
//! a bit for each list that is not empty. Rounds in which nobody can pay cost nothing.
//!
//! Whoever needs more rounds than there are waits for the last of them and is put again.
//!
//! Source: M. Shreedhar, G. Varghese, "Efficient fair queuing using deficit round-robin"; DRR++ in
//! "Piece of CAKE", section III-B; rounds on a wheel are ours.
//!
//! Cost: O(1); four bytes of the flow, and of its predecessor in the list.

use super::slab::{Link, Links, NONE};

/// Rounds ahead, this one included.
pub(super) const ROUNDS: u32 = 64;

/// A list of flows, linked through the slab in which they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    head: u16,
    /// Of no meaning where there is no head.
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
    pub(super) fn push_back(&mut self, links: &mut Links, id: u16) {
        if self.head == NONE {
            self.head = id;
            links[id] = Link { next: NONE, previous: NONE };
        } else {
            links[self.tail].next = id;
            links[id] = Link { next: NONE, previous: self.tail };
        }
        self.tail = id;
    }

    /// Takes the first. Its successor does not notice: a list is either taken from at its head
    /// with this, or anywhere with [`List::remove`].
    #[inline]
    pub(super) fn pop_front(&mut self, links: &Links) {
        self.head = links[self.head].next;
    }

    /// Takes `id` out, wherever it is.
    #[inline]
    pub(super) fn remove(&mut self, links: &mut Links, id: u16) {
        let Link { next, previous } = links[id];
        match previous {
            NONE => self.head = next,
            previous => links[previous].next = next,
        }
        match next {
            NONE => self.tail = previous,
            next => links[next].previous = previous,
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

    /// Puts `id` behind all others of the round that comes `rounds` later: 1 to 63.
    #[inline]
    pub(super) fn put(&mut self, links: &mut Links, id: u16, rounds: u32) {
        let at = (self.now + rounds) % ROUNDS;
        self.occupied |= 1 << at;
        self.lists[at as usize].push_back(links, id);
    }

    /// Whose turn it is. Goes on to the next round in which anybody's is.
    #[inline]
    pub(super) fn front(&mut self) -> Option<u16> {
        if let Some(id) = self.lists[(self.now % ROUNDS) as usize].front() {
            return Some(id);
        }
        if self.occupied == 0 {
            return None;
        }
        let ahead = self.occupied.rotate_right(self.now).trailing_zeros();
        self.now = (self.now + ahead) % ROUNDS;
        self.lists[self.now as usize].front()
    }

    /// Takes the one whose turn it is.
    #[inline]
    pub(super) fn pop_front(&mut self, links: &Links) {
        let list = &mut self.lists[(self.now % ROUNDS) as usize];
        list.pop_front(links);
        if list.front().is_none() {
            self.occupied &= !(1 << self.now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::slab::Slab;
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn slab(number: usize) -> Slab<u8> {
        let mut slab = Slab::new();
        (0..number).for_each(|_| assert!(slab.take() < 300));
        slab
    }

    proptest! {
        /// The oracle is a `VecDeque`.
        #[test]
        fn a_list_gives_in_order_what_was_not_taken_out(
            steps in prop::collection::vec((0u16..64, any::<bool>()), 1..300),
        ) {
            let mut slab = slab(64);
            let links = slab.links();
            let mut list = List::EMPTY;
            let mut model: VecDeque<u16> = VecDeque::new();
            for (id, oldest) in steps {
                if let Some(at) = model.iter().position(|other| *other == id) {
                    let id = if oldest { model[0] } else { id };
                    list.remove(links, id);
                    model.remove(if oldest { 0 } else { at });
                } else {
                    list.push_back(links, id);
                    model.push_back(id);
                }
                prop_assert_eq!(list.front(), model.front().copied());
            }
        }

        /// The oracle keeps the number of the round in which each comes.
        #[test]
        fn everyone_comes_in_his_round_and_in_order(
            steps in prop::collection::vec(prop::option::weighted(0.6, 1u32..ROUNDS), 1..300),
        ) {
            let mut slab = slab(300);
            let links = slab.links();
            let mut wheel = Wheel::new();
            let mut model: Vec<(u64, usize, u16)> = Vec::new();
            let mut round = 0;
            for (order, step) in steps.into_iter().enumerate() {
                let id = order as u16;
                match step {
                    Some(rounds) => {
                        wheel.put(links, id, rounds);
                        model.push((round + u64::from(rounds), order, id));
                    }
                    None => {
                        model.sort_unstable();
                        let expected = model.first().copied();
                        let front = wheel.front();
                        prop_assert_eq!(front, expected.map(|(_, _, id)| id));
                        if front.is_some() {
                            wheel.pop_front(links);
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
