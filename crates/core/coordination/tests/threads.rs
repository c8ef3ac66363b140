//! The strategies with real threads and a real clock: short, and on any number of cores. `loom`
//! checks the orderings; here everything runs at once.

use narrows_coordination::{Coordination, Limit, Strategy};
use narrows_packet::Backlog;
use narrows_qdisc::Take;
use narrows_units::{Bytes, Nanos, Rate};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const METERS: usize = 4;
const COST: Bytes = Bytes(1_500);
const FAST: Limit = Limit {
    rate: Rate::from_bits_per_sec(1_000_000_000),
    burst: Bytes(30_000),
    peak: None,
    backlog: Bytes(150_000),
};
const SLOW: Limit = Limit {
    rate: Rate::from_bits_per_sec(500_000_000),
    burst: Bytes(15_000),
    peak: None,
    backlog: Bytes(75_000),
};

/// How often the limit changes at least.
const TURNS: u32 = 50;
/// What every meter must be granted, however long it waits for a core,
const ENOUGH: u64 = 11 * COST.0;
/// if it comes within this.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Lets every meter send as much as it may while the limit changes under it and a worker in four is
/// restarted now and then, until all have sent enough. Returns the bytes that each was granted, and
/// the time it took.
fn flood(strategy: Strategy) -> (Vec<u64>, Nanos) {
    let coordination = Coordination::new(strategy, FAST, METERS);
    let over = AtomicBool::new(false);
    let start = Instant::now();
    let now = || Nanos(start.elapsed().as_nanos() as u64 + 1);
    let granted = [const { AtomicU64::new(0) }; METERS];
    let (coordination, over, now, granted) = (&coordination, &over, &now, &granted);
    let work = |number: usize| {
        let mut meter = coordination.meter(number);
        let mut turns = 0;
        while !over.load(Ordering::Relaxed) {
            turns += 1;
            if number == 0 && turns % 100 == 0 {
                drop(meter);
                meter = coordination.meter(number);
            }
            let Some(stamp) = meter.stamp(COST, now()) else {
                thread::yield_now();
                continue;
            };
            meter.report(Backlog { packets: 1, bytes: COST }, now());
            while !over.load(Ordering::Relaxed) {
                match meter.take(COST, stamp, now()) {
                    Take::Granted => {
                        granted[number].fetch_add(COST.0, Ordering::Relaxed);
                        break;
                    }
                    Take::Wait(_) => thread::yield_now(),
                }
            }
            meter.report(Backlog::default(), now());
        }
    };
    let all = || granted.each_ref().map(|bytes| bytes.load(Ordering::Relaxed)).to_vec();
    thread::scope(|scope| {
        for number in 0..METERS {
            scope.spawn(move || work(number));
        }
        let is_over = |turn| {
            let enough = all().iter().all(|bytes| *bytes >= ENOUGH);
            turn >= TURNS && enough || start.elapsed() > TIMEOUT
        };
        for turn in (0..).take_while(|turn| !is_over(*turn)) {
            thread::sleep(Duration::from_millis(1));
            coordination.set_limit(if turn % 2 == 0 { SLOW } else { FAST });
        }
        over.store(true, Ordering::Relaxed);
    });
    (all(), now())
}

#[test]
fn lock_and_edt_never_exceed_the_limit() {
    for strategy in [Strategy::Lock, Strategy::Edt] {
        let (granted, time) = flood(strategy);
        let allowed = FAST.rate.bytes_in(time) + FAST.burst + Bytes(METERS as u64 * COST.0);
        let sum: u64 = granted.iter().sum();
        assert!(sum <= allowed.0, "{strategy:?}: {sum} of {allowed} in {time}");
    }
}

#[test]
fn no_queue_starves_under_lock_and_equal() {
    for strategy in [Strategy::Lock, Strategy::EQUAL] {
        let (granted, time) = flood(strategy);
        let least = granted.iter().min();
        assert!(least >= Some(&ENOUGH), "{strategy:?}: {granted:?} in {time}");
    }
}
