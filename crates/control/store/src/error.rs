//! Why the store refuses.

use std::path::PathBuf;

/// Why the store refuses.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be opened.
    #[error("cannot open the store {}: {why}", path.display())]
    Open {
        /// Its file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// It was written by a newer program.
    #[error(
        "the store {} has version {version}, which this program does not know: use the program that \
         wrote it, or a newer one",
        path.display()
    )]
    Newer {
        /// Its file.
        path: PathBuf,
        /// The version of its tables.
        version: i64,
    },
    /// The directory would not be sound; a sentence each.
    #[error("nothing is changed: {}", .0.join("\n"))]
    Unsound(Vec<String>),
    /// Two sources say the same; a sentence each.
    #[error("nothing is changed: {}", .0.join("\n"))]
    Conflict(Vec<String>),
    /// More would go than is allowed.
    #[error(
        "nothing is changed: {removed} of the {all} {what}s of {of} would be removed, and at most \
         {limit} may be: look at the source, or allow more with --max-removed {share}%",
        of = .source_name
    )]
    Removes {
        /// `subscriber` or `site`.
        what: &'static str,
        /// The source.
        source_name: String,
        /// How many would go.
        removed: usize,
        /// How many there are.
        all: usize,
        /// How many may go.
        limit: usize,
        /// The share that would have to be allowed, in percent.
        share: u32,
    },
    /// It has changed meanwhile.
    #[error(
        "nothing is changed: the directory is at revision {now}, not at {expected}: read it again, \
         then change it"
    )]
    Moved {
        /// The revision that was expected.
        expected: u64,
        /// The one that it has.
        now: u64,
    },
    /// A row of the file is not in its format.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// The database does not work.
    #[error("the store cannot be used: {0}")]
    Database(#[from] rusqlite::Error),
}
