//! Commands that run on: what changed goes into the store at once, and to the instance.
//!
//! *Idea.* Changes come one by one, or a thousand at a time when a NAS comes back. The store takes
//! all that are there in one transaction, and the instance gets one batch. A change that the store
//! refuses, since another source has the address, does not hold up the others.

use crate::{Applied, Applier, ApplyError, FilesWriter};
use narrows_directory::Subscriber;
use narrows_store::{Edit, Store, StoreError};
use narrows_units::counted;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How often an instance is looked for that was not there, or refused.
const AGAIN: Duration = Duration::from_secs(10);
/// How much older than the instance the files may be, from which it starts: with 100,000
/// subscribers they are tens of megabytes, and are written on another thread. The store is never
/// older, and the next start of the command brings an instance to it.
const FILES: Duration = Duration::from_secs(30);

/// A store, and the instance that runs what is in it.
#[derive(Debug)]
pub struct Online {
    store: Store,
    applier: Applier,
    /// When to apply again what is not in force.
    again: Option<Instant>,
    files: FilesWriter,
    /// Within what time to write them after a change: at first at once.
    files_within: Duration,
    /// What was said last of an instance that does not take it.
    complaint: String,
    /// Sites that no source has, and that was said of.
    unknown_sites: BTreeSet<String>,
}

impl Online {
    /// Of a store and an instance.
    pub fn new(store: Store, applier: Applier) -> Self {
        // What the store has may be neither in force nor in the files yet.
        let files = FilesWriter::of(store.path().to_owned());
        Self {
            store,
            applier,
            again: Some(Instant::now()),
            files,
            files_within: Duration::ZERO,
            complaint: String::new(),
            unknown_sites: BTreeSet::new(),
        }
    }

    /// The store.
    pub fn store(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Keeps what `source` says of these subscribers. Returns those that were refused, with the
    /// reason: the store has them as before.
    ///
    /// # Errors
    /// If the store cannot be written. Then nothing is changed.
    pub fn keep(
        &mut self,
        source: &str,
        mut subscribers: BTreeMap<String, Option<Subscriber>>,
    ) -> Result<Vec<(String, StoreError)>, StoreError> {
        self.without_unknown_sites(&mut subscribers)?;
        let edit = Edit { subscribers: subscribers.clone(), ..Edit::default() };
        match self.store.change(source, edit) {
            Ok(_) => return Ok(Vec::new()),
            Err(StoreError::Conflict(_) | StoreError::Unsound(_)) => {}
            Err(error) => return Err(error),
        }
        // Who loses addresses comes before who gets them.
        let mut one_by_one: Vec<_> = subscribers.into_iter().collect();
        one_by_one.sort_by_key(|(_, one)| one.as_ref().map_or(0, |one| one.addresses.len()));
        let mut refused = Vec::new();
        for (identity, subscriber) in one_by_one {
            let subscribers = [(identity.clone(), subscriber)].into();
            match self.store.change(source, Edit { subscribers, ..Edit::default() }) {
                Ok(_) => {}
                Err(error @ (StoreError::Conflict(_) | StoreError::Unsound(_))) => {
                    refused.push((identity, error));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(refused)
    }

    /// A site that nobody has is none: its subscribers are at the top.
    fn without_unknown_sites(
        &mut self,
        subscribers: &mut BTreeMap<String, Option<Subscriber>>,
    ) -> Result<(), StoreError> {
        let sites = &self.store.directory()?.sites;
        for (identity, subscriber) in subscribers {
            let Some(subscriber) = subscriber else { continue };
            let site = subscriber.site.take_if(|site| !sites.contains_key(site));
            if let Some(site) = site
                && self.unknown_sites.insert(site.clone())
            {
                log::warn!(
                    "no source has the site {site}, so {identity} and others are at the top: import \
                     the sites, or leave it out of [sites]"
                );
            }
        }
        Ok(())
    }

    /// Brings the instance to what the store has. An instance that is not there, or does not take
    /// it, is tried again by [`Online::apply_again`].
    pub fn apply(&mut self) {
        let applied = self.applier.apply_without_files(&mut self.store);
        let within = std::mem::replace(&mut self.files_within, FILES);
        self.files.write_within(within, self.applier.settings());
        self.applied(applied);
    }

    /// Applies what is not in force, if it is time for it.
    pub fn apply_again(&mut self) {
        if self.again.is_some_and(|when| when <= Instant::now()) {
            self.apply();
        }
    }

    fn applied(&mut self, applied: Result<Applied, ApplyError>) {
        let said = match applied {
            Ok(Applied { commands: Some(given), took, report, warnings, .. }) => {
                self.again = None;
                if given > 0 {
                    let commands = counted(given, "command");
                    log::info!("gave the instance {commands}, within {} ms", took.as_millis());
                }
                format!("{}{warnings}", report.lines())
            }
            Ok(Applied { commands: None, .. }) => {
                self.again = Some(Instant::now() + AGAIN);
                let port = &self.applier.settings().ports.subscribers;
                format!("no instance has the port {port}: subscribers are kept until one starts")
            }
            Err(error) => {
                self.again = Some(Instant::now() + AGAIN);
                format!("{error}; it is tried again")
            }
        };
        // Once, and not with each change.
        if said != self.complaint && !said.is_empty() {
            log::warn!("{}", said.trim_end());
        }
        self.complaint = said;
    }
}
