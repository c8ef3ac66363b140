//! A port of this host for one check, on which the kernel stays silent.
//!
//! The kernel knows nothing of the connection that a check opens past it. It would answer the
//! server's packets with a reset, or an ICMP error. A socket has the port instead, so that nobody
//! else gets it, and a filter by which the socket discards whatever arrives.

use crate::probe::NoAnswer;
use narrows_balance::Protocol;
use socket2::{Domain, SockFilter, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};

/// A port, until it is dropped.
#[derive(Debug)]
pub(crate) struct LocalPort {
    _socket: Socket,
    pub(crate) at: SocketAddr,
}

impl LocalPort {
    /// A free one at `address`, which is this host's.
    ///
    /// # Errors
    /// If it has none.
    pub(crate) fn take(protocol: Protocol, address: IpAddr) -> Result<Self, NoAnswer> {
        let failed = |error: io::Error| NoAnswer::Here(format!("no free port: {error}"));
        Self::open(protocol, address).map_err(failed)
    }

    fn open(protocol: Protocol, address: IpAddr) -> io::Result<Self> {
        let kind = match protocol {
            Protocol::Tcp => Type::STREAM,
            Protocol::Udp => Type::DGRAM,
        };
        let at = SocketAddr::new(address, 0);
        let socket = Socket::new(Domain::for_address(at), kind, None)?;
        let discard = SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0);
        socket.attach_filter(&[discard])?;
        socket.bind(&at.into())?;
        if protocol == Protocol::Tcp {
            // One that does not listen is not asked.
            socket.listen(1)?;
        }
        let at = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { _socket: socket, at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;
    use std::net::{Ipv4Addr, TcpStream, UdpSocket};
    use std::time::Duration;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn nobody_who_sends_to_it_gets_an_answer() {
        let tcp = LocalPort::take(Protocol::Tcp, HERE).unwrap();
        let wait = Duration::from_millis(100);
        let error = TcpStream::connect_timeout(&tcp.at, wait).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let udp = LocalPort::take(Protocol::Udp, HERE).unwrap();
        let socket = UdpSocket::bind((HERE, 0)).unwrap();
        socket.connect(udp.at).unwrap();
        socket.set_read_timeout(Some(wait)).unwrap();
        socket.send(b"x").unwrap();
        assert_eq!(socket.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(tcp);
        assert!(LocalPort::take(Protocol::Tcp, Ipv4Addr::new(192, 0, 2, 1).into()).is_err());
    }
}
