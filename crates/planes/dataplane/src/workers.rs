//! All workers of a session: messages, reports, shutdown. Nothing here waits for a worker that
//! hangs longer than it takes to detect that.
//!
//! A silent worker's last report stands for it until it reports again, so counters never run
//! backwards. Messages to it wait in its mailbox.

use crate::clock;
use crate::heartbeat::{SILENT_AFTER, SilentWorker};
use crate::runner::Settings;
use crate::worker_report::{Paused, RootCount, WorkerReport, WorkerSockets};
use crate::worker_thread::WorkerThread;
use crate::xdp_io::XdpIo;
use narrows_bpf::{Heartbeats, Pulse};
use narrows_forwarding::PortId;
use narrows_packet::DropReason;
use narrows_qdisc::Spec;
use narrows_qdisc::htb::ClassCount;
use narrows_shaper::Worker;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

/// How long a worker may take to answer. A slower one counts as silent, and later calls do not wait
/// for it.
const ANSWER_TIME: Duration = Duration::from_nanos(SILENT_AFTER.0 + 50_000_000);
/// How long workers may take to stop.
const STOP_TIME: Duration = Duration::from_secs(1);

/// The workers of a session, with the last report of each.
pub(crate) struct Workers {
    heartbeats: Heartbeats,
    threads: Vec<WorkerThread>,
    /// The last report of each.
    known: RefCell<Vec<WorkerReport>>,
    /// What the roots of ports counted at each, where somebody has asked.
    known_roots: RefCell<Vec<BTreeMap<PortId, RootCount>>>,
}

/// Paused workers. They resume when this is dropped.
#[derive(Default)]
pub(crate) struct Standstill(Vec<Sender<()>>);

impl Standstill {
    /// Ends them without any further access: another process has taken over.
    pub(crate) fn leave(self) {
        for worker in self.0 {
            // A lost worker touches nothing either.
            let _ = worker.send(());
        }
    }
}

/// The end of all workers.
pub(crate) struct Ended {
    /// The last report of each.
    pub(crate) reports: Vec<WorkerReport>,
    /// Those that have not ended, by queue.
    pub(crate) left_behind: Vec<u32>,
}

impl Workers {
    /// No workers yet; they will beat in `heartbeats`.
    pub(crate) fn new(heartbeats: Heartbeats) -> Self {
        let (known, known_roots) = (RefCell::default(), RefCell::default());
        Self { heartbeats, threads: Vec::new(), known, known_roots }
    }

    /// Starts the worker of the next queue.
    pub(crate) fn start(&mut self, worker: Worker<XdpIo>, settings: Settings) -> io::Result<()> {
        let heart = self.heartbeats.heart(settings.queue, clock::now());
        let heart = heart.ok_or_else(|| io::Error::other("more queues than can be steered"))?;
        let thread = WorkerThread::spawn(worker, settings, heart, self.threads.first())?;
        self.threads.push(thread);
        self.known.get_mut().push(WorkerReport::default());
        Ok(())
    }

    pub(crate) fn count(&self) -> usize {
        self.threads.len()
    }

