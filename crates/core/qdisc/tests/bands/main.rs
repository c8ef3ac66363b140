//! What `prio`, `drr` and `ets` do on one queue.

mod model;
mod world;

use model::Model;
use narrows_packet::{Backlog, DropReason};
use narrows_qdisc::bands::{Config, QUANTUM_MIN};
use narrows_qdisc::{Config as AnyConfig, Detail, Next, NodeId, Spec, fifo, pacing, tbf};
use narrows_units::{Bytes, Nanos, Rate, wire::Overhead};
use proptest::prelude::*;
use world::{LIMIT, World, drr, ets, pfifo, prio, spec, spec_over};

const LEN: u32 = 1_000;

#[test]
fn a_better_band_goes_first() {
    let mut world = World::new(spec(&prio(3)));
    for class in [3, 1, 2, 3, 1] {
        world.offer(class, LEN);
    }
    assert_eq!(world.poll(2), (vec![1, 4], Next::Now));
    world.offer(1, LEN);
    assert_eq!(world.poll(8), (vec![5, 2, 0, 3], Next::Empty));
}

#[test]
fn a_packet_without_a_class_goes_where_the_qdisc_says() {
    let mut world = World::new(spec(&prio(2)));
    for class in [2, 0, 17] {
        world.offer(class, LEN);
    }
    assert_eq!(world.poll(8).0, [1, 2, 0], "to the first band");
}

#[test]
fn drr_drops_packets_that_no_filter_assigns() {
    let mut world = World::new(spec(&drr(&[(1, 1_500)])));
    assert_eq!(
        [world.offer(0, LEN).1, world.offer(1, LEN).1, world.offer(9, LEN).1],
        [false, true, false]
    );
    assert_eq!(world.dropped(), [(DropReason::Unclassified, 2)]);
    assert_eq!(world.stats()[0].drops, 2);
}

#[test]
fn turns_are_in_proportion_to_quanta_at_any_length() {
    let mut world = World::new(spec_over(&drr(&[(1, 1_000), (2, 3_000)]), |_| {
        AnyConfig::Fifo(fifo::Config::Packets(1_000))
    }));
    for _ in 0..900 {
        world.offer(1, 1_500);
        world.offer(2, 300);
        world.offer(2, 300);
    }
    let mut sent = [0u64; 2];
    for _ in 0..400 {
        let id = world.poll_one().unwrap();
        let meta = world.packets.meta(narrows_packet::PacketId(id));
        sent[meta.class as usize - 1] += u64::from(meta.len.0);
    }
    let [one, two] = sent;
    assert!(two.abs_diff(3 * one) <= 3 * (1_500 + 1_000), "{one} and {two} bytes");
}

#[test]
fn ets_takes_turns_only_where_no_band_of_the_order_has_anything() {
    let mut world = World::new(spec(&ets(1, &[1_500, 1_500])));
    for class in [2, 3, 2, 3, 1] {
        world.offer(class, 1_500);
    }
    assert_eq!(world.poll(2).0, [4, 0]);
    world.offer(1, LEN);
    assert_eq!(world.poll(8).0, [5, 1, 2, 3]);
}

#[test]
fn a_band_that_holds_back_stalls_no_other() {
    let paced = pacing::Config {
        maxrate: Some(Rate::from_bits_per_sec(1_000 * u64::from(LEN))),
        ..pacing::Config::new(pacing::Structure::FlowBundler, 1514)
    };
    for config in [prio(2), drr(&[(1, 1_500), (2, 1_500)]), ets(0, &[1_500, 1_500])] {
        let below = |id| if id == 1 { AnyConfig::Pacing(paced) } else { pfifo() };
        let mut world = World::new(spec_over(&config, below));
        for class in [1, 1, 2, 2] {
            world.offer(class, LEN);
        }
        let (out, next) = world.poll(8);
        let Next::Held(at) = next else { panic!("{next:?}") };
        assert_eq!(out.len(), 3, "all but the second packet of the flow");
        world.offer(2, LEN);
        assert_eq!(world.poll(8), (vec![4], next), "an arrival does not wait");
        world.now = at;
        assert_eq!(world.poll(8), (vec![1], Next::Empty));
    }
}

