//! Starts the process of a target: this program again, as an instance of its own.

use super::children::Processes;
use super::folder::Folder;
use super::policies::Policies;
use super::wanted::Target;
use narrows_control::place::file;
use rustix::process::{Pid, Signal, getpid, kill_process};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What all processes are started with.
pub(super) struct Starter {
    /// This program. Read at the start: a binary that is replaced on disk no longer has a path.
    pub(super) program: PathBuf,
    pub(super) folder: Folder,
    pub(super) policies: Option<Policies>,
    /// The words of the patterns.
    pub(super) patterns: Vec<String>,
    /// The file of the first sets of each.
    pub(super) sets: Option<PathBuf>,
    /// The folder of their state files.
    pub(super) state: Option<PathBuf>,
}

impl Starter {
    /// Writes the policy of `target` where its process reads it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn write_policy(&self, target: &Target) -> io::Result<Option<PathBuf>> {
        let Some(policies) = &self.policies else { return Ok(None) };
        let path = self.folder.policy(target.ports());
        // The process may be reading it.
        let draft = path.with_extension("draft");
        fs::write(&draft, policies.part(target, &self.patterns))?;
        fs::rename(draft, &path)?;
        Ok(Some(path))
    }
}

impl Processes for Starter {
    fn start(&mut self, target: &Target) -> io::Result<Pid> {
        let mut command = Command::new(&self.program);
        command.args(["run", "--plane", "host"]);
        command.arg(format!("--ports={}", target.label()));
        command.arg(format!("--kept-by={}", getpid()));
        if let Some(policy) = self.write_policy(target)? {
            command.arg("--batch").arg(policy);
        }
        if let Some(sets) = &self.sets {
            command.arg("--sets").arg(sets);
        }
        if let Some(state) = &self.state {
            command.arg("--state").arg(file(state, target.ports(), "tc"));
        }
        let child = command
            .env("NOTIFY_SOCKET", self.folder.socket())
            // This process has the service's watchdog.
            .env_remove("WATCHDOG_USEC")
            .env_remove("WATCHDOG_PID")
            .stdin(Stdio::null())
            // What it says there is for a person who has started it.
            .stdout(Stdio::null())
            // Ctrl-C is for the supervisor, which ends it.
            .process_group(0)
            .spawn()?;
        log::info!("{}: process {} starts", narrows_escape::line(&target.label()), child.id());
        Ok(Pid::from_child(&child))
    }

    fn signal(&mut self, process: Pid, signal: Signal) {
        // It may have ended, and has not been waited for.
        let _ = kill_process(process, signal);
    }

    fn forget(&mut self, target: &Target) {
        let _ = fs::remove_file(self.folder.policy(target.ports()));
    }
}
