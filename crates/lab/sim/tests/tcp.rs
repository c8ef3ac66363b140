//! TCP over the simplest bottleneck there is: a queue that drains at a rate.

use narrows_sim::setup::{
    Control, Cores, Costs, Kind, NextHop, Port, Run, Sends, Setup, Spread, Stack, Traffic,
};
use narrows_sim::traffic::{ClosedLoop, Delivery, Offer, load, validate};
use narrows_units::{Bytes, Nanos, Rate};
use std::collections::VecDeque;

const RTT: Nanos = Nanos::from_millis(10);
const RATE: Rate = Rate::from_bits_per_sec(200_000_000);
/// The bytes in flight at `RATE` in a round trip.
const BDP: u64 = 250_000;

fn setup(stack: Stack, control: Control, flows: u32) -> Setup {
    let (jitter, clock_offset, staleness) = (Nanos::ZERO, Nanos::ZERO, Nanos::ZERO);
    let costs = Costs {
        step_ns: 0.,
        packet_ns: 0.,
        drop_ns: 0.,
        line_read_ns: 0.,
        line_update_ns: 0.,
        lock_handover_ns: 0.,
        qdisc_handover_ns: 0.,
    };
    let group = Traffic {
        name: "tcp".into(),
        kind: Kind::Tcp { stack, control, rtt: RTT },
        flows,
        start: Nanos::ZERO,
        stop: Nanos::MAX,
        sizes: Vec::new(),
        spread: Spread::RoundRobin,
        respread: None,
        lifetime: None,
        headers: Default::default(),
    };
    Setup {
        seed: 3,
        port: Port {
            queues: 4,
            rate: RATE,
            qdisc: Vec::new(),
            weights: Vec::new(),
            lock: Default::default(),
            sends: Sends::AllDue,
        },
        cores: Cores { jitter, clock_offset, staleness, costs },
        traffic: vec![group],
        next_hop: Some(NextHop { rate: RATE, buffer: Bytes(BDP), mark_above: Some(Bytes(BDP)) }),
        run: Run { warmup: Nanos::from_secs(4), length: Nanos::from_secs(8), event: None },
        faults: Vec::new(),
        changes: Vec::new(),
        traces: Vec::new(),
    }
}

/// A queue that drains at `RATE`, holds `buffer` and marks above `mark_above`.
struct Bottleneck {
    buffer: u64,
    mark_above: u64,
    /// Also loses one packet in this many; 0 for none.
    lose: u64,
    queue: VecDeque<(Nanos, Delivery)>,
    queued: u64,
    free_at: Nanos,
    seen: u64,
}

impl Bottleneck {
    fn of(buffer: u64) -> Self {
        let (queue, free_at) = (VecDeque::new(), Nanos::ZERO);
        Self { buffer, mark_above: u64::MAX, lose: 0, queue, queued: 0, free_at, seen: 0 }
    }

    fn offer(&mut self, offer: Offer) {
        self.seen += 1;
        let len = u64::from(offer.len);
        let lost = self.lose > 0 && self.seen.is_multiple_of(self.lose);
        if lost || self.queued + len > self.buffer {
            return;
        }
        let marked = offer.ect && self.queued > self.mark_above;
        self.free_at = self.free_at.max(offer.at) + RATE.time_for(Bytes(len));
        self.queued += len;
        self.queue.push_back((self.free_at, Delivery { offer, marked }));
    }
}

#[derive(Default)]
struct Result {
    /// After the warm-up, by flow, in bytes.
    delivered: Vec<u64>,
    /// By flow: every tag that was delivered.
    tags: Vec<Vec<u64>>,
    offered: u64,
    marked: u64,
    /// Sampled at each delivery after the warm-up, in bytes.
    queued: Vec<u64>,
}

impl Result {
    fn utilization(&self, setup: &Setup) -> f64 {
        let bytes: u64 = self.delivered.iter().sum();
        bytes as f64 / RATE.bytes_in(setup.run.length).0 as f64
    }

    fn jain(&self) -> f64 {
        let delivered = self.delivered.iter().map(|&bytes| bytes as f64);
        narrows_coordination::jain(&delivered.collect::<Vec<_>>())
    }

    fn mean_queue(&self) -> u64 {
        self.queued.iter().sum::<u64>() / self.queued.len() as u64
    }
}

