//! The sessions that there are, and the subscribers that they make.
//!
//! *Idea.* Packets come late, twice, in another order, or not at all. So a session keeps when what
//! it says was so, and older reports change nothing. A session that ended is remembered for a
//! while, or a late Start would bring it back. An address belongs to the session that got it last:
//! a NAS gives an address away again only when the former session is over, so its Stop was lost.
//!
//! A subscriber outlives its sessions: for a while it stays without addresses, and its class with
//! its queues and counters. Most lines that go come back within a minute.
//!
//! *Cost.* Reports take the logarithm of the number of sessions. [`Table::tick`], the end of all
//! sessions of a NAS, and a search without Acct-Session-Id, address and identity look at each one.

use super::config::Config;
use super::offer::Offer;
use super::report::{Key, Kind, Nas, Report, Selector};
use super::saved::{LABEL, Saved, Session};
use crate::prefix;
use narrows_directory::{Plan, Prefix, Subscriber};
use narrows_units::Nanos;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// The most sessions of one subscriber. One more ends that which was silent for longest.
const SESSIONS_PER_SUBSCRIBER: usize = 64;
/// For how long an ended session is remembered: a client repeats a packet for minutes.
const ENDED_FOR: Nanos = Nanos::from_secs(600);
/// How many ended sessions are remembered.
const ENDED_MAX: usize = 65_536;

/// What is to be done with a report or the end of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was done, or changed nothing.
    Done,
    /// Something newer is known.
    Late,
    /// There are as many sessions as there may be.
    Full,
    /// It does not say whose session it is.
    Nobody,
}

/// A subscriber that changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Who.
    pub identity: String,
    /// What it is now; `None` if it is gone.
    pub subscriber: Option<Subscriber>,
}

/// The sessions of all NASes.
#[derive(Debug, Default)]
pub struct Table {
    sessions: BTreeMap<Arc<Key>, (Session, Nanos)>,
    /// The session that has an address.
    owners: HashMap<Prefix, Arc<Key>>,
    subscribers: BTreeMap<String, Known>,
    /// NASes that send Interim-Updates.
    updating: HashSet<Nas>,
    /// Sessions that ended, when they did by their NAS' clock.
    ended: HashMap<Arc<Key>, u64>,
    /// Ended sessions by our clock, the oldest first.
    ended_order: VecDeque<(Nanos, Arc<Key>)>,
    changed: BTreeSet<String>,
}

/// What is known of a subscriber beside its sessions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Known {
    name: Option<String>,
    site: Option<String>,
    plan: Option<Plan>,
    nas: Option<String>,
    mac: Option<String>,
    sessions: BTreeSet<Arc<Key>>,
    /// Since when it has no session.
    vacant: Option<Nanos>,
}

impl Table {
    /// How many sessions there are.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// A session begins or goes on.
    pub fn report(&mut self, config: &Config, now: Nanos, report: Report) -> Outcome {
        if self.ended.get(&report.key).is_some_and(|ended| report.event <= *ended) {
            return Outcome::Late;
        }
        let mut key = Arc::new(report.key.clone());
        let mut is_known = false;
        if let Some((known, (session, _))) = self.sessions.get_key_value(&key) {
            if report.event < session.event {
                return Outcome::Late;
            }
            // The number of somebody else: the NAS counts from the beginning again.
            is_known = report.identity.as_ref().is_none_or(|who| *who == session.identity);
            key = Arc::clone(known);
        }
        if !is_known {
            self.end(now, &key);
            let Some(identity) = report.identity.clone() else { return Outcome::Nobody };
            let is_new = !self.subscribers.contains_key(&identity);
            let most = config.limits.sessions;
            // Subscribers who went are kept, but not without end.
            if self.sessions.len() >= most || (is_new && self.subscribers.len() >= 2 * most) {
                return Outcome::Full;
            }
            self.begin(now, &key, identity, report.event);
        }
        if report.is_interim {
            self.updating.insert(report.key.nas.clone());
        }
        let Some((session, heard)) = self.sessions.get_mut(&key) else { return Outcome::Nobody };
        *heard = now;
        session.event = report.event;
        let identity = session.identity.clone();
        let mut is_changed = false;

        // Words of the plan count when they are others than before: an Interim-Update repeats those
        // of the Start, and must not undo a CoA.
        let is_offer = !report.offer.is_empty() && report.offer != session.offer;
        if is_offer {
            session.offer = report.offer.clone();
            is_changed = true;
        }
        if session.identification != report.identification {
            // What a shorter Interim-Update leaves out stays.
            for (number, value) in &report.identification {
                is_changed |=
                    session.identification.insert(*number, value.clone()).as_ref() != Some(value);
            }
        }
        let mac = Report::mac(&session.identification);
        for (kind, list) in report.addresses {
            is_changed |= self.claim(&key, kind, list);
        }
        if let Some(known) = self.subscribers.get_mut(&identity) {
            let before = known.clone();
            if is_offer {
                known.plan = report.offer.applied(config, known.plan.as_ref());
            }
            if known.plan.is_none() {
                known.plan.clone_from(&config.default_plan);
            }
            known.name = report.name.or_else(|| known.name.take());
            known.site = report.site.or_else(|| known.site.take());
            known.nas = Some(report.key.nas.name());
            known.mac = mac.or_else(|| known.mac.take());
            is_changed |= *known != before;
        }
        if is_changed {
            self.changed.insert(identity);
        }
        Outcome::Done
    }

