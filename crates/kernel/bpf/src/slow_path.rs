//! Programs for what the kernel itself sends through a port: its own packets, and those that it
//! forwards because no program in a driver does.
//!
//! They are attached at tcx egress, through a link that dies with the process. AF_XDP and redirects
//! at XDP do not pass that hook; redirects at tcx do, and are [marked](crate::Router::sealed).

use crate::attach::{attach_to_egress, replace};
use std::io;
use std::ops::AddAssign;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

mod share;

pub use share::SlowPathShare;

/// What the kernel itself has sent through a port, and what a program has dropped of it: frames as
/// they are on the wire, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlowPathCounters {
    /// Frames sent.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames dropped.
    pub dropped_packets: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
}

impl SlowPathCounters {
    /// From words in the order of the fields.
    pub fn of([sent_packets, sent_bytes, dropped_packets, dropped_bytes]: [u64; 4]) -> Self {
        Self { sent_packets, sent_bytes, dropped_packets, dropped_bytes }
    }

    /// The inverse of [`of`](Self::of).
    pub fn words(&self) -> [u64; 4] {
        let Self { sent_packets, sent_bytes, dropped_packets, dropped_bytes } = *self;
        [sent_packets, sent_bytes, dropped_packets, dropped_bytes]
    }
}

impl AddAssign for SlowPathCounters {
    fn add_assign(&mut self, other: Self) {
        let (own, other) = (self.words(), other.words());
        *self = Self::of(std::array::from_fn(|word| own[word] + other[word]));
    }
}

/// A program for a port's egress: loaded, and attached once one of its methods has done so.
pub struct SlowPath {
    // Declared first, so that the program is detached before it goes.
    link: Option<OwnedFd>,
    program: OwnedFd,
}

impl SlowPath {
    pub(crate) fn of(program: OwnedFd) -> Self {
        Self { link: None, program }
    }

    /// Attaches it to what leaves through `ifindex`, in front of other programs there. It stays
    /// until this handle is dropped, or the process ends.
    ///
    /// # Errors
    /// If the kernel refuses it, as it does before Linux 6.6.
    pub fn attach(&mut self, ifindex: u32) -> io::Result<()> {
        self.link = Some(attach_to_egress(self.program.as_fd(), ifindex)?);
        Ok(())
    }

    /// Replaces the program of another process, whose [`hold`](Self::hold) `link` is. Each packet
    /// passes one of them.
    ///
    /// # Errors
    /// If the kernel refuses; the other program stays then.
    pub fn take_over(&mut self, link: OwnedFd) -> io::Result<()> {
        replace(link.as_fd(), self.program.as_fd())?;
        self.link = Some(link);
        Ok(())
    }

    /// What it is attached by, to be passed on to another process.
    pub fn hold(&self) -> Option<BorrowedFd<'_>> {
        self.link.as_ref().map(AsFd::as_fd)
    }

    /// Takes the program off the port.
    pub fn detach(&mut self) {
        self.link = None;
    }

    /// The program, for test runs.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}
