//! What the strategies promise: how much leaves in any window, that no queue starves, that a limit
//! can change and a worker disappear.

mod world;

use narrows_coordination::{Coordination, DEFAULT_SYNC_TIME, Limit, Strategy};
use narrows_packet::{Backlog, Batch, Headers, PacketId, Packets};
use narrows_qdisc::{Config, Meter, Share, Spec, Take, Verdict, cake, fifo, fq};
use narrows_units::{Bytes, Nanos, Rate};
use proptest::prelude::*;
use world::{World, arrival, spec, stated_burst};

const MS: Nanos = Nanos::from_millis(1);
const FULL: u32 = 1514;

fn limit(mbit: u64, burst: u64, backlog: u64) -> Limit {
    let (burst, backlog) = (Bytes(burst), Bytes(backlog));
    Limit { rate: Rate::from_bits_per_sec(mbit * 1_000_000), burst, peak: None, backlog }
}

/// The departures between `from` and `end`, as a part of the limit.
fn used(world: &World, limit: Limit, from: Nanos, end: Nanos) -> f64 {
    world.sent(None, from, end) as f64 / limit.rate.bytes_in(end - from).0 as f64
}

/// Full queues, beside which `percent` of what four packets take in each step leave, of which the
/// queue `teller` learns. Until the first of so many steps they find each other, and their burst is
/// used up. Returns also the times of that step and of the end.
fn beside_full_queues(
    strategy: Strategy,
    limit: Limit,
    queues: usize,
    percent: u64,
    [first, end]: [usize; 2],
    teller: impl Fn(usize) -> usize,
) -> (World, Nanos, Nanos) {
    let mut world = World::new(strategy, limit, queues);
    let step = limit.rate.time_for(Bytes(4 * u64::from(FULL)));
    let beside = Bytes(4 * u64::from(FULL) * percent / 100);
    let all: Vec<usize> = (0..queues).collect();
    let (mut now, mut from) = (MS, Nanos::ZERO);
    for number in 0..end {
        if number == first {
            from = now;
        }
        world.flood_until(&all, &[FULL], now, now + step);
        now += step;
        world.owe(teller(number), beside, now);
    }
    (world, from, now)
}

