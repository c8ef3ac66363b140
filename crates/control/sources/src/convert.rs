//! Records and a mapping become a directory.

mod columns;
mod lookup;
mod value;

use crate::mapping::{Field, PlanSpec, Unit, queueing, rate};
use crate::{Faults, List, Lists, Mapping, SourceError};
use lookup::Lookups;
use narrows_directory::{Directory, Plan, Prefix, Queueing, Site, Subscriber};
use narrows_units::Rate;
use serde_json::Value;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::fault::quoted;

/// The most subscribers: as many as the classes of a port.
const SUBSCRIBERS_MAX: usize = 1_000_000;
/// The longest identity, name or label in bytes.
const TEXT_MAX: usize = 250;
/// The most addresses of a subscriber.
const ADDRESSES_MAX: usize = 256;

/// What a source says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Converted {
    /// All that can be used.
    pub directory: Directory,
    /// What cannot.
    pub faults: Faults,
    /// What may be a slip in the mapping, one sentence each.
    pub notes: Vec<String>,
}

/// Applies `mapping` to the records of `lists`.
///
/// # Errors
/// If a list is missing, a table lacks a column that the mapping names, or there are more than
/// 1,000,000 sites or subscribers.
pub fn convert(mapping: &Mapping, lists: &Lists) -> Result<Converted, SourceError> {
    let notes = columns::check(mapping, lists)?;
    let mut builder = Builder {
        mapping,
        lookups: Lookups::new(mapping, lists)?,
        faults: lists.faults.clone(),
        directory: Directory::default(),
    };
    let sites = builder.sites(lists)?;
    builder.subscribers(lists, &sites)?;
    Ok(Converted { directory: builder.directory, faults: builder.faults, notes })
}

/// The sites that a list has; none if there is no such list, and subscribers name them.
type Known = Option<BTreeSet<String>>;

struct Builder<'a> {
    mapping: &'a Mapping,
    lookups: Lookups<'a>,
    faults: Faults,
    directory: Directory,
}

impl<'a> Builder<'a> {
    /// Reads the sites, and unties those that are above themselves.
    fn sites(&mut self, lists: &Lists) -> Result<Known, SourceError> {
        let Some(spec) = &self.mapping.sites else { return Ok(None) };
        let list = lists.get(&spec.list)?;
        let condition = self.mapping.lists.get(&spec.list).and_then(|list| list.condition.as_ref());
        let mut places: HashMap<String, String> = HashMap::new();
        for (index, record) in list.select(&[condition, spec.condition.as_ref()]) {
            let Some((id, place)) = self.identity(list, index, record, &spec.id, "site") else {
                continue;
            };
            match places.entry(id.clone()) {
                Entry::Occupied(first) => {
                    let what =
                        format!("its identity is also that of {}, which counts", first.get());
                    self.faults.add(place, what);
                    continue;
                }
                Entry::Vacant(new) => new.insert(place.clone()),
            };
            let name = self.text(record, spec.name.as_ref(), &place, "name");
            let mut capacity = [None; 2];
            for (capacity, field) in capacity.iter_mut().zip([&spec.download, &spec.upload]) {
                let text = self.text(record, field.as_ref(), &place, "capacity");
                // Many systems write 0 for a capacity that nobody has entered.
                *capacity = text.and_then(|text| match rate(&text, spec.unit) {
                    Ok(rate) => Some(rate).filter(|rate| !rate.is_zero()),
                    Err(why) => {
                        self.faults.add(&place, format!("capacity {why}: it has none of its own"));
                        None
                    }
                });
            }
            let parent = self.text(record, spec.parent.as_ref(), &place, "parent");
            let site = Site { name: name.unwrap_or_else(|| id.clone()), parent, capacity };
            self.directory.sites.insert(id, site);
            check_count(self.directory.sites.len(), "sites")?;
        }
        let known: BTreeSet<String> = self.directory.sites.keys().cloned().collect();
        for (id, site) in &mut self.directory.sites {
            let Some(parent) = site.parent.as_ref().filter(|parent| !known.contains(*parent))
            else {
                continue;
            };
            let what =
                format!("the site above it, {}, is not there: it is at the top", quoted(parent));
            self.faults.add(places.get(id).map_or("sites", String::as_str), what);
            site.parent = None;
        }
        self.untie(&places);
        Ok(Some(known))
    }

