//! The guarantees of `carousel`, `eiffel` and `flowbundler`, with each calendar.

mod sorted;

use narrows_packet::{Batch, DropReason, Headers, PacketId, Packets};
use narrows_qdisc::pacing::{Beyond, Codel, Config, Figures, Key, Pacer, Structure};
use narrows_qdisc::{Detail, Handover, Next, Qdisc, Spec, Stats, Verdict, fifo, tbf};
use narrows_units::{Bytes, Nanos, Rate, wire::Overhead};
use proptest::prelude::*;
use sorted::Sorted;
use std::collections::{BTreeMap, HashMap};

const STRUCTURES: [Structure; 3] = [Structure::Carousel, Structure::Eiffel, Structure::FlowBundler];
/// The longest frame.
const FRAME: u32 = 1514;
const CAPACITY: u32 = 20_000;

fn mbit(mbit: u64) -> Rate {
    Rate::from_bits_per_sec(mbit * 1_000_000)
}

fn at_rate(structure: Structure, rate: Rate) -> Config {
    Config { maxrate: Some(rate), ..Config::new(structure, FRAME) }
}

/// Queue management that never drops: a queue for each flow, stamped at release.
fn lenient() -> impl Strategy<Value = Option<Codel>> {
    let target = Nanos::from_secs(1_000_000);
    prop::option::of(Just(Codel { target, ..Codel::default() }))
}

fn spec(config: Config) -> Spec {
    let config = narrows_qdisc::Config::Pacing(config);
    Spec::new(config)
}

/// How long a slot may be for a flow of that rate.
fn slot(config: &Config) -> u64 {
    let frame = config.maxrate.unwrap().time_for(Bytes(u64::from(FRAME))).0;
    match config.structure {
        Structure::FlowBundler => (1 << frame.ilog2()).max(config.granularity.0),
        _ => config.granularity.0,
    }
}

/// A packet that left.
#[derive(Clone, Copy, Debug)]
struct Left {
    flow: u32,
    len: u32,
    /// How many packets of its flow were accepted before it.
    number: u64,
    at: u64,
}

struct World {
    qdisc: Box<dyn Qdisc>,
    packets: Packets,
    free: Vec<PacketId>,
    now: u64,
    next: Next,
    /// Of each flow: how many were accepted, how many have left.
    accepted: HashMap<u32, u64>,
    numbers: HashMap<PacketId, u64>,
    left: Vec<Left>,
    /// Packets that came.
    arrived: u64,
}

impl World {
    fn new(config: Config) -> Self {
        Self::of(spec(config).build())
    }

    fn of(qdisc: Box<dyn Qdisc>) -> Self {
        Self {
            qdisc,
            packets: Packets::new(CAPACITY),
            free: (0..CAPACITY).rev().map(PacketId).collect(),
            now: 1_000_000_007,
            next: Next::Empty,
            accepted: HashMap::new(),
            numbers: HashMap::new(),
            left: Vec::new(),
            arrived: 0,
        }
    }

    fn arrive(&mut self, flow: u32, len: u32) -> Verdict {
        self.arrive_with(Headers { flow, ..Headers::default() }, len)
    }

    fn arrive_with(&mut self, headers: Headers, len: u32) -> Verdict {
        let id = self.free.pop().expect("fewer are queued than there are");
        self.packets.arrive(id, len, Nanos(self.now));
        self.packets.set_headers(id, headers);
        self.arrived += 1;
        let verdict = self.qdisc.enqueue(&mut self.packets, id, Nanos(self.now));
        if verdict == Verdict::Queued {
            let number = self.accepted.entry(headers.flow).or_default();
            self.numbers.insert(id, *number);
            *number += 1;
        }
        let mut back = Batch::new(8);
        self.packets.reclaim(&mut back);
        self.free.extend(back.as_slice());
        verdict
    }

    /// The packets that leave now.
    fn poll(&mut self) {
        let mut out = Batch::new(64);
        loop {
            out.clear();
            self.next = self.qdisc.dequeue(&mut self.packets, Nanos(self.now), &mut out);
            for &id in out.as_slice() {
                let (flow, len) = (self.packets.headers(id).flow, self.packets.meta(id).len.0);
                let number = self.numbers.remove(&id).expect("it was queued");
                self.left.push(Left { flow, len, number, at: self.now });
                self.free.push(id);
            }
            if self.next != Next::Now {
                return;
            }
        }
    }

