//! How soon a thread of the data plane gets its core when other programs want it, too.
//!
//! Nice values are not enough: they count only within a group of threads, and the kernel makes a
//! group of each session (autogroup) and of each service (control groups). Beside a build in
//! another session a worker at nice -20 is one of two groups, and each wake-up may come some 100 ms
//! late. So a worker's thread is *real-time* (`SCHED_FIFO`), with the lowest priority of that
//! class: it runs as soon as it has something to do, as the kernel's own packet processing would.
//!
//! *Bounded.* A real-time thread that does not sleep would take its core away from everything else:
//! from the kernel's threads that hand packets to it, too, and from the thread that answers
//! commands. So each real-time thread looks every [`WINDOW`] at the time for which it wanted its
//! core. If that is more than [`MOST`], it first lets the others run, and is an ordinary thread for
//! a ninth of that time, at the nice value of the process: at a better one it would go before the
//! others again. So real-time threads use at most [`MOST`] of a core while others want the rest,
//! however many there are, or less where the system throttles them earlier (`sched_rt_runtime_us`,
//! sched(7)). This throttle, which stops a thread for 50 ms and longer, has no reason to act.
//!
//! *How long it wanted its core* is what it did not sleep, and what it waited for the core behind
//! others of its class: those of other workers, and of other instances. The CPU time of a thread is
//! less: what the hypervisor took meanwhile (steal time), and what interrupts took where the kernel
//! accounts them separately, is not in it. By that measure a thread that never sleeps would be far
//! from its bound, and nothing else would run on its core until the throttle acts, after 0.95 s.
//!
//! *Without the privilege* (CAP_SYS_NICE, or a limit of real-time priorities), or where a control
//! group has no real-time budget, a thread stays ordinary at nice -20, says so once, and `narrows
//! doctor` says what is missing. Workers that busy-poll always are: they would use up their part in
//! each window.
//!
//! Source: sched(7), cgroups(7); the kernel's Documentation/scheduler/sched-rt-group.rst and
//! sched-stats.rst (`/proc/PID/schedstat`; a kernel without `CONFIG_SCHED_INFO` has none, and then
//! only the time that a thread ran counts).
//!
//! Non-goals: deadlines. `SCHED_DEADLINE` would state the budget to the kernel, but such a thread
//! cannot be pinned to one core.

use crate::clock;
use narrows_cpu::Class;
use narrows_units::Nanos;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

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

/// Gives the calling thread the best nice value, or logs why not.
fn raise_nice_or_say() {
    if let Err(error) = raise_nice() {
        let thread = std::thread::current();
        log::warn!("{} runs at normal priority: {error}", thread.name().unwrap_or("a thread"));
    }
}

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
    meter: Meter,
    /// What its demand is counted from.
    since: Times,
    /// When to look again; never, for a thread that is always ordinary.
    next: Nanos,
}

impl Priority {
    /// Makes the calling thread real-time, one of `sharing` that share its core. A thread that may
    /// not be real-time has the best nice value instead, and the reason is logged.
    pub(crate) fn real_time(sharing: usize) -> Self {
        let throttle =
            std::fs::read_to_string(RUNTIME).ok().zip(std::fs::read_to_string(PERIOD).ok());
        let throttle = throttle.and_then(|(runtime, period)| permille(&runtime, &period));
        let meter = Meter::of_this_thread();
        // Where the demand has the time behind others, each sees what all of them use.
        let bound = Bound::new(throttle, if meter.has_waiting() { 1 } else { sharing });
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
        let since = meter.read(clock::now(), Nanos::ZERO);
        Self { bound, class: Class::RealTime, meter, since, next: since.now + WINDOW }
    }

    /// Makes the calling thread one that is always ordinary, with the best nice value.
    pub(crate) fn ordinary() -> Self {
        raise_nice_or_say();
        Self {
            bound: Bound { part: 0, relaxed: Nanos::ZERO },
            class: Class::Ordinary,
            meter: Meter(None),
            since: Times::default(),
            next: Nanos::MAX,
        }
    }

    /// Bounds the use of the core, as of `now`. `slept` is how long the calling thread has slept
    /// since it made this. It calls this between two steps.
    #[inline]
    pub(crate) fn look(&mut self, now: Nanos, slept: Nanos) {
        if now >= self.next {
            self.change(now, slept);
        }
    }

    #[cold]
    fn change(&mut self, now: Nanos, slept: Nanos) {
        let wanted = self.meter.read(now, slept).demand_since(&self.since);
        let (class, after) = self.bound.next(self.class, wanted);
        if class != self.class && narrows_cpu::schedule(class).is_err() {
            // The privilege has gone, so it is ordinary or stays real-time, and neither can be
            // changed.
            *self = Self::ordinary();
            return;
        }
        if self.class == Class::RealTime && class == Class::Ordinary {
            std::thread::yield_now();
        }
        self.class = class;
        self.since = self.meter.read(clock::now(), slept);
        self.next = self.since.now + after;
    }
}