    /// Cuts circles of sites.
    fn untie(&mut self, places: &HashMap<String, String>) {
        let sites = &mut self.directory.sites;
        // Sites from which the top is reached.
        let mut sound: BTreeSet<String> = BTreeSet::new();
        let ids: Vec<String> = sites.keys().cloned().collect();
        for id in ids {
            let (mut way, mut at) = (BTreeSet::new(), Some(id));
            while let Some(site) = at {
                if sound.contains(&site) {
                    break;
                }
                way.insert(site.clone());
                let Some(found) = sites.get_mut(&site) else { break };
                at = found.parent.clone();
                if let Some(parent) = at.take_if(|parent| way.contains(parent)) {
                    let what = format!(
                        "the site above it, {}, is also below it: it is at the top",
                        quoted(&parent)
                    );
                    self.faults.add(places.get(&site).map_or("sites", String::as_str), what);
                    found.parent = None;
                }
            }
            sound.append(&mut way);
        }
    }

    fn subscribers(&mut self, lists: &Lists, sites: &Known) -> Result<(), SourceError> {
        let spec = &self.mapping.subscribers;
        let list = lists.get(&spec.list)?;
        let condition = self.mapping.lists.get(&spec.list).and_then(|list| list.condition.as_ref());
        let mut places: HashMap<String, String> = HashMap::new();
        let mut taken: HashMap<Prefix, String> = HashMap::new();
        let mut is_any = false;
        for (index, record) in list.select(&[condition, spec.condition.as_ref()]) {
            is_any = true;
            let Some((id, place)) = self.identity(list, index, record, &spec.id, "subscriber")
            else {
                continue;
            };
            if let Some(first) = places.get(&id) {
                let what = format!("its identity is also that of {first}, which counts");
                self.faults.add(place, what);
                continue;
            }
            let plan = match self.plan(record) {
                Ok(plan) => plan,
                Err(why) => {
                    self.faults.add(place, format!("{why}: the subscriber is left out"));
                    continue;
                }
            };
            let name = self.text(record, spec.name.as_ref(), &place, "name");
            let site = self.site(record, &place, sites);
            let mut addresses = self.addresses(record, &place);
            addresses.retain(|address| match taken.entry(*address) {
                Entry::Vacant(new) => {
                    new.insert(place.clone());
                    true
                }
                Entry::Occupied(first) => {
                    let what = format!(
                        "{}/{} also belongs to {}, which counts",
                        address.ip,
                        address.bits,
                        first.get()
                    );
                    self.faults.add(&place, what);
                    false
                }
            });
            let mut labels = BTreeMap::new();
            for (label, field) in &spec.labels {
                if let Some(text) = self.text(record, Some(field), &place, label) {
                    labels.insert(label.clone(), text);
                }
            }
            places.insert(id.clone(), place);
            let name = name.unwrap_or_else(|| id.clone());
            let subscriber = Subscriber { name, site, plan, addresses, labels };
            self.directory.subscribers.insert(id, subscriber);
            check_count(self.directory.subscribers.len(), "subscribers")?;
        }
        let has_condition = condition.is_some() || spec.condition.is_some();
        if has_condition && !is_any && !list.is_empty() {
            let what = match list.len() {
                1 => "its only record does not fulfil \"where\"".to_owned(),
                count => format!("none of its {count} records fulfils \"where\""),
            };
            let what = format!("{what}: compare that with the data; upper and lower case differ");
            self.faults.add(list.title(), what);
        }
        Ok(())
    }

