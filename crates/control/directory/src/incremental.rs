//! What a directory compiles into, kept while single subscribers change.
//!
//! *Idea.* The class of a subscriber depends on the subscriber and on the ceiling of its site. The
//! rates of sites depend on the sums of what is below them. So sites and their sums are kept, and
//! no subscriber. A change of some subscribers changes sums, and gives two *partial forms*: the
//! classes and filters that it touches, as they were and as they are, with all sites above them.
//! Between these, [`Form::towards`] finds the commands that it finds between the whole forms.
//!
//! *Cost.* It grows with what has changed, and with the number of sites, whose rates are computed
//! anew: a few additions each. It does not grow with the number of subscribers.
//!
//! *Non-goals.* Changes of sites: they are rare, and may touch all that is below. Compile anew.

use crate::compile::{Of, from_above, said_of};
use crate::form::ClassOf;
use crate::numbers::SITE;
use crate::rates::{self, Node, SiteRates, Sums};
use crate::{Change, Directory, Draft, Form, Numbers, Options, Place, ROOT, Report};
use crate::{Subscriber, Tree};
use narrows_units::Rate;
use std::collections::{BTreeSet, HashMap};

/// What a directory compiles into, as far as the next change depends on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Incremental {
    sites: Vec<KeptSite>,
    /// The index of each site, by identity.
    index: HashMap<String, usize>,
    /// Downstream and upstream.
    directions: [Direction; 2],
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct KeptSite {
    identity: String,
    /// The index of the site above, which is smaller.
    parent: Option<usize>,
    /// The number of its class.
    minor: u32,
}

/// The rates of one direction.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Direction {
    dev: String,
    uplink: Option<Rate>,
    nodes: Vec<Node>,
    /// Of each site,
    sums: Vec<Sums>,
    /// and of the subscribers at the top.
    top: Sums,
    rates: SiteRates,
    /// The identities of subscribers whose plans have a higher ceiling than their sites.
    above_site: BTreeSet<String>,
}

impl Incremental {
    /// Of `directory`. `options` has the numbers of all its sites.
    pub fn new(directory: &Directory, options: &Options) -> Self {
        let order = from_above(directory);
        let minors = options.numbers.of_keys(order.iter().map(|identity| (SITE, *identity)));
        let mut index: HashMap<String, usize> = HashMap::with_capacity(order.len());
        let mut sites = Vec::with_capacity(order.len());
        let mut nodes = [Vec::new(), Vec::new()];
        for (identity, minor) in order.into_iter().zip(minors) {
            let Some(site) = directory.sites.get(identity) else { continue };
            let parent = site.parent.as_ref().and_then(|it| index.get(it).copied());
            index.insert(identity.to_owned(), sites.len());
            sites.push(KeptSite { identity: identity.to_owned(), parent, minor });
            for (nodes, capacity) in nodes.iter_mut().zip(site.capacity) {
                nodes.push(Node { parent, capacity });
            }
        }
        let [down, up] = nodes;
        let directions = [
            Direction::without_subscribers(&options.ports.subscribers, options.uplink[0], down),
            Direction::without_subscribers(&options.ports.internet, options.uplink[1], up),
        ];
        let mut compiled = Self { sites, index, directions };
        let new = |(identity, subscriber): (&String, _)| Change {
            identity: identity.clone(),
            old: None,
            new: Some(subscriber),
        };
        let subscribers: Vec<Change<&Subscriber>> = directory.subscribers.iter().map(new).collect();
        compiled.follow(&subscribers);
        compiled
    }

    /// Takes over what has become of some subscribers, each named once: `old` is what it was here.
    /// Returns the partial forms before and after. None if `numbers` lacks the number of one; then
    /// nothing is changed.
    pub fn change(
        &mut self,
        changes: &[Change<&Subscriber>],
        numbers: &Numbers,
    ) -> Option<[Form; 2]> {
        let number = |change: &Change<&Subscriber>| match (change.old, change.new) {
            // One that came and went has no class.
            (None, None) => Some(0),
            _ => numbers.of_subscriber(&change.identity),
        };
        let numbers: Vec<u32> = changes.iter().map(number).collect::<Option<_>>()?;
        let before = self.rates();
        self.follow(changes);
        let after = self.rates();

        let both = changes.iter().flat_map(|change| [change.old, change.new]).flatten();
        let mut sites: BTreeSet<usize> = both.filter_map(|it| self.site_of(it)).collect();
        for (before, after) in before.iter().zip(&after) {
            let places = before.places.iter().zip(&after.places).enumerate();
            sites.extend(places.filter(|(_, (old, new))| old != new).map(|(index, _)| index));
        }
        // What is above has a smaller index.
        for index in (0..self.sites.len()).rev() {
            if sites.contains(&index) {
                sites.extend(self.sites[index].parent);
            }
        }
        let all = || changes.iter().zip(&numbers);
        let old = all().filter_map(|(change, minor)| Some((change.old?, *minor)));
        let new = all().filter_map(|(change, minor)| Some((change.new?, *minor)));
        Some([self.partial(&before, &sites, old), self.partial(&after, &sites, new)])
    }

