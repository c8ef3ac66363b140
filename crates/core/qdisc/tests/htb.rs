//! What an `htb` does on one queue, with a tree that is not shared.

use narrows_packet::{Backlog, Batch, PacketId, Packets, Reading};
use narrows_qdisc::htb::{self, Alone, Class, ClassMeter, Grant, LeafClass, Meters, Scheduler};
use narrows_qdisc::{Config, Handover, Next, NodeId, Slot, Spec, Stats, fifo};
use narrows_units::{Bytes, Nanos, Rate, wire::Overhead};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The credit of each class.
type Credits = Arc<Mutex<BTreeMap<u32, u64>>>;

/// Classes that are leaves, with their priorities.
#[derive(Clone, Default)]
struct Leaves {
    classes: Arc<Mutex<BTreeMap<u32, u8>>>,
    credits: Credits,
    /// How much of each grant is lent.
    lent: Arc<Mutex<u64>>,
}

struct Meter {
    class: u32,
    credits: Credits,
    lent: Arc<Mutex<u64>>,
}

/// A class without credit asks again after this.
const LATER: Nanos = Nanos::from_millis(1);

impl ClassMeter for Meter {
    fn buy(&mut self, least: Bytes, want: Bytes, _: bool, now: Nanos) -> Result<Grant, Nanos> {
        let mut credits = self.credits.lock().unwrap();
        let credit = credits.entry(self.class).or_default();
        let bytes = want.0.min(*credit);
        if bytes < least.0 {
            return Err(now + LATER);
        }
        *credit -= bytes;
        let lent = *self.lent.lock().unwrap();
        Ok(Grant { bytes: Bytes(bytes), lent: Bytes(lent), lender: u8::from(lent > 0) })
    }

    fn give_back(&mut self, bytes: Bytes) {
        *self.credits.lock().unwrap().entry(self.class).or_default() += bytes.0;
    }

    fn set_active(&mut self, _: bool) {}

    fn tokens(&self, _: Nanos) -> Vec<[i64; 2]> {
        Vec::new()
    }
}

impl Meters for Leaves {
    fn leaf(&self, id: u32) -> Option<LeafClass> {
        let config = Config::Fifo(fifo::Config::Packets(8));
        let qdisc = Spec { id: NodeId(u64::from(id)), ..Spec::new(config) };
        Some(LeafClass::of(&self.class(id)?, qdisc))
    }

    fn class(&self, id: u32) -> Option<Class> {
        let prio = *self.classes.lock().unwrap().get(&id)?;
        let rate = Rate::from_bits_per_sec(8_000_000);
        Some(Class {
            parent: None,
            rate,
            ceil: rate,
            burst: Bytes(3_000),
            cburst: Bytes(3_000),
            prio,
            quantum: 2_000,
            overhead: Overhead::NONE,
        })
    }

    fn meter(&self, id: u32) -> Option<Box<dyn ClassMeter>> {
        let (credits, lent) = (Arc::clone(&self.credits), Arc::clone(&self.lent));
        Some(Box::new(Meter { class: id, credits, lent }))
    }

    fn reading(&self) -> Reading {
        Reading::NOTHING
    }
}

struct Bench {
    leaves: Leaves,
    slot: Slot,
    packets: Packets,
    came: u32,
    now: Nanos,
}

impl Bench {
    /// With these classes and a default.
    fn new(classes: &[(u32, u8)], default: u32) -> Self {
        let leaves = Leaves::default();
        *leaves.classes.lock().unwrap() = classes.iter().copied().collect();
        let slot = Slot::new(spec(default, Some(Box::new(Alone::new(leaves.clone())))));
        Self { leaves, slot, packets: Packets::new(64), came: 0, now: Nanos::from_secs(1) }
    }

    fn offer(&mut self, class: u32) {
        self.offer_long(class, 1_000);
    }

    fn offer_long(&mut self, class: u32, bytes: u32) {
        let id = PacketId(self.came);
        self.came += 1;
        self.packets.arrive(id, bytes, self.now);
        self.packets.meta_mut(id).class = class;
        self.slot.qdisc_mut().enqueue(&mut self.packets, id, self.now);
    }

