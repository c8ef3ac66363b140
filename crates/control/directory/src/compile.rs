//! A directory becomes the classes, queues and filters of two ports.
//!
//! A subscriber becomes a class with an assured rate and a ceiling, below the class of its site. A
//! site becomes a class whose ceiling is its capacity, and whose assured rate is the sum of those
//! below it. Both ports get the same tree: one filters downloads by destination address, the other
//! uploads by source address.

use crate::form::ClassOf;
use crate::numbers::{SITE, SUBSCRIBER};
use crate::tree::{SiteAt, SubscriberAt};
use crate::{Directory, Draft, Form, Numbers, Prefix, Queueing, Report, Site, Subscriber, Tree};
use narrows_units::Rate;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};

/// The two ports of the policy.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Ports {
    /// The one towards the Internet: uploads leave there.
    pub internet: String,
    /// The one towards subscribers: downloads leave there.
    pub subscribers: String,
}

/// What a directory does not say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// The ports.
    pub ports: Ports,
    /// The capacity of the uplink, downstream and upstream. None: the sum of the rates at the top.
    pub uplink: [Option<Rate>; 2],
    /// The numbers that were given before, which stay.
    pub numbers: Numbers,
}

/// A site or subscriber in a list that has an order of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Its identity.
    pub identity: String,
    /// What a note calls it: `line 7, circuit 12`.
    pub place: String,
    /// The comment above its class.
    pub comment: String,
    /// Its name in the file of names.
    pub name: String,
}

/// The order in which a source has its sites and subscribers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rows {
    /// The sites, each after its parent.
    pub sites: Vec<Row>,
    /// The subscribers.
    pub subscribers: Vec<Row>,
}

/// The classes, queues and filters of two ports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compiled {
    /// The downloads, which leave at the subscribers' port, and the uploads.
    pub trees: [Tree; 2],
    /// What has a class: the sites, each after its parent, then the subscribers.
    pub entries: Vec<Entry>,
    /// What the operator should know.
    pub report: Report,
}

/// A site or subscriber that has a class at both ports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The comment above its class.
    pub comment: String,
    /// Its name in the file of names.
    pub name: String,
    /// The number of its class.
    pub minor: u32,
    /// The number of the class above.
    pub parent: u32,
    /// The queues of a subscriber, downstream and upstream; none for a site.
    pub queueing: Option<[Queueing; 2]>,
    /// The addresses of a subscriber.
    pub addresses: Vec<Prefix>,
}

/// Compiles `directory`, in the order of identities. A site whose parent is not there, or that is
/// its own ancestor, goes to the top: [`Directory::check`] finds these.
pub fn compile(directory: &Directory, options: &Options) -> Compiled {
    let mut draft = Draft::default();
    let outline = Outline::of_all(directory, options, &mut draft);
    let report = draft.finish().2;
    outline.compiled(report, |of| match of {
        Of::Site(identity, site) => {
            let name = name(&site.name, identity);
            (format!("site {name}"), name.to_owned())
        }
        Of::Subscriber(identity, subscriber) => (
            format!("subscriber {identity} {}", subscriber.name),
            name(&subscriber.name, identity).to_owned(),
        ),
    })
}

/// Compiles what is in `rows`, in their order, and notes in `draft` what the operator should know.
/// A row whose identity is not in the directory is passed over.
pub fn compile_rows(
    directory: &Directory,
    rows: &Rows,
    options: &Options,
    draft: &mut Draft,
) -> Compiled {
    let sites: Vec<&str> = rows.sites.iter().map(|row| &*row.identity).collect();
    let subscribers = rows.subscribers.iter().filter_map(|row| {
        let (identity, subscriber) = directory.subscribers.get_key_value(&row.identity)?;
        Some((identity.as_str(), subscriber))
    });
    let by_identity = |rows: &'_ [Row]| -> HashMap<String, Row> {
        rows.iter().map(|row| (row.identity.clone(), row.clone())).collect()
    };
    let [site_rows, subscriber_rows] = [&rows.sites, &rows.subscribers].map(|it| by_identity(it));
    let row = |of: Of<'_>| match of {
        Of::Site(identity, _) => &site_rows[identity],
        Of::Subscriber(identity, _) => &subscriber_rows[identity],
    };
    let place = |of: Of<'_>| row(of).place.clone();
    let outline = Outline::of(directory, &sites, subscribers, options, &place, draft);
    outline.compiled(Report::default(), |of| {
        let Row { comment, name, .. } = row(of);
        (comment.clone(), name.clone())
    })
}

impl Form {
    /// The trees of what `directory` compiles into, and what the operator should know. As
    /// [`Form::of`] of [`compile`], and several times as fast: without the words of a policy.
    pub fn compile(directory: &Directory, options: &Options) -> (Self, Report) {
        let mut draft = Draft::default();
        let outline = Outline::of_all(directory, options, &mut draft);
        (Self::of_classes(&outline.trees, outline.classes()), draft.finish().2)
    }
}

/// One that gets a class.
#[derive(Clone, Copy)]
pub(crate) enum Of<'a> {
    Site(&'a str, &'a Site),
    Subscriber(&'a str, &'a Subscriber),
}

