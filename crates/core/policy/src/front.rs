//! Which filters run in the driver, in front of the workers.
//!
//! Filters at a port's ingress can run in the driver, in order, starting with the first. Filters up
//! to the last one that looks up a set or polices per key *must* run there: nothing else can
//! evaluate them. After that, filters run in the driver as far as it is able, up to the last one
//! that drops packets, because a packet that the driver drops costs the workers nothing. All others
//! run in the workers. If no filter drops packets, none runs in the driver.
//!
//! They become [`FrontTerm`]s. An `or` between sets becomes one term for each alternative
//! (disjunctive normal form).
//!
//! *`pass` ends the list.* After a filter that lets a packet pass, no other is evaluated. The
//! workers cannot know that this happened in the driver. So if one filter passes packets, all must
//! run in the driver.
//!
//! *`skbedit` runs twice:* in the driver, so that `fw` filters see the mark, and again in the
//! worker, which cannot see the driver's mark. So its filter must not depend on what only the
//! driver knows.
//!
//! *Without workers*, on the XDP plane, all filters run in the driver or are refused; `skbedit`
//! runs there once, without that restriction.
//!
//! *A policer runs in one place.* Its token bucket is in the driver or with the workers. So all
//! filters that share a policer run in the same place, on one port.

use crate::action::ActionSet;
use crate::{Policy, PolicyError, PortPolicy};
use narrows_classify::{
    Action, ActionId, Control, End, Expression, Filter, Filters, Flower, Mark, Matches, Selector,
};
use narrows_units::wire::Framing;
use std::sync::Arc;

/// How many terms the program in the driver can hold.
pub const FRONT_TERMS_MAX: usize = 32;
/// How many look-ups a term may have.
pub const FRONT_LOOK_UPS_MAX: usize = 4;
/// How many words of the frame a term may test.
pub const FRONT_WORDS_MAX: usize = 4;
/// How many actions a term may have.
pub const FRONT_ACTIONS_MAX: usize = 3;

/// How many filters run in the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Only those that must: there may be no driver, as in a simulation.
    Needed,
    /// All for which it saves work.
    Possible,
    /// All: there are no workers.
    All,
}

/// A look-up in a set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetLookUp {
    /// The set's name.
    pub set: Arc<str>,
    /// Which of the packet's addresses.
    pub address: End,
    /// Which of its ports, if the set has ports.
    pub port: Option<End>,
    /// Whether the packet must not be in the set.
    pub is_negated: bool,
}

/// A condition on a packet, and the actions for packets that meet it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrontTerm {
    /// The protocol, as in a [`Filter`].
    pub protocol: u16,
    /// Conditions on header fields.
    pub flower: Flower,
    /// Conditions on words of the frame.
    pub words: Vec<Selector>,
    /// A condition on the mark.
    pub mark: Option<Mark>,
    /// Look-ups in sets, all of which must succeed.
    pub look_ups: Vec<SetLookUp>,
    /// The actions.
    pub actions: Vec<(ActionId, Action)>,
    /// Whether the workers run them once more, and count them.
    pub is_repeated: bool,
    /// Whether the next term is an alternative of the same filter.
    pub has_more: bool,
}

fn refuse<T>(why: impl Into<String>) -> Result<T, PolicyError> {
    Err(PolicyError::Front(why.into()))
}

impl Policy {
    /// Checks that the filters of `dev` that must run in the driver can do so.
    pub(crate) fn check_front(&self, dev: &str) -> Result<(), PolicyError> {
        // Each filter that is added asks this, and there may be 100,000.
        if !self.has_looked_up && !self.actions.has_per() {
            return Ok(());
        }
        split(self.port(dev), Reach::Needed).map(drop)
    }

    /// Checks that the action `id`, if it is a per-key policer, is only used at ingress.
    pub(crate) fn check_place(&self, id: ActionId) -> Result<(), PolicyError> {
        let Some(bound) = self.action(id).filter(|bound| bound.action.per().is_some()) else {
            return Ok(());
        };
        let ends = self.ports.values().filter_map(|port| port.ends.as_ref());
        let held: usize = ends.map(|ends| held(&ends.ingress, id, usize::MAX)).sum();
        match held == bound.filters as usize {
            true => Ok(()),
            false => refuse(
                "\"per\" polices in the driver, where packets come in: give the action to a filter at \
                 ingress of the port where they do",
            ),
        }
    }
}

/// How often the first `count` of `filters` use the action `id`.
fn held(filters: &Filters, id: ActionId, count: usize) -> usize {
    let first = filters.iter().take(count);
    first.map(|(_, filter)| filter.actions.iter().filter(|of| **of == id).count()).sum()
}

impl PortPolicy {
    /// The filters that must run in the driver.
    pub fn in_front(&self) -> Vec<FrontTerm> {
        self.split(Reach::Needed).0
    }

    /// Splits the filters at ingress: the terms for the driver, and the filters for the workers.
    pub fn split(&self, reach: Reach) -> (Vec<FrontTerm>, Filters) {
        // Was checked when the filters were made.
        split(self, reach).unwrap_or_default()
    }

