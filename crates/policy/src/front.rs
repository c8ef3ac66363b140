//! What filters run in the driver, in front of whatever plane there is.
//!
//! A set is looked up in the driver. So the filters at a port's ingress, from the first up to the last
//! that names a set, run there, in order, and must be such as can: `matchall`, and `basic` with sets
//! joined by `and`, `or` and `not`; without an action, or with `drop` or `pass`. All behind them run
//! where they always do. Without a set nothing runs in the driver.
//!
//! They become [`FrontTerm`]s: the first of which all look-ups say yes decides. An `or` becomes a
//! term for each of its parts (disjunctive normal form).
//!
//! *`pass` ends it all.* Behind a filter that lets a packet pass no other is asked. What runs behind
//! the driver cannot know that it was. So where one passes, all have to run in the driver.

use crate::{Policy, PolicyError, PortPolicy};
use narrows_classify::{
    ANY_PROTOCOL, Action, ActionId, Control, End, Expression, Filter, Filters, Matches, VLAN,
};
use std::sync::Arc;

/// As many terms the program in the driver has room for.
pub const FRONT_TERMS_MAX: usize = 32;
/// As many look-ups a term may have.
pub const FRONT_LOOK_UPS_MAX: usize = 4;

/// A look-up in a set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetLookUp {
    /// The set's name.
    pub set: Arc<str>,
    /// Whose address.
    pub address: End,
    /// Whose port, where the set has ports.
    pub port: Option<End>,
    /// Whether the packet must not be in it.
    pub is_negated: bool,
}

/// What a packet has to be, and what becomes of it then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrontTerm {
    /// Its EtherType, behind all tags; `None` for any.
    pub ether_type: Option<u16>,
    /// All have to say yes.
    pub look_ups: Vec<SetLookUp>,
    /// Whether it is dropped; else it passes.
    pub drops: bool,
    /// What counts it.
    pub action: Option<ActionId>,
}

fn refuse<T>(why: impl Into<String>) -> Result<T, PolicyError> {
    Err(PolicyError::Front(why.into()))
}

impl Policy {
    /// Whether the filters of `dev` that have to can run in the driver.
    pub(crate) fn check_front(&self, dev: &str) -> Result<(), PolicyError> {
        split(self.port(dev)).map(drop)
    }
}

impl PortPolicy {
    /// What of its filters runs in the driver.
    pub fn in_front(&self) -> Vec<FrontTerm> {
        self.split().0
    }

    /// What runs in the driver of what comes in, and what runs behind it.
    pub(crate) fn split(&self) -> (Vec<FrontTerm>, Filters) {
        // Checked when the filters were made.
        split(self).unwrap_or_default()
    }

    /// The sets that its filters name, one after the other, as often as they do.
    pub fn sets(&self) -> Vec<Arc<str>> {
        self.in_front()
            .into_iter()
            .flat_map(|term| term.look_ups)
            .map(|look_up| look_up.set)
            .collect()
    }
}

/// Whether a set is looked up.
pub(crate) fn has_set(matches: &Matches) -> bool {
    fn within(expression: &Expression) -> bool {
        match expression {
            Expression::And(list) | Expression::Or(list) => list.iter().any(within),
            Expression::Not(not) => within(not),
            Expression::Set(_) => true,
            _ => false,
        }
    }
    matches!(matches, Matches::Basic(Some(expression)) if within(expression))
}

fn split(port: &PortPolicy) -> Result<(Vec<FrontTerm>, Filters), PolicyError> {
    let Some(ends) = &port.ends else { return Ok(Default::default()) };
    let all = &ends.ingress;
    let with_set = all.iter().filter(|(_, filter)| has_set(&filter.matches));
    let Some(mut last) = with_set.map(|(order, _)| order).last() else {
        return Ok((Vec::new(), all.clone()));
    };
    let mut passing = None;
    let mut terms = Vec::new();
    for (order, filter) in all.iter() {
        if order > last {
            let Some(pref) = passing else { break };
            let why = format!(
                "The filter at pref {pref} passes packets in the driver, so all filters at ingress \
                 have to run there, and that at pref {} cannot",
                filter.pref
            );
            add(&mut terms, filter, port)
                .map_err(|error| PolicyError::Front(format!("{why}. {error}")))?;
            last = order;
            continue;
        }
        let drops = add(&mut terms, filter, port)?;
        if !drops && passing.is_none() {
            passing = Some(filter.pref);
        }
    }
    let mut rest = all.clone();
    for order in all.iter().map(|(order, _)| order).take_while(|order| *order <= last) {
        rest.remove(order);
    }
    Ok((terms, rest))
}

