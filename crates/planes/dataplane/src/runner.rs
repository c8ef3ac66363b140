//! A worker in real time: its turn each time its thread serves it.
//!
//! A thread runs one worker or several ([`WorkerLoop`](crate::worker_loop::WorkerLoop)); a worker
//! does not notice which. Its heartbeat, its mailbox and its counters go with it.
//!
//! A worker that is so late that its frames bypassed it drops what it still holds: newer frames of
//! the same flows have overtaken it.
//!
//! Non-goals: shared state with other threads. Messages arrive through a mailbox and reports go
//! back through a channel, so counters need no locks and no atomics and always add up.

use crate::clock;
use crate::handoff::HandoffQueue;
use crate::heartbeat::{self, BEAT_EVERY};
use crate::mailbox::{Mailbox, Standing};
use crate::options::SessionOptions;
use crate::upgrade::Queued;
use crate::worker_report::{Paused, PortReport, RootCount, WorkerReport};
use crate::xdp_io::XdpIo;
use narrows_bpf::Heart;
use narrows_forwarding::{PerPort, PortId, PortSet};
use narrows_packet::DropReason;
use narrows_shaper::{Activity, Pause, Worker};
use narrows_units::Nanos;
use narrows_xsk::PollSet;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender};
use std::time::Duration;

/// How long a worker waits for a device that has not taken all packets, at first and at most. The
/// device has work then, so nothing is lost by looking again a little later.
const BLOCKED_WAIT: Nanos = Nanos::from_micros(20);
const BLOCKED_WAIT_MAX: Nanos = Nanos::from_millis(1);

/// How often a paused worker checks whether another has been handed to its thread.
const STANDING_LOOK: Duration = Duration::from_millis(1);

/// How a worker is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// The queue that it serves on each device.
    pub(crate) queue: u32,
    /// The core that it is pinned to.
    pub(crate) cpu: usize,
    /// How many workers are pinned to that core.
    pub(crate) sharing: usize,
    /// Never sleep.
    pub(crate) busy_poll: bool,
}

impl Settings {
    /// The settings of the worker of `queue`, one of `queues`.
    pub(crate) fn of(queue: u32, queues: u32, options: &SessionOptions) -> Self {
        let cpu =
            |queue: u32| options.cpus.get(queue as usize % options.cpus.len().max(1)).copied();
        let sharing = (0..queues).filter(|&other| cpu(other) == cpu(queue)).count();
        let busy_poll = options.busy_poll;
        Self { queue, cpu: cpu(queue).unwrap_or_default(), sharing, busy_poll }
    }
}

/// The result of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// There is more to do.
    Busy,
    /// Nothing to do until the worker's [rest](Runner::at_most) is over.
    Rest,
    /// It was told to end.
    End,
}

/// A worker with all state that moves with it between threads.
pub(crate) struct Runner {
    worker: Worker<XdpIo>,
    settings: Settings,
    mailbox: Arc<Mailbox>,
    heart: Heart,
    last_words: Sender<WorkerReport>,
    /// The handoff queue of its own thread.
    home: Arc<HandoffQueue<Runner>>,
    /// It was told to end, and only sends its last report.
    has_ended: bool,
    /// The time until which it stays on its own thread.
    pub(crate) stays_until: Nanos,
    /// When it last had its turn, and whether it was idle then.
    last: Nanos,
    was_idle: bool,
    blocked_wait: Nanos,
    /// Its longest sleep, and what ends it.
    rest: (Nanos, Pause),
    /// Turns with work, since its CPU time was last updated.
    pub(crate) busy_turns: u64,
    busy: Nanos,
    idle: Nanos,
    pub(crate) cpu_time: Nanos,
}

impl Runner {
    /// That of `settings`'s queue; `home` is its own thread's.
    pub(crate) fn new(
        worker: Worker<XdpIo>,
        settings: Settings,
        mailbox: Arc<Mailbox>,
        heart: Heart,
        last_words: Sender<WorkerReport>,
        home: Arc<HandoffQueue<Runner>>,
    ) -> Self {
        Self {
            worker,
            settings,
            mailbox,
            heart,
            last_words,
            home,
            has_ended: false,
            stays_until: Nanos::ZERO,
            last: clock::now(),
            was_idle: false,
            blocked_wait: BLOCKED_WAIT,
            rest: (Nanos::ZERO, Pause { until: Nanos::MAX, listen: PortSet::ALL }),
            busy_turns: 0,
            busy: Nanos::ZERO,
            idle: Nanos::ZERO,
            cpu_time: Nanos::ZERO,
        }
    }

