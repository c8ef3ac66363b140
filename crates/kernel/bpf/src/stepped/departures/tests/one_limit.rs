//! One limit, and the flows that share it.

use super::super::{Departures, Packet};
use super::host::{BEGIN, FRAME, Host, Load, MS, SECOND, Sender, excess, jain};
use crate::tree::layout::Class;
use narrows_units::Nanos;
use std::collections::BTreeMap;

pub(super) const MBIT: u64 = 125_000;
pub(super) const LEAF: u32 = 1;
const BURST: u64 = 2 * MS;

pub(super) fn limit(rate: u64) -> Class {
    Class {
        rate,
        ceil: rate,
        burst: BURST,
        limit: 100 * MS,
        target: 5 * MS,
        interval: 100 * MS,
        quantum: 1,
        ..Class::default()
    }
}

/// A flow with a hash of its own.
fn flow(number: u32, load: Load) -> Sender {
    let hash = number.wrapping_mul(0x9e37_79b9) ^ 0x5bd1_e995;
    Sender { leaf: LEAF, hash, host: 0, load, from: 0, to: u64::MAX }
}

/// Small packets, a hundred a second.
fn ping() -> Sender {
    flow(1000, Load::Udp { rate: 9_800, bytes: 98 })
}

fn connections(count: u32) -> impl Iterator<Item = Sender> {
    (0..count).map(|number| flow(number, Load::Tcp { round_trip: 10 * MS, is_ecn: true }))
}

/// Runs them below one limit of `rate` for `seconds`.
fn run(rate: u64, senders: impl Iterator<Item = Sender>, seconds: u64) -> Host {
    Host::new(&BTreeMap::from([(LEAF, limit(rate))]), senders.collect()).run(seconds * SECOND)
}

/// By sender without pings, the bytes of all seconds but the first.
fn shares(host: &Host, senders: u32, seconds: u64) -> Vec<u64> {
    let of = |number| {
        let hash = flow(number, Load::Udp { rate: 1, bytes: 1 }).hash;
        host.bytes(SECOND, seconds * SECOND, |sender| sender.hash == hash)
    };
    (0..senders).map(of).collect()
}

#[track_caller]
fn assert_exact(host: &Host, rate: u64, seconds: u64, what: &str) {
    for second in 1..seconds {
        let bytes = host.bytes(second * SECOND, (second + 1) * SECOND, |_| true);
        // A quarter of a percent, and the packet that the second cuts.
        let most_off = rate / 400 + 2 * FRAME;
        assert!(bytes.abs_diff(rate) <= most_off, "{what}: {bytes} of {rate} bytes");
    }
}

#[test]
fn connections_share_a_limit_that_is_exact_and_a_ping_does_not_wait() {
    for mbit in [10, 100, 1_000, 10_000] {
        for count in [1, 2, 8, 64] {
            if (mbit, count) == (10, 64) {
                // Their least windows are longer than the limit.
                continue;
            }
            let (rate, seconds) = (mbit * MBIT, if mbit == 10_000 { 2 } else { 4 });
            let host = run(rate, connections(count).chain([ping()]), seconds);
            let what = format!("{count} at {mbit} Mbit/s");
            assert_exact(&host, rate, seconds, &what);
            let jain = jain(&shares(&host, count, seconds));
            assert!(jain >= 0.98, "{what}: {jain}");
            assert_eq!(host.longest_wait(count as usize, SECOND), 0, "{what}");
        }
    }
}

#[test]
fn no_time_has_more_than_the_rate_a_burst_and_two_super_packets() {
    for (mbit, count) in [(10, 1), (10, 8), (100, 1), (100, 8), (1_000, 8), (10_000, 64)] {
        let rate = mbit * MBIT;
        let host = run(rate, connections(count), 2);
        // A slot of two milliseconds beside the burst, and two super-packets: their bytes may have
        // turns in slots that are shorter than they are.
        let most = rate * (BURST + 2 * MS) / SECOND + 2 * (64 << 10).min(2 * FRAME + rate / 500);
        let excess = host.excess(rate, |_| true);
        assert!(excess <= most, "{count} at {mbit} Mbit/s: {excess} of {most}");
    }
}

#[test]
fn floods_of_unequal_rates_get_equal_shares() {
    for mbit in [10, 100, 1_000] {
        let rate = mbit * MBIT;
        let load = |number| Load::Udp { rate: rate * u64::from(number + 1) / 4, bytes: FRAME };
        let floods = (0..8).map(|number| flow(number, load(number)));
        let host = run(rate, floods.chain([ping()]), 2);
        assert_exact(&host, rate, 2, "floods");
        let shares = shares(&host, 8, 2);
        assert!(jain(&shares) >= 0.99, "{mbit} Mbit/s: {shares:?}");
        assert_eq!(host.longest_wait(8, SECOND), 0);
    }
}

#[test]
fn a_flow_below_its_share_gets_what_it_sends_beside_floods() {
    let rate = 100 * MBIT;
    let small = flow(9, Load::Udp { rate: rate / 10, bytes: FRAME });
    let flood = |number| flow(number, Load::Udp { rate, bytes: FRAME });
    let host = run(rate, (0..4).map(flood).chain([small]), 3);
    let (from, to) = (SECOND, 3 * SECOND);
    let bytes = host.bytes(from, to, |sender| sender.hash == small.hash);
    assert!(bytes.abs_diff(2 * rate / 10) < rate / 100, "{bytes}");
    assert_exact(&host, rate, 3, "all");
}

