//! What a process does for the clients of its control socket, part by part.
//!
//! A part takes milliseconds. What only shows something is done beside the loop, from the instance
//! as it is. A batch runs in slices. The changes of a slice are put in force together, because
//! every change makes all workers look up; only what removes something is never together with what
//! adds something, so that what is removed is gone before its place is taken. If any change of a
//! slice is refused, its lines run again one by one, so that the complaint is about the right line.

use crate::beside::{Beside, Pending};
use crate::clock;
use crate::control::{Step, Task, line};
use crate::instance::Instance;
use crate::reload::Reload;
use crate::state::{StateFile, keep};
use crate::tc_host::Commands;
use crate::upgrades::Upgrades;
use narrows_control::{Answer, Request};
use narrows_tc::{Batch, ClassNames, Outcome};
use narrows_units::Nanos;
use std::sync::Arc;

/// How long a batch runs before other clients are served,
const SLICE: Nanos = Nanos::from_millis(50);
/// and how many lines at most: a request takes several turns of the loop, each with a slice, and
/// queues that have thousands of lines to catch up with build everything anew.
const LINES: usize = 500;
/// How many commands are shown at a time; others wait.
const READERS: usize = 4;

/// What a client's request may need; see the module's documentation.
pub(crate) struct Work<'a> {
    pub(crate) instance: &'a mut Instance,
    pub(crate) upgrades: &'a mut Upgrades,
    pub(crate) state: Option<&'a mut StateFile>,
    /// The policy file that is being read.
    pub(crate) reload: Option<&'a mut Reload>,
    pub(crate) beside: &'a Beside,
    /// Whether a batch has begun that is not done.
    pub(crate) amid_batch: bool,
    /// Each command that is being shown has a copy.
    pub(crate) readers: &'a Arc<()>,
}

