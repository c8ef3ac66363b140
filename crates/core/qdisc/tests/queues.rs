//! What pacing with queue management does, beside what `pacing.rs` has of it.

mod sorted;

use narrows_packet::{Batch, DropReason, Ecn, Headers, PacketId, Packets};
use narrows_qdisc::pacing::{Codel, Config, Queues, Signals, Structure};
use narrows_qdisc::{Detail, Handover, Next, Qdisc, Spec, Verdict};
use narrows_units::{Bytes, Nanos, Rate};
use proptest::prelude::*;
use sorted::Sorted;
use std::collections::{HashMap, VecDeque};

const FRAME: u32 = 1514;
const CAPACITY: u32 = 40_000;
const CODEL: Codel =
    Codel { target: Nanos::from_millis(5), interval: Nanos::from_millis(100), ecn: true };

/// Flows at a byte every this many nanoseconds.
fn config(byte: u64) -> Config {
    let maxrate = Some(Rate::from_bits_per_sec(8_000_000_000 / byte));
    let codel = Some(CODEL);
    Config { maxrate, codel, ..Config::new(Structure::FlowBundler, FRAME) }
}

fn spec(config: Config) -> Spec {
    let config = narrows_qdisc::Config::Pacing(config);
    Spec::new(config)
}

/// A packet that left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Left {
    id: PacketId,
    flow: u32,
    at: u64,
    stood: u64,
    marked: bool,
}

struct World {
    qdisc: Box<dyn Qdisc>,
    packets: Packets,
    now: u64,
    next: Next,
    came: u32,
    left: Vec<Left>,
    /// Which were dropped, in this order.
    dropped: Vec<PacketId>,
}

impl World {
    fn sorted(config: Config) -> Self {
        Self::of(Box::new(Queues::new(config, config.codel.unwrap(), |_| Sorted::default())))
    }

    fn of(qdisc: Box<dyn Qdisc>) -> Self {
        Self {
            qdisc,
            packets: Packets::new(CAPACITY),
            now: 1_000_000_007,
            next: Next::Empty,
            came: 0,
            left: Vec::new(),
            dropped: Vec::new(),
        }
    }

    fn arrive(&mut self, flow: u32, len: u32, ecn: Ecn) -> Verdict {
        let id = PacketId(self.came);
        self.came += 1;
        self.packets.arrive(id, len, Nanos(self.now));
        self.packets.set_headers(id, Headers { flow, ecn, ..Headers::default() });
        let verdict = self.qdisc.enqueue(&mut self.packets, id, Nanos(self.now));
        self.reclaim();
        verdict
    }

    /// A packet of a full frame that can only be dropped.
    fn come(&mut self, flow: u32) {
        self.arrive(flow, FRAME, Ecn::NotCapable);
    }

    fn reclaim(&mut self) {
        let mut back = Batch::new(CAPACITY as usize);
        self.packets.reclaim(&mut back);
        self.dropped.extend(back.as_slice());
    }

    fn poll(&mut self) {
        let mut out = Batch::new(20);
        loop {
            out.clear();
            self.next = self.qdisc.dequeue(&mut self.packets, Nanos(self.now), &mut out);
            for &id in out.as_slice() {
                let meta = self.packets.meta(id);
                let (stood, marked) = (self.now - meta.arrival.0, meta.rewrite.marks());
                let flow = self.packets.headers(id).flow;
                self.left.push(Left { id, flow, at: self.now, stood, marked });
            }
            if self.next != Next::Now {
                break;
            }
        }
        self.reclaim();
        let queued = self.qdisc.backlog().packets as usize;
        assert_eq!(self.came as usize, self.left.len() + queued + self.dropped.len());
    }

    /// Polls as requested, and at `end`.
    fn run_until(&mut self, end: u64) {
        self.poll();
        while let Next::Held(at) = self.next
            && at.0 <= end
        {
            self.now = at.0;
            self.poll();
        }
        self.now = self.now.max(end);
        self.poll();
    }

