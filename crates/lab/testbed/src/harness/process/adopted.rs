//! A process that a child of this process started, and that outlives the child.
//!
//! The kernel makes an orphan the child of the nearest ancestor that has asked for orphans. So this
//! process asks, and can wait for such a process and learn how it ended, as for its own children.

use anyhow::{Context, Result};
use nix::sys::prctl;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Makes this process adopt the orphans of its children from now on.
pub(super) fn ask_for_orphans() -> Result<()> {
    prctl::set_child_subreaper(true).context("cannot ask the kernel for orphans")
}

/// An orphan that the kernel made a child of this process, which can therefore wait for it.
#[derive(Debug)]
pub(super) struct Adopted {
    pid: Pid,
    /// How it ended, once it was waited for: the kernel says it once.
    status: Option<ExitStatus>,
}

impl Adopted {
    /// The process `pid`, whose parent has ended.
    pub(super) fn new(pid: u32) -> Result<Self> {
        let mut adopted = Self { pid: Pid::from_raw(i32::try_from(pid)?), status: None };
        adopted.try_wait().with_context(|| format!("process {pid} has another parent"))?;
        Ok(adopted)
    }

    pub(super) fn id(&self) -> u32 {
        self.pid.as_raw().unsigned_abs()
    }

    /// How it ended; `None` while it runs.
    pub(super) fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = match waitpid(self.pid, Some(WaitPidFlag::WNOHANG))? {
                WaitStatus::Exited(_, code) => Some(ExitStatus::from_raw(code << 8)),
                WaitStatus::Signaled(_, signal, _) => Some(ExitStatus::from_raw(signal as i32)),
                _ => None,
            };
        }
        Ok(self.status)
    }
}