impl Work<'_> {
    /// Works on `task` for a while; `has_begun` if not for the first time.
    pub(crate) fn step(mut self, task: &mut Task, has_begun: bool) -> Step {
        let request = match task {
            Task::Beside(pending) => return finished(pending),
            Task::Batch(_) | Task::Restore(_) if !has_begun && self.has_to_wait() => {
                return Step::Later;
            }
            Task::Batch(batch) => {
                if slice(self.instance, batch) {
                    return Step::More;
                }
                return Step::Done(self.kept(batch.end()));
            }
            Task::Restore(restore) => {
                let end = clock::now() + SLICE;
                while self.instance.restore_set(restore) {
                    if clock::now() >= end {
                        return Step::More;
                    }
                }
                return Step::Done(self.instance.restored_sets(restore).into());
            }
            Task::Whole(request) => request,
        };
        let answer = match request {
            Request::Set { args } => self.instance.run_set(args).into(),
            Request::Balance { args } => self.instance.run_balance(args).into(),
            Request::Health { servers } => self.instance.set_health(servers).into(),
            Request::RestoreServices { text } => self.instance.restore_services(text).into(),
            Request::Ports => Answer::Ports(self.instance.forwarding().names().to_vec()),
            Request::Show => Answer::Show(Box::new(self.instance.show())),
            Request::UpgradeStatus => Answer::Upgrade(self.upgrades.status()),
            Request::Fleet(order) => match self.instance.share(order) {
                Ok(facts) => Answer::Fleet(Box::new(facts)),
                Err(error) => Answer::Refused(error.to_string()),
            },
            Request::Route(asked) => {
                if !self.has_reader() {
                    return Step::Later;
                }
                match self.instance.about_routes(asked) {
                    Ok(question) => {
                        *task = self.beside(|| question.answer());
                        return Step::Later;
                    }
                    Err(why) => Answer::Refused(why),
                }
            }
            Request::ShowWithTrees => {
                if !self.has_reader() {
                    return Step::Later;
                }
                let seen = self.instance.see_with_trees();
                let show = || Answer::Show(Box::new(seen.show()));
                *task = self.beside(show);
                return Step::Later;
            }
            Request::Tc { args, names } => {
                let names = names.as_deref().map(|text| Arc::new(ClassNames::parse(text)));
                if let Some(with_figures) = narrows_tc::shows(args) {
                    if !self.has_reader() {
                        return Step::Later;
                    }
                    let mut seen = self.instance.see(with_figures);
                    let (args, warning) = (std::mem::take(args), warning(self.instance));
                    *task = self.beside(move || {
                        let mut outcome = narrows_tc::execute_named(&args, names, &mut seen);
                        outcome.stderr.push_str(&warning);
                        outcome.into()
                    });
                    return Step::Later;
                }
                self.command(args, names)
            }
            Request::Upgrade { .. } | Request::LetGo { .. } if self.has_to_wait() => {
                return Step::Later;
            }
            // It would end with this process.
            Request::Upgrade { .. } if self.amid_batch => return Step::Later,
            Request::Upgrade { binary } => {
                Answer::Upgrade(self.upgrades.request(binary.as_deref(), self.instance))
            }
            Request::LetGo { why, .. } => match self.instance.let_go(std::mem::take(why)) {
                Ok(()) => Answer::LetGo,
                Err(error) => Answer::Refused(error.to_string()),
            },
            Request::RestoreSets { .. } | Request::Batch { .. } => {
                unreachable!("these are tasks of their own")
            }
        };
        Step::Done(answer)
    }

    /// Whether what takes long must not begin now: a file is being read, and it would come before;
    /// or another process takes over, and it could not end.
    fn has_to_wait(&self) -> bool {
        self.reload.is_some() || self.upgrades.is_running()
    }

    fn has_reader(&self) -> bool {
        Arc::strong_count(self.readers) <= READERS
    }

    /// A task for another thread, which makes the answer.
    fn beside(&self, make: impl FnOnce() -> Answer + Send + 'static) -> Task {
        let reader = Arc::clone(self.readers);
        Task::Beside(self.beside.start("show", move || {
            let line = line(&make());
            drop(reader);
            line
        }))
    }

    /// Runs one command that may change something.
    fn command(&mut self, words: &[String], names: Option<Arc<ClassNames>>) -> Answer {
        let before = self.reload.is_some().then(|| self.instance.policy().clone());
        let mut host = Commands::at_once(self.instance);
        let outcome = narrows_tc::execute_named(words, names.clone(), &mut host);
        if let (Some(before), Some(reload)) = (before, &mut self.reload)
            && before != *self.instance.policy()
        {
            reload.given(words, names);
        }
        self.kept(outcome)
    }

    /// `outcome` of a change, when the policy is saved.
    fn kept(&mut self, mut outcome: Outcome) -> Answer {
        if let Some(why) = keep(self.instance, self.state.as_deref_mut(), self.beside) {
            let warning = format!("Warning: this is in force, but not kept: {why}\n");
            outcome.stderr.push_str(&warning);
        }
        outcome.stderr.push_str(&warning(self.instance));
        outcome.into()
    }
}

fn finished(pending: &Pending<Vec<u8>>) -> Step {
    match pending.take() {
        None => Step::Later,
        Some(Ok(line)) => Step::Line(line),
        Some(Err(lost)) => Step::Done(Answer::Refused(lost.to_string())),
    }
}

/// Runs lines of `batch` for a while. False if it is at its end.
fn slice(instance: &mut Instance, batch: &mut Batch) -> bool {
    let end = clock::now() + SLICE;
    let mut settled = batch.mark();
    let mut host = Commands::together(instance);
    let mut removed = None;
    let mut has_more = true;
    for _ in 0..LINES {
        let removes = batch.removes_next();
        if removed.is_some_and(|removed| removed != removes) {
            if !host.settle() {
                break;
            }
            settled = batch.mark();
        }
        removed = Some(removes);
        has_more = batch.step(&mut host);
        if !has_more || clock::now() >= end {
            break;
        }
    }
    if host.settle() {
        return has_more;
    }
    batch.back(settled);
    let mut host = Commands::at_once(instance);
    let end = clock::now() + SLICE;
    while batch.step(&mut host) {
        if clock::now() >= end {
            return true;
        }
    }
    false
}

/// The note for a client that asks for something while workers are silent. The command has not
/// failed, and its changes are in force.
fn warning(instance: &Instance) -> String {
    let silent = instance.silent_workers();
    silent.iter().map(|worker| format!("Warning: {worker}.\n")).collect()
}
