//! Workers that do not run, queues that wake up, rates that change.

use crate::harness::row;
use narrows_sim::measure::Measure;

#[test]
fn queues_that_wake_up_have_the_limit_at_once_and_keep_it() {
    let fair = row("cake-wake", "fair", &[]);
    fair.within("settled, us", fair.get(Measure::SettleUs), 0.0..=10_000.0);
    fair.within("overshoot, bytes", fair.get(Measure::OvershootBytes), 0.0..=20_000.0);
}

#[test]
fn the_rate_follows_the_operator_and_nothing_stalls() {
    let row = row("cake-change", "cake", &[]);
    for (from, to, mbit) in
        [(1.2, 2.0, 100.0), (2.5, 4.0, 400.0), (4.1, 6.0, 50.0), (6.3, 8.0, 100.0)]
    {
        let rates = row.between("rate, Gbit/s", from * 1e3, to * 1e3);
        let mean = rates.iter().sum::<f64>() / rates.len() as f64 * 1e3;
        row.within(&format!("Mbit/s from {from} s on"), mean, mbit * 0.95..=mbit * 1.01);
        // Each value covers 16 ms.
        for rate in rates {
            row.within(
                &format!("Mbit/s at some time from {from} s on"),
                rate * 1e3,
                mbit * 0.7..=mbit * 1.1,
            );
        }
    }
}

#[test]
fn after_a_stall_the_delay_soon_returns_to_normal() {
    const TARGET_US: f64 = 5_000.0;
    let row = row("cake-stall", "cake", &[]);
    let peak = row.between("delay, us", 3_040.0, 3_070.0).into_iter().fold(0.0, f64::max);
    row.within("the longest wait, us", peak, 40_000.0..=80_000.0);
    // 100 ms after the end of the stall; each is the longest delay in 8 ms.
    let after = row.between("delay, us", 3_150.0, 4_000.0);
    let mean = after.iter().sum::<f64>() / after.len() as f64;
    row.within("delay afterwards on average, us", mean, 0.0..=2.0 * TARGET_US);
}
