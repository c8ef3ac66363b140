//! A worker in real time: a thread, pinned to a core, that steps while there is something to
//! do and sleeps otherwise.
//!
//! It sleeps in one `ppoll` on both of its sockets and on an eventfd through which its mailbox
//! wakes it, until the moment at which the next packet may leave, or its next heartbeat is due. The
//! clock is read once per step, and once more before going to sleep.
//!
//! A worker that comes round so late that its frames went another way meanwhile gives up what it
//! still holds: newer frames of the same flows have overtaken it long ago.
//!
//! Non-goals: shared state with other threads. Mail comes in through a mailbox and reports go back
//! through a channel, so counters need no locks and no atomics and always add up.

use crate::clock;
use crate::heartbeat::{self, BEAT_EVERY};
use crate::mailbox::Mailbox;
use crate::owners::FrameCounts;
use crate::session::SessionOptions;
use crate::upgrade::WorkerQueued;
use crate::xdp_io::XdpIo;
use narrows_bpf::Heart;
use narrows_packet::{Backlog, DropReason};
use narrows_policy::Update;
use narrows_qdisc::Stats;
use narrows_units::Nanos;
use narrows_worker::{Activity, PathCounters, Pause, Side, Worker};
use narrows_xsk::{KernelDrops, RingSizes, wait_readable};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// How long a worker waits for a device that has not taken all packets, at first and at most. The
/// device has work then, so nothing is lost by looking again a little later.
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

impl Seat {
    /// That of the worker of `queue`.
    pub(crate) fn of(queue: u32, options: &SessionOptions) -> Self {
        let cpu = options.cpus.get(queue as usize % options.cpus.len().max(1));
        Self { queue, cpu: cpu.copied().unwrap_or_default(), busy_poll: options.busy_poll }
    }
}

/// The sockets of a worker on either port, with the sizes of their rings.
pub(crate) type WorkerSockets = [(OwnedFd, RingSizes); 2];

/// What a worker that stands still has.
pub(crate) struct Paused {
    /// What it did, and what was queued.
    pub(crate) report: WorkerReport,
    /// What is queued, and the free frames.
    pub(crate) queued: WorkerQueued,
}

/// What a worker is asked that is to stand still.
pub(crate) struct Standing {
    answer: Sender<Paused>,
    /// A word says that another process has taken over; silence ends with the sender, and the
    /// worker goes on.
    leave: Receiver<()>,
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
    /// Where its frames are.
    pub(crate) frames: FrameCounts,
    /// All frames of this worker.
    pub(crate) all_frames: u32,
    /// Frames that the kernel gave back and did not have.
    pub(crate) stray_frames: u64,
}

/// A running worker, seen from outside.
pub(crate) struct WorkerThread {
    mailbox: Arc<Mailbox>,
    last_word: Receiver<WorkerReport>,
    pub(crate) cpu: usize,
}

impl WorkerThread {
    pub(crate) fn spawn(worker: Worker<XdpIo>, seat: Seat, heart: Heart) -> io::Result<Self> {
        let mailbox = Arc::new(Mailbox::new()?);
        let (last_words, last_word) = channel();
        let runner = Runner {
            worker,
            seat,
            mailbox: mailbox.clone(),
            heart,
            busy: Nanos::ZERO,
            idle: Nanos::ZERO,
        };
        // Nobody joins it: a thread that hangs would hang whoever does. Its last word comes when
        // its sockets are closed.
        std::thread::Builder::new().name(format!("nrw-q{}", seat.queue)).spawn(move || {
            // There may be nobody left to hear it.
            let _ = last_words.send(runner.run());
        })?;
        Ok(Self { mailbox, last_word, cpu: seat.cpu })
    }

    /// Has the worker take over `update` for what goes out of `egress`, as soon as it comes round.
    pub(crate) fn update(&self, egress: Side, update: Update) {
        self.mailbox.put(|mail| mail.update(egress, update));
    }

    /// Asks for a report. When it is there, every update that was sent before it is in effect.
    pub(crate) fn ask(&self) -> Receiver<WorkerReport> {
        let (answer, inbox) = channel();
        self.mailbox.put(|mail| mail.asked = Some(answer));
        inbox
    }

    /// Asks for its sockets, for another process.
    pub(crate) fn sockets(&self) -> Receiver<io::Result<WorkerSockets>> {
        let (answer, inbox) = channel();
        self.mailbox.put(|mail| mail.sockets = Some(answer));
        inbox
    }

    /// Has the worker stand still, and asks what is queued. It goes on with that when the sender is
    /// dropped, and ends without touching anything when it is told to leave.
    pub(crate) fn pause(&self) -> (Receiver<Paused>, Sender<()>) {
        let ((answer, inbox), (go, leave)) = (channel(), channel());
        self.mailbox.put(|mail| mail.pause = Some(Standing { answer, leave }));
        (inbox, go)
    }