/// What a thread has done with its time.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    now: Nanos,
    slept: Nanos,
    /// As the kernel accounts it.
    ran: Nanos,
    /// How long it was ready to run, and others did.
    waited: Nanos,
}

impl Times {
    /// For how many thousandths of the time since `before` the thread wanted its core.
    fn demand_since(&self, before: &Self) -> u64 {
        let all = (self.now - before.now).0;
        let awake = all.saturating_sub((self.slept - before.slept).0);
        // A call that returns at once is no sleep, although it is counted as one.
        let ran = awake.max((self.ran - before.ran).0);
        // The wait at the end of a sleep: others of its class do not interrupt a thread that runs.
        let wanted = ran + (self.waited - before.waited).0;
        wanted.min(all).saturating_mul(1000) / all.max(1)
    }
}

/// Measures the times of the calling thread. Without the file, it knows of no waiting.
struct Meter(Option<File>);

impl Meter {
    fn of_this_thread() -> Self {
        let known = Self(File::open("/proc/thread-self/schedstat").ok());
        if known.waited().is_some() { known } else { Self(None) }
    }

    fn has_waiting(&self) -> bool {
        self.0.is_some()
    }

    /// As of `now`, of the thread that has slept for `slept`.
    fn read(&self, now: Nanos, slept: Nanos) -> Times {
        let (ran, waited) = (clock::thread_cpu_time(), self.waited().unwrap_or_default());
        Times { now, slept, ran, waited }
    }

    fn waited(&self) -> Option<Nanos> {
        // Three numbers of 20 digits at most.
        let mut text = [0; 64];
        let length = self.0.as_ref()?.read_at(&mut text, 0).ok()?;
        waited(std::str::from_utf8(&text[..length]).ok()?)
    }
}

/// How long a thread was ready to run and did not, in the text of its schedstat: the second number,
/// in nanoseconds. The first, how long it ran, is only as exact as the kernel's ticks.
fn waited(schedstat: &str) -> Option<Nanos> {
    schedstat.split_ascii_whitespace().nth(1)?.parse().ok().map(Nanos)
}

/// How much of its core a real-time thread may use.
#[derive(Clone, Copy)]
struct Bound {
    /// In thousandths of the time.
    part: u64,
    /// How long a thread that wanted more than its part is ordinary.
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

    /// The class of a thread of `class` that wanted its core for `wanted` thousandths of the time
    /// since its last look, and how long until the next.
    fn next(self, class: Class, wanted: u64) -> (Class, Nanos) {
        match class {
            Class::RealTime if wanted > self.part => (Class::Ordinary, self.relaxed),
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
    fn the_demand_is_the_time_of_running_and_of_waiting() {
        assert_eq!(waited("2000 500 3\n"), Some(Nanos(500)));
        assert_eq!(waited(""), None);
        assert_eq!(waited("5 x 1\n"), None);
        let times = |slept, ran, waited| {
            let [now, slept, ran, waited] = [1000, slept, ran, waited].map(Nanos);
            Times { now, slept, ran, waited }
        };
        let begin = Times::default();
        assert_eq!(times(600, 400, 0).demand_since(&begin), 400);
        assert_eq!(times(600, 300, 100).demand_since(&begin), 500, "it waited when it woke up");
        assert_eq!(times(0, 1000, 200).demand_since(&begin), 1000);
        // Calls that return at once, which are counted as sleep.
        assert_eq!(times(600, 950, 0).demand_since(&begin), 950);
    }

    /// It would keep its core for as long as the system's throttle lets it.
    #[test]
    fn a_thread_that_never_sleeps_is_bounded_whatever_hypervisor_and_interrupts_take() {
        for taken in [0, 100, 500, 900] {
            let now = Nanos(1000);
            let ran = now - Nanos(taken);
            let times = Times { now, slept: Nanos::ZERO, ran, waited: Nanos::ZERO };
            let wanted = times.demand_since(&Times::default());
            let (class, _) = Bound::new(Some(950), 1).next(Class::RealTime, wanted);
            assert_eq!(class, Class::Ordinary, "{taken} of 1000 ns taken");
        }
    }

    #[test]
    fn a_thread_that_runs_is_seen_to() {
        for meter in [Meter::of_this_thread(), Meter(None)] {
            let before = meter.read(clock::now(), Nanos::ZERO);
            while clock::thread_cpu_time() - before.ran < Nanos::from_millis(5) {}
            let times = meter.read(clock::now(), Nanos::ZERO);
            assert!(times.ran - before.ran >= Nanos::from_millis(5));
            assert_eq!(times.demand_since(&before), 1000);
        }
    }

    #[test]
    fn a_system_without_a_throttle_says_minus_one() {
        assert_eq!(permille("-1\n", "1000000\n"), None);
        assert_eq!(permille("950000\n", "1000000\n"), Some(950));
        assert_eq!(permille("950000\n", "0\n"), None);
        assert_eq!(permille("", "x"), None);
    }
}