    /// What the operator should know, as a compilation of `directory` says it: that of which this
    /// is.
    pub fn report(&self, directory: &Directory) -> Report {
        let mut draft = Draft::default();
        let site = |index: usize| {
            let identity = self.sites.get(index).map_or("", |site| &site.identity);
            directory.sites.get(identity).map(|site| said_of(Of::Site(identity, site)))
        };
        for direction in &self.directions {
            let Direction { nodes, rates, above_site, .. } = direction;
            let mut above = rates.above_parent(nodes);
            if let Some(first) = above.next() {
                let count = 1 + above.count();
                draft.report_times(rates::ABOVE_PARENT, count, &site(first).unwrap_or_default());
            }
            if let Some(identity) = above_site.first() {
                let first = directory.subscribers.get(identity);
                let first = first.map(|it| said_of(Of::Subscriber(identity, it)));
                let count = above_site.len();
                draft.report_times(rates::ABOVE_SITE, count, &first.unwrap_or_default());
            }
            let mut overbooked = rates.overbooked();
            let count = overbooked.len();
            if let Some(first) = overbooked.next() {
                draft.report_times(rates::OVERBOOKED, count, &site(first).unwrap_or_default());
            }
        }
        draft.finish().2
    }

    fn rates(&self) -> [SiteRates; 2] {
        self.directions.each_ref().map(|direction| direction.rates.clone())
    }

    fn site_of(&self, subscriber: &Subscriber) -> Option<usize> {
        self.index.get(subscriber.site.as_ref()?).copied()
    }

    fn follow(&mut self, changes: &[Change<&Subscriber>]) {
        let Self { index, directions, .. } = self;
        let site_of = |subscriber: &Subscriber| index.get(subscriber.site.as_ref()?).copied();
        for (number, direction) in directions.iter_mut().enumerate() {
            direction.follow(number, changes, site_of);
        }
    }

    /// The form of `sites` and `subscribers`, each with the number of its class, under the `rates`
    /// of sites.
    fn partial<'a>(
        &self,
        rates: &[SiteRates; 2],
        sites: &BTreeSet<usize>,
        subscribers: impl Iterator<Item = (&'a Subscriber, u32)> + Clone,
    ) -> Form {
        let trees = [0, 1].map(|number| {
            let rates = &rates[number];
            let own = subscribers.clone().map(|(subscriber, _)| {
                let limit = rates.limit(self.site_of(subscriber));
                rates::place(&subscriber.plan, number, limit)
            });
            let places: Vec<Place> =
                sites.iter().map(|index| rates.places[*index]).chain(own).collect();
            let dev = self.directions[number].dev.clone();
            Tree { dev, whole: rates.whole, rest: rates.rest(), places }
        });
        let above = |site: Option<usize>| site.map_or(ROOT, |site| self.sites[site].minor);
        let sites = sites.iter().map(|index| {
            let KeptSite { parent, minor, .. } = self.sites[*index];
            ClassOf { minor, parent: above(parent), queueing: None, addresses: &[] }
        });
        let own = subscribers.map(|(subscriber, minor)| ClassOf {
            minor,
            parent: above(self.site_of(subscriber)),
            queueing: Some(subscriber.plan.queueing),
            addresses: &subscriber.addresses,
        });
        Form::of_classes(&trees, sites.chain(own))
    }
}

impl Direction {
    fn without_subscribers(dev: &str, uplink: Option<Rate>, nodes: Vec<Node>) -> Self {
        let (sums, top) = (vec![Sums::default(); nodes.len()], Sums::default());
        let whole = rates::whole(&nodes, &sums, top, uplink);
        let ceilings = rates::ceilings(&nodes, whole);
        let rates = SiteRates::new(&nodes, &sums, whole, ceilings);
        let (dev, above_site) = (dev.to_owned(), BTreeSet::new());
        Self { dev, uplink, nodes, sums, top, rates, above_site }
    }

    /// Brings sums and rates to what `changes` lead to, in the direction with this `number`.
    fn follow(
        &mut self,
        number: usize,
        changes: &[Change<&Subscriber>],
        site_of: impl Fn(&Subscriber) -> Option<usize>,
    ) {
        let Self { uplink, nodes, sums, top, rates, above_site, .. } = self;
        for Change { identity, old, new } in changes {
            if let Some(old) = old {
                let site = site_of(old);
                let rate = rates::place(&old.plan, number, rates.limit(site)).rate;
                let from = site.map_or(&mut *top, |site| &mut sums[site]);
                let ceiling = rates::bits(old.plan.ceiling[number]);
                // A caller that says something else of what was here must not make it panic.
                from.ceiling = from.ceiling.saturating_sub(ceiling);
                from.assured = from.assured.saturating_sub(rates::bits(rate));
                above_site.remove(identity);
            }
            if let Some(new) = new {
                let into = site_of(new).map_or(&mut *top, |site| &mut sums[site]);
                into.ceiling += rates::bits(new.plan.ceiling[number]);
            }
        }
        // An assured rate depends on the ceiling of the site.
        let whole = rates::whole(nodes, sums, *top, *uplink);
        let ceilings = rates::ceilings(nodes, whole);
        for Change { identity, new, .. } in changes {
            let Some(new) = new else { continue };
            let site = site_of(new);
            let limit = site.map_or(whole, |site| ceilings[site]);
            let rate = rates::place(&new.plan, number, limit).rate;
            site.map_or(&mut *top, |site| &mut sums[site]).assured += rates::bits(rate);
            if rates::is_above(&new.plan, number, limit) {
                above_site.insert(identity.clone());
            }
        }
        *rates = SiteRates::new(nodes, sums, whole, ceilings);
    }
}