    fn begin(&mut self, now: Nanos, key: &Arc<Key>, identity: String, event: u64) {
        let known = self.subscribers.entry(identity.clone()).or_default();
        known.vacant = None;
        let silent = (known.sessions.len() >= SESSIONS_PER_SUBSCRIBER).then(|| {
            let heard = |key: &&Arc<Key>| self.sessions.get(*key).map(|(_, heard)| *heard);
            known.sessions.iter().min_by_key(heard).cloned()
        });
        known.sessions.insert(Arc::clone(key));
        if let Some(silent) = silent.flatten() {
            self.end(now, &silent);
        }
        self.changed.insert(identity.clone());
        let session = Session {
            identity,
            begun: event,
            event,
            addresses: BTreeMap::new(),
            identification: BTreeMap::new(),
            offer: Offer::default(),
        };
        self.sessions.insert(Arc::clone(key), (session, now));
    }

    /// The addresses of one kind that the session `key` has from now on. Says whether anything
    /// changed.
    fn claim(&mut self, key: &Arc<Key>, kind: Kind, list: Vec<Prefix>) -> bool {
        let Some((session, _)) = self.sessions.get_mut(key) else { return false };
        let before = session.addresses.insert(kind, list.clone()).unwrap_or_default();
        let mut is_changed = before != list;
        // Two kinds may say the same address, so that which stays is kept.
        let claimed: BTreeSet<Prefix> = session.addresses.values().flatten().copied().collect();
        for prefix in before.iter().filter(|prefix| !claimed.contains(prefix)) {
            if self.owners.get(prefix) == Some(key) {
                self.owners.remove(prefix);
            }
        }
        for prefix in list {
            let owner = self.owners.get(&prefix);
            let is_new = !before.contains(&prefix);
            if owner == Some(key) || (owner.is_some() && !is_new) {
                continue;
            }
            is_changed = true;
            if let Some(former) = self.owners.insert(prefix, Arc::clone(key))
                && let Some((session, _)) = self.sessions.get(&former)
            {
                self.changed.insert(session.identity.clone());
            }
        }
        is_changed
    }

    /// A session ended, by its NAS' clock at `event`.
    pub fn stop(&mut self, now: Nanos, key: &Key, event: u64) -> Outcome {
        if self.ended.get(key).is_some_and(|ended| event <= *ended) {
            return Outcome::Late;
        }
        let key = match self.sessions.get_key_value(key) {
            Some((_, (session, _))) if event < session.begun => return Outcome::Late,
            Some((key, _)) => Arc::clone(key),
            None => Arc::new(key.clone()),
        };
        self.end_for_good(now, key, event);
        Outcome::Done
    }

    /// Sessions end because somebody says so now, at `event`, whatever the clock of their NAS.
    pub fn disconnect(&mut self, now: Nanos, keys: &[Arc<Key>], event: u64) {
        for key in keys {
            let last = self.sessions.get(key).map_or(event, |(session, _)| session.event);
            self.end_for_good(now, Arc::clone(key), event.max(last));
        }
    }

    /// Ends a session, which no report up to `event` brings back.
    fn end_for_good(&mut self, now: Nanos, key: Arc<Key>, event: u64) {
        self.end(now, &key);
        if self.ended.insert(Arc::clone(&key), event).is_none() {
            self.ended_order.push_back((now, key));
        }
        self.forget(now);
    }

