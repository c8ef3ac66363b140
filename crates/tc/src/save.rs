//! A policy as a file that makes it again.

use crate::kinds;
use narrows_policy::Policy;
use std::fmt::Write;

/// The commands that make `policy` from nothing, one a line: what `tc -batch` and
/// [`load`](crate::load) read. Exact, where `show` rounds.
pub fn save(policy: &Policy) -> String {
    let mut text = String::new();
    for (dev, port) in policy.ports() {
        for node in port.nodes() {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "qdisc replace dev {dev} {} handle {} {}{}",
                node.parent,
                node.handle,
                node.kind.name(),
                kinds::save(&node.kind)
            );
        }
    }
    text
}
