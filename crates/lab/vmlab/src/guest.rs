//! The guest: this program is the first process. It boots like a stock machine, runs the checks of
//! its cell, reports their results, and switches the machine off.

mod bed;
mod cake;
mod checks;
mod farm;
mod networks;
mod segment;
mod shaper;
mod traffic;
mod trunk;

use crate::architecture::Architecture;
use crate::cake::Rows;
use crate::root::{COMMAND, NARROWS};
use crate::verdict::{Check, Message, Outcome};
use anyhow::{Context, Result, ensure};
use narrows_testbed::process;
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The mounts, with their types.
const MOUNTS: [(&str, &str); 8] = [
    ("/proc", "proc"),
    ("/sys", "sysfs"),
    ("/dev", "devtmpfs"),
    ("/run", "tmpfs"),
    ("/tmp", "tmpfs"),
    ("/sys/fs/bpf", "bpf"),
    ("/sys/fs/cgroup", "cgroup2"),
    ("/sys/kernel/debug", "debugfs"),
];

/// The result of a check that did not fail.
pub enum Verdict {
    /// It passed; what was observed.
    Passed(String),
    /// It does not apply here, and why.
    Skipped(String),
}

/// Runs the guest. Does not return: the machine switches off.
pub fn main() -> ! {
    if let Err(error) = boot().and_then(|wanted| run(&wanted)) {
        eprintln!("vmlab: {error:#}");
    }
    // Nothing persistent was written, so no sync is needed.
    let _ = reboot(RebootMode::RB_POWER_OFF);
    std::process::exit(1)
}

/// The host's request.
struct Wanted {
    /// The driver under the ports, or a task other than checks.
    task: String,
    /// The rows to measure.
    rows: Rows,
    /// The beginnings of the names of the checks to run, with `-` for spaces; all without any.
    checks: Vec<String>,
    /// Whether other machines run some of the checks.
    short: bool,
}

/// Mounts what every Linux has, and loads modules by the devices' aliases, as udev does. Returns
/// the host's request.
fn boot() -> Result<Wanted> {
    for (place, kind) in MOUNTS {
        let mounted = mount(Some(kind), place, Some(kind), MsFlags::empty(), None::<&str>);
        if matches!(kind, "proc" | "sysfs" | "devtmpfs" | "tmpfs") {
            mounted.with_context(|| format!("cannot mount {place}"))?;
        }
    }
    for bus in ["pci", "virtio"] {
        for alias in aliases(bus) {
            let _ = Command::new("modprobe").args(["-q", &alias]).status();
        }
    }
    let line = fs::read_to_string("/proc/cmdline").context("cannot read /proc/cmdline")?;
    let word = |name: &str| line.split_whitespace().find_map(|word| word.strip_prefix(name));
    for module in word("vmlab.load=").into_iter().flat_map(|modules| modules.split(',')) {
        load(module)?;
    }
    let task = word("vmlab.task=").context("the kernel was not told vmlab.task")?.to_owned();
    let rows = word("vmlab.rows=").map(Rows::named).transpose()?.unwrap_or_default();
    let checks = word("vmlab.checks=").into_iter().flat_map(|words| words.split(','));
    let checks = checks.map(str::to_owned).collect();
    let short = line.split_whitespace().any(|word| word == "vmlab.short");
    Ok(Wanted { task, rows, checks, short })
}

/// Loads a module with its dependencies.
fn load(module: &str) -> Result<()> {
    process::run(Command::new("modprobe").arg(module)).map(drop)
}

/// The aliases of the devices on a bus.
fn aliases(bus: &str) -> Vec<String> {
    let devices = fs::read_dir(format!("/sys/bus/{bus}/devices"));
    let paths = devices.into_iter().flatten().flatten().map(|entry| entry.path());
    paths
        .filter_map(|path| fs::read_to_string(path.join("modalias")).ok())
        .map(|alias| alias.trim().to_owned())
        .collect()
}

fn run(Wanted { task, rows, checks, short }: &Wanted) -> Result<()> {
    let [_, lines] = Architecture::OWN.serial_ports();
    let lines = File::options().write(true).open(Path::new("/dev").join(lines));
    let mut lines = lines.context("no second serial port")?;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    say(&mut lines, &Message::Hello(release.trim().to_owned()))?;
    match task.as_str() {
        "none" => {}
        _ if Path::new(COMMAND).exists() => command(&mut lines)?,
        crate::cake::NAME => cake::run(rows, |sample| say(&mut lines, &Message::Sample(sample)))?,
        driver => check(driver, checks, *short, &mut lines)?,
    }
    say(&mut lines, &Message::End)
}

/// Runs the command of Narrows that the host asked for, and passes on what it prints.
fn command(lines: &mut File) -> Result<()> {
    let words = fs::read_to_string(COMMAND)?;
    let mut narrows = Command::new(NARROWS);
    let narrows = narrows.args(words.lines()).stdout(Stdio::piped()).spawn()?;
    let output = narrows.wait_with_output()?;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        say(lines, &Message::Said(line.to_owned()))?;
    }
    ensure!(output.status.success(), "narrows ended with {}", output.status);
    Ok(())
}

/// Whether the name of a check begins with `word`, which has `-` for spaces.
fn begins(name: &str, word: &str) -> bool {
    name.replace(' ', "-").starts_with(word)
}

/// The words for the guest that ask for the checks whose names begin with `names`.
pub fn asked(names: &[String]) -> Result<Vec<String>> {
    let word = |name: &String| {
        let word = name.replace(' ', "-");
        let known = checks::names().any(|check| begins(check, &word));
        ensure!(known, "no check has a name that begins with {name}");
        Ok(word)
    };
    names.iter().map(word).collect()
}

fn check(driver: &str, only: &[String], short: bool, lines: &mut File) -> Result<()> {
    let mut lab = checks::Lab::up(driver)?;
    let wanted = |name: &str| match only {
        [] => checks::belongs_to(Architecture::OWN, name),
        only => only.iter().any(|word| begins(name, word)),
    };
    for (name, check) in checks::of(driver, short).filter(|(name, _)| wanted(name)) {
        let begin = Instant::now();
        let (outcome, note) = match check(&mut lab) {
            Ok(Verdict::Passed(note)) => (Outcome::Passed, note),
            Ok(Verdict::Skipped(note)) => (Outcome::Skipped, note),
            Err(error) => (Outcome::Failed, format!("{error:#}")),
        };
        if let Some(mode) = lab.mode.take() {
            say(lines, &Message::Mode(mode))?;
        }
        if outcome == Outcome::Failed {
            println!("== {name}: {note}\n{}", lab.words());
        }
        let seconds = begin.elapsed().as_secs_f64();
        let name = (*name).to_owned();
        say(lines, &Message::Check(Check { name, outcome, note, seconds }))?;
    }
    Ok(())
}

fn say(lines: &mut File, message: &Message) -> Result<()> {
    // One write per line, so that nothing comes in between.
    let text = format!("{}\n", serde_json::to_string(message)?);
    lines.write_all(text.as_bytes()).context("cannot write to the second serial port")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_asked_for_by_the_beginning_of_its_name() {
        let asked = |word: &str| asked(&[word.to_owned()]);
        assert_eq!(asked("xdp kill").unwrap(), ["xdp-kill"]);
        assert!(begins("xdp kill -9", "xdp-kill") && !begins("kill -9", "xdp-kill"));
        let error = asked("kill it").unwrap_err().to_string();
        assert!(error.contains("kill it"), "{error}");
    }
}
