//! The file that the services of a balancer are kept in, beside the state file: `STATE.services`.
//! It is the output of `narrows balance save`.
//!
//! Non-goals: where connections are. A process that begins with the file finds the servers of
//! those whose slots have not moved.

use crate::clock;
use crate::instance::Instance;
use crate::kept_file::{KeptFile, KeptFileError};
use narrows_balance::Services;
use std::path::Path;

const WHAT: &str = "services";

/// The services file beside the state file at `state`.
pub(crate) fn beside(state: &Path) -> KeptFile {
    KeptFile::beside(state, WHAT)
}

/// Writes the services of `instance` if they have changed.
pub(crate) fn keep(file: &mut KeptFile, instance: &mut Instance) {
    let services = instance.services();
    if let Err(why) = file.keep(services.version(), || services.save()) {
        instance.warn(why);
    }
}

/// The initial services: the saved ones, or none.
pub(crate) fn first(kept: Option<&mut KeptFile>) -> Result<Services, KeptFileError> {
    let read = |text: String| {
        let mut services = Services::default();
        services.restore(&text, clock::now()).map(|()| services)
    };
    let Some(file) = kept else { return Ok(Services::default()) };
    let services = KeptFile::read(file.path(), WHAT, read)?.unwrap_or_default();
    file.has(services.version());
    Ok(services)
}