    /// Polls as requested, and at `end`.
    fn run_until(&mut self, end: u64) {
        self.poll();
        while let Next::Held(at) = self.next
            && at.0 <= end
        {
            assert!(at.0 > self.now, "{at} is over at {}", self.now);
            self.now = at.0;
            self.poll();
        }
        self.now = self.now.max(end);
        self.poll();
    }

    fn run(&mut self) {
        self.run_until(self.now);
        while let Next::Held(at) = self.next {
            self.run_until(at.0);
        }
        assert_eq!(self.next, Next::Empty);
    }

    fn stats(&self) -> Stats {
        let mut stats = Vec::new();
        self.qdisc.stats(&mut stats);
        stats.pop().unwrap()
    }

    fn figures(&self) -> Figures {
        *self.stats().detail.as_ref().and_then(Detail::pacing).expect("a pacing qdisc has figures")
    }

    fn drops(&self, reason: DropReason) -> u64 {
        self.packets.drops().get(reason)
    }

    /// Nothing is lost, and each flow is in order.
    fn check(&self) {
        let queued = u64::from(self.qdisc.backlog().packets);
        assert_eq!(self.arrived, self.left.len() as u64 + queued + self.packets.drops().total());
        assert_eq!(self.numbers.len() as u64, queued);
        assert_eq!(self.stats().sent_packets, self.left.len() as u64);
        self.check_order();
    }

    /// Each flow is in order.
    fn check_order(&self) {
        let mut expected: HashMap<u32, u64> = HashMap::new();
        for left in &self.left {
            let number = expected.entry(left.flow).or_default();
            assert_eq!(left.number, *number, "{left:?}");
            *number += 1;
        }
    }

    /// The most packets of `flow` that left at one time.
    fn most_at_once(&self, flow: u32) -> u64 {
        let mut most: BTreeMap<u64, u64> = BTreeMap::new();
        for left in self.left.iter().filter(|left| left.flow == flow) {
            *most.entry(left.at).or_default() += u64::from(left.len);
        }
        most.into_values().max().unwrap_or(0)
    }

    fn times(&self) -> Vec<u64> {
        self.left.iter().map(|left| left.at).collect()
    }
}

/// When a flow's packets may leave at the earliest, by adding up bytes and dividing once.
#[derive(Default)]
struct Clock {
    start: u64,
    bytes: u64,
}

impl Clock {
    /// The departure of a packet that comes at `now`, rounded down.
    fn stamp(&mut self, len: u32, now: u64, rate: Rate) -> u64 {
        let next = u128::from(self.start)
            + u128::from(self.bytes) * 8_000_000_000 / u128::from(rate.bits_per_sec());
        if next < u128::from(now) {
            *self = Self { start: now, bytes: 0 };
        }
        self.bytes += u64::from(len);
        next.max(u128::from(now)) as u64
    }
}

fn structure() -> impl Strategy<Value = Structure> {
    prop::sample::select(STRUCTURES.to_vec())
}

/// Rates up to 100 Gbit/s, each magnitude as likely.
fn rate() -> impl Strategy<Value = Rate> {
    (100u64..1000, 4u32..9)
        .prop_map(|(digits, power)| Rate::from_bits_per_sec(digits * 10u64.pow(power)))
}

/// A structure and a rate, which may be next to nothing where slots follow it.
fn structure_and_rate() -> impl Strategy<Value = (Structure, Rate)> {
    let slow =
        (8u64..1_000_000).prop_map(|bps| (Structure::FlowBundler, Rate::from_bits_per_sec(bps)));
    prop_oneof![4 => (structure(), rate()), 1 => slow]
}

#[derive(Clone, Copy, Debug)]
struct Arrival {
    /// In thousandths of what a frame takes.
    after: u64,
    flow: u32,
    len: u32,
}

