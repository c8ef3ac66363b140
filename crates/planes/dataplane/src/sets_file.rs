//! The file that sets are kept in, beside the state file: `STATE.sets`. It is the output of
//! `narrows set save`, with the remaining time of members.
//!
//! Non-goals: the sets' own changes of time, counters: they alone are no reason to write.

use crate::instance::{Instance, read_sets};
use crate::kept_file::{KeptFile, KeptFileError};
use narrows_sets::Sets;
use std::path::Path;

const WHAT: &str = "sets";

/// The sets file beside the state file at `state`.
pub(crate) fn beside(state: &Path) -> KeptFile {
    KeptFile::beside(state, WHAT)
}

/// Writes the sets of `instance` if they have changed.
pub(crate) fn keep(file: &mut KeptFile, instance: &mut Instance) {
    if let Err(why) = file.keep(instance.sets().version(), || instance.save_sets()) {
        instance.warn(why);
    }
}

/// The initial sets: the saved ones, or those of the file at `first`, or none.
pub(crate) fn first(
    first: Option<&Path>,
    kept: Option<&mut KeptFile>,
) -> Result<Sets, KeptFileError> {
    if let Some(file) = kept
        && let Some(sets) = KeptFile::read(file.path(), WHAT, read_sets)?
    {
        file.has(sets.version());
        return Ok(sets);
    }
    let Some(path) = first else { return Ok(Sets::default()) };
    let missing =
        || KeptFileError { what: WHAT, path: path.to_owned(), why: "there is no such file".into() };
    KeptFile::read(path, WHAT, read_sets)?.ok_or_else(missing)
}
