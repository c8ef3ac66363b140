//! Programs that take every core, as a build does.

use crate::cpu;
use crate::namespace::Namespace;
use anyhow::{Context, Result};
use std::process::{Child, Stdio};

/// How many there are on each core.
const PER_CORE: usize = 2;

/// Running hogs; stopped when dropped.
#[derive(Debug)]
pub struct Hogs {
    processes: Vec<Child>,
}

impl Hogs {
    /// Starts two for each core, in `namespace`, whose guard stops them if this process cannot.
    /// Each has a session of its own, as programs have that somebody else started: where the kernel
    /// groups threads by session, priorities between them do not count.
    pub fn start(namespace: &Namespace) -> Result<Self> {
        let mut hogs = Self { processes: Vec::new() };
        for _ in 0..cpu::online()? * PER_CORE {
            let mut command = namespace.command("setsid");
            command.args(["sh", "-c", "while :; do :; done"]).stdin(Stdio::null());
            // Not the leader of a process group, or `setsid` would start another process.
            hogs.processes.push(command.spawn().context("cannot start an endless loop")?);
        }
        Ok(hogs)
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // It runs until it is killed.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