fn arrivals(most: usize) -> impl Strategy<Value = Vec<Arrival>> {
    let after = prop_oneof![5 => Just(0u64), 3 => 0u64..1000, 1 => 0u64..5000];
    // Some of them share a list if the last bits of the hash identify flows.
    let flow = prop::sample::select(vec![0u32, 4, 1 << 9, 77, 0xdead_beef, u32::MAX]);
    let len = prop_oneof![Just(FRAME), 60..=FRAME];
    let arrival = (after, flow, len).prop_map(|(after, flow, len)| Arrival { after, flow, len });
    prop::collection::vec(arrival, 1..most)
}

/// Without limits that would be reached.
fn roomy(structure: Structure, rate: Rate) -> Config {
    let horizon = Nanos::from_secs(1_000_000_000);
    Config { flow_limit: 10_000, horizon, ..at_rate(structure, rate) }
}

/// The headers of the connection `flow`, to one of two hosts.
fn to_host(flow: u32) -> Headers {
    Headers { flow, destination: flow % 2, ..Headers::default() }
}

proptest! {
    /// Polled in time: no packet is early, none later than a slot, and no flow sends more in a
    /// window than its rate yields in that window and a slot, plus a frame. If a slot is no longer
    /// than a frame takes, that is two frames at once.
    #[test]
    fn a_flow_keeps_its_rate_in_every_window_and_its_order(
        (structure, rate) in structure_and_rate(), codel in lenient(), arrivals in arrivals(300),
    ) {
        let horizon = Nanos::from_secs(if rate >= mbit(1) { 4 } else { 1_000_000_000 });
        let config = Config { flow_limit: 10_000, horizon, codel, ..at_rate(structure, rate) };
        let mut world = World::new(config);
        let mut clocks: HashMap<u32, Clock> = HashMap::new();
        let mut stamps: HashMap<(u32, u64), u64> = HashMap::new();
        let frame = rate.time_for(Bytes(u64::from(FRAME))).0;
        for Arrival { after, flow, len } in arrivals {
            world.run_until(world.now + after * frame / 1000);
            let number = world.accepted.get(&flow).copied().unwrap_or(0);
            let stamp = clocks.entry(flow).or_default().stamp(len, world.now, rate);
            stamps.insert((flow, number), stamp);
            prop_assert_eq!(world.arrive(flow, len), Verdict::Queued);
            world.poll();
        }
        world.run();
        world.check();
        let slot = slot(&config);
        for left in &world.left {
            let stamp = stamps[&(left.flow, left.number)];
            prop_assert!(left.at >= stamp, "{left:?} left before {stamp}");
            // The model rounds down, the implementation up.
            prop_assert!(left.at <= stamp + slot + 1, "{left:?} left after {stamp} + {slot}");
        }
        for flow in stamps.keys().map(|(flow, _)| *flow).collect::<std::collections::HashSet<_>>() {
            let left: Vec<_> = world.left.iter().filter(|left| left.flow == flow).collect();
            for first in 0..left.len() {
                let mut bytes = 0;
                for last in &left[first..] {
                    bytes += u64::from(last.len);
                    let window = Nanos(last.at - left[first].at + slot + 1);
                    let most = rate.bytes_in(window).0 + 1 + u64::from(FRAME);
                    prop_assert!(bytes <= most, "{bytes} in {window}, {most} at most");
                }
            }
            if structure == Structure::FlowBundler {
                prop_assert!(world.most_at_once(flow) <= u64::from(2 * FRAME));
            }
        }
    }

    /// Connections to one host, each with its own rate, started together or not: at most two frames
    /// to that host leave at once, and each connection stays in order.
    #[test]
    fn at_most_two_frames_to_one_host_leave_at_once(
        rate in rate(), arrivals in arrivals(300),
    ) {
        let config = Config { apart: Key::Hosts, ..roomy(Structure::FlowBundler, rate) };
        let mut world = World::new(config);
        let frame = rate.time_for(Bytes(u64::from(FRAME))).0;
        for Arrival { after, flow, len } in arrivals {
            world.run_until(world.now + after * frame / 1000);
            world.arrive_with(to_host(flow), len);
        }
        world.run();
        world.check();
        let mut together: BTreeMap<(u64, u32), u32> = BTreeMap::new();
        for left in &world.left {
            *together.entry((left.at, to_host(left.flow).destination)).or_default() += left.len;
        }
        prop_assert!(together.values().all(|&bytes| bytes <= 2 * FRAME), "{together:?}");
    }

    /// The spaced destinations change while packets wait for their turns, polls are late, and in
    /// the end all packets are taken back: each connection stays in order, nothing is lost.
    #[test]
    fn connections_stay_in_order_through_changes_of_spacing(
        rate in rate(), arrivals in arrivals(300), changes in prop::collection::vec(0u8..8, 300),
    ) {
        let apart = |hosts| {
            let apart = if hosts { Key::Hosts } else { Key::Flows };
            Config { apart, ..roomy(Structure::FlowBundler, rate) }
        };
        let mut world = World::new(apart(true));
        let frame = rate.time_for(Bytes(u64::from(FRAME))).0;
        for (Arrival { after, flow, len }, change) in arrivals.into_iter().zip(changes) {
            world.now += after * frame / 1000;
            world.arrive_with(to_host(flow), len);
            match change {
                0 | 1 => world.qdisc.retune(spec(apart(change == 0)), &mut Handover::new(&mut world.packets, Nanos(world.now))),
                2 => {}
                _ => world.poll(),
            }
        }
        while let Some(id) = world.qdisc.drain(&mut world.packets) {
            let (flow, len) = (world.packets.headers(id).flow, world.packets.meta(id).len.0);
            let number = world.numbers.remove(&id).expect("it was queued");
            world.left.push(Left { flow, len, number, at: world.now });
            prop_assert!(!world.packets.meta(id).is_postponed);
        }
        prop_assert_eq!(world.left.len() as u64, world.arrived);
        world.check_order();
    }

    /// The structures differ only in how much they round departures up.
    #[test]
    fn every_structure_stamps_alike(
        rate in rate(), codel in lenient(), arrivals in arrivals(200),
    ) {
        let horizon = Nanos::from_secs(2);
        let config = Config { horizon, ..at_rate(Structure::Carousel, rate) };
        let mut sorted = World::of(Box::new(Pacer::new(config, None, |_| Sorted::default())));
        let mut worlds: Vec<_> = STRUCTURES
            .map(|structure| Config { horizon, codel, ..at_rate(structure, rate) })
            .map(|config| (slot(&config), World::new(config)))
            .into();
        let frame = rate.time_for(Bytes(u64::from(FRAME))).0;
        for Arrival { after, flow, len } in arrivals {
            let now = sorted.now + after * frame / 1000;
            sorted.run_until(now);
            let expected = sorted.arrive(flow, len);
            for (_, world) in &mut worlds {
                world.run_until(now);
                // A longer backlog reaches the limit sooner, which is not the point here.
                if expected == Verdict::Queued {
                    world.arrive(flow, len);
                }
            }
        }
        sorted.run();
        let times: HashMap<_, _> =
            sorted.left.iter().map(|left| ((left.flow, left.number), left.at)).collect();
        for (slot, mut world) in worlds {
            world.run();
            world.check();
            prop_assume!(world.left.len() == sorted.left.len());
            for left in &world.left {
                let time = times[&(left.flow, left.number)];
                prop_assert!((time..=time + slot).contains(&left.at), "{left:?} is not at {time}");
            }
        }
    }

    /// Late polls and changing rates: nothing is lost, all is in order, and a flow has at most two
    /// frames in a slot.
    #[test]
    fn rates_that_change_under_load_make_no_bursts(
        structure in structure(), codel in lenient(),
        steps in prop::collection::vec((arrivals(30), rate(), any::<bool>()), 1..12),
    ) {
        let first = Config { codel, ..at_rate(structure, mbit(10)) };
        let mut world = World::new(Config { horizon: Nanos::from_secs(2), ..first });
        let mut fastest = mbit(10);
        for (arrivals, rate, cap) in steps {
            for Arrival { after, flow, len } in arrivals {
                world.arrive(flow, len);
                world.run_until(world.now + after * 1000);
            }
            fastest = fastest.max(rate);
            let beyond = if cap { Beyond::Cap } else { Beyond::Drop };
            // Far enough for all that the flow limit lets in.
            let horizon = Nanos::from_secs(20);
            let config = Config { maxrate: Some(rate), beyond, horizon, ..first };
            prop_assert!(spec(first).config.carries_on(&spec(config).config));
            world.qdisc.retune(spec(config), &mut Handover::new(&mut world.packets, Nanos(world.now)));
        }
        world.run();
        world.check();
        let yielded = match structure {
            Structure::FlowBundler => 0,
            _ => fastest.bytes_in(first.granularity).0,
        };
        let most = u64::from(FRAME) * 2;
        for flow in world.accepted.keys() {
            let at_once = world.most_at_once(*flow);
            prop_assert!(at_once <= most.max(yielded + u64::from(FRAME)), "{at_once} at once");
        }
    }

    /// Asked at any times: never early, in order, nothing lost, and all there is when it is due.
    #[test]
    fn a_late_caller_gets_all_due_packets(
        structure in structure(), codel in lenient(),
        steps in prop::collection::vec((arrivals(20), 0u64..30_000_000, 1usize..100), 1..20),
    ) {
        let rate = mbit(8);
        let config = Config { flow_limit: 1000, codel, ..at_rate(structure, rate) };
        let mut world = World::new(config);
        let mut clocks: HashMap<u32, Clock> = HashMap::new();
        let mut stamps: HashMap<(u32, u64), u64> = HashMap::new();
        for (arrivals, wait, room) in steps {
            for Arrival { after, flow, len } in arrivals {
                world.now += after;
                let number = world.accepted.get(&flow).copied().unwrap_or(0);
                stamps.insert((flow, number), clocks.entry(flow).or_default().stamp(len, world.now, rate));
                world.arrive(flow, len);
            }
            world.now += wait;
            let mut out = Batch::new(room);
            let next = world.qdisc.dequeue(&mut world.packets, Nanos(world.now), &mut out);
            prop_assert!(next != Next::Now || !out.has_room());
            for &id in out.as_slice() {
                let (flow, len) = (world.packets.headers(id).flow, world.packets.meta(id).len.0);
                let number = world.numbers.remove(&id).unwrap();
                prop_assert!(stamps[&(flow, number)] <= world.now);
                world.left.push(Left { flow, len, number, at: world.now });
                world.free.push(id);
            }
            if out.has_room() {
                let overdue = world.numbers.iter().filter(|(id, number)| {
                    stamps[&(world.packets.headers(**id).flow, **number)] + slot(&config) + 1 < world.now
                });
                prop_assert_eq!(overdue.count(), 0);
            }
            world.check();
        }
    }
}

