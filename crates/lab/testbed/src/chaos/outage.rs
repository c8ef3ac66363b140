//! The longest time in which nothing arrived although frames were sent.
//!
//! There is a gap between two arrivals. If the sender itself was silent for a part of it, because
//! it had no core, that part says nothing about the path, and the longest such part is subtracted.
//! The end of the epoch closes the last gap: a flow that never came back counts as an outage, too.

use super::sender::Log;
use super::traffic::Traffic;
use narrows_units::Nanos;
use std::collections::BTreeMap;

/// Gaps between two sends below this are the sender's pace.
const PACE: Nanos = Nanos::from_millis(2);

/// The longest outage of any flow of one direction's main stream, the first of `logs`.
///
/// A queue that stalls affects some flows and not others, so each flow is checked separately.
pub(super) fn longest(logs: &[Log], traffic: &Traffic) -> Nanos {
    let Some(main) = logs.iter().min_by_key(|log| log.stream) else { return Nanos::ZERO };
    let sends: Vec<Nanos> = main.sent.iter().map(|sent| sent.at).collect();
    let mut flows: BTreeMap<u16, Flow> = BTreeMap::new();
    for sent in &main.sent {
        flows.entry(sent.flow).or_insert(Flow::from(sent.at)).until = sent.at;
    }
    for received in traffic.received.iter().filter(|received| received.stream == main.stream) {
        if let Some(flow) = flows.get_mut(&received.sent.flow) {
            flow.arrives(received.at, &sends);
        }
    }
    let ended = flows.into_values().map(|mut flow| {
        flow.arrives(flow.until, &sends);
        flow.longest
    });
    ended.max().unwrap_or_default()
}

/// The state of checking one flow.
struct Flow {
    /// The last arrival, or the first send.
    last: Nanos,
    /// The last send.
    until: Nanos,
    longest: Nanos,
}

impl Flow {
    fn from(first: Nanos) -> Self {
        Self { last: first, until: first, longest: Nanos::ZERO }
    }

    fn arrives(&mut self, at: Nanos, sends: &[Nanos]) {
        if at.since(self.last) > self.longest {
            let outage = at.since(self.last) - silence(sends, self.last, at);
            self.longest = self.longest.max(outage);
        }
        self.last = self.last.max(at);
    }
}

/// The longest time between `from` and `to` in which nothing was sent.
fn silence(sends: &[Nanos], from: Nanos, to: Nanos) -> Nanos {
    let begin = sends.partition_point(|at| *at < from);
    let end = sends.partition_point(|at| *at <= to);
    let mut longest = Nanos::ZERO;
    let mut before = from;
    for at in sends[begin..end].iter().copied().chain([to]) {
        longest = longest.max(at.since(before));
        before = at;
    }
    if longest > PACE { longest } else { Nanos::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::traffic::tests::{arrival, log};

    fn longest_of(log: &Log, arrivals: impl IntoIterator<Item = u64>) -> Nanos {
        let arrivals: Vec<_> = arrivals.into_iter().map(arrival).collect();
        let logs = [log.clone()];
        longest(&logs, &Traffic::of(&logs, &arrivals))
    }

    #[test]
    fn without_an_outage_it_is_the_pace_of_a_flow() {
        // Two flows take turns.
        assert_eq!(longest_of(&log(100), 0..100), Nanos::from_millis(2));
    }

    #[test]
    fn a_hole_is_as_long_as_nothing_arrives() {
        let outage = longest_of(&log(100), (0..100).filter(|i| !(20..50).contains(i)));
        assert_eq!(outage, Nanos::from_millis(32));
    }

    #[test]
    fn a_flow_may_be_out_while_the_other_is_not() {
        let outage =
            longest_of(&log(100), (0..100).filter(|i| !(20..50).contains(i) || i % 2 == 0));
        assert_eq!(outage, Nanos::from_millis(32));
    }

    #[test]
    fn a_flow_that_never_returns_is_an_outage_to_the_end() {
        let outage = longest_of(&log(100), 0..40);
        assert!(outage > Nanos::from_millis(57), "{outage:?}");
        assert!(longest_of(&log(100), 0..0) >= Nanos::from_millis(97));
    }

    #[test]
    fn a_silent_sender_is_no_outage() {
        let mut log = log(100);
        log.sent.truncate(60);
        log.sent.drain(20..50);
        // The remaining numbers are those of the first thirty frames.
        let logs = [log];
        let arrivals: Vec<_> = (0..30)
            .map(|i| {
                let mut arrival = arrival(i);
                arrival.at = logs[0].sent[i as usize].at + Nanos::from_micros(100);
                arrival
            })
            .collect();
        let outage = longest(&logs, &Traffic::of(&logs, &arrivals));
        assert!(outage <= Nanos::from_millis(4), "{outage:?}");
    }
}
