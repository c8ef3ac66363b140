//! The fate of each numbered frame: arrived, missing, duplicated or out of order.

use super::receiver::Arrival;
use super::sender::{Log, Sent};
use super::span::Span;
use narrows_units::Nanos;
use std::collections::HashMap;

/// A frame that arrived, with the sender's record of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) at: Nanos,
    pub(super) stream: u8,
    pub(super) sent: Sent,
    /// The last byte of the MAC address to which it came.
    pub(super) hop: u8,
}

/// All streams of one way over one epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    /// How many frames the senders handed over.
    pub(super) sent: u64,
    /// The frames that arrived, each once, in the order of their arrival.
    pub(super) received: Vec<Received>,
    /// The frames that did not.
    pub(super) missing: Vec<Sent>,
    /// When a frame arrived that had arrived before.
    pub(super) doubled: Vec<Nanos>,
    /// When a frame arrived after a later one of its flow.
    pub(super) reordered: Vec<Nanos>,
    /// Frames that arrived and were not sent in this epoch.
    pub(super) strays: u64,
}

impl Traffic {
    /// Compares arrivals with what was sent, both in one direction.
    pub(super) fn of(logs: &[Log], arrivals: &[Arrival]) -> Self {
        let mut traffic =
            Self { sent: logs.iter().map(|log| log.sent.len() as u64).sum(), ..Self::default() };
        let mut seen: Vec<Vec<bool>> = logs.iter().map(|log| vec![false; log.sent.len()]).collect();
        let mut latest: HashMap<(u8, u16), u64> = HashMap::new();
        for &Arrival { mark, at, hop } in arrivals {
            let place = logs.iter().position(|log| log.stream == mark.stream);
            let found = place.and_then(|place| Some((place, *logs[place].get(mark.seq)?)));
            let Some((place, sent)) = found.filter(|(_, sent)| sent.flow == mark.flow) else {
                traffic.strays += 1;
                continue;
            };
            let seen = &mut seen[place][(mark.seq - logs[place].first) as usize];
            if std::mem::replace(seen, true) {
                traffic.doubled.push(at);
                continue;
            }
            traffic.received.push(Received { at, stream: mark.stream, sent, hop });
            if logs[place].keeps_order {
                let latest = latest.entry((mark.stream, mark.flow)).or_default();
                if mark.seq < *latest {
                    traffic.reordered.push(at);
                }
                *latest = mark.seq.max(*latest);
            }
        }
        for (log, seen) in logs.iter().zip(&seen) {
            let missing = log.sent.iter().zip(seen).filter(|(_, seen)| !**seen);
            traffic.missing.extend(missing.map(|(sent, _)| *sent));
        }
        traffic
    }

    /// Frames sent within one of `spans` that did not arrive.
    pub(super) fn missing_within(&self, spans: &[Span]) -> u64 {
        within(spans, self.missing.iter().map(|sent| sent.at))
    }

    /// Frames out of order that arrived within one of `spans`.
    pub(super) fn reordered_within(&self, spans: &[Span]) -> u64 {
        within(spans, self.reordered.iter().copied())
    }

    /// Frames that arrived within one of `spans`.
    pub(super) fn received_within(&self, spans: &[Span]) -> u64 {
        within(spans, self.received.iter().map(|received| received.at))
    }
}

fn within(spans: &[Span], times: impl Iterator<Item = Nanos>) -> u64 {
    times.filter(|at| spans.iter().any(|span| span.holds(*at))).count() as u64
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::chaos::frame::{Mark, Way};

    /// A stream that sent a frame of 1000 bytes each millisecond, over two flows in turn.
    pub(in crate::chaos) fn log(frames: u64) -> Log {
        let sent = |i: u64| Sent { at: Nanos::from_millis(i), flow: (i % 2) as u16, bytes: 1000 };
        Log {
            stream: 1,
            way: Way::Forth,
            keeps_order: true,
            first: 100,
            sent: (0..frames).map(sent).collect(),
        }
    }

    /// The arrival of frame `i` of `log`, a tenth of a millisecond after it was sent.
    pub(in crate::chaos) fn arrival(i: u64) -> Arrival {
        let mark = Mark { stream: 1, flow: (i % 2) as u16, seq: 100 + i };
        Arrival { mark, at: Nanos::from_millis(i) + Nanos::from_micros(100), hop: 3 }
    }

    fn of(arrivals: impl IntoIterator<Item = u64>) -> Traffic {
        Traffic::of(&[log(10)], &arrivals.into_iter().map(arrival).collect::<Vec<_>>())
    }

    #[test]
    fn frames_in_order_are_received() {
        let traffic = of(0..10);
        assert_eq!((traffic.sent, traffic.received.len()), (10, 10));
        assert!(traffic.missing.is_empty() && traffic.reordered.is_empty());
        assert!(traffic.doubled.is_empty() && traffic.strays == 0);
    }

    #[test]
    fn a_frame_that_does_not_arrive_is_missing_with_its_time() {
        let traffic = of((0..10).filter(|i| ![3, 9].contains(i)));
        let times: Vec<_> = traffic.missing.iter().map(|sent| sent.at).collect();
        assert_eq!(times, [Nanos::from_millis(3), Nanos::from_millis(9)]);
        let span = Span::new(Nanos::from_millis(2), Nanos::from_millis(3));
        assert_eq!(traffic.missing_within(&[span]), 1);
    }

    #[test]
    fn order_is_of_a_flow() {
        // 1 and 0 are of different flows, 4 and 2 are of one.
        let traffic = of([1, 0, 4, 3, 2, 5, 6, 7, 8, 9]);
        assert_eq!(traffic.reordered, [arrival(2).at]);
        let mut scattered = log(10);
        scattered.keeps_order = false;
        let traffic = Traffic::of(&[scattered], &[4, 2].map(arrival));
        assert!(traffic.reordered.is_empty());
    }

    #[test]
    fn a_frame_that_arrives_twice_is_received_once() {
        let traffic = of([0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!((traffic.received.len(), traffic.doubled.len()), (10, 1));
    }

    #[test]
    fn an_unsent_frame_is_a_stray() {
        let mut other_stream = arrival(0);
        other_stream.mark.stream = 7;
        let mut other_flow = arrival(0);
        other_flow.mark.flow = 1;
        let mut earlier = arrival(0);
        earlier.mark.seq = 99;
        let traffic = Traffic::of(&[log(1)], &[other_stream, other_flow, earlier, arrival(1)]);
        assert_eq!((traffic.strays, traffic.missing.len()), (4, 1));
    }
}