#[test]
fn a_flow_that_stands_leaves_at_its_rate_to_the_packet_over_ten_seconds() {
    for structure in STRUCTURES {
        for rate in [100_000, 7_777_777, 97_000_000].map(Rate::from_bits_per_sec) {
            let mut world = World::new(at_rate(structure, rate));
            let start = world.now;
            let end = start + 10_000_000_000;
            let frame = rate.time_for(Bytes(u64::from(FRAME))).0;
            while world.now < end {
                while world.qdisc.backlog().packets < 30 {
                    world.arrive(3, FRAME);
                    world.arrive(4, FRAME / 2);
                }
                world.run_until((world.now + frame).min(end));
            }
            world.check();
            let sent = |flow| {
                let of_flow = world.left.iter().filter(|left| left.flow == flow);
                of_flow.map(|left| u64::from(left.len)).sum::<u64>()
            };
            let expected = rate.bytes_in(Nanos(end - start)).0;
            let sent = sent(3);
            assert!(
                (expected..=expected + u64::from(FRAME))
                    .contains(&(sent + slot_bytes(structure, rate))),
                "{structure:?} {rate}: {sent} is not {expected}"
            );
        }
    }
}

/// Bytes that a flow has not sent yet because its departures are rounded up.
fn slot_bytes(structure: Structure, rate: Rate) -> u64 {
    match structure {
        Structure::FlowBundler => 0,
        _ => rate.bytes_in(Nanos::from_micros(1)).0,
    }
}

