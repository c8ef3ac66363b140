//! `cake` through the trait, in virtual time.

mod acknowledgements;
mod overflow;
mod retunes;
mod shared;
mod world;

use narrows_packet::{DropReason, Ecn, Headers};
use narrows_qdisc::cake::{AckFilter, Config, Diffserv, Isolation};
use narrows_qdisc::{Next, Verdict};
use narrows_units::{Bytes, Nanos, Rate};
use proptest::prelude::*;
use world::{World, flow, hosts};

const MBIT: u64 = 1_000_000;

fn limited(bits_per_sec: u64) -> Config {
    let rate = Some(Rate::from_bits_per_sec(bits_per_sec));
    Config { rate, diffserv: Diffserv::BestEffort, ..Config::default() }
}

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

#[test]
fn packets_leave_at_the_rate_and_no_faster() {
    let mut world = World::new(limited(100 * MBIT));
    world.keep_full(&[flow(1)], 20, 1250, ms(1000));
    let sent = world.sent(flow(1));
    assert!((9_990..=10_001).contains(&sent), "{sent} of 10,000");
}

#[test]
fn a_link_that_was_idle_earns_no_burst() {
    let mut world = World::new(limited(100 * MBIT));
    world.run(ms(500), |_, _| {});
    for _ in 0..10 {
        world.arrive(flow(1), 1250);
    }
    assert_eq!(world.leave().len(), 1);
    assert_eq!(world.leave(), []);
}

#[test]
fn without_a_rate_everything_leaves_at_once() {
    let mut world = World::new(Config { diffserv: Diffserv::Diffserv4, ..Config::default() });
    for number in 0..40 {
        world.arrive(Headers { dscp: (number % 64) as u8, ..flow(number) }, 1000);
    }
    assert_eq!(world.leave().len(), 40);
    assert_eq!(world.next(), Next::Empty);
}

#[test]
fn backlogged_flows_share_evenly_at_any_packet_length() {
    let mut world = World::new(limited(100 * MBIT));
    world.run(ms(2000), |world, _| {
        world.top_up(flow(1), 10, 1500);
        world.top_up(flow(2), 60, 200);
        world.top_up(flow(3), 20, 700);
    });
    let bytes = [(1, 1500), (2, 200), (3, 700)].map(|(id, len)| world.sent(flow(id)) * len);
    let mean = bytes.iter().sum::<u64>() / 3;
    assert!(bytes.iter().all(|bytes| bytes.abs_diff(mean) < mean / 50), "{bytes:?}");
}

#[test]
fn a_sparse_flow_passes_those_that_stand() {
    let mut world = World::new(limited(10 * MBIT));
    let mut worst = Nanos::ZERO;
    let mut sent_at = None;
    world.run(ms(2000), |world, now| {
        for id in 1..=8 {
            world.top_up(flow(id), 10, 1500);
        }
        // At first all are sparse.
        if now.0 % 20_000_000 == 0 && now > ms(1100) {
            world.arrive(flow(99), 172);
            sent_at = Some(now);
        }
        if let (Some(at), true) = (sent_at, world.has_just_left(flow(99))) {
            worst = worst.max(now.since(at));
            sent_at = None;
        }
    });
    // The packet that is on its way takes 1.2 ms.
    assert!(worst <= Nanos::from_micros(1_400), "{worst:?}");
    assert_eq!(world.sent(flow(99)), 94);
}

#[test]
fn a_host_with_one_flow_gets_as_much_as_one_with_many() {
    for isolation in [Isolation::TripleIsolate, Isolation::DualSrchost] {
        let mut world = World::new(Config { isolation, ..limited(100 * MBIT) });
        world.run(ms(3000), |world, _| {
            world.top_up(hosts(1, 100, 1), 4, 1500);
            for id in 2..=33 {
                world.top_up(hosts(2, 100 + id, id), 4, 1500);
            }
        });
        let one = world.sent(hosts(1, 100, 1));
        let many: u64 = (2..=33).map(|id| world.sent(hosts(2, 100 + id, id))).sum();
        let share = one as f64 / (one + many) as f64;
        assert!((share - 0.5).abs() < 0.01, "{isolation:?}: {share}");
    }
}

