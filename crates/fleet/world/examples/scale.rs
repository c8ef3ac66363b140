use narrows_fleet_world::*;
use rand::{RngExt, SeedableRng};
fn main() {
    let arg = |n: usize| std::env::args().nth(n).unwrap().parse::<usize>().unwrap();
    let (boxes, names, active) = (arg(1), arg(2), arg(3));
    const MS: u64 = 1_000_000;
    let settings = Settings {
        boxes,
        interval_ns: 50 * MS,
        lease_ns: 2_000 * MS,
        network: Network::of_delay_ms(20),
        order_ns: MS,
        drift_ppm: 100,
        seed: 1,
    };
    let mut world = World::new(settings, |_| {
        (0..names)
            .map(|n| Place {
                name: format!("name-{n:06}").into(),
                limit_bps: 1_000_000_000,
                safe_bps: 1_000_000_000 / boxes as u64,
            })
            .collect()
    });
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(2);
    for id in 0..boxes {
        for _ in 0..active {
            let n = random.random_range(0..names);
            world.demand(0, id, &format!("name-{n:06}"), random.random_range(0..40_000_000));
        }
    }
    let wall = std::time::Instant::now();
    world.run(5_000 * MS);
    eprintln!(
        "warm {:?} agent {:?} msgs {} bytes {}",
        wall.elapsed(),
        world.outcome().agent_time,
        world.outcome().messages,
        world.outcome().message_bytes
    );
    for turn in 0..40_u64 {
        for _ in 0..names / 100 {
            let n = random.random_range(0..names);
            let id = random.random_range(0..boxes);
            world.demand(
                (5_000 + turn * 50) * MS,
                id,
                &format!("name-{n:06}"),
                random.random_range(0..40_000_000),
            );
        }
    }
    world.begin_measurement();
    world.run(7_000 * MS);
    let o = world.outcome();
    let per = 2.0 * boxes as f64;
    println!(
        "agent: {:.2} % of a core, {:.2} Mbit/s in, {:.0} messages/s in; orders {}/s; excess {} used {:.4}",
        o.agent_time.as_secs_f64() / per * 100.0,
        o.message_bytes as f64 * 8.0 / 1e6 / per,
        o.messages as f64 / per,
        o.orders as f64 / per,
        o.worst_excess_bps(),
        o.used
    );
}