/// Runs the only group of `setup` over `bottleneck`.
fn run(setup: &Setup, mut bottleneck: Bottleneck) -> Result {
    validate(setup).unwrap();
    let (flows, mut tcp): (_, Box<dyn ClosedLoop>) = load(setup).closed.remove(0);
    let mut result = Result {
        delivered: vec![0; flows.len()],
        tags: vec![Vec::new(); flows.len()],
        ..Result::default()
    };
    let mut offers = Vec::new();
    loop {
        let departure = bottleneck.queue.front().map_or(Nanos::MAX, |&(at, _)| at);
        let now = departure.min(tcp.next_at());
        if now >= setup.run.end() {
            return result;
        }
        if departure <= now {
            let (_, delivery) = bottleneck.queue.pop_front().unwrap();
            let len = u64::from(delivery.offer.len);
            bottleneck.queued -= len;
            let flow = delivery.offer.flow as usize;
            result.tags[flow].push(delivery.offer.tag);
            result.marked += u64::from(delivery.marked);
            if now >= setup.run.warmup {
                result.delivered[flow] += len;
                result.queued.push(bottleneck.queued);
            }
            tcp.delivered(&delivery, now);
        } else {
            tcp.act(now, &mut offers);
            result.offered += offers.len() as u64;
            for offer in offers.drain(..) {
                assert!(offer.at == now && offer.queue == offer.flow as usize % 4);
                bottleneck.offer(offer);
            }
        }
    }
}

#[track_caller]
fn fills(stack: Stack, control: Control, bottleneck: Bottleneck, least: f64) -> Result {
    let setup = setup(stack, control, 1);
    let result = run(&setup, bottleneck);
    let utilization = result.utilization(&setup);
    assert!((least..=1.0001).contains(&utilization), "{utilization}");
    result
}

#[test]
fn reno_fills_a_link_that_buffers_a_round_trip() {
    fills(Stack::Model, Control::Reno, Bottleneck::of(BDP), 0.95);
}

#[test]
fn cubic_fills_a_link_that_buffers_a_round_trip() {
    fills(Stack::Model, Control::Cubic, Bottleneck::of(BDP), 0.95);
}

#[test]
fn dctcp_fills_the_link_and_keeps_the_queue_at_the_mark() {
    // RFC 8257 section 4.1 recommends a threshold of about a seventh of the bandwidth-delay
    // product.
    let bottleneck = Bottleneck { mark_above: BDP / 5, ..Bottleneck::of(4 * BDP) };
    let result = fills(Stack::Model, Control::Dctcp, bottleneck, 0.97);
    let mean = result.mean_queue();
    assert!((BDP / 20..BDP * 3 / 10).contains(&mean), "{mean} of {}", BDP / 5);
    assert!(result.queued.iter().max() < Some(&(BDP * 2 / 5)));
    assert!(result.marked > 0);
}

#[test]
fn reno_and_cubic_answer_to_marks_and_repeat_nothing() {
    for control in [Control::Reno, Control::Cubic] {
        let mut setup = setup(Stack::Model, control, 1);
        setup.traffic[0].headers.ecn = true;
        let bottleneck = Bottleneck { mark_above: BDP, ..Bottleneck::of(8 * BDP) };
        let result = run(&setup, bottleneck);
        let utilization = result.utilization(&setup);
        assert!((0.95..=1.0001).contains(&utilization), "{control:?}: {utilization}");
        assert!(result.marked > 0 && result.queued.iter().max() < Some(&(2 * BDP)));
        let segments: Vec<u64> = result.tags[0].iter().map(|tag| tag >> 32).collect();
        assert!(segments.windows(2).all(|pair| pair[1] == pair[0] + 1), "one is repeated");
        // Marks come for a round trip; they are one reduction. A window that halves fills again in
        // no fewer round trips than it has lost segments.
        let reductions = result.marked / (2 * BDP / 1514);
        assert!(reductions < 40, "{} marks", result.marked);
    }
}

#[test]
fn segments_that_cannot_be_marked_are_not() {
    let bottleneck = Bottleneck { mark_above: 0, ..Bottleneck::of(BDP) };
    assert_eq!(run(&setup(Stack::Model, Control::Reno, 1), bottleneck).marked, 0);
}

#[test]
fn reno_with_a_small_buffer_matches_theory() {
    // A window that halves without a buffer averages three quarters.
    let setup = setup(Stack::Model, Control::Reno, 1);
    let utilization = run(&setup, Bottleneck::of(BDP / 20)).utilization(&setup);
    assert!((0.70..0.85).contains(&utilization), "{utilization}");
}

#[test]
fn two_flows_share_fairly() {
    for control in [Control::Reno, Control::Cubic, Control::Dctcp] {
        let mut setup = setup(Stack::Model, control, 2);
        setup.run.length = Nanos::from_secs(20);
        let bottleneck = Bottleneck { mark_above: BDP / 5, ..Bottleneck::of(BDP) };
        let result = run(&setup, bottleneck);
        assert!(result.jain() > 0.9, "{control:?}: {:?}", result.delivered);
        assert!(result.utilization(&setup) > 0.9, "{control:?}");
    }
}

