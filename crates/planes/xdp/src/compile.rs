//! Compiles a plan into the contents of maps.

use crate::flatten::{Class, Scope, Target, Tree};
use crate::limits::Limits;
use crate::rules::{Assigned, tables};
use crate::terms::{Acting, terms};
use crate::valves::{self, Valved};
use crate::{Enforcement, Name, Numbers, Refusal};
use narrows_bpf::tree::layout::{self, LEVELS_MAX, NOWHERE, SCOPE, SCOPES_MAX};
use narrows_bpf::tree::{self, Image};
use narrows_policy::{Key, Plan};
use narrows_qdisc::fq_codel::Hosts;
use std::collections::BTreeMap;

/// The time for which a busy CPU buys at once. Short compared with the virtual queue for any number
/// of CPUs.
const BATCH: u32 = 50_000;

/// A plan, ready to be installed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compiled {
    /// The contents of the maps.
    pub image: Image,
    /// The numbers of its classes.
    pub numbers: Numbers,
    /// What makes other rates contents of maps; `None` where only a compilation does.
    pub limits: Option<Limits>,
    /// By class with packets, the number of the class of those that only its qdisc classifies: what
    /// is in it has a default.
    pub leaves: BTreeMap<Name, u32>,
}

/// The program's plan for `plan`, whose limits hold by `enforcement`. Classes that are in `before`
/// keep their numbers.
///
/// # Errors
/// If this plane cannot run it, in a sentence that says what can.
pub fn compile(
    plan: &Plan,
    before: &Numbers,
    enforcement: Enforcement,
) -> Result<Compiled, Refusal> {
    let root = single_root(plan, enforcement)?;
    // Those at ingress run in front.
    if plan.ends.iter().any(|filters| !filters.is_empty()) {
        let instead = if enforcement.is_at_host() {
            "give them to the root qdisc"
        } else {
            "give them to ingress of the other port"
        };
        return Err(Refusal::Filter { what: "filters at egress of a port", instead });
    }
    let Some(tree) = Tree::of(plan, root, enforcement)? else {
        let (image, numbers, limits, leaves) = Default::default();
        return Ok(Compiled { image, numbers, limits, leaves });
    };
    let (scopes, needed) = ("qdiscs with classes and classes with filters", tree.scopes.len());
    room(scopes, SCOPES_MAX, needed)?;
    let filters = tree.scopes.iter().flat_map(|scope| &scope.filters);
    let actions = filters.flat_map(|(filter, _)| filter.actions.clone());
    let numbers = before.next(tree.classes.keys().copied(), actions)?;
    let acting = Acting { actions: &plan.actions, numbers: &numbers };
    let (image, limits) = image(&tree, &acting, enforcement)?;
    // Their labels have rates, too.
    let limits = Some(limits).filter(|_| image.labels.is_empty());
    let leaves = tree.ends.iter().filter_map(|(name, end)| match end {
        Target::Class(leaf) => Some((*name, numbers.get(*leaf)?)),
        Target::Scope(_) | Target::Nowhere => None,
    });
    let leaves = leaves.collect();
    Ok(Compiled { image, numbers, limits, leaves })
}

/// Refuses more than there is room for.
pub(crate) fn room(what: &'static str, room: usize, needed: usize) -> Result<(), Refusal> {
    if needed > room { Err(Refusal::Room { what, room, needed }) } else { Ok(()) }
}

/// The plan of all queues.
fn single_root(plan: &Plan, enforcement: Enforcement) -> Result<Key, Refusal> {
    match plan.roots.split_first() {
        Some((root, others)) if plan.above.is_none() && others.iter().all(|one| one == root) => {
            Ok(*root)
        }
        _ if enforcement.is_at_host() => Err(Refusal::NotAtHost("mq")),
        _ => Err(Refusal::NeedsQueue("mq")),
    }
}

