//! Policers in the driver: one account for all, or one for each of many.

use super::*;
use crate::test_run::run_merged;
use narrows_units::{Bytes, Rate};
use std::net::Ipv4Addr;
use std::thread::sleep;
use std::time::Duration;

/// The default accounts of a test.
const ACCOUNTS: Accounts =
    Accounts { key: AccountKey::Source, block: Nanos::ZERO, room: 1024, newcomers: 1_000_000 };

fn with(policer: Policer) -> Term {
    let does = Does::Police(policer);
    let step = Step { does, then: Then::Pass, exceed: Then::Drop, counter: Some(7) };
    Term { steps: vec![step], ..Term::any() }
}

/// This many packets per second, of all or of each, and a burst.
pub(super) fn policing(rate: u64, burst: u64, key: Option<AccountKey>) -> Term {
    each(rate, burst, key.map(|key| Accounts { key, ..ACCOUNTS }))
}

fn each(rate: u64, burst: u64, accounts: Option<Accounts>) -> Term {
    let packets = Some((rate, burst));
    with(Policer { rate: None, packets, longest: 0, per_frame: 0, minimum: 0, accounts })
}

/// How many of `count` packets from `source` pass.
fn passed(front: &Loaded, source: &str, count: usize) -> usize {
    (0..count).filter(|_| !is_dropped(front, source)).count()
}

#[test]
fn packets_above_a_rate_are_dropped_and_counted() {
    for mut bench in Bench::at_each_hook() {
        // Two bytes per second: nothing comes back during this test.
        let slow = Rate::from_bits_per_sec(16);
        let rate = Some((slow, Bytes(640)));
        let policer =
            Policer { rate, packets: None, longest: 0, per_frame: 0, minimum: 0, accounts: None };
        let front = bench.front(&[with(policer)]);
        assert_eq!(passed(&front, "10.0.0.1", 12) + passed(&front, "10.0.0.2", 8), 10);
        let counted = bench.maps.get(7);
        assert_eq!((counted.packets, counted.drops, counted.overlimits), (20, 10, 10));
        assert_eq!((counted.blocked, counted.newcomers), (0, 0));
        // Another program continues with the same accounts: this one is still empty.
        let front = bench.front(&[with(policer)]);
        assert_eq!(passed(&front, "10.0.0.1", 5), 0);
    }
}

#[test]
fn a_burst_that_is_longer_than_the_machine_is_up_is_there_from_the_start() {
    for mut bench in Bench::at_each_hook() {
        // 80 days.
        let rate = Some((Rate::from_bits_per_sec(16), Bytes(14_000_000)));
        let policer =
            Policer { rate, packets: None, longest: 0, per_frame: 0, minimum: 0, accounts: None };
        for accounts in [None, Some(ACCOUNTS)] {
            let front = bench.front(&[with(Policer { accounts, ..policer })]);
            run(&front, &frame("10.0.0.1".parse().unwrap()), 300_000);
            let counted = bench.maps.get(7);
            assert_eq!((counted.packets, counted.drops), (300_000, 300_000 - 14_000_000 / 64));
            bench = Bench::at(bench.entry).unwrap();
        }
    }
}

#[test]
fn overhead_counts_and_long_packets_never_conform() {
    for mut bench in Bench::at_each_hook() {
        let rate = Some((Rate::from_bits_per_sec(16), Bytes(1000)));
        let policer =
            Policer { rate, packets: None, longest: 0, per_frame: 36, minimum: 0, accounts: None };
        let front = bench.front(&[with(policer)]);
        assert_eq!(passed(&front, "10.0.0.1", 20), 10, "100 bytes each");
        let mut other = Bench::at(bench.entry).unwrap();
        let front = other.front(&[with(Policer { per_frame: 0, minimum: 200, ..policer })]);
        assert_eq!(passed(&front, "10.0.0.1", 20), 5, "200 bytes each");
        let mut other = Bench::at(bench.entry).unwrap();
        let front = other.front(&[with(Policer { longest: 99, ..policer })]);
        assert_eq!(passed(&front, "10.0.0.1", 20), 0);
    }
}

#[test]
fn credit_comes_back_with_time_and_no_more_than_the_burst() {
    for mut bench in Bench::at_each_hook() {
        let front = bench.front(&[policing(100, 10, None)]);
        // On any machine, no more than the burst and the earned credit passes.
        let began = std::time::Instant::now();
        let first = passed(&front, "10.0.0.1", 40);
        let most = 10 + (began.elapsed().as_millis() / 10) as usize + 1;
        assert!((10..=most).contains(&first), "{first}, at most {most}");
        sleep(Duration::from_millis(250));
        let began = std::time::Instant::now();
        let second = passed(&front, "10.0.0.1", 40);
        let most = 10 + (began.elapsed().as_millis() / 10) as usize + 1;
        assert!((10..=most).contains(&second), "{second}, at most {most}");
    }
}

