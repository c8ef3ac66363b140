//! Prints what filters cost on a worker's way from the driver to a tree of 16 classes and out
//! again: `cargo run --release -p narrows-bench --example filters_cost`.
//!
//! Frames of 64 bytes arrive 64 at a time; none is sent. Workers take turns. Before each turn as
//! much memory is written as the caches hold, or the same packets pass once more (*warm*).

use anyhow::{Result, ensure};
use narrows_bench::classify::Rules;
use narrows_classify::{
    ANY_PROTOCOL, Actions, Blocks, Classification, Filter, Filters, Flower, Matches, Otherwise,
    Prefix, Rules as Tree,
};
use narrows_forwarding::PortId;
use narrows_packet::{Batch, PacketId, Packets, Reading};
use narrows_policy::Plan;
use narrows_qdisc::Slot;
use narrows_shaper::{Installation, Io, Worker};
use narrows_tc::{Host, OfflineHost};
use narrows_units::{Bytes, Nanos};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

/// Packets in a turn.
const PACKETS: usize = 1 << 12;
/// Packets that arrive together.
const BURST: usize = 64;
/// Frames of a worker.
const FRAMES: u32 = 256;
/// What they are charged.
const LEN: u32 = 1500;
/// The time in which a burst arrives: below the tree's rate.
const STEP: Nanos = Nanos(10_000);
/// More words than the caches hold.
const SWEPT: usize = 48 << 17;
/// Turns, of which the median counts.
const REPEATS: usize = 201;
const LEAVES: u32 = 16;
const FIRST_LEAF: u32 = 0x10;

/// Frames in memory, which arrive again and again at one side.
struct Memory {
    coming: Vec<[u8; 64]>,
    next: usize,
    /// How many arrive with the next step.
    due: usize,
    present: Vec<usize>,
    free: Vec<PacketId>,
    sent: u64,
}

impl Memory {
    fn new(coming: Vec<[u8; 64]>) -> Self {
        let free = (0..FRAMES).map(PacketId).collect();
        Self { coming, next: 0, due: 0, present: vec![0; FRAMES as usize], free, sent: 0 }
    }
}

impl Io for Memory {
    fn frame(&self) -> Bytes {
        Bytes(2048)
    }

    fn receive(&mut self, port: PortId, packets: &mut Packets, now: Nanos, out: &mut Batch) {
        while port == PortId::FIRST && self.due > 0 && out.has_room() {
            let Some(id) = self.free.pop() else { break };
            self.present[id.0 as usize] = self.next;
            self.next = (self.next + 1) % self.coming.len();
            self.due -= 1;
            packets.arrive(id, LEN, now);
            out.push(id);
        }
    }

    fn prefetch(&self, packet: PacketId) {
        narrows_cpu::prefetch(self.bytes(packet));
    }

    fn read(&self, _: PacketId, _: Reading, _: &mut Packets) {}

    fn bytes(&self, packet: PacketId) -> &[u8] {
        &self.coming[self.present[packet.0 as usize]]
    }

    fn places(&self) -> u32 {
        FRAMES
    }

    fn spare_frames(&self, _: PortId, _: PortId) -> Option<u32> {
        Some(FRAMES)
    }

    fn room(&mut self, _: PortId) -> usize {
        usize::MAX
    }

    fn transmit(&mut self, _: PortId, _: &Packets, batch: &Batch) {
        self.sent += batch.len() as u64;
        self.free.extend(batch.as_slice());
    }

    fn release(&mut self, dropped: &Batch) {
        self.free.extend(dropped.as_slice());
    }

    fn is_unsent(&self) -> bool {
        false
    }
}

/// A worker whose packets meet `filters` and then a tree.
struct Bed {
    worker: Worker<Memory>,
    now: Nanos,
    /// What the tree's shared part needs to live.
    _installed: [Installation; 2],
}

