//! A directory becomes the classes, queues and filters of two ports.
//!
//! A subscriber becomes a class with an assured rate and a ceiling, below the class of its site. A
//! site becomes a class whose ceiling is its capacity, and whose assured rate is the sum of those
//! below it. Both ports get the same tree: one filters downloads by destination address, the other
//! uploads by source address.

use crate::numbers::{of_site, of_subscriber};
use crate::tree::{SiteAt, SubscriberAt};
use crate::{Directory, Draft, Numbers, Prefix, Queueing, Report, Tree};
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
    /// What a note calls it: `line 7, circuit 12`. If empty, its comment.
    pub place: String,
    /// The comment above its class.
    pub comment: String,
    /// Its name in the file of names.
    pub name: String,
}

impl Row {
    /// What a note calls it.
    pub(crate) fn place(&self) -> &str {
        if self.place.is_empty() { &self.comment } else { &self.place }
    }
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
    let sites = from_above(directory).into_iter().map(|identity| {
        let name = name(&directory.sites[identity].name, identity);
        let comment = format!("site {name}");
        Row {
            identity: identity.to_owned(),
            place: name.to_owned(),
            comment,
            name: name.to_owned(),
        }
    });
    let subscribers = directory.subscribers.iter().map(|(identity, subscriber)| {
        let comment = format!("subscriber {identity} {}", subscriber.name);
        let name = name(&subscriber.name, identity).to_owned();
        Row { identity: identity.clone(), place: String::new(), comment, name }
    });
    let rows = Rows { sites: sites.collect(), subscribers: subscribers.collect() };
    let mut draft = Draft::default();
    let mut compiled = compile_rows(directory, rows, options, &mut draft);
    compiled.report = draft.finish().2;
    compiled
}

/// Compiles what is in `rows`, in their order, and notes in `draft` what the operator should know.
/// A row whose identity is not in the directory is passed over.
pub fn compile_rows(
    directory: &Directory,
    rows: Rows,
    options: &Options,
    draft: &mut Draft,
) -> Compiled {
    let Rows { sites: site_rows, subscribers: subscriber_rows } = rows;
    let mut keys: Vec<String> = site_rows.iter().map(|row| of_site(&row.identity)).collect();
    keys.extend(subscriber_rows.iter().map(|row| of_subscriber(&row.identity)));
    let numbers = options.numbers.assign(&keys);
    drop(keys);

    let mut index: HashMap<&str, usize> = HashMap::with_capacity(site_rows.len());
    let mut sites: Vec<SiteAt<'_>> = Vec::with_capacity(site_rows.len());
    let mut taken: Vec<(&Row, u32, Option<usize>)> = Vec::new();
    for (row, &minor) in site_rows.iter().zip(&numbers) {
        let Some(site) = directory.sites.get(&row.identity) else { continue };
        let parent = site.parent.as_ref().and_then(|parent| index.get(parent.as_str()).copied());
        index.insert(&row.identity, sites.len());
        taken.push((row, minor, parent));
        sites.push(SiteAt { site, parent, place: &row.place });
    }
    let found =
        subscriber_rows.iter().zip(&numbers[site_rows.len()..]).filter_map(|(row, minor)| {
            let subscriber = directory.subscribers.get(&row.identity)?;
            let site = subscriber.site.as_ref().and_then(|site| index.get(site.as_str()).copied());
            Some((row, *minor, subscriber, site))
        });
    let found: Vec<_> = found.collect();
    let subscribers: Vec<SubscriberAt<'_>> = found
        .iter()
        .map(|(row, _, subscriber, site)| SubscriberAt { subscriber, site: *site, row })
        .collect();
    let devs = [&options.ports.subscribers, &options.ports.internet];
    let trees = [0, 1].map(|direction| {
        let uplink = options.uplink[direction];
        Tree::grow(devs[direction], &sites, &subscribers, direction, uplink, draft)
    });

    let above = |parent: Option<usize>| parent.map_or(crate::ROOT, |parent| taken[parent].1);
    let mut entries: Vec<Entry> = taken
        .iter()
        .map(|(row, minor, parent)| Entry {
            comment: row.comment.clone(),
            name: row.name.clone(),
            minor: *minor,
            parent: above(*parent),
            queueing: None,
            addresses: Vec::new(),
        })
        .collect();
    entries.extend(found.iter().map(|(row, minor, subscriber, site)| Entry {
        comment: row.comment.clone(),
        name: row.name.clone(),
        minor: *minor,
        parent: above(*site),
        queueing: Some(subscriber.plan.queueing),
        addresses: subscriber.addresses.clone(),
    }));
    Compiled { trees, entries, report: Report::default() }
}

fn name<'a>(name: &'a str, identity: &'a str) -> &'a str {
    if name.trim().is_empty() { identity } else { name }
}

/// The identities of all sites, each after its parent.
fn from_above(directory: &Directory) -> Vec<&str> {
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
