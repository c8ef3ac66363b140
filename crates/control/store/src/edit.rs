//! Changes: what they concern, whether they are sound, and how they are written.

use crate::added;
use crate::cache::{self, Cache};
use crate::{StoreError, set_state};
use narrows_directory::{CLASSES_MAX, Change, Changes, Directory, Site, Subscriber, printable};
use narrows_units::counted;
use rusqlite::{Connection, params};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The most numbers that are kept; beyond, those of whom is gone are forgotten. The numbers have 24
/// bits, and a free one must be found quickly.
const NUMBERS_MAX: usize = 8_000_000;
/// How many conflicts are named.
const CONFLICTS_MAX: usize = 20;

/// Sites and subscribers that become what is said, or go.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Edit {
    /// The sites; none for one that goes.
    pub sites: BTreeMap<String, Option<Site>>,
    /// The subscribers; none for one that goes.
    pub subscribers: BTreeMap<String, Option<Subscriber>>,
}

/// What stops a source that has lost its data.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Guard {
    /// The largest share of a source's subscribers, and of its sites, that may go at once: 0 to 1.
    pub max_removed_share: f64,
}

impl Guard {
    /// Allows everything.
    pub const NONE: Self = Self { max_removed_share: 1.0 };

    /// Refuses `changes` of `source` if too much would go.
    pub(crate) fn check(
        self,
        cache: &Cache,
        source: &str,
        changes: &Changes,
    ) -> Result<(), StoreError> {
        let subscribers = changes.subscribers.iter().filter(|change| change.new.is_none()).count();
        let sites = changes.sites.iter().filter(|change| change.new.is_none()).count();
        let of =
            |all: &BTreeMap<String, Arc<str>>| all.values().filter(|it| ***it == *source).count();
        let all = [of(&cache.subscribers), of(&cache.sites)];
        for (index, removed) in [subscribers, sites].into_iter().enumerate() {
            let (what, all) = (["subscriber", "site"][index], all[index]);
            let limit = (all as f64 * self.max_removed_share).floor() as usize;
            if removed > limit {
                return Err(StoreError::Removes {
                    what,
                    source_name: source.to_owned(),
                    removed,
                    all,
                    limit,
                    share: (removed * 100).div_ceil(all.max(1)) as u32,
                });
            }
        }
        Ok(())
    }
}

/// Changes that are sound.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) changes: Changes,
    /// The numbers of new ones.
    pub(crate) numbers: Vec<(String, u32)>,
    /// Whether the numbers of whom is gone go, too.
    pub(crate) forgets: bool,
}

impl Edit {
    /// Makes the changes in `directory`.
    pub(crate) fn put_into(&self, directory: &mut Directory) {
        cache::put_all(&mut directory.sites, &self.sites);
        cache::put_all(&mut directory.subscribers, &self.subscribers);
    }

    /// What makes `directory` all that `source` has.
    pub(crate) fn replacing(cache: &Cache, source: &str, directory: &Directory) -> Self {
        let own = |of: &BTreeMap<String, Arc<str>>| -> Vec<String> {
            let own = of.iter().filter(|(_, it)| ***it == *source);
            own.map(|(identity, _)| identity.clone()).collect()
        };
        let mut edit = Self::default();
        for (identity, site) in &directory.sites {
            if cache.directory.sites.get(identity) != Some(site)
                || cache.sites.get(identity).is_none_or(|it| **it != *source)
            {
                edit.sites.insert(identity.clone(), Some(site.clone()));
            }
        }
        for (identity, subscriber) in &directory.subscribers {
            if cache.directory.subscribers.get(identity) != Some(subscriber)
                || cache.subscribers.get(identity).is_none_or(|it| **it != *source)
            {
                edit.subscribers.insert(identity.clone(), Some(subscriber.clone()));
            }
        }
        let gone = own(&cache.sites).into_iter();
        edit.sites.extend(gone.filter(|it| !directory.sites.contains_key(it)).map(|it| (it, None)));
        let gone = own(&cache.subscribers).into_iter();
        edit.subscribers
            .extend(gone.filter(|it| !directory.subscribers.contains_key(it)).map(|it| (it, None)));
        edit
    }

    /// The changes, if they concern nothing of another source and the result is sound.
    pub(crate) fn checked(mut self, cache: &Cache, source: &str) -> Result<Checked, StoreError> {
        for (identity, next) in &mut self.subscribers {
            if let Some((next, present)) =
                next.as_mut().zip(cache.directory.subscribers.get(identity))
            {
                added::carry(present, next);
            }
        }
        let mut conflicts = Vec::new();
        let mut conflict = |what: String| conflicts.push(what);
        for (kind, identity, owner) in self.owners(cache) {
            if **owner != *source {
                conflict(format!(
                    "{kind} {} comes from the source {owner}, so {source} cannot change it: rename \
                     one, or remove it there",
                    printable(identity)
                ));
            }
        }
        let changes = Changes {
            sites: differences(&cache.directory.sites, self.sites),
            subscribers: differences(&cache.directory.subscribers, self.subscribers),
        };
        let edited: HashMap<&str, Option<&Subscriber>> = changes
            .subscribers
            .iter()
            .map(|change| (change.identity.as_str(), change.new.as_ref()))
            .collect();
        for change in &changes.subscribers {
            for address in change.new.iter().flat_map(|new| &new.addresses) {
                let Some(owner) = cache.owners.get(address) else { continue };
                // Those that are edited are compared with each other below.
                if owner == &change.identity || edited.contains_key(owner.as_str()) {
                    continue;
                }
                let other = cache.subscribers.get(owner).map_or("", |source| &**source);
                let by = |identity: &str, source: &str| {
                    format!("subscriber {} of the source {source}", printable(identity))
                };
                conflict(format!(
                    "{address} belongs to {} and to {}: take it from one",
                    by(owner, other),
                    by(&change.identity, source)
                ));
            }
        }
        if !conflicts.is_empty() {
            let more = conflicts.len().saturating_sub(CONFLICTS_MAX);
            conflicts.truncate(CONFLICTS_MAX);
            if more > 0 {
                conflicts.push(format!("and {} more", counted(more, "conflict")));
            }
            return Err(StoreError::Conflict(conflicts));
        }
        let faults = faults(cache, &changes);
        if !faults.is_empty() {
            return Err(StoreError::Unsound(faults));
        }
        let new = Directory {
            sites: added(&changes.sites).map(|it| (it, Site::default())).collect(),
            subscribers: added(&changes.subscribers)
                .map(|it| (it, Subscriber::default()))
                .collect(),
        };
        let numbers = cache.numbers.missing(&new);
        let forgets = cache.numbered + numbers.len() > NUMBERS_MAX;
        Ok(Checked { changes, numbers, forgets })
    }

