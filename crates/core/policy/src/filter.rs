//! Filters of a port, with the rules of the kernel's `tc_new_tfilter()`.
//!
//! Filters are attached to a classful qdisc, to one of its inner classes, or to the ingress or
//! egress of a port. Filters at an inner class refine the choice of a filter above it.
//!
//! As in the kernel, packets for an inner class go to the default class if no filter there matches
//! them, or if there is none: programs make groups of classes in any order.
//!
//! Differences from the kernel: a filter assigns a class that exists; the kernel accepts any number
//! and passes such packets unshaped. A filter at a class assigns a class below it, so that
//! classification terminates. Filters of one priority are evaluated in the order of their numbers,
//! whatever their kind.

use crate::action::{ActionDraft, ActionSet};
use crate::assignments::Edited;
use crate::classful::{Classful, MINOR_MAX};
use crate::front;
use crate::{ClassId, Classes, Handle, Kind, Node, Parent, Policy, PolicyError, PortPolicy, Verb};
use narrows_classify::{
    ANY_PROTOCOL, ActionKind, Filter, Filters, Mark, Matches, Otherwise, Route, order,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The first default priority. Each further filter without a priority goes before the last one.
const FIRST_AUTOMATIC: u16 = 49152;

/// The number of the first `u32` filter of a port, and of its hash table.
const FIRST_NODE: u32 = 0x800;
/// The numbers of a table end before this one.
const NODES: u32 = 0x1000;
const FIRST_TABLE: u32 = 0x800;

/// One change to the filters of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilterEdit {
    /// The verb.
    pub verb: Verb,
    /// The qdisc or class; `None` for the root qdisc.
    pub parent: Option<Parent>,
    /// The priority.
    pub pref: Option<u16>,
    /// The EtherType of its packets.
    pub protocol: Option<u16>,
    /// The kind, if given.
    pub kind: Option<String>,
    /// The number within its `pref`; for `fw` the mark.
    pub handle: Option<u32>,
    /// The condition.
    pub matches: Option<Matches>,
    /// The class that it assigns.
    pub class: Option<ClassId>,
    /// The actions for matching packets.
    pub actions: Vec<ActionDraft>,
    /// Whether it is not to be given to hardware.
    pub skips_hardware: bool,
}

/// Where filters are attached.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FilterPlace {
    /// At a classful qdisc, or at one of its classes.
    Class(ClassId),
    /// At ingress: packets that enter the port.
    Ingress,
    /// At egress: packets that leave the port, before its qdiscs.
    Egress,
}

/// The filters at both ends of a port: `clsact`, or `ingress`, which has only one end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ends {
    /// Whether it is a `clsact`.
    pub has_egress: bool,
    /// Filters at ingress.
    pub ingress: Filters,
    /// Filters at egress.
    pub egress: Filters,
    /// The priorities at the ingress of an `ingress` qdisc whose filters were given its handle as
    /// their parent, and not `ingress`: listings say which.
    pub by_handle: BTreeSet<u16>,
}

impl Ends {
    /// As `tc` calls it.
    pub fn kind(&self) -> &'static str {
        if self.has_egress { "clsact" } else { "ingress" }
    }

    /// The parent that filters of `pref` at ingress have in listings: that of the first of them.
    pub fn parent(&self, pref: u16) -> ClassId {
        match self.by_handle.contains(&pref) {
            true => Handle::ENDS.class(0),
            false => ClassId::END_INGRESS,
        }
    }

    /// Applies `edit` to the filters at ingress.
    fn edit_ingress(
        &mut self,
        edit: &FilterEdit,
        actions: &mut ActionSet,
    ) -> Result<(), PolicyError> {
        let before = self.ingress.clone();
        self.ingress.edit(edit, None, actions)?;
        let ingress = &self.ingress;
        self.by_handle.retain(|pref| of_pref(ingress, *pref).next().is_some());
        let is_by_handle = edit.parent == Some(Parent::Class(Handle::ENDS.class(0)));
        if is_by_handle && edit.verb != Verb::Delete {
            // The new one, if its priority is new, too.
            let new = match edit.pref {
                Some(pref) => Some(pref),
                None => ingress.iter().next().map(|(_, filter)| filter.pref),
            };
            let new = new.filter(|pref| of_pref(&before, *pref).next().is_none());
            self.by_handle.extend(new);
        }
        Ok(())
    }
}

