//! Workers over vectors instead of ports: through any events, no packet is lost, duplicated or
//! reordered, and the counters add up after every step.

use narrows_forwarding::{PortId, PortSet};
use narrows_packet::{Acknowledgement, Batch, DropReason, Headers, PacketId, Packets, Reading};
use narrows_policy::{Plan, Policy, PortFacts};
use narrows_qdisc::{Detail, Slot};
use narrows_shaper::{Activity, Beside, Installation, Io, Pause, UNSEEN_MAX, Worker};
use narrows_tc::Host;
use narrows_units::{Bytes, Nanos};
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Frames for what arrives at a port, those that reception needs of them, and all of a worker.
const FRAMES_PER_PORT: u32 = 100;
const FRAMES: u32 = FRAMES_PER_PORT * PORTS.len() as u32;
const RESERVED: usize = 10;
/// The number in a frame that was put aside for a copy.
const UNUSED: u64 = u64::MAX;
/// The names of the ports, in a policy.
/// Two pairs: what arrives at `a` leaves at `b`, and what arrives at `c` at `d`.
const PORTS: [&str; 4] = ["a", "b", "c", "d"];

/// A packet on its way in.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    /// Its number among those that came in at this port.
    number: u64,
    len: u32,
    malformed: bool,
}

/// All ports.
const ALL: [PortId; PORTS.len()] =
    [PortId::FIRST, PortId::SECOND, PortId::new(2).unwrap(), PortId::new(3).unwrap()];

fn all_but(port: PortId) -> PortSet {
    let mut set = PortSet::ALL;
    set.remove(port);
    set
}

/// The owner of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Free,
    Worker { port: PortId, number: u64 },
}

/// Ports made of vectors, which watch that frames come back exactly once.
struct FakeIo {
    coming: [VecDeque<Arrival>; PORTS.len()],
    arrived: [u64; PORTS.len()],
    malformed: [u64; PORTS.len()],
    /// By the port of arrival of the packets in them.
    free: [Vec<u32>; PORTS.len()],
    owners: Vec<Owner>,
    room: [usize; PORTS.len()],
    /// The numbers of departed packets, by port.
    sent: [Vec<u64>; PORTS.len()],
    dropped: [u64; PORTS.len()],
    /// By port: packets that were handed over last.
    handed_over: [u64; PORTS.len()],
    /// Packets for which the worker was told that there is no spare frame.
    without_frame: Cell<u64>,
    /// Sent packets wait for the device.
    unsent: bool,
    /// How many flows the packets are of, in turn. A flow's order is kept.
    flows: u64,
    /// Whether a qdisc duplicates: then frames come back unused, and a number twice.
    copies: bool,
    /// Frames that were put aside and not used.
    unused: u64,
    /// Whether each packet has a port of its own to leave through.
    routed: bool,
    /// Where each packet in `sent` arrived.
    sent_from: [Vec<PortId>; PORTS.len()],
    /// Packets that leave nowhere, by the port of arrival.
    unrouted: [u64; PORTS.len()],
    /// What leaves through the second port beside the workers.
    beside: Option<Arc<FakeBeside>>,
}

/// What leaves beside the workers.
#[derive(Default)]
struct FakeBeside {
    unclaimed: AtomicU64,
    /// When packets last waited.
    waited: AtomicU64,
}

impl Beside for FakeBeside {
    fn claim(&self) -> Bytes {
        Bytes(self.unclaimed.swap(0, Ordering::Relaxed))
    }

    fn waits(&self, now: Nanos) {
        self.waited.store(now.0, Ordering::Relaxed);
    }
}

/// Where a packet leaves that a router receives; some leave nowhere.
fn route(number: u64) -> Option<PortId> {
    PortId::new((number * 7 % 5) as u8).filter(|port| ALL.contains(port))
}

impl FakeIo {
    fn new() -> Self {
        Self {
            coming: Default::default(),
            arrived: [0; PORTS.len()],
            malformed: [0; PORTS.len()],
            free: [0, 1, 2, 3]
                .map(|port| (port * FRAMES_PER_PORT..(port + 1) * FRAMES_PER_PORT).collect()),
            owners: vec![Owner::Free; FRAMES as usize],
            room: [usize::MAX; PORTS.len()],
            sent: Default::default(),
            dropped: [0; PORTS.len()],
            handed_over: [0; PORTS.len()],
            without_frame: 0.into(),
            unsent: false,
            flows: 1,
            copies: false,
            unused: 0,
            routed: false,
            sent_from: Default::default(),
            unrouted: [0; PORTS.len()],
            beside: None,
        }
    }

    /// Takes back `id`, which the worker must have had.
    fn take_back(&mut self, id: PacketId) -> (PortId, u64) {
        let owner = std::mem::replace(&mut self.owners[id.0 as usize], Owner::Free);
        let Owner::Worker { port, number } = owner else {
            panic!("packet {} came back, but the worker did not have it", id.0)
        };
        self.free[port.index()].push(id.0);
        (port, number)
    }

    fn held(&self) -> usize {
        FRAMES as usize - self.free.iter().map(Vec::len).sum::<usize>()
    }
}

impl Io for FakeIo {
    fn receive(&mut self, port: PortId, packets: &mut Packets, now: Nanos, out: &mut Batch) {
        while out.has_room() && !self.coming[port.index()].is_empty() {
            // Without a free frame a device receives nothing.
            let Some(frame) = self.free[port.index()].pop() else { break };
            let Some(arrival) = self.coming[port.index()].pop_front() else { break };
            self.owners[frame as usize] = Owner::Worker { port, number: arrival.number };
            self.arrived[port.index()] += 1;
            let id = PacketId(frame);
            packets.arrive(id, arrival.len, now);
            if arrival.malformed {
                self.malformed[port.index()] += 1;
                packets.discard(id, DropReason::Malformed);
            } else {
                out.push(id);
            }
        }
        self.handed_over[port.index()] = out.len() as u64;
    }