    /// The identity of a record, and its place with it.
    fn identity(
        &mut self,
        list: &List,
        index: usize,
        record: &Value,
        field: &Field,
        what: &str,
    ) -> Option<(String, String)> {
        let place = list.place(index);
        match self.lookups.text(record, field) {
            Ok(Some(id)) if id.len() > TEXT_MAX => {
                let why = format!("its identity has more than {TEXT_MAX} bytes");
                self.faults.add(place, format!("{why}: the {what} is left out"));
                None
            }
            Ok(Some(id)) if id.chars().any(char::is_control) => {
                let why = format!("its identity {} has control characters", quoted(&id));
                self.faults.add(place, format!("{why}: the {what} is left out"));
                None
            }
            Ok(Some(id)) => {
                let place = format!("{place}, {what} {}", quoted(&id).trim_matches('"'));
                Some((id, place))
            }
            Ok(None) => {
                self.faults.add(place, format!("it has no identity: the {what} is left out"));
                None
            }
            Err(why) => {
                self.faults.add(place, format!("its identity {why}: the {what} is left out"));
                None
            }
        }
    }

    /// The text of a field, without control characters; none if it is empty or unusable.
    fn text(
        &mut self,
        record: &Value,
        field: Option<&Field>,
        place: &str,
        what: &str,
    ) -> Option<String> {
        match self.lookups.text(record, field?) {
            Ok(text) => text.map(|text| {
                let plain: String =
                    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
                if plain.len() <= TEXT_MAX {
                    return plain;
                }
                self.faults.add(place, format!("{what} has more than {TEXT_MAX} bytes: it is cut"));
                let end = (0..=TEXT_MAX).rev().find(|end| plain.is_char_boundary(*end));
                plain[..end.unwrap_or(0)].to_owned()
            }),
            Err(why) => {
                self.faults.add(place, format!("{what} {why}: it is left out"));
                None
            }
        }
    }

    /// The site of a subscriber. Without a list of sites, it makes it.
    fn site(&mut self, record: &Value, place: &str, known: &Known) -> Option<String> {
        let spec = &self.mapping.subscribers;
        let id = self.text(record, spec.site.as_ref(), place, "site")?;
        if let Some(known) = known {
            if known.contains(&id) {
                return Some(id);
            }
            self.faults
                .add(place, format!("its site {} is not there: it is at the top", quoted(&id)));
            return None;
        }
        let parent = self.text(record, spec.site_parent.as_ref(), place, "site_parent");
        let parent = parent.filter(|parent| *parent != id);
        if let Some(parent) = &parent {
            let above = Site { name: parent.clone(), ..Site::default() };
            self.directory.sites.entry(parent.clone()).or_insert(above);
        }
        match self.directory.sites.get(&id) {
            Some(site) if site.parent.is_some() && parent.is_some() && site.parent != parent => {
                let what = format!(
                    "the site above {} is {} for a former subscriber, which counts",
                    quoted(&id),
                    quoted(site.parent.as_deref().unwrap_or_default())
                );
                self.faults.add(place, what);
            }
            Some(site) if site.parent.is_some() || parent.is_none() => {}
            found => {
                // A site may not come above itself over others.
                let is_circle = found.is_some() && self.reaches(parent.as_deref(), &id);
                if is_circle {
                    let what = format!("the site above {} is also below it", quoted(&id));
                    self.faults.add(place, format!("{what}: it is at the top"));
                }
                let parent = parent.filter(|_| !is_circle);
                let site = Site { name: id.clone(), parent, ..Site::default() };
                self.directory.sites.insert(id.clone(), site);
            }
        }
        Some(id)
    }

    /// Whether the way up from `from` passes `id`. Sites have no circles yet.
    fn reaches(&self, from: Option<&str>, id: &str) -> bool {
        let mut at = from;
        while let Some(site) = at {
            if site == id {
                return true;
            }
            at = self.directory.sites.get(site).and_then(|site| site.parent.as_deref());
        }
        false
    }

