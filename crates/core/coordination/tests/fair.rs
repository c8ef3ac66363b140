//! What `fair` promises beyond the other strategies: all of the limit at any split, max-min fair
//! shares, and at most its burst above the limit whichever queues wake up.

mod world;

use narrows_coordination::{Coordination, Limit, Strategy, jain};
use narrows_packet::Backlog;
use narrows_qdisc::Take;
use narrows_units::{Bytes, Nanos, Rate};
use proptest::prelude::*;
use world::{World, arrival, stated_burst};

const MS: Nanos = Nanos::from_millis(1);
const FULL: u32 = 1_514;

fn mbit(mbit: u64) -> Rate {
    Rate::from_bits_per_sec(mbit * 1_000_000)
}

fn limit(rate: Rate, burst: u64) -> Limit {
    Limit { rate, burst: Bytes(burst), peak: None, backlog: Bytes(4_000_000) }
}

/// Time in which `packets` full packets leave at the limit.
fn packets(limit: Limit, packets: u64) -> Nanos {
    limit.rate.time_for(Bytes(packets * u64::from(FULL)))
}

/// Per cent of the limit that leaves each queue when parts of it (in percent) are offered.
fn delivered(limit: Limit, parts: &[u64]) -> Vec<f64> {
    let mut world = World::new(Strategy::FAIR, limit, parts.len());
    let (from, end) = (MS + packets(limit, 2_000), MS + packets(limit, 102_000));
    let offered = |part: &u64| Rate::from_bits_per_sec(limit.rate.bits_per_sec() / 100 * part);
    let offered: Vec<Rate> = parts.iter().map(offered).collect();
    world.offer_evenly(&offered, FULL, MS, end);
    let whole = limit.rate.bytes_in(end - from).0 as f64;
    let sent = |queue| 100.0 * world.sent(Some(queue), from, end) as f64 / whole;
    (0..parts.len()).map(sent).collect()
}

#[test]
fn the_heavy_queue_gets_what_the_light_one_leaves() {
    for rate in [10, 200, 500, 10_000, 100_000] {
        let parts = delivered(limit(mbit(rate), 1_514), &[80, 20]);
        let total: f64 = parts.iter().sum();
        assert!(total > 99.5, "{rate} Mbit/s: {parts:?}");
    }
}

#[test]
fn one_elephant_leaves_the_mice_alone_and_gets_the_rest() {
    for rate in [50, 1_000, 25_000] {
        let mut loads = vec![1; 15];
        loads.push(300);
        let parts = delivered(limit(mbit(rate), 10_000), &loads);
        assert!(parts.iter().sum::<f64>() > 99.5, "{rate} Mbit/s: {parts:?}");
        assert!(parts[..15].iter().all(|part| *part > 0.95), "{rate} Mbit/s: {parts:?}");
    }
}