    fn egress_of(&mut self, ingress: PortId, packet: PacketId) -> Option<PortId> {
        let Owner::Worker { port, number } = self.owners[packet.0 as usize] else {
            panic!("a packet that the worker does not have")
        };
        assert_eq!(port, ingress);
        let egress = route(number);
        self.unrouted[ingress.index()] += u64::from(egress.is_none());
        egress
    }

    fn places(&self) -> u32 {
        FRAMES
    }

    fn spare_frames(&self, ingress: PortId, _: PortId) -> Option<u32> {
        let spare = self.free[ingress.index()].len().checked_sub(RESERVED);
        if spare.is_none() {
            self.without_frame.set(self.without_frame.get() + self.handed_over[ingress.index()]);
        }
        spare.map(|spare| spare as u32)
    }

    fn put_aside(&mut self, ingress: PortId, longest: Bytes, out: &mut Batch) {
        assert!(longest.0 < 1600);
        self.copies = true;
        while out.has_room() && self.free[ingress.index()].len() > RESERVED {
            let frame = self.free[ingress.index()].pop().expect("some are left");
            self.owners[frame as usize] = Owner::Worker { port: ingress, number: UNUSED };
            out.push(PacketId(frame));
        }
    }

    fn copy(&mut self, from: PacketId, to: PacketId) {
        let (Owner::Worker { number, .. }, Owner::Worker { port, number: UNUSED }) =
            (self.owners[from.0 as usize], self.owners[to.0 as usize])
        else {
            panic!("a copy needs a packet, and a frame that was put aside")
        };
        self.owners[to.0 as usize] = Owner::Worker { port, number };
    }

    fn room(&mut self, port: PortId) -> usize {
        self.room[port.index()]
    }

    /// Gives each packet a flow, and the report of a mark.
    fn read(&self, packet: PacketId, reading: Reading, packets: &mut Packets) {
        if reading.acknowledgements {
            let seen = Acknowledgement { connection: 1, flags: 0x50, ..Default::default() };
            packets.set_acknowledgement(packet, seen);
        }
        if let (true, Owner::Worker { number, .. }) =
            (reading.headers, self.owners[packet.0 as usize])
        {
            let flow = (number % self.flows) as u32;
            packets.set_headers(packet, Headers { flow, ..Headers::default() });
        }
    }

    fn frame(&self) -> Bytes {
        Bytes(2048)
    }

    fn transmit(&mut self, port: PortId, _packets: &Packets, batch: &Batch) {
        assert!(batch.len() <= self.room[port.index()], "more was sent than there is room for");
        for &id in batch.as_slice() {
            let (from, number) = self.take_back(id);
            let leaves = if self.routed { route(number) } else { Some(from.partner()) };
            assert_eq!(Some(port), leaves, "a packet leaves where it is to");
            let sent = self.sent[port.index()].iter().zip(&self.sent_from[port.index()]);
            // Packets of several ports may come in any order.
            let mut same = sent.rev().filter(|(sent, at)| {
                *sent % self.flows == number % self.flows && (!self.routed || **at == from)
            });
            let before = same.next().map(|(sent, _)| *sent);
            // Copies are made in frames of the port where they leave.
            let is_copy = self.copies && (before == Some(number) || self.routed);
            assert!(before < Some(number) || is_copy, "{number} was overtaken by {before:?}");
            self.sent[port.index()].push(number);
            self.sent_from[port.index()].push(from);
        }
    }

    fn release(&mut self, dropped: &Batch) {
        for &id in dropped.as_slice() {
            let (from, number) = self.take_back(id);
            match number {
                UNUSED => self.unused += 1,
                _ => self.dropped[from.index()] += 1,
            }
        }
    }

    fn beside(&self, port: PortId) -> Option<&dyn Beside> {
        let beside = self.beside.as_ref().filter(|_| port == PortId::SECOND)?;
        Some(beside.as_ref())
    }

    fn is_unsent(&self) -> bool {
        self.unsent
    }
}

/// A policy for two ports of `queues` queues.
struct Ports {
    policy: Policy,
    queues: u16,
}

impl Host for Ports {
    fn devices(&self) -> Vec<String> {
        PORTS.map(str::to_owned).into()
    }

    fn port(&self, dev: &str) -> Option<PortFacts> {
        PORTS
            .contains(&dev)
            .then_some(PortFacts { queues: Some(self.queues), ..PortFacts::ETHERNET })
    }

    fn policy(&self) -> Policy {
        self.policy.clone()
    }

    fn apply(&mut self, policy: Policy) -> Result<(), String> {
        self.policy = policy;
        Ok(())
    }
}

/// Some workers under one policy: an instance without threads and sockets.
struct Bed {
    workers: Vec<Worker<FakeIo>>,
    installed: [Installation; PORTS.len()],
    ports: Ports,
    now: Nanos,
    next: u64,
}

impl Bed {
    fn new(queues: usize) -> Self {
        let policy = Policy::default();
        let mut specs = PORTS.map(|_| Vec::new());
        let installed = [0, 1, 2, 3].map(|port| {
            let plan = Plan::of(policy.port(PORTS[port]), queues);
            let plan = plan.unwrap_or_else(|error| panic!("{error}"));
            let (installed, first) = Installation::reconcile(plan, None);
            specs[port] = first;
            installed
        });
        let mut specs = specs.map(Vec::into_iter);
        let worker = |_| {
            let slots = specs.each_mut().map(|specs| Slot::new(specs.next().unwrap()));
            Worker::new(FakeIo::new(), FRAMES, slots)
        };
        let workers = (0..queues).map(worker).collect();
        let queues = u16::try_from(queues).unwrap();
        let ports = Ports { policy, queues };
        Self { workers, installed, ports, now: Nanos(1_000_000), next: 0 }
    }