/// Adds the terms of `filter`. Whether it drops.
fn add(
    terms: &mut Vec<FrontTerm>,
    filter: &Filter,
    port: &PortPolicy,
) -> Result<bool, PolicyError> {
    let pref = filter.pref;
    let ether_type = match filter.protocol {
        ANY_PROTOCOL => None,
        VLAN => {
            return refuse(format!(
                "The driver does not tell tags apart: give the filter at pref {pref} protocol all, ip or ipv6"
            ));
        }
        protocol => Some(protocol),
    };
    let action = match filter.actions[..] {
        [] => None,
        [action] => Some(action),
        _ => {
            return refuse(format!(
                "A filter in the driver has one action, drop or pass; that at pref {pref} has more"
            ));
        }
    };
    let control = action.map(|id| port.actions.as_ref().and_then(|actions| actions.get(id)));
    let drops = match control.map(|bound| bound.map(|bound| bound.action)) {
        None => false,
        Some(Some(Action::Gact { control: Control::Drop, random: None })) => true,
        Some(Some(Action::Gact { control: Control::Pass | Control::Pipe, random: None })) => false,
        _ => {
            return refuse(format!(
                "In the driver, where sets are looked up, a filter drops or passes: give that at \
                 pref {pref} action drop or pass, or a pref behind those with sets"
            ));
        }
    };
    let alternatives = match &filter.matches {
        Matches::All | Matches::Basic(None) => vec![Vec::new()],
        Matches::Basic(Some(expression)) => alternatives(expression, false)?,
        _ => {
            return refuse(format!(
                "In the driver, where sets are looked up, are basic with ipset() and matchall: give \
                 the {} at pref {pref} a pref behind those with sets",
                filter.kind()
            ));
        }
    };
    for look_ups in alternatives {
        if look_ups.len() > FRONT_LOOK_UPS_MAX {
            return refuse(format!(
                "In the driver up to {FRONT_LOOK_UPS_MAX} sets are joined by and: write several filters"
            ));
        }
        terms.push(FrontTerm { ether_type, look_ups, drops, action });
    }
    match terms.len() <= FRONT_TERMS_MAX {
        true => Ok(drops),
        false => refuse(format!(
            "In the driver is room for {FRONT_TERMS_MAX} filters: put more addresses into fewer sets"
        )),
    }
}

/// Look-ups of which all have to say yes, for each way in which `expression` is true, or not true.
fn alternatives(
    expression: &Expression,
    is_negated: bool,
) -> Result<Vec<Vec<SetLookUp>>, PolicyError> {
    match expression {
        Expression::Set(found) => Ok(vec![vec![SetLookUp {
            set: found.set.clone(),
            address: found.address,
            port: found.port,
            is_negated,
        }]]),
        Expression::Not(not) => alternatives(not, !is_negated),
        // Not both is one of both not.
        Expression::And(list) if !is_negated => every(list, is_negated),
        Expression::Or(list) if is_negated => every(list, is_negated),
        Expression::And(list) | Expression::Or(list) => {
            let each: Result<Vec<_>, _> =
                list.iter().map(|one| alternatives(one, is_negated)).collect();
            bounded(each?.into_iter().flatten().collect())
        }
        _ => refuse(
            "In the driver, where sets are looked up, only ipset() is joined with ipset(): write \
             what else there is as a filter behind it",
        ),
    }
}

/// Each way in which all of `list` are so.
fn every(list: &[Expression], is_negated: bool) -> Result<Vec<Vec<SetLookUp>>, PolicyError> {
    let mut ways = vec![Vec::new()];
    for one in list {
        let of_one = alternatives(one, is_negated)?;
        let joined = ways.iter().flat_map(|way: &Vec<SetLookUp>| {
            of_one.iter().map(move |more| [way.as_slice(), more.as_slice()].concat())
        });
        ways = bounded(joined.collect())?;
    }
    Ok(ways)
}

fn bounded(ways: Vec<Vec<SetLookUp>>) -> Result<Vec<Vec<SetLookUp>>, PolicyError> {
    match ways.len() <= FRONT_TERMS_MAX {
        true => Ok(ways),
        false => refuse(format!(
            "This expression has more than {FRONT_TERMS_MAX} ways to be true: write it as several filters"
        )),
    }
}
