//! What leaves the shaper, all cores together, in order of time.
//!
//! The packets of a step leave one after the other while the core is busy, so they are in the
//! future when the step is executed. Every core's packets are in order; here they are merged. The
//! earliest may be taken once no step that is still to be executed can send an earlier one: nothing
//! leaves before the step that sends it is executed, so everything up to the next event is known.
//!
//! Cost: per packet, a comparison for each doubling of the number of cores.

use crate::traffic::Offer;
use narrows_units::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::VecDeque;
use std::collections::binary_heap::PeekMut;

/// A packet that leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Departure {
    /// When.
    pub(super) at: Nanos,
    /// As it was offered.
    pub(super) offer: Offer,
    /// Whether the shaper has marked it.
    pub(super) marked: bool,
}

/// Packets about to leave.
pub(super) struct Departures {
    /// By core, in order.
    cores: Vec<VecDeque<Departure>>,
    /// The first of each core that has any.
    heads: BinaryHeap<Reverse<(Nanos, usize)>>,
}

impl Departures {
    /// None, from `cores` cores.
    pub(super) fn new(cores: usize) -> Self {
        Self { cores: vec![VecDeque::new(); cores], heads: BinaryHeap::with_capacity(cores) }
    }

    /// Adds a departure of `core`, no earlier than the last one that was added there.
    #[inline]
    pub(super) fn add(&mut self, core: usize, departure: Departure) {
        let queue = &mut self.cores[core];
        if queue.is_empty() {
            self.heads.push(Reverse((departure.at, core)));
        }
        queue.push_back(departure);
    }

    /// When the next one leaves; [`Nanos::MAX`] if none is known.
    #[inline]
    pub(super) fn next_at(&self) -> Nanos {
        self.heads.peek().map_or(Nanos::MAX, |Reverse((at, _))| *at)
    }

    /// Takes it.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Departure> {
        let mut head = self.heads.peek_mut()?;
        let Reverse((_, core)) = *head;
        let queue = &mut self.cores[core];
        let departure = queue.pop_front();
        match queue.front() {
            Some(next) => *head = Reverse((next.at, core)),
            None => {
                PeekMut::pop(head);
            }
        }
        departure
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_departures_come_out_in_order_of_time(
            mut times in prop::collection::vec(prop::collection::vec(0..1000_u64, 0..40), 1..6),
        ) {
            let mut departures = Departures::new(times.len());
            for (core, times) in times.iter_mut().enumerate() {
                times.sort_unstable();
                for (tag, at) in times.iter().enumerate() {
                    let at = Nanos(*at);
                    let (flow, len, tag, ect) = (0, 60, tag as u64, false);
                    let offer = Offer { at, queue: core, flow, len, tag, ect };
                    departures.add(core, Departure { at, offer, marked: false });
                }
            }
            let mut expected: Vec<u64> = times.concat();
            expected.sort_unstable();
            let mut seen = vec![0; times.len()];
            for at in expected {
                prop_assert_eq!(departures.next_at(), Nanos(at));
                let departure = departures.take().unwrap();
                prop_assert_eq!(departure.at, Nanos(at));
                prop_assert_eq!(departure.offer.tag, seen[departure.offer.queue]);
                seen[departure.offer.queue] += 1;
            }
            prop_assert_eq!(departures.next_at(), Nanos::MAX);
            prop_assert_eq!(departures.take(), None);
        }
    }
}
