//! The files that may be read and written (Landlock).
//!
//! Editors replace a policy file, they do not rewrite it: so its directory is what may be read. The
//! same holds for the state file, which Narrows replaces itself. For a file behind a link, the
//! directories of both count.

use landlock::{
    ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    RulesetStatus, path_beneath_rules,
};
use narrows_control::place::RUN_DIR;
use std::path::{Path, PathBuf};

/// Files that are read besides the policy: interfaces, cores and BTF, and the libraries of a
/// program that takes over.
const READ: [&str; 7] =
    ["/proc", "/sys", "/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/dev/null"];

/// The rights that are handled. Handling later ones could deny what the process does on later
/// kernels.
const RIGHTS: ABI = ABI::V6;

/// The files that this instance needs beyond those of every instance.
#[derive(Clone, Copy)]
pub(crate) struct Needs<'a> {
    /// The policy file, which may be read again.
    pub(crate) batch: Option<&'a Path>,
    /// The state file, which is written.
    pub(crate) state: Option<&'a Path>,
}

/// Restricts the calling thread to the files of every instance and those of `needs`.
pub(super) fn restrict(needs: Needs) -> Result<(), String> {
    match apply(needs).map_err(|error| format!("files are not restricted: {error}"))? {
        RulesetStatus::FullyEnforced => Ok(()),
        RulesetStatus::PartiallyEnforced => {
            log::debug!("this kernel restricts files, but not all that is asked for");
            Ok(())
        }
        RulesetStatus::NotEnforced => {
            Err("files are not restricted: this kernel has no Landlock, or not switched on".into())
        }
    }
}

fn apply(needs: Needs) -> Result<RulesetStatus, RulesetError> {
    // Programs may be started from anywhere, see the parent module.
    let all = AccessFs::from_all(RIGHTS) & !AccessFs::Execute;
    let read = AccessFs::from_read(RIGHTS) & !AccessFs::Execute;
    let exe = std::env::current_exe().ok();
    let readable = READ
        .map(PathBuf::from)
        .into_iter()
        .chain([exe.as_deref(), needs.batch].into_iter().flatten().flat_map(folders));
    let writable = [PathBuf::from(RUN_DIR), PathBuf::from("/dev/null")]
        .into_iter()
        .chain(needs.state.into_iter().flat_map(folders));
    let created = Ruleset::default()
        .handle_access(all)?
        // None is allowed: nothing here speaks TCP.
        .handle_access(AccessNet::from_all(RIGHTS))?
        .create()?
        // A missing path needs no rule.
        .add_rules(path_beneath_rules(readable, read))?
        .add_rules(path_beneath_rules(writable, all))?;
    Ok(created.restrict_self()?.ruleset)
}

/// The folder of the file at `path`, and that of its target if it is a link.
fn folders(path: &Path) -> Vec<PathBuf> {
    let beside = std::path::absolute(path).ok();
    let really = std::fs::canonicalize(path).ok();
    let parent = |path: PathBuf| path.parent().map(Path::to_owned);
    [beside, really].into_iter().flatten().filter_map(parent).collect()
}
