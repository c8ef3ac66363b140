//! Two queues share 100 Mbit/s under each of the built-in strategies.
//!
//! `cargo run -p narrows-coordination --example shared_rate` prints what leaves when the load is
//! uneven (80/20), and when both queues want more than their share.

mod world;

use narrows_coordination::{Coordination, Limit, Strategy};
use narrows_units::Rate;
use world::{BACKLOG, BURST, QUEUES, RATE, print, run};

fn main() {
    let limit = Limit { rate: RATE, burst: BURST, peak: None, backlog: BACKLOG };
    for offered in [[82, 21], [300, 100]] {
        let offered = offered.map(|mbit| Rate::from_bits_per_sec(mbit * 1_000_000));
        for strategy in Strategy::ALL {
            let coordination = Coordination::new(strategy, limit, QUEUES);
            let seats = std::array::from_fn(|queue| coordination.seat(queue));
            print(strategy.name(), offered, run(seats, offered));
        }
    }
}
