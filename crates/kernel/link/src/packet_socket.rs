//! IP packets past this host's IP: as they arrive, and to a neighbour.
//!
//! A packet socket sees a packet before the host's own IP looks at it. So it also sees what the
//! host then discards: a packet whose source is one of the host's own addresses, such as the answer
//! of a server that shares an address with the balancer in front of it. And it sends a packet
//! through a device to a MAC address, whatever the routes say.
//!
//! *Cost.* The kernel runs a filter of two instructions for each address over each IP packet that
//! arrives at the host. What a program in the driver takes never comes so far.
//!
//! Sources: packet(7); `struct sock_filter`, `Documentation/networking/filter.rst`.

use crate::LinkError;
use crate::sys::{receive_type, send_to_neighbour};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socket_with};
use socket2::{SockFilter, Socket};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

/// A filter for more addresses is longer than what some kernels allow a socket.
pub const ADDRESSES_MAX: usize = 128;

/// A family of IP packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IpFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl IpFamily {
    /// That of `address`.
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    const fn ether_type(self) -> u16 {
        match self {
            Self::V4 => libc::ETH_P_IP as u16,
            Self::V6 => libc::ETH_P_IPV6 as u16,
        }
    }
}

/// A socket for IP packets of a family, on all devices of the network namespace in which it was
/// opened. It does not block.
#[derive(Debug)]
pub struct PacketSocket {
    socket: Socket,
    family: IpFamily,
}

impl PacketSocket {
    /// Opens a socket in the namespace of the calling thread. It receives nothing until
    /// [`Self::receive_from`] says from whom.
    ///
    /// # Errors
    ///
    /// [`LinkError::NotPermitted`] without CAP_NET_RAW.
    pub fn open(family: IpFamily) -> Result<Self, LinkError> {
        let doing = || "opening a packet socket".to_owned();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, None);
        let socket = socket.map_err(|error| LinkError::from_io(doing(), error.into()))?;
        let socket = Self { socket: socket.into(), family };
        // Nothing comes before the filter: until it has a type the socket receives nothing.
        socket
            .receive_from([])
            .and_then(|()| receive_type(socket.as_fd(), family.ether_type()))
            .map_err(|error| LinkError::from_io(doing(), error))?;
        Ok(socket)
    }

    /// From now on it receives what comes from `sources`, and errors of ICMP from anybody. With
    /// more than [`ADDRESSES_MAX`] of its family it receives all packets.
    ///
    /// # Errors
    ///
    /// If the kernel has no memory for the filter.
    pub fn receive_from(&self, sources: impl IntoIterator<Item = IpAddr>) -> io::Result<()> {
        self.socket.attach_filter(&filter(self.family, sources))
    }

    /// The length of the next packet, which is put into `packet`, as far as that has room.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if there is none.
    pub fn receive(&self, packet: &mut [u8]) -> io::Result<usize> {
        let (read, _) = recv(&self.socket, packet, RecvFlags::empty())?;
        Ok(read)
    }

    /// Sends `packet`, of IP, through the device `ifindex` to the neighbour `mac`.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if there is no room; `EMSGSIZE` if it is too long for the
    /// device.
    pub fn send(&self, ifindex: u32, mac: [u8; 6], packet: &[u8]) -> io::Result<()> {
        send_to_neighbour(self.socket.as_fd(), ifindex, mac, self.family.ether_type(), packet)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Where a header has what the filter reads, in bytes.
struct Places {
    protocol: u32,
    /// The last four bytes of the source: of IPv6 they decide nearly as well as all.
    source: u32,
    icmp: u32,
}

const fn places(family: IpFamily) -> Places {
    match family {
        IpFamily::V4 => Places { protocol: 9, source: 12, icmp: libc::IPPROTO_ICMP as u32 },
        IpFamily::V6 => Places { protocol: 6, source: 20, icmp: libc::IPPROTO_ICMPV6 as u32 },
    }
}

/// What passes for packets from `sources`: a test of the source for each.
fn filter(family: IpFamily, sources: impl IntoIterator<Item = IpAddr>) -> Vec<SockFilter> {
    let load = (libc::BPF_LD | libc::BPF_ABS) as u16;
    let equal = |value, skipped| {
        SockFilter::new((libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, 0, skipped, value)
    };
    let end = |bytes| SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, bytes);
    let whole = || end(u32::MAX);
    let mut last_words: Vec<u32> = sources
        .into_iter()
        .filter_map(|source| match (family, source) {
            (IpFamily::V4, IpAddr::V4(source)) => Some(u32::from(source)),
            (IpFamily::V6, IpAddr::V6(source)) => Some(u128::from(source) as u32),
            _ => None,
        })
        .collect();
    last_words.sort_unstable();
    last_words.dedup();
    if last_words.len() > ADDRESSES_MAX {
        return vec![whole()];
    }
    let Places { protocol, source, icmp } = places(family);
    let mut program = vec![SockFilter::new(load | libc::BPF_B as u16, 0, 0, protocol)];
    program.extend([equal(icmp, 1), whole()]);
    program.push(SockFilter::new(load | libc::BPF_W as u16, 0, 0, source));
    program.extend(last_words.into_iter().flat_map(|word| [equal(word, 1), whole()]));
    program.push(end(0));
    program
}