impl Policy {
    /// This policy with `edit` applied to the filters of port `dev`.
    ///
    /// # Errors
    /// What the kernel would refuse, and what it accepts to the operator's harm. This policy does
    /// not change.
    pub fn edit_filter(&self, dev: &str, edit: &FilterEdit) -> Result<Self, PolicyError> {
        self.clone().with_filter(dev, edit)
    }

    /// This policy with `edit` applied to the filters of port `dev`, in place: a policy that nobody
    /// else has copied is changed without a copy of any part of it.
    ///
    /// # Errors
    /// As [`Policy::edit_filter`]. The policy is gone then.
    pub fn with_filter(mut self, dev: &str, edit: &FilterEdit) -> Result<Self, PolicyError> {
        // Shared again below. While ports have them, too, a change would be one to a copy.
        self.ports.values_mut().for_each(|port| port.actions = None);
        let mut next = self;
        let actions = &mut next.actions;
        let port = next.ports.get_mut(dev).ok_or(PolicyError::NoFilterParent)?;
        let place = port.filter_place(edit.parent)?;
        match (place, &mut port.ends) {
            (FilterPlace::Ingress, Some(ends)) => ends.edit_ingress(edit, actions)?,
            (FilterPlace::Egress, Some(ends)) => drop(ends.egress.edit(edit, None, actions)?),
            (FilterPlace::Class(at), _) => {
                let handle = Handle::new(at.major).ok_or(PolicyError::NoFilterParent)?;
                let edited = port.change_node(handle, |Node { kind, .. }| {
                    kind.edit_filters(handle, at.minor, edit, actions)
                });
                edited.ok_or(PolicyError::NoFilterParent)??;
            }
            _ => return Err(PolicyError::NoFilterParent),
        }
        next.has_looked_up |= edit.matches.as_ref().is_some_and(front::has_set);
        let asks_route = matches!(edit.matches, Some(Matches::Route(_)));
        next.has_asked_route |= asks_route;
        if place == FilterPlace::Ingress && asks_route {
            return refuse(
                "a packet takes a route to the port where it leaves: say route at a qdisc there",
            );
        }
        if place != FilterPlace::Ingress && edit.matches.as_ref().is_some_and(front::has_set) {
            return refuse(
                "a set is looked up in the driver, where packets come in: say ingress, at the port \
                 where they do",
            );
        }
        next.share_actions();
        let named = edit.actions.iter().filter_map(|draft| {
            draft.index.map(|index| narrows_classify::ActionId { kind: draft.kind, index })
        });
        if place != FilterPlace::Ingress {
            if edit
                .actions
                .iter()
                .any(|draft| draft.action.is_some_and(|does| does.per().is_some()))
            {
                return refuse(
                    "\"per\" polices in the driver, where packets come in: say ingress, at the port \
                     where they do",
                );
            }
            named.clone().try_for_each(|id| next.check_place(id))?;
        }
        // A shared action may be on another port, too.
        if named.count() > 0 {
            next.ports.keys().try_for_each(|dev| next.check_front(dev))?;
        }
        next.check_redirect(dev, place, edit)?;
        next.check_front(dev)?;
        Ok(next)
    }
}

impl Policy {
    /// A warning if `edit` gives packets a rate that no qdisc keeps.
    pub fn pace_warning(&self, edit: &FilterEdit) -> Option<String> {
        let is_pace = |draft: &ActionDraft| draft.kind == ActionKind::Pace;
        let paces = |node: &Node| matches!(node.kind, Kind::Pacing(_) | Kind::Fq(_));
        let gives = edit.verb != Verb::Delete && edit.actions.iter().any(is_pace);
        if !gives || self.ports.values().any(|port| port.nodes().into_iter().any(paces)) {
            return None;
        }
        Some(
            "Warning: pace: no qdisc here keeps the rate of a flow: add flowbundler, eiffel, carousel \
             or fq where the packets leave."
                .to_owned(),
        )
    }

    /// What filters ask of the routes that packets take, with repetitions.
    pub fn asked_routes(&self) -> impl Iterator<Item = Route> {
        let ports = self.ports.values().filter(|_| self.has_asked_route);
        ports.flat_map(PortPolicy::asked_routes)
    }
}

