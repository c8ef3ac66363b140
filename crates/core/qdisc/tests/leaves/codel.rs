//! One queue that does not stay long, beside the pseudo-code of RFC 8289.

use crate::port::{Port, capable, flow, ms};
use narrows_packet::DropReason;
use narrows_qdisc::codel::{Config, Figures};
use narrows_qdisc::{Config as AnyConfig, Detail, Verdict};
use narrows_units::Nanos;
use proptest::prelude::*;
use std::collections::VecDeque;

fn port(config: Config) -> Port {
    Port::new(AnyConfig::Codel(config))
}

fn figures(port: &Port) -> Figures {
    *port.stats().detail.as_ref().and_then(Detail::codel).expect("a codel has figures")
}

/// Twice as much comes as leaves, for `span`: a packet leaves each ms.
fn overload(port: &mut Port, headers: narrows_packet::Headers, span: Nanos) {
    let end = port.now + span;
    while port.now < end {
        port.arrive(headers, 1500);
        port.arrive(headers, 1500);
        port.now += ms(1);
        port.leave(1);
    }
}

#[test]
fn a_standing_queue_is_kept_short_and_a_burst_is_spared() {
    let mut port = port(Config { limit: 100_000, ..Config::default() });
    for _ in 0..50 {
        port.arrive(flow(0), 1500);
    }
    // A burst of 50 is gone within an interval.
    for _ in 0..50 {
        port.now += ms(1);
        port.leave(1);
    }
    assert_eq!((port.left.len(), port.dropped.len()), (50, 0));
    overload(&mut port, flow(0), Nanos::from_secs(30));
    assert!(port.drops(DropReason::Aqm) > 100, "{:?}", figures(&port));
    let state = figures(&port).state;
    assert!(state.is_dropping && state.count > 10, "{state:?}");
}

#[test]
fn with_ecn_capable_packets_are_marked_and_others_dropped() {
    for (ecn, headers, marks) in
        [(true, capable(0), true), (true, flow(0), false), (false, capable(0), false)]
    {
        let mut port = port(Config { limit: 100_000, ecn, ..Config::default() });
        overload(&mut port, headers, Nanos::from_secs(2));
        let marked = port.left.iter().filter(|left| left.is_marked).count() as u64;
        let found = (figures(&port).signals.ecn_mark, port.drops(DropReason::Aqm));
        assert_eq!(found.0, marked);
        assert_eq!((found.0 > 10, found.1 > 10), (marks, !marks), "{found:?}");
    }
}

#[test]
fn ce_threshold_marks_longer_delays_and_drops_nothing() {
    let mut port = port(Config { ce_threshold: Some(ms(2)), ..Config::default() });
    for _ in 0..3 {
        port.arrive(capable(0), 1500);
    }
    port.arrive(flow(0), 1500);
    for _ in 0..4 {
        port.now += ms(1);
        port.leave(1);
    }
    let marked: Vec<_> = port.left.iter().map(|left| left.is_marked).collect();
    assert_eq!(marked, [false, false, true, false]);
    assert_eq!(figures(&port).signals.ce_mark, 1);
}

#[test]
fn arrivals_beyond_the_limit_are_dropped() {
    let mut port = port(Config { limit: 3, ..Config::default() });
    let verdicts: Vec<_> = (0..5).map(|_| port.arrive(flow(0), 100)).collect();
    assert_eq!(verdicts[2..4], [Verdict::Queued, Verdict::Dropped]);
    assert_eq!((figures(&port).drop_overlimit, port.dropped.clone()), (2, vec![3, 4]));
    port.leave_all();
    assert_eq!(figures(&port).signals.max_packet, 100);
}

#[test]
fn parameters_change_with_packets_in_the_queue() {
    let mut port = port(Config::default());
    port.arrive_all((0..10).map(|_| capable(0)), 1500);
    port.retune(AnyConfig::Codel(Config { limit: 5, ..Config::default() }));
    assert_eq!(port.arrive(capable(0), 1500), Verdict::Dropped);
    port.leave_all();
    assert_eq!(port.left.len(), 10);
}

/// RFC 8289, section 5, literally; a queue of pairs of number and arrival.
struct Textbook {
    target: u64,
    interval: u64,
    frame: u64,
    queue: VecDeque<(u64, u64, u64)>,
    bytes: u64,
    first_above_time: u64,
    drop_next: u64,
    count: u32,
    lastcount: u32,
    dropping: bool,
    dropped: Vec<u64>,
}

impl Textbook {
    fn law(&self, t: u64) -> u64 {
        t + (self.interval as f64 / f64::from(self.count).sqrt()) as u64
    }

    fn dodequeue(&mut self, now: u64) -> (Option<u64>, bool) {
        let Some((number, arrival, len)) = self.queue.pop_front() else {
            self.first_above_time = 0;
            return (None, false);
        };
        self.bytes -= len;
        let mut ok_to_drop = false;
        if now - arrival < self.target || self.bytes <= self.frame {
            self.first_above_time = 0;
        } else if self.first_above_time == 0 {
            self.first_above_time = now + self.interval;
        } else if now >= self.first_above_time {
            ok_to_drop = true;
        }
        (Some(number), ok_to_drop)
    }

    fn dequeue(&mut self, now: u64) -> Option<u64> {
        let (mut packet, mut ok_to_drop) = self.dodequeue(now);
        if packet.is_none() {
            self.dropping = false;
        } else if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
            }
            while now >= self.drop_next && self.dropping {
                self.dropped.extend(packet);
                self.count += 1;
                (packet, ok_to_drop) = self.dodequeue(now);
                if ok_to_drop {
                    self.drop_next = self.law(self.drop_next);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok_to_drop {
            self.dropped.extend(packet);
            (packet, _) = self.dodequeue(now);
            self.dropping = true;
            let delta = self.count - self.lastcount;
            let recent = now.saturating_sub(self.drop_next) < 16 * self.interval;
            self.count = if delta > 1 && recent { delta } else { 1 };
            self.drop_next = self.law(now);
            self.lastcount = self.count;
        }
        packet
    }
}

proptest! {
    /// The oracle is the pseudo-code of RFC 8289: the same packets leave at the same times, and the
    /// same are dropped.
    #[test]
    fn it_behaves_as_the_textbook_model(
        phases in prop::collection::vec((1u64..200, 0u64..4, 60u32..1514), 1..20),
    ) {
        let config = Config { limit: 10_000, ..Config::default() };
        let mut port = port(config);
        let mut textbook = Textbook {
            target: config.target.0,
            interval: config.interval.0,
            frame: u64::from(config.frame),
            queue: VecDeque::new(),
            bytes: 0,
            first_above_time: 0,
            drop_next: 0,
            count: 0,
            lastcount: 0,
            dropping: false,
            dropped: Vec::new(),
        };
        for (steps, arrivals, len) in phases {
            for _ in 0..steps {
                for _ in 0..arrivals {
                    textbook.queue.push_back((port.came, port.now.0, u64::from(len)));
                    textbook.bytes += u64::from(len);
                    port.arrive(flow(0), len);
                }
                port.now += Nanos::from_micros(1_700);
                let before = port.left.len();
                port.leave(1);
                let left = port.left.get(before).map(|left| left.number);
                prop_assert_eq!(left, textbook.dequeue(port.now.0));
                prop_assert_eq!(&port.dropped, &textbook.dropped);
            }
        }
    }
}
