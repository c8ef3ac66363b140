//! A policy as a file that makes it again, and `tc save`, which prints it.

use crate::complaint::{Complaint, Outcome};
use crate::words::{Words, abbreviates};
use crate::{Host, kinds, qdisc};
use narrows_policy::{Kind, Policy, PortPolicy};
use std::fmt::Write;

const USAGE: &str = "Usage: tc save [ dev NAME ]
";

/// The commands that make `policy` from nothing, one a line: what `tc -batch` and
/// [`load`](crate::load) read. Exact, where `show` rounds.
pub fn save(policy: &Policy) -> String {
    policy.ports().map(|(dev, port)| save_port(dev, port)).collect()
}

fn save_port(dev: &str, port: &PortPolicy) -> String {
    let (mut text, mut filters) = (String::new(), String::new());
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
        if let Kind::Htb(htb) = &node.kind {
            text += &kinds::save_classes(dev, node.handle, htb);
            filters = htb
                .filters()
                .iter()
                .map(|filter| kinds::filters::save(dev, node.handle, filter))
                .collect();
        }
    }
    text + &filters
}

/// `tc save`: prints the policy of all ports, or of one.
pub(crate) fn run(mut words: Words, host: &dyn Host) -> Result<Outcome, Complaint> {
    let policy = host.policy();
    let text = match words.next() {
        None => save(&policy),
        Some("dev") => {
            let dev = words.value("dev", "eth0")?;
            // A port that is away for the moment has its policy all the same.
            if !host.devices().iter().any(|known| known == dev) {
                qdisc::device(dev, host)?;
            }
            save_port(dev, policy.port(dev))
        }
        Some(word) if abbreviates(word, "help") => {
            return Ok(Outcome { stderr: USAGE.to_owned(), ..Outcome::default() });
        }
        Some(word) => return Err(unknown(word)),
    };
    match words.next() {
        None => Ok(Outcome::printed(text)),
        Some(word) => Err(unknown(word)),
    }
}

fn unknown(word: &str) -> Complaint {
    Complaint::unreadable(format!("What is \"{word}\"? save takes dev NAME, or nothing."))
}
