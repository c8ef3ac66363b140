//! The directory of a provider, kept in one file.
//!
//! *Idea.* Each source (a file, an API, sessions) owns the sites and subscribers that it has said.
//! The store holds those of all sources, the number of each one's class for ever, and what was
//! applied to an instance last. A change is one transaction: it is sound as a whole, or it is
//! refused and nothing is different.
//!
//! *Format.* An SQLite database (<https://www.sqlite.org/fileformat2.html>) with a write-ahead log,
//! mode 0600; `user_version` is the version of its tables. A site and a subscriber are a row each,
//! with the JSON form of [`Site`] and [`Subscriber`].
//!
//! *What was applied* is not kept as a second directory: a table has, for each row that has changed
//! since, what it was. So a change of one subscriber writes as little as it is.
//!
//! *Several processes* may have it open. One writes at a time; each keeps the directory in memory
//! and reads it again when another has written (`PRAGMA data_version`).
//!
//! *Non-goals.* History of rates and delays; who may write what.

mod added;
mod cache;
mod edit;
mod error;
mod schema;

pub use added::added_addresses;
pub use edit::{Edit, Guard};
pub use error::StoreError;
#[doc(no_inline)]
pub use narrows_directory::{Changes, Directory, Numbers, Site, Subscriber};

use cache::Cache;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a change waits for that of another process.
const BUSY: Duration = Duration::from_secs(10);

/// A directory in a file.
#[derive(Debug)]
pub struct Store {
    db: Connection,
    path: PathBuf,
    cache: Cache,
}

/// An application of the directory to an instance that has begun.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Begun {
    /// What was applied before; none if that is not known: nothing was, or an application has not
    /// come to its end.
    pub before: Option<Applied>,
    /// The revision that is applied now.
    pub revision: u64,
}

/// What an instance was given last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    /// What the caller noted beside it.
    pub how: String,
    /// Its revision.
    pub revision: u64,
    /// What was different then.
    differs: Edit,
}

/// What an instance has been given, all of it.
#[derive(Debug)]
pub struct InForce<'a> {
    /// The sites and subscribers.
    pub directory: Cow<'a, Directory>,
    /// The numbers of their classes.
    pub numbers: &'a Numbers,
    /// The revision.
    pub revision: u64,
}

impl Applied {
    /// What was different then: each site and subscriber that has changed since, as it was.
    pub fn differs(&self) -> &Edit {
        &self.differs
    }

    /// The directory as it was, from the one of the revision that is applied now.
    pub fn directory(&self, now: &Directory) -> Directory {
        let mut then = now.clone();
        self.differs.put_into(&mut then);
        then
    }
}

