//! Rates that change while packets are queued: nothing is lost, no flow starves, and bookings at
//! one rate do not count at another.

use super::world::{World, flow, hosts};
use super::{MBIT, limited, ms};
use narrows_packet::Headers;
use narrows_qdisc::Next;
use narrows_qdisc::cake::{Config, Diffserv};
use narrows_units::{Nanos, Rate};
use proptest::prelude::*;

/// A code point for each of the four tins of `diffserv4`.
const TINS: [u8; 4] = [0, 8, 34, 46];

fn autorate(rate: Option<Rate>) -> Config {
    Config { autorate: true, diffserv: Diffserv::BestEffort, rate, ..Config::default() }
}

#[test]
fn pings_pass_before_the_link_s_rate_is_known() {
    let mut world = World::new(autorate(None));
    for ping in 0..50 {
        world.arrive(flow(1), 98);
        assert_eq!(world.leave().len(), 1, "ping {ping}");
        world.run(ms(1000), |_, _| {});
    }
}

#[test]
fn after_pings_traffic_soon_passes_at_its_own_rate() {
    let mut world = World::new(autorate(None));
    for _ in 0..100 {
        world.run(ms(200), |_, _| {});
        world.arrive(flow(1), 98);
    }
    // 50 Mbit/s.
    let mut due = world.now();
    let mut come = |world: &mut World, now: Nanos| {
        while due <= now {
            world.arrive(flow(2), 1250);
            due += Nanos::from_micros(150 + due.0 / 1000 % 101);
        }
    };
    world.run(ms(1000), &mut come);
    let sent = world.sent(flow(2));
    world.run(ms(1000), &mut come);
    let sent = world.sent(flow(2)) - sent;
    assert!(sent > 4_400, "{sent} of about 5,000");
}

#[test]
fn an_estimate_survives_a_change_of_something_else() {
    let mut world = World::new(autorate(None));
    let mut due = world.now();
    world.run(ms(1000), |world, now| {
        while due <= now {
            world.arrive(flow(2), 1250);
            due += Nanos::from_micros(900 + due.0 / 1000 % 201);
        }
    });
    let known = world.figures().capacity_estimate;
    assert!(known.bits_per_sec() > 5 * MBIT, "{known:?}");
    world.retune(Config { wash: true, ..autorate(None) });
    assert_eq!(world.figures().capacity_estimate, known);
    let threshold = world.figures().tins[0].threshold;
    assert!(threshold.bits_per_sec() > 5 * MBIT && threshold < known, "{threshold:?}");
    let reported = Rate::from_bits_per_sec(MBIT);
    world.retune(autorate(Some(reported)));
    assert_eq!(world.figures().capacity_estimate, reported);
}

#[test]
fn a_higher_rate_releases_bookings_at_a_low_one() {
    let mut world = World::new(limited(8));
    for _ in 0..10 {
        world.arrive(flow(1), 1250);
    }
    assert_eq!(world.leave().len(), 1);
    world.run(ms(100), |_, _| {});
    world.retune(limited(100 * MBIT));
    assert_eq!(world.leave().len(), 0, "it has not been paid for yet");
    world.run(ms(1), |_, _| {});
    assert_eq!(world.queued(), 0);
}

/// The tins to which the next `packets` packets belong, where all have some.
fn next_tins(world: &mut World, packets: usize) -> [u32; 4] {
    let mut tins = [0; 4];
    for _ in 0..packets {
        for (tin, dscp) in TINS.into_iter().enumerate() {
            world.top_up(Headers { dscp, ..flow(100 + tin as u32) }, 5, 1000);
        }
        for left in world.leave_most(1) {
            let tin = TINS.iter().position(|dscp| *dscp == left.headers.dscp);
            tins[tin.expect("all packets have one of these code points")] += 1;
        }
    }
    tins
}

fn four_tins(rate: Option<u64>) -> Config {
    let rate = rate.map(Rate::from_bits_per_sec);
    Config { rate, diffserv: Diffserv::Diffserv4, ..Config::default() }
}

#[test]
fn without_a_rate_tins_take_turns_after_any_history() {
    let mut world = World::new(four_tins(Some(1000 * MBIT)));
    let urgent = Headers { dscp: TINS[3], ..flow(7) };
    world.keep_full(&[urgent], 50, 1250, ms(200));
    world.retune(four_tins(None));
    let tins = next_tins(&mut world, 400);
    assert!(tins[3] > 30, "voice has a seventh of the turns: {tins:?}");
    assert!(tins.iter().all(|packets| *packets > 5), "{tins:?}");
}