fn image(
    tree: &Tree<'_>,
    acting: &Acting<'_>,
    enforcement: Enforcement,
) -> Result<(Image, Limits), Refusal> {
    let numbers = acting.numbers;
    let target = |target: Target| match target {
        Target::Class(name) => numbers.get(name).unwrap_or(NOWHERE),
        Target::Scope(number) => SCOPE | number as u32,
        Target::Nowhere => NOWHERE,
    };
    let mut below: BTreeMap<Option<Name>, Vec<Name>> = BTreeMap::new();
    for (name, class) in &tree.classes {
        below.entry(class.parent).or_default().push(*name);
    }
    let mut image = Image::default();
    for (parent, names) in &below {
        let next = names.iter().skip(1).map(Some).chain([None]);
        for (name, sibling) in names.iter().zip(next) {
            let depth = path(tree, *name).count();
            room("classes one below the other", LEVELS_MAX, depth)?;
            let class = &tree.classes[name];
            let numbered = |name: Option<Name>| name.and_then(|name| numbers.get(name));
            let links = Links {
                parent: numbered(*parent).unwrap_or(0),
                child: below
                    .get(&Some(*name))
                    .map_or(0, |of| numbered(of.first().copied()).unwrap_or(0)),
                sibling: numbered(sibling.copied()).unwrap_or(0),
                lender: numbered(class.lender.filter(|_| class.queue.is_some())).unwrap_or(0),
            };
            if let Some(number) = numbers.get(*name) {
                image.classes.insert(number, class_of(class, &links));
            }
        }
    }
    let limits = Limits::of(&tree.classes, &mut image.classes, numbers, enforcement);
    for (name, Valved { ceil, label }) in valves::all(&tree.classes, &below, numbers)? {
        if let Some(number) = numbers.get(name)
            && let Some(class) = image.classes.get_mut(&number)
        {
            class.rate = class.rate.min(layout::LABEL_RATE_MAX);
            (class.ceil, class.rules) = (ceil, layout::Rules::FlowValve);
            image.labels.insert(number, label);
        }
    }
    let scopes = || (0..).zip(&tree.scopes);
    let filters = scopes().flat_map(|(number, scope)| {
        let assigned = scope.filters.iter();
        assigned.map(move |(filter, to)| Assigned { scope: number, filter, class: target(*to) })
    });
    let tables = tables(filters)?;
    (image.masks, image.rules) = (tables.masks, tables.rules);
    image.terms = terms(&tables.rest, acting)?;
    let scope = |Scope { major, unknown, otherwise, .. }: &Scope<'_>| tree::Scope {
        major: *major,
        unknown: target(*unknown),
        otherwise: otherwise.map(target),
    };
    let mut scopes = tree.scopes.iter().map(scope);
    image.outermost = scopes.next().unwrap_or_default();
    image.inner = scopes.collect();
    image.names = tree.names.iter().map(|(name, to)| (*name, target(*to))).collect();
    Ok((image, limits))
}

/// The classes from `name` up to the root.
fn path<'a>(tree: &'a Tree<'_>, name: Name) -> impl Iterator<Item = Name> + 'a {
    std::iter::successors(Some(name), |name| tree.classes.get(name)?.parent)
}

/// The numbers of the classes round a class.
struct Links {
    parent: u32,
    child: u32,
    sibling: u32,
    lender: u32,
}

/// `class` without its [rates](Limits); what has none only counts.
fn class_of(class: &Class, links: &Links) -> layout::Class {
    if class.rates.is_none() {
        return layout::Class::default();
    }
    layout::Class {
        batch: BATCH,
        rules: layout::Rules::Htb,
        parent: links.parent,
        child: links.child,
        sibling: links.sibling,
        prio: class.prio,
        hosts: match class.queue.as_ref().map_or(Hosts::None, |queue| queue.hosts) {
            Hosts::None => layout::Hosts::FlowsAlone,
            Hosts::Sources => layout::Hosts::Sources,
            Hosts::Destinations => layout::Hosts::Destinations,
            Hosts::SourcesInside => layout::Hosts::SourcesInside,
            Hosts::DestinationsInside => layout::Hosts::DestinationsInside,
        },
        lender: links.lender as u16,
        ..layout::Class::default()
    }
}

#[cfg(test)]
mod tests;
