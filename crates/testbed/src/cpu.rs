//! Time that cores spent, from the scheduler's books.
//!
//! A thread's time is exact to the nanosecond. Work that the kernel does in a softirq
//! on a thread's core is booked on the thread that it interrupted: a sender also pays
//! for what its packet sets off. The machine's time is what its cores did not idle
//! away, because idling is timed by the clock while all else is only sampled by the tick.

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use std::fs;
use std::time::{Duration, Instant};

/// Ticks per second in which `/proc/stat` counts, on every architecture that Linux has
/// had for twenty years (`USER_HZ`).
const TICKS_PER_SECOND: u64 = 100;

/// What all threads of process `pid` have run for, those that have ended left out.
pub fn of_process(pid: u32) -> Result<Duration> {
    let tasks = format!("/proc/{pid}/task");
    let mut total = Duration::ZERO;
    for task in fs::read_dir(&tasks).with_context(|| format!("no process {pid}"))? {
        // A thread may end between being listed and being read.
        if let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) {
            total += parse_schedstat(&text).context("schedstat is not what it used to be")?;
        }
    }
    Ok(total)
}

/// What the calling thread has run for.
pub fn of_this_thread() -> Result<Duration> {
    Ok(Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?))
}

/// The machine's books at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    at: Instant,
    unused: Unused,
}

/// Time since boot in which cores had nothing to do, or were not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unused {
    cores: u32,
    time: Duration,
}

impl Machine {
    /// Reads them.
    pub fn now() -> Result<Self> {
        let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        let unused = parse_stat(&text).context("/proc/stat is not what it used to be")?;
        Ok(Self { at: Instant::now(), unused })
    }

    /// What all cores together have been busy for since `earlier`, for whomever. To
    /// 10 ms, so make it seconds.
    pub fn busy_since(&self, earlier: &Self) -> Duration {
        let all = self.at.saturating_duration_since(earlier.at) * self.unused.cores;
        all.saturating_sub(self.unused.time.saturating_sub(earlier.unused.time))
    }
}

/// Cores of this machine that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Keeps the calling thread on `core`.
pub fn pin_this_thread(core: usize) -> Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core)?;
    sched_setaffinity(Pid::from_raw(0), &cores)
        .with_context(|| format!("cannot keep a thread on core {core}"))
}

fn parse_schedstat(text: &str) -> Option<Duration> {
    text.split_ascii_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

fn parse_stat(text: &str) -> Option<Unused> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let mut columns = [0_u64; 8];
    let mut values = line.split_ascii_whitespace();
    for column in &mut columns {
        *column = values.next()?.parse().ok()?;
    }
    let [_user, _nice, _system, idle, iowait, _irq, _softirq, steal] = columns;
    let millis = (idle + iowait + steal) * (1000 / TICKS_PER_SECOND);
    let is_core = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let cores = u32::try_from(text.lines().filter(is_core).count()).ok()?;
    Some(Unused { cores, time: Duration::from_millis(millis) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_of_schedstat_is_the_time_run() {
        assert_eq!(parse_schedstat("123456789 42 7\n"), Some(Duration::from_nanos(123_456_789)));
        assert_eq!(parse_schedstat(""), None);
    }

    #[test]
    fn busy_is_what_was_neither_idle_nor_stolen() {
        let text = "cpu  100 10 50 9000 80 5 35 7 0 0\ncpu0 1 2\ncpu1 3 4\nintr 5\n";
        let unused = Unused { cores: 2, time: Duration::from_millis(90_870) };
        assert_eq!(parse_stat(text), Some(unused));
        assert_eq!(parse_stat("cpu 1 2"), None);

        let start = Instant::now();
        let earlier = Machine { at: start, unused };
        let time = unused.time + Duration::from_millis(500);
        let later =
            Machine { at: start + Duration::from_secs(1), unused: Unused { cores: 2, time } };
        assert_eq!(later.busy_since(&earlier), Duration::from_millis(1500));
    }

    #[test]
    fn this_process_has_run_for_some_time() {
        let before = of_process(std::process::id()).unwrap();
        let mut sum = 0_u64;
        while of_this_thread().unwrap() < Duration::from_millis(5) {
            sum = sum.wrapping_add(std::hint::black_box(1));
        }
        assert!(of_process(std::process::id()).unwrap() > before);
        assert!(Machine::now().unwrap().unused.cores > 0);
    }
}
