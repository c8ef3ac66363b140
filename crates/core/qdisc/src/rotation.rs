//! Classes, or flows, that take turns: a list through themselves.

/// No entry.
const NONE: u32 = u32::MAX;

/// An entry's place in its list.
#[derive(Clone, Copy)]
pub(crate) struct Link(u32);

impl Link {
    pub(crate) const END: Self = Self(NONE);
}

/// What is linked.
pub(crate) trait Linked {
    fn link(&mut self) -> &mut Link;
}

/// Classes or flows by their places in a table. Each is in one rotation at most.
#[derive(Clone, Copy)]
pub(crate) struct Rotation {
    first: u32,
    last: u32,
}

impl Rotation {
    pub(crate) const EMPTY: Self = Self { first: NONE, last: NONE };

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first == NONE
    }

    /// The current entry.
    #[inline]
    pub(crate) fn front(&self) -> Option<u32> {
        (!self.is_empty()).then_some(self.first)
    }

    /// The entry after `place`.
    #[inline]
    pub(crate) fn behind<T: Linked>(&self, table: &mut [T], place: u32) -> Option<u32> {
        let Link(next) = *table[place as usize].link();
        (next != NONE).then_some(next)
    }

    /// Behind all others.
    #[inline]
    pub(crate) fn push_back<T: Linked>(&mut self, table: &mut [T], place: u32) {
        *table[place as usize].link() = Link::END;
        if self.is_empty() {
            self.first = place;
        } else {
            *table[self.last as usize].link() = Link(place);
        }
        self.last = place;
    }

    #[inline]
    pub(crate) fn pop_front<T: Linked>(&mut self, table: &mut [T]) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let first = self.first;
        let Link(next) = *table[first as usize].link();
        self.first = next;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// A table of links alone.
    impl Linked for Link {
        fn link(&mut self) -> &mut Link {
            self
        }
    }

    proptest! {
        /// Compared with a `VecDeque`.
        #[test]
        fn it_is_a_queue(acts in prop::collection::vec((0..3, 0u32..16), 0..200)) {
            let mut table = [Link::END; 16];
            let (mut rotation, mut model) = (Rotation::EMPTY, VecDeque::new());
            for (act, place) in acts {
                if act == 2 {
                    prop_assert_eq!(rotation.pop_front(&mut table), model.pop_front());
                } else if !model.contains(&place) {
                    rotation.push_back(&mut table, place);
                    model.push_back(place);
                }
                prop_assert_eq!(rotation.is_empty(), model.is_empty());
                prop_assert_eq!(rotation.front(), model.front().copied());
                if let Some(front) = rotation.front() {
                    prop_assert_eq!(rotation.behind(&mut table, front), model.get(1).copied());
                }
            }
        }
    }
}
