//! The `tc` commands that lead from one form of the trees to another.
//!
//! Only what differs is touched: a class with other rates is changed where it is and keeps its
//! queue and its counters. As in the kernel, a class keeps its parent, so one that moves to another
//! site is made anew, and so is all that is below it.
//!
//! *Order.* Filters go before the classes that they lead to, and classes before their parents; then
//! classes come after their parents, and filters after their classes. Each command has an
//! [inverse](Command::inverse), so that a batch which an instance refuses in the middle can be
//! undone.

use crate::write::DIRECTIONS;
use crate::{ClassForm, DEFAULT, FilterForm, Form, Leaf, PortForm};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

/// One `tc` command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Command {
    /// The port.
    dev: String,
    /// 0 for downloads, 1 for uploads.
    direction: usize,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Root { adds: bool },
    Class { from: Option<ClassForm>, to: Option<ClassForm> },
    Leaf { minor: u32, from: Leaf, to: Leaf },
    Filter { from: Option<FilterForm>, to: Option<FilterForm> },
}

impl Command {
    /// What takes it back.
    #[must_use]
    pub fn inverse(&self) -> Self {
        let what = match self.what {
            What::Root { adds } => What::Root { adds: !adds },
            What::Class { from, to } => What::Class { from: to, to: from },
            What::Leaf { minor, from, to } => What::Leaf { minor, from: to, to: from },
            What::Filter { from, to } => What::Filter { from: to, to: from },
        };
        Self { what, ..self.clone() }
    }

    /// Whether it removes something.
    pub fn removes(&self) -> bool {
        matches!(
            self.what,
            What::Root { adds: false }
                | What::Class { to: None, .. }
                | What::Leaf { to: Leaf::None, .. }
                | What::Filter { to: None, .. }
        )
    }

    /// The command, without `tc` before it.
    pub fn line(&self) -> String {
        let dev = &self.dev;
        match self.what {
            What::Root { adds: true } => {
                format!("qdisc add dev {dev} root handle 1: htb default {DEFAULT:x}")
            }
            What::Root { adds: false } => format!("qdisc del dev {dev} root"),
            What::Class { from, to: Some(to) } => {
                let verb = if from.is_some() { "change" } else { "add" };
                let ClassForm { minor, parent, .. } = to;
                let parent = if parent == 0 { String::new() } else { format!("{parent:x}") };
                let words = to.words();
                format!("class {verb} dev {dev} parent 1:{parent} classid 1:{minor:x} {words}")
            }
            What::Class { from, to: None } => {
                format!("class del dev {dev} classid 1:{:x}", from.map_or(0, |from| from.minor))
            }
            What::Leaf { minor, to: Leaf::None, .. } => {
                format!("qdisc del dev {dev} parent 1:{minor:x}")
            }
            What::Leaf { minor, to, .. } => {
                let words = to.words();
                format!("qdisc add dev {dev} parent 1:{minor:x} handle {minor:x}: {words}")
            }
            What::Filter { from, to: Some(to) } => {
                let verb = if from.is_some() { "replace" } else { "add" };
                let FilterForm { pref, handle, address, minor } = to;
                let (protocol, field) = (to.protocol(), DIRECTIONS[self.direction].1);
                format!(
                    "filter {verb} dev {dev} parent 1: protocol {protocol} pref {pref} handle \
                     0x{handle:x} flower {field} {}/{} classid 1:{minor:x}",
                    address.ip, address.bits
                )
            }
            What::Filter { from, to: None } => {
                let (pref, handle) = from.map_or((0, 0), |from| (from.pref, from.handle));
                let protocol = from.as_ref().map_or("ip", FilterForm::protocol);
                format!(
                    "filter del dev {dev} parent 1: protocol {protocol} pref {pref} handle \
                     0x{handle:x} flower"
                )
            }
        }
    }
}

impl Form {
    /// The commands that lead from this form to `next`. Ports that have other names in `next` begin
    /// empty there; what runs at the former ones stays.
    pub fn towards(&self, next: &Self) -> Vec<Command> {
        let mut commands = Vec::new();
        for direction in 0..2 {
            let to = &next.ports[direction];
            let empty = PortForm::default();
            let from = self.ports.iter().find(|port| port.dev == to.dev).unwrap_or(&empty);
            let mut steps = Steps { dev: &to.dev, direction, commands: &mut commands };
            steps.port(from, to);
        }
        commands
    }
}

/// The commands for a port.
struct Steps<'a> {
    dev: &'a str,
    direction: usize,
    commands: &'a mut Vec<Command>,
}

