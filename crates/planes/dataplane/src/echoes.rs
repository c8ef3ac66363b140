//! Echo requests to the reflectors beyond a line, and their answers: the wire side of
//! [`Probes`](narrows_autorate::Probes).
//!
//! *Idea.* A raw socket for ICMP (RFC 792) or ICMPv6 (RFC 4443) for each reflector, connected to
//! it, so the kernel hands over only what that host sends. Requests go beside the queues, as all
//! that this host sends itself, so their trips have the line in them and not the limit. On the host
//! plane they depart at once, as all small packets of a flow that has used less than its share.
//!
//! *Principles.* Nothing blocks. An answer came when the kernel received it (`SO_TIMESTAMPNS`,
//! socket(7)), however late it is read: while a rate is changed nobody reads. It must have the
//! identifier and the token of this instance, which nobody else knows. At most [`HEARD`] packets of
//! a reflector are read at a time.
//!
//! *Non-goals.* Hosts behind other ways than the line, which are refused.

use narrows_autorate::{Answer, Question};
use narrows_link::WayIn;
use narrows_units::Nanos;
use nix::sys::socket::sockopt::ReceiveTimestampns;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;
use rustix::event::epoll;
use rustix::net::{
    AddressFamily, Protocol, SendFlags, SocketFlags, SocketType, connect, getsockname, ipproto,
    send, socket_with,
};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Packets of a reflector that are read at a time.
const HEARD: usize = 16;
/// What is read later than that was received by another clock.
const LATEST: Duration = Duration::from_secs(1);
/// An echo request: header, token, and nothing else.
const LEN: usize = 16;

/// How a family asks and answers.
struct Family {
    socket: AddressFamily,
    protocol: Protocol,
    /// The types of its messages.
    request: u8,
    reply: u8,
    /// Whether the kernel hands over answers with their IP header (raw(7)), and leaves the checksum
    /// to who sends. That of ICMPv6 it computes itself (RFC 3542, section 3.1).
    is_bare: bool,
}

const V4: Family = Family {
    socket: AddressFamily::INET,
    protocol: ipproto::ICMP,
    request: 8,
    reply: 0,
    is_bare: true,
};
const V6: Family = Family {
    socket: AddressFamily::INET6,
    protocol: ipproto::ICMPV6,
    request: 128,
    reply: 129,
    is_bare: false,
};

impl Family {
    fn of(address: &IpAddr) -> &'static Self {
        if address.is_ipv4() { &V4 } else { &V6 }
    }
}

