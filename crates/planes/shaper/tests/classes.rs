//! Workers whose ports have frames: the class of each packet at each classful qdisc, and changes of
//! the policy under load.

use narrows_forwarding::PortId;
use narrows_packet::{Batch, DropReason, PacketId, Packets, Reading};
use narrows_policy::{Plan, Policy, PortFacts};
use narrows_qdisc::Slot;
use narrows_shaper::{Installation, Io, Worker};
use narrows_tc::{Host, execute};
use narrows_units::{Bytes, Nanos};
use std::collections::VecDeque;

const FRAMES: u32 = 256;
const LEN: u32 = 1_000;
/// The warning about a class that has classes below it and no filters.
const UNFILTERED: &str = "Warning: htb: filters assign packets to 1:10, which has classes below";

/// Packets arrive at port A. They leave at B while there is room.
struct Ports {
    coming: VecDeque<(Vec<u8>, u32)>,
    frames: Vec<(Vec<u8>, u32)>,
    free: Vec<u32>,
    room: usize,
    /// The marks of departed packets.
    sent: Vec<u32>,
}

impl Io for Ports {
    fn frame(&self) -> Bytes {
        Bytes(2048)
    }

    fn receive(&mut self, port: PortId, packets: &mut Packets, now: Nanos, out: &mut Batch) {
        while port == PortId::FIRST
            && out.has_room()
            && let Some(coming) = self.coming.pop_front()
        {
            let frame = self.free.pop().unwrap();
            self.frames[frame as usize] = coming;
            packets.arrive(PacketId(frame), LEN, now);
            out.push(PacketId(frame));
        }
    }

    fn read(&self, _: PacketId, _: Reading, _: &mut Packets) {}

    fn bytes(&self, packet: PacketId) -> &[u8] {
        &self.frames[packet.0 as usize].0
    }

    fn places(&self) -> u32 {
        FRAMES
    }

    fn spare_frames(&self, _: PortId, _: PortId) -> Option<u32> {
        Some(self.free.len() as u32)
    }

    fn room(&mut self, _: PortId) -> usize {
        self.room
    }

    fn transmit(&mut self, _: PortId, _: &Packets, batch: &Batch) {
        for id in batch.as_slice() {
            self.sent.push(self.frames[id.0 as usize].1);
            self.free.push(id.0);
        }
    }

    fn release(&mut self, dropped: &Batch) {
        self.free.extend(dropped.as_slice().iter().map(|id| id.0));
    }

    fn is_unsent(&self) -> bool {
        false
    }
}

/// Commands of operators.
#[derive(Default)]
struct Words(Policy);

impl Host for Words {
    fn devices(&self) -> Vec<String> {
        vec!["b".to_owned()]
    }

    fn port(&self, dev: &str) -> Option<PortFacts> {
        (dev == "b").then_some(PortFacts { queues: Some(1), ..PortFacts::ETHERNET })
    }

    fn policy(&self) -> Policy {
        self.0.clone()
    }

    fn apply(&mut self, policy: Policy) -> Result<(), String> {
        self.0 = policy;
        Ok(())
    }
}

struct Bed {
    words: Words,
    installed: Installation,
    worker: Worker<Ports>,
    now: Nanos,
    came: u32,
}

impl Bed {
    fn new(lines: &[&str]) -> Self {
        let installation = |policy: &Policy, previous: Option<&Installation>| {
            Installation::reconcile(Plan::of(policy.port("b"), 1).unwrap(), previous)
        };
        let words = Words::default();
        let (installed, mut specs) = installation(&words.0, None);
        let io = Ports {
            coming: VecDeque::new(),
            frames: vec![Default::default(); FRAMES as usize],
            free: (0..FRAMES).collect(),
            room: 0,
            sent: Vec::new(),
        };
        let (_, mut other) = installation(&Policy::default(), None);
        let slots = [other.remove(0), specs.remove(0)].map(Slot::new);
        let worker = Worker::new(io, FRAMES, slots);
        let mut bed = Self { words, installed, worker, now: Nanos::from_secs(1), came: 0 };
        lines.iter().for_each(|line| bed.tc(line));
        bed
    }

