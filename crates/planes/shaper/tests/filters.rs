//! What filters and their actions make of real frames, on several workers at once.

use narrows_classify::{ActionId, ActionKind, MemberRates};
use narrows_forwarding::PortId;
use narrows_packet::{Batch, DropReason, Headers, PaceId, PacketId, Packets, Reading, RouteTaken};
use narrows_policy::{Handle, Plan, Policy, PortFacts};
use narrows_qdisc::Slot;
use narrows_shaper::{Installation, Io, Worker};
use narrows_tc::Host;
use narrows_units::{Bytes, Nanos, Rate};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};

const PORTS: [&str; 2] = ["a", "b"];
const FRAMES: u32 = 256;
const LEN: u32 = 1000;
/// The warning about a class that has classes below it and no filters.
const UNFILTERED: &str = "Warning: htb: filters assign packets to 1:10, which has classes below";

/// Ports with frames that name their class.
#[derive(Default)]
struct FrameIo {
    coming: [VecDeque<Vec<u8>>; 2],
    frames: BTreeMap<u32, Vec<u8>>,
    next: u32,
    sent: u64,
    dropped: u64,
    /// How often it was asked for a route.
    asked: Cell<u64>,
}

impl Io for FrameIo {
    fn receive(&mut self, port: PortId, packets: &mut Packets, now: Nanos, out: &mut Batch) {
        while out.has_room() && !self.coming[port.index()].is_empty() {
            let Some(frame) = self.coming[port.index()].pop_front() else { break };
            let id = PacketId(self.next % FRAMES);
            self.next += 1;
            packets.arrive(id, LEN, now);
            assert!(self.frames.insert(id.0, frame).is_none(), "a frame is had twice");
            out.push(id);
        }
    }

    fn frame(&self) -> Bytes {
        Bytes(2048)
    }

    fn is_unsent(&self) -> bool {
        false
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

    /// A flow is a destination.
    fn read(&self, packet: PacketId, reading: Reading, packets: &mut Packets) {
        if reading.headers {
            let flow = self.bytes(packet).get(33).copied().unwrap_or_default().into();
            packets.set_headers(packet, Headers { flow, ..Headers::default() });
        }
    }

    fn bytes(&self, packet: PacketId) -> &[u8] {
        self.frames.get(&packet.0).map_or(&[], Vec::as_slice)
    }

    /// The realm of a route is that of its destination.
    fn route_of(&self, packet: PacketId) -> Option<RouteTaken> {
        self.asked.set(self.asked.get() + 1);
        let last = *self.frames.get(&packet.0)?.get(33)?;
        (last != 9).then_some(RouteTaken { realms: last.into(), metric: 100 })
    }

    fn transmit(&mut self, _: PortId, _: &Packets, batch: &Batch) {
        for id in batch.as_slice() {
            self.frames.remove(&id.0);
            self.sent += 1;
        }
    }

    fn release(&mut self, dropped: &Batch) {
        for id in dropped.as_slice() {
            self.frames.remove(&id.0);
            self.dropped += 1;
        }
    }
}

/// A frame for `10.0.0.LAST`.
fn frame(last: u8) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[12..18].copy_from_slice(&[0x08, 0x00, 0x45, 0, 0, 46]);
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[30..34].copy_from_slice(&[10, 0, 0, last]);
    frame
}

struct Bed {
    workers: Vec<Worker<FrameIo>>,
    installed: [Installation; 2],
    policy: Policy,
    now: Nanos,
}

impl Host for Bed {
    fn devices(&self) -> Vec<String> {
        PORTS.map(str::to_owned).into()
    }

    fn port(&self, dev: &str) -> Option<PortFacts> {
        let queues = u16::try_from(self.workers.len()).ok();
        PORTS.contains(&dev).then_some(PortFacts { queues, ..PortFacts::ETHERNET })
    }

    fn policy(&self) -> Policy {
        self.policy.clone()
    }

