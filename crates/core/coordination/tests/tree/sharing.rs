//! Flows and hosts of one class, on whichever queues they are.

use super::{assert_near, flat, millis};
use crate::bed::{Bed, Demand, MBIT, class};
use narrows_qdisc::bands::{self, Discipline};
use narrows_qdisc::{Config, cake, fq, fq_codel, pacing};
use narrows_units::Rate;

const RATE: u64 = 200 * MBIT;

/// A class on four queues, with `leaf` in it.
fn bed(leaf: &Config) -> Bed {
    Bed::with_leaves(4, &flat(1000 * MBIT, &[class(Some(1), RATE, RATE)]), leaf)
}

#[test]
fn a_host_with_one_flow_gets_as_much_as_one_with_flows_on_all_queues() {
    let mut bed = bed(&Config::Cake(cake::Config::default()));
    bed.flood(0x10, 0, 1, 1);
    for queue in 0..4 {
        bed.flood(0x10, queue, 2, 4);
    }
    bed.run(millis(500));
    let rates = bed.run_by_host(millis(500));
    assert_near(rates[&1], RATE / 2, 0.03, "one flow");
    assert_near(rates[&2], RATE / 2, 0.03, "sixteen flows");
    bed.assert_ceilings();
}

#[test]
fn flows_get_equal_rates_on_unequal_queues() {
    let pacing = pacing::Config::new(pacing::Structure::FlowBundler, 1514);
    for leaf in [
        Config::Fq(fq::Config::default()),
        Config::FqCodel(fq_codel::Config::default()),
        Config::Pacing(pacing),
        Config::Pacing(pacing::Config { codel: Some(pacing::Codel::default()), ..pacing }),
    ] {
        let mut bed = bed(&leaf);
        bed.flood(0x10, 0, 1, 1);
        bed.flood(0x10, 1, 2, 3);
        bed.run(millis(200));
        let rates = bed.run_by_host(millis(500));
        let what = |flows| format!("{flows} below {leaf:?}");
        assert_near(rates[&1], RATE / 4, 0.03, &what("alone on its queue"));
        assert_near(rates[&2], 3 * RATE / 4, 0.03, &what("three together"));
    }
}

#[test]
fn classes_by_turns_get_their_share_on_any_number_of_queues() {
    let by_turns = [
        bands::Class { id: 1, quantum: Some(1_514) },
        bands::Class { id: 2, quantum: Some(4_542) },
    ];
    let ordered = bands::Class { id: 9, quantum: None };
    for (discipline, classes) in [
        (Discipline::Drr, by_turns.to_vec()),
        (Discipline::Ets, [&[ordered], &by_turns[..]].concat()),
    ] {
        let bands = bands::Config { discipline, classes, otherwise: None };
        let tree = flat(1000 * MBIT, &[class(Some(1), RATE, RATE)]);
        let mut bed = Bed::with_bands(4, &tree, &bands);
        (0..4).for_each(|queue| bed.demand_band(0x10, 1, queue, Demand::Endless));
        bed.demand_band(0x10, 2, 2, Demand::Endless);
        bed.run(millis(100));
        let rates = bed.run_by_host(millis(500));
        assert_near(rates[&1], RATE / 4, 0.03, &format!("{discipline:?}: on all queues"));
        assert_near(rates[&2], 3 * RATE / 4, 0.03, &format!("{discipline:?}: on one"));
        // Where one class is alone it has all.
        bed.rest(0x10);
        bed.run(millis(50));
        bed.demand_band(0x10, 1, 3, Demand::Endless);
        bed.run(millis(10));
        let rates = bed.run_by_host(millis(100));
        assert_near(rates[&1], RATE, 0.001, "alone");
    }
}

#[test]
fn tins_get_their_share_on_any_number_of_queues() {
    let diffserv = cake::Diffserv::Diffserv3;
    let mut bed = bed(&Config::Cake(cake::Config { diffserv, ..cake::Config::default() }));
    // Best effort on all queues, voice on one: quanta of 1024 and 256.
    (0..4).for_each(|queue| bed.demand_of(0x10, queue, 1, 0, Demand::Endless));
    bed.demand_of(0x10, 2, 2, 46, Demand::Endless);
    bed.run(millis(300));
    let rates = bed.run_by_host(millis(500));
    assert_near(rates[&1], RATE / 5 * 4, 0.03, "best effort");
    assert_near(rates[&2], RATE / 5, 0.03, "voice");
    bed.assert_ceilings();
}

#[test]
fn arrivals_do_not_wait_for_packets_that_their_qdisc_holds_back() {
    let max_rate = Some(Rate::from_bits_per_sec(MBIT / 10));
    let mut bed = bed(&Config::Fq(fq::Config { max_rate, ..fq::Config::default() }));
    bed.demand_of(0x10, 0, 1, 0, Demand::Endless);
    bed.run(millis(30));
    // The first flow's next packet leaves in 90 ms.
    bed.demand_of(0x10, 0, 2, 0, Demand::Endless);
    let rates = bed.run_by_host(millis(1));
    assert!(rates.get(&2).is_some_and(|rate| *rate > 0.0), "{rates:?}");
}
