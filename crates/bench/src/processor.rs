//! The processor time of one thread.

use rustix::time::{ClockId, clock_gettime};

/// What this thread has had of a processor, in nanoseconds: on a busy machine, too, nobody else's
/// turns are counted.
pub(crate) fn time() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
