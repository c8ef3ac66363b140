//! A hanging thread: stopped from outside, alone, until it is released.
//!
//! A signal stops a whole process. `ptrace` stops a single thread, anywhere, and needs to know
//! nothing about it. So the program under test needs no special mode.

use anyhow::{Context, Result};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::fs;
use std::marker::PhantomData;

/// A thread that is stopped until this is dropped.
#[derive(Debug)]
pub struct HungThread {
    id: Pid,
    /// Only the thread that stopped it can let it go.
    _here: PhantomData<*const ()>,
}

impl HungThread {
    /// Stops the thread called `name` of the process `process`.
    pub fn stop(process: u32, name: &str) -> Result<Self> {
        let id = find(process, name)?;
        ptrace::seize(id, ptrace::Options::empty())
            .with_context(|| format!("cannot trace thread {name} of process {process}"))?;
        // From here on it is released when this is dropped.
        let hung = Self { id, _here: PhantomData };
        ptrace::interrupt(id)?;
        waitpid(id, Some(WaitPidFlag::__WALL))?;
        Ok(hung)
    }
}

impl HungThread {
    /// Waits until its process has ended, without changing that: a process is not gone before the
    /// tracer of one of its threads has noticed.
    pub fn die(self) -> Result<()> {
        waitpid(self.id, Some(WaitPidFlag::__WALL))?;
        Ok(())
    }
}

impl Drop for HungThread {
    fn drop(&mut self) {
        // It may have been killed meanwhile.
        let _ = ptrace::detach(self.id, None);
    }
}

fn find(process: u32, name: &str) -> Result<Pid> {
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        let task = task?;
        // A thread may end while others are read.
        let comm = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if comm.trim_end() == name {
            let id = task.file_name().to_string_lossy().parse()?;
            return Ok(Pid::from_raw(id));
        }
    }
    anyhow::bail!("process {process} has no thread called {name}")
}