impl PortPolicy {
    /// The routes that filters of this port ask for.
    fn asked_routes(&self) -> Vec<Route> {
        let mut asked = Vec::new();
        for place in self.filter_places() {
            let filters = self.filters(place);
            let mut at = 0;
            while let Some((_, first)) = filters.from(at).next() {
                // All of a priority are of one kind.
                if let Matches::Route(_) = first.matches {
                    asked.extend(of_pref(&filters, first.pref).filter_map(|filter| {
                        match filter.matches {
                            Matches::Route(route) => Some(route),
                            _ => None,
                        }
                    }));
                }
                at = order(first.pref, u32::MAX) + 1;
            }
        }
        asked
    }

    /// The place that `parent` refers to.
    ///
    /// # Errors
    /// If no filters can be attached there.
    pub fn filter_place(&self, parent: Option<Parent>) -> Result<FilterPlace, PolicyError> {
        match parent {
            None | Some(Parent::Root) => {
                let root = self.root().filter(|root| takes_filters(&root.kind));
                let root = root.ok_or(PolicyError::NoFilterParent)?;
                Ok(FilterPlace::Class(root.handle.class(0)))
            }
            Some(Parent::Class(class)) if class.major == Handle::ENDS.major() => {
                let ends = self.ends.as_ref().ok_or(PolicyError::NoEnds)?;
                match class {
                    ClassId::END_INGRESS => Ok(FilterPlace::Ingress),
                    ClassId { minor: 0 | 0xfff1, .. } if !ends.has_egress => {
                        Ok(FilterPlace::Ingress)
                    }
                    ClassId::END_EGRESS if ends.has_egress => Ok(FilterPlace::Egress),
                    _ => Err(PolicyError::NoFilterParent),
                }
            }
            Some(Parent::Class(class)) => {
                let classful = self.classful(class).ok_or(PolicyError::NoFilterParent)?;
                match class.minor == 0 || classful.has_class(class.minor) {
                    true => Ok(FilterPlace::Class(class)),
                    false => Err(PolicyError::NoFilterParent),
                }
            }
        }
    }

    /// The classful qdisc to which `class` belongs.
    fn classful(&self, class: ClassId) -> Option<&dyn Classful> {
        let kind = &self.find(Handle::new(class.major)?)?.kind;
        kind.classful().filter(|_| takes_filters(kind))
    }

    /// The hash table of the `u32` filters of `pref` at `place`, or the one that they would get.
    pub fn table_of_u32(&self, place: FilterPlace, pref: Option<u16>) -> u32 {
        let filters = self.filters(place);
        let first = pref.and_then(|pref| of_pref(&filters, pref).next().cloned());
        let first = first.filter(|filter| matches!(filter.matches, Matches::Words(_)));
        first.map_or_else(|| free_table(&filters), |first| first.handle >> 20)
    }

    /// The filters at `place`.
    pub fn filters(&self, place: FilterPlace) -> Filters {
        let filters = match (place, &self.ends) {
            (FilterPlace::Ingress, Some(ends)) => Some(&ends.ingress),
            (FilterPlace::Egress, Some(ends)) => Some(&ends.egress),
            (FilterPlace::Class(class), _) => {
                self.classful(class).and_then(|classful| classful.filters().get(&class.minor))
            }
            _ => None,
        };
        filters.cloned().unwrap_or_default()
    }

    /// A warning about settings that are allowed but probably not meant, after `edit`.
    pub fn filter_warning(&self, edit: &FilterEdit) -> Option<String> {
        let FilterPlace::Class(at) = self.filter_place(edit.parent).ok()? else { return None };
        let node = self.find(Handle::new(at.major)?)?;
        let minors = edit.class.map(|class| class.minor).into_iter().chain([at.minor]);
        minors.into_iter().find_map(|minor| node.kind.filter_warning(node.handle, minor))
    }

