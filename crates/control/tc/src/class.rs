//! `tc class …`: the classes of `htb`, `hfsc`, `drr` and `ets`, which these commands edit, and the
//! classes that other qdiscs have by themselves.
//!
//! As in `tc`, nothing is listed without a device, and a parent selects a whole qdisc. Differences
//! from `tc` are in `docs/tc.md`: a kind other than that of the qdisc is refused, and so is a
//! parent that does not exist.

use crate::complaint::{Complaint, Outcome};
use crate::figures::Figures;
use crate::kinds::{self, TreeFigures};
use crate::options::Options;
use crate::render::{Json, Line};
use crate::stats::StatsOf;
use crate::words::{Words, abbreviates, twice};
use crate::{Host, device, graph, handles, intermediate, notation, render, verb};
use narrows_policy::{
    ClassEdit, ClassId, Classes, Handle, Kind, Node, Parent, Policy, PortPolicy, Verb,
};
use narrows_qdisc::{Detail, Stats};
use std::collections::BTreeMap;

const USAGE: &str =
    "Usage: tc class { add | change | replace | del } dev NAME { root | parent ID } classid ID
           [ htb | hfsc | drr | ets PARAMETERS ]
       tc [ -g ] class show dev NAME [ qdisc ID ] [ classid ID ] [ root | parent ID ]
KIND help tells its parameters. The other kinds make their classes themselves.
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
    if let Some(verb) = verb::parse(command) {
        modify(verb, words, host)
    } else if verb::lists(command) {
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
                return Err(twice(word, name));
            }
            dev = Some(name);
        } else if word == "classid" {
            let value = words.value("classid", "1:10")?;
            if edit.class.is_some() {
                return Err(twice(word, value));
            }
            edit.class = match handles::parent(value)? {
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
                return Err(twice(word, value));
            }
            edit.parent = handles::parent(value)?;
        } else if abbreviates(word, "estimator") {
            return Err(Complaint::wrong(
                "Error: \"estimator\" is not supported here: measured rates are in \"narrows show\".",
            ));
        } else if abbreviates(word, "help") {
            return Ok(usage(Outcome::REFUSED));
        } else {
            let params = kinds::parse_class(word, words).ok_or_else(|| {
                Complaint::wrong(format!(
                    "Error: Qdisc \"{word}\" is classless: the classes of htb, hfsc and drr can be made, and those of ets changed."
                ))
            })?;
            if verb != Verb::Delete {
                edit.params = Some(params?);
            }
            break;
        }
    }
    let dev = dev.ok_or_else(|| Complaint::refused("Error: No such device: give dev NAME."))?;
    device::named(dev, host)?;
    let mut warnings = Vec::new();
    host.edit(&mut |policy| {
        let could_share = above_shares(&policy, dev, &edit);
        let next = policy.with_class(dev, &edit)?;
        let forced = could_share == Some(false) && above_shares(&next, dev, &edit) == Some(true);
        let forced = forced.then(|| {
            "Warning: Forced curve change on parent 'rt' to 'sc'. Classes below a class share by \
             its ls, so it got one."
                .to_owned()
        });
        let (node, minor) = edit.class.and_then(|class| node(&next, dev, class)).unzip();
        let unlikely = node.and_then(|node| node.kind.class_warning(node.handle, minor?));
        warnings = forced.into_iter().chain(unlikely).collect();
        Ok(next)
    })
    .map_err(|why| Complaint::refused(format!("Error: {why}")))?;
    let stderr = warnings.iter().map(|warning| format!("{warning}\n")).collect();
    Ok(Outcome { stderr, ..Outcome::default() })
}

/// The qdisc of `class`, and the number of the class there.
fn node<'a>(policy: &'a Policy, dev: &str, class: ClassId) -> Option<(&'a Node, u32)> {
    let port = policy.port(dev);
    let node = Handle::new(class.major).map_or(port.root(), |handle| port.find(handle));
    Some((node?, class.minor))
}

/// Whether the class to which `edit` adds another shares by a curve with those beside it, if it is
/// one of an `hfsc`.
fn above_shares(policy: &Policy, dev: &str, edit: &ClassEdit) -> Option<bool> {
    let Some(Parent::Class(parent)) = edit.parent else { return None };
    let of = edit.class.filter(|_| parent.major == 0).unwrap_or(parent);
    let (Node { kind: Kind::Hfsc(hfsc), .. }, _) = node(policy, dev, of)? else { return None };
    Some(!hfsc.classes.get(parent.minor)?.curves.is_real_time_only())
}

/// Selects the classes to show.
#[derive(Default)]
struct Selection {
    /// Only those of the qdisc with this number.
    major: Option<u32>,
    /// Only this one.
    class: Option<ClassId>,
    /// None at all: in the kernel, no class has `root` as its qdisc.
    root: bool,
}