#[test]
fn a_flow_that_sends_less_than_its_rate_waits_for_nothing() {
    for structure in STRUCTURES {
        let mut world = World::new(at_rate(structure, mbit(1)));
        // 12.112 ms a frame.
        for _ in 0..100 {
            world.now += 12_112_001;
            let now = world.now;
            assert_eq!(world.arrive(9, FRAME), Verdict::Queued);
            world.poll();
            assert_eq!(world.times().pop(), Some(now), "{structure:?}");
        }
        assert_eq!(world.figures().throttled, 0);
    }
}

#[test]
fn without_a_rate_all_leaves_at_once_and_in_order() {
    for structure in STRUCTURES {
        let mut world = World::new(Config::new(structure, FRAME));
        (0..90).for_each(|_| assert_eq!(world.arrive(1, FRAME), Verdict::Queued));
        world.poll();
        assert_eq!((world.left.len(), world.next), (90, Next::Empty));
        world.check();
    }
}

#[test]
fn many_slow_flows_leave_in_bundles_of_a_hundred_and_not_of_a_thousand() {
    // A frame takes 12 ms, so by their rate alone slots would be of 8 ms, in which 690 packets
    // leave.
    let config = Config { limit: 15_000, ..at_rate(Structure::FlowBundler, mbit(1)) };
    let mut world = World::new(config);
    for turn in 0..30u32 {
        for flow in 0..1000u32 {
            world.run_until(world.now + 12_112);
            // One after the other, as in life, and from the beginning more than may leave.
            for _ in 0..if turn == 0 { 3 } else { 1 } {
                assert_eq!(world.arrive(flow.wrapping_mul(0x9e37_79b1), FRAME), Verdict::Queued);
            }
        }
    }
    world.run();
    world.check();
    let mut bundles: BTreeMap<u64, usize> = BTreeMap::new();
    for left in world.left.iter().skip(10_000) {
        *bundles.entry(left.at).or_default() += 1;
    }
    let largest = bundles.values().max().copied().unwrap();
    let mean = (world.left.len() - 10_000) / bundles.len();
    assert!((30..=150).contains(&mean), "{mean} on average, {largest} at most");
    assert!(largest <= 300, "{largest}");
}

