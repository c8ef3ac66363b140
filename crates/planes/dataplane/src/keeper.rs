//! The process that keeps this one: a [supervisor](crate::supervisor), which has started it.
//!
//! Without its keeper this process ends, as after SIGTERM: nothing shapes that nobody would start
//! again or end. The keeper is watched through a descriptor of its process. Another process of the
//! same instance that takes over ([`upgrade`](crate::upgrade)) watches it in the same way; the
//! kernel's signal at a parent's end (`PR_SET_PDEATHSIG`) would come to that one when the process
//! ends from which it took over, and say nothing of the keeper before it is its child.
//!
//! Source: pidfd_open(2).

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The process that keeps this one.
pub(crate) struct Keeper {
    process: OwnedFd,
    id: Pid,
}

impl Keeper {
    /// The process `id`.
    ///
    /// # Errors
    /// If it has ended.
    pub(crate) fn watch(id: Pid) -> io::Result<Self> {
        Ok(Self { process: pidfd_open(id, PidfdFlags::empty())?, id })
    }

    /// Its id.
    pub(crate) fn id(&self) -> Pid {
        self.id
    }

    /// Readable once it has ended.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        let mut polled = [PollFd::new(&self.process, PollFlags::IN)];
        matches!(poll(&mut polled, Some(&Timespec::default())), Ok(1..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_xsk::wait_readable;
    use std::process::{Command, Stdio};

    #[test]
    fn the_end_of_the_keeper_is_seen_whoever_its_parent_is() {
        let mut sleeper = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let keeper = Keeper::watch(Pid::from_child(&sleeper)).unwrap();
        assert!(!keeper.has_ended());
        drop(sleeper.stdin.take());
        wait_readable([(keeper.fd(), true)], Some(10_000_000_000)).unwrap();
        // Also before anybody has waited for it.
        assert!(keeper.has_ended());
        sleeper.wait().unwrap();
        assert!(Keeper::watch(keeper.id()).is_err());
    }
}