    /// A change under load.
    #[track_caller]
    fn tc(&mut self, line: &str) {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let outcome = execute(&args, &mut self.words);
        let warning = outcome.stderr.as_str();
        let is_expected = warning.is_empty() || warning.starts_with(UNFILTERED);
        assert!(outcome.code == 0 && is_expected, "{line}: {warning}");
        let plan = Plan::of(self.words.0.port("b"), 1).unwrap();
        let (next, mut specs) = Installation::reconcile(plan, Some(&self.installed));
        next.commit();
        self.worker.update(PortId::SECOND, specs.remove(0), self.now);
        self.installed = next;
        self.assert_accounted();
    }

    /// A UDP packet to `port` with that TOS byte arrives. Returns its mark.
    fn come(&mut self, port: u16, tos: u8) -> u32 {
        let mut frame = vec![0; 42];
        frame[12] = 8;
        frame[14] = 0x45;
        frame[15] = tos;
        frame[17] = 28;
        (frame[22], frame[23]) = (64, 17);
        frame[36..38].copy_from_slice(&port.to_be_bytes());
        frame[39] = 8;
        self.came += 1;
        self.worker.io_mut().coming.push_back((frame, self.came));
        self.worker.step(self.now);
        self.assert_accounted();
        self.came
    }

    /// The departures when there is room, in order.
    fn leave(&mut self) -> Vec<u32> {
        self.worker.io_mut().room = usize::MAX;
        for _ in 0..10 {
            self.worker.step(self.now);
            self.assert_accounted();
            self.now += Nanos::from_millis(100);
        }
        self.worker.io_mut().room = 0;
        std::mem::take(&mut self.worker.io_mut().sent)
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.worker.counters(PortId::SECOND).drops.get(reason)
    }

    #[track_caller]
    fn assert_accounted(&self) {
        let queued = u64::from(self.worker.backlog(PortId::SECOND).packets);
        assert_eq!(self.worker.counters(PortId::SECOND).unaccounted(queued), 0);
    }
}

/// To a class by its UDP port.
fn filter(parent: &str, port: u16, class: &str) -> String {
    format!(
        "filter add dev b parent {parent} protocol ip pref {port} flower ip_proto udp \
         dst_port {port} classid {class}"
    )
}

#[test]
fn bands_are_by_filter_and_else_by_the_tos_byte() {
    let mut bed = Bed::new(&["qdisc add dev b root handle 1: prio", &filter("1:", 53, "1:1")]);
    let bulk = bed.come(80, 0x08);
    let plain = bed.come(80, 0);
    let interactive = bed.come(80, 0x10);
    let name = bed.come(53, 0x08);
    assert_eq!(bed.leave(), [interactive, name, plain, bulk]);
}

#[test]
fn below_a_class_its_qdisc_has_filters_of_its_own() {
    let mut bed = Bed::new(&[
        "qdisc add dev b root handle 1: tbf rate 1gbit burst 100k limit 500k",
        "qdisc add dev b parent 1: handle 2: prio bands 2 priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
        "qdisc add dev b parent 2:2 handle 3: drr",
        "class add dev b parent 3: classid 3:7 drr",
        &filter("2:", 53, "2:1"),
        &filter("3:", 80, "3:7"),
    ]);
    let web = bed.come(80, 0);
    let unknown = bed.come(81, 0);
    let name = bed.come(53, 0);
    assert_eq!(bed.leave(), [name, web]);
    assert_eq!((unknown, bed.dropped(DropReason::Unclassified)), (2, 1));
}