#[test]
fn limits_are_the_qdisc_s_and_each_flow_s() {
    for structure in STRUCTURES {
        let config = Config { limit: 8, flow_limit: 5, ..at_rate(structure, mbit(1)) };
        let mut world = World::new(config);
        let arrive = |world: &mut World, flow| {
            (0..7).filter(|_| world.arrive(flow, FRAME) == Verdict::Queued).count()
        };
        assert_eq!(arrive(&mut world, 1), 5);
        assert_eq!((world.qdisc.backlog().packets, world.drops(DropReason::FlowLimit)), (5, 2));
        assert_eq!(arrive(&mut world, 2), 3);
        assert_eq!((world.qdisc.backlog().packets, world.drops(DropReason::Limit)), (8, 4));
        let figures = world.figures();
        assert_eq!((figures.flow_limit_drops, figures.throttled_flows, figures.flows), (2, 2, 2));
        assert_eq!(world.stats().drops, 6);
        world.poll();
        assert_eq!(world.arrive(2, FRAME), Verdict::Queued, "there is room again");
        world.run();
        world.check();
        assert_eq!(world.figures().throttled_flows, 0);
    }
}

#[test]
fn packets_beyond_the_horizon_are_dropped_and_take_no_time() {
    for structure in STRUCTURES {
        // A frame takes 12.112 ms.
        let config = Config { horizon: Nanos::from_millis(100), ..at_rate(structure, mbit(1)) };
        let mut world = World::new(config);
        let queued = (0..20).filter(|_| world.arrive(1, FRAME) == Verdict::Queued).count();
        assert_eq!((queued, world.drops(DropReason::Horizon)), (9, 11), "{structure:?}");
        assert_eq!(world.figures().horizon_drops, 11);
        // The tenth would have left 109.008 ms after the first.
        world.run_until(world.now + 9_007_000);
        assert_eq!(world.arrive(1, FRAME), Verdict::Dropped);
        world.run_until(world.now + 2_000);
        assert_eq!(world.arrive(1, FRAME), Verdict::Queued);
        world.run();
        world.check();
    }
}

