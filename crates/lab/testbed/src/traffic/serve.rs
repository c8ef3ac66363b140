//! A listener that takes only what arrives at one device, of several with the same address.

use crate::namespace::Namespace;
use anyhow::Result;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, listen, setsockopt, socket,
    sockopt,
};
use std::ffi::OsString;
use std::net::{SocketAddrV4, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Listens at `address`, for what arrives at `device` in `namespace`. Answers leave there, too.
pub fn at_device(
    namespace: &Namespace,
    device: &str,
    address: SocketAddrV4,
) -> Result<TcpListener> {
    namespace.enter(|| {
        let socket = bound(device, address, SockType::Stream)?;
        listen(&socket, Backlog::new(BACKLOG)?)?;
        Ok(TcpListener::from(socket))
    })
}

/// Takes datagrams to `address` that arrive at `device` in `namespace`. Answers leave there, too.
///
/// # Errors
/// If there is no such device, or the address is not the namespace's.
pub fn datagrams_at_device(
    namespace: &Namespace,
    device: &str,
    address: SocketAddrV4,
) -> Result<UdpSocket> {
    namespace.enter(|| Ok(UdpSocket::from(bound(device, address, SockType::Datagram)?)))
}

/// A socket at `address` for what arrives at `device`.
fn bound(device: &str, address: SocketAddrV4, kind: SockType) -> Result<OwnedFd> {
    let socket = socket(AddressFamily::Inet, kind, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    setsockopt(&socket, sockopt::BindToDevice, &OsString::from(device))?;
    bind(socket.as_raw_fd(), &SockaddrIn::from(address))?;
    Ok(socket)
}
