//! What differs between two plans, if it is only rates.
//!
//! *Idea.* A limit that follows a line gets another rate up to 20 times a second, and a subscriber
//! another plan. Neither changes where packets go, or what may be refused. So nothing has to be
//! compiled: [`Limits`](crate::Limits) knows which classes have other rates then.
//!
//! *Cost.* Plans share what is equal ([`Plan::next`]), so this costs what differs.

use crate::Name;
use crate::rates::Rates;
use imbl::ordmap::DiffItem;
use narrows_policy::{Plan, PlanClass, PlanNode, SharedLimit};
use narrows_qdisc::{Class, Config, htb, tbf};
use narrows_units::wire::Overhead;

/// Other rates of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    pub(crate) name: Name,
    pub(crate) to: To,
}

/// What the class has from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum To {
    Tbf(tbf::Config),
    Class(htb::Class),
}

impl To {
    /// The rates that its qdisc says, if a frame is charged so there.
    pub(crate) fn rates(&self, overhead: Overhead) -> Rates {
        match self {
            Self::Tbf(tbf) => Rates::of_tbf(tbf, overhead),
            Self::Class(class) => Rates::of_class(class, overhead),
        }
    }

    /// Its weight, if its qdisc says that.
    pub(crate) fn quantum(&self) -> Option<u32> {
        match self {
            Self::Tbf(_) => None,
            Self::Class(class) => Some(class.quantum),
        }
    }
}

/// The rates that are not the same in `after`; `None` if anything else differs from `before`.
pub fn changed_rates(before: &Plan, after: &Plan) -> Option<Vec<Change>> {
    let Plan { above, nodes, roots, classes, trees, rules, front: _, ends, actions, limits } =
        before;
    let is_same = (above, roots, trees) == (&after.above, &after.roots, &after.trees)
        && limits.len() == after.limits.len()
        && limits.iter().zip(&after.limits).all(|((one, limit), (other, next))| {
            one == other && limit.1 == next.1 && is_alike(&limit.0, &next.0)
        })
        && classes.keys().eq(after.classes.keys())
        && (rules, ends, actions) == (&after.rules, &after.ends, &after.actions);
    if !is_same {
        return None;
    }
    let mut changes = Vec::new();
    for change in nodes.diff(&after.nodes) {
        let DiffItem::Update { old: (_, old), new: (key, new) } = change else { return None };
        let (name, to) = ((key.handle?, 0), To::Tbf(changed_tbf(old, new)?));
        changes.push(Change { name, to });
    }
    for ((handle, before), after) in classes.iter().zip(after.classes.values()) {
        for change in before.diff(after) {
            let DiffItem::Update { old: (_, old), new: (id, new) } = change else { return None };
            let (name, to) = ((*handle, *id), To::Class(changed_class(old, new)?));
            changes.push(Change { name, to });
        }
    }
    Some(changes)
}

/// Whether both divide a limit in the same way, whatever it is.
fn is_alike(one: &SharedLimit, other: &SharedLimit) -> bool {
    SharedLimit { limit: other.limit, ..*one } == *other
}

/// What `new` says, if it is the `tbf` that `old` was but for rate and burst.
fn changed_tbf(old: &PlanNode, new: &PlanNode) -> Option<tbf::Config> {
    let (Config::Tbf(before), Config::Tbf(after)) = (&*old.config, &*new.config) else {
        return None;
    };
    let tbf::Config { rate, burst, .. } = *after;
    let is_same = tbf::Config { rate, burst, ..*before } == *after
        && (old.limit, old.level, &old.children, old.within)
            == (new.limit, new.level, &new.children, new.within);
    is_same.then_some(*after)
}

/// What `new` says, if it is the class that `old` was but for rates and their weight.
fn changed_class(old: &PlanClass, new: &PlanClass) -> Option<htb::Class> {
    let (Class::Htb(before), Class::Htb(after)) = (old.class, new.class) else { return None };
    let htb::Class { rate, ceil, burst, cburst, quantum, .. } = after;
    let is_same = htb::Class { rate, ceil, burst, cburst, quantum, ..before } == after
        && (old.leaf, &old.label) == (new.leaf, &new.label);
    is_same.then_some(after)
}
