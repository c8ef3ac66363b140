//! Congestion feedback that queues share: against a slow model with one board, and with real
//! threads.

use narrows_coordination::Destinations;
use narrows_packet::Acknowledgement;
use narrows_qdisc::pacing::Safeguard;
use narrows_units::Nanos;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;
use std::thread;

const QUEUES: usize = 3;
/// By how much the clocks of queues are ahead.
const AHEAD: [Nanos; QUEUES] = [Nanos(0), Nanos(7_000), Nanos(3_000)];
/// The tolerance of times: clock differences, and the units of stored times.
const SLACK: Nanos = Nanos(75_000);

#[derive(Clone, Debug)]
enum Step {
    /// A packet with the stamp of the millisecond leaves by a queue.
    Leaves {
        queue: usize,
        host: u32,
    },
    /// A queue receives the echo of a stamp from some milliseconds ago.
    Answers {
        queue: usize,
        host: u32,
        ago: u32,
    },
    /// A host reports a mark.
    Marked {
        queue: usize,
        host: u32,
    },
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0..QUEUES, 0u32..3);
    prop_oneof![
        4 => place().prop_map(|(queue, host)| Step::Leaves { queue, host }),
        4 => (place(), 0u32..4)
            .prop_map(|((queue, host), ago)| Step::Answers { queue, host, ago }),
        1 => place().prop_map(|(queue, host)| Step::Marked { queue, host }),
        6 => (1u64..3_000).prop_map(|micros| Step::Pass(micros * 1_000)),
        1 => (1u64..200).prop_map(|millis| Step::Pass(millis * 1_000_000)),
    ]
}

/// One ear for all queues, with one clock.
#[derive(Default)]
struct Model {
    newest: HashMap<u32, (u32, Nanos)>,
    under_way: HashMap<u32, (u32, Nanos)>,
    /// The end, and the duration.
    congestion: HashMap<u32, (Nanos, Nanos)>,
}

impl Model {
    fn leaves(&mut self, host: u32, value: u32, now: Nanos) {
        let is_new = self.newest.get(&host).is_none_or(|(newest, _)| *newest != value);
        self.newest.insert(host, (value, now));
        let waits = self.under_way.get(&host);
        let is_free = waits.is_none_or(|(_, left)| now.since(*left) > Nanos::from_millis(200));
        if is_new && is_free {
            self.under_way.insert(host, (value, now));
        }
    }

    /// The round trip, if there is one.
    fn comes(&mut self, host: u32, echo: u32, now: Nanos) -> Option<Nanos> {
        let (_, left) = self.under_way.get(&host).filter(|(value, _)| *value == echo).copied()?;
        self.under_way.remove(&host);
        Some(now.since(left))
    }

    fn heard(&mut self, host: u32, now: Nanos) {
        let (until, lasts) = self.congestion.entry(host).or_default();
        if *until <= now {
            let longest = Nanos::from_millis(128);
            let is_back = *lasts > Nanos::ZERO && now.since(*until) < longest;
            *lasts = if is_back { (*lasts + *lasts).min(longest) } else { Nanos::from_millis(2) };
        }
        *until = (*until).max(now + *lasts);
    }

    fn until(&self, host: u32) -> Nanos {
        self.congestion.get(&host).copied().unwrap_or_default().0
    }
}

fn data(value: u32) -> Acknowledgement {
    Acknowledgement { time_stamp: Some((value, 0)), ..Acknowledgement::default() }
}

fn answer(echo: u32) -> Acknowledgement {
    let time_stamp = Some((9, echo));
    Acknowledgement { is_empty: true, time_stamp, ..Acknowledgement::default() }
}

fn marked() -> Acknowledgement {
    Acknowledgement { flags: 0x50, ..Acknowledgement::default() }
}

fn queues() -> Vec<Safeguard> {
    let shared = Destinations::new();
    (0..QUEUES).map(|_| Safeguard::new(shared.feedback())).collect()
}

