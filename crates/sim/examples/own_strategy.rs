//! A coordination strategy of one's own, in the same world as `shared_rate`.
//!
//! `cargo run -p narrows-coordination --example own_strategy`. The strategy is a ledger without
//! shares: one atomic word holds the time up to which the rate is sold, and each seat buys from it.
//! The sum is exact and all of the rate is used, but it is not fair: the queue that asks more often
//! gets more. `fair` adds the shares (docs/coordination.md).
//!
//! A strategy outside the crate is a type that implements [`Meter`], and some state that its seats
//! share. To give it a name in `tc` and in `narrows sim`, see CONTRIBUTING.md.

mod world;

use narrows_packet::Backlog;
use narrows_qdisc::{Meter, Share, Take};
use narrows_units::{Bytes, Nanos, Rate};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use world::{BURST, QUEUES, RATE, print, run};

/// What the seats share.
struct Ledger {
    rate: Rate,
    burst: Bytes,
    /// The time up to which the rate is sold, in nanoseconds.
    sold: AtomicU64,
}

/// One queue's seat.
struct Seat(Arc<Ledger>);

impl Meter for Seat {
    /// Decides at departure, so there is nothing to stamp.
    fn stamp(&mut self, _cost: Bytes, _now: Nanos) -> Option<Nanos> {
        Some(Nanos::ZERO)
    }

    fn take(&mut self, cost: Bytes, _edt: Nanos, now: Nanos) -> Take {
        let ledger = &*self.0;
        let price = ledger.rate.time_for(cost).0;
        let oldest = now.0.saturating_sub(ledger.rate.time_for(ledger.burst).0);
        // Relaxed: the word is all that is shared, and nothing else is read because of it.
        let bought = ledger.sold.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sold| {
            let until = sold.max(oldest) + price;
            (until <= now.0).then_some(until)
        });
        match bought {
            Ok(_) => Take::Granted,
            Err(sold) => Take::Wait(Nanos(sold.max(oldest) + price)),
        }
    }

    /// The others need not know what is queued here.
    fn report(&mut self, _backlog: Backlog, _now: Nanos) {}

    fn share(&self) -> Share {
        Share::one_of(QUEUES as u32)
    }

    fn longest(&self) -> Bytes {
        self.0.burst
    }
}

fn main() {
    for offered in [[82, 21], [300, 100]] {
        let offered = offered.map(|mbit| Rate::from_bits_per_sec(mbit * 1_000_000));
        let ledger = Arc::new(Ledger { rate: RATE, burst: BURST, sold: AtomicU64::new(0) });
        let seats = std::array::from_fn(|_| Box::new(Seat(Arc::clone(&ledger))) as Box<dyn Meter>);
        print("ledger", offered, run(seats, offered));
    }
}