    fn pay(&self, class: u32, bytes: u64) {
        *self.leaves.credits.lock().unwrap().entry(class).or_default() += bytes;
    }

    fn poll(&mut self, room: usize) -> (Vec<u32>, Next) {
        let mut out = Batch::new(room);
        let next = self.slot.qdisc_mut().dequeue(&mut self.packets, self.now, &mut out);
        (out.as_slice().iter().map(|id| id.0).collect(), next)
    }

    fn stats(&self) -> Vec<Stats> {
        let mut stats = Vec::new();
        self.slot.stats(&mut stats);
        stats
    }

    /// Applies the present classes.
    fn change(&mut self) {
        let spec = spec(0, None);
        self.slot.take_over(spec, &mut Handover::new(&mut self.packets, self.now));
    }
}

fn spec(default: u32, tree: Option<Box<dyn Scheduler>>) -> Spec {
    let config = Config::Htb(htb::Config { default, unclassified: htb::Unclassified::Sent(4) });
    Spec { tree, ..Spec::new(config) }
}

#[test]
fn packets_wait_in_their_class_or_the_default_or_leave_at_once() {
    let mut bench = Bench::new(&[(1, 0), (2, 0)], 2);
    [1, 7, 2].into_iter().for_each(|class| bench.offer(class));
    assert_eq!(bench.poll(8), (vec![], Next::Held(bench.now + LATER)));
    bench.now += LATER;
    bench.pay(2, 5_000);
    assert_eq!(bench.poll(8).0, [1, 2], "7 is no class, so it is of the default one");
    let mut bench = Bench::new(&[(1, 0)], 0);
    (0..6).for_each(|_| bench.offer(7));
    assert_eq!(bench.poll(8), (vec![0, 1, 2, 3], Next::Empty), "no more than direct_qlen");
    let stats = &bench.stats()[0];
    assert_eq!((stats.sent_packets, stats.drops), (4, 2));
    assert_eq!(stats.detail.as_ref().unwrap().htb().unwrap().direct_packets, 4);
}

#[test]
fn what_has_no_class_and_no_room_leaves_in_the_next_batch() {
    let mut bench = Bench::new(&[(1, 0)], 0);
    (0..4).for_each(|_| bench.offer(7));
    assert_eq!(bench.poll(3), (vec![0, 1, 2], Next::Now));
    assert_eq!(bench.poll(3), (vec![3], Next::Empty));
}

#[test]
fn any_number_names_a_class_and_an_unknown_one_or_default_is_none() {
    let last = htb::CLASS_MAX;
    let mut bench = Bench::new(&[(0x100_0000, 0), (last, 0)], 0x100_0000);
    [0x100_0000, last, u32::MAX, 0xff_ffff].into_iter().for_each(|class| bench.offer(class));
    assert_eq!(bench.poll(8), (vec![], Next::Held(bench.now + LATER)));
    bench.now += LATER;
    bench.pay(0x100_0000, 5_000);
    assert_eq!(bench.poll(8).0, [0, 2, 3]);
    let leaves = &bench.stats()[0].detail.as_ref().unwrap().htb().unwrap().leaves.clone();
    assert_eq!(leaves.keys().copied().collect::<Vec<_>>(), [0x100_0000, last]);
    let mut bench = Bench::new(&[(1, 0)], 0x100_0000);
    bench.offer(0);
    bench.offer(0x100_0000);
    assert_eq!(bench.poll(8), (vec![0, 1], Next::Empty), "there is no default class");
}

#[test]
fn a_better_priority_goes_first_and_equal_ones_take_turns() {
    let mut bench = Bench::new(&[(1, 3), (2, 0), (3, 3)], 0);
    [1, 1, 1, 3, 3, 3, 2].into_iter().for_each(|class| bench.offer(class));
    (1..4).for_each(|class| bench.pay(class, 10_000));
    // A quantum is two packets.
    assert_eq!(bench.poll(8).0, [6, 0, 1, 3, 4, 2, 5]);
}