#[test]
fn horizon_cap_sends_packets_at_the_horizon() {
    for structure in STRUCTURES {
        let horizon = Nanos::from_millis(100);
        let config = Config { horizon, beyond: Beyond::Cap, ..at_rate(structure, mbit(1)) };
        let mut world = World::new(config);
        let start = world.now;
        (0..20).for_each(|_| assert_eq!(world.arrive(1, FRAME), Verdict::Queued));
        assert_eq!(world.figures().horizon_caps, 11);
        world.run();
        world.check();
        let last = *world.times().last().unwrap();
        let slot = slot(&config);
        assert!((start + horizon.0..=start + horizon.0 + slot).contains(&last), "{structure:?}");
    }
}

#[test]
fn flows_to_one_host_share_a_rate_if_hosts_have_rates() {
    for (key, alone) in [(Key::Flows, true), (Key::Hosts, false)] {
        let config = Config { key, ..at_rate(Structure::FlowBundler, mbit(1)) };
        let mut world = World::new(config);
        for flow in 0..2 {
            let headers = Headers { flow, destination: 7, ..Headers::default() };
            assert_eq!(world.arrive_with(headers, FRAME), Verdict::Queued);
        }
        world.poll();
        assert_eq!(world.left.len() == 2, alone, "{key:?}");
        world.run();
        world.check();
    }
}

/// When three packets of 125 bytes, and two more after a change, leave: in ns since the beginning.
fn before_and_after(structure: Structure, before: Rate, after: Rate) -> Vec<u64> {
    let config = at_rate(structure, before);
    let mut world = World::new(config);
    let start = world.now;
    (0..3).for_each(|_| assert_ne!(world.arrive(1, 125), Verdict::Dropped));
    world.qdisc.retune(
        spec(Config { maxrate: Some(after), ..config }),
        &mut Handover::new(&mut world.packets, Nanos(world.now)),
    );
    (0..2).for_each(|_| assert_ne!(world.arrive(1, 125), Verdict::Dropped));
    world.run();
    world.check();
    world.times().iter().map(|at| at - start).collect()
}

/// A flow's rounding is less than the time of a frame; only a wheel of several levels achieves
/// that.
fn assert_about(structure: Structure, times: &[u64], expected: [u64; 5], frame: u64) {
    let late = if structure == Structure::FlowBundler { frame } else { 1000 };
    assert!(times.is_sorted() && times.len() == 5, "{times:?}");
    for (at, stamp) in times.iter().zip(expected) {
        assert!((stamp..=stamp + late).contains(at), "{structure:?} {times:?}");
    }
}

#[test]
fn a_lower_rate_applies_to_later_arrivals() {
    for structure in STRUCTURES {
        let times = before_and_after(structure, mbit(10), mbit(1));
        let expected = [0, 100_000, 200_000, 300_000, 1_300_000];
        assert_about(structure, &times, expected, 1514 * 8_000);
    }
}

