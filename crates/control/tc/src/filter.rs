//! `tc filter …`: filters that assign packets to classes, drop and police them.
//!
//! Differences from `tc` are in `docs/tc.md`: a filter assigns an existing leaf class, or a class
//! that has filters of its own.

use crate::complaint::{Complaint, Outcome};
use crate::kinds::filters;
use crate::options::Options;
use crate::render::{Json, Line};
use crate::words::{Words, abbreviates, twice};
use crate::{Host, device, handles, intermediate, number, protocols, verb};
use narrows_classify::{Action, ActionId, ActionStats, Filter};
use narrows_policy::{
    ClassId, Ends, FilterEdit, FilterPlace, Handle, Parent, Policy, PortPolicy, Verb,
};

const USAGE: &str = "Usage: tc filter { add | change | replace | del | get } dev NAME
           [ parent ID | root | ingress | egress ] [ protocol PROTO ] [ pref PRIO ] [ handle ID ]
           KIND MATCHES [ classid ID ] [ action ACTION ]...
       tc filter show dev NAME [ parent ID | root | ingress | egress ]
KIND is flower, u32, matchall, fw, route or basic; KIND help tells what it matches.
";

pub(crate) fn run(
    mut words: Words,
    options: &Options,
    host: &mut dyn Host,
) -> Result<Outcome, Complaint> {
    let Some(command) = words.next() else { return show(words, options, host) };
    if let Some(verb) = verb::parse(command) {
        modify(verb, words, host)
    } else if command == "get" {
        get(words, options, host)
    } else if verb::lists(command) {
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

/// The words before the kind.
#[derive(Default)]
struct Head<'a> {
    dev: Option<&'a str>,
    handle: Option<&'a str>,
    parent: Option<Parent>,
    pref: Option<u16>,
    protocol: Option<u16>,
    has_chain: bool,
}

impl<'a> Head<'a> {
    /// Parses one word and its value. False if the word is unknown. As in `tc`, what was given must
    /// not be given again, and `pref 0` and `parent none` give nothing.
    fn read(&mut self, word: &str, words: &mut Words<'a>) -> Result<bool, Complaint> {
        let once = |is_given: bool, name: &str, value: &str| match is_given {
            true => Err(twice(name, value)),
            false => Ok(()),
        };
        match word {
            "dev" => {
                let value = words.value(word, "eth0")?;
                once(self.dev.replace(value).is_some(), word, value)?;
            }
            "root" | "ingress" | "egress" => {
                let parent = match word {
                    "root" => Parent::Root,
                    "ingress" => Parent::Class(ClassId::END_INGRESS),
                    _ => Parent::Class(ClassId::END_EGRESS),
                };
                if self.parent.replace(parent).is_some() {
                    return Err(Complaint::unreadable(format!(
                        "Error: \"{word}\" is duplicate parent ID: give root, ingress, egress or parent ID, once."
                    )));
                }
            }
            "parent" => {
                let value = words.value(word, "1:")?;
                once(self.parent.is_some(), word, value)?;
                self.parent = handles::parent(value)?;
            }
            "handle" => {
                let value = words.value(word, "1")?;
                once(self.handle.replace(value).is_some(), word, value)?;
            }
            _ if abbreviates(word, "preference") || abbreviates(word, "priority") => {
                let value = words.value(word, "1")?;
                once(self.pref.is_some(), "priority", value)?;
                let pref = number::mask(value).and_then(|pref| u16::try_from(pref).ok());
                let pref = pref.ok_or_else(|| wrong(value, "invalid priority value"))?;
                self.pref = Some(pref).filter(|pref| *pref != 0);
            }
            _ if abbreviates(word, "protocol") => {
                let value = words.value(word, "ip")?;
                once(self.protocol.is_some(), "protocol", value)?;
                let protocol = protocols::number(value);
                self.protocol = Some(protocol.ok_or_else(|| wrong(value, "invalid protocol"))?);
            }
            _ if abbreviates(word, "chain") => {
                let value = words.value(word, "0")?;
                once(std::mem::replace(&mut self.has_chain, true), "chain", value)?;
                let chain = number::mask(value);
                if chain.ok_or_else(|| wrong(value, "invalid chain index value"))? != 0 {
                    return Err(Complaint::wrong(
                        "Error: \"chain\" is not supported here: filters are one chain, 0, in the order of their pref.",
                    ));
                }
            }
            _ if abbreviates(word, "block") || abbreviates(word, "estimator") => {
                return Err(Complaint::wrong(format!(
                    "Error: \"{word}\" is not supported here: filters are at a qdisc, a class, ingress or egress of a port."
                )));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn no_device() -> Complaint {
    Complaint::refused("Error: No such device: give dev NAME.")
}

/// The number `word` of a filter of `kind`.
fn handle(kind: Option<&str>, word: &str) -> Result<u32, Complaint> {
    let Some(kind) = kind else {
        return Err(Complaint::unreadable("Must specify filter type when using \"handle\""));
    };
    filters::handle(kind, word)
}

fn modify(verb: Verb, mut words: Words, host: &mut dyn Host) -> Result<Outcome, Complaint> {
    let mut head = Head::default();
    let (mut kind, mut parsed) = (None, None);
    while let Some(word) = words.next() {
        if head.read(word, &mut words)? {
            continue;
        }
        if abbreviates(word, "help") {
            return Ok(usage());
        }
        kind = Some(word);
        if verb != Verb::Delete {
            parsed = Some(filters::parse(word, head.protocol, head.handle, words)?);
        }
        break;
    }
    let handle = head.handle.map(|word| self::handle(kind, word)).transpose()?;
    let Head { dev, parent, pref, protocol, .. } = head;
    let dev = dev.ok_or_else(no_device)?;
    device::named(dev, host)?;
    let kind = kind.map(str::to_owned);
    let mut edit = FilterEdit {
        verb,
        parent,
        pref,
        protocol,
        kind,
        handle,
        matches: None,
        class: None,
        actions: Vec::new(),
        skips_hardware: false,
    };
    if let Some(filters::Parsed { matches, class, actions, order, table, skips_hardware }) = parsed
    {
        edit.handle = numbered(edit.handle, order)?;
        if let Some(table) = table {
            has_table(table, host.policy().port(dev), &edit)?;
        }
        edit = FilterEdit { matches: Some(matches), class, actions, skips_hardware, ..edit };
    }
    let to = edit.actions.iter().find_map(|draft| match draft.action {
        Some(Action::Mirred(mirred)) if mirred.is_served() => Some(mirred.to),
        _ => None,
    });
    // What arrives at a port goes to its ifb with or without that filter.
    let to = to.filter(|to| host.ifb_of(to.as_str()).as_deref() != Some(dev));
    if let Some(to) =
        to.filter(|to| intermediate::ports(host).iter().any(|port| port == to.as_str()))
    {
        let to = to.as_str();
        if let Some(port) = host.ifb_of(to) {
            return Err(Complaint::refused(format!(
                "Error: mirred: {to} is for what arrives at {port}, and not at {dev}, which has an ifb of its own with --ifb {dev}."
            )));
        }
        return Err(Complaint::refused(format!(
            "Error: mirred: {to} is a port here: what comes in at one leaves at the other without a filter. To shape it, give qdiscs to the port where it leaves, or redirect to ifb0 and give them to that."
        )));
    }
    let (mut warning, is_asked) = (None, host.is_asked());
    host.edit(&mut |policy| {
        let next = policy.with_filter(dev, &edit)?;
        warning = next.port(dev).filter_warning(&edit);
        if is_asked {
            warning = warning.take().or_else(|| next.pace_warning(&edit));
        }
        Ok(next)
    })
    .map_err(|why| Complaint::refused(format!("Error: {why}")))?;
    let mut stderr = warning.map_or_else(String::new, |warning| warning + "\n");
    if let Some(to) = to.filter(|_| host.is_asked()) {
        stderr += &intermediate::note(to.as_str(), host);
    }
    let protocol = edit.protocol.filter(|_| verb != Verb::Delete && host.is_asked());
    if let Some(protocol) = protocol.filter(|protocol| protocols::is_of_no_frame(*protocol)) {
        stderr += &format!(
            "Warning: no frame is of protocol {}, as in Linux: one with a length is 802_3 or 802_2. The filter matches nothing.\n",
            protocols::name(protocol)
        );
    }
    Ok(Outcome { stderr, ..Outcome::default() })
}

/// The number of a `u32` with the `order` that was given for it, too.
fn numbered(handle: Option<u32>, order: Option<u32>) -> Result<Option<u32>, Complaint> {
    match (handle, order) {
        (Some(handle), Some(order)) if ![0, order].contains(&(handle & 0xfff)) => {
            Err(Complaint::wrong("Illegal \"order\": the handle has another number."))
        }
        (handle, Some(order)) => Ok(Some(handle.unwrap_or(0) | order)),
        (handle, None) => Ok(handle),
    }
}

/// Checks that `table` is that of the filters of `edit`'s `pref`; fff: stands for it.
fn has_table(table: u32, port: &PortPolicy, edit: &FilterEdit) -> Result<(), Complaint> {
    let Ok(place) = port.filter_place(edit.parent) else { return Ok(()) };
    let own = port.table_of_u32(place, edit.pref);
    match [0, 0xfff, own].contains(&table) {
        true => Ok(()),
        false => Err(Complaint::refused(format!(
            "Error: cls_u32: Specified hash table not found. The only one of this pref is {own:x}:, leave ht out."
        ))),
    }
}

fn wrong(value: &str, why: &str) -> Complaint {
    Complaint::unreadable(format!("Error: argument \"{value}\" is wrong: {why}."))
}

/// `tc filter get`: one filter.
fn get(mut words: Words, options: &Options, host: &dyn Host) -> Result<Outcome, Complaint> {
    let mut head = Head::default();
    let mut kind = None;
    while let Some(word) = words.next() {
        if head.read(word, &mut words)? {
            continue;
        }
        if abbreviates(word, "help") {
            return Ok(usage());
        }
        kind = Some(word);
        if let Some(more) = words.next() {
            return Err(Complaint::unreadable(format!(
                "What is \"{more}\"? Try \"tc filter help\"."
            )));
        }
    }
    let missing = |what: &str| Complaint::unreadable(format!("Must specify filter {what}"));
    let dev = head.dev.ok_or_else(no_device)?;
    let protocol = head.protocol.ok_or_else(|| missing("protocol"))?;
    let pref = head.pref.ok_or_else(|| missing("priority"))?;
    let word = head.handle.ok_or_else(|| missing("handle"))?;
    let parent = head.parent.ok_or_else(|| missing("parent"))?;
    let kind = kind.ok_or_else(|| missing("type"))?;
    let handle = self::handle(Some(kind), word)?;
    device::named(dev, host)?;
    let policy = host.policy();
    let refused = |why: &dyn std::fmt::Display| Complaint::refused(format!("Error: {why}"));
    let place = policy.port(dev).filter_place(Some(parent)).map_err(|error| refused(&error))?;
    let filters = policy.port(dev).filters(place);
    let first = filters.from(narrows_classify::order(pref, 0)).next();
    let first = first.map(|(_, filter)| filter).filter(|filter| filter.pref == pref);
    let Some(first) = first.filter(|filter| filter.protocol == protocol) else {
        return Err(refused(&"Filter with specified priority/protocol not found."));
    };
    if first.kind() != kind {
        return Err(refused(&"Specified filter kind does not match existing one."));
    }
    let table = if kind == "u32" && handle >> 20 == 0 { first.handle & 0xfff0_0000 } else { 0 };
    let Some(filter) = filters.get(narrows_classify::order(pref, table | handle)) else {
        return Err(refused(&"Specified filter handle not found."));
    };
    let stats = options.statistics.then(|| host.action_stats());
    let head = Head { parent: Some(parent), ..Head::default() };
    let ends = policy.port(dev).ends.as_ref();
    let shown = Shown { place, ends, is_one: true, policy: &policy, options, stats, head };
    Ok(options.print(&[shown.element(filter)]))
}

fn show(mut words: Words, options: &Options, host: &dyn Host) -> Result<Outcome, Complaint> {
    let (mut head, mut is_elsewhere) = (Head::default(), false);
    while let Some(word) = words.next() {
        if abbreviates(word, "chain") {
            // There are no filters in any other chain.
            let value = words.value("chain", "0")?;
            if std::mem::replace(&mut head.has_chain, true) {
                return Err(twice("chain", value));
            }
            let chain = number::mask(value);
            is_elsewhere |= chain.ok_or_else(|| wrong(value, "invalid chain index value"))? != 0;
        } else if !head.read(word, &mut words)? {
            if abbreviates(word, "help") {
                return Ok(usage());
            }
            return Err(Complaint::unreadable(format!(
                "What is \"{word}\"? Try \"tc filter help\"."
            )));
        }
    }
    let Some(dev) = head.dev else { return Ok(options.print(&[])) };
    device::named(dev, host)?;
    if is_elsewhere {
        return Ok(options.print(&[]));
    }
    let policy = host.policy();
    let Ok(place) = policy.port(dev).filter_place(head.parent) else {
        return Ok(options.print(&[]));
    };
    let (pref, protocol) = (head.pref, head.protocol);
    let wanted = |filter: &Filter| {
        pref.is_none_or(|pref| filter.pref == pref)
            && protocol.is_none_or(|protocol| filter.protocol == protocol)
    };
    let filters = policy.port(dev).filters(place);
    let stats = options.statistics.then(|| host.action_stats());
    let ends = policy.port(dev).ends.as_ref();
    let shown = Shown { place, ends, is_one: false, policy: &policy, options, stats, head };
    let mut lines = Vec::new();
    let mut last = None;
    for (_, filter) in filters.iter().filter(|(_, filter)| wanted(filter)) {
        if last != Some(filter.pref) {
            lines.push(shown.head(filter));
            if filter.kind() == "u32" {
                lines.push(shown.table(filter));
            }
            last = Some(filter.pref);
        }
        lines.push(shown.element(filter));
    }
    Ok(options.print(&lines))
}

/// Filters of one place, to be shown.
struct Shown<'a> {
    place: FilterPlace,
    /// The ends of the port.
    ends: Option<&'a Ends>,
    /// Whether it is one filter of `get`, and not a list.
    is_one: bool,
    policy: &'a Policy,
    options: &'a Options,
    /// The statistics of their actions, if wanted.
    stats: Option<Vec<(ActionId, ActionStats)>>,
    /// The selection; its fields are not repeated in the output.
    head: Head<'a>,
}

impl Shown<'_> {
    /// The fields that all filters of a priority have in common.
    fn head(&self, filter: &Filter) -> Line {
        let mut line = self.begin(filter);
        line.text("\n");
        line
    }

    /// The parent of `filter`, if it is to be printed: a list does not repeat the one that was
    /// asked for, and a single filter has the one by which it was asked for.
    fn parent(&self, filter: &Filter) -> Option<ClassId> {
        let asked = match self.head.parent {
            Some(Parent::Class(class)) => Some(class),
            Some(Parent::Root) | None => None,
        };
        let own = match (self.place, self.ends) {
            (FilterPlace::Class(class), _) => class,
            (FilterPlace::Ingress, Some(ends)) => ends.parent(filter.pref),
            (FilterPlace::Ingress, None) => ClassId::END_INGRESS,
            (FilterPlace::Egress, _) => ClassId::END_EGRESS,
        };
        match self.is_one {
            true => Some(asked.unwrap_or(own)),
            false => Some(own).filter(|own| asked != Some(*own)),
        }
    }

    fn begin(&self, filter: &Filter) -> Line {
        let mut line = self.options.line();
        line.text("filter ");
        match self.parent(filter) {
            None => {}
            Some(ClassId::END_INGRESS) => line.add("ingress", Json::Bool(true), "ingress "),
            Some(ClassId::END_EGRESS) => line.add("egress", Json::Bool(true), "egress "),
            Some(class) => {
                let class = self.options.class(class);
                line.add("parent", Json::Text(class.clone()), &format!("parent {class} "));
            }
        }
        if self.head.protocol.is_none() {
            let protocol = protocols::name(filter.protocol);
            let text = format!("protocol {protocol} ");
            line.add("protocol", Json::Text(protocol), &text);
        }
        if self.head.pref.is_none() {
            let pref = u64::from(filter.pref);
            line.add("pref", Json::Number(pref), &format!("pref {pref} "));
        }
        let kind = filter.kind();
        line.add("kind", Json::Text(kind.to_owned()), &format!("{kind} "));
        line.add("chain", Json::Number(0), "chain 0 ");
        line
    }

    /// The hash table in which `u32` keeps the filters of a priority; there is only one.
    fn table(&self, filter: &Filter) -> Line {
        let mut line = self.begin(filter);
        let mut table = self.options.line();
        let name = format!("{:x}:", filter.handle >> 20);
        table.add("fh", Json::Text(name.clone()), &format!("fh {name} "));
        table.add("ht_divisor", Json::Number(1), "ht divisor 1 ");
        line.nest("options", table);
        line.text("\n");
        line
    }

    fn element(&self, filter: &Filter) -> Line {
        let mut line = self.begin(filter);
        let mut parameters = self.options.line();
        let class = class_of(self.place, filter, self.options);
        filters::show(
            class.as_deref(),
            filter,
            self.policy,
            self.stats.as_deref(),
            self.options,
            &mut parameters,
        );
        line.nest("options", parameters);
        line.text("\n");
        line
    }
}

/// The class that `filter` at `place` assigns, or names at ingress and egress, as text.
fn class_of(place: FilterPlace, filter: &Filter, options: &Options) -> Option<String> {
    let FilterPlace::Class(ClassId { major, .. }) = place else {
        let (major, minor) = (filter.named >> 16, filter.named & 0xffff);
        return match filter.named {
            0 => None,
            u32::MAX => Some("root".to_owned()),
            _ => Some(options.class(ClassId { major, minor })),
        };
    };
    let handle = Handle::new(major)?;
    (filter.class != 0).then(|| options.class(handle.class(filter.class)))
}

/// The commands that create the filters of `dev`.
pub(crate) fn save(dev: &str, policy: &Policy) -> String {
    let port = policy.port(dev);
    let mut text = String::new();
    for place in port.filter_places() {
        for (_, filter) in port.filters(place).iter() {
            let parent = match (place, &port.ends) {
                (FilterPlace::Ingress, Some(ends)) if ends.by_handle.contains(&filter.pref) => {
                    format!("parent {}", Handle::ENDS)
                }
                (FilterPlace::Ingress, _) => "ingress".to_owned(),
                (FilterPlace::Egress, _) => "egress".to_owned(),
                (FilterPlace::Class(class), _) => format!("parent {class}"),
            };
            let class = class_of(place, filter, &Options::default());
            text += &filters::save(dev, &parent, class.as_deref(), filter, policy);
        }
    }
    text
}