    fn run(&mut self) {
        self.poll();
        while let Next::Held(at) = self.next {
            self.run_until(at.0);
        }
        assert!(self.qdisc.backlog().is_empty());
    }

    fn retune(&mut self, config: Config) {
        self.qdisc.retune(spec(config), &mut Handover::new(&mut self.packets, Nanos(self.now)));
    }

    fn signals(&self) -> Signals {
        let mut stats = Vec::new();
        self.qdisc.stats(&mut stats);
        stats[0].detail.as_ref().and_then(Detail::pacing).unwrap().codel.unwrap()
    }

    fn of_flow(&self, flow: u32) -> impl Iterator<Item = &Left> {
        self.left.iter().filter(move |left| left.flow == flow)
    }
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    id: PacketId,
    len: u32,
    arrival: u64,
    ecn: bool,
}

/// One flow of the model: a queue whose first packet has a time, and RFC 8289's pseudo-code.
#[derive(Default)]
struct Flow {
    queue: VecDeque<Packet>,
    /// When the first packet may leave.
    at: u64,
    /// When the one before might, and how long it was.
    before: (u64, u32),
    first_above_time: u64,
    drop_next: u64,
    count: u32,
    lastcount: u32,
    dropping: bool,
}

impl Flow {
    fn stamp(&mut self, since: u64, byte: u64) {
        let (at, len) = self.before;
        self.at = (at + u64::from(len) * byte).max(since);
    }

    fn arrive(&mut self, packet: Packet, now: u64, byte: u64) {
        self.queue.push_back(packet);
        if self.queue.len() == 1 {
            self.stamp(now, byte);
        }
    }

    fn behind(&self) -> u64 {
        self.queue.iter().skip(1).map(|packet| u64::from(packet.len)).sum()
    }

    fn ok_to_drop(&mut self, now: u64) -> bool {
        let sojourn = now - self.queue[0].arrival;
        if sojourn < CODEL.target.0 || self.behind() <= u64::from(FRAME) {
            self.first_above_time = 0;
            return false;
        }
        if self.first_above_time == 0 {
            self.first_above_time = now + CODEL.interval.0;
            return false;
        }
        now >= self.first_above_time
    }

    fn law(from: u64, count: u32) -> u64 {
        from + (CODEL.interval.0 as f64 / f64::from(count).sqrt()) as u64
    }

    /// The departures at `now`, their marks, and the drops before them.
    fn dequeue(&mut self, now: u64, byte: u64, dropped: &mut Vec<PacketId>) -> (Packet, bool) {
        let mut marked = false;
        let mut drop = |flow: &mut Self| {
            if flow.queue[0].ecn {
                marked = true;
                return false;
            }
            dropped.push(flow.queue.pop_front().unwrap().id);
            flow.at = flow.at.max(flow.queue[0].arrival);
            true
        };
        let ok = self.ok_to_drop(now);
        if self.dropping {
            self.dropping = ok;
            while self.dropping && now >= self.drop_next {
                self.count += 1;
                if !drop(self) {
                    self.drop_next = Self::law(self.drop_next, self.count);
                    break;
                }
                self.dropping = self.ok_to_drop(now);
                if self.dropping {
                    self.drop_next = Self::law(self.drop_next, self.count);
                }
            }
        } else if ok {
            if drop(self) {
                self.ok_to_drop(now);
            }
            self.dropping = true;
            let delta = self.count - self.lastcount;
            let recent = now.saturating_sub(self.drop_next) < 16 * CODEL.interval.0;
            self.count = if delta > 1 && recent { delta } else { 1 };
            self.drop_next = Self::law(now, self.count);
            self.lastcount = self.count;
        }
        let packet = self.queue.pop_front().unwrap();
        self.before = (self.at, packet.len);
        if let Some(next) = self.queue.front() {
            self.stamp(next.arrival, byte);
        }
        (packet, marked)
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Arrive {
        flow: u32,
        len: u32,
        packets: u32,
        ecn: bool,
    },
    /// Polls in time until this many microseconds have passed.
    Run(u64),
    /// No polls for this many microseconds.
    Late(u64),
    Rate(u64),
}

/// Nanoseconds of a byte: whole, so that the model is exact.
fn byte() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![8u64, 80, 500, 800, 4000, 8000])
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![Just(FRAME), 60..=FRAME];
    let packets = prop_oneof![3 => 1u32..4, 1 => 1u32..60];
    prop_oneof![
        8 => (0u32..4, len, packets, any::<bool>())
            .prop_map(|(flow, len, packets, ecn)| Step::Arrive { flow, len, packets, ecn: ecn && flow == 1 }),
        5 => (0u64..30_000).prop_map(Step::Run),
        1 => (0u64..300_000).prop_map(Step::Run),
        1 => (0u64..60_000).prop_map(Step::Late),
        1 => byte().prop_map(Step::Rate),
    ]
}