    /// The workers of a router.
    fn routed(self) -> Self {
        let routed = |mut worker: Worker<FakeIo>| {
            worker.io_mut().routed = true;
            worker.routed()
        };
        Self { workers: self.workers.into_iter().map(routed).collect(), ..self }
    }

    fn arrive(&mut self, worker: usize, port: PortId, count: usize, len: u32, malformed: bool) {
        for _ in 0..count {
            self.next += 1;
            let arrival = Arrival { number: self.next, len, malformed };
            self.workers[worker].io_mut().coming[port.index()].push_back(arrival);
        }
    }

    fn step(&mut self, worker: usize) -> Activity {
        let activity = self.workers[worker].step(self.now);
        self.check();
        activity
    }

    /// Puts a policy in force with tc's words, the way an instance does.
    fn tc(&mut self, words: &str) {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        // Refused commands change nothing.
        let _ = narrows_tc::execute(&words, &mut self.ports);
        for port in ALL {
            let previous = &self.installed[port.index()];
            let policy = self.ports.policy.port(PORTS[port.index()]);
            let plan = Plan::of(policy, self.workers.len());
            let plan = plan.unwrap_or_else(|error| panic!("{error}"));
            let (installed, specs) = Installation::reconcile(plan, Some(previous));
            installed.commit();
            self.installed[port.index()] = installed;
            for (worker, spec) in self.workers.iter_mut().zip(specs) {
                worker.update(port, spec, self.now);
            }
            self.check();
        }
    }

    /// Everything that must be true at any moment between two steps.
    fn check(&self) {
        for worker in &self.workers {
            let io = worker.io();
            let mut queued_in_all = 0;
            if io.routed {
                self.check_routed(worker);
                continue;
            }
            for ingress in ALL {
                let egress = ingress.partner();
                let counters = worker.counters(egress);
                let queued = u64::from(worker.backlog(egress).packets);
                queued_in_all += queued;
                assert_eq!(counters.unaccounted(queued), 0, "{counters:?}, {queued} queued");
                assert_eq!(counters.rx_packets, io.arrived[ingress.index()]);
                assert_eq!(counters.tx_packets, io.sent[egress.index()].len() as u64);
                // Copies without a frame never had one.
                let dropped = io.dropped[ingress.index()];
                let without = counters.drops.total() - dropped;
                assert!(without <= counters.copied, "{counters:?}, {dropped} came back");
                let malformed = counters.drops.get(DropReason::Malformed);
                assert_eq!(malformed, io.malformed[ingress.index()]);
                // The root's backlog is what its own figures say.
                let stats = worker.qdisc_stats(egress);
                assert_eq!(u64::from(stats[0].backlog.packets), queued);
            }
            assert_eq!(io.held() as u64, queued_in_all, "frames held are packets queued");
            let no_frame = |port| worker.counters(port).drops.get(DropReason::NoFrame);
            let refused = ALL.map(no_frame).iter().sum::<u64>();
            // If flows have queues, none of these gets all frames.
            assert!(refused >= io.without_frame.get(), "dropped for want of frames");
        }
    }

    /// Checks conservation of a worker whose packets leave by a port of their own.
    fn check_routed(&self, worker: &Worker<FakeIo>) {
        let io = worker.io();
        let (mut queued_in_all, mut came) = (0, 0);
        for port in ALL {
            let counters = worker.counters(port);
            let queued = u64::from(worker.backlog(port).packets);
            queued_in_all += queued;
            came += counters.rx_packets;
            assert_eq!(counters.unaccounted(queued), 0, "{counters:?}, {queued} queued");
            assert_eq!(worker.arrived(port).packets, io.arrived[port.index()]);
            assert_eq!(counters.tx_packets, io.sent[port.index()].len() as u64);
            let nowhere = io.malformed[port.index()] + io.unrouted[port.index()];
            assert_eq!(counters.drops.get(DropReason::Malformed), nowhere);
        }
        assert_eq!(came, io.arrived.iter().sum::<u64>());
        assert_eq!(io.held() as u64, queued_in_all, "frames held are packets queued");
    }

    fn queued(&self) -> u32 {
        let backlogs =
            self.workers.iter().flat_map(|worker| ALL.map(|port| worker.backlog(port).packets));
        backlogs.sum()
    }
}

#[test]
fn a_qdisc_receives_acknowledgements_only_on_request() {
    let mut bed = Bed::new(1);
    bed.tc("qdisc replace dev b root flowbundler maxrate 1gbit safeguard");
    let congestion = |bed: &Bed, port| {
        let stats = bed.workers[0].qdisc_stats(port);
        stats[0].detail.as_ref().and_then(Detail::pacing).map(|figures| figures.congestion)
    };
    bed.arrive(0, PortId::FIRST, 5, 1000, false);
    bed.step(0);
    assert_eq!(congestion(&bed, PortId::SECOND), Some(0));
    bed.arrive(0, PortId::SECOND, 7, 60, false);
    bed.step(0);
    assert_eq!(congestion(&bed, PortId::SECOND), Some(7));
    assert_eq!(congestion(&bed, PortId::FIRST), None);
}

