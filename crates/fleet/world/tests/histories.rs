//! Random histories with faults: the sum of what is in force never exceeds the limit.

use narrows_fleet_world::{Fault, Network, Place, Settings, World};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const LIMIT_BPS: u64 = 1_000_000_000;

fn settings(boxes: usize, seed: u64, network: Network) -> Settings {
    Settings {
        boxes,
        interval_ns: 50 * MS,
        lease_ns: 2_000 * MS,
        network,
        order_ns: MS,
        drift_ppm: 5_000,
        seed,
    }
}

fn equal(boxes: usize) -> impl Fn(usize) -> Vec<Place> {
    move |_| {
        let safe_bps = LIMIT_BPS / boxes as u64;
        vec![Place { name: "uplink".into(), limit_bps: LIMIT_BPS, safe_bps, rejoins: false }]
    }
}

#[test]
fn a_box_that_needs_more_borrows_what_others_do_not_use() {
    let mut world = World::new(settings(4, 1, Network::of_delay_ms(20)), equal(4));
    world.demand(4_000 * MS, 0, "uplink", 2 * LIMIT_BPS);
    world.run(4_300 * MS);
    let share = world.in_force_bps(0, "uplink");
    assert!(share > LIMIT_BPS / 100 * 95, "{share}");
    assert_eq!(world.outcome().worst_excess_bps(), 0);
}

#[test]
fn of_two_rates_for_a_limit_the_smaller_one_holds() {
    let limits_bps = [LIMIT_BPS, LIMIT_BPS / 2];
    let place = |id: usize| Place {
        name: "uplink".into(),
        limit_bps: limits_bps[id],
        safe_bps: limits_bps[id] / 2,
        rejoins: false,
    };
    let mut world = World::new(settings(2, 1, Network::of_delay_ms(20)), |id| vec![place(id)]);
    for id in 0..2 {
        world.demand(0, id, "uplink", 2 * LIMIT_BPS);
    }
    world.run(8_000 * MS);
    let shares = [0, 1].map(|id| world.in_force_bps(id, "uplink"));
    let sum = shares.iter().sum::<u64>();
    assert!(sum <= LIMIT_BPS / 2 && sum > LIMIT_BPS / 2 / 100 * 95, "{shares:?}");
}

#[test]
fn a_limit_that_no_other_box_has_stays_at_what_its_box_owns() {
    let place = |name: &str| Place {
        name: name.into(),
        limit_bps: LIMIT_BPS,
        safe_bps: LIMIT_BPS / 4,
        rejoins: false,
    };
    let places = |id| match id {
        0 => vec![place("uplink"), place("misspelt")],
        _ => vec![place("uplink")],
    };
    let mut world = World::new(settings(4, 1, Network::of_delay_ms(20)), places);
    for name in ["uplink", "misspelt"] {
        world.demand(0, 0, name, LIMIT_BPS);
    }
    world.run(8_000 * MS);
    let shares = ["uplink", "misspelt"].map(|name| world.in_force_bps(0, name));
    assert!(shares[0] > LIMIT_BPS / 100 * 95, "the others lend: {shares:?}");
    assert_eq!(shares[1], LIMIT_BPS / 4);
}

#[test]
fn a_box_that_wakes_has_its_share_after_three_intervals() {
    for seed in 0..20 {
        let mut world = World::new(settings(4, seed, Network::of_delay_ms(20)), equal(4));
        for id in 0..3 {
            world.demand(0, id, "uplink", LIMIT_BPS);
        }
        world.run(6_000 * MS);
        let begin = world.now();
        world.demand(begin, 3, "uplink", LIMIT_BPS);
        let share = |world: &World| world.in_force_bps(3, "uplink") as f64 / (LIMIT_BPS / 4) as f64;
        world.run(begin + 1);
        assert!(share(&world) < 0.05, "{}", share(&world));
        world.run(begin + 150 * MS);
        assert!(share(&world) > 0.98, "seed {seed}: {}", share(&world));
        assert_eq!(world.outcome().worst_excess_bps(), 0);
    }
}