proptest! {
    /// The sum over all meters never exceeds rate x window + burst, however late workers are; and
    /// all that was accepted leaves as fast as the rate allows.
    #[test]
    fn lock_keeps_the_limit_in_every_window(
        mbit in 1u64..20_000,
        burst in 1_600u64..10_000,
        late in prop_oneof![Just(0u64), 1u64..20_000],
        arrivals in prop::collection::vec(arrival(1_599), 1..120),
    ) {
        let limit = limit(mbit, burst, 100_000);
        let mut world = World::new(Strategy::Lock, limit, 4);
        let (last, accepted) = world.replay(&arrivals, Nanos(late));
        prop_assert!(world.worst_excess(limit, Nanos::ZERO) <= burst);
        prop_assert_eq!(world.sent(None, Nanos::ZERO, Nanos::MAX), accepted);
        prop_assert_eq!(world.backlog(), Bytes::ZERO);
        if late == 0 {
            let arrived: u64 = arrivals.iter().map(|arrival| arrival.after).sum();
            let slack = limit.rate.time_for(Bytes(accepted + burst));
            prop_assert!(last <= Nanos(arrived + 1) + slack + Nanos(4));
        }
    }

    /// Departure times are a rate apart: the sum over all meters never exceeds rate x window plus
    /// the packet that ends it, and a nanosecond for each meter's rounding. Accepted packets leave
    /// within the horizon.
    #[test]
    fn edt_keeps_the_limit_in_every_window(
        mbit in 1u64..20_000,
        backlog in 2_000u64..100_000,
        arrivals in prop::collection::vec(arrival(1_599), 1..120),
    ) {
        let limit = limit(mbit, 1_600, backlog);
        let mut world = World::new(Strategy::Edt, limit, 4);
        let (last, accepted) = world.replay(&arrivals, Nanos::ZERO);
        let rounding = limit.rate.bytes_in(Nanos(4)).0 + 1;
        prop_assert!(world.worst_excess(limit, Nanos::ZERO) <= 1_600 + rounding);
        prop_assert_eq!(world.sent(None, Nanos::ZERO, Nanos::MAX), accepted);
        let arrived: u64 = arrivals.iter().map(|arrival| arrival.after).sum();
        prop_assert!(last <= Nanos(arrived + 1) + limit.rate.time_for(limit.backlog));
    }

    /// Whatever leaves beside the queues, up to most of the limit, and whichever of them learns of
    /// it: full queues get exactly the rest.
    #[test]
    fn what_leaves_beside_full_queues_is_missing_from_them_with_every_strategy(
        queues in 1usize..5,
        mbit in prop_oneof![Just(10u64), Just(100), Just(1_000)],
        percent in 0u64..75,
        told in 0usize..5,
    ) {
        for strategy in Strategy::ALL {
            let limit = limit(mbit, 20_000, 400_000);
            let teller = |number| (number + told) % queues;
            let (world, from, now) =
                beside_full_queues(strategy, limit, queues, percent, [300, 1_000], teller);
            let used = used(&world, limit, from, now) + percent as f64 / 100.0;
            let edge = (queues as u64 + 2) * u64::from(FULL) + stated_burst(limit);
            let edge = edge as f64 / limit.rate.bytes_in(now - from).0 as f64;
            prop_assert!((used - 1.0).abs() <= 0.01 + edge, "{strategy:?}: {used}");
        }
    }

    /// What leaves beside them does not make full queues unequal. (`edt` promises nothing, and the
    /// turns of `lock` do not come when they are due.)
    #[test]
    fn full_queues_are_equal_also_beside_what_passes_none_of_them(
        queues in 2usize..5,
        mbit in prop_oneof![Just(10u64), Just(100), Just(1_000)],
        percent in 0u64..75,
    ) {
        let fair = Strategy::Fair { sync_time: None };
        for strategy in [fair, Strategy::Equal { sync_time: DEFAULT_SYNC_TIME }] {
            let limit = limit(mbit, 20_000, 400_000);
            let (world, from, now) =
                beside_full_queues(strategy, limit, queues, percent, [1_000, 3_000], |_| 0);
            let sent: Vec<u64> =
                (0..queues).map(|queue| world.sent(Some(queue), from, now)).collect();
            let shares: Vec<f64> = sent.iter().map(|sent| *sent as f64).collect();
            prop_assert!(narrows_coordination::jain(&shares) > 0.98, "{strategy:?}: {sent:?}");
        }
    }

    /// Any number of full queues with any packets: together they get the limit, and not a byte more
    /// than that and their bursts, once each has counted the others.
    #[test]
    fn full_queues_get_the_limit_with_every_strategy(
        queues in 1usize..9,
        mbit in prop_oneof![Just(10u64), Just(100), Just(1_000), Just(10_000)],
        lens in prop::collection::vec(60u32..1_514, 1..5),
    ) {
        for strategy in Strategy::ALL {
            let limit = limit(mbit, 20_000, 400_000);
            let mut world = World::new(strategy, limit, queues);
            let frames = Nanos(limit.rate.time_for(Bytes(u64::from(FULL))).0 * 400);
            let (from, end) = (MS + frames, MS + frames + frames);
            let all: Vec<usize> = (0..queues).collect();
            world.flood_until(&all, &lens, Nanos(1), end);
            let used = used(&world, limit, from, end);
            let packets = (queues as u64 + 1) * u64::from(FULL);
            // A lease held at either end of the window is missing from another's part.
            let leases = match strategy {
                Strategy::Fair { .. } => stated_burst(limit) / 2,
                _ => 0,
            };
            // The same for packets that waited to leave together with others.
            let grouped = limit.burst.0 / 8;
            let edge = (packets + leases + grouped) as f64 / limit.rate.bytes_in(frames).0 as f64;
            prop_assert!((used - 1.0).abs() <= 0.0001 + edge, "{strategy:?}: {used}");
            let excess = world.worst_excess(limit, from);
            let burst = if leases > 0 { stated_burst(limit) } else { 20_000 };
            prop_assert!(excess <= burst + packets, "{strategy:?}: {excess}");
        }
    }
}