#[test]
fn each_source_has_a_rate_of_its_own_and_an_ipv6_host_one_for_all_its_addresses() {
    for mut bench in Bench::at_each_hook() {
        let front = bench.front(&[policing(1, 60, Some(AccountKey::Source))]);
        for source in ["10.0.0.1", "10.0.0.2", "192.0.2.255"] {
            let passed = passed(&front, source, 200);
            assert!((60..80).contains(&passed), "{source}: {passed}");
        }
        let one = passed(&front, "2001:db8::1", 50);
        let other = passed(&front, "2001:db8::ffff:2", 50);
        assert!(one == 50 && (10..20).contains(&other), "{one}, {other}");
        assert_eq!(passed(&front, "2001:db8:0:1::1", 50), 50, "another network");
        // By destination all of these are one.
        let mut other = Bench::at(bench.entry).unwrap();
        let front = other.front(&[policing(1, 60, Some(AccountKey::Destination))]);
        assert_eq!(passed(&front, "10.0.0.1", 60), 60);
        assert!(passed(&front, "10.0.0.2", 60) < 20);
    }
}

#[test]
fn a_key_that_exceeds_is_blocked_for_a_while() {
    for mut bench in Bench::at_each_hook() {
        let block = Nanos::from_millis(300);
        let front = bench.front(&[each(1000, 5, Some(Accounts { block, ..ACCOUNTS }))]);
        let frame = frame("10.0.0.1".parse().unwrap());
        // All in one call: faster than the rate.
        run(&front, &frame, 10_000);
        let counted = bench.maps.get(7);
        assert!(counted.blocked >= 9_900, "{counted:?}");
        assert!(counted.overlimits > counted.blocked, "{counted:?}");
        assert_eq!(passed(&front, "10.0.0.2", 3), 3, "no other key is affected");
        sleep(Duration::from_millis(350));
        assert_eq!(passed(&front, "10.0.0.1", 1), 1, "it is over");
    }
}

#[test]
fn newcomers_have_a_rate_and_existing_accounts_survive_a_flood() {
    for mut bench in Bench::at_each_hook() {
        // So slow that no account recovers within the test.
        let accounts = Accounts { newcomers: 100, ..ACCOUNTS };
        let front = bench.front(&[each(1, 40_000, Some(accounts))]);
        let known: Vec<String> = (1..=20).map(|host| format!("10.0.0.{host}")).collect();
        assert!(known.iter().all(|source| passed(&front, source, 1) == 1));
        let began = std::time::Instant::now();
        let spoofed =
            |number: u32| Ipv4Addr::from(0x6440_0000 + number.wrapping_mul(0x9e37)).to_string();
        let came: usize = (0..3000).map(|number| passed(&front, &spoofed(number), 1)).sum();
        let most = 80 + 100 * (began.elapsed().as_millis() as usize + 1) / 1000 + 1;
        assert!(came <= most, "{came} of at most {most}");
        assert_eq!(bench.maps.get(7).newcomers, 3000 - came as u64);
        for source in &known {
            assert_eq!(passed(&front, source, 5), 5, "{source}");
        }
    }
}

#[test]
fn active_and_blocked_accounts_survive_spoofed_sources() {
    for mut bench in Bench::at_each_hook() {
        let block = Nanos::from_secs(1000);
        let accounts = Accounts { block, newcomers: 50_000_000, ..ACCOUNTS };
        let front = bench.front(&[each(1_000_000, 20, Some(accounts))]);
        let frame_of = |source: u32| frame(Ipv4Addr::from(source).into());
        let foe = frame_of(0x0a00_0001);
        run(&front, &foe, 100_000);
        assert_eq!(run(&front, &foe, 1).0, DROP, "blocked");
        let before = bench.maps.get(7);
        // Twenty times the room, each once.
        for number in 0..20_480_u32 {
            run(&front, &frame_of(0x6440_0000 + number.wrapping_mul(0x9e37)), 1);
            assert!(number % 1024 != 0 || run(&front, &foe, 1).0 == DROP, "{number}");
        }
        let now = bench.maps.get(7);
        assert_eq!(now.newcomers, before.newcomers, "there was room for all");
        assert_eq!(now.blocked - before.blocked, 20, "only the blocked one");
    }
}

#[test]
fn what_the_kernel_has_merged_conforms_if_its_first_frame_does_and_is_charged_as_a_whole() {
    let Some(mut bench) = Bench::at(Entry::Tcx) else { return };
    let whole = frame_of(2000);
    let passes = |front: &Loaded| {
        let verdict = run_merged(front.front.program(), &whole, 200, 10).unwrap();
        as_xdp(front.entry, verdict) == PASS
    };
    // Ten packets as one, with a burst of four.
    for key in [None, Some(AccountKey::Source)] {
        let front = bench.front(&[policing(1, 4, key)]);
        assert_eq!([0; 3].map(|_| passes(&front)), [true, false, false], "{key:?}");
        let counted = bench.maps.get(7);
        assert_eq!((counted.packets, counted.drops, counted.overlimits), (30, 20, 20), "{key:?}");
        assert_eq!(counted.blocked, 0);
        bench = Bench::at(Entry::Tcx).unwrap();
    }
}

/// UDP from 10.0.0.1 with as much payload.
fn frame_of(payload: usize) -> Vec<u8> {
    let mut frame = frame(Ipv4Addr::new(10, 0, 0, 1).into());
    frame.resize(14 + 20 + 8 + payload, 0);
    frame
}
