//! What an agent costs in a large fleet:
//!
//! `cargo run --release -p narrows-fleet-world --example scale BOXES LIMITS ACTIVE`
//!
//! Each box has all limits, and traffic at `ACTIVE` of them. After five seconds, each 50 ms, the
//! demand for one of a hundred limits changes at one box. Printed is the mean over all agents.

use narrows_fleet_world::{Network, Place, Settings, World};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const MS: u64 = 1_000_000;
const LIMIT_BPS: u64 = 1_000_000_000;

fn name(number: usize) -> String {
    format!("limit-{number:06}")
}

fn main() {
    let numbers: Vec<usize> =
        std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let [boxes, limits, active] = numbers[..] else {
        eprintln!("usage: scale BOXES LIMITS ACTIVE, three numbers");
        return;
    };
    let settings = Settings {
        boxes,
        interval_ns: 50 * MS,
        lease_ns: 2_000 * MS,
        network: Network::of_delay_ms(20),
        order_ns: MS,
        drift_ppm: 100,
        seed: 1,
    };
    let place = |number| {
        let safe_bps = LIMIT_BPS / boxes as u64;
        Place { name: name(number).into(), limit_bps: LIMIT_BPS, safe_bps, rejoins: false }
    };
    let mut world = World::new(settings, |_| (0..limits).map(place).collect());
    let mut random = Pcg64Mcg::seed_from_u64(2);
    let most_bps = 4 * LIMIT_BPS / boxes as u64;
    for id in 0..boxes {
        for _ in 0..active {
            let limit = name(random.random_range(0..limits));
            world.demand(0, id, &limit, random.random_range(0..most_bps));
        }
    }
    world.run(5_000 * MS);
    for turn in 0..40 {
        for _ in 0..limits.div_ceil(100) {
            let limit = name(random.random_range(0..limits));
            let id = random.random_range(0..boxes);
            let demand_bps = random.random_range(0..most_bps);
            world.demand((5_000 + turn * 50) * MS, id, &limit, demand_bps);
        }
    }
    world.begin_measurement();
    world.run(7_000 * MS);
    let outcome = world.outcome();
    let agent_seconds = 2.0 * boxes as f64;
    println!(
        "an agent: {:.2} % of a core, {:.2} Mbit/s and {:.0} messages/s received, {:.0} orders/s; used {:.1} %, {} bit/s above a limit",
        outcome.agent_time.as_secs_f64() / agent_seconds * 100.0,
        outcome.message_bytes as f64 * 8.0 / 1e6 / agent_seconds,
        outcome.messages as f64 / agent_seconds,
        outcome.orders as f64 / agent_seconds,
        outcome.used * 100.0,
        outcome.worst_excess_bps()
    );
}