    /// The core that each is pinned to.
    pub(crate) fn cpus(&self) -> impl Iterator<Item = usize> + '_ {
        self.threads.iter().map(|thread| thread.cpu)
    }

    /// The state of each, as seen from outside.
    pub(crate) fn pulses(&self) -> impl Iterator<Item = Pulse> + '_ {
        (0u32..).zip(&self.threads).map(|(queue, _)| self.heartbeats.pulse(queue))
    }

    /// The silent ones.
    pub(crate) fn silent(&self) -> Vec<SilentWorker> {
        let now = clock::now();
        let seen = |(queue, pulse)| SilentWorker::seen(queue, &pulse, now);
        (0u32..).zip(self.pulses()).filter_map(seen).collect()
    }

    /// Sends each its specification for `egress`, and waits until all that are not silent have
    /// applied it. A silent one applies it before it does anything else.
    pub(crate) fn update(&self, egress: PortId, specs: Vec<Spec>) {
        for (thread, spec) in self.threads.iter().zip(specs) {
            thread.update(egress, spec);
        }
        // Not by a report, which takes as long as there are qdiscs.
        drop(self.answers(WorkerThread::applied));
    }

    /// What the leaf classes of `egress` count on each queue, if its root is a tree; nothing of a
    /// silent worker.
    pub(crate) fn class_counts(&self, egress: PortId) -> Vec<Vec<ClassCount>> {
        self.answers(|thread| thread.class_counts(egress)).into_iter().flatten().collect()
    }

    /// What the roots of `ports` have counted, in their order, as a sum over the workers; for a
    /// silent one, what it answered last.
    pub(crate) fn roots(&self, ports: &[PortId]) -> Vec<RootCount> {
        let answers = self.answers(|thread| thread.roots(ports));
        let mut known = self.known_roots.borrow_mut();
        known.resize_with(answers.len(), BTreeMap::new);
        for (known, answer) in known.iter_mut().zip(answers) {
            known.extend(answer.into_iter().flat_map(|counts| ports.iter().copied().zip(counts)));
        }
        let sum = |port: &PortId| {
            let mut sum = RootCount::default();
            known.iter().filter_map(|known| known.get(port)).for_each(|count| sum += *count);
            sum
        };
        ports.iter().map(sum).collect()
    }

    /// The answer of each to what `ask` asks; none of those that are silent.
    fn answers<T>(&self, ask: impl Fn(&WorkerThread) -> Receiver<T>) -> Vec<Option<T>> {
        let silent = self.silent();
        let is_silent = |queue| silent.iter().any(|worker| worker.queue == queue);
        let asked: Vec<_> = (0u32..)
            .zip(&self.threads)
            .map(|(queue, thread)| (!is_silent(queue)).then(|| ask(thread)))
            .collect();
        let deadline = Instant::now() + ANSWER_TIME;
        let left = || deadline.saturating_duration_since(Instant::now());
        asked.into_iter().map(|answer| answer?.recv_timeout(left()).ok()).collect()
    }

    /// The counters of each; for a silent one, its last report.
    pub(crate) fn reports(&self) -> Vec<WorkerReport> {
        let answers = self.answers(WorkerThread::ask);
        let mut known = self.known.borrow_mut();
        for (known, answer) in known.iter_mut().zip(answers) {
            if let Some(report) = answer {
                *known = report;
            }
        }
        known.clone()
    }

    /// The sockets of each, for another process; `None` if one does not answer within `time`.
    pub(crate) fn sockets(&self, time: Duration) -> Option<Vec<WorkerSockets>> {
        let end = Instant::now() + time;
        let asked: Vec<_> = self.threads.iter().map(WorkerThread::sockets).collect();
        let left = || end.saturating_duration_since(Instant::now());
        asked.into_iter().map(|answer| answer.recv_timeout(left()).ok()?.ok()).collect()
    }

    /// Pauses all workers, and returns their state. If one does not pause within `time`, all resume
    /// and there is no result; they also resume when the [`Standstill`] is dropped.
    pub(crate) fn pause(&self, time: Duration) -> Option<(Vec<Paused>, Standstill)> {
        let end = Instant::now() + time;
        let asked: Vec<_> = self.threads.iter().map(WorkerThread::pause).collect();
        let (answers, senders): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
        let standstill = Standstill(senders);
        let left = || end.saturating_duration_since(Instant::now());
        let paused = answers.into_iter().map(|answer| answer.recv_timeout(left()).ok());
        let paused = paused.collect::<Option<Vec<Paused>>>()?;
        Some((paused, standstill))
    }

    /// Stops all workers. The known backlog of one that does not stop counts as dropped.
    pub(crate) fn stop(&mut self) -> Ended {
        self.threads.iter().for_each(WorkerThread::stop);
        let deadline = Instant::now() + STOP_TIME;
        let mut ended = Ended { reports: Vec::new(), left_behind: Vec::new() };
        let known = self.known.take();
        for (queue, (thread, known)) in (0u32..).zip(self.threads.drain(..).zip(known)) {
            let report = thread.last_word(deadline).unwrap_or_else(|| {
                ended.left_behind.push(queue);
                given_up(known)
            });
            ended.reports.push(report);
        }
        ended
    }
}

impl Drop for Workers {
    /// Frees the queues of a session that could not be opened.
    fn drop(&mut self) {
        self.stop();
    }
}

/// The report of a lost worker.
fn given_up(mut report: WorkerReport) -> WorkerReport {
    for port in &mut report.ports {
        let backlog = std::mem::take(&mut port.backlog);
        port.path.drops.add(DropReason::Stalled, u64::from(backlog.packets));
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker_report::PortReport;
    use narrows_packet::Backlog;
    use narrows_shaper::PathCounters;
    use narrows_units::Bytes;

    #[test]
    fn packets_of_a_lost_worker_are_accounted_for() {
        let port = PortReport {
            path: PathCounters { rx_packets: 10, tx_packets: 7, ..PathCounters::default() },
            backlog: Backlog { packets: 3, bytes: Bytes(300) },
            ..PortReport::default()
        };
        let report = WorkerReport { ports: vec![port].into(), ..WorkerReport::default() };
        let last = given_up(report);
        let port = &last.ports[PortId::FIRST];
        assert_eq!(port.path.unaccounted(0), 0);
        assert_eq!(port.path.drops.get(DropReason::Stalled), 3);
        assert!(port.backlog.is_empty());
    }
}
