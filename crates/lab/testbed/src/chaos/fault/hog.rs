//! A busy real-time thread on one core: other threads there get what the kernel leaves over, 50 ms
//! of a second.

use super::{Fault, NOISE, PROMISED, Trace, millis};
use crate::chaos::rng::Rng;
use crate::chaos::sender::now;
use crate::chaos::world::World;
use crate::cpu;
use crate::process::Process;
use anyhow::Result;
use nix::sys::signal::Signal;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// Ends after 4 s of CPU time on its own, in case nothing ends it. A single process: a second one
/// of the same priority on that core would never run.
const SPIN: &str = "ulimit -t 4; while :; do :; done";

#[derive(Debug)]
pub(super) struct Hog {
    lasts: Duration,
}

impl Hog {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        Self { lasts: rng.millis(300..1500) }
    }
}

impl Fault for Hog {
    fn describe(&self) -> String {
        format!("a real-time thread on one core for {}", millis(self.lasts))
    }

    fn outage(&self) -> Option<Duration> {
        Some(PROMISED + NOISE)
    }

    fn strike(&self, world: &mut World<'_>) -> Result<Trace> {
        let began = now()?;
        let core = cpu::last_core()?.to_string();
        let mut hog = Command::new("chrt");
        hog.args(["--fifo", "10", "taskset", "--cpu-list", &core])
            .args(["sh", "-c", SPIN])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let mut hog = Process::start(&mut hog)?;
        thread::sleep(self.lasts);
        hog.stop(Signal::SIGKILL)?;
        // A worker that waits too long for its core is bypassed, unshaped, until it is back.
        Trace::passed_by_since(began, world.plane)
    }
}
