//! Whether the longest packets arrive: an echo request (`ping`) of that size, by the way of
//! clients.
//!
//! The kernel says how long a packet may be on the first wire and, if it has learned it, on the
//! whole way. A narrower link beyond, whose "too big" gets lost, is found by trying only.

use super::answers::Answer;
use super::{ClientPath, Exchange};
use crate::probe::NoAnswer;
use etherparse::IpNumber;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::time::timeout;

/// The bytes of a request that is short enough for any way.
const SHORT: usize = 64;

/// Sends a request of full size and a short one, each of which is waited for as long as `wait`.
/// `number` tells requests apart that are under way at the same time. Whether the one of full size
/// is answered; none if the server answers no requests at all.
pub(crate) async fn full_size_arrives(
    path: &ClientPath,
    number: u16,
    wait: Duration,
) -> Option<bool> {
    let local = SocketAddr::new(path.source, number);
    let protocol = match path.service {
        IpAddr::V4(_) => IpNumber::ICMP,
        IpAddr::V6(_) => IpNumber::IPV6_ICMP,
    };
    let mut exchange = path.exchange(protocol, local, None);
    for (bytes, is_full) in [(path.packet_max(), true), (SHORT, false)] {
        send(&exchange, bytes).ok()?;
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
            return Some(is_full);
        }
    }
    None
}

/// Sends a request of `bytes` bytes of IP.
fn send(exchange: &Exchange, bytes: usize) -> Result<(), NoAnswer> {
    let (header, number) = (exchange.path.header()?, exchange.local.port());
    let mut packet = Vec::with_capacity(bytes);
    let data = |headers: usize| vec![0; bytes.saturating_sub(headers)];
    let written = match exchange.path.service {
        IpAddr::V4(_) => {
            let builder = header.icmpv4_echo_request(number, 1);
            let data = data(builder.size(0));
            builder.write_to_vec(&mut packet, &data)
        }
        IpAddr::V6(_) => {
            let builder = header.icmpv6_echo_request(number, 1);
            let data = data(builder.size(0));
            builder.write_to_vec(&mut packet, &data)
        }
    };
    written.map_err(|error| NoAnswer::Here(format!("an echo request: {error}")))?;
    exchange.send(&packet)
}
