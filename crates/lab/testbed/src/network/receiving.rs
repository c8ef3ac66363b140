//! A device whose received frames are handled by a thread, on a core of its own choosing.
//!
//! A `veth` handles them in a softirq, on the core that sent them, so that sender and forwarder
//! share one. A NIC interrupts another core. With *threaded NAPI* the kernel handles them in a
//! thread, which can be kept on a core and whose run time can be read; so can what it causes on
//! that core, such as the other device's reception. Where frames go up the stack instead, *receive
//! packet steering* (RPS) names the core ([`go_up_on`]).

use crate::cpu;
use crate::namespace::Namespace;
use crate::process;
use anyhow::{Context, Result, ensure};
use nix::sched::sched_setaffinity;
use nix::unistd::Pid;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// How long the kernel may take to start the threads.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a frame took in one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Frames that were taken in.
    pub(crate) frames: u64,
    /// Run time of the thread that receives.
    pub(crate) busy: Duration,
}

impl Sample {
    pub(crate) fn nanos(&self) -> f64 {
        self.busy.as_nanos() as f64 / self.frames as f64
    }
}

/// A device that is served by threads; by softirqs again when dropped.
#[derive(Debug)]
pub struct Threaded<'a> {
    namespace: &'a Namespace,
    device: &'static str,
    threads: Vec<u32>,
}

impl<'a> Threaded<'a> {
    /// Lets threads on `cores` serve `device`, one for each of its `queues`, the first on the
    /// first. GRO goes on: a `veth` has no NAPI without it, and no NIC's driver is without it,
    /// either.
    pub fn start(
        namespace: &'a Namespace,
        device: &'static str,
        queues: u32,
        cores: &[usize],
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
        threaded.threads.sort_unstable();
        for (thread, &core) in threaded.threads.iter().zip(cores.iter().cycle()) {
            let pid = Pid::from_raw(i32::try_from(*thread)?);
            sched_setaffinity(pid, &cpu::only(core)?)
                .with_context(|| format!("cannot keep a NAPI thread on core {core}"))?;
        }
        Ok(threaded)
    }

    /// Puts the threads before all others of their core, as an interrupt would be.
    pub fn put_first(&self) -> Result<()> {
        for thread in &self.threads {
            let words = ["--fifo", "--pid", "1", &thread.to_string()];
            process::run(Command::new("chrt").args(words))?;
        }
        Ok(())
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

/// Has `core` handle what `device`, of one queue, receives from its driver on, from any sender. It
/// lasts as long as the device.
pub fn go_up_on(namespace: &Namespace, device: &str, core: usize) -> Result<()> {
    let path = format!("/sys/class/net/{device}/queues/rx-0/rps_cpus");
    namespace.run("sh", &["-c", r#"echo "$1" > "$0""#, &path, &mask_of(core)]).map(drop)
}

/// The set of one core as the kernel reads it: hexadecimal, a comma before every eight digits from
/// the right.
fn mask_of(core: usize) -> String {
    format!("{:x}{}", 1_u32 << (core % 32), ",00000000".repeat(core / 32))
}

/// The NAPI threads of all devices called `device`, in any namespace.
fn threads(device: &str) -> Vec<u32> {
    let name = format!("napi/{device}-");
    let is_one = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.starts_with(&name))
    };
    cpu::processes().filter(is_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_written_as_the_kernel_reads_it() {
        assert_eq!(mask_of(0), "1");
        assert_eq!(mask_of(5), "20");
        assert_eq!(mask_of(33), "2,00000000");
    }
}
