//! Frames sent as they are, through a packet socket.
//!
//! The kernel adds nothing and checks nothing; it only picks a TX queue, by the hash of
//! the frame's flow or as [steered](crate::steering). The socket asks for no protocol,
//! so it receives nothing.

use crate::namespace::Namespace;
use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, MultiHeaders, SockFlag, SockType, bind, send, sendmmsg,
    setsockopt, socket, sockopt,
};
use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};

/// Frames that one system call hands over at most.
pub const BATCH: usize = 64;

/// Room for what the forwarder has not yet taken, in bytes. Past it the kernel says so
/// ([`RawSocket::send`] returns short) instead of queueing without end.
///
/// A frame takes it until a kernel's queue behind the cable has sent it, too.
pub(crate) const BUFFER: usize = 8 << 20;

/// The fate of an offered frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// The kernel has it.
    Taken,
    /// The device has dropped it.
    Lost,
    /// The socket's buffer is full; the frame was not sent.
    NoRoom,
}

/// A socket that sends frames on one device.
#[derive(Debug)]
pub struct RawSocket {
    socket: OwnedFd,
}

impl RawSocket {
    /// On `device` in `namespace`.
    pub fn open(namespace: &Namespace, device: &str) -> Result<Self> {
        Self::open_with_room(namespace, device, BUFFER)
    }

    /// As [`Self::open`], with `room` bytes for what the forwarder has not yet taken.
    pub fn open_with_room(namespace: &Namespace, device: &str, room: usize) -> Result<Self> {
        namespace.enter(|| {
            let kind = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            let socket = socket(AddressFamily::Packet, SockType::Raw, kind, None)
                .context("cannot open a packet socket")?;
            let address = link_address(device)?;
            bind(socket.as_raw_fd(), &address)
                .with_context(|| format!("cannot bind a packet socket to {device}"))?;
            setsockopt(&socket, sockopt::SndBufForce, &room)?;
            Ok(Self { socket })
        })
    }

    /// Sends one frame. A frame that the device drops at once, and counts, is [`Offer::Lost`],
    /// which [`send`](Self::send) cannot distinguish from a frame that was not tried.
    pub fn offer(&self, frame: &[u8]) -> Result<Offer> {
        match send(self.socket.as_raw_fd(), frame, MsgFlags::empty()) {
            Ok(_) => Ok(Offer::Taken),
            Err(Errno::ENOBUFS) => Ok(Offer::Lost),
            Err(Errno::EAGAIN) => Ok(Offer::NoRoom),
            Err(errno) => Err(errno).context("cannot send a frame"),
        }
    }

    /// Sends the first [`BATCH`] of `frames`. Returns how many the kernel accepted; fewer if it has
    /// no room.
    pub fn send<F: AsRef<[u8]>>(&self, frames: &[F]) -> Result<usize> {
        let count = frames.len().min(BATCH);
        let slices: Vec<[IoSlice<'_>; 1]> =
            frames[..count].iter().map(|frame| [IoSlice::new(frame.as_ref())]).collect();
        let addresses = [None; BATCH];
        // Made anew for each batch, which costs little, as it must not go from one thread
        // to another.
        let mut headers = MultiHeaders::<LinkAddr>::preallocate(count, None);
        let sent = sendmmsg(
            self.socket.as_raw_fd(),
            &mut headers,
            &slices,
            &addresses[..count],
            [],
            MsgFlags::empty(),
        );
        match sent {
            Ok(results) => Ok(results.count()),
            Err(Errno::EAGAIN | Errno::ENOBUFS) => Ok(0),
            Err(errno) => Err(errno).context("cannot send frames"),
        }
    }
}

/// The address that a packet socket is bound with, of a device in this thread's
/// namespace.
fn link_address(device: &str) -> Result<LinkAddr> {
    getifaddrs()?
        .filter(|entry| entry.interface_name == device)
        .find_map(|entry| entry.address?.as_link_addr().copied())
        .with_context(|| format!("no device {device}"))
}
