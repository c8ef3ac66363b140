//! How soon a thread of the data plane gets its core when other programs want it, too.
//!
//! Nice values are not enough: they count only within a group of threads, and the kernel makes a
//! group of each session (autogroup) and of each service (control groups). Beside a build in
//! another session a worker at nice -20 is one of two groups, and each wake-up may come some 100 ms
//! late. So a worker's thread is *real-time* (`SCHED_FIFO`), with the lowest priority of that
//! class: it runs as soon as it has something to do, as the kernel's own packet processing would.
//!
//! *Bounded.* A real-time thread that does not sleep would take its core away from everything else:
//! from the kernel's threads that hand packets to it, too. So each real-time thread looks every
//! [`WINDOW`] at the CPU time that it used. If that is more than its part, it first lets the others
//! run, and is an ordinary thread (nice -20) for a ninth of that time. So real-time threads use at
//! most [`MOST`] of a core, or less where the system throttles them earlier (`sched_rt_runtime_us`,
//! sched(7)), and this throttle, which stops a thread for 50 ms and longer, has no reason to act.
//!
//! *Without the privilege* (CAP_SYS_NICE, or a limit of real-time priorities), or where a control
//! group has no real-time budget, a thread stays ordinary at nice -20, says so once, and `narrows
//! doctor` says what is missing. Workers that busy-poll always are: they would use up their part in
//! each window.
//!
//! Source: sched(7), cgroups(7); the kernel's Documentation/scheduler/sched-rt-group.rst.
//!
//! Non-goals: deadlines. `SCHED_DEADLINE` would state the budget to the kernel, but such a thread
//! cannot be pinned to one core.

use crate::clock;
use narrows_cpu::Class;
use narrows_units::Nanos;
use std::io;

/// The nice value of ordinary threads of the data plane, the best there is.
const NICE: i32 = -20;

/// How often a real-time thread looks at the CPU time that it used.
const WINDOW: Nanos = Nanos::from_millis(10);

/// The most that real-time threads may use of a core, in thousandths of the time.
const MOST: u64 = 900;

/// What is left below the system's own throttle, in thousandths.
const BELOW_THROTTLE: u64 = 40;

/// The system's throttle, in microseconds.
const RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
const PERIOD: &str = "/proc/sys/kernel/sched_rt_period_us";

/// Gives the calling thread the best nice value.
///
/// # Errors
///
/// Without CAP_SYS_NICE or a sufficient limit (`ulimit -e`).
pub(crate) fn raise_nice() -> io::Result<()> {
    // On Linux this affects only the calling thread.
    Ok(rustix::process::setpriority_process(None, NICE)?)
}

/// Makes the calling thread go before all ordinary ones, and returns its former nice value. For
/// moments in which nothing is forwarded until it is done.
pub(crate) fn hurry() -> i32 {
    let calm = rustix::process::getpriority_process(None).unwrap_or(0);
    // Without the privileges it keeps its priority.
    let _ = raise_nice();
    let _ = narrows_cpu::schedule(Class::RealTime);
    calm
}

/// Restores the calling thread's priority.
pub(crate) fn calm_down(calm: i32) {
    let _ = narrows_cpu::schedule(Class::Ordinary);
    let _ = rustix::process::setpriority_process(None, calm);
}

/// The scheduling class of one thread, which it bounds itself.
pub(crate) struct Priority {
    bound: Bound,
    class: Class,
    /// The time and the thread's CPU time since which its use is counted.
    since: Nanos,
    cpu: Nanos,
    /// When to look again; never, for a thread that is always ordinary.
    next: Nanos,
}

impl Priority {
    /// Makes the calling thread real-time, one of `sharing` that share its core. A thread that may
    /// not be real-time stays as it is, and the reason is logged.
    pub(crate) fn real_time(sharing: usize) -> Self {
        let throttle =
            std::fs::read_to_string(RUNTIME).ok().zip(std::fs::read_to_string(PERIOD).ok());
        let throttle = throttle.and_then(|(runtime, period)| permille(&runtime, &period));
        let bound = Bound::new(throttle, sharing);
        let entered = match bound.part {
            0 => Err(io::Error::other("the system leaves no time to real-time threads")),
            _ => narrows_cpu::schedule(Class::RealTime),
        };
        if let Err(error) = entered {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or("a thread").to_owned();
            log::warn!(
                "{name} is not real-time, and may wait for its core on a busy machine: {error}"
            );
            return Self::ordinary();
        }
        let now = clock::now();
        let cpu = clock::thread_cpu_time();
        Self { bound, class: Class::RealTime, since: now, cpu, next: now + WINDOW }
    }