#[test]
fn bands_that_are_gone_are_purged_and_the_others_left_alone() {
    let mut world = World::new(spec(&prio(3)));
    for class in [3, 2, 1, 3, 2] {
        world.offer(class, LEN);
    }
    world.become_this(spec(&prio(2)));
    assert_eq!(world.dropped(), [(DropReason::ClassGone, 2)]);
    let own = &world.stats()[0];
    assert_eq!((own.drops, own.backlog), (2, Backlog { packets: 3, bytes: Bytes(3_000) }));
    assert_eq!(world.poll(8), (vec![2, 1, 4], Next::Empty));
}

#[test]
fn a_class_that_changes_between_order_and_turns_keeps_its_packets() {
    let mut world = World::new(spec(&ets(0, &[1_000, 1_000, 1_000])));
    for class in [3, 2, 1, 3, 2, 1] {
        world.offer(class, 900);
    }
    assert_eq!(world.poll(1).0, [0]);
    // The first class is out of line now, the others stay where they were.
    world.become_this(spec(&ets(1, &[1_000, 1_000])));
    assert_eq!(world.poll(3).0, [2, 5, 1]);
    world.become_this(spec(&ets(0, &[1_000, 1_000, 1_000])));
    world.offer(1, 900);
    assert_eq!(world.poll(8), (vec![3, 6, 4], Next::Empty));
    assert_eq!(world.dropped(), []);
}

#[test]
fn another_qdisc_below_a_class_takes_its_packets_over() {
    let mut world = World::new(spec(&drr(&[(1, 1_500), (2, 1_500)])));
    for class in [1, 1, 1, 2, 2] {
        world.offer(class, LEN);
    }
    assert_eq!(world.poll(2).0, [0, 3], "the next one of the first class is held");
    let mut other = spec(&drr(&[(1, 1_500), (2, 1_500)]));
    other.children[0].id = NodeId(7);
    world.become_this(other);
    let stats = world.stats();
    assert_eq!(stats[1].id, NodeId(7));
    assert_eq!(stats[1].backlog.packets, 2, "{stats:?}");
    assert_eq!(world.poll(8).0, [1, 2, 4]);
    assert_eq!(world.stats()[1].sent_packets, 2);
}

#[test]
fn a_qdisc_with_classes_below_another_has_a_class_of_its_own_for_each_packet() {
    let nested = |level, config| Spec { level, ..spec(config) };
    let mut outer = spec(&prio(2));
    outer.children[1] = Spec { id: NodeId(2), ..nested(1, &drr(&[(5, 1_000), (6, 1_000)])) };
    let mut world = World::new(outer);
    world.offer_at([2, 5, 0], 900);
    world.offer_at([2, 5, 0], 900);
    world.offer_at([2, 6, 0], 900);
    world.offer_at([1, 0, 0], 900);
    assert!(!world.offer_at([2, 1, 0], 900).1, "the inner one has no such class");
    assert_eq!(world.poll(8).0, [3, 0, 2, 1]);
    let sent: Vec<_> = world.stats().iter().map(|stats| stats.sent_packets).collect();
    assert_eq!(sent, [4, 1, 3, 2, 1]);
}

#[test]
fn a_packet_held_by_a_parent_counts_in_its_class() {
    let config = tbf::Config {
        rate: Rate::from_bits_per_sec(8_000),
        burst: Bytes(u64::from(LEN)),
        limit: Bytes(100_000),
        peak: None,
        overhead: Overhead::NONE,
    };
    let children = vec![spec(&prio(2))];
    let mut world =
        World::new(Spec { id: NodeId(9), children, ..Spec::new(AnyConfig::Tbf(config)) });
    for class in [2, 2, 1] {
        world.offer(class, LEN);
    }
    assert_eq!(world.poll(8).0, [2], "the burst is used up, and the next one is held");
    let seen = |world: &World| -> Vec<(u64, u32)> {
        world.stats().iter().map(|stats| (stats.sent_packets, stats.backlog.packets)).collect()
    };
    assert_eq!(seen(&world), [(1, 2), (1, 2), (1, 0), (0, 2)]);
    world.now += Nanos::from_secs(1);
    assert_eq!(world.poll(8).0, [0]);
    assert_eq!(seen(&world), [(2, 1), (2, 1), (1, 0), (1, 1)]);
}