#[test]
fn with_flow_isolation_a_host_gets_the_sum_of_its_flows() {
    let mut world = World::new(Config { isolation: Isolation::Flows, ..limited(100 * MBIT) });
    world.run(ms(1000), |world, _| {
        world.top_up(hosts(1, 100, 1), 4, 1500);
        (2..=4).for_each(|id| world.top_up(hosts(2, 100, id), 4, 1500));
    });
    let share = world.sent(hosts(1, 100, 1)) as f64 / world.all_sent() as f64;
    assert!((share - 0.25).abs() < 0.01, "{share}");
}

#[test]
fn one_against_a_thousand_flows_of_another_host_still_gets_half() {
    let mut world = World::new(limited(1000 * MBIT));
    world.run(ms(1500), |world, _| {
        world.top_up(hosts(1, 7, 1), 30, 1500);
        for id in 2..=801 {
            world.top_up(hosts(2, 8, id), 2, 1500);
        }
    });
    let share = world.sent(hosts(1, 7, 1)) as f64 / world.all_sent() as f64;
    assert!((share - 0.5).abs() < 0.03, "{share}");
}

#[test]
fn a_responsive_flow_s_queue_falls_to_the_target() {
    // A sender that halves its window after a drop.
    let mut world = World::new(limited(50 * MBIT));
    let delays = world.responsive(flow(1), false, ms(3000));
    let late = &delays[delays.len() / 2..];
    let mean = late.iter().map(|delay| delay.0).sum::<u64>() / late.len() as u64;
    assert!(Nanos(mean) < ms(10), "{} us", mean / 1000);
    assert!(world.drops(DropReason::Aqm) > 0);
}

#[test]
fn a_flow_that_can_be_marked_is_not_dropped_from() {
    let mut world = World::new(limited(50 * MBIT));
    let capable = Headers { ecn: Ecn::Capable0, ..flow(1) };
    let delays = world.responsive(capable, true, ms(3000));
    assert!(delays[delays.len() - 1] < ms(15));
    assert_eq!(world.drops(DropReason::Aqm), 0);
    assert!(world.marks() > 0);
    assert_eq!(world.figures().tins[0].marks, world.marks());
}

#[test]
fn a_flood_does_not_hurt_the_others() {
    let mut world = World::new(limited(10 * MBIT));
    let mut carry = 0;
    world.run(ms(5000), |world, _| {
        // 20 Mbit/s that never listens, in steps of 100 us.
        carry += 250;
        while carry >= 1250 {
            carry -= 1250;
            world.arrive(flow(66), 1250);
        }
        world.top_up(flow(1), 6, 1250);
    });
    let share = world.sent(flow(1)) as f64 / world.all_sent() as f64;
    assert!((share - 0.5).abs() < 0.02, "{share}");
}

#[test]
fn when_memory_ends_the_longest_queue_pays() {
    let mut world = World::new(Config { memory: Some(Bytes(2048 * 100)), ..limited(MBIT) });
    for _ in 0..20 {
        world.arrive(flow(1), 1000);
    }
    let mut dropped = 0;
    for _ in 0..500 {
        dropped += u64::from(world.arrive(flow(2), 1000) == Verdict::Dropped);
    }
    assert_eq!(dropped, 420);
    assert_eq!(world.drops(DropReason::Limit), 420);
    assert_eq!(world.dropped(flow(1)), 0);
    assert_eq!(world.figures().memory_limit, Bytes(2048 * 100));
    assert!(world.figures().memory_used <= Bytes(2048 * 101));
}