    /// All sessions of which `is_meant` is true end, if they began no later than `event`.
    pub fn stop_all(&mut self, now: Nanos, event: u64, is_meant: impl Fn(&Nas) -> bool) -> usize {
        let meant = self
            .sessions
            .iter()
            .filter(|(key, (session, _))| session.begun <= event && is_meant(&key.nas));
        let keys: Vec<_> = meant.map(|(key, _)| Arc::clone(key)).collect();
        for key in &keys {
            self.end(now, key);
        }
        keys.len()
    }

    fn end(&mut self, now: Nanos, key: &Arc<Key>) {
        let Some((session, _)) = self.sessions.remove(key) else { return };
        for prefix in session.addresses.values().flatten() {
            if self.owners.get(prefix) == Some(key) {
                self.owners.remove(prefix);
            }
        }
        if let Some(known) = self.subscribers.get_mut(&session.identity) {
            known.sessions.remove(key);
            known.vacant = known.sessions.is_empty().then_some(now);
        }
        self.changed.insert(session.identity);
    }

    fn forget(&mut self, now: Nanos) {
        while let Some((then, key)) = self.ended_order.front() {
            if self.ended_order.len() <= ENDED_MAX && now.since(*then) < ENDED_FOR {
                break;
            }
            self.ended.remove(key);
            self.ended_order.pop_front();
        }
    }

    /// The sessions that `selector` means.
    pub fn meant(&self, selector: &Selector) -> Vec<Arc<Key>> {
        let is_meant = |key: &Arc<Key>| {
            let session = self.sessions.get(key).map(|(session, _)| session);
            session.is_some_and(|session| self.means(selector, key, session))
        };
        // What is found by a search is looked at as all others would be.
        if let Some(id) = &selector.id {
            // No NAS is before the one without any name.
            let nas = Nas { client: String::new(), identifier: None, address: None };
            let from = Key { id: id.clone(), nas };
            let same = self.sessions.range((Bound::Included(from), Bound::Unbounded));
            let same = same.map(|(key, _)| key).take_while(|key| key.id == *id);
            return same.filter(|key| is_meant(key)).cloned().collect();
        }
        if let Some(identity) = &selector.identity {
            let sessions = self.subscribers.get(identity).map(|known| &known.sessions);
            return sessions.into_iter().flatten().filter(|key| is_meant(key)).cloned().collect();
        }
        if let Some(prefix) = selector.addresses.values().flatten().next()
            && let Some(owner) = self.owners.get(prefix)
        {
            return Some(owner).filter(|key| is_meant(key)).cloned().into_iter().collect();
        }
        self.sessions.keys().filter(|key| is_meant(key)).cloned().collect()
    }

    fn means(&self, selector: &Selector, key: &Arc<Key>, session: &Session) -> bool {
        let has = |kind: &Kind, wanted: &Prefix| {
            let mut claimed = session.addresses.get(kind).into_iter().flatten();
            claimed.any(|prefix| {
                let is_in = wanted.bits >= prefix.bits && prefix::contains(prefix, wanted.ip);
                is_in && self.owners.get(prefix) == Some(key)
            })
        };
        let mut addresses = selector.addresses.iter();
        selector.id.as_ref().is_none_or(|id| *id == key.id)
            && selector.means_nas(&key.nas)
            && selector.identity.as_ref().is_none_or(|identity| *identity == session.identity)
            && addresses.all(|(kind, list)| list.iter().all(|wanted| has(kind, wanted)))
            && (selector.identification.iter())
                .all(|(number, value)| session.identification.get(number) == Some(value))
    }

    /// The subscribers of these sessions get the plan that `offer` says.
    pub fn change(&mut self, config: &Config, keys: &[Arc<Key>], offer: &Offer) {
        for key in keys {
            let Some((session, _)) = self.sessions.get(key) else { continue };
            let Some(known) = self.subscribers.get_mut(&session.identity) else { continue };
            let plan = offer.applied(config, known.plan.as_ref());
            if plan != known.plan {
                known.plan = plan;
                self.changed.insert(session.identity.clone());
            }
        }
    }