proptest! {
    /// The oracle is a queue and a time for each flow, checked one by one, with CoDel as printed in
    /// the RFC: the same packets leave at the same nanoseconds, and the same are marked and
    /// dropped.
    #[test]
    fn departures_and_drops_match_a_naive_model(
        first in byte(), steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut byte = first;
        let of_rate = |byte| Config { flow_limit: 200, ..config(byte) };
        let mut world = World::sorted(of_rate(byte));
        let mut model: HashMap<u32, Flow> = HashMap::new();
        for step in steps {
            let (end, is_late) = match step {
                Step::Arrive { flow, len, packets, ecn } => {
                    let capable = if ecn { Ecn::Capable0 } else { Ecn::NotCapable };
                    let ours = model.entry(flow).or_default();
                    for _ in 0..packets {
                        let (id, arrival) = (PacketId(world.came), world.now);
                        let is_full = ours.queue.len() == 200;
                        let verdict = world.arrive(flow, len, capable);
                        prop_assert_eq!(verdict == Verdict::Dropped, is_full);
                        if !is_full {
                            ours.arrive(Packet { id, len, arrival, ecn }, world.now, byte);
                        }
                    }
                    continue;
                }
                Step::Run(micros) => (world.now + micros * 1000, false),
                Step::Late(micros) => (world.now + micros * 1000, true),
                Step::Rate(_) => (world.now, false),
            };
            let (mut expected, mut dropped) = (vec![], vec![]);
            for (&flow, ours) in &mut model {
                while ours.queue.front().is_some() && ours.at <= end {
                    let at = if is_late { end } else { ours.at.max(world.now) };
                    let (packet, marked) = ours.dequeue(at, byte, &mut dropped);
                    expected.push(Left { id: packet.id, flow, at, stood: at - packet.arrival, marked });
                }
            }
            let (left_before, dropped_before) = (world.left.len(), world.dropped.len());
            world.now = if is_late { end } else { world.now };
            world.run_until(end);
            // In the order in which they came, of which those of a flow must not differ.
            prop_assert!((0..4).all(|flow| world.of_flow(flow).is_sorted_by_key(|left| left.id)));
            let mut left = world.left[left_before..].to_vec();
            left.sort_by_key(|left| left.id);
            expected.sort_by_key(|left| left.id);
            prop_assert_eq!(left, expected);
            let mut gone = world.dropped[dropped_before..].to_vec();
            gone.sort();
            dropped.sort();
            prop_assert_eq!(gone, dropped);
            if let Step::Rate(other) = step
                && other != byte
            {
                for ours in model.values_mut().filter(|ours| ours.queue.is_empty()) {
                    let (at, len) = ours.before;
                    if at + u64::from(len) * byte <= world.now {
                        ours.before = (0, 0);
                    }
                }
                byte = other;
                world.retune(of_rate(byte));
                world.poll();
                for ours in model.values_mut().filter(|ours| !ours.queue.is_empty()) {
                    ours.stamp(world.now + 1, byte);
                }
            }
        }
        world.run();
        let signals = world.signals();
        prop_assert_eq!(signals.marks as usize, world.left.iter().filter(|left| left.marked).count());
        prop_assert_eq!(world.packets.drops().get(DropReason::Aqm), signals.drops);
    }
}

