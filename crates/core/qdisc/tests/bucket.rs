//! The bucket against a model that lives through every nanosecond.

use narrows_qdisc::bucket::{Bucket, Shape};
use narrows_qdisc::tbf::Peak;
use narrows_qdisc::{Meter, OWED_MAX, Take};
use narrows_units::{Bytes, Nanos, Rate};
use proptest::prelude::*;

/// A token bucket that adds a nanosecond's worth of credit every nanosecond.
struct Model {
    levels: Vec<(Rate, Bytes, i128)>,
    now: Nanos,
}

fn price(bytes: Bytes) -> i128 {
    i128::from(bytes.0) * 8_000_000_000
}

fn levels(shape: Shape) -> Vec<(Rate, Bytes)> {
    let peak = shape.peak.map(|peak| (peak.rate, peak.mtu));
    std::iter::once((shape.rate, shape.burst)).chain(peak).collect()
}

impl Model {
    fn new(shape: Shape) -> Self {
        let full = |(rate, size)| (rate, size, price(size));
        Self { levels: levels(shape).into_iter().map(full).collect(), now: Nanos::ZERO }
    }

    fn live_until(&mut self, now: Nanos) {
        while self.now < now {
            self.now += Nanos(1);
            for (rate, size, credit) in &mut self.levels {
                *credit = (*credit + i128::from(rate.bits_per_sec())).min(price(*size));
            }
        }
    }

    fn affords(&self, cost: Bytes) -> bool {
        self.levels.iter().all(|(_, size, credit)| *credit >= price(cost.min(*size)))
    }

    fn take(&mut self, cost: Bytes) -> bool {
        let affords = self.affords(cost);
        if affords {
            self.levels.iter_mut().for_each(|(.., credit)| *credit -= price(cost));
        }
        affords
    }

    fn reshape(&mut self, shape: Shape) {
        let mut old = std::mem::take(&mut self.levels).into_iter();
        for (rate, size) in levels(shape) {
            let credit = old.next().map_or(price(size), |(.., credit)| credit.min(price(size)));
            self.levels.push((rate, size, credit));
        }
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    let rate = || (0u64..=400_000_000_000).prop_map(Rate::from_bits_per_sec);
    let size = || (0u64..4_000).prop_map(Bytes);
    let peak = prop::option::of((rate(), size()).prop_map(|(rate, mtu)| Peak { rate, mtu }));
    (rate(), size(), peak).prop_map(|(rate, burst, peak)| Shape { rate, burst, peak })
}

#[derive(Clone, Debug)]
enum Step {
    Take { after: u64, cost: u64 },
    Reshape { after: u64, shape: Shape },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        9 => (0u64..500, 0u64..5_000).prop_map(|(after, cost)| Step::Take { after, cost }),
        1 => (0u64..500, shape()).prop_map(|(after, shape)| Step::Reshape { after, shape }),
    ]
}

proptest! {
    /// Through any requests and changes it grants exactly what the model grants, and its waiting
    /// time ends when the model would first grant.
    #[test]
    fn a_bucket_is_exact(first in shape(), steps in prop::collection::vec(step(), 1..60)) {
        let mut bucket = Bucket::new(first);
        let mut model = Model::new(first);
        let mut now = Nanos::ZERO;
        for step in steps {
            match step {
                Step::Take { after, cost } => {
                    now += Nanos(after);
                    model.live_until(now);
                    let cost = Bytes(cost);
                    let take = bucket.take(cost, Nanos::ZERO, now);
                    prop_assert_eq!(take == Take::Granted, model.take(cost));
                    if let Take::Wait(at) = take {
                        prop_assert!(at > now);
                        if at.since(now) < Nanos(5_000) {
                            model.live_until(Nanos(at.0 - 1));
                            prop_assert!(!model.affords(cost), "{at} is late");
                            model.live_until(at);
                            prop_assert!(model.affords(cost), "{at} is early");
                            now = at;
                        }
                    }
                }
                Step::Reshape { after, shape } => {
                    now += Nanos(after);
                    model.live_until(now);
                    model.reshape(shape);
                    bucket.reshape(shape, now);
                }
            }
        }
    }

    /// At any rate and size that can be written down, nothing overflows and nothing is early.
    #[test]
    fn extremes_do_not_overflow(
        rate in any::<u64>(),
        burst in 0u64..=u64::from(u32::MAX),
        cost in 0u64..=u64::from(u32::MAX),
        pauses in prop::collection::vec(any::<u64>(), 1..8),
    ) {
        let shape = Shape { rate: Rate::from_bits_per_sec(rate), burst: Bytes(burst), peak: None };
        let mut bucket = Bucket::new(shape);
        let mut now = Nanos::ZERO;
        for pause in pauses {
            now += Nanos(pause);
            match bucket.take(Bytes(cost), Nanos::ZERO, now) {
                Take::Granted => {}
                Take::Wait(at) if at == Nanos::MAX => {}
                Take::Wait(at) => {
                    prop_assert!(at > now);
                    now = at;
                    prop_assert_eq!(bucket.take(Bytes(cost), Nanos::ZERO, now), Take::Granted);
                }
            }
        }
    }
}

