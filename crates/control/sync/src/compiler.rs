//! The commands from what was applied last to what the store has now.
//!
//! *Idea.* A process that stays keeps what it has compiled ([`Incremental`]), and the store notes
//! what has changed since. So a change of some subscribers costs what they are. All is compiled
//! anew at the first application of a process, after another process has applied, where sites have
//! changed, and with other settings.

use crate::applier::Settings;
use narrows_directory::{
    Change, Command, Directory, Form, Incremental, Numbers, Report, Subscriber,
};
use narrows_store::{Applied, Begun};

/// Compiles a store's directory, again and again.
#[derive(Debug, Default)]
pub(crate) struct Compiler {
    last: Option<Last>,
}

/// What was compiled last.
#[derive(Debug)]
struct Last {
    /// The revision of the store,
    revision: u64,
    /// and from which one it was changed to that; none if all was compiled.
    changed_from: Option<u64>,
    settings: Settings,
    compiled: Incremental,
}

impl Compiler {
    /// Compiles the directory that `begun` is about, with the `numbers` of classes. Returns what
    /// the operator should know, and the commands from what was applied before. There are none if
    /// that is not known; `former` are its settings, if an instance runs it.
    pub(crate) fn step(
        &mut self,
        begun: &Begun,
        (directory, numbers): (&Directory, &Numbers),
        settings: &Settings,
        former: Option<&Settings>,
    ) -> (Option<Vec<Command>>, Report) {
        let last = self.last.take();
        if let Some(mut last) = last.filter(|last| last.settings == *settings)
            && let Some(before) = begun.before.as_ref()
            && let Some(changes) = last.changes(before, directory)
            && let Some([from, to]) = last.compiled.change(&changes, numbers)
        {
            let report = last.compiled.report(directory);
            last.changed_from = Some(std::mem::replace(&mut last.revision, begun.revision));
            self.last = Some(last);
            let is_from_there = former == Some(settings);
            if former.is_none() || is_from_there {
                return (is_from_there.then(|| from.towards(&to)), report);
            }
        }
        let options = settings.options(numbers);
        let (next, report) = Form::compile(directory, &options);
        if self.last.is_none() {
            self.last = Some(Last {
                revision: begun.revision,
                changed_from: None,
                settings: settings.clone(),
                compiled: Incremental::new(directory, &options),
            });
        }
        let before = begun.before.as_ref().zip(former);
        let commands = before.map(|(before, former)| {
            let options = former.options(numbers);
            Form::compile(&before.directory(directory), &options).0.towards(&next)
        });
        (commands, report)
    }

    /// The last step was not taken: what was applied before is still in force.
    pub(crate) fn back(&mut self, begun: &Begun, (directory, numbers): (&Directory, &Numbers)) {
        let Some(before) = &begun.before else { return };
        // It may have been refused before it was compiled.
        let is_changed = |last: &mut Last| {
            last.revision == begun.revision && last.changed_from == Some(before.revision)
        };
        let Some(mut last) = self.last.take_if(is_changed) else { return };
        last.revision = before.revision;
        let Some(mut changes) = last.changes(before, directory) else { return };
        for change in &mut changes {
            std::mem::swap(&mut change.old, &mut change.new);
        }
        if last.compiled.change(&changes, numbers).is_some() {
            self.last = Some(last);
        }
    }

    /// What was applied is not known.
    pub(crate) fn forget(&mut self) {
        self.last = None;
    }
}

impl Last {
    /// What has become of the subscribers, if this is of the application `before`, and no site has
    /// changed since.
    fn changes<'a>(
        &self,
        before: &'a Applied,
        directory: &'a Directory,
    ) -> Option<Vec<Change<&'a Subscriber>>> {
        let differs = before.differs();
        if self.revision != before.revision || !differs.sites.is_empty() {
            return None;
        }
        let change = |(identity, old): (&String, &'a Option<Subscriber>)| {
            let (old, new) = (old.as_ref(), directory.subscribers.get(identity));
            Change { identity: identity.clone(), old, new }
        };
        let changes = differs.subscribers.iter().map(change);
        Some(changes.filter(|change| change.old != change.new).collect())
    }
}