/// The part of a slot that is before its time leaves bytes to each of them.
#[test]
fn long_packets_that_come_together_depart_one_after_the_other() {
    let class = Class { burst: 5 * MS, ..limit(3 * MBIT) };
    let mut tree = Departures::new(&BTreeMap::from([(LEAF, class)]));
    let departs = [(36_000, 1), (50_000, 2), (47_000, 3)].map(|(cost, hash)| {
        let packet = Packet { leaf: LEAF, cost, hash, host: 0, asked: Nanos::ZERO, is_ecn: false };
        tree.ask(Nanos(BEGIN), &packet).1.map(|at| at.0 - BEGIN)
    });
    // 96 ms of the rate less the burst, and a slot; behind the second one the limit ends.
    let [Some(0), Some(second), None] = departs else { panic!("{departs:?}") };
    assert!((89 * MS..=92 * MS).contains(&second), "{second}");
}

#[test]
fn super_packets_and_single_frames_share_by_bytes() {
    let rate = 100 * MBIT;
    let of = |number, bytes| flow(number, Load::Udp { rate, bytes });
    let host = run(rate, [of(0, 64 << 10), of(1, FRAME)].into_iter(), 5);
    let shares = shares(&host, 2, 5);
    assert!(jain(&shares) >= 0.999, "{shares:?}");
}

#[test]
fn a_sender_s_own_times_are_kept() {
    let rate = 100 * MBIT;
    let mut tree = Departures::new(&BTreeMap::from([(LEAF, limit(rate))]));
    for number in 0..1000 {
        let now = Nanos(BEGIN + number * MS);
        // The first third waits for nothing, the second is exact, and the last is later than
        // calendars go.
        let ahead = [0, 10 * MS, SECOND][number as usize * 3 / 1000];
        let asked = if ahead == 0 { Nanos::ZERO } else { Nanos(now.0 + ahead) };
        let packet = Packet { leaf: LEAF, cost: FRAME, hash: 7, host: 0, asked, is_ecn: false };
        let (_, at) = tree.ask(now, &packet);
        assert_eq!(at, Some(Nanos(now.0 + ahead)), "{number}");
    }
}

#[test]
fn senders_that_ask_for_one_moment_do_not_exceed_the_rate() {
    let rate = 10 * MBIT;
    let mut tree = Departures::new(&BTreeMap::from([(LEAF, limit(rate))]));
    let asked = Nanos(BEGIN + 10 * MS);
    let mut departures: Vec<(u64, u64)> = (0..40)
        .filter_map(|hash| {
            let packet = Packet { leaf: LEAF, cost: FRAME, hash, host: 0, asked, is_ecn: false };
            let (_, at) = tree.ask(Nanos(BEGIN), &packet);
            at.map(|at| (at.0, FRAME))
        })
        .collect();
    departures.sort_unstable();
    assert!(departures.len() > 30 && departures[0].0 == asked.0);
    assert!(excess(rate, departures.into_iter()) <= rate * (BURST + 2 * MS) / SECOND + FRAME);
}

#[test]
fn connections_nearby_have_the_rate_although_their_windows_are_small() {
    for mbit in [10, 50, 200, 1000] {
        for count in [1, 2, 8, 32, 64] {
            if (mbit, count) == (10, 64) {
                // Their least windows are longer than the limit.
                continue;
            }
            let (rate, seconds) = (mbit * MBIT, 8);
            let tcp = Load::Tcp { round_trip: MS / 5, is_ecn: false };
            let probe = |number: u32| flow(2000 + number, Load::Udp { rate: 312, bytes: 100 });
            let senders = (0..count).map(|number| flow(number, tcp)).chain((0..32).map(probe));
            // What `htb` has by itself.
            let class = Class { burst: (1600 * SECOND / rate).max(MS), ..limit(rate) };
            let classes = BTreeMap::from([(LEAF, class)]);
            let host = Host::new(&classes, senders.collect()).run(seconds * SECOND);
            let what = format!("{count} at {mbit} Mbit/s");
            let bytes = host.bytes(2 * SECOND, seconds * SECOND, |_| true);
            let due = (seconds - 2) * rate;
            assert!(bytes.abs_diff(due) <= due / 400, "{what}: {bytes} of {due} bytes");
            let jain = jain(&shares(&host, count, seconds));
            assert!(jain >= 0.98, "{what}: {jain}");
            let waits = (0..32).map(|probe| host.longest_wait(count as usize + probe, SECOND));
            assert_eq!(waits.max(), Some(0), "{what}");
        }
    }
}

/// Once the AQM has found out that floods do not heed it.
#[test]
fn connections_have_their_shares_beside_floods() {
    for mbit in [10, 100, 1_000] {
        for (floods, connections, round_trip) in [(1, 1, 10), (3, 1, 10), (8, 2, 10), (3, 3, 1)] {
            let (rate, from, to) = (mbit * MBIT, 6 * SECOND, 12 * SECOND);
            let flood = Load::Udp { rate: rate / 2, bytes: FRAME };
            let tcp = Load::Tcp { round_trip: round_trip * MS, is_ecn: false };
            let connections = (0..connections).map(|number| flow(number, tcp));
            let floods = (100..100 + floods).map(|number| flow(number, flood));
            let host = run(rate, floods.clone().chain(connections.clone()), to / SECOND);
            let what = format!("{floods:?} beside {connections:?} at {mbit} Mbit/s");
            let due = (to - from) / SECOND * rate / (floods.len() + connections.len()) as u64;
            for connection in connections {
                let had = host.bytes(from, to, |it| *it == connection) as f64 / due as f64;
                assert!((0.7..1.4).contains(&had), "{what}: {had}");
            }
            let all = host.bytes(from, to, |_| true) as f64 / ((to - from) / SECOND * rate) as f64;
            assert!((0.995..1.003).contains(&all), "{what}: {all}");
        }
    }
}
