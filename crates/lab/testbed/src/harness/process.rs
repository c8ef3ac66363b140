//! A child process that is ended by its own id and always waited for.

mod adopted;

use adopted::Adopted;
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How often a waiting process is checked.
const POLL: Duration = Duration::from_millis(5);
/// How long a process may take to end after it was asked, before it is killed.
pub const GRACE: Duration = Duration::from_secs(2);

/// Runs `command` to its end and returns its output; its error if it failed.
pub fn run(command: &mut Command) -> Result<String> {
    let output =
        out_of_reach(command).output().with_context(|| format!("cannot start {command:?}"))?;
    printed(command, &output)
}

/// Runs `command` as [`run`] does, with `input` as its standard input.
pub fn run_with(command: &mut Command, input: &str) -> Result<String> {
    let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        out_of_reach(streams).spawn().with_context(|| format!("cannot start {command:?}"))?;
    let stdin = child.stdin.take();
    // In a thread: what it prints meanwhile must be read, too.
    let output = thread::scope(|scope| {
        // One that ends before it has read all says itself why.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
        child.wait_with_output()
    })?;
    printed(command, &output)
}

fn printed(command: &Command, output: &Output) -> Result<String> {
    if !output.status.success() {
        bail!("{} failed ({}): {}", shown(command), output.status, complaint(output));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// In a process group of its own, where the terminal's keys do not [reach](crate::interrupt) it.
fn out_of_reach(command: &mut Command) -> &mut Command {
    command.process_group(0)
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
pub struct Process(Handle);

#[derive(Debug)]
enum Handle {
    Child(Child),
    Adopted(Adopted),
}

impl Process {
    /// Starts `command`.
    pub fn start(command: &mut Command) -> Result<Self> {
        let child = out_of_reach(command)
            .spawn()
            .with_context(|| format!("cannot start {}", shown(command)))?;
        Ok(Self(Handle::Child(child)))
    }

    /// Runs `replace`, which makes this process start a new one and end, and returns the new one's
    /// id. From then on, this is the new process.
    pub fn be_replaced(&mut self, replace: impl FnOnce() -> Result<u32>) -> Result<()> {
        adopted::ask_for_orphans()?;
        let new_id = replace()?;
        let ended = self.wait(GRACE)?;
        ensure!(
            ended.is_some(),
            "process {} does not end after {new_id} took its place",
            self.id()
        );
        self.0 = Handle::Adopted(Adopted::new(new_id)?);
        Ok(())
    }

    /// Its process id. A command that was started in a namespace has this id itself:
    /// `ip netns exec` becomes the command.
    pub fn id(&self) -> u32 {
        match &self.0 {
            Handle::Child(child) => child.id(),
            Handle::Adopted(adopted) => adopted.id(),
        }
    }

    /// The pipe of its standard output, once, if it was started with one.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        match &mut self.0 {
            Handle::Child(child) => child.stdout.take(),
            Handle::Adopted(_) => None,
        }
    }

    /// The pipe of its standard error, once, if it was started with one.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        match &mut self.0 {
            Handle::Child(child) => child.stderr.take(),
            Handle::Adopted(_) => None,
        }
    }

    fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        match &mut self.0 {
            Handle::Child(child) => Ok(child.try_wait()?),
            Handle::Adopted(adopted) => adopted.try_wait(),
        }
    }

    /// Sends it `signal`. Does nothing to a process that has ended and was waited for.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        if self.try_wait()?.is_some() {
            return Ok(());
        }
        let pid = Pid::from_raw(i32::try_from(self.id())?);
        signal::kill(pid, signal).with_context(|| format!("cannot send {signal} to {pid}"))
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.try_wait(), Ok(None))
    }

    /// Waits until it ends, at most `limit`; `None` if it still runs then.
    pub fn wait(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            thread::sleep(POLL);
        }
    }

    /// Asks it to end with `signal`, and kills it if it has not ended within [`GRACE`].
    pub fn stop(&mut self, signal: Signal) -> Result<ExitStatus> {
        self.signal(signal)?;
        if let Some(status) = self.wait(GRACE)? {
            return Ok(status);
        }
        self.signal(Signal::SIGKILL)?;
        loop {
            if let Some(status) = self.wait(GRACE)? {
                return Ok(status);
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A process that cannot be stopped is ignored here; the namespace's guard tries again.
        let _ = self.stop(Signal::SIGTERM);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;

    #[test]
    fn a_failing_command_shows_its_output() {
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

    /// A shell that starts a second process and ends, and the id of the second.
    fn replaced(by: &str) -> (Process, u32) {
        let script = format!("{by} & echo $!");
        // Before the shell ends, which may be before it is waited for.
        adopted::ask_for_orphans().unwrap();
        let mut shell = Command::new("sh");
        let mut shell = Process::start(shell.args(["-c", &script]).stdout(Stdio::piped())).unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(shell.stdout().unwrap());
        shell
            .be_replaced(|| {
                stdout.read_line(&mut line)?;
                Ok(line.trim().parse()?)
            })
            .unwrap();
        (shell, line.trim().parse().unwrap())
    }

    #[test]
    fn a_replaced_process_is_followed_to_the_new_one() {
        let (mut process, new_id) = replaced("sleep 60");
        assert_eq!((process.id(), process.is_running()), (new_id, true));
        let status = process.stop(Signal::SIGKILL).unwrap();
        assert_eq!(status.signal(), Some(Signal::SIGKILL as i32));
        assert!(!process.is_running());
    }

    #[test]
    fn a_new_process_s_exit_status_is_known() {
        let (mut process, _) = replaced("(sleep 0.1; exit 7)");
        assert_eq!(process.wait(GRACE).unwrap().unwrap().code(), Some(7));
        assert_eq!(process.wait(GRACE).unwrap().unwrap().code(), Some(7));
    }

    #[test]
    fn a_new_process_ends_when_it_is_dropped() {
        let (process, new_id) = replaced("sleep 60");
        drop(process);
        assert!(!std::path::Path::new(&format!("/proc/{new_id}")).exists());
    }

    #[test]
    fn an_unrelated_process_is_not_followed() {
        let mut process = Process::start(Command::new("true").stdin(Stdio::null())).unwrap();
        assert!(process.be_replaced(|| Ok(1)).is_err());
    }

    #[test]
    fn waiting_gives_up_at_its_limit() {
        let mut process = Process::start(Command::new("sleep").arg("60")).unwrap();
        assert!(process.wait(Duration::from_millis(20)).unwrap().is_none());
        assert!(process.is_running());
    }
}