#[test]
fn purged_packets_count_as_dropped_above() {
    let config = tbf::Config {
        rate: Rate::from_bits_per_sec(8_000),
        burst: Bytes(u64::from(LEN)),
        limit: Bytes(100_000),
        peak: None,
        overhead: Overhead::NONE,
    };
    let over = |bands| Spec {
        id: NodeId(9),
        children: vec![spec(&prio(bands))],
        ..Spec::new(AnyConfig::Tbf(config))
    };
    let mut world = World::new(over(3));
    for class in [3, 2, 3] {
        world.offer(class, LEN);
    }
    world.become_this(over(2));
    let drops: Vec<_> = world.stats().iter().map(|stats| stats.drops).collect();
    assert_eq!(drops, [2, 2, 0, 0]);
    assert_eq!(world.slot.qdisc().backlog().packets, 1);
}

#[test]
fn deficits_are_those_of_classes_that_have_something_to_send() {
    let mut world = World::new(spec(&drr(&[(1, 1_500), (2, 1_500)])));
    world.offer(1, LEN);
    world.offer(1, LEN);
    world.poll(1);
    let stats = world.stats();
    let Some(Detail::Bands(figures)) = &stats[0].detail else { panic!("{stats:?}") };
    assert_eq!(
        figures.deficits.iter().map(|(id, bytes)| (*id, *bytes)).collect::<Vec<_>>(),
        [(1, 500)]
    );
}

fn config() -> impl Strategy<Value = Config> {
    let quantum = || QUANTUM_MIN..4_000;
    prop_oneof![
        (2u16..6).prop_map(prio),
        prop::collection::btree_map(1u16..9, quantum(), 1..5)
            .prop_map(|quanta| drr(&quanta.into_iter().collect::<Vec<_>>())),
        (0u16..3, prop::collection::vec(quantum(), 1..4))
            .prop_map(|(strict, quanta)| ets(strict, &quanta)),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Offer {
        class: u32,
        len: u32,
    },
    Poll(usize),
    PollOne,
    /// All quanta times this many eighths.
    Quanta(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0u32..10, 60u32..1_600).prop_map(|(class, len)| Step::Offer { class, len }),
        4 => (0usize..6).prop_map(Step::Poll),
        2 => Just(Step::PollOne),
        1 => (4u32..20).prop_map(Step::Quanta),
    ]
}

fn with_quanta(config: &Config, eighths: u32) -> Config {
    let mut next = config.clone();
    for class in &mut next.classes {
        class.quantum = class.quantum.map(|quantum| (quantum * eighths / 8).max(QUANTUM_MIN));
    }
    next
}

