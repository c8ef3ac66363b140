//! `tc class …`: the classes of `htb`, which are made here, and those that `tbf` and `mq` come
//! with.
//!
//! As in `tc` nothing is listed without a device, and a parent selects a whole qdisc. Differences
//! from it are in `docs/tc.md`: a kind that is not the qdisc's is refused, and so is a parent that
//! does not exist.

use crate::command::Options;
use crate::complaint::{Complaint, Outcome};
use crate::kinds::{self, ClassFigures};
use crate::render::{Json, Line};
use crate::show::Figures;
use crate::words::{Words, abbreviates};
use crate::{Host, qdisc};
use narrows_policy::{ClassEdit, ClassId, Classes, Handle, Kind, Node, NodeStats, Parent, Verb};
use narrows_qdisc::Stats;

const USAGE: &str =
    "Usage: tc class { add | change | replace | del } dev NAME { root | parent ID } classid ID
           [ htb PARAMETERS ]
       tc class show dev NAME [ qdisc ID ] [ classid ID ] [ root | parent ID ]
htb help tells its parameters. tbf and mq make their classes themselves.
";

fn usage(code: i32) -> Outcome {
    Outcome { stderr: USAGE.to_owned(), code, ..Outcome::default() }
}

pub(crate) fn run(
    mut words: Words,
    options: &Options,
    host: &mut dyn Host,
) -> Result<Outcome, Complaint> {
    let Some(command) = words.next() else { return show(words, options, host) };
    if let Some(verb) = qdisc::verb(command) {
        modify(verb, words, host)
    } else if qdisc::lists(command) {
        show(words, options, host)
    } else if abbreviates(command, "help") {
        Ok(usage(0))
    } else {
        Err(Complaint::unreadable(format!(
            "Command \"{command}\" is unknown, try \"tc class help\"."
        )))
    }
}

fn modify(verb: Verb, mut words: Words, host: &mut dyn Host) -> Result<Outcome, Complaint> {
    let mut dev: Option<&str> = None;
    let mut edit = ClassEdit { verb, parent: None, class: None, params: None };
    while let Some(word) = words.next() {
        if word == "dev" {
            let name = words.value("dev", "eth0")?;
            if dev.is_some() {
                return Err(qdisc::twice(word, name));
            }
            dev = Some(name);
        } else if word == "classid" {
            let value = words.value("classid", "1:10")?;
            if edit.class.is_some() {
                return Err(qdisc::twice(word, value));
            }
            edit.class = match qdisc::parent(value)? {
                Some(Parent::Class(class)) => Some(class),
                _ => {
                    return Err(Complaint::unreadable(format!(
                        "Error: argument \"{value}\" is wrong: invalid class ID."
                    )));
                }
            };
        } else if word == "handle" {
            return Err(Complaint::unreadable("Error: try \"classid\" instead of \"handle\"."));
        } else if word == "root" || word == "parent" {
            let value = if word == "root" { "root" } else { words.value("parent", "1:1")? };
            if edit.parent.is_some() {
                return Err(qdisc::twice(word, value));
            }
            edit.parent = qdisc::parent(value)?;
        } else if abbreviates(word, "estimator") {
            return Err(Complaint::wrong(
                "Error: \"estimator\" is not supported here: measured rates are in \"narrows show\".",
            ));
        } else if abbreviates(word, "help") {
            return Ok(usage(Outcome::REFUSED));
        } else if word == "htb" {
            if verb != Verb::Delete {
                edit.params = Some(kinds::parse_class(words)?);
            }
            break;
        } else {
            return Err(Complaint::wrong(format!(
                "Error: Qdisc \"{word}\" is classless here: the classes of htb can be made."
            )));
        }
    }
    let dev = dev.ok_or_else(|| Complaint::refused("Error: No such device: give dev NAME."))?;
    qdisc::device(dev, host)?;
    let policy = host
        .policy()
        .edit_class(dev, &edit)
        .map_err(|error| Complaint::refused(format!("Error: {error}")))?;
    let minor = edit.class.map(|class| class.minor);
    let warning = policy.port(dev).root.as_ref().and_then(|root| match &root.kind {
        Kind::Htb(htb) => htb.warning(root.handle, minor),
        _ => None,
    });
    host.apply(policy).map_err(|why| Complaint::refused(format!("Error: {why}")))?;
    let stderr = warning.map(|warning| warning + "\n").unwrap_or_default();
    Ok(Outcome { stderr, ..Outcome::default() })
}

/// Which classes are to be shown.
#[derive(Default)]
struct Selection {
    /// Those of the qdisc with this number.
    major: Option<u16>,
    /// Only this one.
    class: Option<ClassId>,
    /// None at all: the kernel has no class whose qdisc is the root's parent.
    root: bool,
}

impl Selection {
    fn wants(&self, class: ClassId) -> bool {
        !self.root
            && self.major.is_none_or(|wanted| wanted == class.major)
            && self.class.is_none_or(|wanted| wanted == class)
    }
}