    /// That of a thread that is always ordinary.
    pub(crate) fn ordinary() -> Self {
        let (since, cpu) = (Nanos::ZERO, Nanos::ZERO);
        let bound = Bound { part: 0, relaxed: Nanos::ZERO };
        Self { bound, class: Class::Ordinary, since, cpu, next: Nanos::MAX }
    }

    /// Bounds the use of the core, as of `now`. The calling thread is the one that made this; it
    /// calls it between two steps.
    #[inline]
    pub(crate) fn look(&mut self, now: Nanos) {
        if now >= self.next {
            self.change(now);
        }
    }

    #[cold]
    fn change(&mut self, now: Nanos) {
        let cpu = clock::thread_cpu_time();
        let used = (cpu - self.cpu).0.saturating_mul(1000) / (now - self.since).0.max(1);
        let (class, after) = self.bound.next(self.class, used);
        if class != self.class && narrows_cpu::schedule(class).is_err() {
            // The privilege has gone, so it is ordinary or stays real-time, and neither can be
            // changed.
            *self = Self::ordinary();
            return;
        }
        if self.class == Class::RealTime && class == Class::Ordinary {
            std::thread::yield_now();
        }
        let now = clock::now();
        (self.class, self.since, self.next) = (class, now, now + after);
        self.cpu = clock::thread_cpu_time();
    }
}

/// How much of its core a real-time thread may use.
#[derive(Clone, Copy)]
struct Bound {
    /// In thousandths of the time.
    part: u64,
    /// How long a thread that used more than its part is ordinary.
    relaxed: Nanos,
}

impl Bound {
    /// For one of `sharing` threads of a core, under the system's `throttle` in thousandths.
    fn new(throttle: Option<u64>, sharing: usize) -> Self {
        let all =
            throttle.map_or(MOST, |throttle| MOST.min(throttle.saturating_sub(BELOW_THROTTLE)));
        let relaxed = Nanos(WINDOW.0 * (1000 - all) / all.max(1));
        Self { part: all / sharing.max(1) as u64, relaxed }
    }

    /// The class of a thread of `class` that used `used` thousandths of its core since its last
    /// look, and how long until the next.
    fn next(self, class: Class, used: u64) -> (Class, Nanos) {
        match class {
            Class::RealTime if used > self.part => (Class::Ordinary, self.relaxed),
            Class::RealTime | Class::Ordinary => (Class::RealTime, WINDOW),
        }
    }
}

/// The part of each period for which real-time threads may run, in thousandths; none if there is no
/// throttle, or its files say something else.
fn permille(runtime: &str, period: &str) -> Option<u64> {
    let runtime: i64 = runtime.trim().parse().ok()?;
    let period: u64 = period.trim().parse().ok()?;
    let runtime = u64::try_from(runtime).ok()?;
    runtime.saturating_mul(1000).checked_div(period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_sleeps_stays_real_time_and_one_that_does_not_is_ordinary_for_a_while() {
        let bound = Bound::new(None, 1);
        assert_eq!(bound.next(Class::RealTime, 100), (Class::RealTime, WINDOW));
        assert_eq!(bound.next(Class::RealTime, 901), (Class::Ordinary, bound.relaxed));
        assert_eq!(bound.next(Class::Ordinary, 1000), (Class::RealTime, WINDOW));
    }

    /// The worst that a thread can do is never to sleep.
    #[test]
    fn the_systems_throttle_has_no_reason_to_act() {
        for throttle in [950, 500, 100, 41] {
            let bound = Bound::new(Some(throttle), 1);
            let (mut class, mut length) = (Class::RealTime, WINDOW);
            let (mut real_time, mut all) = (0, 0);
            for _ in 0..1000 {
                real_time += if class == Class::RealTime { length.0 } else { 0 };
                all += length.0;
                (class, length) = bound.next(class, 1000);
            }
            assert!(real_time * 1000 / all < throttle, "{real_time} of {all} under {throttle}");
        }
    }

    #[test]
    fn threads_of_one_core_share_what_real_time_threads_may_use() {
        assert_eq!(Bound::new(Some(950), 1).part, 900);
        assert_eq!(Bound::new(Some(950), 3).part, 300);
        assert_eq!(Bound::new(Some(500), 1).part, 460);
        assert_eq!(Bound::new(Some(0), 1).part, 0);
        assert_eq!(Bound::new(None, 0).part, 900);
    }

    #[test]
    fn a_system_without_a_throttle_says_minus_one() {
        assert_eq!(permille("-1\n", "1000000\n"), None);
        assert_eq!(permille("950000\n", "1000000\n"), Some(950));
        assert_eq!(permille("950000\n", "0\n"), None);
        assert_eq!(permille("", "x"), None);
    }
}