/// Words that make and change every kind, for a port whose name is put in.
const WORDS: &[&str] = &[
    "qdisc replace dev PORT root handle 1: tbf rate 20mbit burst 10k latency 10ms",
    "qdisc replace dev PORT parent 1:1 handle d: flowbundler maxrate 5mbit",
    "qdisc replace dev PORT parent 1:1 handle 14: netem delay 1ms duplicate 20%",
    "qdisc replace dev PORT parent 1:1 handle e: pfifo limit 70",
    "qdisc replace dev PORT root handle 1: tbf rate 3mbit burst 3k limit 9k",
    "qdisc change dev PORT root handle 1: tbf rate 90mbit burst 50k limit 300k",
    "qdisc replace dev PORT root handle 1: tbf rate 20mbit burst 10k limit 90k",
    "qdisc replace dev PORT root handle 1: tbf rate 20mbit burst 10k limit 90k coordination edt",
    "qdisc replace dev PORT root handle 1: tbf rate 9mbit burst 4k limit 9k peakrate 20mbit mtu 1600",
    "qdisc replace dev PORT parent 1:1 handle 2: pfifo limit 7",
    "qdisc replace dev PORT parent 1:1 handle 3: bfifo limit 20k",
    "qdisc replace dev PORT parent 1:1 handle 2: tbf rate 8mbit burst 5k limit 20k",
    "qdisc replace dev PORT root handle 4: pfifo limit 50",
    "qdisc change dev PORT root handle 4: pfifo limit 2",
    "qdisc replace dev PORT root handle 5: bfifo limit 30k",
    "qdisc replace dev PORT root handle 6: mq",
    "qdisc replace dev PORT parent 6:1 handle 7: tbf rate 6mbit burst 3k limit 50k overhead 30",
    "qdisc replace dev PORT parent 6:2 handle 8: pfifo limit 9",
    "qdisc replace dev PORT root handle 9: flowbundler maxrate 30mbit flow_limit 80",
    "qdisc change dev PORT root handle 9: flowbundler maxrate 9mbit safeguard apart hosts",
    "qdisc replace dev PORT root handle 9: flowbundler maxrate 20mbit nosafeguard apart flows codel target 500us interval 2ms",
    "qdisc change dev PORT root handle 9: flowbundler maxrate 40mbit limit 30 nocodel",
    "qdisc replace dev PORT root handle a: carousel maxrate 20mbit limit 40",
    "qdisc replace dev PORT root handle b: eiffel maxrate 20mbit",
    "qdisc replace dev PORT root handle c: fq maxrate 20mbit",
    "qdisc replace dev PORT root handle 10: netem delay 1ms",
    "qdisc replace dev PORT parent 10:1 handle 11: tbf rate 20mbit burst 10k limit 90k",
    "qdisc replace dev PORT parent 10:1 handle 12: netem delay 500us duplicate 50%",
    "qdisc replace dev PORT parent 12: handle 13: red limit 60k min 9k max 30k avpkt 1000 burst 20",
    "qdisc del dev PORT parent 10:1",
    "qdisc change dev PORT root handle 10: netem delay 1ms duplicate 100%",
    "qdisc replace dev PORT root handle 15: red limit 60k min 9k max 30k avpkt 1000 burst 20 adaptive",
    "qdisc replace dev PORT root handle 16: stab overhead 24 mpu 84 tbf rate 20mbit burst 10k limit 90k",
    "qdisc replace dev PORT parent 16: handle 17: fq_codel limit 40",
    "qdisc change dev PORT root handle 16: stab linklayer atm overhead 44 tbf rate 20mbit burst 10k limit 90k",
    "qdisc change dev PORT root handle 16: tbf rate 20mbit burst 10k limit 90k",
    "qdisc replace dev PORT parent 16: handle 18: stab overhead 10 pfifo limit 50",
    "qdisc replace dev PORT root noqueue",
    "qdisc del dev PORT root",
];

/// Something that happens.
#[derive(Clone, Debug)]
enum Happening {
    Arrive { worker: usize, port: PortId, count: usize, len: u32, malformed: bool },
    Step { worker: usize },
    Wait { nanos: u64 },
    Room { worker: usize, port: PortId, room: usize },
    Tc { port: PortId, words: usize },
    Abandon { worker: usize },
}

fn happening() -> impl Strategy<Value = Happening> {
    let worker = 0..3_usize;
    let port = prop_oneof![Just(ALL[0]), Just(ALL[1]), Just(ALL[2]), Just(ALL[3])];
    let arrive =
        (worker.clone(), port.clone(), 1..100_usize, 14..1600_u32, prop::bool::weighted(0.1))
            .prop_map(|(worker, port, count, len, malformed)| Happening::Arrive {
                worker,
                port,
                count,
                len,
                malformed,
            });
    let room = prop_oneof![Just(0), 1..70_usize, Just(usize::MAX)];
    prop_oneof![
        6 => arrive,
        12 => worker.clone().prop_map(|worker| Happening::Step { worker }),
        4 => (0..30_000_000_u64).prop_map(|nanos| Happening::Wait { nanos }),
        3 => (worker.clone(), port.clone(), room)
            .prop_map(|(worker, port, room)| Happening::Room { worker, port, room }),
        3 => (port, 0..WORDS.len()).prop_map(|(port, words)| Happening::Tc { port, words }),
        1 => worker.prop_map(|worker| Happening::Abandon { worker }),
    ]
}

