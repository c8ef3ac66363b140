//! Flows and hosts of one class, on whichever queues they are.

use super::{assert_near, flat, millis};
use crate::bed::{Bed, MBIT, class};
use narrows_qdisc::{Config, cake, fq, fq_codel, pacing};

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
fn flows_get_the_same_however_many_share_their_queue() {
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