impl Selection {
    fn wants(&self, class: ClassId) -> bool {
        !self.root
            && self.major.is_none_or(|wanted| wanted == class.major)
            && self.class.is_none_or(|wanted| wanted == class)
    }
}

pub(crate) fn show(
    mut words: Words,
    options: &Options,
    host: &dyn Host,
) -> Result<Outcome, Complaint> {
    let mut selection = Selection::default();
    let mut dev = None;
    let class = |word: &str| match handles::parent(word)? {
        Some(Parent::Class(class)) => Ok(Some(class)),
        _ => Ok(None),
    };
    while let Some(word) = words.next() {
        if word == "dev" {
            dev = Some(words.value("dev", "eth0")?);
        } else if abbreviates(word, "qdisc") {
            selection.major = handles::handle(words.value("qdisc", "1:")?)?.map(Handle::major);
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
    let facts = device::named(dev, host)?;
    let stats = if options.statistics { intermediate::stats(dev, host) } else { Vec::new() };
    let stats = StatsOf::new(&stats);
    let policy = host.policy();
    let port = policy.port(dev);
    let queues = u32::from(facts.queues.unwrap_or(0));
    let of = |node| Shown { node, stats: &stats, options };
    // Others have no classes.
    let nodes = port
        .nodes()
        .into_iter()
        .filter(|node| !matches!(node.kind.classes(), Classes::None | Classes::Hidden));
    if options.graph {
        let graph = |node| {
            let mut below: BTreeMap<Option<u32>, Vec<Class>> = BTreeMap::new();
            let wanted = classes(port, node, queues).into_iter();
            for class in wanted.filter(|class| selection.wants(class.id)) {
                below.entry(class.parent.class()).or_default().push(class);
            }
            graph::draw(&of(node).graph(&below, None))
        };
        return Ok(Outcome::printed(nodes.map(graph).collect()));
    }
    let mut lines = Vec::new();
    for node in nodes {
        let classes = classes(port, node, queues);
        for class in classes.into_iter().filter(|class| selection.wants(class.id)) {
            lines.push(of(node).line(&class));
        }
    }
    Ok(options.print(&lines))
}

/// A class, its parent, and the qdisc that the operator put in it.
struct Class {
    id: ClassId,
    parent: Above,
    leaf: Option<Handle>,
}

/// The parent of a class, as `tc` prints it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Above {
    /// `root`, although it belongs to the qdisc.
    Root,
    /// Its qdisc.
    Qdisc,
    /// That class of its qdisc.
    Class(u32),
}

impl Above {
    /// The class number, if the parent is a class.
    fn class(self) -> Option<u32> {
        match self {
            Self::Class(minor) => Some(minor),
            Self::Root | Self::Qdisc => None,
        }
    }
}

/// The classes of `node` of `port`, which has `queues` queues.
fn classes(port: &PortPolicy, node: &Node, queues: u32) -> Vec<Class> {
    let class = |minor, parent| {
        let leaf = port.child(node, minor).map(|child| child.handle);
        Class { id: node.handle.class(minor), parent, leaf }
    };
    match (&node.kind, node.kind.classes()) {
        (_, Classes::None | Classes::Hidden) => Vec::new(),
        // As in the kernel, a netem's class exists while it has a child.
        (_, Classes::One(None)) if port.child(node, 1).is_none() => Vec::new(),
        (_, Classes::One(_)) => vec![class(1, Above::Qdisc)],
        (_, Classes::Queues | Classes::Alike) => {
            (1..=queues).map(|queue| class(queue, Above::Root)).collect()
        }
        (Kind::Htb(htb), _) => {
            let above = |above: Option<u32>| above.map_or(Above::Root, Above::Class);
            htb.classes.iter().map(|(minor, at)| class(minor, above(at.parent))).collect()
        }
        // As in the kernel, the qdisc is a class, too, with the number 0.
        (Kind::Hfsc(hfsc), _) => {
            let root = Class { id: node.handle.class(0), parent: Above::Root, leaf: None };
            let classes = hfsc.classes.iter();
            let classes =
                classes.map(|(minor, at)| class(minor, Above::Class(at.parent.unwrap_or(0))));
            [root].into_iter().chain(classes).collect()
        }
        (kind, Classes::Made | Classes::Bands) => {
            // As the kernel prints it for each kind.
            let above = if let Kind::Prio(_) = kind { Above::Qdisc } else { Above::Root };
            let minors = kind.classful().map_or(Vec::new(), |classful| classful.leaves());
            minors.into_iter().map(|minor| class(minor, above)).collect()
        }
    }
}

/// A qdisc whose classes are shown, on a port with these statistics.
#[derive(Clone, Copy)]
struct Shown<'a> {
    node: &'a Node,
    stats: &'a StatsOf<'a>,
    options: &'a Options,
}