proptest! {
    #[test]
    fn no_packet_is_ever_lost_duplicated_or_overtaken(
        queues in 1..=3_usize,
        routed: bool,
        happenings in prop::collection::vec(happening(), 1..120),
    ) {
        let mut bed = if routed { Bed::new(queues).routed() } else { Bed::new(queues) };
        for happening in happenings {
            match happening {
                Happening::Arrive { worker, port, count, len, malformed } => {
                    bed.arrive(worker % queues, port, count, len, malformed);
                }
                Happening::Step { worker } => {
                    bed.step(worker % queues);
                }
                Happening::Wait { nanos } => bed.now += Nanos(nanos),
                Happening::Room { worker, port, room } => {
                    bed.workers[worker % queues].io_mut().room[port.index()] = room;
                }
                Happening::Tc { port, words } => {
                    bed.tc(&WORDS[words].replace("PORT", PORTS[port.index()]));
                }
                Happening::Abandon { worker } => {
                    bed.workers[worker % queues].abandon(DropReason::PortGone);
                    bed.check();
                    let worker = &bed.workers[worker % queues];
                    prop_assert!(ALL.iter().all(|&port| worker.backlog(port).is_empty()));
                }
            }
        }
        // With room again and time, everything leaves: nothing is stuck. At the least rate
        // that the words above can set, all frames take less than four seconds.
        for worker in &mut bed.workers {
            worker.io_mut().room = [usize::MAX; PORTS.len()];
        }
        for _ in 0..4000 {
            for worker in &mut bed.workers {
                worker.step(bed.now);
            }
            bed.now += Nanos::from_millis(1);
            let io = |worker: &Worker<FakeIo>| worker.io().coming.iter().all(VecDeque::is_empty);
            if bed.queued() == 0 && bed.workers.iter().all(io) {
                break;
            }
        }
        bed.check();
        prop_assert_eq!(bed.queued(), 0);
        prop_assert!(bed.workers.iter().all(|worker| worker.io().held() == 0));
    }
}

#[test]
fn a_routers_packets_leave_where_each_is_to() {
    let mut bed = Bed::new(1).routed();
    bed.arrive(0, PortId::FIRST, 20, 100, false);
    bed.arrive(0, PortId::SECOND, 5, 100, false);
    while bed.step(0) == Activity::Busy {}
    let io = bed.workers[0].io();
    let all: Vec<u64> = io.sent.iter().flatten().copied().collect();
    assert_eq!(all.len() as u64 + io.unrouted.iter().sum::<u64>(), 25);
    assert_eq!(io.unrouted.iter().sum::<u64>(), 5);
    assert!(ALL.iter().all(|port| !io.sent[port.index()].is_empty()), "{:?}", io.sent);
    assert_eq!(bed.workers[0].arrived(PortId::FIRST).packets, 20);
}

#[test]
fn a_router_listens_to_all_ports_while_a_queue_waits_for_its_rate() {
    let mut bed = Bed::new(1).routed();
    for port in PORTS {
        bed.tc(&format!("qdisc add dev {port} root tbf rate 8kbit burst 2k limit 10m"));
    }
    bed.arrive(0, PortId::FIRST, 64, 1000, false);
    let pause = pause_of(&mut bed);
    assert_eq!(pause.listen, PortSet::ALL);
    assert!(pause.until < Nanos::MAX);
}

/// What ends the next pause of the first worker.
fn pause_of(bed: &mut Bed) -> Pause {
    let mut activity = bed.step(0);
    while activity == Activity::Busy {
        activity = bed.step(0);
    }
    let Activity::Idle(pause) = activity else { panic!("{activity:?}") };
    pause
}

#[test]
fn a_router_does_not_listen_where_all_that_lately_came_soon_leaves_at_its_rate() {
    let limited = || {
        let mut bed = Bed::new(1).routed();
        for port in PORTS {
            bed.tc(&format!("qdisc add dev {port} root tbf rate 80mbit burst 2k limit 10m"));
        }
        bed
    };
    let mut bed = limited();
    bed.arrive(0, PortId::FIRST, 64, 1000, false);
    let pause = pause_of(&mut bed);
    assert_eq!(pause.listen, all_but(PortId::FIRST));
    assert!(pause.until > bed.now && pause.until <= bed.now + UNSEEN_MAX);
    // Some of it leaves at once now, and so may what comes next.
    let mut bed = limited();
    bed.tc("qdisc del dev a root");
    bed.arrive(0, PortId::FIRST, 64, 1000, false);
    assert_eq!(pause_of(&mut bed).listen, PortSet::ALL);
    // It has been a while.
    let mut bed = limited();
    bed.arrive(0, PortId::FIRST, 64, 1000, false);
    bed.step(0);
    bed.now += Nanos::from_millis(2);
    bed.arrive(0, PortId::SECOND, 64, 1000, false);
    assert_eq!(pause_of(&mut bed).listen, all_but(PortId::SECOND));
}

#[test]
fn workers_charge_what_leaves_beside_them_once_and_tell_when_packets_wait() {
    for root in ["tbf rate 8mbit burst 2k limit 1m", "cake_mq bandwidth 8mbit", "htb default 10"] {
        let mut bed = Bed::new(2);
        bed.tc(&format!("qdisc add dev b root handle 1: {root}"));
        bed.tc("class add dev b parent 1: classid 1:1 htb rate 8mbit burst 2k");
        bed.tc("class add dev b parent 1:1 classid 1:10 htb rate 8mbit burst 2k");
        let beside = Arc::<FakeBeside>::default();
        for worker in &mut bed.workers {
            worker.io_mut().beside = Some(Arc::clone(&beside));
        }
        // 500 Mbit/s come, and 4 of the 8 Mbit/s leave beside.
        let sent = |bed: &mut Bed| {
            let sent = |bed: &Bed| -> u64 {
                let counters = bed.workers.iter().map(|worker| worker.counters(PortId::SECOND));
                counters.map(|counters| counters.tx_bytes).sum()
            };
            let before = sent(bed);
            for _ in 0..1_000 {
                bed.now += Nanos::from_millis(1);
                beside.unclaimed.fetch_add(500, Ordering::Relaxed);
                for worker in 0..2 {
                    bed.arrive(worker, PortId::FIRST, 4, 500, false);
                    while bed.step(worker) == Activity::Busy {}
                }
            }
            sent(bed) - before
        };
        // The first are to find what there is.
        sent(&mut bed);
        let sent = sent(&mut bed);
        assert!((480_000..520_000).contains(&sent), "{root}: {sent}");
        assert_eq!(beside.unclaimed.load(Ordering::Relaxed), 0);
        assert_eq!(beside.waited.load(Ordering::Relaxed), bed.now.0, "{root}");
    }
}

