//! Reading the policy file again, all or nothing.
//!
//! The whole file is read and checked, then applied like a batch: an unchanged qdisc keeps its
//! queue, its credit and its counters. A file with an error changes nothing. The file wins: live
//! edits since the last read are discarded.

use crate::instance::Instance;
use crate::policy_file::{self, PolicyFileError};
use std::path::Path;

/// How many mistakes are kept among the events; the log has them all.
const MISTAKES_KEPT: usize = 8;

/// Makes `instance` load the policy file at `path`, and reports the outcome: as events and, on
/// failure, as the service's status line.
pub(crate) fn reload(instance: &mut Instance, path: Option<&Path>) -> Result<(), String> {
    let Some(path) = path.filter(|path| !policy_file::is_stdin(path)) else {
        let why = "nothing to reload: name the policy file at the start, with --batch FILE";
        instance.warn(why.to_owned());
        return Err(why.to_owned());
    };
    let name = path.display();
    let policy = match policy_file::load(path, instance.ports(), instance.policy()) {
        Ok(policy) => policy,
        Err(PolicyFileError::Wrong(mistakes)) => {
            let lines = mistakes.lines();
            let summary = format!("reload of {name} refused, nothing changed");
            instance.warn(format!("{summary}: {} mistakes", lines.len()));
            for (index, mistake) in lines.iter().enumerate() {
                match index {
                    0..MISTAKES_KEPT => instance.warn(mistake.clone()),
                    _ => log::warn!("{mistake}"),
                }
            }
            return Err(format!("{summary}: {}", lines.join("; ")));
        }
        Err(error) => {
            let why = format!("reload refused, nothing changed: {error}");
            instance.warn(why.clone());
            return Err(why);
        }
    };
    let changes = if &policy == instance.policy() { ", which changes nothing" } else { "" };
    match instance.apply(policy) {
        Ok(()) => {
            instance.say(format!("reloaded {name}{changes}"));
            Ok(())
        }
        Err(error) => {
            let why = format!("reload of {name}: {error}");
            instance.warn(why.clone());
            Err(why)
        }
    }
}