impl Shown<'_> {
    fn line(&self, class: &Class) -> Line {
        let Self { node, options, .. } = *self;
        let mut line = options.line();
        let (kind, id) = (node.kind.name(), options.class(class.id));
        line.add("class", Json::Text(kind.to_owned()), &format!("class {kind} "));
        line.add("handle", Json::Text(id.clone()), &format!("{id} "));
        let parent = match class.parent {
            Above::Root => None,
            Above::Qdisc => Some(node.handle.to_string()),
            Above::Class(minor) => Some(options.class(node.handle.class(minor))),
        };
        match parent {
            Some(parent) => {
                line.add("parent", Json::Text(parent.clone()), &format!("parent {parent} "));
            }
            None => line.add("root", Json::Bool(true), "root "),
        }
        if let Some(leaf) = class.leaf {
            // In JSON, tc prints the number alone.
            let number = Json::Text(format!("{:#x}", leaf.major()));
            line.add("leaf", number, &format!("leaf {leaf} "));
        }
        kinds::show_class(&node.kind, class.id.minor, options.details, &mut line);
        line.text("\n");
        if options.statistics {
            self.figures(class, &mut line);
        }
        line
    }

    /// The statistics of the qdisc itself.
    fn own_stats(&self) -> Option<&Stats> {
        self.stats.of_handle(self.node.handle)
    }

    /// The statistics of the qdisc in a class.
    fn leaf_stats(&self, class: &Class) -> Stats {
        self.stats.at(Parent::Class(class.id)).cloned().unwrap_or_default()
    }

    /// The delays of a class outside a tree. A single queue keeps them for its classes; queues that
    /// share a rate keep them in a tree.
    fn delays(&self, class: &Class) -> Option<(&'static str, Json)> {
        let delays = match self.own_stats()?.detail.as_ref()? {
            Detail::Bands(figures) => figures.delays.get(&u16::try_from(class.id.minor).ok()?)?,
            Detail::Htb(figures) => &figures.leaves.get(&class.id.minor)?.delays,
            _ => return None,
        };
        kinds::delays::json(delays)
    }

    fn figures(&self, class: &Class, line: &mut Line) {
        let (stats, delays, text, more) = match (&self.node.kind, self.tree_figures(class)) {
            (_, Some(TreeFigures { stats, delays, text, json })) => {
                (stats, kinds::delays::json(&delays), text, json)
            }
            (Kind::Drr(_), _) => {
                let figures = self.own_stats().and_then(|stats| stats.detail.as_ref()?.bands());
                let minor = u16::try_from(class.id.minor).ok();
                let deficit = figures.zip(minor);
                let deficit = deficit.and_then(|(figures, minor)| figures.deficits.get(&minor));
                let deficit = deficit.copied().unwrap_or(0);
                let text = format!(" deficit {} \n", notation::size(deficit));
                let json = vec![("deficit", Json::Number(deficit))];
                (self.leaf_stats(class), self.delays(class), text, json)
            }
            // The kernel keeps no statistics for it.
            _ if self.has_one() => return line.text("\n"),
            _ => (self.leaf_stats(class), self.delays(class), String::new(), Vec::new()),
        };
        line.text(&Figures(&stats).text());
        line.text(&text);
        let mut json: Vec<_> = Figures(&stats).json().into();
        json.extend(more);
        json.extend(delays);
        line.json("stats", Json::Object(json));
    }

    /// The statistics of a class of a tree.
    fn tree_figures(&self, class: &Class) -> Option<TreeFigures> {
        kinds::tree_figures(&self.node.kind, class.id.minor, self.own_stats())
    }

    /// Whether its only class is there for its child alone.
    fn has_one(&self) -> bool {
        matches!(self.node.kind.classes(), Classes::One(_))
    }

    /// The classes in `below` whose parent is `parent`, as nodes of the graph.
    fn graph(
        &self,
        below: &BTreeMap<Option<u32>, Vec<Class>>,
        parent: Option<u32>,
    ) -> Vec<graph::Node> {
        let node = |class: &Class| {
            let Self { node, options, .. } = *self;
            let mut line = options.line();
            kinds::show_class(&node.kind, class.id.minor, options.details, &mut line);
            graph::Node {
                id: options.class(class.id),
                kind: node.kind.name(),
                options: render::text(&[line]),
                figures: self.graph_figures(class),
                below: self.graph(below, Some(class.id.minor)),
            }
        };
        below.get(&parent).into_iter().flatten().map(node).collect()
    }

    /// The statistics in a graph: those that every class has.
    fn graph_figures(&self, class: &Class) -> Vec<String> {
        if !self.options.statistics || self.has_one() {
            return Vec::new();
        }
        let stats = self.tree_figures(class).map(|figures| figures.stats);
        let stats = stats.unwrap_or_else(|| self.leaf_stats(class));
        let text = Figures(&stats).text();
        text.lines().map(|line| line.strip_prefix(' ').unwrap_or(line).to_owned()).collect()
    }
}
