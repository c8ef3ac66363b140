//! The heaviest hosts and flows through a port, and the delays of their packets.
//!
//! *Idea.* Packets are sampled on departure, when their delay is known. At low rates every packet
//! is sampled; above, one packet per N bytes, which it represents. So the chance of a packet is
//! proportional to its length, and no sender is favoured. The bytes between two samples vary at
//! random by half, so that no pattern of packets coincides with that of the samples. Samples are
//! counted by source, by destination and by flow in [summaries](crate::summary) of fixed size.
//!
//! *The last seconds.* Counts are of whole windows of [`WINDOW`]; reports are of the last complete
//! one. Windows begin at multiples of that time, so all workers have the same ones.
//!
//! *Exactness.* A window has at least [`STEP_SAMPLES`] samples before packets are skipped, and two
//! to four times as many on a busy port. A host with the share p of the bytes is off by about
//! sqrt((1 - p) / (p n)) with n samples: 5 % if it has a tenth of them.
//!
//! *Cost:* a subtraction and a comparison for each packet. For a sample the addresses are read and
//! three summaries are searched, at most some five times [`STEP_SAMPLES`] of them in a window.
//! `examples/heaviest_cost.rs` in `narrows-bench` measures both. Memory: 36 kB for each port and
//! queue, and 388 bytes for the delays of each host and flow that was ever counted at once: 149 kB
//! at most. No locks; otherwise only a [report](Heaviest::report) allocates.
//!
//! *Non-goals.* Hosts inside tunnels or behind address translation; packets that are not IP; exact
//! accounts, which need a flow collector.

use crate::summary::{Entry, Key, Summary};
use narrows_packet::dissect::Keys;
use narrows_units::Nanos;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How long a window is.
pub const WINDOW: Nanos = Nanos::from_secs(3);
/// After this many samples the bytes per sample double.
const STEP_SAMPLES: u32 = 4096;
/// The initial bytes per sample.
const FIRST_STEP: u64 = 2048;
/// A new window divides the step of the last one by this power of two: traffic may have fallen to
/// an eighth, and if not, doubling restores the step after as many samples.
const RELIEF: u32 = 3;

/// A host: its address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Host {
    address: u128,
    is_v6: bool,
}

impl Host {
    /// Its address.
    pub fn address(&self) -> IpAddr {
        if self.is_v6 {
            Ipv6Addr::from(self.address).into()
        } else {
            Ipv4Addr::from(self.address as u32).into()
        }
    }
}

impl Key for Host {
    fn hash(&self) -> u32 {
        mixed(self.address)
    }
}

/// A flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Flow {
    /// Its source.
    pub source: Host,
    /// Its destination.
    pub destination: Host,
    /// The ports; 0 without ports.
    pub ports: (u16, u16),
    /// IANA's number of its protocol.
    pub protocol: u8,
}

impl Key for Flow {
    fn hash(&self) -> u32 {
        let (from, to) = self.ports;
        let ends = self.source.address.rotate_left(17) ^ self.destination.address;
        mixed(ends ^ u128::from(from) << 96 ^ u128::from(to) << 64)
    }
}

/// Hashes an address to 32 bits. Chosen collisions only make a search compare keys.
fn mixed(address: u128) -> u32 {
    let folded = (address >> 64) as u64 ^ address as u64;
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// The heaviest of a window.
#[derive(Clone, Default, Debug)]
struct Window {
    /// The number of its window, counted from time 0.
    number: u64,
    sources: Summary<Host>,
    destinations: Summary<Host>,
    flows: Summary<Flow>,
}

impl Window {
    fn clear(&mut self, number: u64) {
        self.number = number;
        self.sources.clear();
        self.destinations.clear();
        self.flows.clear();
    }
}

/// The heaviest of the last complete window, unordered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HeaviestReport {
    /// Hosts by bytes sent.
    pub sources: Vec<Entry<Host>>,
    /// Hosts by bytes received.
    pub destinations: Vec<Entry<Host>>,
    /// Flows.
    pub flows: Vec<Entry<Flow>>,
}

/// The heaviest hosts and flows of a port, by samples of departing packets.
#[derive(Clone, Debug)]
pub struct Heaviest {
    /// Bytes until the next sample.
    left: i64,
    /// The bytes that a sample represents.
    drawn: u64,
    /// The mean of that; 0 if each packet is sampled.
    step: u64,
    /// Samples in this window.
    samples: u32,
    random: u32,
    filling: Window,
    finished: Window,
}