    /// The plan of a subscriber, or why it has none.
    fn plan(&self, record: &Value) -> Result<Plan, String> {
        let spec = &self.mapping.subscribers;
        let text = |field: &Option<Field>, what: &str| match field {
            Some(field) => self.lookups.text(record, field).map_err(|why| format!("{what} {why}")),
            None => Ok(None),
        };
        let name = text(&spec.plan, "its plan")?;
        if name.as_ref().is_some_and(|name| name.len() > TEXT_MAX || has_control(name)) {
            return Err("its plan's name is too long or has control characters".to_owned());
        }
        let described = name.as_ref().and_then(|name| self.mapping.plans.get(name));
        let own = |field: &Option<Field>, what: &str, unit: Option<Unit>| {
            let text = text(field, what)?;
            text.map(|text| rate(&text, unit).map_err(|why| format!("{what} {why}"))).transpose()
        };
        let ceiling = |field, what, described: Option<Rate>| {
            let rate = own(field, what, spec.unit)?.or(described);
            match (rate, &name) {
                (Some(rate), _) if rate.bits_per_sec() < 1_000 => {
                    Err(format!("{what} is less than 1 kbit/s"))
                }
                (Some(rate), _) => Ok(rate),
                (None, Some(name)) if !self.mapping.plans.is_empty() => {
                    Err(format!("its plan {} is not among [plans]", quoted(name)))
                }
                (None, _) => Err(format!("{what} is missing")),
            }
        };
        let of = |get: fn(&PlanSpec) -> Rate| described.map(get);
        let ceiling = [
            ceiling(&spec.download, "its download rate", of(|plan| plan.download))?,
            ceiling(&spec.upload, "its upload rate", of(|plan| plan.upload))?,
        ];
        let least = |field, what, described: Option<Rate>| {
            Ok::<_, String>(own(field, what, spec.unit)?.or(described).unwrap_or_default())
        };
        let assured = [
            least(&spec.download_min, "its assured download rate", of(|plan| plan.download_min))?,
            least(&spec.upload_min, "its assured upload rate", of(|plan| plan.upload_min))?,
        ];
        for (assured, ceiling) in assured.iter().zip(&ceiling) {
            if assured > ceiling {
                return Err("an assured rate is above the most".to_owned());
            }
        }
        let word = text(&spec.queueing, "its queueing")?;
        let word = word.map(|word| queueing(&word)).transpose()?;
        let queueing = word.or(described.map(|plan| plan.queueing)).unwrap_or(Queueing::Cake);
        Ok(Plan { name, assured, ceiling, queueing: [queueing; 2] })
    }

    /// The addresses of a subscriber, each once.
    fn addresses(&mut self, record: &Value, place: &str) -> Vec<Prefix> {
        let Some(field) = &self.mapping.subscribers.addresses else { return Vec::new() };
        let mut addresses: Vec<Prefix> = Vec::new();
        let mut own = BTreeSet::new();
        for found in self.lookups.addresses(record, field) {
            match found {
                Ok(address) if addresses.len() < ADDRESSES_MAX => {
                    if own.insert(address) {
                        addresses.push(address);
                    }
                }
                Ok(_) => {
                    let what = format!("it has more than {ADDRESSES_MAX} addresses");
                    self.faults.add(place, format!("{what}: the others are left out"));
                    break;
                }
                Err(why) => self.faults.add(place, format!("{why}: it is left out")),
            }
        }
        addresses
    }
}

fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

fn check_count(count: usize, what: &str) -> Result<(), SourceError> {
    if count > SUBSCRIBERS_MAX {
        return Err(SourceError::TooMuch(format!(
            "there are more than {SUBSCRIBERS_MAX} {what}: leave some to another box, with a \
             where in the mapping"
        )));
    }
    Ok(())
}
