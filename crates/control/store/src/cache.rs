//! The directory in memory, as new as the file.

use crate::StoreError;
use crate::edit::{Checked, Edit};
use narrows_directory::{Changes, Directory, Numbers, Prefix, Subscriber, printable};
use rusqlite::{Connection, Transaction};
use serde_json::from_str;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What is in the file.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    pub(crate) directory: Directory,
    /// The source of each site.
    pub(crate) sites: BTreeMap<String, Arc<str>>,
    /// The source of each subscriber.
    pub(crate) subscribers: BTreeMap<String, Arc<str>>,
    /// Who has each address.
    pub(crate) owners: HashMap<Prefix, String>,
    pub(crate) numbers: Numbers,
    /// How many numbers there are.
    pub(crate) numbered: usize,
    pub(crate) revision: u64,
    /// How often the file was read.
    pub(crate) reads: u64,
    /// SQLite's count of what other connections have written; none before the first read.
    version: Option<i64>,
}

impl Cache {
    /// Reads the file if another connection has written it.
    pub(crate) fn refresh(&mut self, db: &Transaction<'_>) -> Result<(), StoreError> {
        // This begins the transaction's view of the file, of which the version then is.
        let revision = crate::state(db, "revision")?;
        let version: i64 = db.query_row("PRAGMA data_version", [], |row| row.get(0))?;
        if self.version == Some(version) {
            return Ok(());
        }
        let is_same = revision.as_deref().unwrap_or("0") == self.revision.to_string();
        if is_same && self.version.is_some() {
            // Only what is noted of applications and files has changed.
            self.version = Some(version);
            return Ok(());
        }
        let reads = self.reads + 1;
        let mut cache = Self { version: Some(version), reads, ..Self::default() };
        cache.revision = match revision {
            Some(text) => text.parse().map_err(|_| damaged("revision", &text))?,
            None => 0,
        };
        let mut known: HashMap<String, Arc<str>> = HashMap::new();
        let mut source = |name: String| {
            Arc::clone(known.entry(name).or_insert_with_key(|name| Arc::from(name.as_str())))
        };
        let mut rows = db.prepare("SELECT identity, source, body FROM sites")?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            let (identity, of, body): (String, String, String) =
                (row.get(0)?, row.get(1)?, row.get(2)?);
            let site = from_str(&body).map_err(|error| bad("site", &identity, &error))?;
            cache.sites.insert(identity.clone(), source(of));
            cache.directory.sites.insert(identity, site);
        }
        let mut rows = db.prepare("SELECT identity, source, body FROM subscribers")?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            let (identity, of, body): (String, String, String) =
                (row.get(0)?, row.get(1)?, row.get(2)?);
            let subscriber: Subscriber =
                from_str(&body).map_err(|error| bad("subscriber", &identity, &error))?;
            for address in &subscriber.addresses {
                cache.owners.insert(*address, identity.clone());
            }
            cache.subscribers.insert(identity.clone(), source(of));
            cache.directory.subscribers.insert(identity, subscriber);
        }
        let mut rows = db.prepare("SELECT key, number FROM numbers")?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            cache.numbers.keep(row.get(0)?, row.get(1)?);
            cache.numbered += 1;
        }
        *self = cache;
        Ok(())
    }

    /// Takes over what was written.
    pub(crate) fn take(&mut self, checked: Checked, source: &str) -> Changes {
        let Checked { changes, numbers, forgets } = checked;
        let source: Arc<str> = Arc::from(source);
        for change in &changes.sites {
            put(&mut self.directory.sites, &change.identity, change.new.clone());
            put(&mut self.sites, &change.identity, change.new.is_some().then(|| source.clone()));
        }
        for change in &changes.subscribers {
            for address in change.old.iter().flat_map(|old| &old.addresses) {
                if self.owners.get(address) == Some(&change.identity) {
                    self.owners.remove(address);
                }
            }
        }
        for change in &changes.subscribers {
            for address in change.new.iter().flat_map(|new| &new.addresses) {
                self.owners.insert(*address, change.identity.clone());
            }
            put(&mut self.directory.subscribers, &change.identity, change.new.clone());
            let source = change.new.is_some().then(|| source.clone());
            put(&mut self.subscribers, &change.identity, source);
        }
        if forgets {
            // What is left is read again.
            self.version = None;
        }
        for (key, number) in numbers {
            self.numbers.keep(key, number);
            self.numbered += 1;
        }
        self.revision += 1;
        changes
    }
}

fn put<T>(map: &mut BTreeMap<String, T>, identity: &str, value: Option<T>) {
    match value {
        Some(value) => drop(map.insert(identity.to_owned(), value)),
        None => drop(map.remove(identity)),
    }
}

/// Puts all of `values` in, or takes them out.
pub(crate) fn put_all<T: Clone>(
    map: &mut BTreeMap<String, T>,
    values: &BTreeMap<String, Option<T>>,
) {
    for (identity, value) in values {
        put(map, identity, value.clone());
    }
}

/// What was there when the directory was applied last, of all that has changed since.
pub(crate) fn changed(db: &Connection) -> Result<Edit, StoreError> {
    let mut edit = Edit::default();
    let mut rows = db.prepare("SELECT kind, identity, body FROM changed")?;
    let mut rows = rows.query([])?;
    while let Some(row) = rows.next()? {
        let (kind, identity, body): (i64, String, Option<String>) =
            (row.get(0)?, row.get(1)?, row.get(2)?);
        let body = body.as_deref();
        if kind == 0 {
            let site = body.map(from_str).transpose();
            let site = site.map_err(|error| bad("site", &identity, &error))?;
            edit.sites.insert(identity, site);
        } else {
            let subscriber = body.map(from_str).transpose();
            let subscriber = subscriber.map_err(|error| bad("subscriber", &identity, &error))?;
            edit.subscribers.insert(identity, subscriber);
        }
    }
    Ok(edit)
}

fn bad(what: &str, identity: &str, error: &serde_json::Error) -> StoreError {
    StoreError::Damaged(format!("the {what} {}: {error}", printable(identity)))
}

fn damaged(what: &str, text: &str) -> StoreError {
    StoreError::Damaged(format!("the {what} is {}", printable(text)))
}
