//! How soon shares follow when a class has packets again, or no more.

use super::bed::{Bed, Demand, MBIT, Threads, class};
use super::{GBIT, millis};
use narrows_coordination::Fluid;
use narrows_qdisc::htb::Class;
use narrows_units::{Bytes, Nanos, Rate};
use std::collections::BTreeMap;

const FRAME: f64 = 1514.0;

/// A class that always has packets,
const STAYS: u32 = 0x11;
/// and one that comes and goes.
const COMES: u32 = 0x21;

/// Two leaves with these assured rates in thousandths of `root` and quanta, below the root or below
/// a site each.
fn tree(root: u64, has_sites: bool, leaves: [(u64, u32); 2]) -> Vec<(u32, Class)> {
    let share = |parent, thousandths: u64| class(Some(parent), root / 1000 * thousandths, root);
    let mut classes = vec![(1, class(None, root, root))];
    for (leaf, (rate, quantum)) in [STAYS, COMES].into_iter().zip(leaves) {
        let site = leaf & !0xf;
        let parent = if has_sites { site } else { 1 };
        if has_sites {
            classes.push((site, Class { burst: Bytes(6_000), ..share(1, rate + 50) }));
        }
        // After a pause it may have what it earns in a quarter of a millisecond at once.
        classes.push((leaf, Class { burst: Bytes(6_000), quantum, ..share(parent, rate) }));
    }
    classes
}

/// The due rate of the class that comes, in bytes per second.
fn due(classes: &[(u32, Class)]) -> f64 {
    let classes: BTreeMap<u32, Class> = classes.iter().copied().collect();
    Fluid::of(&classes, &BTreeMap::from([(STAYS, 1e12), (COMES, 1e12)])).passes(COMES) / 8.0
}

/// Each case: what it is, the number of queues, and the tree.
fn cases() -> impl Iterator<Item = (String, usize, u64, Vec<(u32, Class)>)> {
    let leaves = [[(400, 6_000), (400, 6_000)], [(100, 9_000), (100, 3_000)]];
    let trees = [1, 10].into_iter().flat_map(move |gbit| {
        [false, true].into_iter().flat_map(move |has_sites| {
            leaves.into_iter().map(move |leaves| {
                let name = format!("{gbit} Gbit/s, sites: {has_sites}, {leaves:?}");
                (name, gbit * GBIT, tree(gbit * GBIT, has_sites, leaves))
            })
        })
    });
    trees.flat_map(|(name, root, classes)| {
        [1, 4, 16].into_iter().map(move |queues| {
            let name = format!("{name}, {queues} queues");
            (name, queues, root, classes.clone())
        })
    })
}

/// The bytes of the class that comes during `span`.
fn bytes(bed: &mut Bed, span: Nanos) -> f64 {
    let rate = bed.run(span).get(&COMES).copied().unwrap_or_default();
    rate / 8e9 * span.0 as f64
}

/// What the class that comes may have beyond its share after a pause: what is in the buckets of its
/// rate and of its site's.
fn bursts(classes: &[(u32, Class)]) -> f64 {
    let bucket = |rate: f64| (rate / 4e3).max(4.0 * FRAME);
    let own = classes.iter().filter(|(id, _)| id & !0xf == COMES & !0xf);
    own.map(|(_, class)| bucket(class.rate.bytes_per_sec() as f64)).sum()
}

#[test]
fn a_class_has_its_share_from_a_millisecond_after_it_comes() {
    for (what, queues, _, classes) in cases() {
        let mut bed = Bed::new(queues, &classes);
        let (due, bursts) = (due(&classes), bursts(&classes));
        bed.demand_everywhere(STAYS, 1514, Demand::Endless);
        bed.run(millis(10));
        for _ in 0..2 {
            bed.demand_everywhere(COMES, 1514, Demand::Endless);
            let more = bytes(&mut bed, millis(1)) - due * 1e-3;
            // Nine frames are 11 us at 10 Gbit/s.
            let most = bursts + 9.0 * FRAME;
            assert!(-3.0 * FRAME <= more && more <= most, "{what}: {more} bytes at first");
            // Two frames are a right to be ahead, and one is on its way.
            let soon = bytes(&mut bed, millis(5));
            let within = (0.01 * due * 5e-3).max(3.0 * FRAME);
            let more = soon - due * 5e-3;
            assert!(more.abs() <= within, "{what}: {more} bytes from 1 to 6 ms");
            let more = (soon + bytes(&mut bed, millis(15))) / (due * 20e-3) - 1.0;
            assert!(more.abs() <= 0.01, "{what}: {more} of its share from 1 to 21 ms");
            bed.rest(COMES);
            // What is queued takes time to leave.
            while bytes(&mut bed, millis(5)) > 0.0 {}
        }
        bed.assert_ceilings();
    }
}

