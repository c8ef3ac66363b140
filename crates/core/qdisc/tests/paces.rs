//! Flows with rates of their own, in one qdisc: `carousel`, `eiffel` and `flowbundler`, stamped on
//! arrival or at release, and `fq`.

use narrows_packet::{Batch, Headers, PaceId, PacketId, Packets};
use narrows_qdisc::pacing::{Codel, Config, Key, Structure};
use narrows_qdisc::{Config as AnyConfig, Handover, Next, Qdisc, Spec, Verdict, fq};
use narrows_units::{Bytes, Nanos, Rate};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};

const FRAME: u32 = 1514;
const CAPACITY: u32 = 20_000;
const STRUCTURES: [Structure; 3] = [Structure::Carousel, Structure::Eiffel, Structure::FlowBundler];
/// Numbers of rates.
const PACES: u32 = 5;

fn mbit(mbit: u64) -> Rate {
    Rate::from_bits_per_sec(mbit * 1_000_000)
}

fn pace(number: u32) -> PaceId {
    PaceId::from_number(number).unwrap_or_default()
}

/// Limits that nothing reaches.
fn roomy(structure: Structure) -> Config {
    let horizon = Nanos::from_secs(1_000_000_000);
    Config { flow_limit: CAPACITY, limit: CAPACITY, horizon, ..Config::new(structure, FRAME) }
}

