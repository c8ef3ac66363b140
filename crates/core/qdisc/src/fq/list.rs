//! Lists of flows, linked through themselves.

use super::flow::Flow;
use crate::flow_table::NONE;

/// A list of flows. It is either taken from at its head with [`List::pop_front`], which does not
/// touch the second, or anywhere with [`List::remove`].
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE };

    /// The first.
    #[inline]
    pub(super) fn front(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    /// Puts `id`, which is in no list, behind all others.
    #[inline]
    pub(super) fn push_back(&mut self, flows: &mut [Flow], id: u32) {
        let flow = &mut flows[id as usize];
        flow.next = NONE;
        flow.previous = self.tail;
        if self.tail == NONE {
            self.head = id;
        } else {
            flows[self.tail as usize].next = id;
        }
        self.tail = id;
    }

    /// Takes the first.
    #[inline]
    pub(super) fn pop_front(&mut self, flows: &[Flow]) -> Option<u32> {
        let id = self.front()?;
        self.head = flows[id as usize].next;
        if self.head == NONE {
            self.tail = NONE;
        }
        Some(id)
    }

    /// Takes `id` out, wherever it is.
    #[inline]
    pub(super) fn remove(&mut self, flows: &mut [Flow], id: u32) {
        let Flow { next, previous, .. } = flows[id as usize];
        match previous {
            NONE => self.head = next,
            previous => flows[previous as usize].next = next,
        }
        match next {
            NONE => self.tail = previous,
            next => flows[next as usize].previous = previous,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// The oracle is a `VecDeque`.
        #[test]
        fn a_list_keeps_the_order_of_its_remaining_items(
            steps in prop::collection::vec(0u32..64, 1..300), from_front in any::<bool>(),
        ) {
            let mut flows: Vec<_> = (0..64).map(|key| Flow::new(key, 0)).collect();
            let mut list = List::EMPTY;
            let mut model: VecDeque<u32> = VecDeque::new();
            for id in steps {
                match model.iter().position(|other| *other == id) {
                    Some(_) if from_front => {
                        prop_assert_eq!(list.pop_front(&flows), model.pop_front());
                    }
                    Some(at) => {
                        list.remove(&mut flows, id);
                        model.remove(at);
                    }
                    None => {
                        list.push_back(&mut flows, id);
                        model.push_back(id);
                    }
                }
                prop_assert_eq!(list.front(), model.front().copied());
            }
        }
    }
}
