//! Narrows in the guest, run as users run it.

use super::bed::PORTS;
use crate::root::NARROWS;
use anyhow::{Context, Result, bail, ensure};
use narrows_testbed::collect::Collector;
use narrows_testbed::process::Process;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// How long it may take to be ready. The kernel verifies each program, which takes an emulated
/// processor most of a minute where there are two for each port.
const START: Duration = Duration::from_secs(120);
/// How long any of its commands may take.
const COMMAND: Duration = Duration::from_secs(60);
/// How long it may take to end.
const END: Duration = Duration::from_secs(10);

/// A running instance.
#[derive(Debug)]
pub struct Shaper {
    process: Process,
    log: Collector,
}

impl Shaper {
    /// Starts it, and waits until it is ready.
    pub fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// Starts it with more `options` than its ports, and waits until it is ready.
    pub fn start_with(options: &[&str]) -> Result<Self> {
        Self::run(&[&["--ports", &PORTS.join(",")], options].concat())
    }

    /// `narrows run ARGUMENTS`; waits until it is ready.
    pub fn run(arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(NARROWS);
        command.arg("run").args(arguments);
        let log = Collector::over_both(&mut command)?;
        let process = Process::start(&mut command)?;
        drop(command);
        let mut shaper = Self { process, log };
        let ready = |said: &[u8]| said.split(|byte| *byte == b'\n').any(|line| line == b"ready");
        let begin = Instant::now();
        while !shaper.log.look(ready) {
            if !shaper.process.is_running() {
                bail!("narrows run has ended: {}", shaper.log.text().trim());
            }
            if begin.elapsed() > START {
                bail!("narrows run is not ready: {}", shaper.log.text().trim());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(shaper)
    }

    /// Asks it to stop, and checks that it does so in time and without an error.
    pub fn stop(mut self) -> Result<()> {
        self.process.signal(Signal::SIGTERM)?;
        let Some(status) = self.process.wait(END)? else {
            bail!("narrows does not end when asked to: {}", self.log.text().trim());
        };
        ensure!(status.success(), "narrows ended with {status}: {}", self.log.text().trim());
        Ok(())
    }

    /// Kills it with `kill -9`.
    pub fn kill(mut self) -> Result<()> {
        self.process.signal(Signal::SIGKILL)?;
        self.process.wait(END)?.context("narrows outlived SIGKILL")?;
        Ok(())
    }

    /// Checks that it ends by itself, in time and without an error, as after an upgrade.
    pub fn ended(mut self) -> Result<()> {
        let Some(status) = self.process.wait(END)? else {
            bail!("narrows goes on after an upgrade: {}", self.log.text().trim());
        };
        ensure!(status.success(), "narrows ended with {status}: {}", self.log.text().trim());
        Ok(())
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// `/proc/PID/status` of its process.
    pub fn status(&self) -> Result<String> {
        let path = format!("/proc/{}/status", self.process.id());
        fs::read_to_string(&path).with_context(|| path.clone())
    }

    /// Its output.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// `narrows tc WORDS`; what it said.
    pub fn tc(&self, words: &str) -> Result<String> {
        narrows(&[&["tc"][..], &words.split_whitespace().collect::<Vec<_>>()].concat())
    }

    /// `narrows show --json`.
    pub fn show(&self) -> Result<Value> {
        let text = narrows(&["show", "--json"])?;
        serde_json::from_str(&text).with_context(|| format!("narrows show prints no JSON: {text}"))
    }

    /// Waits until `show` satisfies `holds`. While ports are joined, which an emulated processor
    /// takes up to 20 s for, nothing is shown.
    pub fn wait_until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Result<()> {
        let begin = Instant::now();
        loop {
            let show = match self.show() {
                Err(error) if format!("{error:#}").contains("has not answered") => Value::Null,
                show => show?,
            };
            if holds(&show) {
                return Ok(());
            }
            ensure!(begin.elapsed() < COMMAND, "narrows show never said {what}: {show}");
            thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Stops the process that took over in an upgrade. Its parent has ended, so it is a child of the
/// first process, which is this one.
pub fn end(new_process: i32) -> Result<()> {
    let new_process = Pid::from_raw(new_process);
    kill(new_process, Signal::SIGTERM).context("the process that took over does not run")?;
    let begin = Instant::now();
    loop {
        match waitpid(new_process, Some(WaitPidFlag::WNOHANG))? {
            WaitStatus::StillAlive => thread::sleep(Duration::from_millis(20)),
            WaitStatus::Exited(_, 0) => return Ok(()),
            other => bail!("the process that took over ended: {other:?}"),
        }
        ensure!(begin.elapsed() < END, "the process that took over does not end when asked to");
    }
}

/// Runs a command of Narrows to its end, in bounded time, and returns what it printed.
pub fn narrows(arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(NARROWS);
    command.args(arguments);
    bounded(command)
}

/// Runs `command` to its end, with a time limit.
pub fn bounded(mut command: Command) -> Result<String> {
    let shown = format!("{command:?}");
    let said = Collector::over_both(&mut command)?;
    let mut process = Process::start(&mut command)?;
    drop(command);
    let Some(status) = process.wait(COMMAND)? else {
        bail!("{shown} does not end: {}", said.text().trim());
    };
    let text = said.finish();
    ensure!(status.success(), "{shown} failed ({status}): {}", text.trim());
    Ok(text)
}
