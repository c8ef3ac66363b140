//! A worker in real time: a thread, pinned to a core, that steps while there is something to
//! do and sleeps otherwise.
//!
//! It sleeps in one `ppoll` on both of its sockets and on an eventfd through which commands
//! wake it, until the moment at which the next packet may leave. The clock is read once per
//! step, and once more before going to sleep.
//!
//! Non-goals: shared state with other threads. Commands come in through a channel and answers
//! go back the same way, so counters need no locks and no atomics and always add up.

use crate::clock;
use crate::xdp_io::XdpIo;
use narrows_packet::Backlog;
use narrows_policy::Update;
use narrows_qdisc::Stats;
use narrows_units::Nanos;
use narrows_worker::{Activity, PathCounters, Side, UNSEEN_MAX, Worker};
use narrows_xsk::{KernelDrops, wait_readable};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a worker waits for a device that takes no more packets, at first and at most. The
/// device has a full ring then, so nothing is lost by looking again a little later.
const BLOCKED_WAIT: Nanos = Nanos::from_micros(20);
const BLOCKED_WAIT_MAX: Nanos = Nanos::from_millis(1);

/// How long a worker whose port is in error sleeps before it looks again.
const FAILED_WAIT: Duration = Duration::from_millis(1);

/// A departure that is nearer than this is waited for awake: going to sleep and coming back
/// would take longer.
const SLEEP_MIN: Nanos = Nanos(3_000);

/// How much later than asked a sleep may end, in nanoseconds, so that the kernel can merge
/// timers. The default of 50 us would make every departure that late.
const TIMER_SLACK_NS: u64 = 1;

/// How a worker is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    /// The queue that it serves on both ports.
    pub(crate) queue: u32,
    /// The core that it is pinned to.
    pub(crate) cpu: usize,
    /// Never sleep.
    pub(crate) busy_poll: bool,
}

/// What a worker is told.
enum Command {
    Update(Side, Update),
    Report(Sender<WorkerReport>),
    Stop,
}

/// What a worker has done so far, all taken between two steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkerReport {
    /// By the port at which packets came in.
    pub(crate) paths: [PathCounters; 2],
    /// By the port out of which they are to go.
    pub(crate) backlogs: [Backlog; 2],
    /// The same; depth first.
    pub(crate) qdiscs: [Vec<Stats>; 2],
    /// By port: system calls made to have something sent there.
    pub(crate) tx_kicks: [u64; 2],
    /// By port.
    pub(crate) kernel_drops: [KernelDrops; 2],
    /// Time spent with something to do.
    pub(crate) busy: Nanos,
    /// Time spent asleep or looking in vain.
    pub(crate) idle: Nanos,
    /// Processor time used.
    pub(crate) cpu_time: Nanos,
    /// Frames that are in no ring and in no queue.
    pub(crate) free_frames: u32,
    /// All frames of this worker.
    pub(crate) frames: u32,
}

/// A running worker, seen from outside. Stops and joins it when dropped.
pub(crate) struct WorkerThread {
    commands: Sender<Command>,
    pending: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<WorkerReport>>,
    pub(crate) cpu: usize,
}

impl WorkerThread {
    pub(crate) fn spawn(worker: Worker<XdpIo>, seat: Seat) -> io::Result<Self> {
        let (commands, inbox) = channel();
        let pending = Arc::new(AtomicBool::new(false));
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let runner = Runner {
            worker,
            seat,
            inbox,
            pending: pending.clone(),
            wake: wake.clone(),
            busy: Nanos::ZERO,
            idle: Nanos::ZERO,
        };
        let thread = std::thread::Builder::new()
            .name(format!("nrw-q{}", seat.queue))
            .spawn(move || runner.run())?;
        Ok(Self { commands, pending, wake, thread: Some(thread), cpu: seat.cpu })
    }

    fn send(&self, command: Command) {
        // A worker that is gone has nothing left to be told; its report was its last word.
        if self.commands.send(command).is_ok() {
            self.pending.store(true, Ordering::Release);
            let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        }
    }

    /// Has the worker take over `update` for what goes out of `egress`.
    pub(crate) fn update(&self, egress: Side, update: Update) {
        self.send(Command::Update(egress, update));
    }

    /// Asks for a report. Commands are served in order: when the report is there, every
    /// update that was sent before it is in effect.
    pub(crate) fn ask(&self) -> Receiver<WorkerReport> {
        let (answer, inbox) = channel();
        self.send(Command::Report(answer));
        inbox
    }

    /// Stops the worker and waits for its last report.
    pub(crate) fn stop(mut self) -> WorkerReport {
        self.join()
    }

    fn join(&mut self) -> WorkerReport {
        self.send(Command::Stop);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.join();
        }
    }
}

/// The thread's own side.
struct Runner {
    worker: Worker<XdpIo>,
    seat: Seat,
    inbox: Receiver<Command>,
    pending: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
    busy: Nanos,
    idle: Nanos,
}