#[test]
fn a_box_that_wakes_again_has_its_share_again() {
    let mut world = World::new(settings(4, 9, Network::of_delay_ms(20)), equal(4));
    for id in 0..3 {
        world.demand(0, id, "uplink", LIMIT_BPS);
    }
    world.run(6_000 * MS);
    for _ in 0..10 {
        let begin = world.now();
        world.demand(begin, 3, "uplink", LIMIT_BPS);
        world.run(begin + 150 * MS);
        let share_bps = world.in_force_bps(3, "uplink");
        assert!(share_bps >= LIMIT_BPS / 4 / 100 * 98, "{share_bps}");
        world.demand(begin + 1_000 * MS, 3, "uplink", 0);
        world.run(begin + 2_000 * MS);
    }
}

#[test]
fn what_a_dead_box_borrowed_is_used_by_others_after_the_lease() {
    let mut world = World::new(settings(4, 2, Network::of_delay_ms(20)), equal(4));
    world.demand(0, 0, "uplink", 2 * LIMIT_BPS);
    world.run(6_000 * MS);
    assert!(world.in_force_bps(0, "uplink") > LIMIT_BPS / 100 * 95);
    // The box is gone, and its traffic goes through the others.
    world.fault(6_000 * MS, Fault::KillAgent { at: 0, back_ns: None });
    for id in 1..4 {
        world.demand(6_000 * MS, id, "uplink", LIMIT_BPS);
    }
    world.run(6_000 * MS + 2_400 * MS);
    let sum: u64 = (1..4).map(|id| world.in_force_bps(id, "uplink")).sum();
    assert!(sum > LIMIT_BPS / 100 * 74, "{sum}");
    assert_eq!(world.outcome().worst_excess_bps(), 0);
}

#[test]
fn both_sides_of_a_cut_fall_to_what_they_own() {
    let mut world = World::new(settings(4, 3, Network::of_delay_ms(20)), equal(4));
    world.demand(0, 0, "uplink", 2 * LIMIT_BPS);
    world.run(6_000 * MS);
    world.fault(6_000 * MS, Fault::Cut(0b0001));
    world.run(9_500 * MS);
    let alone = world.in_force_bps(0, "uplink");
    assert!(alone.abs_diff(LIMIT_BPS / 4) < LIMIT_BPS / 100, "{alone}");
    world.fault(9_500 * MS, Fault::Cut(0));
    world.run(10_500 * MS);
    assert!(world.in_force_bps(0, "uplink") > LIMIT_BPS / 100 * 95);
    assert_eq!(world.outcome().worst_excess_bps(), 0);
}

/// Boxes whose shares can be claimed while they are off.
fn rejoining(boxes: usize) -> impl Fn(usize) -> Vec<Place> {
    move |id| equal(boxes)(id).into_iter().map(|place| Place { rejoins: true, ..place }).collect()
}

/// Four boxes, the last of which has been off since the sixth second, for so long. The first could
/// use all.
fn with_one_off(back_ns: Option<u64>) -> World {
    let mut world = World::new(settings(4, 6, Network::of_delay_ms(20)), rejoining(4));
    world.demand(0, 0, "uplink", 2 * LIMIT_BPS);
    world.fault(6_000 * MS, Fault::PowerOff { at: 3, back_ns });
    world
}

fn part_of_limit(world: &World, id: usize) -> f64 {
    world.in_force_bps(id, "uplink") as f64 / LIMIT_BPS as f64
}

#[test]
fn boxes_that_rejoin_have_their_shares_once_all_are_heard() {
    let mut world = World::new(settings(4, 6, Network::of_delay_ms(20)), rejoining(4));
    world.demand(0, 0, "uplink", 2 * LIMIT_BPS);
    world.run(4_000 * MS);
    assert!(part_of_limit(&world, 0) > 0.95, "{}", part_of_limit(&world, 0));
    assert_eq!(world.outcome().worst_excess_bps(), 0);
}

#[test]
fn the_share_of_a_box_that_is_off_is_used_once_an_operator_says_so() {
    let mut world = with_one_off(None);
    world.run(20_000 * MS);
    assert!(part_of_limit(&world, 0) < 0.76, "{}", part_of_limit(&world, 0));
    // Said to one box, it is used by another.
    world.forget(20_000 * MS, 1, vec![3]);
    world.run(22_900 * MS);
    assert!(part_of_limit(&world, 0) < 0.76, "what it lent may be in force elsewhere");
    world.run(24_000 * MS);
    assert!(part_of_limit(&world, 0) > 0.95, "{}", part_of_limit(&world, 0));
    assert_eq!(world.outcome().worst_excess_bps(), 0);
}

