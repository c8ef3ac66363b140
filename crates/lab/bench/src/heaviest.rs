//! A worker's cost of tracking the heaviest hosts and flows.
//!
//! A million packets per second by a virtual clock, of 1500 bytes or of 64, of 4096 flows whose
//! shares fall as 1, 1/2, 1/3 …: most picks then meet a key that is new, which is the dear case.
//! Whole windows are measured, so the packets that are all looked at at the beginning of each are
//! in the mean with the weight that they have in life. The floor is the same loop without it.

use crate::zipf;
use narrows_shaper::{Heaviest, WINDOW};
use narrows_units::Nanos;
use std::fmt;
use std::hint::black_box;
use std::time::Instant;

/// Flows.
const FLOWS: usize = 4096;
/// Packets in a cycle; a power of two.
const PACKETS: usize = 1 << 16;
/// The time of a packet: a million in a second.
const TIME: Nanos = Nanos::from_micros(1);
/// Packets in a second.
const RATE: f64 = 1e6;
/// Repeats, of which the median counts.
const REPEATS: usize = 9;

/// Packets of one length on their way out.
pub struct Work {
    heaviest: Heaviest,
    frames: Vec<[u8; 64]>,
    /// Which frame each packet of a cycle has.
    order: Vec<u16>,
    len: u32,
    now: Nanos,
    next: usize,
}

impl Work {
    /// Packets of `len` bytes.
    pub fn new(len: u32) -> Self {
        let frames = (0..FLOWS as u32).map(frame).collect();
        let order = zipf::order(FLOWS, PACKETS);
        Self { heaviest: Heaviest::default(), frames, order, len, now: WINDOW, next: 0 }
    }

    /// Sends `packets`. Returns the number of samples.
    pub fn run(&mut self, packets: u64) -> u64 {
        let mut looked = 0;
        for _ in 0..packets {
            self.now += TIME;
            self.next = (self.next + 1) % PACKETS;
            if self.heaviest.is_due(black_box(self.len)) {
                looked += 1;
                let frame = &self.frames[usize::from(self.order[self.next])];
                self.heaviest.look(frame, self.len, Nanos::from_micros(700), self.now);
            }
        }
        looked
    }

    /// Runs the loop without it.
    fn run_floor(&mut self, packets: u64) {
        for _ in 0..packets {
            self.now += TIME;
            self.next = (self.next + 1) % PACKETS;
            black_box(self.len);
        }
        black_box((self.now, self.next));
    }
}

/// UDP between two addresses that no other flow has.
fn frame(flow: u32) -> [u8; 64] {
    let mut frame = [0; 64];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&50u16.to_be_bytes());
    frame[22] = 64;
    frame[23] = 17;
    frame[26..30].copy_from_slice(&(0x0a00_0000 + flow).to_be_bytes());
    frame[30..34].copy_from_slice(&(0x0b00_0000 + flow).to_be_bytes());
    frame
}

/// The cost at one packet length.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Of packets, in bytes.
    pub len: u32,
    /// Picks in a second.
    pub looked: f64,
    /// For each packet, the floor's taken off.
    pub ns_per_packet: f64,
    /// Of a worker's time at a million packets per second.
    pub percent: f64,
}

/// The cost, by packet length.
pub struct Report(Vec<Row>);

/// Measures whole windows.
pub fn run() -> Report {
    let packets = WINDOW.0 / TIME.0;
    let row = |len| {
        let mut work = Work::new(len);
        // The first window is one without a past.
        work.run(packets);
        let mut looked = 0;
        let mut timed = |run: &mut dyn FnMut(&mut Work)| {
            let start = Instant::now();
            run(&mut work);
            start.elapsed().as_nanos() as f64 / packets as f64
        };
        let costs = (0..REPEATS).map(|_| {
            let own = timed(&mut |work| looked = work.run(packets));
            own - timed(&mut |work| work.run_floor(packets))
        });
        let ns_per_packet = crate::qdisc::median(costs.collect());
        let looked = looked as f64 / WINDOW.as_secs_f64();
        Row { len, looked, ns_per_packet, percent: ns_per_packet * RATE / 1e7 }
    };
    Report([64, 1500].map(row).into())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| bytes | looked at /s | ns a packet | of a worker at 1 M packets/s |")?;
        writeln!(f, "|-------|--------------|-------------|-----------------------------|")?;
        for Row { len, looked, ns_per_packet, percent } in &self.0 {
            writeln!(
                f,
                "| {len:>5} | {looked:>12.0} | {ns_per_packet:>11.2} | {percent:>25.2} % |"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_a_busy_port_few_packets_are_looked_at() {
        let mut work = Work::new(1500);
        let packets = WINDOW.0 / TIME.0;
        work.run(packets);
        let looked = work.run(packets);
        assert!((4096..40_000).contains(&looked), "{looked} of {packets}");
    }
}