#[test]
fn a_higher_rate_applies_to_queued_packets_too() {
    for structure in STRUCTURES {
        let times = before_and_after(structure, mbit(1), mbit(10));
        let expected = [0, 100_000, 200_000, 300_000, 400_000];
        assert_about(structure, &times, expected, 1514 * 800);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// A slow flow that becomes fast waits no longer than its backlog takes at the new rate.
    #[test]
    fn bookings_at_a_lower_rate_are_released(
        structure in structure(), arrivals in arrivals(100), slow in 1_000u64..100_000,
    ) {
        let config = Config {
            apart: Key::Hosts,
            ..roomy(structure, Rate::from_bits_per_sec(slow))
        };
        let mut world = World::new(config);
        for Arrival { after, flow, len } in arrivals {
            world.now += after * 1000;
            world.arrive_with(to_host(flow), len);
            world.poll();
        }
        let rate = mbit(1000);
        world.qdisc.retune(spec(Config { maxrate: Some(rate), ..config }), &mut Handover::new(&mut world.packets, Nanos(world.now)));
        let retuned = world.now;
        let bytes = world.qdisc.backlog().bytes + Bytes(2 * u64::from(FRAME));
        world.run();
        world.check();
        prop_assert_eq!(world.qdisc.backlog().packets, 0);
        // Packets to one host take turns, which start slowly.
        let most = 10 * rate.time_for(bytes).0 + 10_000_000;
        prop_assert!(world.now - retuned <= most, "{} of {most}", world.now - retuned);
    }
}

#[test]
fn a_rate_for_all_is_kept_by_a_tbf_above() {
    for structure in STRUCTURES {
        let above = tbf::Config {
            rate: mbit(10),
            burst: Bytes(3000),
            limit: Bytes(10_000_000),
            peak: None,
            overhead: Overhead::NONE,
        };
        for (flows, expected) in [(1u32, 500_000u64), (2, 1_000_000), (5, 1_250_000)] {
            let children = vec![spec(at_rate(structure, mbit(4)))];
            let tbf = Spec { children, ..leaf(narrows_qdisc::Config::Tbf(above)) };
            let mut world = World::of(tbf.build());
            let end = world.now + 1_000_000_000;
            while world.now < end {
                for flow in 0..flows {
                    let queued = world.numbers.keys();
                    let queued =
                        queued.filter(|id| world.packets.headers(**id).flow == flow).count();
                    (queued..20)
                        .for_each(|_| assert_ne!(world.arrive(flow, 1000), Verdict::Dropped));
                }
                let until = world.now + 1_000_000;
                while world.now < until {
                    world.poll();
                    let (Next::Held(at) | Next::At(at)) = world.next else { break };
                    world.now = at.0.clamp(world.now + 1, until);
                }
            }
            let sent: u64 = world.left.iter().map(|left| u64::from(left.len)).sum();
            assert!(sent.abs_diff(expected) <= 8_000, "{structure:?} {flows}: {sent}");
            world.check_order();
        }
    }
}

fn leaf(config: narrows_qdisc::Config) -> Spec {
    Spec::new(config)
}

#[test]
fn only_another_shape_needs_another_instance() {
    let config = at_rate(Structure::FlowBundler, mbit(1));
    let present = spec(config).config;
    for same in [
        Config { maxrate: None, ..config },
        Config { limit: 1, flow_limit: 1, ..config },
        Config { horizon: Nanos(1), beyond: Beyond::Cap, frame: 9000, ..config },
    ] {
        assert!(present.carries_on(&spec(same).config), "{same:?}");
    }
    for other in [
        Config { structure: Structure::Eiffel, ..config },
        Config { key: Key::Hosts, ..config },
        Config { slots: 64, ..config },
        Config { granularity: Nanos(1000), ..config },
        Config { codel: Some(Codel::default()), ..config },
    ] {
        assert!(!present.carries_on(&spec(other).config), "{other:?}");
    }
    assert!(!present.carries_on(&narrows_qdisc::Config::Fifo(fifo::Config::Packets(9))));
}

#[test]
fn a_flowbundler_takes_a_megabyte_plus_its_flows() {
    let world = World::new(Config::new(Structure::FlowBundler, FRAME));
    assert!(world.figures().memory <= Bytes(1_200_000), "{}", world.figures().memory);
}

/// Flows that always have something queued keep their rate to the packet, however late the worker
/// asks.
#[test]
fn a_worker_that_pauses_costs_flows_that_stand_nothing() {
    for structure in STRUCTURES {
        let rate = mbit(16);
        let config = Config { flow_limit: 53, limit: 2000, ..at_rate(structure, rate) };
        let mut world = World::new(config);
        let apart = rate.time_for(Bytes(1500)).0;
        for _ in 0..53 {
            for flow in 0..16 {
                world.arrive(flow, 1500);
            }
        }
        let begin = world.now;
        let mut sent = 0;
        for round in 1_u64.. {
            if world.now > begin + 2_000_000_000 {
                break;
            }
            // Mostly soon enough, and every now and then after several packets' time.
            world.now +=
                if round % 100 == 0 { 7_000_000 } else { 20_000 + round * 7_919 % 100_000 };
            let offered = (world.now - begin) * 103 / 100 / apart;
            for flow in (sent..offered).flat_map(|_| 0..16) {
                world.arrive(flow, 1500);
            }
            sent = offered;
            world.poll();
        }
        let due = (world.now - begin) / apart;
        for flow in 0..16 {
            let left = world.left.iter().filter(|left| left.flow == flow).count() as u64;
            assert!((due..=due + 1).contains(&left), "{structure:?}: {left} packets, not {due}");
        }
    }
}
