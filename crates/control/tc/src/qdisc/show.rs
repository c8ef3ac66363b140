//! `tc qdisc show`.

use super::usage::usage;
use crate::complaint::{Complaint, Outcome};
use crate::figures::Figures;
use crate::kinds::{self, Style};
use crate::options::Options;
use crate::render::{Json, Line};
use crate::stats::StatsOf;
use crate::words::{Words, abbreviates};
use crate::{Host, device, handles, intermediate};
use narrows_policy::{ClassId, Classes, Handle, Kind, Node, Parent, PortFacts, PortPolicy};

/// Selects the qdiscs to show.
#[derive(Default)]
struct Filter {
    dev: Option<String>,
    parent: Option<Parent>,
    handle: Option<Handle>,
    /// Also default qdiscs.
    invisible: bool,
}

/// Runs `tc qdisc show`.
pub(crate) fn show(
    mut words: Words,
    options: &Options,
    host: &dyn Host,
) -> Result<Outcome, Complaint> {
    let mut filter = Filter::default();
    while let Some(word) = words.next() {
        if word == "dev" {
            filter.dev = Some(words.value("dev", "eth0")?.to_owned());
        } else if word == "root" {
            filter.set_parent(word, Some(Parent::Root))?;
        } else if matches!(word, "ingress" | "clsact") {
            filter.set_parent(word, Some(Parent::Class(ClassId::INGRESS)))?;
        } else if abbreviates(word, "parent") {
            filter.set_parent(word, handles::parent(words.value("parent", "1:1")?)?)?;
        } else if abbreviates(word, "handle") {
            if filter.handle.is_some() {
                return Err(Complaint::unreadable(
                    "Error: argument \"handle\" is wrong: it was given already.",
                ));
            }
            filter.handle = handles::handle(words.value("handle", "1:")?)?;
        } else if abbreviates(word, "help") {
            return Ok(usage(0));
        } else if word == "invisible" {
            filter.invisible = true;
        } else {
            return Err(Complaint::unreadable(format!(
                "What is \"{word}\"? show takes dev NAME, root, parent ID, handle ID, invisible."
            )));
        }
    }
    let devices = match &filter.dev {
        Some(dev) => vec![(dev.clone(), device::named(dev, host)?)],
        None => {
            let known = |dev: String| intermediate::facts(&dev, host).map(|facts| (dev, facts));
            intermediate::devices(host).into_iter().filter_map(known).collect()
        }
    };
    let policy = host.policy();
    let mut lines = Vec::new();
    for (dev, facts) in devices {
        let stats = if options.statistics { intermediate::stats(&dev, host) } else { Vec::new() };
        let stats = StatsOf::new(&stats);
        let is_pending = intermediate::is_pending(&dev, host);
        let shown = Port { name: &dev, facts, is_pending, policy: policy.port(&dev), stats };
        shown.lines(&filter, options, &mut lines);
    }
    Ok(options.print(&lines))
}

impl Filter {
    fn set_parent(&mut self, word: &str, parent: Option<Parent>) -> Result<(), Complaint> {
        if self.parent.is_some() {
            return Err(Complaint::unreadable(format!(
                "Error: argument \"{word}\" is wrong: a parent was given already."
            )));
        }
        self.parent = parent;
        Ok(())
    }

    fn wants(&self, parent: Parent, handle: Option<Handle>) -> bool {
        self.parent.is_none_or(|wanted| wanted == parent)
            && self.handle.is_none_or(|wanted| Some(wanted) == handle)
    }
}

/// A port to show.
struct Port<'a> {
    name: &'a str,
    facts: PortFacts,
    /// Whether its qdiscs are not in force yet.
    is_pending: bool,
    policy: &'a PortPolicy,
    stats: StatsOf<'a>,
}