    /// All places with filters, in the order in which they are restored: those at a class before
    /// those that assign packets to it.
    pub fn filter_places(&self) -> Vec<FilterPlace> {
        let mut places = Vec::new();
        for node in self.holders() {
            let Some(classful) = node.kind.classful() else { continue };
            let mut minors: Vec<u32> = classful.filters().keys().copied().collect();
            // The qdisc itself, number 0, comes last.
            minors.sort_by_key(|minor| std::cmp::Reverse((*minor != 0, classful.depth(*minor))));
            places.extend(minors.into_iter().map(|at| FilterPlace::Class(node.handle.class(at))));
        }
        if let Some(ends) = &self.ends {
            places.push(FilterPlace::Ingress);
            places.extend(ends.has_egress.then_some(FilterPlace::Egress));
        }
        places
    }
}

/// Whether filters can be attached to a qdisc of this kind.
fn takes_filters(kind: &Kind) -> bool {
    kind.classful().is_some() && kind.classes() != Classes::Hidden
}

impl Kind {
    /// Applies `edit` to the filters at the class `at`, or at the qdisc if that is 0.
    fn edit_filters(
        &mut self,
        handle: Handle,
        at: u32,
        edit: &FilterEdit,
        actions: &mut ActionSet,
    ) -> Result<(), PolicyError> {
        let classful = self.classful().ok_or(PolicyError::NoFilterParent)?;
        if at != 0 && !classful.is_inner(at) {
            return Err(PolicyError::LeafFilter(handle.class(at)));
        }
        let class = match (edit.verb, edit.class) {
            (Verb::Delete, _) => None,
            (_, Some(class)) => match filtered_class(classful, handle, at, class) {
                Ok(minor) => Some(minor),
                Err(why) => Some(self.default_for_all(handle, at, class, edit).ok_or(why)?),
            },
            (_, None) if edit.actions.is_empty() => {
                return Err(PolicyError::Filter("say which class: classid ID"));
            }
            (_, None) => None,
        };
        let assignments = self.assignments_mut().ok_or(PolicyError::NoFilterParent)?;
        assignments.edit(at, |filters| filters.edit(edit, class, actions))
    }
}

impl Kind {
    /// The default class of a tree, for a filter that assigns everything to a class that does not
    /// exist. As in the kernel, such packets go where they would go without the filter, and there
    /// are programs that add it. With a condition, the class is rather a mistake.
    fn default_for_all(
        &self,
        handle: Handle,
        at: u32,
        class: ClassId,
        edit: &FilterEdit,
    ) -> Option<u32> {
        let tree = self.tree()?;
        let Otherwise::Class(default) = tree.otherwise() else { return None };
        let is_here = at == 0 && [0, handle.major()].contains(&class.major);
        let is_for_all = edit.protocol.is_none_or(|protocol| protocol == ANY_PROTOCOL)
            && match edit.matches.as_ref()? {
                Matches::All | Matches::Basic(None) => true,
                Matches::Words(words) => words.iter().all(|word| word.mask == 0),
                _ => false,
            };
        let is_missing = !tree.has_class(class.minor);
        let is_default = tree.has_class(default) && !tree.is_inner(default);
        (is_here && is_for_all && is_missing && is_default).then_some(default)
    }
}

/// The minor number of the class that a filter at `at` assigns.
fn filtered_class(
    classful: &dyn Classful,
    handle: Handle,
    at: u32,
    class: ClassId,
) -> Result<u32, PolicyError> {
    let ClassId { major, minor } = class;
    if ![0, handle.major()].contains(&major) || !classful.has_class(minor) {
        return Err(PolicyError::Filter("Specified class doesn't exist"));
    }
    let above = |minor: &u32| classful.parent(*minor);
    if at != 0 && !std::iter::successors(above(&minor), above).any(|above| above == at) {
        return Err(PolicyError::Filter("a filter at a class assigns packets to one below it"));
    }
    Ok(minor)
}

/// Changes to the filters of one place.
trait Edits {
    fn edit(
        &mut self,
        edit: &FilterEdit,
        class: Option<u32>,
        actions: &mut ActionSet,
    ) -> Result<Edited, PolicyError>;
}

impl Edits for Filters {
    fn edit(
        &mut self,
        edit: &FilterEdit,
        class: Option<u32>,
        actions: &mut ActionSet,
    ) -> Result<Edited, PolicyError> {
        match edit.verb {
            Verb::Delete => delete(self, edit, actions),
            _ => put(self, edit, class, actions),
        }
    }
}