/// A sender that answers to a drop, or a mark, as TCP does: half as much under way, else a packet
/// more for each round trip. `rtt` without the queue.
struct Sender {
    flow: u32,
    ecn: Ecn,
    rtt: u64,
    window: f64,
    under_way: u32,
    /// When the window was last halved.
    halved_at: u64,
    /// Answers on their way, and whether they are good ones.
    answers: VecDeque<(u64, bool)>,
}

impl Sender {
    fn new(flow: u32, ecn: Ecn, rtt: u64) -> Self {
        let answers = VecDeque::new();
        Self { flow, ecn, rtt, window: 4.0, under_way: 0, halved_at: 0, answers }
    }

    fn step(&mut self, world: &mut World) {
        while self.answers.front().is_some_and(|(at, _)| *at <= world.now) {
            let (_, good) = self.answers.pop_front().unwrap();
            self.under_way -= 1;
            if good {
                self.window += 1.0 / self.window;
            } else if world.now - self.halved_at > self.rtt {
                self.halved_at = world.now;
                self.window = (self.window / 2.0).max(2.0);
            }
        }
        while f64::from(self.under_way) < self.window {
            self.under_way += 1;
            if world.arrive(self.flow, FRAME, self.ecn) == Verdict::Dropped {
                self.answers.push_back((world.now + self.rtt, false));
            }
        }
    }
}

/// A sender for ten seconds, through a qdisc that is polled in time; beside it flow 2, with a
/// packet every two milliseconds.
fn run_beside_a_neighbour(world: &mut World, sender: &mut Sender) {
    for turn in 0..100_000 {
        if turn % 20 == 0 {
            world.come(2);
        }
        sender.step(world);
        let (left, dropped) = (world.left.len(), world.dropped.len());
        world.run_until(world.now + 100_000);
        let answer = world.now + sender.rtt;
        let gone = world.dropped[dropped..].iter().map(|_| (answer, false));
        let ours = world.left[left..].iter().filter(|left| left.flow == sender.flow);
        sender.answers.extend(gone.chain(ours.map(|left| (answer, !left.marked))));
    }
}

/// The median of how long packets of `flow` stood after the first two seconds, in microseconds.
fn median(world: &World, flow: u32) -> u64 {
    let start = world.left[0].at + 2_000_000_000;
    let mut stood: Vec<_> =
        world.of_flow(flow).filter(|left| left.at > start).map(|left| left.stood / 1000).collect();
    stood.sort_unstable();
    stood[stood.len() / 2]
}

#[test]
fn a_flow_that_stands_is_held_near_the_target_and_its_neighbours_lose_nothing() {
    for (codel, longest, shortest) in [(None, 200_000, 30_000), (Some(CODEL), 12_000, 0)] {
        // 12.112 Mbit/s: a millisecond a frame, and so the neighbour is at half its rate.
        let maxrate = Some(Rate::from_bits_per_sec(12_112_000));
        let config = Config { maxrate, codel, ..Config::new(Structure::FlowBundler, FRAME) };
        let mut world = World::of(spec(config).build());
        run_beside_a_neighbour(&mut world, &mut Sender::new(1, Ecn::NotCapable, 20_000_000));
        let stood = median(&world, 1);
        assert!((shortest..longest).contains(&stood), "{codel:?}: {stood} us");
        // The flow uses its rate nevertheless.
        let sent = world.of_flow(1).count();
        assert!(sent > 9_300, "{codel:?}: {sent} of 10000 packets");
        assert_eq!(world.of_flow(2).count(), 5_000, "{codel:?}");
        assert!(world.of_flow(2).all(|left| left.stood == 0), "{codel:?}");
    }
}

