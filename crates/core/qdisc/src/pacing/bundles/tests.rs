//! Estimates, turns and congestion, seen from outside.

use super::*;
use crate::Alone;
use crate::pacing::safeguard::CONGESTION;

const FRAME: Bytes = Bytes(1500);

fn listening(by_host: bool) -> Bundles {
    Bundles::new(FRAME, by_host).with_safeguard(Box::new(Alone::default()))
}

/// `destination` says that it has seen a mark.
fn hear(bundles: &mut Bundles, destination: u32, now: Nanos) {
    let marked = Acknowledgement { flags: 0x50, ..Acknowledgement::default() };
    assert!(bundles.hear(destination, &marked, now));
}

fn gbit(rate: f64) -> Rate {
    Rate::from_bits_per_sec((rate * 1e9) as u64)
}

/// What left until when, and the estimate then.
type Course = Vec<(Nanos, f64)>;

/// Full packets of connections with `rates` to one destination, for `span`, each held as the
/// estimate says. Their first packets leave at different times.
fn connections(bundles: &mut Bundles, rates: &[f64], begin: Nanos, span: Nanos) -> Course {
    let mut packets: Vec<u64> = rates
        .iter()
        .zip(0..)
        .flat_map(|(rate, connection)| {
            let gap = gbit(*rate).time_for(FRAME).0;
            (begin.0 + connection * 137..(begin + span).0).step_by(gap as usize)
        })
        .collect();
    packets.sort_unstable();
    let mut course = vec![];
    for at in packets {
        let slot =
            Nanos(at.next_multiple_of(1 << bundles.spacing(7, gbit(rates[0]), begin).unwrap()));
        bundles.left(7, slot, FRAME, slot);
        course.push((slot, bundles.estimate(7, slot).bits_per_sec() as f64 / 1e9));
    }
    course
}

#[test]
fn the_sum_of_ten_connections_is_known_within_200_us() {
    let mut bundles = Bundles::new(FRAME, true);
    bundles.spacing(7, gbit(2.0), Nanos::ZERO);
    let rates: Vec<f64> = (1..=10).map(|tenth| f64::from(tenth) / 10.0).collect();
    let span = Nanos::from_millis(2);
    let course = connections(&mut bundles, &rates, Nanos::from_secs(1), span);
    let settled = Nanos::from_secs(1) + Nanos::from_micros(200);
    let late: Vec<f64> =
        course.iter().filter(|(at, _)| *at > settled).map(|(_, rate)| *rate).collect();
    assert!(late.len() > 500);
    assert!(late.iter().all(|rate| (4.1..8.2).contains(rate)), "{late:?}");
    let mean = late.iter().sum::<f64>() / late.len() as f64;
    assert!((mean / 5.5 - 1.0).abs() < 0.05, "{mean}");
}

#[test]
fn an_estimate_that_is_far_off_is_corrected_at_once() {
    let mut bundles = Bundles::new(FRAME, true);
    bundles.spacing(7, gbit(20.0), Nanos::ZERO);
    let course = connections(&mut bundles, &[0.000_01], Nanos::ZERO, Nanos::from_secs(20));
    let (_, rate) = course[9];
    assert!((rate / 0.000_01 - 1.0).abs() < 0.2, "{rate} Gbit/s after nine packets");
}

#[test]
fn without_an_estimate_the_first_window_counts() {
    let mut bundles = listening(true);
    assert_eq!(bundles.spacing(7, Rate::default(), Nanos(1)), Some(0));
    for packet in 1..10 {
        let at = Nanos(packet * 1_200);
        bundles.left(7, at, FRAME, at);
    }
    let rate = bundles.estimate(7, Nanos(10_000)).bits_per_sec() as f64 / 1e9;
    assert!((rate / 10.0 - 1.0).abs() < 0.01, "{rate}");
    hear(&mut bundles, 8, Nanos(10_000));
    assert_eq!(bundles.spacing(8, Rate::default(), Nanos(10_000)), Some(0));
}

