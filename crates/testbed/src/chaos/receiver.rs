//! Notes every frame that arrives at an end, with the time at which the kernel received it.

use super::frame::{Mark, SHORTEST};
use crate::background::Background;
use crate::bed::End;
use anyhow::{Context, Result};
use narrows_units::Nanos;
use nix::cmsg_space;
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind,
    recvmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeSpec;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Room for what the receiver has not yet read: more than a second of what is sent here, as it
/// may have to wait so long for a core.
const BUFFER: usize = 256 << 20;
/// How often it looks whether it is to end, in milliseconds.
const LOOK: u16 = 20;

/// A frame that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) mark: Mark,
    pub(super) at: Nanos,
}

/// A receiver under way. Ends when dropped.
#[derive(Debug)]
pub(super) struct Receiver(Background<Vec<Arrival>>);

impl Receiver {
    /// Listens at `end`.
    pub(super) fn start(end: End<'_>) -> Result<Self> {
        let socket = end.namespace.enter(|| open(end.device))?;
        Background::start("chaos receiver", move |end| receive_until(&socket, end)).map(Self)
    }

    /// Reads what has arrived and ends.
    pub(super) fn stop(self) -> Result<Vec<Arrival>> {
        self.0.stop()
    }
}

fn open(device: &str) -> Result<OwnedFd> {
    let kind = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    // Of this protocol it is shown what comes in and not what the end itself sends.
    let socket = socket(AddressFamily::Packet, SockType::Raw, kind, SockProtocol::EthIp)
        .context("cannot open a packet socket")?;
    setsockopt(&socket, sockopt::RcvBufForce, &BUFFER)?;
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
    let address: LinkAddr = getifaddrs()?
        .filter(|entry| entry.interface_name == device)
        .find_map(|entry| entry.address?.as_link_addr().copied())
        .with_context(|| format!("no device {device}"))?;
    bind(socket.as_raw_fd(), &address).with_context(|| format!("cannot listen on {device}"))?;
    Ok(socket)
}

fn receive_until(socket: &OwnedFd, end: &AtomicBool) -> Result<Vec<Arrival>> {
    let mut arrivals = Vec::with_capacity(1 << 16);
    let mut space = cmsg_space!(TimeSpec);
    loop {
        // In this order, so that what came last is read.
        let is_last = end.load(Ordering::Relaxed);
        while let Some(arrival) = receive(socket, &mut space)? {
            arrivals.extend(arrival);
        }
        if is_last {
            return Ok(arrivals);
        }
        let mut polled = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        match poll(&mut polled, PollTimeout::from(LOOK)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno).context("cannot wait for frames"),
        }
    }
}

/// A frame, `Some(None)` for one that is not ours; `None` where there is none.
fn receive(socket: &OwnedFd, space: &mut [u8]) -> Result<Option<Option<Arrival>>> {
    let mut start = [0; SHORTEST];
    let mut slices = [IoSliceMut::new(&mut start)];
    let flags = MsgFlags::MSG_DONTWAIT;
    let message = match recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(space), flags) {
        Ok(message) => message,
        Err(Errno::EINTR) => return Ok(Some(None)),
        Err(Errno::EAGAIN | Errno::ENETDOWN) => return Ok(None),
        Err(errno) => return Err(errno).context("cannot receive a frame"),
    };
    let at = message.cmsgs()?.find_map(|part| match part {
        ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
        _ => None,
    });
    let at = at.context("the kernel does not say when a frame arrived")?;
    let at = Nanos(u64::try_from(at.as_nanos())?);
    Ok(Some(Mark::read(&start).map(|mark| Arrival { mark, at })))
}