    fn apply(&mut self, policy: Policy) -> Result<(), String> {
        self.policy = policy;
        for port in [PortId::FIRST, PortId::SECOND] {
            let plan = Plan::of(self.policy.port(PORTS[port.index()]), self.workers.len());
            let plan = plan.map_err(|error| error.to_string())?;
            let previous = &self.installed[port.index()];
            let (installed, specs) = Installation::reconcile(plan, Some(previous));
            installed.commit();
            self.installed[port.index()] = installed;
            for (worker, spec) in self.workers.iter_mut().zip(specs) {
                worker.update(port, spec, self.now);
            }
        }
        Ok(())
    }
}

impl Bed {
    /// A tree of classes at `b` whose leaves are 1:10, 1:20 and 1:30, the default.
    fn new(queues: usize) -> Self {
        let mut specs = PORTS.map(|_| Vec::new());
        let installed = [0, 1].map(|port| {
            let plan = Plan::of(Policy::default().port(PORTS[port]), queues).expect("no policy");
            let (installed, first) = Installation::reconcile(plan, None);
            specs[port] = first;
            installed
        });
        let [of_a, of_b] = specs;
        let slots = of_a.into_iter().zip(of_b);
        let workers = slots
            .map(|(a, b)| Worker::new(FrameIo::default(), FRAMES, [Slot::new(a), Slot::new(b)]));
        let workers = workers.collect();
        let now = Nanos::from_secs(1);
        let mut bed = Self { workers, installed, policy: Policy::default(), now };
        for line in [
            "qdisc add dev b root handle 1: htb default 30",
            "class add dev b parent 1: classid 1:1 htb rate 10gbit burst 10mb cburst 10mb",
            "class add dev b parent 1:1 classid 1:10 htb rate 3gbit burst 10mb cburst 10mb",
            "class add dev b parent 1:1 classid 1:20 htb rate 3gbit burst 10mb cburst 10mb",
            "class add dev b parent 1:1 classid 1:30 htb rate 3gbit burst 10mb cburst 10mb",
            "qdisc add dev b parent 1:10 handle 10: pfifo limit 100",
            "qdisc add dev b parent 1:20 handle 20: pfifo limit 100",
            "qdisc add dev b parent 1:30 handle 30: pfifo limit 100",
            "qdisc add dev a clsact",
            "qdisc add dev b clsact",
        ] {
            bed.tc(line);
        }
        bed
    }

    #[track_caller]
    fn tc(&mut self, words: &str) {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let outcome = narrows_tc::execute(&words, self);
        let warning = outcome.stderr.as_str();
        let is_expected = warning.is_empty() || warning.starts_with(UNFILTERED);
        assert!(outcome.code == 0 && is_expected, "{words:?}: {warning}");
    }

    /// Makes `worker` receive a frame for each of `to` at `a`, and send.
    fn pass(&mut self, worker: usize, to: &[u8]) {
        let frames = to.iter().map(|last| frame(*last));
        self.workers[worker].io_mut().coming[0].extend(frames);
        for _ in 0..to.len() + 2 {
            self.now += Nanos::from_micros(1);
            self.workers[worker].step(self.now);
        }
        let counters = self.workers[worker].counters(PortId::SECOND);
        let queued = u64::from(self.workers[worker].backlog(PortId::SECOND).packets);
        assert_eq!(counters.unaccounted(queued), 0, "{counters:?}");
        assert_eq!(counters.drops.total(), self.workers[worker].io().dropped);
    }

    /// The packets that passed 1:10, 1:20 and 1:30.
    fn passed(&self) -> [u64; 3] {
        let stats: Vec<_> = self.workers.iter().map(|of| of.qdisc_stats(PortId::SECOND)).collect();
        let nodes = self.installed[1].gather(&stats);
        [0x10, 0x20, 0x30].map(|handle| {
            let handle = Handle::new(handle);
            let node = nodes.iter().find(|node| node.handle == handle);
            node.map_or(0, |node| node.stats.sent_packets)
        })
    }

    fn filtered(&self) -> u64 {
        let drops = |worker: &Worker<FrameIo>| worker.counters(PortId::SECOND).drops;
        self.workers.iter().map(|worker| drops(worker).get(DropReason::Filter)).sum()
    }

