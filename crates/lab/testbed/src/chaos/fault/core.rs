//! A core taken away: every thread of Narrows has to share one.

use super::{Fault, NOISE, Trace, millis};
use crate::chaos::rng::Rng;
use crate::chaos::world::World;
use crate::cpu;
use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::fs;
use std::thread;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Taken {
    lasts: Duration,
}

impl Taken {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        Self { lasts: rng.millis(300..1200) }
    }
}

impl Fault for Taken {
    fn describe(&self) -> String {
        format!("all threads on one core for {}", millis(self.lasts))
    }

    fn outage(&self) -> Option<Duration> {
        Some(NOISE)
    }

    fn strike(&self, world: &mut World<'_>) -> Result<Trace> {
        let mut one = CpuSet::new();
        one.set(cpu::last_core()?)?;
        let before = threads(world.instance()?.id())?
            .into_iter()
            .map(|thread| Ok((thread, sched_getaffinity(thread)?)))
            .collect::<Result<Vec<_>>>()?;
        for (thread, _) in &before {
            move_to(*thread, &one)?;
        }
        thread::sleep(self.lasts);
        for (thread, cores) in &before {
            move_to(*thread, cores)?;
        }
        Ok(Trace::default())
    }
}

/// The threads of a process.
fn threads(process: u32) -> Result<Vec<Pid>> {
    let tasks = format!("/proc/{process}/task");
    fs::read_dir(&tasks)
        .with_context(|| format!("cannot read {tasks}"))?
        .map(|entry| {
            let name = entry?.file_name();
            let id = name.to_str().and_then(|name| name.parse().ok());
            id.map(Pid::from_raw).context("a thread without a number")
        })
        .collect()
}

fn move_to(thread: Pid, cores: &CpuSet) -> Result<()> {
    match sched_setaffinity(thread, cores) {
        // It has ended meanwhile.
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(errno).with_context(|| format!("cannot move thread {thread}")),
    }
}