#[test]
fn every_segment_arrives_however_many_are_lost() {
    for control in [Control::Reno, Control::Cubic, Control::Dctcp] {
        let setup = setup(Stack::Model, control, 3);
        let result = run(&setup, Bottleneck { lose: 50, ..Bottleneck::of(BDP / 2) });
        for tags in &result.tags {
            let mut segments: Vec<u64> = tags.iter().map(|tag| tag >> 32).collect();
            let again = segments.len();
            segments.sort_unstable();
            segments.dedup();
            // Packets still under way at the end are not counted.
            let whole = segments.len() - 200.min(segments.len() / 2);
            assert!(segments[..whole].iter().zip(0..).all(|(&segment, n)| segment == n));
            assert!(again - segments.len() <= again / 100, "repaired what had arrived");
            assert!(whole > 1000);
        }
    }
}

#[test]
fn a_flow_whose_whole_window_is_lost_comes_back_after_its_time_out() {
    let setup = setup(Stack::Model, Control::Cubic, 1);
    let (_, mut tcp) = load(&setup).closed.remove(0);
    let mut offers = Vec::new();
    let mut times = Vec::new();
    for _ in 0..4 {
        let now = tcp.next_at();
        tcp.act(now, &mut offers);
        times.push((now, offers.drain(..).count()));
    }
    assert_eq!(times.iter().map(|&(_, sent)| sent).collect::<Vec<_>>(), [10, 1, 1, 1]);
    let waits: Vec<u64> = times.windows(2).map(|pair| (pair[1].0 - pair[0].0).0).collect();
    assert_eq!(waits, [1_000_000_000, 2_000_000_000, 4_000_000_000]);
}

#[test]
fn a_flow_begins_with_ten_segments_and_doubles() {
    let setup = setup(Stack::Model, Control::Cubic, 1);
    let (_, mut tcp) = load(&setup).closed.remove(0);
    let mut offers = Vec::new();
    let start = tcp.next_at();
    assert!(start < Nanos::from_millis(100));
    tcp.act(start, &mut offers);
    assert_eq!(offers.len(), 10);
    assert!(offers.iter().all(|offer| offer.len == 1514 && !offer.ect && offer.at == start));
    for offer in offers.drain(..) {
        tcp.delivered(&Delivery { offer, marked: false }, start);
    }
    assert_eq!(tcp.next_at(), start + RTT);
    tcp.act(start + RTT, &mut offers);
    assert_eq!(offers.len(), 20);
}

#[test]
fn flows_of_the_model_are_the_same_for_the_same_seed() {
    let setup = setup(Stack::Model, Control::Cubic, 5);
    let tags = |setup: &Setup| run(setup, Bottleneck::of(BDP)).tags;
    assert_eq!(tags(&setup), tags(&setup));
    assert_ne!(tags(&setup), tags(&Setup { seed: 4, ..setup.clone() }));
}

#[test]
fn smoltcp_fills_the_link() {
    for control in [Control::Reno, Control::Cubic] {
        let result = fills(Stack::Smoltcp, control, Bottleneck::of(BDP), 0.97);
        // It does not flood the link with data that has arrived already.
        let arrived = result.tags[0].len() as u64;
        assert!(result.offered - arrived < arrived / 50, "{} of {arrived}", result.offered);
    }
}

#[test]
fn smoltcp_moves_data_in_spite_of_losses() {
    for control in [Control::Reno, Control::Cubic] {
        let setup = setup(Stack::Smoltcp, control, 3);
        let result = run(&setup, Bottleneck { lose: 2_000, ..Bottleneck::of(BDP) });
        assert!(result.utilization(&setup) > 0.5, "{}", result.utilization(&setup));
        assert!(result.jain() > 0.8, "{:?}", result.delivered);
    }
}

#[test]
fn both_stacks_leave_about_as_much_of_a_link_with_a_small_buffer() {
    let utilization = |stack| {
        let setup = setup(stack, Control::Reno, 1);
        run(&setup, Bottleneck::of(BDP / 4)).utilization(&setup)
    };
    let (model, smoltcp) = (utilization(Stack::Model), utilization(Stack::Smoltcp));
    assert!((model - smoltcp).abs() < 0.08, "{model} and {smoltcp}");
}

#[test]
fn nothing_is_sent_from_the_stop_on() {
    for stack in [Stack::Model, Stack::Smoltcp] {
        let mut setup = setup(stack, Control::Cubic, 2);
        let ends = |setup: &Setup| {
            let result = run(setup, Bottleneck::of(BDP));
            result.tags.iter().map(Vec::len).sum::<usize>()
        };
        let all = ends(&setup);
        setup.traffic[0].stop = Nanos::from_secs(6);
        let half = ends(&setup);
        assert!(half < all * 55 / 100 && half > all * 35 / 100, "{half} of {all}");
    }
}