impl Bed {
    fn new(filters: Filters, frames: Vec<[u8; 64]>) -> Result<Self> {
        let mut host = OfflineHost::default();
        let mut lines = vec![
            "qdisc add dev b root handle 1: htb default 10".to_owned(),
            "class add dev b parent 1: classid 1:1 htb rate 100gbit burst 10mb cburst 10mb".into(),
        ];
        for leaf in FIRST_LEAF..FIRST_LEAF + LEAVES {
            lines.push(format!(
                "class add dev b parent 1:1 classid 1:{leaf:x} htb rate 6gbit ceil 100gbit burst 10mb cburst 10mb"
            ));
            lines.push(format!(
                "qdisc add dev b parent 1:{leaf:x} handle {leaf:x}: pfifo limit 1000"
            ));
        }
        for line in lines {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let outcome = narrows_tc::execute(&words, &mut host);
            ensure!(outcome.code == 0, "{line}: {}", outcome.stderr);
        }
        let install = |port| -> Result<_> {
            let plan = Plan::of(host.policy().port(port), 1)
                .map_err(|error| anyhow::anyhow!("{error}"))?;
            let (installed, mut specs) = Installation::reconcile(plan, None);
            installed.commit();
            Ok((installed, specs.remove(0)))
        };
        let ((of_a, a), (of_b, mut b)) = (install("a")?, install("b")?);
        let rules = Tree {
            major: 1,
            filters: Blocks::from([(0, filters)]),
            otherwise: Otherwise::Class(FIRST_LEAF),
            below: BTreeMap::new(),
        };
        b.classification = Some(Arc::new(Classification::of(&rules, &Actions::default(), None)));
        let worker = Worker::new(Memory::new(frames), FRAMES, [Slot::new(a), Slot::new(b)]);
        Ok(Self { worker, now: Nanos::from_secs(1), _installed: [of_a, of_b] })
    }

    /// Nanoseconds a packet.
    fn turn(&mut self) -> Result<f64> {
        let before = self.worker.io().sent;
        let start = Instant::now();
        for _ in 0..PACKETS / BURST {
            self.now += STEP;
            self.worker.io_mut().due = BURST;
            black_box(self.worker.step(self.now));
        }
        let cost = start.elapsed().as_nanos() as f64 / PACKETS as f64;
        let sent = self.worker.io().sent - before;
        ensure!(sent == PACKETS as u64, "{sent} of {PACKETS} packets were sent");
        Ok(cost)
    }
}

/// Filters with the leaves as classes.
fn to_leaves(filters: &Filters) -> Filters {
    let leaf = |filter: &Arc<Filter>| {
        let class = FIRST_LEAF + filter.class % LEAVES;
        Arc::new(Filter { class, ..(**filter).clone() })
    };
    filters.iter().map(|(order, filter)| (order, leaf(filter))).collect()
}

/// One filter for each leaf, by the first four bits of the destination.
fn few() -> Filters {
    let filter = |leaf: u32| {
        let destination = Some(Prefix::v4([(leaf << 4) as u8, 0, 0, 0], 4));
        let matches = Matches::Flower(Flower { destination, ..Flower::default() });
        Filter::new(1, leaf + 1, ANY_PROTOCOL, matches, FIRST_LEAF + leaf)
    };
    let filters = (0..LEAVES).map(filter).map(|filter| (filter.order(), Arc::new(filter)));
    filters.collect()
}

fn median(mut costs: Vec<f64>) -> f64 {
    costs.sort_by(f64::total_cmp);
    costs[costs.len() / 2]
}

fn main() -> Result<()> {
    let frames = Rules::Addresses.frames(PACKETS);
    let mut beds = vec![
        ("none".to_owned(), Bed::new(Filters::default(), frames.clone())?),
        ("16 prefixes".to_owned(), Bed::new(few(), frames)?),
    ];
    for rules in Rules::ALL {
        let bed = Bed::new(to_leaves(&rules.filters()), rules.frames(PACKETS))?;
        beds.push((format!("{} {}", rules.count(), rules.name()), bed));
    }
    let mut swept = vec![0_u64; SWEPT];
    let mut costs = vec![[vec![], vec![]]; beds.len()];
    for repeat in 0..=REPEATS {
        for ((_, bed), [cold, warm]) in beds.iter_mut().zip(&mut costs) {
            swept.iter_mut().step_by(8).for_each(|word| *word += 1);
            black_box(&swept);
            let both = [bed.turn()?, bed.turn()?];
            if repeat > 0 {
                cold.push(both[0]);
                warm.push(both[1]);
            }
        }
    }
    println!("{:<20} {:>9} {:>9}", "filters", "ns/packet", "warm");
    for ((name, _), [cold, warm]) in beds.iter().zip(costs) {
        println!("{name:<20} {:>9.1} {:>9.1}", median(cold), median(warm));
    }
    Ok(())
}