#[test]
fn a_step_moves_a_batch_both_ways_and_says_when_there_is_no_more() {
    let mut bed = Bed::new(1);
    bed.arrive(0, PortId::FIRST, 3, 100, false);
    bed.arrive(0, PortId::SECOND, 2, 60, false);
    assert_eq!(bed.step(0), Activity::Busy);
    let worker = &bed.workers[0];
    assert_eq!(worker.counters(PortId::SECOND).tx_packets, 3);
    assert_eq!(worker.counters(PortId::SECOND).tx_bytes, 300);
    assert_eq!(worker.counters(PortId::FIRST).rx_bytes, 120);
    assert_eq!(worker.io().sent[PortId::SECOND.index()], [1, 2, 3]);
    assert_ne!(bed.step(0), Activity::Busy);
}

#[test]
fn a_port_that_takes_nothing_blocks_its_own_direction_only() {
    let mut bed = Bed::new(1);
    bed.workers[0].io_mut().room[PortId::SECOND.index()] = 0;
    bed.arrive(0, PortId::FIRST, 10, 100, false);
    bed.arrive(0, PortId::SECOND, 10, 100, false);
    bed.step(0);
    assert_eq!(bed.workers[0].counters(PortId::FIRST).tx_packets, 10);
    assert_eq!(bed.workers[0].backlog(PortId::SECOND).packets, 10);
    // Arrivals for the blocked port could not leave; the worker listens to the other port.
    let pause = Pause { until: Nanos::MAX, listen: all_but(PortId::FIRST) };
    assert_eq!(bed.step(0), Activity::Blocked(pause));
    bed.workers[0].io_mut().room[PortId::SECOND.index()] = 4;
    assert_eq!(bed.step(0), Activity::Busy);
    assert_eq!(bed.workers[0].backlog(PortId::SECOND).packets, 6);
}

#[test]
fn a_worker_that_waits_for_a_device_listens_and_keeps_its_appointments() {
    let mut bed = Bed::new(1);
    bed.workers[0].io_mut().unsent = true;
    let Activity::Blocked(pause) = bed.step(0) else { panic!("the device has not sent all") };
    assert_eq!(pause, Pause { until: Nanos::MAX, listen: PortSet::ALL });
    assert_eq!(pause.at_most(bed.now), None);
    // Towards B a packet waits for its rate, and will be due.
    bed.tc("qdisc add dev b root tbf rate 8kbit burst 2k limit 10m");
    bed.arrive(0, PortId::FIRST, 30, 100, false);
    while bed.step(0) == Activity::Busy {}
    let Activity::Blocked(pause) = bed.step(0) else { panic!("the device has not sent all") };
    assert!(pause.until > bed.now && pause.until < bed.now + Nanos::from_millis(200));
    assert_eq!(pause.listen, all_but(PortId::FIRST));
    assert_eq!(pause.at_most(bed.now), Some(UNSEEN_MAX));
    assert_eq!(pause.at_most(pause.until - Nanos(7)), Some(Nanos(7)));
}

#[test]
fn no_direction_takes_the_others_frames() {
    let mut bed = Bed::new(1);
    for port in ["a", "b"] {
        bed.tc(&format!("qdisc add dev {port} root tbf rate 8bit burst 2k limit 10m"));
    }
    bed.arrive(0, PortId::FIRST, FRAMES as usize * 10, 60, false);
    while bed.step(0) == Activity::Busy {}
    assert!(bed.workers[0].counters(PortId::SECOND).drops.get(DropReason::NoFrame) > 0);
    let half = FRAMES_PER_PORT as usize - RESERVED;
    bed.arrive(0, PortId::SECOND, half, 60, false);
    while bed.step(0) == Activity::Busy {}
    assert_eq!(bed.workers[0].counters(PortId::FIRST).drops.total(), 0);
    assert!(bed.workers[0].backlog(PortId::FIRST).packets as usize + 40 > half);
}

#[test]
fn packets_are_refused_for_want_of_frames_only_where_the_reserve_is_reached() {
    let mut bed = Bed::new(1);
    bed.tc("qdisc add dev b root tbf rate 8bit burst 2k limit 10m");
    bed.arrive(0, PortId::FIRST, FRAMES as usize * 2, 100, false);
    for _ in 0..20 {
        bed.step(0);
    }
    let queued = bed.workers[0].backlog(PortId::SECOND).packets as usize;
    let no_frame = bed.workers[0].counters(PortId::SECOND).drops.get(DropReason::NoFrame);
    assert!(no_frame > 0);
    // The queue got everything but the reserve; a batch is taken out of the ring at once.
    let available = FRAMES_PER_PORT as usize - RESERVED;
    assert!((available - 64..=available).contains(&queued), "{queued} of {available}");
    // And the other direction still receives.
    bed.arrive(0, PortId::SECOND, 5, 100, false);
    bed.step(0);
    assert_eq!(bed.workers[0].counters(PortId::FIRST).rx_packets, 5);
}