#[test]
fn unused_purchases_are_returned() {
    let mut bench = Bench::new(&[(1, 0)], 0);
    (0..3).for_each(|_| bench.offer(1));
    bench.pay(1, 2_500);
    assert_eq!(bench.poll(1).0, [0]);
    assert_eq!(bench.leaves.credits.lock().unwrap()[&1], 1_500);
}

#[test]
fn what_is_left_of_a_quantum_is_returned() {
    let mut bench = Bench::new(&[(1, 0)], 0);
    bench.pay(1, 10_000);
    // The quantum is 2,000 bytes, and only one packet of 1,001 fits in.
    bench.offer_long(1, 1_001);
    bench.offer_long(1, 1_001);
    assert_eq!(bench.poll(8).0, [0, 1]);
    assert_eq!(bench.leaves.credits.lock().unwrap()[&1], 10_000 - 2_002);
}

#[test]
fn packets_of_a_removed_class_leave_without_one() {
    let mut bench = Bench::new(&[(1, 0), (2, 0)], 0);
    [1, 2, 1].into_iter().for_each(|class| bench.offer(class));
    assert_eq!(bench.poll(8).0, []);
    bench.leaves.classes.lock().unwrap().remove(&1);
    bench.change();
    assert_eq!(bench.stats()[0].backlog, Backlog { packets: 3, bytes: Bytes(3_000) });
    assert_eq!(bench.poll(8).0, [0, 2]);
    bench.pay(2, 1_000);
    bench.now += LATER;
    assert_eq!(bench.poll(8), (vec![1], Next::Held(bench.now + LATER)), "it lingers");
}

#[test]
fn packets_count_as_lent_once_the_class_s_own_credit_is_used() {
    let mut bench = Bench::new(&[(1, 0)], 0);
    *bench.leaves.lent.lock().unwrap() = 1_000;
    [1, 1, 1].into_iter().for_each(|class| bench.offer(class));
    bench.pay(1, 2_000);
    assert_eq!(bench.poll(8).0, [0, 1]);
    let root = &bench.stats()[0];
    let figures = &root.detail.as_ref().unwrap().htb().unwrap().leaves[&1];
    assert_eq!(figures.granted[..2], [1, 1], "of its own, and of the class above it");
}

#[test]
fn the_figures_of_a_class_and_its_qdisc_agree() {
    let mut bench = Bench::new(&[(1, 0)], 0);
    (0..10).for_each(|_| bench.offer(1));
    bench.pay(1, 3_500);
    assert_eq!(bench.poll(8).0, [0, 1, 2]);
    let stats = bench.stats();
    let [root, below] = &stats[..] else { panic!("{stats:?}") };
    let figures = &root.detail.as_ref().unwrap().htb().unwrap().leaves[&1];
    assert_eq!((figures.sent_packets, figures.drops, figures.backlog.packets), (3, 2, 5));
    assert_eq!(figures.delays.counts().map(|(_, packets)| packets).sum::<u64>(), 3);
    assert_eq!((root.sent_packets, root.drops, root.backlog.packets), (3, 2, 5));
    assert_eq!((below.sent_packets, below.drops, below.backlog.packets), (3, 2, 5));
    assert_eq!(below.id, NodeId(1));
}

#[test]
fn all_that_waits_can_be_taken_out_and_back() {
    let mut bench = Bench::new(&[(1, 0), (2, 0)], 0);
    [1, 2, 9, 1].into_iter().for_each(|class| bench.offer(class));
    let qdisc = bench.slot.qdisc_mut();
    let ids: Vec<_> = std::iter::from_fn(|| qdisc.drain(&mut bench.packets)).collect();
    assert_eq!(ids.len(), 4);
    assert!(qdisc.backlog().is_empty());
    ids.iter().for_each(|id| qdisc.adopt(&mut bench.packets, *id, bench.now));
    (1..3).for_each(|class| bench.pay(class, 10_000));
    let (mut out, _) = bench.poll(8);
    out.sort_unstable();
    assert_eq!(out, [0, 1, 2, 3]);
    assert_eq!(bench.stats()[0].drops, 0);
}