/// The sockets to some reflectors.
pub(crate) struct Echoes {
    sockets: BTreeMap<IpAddr, OwnedFd>,
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
        reflectors: impl IntoIterator<Item = IpAddr>,
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
        let family = Family::of(&question.to);
        let request = request(family, self.identifier, question.number, self.token);
        if let Err(error) = send(socket, &request, SendFlags::empty()) {
            log::debug!("reflector {}: {error}", question.to);
        }
    }

    /// The answers that have come, at `now`.
    pub(crate) fn hear(&self, now: Nanos) -> Vec<Answer> {
        let mut answers = Vec::new();
        for (from, socket) in &self.sockets {
            for _ in 0..HEARD {
                let mut packet = [0; 256];
                let Ok((len, age)) = receive(socket, &mut packet) else { break };
                let packet = packet.get(..len);
                let number =
                    packet.and_then(|it| reply(Family::of(from), it, self.identifier, self.token));
                let came = now - age;
                answers.extend(number.map(|number| Answer { from: *from, number, came }));
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
fn connected(reflector: IpAddr, port: &str, local: &[IpAddr]) -> Result<OwnedFd, String> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let Family { socket, protocol, .. } = *Family::of(&reflector);
    let socket = socket_with(socket, SocketType::RAW, flags, Some(protocol))
        .map_err(|error| format!("reflector {reflector}: no socket for echoes: {error}"))?;
    connect(&socket, &SocketAddr::new(reflector, 0)).map_err(|error| {
        format!(
            "reflector {reflector} is not reached: {error}: give this host an address at {port} \
             and a route to it, or leave the reflector out."
        )
    })?;
    setsockopt(&socket, ReceiveTimestampns, &true)
        .map_err(|error| format!("reflector {reflector}: no times of answers: {error}"))?;
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

/// Receives a packet: its length, and how long ago the kernel received it.
fn receive(socket: &OwnedFd, packet: &mut [u8]) -> io::Result<(usize, Nanos)> {
    let mut control = nix::cmsg_space!(TimeSpec);
    let mut parts = [io::IoSliceMut::new(packet)];
    let (fd, flags) = (socket.as_raw_fd(), MsgFlags::MSG_DONTWAIT);
    let message = recvmsg::<()>(fd, &mut parts, Some(&mut control), flags)?;
    let stamp = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
        _ => None,
    });
    let now = clock_gettime(ClockId::Realtime);
    let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
    Ok((message.bytes, age(now, stamp)))
}

/// How long before `now` that was, by a clock that somebody may set meanwhile.
fn age(now: Duration, stamp: Option<Duration>) -> Nanos {
    let age = stamp.and_then(|stamp| now.checked_sub(stamp));
    Nanos(age.filter(|age| *age <= LATEST).map_or(0, |age| age.as_nanos() as u64))
}

/// An echo request.
fn request(family: &Family, identifier: u16, number: u16, token: u64) -> [u8; LEN] {
    let mut packet = [0; LEN];
    packet[0] = family.request;
    packet[4..6].copy_from_slice(&identifier.to_be_bytes());
    packet[6..8].copy_from_slice(&number.to_be_bytes());
    packet[8..16].copy_from_slice(&token.to_be_bytes());
    if family.is_bare {
        let sum = checksum(&packet);
        packet[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

/// The number of the request that `packet`, as a socket of `family` hands it over, answers; none if
/// it is no answer to a request with this identifier and token.
fn reply(family: &Family, packet: &[u8], identifier: u16, token: u64) -> Option<u16> {
    let header = if family.is_bare { usize::from(packet.first()? & 15) * 4 } else { 0 };
    let icmp = packet.get(header..header + LEN)?;
    let word = |at: usize| Some(u16::from_be_bytes([*icmp.get(at)?, *icmp.get(at + 1)?]));
    let is_mine = icmp[0] == family.reply
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
    use std::net::UdpSocket;
    use std::time::Instant;

    const TOKEN: u64 = 0x0102_0304_0506_0708;

    /// What a host answers to `request`, as a socket hands it over: with an IPv4 header without
    /// options.
    fn answered(family: &Family, request: &[u8; LEN]) -> Vec<u8> {
        let mut packet = if family.is_bare { vec![0; 20] } else { Vec::new() };
        let header = packet.len();
        packet.extend_from_slice(request);
        packet[header] = family.reply;
        if family.is_bare {
            packet[0] = 0x45;
        }
        packet
    }

    #[test]
    fn the_answer_to_a_request_has_its_number_and_others_have_none() {
        for family in [&V4, &V6] {
            let packet = answered(family, &request(family, 7, 300, TOKEN));
            assert_eq!(reply(family, &packet, 7, TOKEN), Some(300));
            assert_eq!(reply(family, &packet, 8, TOKEN), None);
            assert_eq!(reply(family, &packet, 7, 0), None);
            let mut asked = packet;
            let at = asked.len() - LEN;
            asked[at] = family.request;
            assert_eq!(reply(family, &asked, 7, TOKEN), None, "the request itself");
        }
    }

    #[test]
    fn an_answer_is_as_old_as_its_stamp_says_unless_the_clock_was_set() {
        let ms = Duration::from_millis;
        assert_eq!(age(ms(5_020), Some(ms(5_000))), Nanos::from_millis(20));
        for stamp in [None, Some(ms(5_030)), Some(ms(20))] {
            assert_eq!(age(ms(5_020), stamp), Nanos::ZERO, "{stamp:?}");
        }
    }

    /// Sends a packet to `socket` itself, reads it 5 ms later, and returns its age.
    fn age_after_5_ms(socket: &UdpSocket) -> Nanos {
        socket.send_to(b"late", socket.local_addr().unwrap()).unwrap();
        let sent = Instant::now();
        while sent.elapsed() < Duration::from_millis(5) {}
        let (len, age) = receive(&socket.try_clone().unwrap().into(), &mut [0; 64]).unwrap();
        assert_eq!(len, 4);
        age
    }

    /// The kernel stamps packets as they come only while a socket asks for it, and a kernel thread
    /// turns that on (`net_enable_timestamp`). Until it has run, a packet is stamped when it is
    /// read.
    #[test]
    fn a_packet_is_as_old_as_it_waited_in_the_socket() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        setsockopt(&socket, ReceiveTimestampns, &true).unwrap();
        let asked = Instant::now();
        while age_after_5_ms(&socket) < Nanos::from_millis(5) {
            assert!(asked.elapsed() < Duration::from_secs(30), "packets are not stamped");
        }
        for _ in 0..10 {
            let age = age_after_5_ms(&socket);
            assert!(age >= Nanos::from_millis(5), "{age}");
        }
    }

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        // RFC 1071, section 3: the example's sum is ddf2.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        let packet = request(&V4, 7, 300, 9);
        assert_eq!(checksum(&packet), 0, "with its sum it is all ones");
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer_or_none(
            bytes in prop::collection::vec(any::<u8>(), 0..128), identifier: u16, token: u64,
            is_v4: bool,
        ) {
            let family = if is_v4 { &V4 } else { &V6 };
            if let Some(number) = reply(family, &bytes, identifier, token) {
                let header = if is_v4 { usize::from(bytes[0] & 15) * 4 } else { 0 };
                prop_assert_eq!(&bytes[header + 6..header + 8], &number.to_be_bytes()[..]);
            }
        }
    }
}