#[test]
fn arrivals_without_frames_count_as_drops_of_the_qdisc() {
    for qdisc in ["tbf rate 8bit burst 2k limit 10m", "bfifo limit 10m", "cake", "fq", "carousel"] {
        let mut bed = Bed::new(1);
        bed.tc(&format!("qdisc add dev b root {qdisc}"));
        bed.workers[0].io_mut().room[PortId::SECOND.index()] = 0;
        bed.arrive(0, PortId::FIRST, FRAMES as usize * 2, 100, false);
        for _ in 0..20 {
            bed.step(0);
        }
        let drops = bed.workers[0].counters(PortId::SECOND).drops;
        assert!(drops.total() > 0, "{qdisc}");
        assert_eq!(bed.workers[0].qdisc_stats(PortId::SECOND)[0].drops, drops.total(), "{qdisc}");
    }
}

#[test]
fn malformed_packets_count_as_received_and_dropped() {
    let mut bed = Bed::new(1);
    bed.arrive(0, PortId::FIRST, 5, 13, true);
    bed.arrive(0, PortId::FIRST, 1, 60, false);
    bed.step(0);
    let counters = bed.workers[0].counters(PortId::SECOND);
    assert_eq!((counters.rx_packets, counters.tx_packets), (6, 1));
    assert_eq!(counters.drops.get(DropReason::Malformed), 5);
}

#[test]
fn abandoned_packets_count_as_port_gone() {
    let mut bed = Bed::new(1);
    bed.tc("qdisc add dev b root tbf rate 8bit burst 2k limit 10m");
    bed.arrive(0, PortId::FIRST, 60, 100, false);
    bed.step(0);
    let queued = u64::from(bed.queued());
    assert!(queued > 30);
    bed.workers[0].abandon(DropReason::PortGone);
    bed.check();
    assert_eq!(bed.workers[0].counters(PortId::SECOND).drops.get(DropReason::PortGone), queued);
    assert_eq!(bed.queued(), 0);
}

#[test]
fn refused_packets_count_as_received_and_dropped_with_their_reason() {
    let mut bed = Bed::new(1);
    bed.tc("qdisc add dev b root tbf rate 8bit burst 2k limit 10m");
    bed.arrive(0, PortId::FIRST, 30, 100, false);
    bed.arrive(0, PortId::FIRST, 2, 100, true);
    bed.arrive(0, PortId::SECOND, 5, 100, false);
    let now = bed.now;
    while bed.workers[0].refuse(DropReason::Stalled, now) {
        bed.check();
    }
    let [back, forth] = [PortId::FIRST, PortId::SECOND].map(|port| bed.workers[0].counters(port));
    assert_eq!((forth.rx_packets, forth.tx_packets), (32, 0));
    assert_eq!(forth.drops.get(DropReason::Stalled), 30);
    assert_eq!(forth.drops.get(DropReason::Malformed), 2);
    assert_eq!(back.drops.get(DropReason::Stalled), 5);
    assert_eq!(bed.queued(), 0);
    // Later packets are served as usual.
    bed.arrive(0, PortId::SECOND, 3, 100, false);
    bed.step(0);
    assert_eq!(bed.workers[0].counters(PortId::FIRST).tx_packets, 3);
}

#[test]
fn delays_are_those_of_the_present_qdisc() {
    let mut bed = Bed::new(1);
    bed.tc("qdisc add dev b root tbf rate 8mbit burst 2k limit 10m");
    let delays = |bed: &Bed| -> u64 {
        bed.workers[0].delays(PortId::SECOND).counts().map(|(_, packets)| packets).sum()
    };
    let pass = |bed: &mut Bed| {
        bed.arrive(0, PortId::FIRST, 3, 100, false);
        bed.step(0);
    };
    pass(&mut bed);
    bed.tc("qdisc replace dev b root tbf rate 9mbit burst 2k limit 10m");
    pass(&mut bed);
    assert_eq!(delays(&bed), 6, "a new rate is no other qdisc");
    bed.tc("qdisc replace dev b root pfifo limit 100");
    assert_eq!(delays(&bed), 0);
    pass(&mut bed);
    assert_eq!(delays(&bed), 3);
}

#[test]
fn a_router_refuses_packets_where_each_would_have_left() {
    let mut bed = Bed::new(1).routed();
    bed.arrive(0, PortId::FIRST, 30, 100, false);
    bed.arrive(0, PortId::FIRST, 2, 100, true);
    bed.arrive(0, PortId::SECOND, 5, 100, false);
    let expected = ALL.map(|port| (1..=37).filter(|&number| route(number) == Some(port)).count());
    let malformed = (31..=32).map(|number| ALL.map(|port| route(number) == Some(port)));
    let now = bed.now;
    while bed.workers[0].refuse(DropReason::Stalled, now) {
        bed.check();
    }
    for (port, expected) in ALL.into_iter().zip(expected) {
        let without = malformed.clone().filter(|leaves| leaves[port.index()]).count();
        let counters = bed.workers[0].counters(port);
        assert_eq!(counters.drops.get(DropReason::Stalled), (expected - without) as u64);
        assert_eq!(counters.tx_packets, 0);
    }
    bed.arrive(0, PortId::SECOND, 30, 100, false);
    while bed.step(0) == Activity::Busy {}
    assert!(ALL.iter().all(|&port| bed.workers[0].counters(port).tx_packets > 0));
}