impl Store {
    /// Opens the store at `path`; makes it, and its folder, if it is not there.
    ///
    /// # Errors
    /// If it cannot be opened, is no store, or is one of a newer version.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let cannot = |why: String| StoreError::Open { path: path.to_owned(), why };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(|error| cannot(error.to_string()))?;
        }
        // SQLite gives its log and its index the mode of the file.
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        drop(file.map_err(|error| cannot(error.to_string()))?);
        let mut db = Connection::open(path).map_err(|error| cannot(error.to_string()))?;
        schema::prepare(&mut db, BUSY).map_err(|why| match why {
            schema::Refusal::Newer(version) => StoreError::Newer { path: path.to_owned(), version },
            schema::Refusal::Foreign => cannot("it is a database of another program".to_owned()),
            schema::Refusal::Database(error) => cannot(error.to_string()),
        })?;
        Ok(Self { db, path: path.to_owned(), cache: Cache::default() })
    }

    /// A store that is in no file, and gone with it.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn in_memory() -> Result<Self, StoreError> {
        let mut db = Connection::open_in_memory()?;
        match schema::prepare(&mut db, BUSY) {
            Err(schema::Refusal::Database(error)) => Err(error.into()),
            _ => Ok(Self { db, path: PathBuf::new(), cache: Cache::default() }),
        }
    }

    /// Where it is; empty if it is in no file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All sites and subscribers.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn directory(&mut self) -> Result<&Directory, StoreError> {
        Ok(&self.fresh()?.directory)
    }

    /// The numbers of the classes of all that are there, or have been.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn numbers(&mut self) -> Result<&Numbers, StoreError> {
        Ok(&self.fresh()?.numbers)
    }

    /// Grows with each change; 0 if there was none.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn revision(&mut self) -> Result<u64, StoreError> {
        Ok(self.fresh()?.revision)
    }

    /// How often it was read from the file: grows when another process has changed it, and not with
    /// changes by this one.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn reads(&mut self) -> Result<u64, StoreError> {
        Ok(self.fresh()?.reads)
    }

    /// The source of a subscriber.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn source_of(&mut self, identity: &str) -> Result<Option<String>, StoreError> {
        Ok(self.fresh()?.subscribers.get(identity).map(|source| source.to_string()))
    }

    /// How many sites and how many subscribers each source has.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn sources(&mut self) -> Result<BTreeMap<String, [usize; 2]>, StoreError> {
        let cache = self.fresh()?;
        let mut counts: BTreeMap<String, [usize; 2]> = BTreeMap::new();
        for (index, of) in [&cache.sites, &cache.subscribers].into_iter().enumerate() {
            for source in of.values() {
                counts.entry(source.to_string()).or_default()[index] += 1;
            }
        }
        Ok(counts)
    }

    /// What [`replace`](Self::replace) would change, and does not.
    ///
    /// # Errors
    /// As `replace`, but for the guard.
    pub fn plan(&mut self, source: &str, directory: &Directory) -> Result<Changes, StoreError> {
        let cache = self.fresh()?;
        let edit = Edit::replacing(cache, source, directory);
        Ok(edit.checked(cache, source)?.changes)
    }

    /// Whether `guard` allows `changes` of `source`.
    ///
    /// # Errors
    /// [`StoreError::Removes`] if too much would go; or if it cannot be read.
    pub fn allows(
        &mut self,
        source: &str,
        changes: &Changes,
        guard: Guard,
    ) -> Result<(), StoreError> {
        guard.check(self.fresh()?, source, changes)
    }

    /// Makes `directory` all that `source` has.
    ///
    /// # Errors
    /// If it has what another source has, is not sound, or lacks more than `guard` allows; or if
    /// the file cannot be written. Nothing is changed then.
    pub fn replace(
        &mut self,
        source: &str,
        directory: &Directory,
        guard: Guard,
    ) -> Result<Changes, StoreError> {
        self.change_with(source, Some(guard), |cache| Edit::replacing(cache, source, directory))
    }

    /// Adds the subscriber `identity`, or changes it.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    pub fn upsert(
        &mut self,
        source: &str,
        identity: &str,
        subscriber: Subscriber,
    ) -> Result<Changes, StoreError> {
        let subscribers = [(identity.to_owned(), Some(subscriber))].into();
        self.change(source, Edit { subscribers, ..Edit::default() })
    }

    /// Removes the subscriber `identity`; no change if it is not there.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    pub fn remove(&mut self, source: &str, identity: &str) -> Result<Changes, StoreError> {
        let subscribers = [(identity.to_owned(), None)].into();
        self.change(source, Edit { subscribers, ..Edit::default() })
    }

    /// Makes the changes of `edit`, all or none. What is as it was is no change.
    ///
    /// # Errors
    /// If it concerns what another source has, or the directory would not be sound; or if the file
    /// cannot be written.
    pub fn change(&mut self, source: &str, edit: Edit) -> Result<Changes, StoreError> {
        self.change_with(source, None, |_| edit)
    }

    /// As [`change`](Self::change), if the store is still at `revision`.
    ///
    /// # Errors
    /// [`StoreError::Moved`] if it is not; else as `change`.
    pub fn change_at(
        &mut self,
        revision: u64,
        source: &str,
        edit: Edit,
    ) -> Result<Changes, StoreError> {
        let now = self.revision()?;
        if now != revision {
            return Err(StoreError::Moved { expected: revision, now });
        }
        // If another process writes between here and the transaction, the cache is read again
        // there, and shows it.
        self.change_checked(source, None, |cache| match cache.revision == revision {
            true => Ok(edit),
            false => Err(StoreError::Moved { expected: revision, now: cache.revision }),
        })
    }

    fn change_with(
        &mut self,
        source: &str,
        guard: Option<Guard>,
        edit: impl FnOnce(&Cache) -> Edit,
    ) -> Result<Changes, StoreError> {
        self.change_checked(source, guard, |cache| Ok(edit(cache)))
    }

    fn change_checked(
        &mut self,
        source: &str,
        guard: Option<Guard>,
        edit: impl FnOnce(&Cache) -> Result<Edit, StoreError>,
    ) -> Result<Changes, StoreError> {
        let Self { db, cache, .. } = self;
        let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        cache.refresh(&transaction)?;
        let checked = edit(cache)?.checked(cache, source)?;
        if let Some(guard) = guard {
            guard.check(cache, source, &checked.changes)?;
        }
        if checked.changes.is_empty() {
            return Ok(checked.changes);
        }
        checked.write(&transaction, source, cache.revision + 1)?;
        transaction.commit()?;
        Ok(cache.take(checked, source))
    }

    /// What the caller noted when the directory was applied last; none if it never was.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn how(&self) -> Result<Option<String>, StoreError> {
        Ok(state(&self.db, "applied")?)
    }

    /// Begins to apply the directory to an instance: what changes from here on is not part of it.
    /// Only one process may do so at a time, which is the caller's to see to.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn begin(&mut self) -> Result<Begun, StoreError> {
        let Self { db, cache, .. } = self;
        let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        cache.refresh(&transaction)?;
        let before = before(&transaction)?;
        transaction.execute("INSERT OR REPLACE INTO applying SELECT * FROM changed", [])?;
        transaction.execute("DELETE FROM changed", [])?;
        set_state(&transaction, "applying", &cache.revision.to_string())?;
        transaction.commit()?;
        Ok(Begun { before, revision: cache.revision })
    }

    /// The directory and the numbers as of the last [`begin`](Self::begin), if nothing of this
    /// store was read or changed since: another process may have changed the file meanwhile.
    pub fn begun(&self) -> (&Directory, &Numbers) {
        (&self.cache.directory, &self.cache.numbers)
    }

    /// What was begun is in force; `how` is given back by the next [`begin`](Self::begin).
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn finish(&mut self, how: &str) -> Result<(), StoreError> {
        let transaction = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute("DELETE FROM applying", [])?;
        let revision = state(&transaction, "applying")?.unwrap_or_default();
        set_state(&transaction, "applied revision", &revision)?;
        transaction.execute("DELETE FROM state WHERE name = 'applying'", [])?;
        set_state(&transaction, "applied", how)?;
        Ok(transaction.commit()?)
    }

    /// What was applied last; none if that is not known, as while an application goes on.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn in_force(&mut self) -> Result<Option<InForce<'_>>, StoreError> {
        let Self { db, cache, .. } = self;
        let transaction = db.transaction()?;
        cache.refresh(&transaction)?;
        let Some(before) = before(&transaction)? else { return Ok(None) };
        drop(transaction);
        let mut directory = Cow::Borrowed(&cache.directory);
        if before.differs != Edit::default() {
            before.differs.put_into(directory.to_mut());
        }
        let (numbers, revision) = (&cache.numbers, before.revision);
        Ok(Some(InForce { directory, numbers, revision }))
    }

    /// What the caller noted of files that it made; none if it never did.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn files(&self) -> Result<Option<String>, StoreError> {
        Ok(state(&self.db, "files")?)
    }

    /// Notes something of files that are made from what is in force.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn note_files(&mut self, note: &str) -> Result<(), StoreError> {
        set_state(&self.db, "files", note)?;
        Ok(())
    }

    /// What was begun was not done, and the instance is as it was before.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn give_up(&mut self) -> Result<(), StoreError> {
        let transaction = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // What was there at the former application is older than what was there at this one.
        transaction.execute("INSERT OR REPLACE INTO changed SELECT * FROM applying", [])?;
        transaction.execute("DELETE FROM applying", [])?;
        transaction.execute("DELETE FROM state WHERE name = 'applying'", [])?;
        Ok(transaction.commit()?)
    }

    /// The cache, as new as the file.
    fn fresh(&mut self) -> Result<&Cache, StoreError> {
        let Self { db, cache, .. } = self;
        let transaction = db.transaction()?;
        cache.refresh(&transaction)?;
        drop(transaction);
        Ok(cache)
    }
}

/// What was applied last; none while an application goes on.
fn before(db: &Connection) -> Result<Option<Applied>, StoreError> {
    let is_open = state(db, "applying")?.is_some();
    let Some(how) = state(db, "applied")?.filter(|_| !is_open) else { return Ok(None) };
    let revision = state(db, "applied revision")?;
    let revision = revision.and_then(|text| text.parse().ok()).unwrap_or_default();
    Ok(Some(Applied { how, revision, differs: cache::changed(db)? }))
}

fn state(db: &Connection, name: &str) -> rusqlite::Result<Option<String>> {
    let value = "SELECT value FROM state WHERE name = ?1";
    db.query_row(value, [name], |row| row.get(0)).optional()
}

fn set_state(db: &Connection, name: &str, value: &str) -> rusqlite::Result<usize> {
    db.execute("INSERT OR REPLACE INTO state (name, value) VALUES (?1, ?2)", params![name, value])
}