#[test]
fn backlogged_queues_get_equal_parts_however_much_they_are_offered() {
    for rate in [20, 400, 2_000, 40_000] {
        let parts = delivered(limit(mbit(rate), 1_514), &[400, 100, 50, 10]);
        let expected = [30.0, 30.0, 30.0, 10.0];
        for (part, expected) in parts.iter().zip(expected) {
            assert!((part - expected).abs() < 2.5, "{rate} Mbit/s: {parts:?}");
        }
        assert!(jain(&parts[..3]) > 0.998, "{rate} Mbit/s: {parts:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// At any split, the offered load leaves up to the limit.
    #[test]
    fn any_split_uses_the_limit(
        rate in prop_oneof![Just(20u64), Just(300), Just(1_000), Just(15_000), Just(100_000)],
        mut parts in prop::collection::vec(1u64..100, 2..17),
    ) {
        let sum: u64 = parts.iter().sum();
        parts.iter_mut().for_each(|part| *part = (*part * 100).div_ceil(sum));
        let total: f64 = delivered(limit(mbit(rate), 1_514), &parts).iter().sum();
        prop_assert!(total > 99.5, "{} Mbit/s, {:?}: {}", rate, parts, total);
    }
}

proptest! {
    /// The sum over all meters never exceeds rate x window + the stated burst, however late
    /// workers are; nothing starves: all that was accepted leaves.
    #[test]
    fn the_limit_is_kept_in_every_window(
        rate in 1u64..200_000,
        burst in 1_538u64..100_000,
        late in prop_oneof![Just(0u64), 1u64..20_000],
        arrivals in prop::collection::vec(arrival(1_538), 1..200),
    ) {
        let limit = limit(mbit(rate), burst);
        let mut world = World::new(Strategy::FAIR, limit, 4);
        let (_, accepted) = world.replay(&arrivals, Nanos(late));
        let excess = world.worst_excess(limit, Nanos::ZERO);
        // Each of the four meters pays for whole nanoseconds.
        let most = stated_burst(limit) + limit.rate.bytes_in(Nanos(4)).0 + 1;
        prop_assert!(excess <= most, "{} above {}", excess, most);
        prop_assert_eq!(world.sent(None, Nanos::ZERO, Nanos::MAX), accepted);
        prop_assert_eq!(world.backlog(), Bytes::ZERO);
    }
}

#[test]
fn queues_that_wake_up_together_exceed_the_limit_by_a_few_packets() {
    let limit = limit(mbit(15_000), 1_514);
    let mut world = World::new(Strategy::FAIR, limit, 40);
    let (four, all): (Vec<usize>, Vec<usize>) = ((0..4).collect(), (0..40).collect());
    let wake = MS + MS + MS;
    world.flood_until(&four, &[FULL], MS, wake);
    world.flood_until(&all, &[FULL], wake, wake + MS + MS);
    let excess = world.worst_excess(limit, wake);
    assert!(excess <= limit.rate.bytes_in(Nanos::from_micros(11)).0, "{excess} bytes");
    let from = wake + MS;
    let shares: Vec<f64> =
        (0..40).map(|queue| world.sent(Some(queue), from, from + MS) as f64).collect();
    assert!(jain(&shares) > 0.98, "{shares:?}");
}

#[test]
fn long_packets_do_not_starve_among_short_ones() {
    let limit = limit(mbit(1_000), 20_000);
    let mut world = World::new(Strategy::FAIR, limit, 2);
    world.flood_until(&[0, 1], &[9_000, 64], Nanos(1), Nanos::from_millis(20));
    let long = world.sent(Some(0), MS, Nanos::from_millis(20)) as f64;
    let whole = limit.rate.bytes_in(Nanos::from_millis(19)).0 as f64;
    assert!((0.45..0.55).contains(&(long / whole)), "{}", long / whole);
}

/// A worker reads its clock once a batch and may be interrupted before it looks at the ledger.
#[test]
fn old_clock_readings_do_not_make_time_run_faster() {
    let limit = limit(mbit(10_000), 1_514);
    let coordination = Coordination::new(Strategy::FAIR, limit, 3);
    let mut meters: Vec<_> = (0..3).map(|meter| coordination.meter(meter)).collect();
    // When each reads its clock (not before its last look at the ledger), and when it looks.
    let mut read = [MS; 3];
    let mut looks = [MS, MS + Nanos(300), MS + Nanos(700)];
    let (mut now, mut sent, mut turn) = (MS, 0, 0u64);
    let standing = Backlog { packets: 100, bytes: Bytes(100 * u64::from(FULL)) };
    while now < Nanos::from_millis(101) {
        let number = (0..3).min_by_key(|number| looks[*number]).unwrap();
        now = looks[number];
        let meter = &mut meters[number];
        while meter.take(Bytes(u64::from(FULL)), Nanos::ZERO, read[number]) == Take::Granted {
            sent += u64::from(FULL);
        }
        meter.report(standing, read[number]);
        turn += 1;
        let interrupted = Nanos(turn.wrapping_mul(2_654_435_761) % 12_000);
        read[number] = now + Nanos(100);
        looks[number] = read[number] + interrupted;
    }
    let most = limit.rate.bytes_in(now - MS).0 + stated_burst(limit);
    assert!(sent <= most, "{sent} of {most}");
    assert!(sent as f64 > 0.999 * most as f64, "{sent} of {most}");
}

/// Four meters at 20 Mbit/s, of which the first three have packets all the time and yield; the last
/// has one every 10 ms. What each sent, how long each packet of the last had to wait, and all
/// departures.
fn beside_yielding(last_yields: bool) -> ([u64; 4], Vec<Nanos>, Vec<(Nanos, u64)>) {
    const COST: Bytes = Bytes(FULL as u64);
    let coordination = Coordination::new(Strategy::FAIR, limit(mbit(20), 4_614), 4);
    let mut meters: Vec<_> = (0..4).map(|meter| coordination.meter(meter)).collect();
    let yields = [true, true, true, last_yields];
    meters.iter_mut().zip(yields).for_each(|(meter, yields)| meter.yields(yields));
    let mut looks = [MS, MS + Nanos(10_000), MS + Nanos(20_000), MS + Nanos(30_000)];
    let (mut came, mut waits) = (looks[3], Vec::new());
    let (mut sent, mut left) = ([0; 4], Vec::new());
    for turn in 0u64.. {
        let number = (0..4).min_by_key(|number| looks[*number]).unwrap();
        let now = looks[number];
        if now > Nanos::from_secs(4) {
            break;
        }
        let mut queued = Backlog { packets: 9, bytes: Bytes(9 * COST.0) };
        let next = match meters[number].take(COST, Nanos::ZERO, now) {
            Take::Wait(when) => when,
            Take::Granted => {
                left.push((now, COST.0));
                sent[number] += COST.0;
                if number == 3 {
                    waits.push(now - came);
                    came += Nanos::from_millis(10);
                    queued = Backlog::default();
                    came
                } else {
                    now + Nanos(1)
                }
            }
        };
        meters[number].report(queued, now);
        // Cores wake up late.
        looks[number] = next + Nanos(turn.wrapping_mul(2_654_435_761) % 20_000);
    }
    (sent, waits, left)
}

#[test]
fn urgent_packets_rarely_wait_for_more_than_half_a_packet() {
    // A packet takes 606 us, and a core is up to 20 us late.
    let longer = |last_yields| {
        let (_, waits, _) = beside_yielding(last_yields);
        let longer = waits.iter().filter(|wait| **wait > Nanos::from_micros(325)).count();
        longer as f64 / waits.len() as f64
    };
    let part = longer(false);
    assert!(part < 0.02, "{part}");
    let part = longer(true);
    assert!(part > 0.1, "{part}: the test has lost its point");
}

#[test]
fn yielding_queues_share_evenly_within_the_limit() {
    let (sent, _, left) = beside_yielding(false);
    let shares = sent.map(|bytes| bytes as f64);
    assert!(jain(&shares[..3]) > 0.999, "{sent:?}");
    let limit = limit(mbit(20), 4_614);
    for (first, &(from, _)) in left.iter().enumerate() {
        let mut bytes = 0;
        for &(at, more) in &left[first..] {
            bytes += more;
            let most = limit.rate.bytes_in(at - from).0 + stated_burst(limit) + 4;
            assert!(bytes <= most, "{bytes} of {most} from {from} to {at}");
        }
    }
    let whole = limit.rate.bytes_in(left[left.len() - 1].0 - left[0].0).0;
    let all: u64 = sent.iter().sum();
    assert!(all as f64 > 0.999 * whole as f64, "{all} of {whole}");
}
