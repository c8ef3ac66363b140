//! The processes that run, brought to those that are [wanted](super::wanted).
//!
//! Nothing follows single events. Whenever something has happened, what runs is compared with what
//! is wanted, so an event that was lost costs nothing. Of two processes for one name, or for one
//! device under two names, the second starts once the first has ended.

use super::backoff::Backoff;
use super::wanted::{Target, Wanted};
use narrows_escape::line;
use narrows_units::Nanos;
use rustix::process::{Pid, Signal};
use std::collections::BTreeMap;
use std::io;

/// How many processes start at a time: each has the kernel verify programs, on a core of its own.
const STARTS: usize = 4;
/// How long a start may keep others waiting.
pub(super) const START_TIME: Nanos = Nanos::from_secs(20);
/// How long a process may take to end, together with all others, before it is killed.
pub(super) const END_TIME: Nanos = Nanos::from_secs(15);

/// What starts processes and signals to them. Another one for tests.
pub(super) trait Processes {
    /// Starts one for `target`.
    fn start(&mut self, target: &Target) -> io::Result<Pid>;
    /// Sends `signal` to a process that has not been waited for.
    fn signal(&mut self, process: Pid, signal: Signal);
    /// Forgets what was kept for `target`, which is wanted no more.
    fn forget(&mut self, target: &Target);
}

/// What a process says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Notice {
    /// It shapes.
    Ready,
    /// This process has taken over from it.
    ReplacedBy(Pid),
}

/// A process that runs.
#[derive(Debug)]
struct Process {
    id: Pid,
    since: Nanos,
    is_ready: bool,
    /// Its policy file has changed since it was started.
    is_behind: bool,
    /// It was asked to end, and is killed at this time.
    killed_at: Option<Nanos>,
}

impl Process {
    /// Whether it may yet become ready in time.
    fn is_starting(&self, now: Nanos) -> bool {
        !self.is_ready && now < self.since + START_TIME
    }
}

/// What is kept for one target.
#[derive(Debug)]
struct Child {
    target: Target,
    process: Option<Process>,
    backoff: Backoff,
    /// Whether a process has been ready, or has failed.
    is_settled: bool,
}

/// All processes.
pub(super) struct Children<P> {
    by_label: BTreeMap<String, Child>,
    processes: P,
}

impl<P: Processes> Children<P> {
    /// None yet.
    pub(super) fn new(processes: P) -> Self {
        Self { by_label: BTreeMap::new(), processes }
    }

    /// What starts them.
    pub(super) fn processes(&mut self) -> &mut P {
        &mut self.processes
    }

    /// The targets whose processes run, or are to run.
    pub(super) fn targets(&self) -> impl Iterator<Item = &Target> {
        self.by_label.values().map(|child| &child.target)
    }

    /// Ends what is not `wanted`, and starts what is and can.
    pub(super) fn reconcile(&mut self, wanted: &Wanted, now: Nanos) {
        let is_wanted = |label: &String, target: &Target| {
            wanted.get(label).is_some_and(|(wanted, _)| wanted == target)
        };
        for (label, child) in &mut self.by_label {
            if let Some(process) = &mut child.process
                && !is_wanted(label, &child.target)
            {
                end(&mut self.processes, process, now);
            }
        }
        let processes = &mut self.processes;
        self.by_label.retain(|label, child| {
            let stays = child.process.is_some() || is_wanted(label, &child.target);
            if !stays {
                processes.forget(&child.target);
            }
            stays
        });
        for (label, (target, may_start)) in wanted {
            let runs = self.by_label.get(label).is_some_and(|child| child.process.is_some());
            let is_taken = |child: &Child| child.process.is_some() && child.target.is_at(target);
            if runs || !may_start || self.by_label.values().any(is_taken) {
                continue;
            }
            let new = || Child {
                target: target.clone(),
                process: None,
                backoff: Backoff::default(),
                is_settled: false,
            };
            let starting = self.starting(now);
            let child = self.by_label.entry(label.clone()).or_insert_with(new);
            if starting < STARTS && child.backoff.next() <= now {
                match self.processes.start(target) {
                    Ok(id) => {
                        let (is_ready, is_behind, killed_at) = (false, false, None);
                        let process = Process { id, since: now, is_ready, is_behind, killed_at };
                        child.process = Some(process);
                    }
                    Err(error) => failed(child, &error.to_string(), Nanos::ZERO, now),
                }
            }
        }
    }

    /// How many are starting.
    fn starting(&self, now: Nanos) -> usize {
        let is_starting =
            |process: &&Process| process.killed_at.is_none() && process.is_starting(now);
        self.running().filter(is_starting).count()
    }

    fn running(&self) -> impl Iterator<Item = &Process> {
        self.by_label.values().filter_map(|child| child.process.as_ref())
    }

