//! Writes to the outermost IP header, and flips bits anywhere.

use super::bytes::chunk;
use super::layer::Layer;
use super::link::Link;
use super::network::Packet;
use crate::headers::{Ecn, Rewrite};

/// Marks or washes the outermost IP header of `frame`; false if there is none. A packet that is not
/// ECN-capable is never marked: its sender would not understand. A bit to be flipped is flipped in
/// any frame.
pub fn rewrite(frame: &mut [u8], rewrite: Rewrite) -> bool {
    let is_written = rewrite_header(frame, rewrite);
    flip(frame, rewrite.place()) || is_written
}

/// Flips the bit at `place`, in 1/[`Rewrite::PLACES`] of `frame`; none for 0. Returns whether it
/// did.
fn flip(frame: &mut [u8], place: u16) -> bool {
    let bits = frame.len() as u64 * 8;
    let at = bits * u64::from(place) / u64::from(Rewrite::PLACES);
    match frame.get_mut((at / 8) as usize).filter(|_| place != 0) {
        Some(byte) => *byte ^= 1 << (at % 8),
        None => return false,
    }
    true
}

fn rewrite_header(frame: &mut [u8], rewrite: Rewrite) -> bool {
    let Some(link) = Link::walk(frame) else { return false };
    let Some(before) = Packet::behind(frame, &link).map(|packet| packet.traffic_class) else {
        return false;
    };
    let mut after = before;
    if rewrite.washes() {
        after &= 3;
    }
    if rewrite.marks() && Ecn::of(before).is_capable() {
        after |= Ecn::Experienced as u8;
    }
    match link.ip {
        Some((Layer::Ipv4, at)) => write_ipv4(frame, at, after),
        Some((Layer::Ipv6, at)) => write_ipv6(frame, at, after),
        _ => None,
    }
    .is_some()
}

fn write_ipv4(frame: &mut [u8], at: usize, traffic_class: u8) -> Option<()> {
    let header: &mut [u8; 20] = frame.get_mut(at..)?.first_chunk_mut()?;
    let word =
        |header: &[u8; 20], from: usize| chunk(header, from).copied().map(u16::from_be_bytes);
    let before = word(header, 0)?;
    header[1] = traffic_class;
    let checksum = updated(word(header, 10)?, before, word(header, 0)?);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    Some(())
}

fn write_ipv6(frame: &mut [u8], at: usize, traffic_class: u8) -> Option<()> {
    let header: &mut [u8; 2] = frame.get_mut(at..)?.first_chunk_mut()?;
    header[0] = header[0] & 0xf0 | traffic_class >> 4;
    header[1] = header[1] & 0x0f | traffic_class << 4;
    Some(())
}

/// The checksum of a header in which one word changed (RFC 1624, equation 3). A wrong checksum
/// stays wrong, so that the receiver notices.
fn updated(checksum: u16, before: u16, after: u16) -> u16 {
    if before == after {
        return checksum;
    }
    let sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
    let once = (sum & 0xffff) + (sum >> 16);
    !((once & 0xffff) + (once >> 16)) as u16
}
