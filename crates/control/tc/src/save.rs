//! Writes a policy as a file that creates it again; `tc save` prints it.

use crate::complaint::{Complaint, Outcome};
use crate::words::{Words, abbreviates};
use crate::{Host, action, device, filter, intermediate, kinds};
use narrows_policy::{Policy, PortPolicy};
use std::fmt::Write;

const USAGE: &str = "Usage: tc save [ dev NAME ]
";

/// The commands that create `policy` from nothing, one per line, for `tc -batch` and
/// [`load`](crate::load). Exact, while `show` rounds.
pub fn save(policy: &Policy) -> String {
    let stays = policy.actions().filter(|bound| bound.stays);
    let actions = stays.map(|bound| format!("actions add action {}\n", action::save(bound)));
    let ports = policy.ports().map(|(dev, port)| save_port(dev, port, policy));
    actions.chain(ports).collect()
}

fn save_port(dev: &str, port: &PortPolicy, policy: &Policy) -> String {
    let mut text = String::new();
    if let Some(ends) = &port.ends {
        let _ = writeln!(text, "qdisc replace dev {dev} {}", ends.kind());
    }
    for node in port.nodes() {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "qdisc replace dev {dev} {} handle {} {}{}{}",
            node.parent,
            node.handle,
            node.stab.as_deref().map(kinds::stab::save).unwrap_or_default(),
            node.kind.name(),
            kinds::save(&node.kind)
        );
        text += &kinds::save_classes(dev, node.handle, &node.kind);
    }
    text + &filter::save(dev, policy)
}

/// `tc save`: prints the policy of all ports, or of one.
pub(crate) fn run(mut words: Words, host: &dyn Host) -> Result<Outcome, Complaint> {
    let policy = host.policy();
    let text = match words.next() {
        None => save(&policy),
        Some("dev") => {
            let dev = words.value("dev", "eth0")?;
            // A port that is absent at the moment still has its policy.
            if !intermediate::devices(host).iter().any(|known| known == dev) {
                device::named(dev, host)?;
            }
            save_port(dev, policy.port(dev), &policy)
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
