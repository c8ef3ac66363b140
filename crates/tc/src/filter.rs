//! `tc filter …`: there are none, and who lists them gets an empty list.

use crate::command::Options;
use crate::complaint::{Complaint, Outcome};
use crate::words::{Words, abbreviates};
use crate::{Host, qdisc};

const USAGE: &str = "Usage: tc filter show [ dev NAME ] [ root | ingress | egress | parent ID ]
There are no filters here: cake tells flows, hosts and code points apart by itself.
";

pub(crate) fn run(
    mut words: Words,
    options: &Options,
    host: &mut dyn Host,
) -> Result<Outcome, Complaint> {
    let Some(command) = words.next() else { return show(words, options, host) };
    if ["add", "change", "replace", "delete", "get"].iter().any(|verb| abbreviates(command, verb)) {
        Err(Complaint::refused(format!(
            "Error: \"filter {command}\" is not supported here: there are no classes to choose \
             from; cake tells flows, hosts and code points apart by itself."
        )))
    } else if ["list", "show", "lst"].iter().any(|list| abbreviates(command, list)) {
        show(words, options, host)
    } else if abbreviates(command, "help") {
        Ok(usage())
    } else {
        Err(Complaint::unreadable(format!(
            "Command \"{command}\" is unknown, try \"tc filter help\"."
        )))
    }
}

fn usage() -> Outcome {
    Outcome { stderr: USAGE.to_owned(), ..Outcome::default() }
}

fn show(mut words: Words, options: &Options, host: &dyn Host) -> Result<Outcome, Complaint> {
    while let Some(word) = words.next() {
        match word {
            "dev" => drop(qdisc::device(words.value("dev", "eth0")?, host)?),
            "root" | "ingress" | "egress" => {}
            "parent" => drop(qdisc::parent(words.value("parent", "1:")?)?),
            // They select among filters, of which there are none.
            "protocol" | "pref" | "prio" | "preference" | "priority" | "chain" | "block" => {
                words.value(word, "1")?;
            }
            word if abbreviates(word, "help") => return Ok(usage()),
            word => {
                return Err(Complaint::unreadable(format!(
                    "What is \"{word}\"? Try \"tc filter help\"."
                )));
            }
        }
    }
    Ok(options.print(&[]))
}