proptest! {
    /// Compared with the naive model, packet by packet, with any batches.
    #[test]
    fn packets_leave_in_the_order_of_the_model(
        config in config(),
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let mut world = World::new(spec(&config));
        // A packet that is held has left its FIFO, which has room for one more then.
        let mut model = Model::new(config.clone(), usize::MAX);
        let (mut queued, mut refused) = (0u32, 0u64);
        for step in steps {
            match step {
                Step::Offer { class, len } => {
                    let (id, taken) = world.offer(class, len);
                    match taken {
                        true => {
                            prop_assert!(model.enqueue(class, id, len));
                            queued += 1;
                        }
                        false => refused += 1,
                    }
                    let longest = model.queues.values().map(|queue| queue.len()).max();
                    prop_assert!(longest.unwrap_or(0) <= LIMIT as usize + 1);
                }
                Step::Poll(room) => {
                    let (out, next) = world.poll(room);
                    let expected: Vec<u32> =
                        std::iter::from_fn(|| model.dequeue()).take(room).collect();
                    queued -= out.len() as u32;
                    prop_assert_eq!(out, expected);
                    prop_assert_eq!(next == Next::Empty, queued == 0);
                }
                Step::PollOne => {
                    let out = world.poll_one();
                    queued -= u32::from(out.is_some());
                    prop_assert_eq!(out, model.dequeue());
                }
                Step::Quanta(eighths) => {
                    let next = with_quanta(&config, eighths);
                    world.become_this(spec(&next));
                    model.change_quanta(next);
                }
            }
            let stats = world.stats();
            let (own, below) = stats.split_first().unwrap();
            prop_assert_eq!(own.backlog.packets, queued);
            prop_assert_eq!(own.backlog, world.slot.qdisc().backlog());
            prop_assert_eq!(own.drops, refused);
            prop_assert_eq!(own.sent_packets + u64::from(queued) + refused, u64::from(world.came));
            let sum: u64 = below.iter().map(|stats| stats.sent_packets).sum();
            prop_assert_eq!(own.sent_packets, sum);
            let sum: u32 = below.iter().map(|stats| stats.backlog.packets).sum();
            prop_assert_eq!(queued, sum);
            prop_assert_eq!(own.sent_bytes, below.iter().map(|stats| stats.sent_bytes).sum::<u64>());
        }
    }

    /// Whatever changes: classes that stay lose and reorder nothing, and packets of the others
    /// count as dropped.
    #[test]
    fn a_change_touches_no_other_class(
        configs in prop::collection::vec(config(), 1..6),
        steps in prop::collection::vec(step(), 20..200),
    ) {
        let same = |config: &Config| Config { discipline: configs[0].discipline, ..config.clone() };
        let mut world = World::new(spec(&configs[0]));
        let (mut left, mut gone) = (0u64, 0u64);
        // By packet, the class in which it is; by class, the newest that has left.
        let (mut class_of, mut newest) = (Vec::new(), [0u32; 10]);
        let mut config = configs[0].clone();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Offer { class, len } => {
                    let is_there = config.classes.iter().any(|at| u32::from(at.id) == class);
                    class_of.push(if is_there { class } else { 1 });
                    world.offer(class, len);
                }
                Step::Poll(_) | Step::PollOne => {
                    let Some(id) = world.poll_one() else { continue };
                    left += 1;
                    let class = class_of[id as usize] as usize;
                    prop_assert!(newest[class] <= id, "class {} reordered", class);
                    newest[class] = id;
                }
                Step::Quanta(_) => {
                    let next = same(&configs[number % configs.len()]);
                    world.dropped();
                    let before = world.slot.qdisc().backlog().packets;
                    world.become_this(spec(&next));
                    let dropped = world.dropped();
                    prop_assert!(dropped.iter().all(|(why, _)| *why == DropReason::ClassGone));
                    let dropped: u64 = dropped.iter().map(|(_, count)| count).sum();
                    let after = world.slot.qdisc().backlog().packets;
                    prop_assert_eq!(u64::from(before - after), dropped);
                    gone += dropped;
                    config = next;
                }
            }
            let own = &world.stats()[0];
            prop_assert!(own.drops >= gone);
            let accounted = left + own.drops + u64::from(own.backlog.packets);
            prop_assert_eq!(accounted, u64::from(world.came));
        }
    }

    /// All packets can be taken out to be queued elsewhere.
    #[test]
    fn all_that_is_queued_can_be_drained(
        config in config(),
        offers in prop::collection::vec((0u32..10, 60u32..1_600), 1..60),
        polls in 0usize..10,
    ) {
        let mut world = World::new(spec(&config));
        for (class, len) in offers {
            world.offer(class, len);
        }
        world.poll(polls);
        let queued = world.slot.qdisc().backlog().packets;
        let drops = world.stats()[0].drops;
        let mut drained = 0;
        while world.slot.qdisc_mut().drain(&mut world.packets).is_some() {
            drained += 1;
        }
        prop_assert_eq!(drained, queued);
        prop_assert_eq!(world.slot.qdisc().backlog(), Backlog::default());
        prop_assert_eq!(world.stats()[0].drops, drops);
        prop_assert_eq!(world.poll(4), (vec![], Next::Empty));
    }
}

#[test]
fn each_class_tells_how_long_its_packets_stayed() {
    for (config, classes) in [(prio(2), [1, 2]), (drr(&[(1, 1_500), (2, 1_500)]), [1, 2])] {
        let mut world = World::new(spec(&config));
        for class in classes {
            world.offer(class, LEN);
            world.now += Nanos::from_millis(20);
        }
        world.poll(2);
        let stats = world.stats();
        let Some(Detail::Bands(figures)) = &stats[0].detail else { panic!("{stats:?}") };
        let millis = |class: u16| {
            let counts: Vec<_> = figures.delays[&class].counts().collect();
            assert_eq!(counts.len(), 1, "{counts:?}");
            (counts[0].0.as_secs_f64() * 1e3, counts[0].1)
        };
        for (class, stayed) in [(1, 40.0), (2, 20.0)] {
            let (reported, packets) = millis(class);
            assert_eq!(packets, 1);
            assert!((reported / stayed - 1.0_f64).abs() < 0.125, "{reported} ms for {stayed}");
        }
    }
}
