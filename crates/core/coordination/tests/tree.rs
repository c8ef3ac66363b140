//! What a tree promises over many queues, in virtual time.

#[path = "tree/bed.rs"]
mod bed;
#[path = "tree/handover.rs"]
mod handover;
#[path = "tree/many.rs"]
mod many;
#[path = "tree/ranks.rs"]
mod ranks;
#[path = "tree/sharing.rs"]
mod sharing;
#[path = "tree/strategies.rs"]
mod strategies;
#[path = "tree/waking.rs"]
mod waking;

use bed::{Bed, Demand, MBIT, class};
use narrows_coordination::{Below, Fluid, Tree};
use narrows_qdisc::htb::Class;
use narrows_qdisc::{Config, NodeId};
use narrows_units::{Bytes, Nanos};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngSeed, TestRunner};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

const GBIT: u64 = 1000 * MBIT;

const fn millis(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

#[track_caller]
fn assert_near(rate: f64, expected: u64, within: f64, what: &str) {
    let error = (rate / expected as f64 - 1.0).abs();
    assert!(error <= within, "{what}: {rate:.0} bit/s instead of {expected}");
}

/// A root and leaves below it, numbered from 0x10.
fn flat(root: u64, leaves: &[Class]) -> Vec<(u32, Class)> {
    let mut classes = vec![(1, class(None, root, root))];
    classes.extend((0x10..).zip(leaves.iter().copied()));
    classes
}

#[test]
fn the_sum_over_all_queues_is_the_rate() {
    for queues in [1, 2, 4, 16, 64] {
        let leaves = [class(Some(1), 300 * MBIT, GBIT), class(Some(1), 200 * MBIT, GBIT)];
        let mut bed = Bed::new(queues, &flat(GBIT, &leaves));
        bed.demand_everywhere(0x10, 1514, Demand::Endless);
        bed.demand_everywhere(0x11, 700, Demand::Endless);
        bed.run(millis(10));
        let rates = bed.run(millis(100));
        assert_near(rates[&1], GBIT, 0.0005, &format!("{queues} queues"));
        bed.assert_ceilings();
    }
}

#[test]
fn an_assured_rate_holds_under_any_load_of_others() {
    for queues in [1, 4, 16] {
        let leaves = [
            class(Some(1), 300 * MBIT, GBIT),
            Class { prio: 7, ..class(Some(1), 100 * MBIT, GBIT) },
            class(Some(1), 10 * MBIT, GBIT),
        ];
        let mut bed = Bed::new(queues, &flat(GBIT, &leaves));
        bed.demand_everywhere(0x10, 1514, Demand::Endless);
        bed.demand_everywhere(0x12, 1514, Demand::Endless);
        bed.run(millis(50));
        // 80 Mbit/s on one queue, of which the others know nothing.
        bed.demand(0x11, queues - 1, 500, Demand::Rate(80 * MBIT));
        bed.run(millis(10));
        bed.longest_wait.clear();
        let rates = bed.run(millis(100));
        assert_near(rates[&0x11], 80 * MBIT, 0.005, &format!("{queues} queues"));
        assert_near(rates[&1], GBIT, 0.0005, "all");
        let wait = bed.longest_wait[&0x11];
        assert!(wait <= Nanos::from_micros(200), "{queues} queues: {wait:?}");
        bed.assert_ceilings();
    }
}

#[test]
fn what_is_assured_does_not_wait_where_better_ones_borrow() {
    // The root has little more than all are assured, and better priorities want that.
    let leaf = |parent, rate, ceil, prio| {
        let class = class(Some(parent), rate * MBIT, ceil * MBIT);
        Class { prio, quantum: 3_000, ..class }
    };
    let site = |ceil| class(Some(1), 160 * MBIT, ceil * MBIT);
    let classes = [
        (1, class(None, 500 * MBIT, 500 * MBIT)),
        (0x10, site(448)),
        (0x11, leaf(0x10, 14, 374, 0)),
        (0x12, leaf(0x10, 80, 97, 2)),
        (0x20, site(372)),
        (0x21, leaf(0x20, 49, 282, 1)),
        (0x22, leaf(0x20, 53, 98, 1)),
        (0x30, site(408)),
        (0x31, leaf(0x30, 53, 288, 2)),
        (0x32, leaf(0x30, 53, 162, 1)),
        (0x33, leaf(0x30, 50, 290, 2)),
    ];
    let mut bed = Bed::new(2, &classes);
    for (number, leaf) in [0x11, 0x12, 0x21, 0x22, 0x31, 0x32, 0x33].into_iter().enumerate() {
        bed.demand(leaf, number % 2, 1514, Demand::Endless);
    }
    bed.run(millis(10));
    let rates = bed.run(millis(100));
    for (leaf, mbit) in [(0x12, 80.0), (0x31, 53.0), (0x32, 53.0), (0x33, 50.0)] {
        let rate = rates[&leaf] / 1e6;
        assert!(rate >= 0.99 * mbit, "{leaf:x}: {rate:.1} of {mbit} Mbit/s");
    }
}

#[test]
fn excess_is_shared_by_quantum() {
    for queues in [1, 2, 4, 16] {
        let leaf = |quantum| Class { quantum, ..class(Some(1), 100 * MBIT, GBIT) };
        let mut bed = Bed::new(queues, &flat(GBIT, &[leaf(3_000), leaf(9_000)]));
        bed.demand_everywhere(0x10, 1514, Demand::Endless);
        bed.demand_everywhere(0x11, 1514, Demand::Endless);
        bed.run(millis(10));
        let rates = bed.run(millis(100));
        assert_near(rates[&0x10], 300 * MBIT, 0.01, &format!("{queues} queues: the light one"));
        assert_near(rates[&0x11], 700 * MBIT, 0.01, &format!("{queues} queues: the heavy one"));
    }
}

#[test]
fn excess_is_shared_wherever_the_classes_are() {
    // One is on one queue, the other on all.
    let leaf = class(Some(1), 100 * MBIT, GBIT);
    let mut bed = Bed::new(8, &flat(GBIT, &[leaf, leaf]));
    bed.demand(0x10, 3, 1514, Demand::Endless);
    bed.demand_everywhere(0x11, 1514, Demand::Endless);
    bed.run(millis(10));
    let rates = bed.run(millis(100));
    assert_near(rates[&0x10], 500 * MBIT, 0.01, "on one queue");
    assert_near(rates[&0x11], 500 * MBIT, 0.01, "on all");
}

#[test]
fn a_better_priority_borrows_everything_first() {
    for queues in [1, 4, 16] {
        let leaf = |prio| Class { prio, ..class(Some(1), MBIT, GBIT) };
        let mut bed = Bed::new(queues, &flat(GBIT, &[leaf(1), leaf(2)]));
        bed.demand_everywhere(0x10, 1514, Demand::Endless);
        bed.demand_everywhere(0x11, 1514, Demand::Endless);
        bed.run(millis(30));
        let rates = bed.run(millis(200));
        // Its own rate, and a thousandth.
        assert!(rates[&0x11] < 2.1e6, "{queues} queues: {rates:?}");
        assert_near(rates[&1], GBIT, 0.0005, "all");
    }
}

#[test]
fn worse_priorities_use_the_rest_of_better_ones() {
    let leaf = |prio| Class { prio, ..class(Some(1), MBIT, GBIT) };
    let mut bed = Bed::new(4, &flat(GBIT, &[leaf(0), leaf(2)]));
    bed.demand(0x10, 0, 1514, Demand::Rate(300 * MBIT));
    bed.demand_everywhere(0x11, 1514, Demand::Endless);
    bed.run(millis(10));
    let rates = bed.run(millis(100));
    assert_near(rates[&0x10], 300 * MBIT, 0.01, "the better one");
    assert_near(rates[&0x11], 700 * MBIT, 0.01, "the other one");
}

#[test]
fn a_better_priority_waits_at_most_50_us_for_worse_ones() {
    // The longest wait of the better one beside one that wants all that is left, or nothing.
    let wait = |mbit, len, on: &[usize], worse: Option<u32>| {
        let leaf = |prio| Class { prio, ..class(Some(1), MBIT, GBIT) };
        let mut bed = Bed::new(4, &flat(GBIT, &[leaf(0), leaf(2)]));
        for &queue in on {
            let rate = mbit * MBIT / on.len() as u64;
            bed.demand(0x10, queue, len, Demand::Rate(rate));
        }
        if let Some(len) = worse {
            bed.demand_everywhere(0x11, len, Demand::Endless);
        }
        bed.run(millis(10));
        bed.longest_wait.clear();
        bed.run(millis(40));
        bed.longest_wait[&0x10]
    };
    for mbit in [20, 300, 950] {
        for on in [&[0][..], &[1, 3], &[0, 1, 2, 3]] {
            for (len, worse) in [(1514, 1514), (100, 1514), (1514, 100)] {
                let alone = wait(mbit, len, on, None);
                let beside = wait(mbit, len, on, Some(worse));
                let what = format!("{mbit} Mbit/s of {len} bytes on {on:?} beside {worse}");
                assert!(beside <= alone + Nanos::from_micros(50), "{what}: {beside:?}");
            }
        }
    }
}

#[test]
fn a_class_never_exceeds_its_ceiling_on_any_number_of_queues() {
    for queues in [1, 4, 64] {
        let leaves = [class(Some(1), 50 * MBIT, 200 * MBIT), class(Some(1), 50 * MBIT, GBIT)];
        let mut bed = Bed::new(queues, &flat(GBIT, &leaves));
        bed.demand_everywhere(0x10, 1514, Demand::Endless);
        bed.run(millis(10));
        // So long that a batch of three frames is less than that.
        let rates = bed.run(millis(400));
        assert_near(rates[&0x10], 200 * MBIT, 0.0005, &format!("{queues} queues"));
        bed.assert_ceilings();
    }
}

/// A class with these rates in Mbit/s, this priority and quantum, below `parent`.
fn child(parent: u32, [rate, ceil]: [u64; 2], prio: u8, quantum: u32) -> Class {
    Class { prio, quantum, ..class(Some(parent), rate * MBIT, ceil * MBIT) }
}

#[test]
fn a_class_that_waits_for_a_ceiling_claims_nothing_above_it() {
    // The first site never borrows. At the root its better priority takes nothing from the
    // others, and its worse one does not come before them.
    let classes = [
        (1, class(None, 500 * MBIT, 500 * MBIT)),
        (0x10, child(1, [160, 160], 0, 6_000)),
        (0x11, child(0x10, [15, 89], 1, 9_000)),
        (0x12, child(0x10, [24, 96], 0, 6_000)),
        (0x13, child(0x10, [53, 112], 1, 3_000)),
        (0x20, child(1, [160, 500], 0, 6_000)),
        (0x21, child(0x20, [53, 389], 2, 3_000)),
        (0x22, child(0x20, [32, 183], 1, 9_000)),
        (0x23, child(0x20, [53, 399], 1, 3_000)),
        (0x30, child(1, [78, 78], 0, 6_000)),
    ];
    let mut bed = Bed::new(2, &classes);
    for leaf in [0x11, 0x12, 0x13, 0x21, 0x30] {
        bed.demand_everywhere(leaf, 1514, Demand::Endless);
    }
    bed.demand(0x22, 0, 1000, Demand::Rate(190 * MBIT));
    bed.demand(0x23, 1, 1000, Demand::Rate(275 * MBIT));
    bed.run(millis(10));
    let rates = bed.run(millis(100));
    assert_near(rates[&0x10], 160 * MBIT, 0.01, "a site at its ceiling");
    assert_near(rates[&0x22], 125 * MBIT, 0.02, "its own and three quarters of the excess");
    assert_near(rates[&0x23], 84 * MBIT, 0.02, "its own and a quarter");
}

#[test]
fn a_class_takes_what_its_site_has_while_it_may_not_borrow_further_up() {
    // The last site never borrows. While its class waits for the site's next credit, better
    // priorities have a right to what the root lends.
    let classes = [
        (1, class(None, 500 * MBIT, 500 * MBIT)),
        (0x10, child(1, [160, 160], 0, 6_000)),
        (0x11, child(0x10, [40, 129], 2, 3_000)),
        (0x12, child(0x10, [46, 46], 0, 3_000)),
        (0x20, child(1, [160, 185], 0, 6_000)),
        (0x21, child(0x20, [50, 73], 1, 6_000)),
        (0x22, child(0x20, [10, 85], 1, 9_000)),
        (0x23, child(0x20, [35, 46], 1, 3_000)),
        (0x30, child(1, [160, 160], 0, 6_000)),
        (0x31, child(0x30, [5, 160], 2, 3_000)),
    ];
    let mut bed = Bed::new(2, &classes);
    for (number, leaf) in [0x11, 0x12, 0x21, 0x22, 0x23, 0x31].into_iter().enumerate() {
        bed.demand(leaf, number % 2, 1514, Demand::Endless);
    }
    bed.run(millis(10));
    let rates = bed.run(millis(200));
    assert_near(rates[&0x31], 160 * MBIT, 0.0005, "one that never borrows further up");
}

#[test]
fn a_better_priority_leaves_the_root_s_credit_to_another_site() {
    // The second site has enough for its better priority, which therefore borrows nothing from
    // the root; otherwise its worse one would have what the site lends in its place.
    let classes = [
        (1, class(None, 500 * MBIT, 500 * MBIT)),
        (0x10, child(1, [240, 482], 0, 6_000)),
        (0x11, child(0x10, [71, 71], 2, 3_000)),
        (0x12, child(0x10, [40, 217], 0, 3_000)),
        (0x13, child(0x10, [80, 80], 1, 9_000)),
        (0x20, child(1, [240, 589], 0, 6_000)),
        (0x21, child(0x20, [28, 72], 0, 3_000)),
        (0x22, child(0x20, [29, 137], 0, 9_000)),
        (0x23, child(0x20, [48, 81], 1, 6_000)),
    ];
    let mut bed = Bed::new(2, &classes);
    for (leaf, queue) in [(0x11, 0), (0x12, 1), (0x13, 0), (0x23, 1)] {
        bed.demand(leaf, queue, 1514, Demand::Endless);
    }
    bed.demand(0x21, 1, 1000, Demand::Rate(43 * MBIT));
    bed.demand(0x22, 0, 1000, Demand::Rate(245 * MBIT));
    bed.run(millis(10));
    let rates = bed.run(millis(100));
    assert_near(rates[&0x12], 109 * MBIT, 0.01, "the better one");
    assert_near(rates[&0x23], 60 * MBIT, 0.01, "the worse one");
}

#[test]
fn equal_classes_share_what_their_site_lends_beside_a_better_priority() {
    // The last site borrows nothing from the root, where the better priority of the first one takes
    // all that the second one leaves.
    let classes = [
        (1, class(None, 500 * MBIT, 500 * MBIT)),
        (0x100, child(1, [160, 528], 0, 6_000)),
        (0x120, child(0x100, [78, 319], 0, 6_000)),
        (0x121, child(0x120, [78, 227], 1, 3_000)),
        (0x200, child(1, [160, 244], 0, 6_000)),
        (0x210, child(0x200, [156, 156], 0, 6_000)),
        (0x211, child(0x210, [46, 189], 0, 6_000)),
        (0x300, child(1, [160, 541], 0, 6_000)),
        (0x320, child(0x300, [78, 288], 0, 6_000)),
        (0x321, child(0x320, [26, 237], 2, 3_000)),
        (0x323, child(0x320, [26, 126], 2, 3_000)),
    ];
    let mut bed = Bed::new(5, &classes);
    bed.demand(0x121, 1, 1514, Demand::Endless);
    bed.demand(0x211, 2, 1000, Demand::Rate(137 * MBIT));
    bed.demand(0x321, 0, 1514, Demand::Endless);
    bed.demand(0x323, 2, 1514, Demand::Endless);
    bed.run(millis(10));
    let rates = bed.run(millis(100));
    assert_near(rates[&0x121], 203 * MBIT, 0.01, "the better priority");
    assert_near(rates[&0x321], 80 * MBIT, 0.02, "the one");
    assert_near(rates[&0x323], 80 * MBIT, 0.02, "the other");
}

#[test]
fn a_class_that_leaves_and_comes_back_is_missed_for_a_millisecond() {
    // After a pause it may have a tenth of a millisecond's worth at once.
    let leaf = Class { burst: Bytes(6_000), ..class(Some(1), 400 * MBIT, GBIT) };
    let mut bed = Bed::new(4, &flat(GBIT, &[leaf, leaf]));
    bed.demand_everywhere(0x11, 1514, Demand::Endless);
    for _ in 0..3 {
        bed.demand_everywhere(0x10, 1514, Demand::Endless);
        bed.run(millis(1));
        let rates = bed.run(millis(5));
        assert_near(rates[&0x10], 500 * MBIT, 0.01, "back");
        bed.rest(0x10);
        // Queued packets take time to leave.
        bed.run(millis(11));
        let rates = bed.run(millis(5));
        assert!(rates[&0x11] > 0.995 * 1e9, "alone: {rates:?}");
    }
    bed.assert_ceilings();
}

#[test]
fn sixteen_levels_keep_every_ceiling() {
    let mut classes = vec![(1, class(None, GBIT, GBIT))];
    for level in 2..=15u32 {
        classes.push((level, class(Some(level - 1), (1000 - 10 * u64::from(level)) * MBIT, GBIT)));
    }
    classes.push((0x20, class(Some(15), 100 * MBIT, 600 * MBIT)));
    classes.push((0x21, class(Some(15), 100 * MBIT, GBIT)));
    let mut bed = Bed::new(4, &classes);
    bed.demand_everywhere(0x20, 1514, Demand::Endless);
    bed.demand_everywhere(0x21, 200, Demand::Endless);
    bed.run(millis(10));
    // The root's bucket holds up to two thirds of a millisecond at either end.
    let rates = bed.run(millis(1600));
    assert_near(rates[&1], GBIT, 0.0005, "all");
    assert_near(rates[&0x20], 500 * MBIT, 0.01, "one of two");
    bed.assert_ceilings();
}

/// The rate of the roots of [`any_tree`], in bits per second.
const ROOT: f64 = 5e8;

/// What is counted of any tree.
const WINDOW_SECS: f64 = 0.1;

/// A tree, and the offered load of its leaves, in bits per second; `None` is more than can leave.
type Case = (Vec<(u32, Class)>, Vec<(u32, Option<u64>)>);

/// A leaf's assured rate and ceiling in Mbit/s, priority, weight, and offered load in Mbit/s.
type AnyLeaf = (u64, u64, u8, u32, Option<u64>);

fn any_leaf() -> impl Strategy<Value = AnyLeaf> {
    (5u64..100, 5u64..400, 0u8..3, 1u32..4, prop::option::of(1u64..300))
}

/// A tree of three levels.
fn any_tree() -> impl Strategy<Value = Case> {
    tree_of(1..4, 1..4)
}

/// A tree of three levels with many leaves that wait for the same lenders.
fn large_tree() -> impl Strategy<Value = Case> {
    tree_of(4..9, 5..12)
}

fn root() -> Case {
    (vec![(1, class(None, 500 * MBIT, 500 * MBIT))], Vec::new())
}

/// What the root's classes are assured together: a little less than it has. Where sums are equal to
/// the bit, a burst that was had once is owed for ever, and what passes the root is shared by who
/// comes first.
const ASSURED_MBIT: u64 = 480;

/// A tree of this many groups of this many leaves.
fn tree_of(groups: Range<usize>, leaves: Range<usize>) -> impl Strategy<Value = Case> {
    let group = (prop::collection::vec(any_leaf(), leaves), 100u64..600);
    prop::collection::vec(group, groups).prop_map(|groups| {
        let mut case = root();
        let rate = ASSURED_MBIT / groups.len() as u64;
        for (number, group) in (0x10..).step_by(0x10).zip(groups) {
            add_group(&mut case, 1, number, rate, group);
        }
        case
    })
}

/// A tree of four levels.
fn deep_tree() -> impl Strategy<Value = Case> {
    let group = (prop::collection::vec(any_leaf(), 1..4), 60u64..600);
    let site = (prop::collection::vec(group, 1..3), 100u64..600);
    prop::collection::vec(site, 1..4).prop_map(|sites| {
        let mut case = root();
        let rate = ASSURED_MBIT / sites.len() as u64;
        for (site, (groups, ceil)) in (0x100..).step_by(0x100).zip(sites) {
            case.0.push((site, class(Some(1), rate * MBIT, ceil.max(rate) * MBIT)));
            let rate = (rate - 4) / groups.len() as u64;
            for (number, group) in (site + 0x10..).step_by(0x10).zip(groups) {
                add_group(&mut case, site, number, rate, group);
            }
        }
        case
    })
}

/// Adds the group `number` with its leaves and its ceiling below `parent`, and assures it `rate`.
fn add_group(
    (classes, demands): &mut Case,
    parent: u32,
    number: u32,
    rate: u64,
    (leaves, ceil): (Vec<AnyLeaf>, u64),
) {
    classes.push((number, class(Some(parent), rate * MBIT, ceil.max(rate) * MBIT)));
    let most = rate / leaves.len() as u64;
    for (id, (assured, ceil, prio, weight, demand)) in (number + 1..).zip(leaves) {
        let assured = assured.min(most);
        let leaf = class(Some(number), assured * MBIT, ceil.max(assured) * MBIT);
        classes.push((id, Class { prio, quantum: weight * 3_000, ..leaf }));
        demands.push((id, demand.map(|demand| demand * MBIT)));
    }
}

#[test]
fn a_priority_is_kept_by_workers_that_come_late() {
    for (better_on, worse_on) in [(0..4, 0..4), (0..1, 1..4), (0..2, 2..3)] {
        let leaf = |prio| Class { prio, ..class(Some(1), MBIT, GBIT) };
        let mut bed = Bed::new(4, &flat(GBIT, &[leaf(1), leaf(2)]));
        bed.lateness = millis(1);
        better_on.clone().for_each(|queue| bed.demand(0x10, queue, 1514, Demand::Endless));
        worse_on.clone().for_each(|queue| bed.demand(0x11, queue, 1514, Demand::Endless));
        bed.run(millis(30));
        let rates = bed.run(millis(500));
        let what = format!("{better_on:?} {worse_on:?}: {rates:?}");
        // Its own rate, and what one worker alone leaves that comes so late that the root's
        // bucket has been filled meanwhile.
        let most = if better_on.len() > 1 { 2.1e6 } else { 16e6 };
        assert!(rates[&0x11] < most, "{what}");
        assert!(rates[&1] > 0.975e9, "{what}");
    }
}

#[test]
fn claims_of_a_lost_worker_go_to_others() {
    let leaf = |prio| Class { prio, ..class(Some(1), MBIT, GBIT) };
    let mut bed = Bed::new(2, &flat(GBIT, &[leaf(1), leaf(2)]));
    bed.demand(0x10, 0, 1514, Demand::Endless);
    bed.demand(0x11, 1, 1514, Demand::Endless);
    bed.run(millis(30));
    bed.kill(0);
    bed.run(millis(5));
    let rates = bed.run(millis(100));
    assert_near(rates[&0x11], GBIT, 0.0005, "the other one");
}

/// How a tree is used: on how many queues, and whether all of them send for an overloaded leaf. One
/// more bool is drawn and ignored, so the same trees are drawn as before.
fn any_use() -> impl Strategy<Value = (usize, bool)> {
    let ignored = prop::sample::select(&[false, true][..]);
    (1usize..9, any::<bool>(), ignored).prop_map(|(queues, everywhere, _)| (queues, everywhere))
}

/// The rate of each class of a tree over 100 ms, 10 ms after the start, in bits per second.
/// Meanwhile no ceiling is exceeded.
fn rates((classes, demands): &Case, used: (usize, bool)) -> (Bed, BTreeMap<u32, f64>) {
    let (queues, everywhere) = used;
    let mut bed = Bed::new(queues, classes);
    for (number, (leaf, demand)) in demands.iter().enumerate() {
        match demand {
            Some(rate) => bed.demand(*leaf, number % queues, 1000, Demand::Rate(*rate)),
            None if everywhere => bed.demand_everywhere(*leaf, 1514, Demand::Endless),
            None => bed.demand(*leaf, number % queues, 1514, Demand::Endless),
        }
    }
    bed.run(millis(10));
    bed.longest_wait.clear();
    let rates = bed.run(millis((WINDOW_SECS * 1e3) as u64));
    bed.assert_ceilings();
    (bed, rates)
}

/// The due rates of the same tree.
fn due_rates((classes, demands): &Case) -> BTreeMap<u32, f64> {
    let wanted = |demand: Option<u64>| demand.map_or(1e12, |rate| rate as f64);
    let demands = demands.iter().map(|(leaf, demand)| (*leaf, wanted(*demand))).collect();
    let members: BTreeMap<u32, Class> = classes.iter().copied().collect();
    let fluid = Fluid::of(&members, &demands);
    members.keys().map(|id| (*id, fluid.passes(*id))).collect()
}

/// The classes that have enough to send and use less of their ceilings than all but a burst, with
/// the bytes that they lack. More than the ceiling is never sent, but for a burst, and as much may
/// be left at the end.
fn lacking(bed: &Bed, rates: &BTreeMap<u32, f64>, due: &BTreeMap<u32, f64>) -> BTreeMap<u32, f64> {
    let mut lacking = BTreeMap::new();
    for (id, class) in &bed.classes {
        let ceil = class.ceil.bits_per_sec() as f64;
        let rate = rates.get(id).copied().unwrap_or(0.0);
        let lacks = (ceil * (1.0 - 0.0005) - rate) * WINDOW_SECS / 8.0;
        if due[id] >= ceil * (1.0 - 1e-9) && lacks > Bed::burst(class) as f64 {
            lacking.insert(*id, lacks);
        }
    }
    lacking
}

/// The bursts of the class `id` and of all leaves of better priorities.
fn bursts_before(bed: &Bed, id: u32) -> f64 {
    let parents: BTreeSet<u32> = bed.classes.values().filter_map(|class| class.parent).collect();
    let own = &bed.classes[&id];
    let before = bed.classes.iter().filter(|(other, class)| {
        **other == id || (class.prio < own.prio && !parents.contains(other))
    });
    before.map(|(_, class)| Bed::burst(class) as f64).sum()
}

fn lacks_too_much(id: u32, lacks: f64) -> String {
    format!("class {id:x} lacks {lacks:.0} bytes of its ceiling")
}

/// Beside the fluid model, each class of a tree over 100 ms, 10 ms after the start.
struct Shares {
    /// Each class with its rate and its due rate, in bits per second.
    rates: Vec<(u32, f64, f64)>,
    /// Guarantees that are not kept, in words.
    broken: Vec<String>,
}

impl Shares {
    fn of(case: &Case, used: (usize, bool)) -> Self {
        let (mut bed, rates) = rates(case, used);
        let due = due_rates(case);
        let rate = |id: &u32| rates.get(id).copied().unwrap_or(0.0);
        let mut broken = Vec::new();
        for (leaf, demand) in &case.1 {
            let assured = bed.classes[leaf].rate.bits_per_sec();
            if let Some(demand) = demand.filter(|demand| *demand <= assured) {
                let lacks = (demand as f64 - rate(leaf)) * WINDOW_SECS / 8.0;
                if lacks > 1000.0 {
                    broken.push(format!("class {leaf:x} gets {lacks} bytes less than it sends"));
                }
                let wait = bed.longest_wait.get(leaf).copied().unwrap_or_default();
                if wait > Nanos::from_micros(200) {
                    broken.push(format!("a packet of class {leaf:x} waits {wait:?}"));
                }
            }
        }
        let lacking = lacking(&bed, &rates, &due);
        if !lacking.is_empty() {
            // Better priorities may still have borrowed what their buckets held at the start.
            let beyond = lacking.iter().filter(|(id, lacks)| **lacks > bursts_before(&bed, **id));
            broken.extend(beyond.map(|(id, lacks)| lacks_too_much(*id, *lacks)));
            let rates = bed.run(millis((WINDOW_SECS * 1e3) as u64));
            let still = self::lacking(&bed, &rates, &due);
            broken.extend(still.iter().map(|(id, lacks)| lacks_too_much(*id, *lacks)));
        }
        Self { rates: due.iter().map(|(id, due)| (*id, rate(id), *due)).collect(), broken }
    }

    /// How far off the worst class is, as a part of the root's rate.
    fn error(&self) -> f64 {
        let error = |(_, rate, due): &(u32, f64, f64)| (rate - due).abs() / ROOT;
        self.rates.iter().map(error).fold(0.0, f64::max)
    }
}

/// The random tree with seed 8 and number 1950.
#[test]
fn a_class_waits_for_the_bursts_of_better_priorities_and_then_uses_its_ceiling() {
    let leaf = |parent, rate, ceil, prio, weight: u32| {
        let class = class(Some(parent), rate * MBIT, ceil * MBIT);
        Class { prio, quantum: weight * 3_000, ..class }
    };
    let site = |ceil| class(Some(1), 160 * MBIT, ceil * MBIT);
    let classes = vec![
        (1, class(None, 500 * MBIT, 500 * MBIT)),
        (0x10, site(392)),
        (0x11, leaf(0x10, 33, 59, 1, 3)),
        (0x12, leaf(0x10, 53, 334, 2, 2)),
        (0x13, leaf(0x10, 53, 322, 2, 2)),
        (0x20, site(538)),
        (0x21, leaf(0x20, 30, 174, 0, 1)),
        (0x30, site(478)),
        (0x31, leaf(0x30, 73, 354, 1, 3)),
        (0x32, leaf(0x30, 50, 233, 2, 3)),
    ];
    let all = |mbit: [Option<u64>; 6]| [0x11, 0x12, 0x13, 0x21, 0x31, 0x32].into_iter().zip(mbit);
    let demands = all([None, None, Some(174), Some(224), Some(10), None])
        .map(|(id, mbit)| (id, mbit.map(|mbit| mbit * MBIT)))
        .collect();
    let case = (classes, demands);
    let due = due_rates(&case);
    // What better ones have left is borrowed by the class to its ceiling.
    assert_near(due[&0x11], 59 * MBIT, 1e-9, "the class");
    let (mut bed, first) = rates(&case, (7, true));
    let bytes = |rate: f64| rate * WINDOW_SECS / 8.0;
    let (lacks, more) = (bytes(due[&0x11] - first[&0x11]), bytes(first[&0x21] - due[&0x21]));
    assert!(lacks > Bed::burst(&bed.classes[&0x11]) as f64, "{lacks:.0} bytes");
    assert!(
        more >= lacks && more <= Bed::burst(&bed.classes[&0x21]) as f64,
        "{lacks:.0} and {more:.0} bytes"
    );
    for _ in 0..5 {
        let rates = bed.run(millis(100));
        assert_eq!(lacking(&bed, &rates, &due), BTreeMap::new());
    }
    assert_eq!(Shares::of(&case, (7, true)).broken, Vec::<String>::new());
}

proptest! {
    // The same trees each time. With other seeds and more cases a tree is sometimes found that is
    // further off (docs/trees.md): try that when you change the tree.
    #![proptest_config(ProptestConfig {
        cases: 256,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    /// Beside the fluid model: within 1 % of the root's rate. Who borrows from whom is decided
    /// packet by packet.
    #[test]
    fn any_tree_is_shared_as_the_rules_say(tree in any_tree(), used in any_use()) {
        let shares = Shares::of(&tree, used);
        for (id, rate, due) in &shares.rates {
            prop_assert!(
                (rate - due).abs() <= 0.01 * ROOT,
                "class {id:x}: {rate:.0} bit/s instead of {due:.0}"
            );
        }
        prop_assert_eq!(shares.broken, Vec::<String>::new());
    }
}

/// Of `count` random trees how far off the worst class of each is, the worst tree first, and the
/// guarantees that are not kept.
fn errors(trees: impl Strategy<Value = Case>, seed: u64, count: usize) -> (Vec<f64>, Vec<String>) {
    let config = ProptestConfig { rng_seed: RngSeed::Fixed(seed), ..ProptestConfig::default() };
    let mut runner = TestRunner::new(config);
    let cases = (trees, any_use());
    let (mut errors, mut broken) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let (tree, used) = cases.new_tree(&mut runner).unwrap().current();
        let shares = Shares::of(&tree, used);
        errors.push(shares.error());
        broken.extend(shares.broken);
    }
    errors.sort_unstable_by(|one, other| f64::total_cmp(other, one));
    (errors, broken)
}

