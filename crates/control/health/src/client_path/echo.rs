//! Whether the longest packets arrive: an echo request (`ping`) of that size, by the way of
//! clients.
//!
//! The kernel says how long a packet may be on the first wire and, if it has learned it, on the
//! whole way. A narrower link beyond, whose "too big" gets lost, is found by trying only.

use super::answers::Answer;
use super::encapsulation::packet;
use super::{ClientPath, Exchange};
use crate::probe::NoAnswer;
use etherparse::{IcmpEchoHeader, Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Type, IpNumber};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::time::timeout;

/// The bytes of a request that is short enough for any way.
const SHORT: usize = 64;
/// Bytes in front of an echo's data, without IP.
const ECHO_BYTES: usize = 8;

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FullSize {
    /// They arrive.
    Arrives,
    /// Short requests are answered, and those of full size are not.
    IsLost,
    /// The server answers no requests at all.
    Unknown,
}

/// Sends a request of full size and a short one, each of which is waited for as long as `wait`.
/// `number` tells requests apart that are under way at the same time.
pub(crate) async fn full_size(path: &ClientPath, number: u16, wait: Duration) -> FullSize {
    let local = SocketAddr::new(path.source, number);
    let protocol = match path.service {
        IpAddr::V4(_) => IpNumber::ICMP,
        IpAddr::V6(_) => IpNumber::IPV6_ICMP,
    };
    let mut exchange = path.exchange(protocol, local, None);
    for (bytes, found) in [(path.packet_max(), FullSize::Arrives), (SHORT, FullSize::IsLost)] {
        if send(&exchange, bytes).is_err() {
            return FullSize::Unknown;
        }
        // An error of ICMP is no answer either.
        let answer = async {
            loop {
                match exchange.inbox.next().await {
                    Some(Answer::Packet(packet)) if packet.len() >= bytes => return,
                    Some(_) => {}
                    None => std::future::pending().await,
                }
            }
        };
        if timeout(wait, answer).await.is_ok() {
            return found;
        }
    }
    FullSize::Unknown
}

/// Sends a request of `bytes` bytes of IP.
fn send(exchange: &Exchange, bytes: usize) -> Result<(), NoAnswer> {
    let ClientPath { source, service, .. } = exchange.path;
    let echo = IcmpEchoHeader { id: exchange.local.port(), seq: 1 };
    let header = if service.is_ipv4() { 20 } else { 40 };
    let data = vec![0; bytes.saturating_sub(header + ECHO_BYTES)];
    let failed = || NoAnswer::Here("an echo request".into());
    let mut message = Vec::with_capacity(ECHO_BYTES + data.len());
    let protocol = match (source, service) {
        (IpAddr::V4(_), _) => {
            let icmp = Icmpv4Header::with_checksum(Icmpv4Type::EchoRequest(echo), &data);
            message.extend_from_slice(&icmp.to_bytes());
            IpNumber::ICMP
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let kind = Icmpv6Type::EchoRequest(echo);
            let icmp = Icmpv6Header::with_checksum(kind, from.octets(), to.octets(), &data);
            message.extend_from_slice(&icmp.map_err(|_| failed())?.to_bytes());
            IpNumber::IPV6_ICMP
        }
        _ => return Err(failed()),
    };
    message.extend(data);
    exchange.send(&packet((source, service), protocol, &message).ok_or_else(failed)?)
}
