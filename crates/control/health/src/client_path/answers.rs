//! What servers answer to checks that went the way of clients' packets.
//!
//! A server answers a check as it answers a client: from the service's address. This host may have
//! that address itself, and then its IP discards the answer. So answers are read before the host's
//! IP sees them ([`PacketSocket`]), and each goes to the check that waits for it.
//!
//! Errors of ICMP count as answers, too: what does not unpack a tunnel says so.

use crate::HealthError;
use etherparse::icmpv4::DestUnreachableHeader;
use etherparse::{
    Icmpv4Type, Icmpv6Type, IpNumber, LaxIpPayloadSlice, LaxNetSlice, LaxSlicedPacket,
    TransportSlice,
};
use narrows_link::packet_socket::{IpFamily, PacketSocket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// The longest packet: the kernel may have joined several of one connection.
const PACKET_MAX: usize = 1 << 16;
/// Packets that a check has not yet looked at; more are lost, as on a wire.
const UNREAD: usize = 32;

/// How long the thread sleeps before it looks whether it is still needed.
const WAIT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// What arrives for a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// A packet of the service.
    Packet(Vec<u8>),
    /// Somebody says that packets do not arrive.
    Unreachable(String),
}

/// What one check sends and receives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Conversation {
    pub(crate) protocol: IpNumber,
    /// This host's address and port; of an echo request its identifier.
    pub(crate) local: SocketAddr,
    /// The service's address.
    pub(crate) service: IpAddr,
}

struct Waiting {
    server: IpAddr,
    answers: Sender<Answer>,
}

/// Reads answers, and hands them to those who wait.
pub(crate) struct Answers {
    sockets: [PacketSocket; 2],
    waiting: Mutex<HashMap<Conversation, Waiting>>,
    services: Mutex<BTreeSet<IpAddr>>,
}

/// The answers of one conversation, until it is dropped.
pub(crate) struct Inbox {
    all: Arc<Answers>,
    conversation: Conversation,
    answers: Receiver<Answer>,
}

impl Inbox {
    /// The next one.
    pub(crate) async fn next(&mut self) -> Option<Answer> {
        self.answers.recv().await
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.all.waiting().remove(&self.conversation);
    }
}

impl Answers {
    /// Opens the sockets, and reads them in a thread until nobody has this any more.
    ///
    /// # Errors
    /// Without CAP_NET_RAW.
    pub(crate) fn open() -> Result<Arc<Self>, HealthError> {
        let open = |family| PacketSocket::open(family).map_err(HealthError::Answers);
        let answers = Arc::new(Self {
            sockets: [open(IpFamily::V4)?, open(IpFamily::V6)?],
            waiting: Mutex::default(),
            services: Mutex::default(),
        });
        let weak = Arc::downgrade(&answers);
        let read = move || {
            let mut packet = vec![0; PACKET_MAX];
            while let Some(answers) = weak.upgrade() {
                answers.read(&mut packet);
            }
        };
        thread::Builder::new().name("answers".into()).spawn(read).map_err(HealthError::Start)?;
        Ok(answers)
    }

    /// Answers come from the addresses `services` from now on.
    ///
    /// # Errors
    /// If the kernel has no memory for that.
    pub(crate) fn come_from(&self, services: &BTreeSet<IpAddr>) -> io::Result<()> {
        let mut known = self.services.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != *services {
            for socket in &self.sockets {
                socket.receive_from(services.iter().copied())?;
            }
            known.clone_from(services);
        }
        Ok(())
    }

    /// Waits for answers of `server` in `conversation`, which nobody else has.
    pub(crate) fn wait_for(self: &Arc<Self>, conversation: Conversation, server: IpAddr) -> Inbox {
        let (sender, answers) = channel(UNREAD);
        self.waiting().insert(conversation, Waiting { server, answers: sender });
        Inbox { all: Arc::clone(self), conversation, answers }
    }

    /// The socket for packets of this family.
    pub(crate) fn socket(&self, family: IpFamily) -> &PacketSocket {
        &self.sockets[usize::from(family == IpFamily::V6)]
    }

