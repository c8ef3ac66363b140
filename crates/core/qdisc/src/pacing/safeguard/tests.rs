use super::*;
use crate::Alone;

/// A safeguard that uses the feedback of its own queue only.
fn alone() -> Safeguard {
    Safeguard::new(Box::new(Alone::default()))
}

fn data(value: u32) -> Acknowledgement {
    Acknowledgement { connection: 1, time_stamp: Some((value, 0)), ..Default::default() }
}

fn answer(echo: u32) -> Acknowledgement {
    let time_stamp = Some((9, echo));
    Acknowledgement { connection: 2, is_empty: true, time_stamp, ..Default::default() }
}

/// Whether the answer that comes `micros` after the packet with the stamp `value` says so.
fn round_trip(safeguard: &mut Safeguard, value: u32, micros: u64) -> bool {
    let left = Nanos::from_millis(u64::from(value));
    safeguard.leaves(3, &data(value), left);
    safeguard.comes(3, &answer(value), left + Nanos::from_micros(micros))
}

#[test]
fn a_mark_that_was_seen_says_so() {
    let mut safeguard = alone();
    let echo = |flags| Acknowledgement { flags, ..answer(1) };
    assert!(safeguard.comes(3, &echo(0x50), Nanos(1)));
    assert!(!safeguard.comes(3, &echo(0x10), Nanos(1)));
    // It is ready to say it, once there is something to say.
    assert!(!safeguard.comes(3, &echo(0x52), Nanos(1)));
}

#[test]
fn a_round_trip_of_more_than_twice_the_shortest_says_so() {
    let mut safeguard = alone();
    let long: Vec<bool> = (1..)
        .zip([300, 200, 440, 460, 210, 900, 200])
        .map(|(value, micros)| round_trip(&mut safeguard, value, micros))
        .collect();
    assert_eq!(long, [false, false, false, true, false, true, false]);
}

#[test]
fn the_shortest_round_trip_is_not_believed_for_ever() {
    let mut safeguard = alone();
    assert!(!round_trip(&mut safeguard, 1, 100));
    assert!(round_trip(&mut safeguard, 5_000, 1_000));
    assert!(!round_trip(&mut safeguard, 10_002, 1_000));
    assert!(!round_trip(&mut safeguard, 10_003, 1_900));
}

#[test]
fn a_stamp_that_never_comes_back_is_given_up() {
    let mut safeguard = alone();
    safeguard.leaves(3, &data(1), Nanos::from_millis(1));
    safeguard.leaves(3, &data(2), Nanos::from_millis(2));
    assert!(!safeguard.comes(3, &answer(2), Nanos::from_millis(3)));
    assert!(!round_trip(&mut safeguard, 300, 100));
    assert!(round_trip(&mut safeguard, 301, 1_000));
}

#[test]
fn the_first_packet_of_a_stamp_is_timed() {
    let mut safeguard = alone();
    let micros = Nanos::from_micros;
    // Stamps change while packets of the one before are under way still.
    for (left, value) in [(100, 1), (130, 1), (160, 1), (190, 2), (220, 2), (250, 2)] {
        safeguard.leaves(3, &data(value), micros(left));
        if left >= 190 {
            assert!(!safeguard.comes(
                3,
                &answer(if left == 190 { 1 } else { 2 }),
                micros(left + 20)
            ));
        }
    }
    // 110 us were the first round trip: what takes 200 is not more than twice as long.
    assert!(!round_trip(&mut safeguard, 3, 200));
    assert!(round_trip(&mut safeguard, 4, 400));
}

#[test]
fn a_connection_that_counts_from_elsewhere_is_timed_once_it_is_alone() {
    let mut safeguard = alone();
    assert!(!round_trip(&mut safeguard, 1_000, 100));
    safeguard.leaves(3, &data(5), Nanos::from_millis(1_001));
    assert!(!safeguard.comes(3, &answer(5), Nanos::from_millis(1_003)), "it was not timed");
    safeguard.leaves(3, &data(305), Nanos::from_millis(1_301));
    assert!(safeguard.comes(3, &answer(305), Nanos::from_millis(1_303)));
}

#[test]
fn other_destinations_are_not_meant() {
    let mut safeguard = alone();
    assert!(!round_trip(&mut safeguard, 1, 100));
    safeguard.leaves(3, &data(2), Nanos::from_millis(2));
    assert!(!safeguard.comes(4, &answer(2), Nanos::from_millis(3)));
}

#[test]
fn clocks_that_are_apart_and_those_that_begin_anew_make_no_round_trip_long() {
    const TURN: Nanos = Nanos(1 << 42);
    let mut safeguard = alone();
    let micros = Nanos::from_micros;
    let turn = |times: u64| Nanos(TURN.0 * times);
    for (number, begin) in
        (1..).zip([micros(5), turn(1) - micros(60), turn(2) - micros(1), turn(7) + micros(3)])
    {
        safeguard.leaves(3, &data(number), begin);
        assert!(!safeguard.comes(3, &answer(number), begin + micros(100)));
    }
    // By the receiver's clock, the answer arrives before the packet has left.
    let begin = turn(7) + Nanos::from_secs(1);
    safeguard.leaves(3, &data(9), begin);
    assert!(!safeguard.comes(3, &answer(9), begin - micros(20)));
    safeguard.leaves(3, &data(10), begin - micros(5));
    assert!(!safeguard.comes(3, &answer(10), begin + micros(20)));
}

#[test]
fn congestion_lasts_twice_as_long_each_time_that_it_is_back() {
    let mut safeguard = alone();
    let marked = Acknowledgement { flags: 0x50, ..answer(1) };
    let mut now = Nanos::from_secs(1);
    let mut stays = vec![];
    for _ in 0..9 {
        assert!(safeguard.comes(0, &marked, now));
        let begin = now;
        while safeguard.congested_until(0, now).is_some() {
            now += Nanos::from_millis(1);
        }
        stays.push((now - begin).0 / 1_000_000);
        now += Nanos::from_millis(1);
    }
    assert_eq!(stays, [2, 4, 8, 16, 32, 64, 128, 128, 128]);
    now += LONGEST;
    assert!(safeguard.comes(0, &marked, now));
    assert_eq!(safeguard.congested_until(0, now + CONGESTION), None);
}
