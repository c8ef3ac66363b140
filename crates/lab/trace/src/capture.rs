//! Capture files: `pcap` and `pcapng`, of Ethernet, IP alone, or Linux's cooked link layers.
//!
//! A frame without an Ethernet header gets one of zeros, and is as much longer as it would be on
//! Ethernet. Times are nanoseconds, in whatever unit the file has them.
//!
//! Source: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng; link types as of tcpdump.org.

use super::{Builder, FRAMES_MAX, Trace};
use narrows_units::Nanos;
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};
use std::io::Read;

/// The longest block of a file, in bytes.
const BLOCK_MAX: usize = 1 << 20;
const ETHERNET_LEN: usize = 14;

/// Why a file is no trace.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CaptureError {
    /// It is of another kind.
    #[error("it is no capture: write the name of a file of tcpdump or wireshark (pcap or pcapng)")]
    NotACapture,
    /// It cannot be read.
    #[error("it cannot be read to its end")]
    Unreadable,
    /// A block of it is broken.
    #[error("it is broken behind frame {0}: cut it off there, as with `editcap -r IN OUT 1-{0}`")]
    Broken(usize),
    /// Its frames are of a link layer without IP.
    #[error(
        "frame {frame} is of link type {link}: only Ethernet, IP and Linux's cooked ones can be replayed"
    )]
    Link {
        /// Its number, from 1.
        frame: usize,
        /// As of tcpdump.org.
        link: i32,
    },
    /// It has too many of them.
    #[error(
        "it has more than {FRAMES_MAX} frames: cut it, as with `editcap -c {FRAMES_MAX} IN OUT`"
    )]
    TooLong,
    /// There is no time between its frames, in the order in which they are.
    #[error(
        "none of its frames is later than the first: if they are in another order, sort them, as with \
         `reordercap IN OUT`"
    )]
    NoTime,
}

/// Where frames were captured.
#[derive(Clone, Copy)]
struct Interface {
    link: Linktype,
    /// Units of its times in a second.
    units: u64,
}

impl Trace {
    /// The trace of a capture file.
    ///
    /// # Errors
    /// It is none, or cannot be replayed; what to do instead.
    pub fn read(file: impl Read + Send) -> Result<Self, CaptureError> {
        let mut reader = create_reader(BLOCK_MAX, file).map_err(|error| match error {
            PcapError::ReadError => CaptureError::Unreadable,
            _ => CaptureError::NotACapture,
        })?;
        let mut builder = Builder::new();
        let mut interfaces: Vec<Interface> = Vec::new();
        let mut number = 0;
        // What was there when a block was not complete.
        let mut incomplete = 0;
        loop {
            // What is done then cannot be done while the block is borrowed. None: it is incomplete.
            let taken = match reader.next() {
                Ok((length, block)) => {
                    number += take(block, &mut interfaces, &mut builder, number)?;
                    Some(length)
                }
                // Or the last block is cut off, as after a capture that was killed.
                Err(PcapError::Eof | PcapError::UnexpectedEof) => break,
                Err(PcapError::Incomplete(_)) => None,
                Err(PcapError::ReadError) => return Err(CaptureError::Unreadable),
                Err(_) => return Err(CaptureError::Broken(number)),
            };
            let there = reader.data().len();
            match taken {
                Some(length) => {
                    reader.consume(length);
                    incomplete = 0;
                }
                None if reader.reader_exhausted() => break,
                None if incomplete != 0 && there <= incomplete => {
                    return Err(CaptureError::Broken(number));
                }
                None => {
                    incomplete = there;
                    reader.refill().map_err(|_| CaptureError::Unreadable)?;
                }
            }
        }
        builder.finish().ok_or(CaptureError::NoTime)
    }
}

/// Takes a block. Returns how many frames it had.
fn take(
    block: PcapBlockOwned<'_>,
    interfaces: &mut Vec<Interface>,
    builder: &mut Builder,
    number: usize,
) -> Result<usize, CaptureError> {
    let (interface, time, len, bytes) = match block {
        PcapBlockOwned::LegacyHeader(header) => {
            let units = if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
            interfaces.push(Interface { link: header.network, units });
            return Ok(0);
        }
        PcapBlockOwned::Legacy(frame) => {
            let Some(&interface) = interfaces.first() else { return Ok(0) };
            let time = u64::from(frame.ts_sec).saturating_mul(interface.units);
            (interface, time.saturating_add(frame.ts_usec.into()), frame.origlen, frame.data)
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => {
            interfaces.clear();
            return Ok(0);
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(description)) => {
            let units = description.ts_resolution().unwrap_or(1_000_000);
            interfaces.push(Interface { link: description.linktype, units });
            return Ok(0);
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(frame)) => {
            let interface = interfaces.get(frame.if_id as usize);
            let &interface = interface.ok_or(CaptureError::Broken(number))?;
            let time = u64::from(frame.ts_high) << 32 | u64::from(frame.ts_low);
            let captured = frame.data.get(..frame.caplen as usize).unwrap_or(frame.data);
            (interface, time, frame.origlen, captured)
        }
        PcapBlockOwned::NG(_) => return Ok(0),
    };
    let at = u128::from(time) * 1_000_000_000 / u128::from(interface.units.max(1));
    let at = Nanos(u64::try_from(at).unwrap_or(u64::MAX));
    let has_room = match skipped(interface.link) {
        Some(0) if interface.link == Linktype::ETHERNET => builder.add(at, len, bytes),
        Some(skipped) => {
            let mut frame = [0; super::KEPT];
            let packet = bytes.get(skipped..).unwrap_or_default();
            let kept = packet.len().min(frame.len() - ETHERNET_LEN);
            frame[ETHERNET_LEN..ETHERNET_LEN + kept].copy_from_slice(&packet[..kept]);
            let version = packet.first().map_or(0, |first| first >> 4);
            frame[12..14].copy_from_slice(if version == 6 { &[0x86, 0xdd] } else { &[8, 0] });
            let len = len.saturating_sub(skipped as u32).saturating_add(ETHERNET_LEN as u32);
            builder.add(at, len, &frame[..ETHERNET_LEN + kept])
        }
        None => return Err(CaptureError::Link { frame: number + 1, link: interface.link.0 }),
    };
    if has_room { Ok(1) } else { Err(CaptureError::TooLong) }
}

/// Bytes before the IP header, or before the Ethernet header; none for a link layer without either.
fn skipped(link: Linktype) -> Option<usize> {
    match link {
        Linktype::ETHERNET | Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 => Some(0),
        // BSD's DLT_RAW.
        Linktype(12) => Some(0),
        Linktype::LINUX_SLL => Some(16),
        Linktype::LINUX_SLL2 => Some(20),
        _ => None,
    }
}