    /// Waits for answers, for as long as [`WAIT`], and hands out those that there are.
    fn read(&self, packet: &mut [u8]) {
        let mut ready = self.sockets.each_ref().map(|socket| PollFd::new(socket, PollFlags::IN));
        // A signal ends it early.
        let _ = poll(&mut ready, Some(&WAIT));
        for socket in &self.sockets {
            loop {
                match socket.receive(packet) {
                    Ok(bytes) => self.deliver(&packet[..bytes]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // A device went down: what counts comes from others.
                    Err(error) => {
                        log::debug!("receiving answers: {error}");
                        break;
                    }
                }
            }
        }
    }

    fn deliver(&self, packet: &[u8]) {
        match read(packet) {
            Some(Read::Of(conversation)) => {
                self.send(&conversation, Answer::Packet(packet.to_vec()));
            }
            Some(Read::Refused { of: Some(conversation), why, .. }) => {
                self.send(&conversation, Answer::Unreachable(why));
            }
            Some(Read::Refused { of: None, server, why }) => {
                for waiting in self.waiting().values().filter(|it| it.server == server) {
                    let _ = waiting.answers.try_send(Answer::Unreachable(why.clone()));
                }
            }
            None => {}
        }
    }

    fn send(&self, conversation: &Conversation, answer: Answer) {
        if let Some(waiting) = self.waiting().get(conversation) {
            let _ = waiting.answers.try_send(answer);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Conversation, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a packet is.
#[derive(PartialEq, Eq, Debug)]
enum Read {
    /// An answer.
    Of(Conversation),
    /// An ICMP error: about the packet of a conversation, or about one in a tunnel to `server`.
    Refused { of: Option<Conversation>, server: IpAddr, why: String },
}

fn read(packet: &[u8]) -> Option<Read> {
    let seen = LaxSlicedPacket::from_ip(packet).ok()?;
    let (source, to, payload) = parts(seen.net.as_ref()?)?;
    let of = |local_port| Conversation {
        protocol: payload.ip_number,
        local: SocketAddr::new(to, local_port),
        service: source,
    };
    let (why, quoted, does_not_unpack) = match seen.transport? {
        TransportSlice::Tcp(tcp) => return Some(Read::Of(of(tcp.destination_port()))),
        TransportSlice::Udp(udp) => return Some(Read::Of(of(udp.destination_port()))),
        TransportSlice::Icmpv4(icmp) => match icmp.icmp_type() {
            Icmpv4Type::EchoReply(echo) => return Some(Read::Of(of(echo.id))),
            // It is about a route, not about the server.
            Icmpv4Type::DestinationUnreachable(DestUnreachableHeader::FragmentationNeeded {
                ..
            }) => return None,
            Icmpv4Type::DestinationUnreachable(why) => {
                use DestUnreachableHeader::{Port, Protocol};
                (format!("{why:?}"), icmp.payload(), matches!(why, Port | Protocol))
            }
            _ => return None,
        },
        TransportSlice::Icmpv6(icmp) => match icmp.icmp_type() {
            Icmpv6Type::EchoReply(echo) => return Some(Read::Of(of(echo.id))),
            Icmpv6Type::DestinationUnreachable(why) => {
                use etherparse::icmpv6::DestUnreachableCode::Port;
                (format!("{why:?}"), icmp.payload(), why == Port)
            }
            // "Unrecognized next header", from who has no such tunnel.
            Icmpv6Type::ParameterProblem(_) => ("Protocol".into(), icmp.payload(), true),
            _ => return None,
        },
        TransportSlice::Igmp(_) => return None,
    };
    let why = format!("{source} answers: {} unreachable", why.to_lowercase());
    let quoted = LaxSlicedPacket::from_ip(quoted).ok()?;
    let (sender, server, carried) = parts(quoted.net.as_ref()?)?;
    let port = carried.payload.first_chunk().map(|port| u16::from_be_bytes(*port));
    match carried.ip_number {
        protocol @ (IpNumber::TCP | IpNumber::UDP) if !is_gue(carried) => {
            let local = SocketAddr::new(sender, port?);
            let of = Some(Conversation { protocol, local, service: server });
            Some(Read::Refused { of, server, why })
        }
        IpNumber::UDP | IpNumber::IPV4 | IpNumber::IPV6 => {
            let hint = if does_not_unpack { ": it does not unpack the tunnel" } else { "" };
            Some(Read::Refused { of: None, server, why: why + hint })
        }
        _ => None,
    }
}

/// Source, destination and payload of IP.
fn parts<'a>(net: &'a LaxNetSlice<'a>) -> Option<(IpAddr, IpAddr, &'a LaxIpPayloadSlice<'a>)> {
    match net {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            Some((header.source_addr().into(), header.destination_addr().into(), ip.payload()))
        }
        LaxNetSlice::Ipv6(ip) => {
            let header = ip.header();
            Some((header.source_addr().into(), header.destination_addr().into(), ip.payload()))
        }
        LaxNetSlice::Arp(_) => None,
    }
}

/// Whether a datagram of this host carries a packet, as far as it is quoted: GUE has no checksum
/// here, and all other datagrams have one.
fn is_gue(datagram: &LaxIpPayloadSlice<'_>) -> bool {
    datagram.ip_number == IpNumber::UDP && datagram.payload.get(6..8) == Some(&[0, 0])
}

#[cfg(test)]
mod tests {
    use super::super::encapsulation::{encapsulated, packet};
    use super::*;
    use etherparse::icmpv6::{DestUnreachableCode, ParameterProblemCode, ParameterProblemHeader};
    use etherparse::{Icmpv4Header, Icmpv6Header, PacketBuilder};
    use narrows_balance::ListedTunnel;
    use proptest::prelude::*;

    /// The service's address, this host's, the server's, and this host's on the way.
    fn addresses(family: u8) -> [IpAddr; 4] {
        let of = match family {
            4 => ["192.0.2.1", "10.0.0.9", "10.0.0.1", "10.0.0.8"],
            _ => ["2001:db8::1", "fd00::9", "fd00::1", "fd00::8"],
        };
        of.map(|text| text.parse().unwrap())
    }

    fn conversation(family: u8, protocol: IpNumber) -> Conversation {
        let [service, here, ..] = addresses(family);
        Conversation { protocol, local: SocketAddr::new(here, 5555), service }
    }

    /// A segment of TCP between port 5555 of this host and port 80 of the service.
    fn segment(family: u8, is_answer: bool) -> Vec<u8> {
        let [service, here, ..] = addresses(family);
        let ((from, from_port), (to, to_port)) = match is_answer {
            true => ((service, 80), (here, 5555)),
            false => ((here, 5555), (service, 80)),
        };
        let builder = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                PacketBuilder::ipv4(from.octets(), to.octets(), 64)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                PacketBuilder::ipv6(from.octets(), to.octets(), 64)
            }
            _ => unreachable!(),
        };
        let mut packet = Vec::new();
        builder.tcp(from_port, to_port, 1, 1000).write(&mut packet, &[]).unwrap();
        packet
    }

