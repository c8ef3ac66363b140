//! A worker over a model of the kernel: with any behaviour of drivers, each frame has an owner, the
//! counts agree, and no direction starves.
#![allow(unsafe_code)]

use super::*;
use narrows_forwarding::TagProtocol;
use narrows_policy::{Plan, Policy};
use narrows_qdisc::{Slot, Spec};
use narrows_shaper::Installation;
use narrows_shaper::Worker;
use narrows_xsk::{Consumer, Producer, Umem, ring_in_memory};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

const RING: u32 = 128;
const FRAME: u32 = 2048;

fn wire() -> (Forwarding, Shares) {
    let receive = [RING + 40, RING].into_iter().collect();
    let shares = Shares { receive, wait: [96, 128].into_iter().collect() };
    (Forwarding::wire("a", "b").unwrap(), shares)
}

/// Two pairs of VLANs: 1 and 2, 3 and 4.
fn stick() -> (Forwarding, Shares) {
    let tag = |vid| Tag::new(TagProtocol::Customer, vid).unwrap();
    let forwarding = Forwarding::stick("a", &[(tag(1), tag(2)), (tag(3), tag(4))]).unwrap();
    let receive = [RING + 40].into_iter().collect();
    (forwarding, Shares { receive, wait: [96, 128, 60, 60].into_iter().collect() })
}

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
    /// The tag of each packet that was sent.
    sent: Vec<u16>,
    memory: Rc<RefCell<UmemPart>>,
}