    /// Has the worker end, as soon as it comes round.
    pub(crate) fn stop(&self) {
        self.mailbox.put(|mail| mail.stop = true);
    }

    /// Waits for the last report of a worker that was told to stop; `None` where it has not ended at
    /// `deadline`. Its queue stays taken then until it does, or the process ends.
    pub(crate) fn last_word(&self, deadline: Instant) -> Option<WorkerReport> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.last_word.recv_timeout(left).ok()
    }
}

/// The thread's own side.
struct Runner {
    worker: Worker<XdpIo>,
    seat: Seat,
    mailbox: Arc<Mailbox>,
    heart: Heart,
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
            if heartbeat::is_due(&self.heart, now) {
                self.beat(now);
            }
            if self.mailbox.is_full() && !self.obey(now) {
                return self.report();
            }
            let activity = self.worker.step(now);
            was_idle = activity != Activity::Busy;
            if !matches!(activity, Activity::Blocked(_)) {
                blocked_wait = BLOCKED_WAIT;
            }
            match activity {
                Activity::Busy => {}
                _ if self.seat.busy_poll => {
                    self.worker.io_mut().wake_drivers();
                    std::hint::spin_loop();
                }
                Activity::Blocked(pause) => {
                    self.rest(blocked_wait, pause);
                    blocked_wait = (blocked_wait + blocked_wait).min(BLOCKED_WAIT_MAX);
                }
                Activity::Idle(pause) => self.rest(BEAT_EVERY, pause),
            }
        }
    }

    /// Sleeps until `pause` is over, and for `longest` at most.
    fn rest(&self, longest: Nanos, pause: Pause) {
        let left = pause.at_most(clock::now()).map_or(longest, |left| left.min(longest));
        if left > SLEEP_MIN {
            self.sleep(left, pause.listen);
        }
    }

    /// Says that the worker came round. One that was passed by meanwhile first gives up what is
    /// older than that.
    fn beat(&mut self, now: Nanos) {
        if let Some(silence) = heartbeat::silence(self.heart.last(), now) {
            self.give_up();
            self.heart.recover(silence);
        }
        self.heart.beat(now);
    }

    /// Drops what is queued and what stands in the RX rings. The steering programs put nothing
    /// there until the next beat, so there is no more than frames.
    #[cold]
    fn give_up(&mut self) {
        let now = clock::now();
        self.worker.abandon(DropReason::Stalled);
        for _ in 0..self.worker.io().frame_count() {
            if !self.worker.refuse(DropReason::Stalled, now) {
                break;
            }
        }
    }

    /// Does what the mailbox says. False where the worker is to stop.
    #[cold]
    fn obey(&mut self, now: Nanos) -> bool {
        let mut mail = self.mailbox.take();
        for (egress, update) in mail.take_updates() {
            self.worker.update(egress, update, now);
        }
        if let Some(answer) = mail.asked {
            self.worker.io_mut().recover(now);
            // Whoever asked may have stopped waiting.
            let _ = answer.send(self.report());
        }
        if let Some(answer) = mail.sockets {
            let _ = answer.send(self.worker.io().sockets());
        }
        if let Some(pause) = mail.pause
            && self.stand_still(&pause)
        {
            return false;
        }
        if mail.stop {
            self.take_in(now);
            self.worker.abandon(DropReason::PortGone);
        }
        !mail.stop
    }

    /// Says what is queued and waits until it is known who goes on with it: this worker, or, where it
    /// is true, another process.
    fn stand_still(&mut self, Standing { answer, leave }: &Standing) -> bool {
        let report = self.report();
        let ids = Side::BOTH.map(|egress| self.worker.take_out(egress));
        let mut queued = self.worker.io().at_rest();
        for (ids, into) in ids.iter().zip(&mut queued.queued) {
            for &id in ids {
                into.push(self.worker.meta(id).arrival, self.worker.io().frames_of(id));
            }
        }
        // Whoever asked may have stopped waiting; the end of the sender says so, too.
        let _ = answer.send(Paused { report, queued });
        if leave.recv().is_ok() {
            return true;
        }
        let now = clock::now();
        for (egress, ids) in Side::BOTH.into_iter().zip(ids) {
            self.worker.take_back(egress, &ids, now);
        }
        false
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
            frames: io.frame_counts(),
            all_frames: io.frame_count(),
            stray_frames: io.stray_frames(),
        }
    }

    /// Sleeps for `at_most` or until mail, or a packet at a port in `listen`, comes in.
    fn sleep(&self, at_most: Nanos, listen: [bool; 2]) {
        let io = self.worker.io();
        let fds = [
            (io.fd(Side::A), listen[Side::A.index()]),
            (io.fd(Side::B), listen[Side::B.index()]),
            (self.mailbox.wake(), true),
        ];
        match wait_readable(fds, Some(at_most.0)) {
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
