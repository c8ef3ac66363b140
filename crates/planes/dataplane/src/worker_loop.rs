//! A thread and the workers that it serves: one, or several at low load.
//!
//! Each worker has a thread of its own. At low rates hardly any time goes into packets; most goes
//! into wake-ups, and four threads that wake up for one packet each cost four times as much as one
//! that wakes up for four. So a thread with little to do hands its worker over to the first thread,
//! the *host*, which sleeps once and wakes up once for all of them. When its load begins to cost
//! delay, the host sends them back.
//!
//! *Ownership does not change.* A worker belongs to one thread at any moment ([`HandoffQueue`]),
//! takes along its packets, qdiscs and timers, and is handed over between two steps: nothing is
//! reordered, nothing is shared.
//!
//! *When.* Each thread measures ten times per second how much of its core it uses. A worker leaves
//! its own thread if the host would then use at most [`HOST_MOST`]. It returns when the host uses
//! more than [`HOST_FULL`], or has been running without a pause for twice [`STREAK`], which a burst
//! at line rate causes long before its rings are full; then it stays for [`STAY`].
//!
//! A thread sleeps in one `ppoll` on all sockets of its workers and on the eventfds that notify it,
//! until the next departure, or the next heartbeat. The clock is read once for all workers' steps,
//! and once more before sleeping.
//!
//! *In order of departure.* A standing queue may be late for a while, so that others leave with it.
//! Those that are late together are served in order of their departure times: in any fixed order
//! the first could take what all have earned, and the last would starve.
//!
//! Cost: an idle worker costs an empty step, some 100 ns, for each wake-up of the thread.
//!
//! Non-goals: balancing. The device decides which queue a flow takes.

use crate::clock;
use crate::handoff::HandoffQueue;
use crate::heartbeat::BEAT_EVERY;
use crate::priority::Priority;
use crate::runner::{OnThread, Runner, Turn};
use narrows_units::Nanos;
use narrows_xsk::PollSet;
use std::sync::Arc;
use std::time::Duration;

/// The thread stays awake for a departure that is nearer than this: sleeping would take longer.
const SLEEP_MIN: Nanos = Nanos(3_000);

/// How long a thread sleeps before it checks a port in error again.
const FAILED_WAIT: Duration = Duration::from_millis(1);

/// How long a thread sleeps that was woken and finds no reason. A [bell](crate::bell::Bell) wakes
/// before it shows that it has rung. Where the thread that rings it has the same core, this one has
/// interrupted it in between: without a sleep a real-time thread would never see the reason.
const RINGING: Duration = Duration::from_micros(20);

/// How often a thread measures its load of its core.
const LOOK_EVERY: Nanos = Nanos::from_millis(100);

/// The host's load, in thousandths of its core, up to which it accepts a worker, and above which it
/// sends all back.
const HOST_MOST: u32 = 500;
const HOST_FULL: u32 = 700;

/// The time without a pause after which a host sends its guests home; twice as long while it serves
/// several.
const STREAK: Nanos = Nanos::from_millis(1);
/// The least time of that during which it had its core.
const STREAK_WORK: Nanos = Nanos::from_micros(500);

/// How long a worker stays at home after it was sent there.
const STAY: Nanos = Nanos::from_secs(1);

/// A thread's loop over the workers that it serves.
pub(crate) struct WorkerLoop {
    /// The queue whose worker belongs to this thread.
    queue: u32,
    handoff: Arc<HandoffQueue<Runner>>,
    /// The host's handoff queue, if the host is another thread.
    host: Option<Arc<HandoffQueue<Runner>>>,
    /// In boxes, because they are sorted after each sleep.
    #[expect(clippy::vec_box, reason = "a worker is handed over without being copied")]
    runners: Vec<Box<Runner>>,
    polled: PollSet,
    gauge: Gauge,
    /// How long the thread has slept, and since when it does until its next turn.
    slept: Nanos,
    asleep_since: Option<Nanos>,
    /// Whether something to read ended its last sleep.
    was_woken: bool,
    /// CPU time of the thread that is already assigned to its workers.
    accounted: Nanos,
    /// When it started to work without a pause, as of its last check.
    awake: Streak,
}

/// How long a thread has worked without a pause.
#[derive(Clone, Copy)]
enum Streak {
    /// The thread has just slept.
    None,
    Since(Nanos),
    /// It has worked since this time and this CPU time: waiting for its core does not count as
    /// work.
    Long(Nanos, Nanos),
}

/// A thread's load of its core.
struct Gauge {
    since: Nanos,
    cpu: Nanos,
}

impl Gauge {
    fn new() -> Self {
        Self { since: clock::now(), cpu: clock::thread_cpu_time() }
    }

    /// The part of its time since the last check in which it ran, in thousandths.
    fn look(&mut self, now: Nanos) -> u32 {
        let cpu = clock::thread_cpu_time();
        let (used, span) = (cpu - self.cpu, now - self.since);
        *self = Self { since: now, cpu };
        (used.0.saturating_mul(1000) / span.0.max(1)) as u32
    }
}

impl WorkerLoop {
    /// The loop of `runner`, the worker of `queue`.
    pub(crate) fn new(
        queue: u32,
        handoff: Arc<HandoffQueue<Runner>>,
        host: Option<Arc<HandoffQueue<Runner>>>,
        runner: Runner,
    ) -> Self {
        let now = clock::now();
        Self {
            queue,
            handoff,
            host,
            runners: vec![Box::new(runner)],
            polled: PollSet::default(),
            gauge: Gauge { since: now, cpu: Nanos::ZERO },
            slept: Nanos::ZERO,
            asleep_since: None,
            was_woken: false,
            accounted: Nanos::ZERO,
            awake: Streak::None,
        }
    }