#[test]
fn small_packets_do_not_starve_large_ones_under_lock() {
    let limit = limit(100, 1_600, 100_000);
    let mut world = World::new(Strategy::Lock, limit, 2);
    world.flood_until(&[0, 1], &[64, FULL], Nanos(1), Nanos::from_millis(100));
    let large = world.sent(Some(1), Nanos::ZERO, Nanos::MAX);
    let whole = limit.rate.bytes_in(Nanos::from_millis(100)).0;
    assert!(large * 10 > whole * 8, "by turns, packet for packet: {large} of {whole}");
}

#[test]
fn a_stalled_worker_does_not_hold_up_the_others_under_lock() {
    let limit = limit(100, 3_000, 100_000);
    let coordination = Coordination::new(Strategy::Lock, limit, 2);
    let (mut stalled, mut other) = (coordination.meter(0), coordination.meter(1));
    let cost = Bytes(1_500);
    let take = |meter: &mut Box<dyn Meter>, now| meter.take(cost, Nanos::ZERO, now);
    (0..2).for_each(|_| assert_eq!(take(&mut stalled, Nanos(1)), Take::Granted));
    let Take::Wait(_) = take(&mut stalled, Nanos(1)) else { panic!("the burst is used up") };
    let (mut now, mut granted) = (Nanos(1), 0);
    while now < MS + MS + MS + MS + MS {
        match take(&mut other, now) {
            Take::Granted => granted += 1,
            Take::Wait(at) => now = at,
        }
    }
    assert!(granted >= 5_000_000 / 120_000 - 2, "{granted} of 41");
}

#[test]
fn edt_drops_packets_beyond_the_horizon() {
    let limit = limit(8, 2_000, 10_000);
    let mut world = World::new(Strategy::Edt, limit, 2);
    let queued = |world: &mut World, queue| world.offer(queue, 1_000, Nanos(1));
    for packet in 0..11 {
        assert_eq!(queued(&mut world, packet % 2), Verdict::Queued, "packet {packet}");
    }
    assert_eq!(queued(&mut world, 0), Verdict::Dropped);
    assert_eq!(queued(&mut world, 1), Verdict::Dropped);
}

/// The departures at twice the limit, if a queue below the `tbf` drops half of it.
fn delivered_past_drops(strategy: Strategy, inner: Config) -> f64 {
    let limit = limit(100, 4_000, 1 << 20);
    let coordination = Coordination::new(strategy, limit, 1);
    let mut spec = spec(limit, Some(coordination.meter(0)));
    spec.children = vec![Spec::new(inner)];
    let mut packets = Packets::new(4096);
    let mut free: Vec<PacketId> = (0..4096).map(PacketId).collect();
    let mut qdisc = spec.build();
    let (mut now, mut sent, mut number) = (Nanos(1), 0, 0u32);
    let mut out = Batch::new(64);
    while now < Nanos::from_secs(1) {
        // 250 bytes take 20 us, 1250 take 100.
        for len in [1250, 250] {
            let Some(id) = free.pop() else { continue };
            number += 1;
            packets.arrive(id, len, now);
            let flow = (number % 3).wrapping_mul(0x9e37_79b9);
            packets.set_headers(id, Headers { flow, ..Headers::default() });
            qdisc.enqueue(&mut packets, id, now);
        }
        now += Nanos::from_micros(60);
        for back in [true, false] {
            out.clear();
            if back {
                packets.reclaim(&mut out);
            } else {
                qdisc.dequeue(&mut packets, now, &mut out);
                sent += out.as_slice().iter().map(|id| packets.len(*id).0).sum::<u64>();
            }
            free.extend_from_slice(out.as_slice());
        }
    }
    sent as f64 / limit.rate.bytes_in(now).0 as f64
}

#[test]
fn dropped_packets_cost_none_of_the_rate() {
    let fq = fq::Config { flow_limit: 20, ..fq::Config::default() };
    let cake = cake::Config { memory: Some(Bytes(100_000)), ..cake::Config::default() };
    for strategy in Strategy::ALL {
        // A cake drops from the head, so departure times of dropped packets are unknown.
        for (inner, least) in [
            (Config::Fifo(fifo::Config::Packets(20)), 0.97),
            (Config::Fifo(fifo::Config::Bytes(Bytes(30_000))), 0.97),
            (Config::Fq(fq), 0.97),
            (Config::Cake(cake), 0.8),
            (Config::Cake(cake::Config::default()), 0.8),
        ] {
            let name = format!("{strategy:?} {inner:?}");
            let delivered = delivered_past_drops(strategy, inner);
            assert!((least..=1.01).contains(&delivered), "{name}: {delivered}");
        }
    }
}

