//! One network namespace: commands and threads in it.

use crate::process::{self, Process};
use anyhow::{Context, Result};
use nix::ifaddrs::getifaddrs;
use nix::sched::{CloneFlags, setns};
use std::ffi::OsStr;
use std::fs::File;
use std::panic::resume_unwind;
use std::process::Command;
use std::thread;

/// Where `ip netns` keeps the names.
pub(crate) const DIRECTORY: &str = "/run/netns";

/// A named network namespace. It does not remove itself: the [guard](crate::guard) does.
#[derive(Clone, Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes it.
    pub fn create(name: &str) -> Result<Self> {
        process::run(Command::new("ip").args(["netns", "add", name]))?;
        Ok(Self { name: name.to_owned() })
    }

    /// Its name, as `ip netns exec` takes it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that will run inside, with a `/sys` of its own.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Runs a program inside to its end and returns what it printed.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        process::run(self.command(program).args(arguments))
    }

    /// Starts a program inside.
    pub fn start(&self, program: &str, arguments: &[&str]) -> Result<Process> {
        Process::start(self.command(program).args(arguments))
    }

    /// Runs `work` on a thread of its own inside. Sockets that it opens stay in this
    /// namespace wherever they are used later, and so do files under
    /// `/proc/thread-self/net`.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let path = format!("{DIRECTORY}/{}", self.name);
        thread::scope(|scope| {
            let inside = scope.spawn(move || {
                let namespace = File::open(&path).with_context(|| format!("cannot open {path}"))?;
                setns(namespace, CloneFlags::CLONE_NEWNET)
                    .with_context(|| format!("cannot enter {path}"))?;
                work()
            });
            inside.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// The MAC address of `device` inside.
    pub fn mac_address(&self, device: &str) -> Result<[u8; 6]> {
        self.enter(|| mac_address(device))
    }

    /// Sets a network setting of this namespace, as `sysctl -w net.NAME=VALUE` does.
    pub fn set(&self, setting: &str, value: &str) -> Result<()> {
        let path = format!("/proc/sys/net/{}", setting.replace('.', "/"));
        self.enter(|| {
            std::fs::write(&path, value).with_context(|| format!("cannot write {value} to {path}"))
        })
    }
}

/// The MAC address of `device` in this thread's namespace.
pub fn mac_address(device: &str) -> Result<[u8; 6]> {
    getifaddrs()?
        .filter(|entry| entry.interface_name == device)
        .find_map(|entry| entry.address?.as_link_addr()?.addr())
        .with_context(|| format!("{device} is no device, or has no MAC address"))
}