#[test]
fn a_flow_that_keeps_overflowing_memory_is_unresponsive_until_it_ends() {
    let config = Config { memory: Some(Bytes(2048 * 50)), ..limited(10 * MBIT) };
    let mut world = World::new(config);
    world.run(ms(1000), |world, _| {
        world.arrive(flow(1), 1250);
        world.arrive(flow(1), 1250);
    });
    assert_eq!(world.figures().tins[0].unresponsive_flows, 1);
    world.run(ms(30_000), |world, now| {
        if now.0 % 1_000_000_000 == 0 {
            world.arrive(flow(1), 100);
        }
    });
    assert_eq!(world.figures().tins[0].unresponsive_flows, 0);
}

#[test]
fn an_important_tin_goes_first_up_to_its_threshold() {
    let config = Config { diffserv: Diffserv::Diffserv4, ..limited(100 * MBIT) };
    let mut world = World::new(config);
    let dscp = |id, dscp| Headers { dscp, ..flow(id) };
    let (bulk, best_effort, video, voice) = (dscp(1, 8), dscp(2, 0), dscp(3, 34), dscp(4, 46));
    world.run(ms(2000), |world, _| {
        for all in [bulk, best_effort, video, voice] {
            world.top_up(all, 10, 1500);
        }
    });
    let share = |headers| world.sent(headers) as f64 / world.all_sent() as f64;
    for (headers, expected) in [(bulk, 0.0625), (best_effort, 0.1875), (video, 0.5), (voice, 0.25)]
    {
        let share = share(headers);
        assert!((share - expected).abs() < 0.02, "{share} for {expected}");
    }
}

#[test]
fn a_tin_alone_has_the_whole_rate() {
    let config = Config { diffserv: Diffserv::Diffserv4, ..limited(100 * MBIT) };
    let mut world = World::new(config);
    let bulk = Headers { dscp: 8, ..flow(1) };
    world.keep_full(&[bulk], 20, 1250, ms(1000));
    assert!(world.sent(bulk) >= 9_990);
}

#[test]
fn without_a_rate_tins_share_by_quantum() {
    let config = Config { diffserv: Diffserv::Diffserv3, ..Config::default() };
    let mut world = World::new(config);
    let (best_effort, bulk) = (flow(1), Headers { dscp: 8, ..flow(2) });
    for _ in 0..400 {
        world.arrive(best_effort, 1000);
        world.arrive(bulk, 1000);
    }
    world.leave_most(340);
    let share = world.sent(bulk) as f64 / world.all_sent() as f64;
    assert!((share - 64.0 / 1088.0).abs() < 0.02, "{share}");
}

#[test]
fn washing_is_asked_for_where_there_is_something_to_wash() {
    let mut world = World::new(Config { wash: true, ..limited(100 * MBIT) });
    world.arrive(Headers { dscp: 46, ..flow(1) }, 100);
    world.arrive(flow(2), 100);
    let washed: Vec<bool> = world.leave_all().iter().map(|left| left.rewrite.washes()).collect();
    assert_eq!(washed, [true, false]);
}

#[test]
fn with_ingress_drops_count_as_sent() {
    let rate = |ingress| {
        let config = Config { ingress, memory: Some(Bytes(2048 * 500)), ..limited(10 * MBIT) };
        let mut world = World::new(config);
        world.run(ms(10_000), |world, _| {
            world.arrive(flow(1), 1250);
        });
        world.sent(flow(1)) as f64 / 10_000.0
    };
    assert!(rate(false) > 0.99);
    let ingress = rate(true);
    assert!((0.6..0.99).contains(&ingress), "{ingress}");
}

#[test]
fn the_rate_follows_a_change_and_packets_stay() {
    let mut world = World::new(limited(10 * MBIT));
    for _ in 0..100 {
        world.arrive(flow(1), 1250);
    }
    world.retune(limited(100 * MBIT));
    assert_eq!(world.queued(), 100);
    let before = world.all_sent();
    world.run(ms(5), |_, _| {});
    let left = world.all_sent() - before;
    assert!((48..=52).contains(&left), "{left}");
}

