//! A flood of short UDP packets to the server, from listed sources or from invented ones.

use super::placement::Cores;
use crate::bed::{CLIENT, SERVER_MAC, Testbed};
use crate::counters::{Counters, Counts};
use crate::narrows::Instance;
use anyhow::Result;
use std::net::Ipv4Addr;
use std::path::Path;

/// The shortest frame, in bytes.
const FRAME: usize = 60;
/// How many addresses are on the list.
const LISTED: u32 = 100_000;
/// The offsets of the source, of its header's checksum and of UDP's in a frame.
const SOURCE: usize = 26;
const CHECKSUM: usize = 24;
const UDP_CHECKSUM: usize = 40;

/// The frames to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Assault {
    /// Whether each packet has a new address, and not the next one of the [list](blocklist).
    pub(super) is_spoofed: bool,
    /// Packets a second; `None` for as many as its core sends. Without any, its core is as awake as
    /// with some.
    pub(super) rate: Option<f64>,
}

impl Assault {
    /// Starts to send from the client's device, until what it returns is dropped. It runs whenever
    /// nothing else wants its core.
    pub(super) fn start(self, bed: &Testbed, program: &Path, cores: Cores) -> Result<Instance> {
        let (program, core) = (program.to_string_lossy(), cores.shaper.to_string());
        let mut words = vec!["--idle", "0", &program, "bench", "flood-frames", CLIENT, &core];
        let rate = self.rate.map(|rate| rate.to_string());
        if let Some(rate) = &rate {
            words.extend(["--rate", rate]);
        }
        if self.is_spoofed {
            words.push("--spoofed");
        }
        Instance::start_in(bed.client(), Path::new("chrt"), &words)
    }
}

/// Counts packets of the flood by the client's device, which sends nothing else but a frame for
/// each transaction.
pub(super) struct Sent {
    device: Counters,
}

impl Sent {
    pub(super) fn by(bed: &Testbed) -> Result<Self> {
        Ok(Self { device: Counters::of(bed.client(), CLIENT)? })
    }

    /// Up to now, with those for which the shaper's device had no room, if `transactions` have been
    /// done up to now.
    pub(super) fn read(&mut self, transactions: u64) -> Result<u64> {
        let Counts { tx_packets, tx_dropped, .. } = self.device.read()?;
        Ok((tx_packets + tx_dropped).saturating_sub(transactions))
    }
}

/// The frame that is sent with one source after the other. Its checksum is that without a source.
pub fn frame() -> Result<Vec<u8>> {
    let mut frame = crate::frames::udp(crate::frames::port(0), SERVER_MAC, FRAME)?;
    frame[SOURCE..SOURCE + 4].fill(0);
    frame[CHECKSUM..CHECKSUM + 2].fill(0);
    // None, which IPv4 permits.
    frame[UDP_CHECKSUM..UDP_CHECKSUM + 2].fill(0);
    Ok(frame)
}

/// The addresses on the list: anywhere, the same each time.
pub fn blocklist() -> Vec<Ipv4Addr> {
    (0..LISTED).map(unicast).collect()
}

/// An address between 20.0.0.0 and 83.255.255.255: a different one for each of 2^26 consecutive
/// numbers, in no order.
fn unicast(number: u32) -> Ipv4Addr {
    let mixed = number.wrapping_mul(0x9e37_79b1) & 0x03ff_ffff;
    Ipv4Addr::from(0x1400_0000 + mixed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_address_is_listed_twice_or_belongs_to_the_testbed() {
        let list: BTreeSet<Ipv4Addr> = blocklist().into_iter().collect();
        assert_eq!(list.len(), LISTED as usize);
        assert!(list.iter().all(|address| (20..84).contains(&address.octets()[0])));
    }

    #[test]
    fn the_frame_lacks_a_source_only() {
        let frame = frame().unwrap();
        let ip = etherparse::Ipv4Header::from_slice(&frame[14..]).unwrap().0;
        assert_eq!(frame.len(), FRAME);
        assert_eq!((ip.source, ip.destination), ([0; 4], crate::bed::SERVER_IP.octets()));
    }
}