#[test]
fn a_rate_that_changes_is_followed_and_does_not_swing() {
    let mut bundles = Bundles::new(FRAME, true);
    let mut at = Nanos::from_secs(1);
    for rate in [1.0, 6.0, 1.0] {
        let course = connections(&mut bundles, &[rate], at, Nanos::from_millis(100));
        at += Nanos::from_millis(100);
        let late = course.iter().skip(100).map(|(_, estimate)| *estimate);
        let (least, most) = late.fold((f64::MAX, 0.0_f64), |(least, most), estimate| {
            (least.min(estimate), most.max(estimate))
        });
        assert!(least > rate * 0.9 && most < rate * 1.1, "{least} to {most}, not {rate}");
    }
}

#[test]
fn a_sender_that_pauses_is_not_taken_for_a_slow_one() {
    let mut bundles = Bundles::new(FRAME, true);
    let mut at = Nanos::from_secs(1);
    for _ in 0..100 {
        bundles.spacing(7, gbit(1.0), at);
        bundles.came_late(7, at);
        connections(&mut bundles, &[1.0], at, Nanos::from_micros(50));
        at += Nanos::from_millis(1);
    }
    let rate = bundles.estimate(7, at).bits_per_sec() as f64 / 1e9;
    assert!((0.8..1.2).contains(&rate), "{rate}");
}

#[test]
fn destinations_that_are_congested_are_as_fast_as_all_of_them_together() {
    let mut bundles = listening(true);
    let now = Nanos::from_secs(1);
    for destination in 0..4 {
        assert_eq!(bundles.spacing(destination, gbit(1.0), now), Some(13));
    }
    for destination in 0..4 {
        hear(&mut bundles, destination, now);
        assert!(bundles.spacing(destination, gbit(0.0), now).is_some());
    }
    assert_eq!(bundles.spacing(0, gbit(1.0), now), Some(11));
    assert_eq!(bundles.estimate(3, now), gbit(4.0));
    // Until there were no reports of it for a while.
    assert_eq!(bundles.spacing(0, gbit(1.0), now + CONGESTION), Some(13));
    let later = now + CONGESTION + LONGEST;
    hear(&mut bundles, 0, later);
    bundles.spacing(0, gbit(1.0), later);
    assert_eq!(bundles.estimate(0, later), gbit(1.0));
}

#[test]
fn a_destination_that_is_congested_again_keeps_its_measured_rate() {
    let mut bundles = listening(true);
    let mut now = Nanos::from_secs(1);
    let at_10_gbit = |bundles: &mut Bundles, now: &mut Nanos| {
        for _ in 0..400 {
            *now += Nanos(1_200);
            bundles.left(0, *now, FRAME, *now);
        }
        let rate = bundles.estimate(0, *now).bits_per_sec() as f64 / 1e9;
        assert!((9.0..11.0).contains(&rate), "{rate} Gbit/s");
    };
    bundles.spacing(0, gbit(1.0), now);
    at_10_gbit(&mut bundles, &mut now);
    for _ in 0..3 {
        hear(&mut bundles, 0, now);
        bundles.came_late(0, now);
        at_10_gbit(&mut bundles, &mut now);
        now += LONGEST - Nanos(1);
        // The time in between is no window of the one or of the other.
        at_10_gbit(&mut bundles, &mut now);
    }
}

#[test]
fn without_buckets_by_host_only_congested_hosts_are_spaced() {
    let mut bundles = listening(false);
    let now = Nanos::from_secs(1);
    assert_eq!(bundles.spacing(0, gbit(1.0), now), None);
    hear(&mut bundles, 0, now);
    assert_eq!(bundles.spacing(0, gbit(1.0), now), Some(13));
    assert_eq!(bundles.spacing(1, gbit(1.0), now), None);
    // Ten connections at a gigabit each go there: it shows.
    for packet in 0..400 {
        bundles.left(0, now + Nanos(packet * 1_200), FRAME, now);
    }
    assert_eq!(bundles.spacing(0, gbit(1.0), now), Some(10));
}
