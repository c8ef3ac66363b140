//! The rates of the uplink, of sites and of subscribers, in one direction.
//!
//! *Idea.* Ceilings come from above: nobody has more than what is above it. Assured rates add up
//! from below. All that subscribers contribute to a site is two sums. So the rates of sites follow
//! from these sums, and a changed subscriber changes those of its own site only.
//!
//! *Sums* have 128 bits, so what was added can be taken out again. They are cut to 64 bits where
//! they become a rate.

use crate::Plan;
use crate::tree::Place;
use narrows_units::Rate;

/// The minimum assured rate: an `htb` class must have a rate.
const RATE_MIN: Rate = Rate::from_bits_per_sec(64_000);

/// What is said of a site with a larger capacity than the one above it.
pub(crate) const ABOVE_PARENT: &str = "a node has more bandwidth than its parent, whose counts";
/// What is said of a subscriber with a higher ceiling than its site.
pub(crate) const ABOVE_SITE: &str = "a maximum is above the bandwidth of its node, which counts";
/// What is said of a site below which more is assured than it has.
pub(crate) const OVERBOOKED: &str =
    "the minimums of a node's circuits are above its bandwidth, which counts";

/// A site, as far as rates are concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Node {
    /// The index of the site above, which is smaller; none at the top.
    pub(crate) parent: Option<usize>,
    /// Its own capacity.
    pub(crate) capacity: Option<Rate>,
}

/// What the subscribers of one site, or those at the top, add up to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sums {
    /// Their ceilings, as their plans have them.
    pub(crate) ceiling: u128,
    /// Their assured rates, as their classes have them.
    pub(crate) assured: u128,
}

/// A rate as a summand.
pub(crate) fn bits(rate: Rate) -> u128 {
    rate.bits_per_sec().into()
}

fn rate(bits: u128) -> Rate {
    Rate::from_bits_per_sec(u64::try_from(bits).unwrap_or(u64::MAX))
}

/// The rate of the uplink: `uplink`, or all that sites and subscribers at the top can have. A site
/// without a capacity has what is below it. `sums` are those of each site, `top` those at the top.
pub(crate) fn whole(nodes: &[Node], sums: &[Sums], top: Sums, uplink: Option<Rate>) -> Rate {
    let most = || {
        let mut whole = top.ceiling;
        let mut below: Vec<u128> = sums.iter().map(|sums| sums.ceiling).collect();
        for (index, Node { parent, capacity }) in nodes.iter().enumerate().rev() {
            let own = capacity.map_or(below[index], bits);
            *parent.map_or(&mut whole, |parent| &mut below[parent]) += own;
        }
        rate(whole)
    };
    uplink.unwrap_or_else(most).max(RATE_MIN)
}

/// The ceiling of each site.
pub(crate) fn ceilings(nodes: &[Node], whole: Rate) -> Vec<Rate> {
    let mut ceilings: Vec<Rate> = Vec::with_capacity(nodes.len());
    for Node { parent, capacity } in nodes {
        let limit = parent.map_or(whole, |parent| ceilings[parent]);
        ceilings.push(capacity.unwrap_or(limit).clamp(RATE_MIN.min(limit), limit));
    }
    ceilings
}

/// The rates of a subscriber with this plan; `limit` is the ceiling of what is above it.
pub(crate) fn place(plan: &Plan, direction: usize, limit: Rate) -> Place {
    let ceil = plan.ceiling[direction].clamp(RATE_MIN.min(limit), limit);
    Place { rate: plan.assured[direction].max(RATE_MIN).min(ceil), ceil }
}

/// Whether its plan has a higher ceiling than what is above it.
pub(crate) fn is_above(plan: &Plan, direction: usize, limit: Rate) -> bool {
    plan.ceiling[direction] > limit
}

/// The rates of the uplink and of all sites.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SiteRates {
    /// The capacity of the uplink.
    pub(crate) whole: Rate,
    /// The rates of each site.
    pub(crate) places: Vec<Place>,
    /// The sites below which more is assured than they have.
    overbooked: Vec<usize>,
}

impl SiteRates {
    /// Those of `nodes` with these `ceilings`.
    pub(crate) fn new(nodes: &[Node], sums: &[Sums], whole: Rate, ceilings: Vec<Rate>) -> Self {
        let mut assured: Vec<u128> = sums.iter().map(|sums| sums.assured).collect();
        let place = |ceil| Place { rate: Rate::default(), ceil };
        let mut places: Vec<Place> = ceilings.into_iter().map(place).collect();
        let mut overbooked = Vec::new();
        for index in (0..nodes.len()).rev() {
            let below = rate(assured[index]);
            let Place { rate, ceil } = &mut places[index];
            if below > *ceil {
                overbooked.push(index);
            }
            *rate = below.clamp(RATE_MIN.min(*ceil), *ceil);
            if let Some(parent) = nodes[index].parent {
                assured[parent] += bits(*rate);
            }
        }
        Self { whole, places, overbooked }
    }

    /// The ceiling of a site, or of the uplink.
    pub(crate) fn limit(&self, site: Option<usize>) -> Rate {
        site.map_or(self.whole, |site| self.places[site].ceil)
    }

    /// The assured rate of all other hosts, in whole kbit/s.
    pub(crate) fn rest(&self) -> Rate {
        let hundredth = Rate::from_bits_per_sec(self.whole.bits_per_sec() / 100_000 * 1_000);
        hundredth.clamp(RATE_MIN, self.whole)
    }

    /// The sites that have a larger capacity than what is above them.
    pub(crate) fn above_parent(&self, nodes: &[Node]) -> impl Iterator<Item = usize> {
        let is_above =
            |node: &Node| node.capacity.is_some_and(|capacity| capacity > self.limit(node.parent));
        nodes.iter().enumerate().filter(move |(_, node)| is_above(node)).map(|(index, _)| index)
    }

    /// The sites below which more is assured than they have, the last one first.
    pub(crate) fn overbooked(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.overbooked.iter().copied()
    }
}
