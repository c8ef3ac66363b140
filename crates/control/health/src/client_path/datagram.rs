//! A datagram to a service, by the way of clients.

use super::answers::Answer;
use super::{ClientPath, encapsulation::TTL};
use crate::probe::NoAnswer;
use etherparse::PacketBuilder;
use narrows_balance::Protocol;
use std::net::IpAddr;

/// Sends `data` to `port` of the service, and waits for any datagram from there.
pub(crate) async fn exchange(path: &ClientPath, port: u16, data: &[u8]) -> Result<(), NoAnswer> {
    let mut exchange = path.talk(Protocol::Udp)?;
    let builder = match (path.source, path.service) {
        (IpAddr::V4(from), IpAddr::V4(to)) => PacketBuilder::ipv4(from.octets(), to.octets(), TTL),
        (IpAddr::V6(from), IpAddr::V6(to)) => PacketBuilder::ipv6(from.octets(), to.octets(), TTL),
        _ => return Err(NoAnswer::Here("two families of addresses".into())),
    };
    let builder = builder.udp(exchange.local.port(), port);
    let mut packet = Vec::with_capacity(builder.size(data.len()));
    builder
        .write(&mut packet, data)
        .map_err(|error| NoAnswer::Here(format!("a datagram: {error}")))?;
    exchange.send(&packet)?;
    match exchange.inbox.next().await {
        Some(Answer::Packet(_)) => Ok(()),
        Some(Answer::Unreachable(why)) => Err(NoAnswer::There(why)),
        None => Err(NoAnswer::Here("no more answers are read".into())),
    }
}
