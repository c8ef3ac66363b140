//! `tc class …`: the classes that `tbf` and `mq` come with.
//!
//! They cannot be added or changed; who lists them, as scripts and exporters do, gets what the
//! kernel lists. As in `tc` nothing is listed without a device, and a parent selects a whole qdisc.

use crate::command::Options;
use crate::complaint::{Complaint, Outcome};
use crate::render::{Json, Line};
use crate::show::Figures;
use crate::words::{Words, abbreviates};
use crate::{Host, qdisc};
use narrows_policy::{ClassId, Classes, Handle, Node, NodeStats, Parent};
use narrows_qdisc::Stats;

const USAGE: &str = "Usage: tc class show dev NAME [ qdisc ID ] [ classid ID ] [ root | parent ID ]
The classes are those of tbf and mq, which make them themselves.
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
    if ["add", "change", "replace", "delete"].iter().any(|verb| abbreviates(command, verb)) {
        Err(Complaint::refused(format!(
            "Error: \"class {command}\" is not supported here: tbf and mq make their classes \
             themselves, and no other kind has any."
        )))
    } else if ["list", "show", "lst"].iter().any(|list| abbreviates(command, list)) {
        show(words, options, host)
    } else if abbreviates(command, "help") {
        Ok(usage(0))
    } else {
        Err(Complaint::unreadable(format!(
            "Command \"{command}\" is unknown, try \"tc class help\"."
        )))
    }
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
        if is_filter {
            let parent = node.handle.to_string();
            line.add("parent", Json::Text(parent.clone()), &format!("parent {parent} "));
        } else {
            line.add("root", Json::Bool(true), "root ");
        }
        if let Some(leaf) = self.leaf {
            // In JSON tc writes the number alone.
            let number = Json::Text(format!("{:#x}", leaf.major()));
            line.add("leaf", number, &format!("leaf {leaf} "));
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
