//! The CPU time of one thread.

use rustix::time::{ClockId, clock_gettime};

/// This thread's CPU time in nanoseconds. It excludes other threads, also on a busy machine.
pub(crate) fn time() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
