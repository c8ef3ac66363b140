//! One set: its members, their timeouts, and the changes since the last query for them.

use crate::key::{Key, PrefixLen};
use crate::kind::Kind;
use crate::member_rates::MemberRates;
use crate::members::Members;
use narrows_packet::PaceId;
use narrows_units::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// From this many changes on, reporting them one by one is not worth it.
const CHANGES_MAX: usize = 65_536;

/// A set is packed when this part of its members has come since it was packed last: while it grows,
/// each of them is moved about so many times.
const UNPACKED_PART: usize = 8;
/// Fewer are not worth it.
const UNPACKED_LEAST: usize = 4096;

/// The options and state of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Element {
    /// When it goes; `None` for never.
    pub expires: Option<Nanos>,
    /// Its addresses are not in the set (`nomatch`).
    pub is_exception: bool,
    /// Its rate, if the set has rates: a [rate itself](PaceId::of), not the number of one.
    pub pace: PaceId,
}

impl Element {
    /// The rate of packets that it covers.
    fn pace_inside(&self) -> PaceId {
        if self.is_exception { PaceId::NONE } else { self.pace }
    }
}

/// The key of a look-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Match {
    /// The address.
    pub address: IpAddr,
    /// The protocol and the port, if the set has ports.
    pub port: (u8, u16),
}

/// The changes of a set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Changes {
    /// So many changes that the whole set should be read again.
    All,
    /// These members came, went, or are something else now. One may be named more than once.
    Of(Vec<Key>),
}

/// A set: its members, their timeouts, and the changes since they were last asked for.
#[derive(Clone, Debug)]
pub struct Set {
    kind: Kind,
    elements: Members,
    /// How many have come since they were packed.
    unpacked: usize,
    /// Members with a time, by when they go.
    ends: BTreeSet<(Nanos, Key)>,
    comments: BTreeMap<Key, Box<str>>,
    /// How many members have each length.
    lengths: BTreeMap<PrefixLen, usize>,
    /// The initial counters of new members, if not 0.
    initial: BTreeMap<Key, (u64, u64)>,
    changes: Changes,
    /// Where packets are looked up, if the set has rates.
    rates: Option<MemberRates>,
}

/// A member to add.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Addition<'a> {
    pub(crate) element: Element,
    pub(crate) comment: Option<&'a str>,
    /// The initial packets and bytes of its counters.
    pub(crate) counters: Option<(u64, u64)>,
}

impl Set {
    pub(crate) fn new(kind: Kind) -> Self {
        Self {
            elements: Members::new(&kind),
            rates: kind.rates.then(|| MemberRates::new(kind.family)),
            kind,
            unpacked: 0,
            ends: BTreeSet::new(),
            comments: BTreeMap::new(),
            lengths: BTreeMap::new(),
            initial: BTreeMap::new(),
            changes: Changes::All,
        }
    }

    /// Its definition.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// How many members it has.
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The options and state of the member `key`.
    pub fn get(&self, key: &Key) -> Option<Element> {
        self.elements.get(key)
    }

    /// All members, by address.
    pub fn iter(&self) -> impl Iterator<Item = (Key, Element)> {
        self.from(Key::default())
    }

    /// The members from `from` on, by address.
    pub fn from(&self, from: Key) -> impl Iterator<Item = (Key, Element)> {
        self.elements.from(from)
    }

    /// The rates of its members, if it has any.
    pub(crate) fn rates(&self) -> Option<&MemberRates> {
        self.rates.as_ref()
    }

    /// The lengths of its prefixes, the longest first.
    pub fn lengths(&self) -> impl Iterator<Item = PrefixLen> {
        self.lengths.keys().rev().copied()
    }

    /// The comment of the member `key`.
    pub fn comment(&self, key: &Key) -> Option<&str> {
        self.comments.get(key).map(AsRef::as_ref)
    }

    /// The initial packets and bytes of the counters of `key`.
    pub fn initial(&self, key: &Key) -> (u64, u64) {
        self.initial.get(key).copied().unwrap_or_default()
    }

    /// Whether a packet is in it: its longest prefix that covers the packet decides.
    pub fn contains(&self, packet: &Match) -> bool {
        let found = self.lengths().find_map(|len| {
            let (protocol, port) = packet.port;
            self.get(&Key::prefix(packet.address, len).with_port(protocol, port))
        });
        found.is_some_and(|element| !element.is_exception)
    }

    /// The changes since the last call.
    pub fn take_changes(&mut self) -> Changes {
        std::mem::replace(&mut self.changes, Changes::Of(Vec::new()))
    }

    /// When the first of its members goes.
    pub(crate) fn next_end(&self) -> Option<Nanos> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// Adds or replaces the member `key`. False if there is no room.
    pub(crate) fn put(&mut self, key: Key, new: Addition<'_>) -> bool {
        let before = self.elements.get(&key);
        if before.is_none() && self.elements.len() >= self.kind.maxelem as usize {
            return false;
        }
        match before {
            Some(before) => {
                before.expires.map(|end| self.ends.remove(&(end, key)));
                self.comments.remove(&key);
            }
            None => {
                self.unpacked += 1;
                *self.lengths.entry(key.len()).or_default() += 1;
            }
        }
        self.elements.insert(key, &new.element);
        if let Some(rates) = &mut self.rates {
            rates.put(&key, new.element.pace_inside());
        }
        if let Some(end) = new.element.expires {
            self.ends.insert((end, key));
        }
        if let Some(comment) = new.comment {
            self.comments.insert(key, comment.into());
        }
        self.initial.remove(&key);
        if let Some(counters) = new.counters.filter(|counters| *counters != (0, 0)) {
            self.initial.insert(key, counters);
        }
        // A new time-out alone does not change look-ups.
        let is_same = before.is_some_and(|before| before.is_exception == new.element.is_exception);
        if !is_same || new.counters.is_some() {
            self.changed(key);
        }
        true
    }

    /// Takes the member `key` out. Whether it was there.
    pub(crate) fn remove(&mut self, key: &Key) -> bool {
        let Some(element) = self.elements.remove(key) else { return false };
        element.expires.map(|end| self.ends.remove(&(end, *key)));
        if let Some(rates) = &mut self.rates {
            rates.remove(key);
        }
        self.comments.remove(key);
        self.initial.remove(key);
        if let Some(count) = self.lengths.get_mut(&key.len()) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&key.len());
            }
        }
        self.changed(*key);
        true
    }

    /// Takes all members out.
    pub(crate) fn flush(&mut self) {
        *self = Self::new(self.kind);
    }

    /// Takes out those members whose time is over at `now`.
    pub(crate) fn expire(&mut self, now: Nanos) {
        while let Some((end, key)) = self.ends.first().copied()
            && end <= now
        {
            self.remove(&key);
        }
    }

    /// Packs its members, if many have come.
    pub(crate) fn pack(&mut self) {
        if self.unpacked > (self.len() / UNPACKED_PART).max(UNPACKED_LEAST) {
            self.elements.pack();
            self.unpacked = 0;
        }
    }

    fn changed(&mut self, key: Key) {
        match &mut self.changes {
            Changes::All => {}
            Changes::Of(keys) if keys.len() < CHANGES_MAX => keys.push(key),
            Changes::Of(_) => self.changes = Changes::All,
        }
    }
}
