//! The run time of threads, from the scheduler.
//!
//! It is exact to the nanosecond. The kernel charges work in a softirq to the thread that it
//! interrupted, usually the one that caused it: a sender also pays for its packets' processing. The
//! kernel's `ksoftirqd` threads do the rest. Their sum is the whole cost of traffic, whatever else
//! the machine does.

use anyhow::{Context, Result, ensure};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::fs;
use std::time::Duration;

/// The priority of Narrows' workers.
const WORKER_NICE: i32 = -20;

/// The run time of all threads of process `pid`, except those that have ended.
pub fn of_process(pid: u32) -> Result<Duration> {
    let tasks = format!("/proc/{pid}/task");
    let mut total = Duration::ZERO;
    for task in fs::read_dir(&tasks).with_context(|| format!("no process {pid}"))? {
        // A thread may end between being listed and being read.
        if let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) {
            total += parse_schedstat(&text).context("unknown format of schedstat")?;
        }
    }
    Ok(total)
}

/// The run time of one thread of this process.
pub fn of_thread(thread: Pid) -> Result<Duration> {
    let path = format!("/proc/self/task/{thread}/schedstat");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    parse_schedstat(&text).context("unknown format of schedstat")
}

/// The kernel's `ksoftirqd` threads, one for each core. None if the machine's processes are not
/// visible, as in a container.
pub fn softirq_threads() -> Vec<u32> {
    let is_one = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|name| name.starts_with("ksoftirqd/"))
    };
    processes().filter(is_one).collect()
}

/// All processes and kernel threads that are visible, by their ids.
pub(crate) fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Activity of the whole machine since it was started, from `/proc/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineTime {
    /// Idle time of all cores together, in hundredths of a second.
    pub idle: Duration,
    /// Context switches.
    pub switches: u64,
}

impl MachineTime {
    /// Up to now.
    pub fn now() -> Result<Self> {
        Self::parse(&stat()?).context("unknown format of /proc/stat")
    }

    fn parse(text: &str) -> Option<Self> {
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        // user nice system idle iowait ...
        let mut ticks = value("cpu ")?.split_ascii_whitespace().skip(3);
        let (idle, waiting): (u64, u64) =
            (ticks.next()?.parse().ok()?, ticks.next()?.parse().ok()?);
        let switches = value("ctxt ")?.trim().parse().ok()?;
        Some(Self { idle: Duration::from_millis(10 * (idle + waiting)), switches })
    }
}

/// How many cores the machine has in use, for any process.
pub fn online() -> Result<usize> {
    let is_core = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    Ok(stat()?.lines().filter(is_core).count())
}

fn stat() -> Result<String> {
    fs::read_to_string("/proc/stat").context("cannot read /proc/stat")
}

/// How many cores this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The cores that this process may use, by their numbers: at least one.
pub fn usable_cores() -> Result<Vec<usize>> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).context("cannot read the affinity")?;
    let is_set = |core: &usize| allowed.is_set(*core).unwrap_or(false);
    let cores: Vec<usize> = (0..CpuSet::count()).filter(is_set).collect();
    ensure!(!cores.is_empty(), "this process may use no core");
    Ok(cores)
}

/// The first and the last of the cores that this process may use, by their numbers.
pub fn outer_cores() -> Result<[usize; 2]> {
    let cores = usable_cores()?;
    Ok([cores[0], cores[cores.len() - 1]])
}

/// The last of the cores that this process may use, by its number.
pub fn last_core() -> Result<usize> {
    outer_cores().map(|[_, last]| last)
}

/// The set of one core.
pub(crate) fn only(core: usize) -> Result<CpuSet> {
    let mut cores = CpuSet::new();
    cores.set(core)?;
    Ok(cores)
}

/// Keeps the calling thread on `core`.
pub fn pin_this_thread(core: usize) -> Result<()> {
    sched_setaffinity(Pid::from_raw(0), &only(core)?)
        .with_context(|| format!("cannot keep a thread on core {core}"))
}

/// Gives the calling thread the priority of Narrows' workers, so that on a busy machine senders and
/// the program under test wait for their cores equally. It has to sleep often.
pub fn prefer_this_thread() -> Result<()> {
    // Where no thread may be real-time, workers are not either.
    let _ = narrows_cpu::schedule(narrows_cpu::Class::RealTime);
    // On Linux this affects only the calling thread.
    rustix::process::setpriority_process(None, WORKER_NICE)
        .context("cannot raise a thread's priority")
}

fn parse_schedstat(text: &str) -> Option<Duration> {
    text.split_ascii_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::gettid;

    #[test]
    fn the_first_number_of_schedstat_is_the_time_run() {
        assert_eq!(parse_schedstat("123456789 42 7\n"), Some(Duration::from_nanos(123_456_789)));
        assert_eq!(parse_schedstat(""), None);
    }

    #[test]
    fn idle_time_and_switches_are_those_of_all_cores() {
        let text = "cpu  10 20 30 4000 50 6 7 8 0 0\ncpu0 1 2 3 4 5\nctxt 12345\nbtime 1\n";
        let expected = MachineTime { idle: Duration::from_millis(40_500), switches: 12_345 };
        assert_eq!(MachineTime::parse(text), Some(expected));
        assert_eq!(MachineTime::parse("ctxt 1\n"), None);
        assert!(online().unwrap() >= cores());
    }

    #[test]
    fn this_process_and_its_threads_have_run_for_some_time() {
        let before = of_process(std::process::id()).unwrap();
        let mut sum = 0_u64;
        while of_thread(gettid()).unwrap() < Duration::from_millis(5) {
            sum = sum.wrapping_add(std::hint::black_box(1));
        }
        assert!(of_process(std::process::id()).unwrap() > before);
    }
}