#[test]
fn an_agent_that_starts_again_still_knows_who_is_off() {
    let mut world = with_one_off(None);
    world.forget(10_000 * MS, 1, vec![3]);
    world.fault(20_000 * MS, Fault::KillAgent { at: 1, back_ns: Some(500 * MS) });
    world.run(19_999 * MS);
    assert!(part_of_limit(&world, 0) > 0.95);
    world.run(30_000 * MS);
    assert!(part_of_limit(&world, 0) > 0.95, "{}", part_of_limit(&world, 0));
    assert_eq!(world.outcome().worst_excess_bps(), 0);
}

#[test]
fn a_box_that_is_back_begins_with_its_small_part_and_has_its_share_soon() {
    let mut world = with_one_off(Some(20_000 * MS));
    world.forget(10_000 * MS, 1, vec![3]);
    for id in 0..4 {
        world.demand(25_000 * MS, id, "uplink", LIMIT_BPS);
    }
    world.run(26_001 * MS);
    assert!(part_of_limit(&world, 3) < 0.01, "{}", part_of_limit(&world, 3));
    // Until three seconds after the start, what an agent lent before may be in force elsewhere.
    world.run(29_500 * MS);
    assert!(part_of_limit(&world, 3) > 0.24, "{}", part_of_limit(&world, 3));
    assert_eq!(world.outcome().worst_excess_bps(), 0);
}

#[test]
fn a_box_that_is_back_and_cut_off_has_its_small_part_until_it_hears_all() {
    let mut world = with_one_off(Some(20_000 * MS));
    world.forget(10_000 * MS, 1, vec![3]);
    world.demand(0, 3, "uplink", LIMIT_BPS);
    world.fault(25_000 * MS, Fault::Cut(0b1000));
    world.run(60_000 * MS);
    assert!(part_of_limit(&world, 3) < 0.01, "{}", part_of_limit(&world, 3));
    assert!(part_of_limit(&world, 0) > 0.95, "{}", part_of_limit(&world, 0));
    world.fault(60_000 * MS, Fault::Cut(0));
    world.run(62_000 * MS);
    assert!(part_of_limit(&world, 3) > 0.24, "{}", part_of_limit(&world, 3));
    assert_eq!(world.outcome().worst_excess_bps(), 0);
}

#[test]
fn a_share_that_two_boxes_claim_at_once_has_at_most_one_of_them() {
    let mut world = with_one_off(None);
    world.forget(10_000 * MS, 0, vec![3]);
    world.forget(10_000 * MS, 1, vec![3]);
    world.run(20_000 * MS);
    assert_eq!(world.outcome().worst_excess_bps(), 0);
    // Said again to one of them, it is used.
    world.forget(20_000 * MS, 1, vec![3]);
    world.run(25_000 * MS);
    assert!(part_of_limit(&world, 0) > 0.95, "{}", part_of_limit(&world, 0));
    assert_eq!(world.outcome().worst_excess_bps(), 0);
}

#[test]
fn boxes_that_are_off_together_are_forgotten_together() {
    let mut world = with_one_off(None);
    world.fault(7_000 * MS, Fault::PowerOff { at: 2, back_ns: None });
    world.forget(10_000 * MS, 1, vec![3]);
    world.run(20_000 * MS);
    assert!(part_of_limit(&world, 0) < 0.51, "the other one might claim it, too");
    world.forget(20_000 * MS, 1, vec![2, 3]);
    world.run(25_000 * MS);
    assert!(part_of_limit(&world, 0) > 0.95, "{}", part_of_limit(&world, 0));
    assert_eq!(world.outcome().worst_excess_bps(), 0);
}

