//! `tc qdisc …`.

use crate::complaint::{Complaint, Outcome, refusal};
use crate::options::Options;
use crate::words::{Words, abbreviates, twice};
use crate::{Host, device, handles, intermediate, kinds, verb};
use narrows_policy::{ClassId, Edit, Handle, Parent, Verb};
use usage::usage;

mod show;
mod usage;

pub(crate) use show::show;

pub(crate) fn run(
    mut words: Words,
    options: &Options,
    host: &mut dyn Host,
) -> Result<Outcome, Complaint> {
    let Some(command) = words.next() else { return show(words, options, host) };
    if let Some(verb) = verb::parse(command) {
        modify(verb, words, host)
    } else if abbreviates(command, "link") {
        Err(Complaint::unreadable(format!(
            "Command \"{command}\" is unknown: link moves nothing here, try replace."
        )))
    } else if verb::lists(command) {
        show(words, options, host)
    } else if abbreviates(command, "help") {
        Ok(usage(0))
    } else {
        Err(Complaint::unreadable(format!(
            "Command \"{command}\" is unknown, try add, replace, change, del or show."
        )))
    }
}

fn modify(verb: Verb, mut words: Words, host: &mut dyn Host) -> Result<Outcome, Complaint> {
    let mut dev: Option<&str> = None;
    let mut edit = Edit { verb, parent: None, handle: None, params: None };
    let mut stab = None;
    while let Some(word) = words.next() {
        if word == "dev" {
            let name = words.value("dev", "eth0")?;
            if dev.is_some() {
                return Err(twice(word, name));
            }
            dev = Some(name);
        } else if word == "handle" {
            let value = words.value("handle", "1:")?;
            if edit.handle.is_some() {
                return Err(twice(word, value));
            }
            edit.handle = handles::handle(value)?;
        } else if word == "root" {
            if edit.parent.is_some() {
                return Err(Complaint::unreadable(
                    "Error: \"root\" is a second parent: give root or parent ID, once.",
                ));
            }
            edit.parent = Some(Parent::Root);
        } else if word == "parent" {
            let value = words.value("parent", "1:1")?;
            if edit.parent.is_some() {
                return Err(twice(word, value));
            }
            edit.parent = handles::parent(value)?;
        } else if matches!(word, "ingress" | "clsact") {
            let mut rest = words;
            // The parent and the handle may be given, too.
            while let Some(word) = rest.next() {
                match word {
                    "handle" => drop(rest.value(word, "ffff:")?),
                    "ingress" | "clsact" => {}
                    word => {
                        let why = "clsact and ingress take no parameters";
                        return Err(Complaint::wrong(format!("What is \"{word}\"? {why}.")));
                    }
                }
            }
            if edit.parent.is_some_and(|parent| !is_at_ends(parent)) {
                return Err(Complaint::unreadable(format!(
                    "Error: \"{word}\" is a duplicate parent ID: leave out root or parent ID."
                )));
            }
            if stab.is_some() {
                return Err(Complaint::refused(format!(
                    "Error: stab is not for {word}, where no packet waits: give police the words overhead, mpu and linklayer."
                )));
            }
            return ends(verb, word == "clsact", dev, host);
        } else if abbreviates(word, "stab") {
            stab = Some(kinds::stab::parse(&mut words)?);
        } else if abbreviates(word, "estimator") || matches!(word, "ingress_block" | "egress_block")
        {
            return Err(unsupported(word));
        } else if abbreviates(word, "help") {
            return Ok(usage(Outcome::REFUSED));
        } else {
            edit.params = Some(kinds::parse(word, words)?);
            break;
        }
    }
    let dev = dev.ok_or_else(|| {
        Complaint::refused(format!("Error: No such device: give dev NAME.{}", device::ports(host)))
    })?;
    let facts = device::named(dev, host)?;
    if verb == Verb::Delete && edit.parent.is_some_and(is_at_ends) {
        if edit.handle.is_some_and(|handle| handle != Handle::ENDS) {
            return Err(Complaint::refused(format!(
                "Error: Invalid handle: that of the qdisc there is {}.",
                Handle::ENDS
            )));
        }
        let has_egress = host.policy().port(dev).ends.as_ref().is_none_or(|ends| ends.has_egress);
        return ends(verb, has_egress, Some(dev), host);
    }
    host.edit(&mut |policy| policy.with_sized_qdisc(dev, &edit, stab.as_ref(), &facts))
        .map_err(|why| Complaint::refused(format!("Error: {why}")))?;
    let warning = edit.params.and_then(|params| kinds::warning(&params, &facts, host));
    let stderr = warning.filter(|_| verb != Verb::Delete).map(|warning| warning + "\n");
    let mut stderr = stderr.unwrap_or_default();
    let is_new_root =
        edit.parent == Some(Parent::Root) && matches!(verb, Verb::Add | Verb::Replace);
    if is_new_root && intermediate::is_one(dev, host) && host.is_asked() {
        stderr += &intermediate::note(dev, host);
    }
    Ok(Outcome { stderr, ..Outcome::default() })
}

/// Whether it is the place of `clsact` and `ingress`. As in the kernel, any parent there is the one
/// qdisc at the ends, and so is its handle.
fn is_at_ends(parent: Parent) -> bool {
    let is_end = |class: ClassId| class.major == Handle::ENDS.major() && class.minor != 0xffff;
    matches!(parent, Parent::Class(class) if is_end(class))
}

/// Creates or deletes `clsact` or `ingress`.
fn ends(
    verb: Verb,
    has_egress: bool,
    dev: Option<&str>,
    host: &mut dyn Host,
) -> Result<Outcome, Complaint> {
    let dev = dev.ok_or_else(|| {
        Complaint::refused(format!("Error: No such device: give dev NAME.{}", device::ports(host)))
    })?;
    device::named(dev, host)?;
    let policy = host
        .policy()
        .edit_ends(dev, verb, has_egress)
        .map_err(|error| Complaint::refused(format!("Error: {}", refusal(&error))))?;
    host.apply(policy).map_err(|why| Complaint::refused(format!("Error: {why}")))?;
    Ok(Outcome::default())
}

fn unsupported(word: &str) -> Complaint {
    let instead = match word {
        "ingress_block" | "egress_block" => "filters belong to a port: give them to each",
        _ => "measured rates are in \"narrows show\"",
    };
    Complaint::wrong(format!("Error: \"{word}\" is not supported here: {instead}."))
}
