//! Receiving frames that are addressed to others.
//!
//! A bump in the wire must see every frame. The interface is held in promiscuous mode by
//! a socket's membership and not by its flag: the kernel counts the holders, and when the
//! process dies, however it dies, the membership goes with its socket. A flag would stay.

use crate::LinkError;
use crate::link::possible;
use crate::sys::{Membership, promiscuous_membership};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::os::fd::OwnedFd;

/// Holds an interface in promiscuous mode for as long as it lives.
#[derive(Debug)]
#[must_use = "the interface leaves promiscuous mode when this is dropped"]
pub struct Promiscuous {
    socket: OwnedFd,
    ifindex: i32,
}

impl Drop for Promiscuous {
    fn drop(&mut self) {
        // Closing the socket alone would leave the membership to a child that another
        // thread forked just now, until the child executes its program. An error means that
        // the interface is gone.
        let _ = promiscuous_membership(&self.socket, self.ifindex, Membership::Drop);
    }
}

/// Puts interface `ifindex` of the calling thread's network namespace into promiscuous
/// mode.
///
/// # Errors
///
/// [`LinkError::NoSuchIndex`] where it is gone, [`LinkError::NotPermitted`] without
/// CAP_NET_RAW.
pub fn promiscuous(ifindex: u32) -> Result<Promiscuous, LinkError> {
    let doing = || format!("putting interface {ifindex} into promiscuous mode");
    possible(ifindex)?;
    // Without a protocol the socket receives nothing: only its membership is wanted.
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
