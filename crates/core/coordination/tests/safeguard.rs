//! Two queues of a port: feedback that arrives on one spaces the packets that leave by the other.

use narrows_coordination::Destinations;
use narrows_packet::{Acknowledgement, Batch, Headers, PacketId, Packets};
use narrows_qdisc::pacing::{Config, Structure};
use narrows_qdisc::{Detail, Feedback, Handover, Qdisc, Spec};
use narrows_units::{Nanos, Rate};
use std::sync::Arc;

/// Hosts, each of which gets one flow.
const HOSTS: u32 = 16;
/// The rate of each flow: a full packet in 1.2 ms.
const RATE: Rate = Rate::from_bits_per_sec(10_000_000);
/// The time between two polls.
const STEP: Nanos = Nanos::from_micros(10);
/// By how much the other queue's clock is behind.
const BEHIND: Nanos = Nanos::from_micros(4);

/// How a host answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// As soon as ever, and it has seen no mark.
    Fine,
    /// With ECN-Echo, and without time stamps.
    Mark,
    /// After so long.
    After(Nanos),
}

struct Queue {
    qdisc: Box<dyn Qdisc>,
    packets: Packets,
}

impl Queue {
    fn retune(&mut self, spec: Spec, now: Nanos) {
        self.qdisc.retune(spec, &mut Handover::new(&mut self.packets, now));
    }
}

fn spec(safeguard: bool, feedback: Option<Box<dyn Feedback>>) -> Spec {
    let config =
        Config { maxrate: Some(RATE), safeguard, ..Config::new(Structure::FlowBundler, 1500) };
    Spec { feedback, ..Spec::new(narrows_qdisc::Config::Pacing(config)) }
}

impl Queue {
    fn new(spec: Spec) -> Self {
        let qdisc = spec.build();
        let mut packets = Packets::new(1 << 12);
        packets.prepare(spec_reading(&*qdisc));
        Self { qdisc, packets }
    }
}

/// The packet fields to read: as with feedback, because it may start to use it.
fn spec_reading(qdisc: &dyn Qdisc) -> narrows_packet::Reading {
    narrows_packet::Reading {
        headers: true,
        acknowledgements: true,
        echoes: true,
        ..qdisc.reading()
    }
}

struct World {
    sends: Queue,
    hears: Queue,
    now: Nanos,
    /// Answers that are under way: when they arrive, and which.
    answers: Vec<(Nanos, u32, Acknowledgement)>,
    answer: Answer,
}

impl World {
    fn new(sends: Spec, hears: Spec) -> Self {
        let (sends, hears) = (Queue::new(sends), Queue::new(hears));
        let now = Nanos::from_secs(1);
        Self { sends, hears, now, answers: vec![], answer: Answer::Fine }
    }

    fn together() -> Self {
        let shared = Destinations::new();
        let spec = || spec(true, Some(shared.feedback()));
        Self::new(spec(), spec())
    }

    /// Lets `span` pass. Returns the longest burst in it.
    fn run(&mut self, span: Nanos) -> usize {
        let end = self.now + span;
        let mut longest = 0;
        while self.now < end {
            self.now += STEP;
            let mut out = Batch::new(256);
            self.sends.qdisc.dequeue(&mut self.sends.packets, self.now, &mut out);
            longest = longest.max(out.len());
            for &id in out.as_slice() {
                let host = self.sends.packets.headers(id).destination;
                let stamp = self.sends.packets.acknowledgement(id).time_stamp;
                self.reply(host, stamp.map_or(0, |(value, _)| value));
            }
            self.listen();
        }
        longest
    }

    fn reply(&mut self, host: u32, stamp: u32) {
        let round_trip = Nanos::from_micros(100);
        let (after, flags, time_stamp) = match self.answer {
            Answer::Fine => (round_trip, 0x10, Some((1, stamp))),
            Answer::Mark => (round_trip, 0x50, None),
            Answer::After(span) => (span, 0x10, Some((1, stamp))),
        };
        let answer = Acknowledgement {
            connection: 1,
            flags,
            is_empty: true,
            time_stamp,
            ..Default::default()
        };
        self.answers.push((self.now + after, host, answer));
    }

    /// Answers arrive on the other queue.
    fn listen(&mut self) {
        let now = self.now;
        let Queue { qdisc, packets } = &mut self.hears;
        self.answers.retain(|(at, host, answer)| {
            if *at <= now {
                let id = PacketId(4000);
                packets.arrive(id, 60, now);
                packets.set_headers(id, Headers { source: *host, ..Headers::default() });
                packets.set_acknowledgement(id, *answer);
                qdisc.observe_reverse(packets, &[id], now - BEHIND);
            }
            *at > now
        });
    }

