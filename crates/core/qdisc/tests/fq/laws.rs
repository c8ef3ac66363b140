//! Whatever is done to an `fq`: laws, checked against a naive account.

use crate::port::{DSCP, Port, flow, spec};
use narrows_packet::Headers;
use narrows_qdisc::fq::Config;
use narrows_qdisc::{Handover, Next, Verdict};
use narrows_units::{Bytes, Nanos, Rate};
use proptest::prelude::*;

const LONGEST: u32 = 1_500;
const FLOWS: u32 = 6;

#[derive(Clone, Debug)]
enum Step {
    Arrive { flow: u32, len: u32, band: usize },
    Leave { after: u64, most: usize },
    LeaveOne,
    Drain,
    Retune { quantum: u32, limit: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (0..FLOWS, 1..=LONGEST, 0usize..3)
            .prop_map(|(flow, len, band)| Step::Arrive { flow, len, band }),
        6 => (0u64..3_000_000, 0usize..6).prop_map(|(after, most)| Step::Leave { after, most }),
        1 => Just(Step::Leave { after: 3_500_000_000, most: 3 }),
        2 => Just(Step::LeaveOne),
        1 => Just(Step::Drain),
        1 => (1_000u32..5_000, 3u32..60)
            .prop_map(|(quantum, limit)| Step::Retune { quantum, limit }),
    ]
}

fn config(mbit: Option<u64>, low: u64) -> Config {
    let rate = |mbit: u64| Rate::from_bits_per_sec(mbit * 1_000_000);
    Config {
        max_rate: mbit.map(rate),
        low_rate_threshold: rate(low),
        quantum: 3_000,
        initial_quantum: 6_000,
        limit: 40,
        flow_limit: 10,
        ..Config::default()
    }
}

proptest! {
    /// Through any events, each packet leaves in its flow's order, is queued, or was dropped for
    /// the limits of a naive count; and in the end everything leaves.
    #[test]
    fn nothing_is_lost_and_limits_are_kept(
        steps in prop::collection::vec(step(), 1..200), mbit in prop::option::of(1u64..50),
    ) {
        let mut config = config(mbit, 5);
        let mut port = Port::new(config);
        for step in steps {
            match step {
                Step::Arrive { flow: id, len, band } => {
                    let of_band = |ids: &crate::port::Port| {
                        let dscp = |id: &narrows_packet::PacketId| ids.packets.headers(*id).dscp;
                        ids.queued.values().flatten().filter(|id| dscp(id) == DSCP[band]).count()
                    };
                    let of_flow = port.queued.get(&id).map_or(0, |queue| queue.len());
                    let fits = of_band(&port) < config.limit as usize
                        && of_flow < config.flow_limit as usize;
                    let verdict = port.arrive(Headers { dscp: DSCP[band], ..flow(id) }, len);
                    prop_assert_eq!(verdict == Verdict::Queued, fits);
                }
                Step::Leave { after, most } => {
                    port.now += Nanos(after);
                    port.leave(most);
                }
                Step::LeaveOne => {
                    let now = port.now;
                    match port.qdisc.dequeue_one(&mut port.packets, now) {
                        Ok(id) => port.account(id),
                        Err(next) => prop_assert_ne!(next, Next::Now),
                    }
                }
                Step::Drain => {
                    let drained = port.qdisc.drain(&mut port.packets);
                    prop_assert_eq!(drained.is_none(), port.queued.values().all(|q| q.is_empty()));
                    if let Some(id) = drained {
                        port.account(id);
                    }
                }
                Step::Retune { quantum, limit } => {
                    config = Config { quantum, limit, buckets: quantum, ..config };
                    config.max_rate = config.max_rate.map(|_| {
                        Rate::from_bits_per_sec(u64::from(limit) * 1_000_000)
                    });
                    let now = port.now;
                    port.qdisc.retune(spec(config), &mut Handover::new(&mut port.packets, now));
                }
            }
            port.check();
        }
        port.leave_all();
        prop_assert!(port.qdisc.backlog().is_empty());
        port.check();
    }

    /// Over any span, no flow sends more than its rate allows, plus a quantum, the excess of its
    /// last packet over that, and half a quantum of lateness.
    #[test]
    fn no_flow_exceeds_its_rate_over_any_span(
        steps in prop::collection::vec((0..FLOWS, 1..=LONGEST, 0u64..2_000_000), 1..300),
        mbit in 1u64..20,
        low in prop::sample::select(vec![0u64, 100]),
    ) {
        let config = Config { limit: 1000, flow_limit: 1000, ..config(Some(mbit), low) };
        let mut port = Port::new(config);
        for (id, len, after) in steps {
            port.now += Nanos(after);
            port.arrive(flow(id), len);
            while port.leave(4) == 4 {}
        }
        port.leave_all();
        let rate = config.max_rate.unwrap();
        let (round, first) = match low {
            0 => (config.quantum, config.initial_quantum),
            _ => (LONGEST, 0),
        };
        let allowance = u64::from(round / 2 + round.max(first) + LONGEST);
        for id in 0..FLOWS {
            let left: Vec<_> = port.left.iter().filter(|left| left.flow == id).collect();
            for (from, first) in left.iter().enumerate() {
                let mut sent = 0;
                for last in &left[from..] {
                    sent += u64::from(last.len);
                    let allowed = rate.bytes_in(last.at - first.at) + Bytes(allowance);
                    prop_assert!(sent <= allowed.0, "{sent} of {} from {:?}", allowed.0, first.at);
                }
            }
        }
    }

    /// Flows that always have something to send have sent the same at any time, but for a quantum
    /// and a packet.
    #[test]
    fn flows_that_stand_share_to_within_a_quantum(
        lens in prop::collection::vec(1..=LONGEST, 2..8), quantum in 100u32..6_000,
        turns in 100usize..800,
    ) {
        let config = Config { quantum, initial_quantum: quantum, ..Config::default() };
        let mut port = Port::new(config);
        let mut sent = vec![0u64; lens.len()];
        for _ in 0..turns {
            for (id, len) in lens.iter().enumerate() {
                while port.queued.get(&(id as u32)).map_or(0, |queue| queue.len()) < 2 {
                    port.arrive(flow(id as u32), *len);
                }
            }
            prop_assert_eq!(port.leave(1), 1);
            let left = port.left[port.left.len() - 1];
            sent[left.flow as usize] += u64::from(left.len);
            let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
            let longest = *lens.iter().max().unwrap();
            prop_assert!(most - least <= u64::from(quantum + longest), "{sent:?}");
        }
    }
}
