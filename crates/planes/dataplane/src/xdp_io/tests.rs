//! A worker over a model of the kernel: with any behaviour of drivers, each frame has an owner, the
//! counts agree, and no direction starves.
#![allow(unsafe_code)]

use super::*;
use narrows_policy::{Plan, Policy};
use narrows_qdisc::{Slot, Spec};
use narrows_shaper::Installation;
use narrows_shaper::Worker;
use narrows_xsk::{Consumer, Producer, Umem, ring_in_memory};
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

const RING: u32 = 128;
const FRAME: u32 = 2048;
const SHARES: [Share; 2] =
    [Share { receive: RING + 40, wait: 96 }, Share { receive: RING, wait: 128 }];

/// The worker's end.
struct ModelQueue {
    rx: Consumer<Desc>,
    tx: Producer<Desc>,
    fill: Producer<u64>,
    completion: Consumer<u64>,
    refused: Rc<Cell<u64>>,
}

impl Queue for ModelQueue {
    fn rx(&mut self) -> &mut Consumer<Desc> {
        &mut self.rx
    }

    fn tx(&mut self) -> &mut Producer<Desc> {
        &mut self.tx
    }

    fn fill(&mut self) -> &mut Producer<u64> {
        &mut self.fill
    }

    fn completion(&mut self) -> &mut Consumer<u64> {
        &mut self.completion
    }

    fn kick_tx(&self) -> io::Result<()> {
        Ok(())
    }

    fn kick_rx(&self) -> io::Result<()> {
        Ok(())
    }

    fn kernel_drops(&self) -> KernelDrops {
        KernelDrops { tx_invalid: self.refused.get(), ..KernelDrops::default() }
    }
}

/// The kernel's end: a zero-copy driver with rings of its own.
struct Driver {
    rx: Producer<Desc>,
    tx: Consumer<Desc>,
    fill: Consumer<u64>,
    completion: Producer<u64>,
    refused: Rc<Cell<u64>>,
    /// Frames in the device's RX ring, which is unbounded here.
    empty: Vec<u64>,
    sending: VecDeque<u64>,
}

impl Driver {
    fn new() -> (ModelQueue, Self) {
        let (rx_in, rx) = ring_in_memory(RING);
        let (tx, tx_out) = ring_in_memory(RING);
        let (fill, fill_out) = ring_in_memory(RING);
        let (completion_in, completion) = ring_in_memory(RING);
        let refused = Rc::new(Cell::new(0));
        let queue = ModelQueue { rx, tx, fill, completion, refused: refused.clone() };
        let (empty, sending) = Default::default();
        let driver = Self {
            rx: rx_in,
            tx: tx_out,
            fill: fill_out,
            completion: completion_in,
            refused,
            empty,
            sending,
        };
        (queue, driver)
    }

    fn swallow(&mut self) {
        while let Some(addr) = self.fill.pop() {
            self.empty.push(addr);
        }
        self.fill.release();
    }

    /// A packet of `parts` arrives, with or without the mark of its last descriptor. False if it
    /// did not fit: then its frames are unchanged.
    fn receive(&mut self, parts: &[u32], ends: bool) -> bool {
        if self.empty.len() < parts.len() || (self.rx.free(RING) as usize) < parts.len() {
            return false;
        }
        for (number, &len) in (1..).zip(parts) {
            let Some(addr) = self.empty.pop() else { return false };
            let last = number == parts.len() && ends;
            let options = if last { 0 } else { Desc::CONTINUES };
            // SAFETY: this is the kernel's end, and gives the frame back.
            unsafe { self.rx.push(Desc { addr: addr + 256, len, options }) };
        }
        self.rx.submit();
        true
    }

    /// Takes up to `count` descriptors, or refuses them if configured.
    fn take(&mut self, count: usize, refuse: bool) {
        for _ in 0..count {
            let Some(desc) = self.tx.pop() else { break };
            assert_ne!(desc.len, 0, "the kernel would refuse it");
            if refuse {
                self.refused.set(self.refused.get() + 1);
            } else {
                self.sending.push_back(desc.addr);
            }
        }
        self.tx.release();
    }

