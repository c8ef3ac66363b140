//! The classes of one direction: their rates.

use crate::compile::Of;
use crate::rates::{self, Node, SiteRates, Sums};
use crate::{Draft, Site, Subscriber};
use narrows_units::Rate;

/// The class of the uplink.
pub const ROOT: u32 = 1;
/// The class of all other hosts.
pub const DEFAULT: u32 = 2;

/// The rates of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// What it is assured of.
    pub rate: Rate,
    /// What it never exceeds.
    pub ceil: Rate,
}

/// All classes of a direction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    /// The port.
    pub dev: String,
    /// The capacity of the uplink.
    pub whole: Rate,
    /// The assured rate of all other hosts.
    pub rest: Rate,
    /// The rates of sites, each after its parent, then of subscribers.
    pub places: Vec<Place>,
}

/// A site within the list of all.
pub(crate) struct SiteAt<'a> {
    pub(crate) identity: &'a str,
    pub(crate) site: &'a Site,
    /// The index of its parent, which is before it.
    pub(crate) parent: Option<usize>,
    /// The number of its class.
    pub(crate) minor: u32,
}

/// A subscriber within the list of all.
pub(crate) struct SubscriberAt<'a> {
    pub(crate) identity: &'a str,
    pub(crate) subscriber: &'a Subscriber,
    /// The index of its site.
    pub(crate) site: Option<usize>,
    /// The number of its class.
    pub(crate) minor: u32,
}

impl SiteAt<'_> {
    /// What its rates in `direction` depend on.
    pub(crate) fn node(&self, direction: usize) -> Node {
        Node { parent: self.parent, capacity: self.site.capacity[direction] }
    }
}

impl Tree {
    /// The rates of `sites` and `subscribers` in `direction` (0 is downstream); `said` is what a
    /// note calls one.
    pub(crate) fn grow(
        dev: &str,
        sites: &[SiteAt<'_>],
        subscribers: &[SubscriberAt<'_>],
        direction: usize,
        uplink: Option<Rate>,
        said: &dyn Fn(Of<'_>) -> String,
        draft: &mut Draft,
    ) -> Self {
        let nodes: Vec<Node> = sites.iter().map(|at| at.node(direction)).collect();
        let mut sums = vec![Sums::default(); sites.len()];
        let mut top = Sums::default();
        for SubscriberAt { subscriber, site, .. } in subscribers {
            let into = site.map_or(&mut top, |site| &mut sums[site]);
            into.ceiling += rates::bits(subscriber.plan.ceiling[direction]);
        }
        let whole = rates::whole(&nodes, &sums, top, uplink);
        let ceilings = rates::ceilings(&nodes, whole);
        let mut own = Vec::with_capacity(subscribers.len());
        for SubscriberAt { subscriber, site, .. } in subscribers {
            let limit = site.map_or(whole, |site| ceilings[site]);
            let place = rates::place(&subscriber.plan, direction, limit);
            if let Some(site) = *site {
                sums[site].assured += rates::bits(place.rate);
            }
            own.push(place);
        }
        let rates = SiteRates::new(&nodes, &sums, whole, ceilings);
        for index in rates.above_parent(&nodes) {
            let SiteAt { identity, site, .. } = sites[index];
            draft.report(rates::ABOVE_PARENT, &said(Of::Site(identity, site)));
        }
        for SubscriberAt { identity, subscriber, site, .. } in subscribers {
            if rates::is_above(&subscriber.plan, direction, rates.limit(*site)) {
                draft.report(rates::ABOVE_SITE, &said(Of::Subscriber(identity, subscriber)));
            }
        }
        for index in rates.overbooked() {
            let SiteAt { identity, site, .. } = sites[index];
            draft.report(rates::OVERBOOKED, &said(Of::Site(identity, site)));
        }
        let (rest, mut places) = (rates.rest(), rates.places);
        places.append(&mut own);
        Self { dev: dev.to_owned(), whole, rest, places }
    }
}