    /// What it concerns, with its present source.
    fn owners<'a>(
        &'a self,
        cache: &'a Cache,
    ) -> impl Iterator<Item = (&'static str, &'a str, &'a Arc<str>)> {
        let sites = self.sites.keys().filter_map(|it| Some(("site", &**it, cache.sites.get(it)?)));
        let subscribers = self.subscribers.keys();
        sites.chain(
            subscribers.filter_map(|it| Some(("subscriber", &**it, cache.subscribers.get(it)?))),
        )
    }
}

/// What would not be sound.
fn faults(cache: &Cache, changes: &Changes) -> Vec<String> {
    if !changes.sites.is_empty() {
        let mut whole = cache.directory.clone();
        apply(&mut whole.sites, &changes.sites);
        apply(&mut whole.subscribers, &changes.subscribers);
        return whole.check();
    }
    // Only these subscribers, and the sites, which are sound.
    let mut part = Directory::default();
    apply(&mut part.subscribers, &changes.subscribers);
    for identity in part.subscribers.values().filter_map(|it| it.site.as_ref()) {
        if cache.directory.sites.contains_key(identity) {
            part.sites.insert(identity.clone(), Site::default());
        }
    }
    let mut faults = part.check();
    let now = cache.directory.subscribers.len() + cache.directory.sites.len();
    let gone = changes.subscribers.iter().filter(|change| change.new.is_none()).count();
    let more = changes.subscribers.iter().filter(|change| change.old.is_none()).count();
    if now + more - gone > CLASSES_MAX {
        faults.push(format!(
            "{} are more classes than one port's htb can have, {CLASSES_MAX}: leave some sites to \
             another box",
            now + more - gone
        ));
    }
    faults
}

fn apply<T: Clone>(map: &mut BTreeMap<String, T>, changes: &[Change<T>]) {
    for Change { identity, new, .. } in changes {
        match new {
            Some(new) => drop(map.insert(identity.clone(), new.clone())),
            None => drop(map.remove(identity)),
        }
    }
}

fn added<T>(changes: &[Change<T>]) -> impl Iterator<Item = String> {
    changes.iter().filter(|change| change.new.is_some()).map(|change| change.identity.clone())
}

fn differences<T: Clone + PartialEq>(
    present: &BTreeMap<String, T>,
    wanted: BTreeMap<String, Option<T>>,
) -> Vec<Change<T>> {
    let wanted = wanted.into_iter().filter_map(|(identity, new)| {
        let old = present.get(&identity);
        if old == new.as_ref() {
            return None;
        }
        let old = old.cloned();
        Some(Change { identity, old, new })
    });
    wanted.collect()
}

impl Checked {
    /// Writes the changes, as a part of a transaction.
    pub(crate) fn write(
        &self,
        db: &Connection,
        source: &str,
        revision: u64,
    ) -> Result<(), StoreError> {
        write(db, 0, "sites", source, &self.changes.sites)?;
        write(db, 1, "subscribers", source, &self.changes.subscribers)?;
        if self.forgets {
            db.execute(
                "DELETE FROM numbers WHERE NOT EXISTS
                     (SELECT 1 FROM sites WHERE key = 'node ' || identity)
                 AND NOT EXISTS
                     (SELECT 1 FROM subscribers WHERE key = 'circuit ' || identity)",
                [],
            )?;
        }
        let mut insert = db.prepare("INSERT INTO numbers (key, number) VALUES (?1, ?2)")?;
        for (key, number) in &self.numbers {
            insert.execute(params![key, number])?;
        }
        set_state(db, "revision", &revision.to_string())?;
        Ok(())
    }
}

fn write<T: Serialize>(
    db: &Connection,
    kind: i64,
    table: &str,
    source: &str,
    changes: &[Change<T>],
) -> Result<(), StoreError> {
    // What was there when the directory was applied stays noted.
    let mut note =
        db.prepare("INSERT OR IGNORE INTO changed (kind, identity, body) VALUES (?1, ?2, ?3)")?;
    let mut put = db.prepare(&format!(
        "INSERT OR REPLACE INTO {table} (identity, source, body) VALUES (?1, ?2, ?3)"
    ))?;
    let mut delete = db.prepare(&format!("DELETE FROM {table} WHERE identity = ?1"))?;
    let json = |value: &T| {
        serde_json::to_string(value).map_err(|error| StoreError::Damaged(error.to_string()))
    };
    for Change { identity, old, new } in changes {
        note.execute(params![kind, identity, old.as_ref().map(json).transpose()?])?;
        match new {
            Some(new) => put.execute(params![identity, source, json(new)?])?,
            None => delete.execute([identity])?,
        };
    }
    Ok(())
}
