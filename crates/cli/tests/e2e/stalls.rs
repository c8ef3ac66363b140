//! Moments in which the machine stands still.
//!
//! A hypervisor takes a processor away for a while, and what the tests promise in real time does
//! not hold for that time. One thread for each processor, which goes before all others, sleeps and
//! sees how late it wakes up. So what the tests themselves do counts little.

use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::{Mutex, Once, PoisonError};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

/// The kernel's own work holds a thread up for less.
const STALL: Duration = Duration::from_millis(50);

const SLEEP: Duration = Duration::from_millis(2);

/// When each stall ended, and how long it was.
static STALLS: Mutex<Vec<(Instant, Duration)>> = Mutex::new(Vec::new());

/// Watches from now on. Calls after the first have no effect.
pub fn watch() {
    static BEGIN: Once = Once::new();
    BEGIN.call_once(|| {
        let all = sched_getaffinity(None).unwrap();
        for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)) {
            spawn(move || watch_one(cpu));
        }
    });
}

fn watch_one(cpu: usize) {
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).unwrap();
    // Of this thread. Without the right to it, busy neighbours count, too.
    let _ = setpriority_process(None, -20);
    loop {
        let begin = Instant::now();
        sleep(SLEEP);
        let late = begin.elapsed() - SLEEP;
        if late >= STALL {
            let mut stalls = STALLS.lock().unwrap_or_else(PoisonError::into_inner);
            stalls.push((Instant::now(), late));
        }
    }
}

/// The longest one that ended after `begin`.
pub fn longest_since(begin: Instant) -> Option<Duration> {
    let stalls = STALLS.lock().unwrap_or_else(PoisonError::into_inner);
    stalls.iter().filter(|(end, _)| *end > begin).map(|(_, stall)| *stall).max()
}
