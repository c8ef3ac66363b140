//! The frames that the generator sends.
//!
//! Plain UDP over IPv4, right in every checksum, made once and sent many times. The
//! source port is what tells flows apart. For anything else, build it with
//! `etherparse` and send it raw.

use crate::bed::{CLIENT_IP, CLIENT_MAC, SERVER_IP};
use anyhow::{Context, Result};
use etherparse::PacketBuilder;

/// Ethernet, IPv4 and UDP headers.
pub const HEADERS: usize = 14 + 20 + 8;

/// The destination: the discard port of RFC 863.
pub(crate) const DISCARD: u16 = 9;

/// The first source port of [`port`], well above all listening ports.
const FIRST_PORT: u16 = 20_000;

/// The source port of the flow with number `index`.
pub fn port(index: u16) -> u16 {
    FIRST_PORT + index
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
    use etherparse::{SlicedPacket, TransportSlice};

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