fn plain(rate: u64, burst: u64) -> Shape {
    Shape { rate: Rate::from_bits_per_sec(rate), burst: Bytes(burst), peak: None }
}

fn take(bucket: &mut Bucket, cost: u64, now: u64) -> Take {
    bucket.take(Bytes(cost), Nanos::ZERO, Nanos(now))
}

#[test]
fn a_terabit_is_kept_to_the_byte() {
    let mut bucket = Bucket::new(plain(1_000_000_000_000, 4_000));
    let mut sent = 0;
    let mut now = 0;
    while now < 1_000_000 {
        match take(&mut bucket, 64, now) {
            Take::Granted => sent += 64,
            Take::Wait(at) => now = at.0,
        }
    }
    let allowed = 125 * now + 4_000;
    assert!(sent <= allowed && sent + 64 >= allowed - 125, "{sent} of {allowed}");
}

#[test]
fn debt_is_paid_back_before_anything_else_leaves() {
    let mut bucket = Bucket::new(plain(8_000_000_000, 1_000));
    bucket.reshape(plain(8_000_000_000, 100), Nanos(1));
    assert_eq!(take(&mut bucket, 1_000, 1), Take::Granted, "a full bucket lets what is longer go");
    assert_eq!(take(&mut bucket, 100, 2), Take::Wait(Nanos(1_001)));
}

#[test]
fn credit_that_a_smaller_bucket_cannot_hold_is_lost() {
    let mut bucket = Bucket::new(plain(0, 1_000));
    bucket.reshape(plain(0, 100), Nanos(1));
    bucket.reshape(plain(0, 1_000), Nanos(1));
    assert_eq!(take(&mut bucket, 101, 1), Take::Wait(Nanos::MAX));
    assert_eq!(take(&mut bucket, 100, 1), Take::Granted);
}

#[test]
fn a_packet_that_the_peak_holds_back_costs_the_average_nothing() {
    let rate = Rate::from_bits_per_sec(8_000_000_000);
    let peak = Some(Peak { rate, mtu: Bytes(100) });
    let mut bucket = Bucket::new(Shape { rate: Rate::default(), burst: Bytes(200), peak });
    assert_eq!(take(&mut bucket, 100, 0), Take::Granted);
    assert_eq!(take(&mut bucket, 100, 1), Take::Wait(Nanos(100)));
    assert_eq!(take(&mut bucket, 100, 100), Take::Granted);
    assert_eq!(take(&mut bucket, 100, 200), Take::Wait(Nanos::MAX), "the burst is used up");
}

#[test]
fn a_clock_that_runs_backwards_earns_nothing() {
    let mut bucket = Bucket::new(plain(8_000_000_000, 100));
    assert_eq!(take(&mut bucket, 100, 1_000), Take::Granted);
    assert_eq!(take(&mut bucket, 100, 500), Take::Wait(Nanos(1_100)));
    assert_eq!(take(&mut bucket, 100, 1_099), Take::Wait(Nanos(1_100)));
}

#[test]
fn what_is_owed_is_paid_with_credit_that_would_be_lost_and_then_is_debt() {
    // A byte a microsecond.
    let mut bucket = Bucket::new(plain(8_000_000, 1_000));
    assert_eq!(take(&mut bucket, 1_000, 1_000), Take::Granted);
    // Empty since 1 us. In the ten milliseconds since then it has earned 10,000 bytes, and could
    // store 1,000.
    bucket.owe(Bytes(9_500), Nanos(10_001_000));
    assert_eq!(take(&mut bucket, 501, 10_001_000), Take::Wait(Nanos(10_002_000)));
    assert_eq!(take(&mut bucket, 500, 10_001_000), Take::Granted);
    bucket.owe(Bytes(300), Nanos(10_001_000));
    assert_eq!(take(&mut bucket, 200, 10_001_000), Take::Wait(Nanos(10_501_000)));
    // No more than a bounded debt.
    bucket.owe(Bytes(u64::MAX), Nanos(20_001_000));
    let paid = 20_001_000 + OWED_MAX.0;
    assert_eq!(take(&mut bucket, 1, 20_001_000), Take::Wait(Nanos(paid + 1_000)));
    bucket.owe(Bytes(1), Nanos(10_000_000));
    assert_eq!(take(&mut bucket, 1, 20_001_000), Take::Wait(Nanos(paid + 1_000)));
}