    /// The terms of all filters at ingress, where there are no workers.
    ///
    /// # Errors
    /// One of them cannot run in the driver.
    pub(crate) fn all_in_front(&self) -> Result<Vec<FrontTerm>, PolicyError> {
        split(self, Reach::All).map(|(terms, _)| terms).map_err(|error| match error {
            PolicyError::Front(why) => PolicyError::Front(format!(
                "The XDP plane runs all filters at ingress in the driver. {why}; or use `--plane xsk`"
            )),
            error => error,
        })
    }

    /// The sets that the filters name, with repetitions.
    pub fn sets(&self) -> Vec<Arc<str>> {
        self.in_front()
            .into_iter()
            .flat_map(|term| term.look_ups)
            .map(|look_up| look_up.set)
            .collect()
    }
}

/// Whether the condition looks up a set.
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

/// A filter as it runs in the driver.
struct InFront {
    pref: u16,
    terms: Vec<FrontTerm>,
    /// Whether it can let a packet pass, or drop one.
    passes: bool,
    drops: bool,
    /// Whether the workers run it once more.
    is_repeated: bool,
}

fn split(port: &PortPolicy, reach: Reach) -> Result<(Vec<FrontTerm>, Filters), PolicyError> {
    let Some(ends) = &port.ends else { return Ok(Default::default()) };
    let all = &ends.ingress;
    let actions = port.actions.as_ref();
    let has_per = actions.is_some_and(ActionSet::has_per);
    let demands = |filter: &Filter| {
        let per = |id: &ActionId| {
            actions.and_then(|all| all.get(*id)).is_some_and(|bound| bound.action.per().is_some())
        };
        has_set(&filter.matches) || has_per && filter.actions.iter().any(per)
    };
    let needed = all.iter().enumerate().filter(|(_, (_, filter))| demands(filter));
    let needed = match reach {
        Reach::All => all.iter().count(),
        Reach::Needed | Reach::Possible => needed.map(|(place, _)| place + 1).last().unwrap_or(0),
    };

    let (mut found, mut failure, mut count) = (Vec::<InFront>::new(), None, 0);
    for (_, filter) in all.iter() {
        let has_passed = found.iter().any(|before| before.passes);
        let workers = (reach != Reach::All).then_some(Workers { has_passed });
        match in_front(filter, port, workers) {
            Ok(one) if count + one.terms.len() <= FRONT_TERMS_MAX => {
                count += one.terms.len();
                found.push(one);
            }
            Ok(_) => {
                failure = Some(PolicyError::Front(format!(
                    "The driver has room for {FRONT_TERMS_MAX} filters: put more addresses into fewer sets"
                )));
                break;
            }
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    if let Some(failure) = failure.take_if(|_| found.len() < needed) {
        return Err(failure);
    }
    let passing = found.iter().position(|filter| filter.passes);
    let may_end = |end: usize| {
        let is_last = end == all.iter().take(end + 1).count();
        (is_last || passing.is_none_or(|passing| passing >= end))
            && (end == needed || found[end - 1].drops)
            && shared(port, all, end).is_none()
    };
    let ends = (needed..=found.len()).filter(|end| may_end(*end));
    let end = match reach {
        Reach::Needed => ends.min(),
        Reach::Possible | Reach::All => ends.max(),
    };
    let Some(end) = end else {
        return Err(match (passing.filter(|passing| *passing < needed), failure) {
            (Some(passing), Some(failure)) => PolicyError::Front(format!(
                "The filter at pref {} passes packets in the driver, so all filters at ingress have to \
                 run there, and one cannot. {failure}",
                found[passing].pref,
            )),
            _ => PolicyError::Front(format!(
                "In the driver a policer is for one place: give each port, and what runs behind the \
                 driver, a police action of its own{}",
                shared(port, all, needed)
                    .map_or(String::new(), |id| format!(", not index {}", id.index))
            )),
        });
    };
    let mut rest = all.clone();
    let mut terms = Vec::new();
    for ((order, _), one) in all.iter().zip(found.into_iter().take(end)) {
        if !one.is_repeated {
            rest.remove(order);
        }
        terms.extend(one.terms);
    }
    Ok((terms, rest))
}

/// A policer that the first `end` filters share with other filters.
fn shared(port: &PortPolicy, all: &Filters, end: usize) -> Option<ActionId> {
    let bound = |id: &ActionId| port.actions.as_ref().and_then(|actions| actions.get(*id));
    let mut ids = all.iter().take(end).flat_map(|(_, filter)| filter.actions.iter());
    let is_shared = |id: &&ActionId| {
        bound(id).is_some_and(|bound| {
            matches!(bound.action, Action::Police(_))
                && held(all, **id, end) != bound.filters as usize
        })
    };
    ids.find(is_shared).copied()
}

/// What is behind the driver.
struct Workers {
    /// Whether an earlier filter lets packets pass.
    has_passed: bool,
}

/// `filter` as it runs in the driver; `workers` where there are some behind it.
fn in_front(
    filter: &Filter,
    port: &PortPolicy,
    workers: Option<Workers>,
) -> Result<InFront, PolicyError> {
    let pref = filter.pref;
    if filter.actions.len() > FRONT_ACTIONS_MAX {
        return refuse(format!(
            "A filter in the driver has at most {FRONT_ACTIONS_MAX} actions; the one at pref {pref} has more"
        ));
    }
    let bound = |id: &ActionId| {
        let bound = port.actions.as_ref().and_then(|actions| actions.get(*id));
        bound.map(|bound| (*id, bound.action))
    };
    let actions: Vec<(ActionId, Action)> = filter.actions.iter().filter_map(bound).collect();
    actions.iter().try_for_each(|(_, action)| check_action(action, pref))?;
    let ends = |actions: &[(ActionId, Action)], control| {
        actions.iter().any(|(_, action)| action.controls().contains(&control))
    };
    let falls_through =
        actions.iter().all(|(_, action)| action.controls().contains(&Control::Pipe));
    let edits = |(_, action): &(ActionId, Action)| matches!(action, Action::Skbedit { .. });
    let is_repeated = workers.is_some() && actions.iter().any(edits);
    let has_passed = workers.is_some_and(|workers| workers.has_passed);
    if is_repeated && (!actions.iter().all(edits) || has_set(&filter.matches) || has_passed) {
        return refuse(format!(
            "What skbedit sets in the driver is set again behind it, which knows nothing of sets, of \
             policers and of what has passed: give that at pref {pref} a filter of its own without \
             sets, with \"continue\", before those that pass"
        ));
    }
    let any = FrontTerm {
        protocol: filter.protocol,
        flower: Flower::default(),
        words: Vec::new(),
        mark: None,
        look_ups: Vec::new(),
        actions,
        is_repeated,
        has_more: false,
    };
    let passes = falls_through || ends(&any.actions, Control::Pass);
    let drops = ends(&any.actions, Control::Drop);
    let terms = match &filter.matches {
        Matches::All | Matches::Basic(None) => vec![any],
        Matches::Flower(flower) => vec![FrontTerm { flower: *flower, ..any }],
        Matches::Words(words) if words.len() <= FRONT_WORDS_MAX => {
            vec![FrontTerm { words: words.clone(), ..any }]
        }
        Matches::Words(_) => {
            return refuse(format!(
                "In the driver a u32 tests at most {FRONT_WORDS_MAX} words; the one at pref {pref} tests more"
            ));
        }
        Matches::Route(_) => {
            return refuse(format!(
                "Where packets come in they have taken no route; the filter at pref {pref} asks for it"
            ));
        }
        Matches::Mark(mark) if mark.is_impossible() => Vec::new(),
        Matches::Mark(mark) => vec![FrontTerm { mark: Some(*mark), ..any }],
        Matches::Basic(Some(expression)) => {
            let mut ways = alternatives(expression, false)?;
            if ways.iter().any(|way| way.len() > FRONT_LOOK_UPS_MAX) {
                return refuse(format!(
                    "In the driver, at most {FRONT_LOOK_UPS_MAX} sets can be joined by and: write several filters"
                ));
            }
            let last = ways.pop().unwrap_or_default();
            let more = ways.into_iter().map(|look_ups| (look_ups, true));
            let terms = more.chain([(last, false)]);
            let term = |(look_ups, has_more)| FrontTerm { look_ups, has_more, ..any.clone() };
            terms.map(term).collect()
        }
    };
    Ok(InFront { pref, terms, passes, drops, is_repeated })
}

/// Checks that the driver can run `action`.
fn check_action(action: &Action, pref: u16) -> Result<(), PolicyError> {
    if action.controls().contains(&Control::Reclassify) {
        return refuse(format!(
            "In the driver filters are asked once: give the action at pref {pref} drop, pass, continue \
             or pipe, as police with conform-exceed drop/continue"
        ));
    }
    if matches!(action, Action::Pace { .. }) {
        return refuse(format!(
            "Flows are paced behind the driver: give the pace at pref {pref} to a filter at egress of \
             the port where packets leave, or behind all filters with sets"
        ));
    }
    let jumps = action.controls().iter().any(|control| matches!(control, Control::Jump(_)));
    let why = match action {
        _ if jumps => "jump",
        Action::Gact { random: Some(_), .. } => "random drops",
        Action::Police(police) if police.peak_rate.is_some() => "peakrate",
        Action::Police(police) if police.overhead.framing != Framing::Whole => "linklayer",
        _ => return Ok(()),
    };
    refuse(format!("The driver does not support {why}: leave it out of the action at pref {pref}"))
}

/// The alternatives under which `expression` is true (or false, if negated). Each is a list of
/// look-ups that must all succeed.
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
        // not (a and b) = (not a) or (not b).
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

/// The alternatives under which all of `list` are true.
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