#[test]
fn a_data_plane_that_starts_again_is_set_at_once() {
    let mut world = World::new(settings(2, 4, Network::of_delay_ms(5)), equal(2));
    world.demand(0, 0, "uplink", 2 * LIMIT_BPS);
    world.run(6_000 * MS);
    world.fault(6_000 * MS, Fault::RestartDataPlane(0));
    world.run(6_000 * MS + 200 * MS);
    assert!(world.in_force_bps(0, "uplink") > LIMIT_BPS / 100 * 95);
    assert_eq!(world.outcome().worst_excess_bps(), 0);
}

fn used(boxes: usize, delay_ms: u64) -> f64 {
    let mut world = World::new(settings(boxes, 5, Network::of_delay_ms(delay_ms)), equal(boxes));
    // 80/20: one box has four fifths of the demand, and every ten seconds another one.
    for turn in 0..7_u64 {
        for id in 0..boxes {
            let is_first = turn as usize % boxes == id;
            let part = if is_first { 0.80 } else { 0.20 / (boxes - 1) as f64 };
            let demand = (LIMIT_BPS as f64 * part * 1.05) as u64;
            world.demand(turn * 10_000 * MS, id, "uplink", demand);
        }
    }
    world.run(10_000 * MS);
    world.begin_measurement();
    world.run(70_000 * MS);
    assert_eq!(world.outcome().worst_excess_bps(), 0);
    world.outcome().used
}

#[test]
fn a_skewed_demand_that_moves_uses_the_limit() {
    let near = used(4, 20);
    assert!(near >= 0.99, "{near}");
    let far = used(4, 200);
    assert!(far >= 0.95, "{far}");
}

/// Jain's index of the rates of flows, all of those of a box being equal.
fn jain(rates: &[(f64, u32)]) -> f64 {
    let flows: f64 = rates.iter().map(|&(_, flows)| f64::from(flows)).sum();
    let sum: f64 = rates.iter().map(|(rate, _)| rate).sum();
    let squares: f64 = rates.iter().map(|&(rate, flows)| rate * rate / f64::from(flows)).sum();
    sum * sum / (flows * squares)
}

/// What each box sends from `from` to `to`, as parts of the limit.
fn parts_sent(world: &mut World, boxes: usize, from: u64, to: u64) -> Vec<f64> {
    world.run(from);
    let before: Vec<u64> = (0..boxes).map(|id| world.sent_bytes(id, "uplink")).collect();
    world.run(to);
    let all = (to - from) as f64 / 8e9 * LIMIT_BPS as f64;
    (0..boxes).map(|id| (world.sent_bytes(id, "uplink") - before[id]) as f64 / all).collect()
}

/// Two boxes with 12 and with 4 flows that all want the limit.
fn twelve_and_four(seed: u64) -> World {
    let mut world = World::new(settings(2, seed, Network::of_delay_ms(20)), equal(2));
    for (id, flows) in [(0, 12), (1, 4)] {
        world.demand(0, id, "uplink", LIMIT_BPS);
        world.flows(0, id, "uplink", Some(flows));
    }
    world
}

#[test]
fn each_flow_has_as_much_as_every_other_whatever_its_box() {
    for seed in 0..10 {
        let mut world = twelve_and_four(seed);
        let parts = parts_sent(&mut world, 2, 6_000 * MS, 16_000 * MS);
        let fair = jain(&[(parts[0], 12), (parts[1], 4)]);
        assert!(fair > 0.99, "seed {seed}: {fair} of {parts:?}");
        assert!(parts[0] + parts[1] > 0.985, "seed {seed}: {parts:?}");
        assert_eq!(world.outcome().worst_excess_bps(), 0);
    }
}

#[test]
fn flows_that_move_to_another_box_take_their_share_along_within_two_seconds() {
    for seed in 0..10 {
        let mut world = twelve_and_four(seed);
        world.flows(6_000 * MS, 0, "uplink", Some(4));
        world.flows(6_000 * MS, 1, "uplink", Some(12));
        let parts = parts_sent(&mut world, 2, 8_000 * MS, 10_000 * MS);
        let fair = jain(&[(parts[0], 4), (parts[1], 12)]);
        assert!(fair > 0.98, "seed {seed}: {fair} of {parts:?}");
        assert_eq!(world.outcome().worst_excess_bps(), 0);
    }
}

