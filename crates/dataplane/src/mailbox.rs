//! What a worker is told: a mailbox that never holds more than a worker needs, however long it does
//! not look.
//!
//! Of several updates for the same port a worker needs only the latest of its shape and the latest
//! parameters for that, and of several questions only the last: whoever asked before has stopped
//! waiting. So a worker that was silent through a thousand changes takes over the newest policy in
//! one step.
//!
//! The worker looks at a flag once per step and takes the lock only where that is set.

use crate::bell::Bell;
use crate::runner::{Standing, WorkerReport, WorkerSockets};
use narrows_policy::Update;
use narrows_worker::Side;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// See the module's documentation.
pub(crate) struct Mailbox {
    mail: Mutex<Mail>,
    bell: Bell,
}

/// What has come in.
#[derive(Default)]
pub(crate) struct Mail {
    updates: [Updates; 2],
    /// Wants a report, once all else is done.
    pub(crate) asked: Option<Sender<WorkerReport>>,
    /// Wants to know what sockets it has.
    pub(crate) sockets: Option<Sender<io::Result<WorkerSockets>>>,
    /// It is to stand still.
    pub(crate) pause: Option<Standing>,
    /// The worker is to end.
    pub(crate) stop: bool,
}

/// What is still to be taken over for one port. A new shape makes all that came before it moot;
/// parameters are for the shape that is there then.
#[derive(Default)]
struct Updates {
    shape: Option<Update>,
    parameters: Option<Update>,
}

impl Mail {
    /// Adds an update for what goes out of `egress`.
    pub(crate) fn update(&mut self, egress: Side, update: Update) {
        let updates = &mut self.updates[egress.index()];
        match update {
            Update::Replace(_) => *updates = Updates { shape: Some(update), parameters: None },
            Update::Retune(_) => updates.parameters = Some(update),
        }
    }

    /// The updates, in the order in which they are to be taken over.
    pub(crate) fn take_updates(&mut self) -> impl Iterator<Item = (Side, Update)> {
        let updates = std::mem::take(&mut self.updates);
        Side::BOTH.into_iter().zip(updates).flat_map(|(egress, updates)| {
            let both = updates.shape.into_iter().chain(updates.parameters);
            both.map(move |update| (egress, update))
        })
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

    /// Whether the worker is to have its thread for itself before it takes anything out.
    pub(crate) fn wants_one_alone(&self) -> bool {
        self.is_full() && self.mail().pause.is_some()
    }

    fn mail(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something has come in.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.bell.has_rung()
    }

    /// Takes everything out, for a worker that has its thread for itself where `alone` is true.
    /// Where it has not and would have to, all stays in.
    pub(crate) fn take(&self, alone: bool) -> Option<Mail> {
        let mut mail = self.mail();
        if mail.pause.is_some() && !alone {
            return None;
        }
        self.bell.silence();
        Some(std::mem::take(&mut mail))
    }

    /// Can be read while there is something to take.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.bell.wake()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_qdisc::{Config, Spec, fifo};
    use std::sync::mpsc::channel;

    /// A `pfifo` with that limit, which tells updates apart.
    fn spec(limit: u32) -> Spec {
        Spec::new(Config::Fifo(fifo::Config::Packets(limit)))
    }

    /// What a worker takes over: where, whether that is a new shape, and its limit.
    fn taken_over(mailbox: &Mailbox) -> Vec<(Side, bool, u32)> {
        let updates = mailbox.take(false).unwrap().take_updates().collect::<Vec<_>>();
        let one = |(egress, update)| {
            let (is_shape, spec) = match update {
                Update::Replace(spec) => (true, spec),
                Update::Retune(spec) => (false, spec),
            };
            let Config::Fifo(fifo::Config::Packets(limit)) = spec.config else { panic!("a pfifo") };
            (egress, is_shape, limit)
        };
        updates.into_iter().map(one).collect()
    }

    #[test]
    fn what_came_while_nobody_looked_is_one_shape_and_one_set_of_parameters() {
        let mailbox = Mailbox::new().unwrap();
        let put = |egress, update| mailbox.put(|mail| mail.update(egress, update));
        put(Side::A, Update::Retune(spec(1)));
        put(Side::A, Update::Replace(spec(2)));
        put(Side::B, Update::Retune(spec(3)));
        for limit in 4..1000 {
            put(Side::A, Update::Retune(spec(limit)));
        }
        let expected = [(Side::A, true, 2), (Side::A, false, 999), (Side::B, false, 3)];
        assert_eq!(taken_over(&mailbox), expected);
        put(Side::B, Update::Retune(spec(5)));
        put(Side::B, Update::Replace(spec(6)));
        assert_eq!(taken_over(&mailbox), [(Side::B, true, 6)]);
        assert_eq!(taken_over(&mailbox), []);
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
    fn what_needs_the_whole_thread_stays_in_until_the_worker_has_it() {
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
