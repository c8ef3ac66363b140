//! A flood of short UDP packets to the server, from listed sources or from invented ones.

use crate::background::Background;
use crate::bed::{CLIENT, SERVER_MAC, Testbed};
use crate::pace::{Credit, NAP};
use crate::raw::{BATCH, RawSocket};
use crate::{cpu, frames};
use anyhow::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

/// The shortest frame, in bytes.
const FRAME: usize = 60;
/// How many addresses are on the list.
const LISTED: u32 = 100_000;
/// The offsets of the source and of its header's checksum in a frame.
const SOURCE: usize = 26;
const CHECKSUM: usize = 24;
/// The offset of UDP's checksum; 0 for none.
const UDP_CHECKSUM: usize = 40;

/// The source addresses.
#[derive(Clone)]
pub(super) enum Sources {
    /// These, one after the other.
    Listed(Vec<[u8; 4]>),
    /// A new address for each packet.
    Invented,
}

/// The frames to send.
pub(super) struct Assault {
    pub(super) sources: Sources,
    /// Packets a second; `None` for as many as the core sends.
    pub(super) pace: Option<f64>,
}

/// A flood under way. Ends when dropped.
pub(super) struct Running {
    sent: Arc<AtomicU64>,
    _sender: Background<()>,
}

impl Assault {
    /// Starts to send from the client's device, on the last core.
    pub(super) fn start(self, bed: &Testbed) -> Result<Running> {
        let socket = RawSocket::open(bed.client(), CLIENT)?;
        let sent = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&sent);
        let core = cpu::last_core()?;
        let sender = Background::start("flood", move |end| {
            cpu::pin_this_thread(core)?;
            self.send(&socket, end, &count)
        })?;
        Ok(Running { sent, _sender: sender })
    }

    fn send(&self, socket: &RawSocket, end: &AtomicBool, sent: &AtomicU64) -> Result<()> {
        let frame = |port| -> Result<Vec<u8>> {
            let mut frame = frames::udp(port, SERVER_MAC, FRAME)?;
            frame[UDP_CHECKSUM..UDP_CHECKSUM + 2].fill(0);
            Ok(frame)
        };
        let ports = (0..BATCH as u16).map(frames::port);
        let mut batch: Vec<Vec<u8>> = ports.map(frame).collect::<Result<_>>()?;
        let mut credit = Credit::new(self.pace);
        let (mut number, start) = (0_u32, Instant::now());
        while !end.load(Ordering::Relaxed) {
            let due = credit.due(start.elapsed()).min(BATCH);
            for frame in &mut batch[..due] {
                from(frame, self.source(number));
                number = number.wrapping_add(1);
            }
            let taken = socket.send(&batch[..due])?;
            credit.spend(taken);
            sent.fetch_add(taken as u64, Ordering::Relaxed);
            if taken < BATCH && self.pace.is_some() {
                thread::sleep(NAP);
            }
        }
        Ok(())
    }

    fn source(&self, number: u32) -> [u8; 4] {
        match &self.sources {
            Sources::Listed(list) => list[number as usize % list.len()],
            Sources::Invented => unicast(number ^ 0x5a5a_0000),
        }
    }
}

impl Running {
    /// How many the kernel has taken.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

/// The addresses on the list: anywhere, the same each time.
pub(super) fn blocklist() -> Vec<[u8; 4]> {
    (0..LISTED).map(unicast).collect()
}

/// An address between 20.0.0.0 and 83.255.255.255: a different one for each of 2^26 consecutive
/// numbers, in no order.
fn unicast(number: u32) -> [u8; 4] {
    let mixed = number.wrapping_mul(0x9e37_79b1) & 0x03ff_ffff;
    (0x1400_0000 + mixed).to_be_bytes()
}

/// Sets the source of `frame` to `source`, with a correct checksum.
fn from(frame: &mut [u8], source: [u8; 4]) {
    frame[SOURCE..SOURCE + 4].copy_from_slice(&source);
    frame[CHECKSUM..CHECKSUM + 2].fill(0);
    let words = frame[14..34].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let mut sum: u32 = words.sum();
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    frame[CHECKSUM..CHECKSUM + 2].copy_from_slice(&(!sum as u16).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_frame_from_elsewhere_is_right_in_its_checksum() {
        let mut frame = frames::udp(frames::port(3), SERVER_MAC, FRAME).unwrap();
        from(&mut frame, [20, 255, 3, 255]);
        let ip = etherparse::Ipv4Header::from_slice(&frame[14..]).unwrap().0;
        assert_eq!(ip.source, [20, 255, 3, 255]);
        assert_eq!(ip.header_checksum, ip.calc_header_checksum());
    }

    #[test]
    fn no_address_is_listed_twice_or_belongs_to_the_testbed() {
        let list: BTreeSet<[u8; 4]> = blocklist().into_iter().collect();
        assert_eq!(list.len(), LISTED as usize);
        assert!(list.iter().all(|address| (20..84).contains(&address[0])));
    }
}
