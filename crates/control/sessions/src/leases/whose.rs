//! Whose leases are.
//!
//! *Idea.* Who has an address depends on the leases of this address alone, once subscribers are
//! known by what the rules compare. So a lease that changes or ends has its own address looked at
//! again ([`Leases::changes`]). Only other subscribers ([`Leases::know`]) have all looked at.
//!
//! *Time* may be set back. Then all addresses are looked at again.

use super::{Config, Lease, News, Rule, Table, normal};
use narrows_directory::{Directory, Prefix};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The addresses of subscribers, by identity.
pub type Assignments = BTreeMap<String, BTreeSet<Prefix>>;

/// The leases of all servers, and whose they are.
#[derive(Debug)]
pub struct Leases {
    config: Config,
    /// By server.
    tables: Vec<Table>,
    /// By rule: the subscriber with a value; none where several have it.
    subscribers: Vec<HashMap<String, Option<Arc<str>>>>,
    /// Addresses that are nobody's lease.
    fixed: HashSet<Prefix>,
    /// When leases end: the time, the server, and the address.
    ends: BTreeSet<(u64, usize, Prefix)>,
    /// The time of the last look.
    unix: u64,
    /// Addresses that may have another subscriber than in `owners`.
    open: HashSet<Prefix>,
    owners: HashMap<Prefix, Arc<str>>,
    assigned: HashMap<Arc<str>, BTreeSet<Prefix>>,
}

impl Leases {
    /// Of as many servers as the configuration has. No subscriber is known yet.
    pub fn new(config: Config) -> Self {
        let tables = config.servers.iter().map(|_| Table::new()).collect();
        Self {
            config,
            tables,
            subscribers: Vec::new(),
            fixed: HashSet::new(),
            ends: BTreeSet::new(),
            unix: 0,
            open: HashSet::new(),
            owners: HashMap::new(),
            assigned: HashMap::new(),
        }
    }

    /// The rules.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// How many leases there are.
    pub fn count(&self) -> usize {
        self.tables.iter().map(Table::len).sum()
    }

    /// The server with this index has other leases from now on.
    pub fn set(&mut self, server: usize, news: News) {
        let Some(table) = self.tables.get(server) else { return };
        let changes: Vec<(Prefix, Option<Lease>)> = match news {
            News::Some(changes) => changes,
            News::All(all) => {
                let gone = table.keys().filter(|address| !all.contains_key(*address));
                let mut changes: Vec<_> = gone.map(|address| (*address, None)).collect();
                let is_new = |(address, lease): &(Prefix, Lease)| table.get(address) != Some(lease);
                let new = all.into_iter().filter(is_new);
                changes.extend(new.map(|(address, lease)| (address, Some(lease))));
                changes
            }
        };
        for (address, lease) in changes {
            self.put(server, address, lease);
        }
    }

    fn put(&mut self, server: usize, address: Prefix, lease: Option<Lease>) {
        let Some(table) = self.tables.get_mut(server) else { return };
        let end = |lease: &Lease| lease.expires.map(|expires| (expires, server, address));
        let next = lease.as_ref().and_then(end);
        let former = match lease {
            Some(lease) => table.insert(address, lease),
            None => table.remove(&address),
        };
        if let Some(end) = former.as_ref().and_then(end) {
            self.ends.remove(&end);
        }
        self.ends.extend(next);
        self.open.insert(address);
    }

    /// The subscribers are those of `directory` from now on; an address that is `fixed` is nobody's
    /// lease.
    pub fn know(&mut self, directory: &Directory, fixed: impl IntoIterator<Item = Prefix>) {
        let mut identities: HashMap<&str, Arc<str>> = HashMap::new();
        let mut shared = |identity| -> Arc<str> {
            Arc::clone(identities.entry(identity).or_insert_with_key(|it| Arc::from(*it)))
        };
        let rules = self.config.rules.iter();
        self.subscribers = rules.map(|rule| index(rule, directory, &mut shared)).collect();
        self.fixed = fixed.into_iter().collect();
        self.open_all();
    }

    fn open_all(&mut self) {
        self.open.extend(self.tables.iter().flat_map(Table::keys));
        self.open.extend(self.owners.keys());
    }

    /// All leased addresses of the subscribers who have others since the last time, at `unix`
    /// seconds since 1970. An address that two servers lease belongs to the client of the first one
    /// that is a subscriber.
    pub fn changes(&mut self, unix: u64) -> Assignments {
        if unix < self.unix {
            let all = self.tables.iter().enumerate();
            let all = all.flat_map(|(server, table)| table.values().map(move |it| (server, it)));
            let end =
                |(server, lease): (usize, &Lease)| Some((lease.expires?, server, lease.address));
            self.ends = all.filter_map(end).collect();
            self.open_all();
        }
        self.unix = unix;
        while let Some(end) = self.ends.first().copied().filter(|end| end.0 <= unix) {
            self.ends.remove(&end);
            self.open.insert(end.2);
        }
        let mut touched: HashSet<Arc<str>> = HashSet::new();
        for address in std::mem::take(&mut self.open) {
            let owner = self.owner(&address, unix);
            let former = self.owners.get(&address).cloned();
            if former == owner {
                continue;
            }
            if let Some(former) = former {
                self.owners.remove(&address);
                if let Some(addresses) = self.assigned.get_mut(&former) {
                    addresses.remove(&address);
                }
                touched.insert(former);
            }
            if let Some(owner) = owner {
                self.owners.insert(address, Arc::clone(&owner));
                self.assigned.entry(Arc::clone(&owner)).or_default().insert(address);
                touched.insert(owner);
            }
        }
        let mut has = |identity: Arc<str>| {
            let addresses = self.assigned.get(&identity).cloned().unwrap_or_default();
            if addresses.is_empty() {
                self.assigned.remove(&identity);
            }
            (identity.to_string(), addresses)
        };
        touched.into_iter().map(&mut has).collect()
    }

    /// Who has which addresses, as of the last [`Leases::changes`].
    pub fn assignments(&self) -> Assignments {
        let all = self.assigned.iter();
        all.map(|(identity, addresses)| (identity.to_string(), addresses.clone())).collect()
    }

    fn owner(&self, address: &Prefix, unix: u64) -> Option<Arc<str>> {
        if self.fixed.contains(address) {
            return None;
        }
        let leases = self.tables.iter().filter_map(|table| table.get(address));
        let mut in_force =
            leases.filter(|lease| lease.expires.is_none_or(|expires| expires > unix));
        in_force.find_map(|lease| {
            let mut rules = self.config.rules.iter().zip(&self.subscribers);
            rules
                .find_map(|(rule, index)| index.get(&normal(lease.value(rule)?)).cloned().flatten())
        })
    }
}

/// Subscribers by what a rule compares. Who has the same as another is not found: it is not known
/// who is meant.
fn index<'a>(
    rule: &Rule,
    directory: &'a Directory,
    shared: &mut impl FnMut(&'a str) -> Arc<str>,
) -> HashMap<String, Option<Arc<str>>> {
    let mut index: HashMap<String, Option<Arc<str>>> = HashMap::new();
    for (identity, subscriber) in &directory.subscribers {
        let value = match &rule.label {
            Some(label) => subscriber.labels.get(label),
            None => Some(identity),
        };
        // A label may name several devices.
        let words = value.map(|value| value.split(',')).into_iter().flatten();
        for word in words.map(str::trim).filter(|word| !word.is_empty()) {
            let known = index.entry(normal(word)).or_insert_with(|| Some(shared(identity)));
            if known.as_deref() != Some(identity) {
                *known = None;
            }
        }
    }
    index
}