#[test]
fn a_box_that_does_not_count_flows_makes_all_share_by_box() {
    let mut world = twelve_and_four(1);
    world.flows(0, 1, "uplink", None);
    let parts = parts_sent(&mut world, 2, 6_000 * MS, 10_000 * MS);
    assert!((0.49..0.51).contains(&parts[1]), "{parts:?}");
}

#[test]
fn a_box_of_an_older_release_makes_all_share_by_box() {
    let mut world = World::new(settings(3, 7, Network::of_delay_ms(20)), equal(3));
    for (id, flows) in [(0, 12), (1, 4), (2, 1)] {
        world.demand(0, id, "uplink", LIMIT_BPS);
        world.flows(0, id, "uplink", Some(flows));
    }
    world.make_older(2);
    let parts = parts_sent(&mut world, 3, 6_000 * MS, 10_000 * MS);
    assert!(parts.iter().all(|part| (0.32..0.34).contains(part)), "{parts:?}");
    assert!(world.outcome().refused <= 2, "once it is heard, all speak as it does");
    // Without it, and what it owns, the others share by flow.
    world.fault(10_000 * MS, Fault::KillAgent { at: 2, back_ns: Some(15_000 * MS) });
    let parts = parts_sent(&mut world, 3, 16_000 * MS, 24_000 * MS);
    let fair = jain(&[(parts[0], 12), (parts[1], 4)]);
    assert!(fair > 0.99 && (0.32..0.34).contains(&parts[2]), "{fair} of {parts:?}");
    let parts = parts_sent(&mut world, 3, 30_000 * MS, 34_000 * MS);
    assert!(parts.iter().all(|part| (0.32..0.34).contains(part)), "{parts:?}");
    assert_eq!(world.outcome().worst_excess_bps(), 0);
}

#[test]
fn a_box_that_claims_a_million_flows_leaves_the_others_what_they_keep_for_a_first_flow() {
    let mut world = twelve_and_four(1);
    world.flows(0, 1, "uplink", Some(1_000_000));
    let parts = parts_sent(&mut world, 2, 6_000 * MS, 7_000 * MS);
    assert!(parts[0] > 0.003 && parts[0] < 0.02, "{parts:?}");
    assert_eq!(world.outcome().worst_excess_bps(), 0);
}

#[test]
fn flows_that_the_limit_does_not_hold_back_lose_nothing_to_the_many_of_another_box() {
    let mut world = twelve_and_four(1);
    // Forty that want a hundredth each.
    world.demand(0, 1, "uplink", LIMIT_BPS / 100 * 40);
    world.flows(0, 1, "uplink", Some(40));
    let parts = parts_sent(&mut world, 2, 6_000 * MS, 8_000 * MS);
    assert!(parts[1] > 0.395 && parts[0] > 0.59, "{parts:?}");
    // They are not held back, so the count of those that wait says nothing.
    world.flows(8_000 * MS, 1, "uplink", Some(1));
    let parts = parts_sent(&mut world, 2, 8_000 * MS, 12_000 * MS);
    assert!(parts[1] > 0.395 && parts[0] > 0.59, "{parts:?}");
}

#[derive(Clone, Debug)]
enum Step {
    /// What the box's qdiscs count from now on.
    Flows(usize, Option<u32>),
    /// The box's agent is of an older release.
    Older(usize),
    Demand {
        box_id: usize,
        percent: u64,
    },
    Fault(Fault),
    /// The operator says to a box who of these is off, as far as it is true.
    Forget(usize, Vec<usize>),
}

impl Step {
    /// Plans it at `at`, in milliseconds.
    fn plan(self, world: &mut World, at: u64) {
        match self {
            Self::Demand { box_id, percent } => {
                world.demand(at * MS, box_id, "uplink", LIMIT_BPS / 100 * percent);
            }
            Self::Flows(id, flows) => world.flows(at * MS, id, "uplink", flows),
            Self::Older(id) => world.make_older(id),
            Self::Fault(fault) => world.fault(at * MS, fault),
            Self::Forget(id, off) => world.forget(at * MS, id, off),
        }
    }
}

