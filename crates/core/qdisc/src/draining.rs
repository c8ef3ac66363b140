//! Where a qdisc with many queues goes on when it is drained.
//!
//! A qdisc is drained packet by packet. If each search began at the first queue, it would pass
//! again all those that were found empty before: 100,000 queues would take 100,000 steps a packet.
//!
//! Cost: as many steps as there are queues for all packets together, and as many to find none.

/// The place of the queue where the next search begins.
#[derive(Clone, Copy, Default)]
pub(crate) struct Draining(usize);

impl Draining {
    /// The place of the first of `queues` that `has_packets`, from the last such place on and
    /// around.
    pub(crate) fn next<T>(
        &mut self,
        queues: &[T],
        has_packets: impl Fn(&T) -> bool,
    ) -> Option<usize> {
        let (before, behind) = queues.split_at(self.0.min(queues.len()));
        let steps = behind.iter().chain(before).position(has_packets)?;
        self.0 = (before.len() + steps) % queues.len();
        Some(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;

    proptest! {
        /// Some packets come between the searches, and queues come and go.
        #[test]
        fn it_finds_a_packet_as_long_as_there_is_one(
            queues in prop::collection::vec(0usize..3, 0..20),
            come in prop::collection::vec(prop::option::of(0usize..24), 0..40),
        ) {
            let (mut queues, mut draining) = (queues, Draining::default());
            for place in come {
                match place {
                    Some(place) if place < queues.len() => queues[place] += 1,
                    Some(place) => queues.truncate(place / 2),
                    None => {}
                }
                match draining.next(&queues, |queue| *queue > 0) {
                    Some(place) => queues[place] -= 1,
                    None => prop_assert!(queues.iter().all(|queue| *queue == 0)),
                }
            }
        }
    }

    #[test]
    fn all_packets_together_take_as_many_steps_as_there_are_queues_and_packets() {
        let (mut queues, mut draining) = (vec![1; 1000], Draining::default());
        let steps = Cell::new(0);
        let has_packets = |queue: &i32| {
            steps.set(steps.get() + 1);
            *queue > 0
        };
        while let Some(place) = draining.next(&queues, has_packets) {
            queues[place] -= 1;
        }
        assert!(steps.get() <= 3 * 1000, "{}", steps.get());
    }
}