#[test]
fn packets_of_a_class_that_gets_bands_are_sorted_into_them() {
    let mut bed = Bed::new(&[
        "qdisc add dev b root handle 1: htb default 10",
        "class add dev b parent 1: classid 1:10 htb rate 100mbit burst 100k",
        "class add dev b parent 1: classid 1:20 htb rate 100mbit burst 100k",
        &filter("1:", 90, "1:20"),
    ]);
    let others: Vec<u32> = (0..3).map(|_| bed.come(90, 0)).collect();
    let bulk: Vec<u32> = (0..3).map(|_| bed.come(80, 0x08)).collect();
    let interactive: Vec<u32> = (0..3).map(|_| bed.come(80, 0x10)).collect();
    bed.tc("qdisc add dev b parent 1:10 handle 10: prio");
    bed.tc("qdisc add dev b parent 10:1 handle 11: prio");
    let left = bed.leave();
    let of = |which: &[u32]| -> Vec<u32> {
        left.iter().copied().filter(|mark| which.contains(mark)).collect()
    };
    assert_eq!(left.len(), 9, "nothing is lost");
    assert_eq!(of(&[bulk.clone(), interactive.clone()].concat()), [interactive, bulk].concat());
    assert_eq!(of(&others), others);
}

#[test]
fn changes_under_load_lose_and_reorder_nothing_of_other_classes() {
    let mut bed = Bed::new(&[
        "qdisc add dev b root handle 1: drr",
        "class add dev b parent 1: classid 1:1 drr",
        "class add dev b parent 1: classid 1:2 drr quantum 3000",
        &filter("1:", 1, "1:1"),
        &filter("1:", 2, "1:2"),
    ]);
    let marks = |bed: &mut Bed, port| -> Vec<u32> { (0..5).map(|_| bed.come(port, 0)).collect() };
    let (first, second) = (marks(&mut bed, 1), marks(&mut bed, 2));
    bed.tc("class change dev b classid 1:2 drr quantum 500");
    bed.tc("class add dev b parent 1: classid 1:3 drr");
    bed.tc(&filter("1:", 3, "1:3"));
    let third = marks(&mut bed, 3);
    bed.tc("qdisc replace dev b parent 1:2 fq");
    let second = [second, marks(&mut bed, 2)].concat();
    bed.tc("filter del dev b parent 1: pref 3");
    bed.tc("class del dev b classid 1:3");
    assert_eq!(bed.dropped(DropReason::ClassGone), third.len() as u64);
    let left = bed.leave();
    let of = |which: &[u32]| -> Vec<u32> {
        left.iter().copied().filter(|mark| which.contains(mark)).collect()
    };
    assert_eq!(of(&first), first);
    assert_eq!(of(&second), second);
    assert_eq!(left.len(), first.len() + second.len());
}

#[test]
fn packets_of_a_class_that_goes_leave_by_the_default_one_at_any_level() {
    let drr = ["qdisc add dev b root handle 1: drr", "class add dev b parent 1: classid 1:1 drr"];
    for above in [&["qdisc add dev b root handle 1: prio"][..], &drr] {
        let lines = [
            "qdisc add dev b parent 1:1 handle 2: htb default 20",
            "class add dev b parent 2: classid 2:10 htb rate 100mbit burst 100k",
            "class add dev b parent 2: classid 2:20 htb rate 100mbit burst 100k",
            &filter("1:", 90, "1:1"),
            &filter("2:", 90, "2:10"),
        ];
        let mut bed = Bed::new(&[above, &lines].concat());
        let marks: Vec<u32> = (0..3).map(|_| bed.come(90, 0)).collect();
        bed.tc("filter del dev b parent 2: pref 90");
        bed.tc("class del dev b classid 2:10");
        assert_eq!(bed.leave(), marks, "below {}", above[0]);
    }
}

