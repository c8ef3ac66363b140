//! A policer's rate: kept by all queues together, without a lock.
//!
//! As in the kernel (`net/sched/act_police.c`) a packet is charged to every bucket or to none.
//! Unlike there, each bucket is one word, a [`Ledger`](crate::ledger::Ledger), from which
//! every queue buys, so queues never wait for each other. A policer has no queue: a packet without
//! credit exceeds, and none waits.

use crate::ledger::Ledger;
use narrows_classify::{Police, Policer};
use narrows_units::{Bytes, Nanos, Rate};

/// A policer whose token buckets all queues share without a lock.
pub struct SharedPolicer {
    buckets: Vec<(Bucket, Ledger)>,
}

/// One bucket: its depth and its rate.
#[derive(Clone, Copy)]
enum Bucket {
    Bytes { rate: Rate, depth: Nanos },
    Packets { each: Nanos, depth: Nanos },
}

impl SharedPolicer {
    /// The policer of `police`; `None` if it has no rate.
    pub fn of(police: &Police) -> Option<Box<dyn Policer>> {
        let bytes = |rate: Rate, burst: Bytes| Bucket::Bytes { rate, depth: rate.time_for(burst) };
        let peak = police.peak_rate.map(|rate| bytes(rate, police.mtu));
        let rate = police.rate.map(|rate| bytes(rate, police.burst));
        let packets = police.packets.map(|(rate, burst)| {
            let each = Nanos(1_000_000_000 / rate.max(1));
            Bucket::Packets { each, depth: Nanos(each.0.saturating_mul(burst.max(1))) }
        });
        let buckets: Vec<_> = [rate, peak, packets].into_iter().flatten().collect();
        let buckets = buckets.into_iter().map(|bucket| (bucket, Ledger::default()));
        let policer = Self { buckets: buckets.collect() };
        (!policer.buckets.is_empty()).then(|| Box::new(policer) as Box<dyn Policer>)
    }
}

impl Bucket {
    /// The span that a packet of `cost` bytes takes, and the bucket's depth.
    #[inline]
    fn price(self, cost: u64) -> (Nanos, Nanos) {
        match self {
            Self::Bytes { rate, depth } => (rate.time_for(Bytes(cost)), depth),
            Self::Packets { each, depth } => (each, depth),
        }
    }
}

impl Policer for SharedPolicer {
    fn conforms(&self, cost: u64, now: Nanos) -> bool {
        for (place, (bucket, ledger)) in self.buckets.iter().enumerate() {
            let (span, depth) = bucket.price(cost);
            if span <= depth && ledger.sell(span, span, depth, now) {
                continue;
            }
            // Credit that the other buckets have sold is returned.
            for (bucket, ledger) in &self.buckets[..place] {
                ledger.take_back(bucket.price(cost).0);
            }
            return false;
        }
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use narrows_classify::Control;
    use std::sync::Arc;

    const RATE: Rate = Rate::from_bits_per_sec(8_000_000);

    fn police() -> Police {
        Police {
            rate: Some(RATE),
            burst: Bytes(10_000),
            peak_rate: None,
            mtu: Bytes(2_000),
            packets: None,
            overhead: Default::default(),
            per: None,
            exceed: Control::Drop,
            conform: Control::Pass,
        }
    }

    /// How many of `count` packets of 1000 bytes, one every `gap`, conform.
    fn conforming(police: &Police, count: u64, gap: Nanos) -> u64 {
        let policer = SharedPolicer::of(police).expect("it has a rate");
        let at = |number: u64| Nanos::from_secs(1) + Nanos(gap.0 * number);
        (0..count).filter(|number| policer.conforms(1_000, at(*number))).count() as u64
    }

    #[test]
    fn conforming_packets_fit_burst_and_rate() {
        // A second at a megabyte a second, and ten packets at once.
        let twice = conforming(&police(), 2_000, Nanos::from_micros(500));
        assert!((1_009..=1_010).contains(&twice), "{twice}");
        assert_eq!(conforming(&police(), 500, Nanos::from_millis(1)), 500);
    }

    #[test]
    fn a_peak_rate_spreads_the_burst_and_packets_are_counted_too() {
        let peak_rate = Some(Rate::from_bits_per_sec(16_000_000));
        assert_eq!(conforming(&police(), 10, Nanos(0)), 10);
        assert_eq!(conforming(&Police { peak_rate, ..police() }, 10, Nanos(0)), 2);
        let packets = Police { rate: None, packets: Some((1_000, 5)), ..police() };
        assert_eq!(conforming(&packets, 1_000, Nanos::from_micros(100)), 104);
    }

    #[test]
    fn queues_share_one_rate() {
        let policer: Arc<dyn Policer> = SharedPolicer::of(&police()).expect("it has a rate").into();
        let threads = (0..4).map(|_| {
            let policer = Arc::clone(&policer);
            std::thread::spawn(move || {
                (0..1_000).filter(|_| policer.conforms(1_000, Nanos::from_secs(1))).count()
            })
        });
        let threads: Vec<_> = threads.collect();
        let sum: usize = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
        assert_eq!(sum, 10);
    }
}
