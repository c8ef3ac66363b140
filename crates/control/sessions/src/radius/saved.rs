//! Sessions as a label of their subscriber.
//!
//! A store keeps subscribers. So that a listener that starts again knows their sessions, they stand
//! beside them as JSON. Times are not among it: a session counts as heard of when it is restored.

use super::offer::Offer;
use super::report::{Addresses, Key, Kind, Nas};
use crate::prefix;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The name of the label.
pub const LABEL: &str = "radius";

/// A session in its label.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    id: String,
    nas: Nas,
    begun: u64,
    event: u64,
    #[serde(default)]
    interim: bool,
    #[serde(default)]
    addresses: BTreeMap<Kind, Vec<String>>,
    #[serde(default)]
    identification: BTreeMap<u8, String>,
    #[serde(default)]
    offer: Offer,
}

/// A session as the table has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    /// Whose it is.
    pub identity: String,
    /// When it was first heard of, in seconds since 1970 as its NAS counts.
    pub begun: u64,
    /// When what is known of it was so.
    pub event: u64,
    /// The addresses that it claims. Another session may have taken one since.
    pub addresses: Addresses,
    /// Attributes by which others may mean it.
    pub identification: BTreeMap<u8, String>,
    /// What accounting said of the plan.
    pub offer: Offer,
}

impl Saved {
    /// A session, whose NAS sends Interim-Updates or not.
    pub fn of(key: &Key, session: &Session, interim: bool) -> Self {
        let text =
            |(kind, list): (&Kind, &Vec<_>)| (*kind, list.iter().map(prefix::show).collect());
        Self {
            id: key.id.clone(),
            nas: key.nas.clone(),
            begun: session.begun,
            event: session.event,
            interim,
            addresses: session.addresses.iter().map(text).collect(),
            identification: session.identification.clone(),
            offer: session.offer.clone(),
        }
    }

    /// The session of the subscriber `identity`, and whether its NAS sends Interim-Updates. What
    /// is no address is left out.
    pub fn restored(self, identity: &str) -> (Key, Session, bool) {
        let list = |(kind, list): (Kind, Vec<String>)| {
            (kind, list.iter().filter_map(|text| prefix::parse(text)).collect())
        };
        let session = Session {
            identity: identity.to_owned(),
            begun: self.begun,
            event: self.event,
            addresses: self.addresses.into_iter().map(list).collect(),
            identification: self.identification,
            offer: self.offer,
        };
        (Key { id: self.id, nas: self.nas }, session, self.interim)
    }
}
