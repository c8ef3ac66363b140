//! Echo requests to the reflectors beyond a line, and their answers: the wire side of
//! [`Probes`](narrows_autorate::Probes).
//!
//! *Idea.* A raw ICMP socket (RFC 792) for each reflector, connected to it, so the kernel hands
//! over only what that host sends. Requests go beside the queues, as all that this host sends
//! itself, so their trips have the line in them and not the limit.
//!
//! *Principles.* Nothing blocks. An answer must have the identifier and the token of this instance,
//! which nobody else knows. At most [`HEARD`] packets of a reflector are read at a time.
//!
//! *Non-goals.* IPv6; hosts behind other ways than the line, which are refused.

use narrows_autorate::{Answer, Question};
use narrows_link::WayIn;
use narrows_units::Nanos;
use rustix::event::epoll;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrV4, SocketFlags, SocketType, connect,
    getsockname, ipproto, recv, send, socket_with,
};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Packets of a reflector that are read at a time.
const HEARD: usize = 16;
/// An echo request: header, token, and nothing else.
const LEN: usize = 16;
const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;

/// The sockets to some reflectors.
pub(crate) struct Echoes {
    sockets: BTreeMap<Ipv4Addr, OwnedFd>,
    /// Readable while an answer waits.
    any: OwnedFd,
    identifier: u16,
    token: u64,
}

impl Echoes {
    /// Opens sockets to `reflectors` beyond the port `ifindex`, whose name is `port`.
    ///
    /// # Errors
    /// What to do about it: this host has no address there, or no way through it.
    pub(crate) fn open(
        reflectors: impl IntoIterator<Item = Ipv4Addr>,
        port: &str,
        ifindex: u32,
    ) -> Result<Self, String> {
        let local = WayIn::read(ifindex).map_err(|error| error.to_string())?.addresses;
        let any = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| error.to_string())?;
        let mut sockets = BTreeMap::new();
        for (number, reflector) in (0..).zip(reflectors) {
            let socket = connected(reflector, port, &local)?;
            let data = epoll::EventData::new_u64(number);
            epoll::add(&any, &socket, data, epoll::EventFlags::IN)
                .map_err(|error| error.to_string())?;
            sockets.insert(reflector, socket);
        }
        let random = RandomState::new();
        let (identifier, token) = (random.hash_one(0) as u16, random.hash_one(1));
        Ok(Self { sockets, any, identifier, token })
    }

    /// Sends `question`. One that cannot be sent is one without an answer.
    pub(crate) fn ask(&self, question: &Question) {
        let Some(socket) = self.sockets.get(&question.to) else { return };
        let request = request(self.identifier, question.number, self.token);
        if let Err(error) = send(socket, &request, SendFlags::empty()) {
            log::debug!("reflector {}: {error}", question.to);
        }
    }

    /// The answers that have come, at `now`.
    pub(crate) fn hear(&self, now: Nanos) -> Vec<Answer> {
        let mut answers = Vec::new();
        for (from, socket) in &self.sockets {
            let mut packet = [0; 256];
            for _ in 0..HEARD {
                let Ok((_, len)) = recv(socket, &mut packet[..], RecvFlags::DONTWAIT) else {
                    break;
                };
                let number =
                    packet.get(..len).and_then(|it| reply(it, self.identifier, self.token));
                answers.extend(number.map(|number| Answer { from: *from, number, came: now }));
            }
        }
        answers
    }
}

impl AsFd for Echoes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.any.as_fd()
    }
}

/// A descriptor that is readable while any of `all` is.
///
/// # Errors
/// If the kernel has no memory for it.
pub(crate) fn any_of<'a>(all: impl IntoIterator<Item = &'a Echoes>) -> io::Result<OwnedFd> {
    let any = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (number, echoes) in (0..).zip(all) {
        epoll::add(&any, echoes, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
    }
    Ok(any)
}

/// A socket that is connected to `reflector`, if the way there is through the port that has the
/// addresses `local`.
fn connected(reflector: Ipv4Addr, port: &str, local: &[IpAddr]) -> Result<OwnedFd, String> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(ipproto::ICMP))
        .map_err(|error| format!("reflector {reflector}: no socket for ICMP: {error}"))?;
    connect(&socket, &SocketAddrV4::new(reflector, 0)).map_err(|error| {
        format!(
            "reflector {reflector} is not reached: {error}: give this host an address at {port} \
             and a route to it, or leave the reflector out."
        )
    })?;
    let from = getsockname(&socket).ok().and_then(|address| SocketAddr::try_from(address).ok());
    let from = from.map(|address| address.ip());
    if from.is_none_or(|from| !local.contains(&from)) {
        return Err(format!(
            "the route to reflector {reflector} does not lead through {port}: give this host an \
             address there and a route to it, or name a host that is beyond the line."
        ));
    }
    Ok(socket)
}

/// An echo request.
fn request(identifier: u16, number: u16, token: u64) -> [u8; LEN] {
    let mut packet = [0; LEN];
    packet[0] = ECHO_REQUEST;
    packet[4..6].copy_from_slice(&identifier.to_be_bytes());
    packet[6..8].copy_from_slice(&number.to_be_bytes());
    packet[8..16].copy_from_slice(&token.to_be_bytes());
    let sum = checksum(&packet);
    packet[2..4].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// The number of the request that `packet`, with its IPv4 header, answers; none if it is no answer
/// to a request with this identifier and token.
fn reply(packet: &[u8], identifier: u16, token: u64) -> Option<u16> {
    let header = usize::from(packet.first()? & 15) * 4;
    let icmp = packet.get(header..header + LEN)?;
    let word = |at: usize| Some(u16::from_be_bytes([*icmp.get(at)?, *icmp.get(at + 1)?]));
    let is_mine = icmp[0] == ECHO_REPLY
        && word(4) == Some(identifier)
        && icmp.get(8..16) == Some(&token.to_be_bytes()[..]);
    if is_mine { word(6) } else { None }
}

/// The checksum of an even number of bytes (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a host answers to `request`, with an IPv4 header without options.
    fn answered(request: &[u8; LEN]) -> Vec<u8> {
        let mut packet = vec![0; 20];
        packet[0] = 0x45;
        packet.extend_from_slice(request);
        packet[20] = ECHO_REPLY;
        packet
    }

    #[test]
    fn the_answer_to_a_request_has_its_number_and_others_have_none() {
        let packet = answered(&request(7, 300, 0x0102_0304_0506_0708));
        assert_eq!(reply(&packet, 7, 0x0102_0304_0506_0708), Some(300));
        assert_eq!(reply(&packet, 8, 0x0102_0304_0506_0708), None);
        assert_eq!(reply(&packet, 7, 0), None);
        let mut asked = packet;
        asked[20] = ECHO_REQUEST;
        assert_eq!(reply(&asked, 7, 0x0102_0304_0506_0708), None, "the request itself");
    }

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        // RFC 1071, section 3: the example's sum is ddf2.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        let packet = request(7, 300, 9);
        assert_eq!(checksum(&packet), 0, "with its sum it is all ones");
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer_or_none(
            bytes in prop::collection::vec(any::<u8>(), 0..128), identifier: u16, token: u64,
        ) {
            if let Some(number) = reply(&bytes, identifier, token) {
                let header = usize::from(bytes[0] & 15) * 4;
                prop_assert_eq!(&bytes[header + 6..header + 8], &number.to_be_bytes()[..]);
            }
        }
    }
}
