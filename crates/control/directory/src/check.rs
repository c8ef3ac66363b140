//! What makes a directory unsound.

use crate::form::SIX_MAX;
use crate::{Directory, Prefix, printable};
use narrows_units::{Rate, counted};
use std::collections::{HashMap, HashSet};

/// The most sites and subscribers together: the classes of a port.
pub const CLASSES_MAX: usize = 1_000_000;
/// The most levels of sites: the uplink and the subscribers take two of the sixteen of an `htb`.
pub const LEVELS_MAX: usize = 14;

/// The longest identity, in bytes.
const IDENTITY_MAX: usize = 400;
/// The highest rate: 100 Tbit/s. More is a wrong unit.
const RATE_MAX: Rate = Rate::from_bits_per_sec(100_000_000_000_000);
/// How many faults are named; a wrong file may have one in each row.
const FAULTS_MAX: usize = 100;

impl Directory {
    /// What is wrong with it, a sentence each; nothing if it is sound. Names at most 100 faults.
    pub fn check(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let classes = self.sites.len() + self.subscribers.len();
        if classes > CLASSES_MAX {
            faults.push(format!(
                "{} and {} are {classes} classes, and one port's htb has at most {CLASSES_MAX}: \
                 leave some sites to another box",
                counted(self.subscribers.len(), "subscriber"),
                counted(self.sites.len(), "site")
            ));
        }
        let keys = self.sites.keys().chain(self.subscribers.keys());
        faults.extend(keys.filter_map(|identity| match identity.len() {
            0 => Some("an identity is empty: each site and subscriber needs one".to_owned()),
            1..=IDENTITY_MAX => None,
            long => Some(format!(
                "the identity \"{}\" has {long} bytes: at most {IDENTITY_MAX} are possible",
                printable(identity)
            )),
        }));
        self.check_sites(&mut faults);
        self.check_subscribers(&mut faults);
        let more = faults.len().saturating_sub(FAULTS_MAX);
        faults.truncate(FAULTS_MAX);
        if more > 0 {
            faults.push(format!("and {} more", counted(more, "fault")));
        }
        faults
    }

    fn check_sites(&self, faults: &mut Vec<String>) {
        // The levels of sites that are known to be below the top.
        let mut levels: HashMap<&str, usize> = HashMap::new();
        for (identity, site) in &self.sites {
            let of = format!("site {}", printable(identity));
            for rate in site.capacity.into_iter().flatten() {
                if rate.is_zero() || rate > RATE_MAX {
                    faults.push(format!(
                        "{of}: its capacity of {rate} is not from 1 bit/s to {RATE_MAX}"
                    ));
                }
            }
            if let Some(parent) = site.parent.as_ref().filter(|it| !self.sites.contains_key(*it)) {
                let parent = printable(parent);
                faults.push(format!(
                    "{of}: the site above it, {parent}, is not there: add it, or name another"
                ));
            }
            let mut way: Vec<&str> = Vec::new();
            let mut on_way: HashSet<&str> = HashSet::new();
            let mut at = Some(identity.as_str());
            let mut level = 0;
            let mut is_cycle = false;
            while let Some(here) = at.filter(|it| self.sites.contains_key(*it)) {
                if let Some(&known) = levels.get(here) {
                    level = known;
                    break;
                }
                if !on_way.insert(here) {
                    is_cycle = true;
                    break;
                }
                way.push(here);
                at = self.sites[here].parent.as_deref();
            }
            if is_cycle {
                faults.push(format!(
                    "{of}: it is above itself: one of {} needs another site above it",
                    way.iter().map(|it| printable(it)).collect::<Vec<_>>().join(", ")
                ));
            }
            for here in way.into_iter().rev() {
                level += 1;
                levels.insert(here, level);
            }
            if !is_cycle && levels.get(identity.as_str()).is_some_and(|level| *level > LEVELS_MAX) {
                faults.push(format!(
                    "{of}: it is {} levels deep, and an htb has room for {LEVELS_MAX}",
                    levels[identity.as_str()]
                ));
            }
        }
    }

    fn check_subscribers(&self, faults: &mut Vec<String>) {
        let mut owners: HashMap<Prefix, &str> = HashMap::with_capacity(self.subscribers.len());
        for (identity, subscriber) in &self.subscribers {
            let of = || format!("subscriber {}", self.say(identity));
            if let Some(site) = subscriber.site.as_ref().filter(|it| !self.sites.contains_key(*it))
            {
                let site = printable(site);
                faults.push(format!(
                    "{}: its site, {site}, is not there: add it, or name another",
                    of()
                ));
            }
            let plan = &subscriber.plan;
            for (index, direction) in ["downstream", "upstream"].into_iter().enumerate() {
                let (least, most) = (plan.assured[index], plan.ceiling[index]);
                if most.is_zero() || most > RATE_MAX {
                    faults.push(format!(
                        "{}: its rate {direction} is {most}: it is from 1 bit/s to {RATE_MAX}",
                        of()
                    ));
                } else if least > most {
                    faults.push(format!(
                        "{}: {least} is assured {direction}, above its maximum of {most}",
                        of()
                    ));
                }
            }
            let mut of_length = [0_usize; 129];
            for address in &subscriber.addresses {
                let sound = Prefix::new(address.ip, address.bits);
                if sound != Some(*address) {
                    faults.push(format!(
                        "{}: {}/{} has bits behind its prefix",
                        of(),
                        address.ip,
                        address.bits
                    ));
                } else if address.is_whole() && address.ip.is_unspecified() {
                    faults.push(format!("{}: {address} is nobody's address", of()));
                }
                if address.ip.is_ipv6() {
                    let of_length = &mut of_length[usize::from(address.bits.min(128))];
                    *of_length += 1;
                    if *of_length == SIX_MAX + 1 {
                        faults.push(format!("{}: it has more than {SIX_MAX} IPv6 prefixes of {} bits: write larger ones", of(), address.bits));
                    }
                }
                match owners.insert(*address, identity) {
                    Some(first) if first != identity => faults.push(format!(
                        "{address} belongs to subscriber {} and to subscriber {}: take it from one",
                        self.say(first),
                        self.say(identity)
                    )),
                    Some(_) => faults.push(format!("{}: {address} is there twice", of())),
                    None => {}
                }
            }
        }
    }

    /// `1042 (Ann Smith)`.
    fn say(&self, identity: &str) -> String {
        let name = self.subscribers.get(identity).map_or("", |subscriber| &subscriber.name);
        crate::changes::named(identity, name)
    }
}