impl Driver {
    fn new(memory: &Rc<RefCell<UmemPart>>) -> (ModelQueue, Self) {
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
            sent: Vec::new(),
            memory: Rc::clone(memory),
        };
        (queue, driver)
    }

    fn swallow(&mut self) {
        while let Some(addr) = self.fill.pop() {
            self.empty.push(addr);
        }
        self.fill.release();
    }

    /// A packet of `parts` in VLAN `vid` arrives, with or without the mark of its last descriptor.
    /// False if it did not fit: then its frames are unchanged.
    fn receive_in(&mut self, vid: u16, parts: &[u32], ends: bool) -> bool {
        if self.empty.len() < parts.len() || (self.rx.free(RING) as usize) < parts.len() {
            return false;
        }
        for (number, &len) in (1..).zip(parts) {
            let Some(addr) = self.empty.pop() else { return false };
            let last = number == parts.len() && ends;
            let options = if last { 0 } else { Desc::CONTINUES };
            if number == 1 && len >= 16 {
                let tag = [0x81, 0, 0x20, vid as u8];
                self.header(addr + 256, |header| header[12..].copy_from_slice(&tag));
            }
            // SAFETY: this is the kernel's end, and gives the frame back.
            unsafe { self.rx.push(Desc { addr: addr + 256, len, options }) };
        }
        self.rx.submit();
        true
    }

    /// A packet that is in no VLAN, as far as it has a header.
    fn receive(&mut self, parts: &[u32], ends: bool) -> bool {
        self.receive_in(0, parts, ends)
    }

    /// The addresses and the tag of the packet at `addr`.
    fn header<T>(&self, addr: u64, with: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut memory = self.memory.borrow_mut();
        let frame = memory.frame_at(addr).expect("a frame of the worker");
        // SAFETY: this is the kernel's end, and it has the frame; nobody else borrows its bytes.
        with(unsafe { memory.bytes_mut(frame, addr, 16) }.expect("within the frame"))
    }

    /// Takes up to `count` descriptors, or refuses them if configured.
    fn take(&mut self, count: usize, refuse: bool) {
        for _ in 0..count {
            let Some(desc) = self.tx.pop() else { break };
            assert_ne!(desc.len, 0, "the kernel would refuse it");
            if refuse {
                self.refused.set(self.refused.get() + 1);
            } else {
                if desc.len >= 16 {
                    let tci = |header: &mut [u8]| u16::from_be_bytes([header[14], header[15]]);
                    self.sent.push(self.header(desc.addr, tci));
                }
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
    drivers: Vec<Driver>,
    shares: Shares,
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
    fn new(words: &str, (forwarding, shares): (Forwarding, Shares)) -> Self {
        let umem = Umem::new(shares.frames(), FRAME).expect("there is memory");
        let part = umem.part(umem.frames()).expect("all of it");
        let same = umem.as_fd().try_clone_to_owned().unwrap();
        let same = Umem::open(same, shares.frames(), FRAME).unwrap();
        let memory = Rc::new(RefCell::new(same.part(shares.frames()).unwrap()));
        let both = forwarding.devices().iter().map(|_| Driver::new(&memory));
        let (queues, drivers): (Vec<_>, Vec<_>) = both.unzip();
        let dissector = Dissector::new(1);
        let io = XdpIo::new(queues.into(), part, &forwarding, &shares, dissector, 1).stocked();
        let count = io.frame_count();
        let slots = forwarding.ids().map(|_| Slot::new(spec(words)));
        let worker = Worker::new(io, count, slots);
        Self { worker, drivers, shares, now: Nanos::from_secs(1) }
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
        for egress in self.worker.ports() {
            let queued = u64::from(self.worker.backlog(egress).packets);
            assert_eq!(self.worker.counters(egress).unaccounted(queued), 0);
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
    Swallow(usize),
    Receive(usize, u16, Vec<u32>, bool),
    Take(usize, usize, bool),
    Complete(usize, usize),
    Worker,
    Recover,
}

fn step() -> impl Strategy<Value = Step> {
    let device = || 0..2_usize;
    // Those of the stick, and one that is none of it.
    let vid = || 0..6_u16;
    let part = prop::sample::select(vec![0, 1, 13, 14, 60, 1500]);
    let parts = prop::collection::vec(part, 1..22);
    prop_oneof![
        2 => device().prop_map(Step::Swallow),
        2 => (device(), vid(), parts, prop::bool::weighted(0.8))
            .prop_map(|(device, vid, parts, ends)| Step::Receive(device, vid, parts, ends)),
        4 => (device(), vid(), 60..1500_u32)
            .prop_map(|(device, vid, len)| Step::Receive(device, vid, vec![len], true)),
        2 => (device(), 0..40_usize, prop::bool::weighted(0.1))
            .prop_map(|(device, count, refuse)| Step::Take(device, count, refuse)),
        2 => (device(), 0..40_usize).prop_map(|(device, count)| Step::Complete(device, count)),
        5 => Just(Step::Worker),
        1 => Just(Step::Recover),
    ]
}

/// The kernel does `steps`. In the end all frames are free again.
fn loses_no_frame(
    ports: (Forwarding, Shares),
    steps: Vec<Step>,
) -> Result<(), proptest::test_runner::TestCaseError> {
    let mut bed = Bed::new("qdisc add dev p root pfifo limit 60", ports);
    let devices = bed.drivers.len();
    for step in steps {
        match step {
            Step::Swallow(device) => bed.drivers[device % devices].swallow(),
            Step::Receive(device, vid, parts, ends) => {
                bed.drivers[device % devices].receive_in(vid, &parts, ends);
            }
            Step::Take(device, count, refuse) => bed.drivers[device % devices].take(count, refuse),
            Step::Complete(device, count) => bed.drivers[device % devices].complete(count),
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
    prop_assert_eq!(counts.receiving, bed.shares.receive.iter().sum::<u32>());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// The kernel cuts packets into any pieces, loses their ends, loses or delays frames, and
    /// refuses to send some.
    #[test]
    fn no_frame_is_lost_under_any_kernel_behaviour(
        steps in prop::collection::vec(step(), 1..400)
    ) {
        loses_no_frame(wire(), steps.clone())?;
        loses_no_frame(stick(), steps)?;
    }
}

#[test]
fn a_packet_of_a_vlan_leaves_with_the_tag_of_the_other() {
    let mut bed = Bed::new("qdisc add dev p root pfifo limit 100", stick());
    bed.drivers[0].swallow();
    for vid in [1, 3, 2, 7, 4, 1] {
        assert!(bed.drivers[0].receive_in(vid, &[60], true));
    }
    bed.step();
    bed.drivers[0].take(usize::MAX, false);
    // Each port sends in its turn: the priority, 1, stays.
    assert_eq!(bed.drivers[0].sent, [0x2002, 0x2002, 0x2001, 0x2004, 0x2003]);
    let sent: Vec<u64> =
        bed.worker.ports().map(|port| bed.worker.counters(port).tx_packets).collect();
    assert_eq!(sent, [1, 2, 1, 1]);
    let malformed: u64 = bed
        .worker
        .ports()
        .map(|port| bed.worker.counters(port).drops.get(DropReason::Malformed))
        .sum();
    assert_eq!(malformed, 1, "what is in no VLAN of ours");
}

#[test]
fn a_flooded_vlan_takes_nothing_from_others_on_the_device() {
    let mut bed = Bed::new("qdisc add dev p root tbf rate 8kbit burst 2k limit 10m", stick());
    for _ in 0..40 {
        bed.drivers[0].swallow();
        for _ in 0..16 {
            bed.drivers[0].receive_in(1, &[60], true);
        }
        bed.drivers[0].receive_in(3, &[60], true);
        bed.step();
        bed.drivers[0].take(usize::MAX, false);
        bed.drivers[0].complete(usize::MAX);
    }
    let drops = |egress: usize| bed.worker.counters(PortId::from(egress)).drops.total();
    assert!(drops(1) > 400, "{} were dropped", drops(1));
    assert_eq!(drops(3), 0);
}

#[test]
fn a_driver_that_swallows_all_frames_starves_neither_its_queue_nor_the_other_port() {
    let mut bed = Bed::new("qdisc add dev p root pfifo limit 1000", wire());
    // Towards B nothing leaves: queued packets use their whole share.
    for _ in 0..1000 {
        bed.drivers[0].swallow();
        bed.drivers[0].receive(&[60], true);
        bed.step();
    }
    bed.step();
    bed.drivers[0].swallow();
    let backlog = bed.worker.backlog(PortId::SECOND).packets;
    let counters = bed.worker.counters(PortId::SECOND);
    let waiting = u64::from(backlog) + counters.tx_packets;
    assert_eq!(
        waiting,
        u64::from(bed.shares.wait[PortId::FIRST]),
        "what the operator allows, waits"
    );
    assert_eq!(counters.drops.get(DropReason::NoFrame), 1000 - waiting);
    assert_eq!(
        bed.drivers[0].empty.len() as u32,
        bed.shares.receive[DeviceId::FIRST],
        "reception has its share"
    );
    // The other direction is not affected.
    for _ in 0..1000 {
        bed.drivers[1].swallow();
        assert!(bed.drivers[1].receive(&[60], true));
        bed.drivers[0].take(usize::MAX, false);
        bed.drivers[0].complete(usize::MAX);
        bed.step();
    }
    bed.settle();
    assert_eq!(bed.worker.counters(PortId::FIRST).tx_packets, 1000);
    // Once the device sends again, so does the queue.
    bed.settle();
    assert_eq!(bed.worker.counters(PortId::SECOND).tx_packets, waiting);
}

#[test]
fn a_packet_without_end_takes_no_more_frames_than_a_packet_may_have() {
    let mut bed = Bed::new("qdisc add dev p root pfifo limit 1000", wire());
    for _ in 0..500 {
        bed.drivers[0].swallow();
        assert!(bed.drivers[0].receive(&[100], false), "reception goes on");
        bed.step();
    }
    assert_eq!(bed.worker.io().frame_counts().waiting as usize, FRAMES_PER_PACKET_MAX);
    bed.drivers[0].swallow();
    assert!(bed.drivers[0].receive(&[100], true));
    bed.step();
    assert_eq!(bed.worker.counters(PortId::SECOND).drops.get(DropReason::Malformed), 1);
    assert_eq!(bed.worker.io().frame_counts().waiting, 0);
}

#[test]
fn frames_that_the_kernel_refuses_to_send_come_back_while_others_come_and_go() {
    let mut bed = Bed::new("qdisc add dev p root pfifo limit 1000", wire());
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
