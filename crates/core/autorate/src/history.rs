//! The last turns, from which the rate of a full line is computed.

use std::collections::VecDeque;

/// Turns that are remembered.
const TURNS: usize = 40;

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

    /// How the queue grew since the last turn whose excess was below `calm`, by the trips of
    /// packets that left `lag` seconds before they came back: what was sent in that time, and the
    /// rate of the line that follows from it. `lag` is without the queue.
    pub(crate) fn growing(&self, calm: f64, lag: f64) -> Option<Full> {
        let last = self.0.iter().rposition(|past| past.excess.is_some())?;
        let excess = self.0[last].newest;
        let before =
            self.0.iter().take(last).rposition(|past| past.excess.is_some_and(|it| it < calm));
        let (first, since) = match before {
            Some(before) => (before, self.0[before].newest.min(calm)),
            None => (self.0.iter().take(last).position(|past| past.excess.is_some())?, calm),
        };
        let time: f64 = self.0.iter().take(last + 1).skip(first + 1).map(|past| past.length).sum();
        // It began at any time of the first of these turns.
        let time = time - self.0.get(first + 1)?.length / 2.0;
        let grew = excess - since;
        // What was sent `lag` earlier, in part of its first turn.
        let end: f64 = self.0.iter().skip(last + 1).map(|past| past.length).sum::<f64>() + lag;
        let sent = self.sent_between(end + time, end);
        let rate = sent / (time + grew).max(time / 20.0);
        (time > 0.0 && sent > 0.0).then_some(Full { rate, growth: grew / time })
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
        (time > 0.0 && bits > 0.0).then_some(Full { rate, growth: (excess - since) / time })
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

    #[test]
    fn a_queue_that_grows_by_a_second_a_second_means_half_the_rate() {
        // From the middle of the third turn on.
        let turns = [(20e6, 0.0, 0.0), (20e6, 0.0, 0.0), (20e6, 0.0, 25.0), (20e6, 0.0, 75.0)];
        let full = history(&turns).growing(0.005, 0.0).unwrap();
        assert!((full.rate - 10e6).abs() < 1.0 && (full.growth - 1.0).abs() < 1e-9, "{full:?}");
    }

    #[test]
    fn what_arrives_while_the_line_is_full_is_its_rate() {
        let turns = [(0.0, 20e6, 0.0), (0.0, 10e6, 30.0), (0.0, 10e6, 60.0)];
        let full = history(&turns).delivering(0.005, 0.2).unwrap();
        assert!((full.rate - 10e6).abs() < 1.0, "{full:?}");
    }

    #[test]
    fn nothing_follows_from_nothing() {
        assert_eq!(History::default().growing(0.005, 0.0), None);
        assert_eq!(History::default().delivering(0.005, 0.2), None);
        assert!(History::default().arrivals(1.0).abs() < 1e-9);
    }
}
