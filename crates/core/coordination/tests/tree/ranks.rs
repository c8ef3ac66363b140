//! Bands below a class: their order holds over all its queues.

use super::{GBIT, assert_near, flat, millis};
use crate::bed::{Bed, Demand, MBIT, class};
use narrows_qdisc::bands::{self, Discipline};

const QUEUES: usize = 4;

/// Three bands in an order.
fn prio() -> bands::Config {
    let classes = (1..=3).map(|id| bands::Class { id, quantum: None }).collect();
    bands::Config { discipline: Discipline::Prio, classes, otherwise: None }
}

/// On four queues a class of 200 Mbit/s and, if `shares`, a greedy second one: then the first gets
/// half of 200 Mbit/s.
fn bed(shares: bool) -> Bed {
    let (rate, ceil) = (if shares { MBIT } else { 200 * MBIT }, 200 * MBIT);
    let leaf = class(Some(1), rate, ceil);
    let root = if shares { ceil } else { GBIT };
    let mut bed = Bed::with_bands(QUEUES, &flat(root, &[leaf, leaf]), &prio());
    if shares {
        (0..QUEUES).for_each(|queue| bed.demand_band(0x11, 1, queue, Demand::Endless));
    }
    bed
}

/// The rate that the first class of [`bed`] gets.
fn rate(shares: bool) -> u64 {
    if shares { 100 * MBIT } else { 200 * MBIT }
}

#[test]
fn a_worse_band_gets_nothing_while_a_better_one_waits_on_any_queue() {
    for shares in [false, true] {
        for (better_on, worse_on) in [(0..4, 0..4), (0..1, 1..4), (0..2, 2..3), (3..4, 0..4)] {
            let mut bed = bed(shares);
            let what = format!("{shares} {better_on:?} {worse_on:?}");
            better_on.for_each(|queue| bed.demand_band(0x10, 2, queue, Demand::Endless));
            worse_on.for_each(|queue| bed.demand_band(0x10, 3, queue, Demand::Endless));
            bed.run(millis(30));
            let rates = bed.run_by_host(millis(200));
            let worse = rates.get(&3).copied().unwrap_or(0.0);
            assert!(worse <= 0.001 * rate(shares) as f64, "{what}: {rates:?}");
            assert_near(rates[&2], rate(shares), 0.005, &what);
            bed.assert_ceilings();
        }
    }
}

#[test]
fn worse_bands_use_the_rest_of_better_ones_on_any_queue() {
    let mut bed = bed(false);
    bed.demand_band(0x10, 1, 0, Demand::Rate(30 * MBIT));
    bed.demand_band(0x10, 2, 1, Demand::Rate(50 * MBIT));
    (0..QUEUES).for_each(|queue| bed.demand_band(0x10, 3, queue, Demand::Endless));
    bed.run(millis(30));
    let rates = bed.run_by_host(millis(200));
    assert_near(rates[&1], 30 * MBIT, 0.01, "the first band");
    assert_near(rates[&2], 50 * MBIT, 0.01, "the second");
    assert_near(rates[&3], 120 * MBIT, 0.01, "the last");
    bed.assert_ceilings();
}
