//! The labels of classes under FlowValve's rules.
//!
//! A label says what the program would otherwise have to look for in the tree: the classes on the
//! way to a class, those from which it borrows, in their order, and whether its ceiling is one. The
//! rules are those of the plane with queues (`coordination/src/flowvalve/graph.rs`), and a test
//! there holds one plane against the other (`crates/lab/sim/src/tree/valves.rs`).

use crate::compile::room;
use crate::flatten::Class;
use crate::rates::Rates;
use crate::{Name, Numbers, Refusal};
use narrows_bpf::tree::layout::{LABEL_LEVELS, LABEL_RATE_MAX, LENDERS_MAX, Label};
use narrows_units::Rate;
use std::collections::BTreeMap;

/// A class's ceiling in bytes per second, and its label.
pub(crate) struct Valved {
    /// Its own, or the lower one of a class above it; the rate of a topmost class.
    pub(crate) ceil: u64,
    pub(crate) label: Label,
}

/// Those of `classes` under FlowValve's rules. `below` has the classes below each, in their order.
///
/// # Errors
/// If a class is too deep in the tree, or has too many lenders.
pub(crate) fn all(
    classes: &BTreeMap<Name, Class>,
    below: &BTreeMap<Option<Name>, Vec<Name>>,
    numbers: &Numbers,
) -> Result<BTreeMap<Name, Valved>, Refusal> {
    let tree = Valves { classes, below };
    let number = |name: &Name| numbers.get(*name).map(|number| number as u16);
    let mut all = BTreeMap::new();
    for (name, class) in classes {
        let Some(valve) = &class.valve else { continue };
        let way: Vec<Name> = tree.way(*name).collect();
        room("levels of classes under coordination flowvalve", LABEL_LEVELS, way.len())?;
        let lenders = match &valve.lenders {
            Some(named) => named.clone(),
            None => way.iter().flat_map(|at| tree.lenders_beside(*at)).collect(),
        };
        // One that is not there lends nothing.
        let lenders: Vec<u16> = lenders.iter().filter_map(number).collect();
        room("lenders of a class under coordination flowvalve", LENDERS_MAX, lenders.len())?;
        let ceilings: Vec<u64> = way.iter().map(|at| tree.ceil(*at)).collect();
        let ceil = ceilings.iter().copied().min().unwrap_or(LABEL_RATE_MAX);
        let [burst, cburst] = valve.bursts.map(|burst| burst.0);
        let label = Label {
            burst,
            cburst,
            promised: tree.below(*name).iter().map(|at| tree.rate(*at)).sum(),
            weight: valve.weight,
            is_limited: ceilings.last().is_some_and(|top| ceil < *top),
            path: way.iter().rev().filter_map(number).collect(),
            lenders,
        };
        all.insert(*name, Valved { ceil, label });
    }
    Ok(all)
}

struct Valves<'a> {
    classes: &'a BTreeMap<Name, Class>,
    below: &'a BTreeMap<Option<Name>, Vec<Name>>,
}

impl Valves<'_> {
    /// A class and those above it.
    fn way(&self, name: Name) -> impl Iterator<Item = Name> + '_ {
        std::iter::successors(Some(name), |name| self.parent(*name))
    }

    fn parent(&self, name: Name) -> Option<Name> {
        self.classes.get(&name)?.parent
    }

    fn below(&self, name: Name) -> &[Name] {
        self.below.get(&Some(name)).map_or(&[], Vec::as_slice)
    }

    /// Of the classes beside `name`, those of its own or a worse priority. Topmost classes have
    /// none beside them.
    fn lenders_beside(&self, name: Name) -> impl Iterator<Item = Name> + '_ {
        let prio = |name: Name| self.classes.get(&name).map(|class| class.prio);
        let beside = self.parent(name).map_or(&[][..], |above| self.below(above));
        beside.iter().copied().filter(move |at| *at != name && prio(*at) >= prio(name))
    }

    fn rates(&self, name: Name) -> Option<Rates> {
        self.classes.get(&name)?.rates
    }

    fn rate(&self, name: Name) -> u64 {
        in_bytes(self.rates(name).map(|rates| rates.rate))
    }

    /// The ceiling of a class by itself: no less than its rate, and no more for a topmost one.
    fn ceil(&self, name: Name) -> u64 {
        let ceil = in_bytes(self.rates(name).map(|rates| rates.ceil));
        if self.parent(name).is_some() { ceil.max(self.rate(name)) } else { self.rate(name) }
    }
}

fn in_bytes(rate: Option<Rate>) -> u64 {
    rate.map_or(1, |rate| rate.bytes_per_sec()).clamp(1, LABEL_RATE_MAX)
}
