//! Addresses beside those that the source of a subscriber says.
//!
//! *Idea.* A DHCP server has addresses of subscribers whose plan another source has. So each row
//! says in a label, whose name is `+` and who added them, which of its addresses were added. A
//! change by the row's own source, which knows nothing of them, leaves them there.

use crate::cache::Cache;
use crate::{Edit, Store, StoreError};
use narrows_directory::{Prefix, Subscriber};
use std::collections::{BTreeMap, BTreeSet};

/// What the names of these labels begin with.
const MARK: char = '+';

/// The addresses that somebody added to `subscriber` by hand or over the API.
pub fn added_addresses(subscriber: &Subscriber) -> BTreeSet<Prefix> {
    let labels = subscriber.labels.iter().filter(|(label, _)| label.starts_with(MARK));
    labels.flat_map(|(_, list)| addresses(list)).collect()
}

fn addresses(list: &str) -> impl Iterator<Item = Prefix> {
    list.split(' ').filter_map(|word| word.parse().ok())
}

/// What was added to `present` stays in `next`, which its source says. An empty label takes it
/// away.
pub(crate) fn carry(present: &Subscriber, next: &mut Subscriber) {
    for (label, list) in present.labels.iter().filter(|(label, _)| label.starts_with(MARK)) {
        if !next.labels.contains_key(label) {
            let own: BTreeSet<Prefix> = next.addresses.iter().copied().collect();
            // What the source says itself now is not added any more.
            put(next, label, addresses(list).filter(|address| !own.contains(address)).collect());
        }
    }
    next.labels.retain(|label, list| !label.starts_with(MARK) || !list.is_empty());
}

fn put(subscriber: &mut Subscriber, label: &str, added: BTreeSet<Prefix>) {
    let words: Vec<String> = added.iter().map(Prefix::to_string).collect();
    subscriber.labels.insert(label.to_owned(), words.join(" "));
    subscriber.addresses.extend(added);
}

impl Store {
    /// Makes `assigned` all that `who` adds to subscribers, by identity: each keeps the source that
    /// it has. An identity that is not there is left out, and an address that its subscriber has
    /// anyway is not added. Returns how many subscribers changed.
    ///
    /// # Errors
    /// If an address is another subscriber's, or the result would not be sound, or the file cannot
    /// be written. Addresses that are taken away are gone then, and those of some sources added.
    pub fn add_addresses(
        &mut self,
        who: &str,
        assigned: &BTreeMap<String, BTreeSet<Prefix>>,
    ) -> Result<usize, StoreError> {
        let nothing = BTreeSet::new();
        let cache = self.fresh()?;
        let all = cache.directory.subscribers.keys();
        let added = added(cache, who, all.map(|it| (it, assigned.get(it).unwrap_or(&nothing))));
        self.add(added)
    }

    /// As [`add_addresses`](Self::add_addresses), for the subscribers in `assigned` only: to others
    /// `who` adds what it did before.
    ///
    /// # Errors
    /// As `add_addresses`.
    pub fn add_addresses_to(
        &mut self,
        who: &str,
        assigned: &BTreeMap<String, BTreeSet<Prefix>>,
    ) -> Result<usize, StoreError> {
        let added = added(self.fresh()?, who, assigned.iter());
        self.add(added)
    }

    fn add(&mut self, Added { less, more, changed }: Added) -> Result<usize, StoreError> {
        for (source, subscribers) in less.into_iter().chain(more) {
            self.change(&source, Edit { subscribers, ..Edit::default() })?;
        }
        Ok(changed)
    }
}

/// What has to be changed, in two steps, so that an address can go from one subscriber to another.
#[derive(Default)]
struct Added {
    less: Edits,
    more: Edits,
    /// How many subscribers change.
    changed: usize,
}

/// What has to be changed so that `who` adds these addresses to each of these subscribers.
fn added<'a>(
    cache: &Cache,
    who: &str,
    assigned: impl Iterator<Item = (&'a String, &'a BTreeSet<Prefix>)>,
) -> Added {
    let label = format!("{MARK}{who}");
    let mut all = Added::default();
    for (identity, wanted) in assigned {
        let Some(subscriber) = cache.directory.subscribers.get(identity) else { continue };
        let list = subscriber.labels.get(&label).map_or("", String::as_str);
        let had: BTreeSet<Prefix> = addresses(list).collect();
        let own: BTreeSet<Prefix> =
            subscriber.addresses.iter().filter(|it| !had.contains(it)).copied().collect();
        let wanted: BTreeSet<Prefix> = wanted.difference(&own).copied().collect();
        if wanted == had {
            continue;
        }
        all.changed += 1;
        let source = cache.subscribers.get(identity).map_or("", |source| &**source);
        let with = |added: BTreeSet<Prefix>| {
            let mut next = subscriber.clone();
            next.addresses.retain(|address| own.contains(address));
            put(&mut next, &label, added);
            Some(next)
        };
        let change = |edits: &mut Edits, added: BTreeSet<Prefix>| {
            let of_source = edits.entry(source.to_owned()).or_default();
            of_source.insert(identity.clone(), with(added));
        };
        let stays: BTreeSet<Prefix> = had.intersection(&wanted).copied().collect();
        if stays != had {
            change(&mut all.less, stays.clone());
        }
        if stays != wanted {
            change(&mut all.more, wanted);
        }
    }
    all
}

/// Changed subscribers, by source.
type Edits = BTreeMap<String, BTreeMap<String, Option<Subscriber>>>;