impl Port<'_> {
    fn lines(&self, filter: &Filter, options: &Options, lines: &mut Vec<Line>) {
        let mut add = |parent, handle, kind: &str, parameters: Line| {
            if filter.wants(parent, handle) {
                let dev = filter.dev.is_none();
                lines.push(self.line(parent, handle, kind, parameters, dev, options));
            }
        };
        let queues = u32::from(self.facts.queues.unwrap_or(0));
        let nodes = self.policy.nodes();
        let under_mq = nodes.first().is_some_and(|root| root.kind.classes() == Classes::Queues);
        if nodes.is_empty() {
            add(Parent::Root, None, "noqueue", Line::default());
        }
        let shared = !under_mq && self.facts.queues != Some(1);
        let style = Style { details: options.details, shared };
        for node in nodes {
            let mut parameters = options.line();
            kinds::show(&node.kind, style, &mut parameters);
            if let Kind::Htb(htb) = &node.kind {
                let stats = self.stats.of_handle(node.handle);
                kinds::show_direct(htb, stats, options.details, &mut parameters);
            }
            add(node.parent, Some(node.handle), node.kind.name(), parameters);
            if node.kind.classes() == Classes::Alike {
                // The kernel lists the one that was created last first.
                for queue in (1..=queues).rev() {
                    let mut parameters = options.line();
                    kinds::show(&node.kind, style, &mut parameters);
                    add(Parent::Class(node.handle.class(queue)), None, "cake", parameters);
                }
            }
            if node.kind.classes() == Classes::Queues {
                let is_empty = |queue: &u32| self.policy.child(node, *queue).is_none();
                for queue in (1..=queues).filter(is_empty) {
                    let parent = Parent::Class(node.handle.class(queue));
                    add(parent, None, "noqueue", Line::default());
                }
            }
            if !filter.invisible {
                continue;
            }
            match node.kind.classes() {
                Classes::One(Some(fifo)) if self.policy.child(node, 1).is_none() => {
                    let mut parameters = Line::default();
                    kinds::show_implicit(fifo, &mut parameters);
                    let kind = fifo.unit.kind_name();
                    add(Parent::Class(node.handle.class(1)), None, kind, parameters);
                }
                Classes::Made | Classes::Bands => implicit_leaves(self.policy, node, &mut add),
                _ => {}
            }
        }
        if let Some(ends) = &self.policy.ends {
            let mut parameters = Line::default();
            if !ends.has_egress {
                parameters.text("---------------- ");
            }
            let parent = Parent::Class(ClassId::INGRESS);
            add(parent, Some(Handle::ENDS), ends.kind(), parameters);
        }
    }

    fn line(
        &self,
        parent: Parent,
        handle: Option<Handle>,
        kind: &str,
        parameters: Line,
        dev: bool,
        options: &Options,
    ) -> Line {
        let mut line = options.line();
        let number = handle.map_or_else(|| "0:".to_owned(), |handle| handle.to_string());
        line.add("kind", Json::Text(kind.to_owned()), &format!("qdisc {kind} "));
        line.add("handle", Json::Text(number.clone()), &format!("{number} "));
        if dev {
            line.add("dev", Json::Text(self.name.to_owned()), &format!("dev {} ", self.name));
        }
        match parent {
            Parent::Root => line.add("root", Json::Bool(true), "root "),
            Parent::Class(class) => {
                let class = options.class(class);
                line.add("parent", Json::Text(class.clone()), &format!("parent {class} "));
            }
        }
        if let Some(count) = self.references(parent, handle, kind) {
            line.add("refcnt", Json::Number(count), &format!("refcnt {count} "));
        }
        if self.is_pending && parent == Parent::Root {
            line.add("pending", Json::Bool(true), "pending ");
        }
        line.nest("options", parameters);
        line.text("\n");
        let node = handle.and_then(|handle| self.policy.find(handle));
        if let Some(stab) = node.and_then(|node| node.stab.as_deref()).filter(|_| options.details) {
            line.text(" ");
            line.nest("stab", kinds::stab::show(stab));
            line.text("\n");
        }
        if options.statistics {
            let stats = self.stats.of(parent, handle).cloned().unwrap_or_default();
            line.text(&Figures(&stats).text());
            Figures(&stats).json().into_iter().for_each(|(key, value)| line.json(key, value));
            if let Some(detail) = &stats.detail {
                kinds::show_detail(detail, &mut line);
            }
        }
        line
    }

    /// The number of references to this qdisc in the kernel, if the kernel shows it: a root has one
    /// from the device and one from each queue, an `mq` or `cake_mq` only one from the device.
    fn references(&self, parent: Parent, handle: Option<Handle>, kind: &str) -> Option<u64> {
        match (parent, handle, kind) {
            (Parent::Class(_), ..) | (_, _, "mq" | "cake_mq") => None,
            (Parent::Root, None, _) => Some(2),
            (Parent::Root, Some(_), _) => Some(u64::from(self.facts.queues.unwrap_or(1)) + 1),
        }
    }
}

/// Adds a qdisc to the output: its place, handle, kind and parameters.
type Add<'a> = dyn FnMut(Parent, Option<Handle>, &str, Line) + 'a;

/// Adds the default `pfifo`s of classes.
fn implicit_leaves(port: &PortPolicy, node: &Node, add: &mut Add<'_>) {
    let Some(classful) = node.kind.classful() else { return };
    let empty = classful.leaves().into_iter().filter(|minor| port.child(node, *minor).is_none());
    for minor in empty {
        let mut parameters = Line::default();
        let fifo = classful.leaf();
        kinds::show_implicit(fifo, &mut parameters);
        let parent = Parent::Class(node.handle.class(minor));
        add(parent, None, fifo.unit.kind_name(), parameters);
    }
}
