//! Flows that always have something to send, and a fixed number of packets in the shaper.
//!
//! *Idea.* Each flow keeps a few packets in the shaper: when one has left, the next one arrives. A
//! sender that is limited by its own host does the same (Linux's small queues, FlowBundler's
//! generator): nothing is dropped, and no core is woken up by packets that have to wait anyway.
//!
//! Flows begin at random within twice the time that their kept packets take at their pace, so that
//! they are out of step and do not all arrive at once.
//!
//! Non-goals: lost packets (a flow that loses all of its packets is silent from then on).

use crate::setup::Traffic;
use crate::traffic::seed::{Purpose, generator};
use crate::traffic::spread::Placing;
use crate::traffic::{ClosedLoop, Delivery, Offer};
use narrows_units::{Bytes, Nanos, Rate};
use rand::RngExt;

/// Flows start within this many times the duration of their backlog.
const STAGGER: u64 = 2;

/// A group of flows.
pub(crate) struct Backlogged {
    /// Number of the first.
    first: u32,
    /// By flow of the group.
    queue_of: Vec<u16>,
    /// Packets that each keeps in the shaper.
    queued: u32,
    /// In bytes.
    len: u32,
    ect: bool,
    /// Nothing is sent from here on.
    stop: Nanos,
    /// Flows that have yet to begin, the next one last.
    starts: Vec<(Nanos, u32)>,
    /// Flows of which a packet has left, and when the first of these did.
    left: Vec<u32>,
    left_at: Nanos,
}

impl Backlogged {
    /// The flows of `traffic`, each with the pace `pace`; numbered from `first` and placed by
    /// `placing`.
    pub(crate) fn new(
        traffic: &Traffic,
        placing: &Placing,
        first: u32,
        (pace, queued): (Rate, u32),
    ) -> Self {
        let len = traffic.sizes.first().map_or(0, |&(len, _)| len);
        let kept = pace.time_for(Bytes(u64::from(len) * u64::from(queued)));
        let within = kept.0.saturating_mul(STAGGER).max(1);
        let mut chance = generator(placing.seed, placing.group, Purpose::Starts, 0);
        let start = |flow| (traffic.start + Nanos(chance.random_range(0..within)), flow);
        let mut starts: Vec<(Nanos, u32)> = (0..traffic.flows).map(start).collect();
        starts.sort_unstable_by(|one, other| other.cmp(one));
        let queue_of = placing.in_epoch(0).queue_of;
        let (ect, stop) = (traffic.headers.ecn, traffic.stop);
        let (left, left_at) = (Vec::new(), Nanos::MAX);
        Self { first, queue_of, queued, len, ect, stop, starts, left, left_at }
    }

    /// Another packet of `flow`.
    fn offer(&self, flow: u32, at: Nanos) -> Offer {
        Offer {
            at,
            queue: usize::from(self.queue_of[flow as usize]),
            flow: self.first + flow,
            len: self.len,
            tag: 0,
            ect: self.ect,
        }
    }
}

impl ClosedLoop for Backlogged {
    fn next_at(&self) -> Nanos {
        let start = self.starts.last().map_or(Nanos::MAX, |(at, _)| *at);
        let next = start.min(self.left_at);
        if next < self.stop { next } else { Nanos::MAX }
    }

    fn act(&mut self, now: Nanos, offers: &mut Vec<Offer>) {
        while let Some(&(at, flow)) = self.starts.last().filter(|(at, _)| *at <= now) {
            self.starts.pop();
            offers.extend((0..self.queued).map(|_| self.offer(flow, at)));
        }
        offers.extend(self.left.iter().map(|&flow| self.offer(flow, now)));
        self.left.clear();
        self.left_at = Nanos::MAX;
    }

    fn delivered(&mut self, delivery: &Delivery, now: Nanos) {
        self.left.push(delivery.offer.flow - self.first);
        self.left_at = self.left_at.min(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::{HeaderFields, Kind, Spread};

    /// Two flows on one queue that keep three packets of 1000 bytes, at a byte a nanosecond.
    fn flows() -> Backlogged {
        let pace = Rate::from_bits_per_sec(8_000_000_000);
        let traffic = Traffic {
            name: "bulk".into(),
            kind: Kind::Backlogged { pace, queued: 3 },
            flows: 2,
            start: Nanos(500),
            stop: Nanos(100_000),
            sizes: vec![(1000, 1.0)],
            spread: Spread::RoundRobin,
            respread: None,
            lifetime: None,
            headers: HeaderFields::default(),
        };
        let placing =
            Placing { seed: 1, group: 0, flows: 2, queues: 1, spread: traffic.spread.clone() };
        Backlogged::new(&traffic, &placing, 10, (pace, 3))
    }

    #[test]
    fn a_flow_keeps_its_packets_in_the_shaper_and_sends_one_for_each_that_left() {
        let mut flows = flows();
        let mut offers = Vec::new();
        while flows.next_at() != Nanos::MAX {
            let now = flows.next_at();
            flows.act(now, &mut offers);
        }
        let times: Vec<Nanos> = offers.iter().map(|offer| offer.at).collect();
        assert!(times.is_sorted() && times[0] >= Nanos(500) && times[5] < Nanos(6500), "{times:?}");
        for flow in [10, 11] {
            assert_eq!(offers.iter().filter(|offer| offer.flow == flow).count(), 3);
        }
        let first = offers[0];
        flows.delivered(&Delivery { offer: first, marked: false }, Nanos(7000));
        assert_eq!(flows.next_at(), Nanos(7000));
        offers.clear();
        flows.act(Nanos(7000), &mut offers);
        assert_eq!(offers, [Offer { at: Nanos(7000), ..first }]);
        assert_eq!(flows.next_at(), Nanos::MAX);
    }

    #[test]
    fn nothing_is_sent_after_the_end() {
        let mut flows = flows();
        let mut offers = Vec::new();
        flows.act(Nanos(6500), &mut offers);
        flows.delivered(&Delivery { offer: offers[0], marked: false }, Nanos(100_000));
        assert_eq!(flows.next_at(), Nanos::MAX);
    }
}