fn show(mut words: Words, options: &Options, host: &dyn Host) -> Result<Outcome, Complaint> {
    let mut selection = Selection::default();
    let mut dev = None;
    let class = |word: &str| match qdisc::parent(word)? {
        Some(Parent::Class(class)) => Ok(Some(class)),
        _ => Ok(None),
    };
    while let Some(word) = words.next() {
        if word == "dev" {
            dev = Some(words.value("dev", "eth0")?);
        } else if abbreviates(word, "qdisc") {
            selection.major = qdisc::handle(words.value("qdisc", "1:")?)?.map(Handle::major);
        } else if abbreviates(word, "classid") {
            selection.class = class(words.value("classid", "1:1")?)?;
        } else if word == "root" {
            selection.root = true;
        } else if word == "parent" {
            selection.major = class(words.value("parent", "1:")?)?.map(|class| class.major);
        } else if abbreviates(word, "help") {
            return Ok(usage(0));
        } else {
            return Err(Complaint::unreadable(format!(
                "What is \"{word}\"? Try \"tc class help\"."
            )));
        }
    }
    let Some(dev) = dev else { return Ok(options.print(&[])) };
    let facts = qdisc::device(dev, host)?;
    let stats = if options.statistics { host.stats(dev) } else { Vec::new() };
    let policy = host.policy();
    let mut lines = Vec::new();
    for node in policy.port(dev).nodes() {
        let classes = classes(node, facts.queues.unwrap_or(0));
        for class in classes.into_iter().filter(|class| selection.wants(class.id)) {
            lines.push(class.line(node, &stats, options));
        }
    }
    Ok(options.print(&lines))
}

/// A class, and the qdisc in it that somebody put there.
struct Class {
    id: ClassId,
    leaf: Option<Handle>,
}

/// The classes of `node` on a port with `queues` queues.
fn classes(node: &Node, queues: u16) -> Vec<Class> {
    let class = |minor, leaf| Class { id: node.handle.class(minor), leaf };
    let leaf = |minor| node.children.get(&minor).map(|child| child.handle);
    match node.kind.classes() {
        Classes::None => Vec::new(),
        Classes::One(_) => vec![class(1, leaf(1))],
        Classes::Made => match &node.kind {
            Kind::Htb(htb) => htb.classes.keys().map(|minor| class(*minor, leaf(*minor))).collect(),
            _ => Vec::new(),
        },
        Classes::Queues | Classes::Alike => {
            (1..=queues).map(|queue| class(queue, leaf(queue))).collect()
        }
    }
}

impl Class {
    fn line(&self, node: &Node, stats: &[NodeStats], options: &Options) -> Line {
        let mut line = options.line();
        let (kind, id) = (node.kind.name(), self.id.to_string());
        line.add("class", Json::Text(kind.to_owned()), &format!("class {kind} "));
        line.add("handle", Json::Text(id.clone()), &format!("{id} "));
        let is_filter = matches!(node.kind.classes(), Classes::One(_));
        let htb = match &node.kind {
            Kind::Htb(htb) => Some(htb),
            _ => None,
        };
        let class = htb.and_then(|htb| htb.classes.get(&self.id.minor));
        let parent = match class.map(|class| class.parent) {
            Some(above) => above.map(|minor| node.handle.class(minor).to_string()),
            None => is_filter.then(|| node.handle.to_string()),
        };
        match parent {
            Some(parent) => {
                line.add("parent", Json::Text(parent.clone()), &format!("parent {parent} "));
            }
            None => line.add("root", Json::Bool(true), "root "),
        }
        if let Some(leaf) = self.leaf {
            // In JSON tc writes the number alone.
            let number = Json::Text(format!("{:#x}", leaf.major()));
            line.add("leaf", number, &format!("leaf {leaf} "));
        }
        if let (Some(htb), Some(class)) = (htb, class) {
            kinds::show_class(htb, self.id.minor, class, options.details, &mut line);
            line.text("\n");
            if options.statistics {
                let figures = ClassFigures::of(htb, self.id.minor, stats);
                line.text(&Figures(&figures.stats).text());
                line.text(&figures.text());
                let mut json: Vec<_> = Figures(&figures.stats).json().into();
                json.extend(figures.json());
                line.json("stats", Json::Object(json));
            }
            return line;
        }
        line.text("\n");
        match (options.statistics, is_filter) {
            (false, _) => {}
            // The kernel keeps no figures of it.
            (true, true) => line.text("\n"),
            (true, false) => {
                let found = stats.iter().find(|at| at.parent == Parent::Class(self.id));
                let stats = found.map_or_else(Stats::default, |at| at.stats.clone());
                line.text(&Figures(&stats).text());
                line.json("stats", Json::Object(Figures(&stats).json().into()));
            }
        }
        line
    }
}