#[test]
fn counts_of_a_direction_add_up_over_workers() {
    let mut bed = Bed::new(2);
    bed.arrive(0, PortId::FIRST, 3, 100, false);
    bed.arrive(1, PortId::FIRST, 4, 50, true);
    bed.step(0);
    bed.step(1);
    let mut sum = bed.workers[0].counters(PortId::SECOND);
    sum.merge(&bed.workers[1].counters(PortId::SECOND));
    assert_eq!((sum.rx_packets, sum.rx_bytes, sum.tx_packets), (7, 300, 3));
    assert_eq!(sum.drops.total(), 4);
    assert_eq!(sum.unaccounted(0), 0);
    assert_eq!(sum.unaccounted(1), -1);
}

#[test]
fn each_policy_of_the_property_test_has_an_effect() {
    let mut bed = Bed::new(2);
    for words in WORDS {
        let before = bed.ports.policy();
        bed.tc(&words.replace("PORT", "a"));
        assert!(bed.ports.policy() != before, "{words}");
    }
}

#[test]
fn queues_by_flow_keep_the_order_of_adopted_packets() {
    for words in ["cake bandwidth 10mbit", "fq"] {
        let mut bed = Bed::new(1);
        bed.workers[0].io_mut().flows = 4;
        bed.tc("qdisc replace dev b root tbf rate 1mbit burst 2k limit 100k");
        bed.arrive(0, PortId::FIRST, 20, 1000, false);
        while bed.step(0) == Activity::Busy {}
        assert!(bed.queued() > 10);
        bed.tc(&format!("qdisc replace dev b root {words}"));
        bed.arrive(0, PortId::FIRST, 20, 1000, false);
        // A packet that is overtaken by another of its flow is seen as it leaves.
        while bed.queued() > 0 || bed.now < Nanos(10_000_000) {
            bed.now += Nanos(1_000_000);
            while bed.step(0) == Activity::Busy {}
        }
        assert_eq!(bed.workers[0].counters(PortId::SECOND).tx_packets, 40, "{words}");
    }
}

/// The departures at port B in each millisecond, in bytes, with two workers in overload, while its
/// root changes from one of `words` to the next every 40 ms.
fn sent_by_the_millisecond(words: &[&str]) -> Vec<u64> {
    const STEP: Nanos = Nanos(50_000);
    const LEN: u32 = 1000;
    let mut bed = Bed::new(2);
    let mut windows = Vec::new();
    let mut before = 0;
    for tick in 0..800 * words.len() {
        if tick % 800 == 0 {
            bed.tc(&format!("qdisc replace dev b root handle 1: {}", words[tick / 800]));
        }
        bed.now += STEP;
        for worker in 0..2 {
            // 80 Mbit/s each.
            if tick % 2 == 0 {
                bed.arrive(worker, PortId::FIRST, 1, LEN, false);
            }
            while bed.step(worker) == Activity::Busy {}
        }
        if tick % 20 == 19 {
            let sent =
                bed.workers.iter().map(|worker| worker.counters(PortId::SECOND).tx_bytes).sum();
            windows.push(sent - before);
            before = sent;
        }
    }
    windows
}

#[test]
fn a_change_of_coordination_under_load_neither_stalls_nor_exceeds_the_limit() {
    let tbf = |rate, name| format!("tbf rate {rate} burst 5k limit 100k coordination {name}");
    let mut words: Vec<_> = ["fair", "edt", "lock", "edt", "equal", "edt", "fair"]
        .map(|name| tbf("40mbit", name))
        .into();
    // From another kind, too.
    words.extend(["cake bandwidth 40mbit".to_owned(), tbf("40mbit", "edt")]);
    // The same rate, given another way: stamps are void, and the rate stays.
    words.push(tbf("40mbit", "edt").replace("100k", "90k"));
    let windows = sent_by_the_millisecond(&words.iter().map(String::as_str).collect::<Vec<_>>());
    // 40 Mbit/s are 5000 bytes a millisecond; two bursts may meet at a change.
    for (at, ten) in windows.windows(10).enumerate().skip(5) {
        let sent: u64 = ten.iter().sum();
        assert!(
            (45_000..=62_000).contains(&sent),
            "{sent} bytes in 10 ms from {at} ms: {windows:?}"
        );
    }
}

#[test]
fn copies_and_originals_leave_and_the_books_say_so() {
    let mut bed = Bed::new(1);
    bed.tc("qdisc replace dev b root netem delay 1ms duplicate 100%");
    bed.arrive(0, PortId::FIRST, 20, 1000, false);
    bed.step(0);
    bed.now += Nanos::from_millis(1);
    bed.step(0);
    let worker = &bed.workers[0];
    let counters = worker.counters(PortId::SECOND);
    assert_eq!((counters.rx_packets, counters.copied, counters.tx_packets), (20, 20, 40));
    assert_eq!(counters.tx_bytes, 40_000);
    let sent = &worker.io().sent[PortId::SECOND.index()];
    assert!((1..=20).all(|number| sent.iter().filter(|sent| **sent == number).count() == 2));
}

#[test]
fn where_no_frame_is_left_for_a_copy_the_original_leaves() {
    let mut bed = Bed::new(1);
    bed.tc("qdisc replace dev b root netem delay 1ms duplicate 100%");
    // So many that few frames are left.
    bed.arrive(0, PortId::FIRST, 64, 1000, false);
    bed.step(0);
    let counters = bed.workers[0].counters(PortId::SECOND);
    let refused = counters.drops.get(DropReason::NoFrame);
    assert_eq!((counters.rx_packets, counters.copied), (64, 64), "{counters:?}");
    assert!((30..64).contains(&refused), "{refused}");
    bed.now += Nanos::from_millis(1);
    while matches!(bed.step(0), Activity::Busy) {}
    let sent = &bed.workers[0].io().sent[PortId::SECOND.index()];
    assert!((1..=64).all(|number| sent.contains(&number)), "no original is lost");
    assert_eq!(sent.len() as u64, 128 - refused);
}