    /// Packets that an action met, at both ports.
    fn met(&self, kind: ActionKind, index: u32) -> u64 {
        let all = self.installed.iter().flat_map(Installation::action_stats);
        all.filter(|(id, _)| *id == ActionId { kind, index }).map(|(_, of)| of.packets).sum()
    }
}

#[test]
fn packets_that_a_filter_drops_reach_no_qdisc_and_count_as_filtered() {
    let mut bed = Bed::new(1);
    bed.tc("filter add dev a ingress protocol ip pref 1 flower dst_ip 10.0.0.1 action drop");
    bed.tc("filter add dev b egress protocol ip pref 1 flower dst_ip 10.0.0.2 action drop");
    bed.tc("filter add dev b parent 1: protocol ip pref 1 flower dst_ip 10.0.0.3 action drop");
    bed.pass(0, &[1, 2, 3, 4, 1]);
    assert_eq!((bed.passed(), bed.filtered()), ([0, 0, 1], 4));
    assert_eq!(bed.met(ActionKind::Gact, 1), 2);
}

#[test]
fn a_filter_at_the_port_of_arrival_chooses_the_class() {
    let mut bed = Bed::new(1);
    bed.tc("filter add dev a ingress protocol ip pref 1 flower dst_ip 10.0.0.1 \
            action skbedit priority 1:10");
    bed.tc("filter add dev b egress protocol ip pref 1 flower dst_ip 10.0.0.2 \
            action skbedit mark 5");
    bed.tc("filter add dev b parent 1: pref 1 handle 5 fw classid 1:20");
    bed.tc("filter add dev b parent 1: pref 2 matchall classid 1:30");
    bed.pass(0, &[1, 2, 2, 3, 3, 3]);
    assert_eq!(bed.passed(), [1, 2, 3]);
}

#[test]
fn the_route_chooses_the_class_and_is_asked_for_only_by_filters() {
    let mut bed = Bed::new(1);
    bed.tc("filter add dev b parent 1: protocol ip pref 2 flower dst_ip 10.0.0.1 classid 1:20");
    bed.pass(0, &[1, 2, 3]);
    assert_eq!((bed.passed(), bed.workers[0].io().asked.get()), ([0, 1, 2], 0));
    bed.tc("filter add dev b parent 1: protocol ip pref 1 route to 2 classid 1:10");
    bed.pass(0, &[1, 2, 3]);
    assert_eq!((bed.passed(), bed.workers[0].io().asked.get()), ([1, 2, 3], 3));
    // At the egress, too; of the last one no route is known.
    bed.tc(
        "filter add dev b egress protocol ip pref 1 route metric 100 action skbedit priority 1:10",
    );
    bed.tc("filter del dev b parent 1: pref 1");
    bed.pass(0, &[1, 2, 9]);
    assert_eq!((bed.passed(), bed.workers[0].io().asked.get()), ([3, 2, 4], 6));
}

#[test]
fn a_filter_at_an_inner_class_continues_from_there() {
    let mut bed = Bed::new(1);
    bed.tc("filter add dev b parent 1:1 protocol ip pref 1 flower dst_ip 10.0.0.1 classid 1:10");
    bed.tc("filter add dev b parent 1:1 protocol ip pref 2 flower dst_ip 10.0.0.2 classid 1:20");
    bed.pass(0, &[1, 2]);
    assert_eq!(bed.passed(), [0, 0, 2], "nothing is handed to that class");
    bed.tc("filter add dev b parent 1: pref 1 matchall classid 1:1");
    bed.pass(0, &[1, 1, 2, 3]);
    assert_eq!(bed.passed(), [2, 1, 3]);
}