    /// An error about `quoted`.
    fn error4(from: IpAddr, why: DestUnreachableHeader, quoted: &[u8]) -> Vec<u8> {
        let kind = Icmpv4Type::DestinationUnreachable(why);
        let mut message = Icmpv4Header::with_checksum(kind, quoted).to_bytes().to_vec();
        message.extend_from_slice(quoted);
        packet((from, addresses(4)[3]), IpNumber::ICMP, &message).unwrap()
    }

    fn error6(from: IpAddr, kind: Icmpv6Type, quoted: &[u8]) -> Vec<u8> {
        let mut message = Icmpv6Header { icmp_type: kind, checksum: 0 }.to_bytes().to_vec();
        message.extend_from_slice(quoted);
        packet((from, addresses(6)[3]), IpNumber::IPV6_ICMP, &message).unwrap()
    }

    #[test]
    fn an_answer_belongs_to_the_conversation_of_its_addresses_and_port() {
        for family in [4, 6] {
            let expected = conversation(family, IpNumber::TCP);
            assert_eq!(read(&segment(family, true)), Some(Read::Of(expected)));
        }
    }

    #[test]
    fn an_error_about_a_packet_is_told_to_its_conversation() {
        let [.., server, _] = addresses(4);
        // Eight bytes of its payload are quoted at least.
        let quoted = &segment(4, false)[..28];
        let said = read(&error4(server, DestUnreachableHeader::Port, quoted));
        let of = Some(conversation(4, IpNumber::TCP));
        let why = "10.0.0.1 answers: port unreachable".to_owned();
        assert_eq!(said, Some(Read::Refused { of, server: addresses(4)[0], why }));
        let [.., server, _] = addresses(6);
        let kind = Icmpv6Type::DestinationUnreachable(DestUnreachableCode::Prohibited);
        let said = read(&error6(server, kind, &segment(6, false)));
        let of = Some(conversation(6, IpNumber::TCP));
        let why = "fd00::1 answers: prohibited unreachable".to_owned();
        assert_eq!(said, Some(Read::Refused { of, server: addresses(6)[0], why }));
    }

    #[test]
    fn a_server_that_does_not_unpack_is_known_by_its_error() {
        for inner in [4, 6].map(|family| segment(family, false)) {
            let [_, _, server, source] = addresses(4);
            let ipip = encapsulated(ListedTunnel::Ipip, (source, server), 0, &inner).unwrap();
            let tunnel = ListedTunnel::Gue { port: 6080 };
            let gue = encapsulated(tunnel, (source, server), 0, &inner).unwrap();
            for (packet, why) in [
                (&ipip[..28], DestUnreachableHeader::Protocol),
                (&gue[..28], DestUnreachableHeader::Port),
            ] {
                let Some(Read::Refused { of: None, server: about, why }) =
                    read(&error4(server, why, packet))
                else {
                    panic!("{packet:?}")
                };
                assert!(about == server && why.contains("does not unpack"), "{why}");
            }
            let [_, _, server, source] = addresses(6);
            let ipip = encapsulated(ListedTunnel::Ipip, (source, server), 0, &inner).unwrap();
            let code = ParameterProblemCode::UnrecognizedNextHeader;
            let kind = Icmpv6Type::ParameterProblem(ParameterProblemHeader { code, pointer: 6 });
            let said = read(&error6(server, kind, &ipip));
            assert!(matches!(said, Some(Read::Refused { of: None, .. })), "{said:?}");
        }
    }

    #[test]
    fn a_route_that_is_too_narrow_is_no_answer() {
        let [.., server, _] = addresses(4);
        let why = DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: 1400 };
        assert_eq!(read(&error4(server, why, &segment(4, false))), None);
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(
            version in prop::sample::select(vec![0x45u8, 0x60, 0x4f]),
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            protocol in prop::sample::select(vec![1u8, 6, 17, 58, 4, 41]),
        ) {
            if bytes.len() > 10 {
                bytes[0] = version;
                bytes[6] = protocol;
                bytes[9] = protocol;
            }
            let _ = read(&bytes);
        }
    }
}