/// Steps of boxes of which some are off for a while, and most are forgotten.
fn steps_with_power(boxes: usize) -> impl Strategy<Value = Vec<(u64, Step)>> {
    let at = 0..50_000_u64;
    let off = (0..boxes, prop::option::weighted(0.8, 0..20_000_u64));
    let off = (at.clone(), off).prop_map(|(at, (id, back))| {
        let back_ns = back.map(|ms| ms * MS);
        (at, Step::Fault(Fault::PowerOff { at: id, back_ns }))
    });
    let forget = (at, 0..boxes, prop::collection::vec(0..boxes, 1..=boxes));
    let forget = forget.prop_map(|(at, id, off)| (at, Step::Forget(id, off)));
    let power = prop::collection::vec(prop_oneof![1 => off, 3 => forget], 0..30);
    let others = steps(boxes)
        .prop_map(|steps| steps.into_iter().map(|(at, step)| (3 * at, step)).collect::<Vec<_>>());
    (power, others).prop_map(|(power, others)| power.into_iter().chain(others).collect())
}

fn steps(boxes: usize) -> impl Strategy<Value = Vec<(u64, Step)>> {
    let at = 0..15_000_u64;
    let id = 0..boxes;
    let demand = (id.clone(), prop_oneof![Just(0_u64), 1..200_u64]);
    let step = prop_oneof![
        6 => demand.prop_map(|(box_id, percent)| Step::Demand { box_id, percent }),
        1 => (id.clone(), prop::option::weighted(0.9, 0..4_000_u64)).prop_map(|(at, back)| {
            Step::Fault(Fault::KillAgent { at, back_ns: back.map(|ms| ms * MS) })
        }),
        1 => (id.clone(), 1..7_000_u64).prop_map(|(at, ms)| Step::Fault(Fault::StallAgent { at, for_ns: ms * MS })),
        1 => id.clone().prop_map(|id| Step::Fault(Fault::RestartDataPlane(id))),
        4 => (id.clone(), prop::option::weighted(0.9, 0..40_u32)).prop_map(|(id, flows)| Step::Flows(id, flows)),
        1 => prop::option::weighted(0.1, id).prop_map(|id| id.map_or(Step::Fault(Fault::Cut(0)), Step::Older)),
        2 => (0..1_u64 << boxes).prop_map(|mask| Step::Fault(Fault::Cut(mask))),
    ];
    prop::collection::vec((at, step), 0..40)
}

fn networks() -> impl Strategy<Value = Network> {
    let parts = (0..100_u64, 0..200_u64, 0.0..0.4, 0.0..0.3, 0.0..0.1, 0..8_000_u64);
    parts.prop_map(|(delay, jitter, loss, copies, late, late_ms)| Network {
        delay_ns: delay * MS,
        jitter_ns: jitter * MS,
        loss,
        copies,
        late,
        late_ns: late_ms * MS,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_sum_never_exceeds_the_limit(
        seed in any::<u64>(),
        network in networks(),
        order_ms in prop_oneof![3 => Just(1_u64), 1 => 0..2_500_u64],
        (boxes, steps) in (2..6_usize).prop_flat_map(|boxes| (Just(boxes), steps(boxes))),
    ) {
        let settings = Settings { order_ns: order_ms * MS, ..settings(boxes, seed, network) };
        let mut world = World::new(settings, equal(boxes));
        for (at, step) in steps {
            step.plan(&mut world, at);
        }
        world.run(20_000 * MS);
        let outcome = world.outcome();
        prop_assert_eq!(outcome.worst_excess_bps(), 0, "first at {:?}", outcome.first_excess_ns);
    }

    #[test]
    fn the_sum_never_exceeds_the_limit_where_boxes_are_off_and_forgotten(
        seed in any::<u64>(),
        network in prop_oneof![Just(Network::of_delay_ms(20)), networks()],
        (boxes, steps) in
            (2..6_usize).prop_flat_map(|boxes| (Just(boxes), steps_with_power(boxes))),
    ) {
        let mut world = World::new(settings(boxes, seed, network), rejoining(boxes));
        for (at, step) in steps {
            step.plan(&mut world, at);
        }
        world.run(60_000 * MS);
        let outcome = world.outcome();
        prop_assert_eq!(outcome.worst_excess_bps(), 0, "first at {:?}", outcome.first_excess_ns);
    }
}
