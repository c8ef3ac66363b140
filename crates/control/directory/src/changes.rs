//! What differs between two directories, in people's words.

use crate::said::{printable, rate_pair};
use crate::{Directory, Plan, Queueing, Site, Subscriber};
use narrows_units::{Rate, counted};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};

/// The differences between two directories, by identity.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Those of the sites.
    pub sites: Vec<Change<Site>>,
    /// Those of the subscribers.
    pub subscribers: Vec<Change<Subscriber>>,
}

/// A difference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change<T> {
    /// Whose.
    pub identity: String,
    /// What was there; none if it is new.
    pub old: Option<T>,
    /// What is there now; none if it is gone.
    pub new: Option<T>,
}

/// The differences from `old` to `new`.
pub fn changes(old: &Directory, new: &Directory) -> Changes {
    Changes {
        sites: differences(&old.sites, &new.sites),
        subscribers: differences(&old.subscribers, &new.subscribers),
    }
}

fn differences<T: Clone + PartialEq>(
    old: &BTreeMap<String, T>,
    new: &BTreeMap<String, T>,
) -> Vec<Change<T>> {
    let mut found = Vec::new();
    let (mut olds, mut news) = (old.iter().peekable(), new.iter().peekable());
    loop {
        let order = match (olds.peek(), news.peek()) {
            (None, None) => return found,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(old), Some(new)) => old.0.cmp(new.0),
        };
        let old = if order.is_le() { olds.next() } else { None };
        let new = if order.is_ge() { news.next() } else { None };
        let Some((identity, _)) = old.or(new) else { return found };
        let (old, new) = (old.map(|(_, it)| it), new.map(|(_, it)| it));
        if old != new {
            let (old, new) = (old.cloned(), new.cloned());
            found.push(Change { identity: identity.clone(), old, new });
        }
    }
}

impl Changes {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sites.is_empty() && self.subscribers.is_empty()
    }

    /// `3 subscribers added, 1 changed, 2 removed; 1 site changed`.
    pub fn summary(&self) -> String {
        let [subscribers, sites] =
            [tally(&self.subscribers, "subscriber"), tally(&self.sites, "site")];
        match (subscribers.is_empty(), sites.is_empty()) {
            (true, true) => "nothing changes".to_owned(),
            (false, true) => subscribers,
            (true, false) => sites,
            (false, false) => format!("{subscribers}; {sites}"),
        }
    }
}

fn tally<T>(changes: &[Change<T>], what: &str) -> String {
    let number = |old: bool, new: bool| {
        changes.iter().filter(|it| (it.old.is_some(), it.new.is_some()) == (old, new)).count()
    };
    let counts = [
        (number(false, true), "added"),
        (number(true, true), "changed"),
        (number(true, false), "removed"),
    ];
    let mut parts = Vec::new();
    for (number, how) in counts.into_iter().filter(|(number, _)| *number > 0) {
        match parts.is_empty() {
            true => parts.push(format!("{} {how}", counted(number, what))),
            false => parts.push(format!("{number} {how}")),
        }
    }
    parts.join(", ")
}

/// A line for each: `subscriber 1042 (Ann Smith): plan 50/10 → 100/20 Mbit/s`.
impl Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for change in &self.sites {
            writeln!(f, "{change}")?;
        }
        for change in &self.subscribers {
            writeln!(f, "{change}")?;
        }
        Ok(())
    }
}

impl Display for Change<Site> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.new.as_ref().or(self.old.as_ref()).map_or("", |site| site.name.as_str());
        let of = format!("site {}", named(&self.identity, name));
        match (&self.old, &self.new) {
            (Some(old), Some(new)) => {
                let mut parts = Vec::new();
                push(&mut parts, "name", &printable(&old.name), &printable(&new.name));
                push(&mut parts, "above it", &place(&old.parent), &place(&new.parent));
                push(&mut parts, "capacity", &capacity(old.capacity), &capacity(new.capacity));
                write!(f, "{of}: {}", parts.join("; "))
            }
            (None, Some(new)) => {
                write!(f, "{of}: new, {}, {}", capacity(new.capacity), below(&new.parent))
            }
            _ => write!(f, "{of}: removed"),
        }
    }
}

