//! Filters of an `htb`, with the rules of the kernel's `tc_new_tfilter()`.
//!
//! Differences from the kernel: a filter names a leaf class that is there, where the kernel takes
//! any number and lets packets pass unshaped.

use crate::{ClassId, Handle, Htb, Kind, Node, Parent, Policy, PolicyError, Verb};
use narrows_classify::{ANY_PROTOCOL, Filter, Matches};

/// The priority of the first filter for which nobody names one; each further one is asked before.
const FIRST_AUTOMATIC: u16 = 49152;

/// One change to the filters of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilterEdit {
    /// What to do.
    pub verb: Verb,
    /// At which qdisc; `None` for the root's.
    pub parent: Option<Parent>,
    /// When it is asked.
    pub pref: Option<u16>,
    /// The EtherType of its packets.
    pub protocol: Option<u16>,
    /// The kind, where one is named.
    pub kind: Option<String>,
    /// Its number among those of its `pref`.
    pub handle: Option<u32>,
    /// What it matches.
    pub matches: Option<Matches>,
    /// The class that it assigns.
    pub class: Option<ClassId>,
}

impl Policy {
    /// This policy with `edit` made to the filters of port `dev`.
    ///
    /// # Errors
    /// What the kernel would refuse, and what is a trap there; this policy is as it was.
    pub fn edit_filter(&self, dev: &str, edit: &FilterEdit) -> Result<Self, PolicyError> {
        let mut next = self.clone();
        let root = next.ports.get_mut(dev).and_then(|port| port.root.as_mut());
        let Some(Node { handle, kind: Kind::Htb(htb), .. }) = root else {
            return Err(PolicyError::NoFilterParent);
        };
        match edit.parent {
            None | Some(Parent::Root) => {}
            Some(Parent::Class(class)) if class == handle.class(0) => {}
            Some(_) => return Err(PolicyError::NoFilterParent),
        }
        match edit.verb {
            Verb::Delete => htb.delete_filters(edit)?,
            _ => htb.put_filter(*handle, edit)?,
        }
        Ok(next)
    }
}

impl Htb {
    /// The filters, in the order in which they are asked.
    pub fn filters(&self) -> &[Filter] {
        &self.filters
    }

    fn put_filter(&mut self, handle: Handle, edit: &FilterEdit) -> Result<(), PolicyError> {
        let refuse = |why: &'static str| Err(PolicyError::Filter(why));
        let matches = edit.matches.clone();
        let matches =
            matches.ok_or(PolicyError::Filter("Filter kind and protocol must be specified"))?;
        let class = self.filtered_class(handle, edit.class)?;
        let pref = match (edit.pref, edit.verb) {
            (Some(pref), _) => pref,
            (None, Verb::Change) => {
                return refuse("Invalid filter command with priority of zero");
            }
            (None, _) => {
                let lowest = self.filters.first().map_or(FIRST_AUTOMATIC + 1, |filter| filter.pref);
                lowest.min(FIRST_AUTOMATIC + 1).saturating_sub(1).max(1)
            }
        };
        let protocol = edit.protocol.unwrap_or(ANY_PROTOCOL);
        let mut new = Filter { pref, protocol, handle: 0, matches, class };
        if let Some(present) = self.filters.iter().find(|filter| filter.pref == pref) {
            if present.protocol != protocol {
                return refuse("Filter with specified priority/protocol not found");
            }
            if present.kind() != new.kind() {
                return refuse("Specified filter kind does not match existing one");
            }
        }
        let of_pref = self.filters.iter().filter(|filter| filter.pref == pref);
        let first = if new.kind() == "u32" { 0x800 } else { 1 };
        let last = of_pref.map(|filter| filter.handle).max();
        new.handle = edit.handle.unwrap_or_else(|| last.map_or(first, |last| last + 1));
        let is_it = |filter: &Filter| filter.pref == pref && filter.handle == new.handle;
        let present = match edit.handle {
            // A port has one of them, which is replaced by deleting it.
            None if new.kind() == "matchall" && last.is_some() => {
                return refuse("Filter already exists");
            }
            None => None,
            Some(_) => self.filters.iter().position(is_it),
        };
        match (edit.verb, present) {
            (Verb::Add, Some(_)) => return refuse("Filter already exists"),
            (Verb::Change, None) => {
                return refuse("Need both RTM_NEWTFILTER and NLM_F_CREATE to create a new filter");
            }
            (_, Some(present)) => self.filters[present] = new,
            (_, None) => {
                let place = self.filters.partition_point(|filter| filter.pref <= pref);
                self.filters.insert(place, new);
            }
        }
        Ok(())
    }

    /// The minor number of the class that a filter assigns, which must be a leaf.
    fn filtered_class(&self, handle: Handle, class: Option<ClassId>) -> Result<u16, PolicyError> {
        let Some(ClassId { major, minor }) = class else {
            return Err(PolicyError::Filter("say which class: classid ID"));
        };
        if ![0, handle.major()].contains(&major) || !self.classes.contains_key(&minor) {
            return Err(PolicyError::Filter("Specified class doesn't exist"));
        }
        if self.is_inner(minor) {
            return Err(PolicyError::InnerClass(handle.class(minor)));
        }
        Ok(minor)
    }

    fn delete_filters(&mut self, edit: &FilterEdit) -> Result<(), PolicyError> {
        let refuse = |why: &'static str| Err(PolicyError::Filter(why));
        let Some(pref) = edit.pref else {
            if edit.protocol.is_some() || edit.handle.is_some() || edit.kind.is_some() {
                return refuse("Cannot flush filters with protocol, handle or kind set");
            }
            self.filters.clear();
            return Ok(());
        };
        let of_pref: Vec<&Filter> =
            self.filters.iter().filter(|filter| filter.pref == pref).collect();
        let is_of_protocol =
            |filter: &&&Filter| edit.protocol.is_none_or(|protocol| filter.protocol == protocol);
        let Some(first) = of_pref.first().filter(is_of_protocol) else {
            return refuse("Filter with specified priority/protocol not found");
        };
        if edit.kind.as_ref().is_some_and(|kind| kind != first.kind()) {
            return refuse("Specified filter kind does not match existing one");
        }
        if let Some(handle) = edit.handle
            && !of_pref.iter().any(|filter| filter.handle == handle)
        {
            return refuse("Specified filter handle not found");
        }
        let goes = |filter: &Filter| {
            filter.pref == pref && edit.handle.is_none_or(|handle| filter.handle == handle)
        };
        self.filters.retain(|filter| !goes(filter));
        Ok(())
    }
}
