//! Narrows in the shaper's namespace, run as users run it.
//!
//! Its control socket belongs to the network namespace, so `narrows tc` in the shaper's namespace
//! reaches this instance and no other.

use crate::bed::{PORT_A, PORT_B, Testbed};
use crate::collect::Collector;
use crate::cpu;
use crate::hang::HungThread;
use crate::namespace::Namespace;
use crate::process::{self, Process};
use anyhow::{Context, Result, bail};
use narrows_snapshot::Snapshot;
use nix::sys::signal::Signal;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long it may take until both ports forward.
const START: Duration = Duration::from_secs(10);

/// How long it may hold packets that do not come any more, and how often that is looked for.
const REST: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(5);

/// How often an upgrade that takes too long is tried: a busy machine may keep the new process from
/// its core for longer than the old one may wait.
const UPGRADES: usize = 5;

/// A running instance; stopped when dropped.
#[derive(Debug)]
pub struct Instance {
    program: PathBuf,
    namespace: Namespace,
    process: Process,
    log: Collector,
}

impl Instance {
    /// Starts `narrows run` over the two ports of `bed` with `arguments` added, and waits
    /// until it says that it is ready.
    pub fn start(bed: &Testbed, program: &Path, arguments: &[&str]) -> Result<Self> {
        let ports = format!("{PORT_A},{PORT_B}");
        let run = ["run", "--ports", &ports].iter().chain(arguments).copied().collect::<Vec<_>>();
        Self::start_command(bed, program, &run)
    }

    /// Starts any forwarder that prints the line `ready` and forwards until it is asked to end: the
    /// program with all of its arguments.
    pub fn start_command(bed: &Testbed, program: &Path, arguments: &[&str]) -> Result<Self> {
        Self::start_in(bed.shaper(), program, arguments)
    }

    /// Starts any forwarder as [`Self::start_command`] does, in any namespace.
    pub fn start_in(namespace: &Namespace, program: &Path, arguments: &[&str]) -> Result<Self> {
        let namespace = namespace.clone();
        let mut command = namespace.command(program);
        command.args(arguments).stdin(Stdio::null());
        let log = Collector::over_both(&mut command)?;
        let process = Process::start(&mut command)?;
        // With it goes our copy of the log's writing end, so that the log ends.
        drop(command);
        let mut instance = Self { program: program.to_owned(), namespace, process, log };
        if !instance.log.wait_until(says_ready, START) {
            let how = if instance.process.is_running() { "is not ready" } else { "has ended" };
            let shown = arguments.join(" ");
            bail!("{} {shown} {how}:\n{}", program.display(), instance.log.text());
        }
        Ok(instance)
    }

    /// Runs `narrows tc` with `words` against it, and returns what it printed.
    pub fn tc(&self, words: &str) -> Result<String> {
        process::run(self.command("tc").args(words.split_whitespace()))
    }

    /// Runs `narrows tc -batch` over `lines`.
    pub fn tc_batch(&self, lines: &str) -> Result<()> {
        process::run_with(self.command("tc").args(["-batch", "-"]), lines).map(drop)
    }

    /// Runs `narrows reconfigure` with a command in a shell's words.
    pub fn reconfigure(&self, command: &str) -> Result<()> {
        process::run(self.command("reconfigure").args(["--", "sh", "-c", command])).map(drop)
    }

    /// Lets another process with the same program take over, by `narrows upgrade`. From then on,
    /// this is that process.
    pub fn upgrade(&mut self) -> Result<()> {
        let mut upgrade = self.command("upgrade");
        upgrade.arg("--json");
        self.process.be_replaced(|| new_process(&mut upgrade))
    }

    /// The output of `narrows show --json`.
    pub fn show(&self) -> Result<Snapshot> {
        let text = process::run(self.command("show").arg("--json"))?;
        serde_json::from_str(&text)
            .with_context(|| format!("narrows show --json does not list its ports: {text}"))
    }

    /// Waits until it holds no packet, but not for long. Returns how many are missing in its
    /// balance then.
    pub fn wait_for_rest(&self) -> Result<i64> {
        let deadline = Instant::now() + REST;
        loop {
            let show = self.show()?;
            if show.is_at_rest() || Instant::now() >= deadline {
                return Ok(show.conservation.unaccounted);
            }
            sleep(LOOK);
        }
    }

    /// A subcommand of the program, to run in its namespace.
    pub fn command(&self, subcommand: &str) -> Command {
        let mut command = self.namespace.command(&self.program);
        command.arg(subcommand);
        command
    }

    /// Time that its threads have run for.
    pub fn cpu(&self) -> Result<Duration> {
        cpu::of_process(self.process.id())
    }

    /// Its output so far.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends it `signal`.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// Stops all of its threads where they are.
    pub fn freeze(&mut self) -> Result<()> {
        self.process.signal(Signal::SIGSTOP)
    }

    /// Lets them go on.
    pub fn thaw(&mut self) -> Result<()> {
        self.process.signal(Signal::SIGCONT)
    }

    /// Stops the thread that serves the worker of `queue` now, and all other workers of that
    /// thread, until the returned guard is dropped.
    pub fn hang(&self, queue: u32) -> Result<HungThread> {
        let show = self.show()?;
        let worker = show.workers.iter().find(|worker| worker.queue == queue);
        let thread = worker.with_context(|| format!("there is no worker {queue}"))?.thread;
        HungThread::stop(self.process.id(), &format!("nrw-q{thread}"))
    }

    /// Kills it as `kill -9` does, and waits until it is gone.
    pub fn kill(mut self) -> Result<ExitStatus> {
        self.process.stop(Signal::SIGKILL)
    }

    /// Asks it to end. Returns how it did and all that it printed.
    pub fn stop(mut self) -> Result<(ExitStatus, String)> {
        let status = self.process.stop(Signal::SIGTERM)?;
        Ok((status, self.log.finish()))
    }
}

/// What `narrows upgrade --json` says of an instance.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Upgraded {
    Done { pid: u32 },
    Failed { reason: String },
}

/// Runs `upgrade` until another process has taken over, and returns its id.
fn new_process(upgrade: &mut Command) -> Result<u32> {
    for _ in 0..UPGRADES {
        let output = upgrade.output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let complaint = || format!("narrows upgrade: {}", String::from_utf8_lossy(&output.stderr));
        let [outcome]: [Upgraded; 1] = serde_json::from_str(&said).with_context(complaint)?;
        match outcome {
            Upgraded::Done { pid } => return Ok(pid),
            Upgraded::Failed { reason } if reason.contains("took too long") => {}
            Upgraded::Failed { reason } => bail!("not upgraded: {reason}"),
        }
    }
    bail!("not upgraded: {UPGRADES} times in a row a worker or the new process took too long")
}

fn says_ready(log: &[u8]) -> bool {
    log.split(|byte| *byte == b'\n').any(|line| line.trim_ascii() == b"ready")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_a_line_of_its_own() {
        assert!(says_ready(b"port-a: native\nready\n"));
        assert!(says_ready(b"ready"));
        assert!(!says_ready(b"not ready\nalready\n"));
    }
}
