//! What has changed in a server's leases.
//!
//! *Idea.* Of many leases a few change at a time. Who reads a file that grows records which, so
//! that others need not compare all.

use super::{LEASES_MAX, Lease, Table};
use narrows_directory::Prefix;
use std::collections::HashSet;

/// What is new at a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum News {
    /// These are all its leases.
    All(Table),
    /// These addresses have these leases now; none for one that is gone.
    Some(Vec<(Prefix, Option<Lease>)>),
}

/// The leases of a server, and which of them have changed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Recorded {
    table: Table,
    changed: HashSet<Prefix>,
    /// All are said before changes are.
    is_said: bool,
}

impl Recorded {
    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    /// The address of `lease` has it from now on. Beyond [`LEASES_MAX`] no address is added.
    pub(super) fn insert(&mut self, lease: Lease) {
        let address = lease.address;
        if self.table.len() < LEASES_MAX || self.table.contains_key(&address) {
            self.table.insert(address, lease);
            self.note(address);
        }
    }

    pub(super) fn remove(&mut self, address: Prefix) {
        if self.table.remove(&address).is_some() {
            self.note(address);
        }
    }

    fn note(&mut self, address: Prefix) {
        if self.is_said {
            self.changed.insert(address);
        }
    }

    /// What has changed since the last time; all leases the first time.
    pub(super) fn news(&mut self) -> News {
        if !std::mem::replace(&mut self.is_said, true) {
            return News::All(self.table.clone());
        }
        let lease = |address: Prefix| (address, self.table.get(&address).cloned());
        News::Some(self.changed.drain().map(lease).collect())
    }
}
