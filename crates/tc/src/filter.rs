//! `tc filter …`: filters that assign packets to classes, drop and police them.
//!
//! Differences from `tc` are in `docs/tc.md`: a filter assigns an existing leaf class, or a class
//! that has filters of its own.

use crate::command::Options;
use crate::complaint::{Complaint, Outcome};
use crate::kinds::filters;
use crate::render::{Json, Line};
use crate::words::{Words, abbreviates};
use crate::{Host, qdisc};
use narrows_classify::{ActionId, ActionStats, Filter};
use narrows_policy::{ClassId, FilterEdit, FilterPlace, Handle, Parent, Policy, Verb};

const USAGE: &str = "Usage: tc filter { add | change | replace | del | get } dev NAME
           [ parent ID | root | ingress | egress ] [ protocol PROTO ] [ pref PRIO ] [ handle ID ]
           KIND MATCHES [ classid ID ] [ action ACTION ]...
       tc filter show dev NAME [ parent ID | root | ingress | egress ]
KIND is flower, u32, matchall, fw or basic; KIND help tells what it matches.
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
        get(words, options, host)
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

/// The words before the kind.
#[derive(Default)]
struct Head<'a> {
    dev: Option<&'a str>,
    handle: Option<&'a str>,
    parent: Option<Parent>,
    pref: Option<u16>,
    protocol: Option<u16>,
}

impl<'a> Head<'a> {
    /// Parses one word and its value. False if the word is unknown.
    fn read(&mut self, word: &str, words: &mut Words<'a>) -> Result<bool, Complaint> {
        match word {
            "dev" => self.dev = Some(words.value("dev", "eth0")?),
            "root" => self.parent = Some(Parent::Root),
            "ingress" => self.parent = Some(Parent::Class(ClassId::END_INGRESS)),
            "egress" => self.parent = Some(Parent::Class(ClassId::END_EGRESS)),
            "parent" => self.parent = qdisc::parent(words.value("parent", "1:")?)?,
            "handle" => self.handle = Some(words.value("handle", "1")?),
            "pref" | "prio" | "preference" | "priority" => {
                let value = words.value(word, "1")?;
                let pref = value.parse().ok().filter(|pref| *pref != 0);
                self.pref = Some(pref.ok_or_else(|| wrong(value, "invalid priority value"))?);
            }
            "protocol" => {
                let value = words.value("protocol", "ip")?;
                let protocol = filters::protocol(value);
                self.protocol = Some(protocol.ok_or_else(|| wrong(value, "invalid protocol"))?);
            }
            "chain" => {
                let value = words.value("chain", "0")?;
                if value != "0" {
                    return Err(Complaint::wrong(
                        "Error: \"chain\" is not supported here: filters are one chain, 0, in the order of their pref.",
                    ));
                }
            }
            "block" | "estimator" => {
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
fn number(kind: Option<&str>, word: &str) -> Result<u32, Complaint> {
    let Some(kind) = kind else {
        return Err(Complaint::unreadable("Must specify filter type when using \"handle\""));
    };
    filters::handle(kind, word).ok_or_else(|| wrong(word, "invalid filter handle"))
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
    let handle = head.handle.map(|word| number(kind, word)).transpose()?;
    let (matches, class, actions) = match parsed {
        Some(filters::Parsed { matches, class, actions }) => (Some(matches), class, actions),
        None => (None, None, Vec::new()),
    };
    let Head { dev, parent, pref, protocol, .. } = head;
    let kind = kind.map(str::to_owned);
    let edit = FilterEdit { verb, parent, pref, protocol, kind, handle, matches, class, actions };
    let dev = dev.ok_or_else(no_device)?;
    qdisc::device(dev, host)?;
    host.edit(&mut |policy| policy.with_filter(dev, &edit))
        .map_err(|why| Complaint::refused(format!("Error: {why}")))?;
    Ok(Outcome::default())
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
    let handle = number(Some(kind), word)?;
    qdisc::device(dev, host)?;
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
    let shown = Shown { place, policy: &policy, options, stats, head, is_parent_said: true };
    Ok(options.print(&[shown.element(filter)]))
}

fn show(mut words: Words, options: &Options, host: &dyn Host) -> Result<Outcome, Complaint> {
    let mut head = Head::default();
    while let Some(word) = words.next() {
        if word == "chain" || word == "block" {
            words.value(word, "1")?;
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
    qdisc::device(dev, host)?;
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
    let is_parent_said = head.parent.is_none_or(|parent| parent == Parent::Root);
    let shown = Shown { place, policy: &policy, options, stats, head, is_parent_said };
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
    policy: &'a Policy,
    options: &'a Options,
    /// The statistics of their actions, if wanted.
    stats: Option<Vec<(ActionId, ActionStats)>>,
    /// The selection; its fields are not repeated in the output.
    head: Head<'a>,
    /// Whether the parent is printed.
    is_parent_said: bool,
}

impl Shown<'_> {
    /// The fields that all filters of a priority have in common.
    fn head(&self, filter: &Filter) -> Line {
        let mut line = self.begin(filter);
        line.text("\n");
        line
    }

    fn begin(&self, filter: &Filter) -> Line {
        let mut line = self.options.line();
        line.text("filter ");
        if self.is_parent_said {
            let mut parent = |class: ClassId| {
                let class = self.options.class(class);
                line.add("parent", Json::Text(class.clone()), &format!("parent {class} "));
            };
            match (self.place, self.head.parent) {
                (FilterPlace::Class(class), _) => parent(class),
                // As in the request: by the handle of ingress.
                (_, Some(Parent::Class(class @ ClassId { minor: 0, .. }))) => parent(class),
                (FilterPlace::Ingress, _) => line.add("ingress", Json::Bool(true), "ingress "),
                (FilterPlace::Egress, _) => line.add("egress", Json::Bool(true), "egress "),
            }
        }
        if self.head.protocol.is_none() {
            let protocol = filters::protocol_name(filter.protocol);
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
        let parent = match place {
            FilterPlace::Ingress => "ingress".to_owned(),
            FilterPlace::Egress => "egress".to_owned(),
            FilterPlace::Class(class) => format!("parent {class}"),
        };
        for (_, filter) in port.filters(place).iter() {
            let class = class_of(place, filter, &Options::default());
            text += &filters::save(dev, &parent, class.as_deref(), filter, policy);
        }
    }
    text
}
