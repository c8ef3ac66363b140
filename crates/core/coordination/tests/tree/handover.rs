//! What another process continues with.

use super::bed::{Bed, Demand, MBIT, class};
use super::{GBIT, millis};
use narrows_qdisc::htb::Class;
use narrows_units::Bytes;

/// A root, a site and two leaves, with bursts of a megabyte: 80 ms of the site.
fn tree() -> Vec<(u32, Class)> {
    let burst = Bytes(1_000_000);
    let bursty = |class: Class| Class { burst, cburst: burst, ..class };
    vec![
        (1, bursty(class(None, GBIT, GBIT))),
        (0x10, bursty(class(Some(1), 100 * MBIT, 100 * MBIT))),
        (0x11, bursty(class(Some(0x10), 20 * MBIT, 100 * MBIT))),
        (0x12, bursty(class(Some(0x10), 30 * MBIT, 50 * MBIT))),
    ]
}

#[test]
fn no_burst_is_granted_twice() {
    for queues in [1, 4] {
        let mut bed = Bed::new(queues, &tree());
        for leaf in [0x11, 0x12] {
            bed.demand_everywhere(leaf, 1514, Demand::Endless);
        }
        bed.run(millis(100));
        for _ in 0..5 {
            bed.hand_over();
            let rates = bed.run(millis(5));
            assert!((rates[&0x10] / 100e6 - 1.0).abs() < 0.02, "{rates:?}");
        }
        bed.assert_ceilings();
    }
}

#[test]
fn credit_that_was_not_used_stays() {
    let mut bed = Bed::new(2, &tree());
    assert!(bed.spent().is_empty(), "all have their whole credit");
    bed.demand(0x11, 0, 1514, Demand::Rate(200 * MBIT));
    bed.run(millis(20));
    bed.rest(0x11);
    let before = bed.spent();
    let (site, leaf) = (before.iter().find(|it| it.class == 0x10), before.last().unwrap());
    // The ceiling of the site stands for its rate, too; nobody sent for the other leaf.
    assert!(site.unwrap().rate.0 == 0 && leaf.class == 0x11, "{before:?}");
    // The leaf's own ceiling is no lower than the site's, which is sold for both.
    assert!(leaf.rate.0 > 0 && leaf.rate < bed.now && leaf.ceil.0 == 0, "{leaf:?}");
    bed.hand_over();
    assert_eq!(bed.spent(), before);
    // About half of the megabyte is left: what the site did not earn meanwhile is used.
    bed.demand(0x12, 1, 1514, Demand::Endless);
    let rates = bed.run(millis(10));
    assert!(rates[&0x12] > 300e6, "{rates:?}");
    bed.run(millis(100));
    let before = bed.spent();
    // That of the other leaf is lower.
    assert!(before.iter().any(|it| it.class == 0x12 && it.ceil.0 > 0), "{before:?}");
    bed.hand_over();
    assert_eq!(bed.spent(), before);
    bed.run(millis(1));
    bed.assert_ceilings();
    bed.rest(0x12);
    bed.run(millis(300));
    assert!(bed.spent().is_empty(), "{:?}", bed.spent());
}