/// What has a class, in order, and the rates.
struct Outline<'a> {
    /// Each after its parent.
    sites: Vec<SiteAt<'a>>,
    subscribers: Vec<SubscriberAt<'a>>,
    trees: [Tree; 2],
}

impl<'a> Outline<'a> {
    fn of_all(directory: &'a Directory, options: &Options, draft: &mut Draft) -> Self {
        let sites = from_above(directory);
        let subscribers = directory.subscribers.iter().map(|(it, one)| (it.as_str(), one));
        Self::of(directory, &sites, subscribers, options, &said_of, draft)
    }

    /// `place` says what a note calls one.
    fn of(
        directory: &'a Directory,
        sites: &[&str],
        subscribers: impl Iterator<Item = (&'a str, &'a Subscriber)> + Clone,
        options: &Options,
        place: &dyn Fn(Of<'_>) -> String,
        draft: &mut Draft,
    ) -> Self {
        let keys = sites.iter().map(|site| (SITE, *site));
        let numbers = options
            .numbers
            .of_keys(keys.chain(subscribers.clone().map(|(it, _)| (SUBSCRIBER, it))));
        let mut index: HashMap<&str, usize> = HashMap::with_capacity(sites.len());
        let mut found_sites: Vec<SiteAt<'_>> = Vec::with_capacity(sites.len());
        for (identity, &minor) in sites.iter().zip(&numbers) {
            let Some((identity, site)) = directory.sites.get_key_value(*identity) else { continue };
            let parent = site.parent.as_ref().and_then(|it| index.get(it.as_str()).copied());
            index.insert(identity, found_sites.len());
            found_sites.push(SiteAt { identity, site, parent, minor });
        }
        let found =
            subscribers.zip(&numbers[sites.len()..]).map(|((identity, subscriber), minor)| {
                let site = subscriber.site.as_ref().and_then(|it| index.get(it.as_str()).copied());
                SubscriberAt { identity, subscriber, site, minor: *minor }
            });
        let subscribers: Vec<SubscriberAt<'_>> = found.collect();
        let devs = [&options.ports.subscribers, &options.ports.internet];
        let trees = [0, 1].map(|direction| {
            let uplink = options.uplink[direction];
            Tree::grow(devs[direction], &found_sites, &subscribers, direction, uplink, place, draft)
        });
        Self { sites: found_sites, subscribers, trees }
    }

    /// The number of the site with that index, or of the uplink.
    fn above(&self, site: Option<usize>) -> u32 {
        site.map_or(crate::ROOT, |site| self.sites[site].minor)
    }

    /// What has a class, in the order of the trees.
    fn classes(&self) -> impl Iterator<Item = ClassOf<'a>> + Clone + '_ {
        let sites = self.sites.iter().map(|at| ClassOf {
            minor: at.minor,
            parent: self.above(at.parent),
            queueing: None,
            addresses: &[],
        });
        sites.chain(self.subscribers.iter().map(|at| ClassOf {
            minor: at.minor,
            parent: self.above(at.site),
            queueing: Some(at.subscriber.plan.queueing),
            addresses: &at.subscriber.addresses,
        }))
    }

    /// With the comment and the name that `words` gives for each.
    fn compiled(self, report: Report, words: impl Fn(Of<'_>) -> (String, String)) -> Compiled {
        let sites = self.sites.iter().map(|at| Of::Site(at.identity, at.site));
        let subscribers = self.subscribers.iter();
        let all = sites.chain(subscribers.map(|at| Of::Subscriber(at.identity, at.subscriber)));
        let entries = all.zip(self.classes()).map(|(of, class)| {
            let (comment, name) = words(of);
            let ClassOf { minor, parent, queueing, addresses } = class;
            Entry { comment, name, minor, parent, queueing, addresses: addresses.to_vec() }
        });
        let entries = entries.collect();
        Compiled { trees: self.trees, entries, report }
    }
}

/// What a note calls a site or subscriber of a directory.
pub(crate) fn said_of(of: Of<'_>) -> String {
    match of {
        Of::Site(identity, site) => name(&site.name, identity).to_owned(),
        Of::Subscriber(identity, it) => {
            format!("subscriber {}", crate::changes::named(identity, &it.name))
        }
    }
}

fn name<'a>(name: &'a str, identity: &'a str) -> &'a str {
    if name.trim().is_empty() { identity } else { name }
}

/// The identities of all sites, each after its parent.
pub(crate) fn from_above(directory: &Directory) -> Vec<&str> {
    let mut below: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut tops = Vec::new();
    for (identity, site) in &directory.sites {
        match &site.parent {
            Some(parent) if directory.sites.contains_key(parent) => {
                below.entry(parent).or_default().push(identity);
            }
            _ => tops.push(identity.as_str()),
        }
    }
    let mut order = Vec::with_capacity(directory.sites.len());
    let mut seen = HashSet::new();
    // Behind the tops, for those in a cycle, which no top leads to.
    for top in tops.into_iter().chain(directory.sites.keys().map(String::as_str)) {
        let mut next = vec![top];
        while let Some(identity) = next.pop() {
            if seen.insert(identity) {
                order.push(identity);
                next.extend(below.get(identity).into_iter().flatten().rev());
            }
        }
    }
    order
}
