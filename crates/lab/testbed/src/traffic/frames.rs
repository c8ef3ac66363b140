//! The frames that the generator sends.
//!
//! Plain UDP over IPv4, right in every checksum, made once and sent many times. The
//! source port is what tells flows apart. For anything else, build it with
//! `etherparse` and send it raw.

use crate::bed::{CLIENT_IP, CLIENT_MAC, SERVER_IP};
use anyhow::{Context, Result, bail, ensure};
use etherparse::{Ipv4Header, PacketBuilder};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Ethernet, IPv4 and UDP headers.
pub const HEADERS: usize = 14 + 20 + 8;

/// Where the IP header begins.
const IP: usize = 14;

/// The destination: the discard port of RFC 863.
pub(crate) const DISCARD: u16 = 9;

/// The first source port of [`port`], well above all listening ports.
const FIRST_PORT: u16 = 20_000;

/// The source port of the flow with number `index`.
pub fn port(index: u16) -> u16 {
    FIRST_PORT + index
}

/// Puts an 802.1Q tag with this control information (priority and VLAN) into `frame`.
pub fn tag(frame: &mut Vec<u8>, control: u16) {
    let [high, low] = control.to_be_bytes();
    frame.splice(12..12, [0x81, 0, high, low]);
}

/// A frame of `length` bytes from the client to the server's address, for the device
/// with address `destination`: [`crate::bed::SERVER_MAC`] for a receiver that answers,
/// [`crate::bed::SINK_MAC`] for one that only counts.
///
/// Fails if `length` cannot hold the [`HEADERS`].
pub fn udp(source_port: u16, destination: [u8; 6], length: usize) -> Result<Vec<u8>> {
    let payload = length
        .checked_sub(HEADERS)
        .with_context(|| format!("a UDP frame has at least {HEADERS} bytes, not {length}"))?;
    let mut frame = Vec::with_capacity(length);
    PacketBuilder::ethernet2(CLIENT_MAC, destination)
        .ipv4(CLIENT_IP.octets(), SERVER_IP.octets(), 64)
        .udp(source_port, DISCARD)
        .write(&mut frame, &vec![0; payload])?;
    Ok(frame)
}

/// As [`udp`], between other addresses: MAC and IPv4 ones, of sender and receiver. It has no UDP
/// checksum.
pub fn udp4(
    source_port: u16,
    macs: [[u8; 6]; 2],
    ips: [Ipv4Addr; 2],
    length: usize,
) -> Result<Vec<u8>> {
    let mut frame = udp(source_port, macs[1], length)?;
    frame[6..12].copy_from_slice(&macs[0]);
    for (place, ip) in [IP + 12, IP + 16].into_iter().zip(ips) {
        frame[place..place + 4].copy_from_slice(&ip.octets());
    }
    frame[HEADERS - 2..HEADERS].fill(0);
    sum_up(&mut frame)?;
    Ok(frame)
}

/// As [`udp4`], over IPv6, with `payload` bytes of zeros and a checksum.
pub fn udp6(
    source_port: u16,
    macs: [[u8; 6]; 2],
    ips: [Ipv6Addr; 2],
    payload: usize,
) -> Result<Vec<u8>> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(macs[0], macs[1])
        .ipv6(ips[0].octets(), ips[1].octets(), 64)
        .udp(source_port, DISCARD)
        .write(&mut frame, &vec![0; payload])?;
    Ok(frame)
}

/// `frame`, without a VLAN tag, as a router sends it on: between the devices with `macs`, with one
/// hop less.
pub fn routed(frame: &[u8], macs: [[u8; 6]; 2]) -> Result<Vec<u8>> {
    let mut frame = frame.to_vec();
    let [source, destination] = macs;
    ensure!(frame.len() >= HEADERS, "{} bytes are no packet", frame.len());
    frame[..6].copy_from_slice(&destination);
    frame[6..12].copy_from_slice(&source);
    match frame[12..14] {
        [0x08, 0x00] => {
            frame[IP + 8] -= 1;
            sum_up(&mut frame)?;
        }
        [0x86, 0xdd] => frame[IP + 7] -= 1,
        _ => bail!("a router sends only IP packets on"),
    }
    Ok(frame)
}

/// Gives the IPv4 header of a frame without a tag the checksum that it has to have.
pub(crate) fn sum_up(frame: &mut [u8]) -> Result<()> {
    let (header, _) = Ipv4Header::from_slice(frame.get(IP..).context("no IPv4 header")?)?;
    let sum = header.calc_header_checksum();
    frame[IP + 10..IP + 12].copy_from_slice(&sum.to_be_bytes());
    Ok(())
}

/// One such frame for each of `source_ports`: what a flood of that many flows sends.
pub fn udp_flows(
    source_ports: &[u16],
    destination: [u8; 6],
    length: usize,
) -> Result<Vec<Vec<u8>>> {
    source_ports.iter().map(|port| udp(*port, destination, length)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::SINK_MAC;
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};

    const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
    const NEXT_MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 3], [2, 0, 0, 0, 0, 4]];

    #[test]
    fn a_routed_frame_has_new_addresses_and_one_hop_less() {
        let ips = [Ipv4Addr::new(10, 1, 0, 2), Ipv4Addr::new(10, 2, 0, 2)];
        let sent = udp4(port(1), MACS, ips, 100).unwrap();
        let came = routed(&sent, NEXT_MACS).unwrap();
        assert_eq!((&came[..6], &came[6..12]), (&NEXT_MACS[1][..], &NEXT_MACS[0][..]));
        assert_eq!(came[34..], sent[34..]);
        let parsed = SlicedPacket::from_ethernet(&came).unwrap();
        let Some(NetSlice::Ipv4(ip)) = parsed.net else { panic!("not IPv4") };
        let header = ip.header().to_header();
        assert_eq!((header.source, header.destination), (ips[0].octets(), ips[1].octets()));
        assert_eq!(
            (header.time_to_live, header.header_checksum),
            (63, header.calc_header_checksum())
        );
    }

    #[test]
    fn a_routed_frame_of_ipv6_is_one_byte_behind_its_addresses_different() {
        let ips = ["fd01::2", "fd02::2"].map(|ip| ip.parse().unwrap());
        let sent = udp6(port(1), MACS, ips, 40).unwrap();
        let came = routed(&sent, NEXT_MACS).unwrap();
        assert_eq!((sent.len(), came[21]), (14 + 40 + 8 + 40, 63));
        assert_eq!((&came[12..21], &came[22..]), (&sent[12..21], &sent[22..]));
        assert!(routed(&[0; 60], MACS).is_err());
    }

    #[test]
    fn a_frame_has_the_length_and_the_flow_that_were_asked_for() {
        for length in [64, 1514] {
            let frame = udp(port(3), SINK_MAC, length).unwrap();
            assert_eq!(frame.len(), length);
            let parsed = SlicedPacket::from_ethernet(&frame).unwrap();
            let Some(TransportSlice::Udp(udp)) = parsed.transport else { panic!("not UDP") };
            assert_eq!(udp.source_port(), 20_003);
        }
    }

    #[test]
    fn too_short_a_frame_is_refused() {
        assert!(udp(port(0), SINK_MAC, 41).is_err());
    }
}