impl Steps<'_> {
    fn push(&mut self, what: What) {
        self.commands.push(Command { dev: self.dev.to_owned(), direction: self.direction, what });
    }

    fn port(&mut self, from: &PortForm, to: &PortForm) {
        if !from.has_root {
            self.push(What::Root { adds: true });
        }
        let anew = made_anew(&from.classes, &to.classes);
        let is_anew = |minor: u32| anew.contains(&minor);
        let is_class_anew = |class: &ClassForm| is_anew(class.minor);
        let classes = pairs(&from.classes, &to.classes, |class| class.minor, is_class_anew);
        let key = |filter: &FilterForm| (filter.pref, filter.handle);
        let filters = pairs(&from.filters, &to.filters, key, |filter| is_anew(filter.minor));

        // A class that goes, for ever or to be made anew, has no filter meanwhile.
        let goes = |minor: u32| is_anew(minor) || find(&to.classes, minor).is_none();
        let is_dropped = |from: &FilterForm, to: Option<&FilterForm>| {
            goes(from.minor) || to.is_none_or(|to| is_anew(to.minor))
        };
        for (from, to) in &filters {
            let Some(from) = from.filter(|from| is_dropped(from, *to)) else { continue };
            self.push(What::Filter { from: Some(*from), to: None });
        }
        let mut gone: Vec<&ClassForm> = classes
            .iter()
            .filter_map(|(from, to)| {
                let from = (*from)?;
                (to.is_none() || is_anew(from.minor)).then_some(from)
            })
            .collect();
        gone.sort_by_cached_key(|class| std::cmp::Reverse(depth(&from.classes, class.minor)));
        for class in gone {
            if class.leaf != Leaf::None {
                self.push(What::Leaf { minor: class.minor, from: class.leaf, to: Leaf::None });
            }
            self.push(What::Class { from: Some(*class), to: None });
        }

        let mut new: Vec<(Option<&ClassForm>, &ClassForm)> = classes
            .iter()
            .filter_map(|(from, to)| {
                let from = from.filter(|from| !is_anew(from.minor));
                to.map(|to| (from, to))
            })
            .collect();
        new.sort_by_cached_key(|(_, class)| depth(&to.classes, class.minor));
        for (from, to) in new {
            let before = from.map_or(Leaf::None, |from| from.leaf);
            if from.is_none_or(|from| ClassForm { leaf: to.leaf, ..*from } != *to) {
                self.push(What::Class { from: from.copied(), to: Some(*to) });
            }
            if before == to.leaf {
                continue;
            }
            // A qdisc of another kind cannot have the same handle while the former one has it.
            let minor = to.minor;
            if before != Leaf::None {
                self.push(What::Leaf { minor, from: before, to: Leaf::None });
            }
            if to.leaf != Leaf::None {
                self.push(What::Leaf { minor, from: Leaf::None, to: to.leaf });
            }
        }
        for (from, to) in &filters {
            let Some(to) = to else { continue };
            let from = from.filter(|from| !is_dropped(from, Some(to)));
            if from != Some(*to) {
                self.push(What::Filter { from: from.copied(), to: Some(**to) });
            }
        }
    }
}

/// The class `minor` within a list by number.
fn find(classes: &[ClassForm], minor: u32) -> Option<&ClassForm> {
    let at = classes.binary_search_by_key(&minor, |class| class.minor).ok()?;
    classes.get(at)
}

/// The number of classes above `minor`.
fn depth(classes: &[ClassForm], minor: u32) -> usize {
    let above = |class: &&ClassForm| find(classes, class.parent);
    // No tree is deeper than its classes are many.
    std::iter::successors(find(classes, minor), above).take(classes.len()).count()
}

/// The classes that cannot stay, since they or what is above them has another parent.
fn made_anew(from: &[ClassForm], to: &[ClassForm]) -> HashSet<u32> {
    let parent = |minor: u32| find(to, minor).map(|class| class.parent);
    let moves = |class: &&ClassForm| parent(class.minor).is_some_and(|it| it != class.parent);
    let mut anew: HashSet<u32> = from.iter().filter(moves).map(|class| class.minor).collect();
    if anew.is_empty() {
        return anew;
    }
    let mut below: HashMap<u32, Vec<u32>> = HashMap::new();
    for class in from {
        below.entry(class.parent).or_default().push(class.minor);
    }
    let mut next: Vec<u32> = anew.iter().copied().collect();
    while let Some(at) = next.pop() {
        let children = below.get(&at).into_iter().flatten();
        next.extend(children.copied().filter(|child| anew.insert(*child)));
    }
    anew
}

/// What is in one of two sorted lists, or in both.
type Pair<'a, T> = (Option<&'a T>, Option<&'a T>);

/// The pairs that have the same key, and those that have none; equal ones are left out, unless they
/// are made `anew`.
fn pairs<'a, T: PartialEq, K: Ord>(
    from: &'a [T],
    to: &'a [T],
    key: impl Fn(&T) -> K,
    anew: impl Fn(&T) -> bool,
) -> Vec<Pair<'a, T>> {
    let (mut from, mut to) = (from.iter().peekable(), to.iter().peekable());
    let mut pairs = Vec::new();
    loop {
        let order = match (from.peek(), to.peek()) {
            (None, None) => return pairs,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(one), Some(other)) => key(one).cmp(&key(other)),
        };
        let pair = match order {
            Ordering::Less => (from.next(), None),
            Ordering::Greater => (None, to.next()),
            Ordering::Equal => (from.next(), to.next()),
        };
        if pair.0 != pair.1 || pair.0.is_some_and(&anew) {
            pairs.push(pair);
        }
    }
}