proptest! {
    #[test]
    fn queues_hear_as_one_does(steps in prop::collection::vec(step(), 1..200)) {
        let mut queues = queues();
        let mut model = Model::default();
        let mut now = Nanos::from_secs(5);
        let mut shortest: HashMap<u32, (Nanos, Nanos)> = HashMap::new();
        for step in steps {
            let stamp = (now.0 / 1_000_000) as u32;
            match step {
                Step::Pass(span) => now += Nanos(span),
                Step::Leaves { queue, host } => {
                    model.leaves(host, stamp, now);
                    queues[queue].leaves(host, &data(stamp), now + AHEAD[queue]);
                }
                Step::Answers { queue, host, ago } => {
                    let heard = queues[queue].comes(host, &answer(stamp - ago), now + AHEAD[queue]);
                    let took = model.comes(host, stamp - ago, now);
                    let Some(took) = took else {
                        prop_assert!(!heard, "nothing was under way");
                        continue;
                    };
                    let known = shortest.get(&host).filter(|(shortest, seen)| {
                        *shortest <= took && now.since(*seen) < Nanos::from_secs(9)
                    });
                    let Some((known, _)) = known else {
                        shortest.insert(host, (took, now));
                        // A slightly shorter time may be longer by another clock.
                        if heard { model.heard(host, now) }
                        continue;
                    };
                    let bound = *known + *known + Nanos::from_micros(50);
                    let sure = took + SLACK < bound || took > bound + SLACK;
                    prop_assert!(!sure || heard == (took > bound), "{:?} after {:?}", took, known);
                    if heard { model.heard(host, now) }
                }
                Step::Marked { queue, host } => {
                    prop_assert!(queues[queue].comes(host, &marked(), now + AHEAD[queue]));
                    model.heard(host, now);
                }
            }
            // The next batch.
            now += Nanos(1);
            for host in 0..3 {
                let until = model.until(host);
                for (queue, ahead) in queues.iter_mut().zip(AHEAD) {
                    let seen = queue.congested_until(host, now + ahead);
                    if until > now + SLACK {
                        let seen = seen.unwrap_or_default();
                        prop_assert!(seen.0.abs_diff(until.0) < SLACK.0, "{:?}, {:?}", seen, until);
                    } else if until + SLACK < now {
                        prop_assert_eq!(seen, None);
                    }
                }
                // If it may have ended, the next report may double it or not.
                prop_assume!(until == Nanos::ZERO || now.0.abs_diff(until.0) > SLACK.0);
                let since = now.since(until);
                prop_assume!(since.0.abs_diff(128_000_000) > SLACK.0);
            }
        }
    }
}

/// Threads that send and receive at the same time. In the end all know the congested host; a host
/// that answers at once is never reported.
#[test]
fn threads_see_exactly_the_feedback_that_was_published() {
    const ROUNDS: u32 = 20_000;
    let shared = Destinations::new();
    let threads: Vec<_> = (0..4_u32)
        .map(|number| {
            let mut safeguard = Safeguard::new(shared.feedback());
            thread::spawn(move || {
                for round in 0..ROUNDS {
                    let now = Nanos::from_secs(1) + Nanos(u64::from(round) * 50_000);
                    let stamp = round / 20;
                    safeguard.leaves(5, &data(stamp), now);
                    // Threads may be apart by any time, so only short times are certain.
                    if round % 7 == number {
                        safeguard.comes(6, &marked(), now);
                    }
                    safeguard.congested_until(6, now);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let end = Nanos::from_secs(1) + Nanos(u64::from(ROUNDS) * 50_000);
    let mut late = Safeguard::new(Arc::clone(&shared).feedback());
    assert!(late.congested_until(6, end).is_some());
    assert_eq!(late.congested_until(5, end), None);
    // The reports had no pause, so it has never come back.
    let until = late.congested_until(6, end).unwrap();
    assert!(until <= end + Nanos::from_millis(2), "{:?}", until - end);
}
