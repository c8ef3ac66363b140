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
//! commands. So each [`PERIOD`] ends with a pause. A real-time thread that finds itself in it looks
//! at the time that it ran since the last one, or waited for its core behind others of its class:
//! those of other workers, and of other instances. If that is more than its part, it lets the
//! others run, and is an ordinary thread until the pause ends, at the nice value of the process: at
//! a better one it would go before the others again. So real-time threads use at most [`MOST`] of a
//! core while others want the rest, however many there are, or less where the system throttles them
//! earlier (`sched_rt_runtime_us`, sched(7)). This throttle, which stops a thread for 50 ms and
//! longer, has no reason to act.
//!
//! *All pause together.* The pauses of all threads of a machine are at the same times of one clock.
//! If each had its own, another real-time thread would take the core whenever one pauses, and
//! ordinary threads would wait for a second.
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
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The nice value of ordinary threads of the data plane, the best there is.
const NICE: i32 = -20;

/// From the end of a pause to that of the next, at whole numbers of this since the clock's start.
const PERIOD: Nanos = Nanos::from_millis(10);

/// The most that real-time threads may use of a core, in thousandths of the time.
const MOST: u64 = 900;

/// Waiting for more than this behind others of its class, in thousandths of the time, a thread is
/// one of several that may together use up their core, although none does alone.
const CONTENDED: u64 = 50;

/// What is left below the system's own throttle, in thousandths.
const BELOW_THROTTLE: u64 = 40;

/// The system's throttle, in microseconds.
const THROTTLE_RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
const THROTTLE_PERIOD: &str = "/proc/sys/kernel/sched_rt_period_us";

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
    demand: Demand,
    /// The time since which its demand is counted, and the demand until then.
    since: Nanos,
    demanded: Wanted<Nanos>,
    /// When to look again; never, for a thread that is always ordinary.
    next: Nanos,
}

impl Priority {
    /// Makes the calling thread real-time, one of `sharing` that share its core. A thread that may
    /// not be real-time has the best nice value instead, and the reason is logged.
    pub(crate) fn real_time(sharing: usize) -> Self {
        let throttle = std::fs::read_to_string(THROTTLE_RUNTIME)
            .ok()
            .zip(std::fs::read_to_string(THROTTLE_PERIOD).ok());
        let throttle = throttle.and_then(|(runtime, period)| permille(&runtime, &period));
        let demand = Demand::of_this_thread();
        // Where the demand has the time behind others, each sees what all of them use.
        let bound = Bound::new(throttle, if demand.has_waiting() { 1 } else { sharing });
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
        let (now, demanded) = (clock::now(), demand.so_far());
        let next = bound.pause(now).start;
        Self { bound, class: Class::RealTime, demand, since: now, demanded, next }
    }

    /// Makes the calling thread one that is always ordinary, with the best nice value.
    pub(crate) fn ordinary() -> Self {
        raise_nice_or_say();
        Self {
            bound: Bound { part: 0, pause: Nanos::ZERO },
            class: Class::Ordinary,
            demand: Demand(None),
            since: Nanos::ZERO,
            demanded: Wanted::default(),
            next: Nanos::MAX,
        }
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
        let all = self.demand.so_far();
        let time = now - self.since;
        let part = |span: Nanos| span.0.saturating_mul(1000) / time.0.max(1);
        let wanted = Wanted {
            ran: part(all.ran - self.demanded.ran),
            waited: part(all.waited - self.demanded.waited),
        };
        let Look { class, next, ends_count } = self.bound.look(self.class, wanted, now);
        if class != self.class && narrows_cpu::schedule(class).is_err() {
            // The privilege has gone, so it is ordinary or stays real-time, and neither can be
            // changed.
            *self = Self::ordinary();
            return;
        }
        if self.class == Class::RealTime && class == Class::Ordinary {
            std::thread::yield_now();
        }
        (self.class, self.next) = (class, next);
        if ends_count {
            (self.since, self.demanded) = (clock::now(), self.demand.so_far());
        }
    }
}

/// How long a thread wanted its core, or for which part of the time, in thousandths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Wanted<T> {
    ran: T,
    /// Ready to run, behind others.
    waited: T,
}

/// How long the calling thread wanted its core. Without the file, how long it ran.
struct Demand(Option<File>);

impl Demand {
    fn of_this_thread() -> Self {
        let known = Self(File::open("/proc/thread-self/schedstat").ok());
        if known.waited().is_some() { known } else { Self(None) }
    }

    fn has_waiting(&self) -> bool {
        self.0.is_some()
    }