    /// Serves the workers that are here, until its own has ended and no other is here.
    /// Bounds the thread's `priority` meanwhile.
    pub(crate) fn run(mut self, mut priority: Priority) {
        loop {
            if self.handoff.is_full() {
                self.account();
                self.runners.extend(self.handoff.take());
            }
            if self.runners.is_empty() {
                if self.handoff.close() {
                    return;
                }
                self.polled.clear();
                self.let_ring();
                self.sleep(clock::now(), None);
                self.gauge = Gauge::new();
                continue;
            }
            let now = self.turn();
            priority.look(now, self.slept);
        }
    }

    /// A step of each worker, then sleep if none has more to do. Returns when it began.
    fn turn(&mut self) -> Nanos {
        let now = clock::now();
        if let Some(since) = self.asleep_since.take() {
            self.slept += now - since;
        }
        if self.runners.iter().any(|runner| runner.has_mail()) {
            self.account();
            if self.runners.len() > 1
                && self.runners.iter().any(|runner| runner.wants_to_be_alone())
            {
                self.send_home(now);
            }
        }
        let alone = self.runners.len() == 1;
        let here = OnThread { thread: self.queue, alone, handoff: &self.handoff };
        let (mut busy, mut ended) = (false, false);
        for runner in &mut self.runners {
            match runner.turn(now, &here) {
                Turn::Busy => busy = true,
                Turn::Rest => {}
                Turn::End => ended = true,
            }
        }
        if ended {
            self.see_off();
        } else if !busy {
            self.rest();
        } else {
            self.was_woken = false;
            if !alone {
                self.go_on(now);
            }
        }
        if now - self.gauge.since >= LOOK_EVERY {
            self.look(now);
        }
        now
    }

    /// Sends guests home after a streak of work.
    fn go_on(&mut self, now: Nanos) {
        match self.awake {
            Streak::None => self.awake = Streak::Since(now),
            Streak::Since(since) if now - since > STREAK => {
                self.awake = Streak::Long(now, clock::thread_cpu_time());
            }
            Streak::Long(since, cpu) if now - since > STREAK => {
                self.awake = Streak::Since(now);
                if clock::thread_cpu_time() - cpu > STREAK_WORK {
                    self.send_home(now);
                }
            }
            _ => {}
        }
    }

    /// Removes the workers that were told to end.
    #[cold]
    fn see_off(&mut self) {
        self.account();
        for runner in self.runners.extract_if(.., |runner| runner.has_ended()) {
            runner.end(self.queue);
        }
    }

    /// Sleeps until one of the workers has something to do.
    fn rest(&mut self) {
        self.let_ring();
        let now = clock::now();
        self.polled.clear();
        let mut at_most = BEAT_EVERY;
        for runner in &self.runners {
            at_most = at_most.min(runner.at_most(now));
            runner.listen(&mut self.polled);
        }
        if at_most > SLEEP_MIN {
            self.sleep(now, Some(at_most));
        }
        // Workers are served in the order of their times, as if each had been woken separately.
        self.runners.sort_by_key(|runner| runner.due());
        self.awake = Streak::None;
    }

    /// If it was woken and has found no reason, lets the thread finish that rings.
    fn let_ring(&mut self) {
        if std::mem::take(&mut self.was_woken) {
            std::thread::sleep(RINGING);
        }
    }

    /// Sleeps from `now` on for at most `at_most`, or until a polled queue has packets or a worker
    /// arrives.
    fn sleep(&mut self, now: Nanos, at_most: Option<Nanos>) {
        self.asleep_since.get_or_insert(now);
        self.polled.add(self.handoff.wake(), true);
        match self.polled.wait(at_most.map(|time| time.0)) {
            Ok(wake) if wake.failed && !wake.readable => std::thread::sleep(FAILED_WAIT),
            Ok(wake) => self.was_woken = wake.readable,
            Err(_) => std::thread::sleep(FAILED_WAIT),
        }
    }

    /// Measures the load of the core, and decides whether another thread should serve these
    /// workers.
    #[cold]
    fn look(&mut self, now: Nanos) {
        let load = self.gauge.look(now);
        let Some(host) = &self.host else {
            self.handoff.set_load(load);
            if load > HOST_FULL && self.runners.len() > 1 {
                self.send_home(now);
            }
            return;
        };
        let all_may = self.runners.iter().all(|runner| runner.may_leave(now));
        if !all_may || !host.claim(load, HOST_MOST) {
            return;
        }
        let host = Arc::clone(host);
        self.account();
        for runner in self.runners.drain(..) {
            if let Err(runner) = host.put(runner) {
                runner.go_home();
            }
        }
    }

    /// Divides the CPU time that is in no books yet among the workers, by how often each had
    /// something to do.
    #[cold]
    fn account(&mut self) {
        let cpu = clock::thread_cpu_time();
        let used = u128::from((cpu - self.accounted).0);
        self.accounted = cpu;
        let turns: u64 = self.runners.iter().map(|runner| runner.busy_turns + 1).sum();
        for runner in &mut self.runners {
            let part = std::mem::take(&mut runner.busy_turns) + 1;
            runner.cpu_time += Nanos((used * u128::from(part) / u128::from(turns)) as u64);
        }
    }

    /// Sends those home that are only guests here.
    #[cold]
    fn send_home(&mut self, now: Nanos) {
        self.account();
        for mut runner in
            self.runners.extract_if(.., |runner| !Arc::ptr_eq(runner.home(), &self.handoff))
        {
            runner.stays_until = now + STAY;
            runner.go_home();
        }
    }
}