/// Queue management that never drops.
fn lenient() -> Codel {
    Codel { target: Nanos::from_secs(1_000_000), ..Codel::default() }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Left {
    flow: u32,
    len: u32,
    /// How many packets of its flow came before it.
    number: u64,
    at: u64,
}

struct World {
    qdisc: Box<dyn Qdisc>,
    packets: Packets,
    free: Vec<PacketId>,
    now: u64,
    next: Next,
    came: HashMap<u32, u64>,
    numbers: HashMap<PacketId, u64>,
    left: Vec<Left>,
}

impl World {
    fn new(config: AnyConfig) -> Self {
        Self {
            qdisc: Spec::new(config).build(),
            packets: Packets::new(CAPACITY),
            free: (0..CAPACITY).rev().map(PacketId).collect(),
            now: 1_000_000_007,
            next: Next::Empty,
            came: HashMap::new(),
            numbers: HashMap::new(),
            left: Vec::new(),
        }
    }

    fn pacing(config: Config) -> Self {
        Self::new(AnyConfig::Pacing(config))
    }

    /// The number `number` has this rate from now on.
    fn set(&mut self, changes: &[(u32, Rate)]) {
        let changes: Vec<_> = changes.iter().map(|(number, rate)| (pace(*number), *rate)).collect();
        let next = self.packets.paces().with(&changes);
        self.packets.set_paces(next);
    }

    fn arrive(&mut self, flow: u32, number: u32, len: u32) {
        let id = self.free.pop().expect("fewer are queued than there are");
        self.packets.arrive(id, len, Nanos(self.now));
        let headers =
            Headers { flow, destination: flow % 3, pace: pace(number), ..Headers::default() };
        self.packets.set_headers(id, headers);
        let verdict = self.qdisc.enqueue(&mut self.packets, id, Nanos(self.now));
        assert_eq!(verdict, Verdict::Queued);
        let came = self.came.entry(flow).or_default();
        self.numbers.insert(id, *came);
        *came += 1;
    }

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

    fn run_until(&mut self, end: u64) {
        self.poll();
        while let Next::Held(at) = self.next
            && at.0 <= end
        {
            self.now = at.0.max(self.now);
            self.poll();
        }
        self.now = self.now.max(end);
        self.poll();
    }

    /// Until everything has left. Nothing is lost, and each flow is in order.
    fn finish(&mut self) {
        self.run_until(self.now);
        while let Next::Held(at) = self.next {
            self.run_until(at.0);
        }
        assert_eq!(self.left.len() as u64, self.came.values().sum::<u64>());
        let mut expected: HashMap<u32, u64> = HashMap::new();
        for left in &self.left {
            let number = expected.entry(left.flow).or_default();
            assert_eq!(left.number, *number, "{left:?}");
            *number += 1;
        }
    }

    /// Bytes of `flow` that left in a time.
    fn sent(&self, flow: u32, from: u64, to: u64) -> u64 {
        let left = self.left.iter().filter(|left| left.flow == flow);
        left.filter(|left| (from..to).contains(&left.at)).map(|left| u64::from(left.len)).sum()
    }
}

fn structure() -> impl Strategy<Value = Structure> {
    prop::sample::select(STRUCTURES.to_vec())
}

/// Up to 100 Gbit/s, each magnitude as likely.
fn rate() -> impl Strategy<Value = Rate> {
    (100u64..1000, 4u32..9)
        .prop_map(|(digits, power)| Rate::from_bits_per_sec(digits * 10u64.pow(power)))
}

fn config() -> impl Strategy<Value = Config> {
    let maxrate = prop::option::of(rate());
    (structure(), maxrate, any::<bool>(), any::<bool>()).prop_map(
        |(structure, maxrate, has_queues, by_host)| {
            let codel = has_queues.then(lenient);
            let key = if by_host { Key::Hosts } else { Key::Flows };
            Config { maxrate, codel, key, ..roomy(structure) }
        },
    )
}

#[derive(Clone, Copy, Debug)]
struct Arrival {
    after: u64,
    flow: u32,
    /// The number of its rate; 0 for none.
    pace: u32,
    len: u32,
}

fn arrivals(most: usize) -> impl Strategy<Value = Vec<Arrival>> {
    let after = prop_oneof![5 => Just(0u64), 3 => 0u64..20_000, 1 => 0u64..2_000_000];
    let flow = prop::sample::select(vec![0u32, 4, 77, 0xdead_beef]);
    let len = prop_oneof![Just(FRAME), 60..=FRAME];
    let arrival = (after, flow, 0..=PACES, len).prop_map(|(after, flow, pace, len)| Arrival {
        after,
        flow,
        pace,
        len,
    });
    prop::collection::vec(arrival, 1..most)
}

fn table() -> impl Strategy<Value = Vec<(u32, Rate)>> {
    prop::collection::vec(rate(), PACES as usize).prop_map(|rates| (1..).zip(rates).collect())
}

/// The lower of a packet's own rate and that of the qdisc.
fn lower(maxrate: Option<Rate>, own: Option<Rate>) -> Option<Rate> {
    match (maxrate, own) {
        (Some(maxrate), Some(own)) => Some(maxrate.min(own)),
        (maxrate, own) => own.or(maxrate),
    }
}

/// When the next packet of a flow may leave, in 2^-40 ns, by a division for each packet.
#[derive(Clone, Copy, Default)]
struct Clock(u128);

impl Clock {
    const POINT: u32 = 40;

    /// The departure of a packet of `len` bytes that comes at `now`, in nanoseconds rounded down.
    fn stamp(&mut self, len: u32, now: u64, rate: Option<Rate>) -> u64 {
        let departure = self.0.max(u128::from(now) << Self::POINT);
        let takes = rate.map_or(0, |rate| {
            ((u128::from(len) * 8_000_000_000) << Self::POINT) / u128::from(rate.bits_per_sec())
        });
        self.0 = departure + takes;
        (departure >> Self::POINT) as u64
    }
}

/// How long a slot may be for a packet of that rate.
fn slot(config: &Config, rate: Option<Rate>) -> u64 {
    let Some(rate) = rate else { return config.granularity.0 };
    let frame = rate.time_for(Bytes(u64::from(FRAME))).0.max(1);
    match config.structure {
        Structure::FlowBundler => (1 << frame.ilog2()).max(config.granularity.0),
        _ => config.granularity.0,
    }
}

/// Each packet left no earlier than at its time, and at most its slot later: by flow and number.
fn check_departures(
    world: &World,
    stamps: &HashMap<(u32, u64), (u64, u64)>,
) -> Result<(), TestCaseError> {
    for left in &world.left {
        let (stamp, slot) = stamps[&(left.flow, left.number)];
        prop_assert!(left.at >= stamp, "{left:?} left before {stamp}");
        prop_assert!(left.at <= stamp + slot + 2, "{left:?} left after {stamp} + {slot}");
    }
    Ok(())
}

proptest! {
    /// The oracle divides for each packet. Each flow has one rate, which differs from those of
    /// others: no packet is early, and none more than a slot late.
    #[test]
    fn every_flow_keeps_its_own_rate(
        config in config(), table in table(), arrivals in arrivals(200),
    ) {
        let mut world = World::pacing(config);
        world.set(&table);
        let mut clocks: HashMap<u32, Clock> = HashMap::new();
        let mut stamps: HashMap<(u32, u64), (u64, u64)> = HashMap::new();
        for Arrival { after, flow, len, .. } in arrivals {
            // What is one flow here has one rate.
            let key = if config.key == Key::Hosts { flow % 3 } else { flow };
            let number = key % (PACES + 1);
            world.run_until(world.now + after);
            let own = table.iter().find(|(of, _)| *of == number).map(|(_, rate)| *rate);
            let rate = lower(config.maxrate, own);
            let stamp = clocks.entry(key).or_default().stamp(len, world.now, rate);
            let came = world.came.get(&flow).copied().unwrap_or(0);
            stamps.insert((flow, came), (stamp, slot(&config, rate)));
            world.arrive(flow, number, len);
        }
        world.finish();
        check_departures(&world, &stamps)?;
    }

    /// The oracle has a clock for each flow and one for each host (or connection) beside it: a
    /// packet leaves at the latest of its times, and at most a slot later.
    #[test]
    fn a_packet_leaves_at_the_latest_of_its_flow_s_time_and_that_of_its_host(
        config in config(), beside in rate(), table in table(), arrivals in arrivals(200),
    ) {
        let config = Config { codel: None, beside: Some(beside), ..config };
        let mut world = World::pacing(config);
        world.set(&table);
        let mut clocks: [HashMap<u32, Clock>; 2] = Default::default();
        let mut stamps: HashMap<(u32, u64), (u64, u64)> = HashMap::new();
        for Arrival { after, flow, len, .. } in arrivals {
            let (key, other) = match config.key {
                Key::Hosts => (flow % 3, flow),
                Key::Flows => (flow, flow % 3),
            };
            let number = key % (PACES + 1);
            world.run_until(world.now + after);
            let own = table.iter().find(|(of, _)| *of == number).map(|(_, rate)| *rate);
            let rate = lower(config.maxrate, own);
            let [flows, others] = &mut clocks;
            let (mine, second) = (flows.entry(key).or_default(), others.entry(other).or_default());
            mine.0 = mine.0.max(second.0);
            second.stamp(len, world.now, Some(beside));
            let stamp = mine.stamp(len, world.now, rate);
            let came = world.came.get(&flow).copied().unwrap_or(0);
            stamps.insert((flow, came), (stamp, slot(&config, rate)));
            world.arrive(flow, number, len);
        }
        world.finish();
        check_departures(&world, &stamps)?;
    }

    /// Packets of one flow with different rates: each makes the next one wait for as long as it
    /// takes at its own rate. No packet is early, and the flow stays in order.
    #[test]
    fn each_packet_pays_at_its_own_rate(
        config in config(), table in table(), arrivals in arrivals(200),
    ) {
        let config = Config { key: Key::Flows, ..config };
        let mut world = World::pacing(config);
        world.set(&table);
        let mut clocks: HashMap<u32, Clock> = HashMap::new();
        let mut stamps: HashMap<(u32, u64), u64> = HashMap::new();
        for Arrival { after, flow, pace, len } in arrivals {
            world.run_until(world.now + after);
            let own = table.iter().find(|(of, _)| *of == pace).map(|(_, rate)| *rate);
            let rate = lower(config.maxrate, own);
            let stamp = clocks.entry(flow).or_default().stamp(len, world.now, rate);
            let came = world.came.get(&flow).copied().unwrap_or(0);
            stamps.insert((flow, came), stamp);
            world.arrive(flow, pace, len);
        }
        world.finish();
        for left in &world.left {
            let stamp = stamps[&(left.flow, left.number)];
            prop_assert!(left.at >= stamp, "{left:?} left before {stamp}");
        }
    }

    /// Rates change under load, in any way, and polls are late: nothing is lost, flows stay in
    /// order, and a flow whose rate never changes has the times that it would have alone.
    #[test]
    fn changed_rates_of_others_change_nothing(
        config in config(), first in table(),
        steps in prop::collection::vec((arrivals(30), table(), 0u64..3_000_000), 1..10),
    ) {
        let config = Config { key: Key::Flows, ..config };
        const STEADY: u32 = 77;
        let steady = (PACES, first[PACES as usize - 1].1);
        let mut worlds = [World::pacing(config), World::pacing(config)];
        worlds.iter_mut().for_each(|world| world.set(&first));
        for (arrivals, mut table, pause) in steps {
            for Arrival { after, flow, pace, len } in arrivals {
                for (world, has_others) in worlds.iter_mut().zip([true, false]) {
                    let now = world.now + after;
                    world.run_until(now);
                    match flow {
                        STEADY => world.arrive(flow, PACES, len),
                        _ if has_others => world.arrive(flow, pace % PACES, len),
                        _ => {}
                    }
                }
            }
            table[PACES as usize - 1] = steady;
            worlds[0].set(&table);
            for world in &mut worlds {
                world.now += pause;
                world.poll();
            }
        }
        worlds.iter_mut().for_each(World::finish);
        let of_steady = |world: &World| {
            let left = world.left.iter().filter(|left| left.flow == STEADY);
            left.map(|left| (left.number, left.at)).collect::<BTreeMap<_, _>>()
        };
        let [shared, alone] = worlds.each_ref().map(of_steady);
        // Slots are shorter where more leaves in all, and the clock is stepped more often.
        let slot = slot(&config, lower(config.maxrate, Some(steady.1)));
        for (number, at) in &alone {
            prop_assert!(
                shared[number].abs_diff(*at) <= slot + 1,
                "packet {number} left at {} and alone at {at}, a slot is {slot}", shared[number]
            );
        }
    }
}

#[test]
fn flows_of_3_6_6_and_12_mbit_leave_together_at_their_rates() {
    for structure in STRUCTURES {
        for codel in [None, Some(lenient())] {
            let mut world = World::pacing(Config { codel, ..roomy(structure) });
            world.set(&[(1, mbit(3)), (2, mbit(6)), (3, mbit(12))]);
            let flows = [(1, 1, 3), (2, 2, 6), (3, 2, 6), (4, 3, 12)];
            let start = world.now;
            let frame = mbit(12).time_for(Bytes(1500)).0;
            for turn in 0..800 {
                // Each offers more than its rate.
                for (flow, number, mbit) in flows {
                    (0..1 + mbit / 3 * u64::from(turn % 2 == 0))
                        .for_each(|_| world.arrive(flow, number, 1500));
                }
                world.run_until(start + turn * frame);
            }
            let end = world.now;
            for (flow, _, rate) in flows {
                let exact = mbit(rate).bytes_in(Nanos(end - start)).0;
                let sent = world.sent(flow, start, end);
                assert!(
                    sent.abs_diff(exact) <= 2 * 1500,
                    "{structure:?} {flow}: {sent} of {exact}"
                );
            }
        }
    }
}

#[test]
fn a_raised_rate_acts_on_what_waits_at_once_and_a_lowered_one_on_what_comes() {
    for structure in STRUCTURES {
        for codel in [None, Some(lenient())] {
            let mut world = World::pacing(Config { codel, ..roomy(structure) });
            world.set(&[(1, mbit(1)), (2, mbit(1))]);
            let start = world.now;
            for _ in 0..50 {
                world.arrive(1, 1, 1500);
                world.arrive(2, 2, 1500);
            }
            world.run_until(start + 24_000_000);
            let before = world.now;
            world.set(&[(1, mbit(100))]);
            world.run_until(before + 10_000_000);
            // 120 us a packet: all of it has left, and of the other one packet, every 12 ms.
            assert_eq!(world.sent(1, start, u64::MAX), 50 * 1500, "{structure:?} {codel:?}");
            assert!(world.sent(2, before, u64::MAX) <= 1500);
            assert!(world.sent(1, start, before + 4_000_000) <= 37 * 1500);
            world.run_until(start + 60_000_000);
            let at: Vec<u64> =
                world.left.iter().filter(|left| left.flow == 2).map(|left| left.at).collect();
            let off = at
                .iter()
                .enumerate()
                .map(|(number, at)| at.abs_diff(start + number as u64 * 12_000_000));
            // A slot, which is 8.4 ms at most.
            assert!(off.max().unwrap_or(0) <= 1 << 23, "{structure:?}: {at:?}");
            world.set(&[(1, mbit(1))]);
            let before = world.now;
            (0..10).for_each(|_| world.arrive(1, 1, 1500));
            world.run_until(before + 36_100_000 + (1 << 23));
            assert!((3..=5).contains(&(world.sent(1, before, u64::MAX) / 1500)), "{structure:?}");
        }
    }
}

#[test]
fn connections_at_4_and_8_mbit_to_one_host_have_9_together_and_12_when_it_is_raised() {
    for structure in STRUCTURES {
        let config = Config { beside: Some(mbit(9)), flow_limit: 20, ..roomy(structure) };
        let mut world = World::pacing(config);
        world.set(&[(1, mbit(4)), (2, mbit(8))]);
        let sent = |world: &mut World, millis: u64| {
            let (start, before) = (world.now, world.left.len());
            for turn in 0..millis {
                for (flow, number) in [(0, 1), (3, 2)] {
                    // Each offers 12 Mbit/s, of which the flow's limit drops what is too much.
                    if world.came.get(&flow).copied().unwrap_or(0)
                        < world.left.iter().filter(|left| left.flow == flow).count() as u64 + 20
                    {
                        world.arrive(flow, number, 1500);
                    }
                }
                world.run_until(start + (turn + 1) * 1_000_000);
            }
            (world.left.len() - before) as u64 * 1500 * 8 / millis
        };
        sent(&mut world, 100);
        let kbit = sent(&mut world, 1000);
        assert!((8_900..=9_100).contains(&kbit), "{structure:?}: {kbit}");
        let mut handover = Handover::new(&mut world.packets, Nanos(world.now));
        let raised = Config { beside: Some(mbit(100)), ..config };
        world.qdisc.retune(Spec::new(AnyConfig::Pacing(raised)), &mut handover);
        let kbit = sent(&mut world, 1000);
        assert!((11_700..=12_200).contains(&kbit), "{structure:?}: {kbit}");
    }
}

#[test]
fn a_rate_that_is_its_own_number_is_as_good_as_one_in_a_table() {
    for config in STRUCTURES.map(|structure| AnyConfig::Pacing(roomy(structure))) {
        let mut worlds = [World::new(config.clone()), World::new(config)];
        worlds[0].set(&[(1, mbit(12))]);
        let own = PaceId::of(mbit(12)).unwrap().number();
        for (world, number) in worlds.iter_mut().zip([1, own]) {
            (0..20).for_each(|_| world.arrive(1, number, 1500));
            world.finish();
        }
        let [one, other] = worlds.map(|world| world.left);
        assert_eq!(one, other);
    }
}

#[test]
fn in_fq_each_flow_has_its_rate_and_none_exceeds_maxrate() {
    let max_rate = Some(mbit(8));
    let config =
        fq::Config { max_rate, flow_limit: 10_000, initial_quantum: 1514, ..Default::default() };
    let mut world = World::new(AnyConfig::Fq(config));
    world.set(&[(1, mbit(1)), (2, mbit(4)), (3, mbit(100)), (4, Rate::from_bits_per_sec(200_000))]);
    let start = world.now;
    let flows = [(1, 1, 1000), (2, 2, 4000), (3, 3, 8000), (4, 4, 200), (5, 0, 8000)];
    for turn in 0..1000 {
        for (flow, number, _) in flows {
            world.arrive(flow, number, 1000);
        }
        world.run_until(start + turn * 1_000_000);
        if turn % 50 == 49 {
            // So that few wait.
            while world.free.len() < 10_000 {
                world.now += 1_000_000;
                world.poll();
            }
        }
    }
    let end = world.now;
    for (flow, _, kbit) in flows {
        let exact = Rate::from_bits_per_sec(kbit * 1000).bytes_in(Nanos(end - start)).0;
        let sent = world.sent(flow, start, end);
        assert!(sent <= exact + 2 * 1514, "{flow}: {sent} of {exact}");
        if flow != 3 && flow != 5 {
            assert!(sent + 2 * 1514 >= exact, "{flow}: {sent} of {exact}");
        }
    }
}

#[test]
fn in_fq_a_raised_rate_acts_at_once_and_nopacing_ignores_rates() {
    let config = fq::Config { flow_limit: 10_000, initial_quantum: 1514, ..Default::default() };
    let mut world = World::new(AnyConfig::Fq(config));
    world.set(&[(1, Rate::from_bits_per_sec(8_000))]);
    (0..30).for_each(|_| world.arrive(1, 1, 1000));
    let start = world.now;
    world.run_until(start + 500_000_000);
    assert_eq!(world.left.len(), 1, "a packet takes a second");
    world.set(&[(1, mbit(8))]);
    world.run_until(world.now + 40_000_000);
    assert_eq!(world.left.len(), 30);

    let mut world = World::new(AnyConfig::Fq(fq::Config { pacing: false, ..config }));
    world.set(&[(1, Rate::from_bits_per_sec(8_000))]);
    (0..30).for_each(|_| world.arrive(1, 1, 1000));
    world.poll();
    assert_eq!(world.left.len(), 30);
}

/// A successor stamps what it takes over by the packets' own rates.
#[test]
fn another_qdisc_keeps_the_rates_of_what_it_takes_over() {
    let mut world = World::pacing(roomy(Structure::Eiffel));
    world.set(&[(1, mbit(12))]);
    (0..20).for_each(|_| world.arrive(1, 1, 1500));
    let mut successor = Spec::new(AnyConfig::Pacing(roomy(Structure::FlowBundler))).build();
    while let Some(id) = world.qdisc.drain(&mut world.packets) {
        successor.adopt(&mut world.packets, id, Nanos(world.now));
    }
    world.qdisc = successor;
    let start = world.now;
    world.run_until(start + 10_000_000);
    assert!((10..=11).contains(&world.left.len()), "a millisecond each, and a slot");
    let mut handover = Handover::new(&mut world.packets, Nanos(start));
    let slower = Config { maxrate: Some(mbit(6)), ..roomy(Structure::FlowBundler) };
    world.qdisc.retune(Spec::new(AnyConfig::Pacing(slower)), &mut handover);
    world.finish();
}