#[test]
fn large_trees_are_shared_to_a_hundredth() {
    let config = ProptestConfig { rng_seed: RngSeed::Fixed(7), ..ProptestConfig::default() };
    let mut runner = TestRunner::new(config);
    for number in 0..100 {
        let (tree, used) = (large_tree(), any_use()).new_tree(&mut runner).unwrap().current();
        let (queues, _) = used;
        let shares = Shares::of(&tree, used);
        for (id, rate, due) in shares.rates {
            assert!(
                (rate - due).abs() <= 0.01 * ROOT,
                "tree {number}, {queues} queues, class {id:x}: {rate:.0} bit/s instead of {due:.0}"
            );
        }
    }
}

#[test]
fn trees_are_shared_to_a_hundredth() {
    for (trees, seed, count) in [(any_tree().boxed(), 2, 1000), (deep_tree().boxed(), 1, 500)] {
        let (errors, broken) = errors(trees, seed, count);
        assert!(errors[0] <= 0.01, "{:?}", &errors[..8]);
        assert_eq!(broken, [""; 0]);
    }
}

/// Seeds 1 to 5 served to choose what the tree does; the others did not.
#[test]
#[ignore = "minutes: for docs/trees.md"]
fn one_tree_of_ten_thousand_is_not_shared_to_a_hundredth() {
    for (seeds, most) in [(1..=5, 0), (6..=15, 1)] {
        let (mut all, mut all_broken) = (Vec::new(), Vec::new());
        for seed in seeds {
            let (errors, broken) = errors(any_tree(), seed, 2000);
            all.extend(errors);
            all_broken.extend(broken);
        }
        all.sort_unstable_by(|one, other| f64::total_cmp(other, one));
        let above = all.iter().filter(|error| **error > 0.01).count();
        let (trees, worst) = (all.len(), all[0] * 100.0);
        println!("{above} of {trees} trees, {worst:.2} % at most; not kept: {all_broken:?}");
        assert!(above <= most && all[0] <= 0.02);
        assert_eq!(all_broken, [""; 0]);
    }
}