impl Display for Change<Subscriber> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.new.as_ref().or(self.old.as_ref()).map_or("", |it| it.name.as_str());
        let of = format!("subscriber {}", named(&self.identity, name));
        match (&self.old, &self.new) {
            (Some(old), Some(new)) => write!(f, "{of}: {}", difference(old, new).join("; ")),
            (None, Some(new)) => {
                let rates = rate_pair(new.plan.ceiling);
                write!(f, "{of}: new, {rates}, {}", below(&new.site))?;
                let addresses: Vec<String> =
                    new.addresses.iter().map(ToString::to_string).collect();
                match addresses.is_empty() {
                    true => write!(f, ", without an address"),
                    false => write!(f, ", {}", addresses.join(", ")),
                }
            }
            _ => write!(f, "{of}: removed"),
        }
    }
}

fn difference(old: &Subscriber, new: &Subscriber) -> Vec<String> {
    let mut parts = Vec::new();
    let (before, after) = (&old.plan, &new.plan);
    push(&mut parts, "name", &printable(&old.name), &printable(&new.name));
    push(&mut parts, "site", &place(&old.site), &place(&new.site));
    pair(&mut parts, "plan", before.ceiling, after.ceiling);
    pair(&mut parts, "assured", before.assured, after.assured);
    push(&mut parts, "name of its plan", &plan_name(before), &plan_name(after));
    push(&mut parts, "queues", &queues(before.queueing), &queues(after.queueing));
    let [olds, news] = [old, new].map(|it| it.addresses.iter().copied().collect::<BTreeSet<_>>());
    let gone = olds.difference(&news).map(|address| format!("−{address}"));
    let more = news.difference(&olds).map(|address| format!("+{address}"));
    let addresses: Vec<String> = gone.chain(more).collect();
    if !addresses.is_empty() {
        parts.push(format!("addresses {}", addresses.join(" ")));
    }
    if old.labels != new.labels {
        let keys: BTreeSet<&String> = old.labels.keys().chain(new.labels.keys()).collect();
        let differ = keys.into_iter().filter(|key| old.labels.get(*key) != new.labels.get(*key));
        let names: Vec<String> = differ.map(|key| printable(key)).collect();
        parts.push(format!("labels {}", names.join(", ")));
    }
    if parts.is_empty() {
        // The same addresses in another order.
        parts.push("order of its addresses".to_owned());
    }
    parts
}

fn push(parts: &mut Vec<String>, what: &str, old: &str, new: &str) {
    if old != new {
        let said = |text: &str| if text.is_empty() { "none".to_owned() } else { text.to_owned() };
        parts.push(format!("{what} {} → {}", said(old), said(new)));
    }
}

/// `50/10 → 100/20 Mbit/s`.
fn pair(parts: &mut Vec<String>, what: &str, old: [Rate; 2], new: [Rate; 2]) {
    if old == new {
        return;
    }
    let (old, new) = (rate_pair(old), rate_pair(new));
    let [unit_old, unit_new] = [&old, &new].map(|text| text.split_once(' ').map(|(_, unit)| unit));
    let old = match unit_old == unit_new {
        true => old.split(' ').next().unwrap_or_default(),
        false => &old,
    };
    parts.push(format!("{what} {old} → {new}"));
}

/// `1042 (Ann Smith)`.
pub(crate) fn named(identity: &str, name: &str) -> String {
    let (identity, name) = (printable(identity), printable(name));
    match name.trim().is_empty() || name == identity {
        true => identity,
        false => format!("{identity} ({name})"),
    }
}

fn place(site: &Option<String>) -> String {
    site.as_deref().map_or_else(|| "the top".to_owned(), printable)
}

fn below(site: &Option<String>) -> String {
    site.as_deref().map_or_else(|| "at the top".to_owned(), |it| format!("at {}", printable(it)))
}

fn capacity(capacity: [Option<Rate>; 2]) -> String {
    let one = |rate: Option<Rate>| {
        rate.map_or_else(|| "no limit of its own".to_owned(), |it| it.to_string())
    };
    match capacity {
        [Some(down), Some(up)] => rate_pair([down, up]),
        [None, None] => one(None),
        [down, up] => format!("{} down, {} up", one(down), one(up)),
    }
}

fn plan_name(plan: &Plan) -> String {
    plan.name.as_deref().map_or_else(String::new, printable)
}

fn queues([down, up]: [Queueing; 2]) -> String {
    let name = |queueing: Queueing| match queueing {
        Queueing::Cake => "cake",
        Queueing::FqCodel => "fq_codel",
        Queueing::Fifo => "fifo",
    };
    match down == up {
        true => name(down).to_owned(),
        false => format!("{}/{}", name(down), name(up)),
    }
}