    /// Ends sessions without Interim-Updates, and lets go subscribers that stayed away.
    pub fn tick(&mut self, config: &Config, now: Nanos) -> usize {
        self.forget(now);
        let is_over = |heard: Nanos, limit: Nanos| limit.0 > 0 && now.since(heard) >= limit;
        let silent = self.sessions.iter().filter(|(key, (_, heard))| {
            is_over(*heard, config.silent) && self.updating.contains(&key.nas)
        });
        let silent: Vec<_> = silent.map(|(key, _)| Arc::clone(key)).collect();
        for key in &silent {
            self.end(now, key);
        }
        let present: HashSet<&Nas> = self.sessions.keys().map(|key| &key.nas).collect();
        self.updating.retain(|nas| present.contains(nas));
        let gone = self.subscribers.iter().filter(|(_, known)| {
            known.vacant.is_some_and(|vacant| now.since(vacant) >= config.keep)
        });
        let gone: Vec<_> = gone.map(|(identity, _)| identity.clone()).collect();
        for identity in gone {
            self.subscribers.remove(&identity);
            self.changed.insert(identity);
        }
        silent.len()
    }

    /// Whether something changed since the last [`Table::changes`].
    pub fn is_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// What changed since the last time, by identity.
    pub fn changes(&mut self) -> Vec<Change> {
        let changed = std::mem::take(&mut self.changed);
        let change = |identity: String| {
            let known = self.subscribers.get(&identity);
            let subscriber = known.and_then(|known| self.subscriber(&identity, known));
            Change { identity, subscriber }
        };
        changed.into_iter().map(change).collect()
    }

    /// These subscribers count as changed again.
    pub fn again(&mut self, identities: impl IntoIterator<Item = String>) {
        self.changed.extend(identities);
    }

    /// A subscriber as a directory has it; none as long as nothing says what plan it has.
    fn subscriber(&self, identity: &str, known: &Known) -> Option<Subscriber> {
        let plan = known.plan.clone()?;
        let mut addresses = BTreeSet::new();
        let mut saved = Vec::new();
        for key in &known.sessions {
            let Some((session, _)) = self.sessions.get(key) else { continue };
            let claimed = session.addresses.values().flatten();
            addresses.extend(claimed.filter(|prefix| self.owners.get(prefix) == Some(key)));
            saved.push(Saved::of(key, session, self.updating.contains(&key.nas)));
        }
        let mut labels = BTreeMap::new();
        if !saved.is_empty() {
            // Names of kinds and text: nothing that JSON could not have.
            labels.insert(LABEL.to_owned(), serde_json::to_string(&saved).unwrap_or_default());
        }
        labels.extend(known.nas.clone().map(|nas| ("nas".to_owned(), nas)));
        labels.extend(known.mac.clone().map(|mac| ("mac".to_owned(), mac)));
        Some(Subscriber {
            name: known.name.clone().unwrap_or_else(|| identity.to_owned()),
            site: known.site.clone(),
            plan,
            addresses: addresses.into_iter().collect(),
            labels,
        })
    }

    /// A subscriber as it was before the listener started, with its sessions. They count as heard
    /// of now.
    pub fn restore(&mut self, now: Nanos, identity: &str, subscriber: &Subscriber) {
        let label = subscriber.labels.get(LABEL);
        let saved = label.and_then(|text| serde_json::from_str::<Vec<Saved>>(text).ok());
        let is_named = subscriber.name != identity;
        let known = Known {
            name: is_named.then(|| subscriber.name.clone()),
            site: subscriber.site.clone(),
            plan: Some(subscriber.plan.clone()),
            nas: subscriber.labels.get("nas").cloned(),
            mac: subscriber.labels.get("mac").cloned(),
            sessions: BTreeSet::new(),
            vacant: Some(now),
        };
        self.subscribers.insert(identity.to_owned(), known);
        let owned: BTreeSet<Prefix> = subscriber.addresses.iter().copied().collect();
        for saved in saved.into_iter().flatten().take(SESSIONS_PER_SUBSCRIBER) {
            let (key, session, is_updating) = saved.restored(identity);
            let key = Arc::new(key);
            if self.sessions.contains_key(&key) {
                continue;
            }
            for prefix in session.addresses.values().flatten().filter(|ip| owned.contains(ip)) {
                self.owners.entry(*prefix).or_insert_with(|| Arc::clone(&key));
            }
            if is_updating {
                self.updating.insert(key.nas.clone());
            }
            self.sessions.insert(Arc::clone(&key), (session, now));
            if let Some(known) = self.subscribers.get_mut(identity) {
                known.sessions.insert(key);
                known.vacant = None;
            }
        }
    }
}
