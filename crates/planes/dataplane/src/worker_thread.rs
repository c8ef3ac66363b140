//! The thread of a worker, seen from outside: starting it, sending it messages, reading its
//! reports.
//!
//! Each worker has a thread of its own, pinned to its core; at low load the first of them may serve
//! all ([`WorkerLoop`]). Messages reach a worker on any thread.

use crate::handoff::HandoffQueue;
use crate::mailbox::{Mailbox, Standing};
use crate::priority::Priority;
use crate::runner::{Runner, Settings};
use crate::worker_loop::WorkerLoop;
use crate::worker_report::{Paused, RootCount, WorkerReport, WorkerSockets};
use crate::xdp_io::XdpIo;
use narrows_bpf::Heart;
use narrows_forwarding::PortId;
use narrows_qdisc::Spec;
use narrows_qdisc::htb::ClassCount;
use narrows_shaper::Worker;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

/// How much later than asked a sleep may end, in nanoseconds, so that the kernel can merge
/// timers. The default of 50 us would make every departure that late.
const TIMER_SLACK_NS: u64 = 1;

/// A running worker, seen from outside.
pub(crate) struct WorkerThread {
    mailbox: Arc<Mailbox>,
    last_word: Receiver<WorkerReport>,
    handoff: Arc<HandoffQueue<Runner>>,
    pub(crate) cpu: usize,
}

impl WorkerThread {
    /// Starts it. If `host` is given, its thread serves this worker, too, while it can.
    pub(crate) fn spawn(
        worker: Worker<XdpIo>,
        settings: Settings,
        heart: Heart,
        host: Option<&Self>,
    ) -> io::Result<Self> {
        let (mailbox, handoff) = (Arc::new(Mailbox::new()?), Arc::new(HandoffQueue::new()?));
        let (last_words, last_word) = channel();
        let Settings { queue, cpu, sharing, busy_poll } = settings;
        let home = Arc::clone(&handoff);
        let runner = Runner::new(worker, settings, mailbox.clone(), heart, last_words, home);
        let host = host.map(|host| Arc::clone(&host.handoff));
        let worker_loop = WorkerLoop::new(queue, Arc::clone(&handoff), host, runner);
        // No thread joins it, because a hanging thread would block the joining one. Its worker's
        // final report comes when its sockets are closed.
        std::thread::Builder::new().name(format!("nrw-q{queue}")).spawn(move || {
            settle(cpu);
            let priority =
                if busy_poll { Priority::ordinary() } else { Priority::real_time(sharing) };
            worker_loop.run(priority);
        })?;
        Ok(Self { mailbox, last_word, handoff, cpu })
    }

    /// Makes the worker apply `spec` to `egress`, at its next step.
    pub(crate) fn update(&self, egress: PortId, spec: Spec) {
        self.mailbox.put(|mail| mail.update(egress, spec));
    }

    /// Asks to be told when all earlier updates are in effect.
    pub(crate) fn applied(&self) -> Receiver<()> {
        let (answer, inbox) = channel();
        self.mailbox.put(|mail| mail.applied = Some(answer));
        inbox
    }

    /// Asks what the classes of `egress` count.
    pub(crate) fn class_counts(&self, egress: PortId) -> Receiver<Vec<ClassCount>> {
        let (answer, inbox) = channel();
        self.mailbox.put(|mail| mail.counts = Some((egress, answer)));
        inbox
    }

    /// Asks what the roots of `ports` count, in their order.
    pub(crate) fn roots(&self, ports: &[PortId]) -> Receiver<Vec<RootCount>> {
        let (answer, inbox) = channel();
        self.mailbox.put(|mail| mail.roots = Some((ports.to_vec(), answer)));
        inbox
    }

    /// Requests a report. When it arrives, all earlier updates are in effect.
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

    /// Pauses the worker, and asks for its queues. It resumes with them when the sender is dropped,
    /// and ends without touching anything when it is told to leave.
    pub(crate) fn pause(&self) -> (Receiver<Paused>, Sender<()>) {
        let ((answer, inbox), (go, leave)) = (channel(), channel());
        self.mailbox.put(|mail| mail.pause = Some(Standing { answer, leave }));
        (inbox, go)
    }

    /// Makes the worker end, at its next step.
    pub(crate) fn stop(&self) {
        self.mailbox.put(|mail| mail.stop = true);
    }

    /// Waits for the last report of a worker that was told to stop; `None` if it has not ended at
    /// `deadline`. Then its queue stays taken until it ends, or the process does.
    pub(crate) fn last_word(&self, deadline: Instant) -> Option<WorkerReport> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.last_word.recv_timeout(left).ok()
    }
}

/// Sets the calling thread up as a worker's thread on core `cpu`. Each setting only improves
/// performance, so a refusal is reported and ignored.
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
}