#[test]
fn edt_loses_no_nanosecond_to_rounding_and_gains_none() {
    let limit = limit(100_000, 1_600, 1 << 30);
    let coordination = Coordination::new(Strategy::Edt, limit, 1);
    let mut meter = coordination.meter(0);
    for packet in 0..10_000u64 {
        // 64 bytes take 5.12 ns.
        let earliest = Nanos(1 + (packet * 512).div_ceil(100));
        assert_eq!(meter.stamp(Bytes(64), Nanos(1)), Some(earliest));
    }
}

#[test]
fn a_new_limit_holds_from_the_next_packet_on() {
    for strategy in Strategy::ALL {
        let slow = limit(1, 4_000, 60_000);
        let fast = limit(100, 8_000, 60_000);
        let mut world = World::new(strategy, slow, 4);
        let (change, back) = (Nanos::from_millis(600), Nanos::from_millis(800));
        let end = Nanos::from_millis(2_000);
        let all = [0, 1, 2, 3];
        world.flood_until(&all, &[FULL], Nanos(1), change);
        world.coordination.set_limit(fast);
        all.into_iter().for_each(|queue| world.poll(queue, change));
        world.flood_until(&all, &[FULL], change, back);
        world.coordination.set_limit(slow);
        all.into_iter().for_each(|queue| world.poll(queue, back));
        world.flood_until(&all, &[FULL], back, end);
        let used = [
            used(&world, slow, Nanos::ZERO, change),
            used(&world, fast, change, back),
            used(&world, slow, back + Nanos::from_millis(100), end),
        ];
        let tolerances = [0.25, 0.02, 0.06];
        for (used, tolerance) in used.into_iter().zip(tolerances) {
            assert!((used - 1.0).abs() < tolerance, "{strategy:?}: {used}");
        }
        let excess = world.worst_excess(slow, back);
        assert!(excess <= 4 * 2_000 + 4 * u64::from(FULL), "{strategy:?}: {excess} bytes");
    }
}

#[test]
fn another_meter_adopts_queued_packets() {
    for (from, to) in [(Strategy::Lock, Strategy::Edt), (Strategy::Edt, Strategy::Edt)] {
        let limit = limit(8, 2_000, 100_000);
        let mut world = World::new(from, limit, 2);
        (0..20).for_each(|packet| {
            world.offer(packet % 2, 1_000, Nanos(1));
        });
        let queued = world.backlog();
        let fresh = Coordination::new(to, limit, 2);
        let (now, mut moved) = (Nanos(2), world.departures.len());
        for number in 0..2 {
            world.retune(number, spec(limit, Some(fresh.meter(number))), now);
            world.poll(number, now);
        }
        world.run_until(Nanos::MAX, Nanos::ZERO);
        moved = world.departures.len() - moved;
        assert_eq!(queued, Bytes(1_000 * moved as u64), "all that was queued has left");
        let excess = world.worst_excess(limit, now);
        assert!(excess <= 2_000, "by its burst, not by its old stamps: {excess}");
    }
}

/// A meter that has sent and still has packets.
fn busy(meter: &mut Box<dyn Meter>, now: Nanos) {
    meter.take(Bytes(100), Nanos::ZERO, now);
    meter.report(Backlog { packets: 1, bytes: Bytes(100) }, now);
}

#[test]
fn a_worker_that_is_gone_leaves_its_part_to_the_others() {
    for strategy in [Strategy::Lock, Strategy::EQUAL] {
        let coordination = Coordination::new(strategy, limit(1_000, 100_000, 100_000), 2);
        let mut meters = [coordination.meter(0), coordination.meter(1)];
        meters.iter_mut().for_each(|meter| busy(meter, MS));
        let [mut stays, goes] = meters;
        busy(&mut stays, MS + DEFAULT_SYNC_TIME);
        assert_eq!(stays.share(), Share::one_of(2), "{strategy:?}");
        drop(goes);
        busy(&mut stays, MS + DEFAULT_SYNC_TIME + DEFAULT_SYNC_TIME);
        assert_eq!(stays.share(), Share::WHOLE, "{strategy:?}");
        let mut again = coordination.meter(1);
        busy(&mut again, MS + MS);
        busy(&mut stays, MS + MS);
        assert_eq!(stays.share(), Share::one_of(2), "{strategy:?}");
    }
}

