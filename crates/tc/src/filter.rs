//! `tc filter …`: what assigns packets to the classes of an `htb`.
//!
//! The kinds are `flower`, `u32` and `matchall`. Differences from `tc` are in `docs/tc.md`: a
//! filter names a leaf class that is there, and there are no actions.

use crate::command::Options;
use crate::complaint::{Complaint, Outcome};
use crate::kinds::filters;
use crate::render::{Json, Line};
use crate::words::{Words, abbreviates};
use crate::{Host, qdisc};
use narrows_classify::Filter;
use narrows_policy::{FilterEdit, Handle, Kind, Parent, Verb};

const USAGE: &str = "Usage: tc filter { add | change | replace | del } dev NAME [ parent ID | root ] [ protocol PROTO ]
           [ pref PRIO ] [ handle ID ] KIND MATCHES classid ID
       tc filter show dev NAME [ parent ID | root ]
KIND is flower, u32 or matchall; KIND help tells what it matches.
";

pub(crate) fn run(
    mut words: Words,
    options: &Options,
    host: &mut dyn Host,
) -> Result<Outcome, Complaint> {
    let Some(command) = words.next() else { return show(words, options, host) };
    if let Some(verb) = qdisc::verb(command) {
        modify(verb, words, host)
    } else if command == "get" {
        Err(Complaint::refused("Error: \"filter get\" is not supported here: see show."))
    } else if qdisc::lists(command) {
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

fn modify(verb: Verb, mut words: Words, host: &mut dyn Host) -> Result<Outcome, Complaint> {
    let mut dev: Option<&str> = None;
    let mut handle: Option<&str> = None;
    let mut edit = FilterEdit {
        verb,
        parent: None,
        pref: None,
        protocol: None,
        kind: None,
        handle: None,
        matches: None,
        class: None,
    };
    while let Some(word) = words.next() {
        match word {
            "dev" => dev = Some(words.value("dev", "eth0")?),
            "root" => edit.parent = Some(Parent::Root),
            "parent" => edit.parent = qdisc::parent(words.value("parent", "1:")?)?,
            "handle" => handle = Some(words.value("handle", "1")?),
            "pref" | "prio" | "preference" | "priority" => {
                let value = words.value(word, "1")?;
                let pref = value.parse().ok().filter(|pref| *pref != 0);
                edit.pref = Some(pref.ok_or_else(|| wrong(value, "invalid priority value"))?);
            }
            "protocol" => {
                let value = words.value("protocol", "ip")?;
                let protocol = filters::protocol(value);
                edit.protocol = Some(protocol.ok_or_else(|| wrong(value, "invalid protocol"))?);
            }
            "ingress" | "egress" | "block" | "chain" | "estimator" => {
                return Err(Complaint::wrong(format!(
                    "Error: \"{word}\" is not supported here: filters are for the htb at the root of a port."
                )));
            }
            word if abbreviates(word, "help") => return Ok(usage()),
            kind => {
                edit.kind = Some(kind.to_owned());
                if verb != Verb::Delete {
                    let protocol = edit.protocol;
                    let (matches, class) = filters::parse(kind, protocol, words)?;
                    (edit.matches, edit.class) = (Some(matches), class);
                }
                break;
            }
        }
    }
    if let Some(word) = handle {
        let Some(kind) = &edit.kind else {
            return Err(Complaint::unreadable("Must specify filter type when using \"handle\""));
        };
        let read = filters::handle(kind, word);
        edit.handle = Some(read.ok_or_else(|| wrong(word, "invalid filter handle"))?);
    }
    let dev = dev.ok_or_else(|| Complaint::refused("Error: No such device: give dev NAME."))?;
    qdisc::device(dev, host)?;
    let policy = host
        .policy()
        .edit_filter(dev, &edit)
        .map_err(|error| Complaint::refused(format!("Error: {error}")))?;
    host.apply(policy).map_err(|why| Complaint::refused(format!("Error: {why}")))?;
    Ok(Outcome::default())
}

fn wrong(value: &str, why: &str) -> Complaint {
    Complaint::unreadable(format!("Error: argument \"{value}\" is wrong: {why}."))
}

fn show(mut words: Words, options: &Options, host: &dyn Host) -> Result<Outcome, Complaint> {
    let mut dev = None;
    let (mut parent, mut pref, mut protocol, mut none) = (None, None, None, false);
    while let Some(word) = words.next() {
        match word {
            "dev" => dev = Some(words.value("dev", "eth0")?),
            "root" => parent = None,
            "ingress" | "egress" => none = true,
            "parent" => parent = qdisc::parent(words.value("parent", "1:")?)?,
            "protocol" => protocol = filters::protocol(words.value("protocol", "ip")?),
            "pref" | "prio" | "preference" | "priority" => {
                pref = words.value(word, "1")?.parse::<u16>().ok();
            }
            "chain" | "block" => drop(words.value(word, "1")?),
            word if abbreviates(word, "help") => return Ok(usage()),
            word => {
                return Err(Complaint::unreadable(format!(
                    "What is \"{word}\"? Try \"tc filter help\"."
                )));
            }
        }
    }
    let Some(dev) = dev else { return Ok(options.print(&[])) };
    qdisc::device(dev, host)?;
    let policy = host.policy();
    let Some((handle, htb)) = policy.port(dev).root.as_ref().and_then(|root| match &root.kind {
        Kind::Htb(htb) => Some((root.handle, htb)),
        _ => None,
    }) else {
        return Ok(options.print(&[]));
    };
    let is_elsewhere = match parent {
        Some(Parent::Class(class)) => class != handle.class(0),
        _ => false,
    };
    let wanted = |filter: &&Filter| {
        !none
            && !is_elsewhere
            && pref.is_none_or(|pref| filter.pref == pref)
            && protocol.is_none_or(|protocol| filter.protocol == protocol)
    };
    let mut lines = Vec::new();
    let mut last = None;
    for filter in htb.filters().iter().filter(wanted) {
        if last != Some(filter.pref) {
            lines.push(head(handle, filter, options));
            if filter.kind() == "u32" {
                lines.push(table(handle, filter, options));
            }
            last = Some(filter.pref);
        }
        lines.push(element(handle, filter, options));
    }
    Ok(options.print(&lines))
}

/// What all filters of a priority have in common.
fn head(handle: Handle, filter: &Filter, options: &Options) -> Line {
    let mut line = begin(handle, filter, options);
    line.text("\n");
    line
}

fn begin(handle: Handle, filter: &Filter, options: &Options) -> Line {
    let mut line = options.line();
    let (parent, kind) = (handle.to_string(), filter.kind());
    line.text("filter ");
    line.add("parent", Json::Text(parent.clone()), &format!("parent {parent} "));
    let protocol = filters::protocol_name(filter.protocol);
    line.add("protocol", Json::Text(protocol.clone()), &format!("protocol {protocol} "));
    let pref = u64::from(filter.pref);
    line.add("pref", Json::Number(pref), &format!("pref {pref} "));
    line.add("kind", Json::Text(kind.to_owned()), &format!("{kind} "));
    line.add("chain", Json::Number(0), "chain 0 ");
    line
}

/// The hash table in which `u32` has its filters; there is only one.
fn table(handle: Handle, filter: &Filter, options: &Options) -> Line {
    let mut line = begin(handle, filter, options);
    let mut table = options.line();
    table.add("fh", Json::Text("800:".to_owned()), "fh 800: ");
    table.add("ht_divisor", Json::Number(1), "ht divisor 1 ");
    line.nest("options", table);
    line.text("\n");
    line
}

fn element(handle: Handle, filter: &Filter, options: &Options) -> Line {
    let mut line = begin(handle, filter, options);
    let mut parameters = options.line();
    filters::show(handle, filter, &mut parameters);
    line.nest("options", parameters);
    line.text("\n");
    line
}
