//! A listener that takes only what arrives at one device, of several with the same address.

use crate::namespace::Namespace;
use anyhow::Result;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, listen, setsockopt, socket,
    sockopt,
};
use std::ffi::OsString;
use std::net::{SocketAddrV4, TcpListener};
use std::os::fd::AsRawFd;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Listens at `address`, for what arrives at `device` in `namespace`. Answers leave there, too.
pub fn at_device(
    namespace: &Namespace,
    device: &str,
    address: SocketAddrV4,
) -> Result<TcpListener> {
    namespace.enter(|| {
        let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        setsockopt(&socket, sockopt::ReuseAddr, &true)?;
        setsockopt(&socket, sockopt::BindToDevice, &OsString::from(device))?;
        bind(socket.as_raw_fd(), &SockaddrIn::from(address))?;
        listen(&socket, Backlog::new(BACKLOG)?)?;
        Ok(TcpListener::from(socket))
    })
}
