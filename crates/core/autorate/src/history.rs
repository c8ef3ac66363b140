//! The last turns, from which the rate of a full line is computed.

use std::collections::VecDeque;

/// Turns that are remembered.
const TURNS: usize = 200;
/// Trips of a turn are taken as if they were over so long, on average half, before its end.
const SOON: f64 = 0.010;

/// A turn that is over. Times are in seconds, amounts in bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Past {
    pub(crate) length: f64,
    pub(crate) arrived: f64,
    pub(crate) sent: f64,
    /// Unknown without trips.
    pub(crate) excess: Option<f64>,
    /// By the newest trips.
    pub(crate) newest: f64,
}

/// The last turns, the newest last.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(VecDeque<Past>);

/// What a line that became full did.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Full {
    /// What it carries, in bits per second.
    pub(crate) rate: f64,
    /// By how many seconds the queue grew in a second.
    pub(crate) growth: f64,
    /// The queue that a packet finds that leaves now, in seconds.
    pub(crate) queue: f64,
}

impl History {
    pub(crate) fn push(&mut self, past: Past) {
        if self.0.len() == TURNS {
            self.0.pop_front();
        }
        self.0.push_back(past);
    }

    /// The excess of the newest turn that has one.
    pub(crate) fn excess(&self) -> Option<f64> {
        self.0.iter().rev().find_map(|past| past.excess)
    }

    /// What arrived in the last turns that make up `span` together, in bits per second.
    pub(crate) fn arrivals(&self, span: f64) -> f64 {
        self.mean(span, |past| past.arrived)
    }

    /// What was sent, likewise.
    pub(crate) fn sent(&self, span: f64) -> f64 {
        self.mean(span, |past| past.sent)
    }

    fn mean(&self, span: f64, amount: impl Fn(&Past) -> f64) -> f64 {
        let (mut bits, mut time) = (0.0, 0.0);
        for past in self.0.iter().rev() {
            if time >= span {
                break;
            }
            bits += amount(past);
            time += past.length;
        }
        if time > 0.0 { bits / time } else { 0.0 }
    }

    /// What a line behind this limit does, of whose trips the newest tell: its rate, and its queue.
    ///
    /// A trip that is over at `a` and took `lag` and a queue of `q` left at `a - lag - q`. What was
    /// sent between two such moments passed the line between the ends of both trips: the first is
    /// the one with which the queue began, the second the newest. The queue did not begin in the
    /// last turn with an excess below `calm`, and not later than in the next one with trips; the
    /// middle is taken. Few trips are not exact, so the rate `before` counts, too, as if it had
    /// been seen for `weight` seconds.
    pub(crate) fn filling(
        &self,
        calm: f64,
        lag: f64,
        (before, weight): (f64, f64),
    ) -> Option<Full> {
        let mut ends = Vec::new();
        let mut end = 0.0;
        // In seconds before the end of the newest turn, the newest first.
        for past in self.0.iter().rev() {
            if let Some(excess) = past.excess {
                let arrives = end + past.length.min(SOON) / 2.0;
                ends.push((arrives + lag + past.newest, past.newest, excess < calm));
            }
            end += past.length;
        }
        let &(to, queue, _) = ends.first()?;
        let long = ends.iter().position(|end| end.2).unwrap_or(ends.len());
        let &(first, first_queue, _) = ends.get(long.checked_sub(1)?)?;
        // Trips are not exact, so a calm one may seem to have left after one that found a queue.
        let calm = ends.get(long..)?.iter().find(|end| (end.0 + first) / 2.0 > to);
        let (from, queue_before) = match calm {
            Some(&(calm, queue, _)) => ((calm + first) / 2.0, queue),
            None => (first, first_queue),
        };
        let time = from - to;
        let passed = time + queue - queue_before;
        if !(time > 0.0 && passed > 0.0) {
            return None;
        }
        let rate = (self.sent_between(from, to) + before * weight) / (passed + weight);
        let grew = (self.sent_between(to, 0.0) / rate) - to;
        Some(Full { rate, growth: (queue - queue_before) / time, queue: (queue + grew).max(0.0) })
    }