#[test]
fn queues_learn_which_classes_changed_and_that_a_move_may_change_any() {
    let (tree, below) = (Tree::new(), || Some(Below::new(NodeId(1), Config::Noqueue)));
    let leaf = |rate| (class(Some(1), rate, rate), below());
    let mut classes = BTreeMap::from([
        (1, (class(None, 100 * MBIT, 100 * MBIT), None)),
        (2, leaf(10 * MBIT)),
        (3, leaf(20 * MBIT)),
    ]);
    let mut early = tree.scheduler();
    tree.replace_classes(Arc::new(classes.clone()));
    assert_eq!(early.changes(), None, "all of them are new");
    let mut scheduler = tree.scheduler();
    tree.replace_classes(Arc::new(classes.clone()));
    assert_eq!(scheduler.changes(), Some(vec![]));
    classes.insert(2, leaf(11 * MBIT));
    classes.insert(4, leaf(5 * MBIT));
    classes.remove(&3);
    tree.replace_classes(Arc::new(classes.clone()));
    assert_eq!(scheduler.changes(), Some(vec![2, 3, 4]));
    assert_eq!((scheduler.changes(), early.changes()), (Some(vec![]), Some(vec![2, 3, 4])));
    assert!(scheduler.leaf(3).is_none() && scheduler.meter(3).is_none());
    assert!(scheduler.leaf(2).is_some());
    let moved = (class(None, 5 * MBIT, 5 * MBIT), below());
    classes.insert(4, moved);
    tree.replace_classes(Arc::new(classes.clone()));
    assert_eq!(scheduler.changes(), None);
}