    /// The longest burst of flows that begin 70 us apart and send a little more than their rate,
    /// while their hosts answer so. Packets already under way at the start do not count.
    fn longest_burst(&mut self, answer: Answer) -> usize {
        self.answer = answer;
        let mut longest = 0;
        for round in 0..60 {
            for host in 0..HOSTS {
                let id = PacketId(round * HOSTS + host);
                let packets = &mut self.sends.packets;
                packets.arrive(id, 1500, self.now);
                let headers =
                    Headers { flow: 77 + host, destination: 1000 + host, ..Headers::default() };
                packets.set_headers(id, headers);
                let stamp = (self.now.0 / 1_000_000) as u32;
                let time_stamp = Some((stamp, 1));
                let data = Acknowledgement { connection: 2, time_stamp, ..Default::default() };
                packets.set_acknowledgement(id, data);
                self.sends.qdisc.enqueue(packets, id, self.now);
                let burst = self.run(Nanos::from_micros(70));
                longest = if round < 20 { 0 } else { longest.max(burst) };
            }
        }
        longest
    }

    /// The number of congestion reports that each queue received.
    fn heard(&self) -> [u64; 2] {
        [&self.sends, &self.hears].map(|queue| {
            let mut stats = vec![];
            queue.qdisc.stats(&mut stats);
            stats[0].detail.as_ref().and_then(Detail::pacing).unwrap().congestion
        })
    }
}

#[test]
fn a_mark_received_on_another_queue_spaces_packets_on_this_one() {
    let mut world = World::together();
    let together = world.longest_burst(Answer::Fine);
    assert!(together >= 4, "{together} at once where nothing is heard");
    assert_eq!(world.heard(), [0, 0]);
    let apart = world.longest_burst(Answer::Mark);
    assert!(apart <= 2, "{apart} at once of what is heard to meet");
    let [sent, heard] = world.heard();
    assert!(sent == 0 && heard > 0, "{sent} and {heard}");
}

#[test]
fn a_longer_round_trip_spaces_packets_too() {
    let mut world = World::together();
    assert!(world.longest_burst(Answer::Fine) >= 4);
    let apart = world.longest_burst(Answer::After(Nanos::from_millis(1)));
    assert!(apart <= 2, "{apart} at once of what is heard to meet");
    let [sent, heard] = world.heard();
    assert!(sent == 0 && heard > 0, "{sent} and {heard}");
}

#[test]
fn queues_of_different_ports_share_no_feedback() {
    let alone = || spec(true, Some(Destinations::new().feedback()));
    for (sends, hears) in [(alone(), alone()), (spec(true, None), spec(true, None))] {
        let mut world = World::new(sends, hears);
        assert!(world.longest_burst(Answer::Mark) >= 4);
        assert!(world.heard()[1] > 0, "it was said");
    }
}

#[test]
fn without_feedback_packets_leave_together_again() {
    let mut world = World::together();
    assert!(world.longest_burst(Answer::Mark) <= 2);
    world.answer = Answer::Fine;
    world.run(Nanos::from_millis(130));
    assert!(world.longest_burst(Answer::Fine) >= 4);
}

#[test]
fn changing_the_safeguard_takes_effect_at_once() {
    let shared: Arc<Destinations> = Destinations::new();
    let mut world = World::new(spec(false, None), spec(true, Some(shared.feedback())));
    assert!(world.longest_burst(Answer::Mark) >= 4, "the sending queue ignores feedback");
    assert!(world.heard()[1] > 0);
    world.sends.retune(spec(true, Some(shared.feedback())), world.now);
    assert!(world.longest_burst(Answer::Mark) <= 2, "it does");
    // A change without a feedback board keeps the previous one.
    world.sends.retune(spec(true, None), world.now);
    assert!(world.longest_burst(Answer::Mark) <= 2, "it still does");
    world.sends.retune(spec(false, None), world.now);
    assert!(world.longest_burst(Answer::Mark) >= 4, "it does no more");
}

#[test]
fn packets_taken_back_from_a_queue_do_not_count_as_sent() {
    let mut world = World::together();
    world.longest_burst(Answer::Fine);
    // Everything is handed to another queue, and no host answers packets that were not sent.
    let Queue { qdisc, packets } = &mut world.sends;
    while let Some(id) = qdisc.drain(packets) {
        world.answers.push((
            world.now,
            packets.headers(id).destination,
            Acknowledgement {
                is_empty: true,
                time_stamp: packets.acknowledgement(id).time_stamp.map(|(value, _)| (1, value)),
                ..Acknowledgement::default()
            },
        ));
    }
    world.listen();
    assert_eq!(world.heard(), [0, 0]);
}
