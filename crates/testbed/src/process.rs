//! A child process that is ended by its own id, and not forgotten.

use anyhow::{Context, Result, bail};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use std::process::{Child, Command, ExitStatus, Output};
use std::thread;
use std::time::{Duration, Instant};

/// How often a waiting process is looked at.
const POLL: Duration = Duration::from_millis(5);
/// How long a process may take to end after it was asked, before it is killed.
pub const GRACE: Duration = Duration::from_secs(2);

/// Runs `command` to its end and returns what it printed; its error where it failed.
pub fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{} failed ({}): {}", shown(command), output.status, complaint(&output));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

fn complaint(output: &Output) -> String {
    let said = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
    String::from_utf8_lossy(said).trim().to_owned()
}

/// A running child; stopped when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts `command`.
    pub fn start(command: &mut Command) -> Result<Self> {
        let child = command.spawn().with_context(|| format!("cannot start {}", shown(command)))?;
        Ok(Self { child })
    }

    /// Its process id. A command that was started in a namespace has this id itself:
    /// `ip netns exec` becomes the command.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The child itself, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends it `signal`. Does nothing to a process that has ended and was waited for.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        let pid = Pid::from_raw(i32::try_from(self.child.id())?);
        signal::kill(pid, signal).with_context(|| format!("cannot send {signal} to {pid}"))
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until it ends, at most `limit`; `None` where it still runs then.
    pub fn wait(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            thread::sleep(POLL);
        }
    }

    /// Asks it to end with `signal`, and kills it where it has not within [`GRACE`].
    pub fn stop(&mut self, signal: Signal) -> Result<ExitStatus> {
        self.signal(signal)?;
        if let Some(status) = self.wait(GRACE)? {
            return Ok(status);
        }
        self.child.kill()?;
        Ok(self.child.wait()?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Nothing can be done about a process that will not be stopped, and the
        // namespace's guard tries once more.
        let _ = self.stop(Signal::SIGTERM);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_command_says_what_it_printed() {
        let error = run(Command::new("sh").args(["-c", "echo no such thing >&2; exit 3"]));
        let text = error.unwrap_err().to_string();
        assert!(text.contains("no such thing") && text.contains('3'), "{text}");
    }

    #[test]
    fn a_dropped_process_is_gone() {
        let process = Process::start(Command::new("sleep").arg("60")).unwrap();
        let id = process.id();
        drop(process);
        assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
    }

    #[test]
    fn waiting_gives_up_at_its_limit() {
        let mut process = Process::start(Command::new("sleep").arg("60")).unwrap();
        assert!(process.wait(Duration::from_millis(20)).unwrap().is_none());
        assert!(process.is_running());
    }
}
