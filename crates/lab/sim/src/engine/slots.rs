//! A core that sends slot by slot: in a step only packets that leave at one and the same time.
//!
//! *Idea.* Our worker takes all that is due, so a core that is late sends several slots at once.
//! The published structures return the packets of one slot, and the sender asks again for the next.
//! Here the worker's clock shows that: it stands at the first time at which something may leave,
//! and goes on to the next with the next step, however late the core is. It also stands at each
//! arrival on its way, so that packets are stamped with the time at which they came. The worker and
//! its qdisc are the same; what is due is sent with the delay that the core has.
//!
//! *Principle.* The worker's clock never goes back, and never ahead of the core's.
//!
//! Source: D. Shan et al., "Fast and Accurate Software Traffic Shaping With Inter-Flow Batching"
//! (ToN 2025), Alg. 2 and section V.B: packets within the same slot are transmitted as a burst.
//!
//! Cost: besides the step's own, one more step of the worker for each time at which nothing is
//! found; the core is not busy meanwhile.

use super::clock::Clock;
use super::io::SimIo;
use narrows_shaper::{Activity, Worker};
use narrows_units::Nanos;

/// How far a core is with its slots.
pub(super) struct Slots {
    /// The worker's clock.
    at: Nanos,
    /// When something may leave, by what the worker said last.
    next: Nanos,
}

impl Default for Slots {
    /// Nothing waits.
    fn default() -> Self {
        Self { at: Nanos::ZERO, next: Nanos::MAX }
    }
}