impl Default for Heaviest {
    /// Empty.
    fn default() -> Self {
        Self {
            left: 0,
            drawn: 0,
            step: 0,
            samples: 0,
            random: 0x9e37_79b9,
            filling: Window::default(),
            finished: Window::default(),
        }
    }
}

impl Heaviest {
    /// Whether to [sample](Heaviest::look) a departing packet of `len` bytes. Called for each.
    #[inline(always)]
    pub fn is_due(&mut self, len: u32) -> bool {
        self.left -= i64::from(len);
        self.left < 0
    }

    /// Counts a sampled packet of `len` bytes, with these at its beginning, which leaves at `now`
    /// with the delay `delay`.
    #[inline(never)]
    pub fn look(&mut self, frame: &[u8], len: u32, delay: Nanos, now: Nanos) {
        let number = now.0 / WINDOW.0;
        if number != self.filling.number {
            self.turn(number);
        }
        let bytes = self.weigh(len);
        self.samples += 1;
        if self.samples.is_multiple_of(STEP_SAMPLES) {
            self.step = (self.step * 2).max(FIRST_STEP);
        }
        let Some(ip) = Keys::of(frame).and_then(|keys| keys.ip) else { return };
        let host = |address| Host { address, is_v6: ip.is_v6 };
        let (source, destination) = (host(ip.source), host(ip.destination));
        let ports = ip.ports.unwrap_or_default();
        let flow = Flow { source, destination, ports, protocol: ip.protocol };
        self.filling.sources.add(source, bytes, delay);
        self.filling.destinations.add(destination, bytes, delay);
        self.filling.flows.add(flow, bytes, delay);
    }

    /// The bytes that the sampled packet of `len` bytes represents; draws the next interval.
    fn weigh(&mut self, len: u32) -> u64 {
        if self.step == 0 {
            self.left = 0;
            self.drawn = 0;
            return u64::from(len);
        }
        let mut bytes = 0;
        while self.left < 0 {
            bytes += self.drawn;
            self.drawn = self.step / 2 + self.draw() % self.step;
            self.left += self.drawn as i64;
        }
        bytes
    }

    /// Xorshift (Marsaglia 2003): the numbers need no quality, and guessing them gains nothing.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        u64::from(self.random)
    }

    /// Begins the window `number`.
    fn turn(&mut self, number: u64) {
        std::mem::swap(&mut self.filling, &mut self.finished);
        self.filling.clear(number);
        self.samples = 0;
        let step = self.step >> RELIEF;
        self.step = if step < FIRST_STEP { 0 } else { step };
    }

    /// The contents of the last window that is complete at `now`. Allocates.
    pub fn report(&self, now: Nanos) -> HeaviestReport {
        let last = (now.0 / WINDOW.0).checked_sub(1);
        let window = [&self.filling, &self.finished];
        let window = window.into_iter().find(|window| Some(window.number) == last);
        window.map_or_else(HeaviestReport::default, |window| HeaviestReport {
            sources: window.sources.entries().to_vec(),
            destinations: window.destinations.entries().to_vec(),
            flows: window.flows.entries().to_vec(),
        })
    }
}

impl HeaviestReport {
    /// Adds another worker's report for the same port.
    pub fn merge(&mut self, other: &Self) {
        merge(&mut self.sources, &other.sources);
        merge(&mut self.destinations, &other.destinations);
        merge(&mut self.flows, &other.flows);
    }
}