    fn complete(&mut self, count: usize) {
        let room = self.completion.free(RING) as usize;
        for addr in self.sending.drain(..count.min(room).min(self.sending.len())) {
            // SAFETY: as above.
            unsafe { self.completion.push(addr) };
        }
        self.completion.submit();
    }
}

struct Bed {
    worker: Worker<XdpIo<ModelQueue>>,
    drivers: [Driver; 2],
    now: Nanos,
}

/// The installation of `words` for a port.
fn spec(words: &str) -> Spec {
    let mut host = narrows_tc::OfflineHost::new(Policy::default());
    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    let outcome = narrows_tc::execute(&words, &mut host);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let policy = narrows_tc::Host::policy(&host);
    let plan = Plan::of(policy.port("p"), 1).expect("it fits");
    Installation::reconcile(plan, None).1.remove(0)
}

impl Bed {
    fn new(words: &str) -> Self {
        let umem = Umem::new(SHARES.iter().map(|share| share.frames()).sum(), FRAME);
        let umem = umem.expect("there is memory");
        let part = umem.part(umem.frames()).expect("all of it");
        let [(a, driver_a), (b, driver_b)] = [(); 2].map(|()| Driver::new());
        let io = XdpIo::new([a, b], part, SHARES, Dissector::new(1), 1).stocked();
        let count = io.frame_count();
        let worker = Worker::new(io, count, [(); 2].map(|()| Slot::new(spec(words))));
        Self { worker, drivers: [driver_a, driver_b], now: Nanos::from_secs(1) }
    }

    fn step(&mut self) {
        self.now += Nanos::from_micros(50);
        self.worker.step(self.now);
        self.check();
    }

    fn check(&self) {
        let io = self.worker.io();
        let counts = io.frame_counts();
        assert_eq!(counts.total(), io.frame_count(), "{counts:?}");
        assert_eq!(io.stray_frames(), 0);
        for ingress in Side::BOTH {
            let queued = u64::from(self.worker.backlog(ingress.other()).packets);
            assert_eq!(self.worker.counters(ingress).unaccounted(queued), 0);
        }
    }

    /// Lets everything that moves come to rest.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            for driver in &mut self.drivers {
                driver.take(usize::MAX, false);
                driver.complete(usize::MAX);
            }
            self.step();
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Swallow(Side),
    Receive(Side, Vec<u32>, bool),
    Take(Side, usize, bool),
    Complete(Side, usize),
    Worker,
    Recover,
}