impl Slots {
    /// Lets `worker` send the packets of the first slot that is due at `now`, if any is. Arrivals
    /// up to then come at their times by `clock`, which is the core's.
    pub(super) fn step(
        &mut self,
        worker: &mut Worker<SimIo>,
        now: Nanos,
        clock: Clock,
    ) -> Activity {
        let arrival = |worker: &Worker<SimIo>| match worker.io().next_arrival() {
            Nanos::MAX => Nanos::MAX,
            at => clock.read(at),
        };
        loop {
            self.at = self.next.min(arrival(worker)).max(self.at).min(now);
            worker.io_mut().see(clock.when(self.at));
            let activity = worker.step(self.at);
            self.next = match activity {
                Activity::Idle(pause) => pause.until.max(self.at + Nanos(1)),
                // It has received something, or more of this slot waits.
                Activity::Busy | Activity::Blocked(_) => self.at,
            };
            let is_over = self.next.min(arrival(worker)) > now;
            if is_over || matches!(activity, Activity::Blocked(_)) {
                return activity;
            } else if !worker.io().left().is_empty() {
                return Activity::Busy;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::shaper::{self, Shaper};
    use super::*;
    use crate::setup::{Port, Sends};
    use crate::traffic::{Offer, Source};
    use narrows_packet::Headers;
    use narrows_units::Rate;
    use proptest::prelude::*;

    /// Packets of flows at times in order.
    struct Arrivals(std::collections::VecDeque<(u64, u32)>);

    impl Source for Arrivals {
        fn next_at(&self) -> Nanos {
            self.0.front().map_or(Nanos::MAX, |(at, _)| Nanos(*at))
        }

        fn take(&mut self) -> Offer {
            let (at, flow) = self.0.pop_front().unwrap_or_default();
            Offer { at: Nanos(at), queue: 0, flow, len: 1250, tag: 0, ect: false }
        }
    }

    /// A flow's packets, of 1250 bytes at 10 Mbit/s, are a millisecond apart.
    const GAP: u64 = 1_000_000;
    /// The wheel's slots.
    const SLOT: u64 = 50_000;
    const FLOWS: u32 = 4;

    /// A worker whose packets arrive as said, in order of time.
    fn worker(arrivals: &[(u64, u32)]) -> Worker<SimIo> {
        let words = "carousel granularity 50us maxrate 10mbit";
        let qdisc = words.split(' ').map(str::to_owned).collect();
        let (rate, sends) = (Rate::default(), Sends::SlotBySlot);
        let (weights, lock) = (Vec::new(), Default::default());
        let port = Port { queues: 1, rate, qdisc, weights, lock, sends };
        let Ok(mut port) = shaper::compile(&port, &[], 1250, None) else { panic!("{words}") };
        let Some(Shaper { qdiscs, frames, .. }) = port.shapers.pop() else { panic!("one queue") };
        let headers = (0..FLOWS).map(|flow| Headers { flow: flow + 1, ..Headers::default() });
        let source = Box::new(Arrivals(arrivals.iter().copied().collect()));
        let io = SimIo::new(source, headers.collect(), frames, Nanos::ZERO..Nanos::MAX);
        Worker::new(io, frames, qdiscs)
    }

    /// The flows of the packets that leave in a step at `now`, and whether more may.
    fn step(slots: &mut Slots, worker: &mut Worker<SimIo>, now: u64) -> (Vec<u32>, bool) {
        let clock = Clock::new(0);
        worker.io_mut().begin(Nanos(now));
        let activity = slots.step(worker, clock.read(Nanos(now)), clock);
        let mut left: Vec<u32> = worker.io().left().iter().map(|(offer, _)| offer.flow).collect();
        left.sort_unstable();
        (left, activity == Activity::Busy)
    }

    #[test]
    fn a_core_that_is_late_sends_one_slot_a_step() {
        // Two packets each of two flows: the first leave at once, the others a gap later.
        let mut worker = worker(&[(10, 0), (10, 1), (20, 0), (20, 1)]);
        let mut slots = Slots::default();
        assert_eq!(step(&mut slots, &mut worker, 30), (vec![0, 1], true));
        assert_eq!(step(&mut slots, &mut worker, 40), (vec![], false));
        // Nothing is due before it is.
        assert_eq!(step(&mut slots, &mut worker, GAP - 1000), (vec![], false));
        assert_eq!(step(&mut slots, &mut worker, GAP * 10), (vec![0, 1], false));
    }

    #[test]
    fn slots_that_have_passed_are_sent_in_as_many_steps() {
        let mut worker = worker(&[(0, 0), (0, 0), (0, 0), (0, 1), (0, 1)]);
        let mut slots = Slots::default();
        // All that has arrived is there from the first step on, as it would be with a core in time.
        step(&mut slots, &mut worker, 10);
        assert_eq!(step(&mut slots, &mut worker, GAP * 10), (vec![0, 1], true));
        assert_eq!(step(&mut slots, &mut worker, GAP * 10), (vec![0], false));
    }

    proptest! {
        /// The oracle: by flow, packet after packet, a gap behind the one before or when it came,
        /// rounded up to a slot.
        #[test]
        fn each_step_sends_the_packets_of_one_slot_in_order(
            packets in prop::collection::vec((0_u64..3_000_000, 0..FLOWS), 1..60),
            late in 0_u64..20 * GAP,
        ) {
            let mut packets = packets;
            packets.sort_unstable();
            let mut worker = worker(&packets);
            let mut slots = Slots::default();
            // The core is in time until all have come, so that it knows when each did.
            let (mut sent, mut last) = (Vec::new(), 0);
            for &(at, _) in &packets {
                loop {
                    let (left, is_busy) = step(&mut slots, &mut worker, at);
                    sent.extend(left);
                    if !is_busy { break }
                }
                last = at;
            }
            let mut due = std::collections::BTreeMap::<u64, Vec<u32>>::new();
            let mut next = [0_u64; FLOWS as usize];
            let mut early = 0;
            for &(at, flow) in &packets {
                let departure = next[flow as usize].max(at);
                next[flow as usize] = departure + GAP;
                let slot = if departure == at { at } else { departure.div_ceil(SLOT) * SLOT };
                if slot <= last {
                    early += 1;
                } else {
                    due.entry(slot).or_default().push(flow);
                }
            }
            prop_assert_eq!(sent.len(), early);
            let now = last + late;
            for (slot, mut flows) in due {
                flows.sort_unstable();
                let (left, _) = step(&mut slots, &mut worker, now);
                if slot <= now {
                    prop_assert_eq!(left, flows);
                } else {
                    prop_assert_eq!(left, Vec::<u32>::new());
                }
            }
        }
    }
}