impl Runner {
    fn run(mut self) -> WorkerReport {
        settle(self.seat.cpu);
        let mut last = clock::now();
        let mut was_idle = false;
        let mut blocked_wait = BLOCKED_WAIT;
        loop {
            let now = clock::now();
            if was_idle {
                self.idle += now - last;
            } else {
                self.busy += now - last;
            }
            last = now;
            // Relaxed would do for the flag itself; Acquire pairs with the sender's Release so
            // that the command is in the channel when the flag is seen.
            if self.pending.load(Ordering::Acquire) && !self.obey(now) {
                return self.report();
            }
            let activity = self.worker.step(now);
            was_idle = activity != Activity::Busy;
            if activity != Activity::Blocked {
                blocked_wait = BLOCKED_WAIT;
            }
            match activity {
                Activity::Busy => {}
                _ if self.seat.busy_poll => {
                    self.worker.io_mut().wake_drivers();
                    std::hint::spin_loop();
                }
                Activity::Blocked => {
                    self.sleep(Some(blocked_wait), [false; 2]);
                    blocked_wait = (blocked_wait + blocked_wait).min(BLOCKED_WAIT_MAX);
                }
                Activity::Idle { until: Nanos::MAX, listen } => self.sleep(None, listen),
                Activity::Idle { until, listen } => {
                    let left = until - clock::now();
                    if left > SLEEP_MIN {
                        let all = listen == [true; 2];
                        self.sleep(Some(if all { left } else { left.min(UNSEEN_MAX) }), listen);
                    }
                }
            }
        }
    }

    /// Serves the commands that have come in. False where the worker is to stop.
    #[cold]
    fn obey(&mut self, now: Nanos) -> bool {
        let mut counter = [0; 8];
        // Fails only where the counter was read already; the flag has said it all.
        let _ = rustix::io::read(&*self.wake, &mut counter);
        self.pending.store(false, Ordering::Release);
        loop {
            match self.inbox.try_recv() {
                Ok(Command::Update(egress, update)) => self.worker.update(egress, update, now),
                // Whoever asked may have stopped waiting.
                Ok(Command::Report(answer)) => drop(answer.send(self.report())),
                Ok(Command::Stop) => {
                    self.take_in(now);
                    self.worker.abandon();
                    return false;
                }
                Err(_) => return true,
            }
        }
    }

    /// Takes in what is still in the RX rings. The programs that fill them are off by now, so
    /// there is no more than frames; without this it would be lost and counted by nobody.
    fn take_in(&mut self, now: Nanos) {
        for _ in 0..self.worker.io().frame_count() {
            if self.worker.step(now) != Activity::Busy {
                break;
            }
        }
    }

    fn report(&self) -> WorkerReport {
        let io = self.worker.io();
        WorkerReport {
            paths: Side::BOTH.map(|side| self.worker.counters(side)),
            backlogs: Side::BOTH.map(|side| self.worker.backlog(side)),
            qdiscs: Side::BOTH.map(|side| self.worker.qdisc_stats(side)),
            tx_kicks: Side::BOTH.map(|side| io.kicks(side)),
            kernel_drops: Side::BOTH.map(|side| io.kernel_drops(side)),
            busy: self.busy,
            idle: self.idle,
            cpu_time: clock::thread_cpu_time(),
            free_frames: io.free_frames(),
            frames: io.frame_count(),
        }
    }

    /// Sleeps for `at_most` or until a command, or a packet at a port in `listen`, comes in.
    fn sleep(&self, at_most: Option<Nanos>, listen: [bool; 2]) {
        let io = self.worker.io();
        let fds = [
            (io.fd(Side::A), listen[Side::A.index()]),
            (io.fd(Side::B), listen[Side::B.index()]),
            (self.wake.as_fd(), true),
        ];
        match wait_readable(fds, at_most.map(|time| time.0)) {
            Ok(wake) if wake.failed && !wake.readable => std::thread::sleep(FAILED_WAIT),
            Ok(_) => {}
            Err(_) => std::thread::sleep(FAILED_WAIT),
        }
    }
}

/// The priority of a worker's thread: the highest that is not real-time. A worker that has to
/// queue for its core delays every packet of its queue; a real-time one could starve the
/// kernel's own packet processing on that core.
const WORKER_NICE: i32 = -20;

/// Makes the calling thread what a worker's thread is to be, on core `cpu`. Each of these makes
/// it better, none is needed to be right, so a refusal is told and lived with.
pub(crate) fn settle(cpu: usize) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let mut cpus = rustix::thread::CpuSet::new();
    cpus.set(cpu);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &cpus) {
        log::warn!("{name} runs on any core: cannot pin it to core {cpu}: {error}");
    }
    let slack = std::num::NonZeroU64::new(TIMER_SLACK_NS);
    if let Err(error) = rustix::thread::set_current_timer_slack(slack) {
        log::warn!("{name} wakes up to 50 us late: {error}");
    }
    // On Linux this is the priority of the calling thread alone.
    if let Err(error) = rustix::process::setpriority_process(None, WORKER_NICE) {
        log::warn!("{name} runs at ordinary priority: {error}");
    }
}
