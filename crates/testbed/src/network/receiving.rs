//! A device whose received frames are handled by a thread, on a core of its own choosing.
//!
//! A `veth` handles them in a softirq, on the core that sent them, so that sender and forwarder
//! share one. A NIC interrupts another core. With *threaded NAPI* the kernel handles them in a
//! thread, which can be kept on a core and whose run time can be read; so can what it causes on
//! that core, such as the other device's reception.

use crate::cpu;
use crate::namespace::Namespace;
use anyhow::{Context, Result, ensure};
use nix::sched::sched_setaffinity;
use nix::unistd::Pid;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// How long the kernel may take to start the threads.
const PATIENCE: Duration = Duration::from_secs(2);

/// A device that is served by threads; by softirqs again when dropped.
#[derive(Debug)]
pub struct Threaded<'a> {
    namespace: &'a Namespace,
    device: &'static str,
    threads: Vec<u32>,
}

impl<'a> Threaded<'a> {
    /// Lets threads on `core` serve `device`, one for each of its `queues`. GRO goes on: a `veth`
    /// has no NAPI without it, and no NIC's driver is without it, either.
    pub fn start(
        namespace: &'a Namespace,
        device: &'static str,
        queues: u32,
        core: usize,
    ) -> Result<Self> {
        let others = threads(device);
        let mut threaded = Self { namespace, device, threads: Vec::new() };
        namespace.run("ethtool", &["-K", device, "gro", "on"])?;
        threaded.set(true)?;
        let deadline = Instant::now() + PATIENCE;
        while threaded.threads.len() < queues as usize {
            ensure!(Instant::now() < deadline, "the kernel has no NAPI threads for {device}");
            thread::sleep(PATIENCE / 100);
            threaded.threads = threads(device);
            threaded.threads.retain(|thread| !others.contains(thread));
        }
        for thread in &threaded.threads {
            let pid = Pid::from_raw(i32::try_from(*thread)?);
            sched_setaffinity(pid, &cpu::only(core)?)
                .with_context(|| format!("cannot keep a NAPI thread on core {core}"))?;
        }
        Ok(threaded)
    }

    /// The run time of the threads.
    pub fn cpu(&self) -> Result<Duration> {
        self.threads.iter().map(|thread| cpu::of_process(*thread)).sum()
    }

    fn set(&self, is_threaded: bool) -> Result<()> {
        let value = u8::from(is_threaded);
        let script = format!("echo {value} > /sys/class/net/{}/threaded", self.device);
        self.namespace.run("sh", &["-c", &script]).map(drop)
    }
}

impl Drop for Threaded<'_> {
    fn drop(&mut self) {
        // The namespace, if nothing else, takes all with it.
        let _ = self.set(false);
        let _ = self.namespace.run("ethtool", &["-K", self.device, "gro", "off"]);
    }
}

/// The NAPI threads of all devices called `device`, in any namespace.
fn threads(device: &str) -> Vec<u32> {
    let name = format!("napi/{device}-");
    let is_one = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.starts_with(&name))
    };
    cpu::processes().filter(is_one).collect()
}