fn step() -> impl Strategy<Value = Step> {
    let side = || prop::sample::select(Side::BOTH.to_vec());
    let part = prop::sample::select(vec![0, 1, 13, 14, 60, 1500]);
    let parts = prop::collection::vec(part, 1..22);
    prop_oneof![
        2 => side().prop_map(Step::Swallow),
        2 => (side(), parts, prop::bool::weighted(0.8))
            .prop_map(|(side, parts, ends)| Step::Receive(side, parts, ends)),
        4 => (side(), 60..1500_u32).prop_map(|(side, len)| Step::Receive(side, vec![len], true)),
        2 => (side(), 0..40_usize, prop::bool::weighted(0.1))
            .prop_map(|(side, count, refuse)| Step::Take(side, count, refuse)),
        2 => (side(), 0..40_usize).prop_map(|(side, count)| Step::Complete(side, count)),
        5 => Just(Step::Worker),
        1 => Just(Step::Recover),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// The kernel cuts packets into any pieces, loses their ends, loses or delays frames, and
    /// refuses to send some: in the end all frames are free again.
    #[test]
    fn no_frame_is_lost_under_any_kernel_behaviour(
        steps in prop::collection::vec(step(), 1..400)
    ) {
        let mut bed = Bed::new("qdisc add dev p root pfifo limit 60");
        for step in steps {
            match step {
                Step::Swallow(side) => bed.drivers[side.index()].swallow(),
                Step::Receive(side, parts, ends) => {
                    bed.drivers[side.index()].receive(&parts, ends);
                }
                Step::Take(side, count, refuse) => bed.drivers[side.index()].take(count, refuse),
                Step::Complete(side, count) => bed.drivers[side.index()].complete(count),
                Step::Worker => bed.step(),
                Step::Recover => {
                    bed.now += Nanos::from_secs(1);
                    bed.worker.io_mut().recover(bed.now);
                    bed.check();
                }
            }
        }
        // Incomplete packets are completed, and everything leaves.
        for driver in &mut bed.drivers {
            driver.swallow();
            driver.receive(&[60], true);
        }
        for _ in 0..4 {
            for driver in &mut bed.drivers {
                driver.take(usize::MAX, false);
                driver.complete(usize::MAX);
            }
            for _ in 0..10 {
                bed.step();
            }
        }
        for driver in &mut bed.drivers {
            driver.swallow();
            driver.receive(&[60], true);
        }
        bed.settle();
        for _ in 0..4 {
            bed.now += Nanos::from_secs(6);
            bed.worker.io_mut().recover(bed.now);
        }
        bed.step();
        let counts = bed.worker.io().frame_counts();
        prop_assert_eq!(counts.sending, 0, "{:?}", counts);
        prop_assert_eq!(counts.waiting, 0, "{:?}", counts);
        prop_assert_eq!(counts.receiving, SHARES.iter().map(|share| share.receive).sum::<u32>());
    }
}

#[test]
fn a_driver_that_swallows_all_frames_starves_neither_its_queue_nor_the_other_port() {
    let mut bed = Bed::new("qdisc add dev p root pfifo limit 1000");
    // Towards B nothing leaves: queued packets use their whole share.
    for _ in 0..1000 {
        bed.drivers[0].swallow();
        bed.drivers[0].receive(&[60], true);
        bed.step();
    }
    bed.step();
    bed.drivers[0].swallow();
    let backlog = bed.worker.backlog(Side::B).packets;
    let counters = bed.worker.counters(Side::A);
    let waiting = u64::from(backlog) + counters.tx_packets;
    assert_eq!(waiting, u64::from(SHARES[0].wait), "what the operator allows, waits");
    assert_eq!(counters.drops.get(DropReason::NoFrame), 1000 - waiting);
    assert_eq!(bed.drivers[0].empty.len() as u32, SHARES[0].receive, "reception has its share");
    // The other direction is not affected.
    for _ in 0..1000 {
        bed.drivers[1].swallow();
        assert!(bed.drivers[1].receive(&[60], true));
        bed.drivers[0].take(usize::MAX, false);
        bed.drivers[0].complete(usize::MAX);
        bed.step();
    }
    bed.settle();
    assert_eq!(bed.worker.counters(Side::B).tx_packets, 1000);
    // Once the device sends again, so does the queue.
    bed.settle();
    assert_eq!(bed.worker.counters(Side::A).tx_packets, waiting);
}

#[test]
fn a_packet_without_end_takes_no_more_frames_than_a_packet_may_have() {
    let mut bed = Bed::new("qdisc add dev p root pfifo limit 1000");
    for _ in 0..500 {
        bed.drivers[0].swallow();
        assert!(bed.drivers[0].receive(&[100], false), "reception goes on");
        bed.step();
    }
    assert_eq!(bed.worker.io().frame_counts().waiting as usize, FRAMES_PER_PACKET_MAX);
    bed.drivers[0].swallow();
    assert!(bed.drivers[0].receive(&[100], true));
    bed.step();
    assert_eq!(bed.worker.counters(Side::A).drops.get(DropReason::Malformed), 1);
    assert_eq!(bed.worker.io().frame_counts().waiting, 0);
}

#[test]
fn frames_that_the_kernel_refuses_to_send_come_back_while_others_come_and_go() {
    let mut bed = Bed::new("qdisc add dev p root pfifo limit 1000");
    let pass = |bed: &mut Bed, refuse| {
        bed.drivers[0].swallow();
        assert!(bed.drivers[0].receive(&[60], true));
        bed.step();
        bed.drivers[1].take(usize::MAX, refuse);
        bed.step();
    };
    for _ in 0..3 {
        pass(&mut bed, true);
    }
    for second in 0..8 {
        // One packet is always under way.
        pass(&mut bed, false);
        bed.now += Nanos::from_secs(1);
        bed.worker.io_mut().recover(bed.now);
        let sending = bed.worker.io().frame_counts().sending;
        assert_eq!(sending, if second < 5 { 4 } else { 1 }, "after {second} s");
        bed.drivers[1].complete(usize::MAX);
    }
}