fn merge<K: Key>(into: &mut Vec<Entry<K>>, from: &[Entry<K>]) {
    for entry in from {
        match into.iter_mut().find(|known| known.key == entry.key) {
            Some(known) => {
                known.bytes += entry.bytes;
                known.over += entry.over;
                known.stayed = known.stayed.saturating_add(entry.stayed);
                known.longest = known.longest.max(entry.longest);
                known.delays.merge(&entry.delays);
            }
            None => into.push(entry.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// An Ethernet frame with UDP from `source` to `destination`.
    fn frame(source: u32, destination: u32, port: u16) -> Vec<u8> {
        let mut frame = vec![0; 14 + 20 + 8];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45;
        frame[16..18].copy_from_slice(&28u16.to_be_bytes());
        frame[22] = 64;
        frame[23] = 17;
        frame[26..30].copy_from_slice(&source.to_be_bytes());
        frame[30..34].copy_from_slice(&destination.to_be_bytes());
        frame[34..36].copy_from_slice(&port.to_be_bytes());
        frame[36..38].copy_from_slice(&53u16.to_be_bytes());
        frame
    }

    fn leave(heaviest: &mut Heaviest, frame: &[u8], len: u32, delay: Nanos, now: Nanos) {
        if heaviest.is_due(len) {
            heaviest.look(frame, len, delay, now);
        }
    }

    #[test]
    fn few_packets_are_counted_exactly_and_reported_with_their_window() {
        let mut heaviest = Heaviest::default();
        let begin = WINDOW;
        for number in 0..100 {
            let now = begin + Nanos::from_millis(number);
            leave(&mut heaviest, &frame(1, 2, 7), 1000, Nanos::from_millis(2), now);
            leave(&mut heaviest, &frame(1, 3, 7), 100, Nanos::from_millis(4), now);
        }
        assert_eq!(heaviest.report(begin), HeaviestReport::default(), "the window goes on");
        let report = heaviest.report(begin + WINDOW);
        assert_eq!(report.sources.len(), 1);
        assert_eq!(report.sources[0].bytes, 110_000);
        let to = |last: u8| {
            let address = IpAddr::from([0, 0, 0, last]);
            report.destinations.iter().find(|entry| entry.key.address() == address).unwrap()
        };
        assert_eq!((to(2).bytes, to(2).stayed / to(2).bytes), (100_000, 2_000));
        assert_eq!((to(3).bytes, to(3).longest), (10_000, Nanos::from_millis(4)));
        assert_eq!(report.flows.len(), 2);
        assert_eq!(
            heaviest.report(begin + WINDOW + WINDOW),
            HeaviestReport::default(),
            "that is long ago"
        );
    }

    /// The oracle counts all packets; 100,000 of them in three windows, of 100 hosts whose shares
    /// fall as 1, 1/2, 1/3 …, with lengths of their own. Three standard deviations are allowed.
    #[test]
    fn heavy_hosts_among_many_packets_are_as_exact_as_sampling_allows() {
        let mut heaviest = Heaviest::default();
        let mut exact: HashMap<u32, u64> = HashMap::new();
        let shares: Vec<f64> = (1..=100).map(|rank| 1.0 / f64::from(rank)).collect();
        let mut due = vec![0.0; shares.len()];
        let mut now = WINDOW;
        let (mut looked, mut packets) = (0, 0);
        while now.0 < 4 * WINDOW.0 {
            let host = (0..due.len()).max_by(|one, two| f64::total_cmp(&due[*one], &due[*two]));
            let host = host.unwrap();
            let len = 64 + (host as u32 * 373) % 1400;
            due.iter_mut().zip(&shares).for_each(|(due, share)| *due += share * f64::from(len));
            due[host] -= shares.iter().sum::<f64>() * f64::from(len);
            if now.0 >= 3 * WINDOW.0 {
                *exact.entry(host as u32).or_default() += u64::from(len);
            }
            if heaviest.is_due(len) {
                looked += 1;
                heaviest.look(&frame(host as u32, 9, 1), len, Nanos::ZERO, now);
            }
            packets += 1;
            now += Nanos::from_micros(90);
        }
        assert!(looked * 2 < packets, "{looked} of {packets} packets were looked at");
        let report = heaviest.report(now);
        let all: u64 = exact.values().sum();
        for (host, is) in exact.iter().filter(|(_, is)| **is > all / 50) {
            let address = IpAddr::from(host.to_be_bytes());
            let entry = report.sources.iter().find(|entry| entry.key.address() == address).unwrap();
            let share = *is as f64 / all as f64;
            let deviation = ((1.0 - share) / (share * f64::from(STEP_SAMPLES))).sqrt();
            let off = (entry.bytes - entry.over / 2) as f64 / *is as f64 - 1.0;
            assert!(off.abs() < 3.0 * deviation, "{host}: {} of {is}, {off:+.3}", entry.bytes);
        }
    }

    #[test]
    fn packets_that_are_not_ip_are_ignored() {
        let mut heaviest = Heaviest::default();
        for frame in [&[][..], &[0; 13], &[0xff; 60]] {
            leave(&mut heaviest, frame, 60, Nanos::ZERO, WINDOW);
        }
        assert_eq!(heaviest.report(WINDOW + WINDOW), HeaviestReport::default());
    }

    #[test]
    fn two_workers_add_up() {
        let report = |bytes| {
            let mut heaviest = Heaviest::default();
            leave(&mut heaviest, &frame(1, 2, 7), bytes, Nanos::ZERO, WINDOW);
            heaviest.report(WINDOW + WINDOW)
        };
        let mut both = report(100);
        both.merge(&report(60));
        assert_eq!((both.flows.len(), both.flows[0].bytes), (1, 160));
    }
}
