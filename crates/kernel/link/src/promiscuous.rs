//! Promiscuous mode.
//!
//! A bump in the wire must see every frame. A socket's membership holds the interface in
//! promiscuous mode, not the interface's flag: the kernel counts memberships, and when the process
//! ends for whatever reason, the membership ends with its socket. A flag would stay.

use crate::LinkError;
use crate::link::possible;
use crate::sys::{Membership, promiscuous_membership};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::os::fd::OwnedFd;

/// Holds an interface in promiscuous mode until it is dropped.
#[derive(Debug)]
#[must_use = "the interface leaves promiscuous mode when this is dropped"]
pub struct Promiscuous {
    socket: OwnedFd,
    ifindex: i32,
}

impl Drop for Promiscuous {
    fn drop(&mut self) {
        // If another thread forks now, the child inherits the socket until it executes its program.
        // Closing the socket alone would leave the membership to the child. An error means that the
        // interface is gone.
        let _ = promiscuous_membership(&self.socket, self.ifindex, Membership::Drop);
    }
}

/// Puts interface `ifindex` of the calling thread's network namespace into promiscuous mode.
///
/// # Errors
///
/// [`LinkError::NoSuchIndex`] if it is gone, [`LinkError::NotPermitted`] without CAP_NET_RAW.
pub fn promiscuous(ifindex: u32) -> Result<Promiscuous, LinkError> {
    let doing = || format!("putting interface {ifindex} into promiscuous mode");
    possible(ifindex)?;
    // Without a protocol the socket receives nothing: only its membership is needed.
    let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .map_err(|error| LinkError::from_io(doing(), error.into()))?;
    let ifindex_signed = ifindex.cast_signed();
    promiscuous_membership(&socket, ifindex_signed, Membership::Add).map_err(
        |error| match error.raw_os_error() {
            Some(libc::ENODEV) => LinkError::NoSuchIndex(ifindex),
            _ => LinkError::from_io(doing(), error),
        },
    )?;
    Ok(Promiscuous { socket, ifindex: ifindex_signed })
}
