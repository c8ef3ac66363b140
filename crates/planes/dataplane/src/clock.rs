//! The clock of the data plane.

use narrows_units::Nanos;
use rustix::time::{ClockId, clock_gettime};

/// The time now, by the clock that all workers share (`CLOCK_MONOTONIC`).
#[inline]
pub(crate) fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// The time since the machine has started, with the time that it slept (`CLOCK_BOOTTIME`): what an
/// agent and this process both know, in nanoseconds.
pub(crate) fn since_boot() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The CPU time that the calling thread has used.
pub(crate) fn thread_cpu_time() -> Nanos {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