    /// Takes what the process `id` says. Returns the target that is shaped from now on, if any.
    pub(super) fn hear(&mut self, id: Pid, notice: Notice) -> Option<&Target> {
        let child = self.by_label.values_mut().find(|child| is_of(child, id))?;
        let process = child.process.as_mut()?;
        match notice {
            Notice::Ready => {
                child.is_settled = true;
                if std::mem::take(&mut process.is_behind) {
                    self.processes.signal(id, Signal::HUP);
                }
                (!std::mem::replace(&mut process.is_ready, true)).then_some(&child.target)
            }
            Notice::ReplacedBy(new) => {
                process.id = new;
                if process.killed_at.is_some() {
                    // The request to end was for the one before.
                    self.processes.signal(new, Signal::TERM);
                }
                None
            }
        }
    }

    /// Notes that the process `id` has ended, and how.
    pub(super) fn ended(&mut self, id: Pid, how: &str, now: Nanos) {
        let Some(child) = self.by_label.values_mut().find(|child| is_of(child, id)) else { return };
        let Some(process) = child.process.take() else { return };
        if process.killed_at.is_none() {
            failed(child, how, now.since(process.since), now);
        }
    }

    /// Kills those that were asked to end long ago.
    pub(super) fn hurry(&mut self, now: Nanos) {
        for (label, child) in &mut self.by_label {
            let Some(process) = &mut child.process else { continue };
            if process.killed_at.is_some_and(|at| at <= now) {
                log::warn!("{}: process {} does not end, and is killed", line(label), process.id);
                self.processes.signal(process.id, Signal::KILL);
                process.killed_at = Some(Nanos::MAX);
            }
        }
    }

    /// Asks all to end.
    pub(super) fn end_all(&mut self, now: Nanos) {
        for child in self.by_label.values_mut() {
            if let Some(process) = &mut child.process {
                end(&mut self.processes, process, now);
            }
        }
    }

    /// Whether any still runs.
    pub(super) fn any_runs(&self) -> bool {
        self.running().next().is_some()
    }

    /// Lets all read their policies again. One that is starting is asked once it is ready: before
    /// it can be asked, the signal would end it.
    pub(super) fn reload_all(&mut self) {
        for process in self.by_label.values_mut().filter_map(|child| child.process.as_mut()) {
            match process {
                Process { killed_at: Some(_), .. } => {}
                Process { is_ready: true, id, .. } => self.processes.signal(*id, Signal::HUP),
                Process { is_behind, .. } => *is_behind = true,
            }
        }
    }

    /// Whether each that is `wanted` and can start shapes, or has failed to, or hangs.
    pub(super) fn are_settled(&self, wanted: &Wanted, now: Nanos) -> bool {
        let hangs = |process: &Process| !process.is_ready && !process.is_starting(now);
        let is_settled =
            |child: &Child| child.is_settled || child.process.as_ref().is_some_and(hangs);
        let mut startable = wanted.iter().filter(|(_, (_, may_start))| *may_start);
        startable.all(|(label, _)| self.by_label.get(label).is_some_and(is_settled))
    }

    /// The targets that are shaped.
    pub(super) fn shaped(&self) -> impl Iterator<Item = &Target> {
        let is_shaped = |child: &&Child| child.process.as_ref().is_some_and(|one| one.is_ready);
        self.by_label.values().filter(is_shaped).map(|child| &child.target)
    }

    /// When something is due by itself after `now`; [`Nanos::MAX`] if nothing is.
    pub(super) fn next(&self, now: Nanos) -> Nanos {
        let due = |child: &Child| match &child.process {
            Some(Process { killed_at: Some(at), .. }) => *at,
            Some(process) => process.since + START_TIME,
            None => child.backoff.next(),
        };
        let due = self.by_label.values().map(due).filter(|&at| at > now);
        due.min().unwrap_or(Nanos::MAX)
    }
}

fn is_of(child: &Child, id: Pid) -> bool {
    child.process.as_ref().is_some_and(|process| process.id == id)
}

/// Asks `process` to end, once.
fn end(processes: &mut impl Processes, process: &mut Process, now: Nanos) {
    if process.killed_at.is_none() {
        process.killed_at = Some(now + END_TIME);
        processes.signal(process.id, Signal::TERM);
    }
}

/// Notes that the process of `child` has failed after it had run for a while.
fn failed(child: &mut Child, how: &str, ran: Nanos, now: Nanos) {
    child.is_settled = true;
    if child.backoff.ended(how, ran, now) {
        let wait = child.backoff.wait().0 / Nanos::from_secs(1).0;
        let label = child.target.label();
        log::warn!("{}: its process has ended ({how}); it starts again in {wait} s", line(&label));
    }
}

#[cfg(test)]
mod tests;