#[test]
fn capable_packets_are_marked_and_not_dropped() {
    for ecn in [true, false] {
        let codel = Some(Codel { ecn, ..CODEL });
        let mut world = World::of(spec(Config { codel, ..config(800) }).build());
        run_beside_a_neighbour(&mut world, &mut Sender::new(1, Ecn::Capable0, 20_000_000));
        let (signals, marked) = (world.signals(), world.left.iter().filter(|left| left.marked));
        assert_eq!(marked.count() as u64, signals.marks);
        let (some, none) =
            if ecn { (signals.marks, signals.drops) } else { (signals.drops, signals.marks) };
        assert!(some > 5 && none == 0, "{signals:?}");
        assert_eq!(world.dropped.len() as u64, signals.drops);
        assert!(median(&world, 1) < 15_000, "{}", median(&world, 1));
    }
}

#[test]
fn a_new_rate_applies_to_queued_packets() {
    // A frame takes 12.112 ms, then 121.12 us, and then a second and more.
    let mut world = World::sorted(config(8_000));
    let start = world.now;
    (0..10).for_each(|_| world.come(1));
    world.run_until(start + 20_000_000);
    assert_eq!(world.left.len(), 2);
    world.retune(config(80));
    world.run_until(world.now + 2 * 121_121);
    // The third has waited for long enough, and what follows is no burst.
    assert_eq!(world.left.len(), 5);
    let retuned = world.now;
    world.retune(config(800_000));
    world.run();
    let times: Vec<_> = world.left[5..].iter().map(|left| left.at - retuned).collect();
    let frame = 1_211_200_000;
    assert!(times[0] <= frame && times[0] > frame - 2 * 121_121, "{times:?}");
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == frame), "{times:?}");
}

#[test]
fn a_dropped_packet_uses_none_of_its_flows_time() {
    let mut world = World::sorted(config(800));
    let start = world.now;
    // Two packets come for each that may leave.
    for _ in 0..3000 {
        world.come(1);
        world.run_until(world.now + 605_600);
    }
    let signals = world.signals();
    assert!(signals.drops > 50, "{signals:?}");
    let expected: Vec<_> = (0..world.left.len() as u64).map(|n| start + n * 1_211_200).collect();
    assert_eq!(world.left.iter().map(|left| left.at).collect::<Vec<_>>(), expected);
}

#[test]
fn the_longest_flow_pays_for_too_many_packets() {
    let mut world = World::sorted(Config { limit: 100, flow_limit: 1000, ..config(8_000) });
    (0..100).for_each(|_| world.come(1));
    for flow in 2..12 {
        for _ in 0..4 {
            assert_eq!(world.arrive(flow, FRAME, Ecn::NotCapable), Verdict::Dropped);
        }
    }
    assert_eq!(world.qdisc.backlog().packets, 100);
    assert_eq!(world.signals().overlimit, 40);
    assert_eq!(world.packets.drops().get(DropReason::Limit), 40);
    // From its head on, without the head, whose time is known.
    assert_eq!(world.dropped, (1..41).map(PacketId).collect::<Vec<_>>());
    world.run();
    for flow in 2..12 {
        assert_eq!(world.of_flow(flow).count(), 4);
    }
}

#[test]
fn if_every_flow_has_one_packet_the_newest_is_dropped() {
    let mut world = World::sorted(Config { limit: 10, ..config(8_000) });
    (0..10).for_each(|flow| world.come(flow));
    assert_eq!(world.arrive(3, FRAME, Ecn::NotCapable), Verdict::Dropped);
    assert_eq!(world.arrive(11, FRAME, Ecn::NotCapable), Verdict::Dropped);
    assert_eq!(world.dropped, [PacketId(10), PacketId(11)]);
    world.run();
    assert_eq!(world.left.len(), 10);
}

#[test]
fn flows_that_come_and_go_are_forgotten() {
    let mut world = World::of(spec(config(8)).build());
    for flow in 0..30_000u32 {
        world.come(flow.wrapping_mul(0x9e37_79b1));
        world.run_until(world.now + 12_112);
    }
    let mut stats = Vec::new();
    world.qdisc.stats(&mut stats);
    let figures = stats[0].detail.as_ref().and_then(Detail::pacing).unwrap();
    assert!(figures.flows < 100, "{}", figures.flows);
    assert!(figures.memory < Bytes(1_400_000), "{}", figures.memory);
}