#[test]
fn with_a_rate_tins_are_urgent_after_any_history() {
    let mut world = World::new(four_tins(None));
    let urgent = Headers { dscp: TINS[3], ..flow(7) };
    world.keep_full(&[urgent], 50, 1250, ms(20));
    world.retune(four_tins(Some(100 * MBIT)));
    let mut voice = 0;
    world.run(ms(100), |world, _| {
        world.top_up(Headers { dscp: TINS[0], ..flow(1) }, 50, 1250);
        world.top_up(urgent, 2, 1250);
        voice = world.sent(urgent);
    });
    let before = voice;
    world.run(ms(100), |world, _| {
        world.top_up(Headers { dscp: TINS[0], ..flow(1) }, 50, 1250);
        world.top_up(urgent, 2, 1250);
    });
    // A quarter of 1000.
    assert!(world.sent(urgent) - before > 200, "{}", world.sent(urgent) - before);
}

#[derive(Clone, Debug)]
enum Step {
    /// Another rate, in bit/s.
    Rate(Option<u64>),
    /// The rate follows arrivals.
    Autorate(Option<u64>),
    /// Other tins.
    Tins(usize),
    /// This many packets of a flow, in a tin, arrive.
    Come(u32, usize, u32, u32),
    /// This many microseconds pass.
    Pass(u64),
    /// At most this many leave.
    Leave(usize),
}

fn rate() -> impl Strategy<Value = u64> {
    (3u32..34, 1.0f64..2.0).prop_map(|(power, part)| ((1u64 << power) as f64 * part) as u64)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => prop::option::weighted(0.7, rate()).prop_map(Step::Rate),
        1 => prop::option::weighted(0.5, rate()).prop_map(Step::Autorate),
        1 => (0usize..3).prop_map(Step::Tins),
        6 => (0u32..30, 0usize..4, 1u32..40, 60u32..9000)
            .prop_map(|(id, tin, packets, len)| Step::Come(id, tin, packets, len)),
        3 => (0u64..300_000).prop_map(Step::Pass),
        2 => (1usize..100).prop_map(Step::Leave),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    /// After any history: all queued packets leave in their time at the last rate, each tin gets
    /// its turns, and no packet is lost.
    #[test]
    fn nothing_starves_after_any_change_of_rate(
        steps in prop::collection::vec(step(), 1..60),
        last in prop::option::of(20 * MBIT..10_000 * MBIT),
    ) {
        let mut config = limited(100 * MBIT);
        let mut world = World::new(config);
        for step in steps {
            match step {
                Step::Rate(rate) => {
                    config.rate = rate.map(Rate::from_bits_per_sec);
                    config.autorate = false;
                    world.change(config);
                }
                Step::Autorate(rate) => {
                    config.rate = rate.map(Rate::from_bits_per_sec);
                    config.autorate = true;
                    world.change(config);
                }
                Step::Tins(tins) => {
                    let all = [Diffserv::BestEffort, Diffserv::Diffserv4, Diffserv::Precedence];
                    config.diffserv = all[tins];
                    world.change(config);
                }
                Step::Come(id, tin, packets, len) => {
                    for _ in 0..packets {
                        if world.queued() < 1000 {
                            world.arrive(Headers { dscp: TINS[tin], ..hosts(id % 5, 1, id) }, len);
                        }
                    }
                }
                Step::Pass(micros) => world.run(Nanos::from_micros(micros), |_, _| {}),
                Step::Leave(most) => drop(world.leave_most(most)),
            }
            world.check();
        }
        config.rate = last.map(Rate::from_bits_per_sec);
        config.autorate = false;
        config.diffserv = Diffserv::Diffserv4;
        world.change(config);
        let began = world.now();
        let backlog = world.stats().backlog.bytes;
        world.leave_all();
        prop_assert_eq!((world.queued(), world.next()), (0, Next::Empty));
        // And a frame that is being sent.
        let most = config.rate.map_or(Nanos::ZERO, |rate| rate.time_for(backlog) + rate.time_for(narrows_units::Bytes(20_000)));
        let took = world.now().since(began);
        prop_assert!(took <= most + ms(1), "{took:?}, and {most:?} suffice for {backlog:?}");
        if last.is_none() {
            let tins = next_tins(&mut world, 400);
            prop_assert!(tins.iter().all(|packets| *packets > 5), "{tins:?}");
        }
        world.check();
    }
}