    /// The handoff queue of its own thread.
    pub(crate) fn home(&self) -> &Arc<HandoffQueue<Runner>> {
        &self.home
    }

    /// Whether it may move to another thread at `now`: it does not busy-poll, and has no messages.
    pub(crate) fn may_leave(&self, now: Nanos) -> bool {
        !self.settings.busy_poll && now >= self.stays_until && !self.mailbox.is_full()
    }

    /// Whether it was told to end.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether it has messages.
    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        self.mailbox.is_full()
    }

    /// Whether its next message needs a dedicated thread.
    pub(crate) fn wants_to_be_alone(&self) -> bool {
        self.mailbox.wants_one_alone()
    }

    /// Handles its messages and moves packets. `worker_loop` serves it.
    #[inline]
    pub(crate) fn turn(&mut self, now: Nanos, here: &OnThread<'_>) -> Turn {
        if self.was_idle {
            self.idle += now - self.last;
        } else {
            self.busy += now - self.last;
        }
        self.last = now;
        if heartbeat::is_due(&self.heart, now) {
            self.beat(now);
        }
        if self.mailbox.is_full() && !self.handle_mail(now, here) {
            self.has_ended = true;
            return Turn::End;
        }
        let activity = self.worker.step(now);
        self.was_idle = activity != Activity::Busy;
        if !matches!(activity, Activity::Blocked(_)) {
            self.blocked_wait = BLOCKED_WAIT;
        }
        match activity {
            Activity::Busy => {
                self.busy_turns += 1;
                return Turn::Busy;
            }
            _ if self.settings.busy_poll => {
                self.worker.io_mut().wake_drivers();
                std::hint::spin_loop();
                return Turn::Busy;
            }
            Activity::Blocked(pause) => {
                self.rest = (self.blocked_wait, pause);
                self.blocked_wait = (self.blocked_wait + self.blocked_wait).min(BLOCKED_WAIT_MAX);
            }
            Activity::Idle(pause) => self.rest = (BEAT_EVERY, pause),
        }
        Turn::Rest
    }

    /// When its next packet may leave.
    pub(crate) fn due(&self) -> Nanos {
        self.rest.1.until
    }

    /// How long it may sleep from `now` on, at most.
    pub(crate) fn at_most(&self, now: Nanos) -> Nanos {
        let (longest, pause) = self.rest;
        pause.at_most(now).map_or(longest, |left| left.min(longest))
    }

    /// Adds what wakes it.
    pub(crate) fn listen(&self, polled: &mut PollSet) {
        let (_, pause) = self.rest;
        for (socket, listens) in self.worker.io().arrivals(pause.listen) {
            polled.add(socket, listens);
        }
        polled.add(self.mailbox.wake(), true);
    }

    /// Sends its final report, when its sockets are closed. `thread` served it.
    pub(crate) fn end(self, thread: u32) {
        let report = self.report(thread);
        let Self { worker, last_words, home, .. } = self;
        drop(worker);
        // The receiver may be gone.
        let _ = last_words.send(report);
        home.end();
    }

    /// Beats. A worker that was bypassed first drops all packets from before.
    fn beat(&mut self, now: Nanos) {
        if let Some(silence) = heartbeat::silence(self.heart.last(), now) {
            self.give_up();
            self.heart.recover(silence);
        }
        self.heart.beat(now);
    }

    /// Drops the queues and the contents of the RX rings. The steering programs add nothing until
    /// the next beat, so the loop is bounded by the number of frames.
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

    /// Handles the messages in the mailbox. Returns false if the worker is to stop.
    #[cold]
    fn handle_mail(&mut self, now: Nanos, here: &OnThread<'_>) -> bool {
        let Some(mut mail) = self.mailbox.take(here.alone) else { return true };
        for (egress, spec) in mail.take_updates() {
            self.worker.update(egress, spec, now);
        }
        // Clients may have stopped waiting.
        if let Some(answer) = mail.applied {
            let _ = answer.send(());
        }
        if let Some((egress, answer)) = mail.counts {
            let _ = answer.send(self.worker.class_counts(egress));
        }
        if let Some((ports, answer)) = mail.roots {
            let count = |port: &PortId| RootCount::of(&self.worker.qdisc_stats(*port));
            let _ = answer.send(ports.iter().map(count).collect());
        }
        if let Some(answer) = mail.asked {
            self.worker.io_mut().recover(now);
            let _ = answer.send(self.report(here.thread));
        }
        if let Some(answer) = mail.sockets {
            let _ = answer.send(self.worker.io().sockets());
        }
        if let Some(pause) = mail.pause
            && self.stand_still(&pause, here)
        {
            return false;
        }
        if mail.stop {
            self.take_in(now);
            self.worker.abandon(DropReason::PortGone);
        }
        !mail.stop
    }

    /// Reports what is queued and waits for the decision who continues: this worker, or, if true,
    /// another process.
    fn stand_still(&mut self, Standing { answer, leave }: &Standing, here: &OnThread<'_>) -> bool {
        let report = self.report(here.thread);
        let ports = self.worker.ports();
        let ids: PerPort<_> = ports.map(|egress| self.worker.take_out(egress)).collect();
        let mut queued = self.worker.io().at_rest();
        for ids in &ids {
            let mut of_port = Queued::default();
            for &id in ids {
                of_port.push(self.worker.meta(id).arrival, self.worker.io().frames_of(id));
            }
            queued.queued.push(of_port);
        }
        // The client may have stopped waiting; the dropped sender shows that, too.
        let _ = answer.send(Paused { report, queued });
        loop {
            match leave.recv_timeout(STANDING_LOOK) {
                Ok(()) => return true,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => here.turn_away(),
            }
        }
        let now = clock::now();
        for (egress, ids) in ids.iter_enumerated() {
            self.worker.take_back(egress, ids, now);
        }
        false
    }

    /// Receives the rest of the RX rings, which would otherwise be lost uncounted. The programs
    /// that fill them are detached by now, so the loop is bounded by the number of frames.
    fn take_in(&mut self, now: Nanos) {
        for _ in 0..self.worker.io().frame_count() {
            if self.worker.step(now) != Activity::Busy {
                break;
            }
        }
    }

    fn report(&self, thread: u32) -> WorkerReport {
        let io = self.worker.io();
        let now = clock::now();
        let port = |port: PortId| PortReport {
            arrived: self.worker.arrived(port),
            path: self.worker.counters(port),
            backlog: self.worker.backlog(port),
            delays: self.worker.delays(port).clone(),
            heaviest: self.worker.heaviest(port, now),
            beyond: self.worker.beyond(port, now),
            qdiscs: self.worker.qdisc_stats(port),
            tx_kicks: io.kicks(port),
            kernel_drops: io.kernel_drops(port),
        };
        WorkerReport {
            ports: self.worker.ports().map(port).collect(),
            busy: self.busy,
            idle: self.idle,
            cpu_time: self.cpu_time,
            thread,
            frames: io.frame_counts(),
            all_frames: io.frame_count(),
            stray_frames: io.stray_frames(),
        }
    }

    /// Returns to its own thread, which exists as long as the worker.
    pub(crate) fn go_home(self: Box<Self>) {
        let home = Arc::clone(&self.home);
        if let Err(runner) = home.put(self) {
            unreachable!(
                "the thread of queue {} has ended before its worker",
                runner.settings.queue
            )
        }
    }
}

/// The thread that serves a worker, as far as the worker is concerned.
pub(crate) struct OnThread<'a> {
    /// By the queue whose home it is.
    pub(crate) thread: u32,
    /// It serves no other worker.
    pub(crate) alone: bool,
    /// Where other workers are handed over to it.
    pub(crate) handoff: &'a HandoffQueue<Runner>,
}

impl OnThread<'_> {
    /// Sends back the workers that were handed over: they would wait for a paused worker.
    fn turn_away(&self) {
        if self.handoff.is_full() {
            for runner in self.handoff.take() {
                runner.go_home();
            }
        }
    }
}
