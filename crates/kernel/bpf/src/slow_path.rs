//! Programs for what the kernel itself sends through a port: its own packets, and those that it
//! forwards because no program in a driver does.
//!
//! They are attached at tcx egress, through a link that dies with the process, or before Linux 6.6
//! [by a filter](crate::egress) that does nothing then. AF_XDP and redirects at XDP do not pass
//! that hook; redirects at tcx do, and are [marked](crate::Router::sealed).

use crate::egress::AtEgress;
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
    attached: Option<AtEgress>,
    program: OwnedFd,
}

impl SlowPath {
    pub(crate) fn of(program: OwnedFd) -> Self {
        Self { attached: None, program }
    }

    /// Attaches it to what leaves through `ifindex`, in front of other programs there. It sees
    /// packets until this handle is dropped, or the process ends. Before Linux 6.6 a filter that
    /// does nothing stays then, unless it was [detached](Self::detach).
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn attach(&mut self, ifindex: u32) -> io::Result<()> {
        self.attached = Some(AtEgress::attach(self.program.as_fd(), ifindex)?);
        Ok(())
    }

    /// Replaces the program of another process at `ifindex`, whose [`hold`](Self::hold) is given.
    /// Each packet passes one of them.
    ///
    /// # Errors
    /// If the kernel refuses; the other program stays then.
    pub fn take_over(&mut self, hold: OwnedFd, ifindex: u32) -> io::Result<()> {
        self.attached = Some(AtEgress::take_over(hold, self.program.as_fd(), ifindex)?);
        Ok(())
    }

    /// What it is attached by, to be passed on to another process.
    pub fn hold(&self) -> Option<BorrowedFd<'_>> {
        self.attached.as_ref().map(AsFd::as_fd)
    }

    /// Takes the program off the port.
    pub fn detach(&mut self) {
        if let Some(attached) = self.attached.take() {
            attached.detach();
        }
    }

    /// The program, for test runs.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}