#[test]
fn equal_counts_once_a_sync_time_and_only_when_it_sends() {
    let coordination = Coordination::new(Strategy::EQUAL, limit(1_000, 3_000, 100_000), 2);
    let (mut own, mut other) = (coordination.meter(0), coordination.meter(1));
    assert_eq!(own.take(Bytes(3_000), Nanos::ZERO, MS), Take::Granted);
    busy(&mut other, MS);
    let Take::Wait(at) = own.take(Bytes(3_000), Nanos::ZERO, MS + Nanos(1)) else {
        panic!("the burst is used up")
    };
    assert_eq!(at, MS + Nanos(24_000), "alone as of the last count");
    assert_eq!(own.take(Bytes(3_000), Nanos::ZERO, at), Take::Granted);
    assert_eq!(own.share(), Share::WHOLE);
    assert_eq!(own.take(Bytes(3_000), Nanos::ZERO, MS + DEFAULT_SYNC_TIME), Take::Granted);
    assert_eq!(own.share(), Share::one_of(2));
}

#[test]
#[should_panic(expected = "meter 0 is taken")]
fn a_meter_is_taken_once_at_a_time() {
    let coordination = Coordination::new(Strategy::Lock, limit(1, 2_000, 2_000), 1);
    let _first = coordination.meter(0);
    let _second = coordination.meter(0);
}

proptest! {
    /// A limit that continues that of another process sends, together with it, no more than a
    /// single limit would have: also if that one was in debt, or stopped in a burst.
    #[test]
    fn a_limit_that_goes_on_in_another_process_is_kept_across_both(
        mbit in 10u64..2_000,
        burst in 4_700u64..60_000,
        stopped_ms in 1u64..20,
        paused_us in 0u64..5_000,
    ) {
        let limit = limit(mbit, burst, 1 << 20);
        let queues = [0, 1, 2, 3];
        let stopped = Nanos(stopped_ms * 1_000_000);
        let goes_on = stopped + Nanos(paused_us * 1_000);
        for strategy in [Strategy::Lock, Strategy::Edt, Strategy::FAIR] {
            let mut world = World::new(strategy, limit, 4);
            world.flood_until(&queues, &[FULL], Nanos(1), stopped);
            let spent = world.coordination.spent_until(stopped);
            let mut resumed = World::new(strategy, limit, 4);
            resumed.coordination.resume(spent);
            resumed.flood_until(&queues, &[FULL], goes_on, goes_on + MS + MS);
            let last = goes_on + MS + MS;
            let sent_after = resumed.sent(None, goes_on, last);
            prop_assert!(sent_after > 0, "{}: it never sends", strategy.name());
            world.departures.extend(&resumed.departures);
            let excess = world.worst_excess(limit, Nanos::ZERO);
            // A meter's lease is lost when it stops, and one packet ends each window.
            let stated = stated_burst(limit) + u64::from(FULL);
            prop_assert!(excess <= stated, "{}: {excess} above {stated}", strategy.name());
        }
    }
}

#[test]
fn meters_with_buckets_of_their_own_go_on_without_credit() {
    let limit = limit(8, 10_000, 1 << 20);
    let coordination = Coordination::new(Strategy::EQUAL, limit, 1);
    let now = Nanos::from_secs(7);
    assert_eq!(coordination.spent_until(now), now);
    coordination.resume(now);
    let mut meter = coordination.meter(0);
    // A byte a microsecond.
    assert_eq!(meter.take(Bytes(1_000), Nanos::ZERO, now), Take::Wait(now + MS));
    assert_eq!(meter.take(Bytes(1_000), Nanos::ZERO, now + MS), Take::Granted);
    assert!(matches!(meter.take(Bytes(1_000), Nanos::ZERO, now + MS), Take::Wait(_)));
}