    /// The rate of arrivals while the excess was at least `calm`, in the last `span` seconds of
    /// that; and how the queue grew.
    pub(crate) fn delivering(&self, calm: f64, span: f64) -> Option<Full> {
        let excess = self.0.iter().rev().find(|past| past.excess.is_some())?.newest;
        let (mut bits, mut time) = (0.0, 0.0);
        let mut since = calm;
        for past in self.0.iter().rev() {
            if past.excess.is_some() {
                since = past.newest;
            }
            if time >= span || past.excess.is_some_and(|it| it < calm) {
                break;
            }
            bits += past.arrived;
            time += past.length;
        }
        let rate = bits / time;
        let growth = (excess - since) / time;
        (time > 0.0 && bits > 0.0).then_some(Full { rate, growth, queue: excess })
    }

    /// What was sent from `from` to `to` seconds before the end of the newest turn, in bits.
    fn sent_between(&self, from: f64, to: f64) -> f64 {
        let mut end = 0.0;
        let mut bits = 0.0;
        for past in self.0.iter().rev() {
            let begin = end + past.length;
            let common = begin.min(from) - end.max(to);
            if common > 0.0 && past.length > 0.0 {
                bits += past.sent * common / past.length;
            }
            end = begin;
        }
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns of 50 ms in which so many bits a second were sent and arrived, with this excess in ms.
    fn history(turns: &[(f64, f64, f64)]) -> History {
        let mut history = History::default();
        for &(sent, arrived, excess) in turns {
            history.push(Past {
                length: 0.05,
                sent: sent * 0.05,
                arrived: arrived * 0.05,
                excess: Some(excess / 1e3),
                newest: excess / 1e3,
            });
        }
        history
    }

    /// A line that falls from 20 Mbit/s to `line` at once, in front of which 20 Mbit/s are sent:
    /// turns of 10 ms, and the trips that are over in each.
    fn fall(line: f64, lag: f64) -> (History, f64) {
        let mut history = History::default();
        // A packet that leaves `t` after the fall waits t * (20 / line - 1).
        let grows = 20e6 / line - 1.0;
        for turn in 0..20 {
            let end = 0.010 * f64::from(turn + 1) - 0.005;
            let left = (end - lag) / (1.0 + grows);
            let excess = (left * grows).max(0.0);
            let (length, sent) = (0.010, 20e6 * 0.010);
            let (arrived, newest) = (sent, excess);
            history.push(Past { length, arrived, sent, excess: Some(excess), newest });
        }
        (history, (0.2 * grows).max(0.0))
    }

    #[test]
    fn the_rate_and_the_queue_of_a_line_that_fell_follow_from_what_was_sent_and_when_it_was_over() {
        for line in [5e6, 10e6, 15e6] {
            let (history, queue) = fall(line, 0.030);
            let full = history.filling(0.005, 0.030, (20e6, 0.0)).unwrap();
            assert!((full.rate / line - 1.0).abs() < 0.05, "{line}: {full:?}");
            assert!((full.queue - queue).abs() < 0.05, "{queue}: {full:?}");
        }
    }

    #[test]
    fn what_was_known_before_counts_for_its_weight() {
        let (history, _) = fall(5e6, 0.030);
        let [none, some, much] =
            [0.0, 0.1, 100.0].map(|weight| history.filling(0.005, 0.03, (20e6, weight)).unwrap());
        assert!(none.rate < some.rate && some.rate < much.rate && much.rate < 20e6);
    }

    #[test]
    fn what_arrives_while_the_line_is_full_is_its_rate() {
        let turns = [(0.0, 20e6, 0.0), (0.0, 10e6, 30.0), (0.0, 10e6, 60.0)];
        let full = history(&turns).delivering(0.005, 0.2).unwrap();
        assert!((full.rate - 10e6).abs() < 1.0, "{full:?}");
    }

    #[test]
    fn nothing_follows_from_nothing() {
        assert_eq!(History::default().filling(0.005, 0.0, (20e6, 0.03)), None);
        assert_eq!(History::default().delivering(0.005, 0.2), None);
        assert!(History::default().arrivals(1.0).abs() < 1e-9);
    }
}
