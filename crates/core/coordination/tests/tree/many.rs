//! Many classes that wait for the same lender share what it has.

use super::bed::{Bed, Demand, MBIT, class};
use super::{GBIT, millis};
use narrows_coordination::Fluid;
use narrows_qdisc::htb::Class;
use std::collections::BTreeMap;

/// A full frame in a tenth of a second, in bits per second.
const FRAME: f64 = 1514.0 * 80.0;

const SITES: u32 = 8;
const LEAVES_A_SITE: u32 = 8;

/// Leaves below a root, or below sites below it; `leaf` gives each by its number.
fn tree(has_sites: bool, leaf: impl Fn(u32) -> Class) -> Vec<(u32, Class)> {
    let mut classes = vec![(1, class(None, GBIT, GBIT))];
    for site in 0..SITES {
        let id = (site + 1) << 8;
        if has_sites {
            classes.push((id, class(Some(1), (40 + 20 * u64::from(site)) * MBIT, GBIT)));
        }
        for number in 0..LEAVES_A_SITE {
            let parent = Some(if has_sites { id } else { 1 });
            let class = Class { parent, ..leaf(site * LEAVES_A_SITE + number) };
            classes.push((id + number + 1, class));
        }
    }
    classes
}

/// The rate of each overloaded leaf over a tenth of a second, on one of the queues or on all, and
/// its due rate: in bits per second.
fn rates(queues: usize, everywhere: bool, classes: &[(u32, Class)]) -> BTreeMap<u32, (f64, f64)> {
    let mut bed = Bed::new(queues, classes);
    let leaves = classes.iter().map(|(id, _)| *id).filter(|id| id & 0xff != 0 && *id != 1);
    let mut demands = BTreeMap::new();
    for (number, leaf) in leaves.enumerate() {
        // A class of short packets has no more turns than others.
        let len = if number % 3 == 0 { 700 } else { 1514 };
        match everywhere {
            true => bed.demand_everywhere(leaf, len, Demand::Endless),
            false => bed.demand(leaf, number % queues, len, Demand::Endless),
        }
        demands.insert(leaf, 1e12);
    }
    bed.run(millis(10));
    let rates = bed.run(millis(100));
    bed.assert_ceilings();
    let fluid = Fluid::of(&bed.classes, &demands);
    demands.keys().map(|leaf| (*leaf, (rates[leaf], fluid.passes(*leaf)))).collect()
}

#[test]
fn many_classes_share_borrowed_rate_within_a_few_frames() {
    let small = class(None, MBIT, GBIT);
    let by_quantum = |number| Class { quantum: 2_000 + 2_000 * (number % 4), ..small };
    let by_rate = |number| class(None, (1 + u64::from(number % 4) * 5) * MBIT, GBIT);
    for (name, classes) in [
        ("equal ones", tree(false, |_| small)),
        ("by quantum", tree(false, by_quantum)),
        ("with rates of their own", tree(false, by_rate)),
        ("below sites", tree(true, |_| small)),
    ] {
        for (queues, everywhere) in [(1, true), (4, false), (4, true)] {
            for (leaf, (rate, due)) in rates(queues, everywhere, &classes) {
                let (had, due) = (rate / FRAME, due / FRAME);
                assert!(
                    (had - due).abs() <= 6.0,
                    "{queues} queues, {name}, {leaf:x}: {had:.0} frames of {due:.0}"
                );
            }
        }
    }
}

#[test]
fn no_site_waits_for_credit_that_another_borrows() {
    let classes = tree(true, |_| class(None, MBIT, GBIT));
    let mut bed = Bed::new(1, &classes);
    for (id, _) in classes.iter().filter(|(id, _)| id & 0xff != 0 && *id != 1) {
        bed.demand_everywhere(*id, 1514, Demand::Endless);
    }
    // All begin with their whole credit, and are in debt at their sites.
    bed.run(millis(6));
    for _ in 0..10 {
        let rates = bed.run(millis(2));
        let assured = |id: &u32| bed.classes[id].rate.bits_per_sec() as f64;
        // Six frames in two milliseconds.
        let least = |id: &u32| assured(id) - 6.0 * 50.0 * FRAME;
        for site in (1..=SITES).map(|site| site << 8).filter(|site| assured(site) > 1e8) {
            assert!(rates[&site] >= least(&site), "{site:x}: {:.0}", rates[&site]);
        }
    }
}

#[test]
fn a_lender_that_has_sold_its_last_credit_is_rarely_asked_for_more() {
    let classes = tree(true, |_| class(None, MBIT, GBIT));
    // Of four queues that wait for the same credit, one gets it.
    for (queues, most) in [(1, 0.25), (4, 1.5)] {
        let mut bed = Bed::new(queues, &classes);
        for (id, _) in classes.iter().filter(|(id, _)| id & 0xff != 0 && *id != 1) {
            bed.demand_everywhere(*id, 1514, Demand::Endless);
        }
        bed.run(millis(10));
        let (refused, packets) = (bed.refused(), bed.packets);
        bed.run(millis(100));
        let each = (bed.refused() - refused) as f64 / (bed.packets - packets) as f64;
        assert!(each <= most, "{queues} queues: {each} turns without credit for each packet");
    }
}
