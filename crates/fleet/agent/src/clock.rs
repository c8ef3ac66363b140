//! The clock of the agent and of the data plane.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The time since boot in nanoseconds, suspension included: CLOCK_BOOTTIME, which leases count.
pub fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    // Neither is negative since boot.
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// The time from now until `then_ns`; zero if that has passed.
pub fn until(then_ns: u64) -> Duration {
    Duration::from_nanos(then_ns.saturating_sub(now_ns()))
}
