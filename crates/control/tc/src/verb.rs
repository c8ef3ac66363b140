//! What a command does: `add`, `change`, `replace`, `delete`, or `show`.

use crate::words::abbreviates;
use narrows_policy::Verb;

/// What `command` does to qdiscs, classes or filters, if it changes them.
pub(crate) fn parse(command: &str) -> Option<Verb> {
    // The order decides between words that begin alike, and is tc's.
    let verbs = [
        ("add", Verb::Add),
        ("change", Verb::Change),
        ("replace", Verb::Replace),
        ("delete", Verb::Delete),
    ];
    verbs.into_iter().find(|(name, _)| abbreviates(command, name)).map(|(_, verb)| verb)
}

/// Whether `command` lists them.
pub(crate) fn lists(command: &str) -> bool {
    ["list", "show", "lst"].iter().any(|list| abbreviates(command, list))
}