    fn so_far(&self) -> Wanted<Nanos> {
        let waited = self.waited().unwrap_or_default();
        Wanted { ran: clock::thread_cpu_time(), waited }
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
    /// The end of each period, in which a thread that wanted more than its part is ordinary.
    pause: Nanos,
}

/// The result of a look at the time that a thread wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Look {
    /// Its class from now on,
    class: Class,
    /// until it looks again.
    next: Nanos,
    /// Whether its time is counted anew.
    ends_count: bool,
}

impl Bound {
    /// For one of `sharing` threads of a core, under the system's `throttle` in thousandths.
    fn new(throttle: Option<u64>, sharing: usize) -> Self {
        let all =
            throttle.map_or(MOST, |throttle| MOST.min(throttle.saturating_sub(BELOW_THROTTLE)));
        Self { part: all / sharing.max(1) as u64, pause: Nanos(PERIOD.0 * (1000 - all) / 1000) }
    }

    /// The pause of the period of `now`.
    fn pause(self, now: Nanos) -> Range<Nanos> {
        let end = Nanos((now.0 / PERIOD.0 + 1) * PERIOD.0);
        end - self.pause..end
    }

    /// A thread of `class` looks at `now`. It `wanted` its core for these thousandths of the time
    /// since the last count.
    fn look(self, class: Class, wanted: Wanted<u64>, now: Nanos) -> Look {
        let pause = self.pause(now);
        let is_in_pause = pause.contains(&now);
        let wants_too_much = wanted.ran + wanted.waited > self.part || wanted.waited > CONTENDED;
        match class {
            Class::RealTime if is_in_pause && wants_too_much => {
                Look { class: Class::Ordinary, next: pause.end, ends_count: false }
            }
            Class::RealTime if is_in_pause => {
                Look { class, next: pause.start + PERIOD, ends_count: true }
            }
            // It slept, or waited, until another period. What it wanted until the pause counts.
            Class::RealTime => Look { class, next: pause.start, ends_count: false },
            // It had its turn only in another pause.
            Class::Ordinary if is_in_pause => Look { class, next: pause.end, ends_count: false },
            Class::Ordinary => Look { class: Class::RealTime, next: pause.start, ends_count: true },
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
        let micros = |micros: u64| Nanos::from_micros(micros);
        let look = |class, ran, at| {
            let wanted = Wanted { ran, waited: 0 };
            let Look { class, next, ends_count } = bound.look(class, wanted, micros(at));
            (class, next.0 / 1000, ends_count)
        };
        // The pause is from 9 to 10 ms.
        assert_eq!(look(Class::RealTime, 900, 9_100), (Class::RealTime, 19_000, true));
        assert_eq!(look(Class::RealTime, 901, 9_100), (Class::Ordinary, 10_000, false));
        assert_eq!(look(Class::RealTime, 1000, 12_000), (Class::RealTime, 19_000, false));
        assert_eq!(look(Class::Ordinary, 1000, 10_000), (Class::RealTime, 19_000, true));
        assert_eq!(look(Class::Ordinary, 1000, 19_500), (Class::Ordinary, 20_000, false));
        let waits = Wanted { ran: 200, waited: CONTENDED + 1 };
        assert_eq!(bound.look(Class::RealTime, waits, micros(9_100)).class, Class::Ordinary);
    }

    /// A thread that wants its core for `duty` of every [`CYCLE`].
    struct Busy {
        duty: Nanos,
        class: Class,
        next: Nanos,
        since: Nanos,
        wanted: Wanted<Nanos>,
        /// What it still has to do.
        work: Nanos,
    }

    const CYCLE: Nanos = Nanos::from_micros(600);
    const STEP: Nanos = Nanos::from_micros(50);

    impl Busy {
        fn look(&mut self, bound: Bound, now: Nanos) {
            if now < self.next {
                return;
            }
            let part = |span: Nanos| span.0 * 1000 / (now - self.since).0.max(1);
            let Wanted { ran, waited } = self.wanted;
            let wanted = Wanted { ran: part(ran), waited: part(waited) };
            let Look { class, next, ends_count } = bound.look(self.class, wanted, now);
            (self.class, self.next) = (class, next);
            if ends_count {
                (self.since, self.wanted) = (now, Wanted::default());
            }
        }
    }

    /// One core for a second, with such threads, which became real-time at these times, and an
    /// ordinary one that never sleeps.
    struct Core {
        /// How long no real-time thread ran.
        ordinary: Nanos,
        /// How long the ordinary one ran,
        ran: Nanos,
        /// and the longest time for which it did not.
        longest: Nanos,
    }

    /// Runs the core as the kernel would: real-time threads first come, first served until they
    /// sleep, and ordinary ones in equal parts, where one that becomes ordinary comes behind the
    /// others.
    fn run(bound: Bound, duty: Nanos, began: &[Nanos]) -> Core {
        let begin = |at: &Nanos| Busy {
            duty,
            class: Class::RealTime,
            next: bound.pause(*at).start,
            since: *at,
            wanted: Wanted::default(),
            work: duty,
        };
        let mut threads: Vec<Busy> = began.iter().map(begin).collect();
        // The places of those that are real-time and do not sleep, in their order.
        let mut queue: Vec<usize> = (0..threads.len()).collect();
        // How long each ran as an ordinary thread; the last is the one that always is.
        let mut shares = vec![Nanos::ZERO; threads.len() + 1];
        let last = threads.len();
        let mut core = Core { ordinary: Nanos::ZERO, ran: Nanos::ZERO, longest: Nanos::ZERO };
        let (mut now, mut waits) = (*began.iter().max().unwrap(), Nanos::ZERO);
        let end = now + Nanos::from_secs(1);
        while now < end {
            if now.0.is_multiple_of(CYCLE.0) {
                for (at, thread) in threads.iter_mut().enumerate() {
                    // More than a cycle's work is lost, as when a ring is full.
                    thread.work = duty;
                    if thread.class == Class::RealTime && !queue.contains(&at) {
                        queue.push(at);
                    }
                }
            }
            let is_ready = |at: usize| {
                at == last || threads[at].class == Class::Ordinary && threads[at].work.0 > 0
            };
            let ordinary = (0..=last).filter(|at| is_ready(*at));
            let next = ordinary.min_by_key(|at| shares[*at].0).unwrap();
            let runs = queue.first().copied().unwrap_or(next);
            now += STEP;
            for (at, thread) in threads.iter_mut().enumerate().filter(|(_, it)| it.work.0 > 0) {
                let count =
                    if at == runs { &mut thread.wanted.ran } else { &mut thread.wanted.waited };
                *count += STEP;
            }
            waits = if runs == last { Nanos::ZERO } else { waits + STEP };
            core.longest = core.longest.max(waits);
            if queue.is_empty() {
                core.ordinary += STEP;
                shares[runs] += STEP;
            }
            if runs == last {
                core.ran += STEP;
                continue;
            }
            let thread = &mut threads[runs];
            // One that wants all never sleeps.
            thread.work = if thread.duty < CYCLE { thread.work - STEP } else { CYCLE };
            let was = thread.class;
            thread.look(bound, now);
            let (is, sleeps) = (thread.class, thread.work == Nanos::ZERO);
            if was == Class::RealTime && (is == Class::Ordinary || sleeps) {
                queue.retain(|at| *at != runs);
            }
            match (was, is) {
                (Class::RealTime, Class::Ordinary) => {
                    shares[runs] = *shares.iter().max_by_key(|share| share.0).unwrap();
                }
                (Class::Ordinary, Class::RealTime) if !sleeps => queue.push(runs),
                _ => {}
            }
        }
        core
    }

    #[test]
    fn others_have_a_part_of_the_core_however_many_real_time_threads_want_it() {
        // They never sleep, or together they want the whole core.
        let together = |count: u64| Nanos((CYCLE.0 / count).next_multiple_of(STEP.0));
        for (count, sleeps) in (1..=6).flat_map(|count| [(count, false), (count, true)]) {
            let duty = if sleeps { together(count) } else { CYCLE };
            for spread in [0, 1, 700, 1_900, 3_333] {
                let at = |index: u64| Nanos::from_millis(540) + Nanos::from_micros(index * spread);
                let began: Vec<Nanos> = (0..count).map(at).collect();
                let Core { ordinary, ran, longest } = run(Bound::new(Some(950), 1), duty, &began);
                let told = format!(
                    "{count} threads of {duty:?}, {spread} us apart: {ordinary:?}, {ran:?}, \
                     {longest:?}"
                );
                // One that wakes in a pause runs until it looks.
                let least = if sleeps { 40 } else { 80 };
                assert!(ordinary >= Nanos::from_millis(least), "{told}");
                assert!(ran >= Nanos::from_millis(least / (count + 1)), "{told}");
                assert!(longest.0 <= (count + 2) * PERIOD.0, "{told}");
            }
        }
    }

    /// The worst that a thread can do is never to sleep.
    #[test]
    fn the_systems_throttle_has_no_reason_to_act() {
        for throttle in [950, 500, 100, 41] {
            let core = run(Bound::new(Some(throttle), 1), CYCLE, &[Nanos::from_millis(540)]);
            let ordinary = core.ordinary.0 / 1_000_000;
            assert!(ordinary > 1000 - throttle, "{ordinary} ms beside {throttle}");
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
        for own in [Demand::of_this_thread(), Demand(None)] {
            let before = own.so_far();
            while clock::thread_cpu_time() - before.ran < Nanos::from_millis(5) {}
            let after = own.so_far();
            assert!(after.ran - before.ran >= Nanos::from_millis(5));
            assert!(after.waited >= before.waited);
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
