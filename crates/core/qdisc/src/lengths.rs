//! Which flow is the longest, approximately: lists by length, built when there are too many
//! packets.
//!
//! A flow is in the list of its length, of which there are four for each power of two. The chosen
//! flow is at most a fifth shorter than the longest; an exact order would cost O(log flows) per
//! packet, and a scan of all flows more than that. Lists are built on first need and maintained
//! while there are many packets; at all other times queues come and go without them.
//!
//! Cost: only a comparison while there are few packets; else a comparison, and three flows when one
//! changes its list. O(flows) once at the beginning and at the end.

use crate::flow_table::NONE;

/// An item with a length.
pub(crate) trait Measured {
    /// How long it is; 0 is not listed.
    fn length(&self) -> u64;

    /// Its list, initially [`UNLISTED`]. For [`Lengths`] alone.
    fn class(&mut self) -> &mut u8;

    /// Its neighbours there. For [`Lengths`] alone.
    fn neighbours(&mut self) -> &mut Neighbours;
}

/// An item's two neighbours in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Neighbours {
    next: u32,
    previous: u32,
}

impl Neighbours {
    pub(crate) const NONE: Self = Self { next: NONE, previous: NONE };
}

/// The list of those that are in none.
pub(crate) const UNLISTED: u8 = u8::MAX;
/// Lists for each power of two, as a power of two.
const FINE: u32 = 2;
/// Lists: up to 4 GiB.
const LISTS: usize = 32 << FINE;

/// The list of a `length`.
fn class(length: u64) -> u8 {
    let length = length.clamp(1 << FINE, u64::from(u32::MAX));
    let power = length.ilog2();
    ((power << FINE) as u64 + ((length >> (power - FINE)) & ((1 << FINE) - 1))) as u8
}

/// Flows by their backlog behind the head; active, or without lists.
pub(crate) struct Lengths {
    heads: Box<[u32; LISTS]>,
    /// Which lists are not empty.
    filled: u128,
    is_live: bool,
}

impl Lengths {
    pub(crate) fn new() -> Self {
        Self { heads: Box::new([NONE; LISTS]), filled: 0, is_live: false }
    }

    /// Whether it is kept up.
    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        self.is_live
    }

    /// Adds all flows that have a length.
    pub(crate) fn begin<F: Measured>(&mut self, flows: &mut [F]) {
        self.is_live = true;
        for id in 0..flows.len() as u32 {
            self.changed(flows, id);
        }
    }

    /// Forgets them.
    pub(crate) fn end<F: Measured>(&mut self, flows: &mut [F]) {
        while let Some(id) = self.longest() {
            self.remove(flows, id);
        }
        self.is_live = false;
    }

    /// `id` has become longer or shorter. A call of its own, so that the many packets without lists
    /// save no registers for it.
    #[inline(never)]
    pub(crate) fn changed<F: Measured>(&mut self, flows: &mut [F], id: u32) {
        let flow = &mut flows[id as usize];
        let length = flow.length();
        let class = if length == 0 { UNLISTED } else { class(length) };
        if *flow.class() != class {
            self.move_to(flows, id, class);
        }
    }

    fn move_to<F: Measured>(&mut self, flows: &mut [F], id: u32, class: u8) {
        if *flows[id as usize].class() != UNLISTED {
            self.remove(flows, id);
        }
        if class == UNLISTED {
            return;
        }
        let next = std::mem::replace(&mut self.heads[usize::from(class)], id);
        self.filled |= 1 << class;
        let flow = &mut flows[id as usize];
        *flow.class() = class;
        *flow.neighbours() = Neighbours { next, previous: NONE };
        if next != NONE {
            flows[next as usize].neighbours().previous = id;
        }
    }

    fn remove<F: Measured>(&mut self, flows: &mut [F], id: u32) {
        let flow = &mut flows[id as usize];
        let class = std::mem::replace(flow.class(), UNLISTED);
        let Neighbours { next, previous } = *flow.neighbours();
        if next != NONE {
            flows[next as usize].neighbours().previous = previous;
        }
        if previous != NONE {
            flows[previous as usize].neighbours().next = next;
            return;
        }
        self.heads[usize::from(class)] = next;
        if next == NONE {
            self.filled &= !(1 << class);
        }
    }

    /// One of the longest.
    pub(crate) fn longest(&self) -> Option<u32> {
        let class = self.filled.checked_ilog2()?;
        Some(self.heads[class as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FLOWS: usize = 20;

    #[derive(Clone)]
    struct Bare {
        length: u64,
        class: u8,
        neighbours: Neighbours,
    }

    impl Measured for Bare {
        fn length(&self) -> u64 {
            self.length
        }

        fn class(&mut self) -> &mut u8 {
            &mut self.class
        }

        fn neighbours(&mut self) -> &mut Neighbours {
            &mut self.neighbours
        }
    }

    #[test]
    fn lists_are_in_order_and_a_fifth_apart() {
        for bytes in 8..100_000u64 {
            let next = bytes * 5 / 4 + 1;
            assert!(class(bytes) <= class(bytes + 1) && class(bytes) < class(next), "{bytes}");
        }
        assert_eq!(usize::from(class(u64::MAX)), LISTS - 1);
    }

    proptest! {
        /// The oracle looks at all lengths, each time.
        #[test]
        fn the_longest_is_found_within_a_quarter(
            steps in prop::collection::vec((0..FLOWS, -9000i64..12_000), 1..300),
            begins in 0usize..100,
        ) {
            let bare = Bare { length: 0, class: UNLISTED, neighbours: Neighbours::NONE };
            let mut flows = vec![bare; FLOWS];
            let mut lengths = Lengths::new();
            for (step, (flow, change)) in steps.into_iter().enumerate() {
                let length = &mut flows[flow].length;
                *length = length.saturating_add_signed(change);
                if lengths.is_live() {
                    lengths.changed(&mut flows, flow as u32);
                } else if step >= begins {
                    lengths.begin(&mut flows);
                }
                let longest = flows.iter().map(|flow| flow.length).max().unwrap();
                if lengths.is_live() {
                    let found = lengths.longest().map_or(0, |id| flows[id as usize].length);
                    prop_assert!(found * 5 / 4 + 1 >= longest.min(u64::from(u32::MAX)), "{found} of {longest}");
                    prop_assert_eq!(found == 0, longest == 0);
                }
            }
            lengths.end(&mut flows);
            prop_assert!(!lengths.is_live() && lengths.longest().is_none());
            prop_assert!(flows.iter().all(|flow| flow.class == UNLISTED));
        }
    }
}