#[test]
fn what_no_filter_of_an_inner_class_matches_has_the_default_class() {
    let mut bed = Bed::new(1);
    bed.tc("class add dev b parent 1:10 classid 1:11 htb rate 1gbit burst 10mb cburst 10mb");
    bed.tc("class add dev b parent 1:10 classid 1:12 htb rate 1gbit burst 10mb cburst 10mb");
    bed.tc("qdisc add dev b parent 1:11 handle 10: pfifo limit 100");
    // The default class looks for bands of its own.
    bed.tc("qdisc replace dev b parent 1:30 handle 3: prio bands 2 \
            priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1");
    bed.tc("qdisc add dev b parent 3:1 handle 30: pfifo limit 100");
    bed.tc("filter add dev b parent 3: protocol ip pref 1 flower dst_ip 10.0.0.3 classid 3:1");
    bed.tc("filter add dev b parent 1: protocol ip pref 1 flower dst_ip 10.0.0.0/8 classid 1:10");
    bed.pass(0, &[1, 2, 3]);
    assert_eq!(bed.passed(), [0, 0, 1], "no filter is there");
    bed.tc("filter add dev b parent 1:10 protocol ip pref 1 flower dst_ip 10.0.0.1 classid 1:11");
    bed.pass(0, &[1, 1, 3]);
    assert_eq!(bed.passed(), [2, 0, 2], "one filter is there");
    bed.tc("class add dev b parent 1:10 classid 1:13 htb rate 1gbit burst 10mb cburst 10mb");
    bed.pass(0, &[1]);
    assert_eq!(bed.passed(), [3, 0, 2], "another class is beside");
    bed.tc("filter del dev b parent 1:10");
    bed.pass(0, &[1, 3]);
    assert_eq!(bed.passed(), [3, 0, 3], "none is left");
    bed.tc("class del dev b classid 1:11");
    bed.tc("class del dev b classid 1:12");
    bed.tc("class del dev b classid 1:13");
    bed.tc("qdisc add dev b parent 1:10 handle 10: pfifo limit 100");
    bed.pass(0, &[1, 3]);
    assert_eq!(bed.passed(), [2, 0, 3], "it is a leaf again, with a new qdisc");
}

#[test]
fn an_action_may_pass_a_packet_to_the_next_filter_or_restart() {
    let mut bed = Bed::new(1);
    bed.tc("filter add dev b parent 1: pref 1 handle 7 fw classid 1:10");
    bed.tc("filter add dev b parent 1: protocol ip pref 2 flower dst_ip 10.0.0.1 action continue");
    bed.tc("filter add dev b parent 1: protocol ip pref 3 flower dst_ip 10.0.0.2 \
            action skbedit mark 7 reclassify");
    bed.tc(
        "filter add dev b parent 1: protocol ip pref 4 flower dst_ip 10.0.0.3 action reclassify",
    );
    bed.tc("filter add dev b parent 1: pref 5 matchall classid 1:20");
    bed.pass(0, &[1, 2, 3]);
    assert_eq!(
        (bed.passed(), bed.filtered()),
        ([1, 1, 0], 1),
        "one goes round until it is dropped"
    );
}

#[test]
fn thousands_of_filters_more_change_nothing_for_packets_that_they_do_not_match() {
    let results = [0u32, 1500].map(|more| {
        let mut bed = Bed::new(1);
        bed.tc("filter add dev a ingress protocol ip pref 1 flower dst_ip 10.0.0.1 action drop");
        bed.tc("filter add dev b parent 1: protocol ip pref 1 flower dst_ip 10.0.0.2 action drop");
        bed.tc("filter add dev b parent 1: protocol ip pref 2 flower dst_ip 10.0.0.3 classid 1:10");
        bed.tc("filter add dev b parent 1: protocol ip pref 3 flower dst_ip 10.0.0.4/30 \
                classid 1:20");
        // A mark that is set after the look-up for all.
        bed.tc("filter add dev a ingress protocol ip pref 2 flower dst_ip 10.0.0.9 \
                action skbedit mark 5");
        bed.tc("filter add dev b parent 1: pref 4 handle 5 fw classid 1:20");
        for number in 0..more {
            let [_, _, high, low] = number.to_be_bytes();
            // Of lengths enough for a sieve.
            let prefix = format!("172.{}.{high}.{low}/{}", 16 + number % 16, 20 + number % 13);
            bed.tc(&format!(
                "filter add dev b parent 1: protocol ip pref 9 flower dst_ip {prefix} classid 1:10"
            ));
            bed.tc(&format!(
                "filter add dev a ingress protocol ip pref 9 flower src_ip {prefix} action drop"
            ));
        }
        let to: Vec<u8> = (0..15).flat_map(|_| [3, 0, 1, 7, 2, 10, 4, 5, 9, 6]).collect();
        // Not even an Ethernet header.
        bed.workers[0].io_mut().coming[0].push_back(vec![0; 10]);
        bed.pass(0, &to);
        // Its last one is dropped.
        bed.pass(0, &to[..15]);
        (bed.passed(), bed.filtered())
    });
    assert_eq!(results[0], results[1]);
    assert!(results[0].0.iter().all(|passed| *passed > 0) && results[0].1 > 0, "{results:?}");
}

