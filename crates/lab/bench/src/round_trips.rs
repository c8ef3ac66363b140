//! A worker's cost of measuring round trips.
//!
//! A million packets a second by a virtual clock, of 4096 connections whose shares fall as 1, 1/2,
//! 1/3 …, as one worker forwards them: each packet arrives at a port, and leaves through the other
//! one. Two in three carry data, and each third acknowledges that with the echo of a time stamp of
//! 20 ms before. Where there is nothing to learn the same packets are UDP. Headers are in the
//! cache, as for a worker that reads them anyway. The floor is the same loop, which writes numbers
//! and time stamps into the headers, without it.

use crate::zipf;
use narrows_roundtrip::{Awaited, Observer};
use narrows_shaper::WINDOW;
use narrows_units::Nanos;
use std::fmt;
use std::hint::black_box;
use std::time::Instant;

/// Connections.
const FLOWS: usize = 4096;
/// Classes that they are of.
const CLASSES: u32 = 64;
/// Packets in a cycle; a power of two.
const PACKETS: usize = 1 << 16;
/// The time of a packet: a million in a second.
const TIME: Nanos = Nanos::from_micros(1);
/// Packets in a second.
const RATE: f64 = 1e6;
/// How long a round trip takes.
const TRIP: Nanos = Nanos::from_millis(20);
/// Packets that are measured at a time: six turns in which packets are watched or not. One port is
/// watched in one of six then, the other one in one of three.
const MEASURED: u64 = 6 * (1 << 30) / 1000;
/// Repeats, of which the median counts.
const REPEATS: usize = 9;
/// The length of a data packet without its Ethernet header.
const LEN: u16 = 1500;

/// The kind of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// TCP with time stamps.
    Tcp,
    /// UDP, of which nothing can be learned.
    Udp,
}

/// Packets on their way through a worker.
pub struct Work {
    observers: [Observer; 2],
    /// By connection: a data packet, and an acknowledgement.
    frames: Vec<[[u8; 66]; 2]>,
    /// The bytes that each has sent.
    sent: Vec<u32>,
    /// The owner of each packet of a cycle.
    order: Vec<u16>,
    now: Nanos,
    next: usize,
    trips: u64,
}

impl Work {
    /// Packets of one kind.
    pub fn new(kind: Kind) -> Self {
        Self {
            observers: [(); 2].map(|()| Observer::new(Awaited::new(), 7, WINDOW)),
            frames: (0..FLOWS as u32)
                .map(|flow| [false, true].map(|is_back| frame(kind, flow, is_back)))
                .collect(),
            sent: vec![0; FLOWS],
            order: zipf::order(FLOWS, PACKETS),
            now: WINDOW,
            next: 0,
            trips: 0,
        }
    }

    /// Passes `packets`; measures them if `looks`. Returns the number of round trips found.
    pub fn run(&mut self, packets: u64, looks: bool) -> u64 {
        let trips = self.trips;
        for _ in 0..packets {
            self.now += TIME;
            self.next = (self.next + 1) % PACKETS;
            let flow = usize::from(self.order[self.next]);
            let is_back = self.next.is_multiple_of(3);
            let millis = |time: Nanos| ((time.0 / 1_000_000) as u32).to_be_bytes();
            let frame = &mut self.frames[flow][usize::from(is_back)];
            if is_back {
                frame[42..46].copy_from_slice(&self.sent[flow].to_be_bytes());
                frame[62..66].copy_from_slice(&millis(self.now - TRIP));
            } else {
                frame[38..42].copy_from_slice(&self.sent[flow].to_be_bytes());
                frame[58..62].copy_from_slice(&millis(self.now));
                self.sent[flow] = self.sent[flow].wrapping_add(u32::from(LEN) - 52);
            }
            let frame = black_box(&*frame);
            if looks {
                let [a, b] = &mut self.observers;
                let (near, far) = if is_back { (b, a) } else { (a, b) };
                self.trips += u64::from(near.comes(frame, self.now).is_some());
                if let Some(stretch) = far.stretch(self.now) {
                    far.leaves(frame, flow as u32 % CLASSES + 1, stretch, self.now);
                }
            }
        }
        self.trips - trips
    }
}

/// A packet between two addresses that no other connection has.
fn frame(kind: Kind, flow: u32, is_back: bool) -> [u8; 66] {
    let mut frame = [0; 66];
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    let len = if is_back { 52 } else { LEN };
    frame[16..18].copy_from_slice(&len.to_be_bytes());
    frame[22] = 64;
    frame[23] = if kind == Kind::Tcp { 6 } else { 17 };
    let ends = [(0x0a00_0000 + flow, 5001_u16), (0x0b00_0000 + flow, 80)];
    let [from, to] = if is_back { [1, 0] } else { [0, 1] };
    frame[26..30].copy_from_slice(&ends[from].0.to_be_bytes());
    frame[30..34].copy_from_slice(&ends[to].0.to_be_bytes());
    frame[34..36].copy_from_slice(&ends[from].1.to_be_bytes());
    frame[36..38].copy_from_slice(&ends[to].1.to_be_bytes());
    if kind == Kind::Tcp {
        frame[46..48].copy_from_slice(&[0x80, 0x10]);
        frame[54..58].copy_from_slice(&[1, 1, 8, 10]);
    }
    frame
}

/// The cost for one kind of packets.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The kind.
    pub kind: Kind,
    /// Round trips found in a second.
    pub trips: f64,
    /// For each packet, the floor's taken off.
    pub ns_per_packet: f64,
    /// Of a worker's time at a million packets per second.
    pub percent: f64,
}

/// The cost, by kind.
pub struct Report(Vec<Row>);

/// Measures it.
pub fn run() -> Report {
    let row = |kind| {
        let mut work = Work::new(kind);
        work.run(MEASURED, true);
        let mut trips = 0;
        let mut timed = |looks| {
            let start = Instant::now();
            let found = work.run(MEASURED, looks);
            (start.elapsed().as_nanos() as f64 / MEASURED as f64, found)
        };
        let costs = (0..REPEATS).map(|_| {
            let (own, found) = timed(true);
            trips = found;
            own - timed(false).0
        });
        let ns_per_packet = crate::qdisc::median(costs.collect());
        let trips = trips as f64 / (MEASURED as f64 / RATE);
        Row { kind, trips, ns_per_packet, percent: ns_per_packet * RATE / 1e7 }
    };
    Report([Kind::Tcp, Kind::Udp].map(row).into())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| packets | round trips /s | ns a packet | of a worker at 1 M packets/s |")?;
        writeln!(f, "|---------|----------------|-------------|------------------------------|")?;
        for Row { kind, trips, ns_per_packet, percent } in &self.0 {
            let kind = match kind {
                Kind::Tcp => "TCP",
                Kind::Udp => "UDP",
            };
            writeln!(
                f,
                "| {kind:<7} | {trips:>14.0} | {ns_per_packet:>11.2} | {percent:>26.2} % |"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_are_found_in_tcp_and_nothing_in_udp() {
        let mut tcp = Work::new(Kind::Tcp);
        tcp.run(100_000, true);
        assert!(tcp.run(200_000, true) > 200);
        assert_eq!(Work::new(Kind::Udp).run(200_000, true), 0);
    }
}
