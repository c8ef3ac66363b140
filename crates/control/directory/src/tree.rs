//! The classes of one direction: their rates.

use crate::compile::Of;
use crate::{Draft, Site, Subscriber};
use narrows_units::Rate;

/// The class of the uplink.
pub const ROOT: u32 = 1;
/// The class of all other hosts.
pub const DEFAULT: u32 = 2;

/// The minimum assured rate: an `htb` class must have a rate.
const RATE_MIN: Rate = Rate::from_bits_per_sec(64_000);

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
        let whole = uplink.unwrap_or_else(|| most_at_once(sites, subscribers, direction));
        let whole = whole.max(RATE_MIN);
        let mut places: Vec<Place> = Vec::with_capacity(sites.len() + subscribers.len());
        for SiteAt { identity, site, parent, .. } in sites {
            let limit = parent.map_or(whole, |parent| places[parent].ceil);
            let ceil = site.capacity[direction].unwrap_or(limit);
            if ceil > limit {
                let what = "a node has more bandwidth than its parent, whose counts";
                draft.report(what, &said(Of::Site(identity, site)));
            }
            let ceil = ceil.clamp(RATE_MIN.min(limit), limit);
            places.push(Place { rate: Rate::default(), ceil });
        }
        // Assured rates add up from the leaves.
        let mut assured = vec![Rate::default(); sites.len()];
        for SubscriberAt { identity, subscriber, site, .. } in subscribers {
            let limit = site.map_or(whole, |site| places[site].ceil);
            let most = subscriber.plan.ceiling[direction];
            if most > limit {
                let what = "a maximum is above the bandwidth of its node, which counts";
                draft.report(what, &said(Of::Subscriber(identity, subscriber)));
            }
            let ceil = most.clamp(RATE_MIN.min(limit), limit);
            let rate = subscriber.plan.assured[direction].max(RATE_MIN).min(ceil);
            if let Some(site) = *site {
                assured[site] = sum([assured[site], rate]);
            }
            places.push(Place { rate, ceil });
        }
        for index in (0..sites.len()).rev() {
            let place = &mut places[index];
            if assured[index] > place.ceil {
                let what =
                    "the minimums of a node's circuits are above its bandwidth, which counts";
                let SiteAt { identity, site, .. } = &sites[index];
                draft.report(what, &said(Of::Site(identity, site)));
            }
            place.rate = assured[index].clamp(RATE_MIN.min(place.ceil), place.ceil);
            if let Some(parent) = sites[index].parent {
                assured[parent] = sum([assured[parent], place.rate]);
            }
        }
        // In whole kbit/s.
        let hundredth = Rate::from_bits_per_sec(whole.bits_per_sec() / 100_000 * 1_000);
        let rest = hundredth.clamp(RATE_MIN, whole);
        Self { dev: dev.to_owned(), whole, rest, places }
    }
}

/// What all sites and subscribers at the top can have. A site without a capacity has what is below
/// it.
fn most_at_once(sites: &[SiteAt<'_>], subscribers: &[SubscriberAt<'_>], direction: usize) -> Rate {
    let mut whole = Rate::default();
    let mut below = vec![Rate::default(); sites.len()];
    for at in subscribers {
        let into = at.site.map_or(&mut whole, |site| &mut below[site]);
        *into = sum([*into, at.subscriber.plan.ceiling[direction]]);
    }
    for (index, at) in sites.iter().enumerate().rev() {
        let own = at.site.capacity[direction].unwrap_or(below[index]);
        let into = at.parent.map_or(&mut whole, |parent| &mut below[parent]);
        *into = sum([*into, own]);
    }
    whole
}

fn sum(rates: impl IntoIterator<Item = Rate>) -> Rate {
    let bits = rates.into_iter().map(Rate::bits_per_sec);
    Rate::from_bits_per_sec(bits.fold(0, u64::saturating_add))
}