#[test]
fn a_policer_is_one_for_all_queues() {
    let mut bed = Bed::new(4);
    bed.tc("filter add dev a ingress pref 1 matchall \
            action police rate 8mbit burst 20k conform-exceed drop/ok");
    for worker in [0, 1, 2, 3, 0, 1, 2, 3] {
        bed.pass(worker, &[1; 10]);
    }
    // A burst of twenty packets, and next to nothing in the time that has passed.
    assert_eq!((bed.passed(), bed.filtered()), ([0, 0, 20], 60));
    assert_eq!(bed.met(ActionKind::Police, 1), 80);
}

#[test]
fn an_action_keeps_its_state_when_filters_around_it_change() {
    let mut bed = Bed::new(1);
    bed.tc("filter add dev a ingress pref 2 matchall \
            action police rate 8mbit burst 5k conform-exceed drop/ok");
    bed.pass(0, &[1; 10]);
    assert_eq!(bed.passed(), [0, 0, 5]);
    bed.tc("filter add dev a ingress protocol ip pref 1 flower dst_ip 10.0.0.9 action drop");
    bed.pass(0, &[1; 10]);
    assert_eq!((bed.passed(), bed.met(ActionKind::Police, 1)), ([0, 0, 5], 20), "no new burst");
}

impl Bed {
    /// How many packets `worker` sends in the next `millis` milliseconds, if it polls once in each.
    fn sends_in(&mut self, worker: usize, millis: u64) -> u64 {
        let before = self.workers[worker].io().sent;
        for _ in 0..millis {
            self.now += Nanos::from_millis(1);
            self.workers[worker].step(self.now);
        }
        self.workers[worker].io().sent - before
    }
}

#[test]
fn filters_give_flows_rates_which_change_at_once() {
    for qdisc in ["flowbundler", "flowbundler target 10s interval 10s", "eiffel", "carousel", "fq"]
    {
        let mut bed = Bed::new(1);
        bed.tc(&format!("qdisc replace dev b root handle 9: {qdisc}"));
        // 1000 bytes take 8 ms, or 80 ms; the lower rate counts.
        bed.tc("filter add dev a ingress pref 1 matchall action pace rate 1mbit");
        bed.tc("filter add dev b egress protocol ip pref 1 flower dst_ip 10.0.0.2 \
                action pace rate 100kbit");
        bed.tc("filter add dev b egress protocol ip pref 2 flower dst_ip 10.0.0.3 \
                action pace rate 10mbit");
        bed.pass(0, &[1; 40]);
        bed.pass(0, &[2; 10]);
        bed.pass(0, &[3; 40]);
        bed.sends_in(0, 100);
        let sent = bed.sends_in(0, 80);
        // A frame more for each flow, and a quantum of two in fq.
        assert!((19..=25).contains(&sent), "{qdisc}: {sent}");
        bed.tc("actions change action pace rate 10mbit index 1");
        let sent = bed.sends_in(0, 40);
        // Both flows without a lower rate have sent everything.
        assert!((24..=44).contains(&sent), "{qdisc}: {sent}");
        assert!(bed.sends_in(0, 80) <= 3, "{qdisc}");
    }
}

