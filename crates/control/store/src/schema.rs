//! The tables, and how older ones become these.

use rusqlite::{Connection, TransactionBehavior};
use std::time::Duration;

/// Tells a store from databases of other programs: "nrws".
const APPLICATION: i64 = 0x6e72_7773;

/// The steps from each version to the next. A new version is one more; none is ever edited.
const STEPS: [&str; 1] = ["
CREATE TABLE sites (
    identity TEXT PRIMARY KEY, source TEXT NOT NULL, body TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE subscribers (
    identity TEXT PRIMARY KEY, source TEXT NOT NULL, body TEXT NOT NULL
) WITHOUT ROWID;
-- The numbers of classes, also of those that are gone.
CREATE TABLE numbers (key TEXT PRIMARY KEY, number INTEGER NOT NULL UNIQUE) WITHOUT ROWID;
-- What rows were when the directory was applied last, of those that have changed since: kind 0 is
-- a site, 1 a subscriber; no body if there was none.
CREATE TABLE changed (
    kind INTEGER, identity TEXT, body TEXT, PRIMARY KEY (kind, identity)
) WITHOUT ROWID;
-- The same of an application that has begun.
CREATE TABLE applying (
    kind INTEGER, identity TEXT, body TEXT, PRIMARY KEY (kind, identity)
) WITHOUT ROWID;
CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"];

/// Why a file is no store.
pub(crate) enum Refusal {
    /// It has a newer version.
    Newer(i64),
    /// It belongs to another program.
    Foreign,
    /// It cannot be used.
    Database(rusqlite::Error),
}

impl From<rusqlite::Error> for Refusal {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

/// Makes the tables, or brings them to the present version.
pub(crate) fn prepare(db: &mut Connection, busy: Duration) -> Result<(), Refusal> {
    db.busy_timeout(busy)?;
    let number = |db: &Connection, name: &str| -> rusqlite::Result<i64> {
        db.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))
    };
    let version = number(db, "user_version")?;
    let latest = STEPS.len() as i64;
    let is_ours = number(db, "application_id")? == APPLICATION;
    if !is_ours && (version != 0 || number(db, "schema_version")? != 0) {
        return Err(Refusal::Foreign);
    }
    if version > latest {
        return Err(Refusal::Newer(version));
    }
    db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    if version == latest {
        return Ok(());
    }
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have been faster.
    let version = number(&transaction, "user_version")?;
    let done = usize::try_from(version).unwrap_or(0).min(STEPS.len());
    for step in &STEPS[done..] {
        transaction.execute_batch(step)?;
    }
    transaction.execute_batch(&format!(
        "PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {latest};"
    ))?;
    Ok(transaction.commit()?)
}
