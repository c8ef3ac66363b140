//! Packets to destinations reported congested leave apart, and together again when the reports end.

use narrows_packet::{Acknowledgement, Batch, Headers, PacketId, Packets};
use narrows_qdisc::pacing::{Config, Structure};
use narrows_qdisc::{Qdisc, Spec};
use narrows_units::{Nanos, Rate};

/// Hosts, each of which gets one flow.
const HOSTS: u32 = 16;
/// The rate of each flow: a full packet in 1.2 ms.
const RATE: Rate = Rate::from_bits_per_sec(10_000_000);
/// TCP's flags after a mark.
const ECN_ECHO: u16 = 0x50;
/// The time between two polls.
const STEP: Nanos = Nanos::from_micros(10);

struct World {
    qdisc: Box<dyn Qdisc>,
    packets: Packets,
    now: Nanos,
}

impl World {
    fn new() -> Self {
        let config = Config {
            maxrate: Some(RATE),
            safeguard: true,
            ..Config::new(Structure::FlowBundler, 1500)
        };
        let config = narrows_qdisc::Config::Pacing(config);
        let qdisc = Spec::new(config).build();
        let mut packets = Packets::new(1 << 12);
        packets.prepare(qdisc.reading());
        Self { qdisc, packets, now: Nanos::from_secs(1) }
    }

    /// A packet to each host arrives, of flows whose departures are spread over a packet's time.
    fn send(&mut self, base: u32) {
        for host in 0..HOSTS {
            let id = PacketId(base + host);
            self.packets.arrive(id, 1500, self.now);
            self.packets.set_headers(
                id,
                Headers { flow: 77 + host, destination: 1000 + host, ..Headers::default() },
            );
            self.qdisc.enqueue(&mut self.packets, id, self.now);
        }
    }

    /// Lets `span` pass. Returns the number of packets at each time with departures.
    fn run(&mut self, span: Nanos) -> Vec<usize> {
        let end = self.now + span;
        let mut bursts = vec![];
        while self.now < end {
            self.now += STEP;
            let mut out = Batch::new(256);
            self.qdisc.dequeue(&mut self.packets, self.now, &mut out);
            if !out.is_empty() {
                bursts.push(out.len());
            }
        }
        bursts
    }

    /// Something comes back from each host.
    fn hear(&mut self, flags: u16) {
        for host in 0..HOSTS {
            let id = PacketId(4000 + host);
            self.packets.arrive(id, 60, self.now);
            self.packets.set_headers(id, Headers { source: 1000 + host, ..Headers::default() });
            let answer = Acknowledgement { connection: 1, flags, ..Acknowledgement::default() };
            self.packets.set_acknowledgement(id, answer);
            self.qdisc.observe_reverse(&self.packets, &[id], self.now);
        }
    }

    /// The longest burst of flows that begin 70 us apart and send a little more than their rate,
    /// while their hosts send `flags`.
    fn longest_burst(&mut self, flags: u16) -> usize {
        let mut longest = 0;
        for round in 0..40 {
            for host in 0..HOSTS {
                let id = PacketId(round * HOSTS + host);
                self.packets.arrive(id, 1500, self.now);
                let headers =
                    Headers { flow: 77 + host, destination: 1000 + host, ..Headers::default() };
                self.packets.set_headers(id, headers);
                self.qdisc.enqueue(&mut self.packets, id, self.now);
                longest = self.run(Nanos::from_micros(70)).into_iter().fold(longest, usize::max);
                self.hear(flags);
            }
        }
        longest
    }
}

#[test]
fn flows_of_congested_hosts_leave_apart() {
    let together = World::new().longest_burst(0x10);
    assert!(together >= 4, "{together} at once where nothing is heard");
    let apart = World::new().longest_burst(ECN_ECHO);
    assert!(apart <= 2, "{apart} at once of what is heard to meet");
}

#[test]
fn flows_of_congested_hosts_that_began_together_leave_apart() {
    let mut world = World::new();
    let mut longest = 0;
    for round in 0..20 {
        world.send(round * HOSTS);
        world.hear(ECN_ECHO);
        let bursts = world.run(Nanos::from_micros(1200));
        if round >= 2 {
            longest = bursts.into_iter().fold(longest, usize::max);
        }
    }
    assert!(longest <= 2, "{longest} at once of what began together");
}

#[test]
fn packets_leave_together_again_when_feedback_ends() {
    let mut world = World::new();
    assert!(world.longest_burst(ECN_ECHO) <= 2);
    world.run(Nanos::from_millis(5));
    assert!(world.longest_burst(0x10) >= 4);
}

#[test]
fn nothing_is_lost_under_any_feedback() {
    let mut world = World::new();
    for round in 0..8 {
        world.send(round * 64);
        world.hear(if round % 2 == 0 { ECN_ECHO } else { 0x10 });
    }
    let left: usize = world.run(Nanos::from_millis(50)).into_iter().sum();
    assert_eq!(left, 8 * HOSTS as usize);
    assert!(world.qdisc.backlog().is_empty());
}