fn refuse<T>(why: &'static str) -> Result<T, PolicyError> {
    Err(PolicyError::Filter(why))
}

/// The filters of `pref`.
fn of_pref(filters: &Filters, pref: u16) -> impl Iterator<Item = &Arc<Filter>> {
    let all = filters.from(order(pref, 0)).map(|(_, filter)| filter);
    all.take_while(move |filter| filter.pref == pref)
}

fn put(
    filters: &mut Filters,
    edit: &FilterEdit,
    class: Option<u32>,
    actions: &mut ActionSet,
) -> Result<Edited, PolicyError> {
    let matches = edit.matches.clone();
    let matches =
        matches.ok_or(PolicyError::Filter("Filter kind and protocol must be specified"))?;
    let pref = match (edit.pref, edit.verb) {
        (Some(pref), _) => pref,
        (None, Verb::Change) => return refuse("Invalid filter command with priority of zero"),
        (None, _) => {
            let lowest =
                filters.iter().next().map_or(FIRST_AUTOMATIC + 1, |(_, filter)| filter.pref);
            lowest.min(FIRST_AUTOMATIC + 1).saturating_sub(1).max(1)
        }
    };
    let protocol = edit.protocol.unwrap_or(ANY_PROTOCOL);
    // Without a class of a qdisc, the filter is at an end of the port.
    let named = edit.class.filter(|_| class.is_none());
    if named.is_some_and(|named| named.major.max(named.minor) > MINOR_MAX) {
        return refuse("where packets come in or go out a filter names classes up to ffff:ffff");
    }
    let named = named.map_or(0, |named| named.major << 16 | named.minor);
    if matches!(matches, Matches::Mark(_)) && edit.class.is_none() && edit.actions.is_empty() {
        return refuse("an fw without a class or an action does nothing: give classid or action");
    }
    let skips_hardware = edit.skips_hardware;
    let plain = Filter::new(pref, 0, protocol, matches, class.unwrap_or(0));
    let mut new = Filter { named, skips_hardware, ..plain };
    let first = of_pref(filters, pref).next();
    if let Some(present) = first {
        if present.protocol != protocol {
            return refuse("Protocol mismatch for filter with specified priority");
        }
        if present.kind() != new.kind() {
            return refuse("Specified filter kind does not match existing one");
        }
        if let (Matches::Mark(one), Matches::Mark(other)) = (&present.matches, &new.matches)
            && one.mask != other.mask
        {
            return refuse("an fw has one mask for all marks of a pref: give another pref");
        }
    }
    let behind = (u64::from(pref) + 1) << 32;
    let last = filters.before(behind).filter(|(_, filter)| filter.pref == pref);
    let last = last.map(|(_, filter)| filter.handle);
    new.handle = number(filters, pref, &new.matches, edit.handle, last)?;
    // A port has only one of these; to replace it, delete it.
    if edit.handle.is_none() && new.matches == Matches::All && last.is_some() {
        return Err(PolicyError::FilterExists);
    }
    let present = filters.get(new.order()).cloned();
    match (edit.verb, &present) {
        (Verb::Add, Some(_)) => return Err(PolicyError::FilterExists),
        (Verb::Change, None) => {
            return refuse("Need both RTM_NEWTFILTER and NLM_F_CREATE to create a new filter");
        }
        _ => {}
    }
    new.actions = actions.bind(&edit.actions, skips_hardware)?;
    if let Some(present) = &present {
        actions.release(&present.actions);
    }
    let new = Arc::new(new);
    filters.insert(new.order(), Arc::clone(&new));
    Ok(Edited { removed: present.into_iter().collect(), added: vec![new] })
}

/// The table for the first `u32` filter of a priority: as in the kernel, each has one of its own.
fn free_table(filters: &Filters) -> u32 {
    let of_u32 = |filter: &Arc<Filter>| match filter.matches {
        Matches::Words(_) => Some(filter.handle >> 20),
        _ => None,
    };
    let tables = filters.iter().filter_map(|(_, filter)| of_u32(filter));
    tables.max().map_or(FIRST_TABLE, |last| last + 1)
}