/// Classes come, send and go, `count` times: a few at a time, each with packets queued when it
/// goes.
fn come_and_go(bed: &mut Bed, count: u32) {
    const TOGETHER: u32 = 3;
    for number in 0..count {
        let class = |number: u32| format!("1:{:x}", 0x100 + number);
        let port = |number: u32| 1000 + (number % 1000) as u16;
        let (new, to) = (class(number), port(number));
        bed.tc(&format!("class add dev b parent 1:1 classid {new} htb rate 8kbit ceil 1gbit"));
        bed.tc(&filter("1:", to, &new));
        for _ in 0..3 {
            bed.come(to, 0);
        }
        bed.leave();
        bed.come(to, 0);
        if let Some(old) = number.checked_sub(TOGETHER) {
            bed.tc(&format!("filter del dev b parent 1: pref {}", port(old)));
            bed.tc(&format!("class del dev b classid {}", class(old)));
        }
        bed.leave();
    }
    for old in count.saturating_sub(TOGETHER)..count {
        bed.tc(&format!("filter del dev b parent 1: pref {}", 1000 + old % 1000));
        bed.tc(&format!("class del dev b classid 1:{:x}", 0x100 + old));
    }
    bed.leave();
}

/// What stays allocated after `count` classes have come and gone.
fn kept(count: u32) -> i64 {
    let mut bed = None;
    let memory = allocation_counter::measure(|| {
        let bed = bed.insert(Bed::new(&[
            "qdisc add dev b root handle 1: htb default 2",
            "class add dev b parent 1: classid 1:1 htb rate 1gbit",
            "class add dev b parent 1:1 classid 1:2 htb rate 100mbit ceil 1gbit",
        ]));
        come_and_go(bed, count);
    });
    memory.bytes_current
}

#[test]
fn classes_that_come_and_go_leave_nothing_behind() {
    let (few, many) = (kept(2500), kept(5000));
    assert!(many <= few + few / 10, "{few} bytes after 2500 classes, {many} after 5000");
}

/// `cargo test --release -p narrows-shaper --test classes -- --ignored`: some minutes.
#[test]
#[ignore = "takes minutes"]
fn a_million_classes_that_come_and_go_leave_nothing_behind() {
    let (few, many) = (kept(2500), kept(1_000_000));
    assert!(many <= few + few / 10, "{few} bytes after 2500 classes, {many} after a million");
}

/// Queued packets of a class move when it gets classes below it, and packets of those when they go.
fn packets_move_with_their_classes(above: &[&str]) {
    let mut bed = Bed::new(above);
    for line in [
        "class add dev b parent 1: classid 1:1 htb rate 100mbit burst 100k cburst 100k",
        "class add dev b parent 1:1 classid 1:10 htb rate 30mbit burst 100k cburst 100k",
        "class add dev b parent 1:1 classid 1:30 htb rate 30mbit burst 100k cburst 100k",
        "class add dev b parent 1:1 classid 1:77 htb rate 30mbit burst 100k cburst 100k",
    ] {
        bed.tc(line);
    }
    bed.tc(&filter("1:", 7, "1:10"));
    let of_leaf: Vec<u32> = (0..3).map(|_| bed.come(7, 0)).collect();
    bed.tc("class add dev b parent 1:10 classid 1:11 htb rate 1mbit burst 100k cburst 100k");
    // Nothing else comes that would wake the default class.
    assert_eq!(bed.leave(), of_leaf, "they are in the default class");
    bed.tc(&filter("1:10", 7, "1:11"));
    let of_inner: Vec<u32> = (0..3).map(|_| bed.come(7, 0)).collect();
    bed.tc("filter del dev b parent 1:10");
    bed.tc("class del dev b classid 1:11");
    let of_new_leaf: Vec<u32> = (0..3).map(|_| bed.come(7, 0)).collect();
    let mut left = bed.leave();
    left.sort_unstable();
    assert_eq!(left, [of_inner, of_new_leaf].concat());
}

#[test]
fn queued_packets_of_a_class_that_becomes_an_inner_one_go_to_the_default_class() {
    packets_move_with_their_classes(&["qdisc add dev b root handle 1: htb default 30"]);
}

#[test]
fn they_do_so_below_another_qdisc_too() {
    // Whose class has the number of a class of the tree.
    packets_move_with_their_classes(&[
        "qdisc add dev b root handle 2: drr",
        "class add dev b parent 2: classid 2:77 drr",
        "qdisc add dev b parent 2:77 handle 1: htb default 30",
        "filter add dev b parent 2: pref 1 matchall classid 2:77",
    ]);
}