#[test]
fn an_idle_instance_takes_little_memory_and_a_busy_one_gives_it_back() {
    let config = Config { diffserv: Diffserv::Diffserv4, ..limited(1000 * MBIT) };
    let mut world = World::new(config);
    let idle = world.figures().own_memory;
    assert!(idle < Bytes(16 << 10), "{idle:?}");
    for id in 0..3000 {
        let dscp = [0, 8, 34, 46][id as usize % 4];
        world.arrive(Headers { dscp, ..hosts(id, id + 7, id) }, 64);
    }
    let busy = world.figures().own_memory;
    assert!(busy > Bytes(200 << 10) && busy < Bytes(600 << 10), "{busy:?}");
    world.run(ms(1200), |_, _| {});
    assert_eq!(world.queued(), 0);
    assert_eq!(world.figures().own_memory, idle);
}

#[test]
fn flows_that_come_and_go_need_no_more_memory_than_those_that_are_there() {
    let mut world = World::new(limited(1000 * MBIT));
    for id in 0..5000 {
        world.arrive(hosts(id % 50, 3, id), 500);
        world.run(Nanos::from_micros(100), |_, _| {});
    }
    let memory = world.figures().own_memory;
    assert!(memory < Bytes(64 << 10), "{memory:?}");
}

#[test]
fn figures_add_up() {
    let config = Config { memory: Some(Bytes(2048 * 50)), ..limited(10 * MBIT) };
    let mut world = World::new(config);
    world.run(ms(500), |world, _| {
        world.arrive(flow(1), 1250);
        world.arrive(flow(2), 300);
    });
    let figures = world.figures();
    let tin = figures.tins[0];
    let stats = world.stats();
    assert_eq!(tin.packets, stats.sent_packets + stats.drops + u64::from(stats.backlog.packets));
    assert_eq!(tin.backlog, stats.backlog.bytes);
    assert_eq!(tin.drops, stats.drops);
    assert_eq!(tin.max_len, 1250);
    assert_eq!(figures.network_size, Some((300, 1250)));
    assert_eq!(tin.way_misses, 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// With any load and parameters: each arrival has left, is queued, or was dropped, and in the
    /// end everything has left.
    #[test]
    fn every_packet_is_accounted_for(
        kind in (0usize..5, 0usize..8, 0usize..3, any::<[bool; 3]>()),
        memory in prop::option::of(10_000u64..300_000),
        rate in prop::option::of(100_000u64..2_000_000_000),
        steps in prop::collection::vec((0u32..40, 60u32..9000, 0u64..400, any::<u8>()), 1..400),
        later in prop::option::of(100_000u64..1_000_000_000),
    ) {
        let (diffserv, isolation, filter, [ingress, wash, network_length]) = kind;
        let diffserv = [
            Diffserv::BestEffort,
            Diffserv::Precedence,
            Diffserv::Diffserv3,
            Diffserv::Diffserv4,
            Diffserv::Diffserv8,
        ][diffserv];
        let isolation = [
            Isolation::Flowblind,
            Isolation::Srchost,
            Isolation::Dsthost,
            Isolation::Hosts,
            Isolation::Flows,
            Isolation::DualSrchost,
            Isolation::DualDsthost,
            Isolation::TripleIsolate,
        ][isolation];
        let config = Config {
            rate: rate.map(Rate::from_bits_per_sec),
            memory: memory.map(Bytes),
            diffserv,
            isolation,
            ingress,
            wash,
            network_length,
            ack_filter: [AckFilter::Off, AckFilter::On, AckFilter::Aggressive][filter],
            ..Config::default()
        };
        let mut world = World::new(config);
        let half = steps.len() / 2;
        for (number, (id, len, pause_us, traits)) in steps.into_iter().enumerate() {
            let headers = Headers {
                dscp: traits & 63,
                ecn: Ecn::of(traits >> 6),
                ..hosts(id % 5, id % 7, id)
            };
            world.arrive(headers, len);
            world.run(Nanos::from_micros(pause_us), |_, _| {});
            world.check();
            if number == half && let Some(later) = later {
                world.retune(Config { rate: Some(Rate::from_bits_per_sec(later)), ..config });
            }
        }
        world.leave_all();
        prop_assert_eq!(world.queued(), 0);
        world.check();
    }
}
