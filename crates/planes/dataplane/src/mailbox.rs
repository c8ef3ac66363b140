//! Messages to a worker: a mailbox of bounded size, however long the worker does not look.
//!
//! Of several specifications for the same port a worker needs only the latest, with the meters of
//! earlier ones that are still valid, and of several requests only the last: earlier clients have
//! stopped waiting. So a worker that was silent through a thousand changes applies the newest
//! policy in one step.
//!
//! The worker checks a flag once per step and takes the lock only if it is set.

use crate::bell::Bell;
use crate::worker_report::{Paused, RootCount, WorkerReport, WorkerSockets};
use narrows_forwarding::PortId;
use narrows_qdisc::Spec;
use narrows_qdisc::htb::ClassCount;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A worker's mailbox: the latest specification of each port, and the latest request.
pub(crate) struct Mailbox {
    mail: Mutex<Mail>,
    bell: Bell,
}

/// The received messages.
#[derive(Default)]
pub(crate) struct Mail {
    updates: BTreeMap<PortId, Spec>,
    /// Wants to know that all updates are in effect.
    pub(crate) applied: Option<Sender<()>>,
    /// Requests what the classes of a port count.
    pub(crate) counts: Option<(PortId, Sender<Vec<ClassCount>>)>,
    /// Requests what the roots of these ports count.
    pub(crate) roots: Option<(Vec<PortId>, Sender<Vec<RootCount>>)>,
    /// Requests a report, after all else.
    pub(crate) asked: Option<Sender<WorkerReport>>,
    /// Requests its sockets.
    pub(crate) sockets: Option<Sender<io::Result<WorkerSockets>>>,
    /// Pause.
    pub(crate) pause: Option<Standing>,
    /// The worker must end.
    pub(crate) stop: bool,
}

/// The request to pause.
pub(crate) struct Standing {
    /// Where it reports its state once it has paused.
    pub(crate) answer: Sender<Paused>,
    /// A message means that another process has taken over; if the sender is dropped without one,
    /// the worker continues.
    pub(crate) leave: Receiver<()>,
}

impl Mail {
    /// Sets the specification of `egress`.
    pub(crate) fn update(&mut self, egress: PortId, spec: Spec) {
        let spec = match self.updates.remove(&egress) {
            Some(before) => spec.after(before),
            None => spec,
        };
        self.updates.insert(egress, spec);
    }

    /// The new specification, and its port.
    pub(crate) fn take_updates(&mut self) -> BTreeMap<PortId, Spec> {
        std::mem::take(&mut self.updates)
    }
}

impl Mailbox {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { mail: Mutex::default(), bell: Bell::new()? })
    }

    /// Puts something in, and wakes the worker.
    pub(crate) fn put(&self, put: impl FnOnce(&mut Mail)) {
        put(&mut self.mail());
        self.bell.ring();
    }

    /// Whether the worker needs a thread of its own before it takes messages.
    pub(crate) fn wants_one_alone(&self) -> bool {
        self.is_full() && self.mail().pause.is_some()
    }

    fn mail(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there are messages.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.bell.has_rung()
    }

    /// Takes all messages. If one of them needs a dedicated thread and `alone` is false, all stay.
    pub(crate) fn take(&self, alone: bool) -> Option<Mail> {
        let mut mail = self.mail();
        if mail.pause.is_some() && !alone {
            return None;
        }
        self.bell.silence();
        Some(std::mem::take(&mut mail))
    }

    /// Readable while there are messages.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.bell.wake()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_coordination::{Coordination, Limit, Strategy};
    use narrows_qdisc::{Config, Metering, NodeId, Spec, fifo};
    use narrows_units::{Bytes, Rate};
    use std::sync::mpsc::channel;

    /// A `pfifo` with that name and limit.
    fn spec(id: u64, limit: u32) -> Spec {
        Spec { id: NodeId(id), ..Spec::new(Config::Fifo(fifo::Config::Packets(limit))) }
    }

    /// The specifications that a worker applies: port, name, and limit.
    fn taken_over(mailbox: &Mailbox) -> Vec<(PortId, u64, u32)> {
        let updates = mailbox.take(false).unwrap().take_updates();
        let one = |(egress, spec): (PortId, Spec)| {
            let Config::Fifo(fifo::Config::Packets(limit)) = spec.config else { panic!("a pfifo") };
            (egress, spec.id.0, limit)
        };
        updates.into_iter().map(one).collect()
    }

    #[test]
    fn only_the_latest_waiting_message_is_applied() {
        let mailbox = Mailbox::new().unwrap();
        let put = |egress, spec| mailbox.put(|mail| mail.update(egress, spec));
        put(PortId::FIRST, spec(1, 1));
        put(PortId::SECOND, spec(1, 3));
        for limit in 4..1000 {
            put(PortId::FIRST, spec(2, limit));
        }
        assert_eq!(taken_over(&mailbox), [(PortId::FIRST, 2, 999), (PortId::SECOND, 1, 3)]);
        assert_eq!(taken_over(&mailbox), []);
    }

    #[test]
    fn a_meter_that_was_never_taken_is_not_lost() {
        let (rate, bytes) = (Rate::from_bits_per_sec(1_000_000), Bytes(10_000));
        let limit = Limit { rate, burst: bytes, peak: None, backlog: bytes };
        let shared = Coordination::new(Strategy::FAIR, limit, 1);
        let mailbox = Mailbox::new().unwrap();
        let put = |metering, id| {
            let inner = Spec { metering, ..spec(id, 1) };
            let outer = Spec { children: vec![inner], ..spec(9, 1) };
            mailbox.put(|mail| mail.update(PortId::FIRST, outer));
        };
        let take = || {
            let spec = mailbox.take(false).unwrap().take_updates().pop_first().unwrap().1;
            spec.children.into_iter().next().unwrap().metering
        };
        put(Metering::Shared(shared.meter(0)), 1);
        put(Metering::Kept, 1);
        put(Metering::Kept, 1);
        assert!(matches!(take(), Metering::Shared(_)), "and it is free again");
        put(Metering::Shared(shared.meter(0)), 1);
        put(Metering::Own, 2);
        assert!(matches!(take(), Metering::Own), "another one has no use for it");
        drop(shared.meter(0));
    }

    #[test]
    fn only_the_latest_question_is_answered() {
        let mailbox = Mailbox::new().unwrap();
        assert!(!mailbox.is_full());
        let [(first, never), (second, answer)] = [channel(), channel()];
        for asked in [first, second] {
            mailbox.put(|mail| mail.asked = Some(asked));
        }
        assert!(mailbox.is_full());
        mailbox.take(false).unwrap().asked.unwrap().send(WorkerReport::default()).unwrap();
        assert!(never.try_recv().is_err() && answer.try_recv().is_ok());
        assert!(!mailbox.is_full() && mailbox.take(true).unwrap().asked.is_none());
    }

    #[test]
    fn messages_for_a_dedicated_thread_wait_until_the_worker_has_one() {
        let mailbox = Mailbox::new().unwrap();
        mailbox.put(|mail| mail.stop = true);
        assert!(!mailbox.wants_one_alone());
        let ((answer, _inbox), (_go, leave)) = (channel(), channel());
        mailbox.put(|mail| mail.pause = Some(Standing { answer, leave }));
        assert!(mailbox.wants_one_alone() && mailbox.take(false).is_none() && mailbox.is_full());
        let mail = mailbox.take(true).unwrap();
        assert!(mail.stop && mail.pause.is_some() && !mailbox.is_full());
    }
}
