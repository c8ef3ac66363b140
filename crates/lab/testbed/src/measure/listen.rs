//! Every frame that arrives at an end, with the time at which the kernel received it.

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

/// Buffer for frames that the receiver has not read yet: more than a second of the traffic here,
/// because it may wait that long for a core.
const BUFFER: usize = 256 << 20;
/// How often it checks whether to end, in milliseconds.
const LOOK: u16 = 20;

/// A socket that gets arriving frames, and not those that its own end sends.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
}

impl Listener {
    /// Listens at `end` from now on.
    pub(crate) fn open(end: End<'_>) -> Result<Self> {
        end.namespace.enter(|| {
            let kind = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            // With this protocol it gets only arriving frames.
            let socket = socket(AddressFamily::Packet, SockType::Raw, kind, SockProtocol::EthIp)
                .context("cannot open a packet socket")?;
            setsockopt(&socket, sockopt::RcvBufForce, &BUFFER)?;
            setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
            let device = end.device;
            let address: LinkAddr = getifaddrs()?
                .filter(|entry| entry.interface_name == device)
                .find_map(|entry| entry.address?.as_link_addr().copied())
                .with_context(|| format!("no device {device}"))?;
            bind(socket.as_raw_fd(), &address)
                .with_context(|| format!("cannot listen on {device}"))?;
            Ok(Self { socket })
        })
    }

    /// Calls `note` with the first `LENGTH` bytes of each frame, or all that it has, and the time
    /// of its arrival, until `end` is set and all that came before has been read.
    pub(crate) fn read_until<const LENGTH: usize>(
        &self,
        end: &AtomicBool,
        mut note: impl FnMut(&[u8], Nanos),
    ) -> Result<()> {
        let mut space = cmsg_space!(TimeSpec);
        loop {
            // In this order, so that the last frames are read.
            let is_last = end.load(Ordering::Relaxed);
            while self.receive::<LENGTH>(&mut space, &mut note)? {}
            if is_last {
                return Ok(());
            }
            let mut polled = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            match poll(&mut polled, PollTimeout::from(LOOK)) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno).context("cannot wait for frames"),
            }
        }
    }

    /// Calls `note` with the first `LENGTH` bytes of a frame that is there, and its time. Does not
    /// wait for one. Returns whether there was one.
    pub(crate) fn read_one<const LENGTH: usize>(
        &self,
        mut note: impl FnMut(&[u8], Nanos),
    ) -> Result<bool> {
        self.receive::<LENGTH>(&mut cmsg_space!(TimeSpec), &mut note)
    }

    /// Reads one frame, and says whether there may be another.
    fn receive<const LENGTH: usize>(
        &self,
        space: &mut [u8],
        note: &mut impl FnMut(&[u8], Nanos),
    ) -> Result<bool> {
        let mut start = [0; LENGTH];
        let mut slices = [IoSliceMut::new(&mut start)];
        let flags = MsgFlags::MSG_DONTWAIT;
        let message = recvmsg::<()>(self.socket.as_raw_fd(), &mut slices, Some(space), flags);
        let message = match message {
            Ok(message) => message,
            Err(Errno::EINTR) => return Ok(true),
            Err(Errno::EAGAIN | Errno::ENETDOWN) => return Ok(false),
            Err(errno) => return Err(errno).context("cannot receive a frame"),
        };
        let at = message.cmsgs()?.find_map(|part| match part {
            ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
            _ => None,
        });
        let at = at.context("the kernel does not say when a frame arrived")?;
        let (at, length) = (Nanos(u64::try_from(at.as_nanos())?), message.bytes);
        note(&start[..length], at);
        Ok(true)
    }
}