/// Members with rates, each 1 Mbit/s times the last byte of its address; 10.0.0.4 is none.
struct Members {
    /// Times 1, and more after [`MemberRates::follow`].
    times: u64,
}

impl MemberRates for Members {
    fn follow(&mut self) {
        self.times += 1;
    }

    fn rate_of(&self, name: &str, address: u128, is_v6: bool) -> Option<PaceId> {
        let last = (address >> 96) as u64 & 0xff;
        assert!(self.times > 0 && !is_v6);
        let is_member = name == "plans" && last != 4;
        PaceId::of(Rate::from_bits_per_sec(last * 1_000_000)).filter(|_| is_member)
    }
}

#[test]
fn a_flow_has_the_rate_of_the_member_that_covers_its_address() {
    for qdisc in ["flowbundler", "flowbundler target 10s interval 10s", "eiffel", "carousel", "fq"]
    {
        let mut bed = Bed::new(1);
        let worker = bed.workers.pop().unwrap();
        bed.workers.push(worker.with_member_rates(Box::new(Members { times: 0 })));
        bed.tc(&format!("qdisc replace dev b root handle 9: {qdisc}"));
        bed.tc("filter add dev b egress protocol ip pref 1 matchall \
                action pace set-rate plans dst");
        // 1000 bytes take 8, 4 and 2.7 ms; the source is 10.0.0.0, whose rate is zero: none.
        for last in 1..=4 {
            bed.pass(0, &[last; 40]);
        }
        bed.sends_in(0, 80);
        let sent = bed.workers[0].io().sent;
        // 40 of the fourth, and 10, 20 and 30 of the others, and a frame more of each; in fq a
        // quantum of two more.
        assert!((98..=112).contains(&sent), "{qdisc}: {sent}");
        assert_eq!(bed.met(ActionKind::Pace, 1), 160, "{qdisc}");
        // Another process's worker, which begins with an empty qdisc, looks up what it adopts.
        let ids = bed.workers[0].take_out(PortId::SECOND);
        bed.tc(&format!("qdisc replace dev b root handle 7: {qdisc}"));
        let (now, left) = (bed.now, ids.len());
        for id in ids {
            bed.workers[0].adopt(PortId::SECOND, id, LEN, now, now);
        }
        // In fq each new flow begins with a credit of 15 frames.
        let most = if qdisc == "fq" { 3 * 15 } else { 24 };
        let sent = bed.sends_in(0, 20);
        assert!(left > 50 && sent <= most, "{qdisc}: {sent} of {left}");
        bed.tc("actions change action pace set-rate others src index 1");
        let before = bed.workers[0].io().sent;
        // A flow that has not sent yet, in a set that has no rate for it.
        bed.pass(0, &[5; 10]);
        bed.sends_in(0, 1);
        let sent = bed.workers[0].io().sent - before;
        assert!((10..=14).contains(&sent), "{qdisc}: {sent}");
    }
}

#[test]
fn a_queued_packet_keeps_its_rate_under_another_qdisc_and_in_another_process() {
    for qdisc in ["flowbundler", "fq"] {
        let mut bed = Bed::new(1);
        bed.tc("qdisc replace dev b root handle 9: eiffel");
        bed.tc("filter add dev b egress pref 1 matchall action pace rate 100kbit");
        bed.pass(0, &[1; 20]);
        bed.tc(&format!("qdisc replace dev b root handle 8: {qdisc}"));
        assert!((1..=12).contains(&bed.sends_in(0, 160)), "{qdisc}");

        // Taken out here and adopted there, its actions do not run again.
        let met = bed.met(ActionKind::Pace, 1);
        let ids = bed.workers[0].take_out(PortId::SECOND);
        bed.tc(&format!("qdisc replace dev b root handle 7: {qdisc}"));
        let now = bed.now;
        for id in ids {
            bed.workers[0].adopt(PortId::SECOND, id, LEN, now, now);
        }
        assert_eq!(bed.met(ActionKind::Pace, 1), met);
        assert!((1..=12).contains(&bed.sends_in(0, 160)), "{qdisc}");
    }
}