/// The first free number in a table of `pref`: as in the kernel from the middle on, then from its
/// beginning; beyond the table if it is full.
fn free_node(filters: &Filters, pref: u16, table: u32) -> u32 {
    let free = |first: u32, end: u32| {
        let taken = filters.from(order(pref, table << 20 | first)).map(|(at, _)| at);
        let gap = (first..end).zip(taken.map(Some).chain(std::iter::repeat(None)));
        let mut gap = gap.skip_while(|(node, at)| *at == Some(order(pref, table << 20 | node)));
        gap.next().map(|(node, _)| node)
    };
    free(FIRST_NODE, NODES).or_else(|| free(1, FIRST_NODE)).unwrap_or(NODES)
}

/// The number of a filter: the given one, or a free one of its priority.
fn number(
    filters: &Filters,
    pref: u16,
    matches: &Matches,
    given: Option<u32>,
    last: Option<u32>,
) -> Result<u32, PolicyError> {
    match (matches, given) {
        (Matches::Mark(Mark { value, .. }), _) => Ok(*value),
        (Matches::Route(route), given) => match (route.own_number(), given) {
            (Some(own), None) => Ok(own),
            (Some(own), Some(given)) if own == given => Ok(own),
            (Some(_), Some(_)) => {
                refuse("route: the handle says both realms, and these are others: leave it out")
            }
            (None, given) => {
                let own = of_pref(filters, pref).map(|filter| filter.handle);
                let last = own.filter(|number| Route::is_free_number(*number)).last();
                let number = given.unwrap_or(last.unwrap_or(0) + 1);
                match Route::is_free_number(number) {
                    true => Ok(number),
                    false => {
                        refuse("route: with a metric a handle is from 0x40000001 to 0x7fffffff")
                    }
                }
            }
        },
        (Matches::Words(_), given) => {
            let table = match last {
                Some(last) => last >> 20,
                None => free_table(filters),
            };
            let node = match given {
                Some(given) if given >> 20 != 0 && given >> 20 != table => {
                    // Only the first filter of a priority determines its table.
                    return match last {
                        None if given & 0xfff != 0 => Ok(given),
                        _ => refuse("cls_u32: Handle specified hash table address mismatch"),
                    };
                }
                Some(given) if given & 0xfff != 0 => given & 0xfff,
                // The number of the table itself.
                Some(given) if given != 0 => return Err(PolicyError::FilterExists),
                _ => free_node(filters, pref, table),
            };
            if table > 0xfff || !(1..=0xfff).contains(&node) {
                return refuse("no number is left in this table: give another pref");
            }
            Ok(table << 20 | node)
        }
        (_, Some(given)) => Ok(given),
        (_, None) => match last {
            Some(u32::MAX) => refuse("no number is left in this pref: give one with handle"),
            last => Ok(last.unwrap_or(0) + 1),
        },
    }
}

fn delete(
    filters: &mut Filters,
    edit: &FilterEdit,
    actions: &mut ActionSet,
) -> Result<Edited, PolicyError> {
    let gone: Vec<Arc<Filter>> = match edit.pref {
        None if edit.protocol.is_some() || edit.handle.is_some() || edit.kind.is_some() => {
            return refuse("Cannot flush filters with protocol, handle or kind set");
        }
        None => filters.iter().map(|(_, filter)| Arc::clone(filter)).collect(),
        Some(pref) => {
            let is_of_protocol =
                |filter: &&Arc<Filter>| edit.protocol.is_none_or(|of| filter.protocol == of);
            let Some(first) = of_pref(filters, pref).next().filter(is_of_protocol) else {
                return refuse("Filter with specified priority/protocol not found");
            };
            if edit.kind.as_ref().is_some_and(|kind| kind != first.kind()) {
                return refuse("Specified filter kind does not match existing one");
            }
            let table = first.handle & 0xfff0_0000;
            match edit.handle {
                None => of_pref(filters, pref).cloned().collect(),
                Some(handle) => {
                    let is_node = matches!(first.matches, Matches::Words(_)) && handle >> 20 == 0;
                    let handle = if is_node { table | handle } else { handle };
                    let found = filters.get(order(pref, handle)).cloned();
                    vec![found.ok_or(PolicyError::Filter("Specified filter handle not found"))?]
                }
            }
        }
    };
    for filter in &gone {
        filters.remove(filter.order());
        actions.release(&filter.actions);
    }
    Ok(Edited { removed: gone, added: Vec::new() })
}