#[test]
fn the_others_have_everything_after_a_class_has_gone() {
    for (what, queues, root, classes) in cases() {
        let mut bed = Bed::new(queues, &classes);
        bed.demand_everywhere(STAYS, 1514, Demand::Endless);
        bed.demand_everywhere(COMES, 1514, Demand::Endless);
        bed.run(millis(10));
        bed.rest(COMES);
        while bytes(&mut bed, millis(1)) > 0.0 {}
        let rate = bed.run(millis(5))[&STAYS];
        let lacks = root as f64 - rate;
        assert!(lacks <= 0.0025 * root as f64, "{what}: {rate} bit/s");
    }
}

/// How often threads that serve four queues wake up for each packet because it is time, and how
/// often in vain. The leaves of `classes` want more than they may send. Packets come all the time,
/// as the end-to-end tests send them, or wake nobody.
fn wake_ups(classes: &[(u32, Class)], threads: Threads, come: bool) -> (f64, f64) {
    let mut bed = Bed::new(4, classes);
    bed.threads = Some(threads);
    let leaves = classes.iter().map(|(id, _)| *id).filter(|id| id & 0xf == 0);
    for (leaf, queue) in leaves.flat_map(|leaf| (0..4).map(move |queue| (leaf, queue))) {
        let demand = if come { Demand::Rate(45 * MBIT / 4) } else { Demand::Endless };
        bed.demand(leaf, queue, 1000, demand);
        // Not all come at the same time.
        bed.run(Nanos::from_micros(74));
    }
    bed.run(millis(300));
    (bed.threads, bed.packets) = (Some(threads), 0);
    bed.run(millis(1000));
    let packets = bed.packets as f64;
    let Threads { by_time, in_vain, .. } = bed.threads.unwrap();
    (by_time as f64 / packets, in_vain as f64 / packets)
}

/// The tree of the end-to-end tests.
fn priorities() -> Vec<(u32, Class)> {
    let with = |class: Class, prio, bursts: [u64; 2]| {
        let [burst, cburst] = bursts.map(Bytes);
        let quantum = (class.rate.bits_per_sec() / 80) as u32;
        Class { prio, burst, cburst, quantum, ..class }
    };
    let root = class(None, 40 * MBIT, 40 * MBIT);
    let leaf = |rate, ceil| class(Some(1), rate * MBIT, ceil * MBIT);
    vec![
        (1, with(root, 0, [60_000, 60_000])),
        (0x10, with(leaf(10, 40), 0, [40_000, 60_000])),
        (0x20, with(leaf(10, 40), 1, [40_000, 60_000])),
        (0x30, with(leaf(4, 8), 2, [20_000, 20_000])),
    ]
}

#[test]
fn a_thread_wakes_up_for_packets_that_may_leave() {
    let lateness = Nanos::from_micros(20);
    let one = Threads { is_one: true, lateness, ..Threads::default() };
    let mut with_site = priorities();
    with_site[1..].iter_mut().for_each(|(_, class)| class.parent = Some(2));
    // Its ceiling is as high as the root's.
    let rate = Rate::from_bits_per_sec(30 * MBIT);
    with_site.insert(1, (2, Class { parent: Some(1), rate, ..with_site[0].1 }));
    for (name, classes, come, most, vain_most) in [
        ("below the root", priorities(), true, 1.0, 0.2),
        ("below the root", priorities(), false, 1.2, 0.3),
        ("below a site", with_site.clone(), true, 1.6, 0.7),
        ("below a site", with_site, false, 1.6, 0.6),
    ] {
        let (by_time, in_vain) = wake_ups(&classes, one, come);
        let what = format!("{name}, come: {come}: {by_time:.2} a packet, {in_vain:.2} in vain");
        assert!(by_time <= most && in_vain <= vain_most, "{what}");
    }
}
