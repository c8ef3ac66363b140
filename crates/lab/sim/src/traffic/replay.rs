//! The frames of a trace on one queue, over and over.
//!
//! Times are those of the trace, times a factor by which it has the wanted mean rate. The end of
//! the trace is followed by its beginning, with the same flows.

use crate::setup::Traffic;
use crate::traffic::Offer;
use crate::traffic::spread::Placing;
use narrows_packet::Ecn;
use narrows_trace::Trace;
use narrows_units::{Nanos, Rate};
use std::sync::Arc;

/// A trace's frames on a queue.
pub(crate) struct Replay {
    trace: Arc<Trace>,
    queue: usize,
    /// Number of the group's first flow.
    first: u32,
    start: Nanos,
    /// Nothing comes from here on.
    until: Nanos,
    /// The frames that come here.
    frames: Vec<u32>,
    /// How many of them have come, all rounds together.
    taken: usize,
    /// How long a round takes.
    round: Nanos,
}

impl Replay {
    /// Of `trace` at the mean rate `load`, for the group `traffic`, whose flows are numbered from
    /// `first` and placed by `placing`. Nothing comes from `end` on.
    pub(crate) fn new(
        trace: Arc<Trace>,
        load: Rate,
        traffic: &Traffic,
        placing: &Placing,
        (first, queue): (u32, u16),
        end: Nanos,
    ) -> Self {
        let queue_of = placing.in_epoch(0).queue_of;
        let here = |flow: u32| queue_of.get(flow as usize) == Some(&queue);
        let frames = (0..).zip(trace.frames()).filter(|(_, frame)| here(frame.flow));
        let frames = frames.map(|(number, _)| number).collect();
        Self {
            queue: usize::from(queue),
            first,
            start: traffic.start,
            until: traffic.stop.min(end),
            frames,
            taken: 0,
            round: trace.length_at(load),
            trace,
        }
    }

    /// When the next frame comes; [`Nanos::MAX`] if none does.
    pub(crate) fn next_at(&self) -> Nanos {
        let Some(number) = self.next() else { return Nanos::MAX };
        let at = self.trace.at_length(&self.trace.frames()[number], self.round);
        let rounds = (self.taken / self.frames.len()) as u64;
        let began = self.start.0.saturating_add(rounds.saturating_mul(self.round.0));
        let at = Nanos(began.saturating_add(at.0));
        if at < self.until { at } else { Nanos::MAX }
    }

    /// The index of the next frame.
    fn next(&self) -> Option<usize> {
        let place = self.taken.checked_rem(self.frames.len())?;
        Some(self.frames[place] as usize)
    }

    /// Takes it.
    pub(crate) fn take(&mut self) -> Option<Offer> {
        let at = self.next_at();
        let frame = self.trace.frames()[self.next()?];
        self.taken += 1;
        let ecn = self.trace.flows()[frame.flow as usize].ecn;
        Some(Offer {
            at,
            queue: self.queue,
            flow: self.first + frame.flow,
            len: frame.len,
            tag: 0,
            ect: ecn != Ecn::NotCapable,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::{HeaderFields, Kind, Spread};
    use narrows_trace::Bursty;

    const LOAD: Rate = Rate::from_bits_per_sec(100_000_000);

    fn trace() -> Arc<Trace> {
        let rate = Rate::from_bits_per_sec(50_000_000);
        Arc::new(Trace::bursty(Bursty { rate, length: Nanos::from_millis(500), seed: 3 }).unwrap())
    }

    fn replays(trace: &Arc<Trace>, queues: usize, end: Nanos) -> Vec<Replay> {
        let flows = trace.flows().len() as u32;
        let traffic = Traffic {
            name: "trace".into(),
            kind: Kind::Trace { number: 0, load: LOAD },
            flows,
            start: Nanos::from_millis(1),
            stop: Nanos::MAX,
            sizes: vec![(1_514, 1.0)],
            spread: Spread::Hash,
            respread: None,
            lifetime: None,
            headers: HeaderFields::default(),
        };
        let placing = Placing { seed: 1, group: 0, flows, queues, spread: Spread::Hash };
        let replay =
            |queue| Replay::new(Arc::clone(trace), LOAD, &traffic, &placing, (10, queue), end);
        (0..queues as u16).map(replay).collect()
    }

    #[test]
    fn all_frames_come_on_one_queue_each_round_in_order_and_at_the_wanted_rate() {
        let trace = trace();
        let frames = trace.frames().len();
        let start = Nanos::from_millis(1);
        let round = trace.bytes().0 * 8 * 1_000_000_000 / LOAD.bits_per_sec();
        let end = start + Nanos(round * 3);
        let mut all = Vec::new();
        for mut replay in replays(&trace, 4, end) {
            let mut last = Nanos::ZERO;
            while replay.next_at() != Nanos::MAX {
                let offer = replay.take().unwrap();
                assert!(offer.at >= last && offer.flow >= 10);
                last = offer.at;
                all.push(offer);
            }
        }
        assert!(all.iter().all(|offer| offer.at >= start && offer.at < end));
        assert_eq!(all.len(), 3 * frames);
        // A flow stays on its queue.
        let mut queue_of = std::collections::BTreeMap::new();
        for offer in &all {
            assert_eq!(*queue_of.entry(offer.flow).or_insert(offer.queue), offer.queue);
        }
    }

    #[test]
    fn a_queue_without_flows_gets_nothing() {
        let trace = trace();
        let queues = trace.flows().len() * 4;
        let idle = replays(&trace, queues, Nanos::from_secs(1))
            .into_iter()
            .find(|replay| replay.frames.is_empty());
        let mut idle = idle.unwrap();
        assert_eq!((idle.next_at(), idle.take()), (Nanos::MAX, None));
    }
}
