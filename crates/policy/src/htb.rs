//! `htb`: the qdisc, its classes, and the rules for both.
//!
//! As in the kernel (`net/sched/sch_htb.c`), but for what is a trap there: a parent that does not
//! exist, a ceiling below the rate, a default that is no leaf are refused or warned of, where the
//! kernel makes a root class, takes the ceiling, and lets packets pass unshaped.

use crate::kind::{Classes, Rules, Site};
use crate::plan::SharedLimit;
use crate::{ClassId, Handle, Params, Parent, PolicyError, Verb};
use narrows_classify::Filter;
use narrows_qdisc::Config;
use narrows_qdisc::htb::{self, DEPTH_MAX, PRIORITIES};
use narrows_units::{Bytes, Rate, wire::Overhead};
use std::collections::BTreeMap;

/// Quanta are not below and not above these, unless somebody says so.
const QUANTUM: std::ops::RangeInclusive<u64> = 1_000..=200_000;

/// `r2q` unless somebody says so: how many times a class's quantum its rate is in bytes a second.
const R2Q: u32 = 10;

/// The qdisc.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Htb {
    /// The class of packets that no filter assigns to one; 0 for none.
    pub default: u16,
    /// How many times a class's quantum its rate is, in bytes a second.
    pub r2q: u32,
    /// How many packets without a class may wait for room on the device.
    pub direct_limit: u32,
    /// The classes, by their minor numbers.
    pub classes: BTreeMap<u16, HtbClass>,
    /// In the order in which they are asked.
    pub(crate) filters: Vec<Filter>,
}

/// What a command says of an `htb`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HtbOptions {
    /// See [`Htb::default`].
    pub default: Option<u16>,
    /// See [`Htb::r2q`].
    pub r2q: Option<u32>,
    /// See [`Htb::direct_limit`].
    pub direct_limit: Option<u32>,
}

/// A class of an `htb`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HtbClass {
    /// The class above it; `None` where that is the qdisc.
    pub parent: Option<u16>,
    /// Its parameters.
    pub params: HtbParams,
}

/// The parameters of a class, as `tc` sends them: all at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HtbParams {
    /// What it gets whatever others do.
    pub rate: Rate,
    /// What it never exceeds.
    pub ceil: Rate,
    /// How much may leave at once at `rate` after a pause.
    pub burst: Bytes,
    /// The same at `ceil`.
    pub cburst: Bytes,
    /// Who borrows first: 0 before 7.
    pub prio: u8,
    /// In what proportion classes of one priority share what they borrow, in bytes; `None` for what
    /// follows from `rate` and the qdisc's `r2q`.
    pub quantum: Option<u32>,
    /// What a frame is charged.
    pub overhead: Overhead,
}

/// One change to the classes of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassEdit {
    /// What to do.
    pub verb: Verb,
    /// Below which class or qdisc.
    pub parent: Option<Parent>,
    /// Which class.
    pub class: Option<ClassId>,
    /// Its parameters.
    pub params: Option<HtbParams>,
}

impl Htb {
    pub(crate) fn new(site: &Site<'_>) -> Self {
        let direct_limit = site.facts.tx_queue_len;
        Self { default: 0, r2q: R2Q, direct_limit, classes: BTreeMap::new(), filters: Vec::new() }
    }

    /// Whether a class is below `minor`.
    pub fn is_inner(&self, minor: u16) -> bool {
        self.classes.values().any(|class| class.parent == Some(minor))
    }

    /// Whether a filter assigns packets to `minor`.
    fn is_assigned(&self, minor: u16) -> bool {
        self.filters.iter().any(|filter| filter.class == minor)
    }

    /// How many classes are above `minor`.
    pub fn depth(&self, minor: u16) -> usize {
        let above = |minor: &u16| self.classes.get(minor).and_then(|class| class.parent);
        std::iter::successors(Some(minor), above).count() - 1
    }

    /// How far above the lowest class below it a class stands, as `tc -d` shows it: 0 for a leaf.
    pub fn level(&self, minor: u16) -> u8 {
        let below = self.classes.iter().filter(|(_, class)| class.parent == Some(minor));
        below.map(|(child, _)| self.level(*child) + 1).max().unwrap_or(0)
    }

    /// The classes below `minor`, at any depth, and itself.
    pub fn below(&self, minor: u16) -> Vec<u16> {
        let mut found = vec![minor];
        let mut next = 0;
        while let Some(&at) = found.get(next) {
            let children = self.classes.iter().filter(|(_, class)| class.parent == Some(at));
            found.extend(children.map(|(child, _)| *child));
            next += 1;
        }
        found
    }

    /// In what proportion a class shares what it borrows.
    pub fn quantum(&self, class: &HtbClass) -> u32 {
        let from_rate = class.params.rate.bytes_per_sec() / u64::from(self.r2q.max(1));
        let quantum = from_rate.clamp(*QUANTUM.start(), *QUANTUM.end()) as u32;
        class.params.quantum.unwrap_or(quantum).max(1)
    }

    /// The class as queues keep it.
    pub(crate) fn class(&self, class: &HtbClass) -> htb::Class {
        let HtbParams { rate, ceil, burst, cburst, prio, overhead, .. } = class.params;
        let quantum = self.quantum(class);
        let parent = class.parent.map(u32::from);
        htb::Class { parent, rate, ceil, burst, cburst, prio, quantum, overhead }
    }

    /// Makes `edit` to the classes of the `htb` that is called `handle`. Returns the class that has
    /// become an inner one or is gone, and so has no qdisc any more.
    pub(crate) fn edit(
        &mut self,
        handle: Handle,
        edit: &ClassEdit,
    ) -> Result<Option<u16>, PolicyError> {
        let refuse = |why: String| Err(PolicyError::Htb(why));
        let id =
            edit.class.ok_or_else(|| PolicyError::Htb("say which class: classid ID.".into()))?;
        if ![0, handle.major()].contains(&id.major) || id.minor == 0 {
            return refuse(format!(
                "class {id} is none of {handle}: they are {handle}1 to {handle}ffff."
            ));
        }
        let (minor, id) = (id.minor, handle.class(id.minor));
        let present = self.classes.get(&minor).copied();
        let params = match (edit.verb, present) {
            (Verb::Delete, None) | (Verb::Change, None) => {
                return Err(PolicyError::NoSuchClass(id));
            }
            (Verb::Add, Some(_)) => return Err(PolicyError::ClassExists(id)),
            (Verb::Delete, Some(_)) => {
                if self.is_inner(minor) || self.is_assigned(minor) {
                    return Err(PolicyError::ClassInUse(id));
                }
                self.classes.remove(&minor);
                return Ok(Some(minor));
            }
            _ => edit.params.ok_or_else(|| PolicyError::Htb("\"rate\" is required.".into()))?,
        };
        params.check()?;
        if let Some(class) = self.classes.get_mut(&minor) {
            // As in the kernel a class does not move.
            class.params = params;
            return Ok(None);
        }
        let parent = match edit.parent {
            None => return refuse("say where: parent ID.".into()),
            Some(Parent::Root) => None,
            Some(Parent::Class(ClassId { major, .. })) if ![0, handle.major()].contains(&major) => {
                return refuse(format!(
                    "a class of {handle} is below {handle} or one of its classes."
                ));
            }
            Some(Parent::Class(ClassId { minor: 0, .. })) => None,
            Some(Parent::Class(ClassId { minor, .. })) => Some(minor),
        };
        if let Some(parent) = parent {
            if !self.classes.contains_key(&parent) {
                // The kernel makes a root class of it, beside the limits that it was meant to be
                // under.
                let parent = handle.class(parent);
                return refuse(format!(
                    "there is no class {parent} to be the parent: add it first."
                ));
            }
            if self.is_assigned(parent) {
                let parent = handle.class(parent);
                return refuse(format!(
                    "filters assign packets to {parent}: delete them first, as only a leaf can have some."
                ));
            }
            if self.depth(parent) + 2 > DEPTH_MAX {
                return refuse(format!(
                    "tree is too deep: {DEPTH_MAX} classes may stand one below the other."
                ));
            }
        }
        let became_inner = parent.filter(|parent| !self.is_inner(*parent));
        self.classes.insert(minor, HtbClass { parent, params });
        Ok(became_inner)
    }

    /// What is allowed and probably not meant, after a change of the class `minor`, or of the
    /// qdisc.
    pub fn warning(&self, handle: Handle, minor: Option<u16>) -> Option<String> {
        let sum = |parent: u16| -> u64 {
            let below = self.classes.values().filter(|class| class.parent == Some(parent));
            below.map(|class| class.params.rate.bits_per_sec()).sum()
        };
        if let Some(minor) = minor
            && let Some(parent) = self.classes.get(&minor).and_then(|class| class.parent)
            && let Some(above) = self.classes.get(&parent)
            && sum(parent) > above.params.ceil.bits_per_sec()
        {
            let parent = handle.class(parent);
            return Some(format!(
                "Warning: htb: the rates of the classes below {parent} add up to more than its \
                 ceil: they cannot all be had."
            ));
        }
        if self.default != 0 && self.is_inner(self.default) {
            let default = handle.class(self.default);
            return Some(format!(
                "Warning: htb: the default class {default} has classes below it: packets that no \
                 filter assigns are sent unshaped."
            ));
        }
        None
    }
}

impl HtbParams {
    fn check(&self) -> Result<(), PolicyError> {
        let refuse = |why: &str| Err(PolicyError::Htb(why.to_owned()));
        if self.rate == Rate::default() {
            return refuse("a rate of 0 assures nothing: give a rate of at least 8bit.");
        }
        if self.ceil < self.rate {
            return refuse("ceil is below rate: raise it, or leave it out.");
        }
        if usize::from(self.prio) >= PRIORITIES {
            return refuse("prio is 0 to 7.");
        }
        Ok(())
    }
}

impl Rules for Htb {
    fn name(&self) -> &'static str {
        "htb"
    }

    fn classes(&self) -> Classes {
        Classes::Made
    }

    fn change(&mut self, params: &Params, site: &Site<'_>) -> Result<(), PolicyError> {
        let Params::Htb(options) = params else { return Ok(()) };
        if site.parent != Parent::Root {
            return Err(PolicyError::Htb(
                "an htb stands at the root: all queues of the port share its classes.".into(),
            ));
        }
        self.default = options.default.unwrap_or(self.default);
        self.r2q = options.r2q.unwrap_or(self.r2q).max(1);
        self.direct_limit = options.direct_limit.unwrap_or(self.direct_limit);
        Ok(())
    }

    fn plan(&self, _: usize) -> (Config, Option<SharedLimit>) {
        let (default, direct_limit) = (u32::from(self.default), self.direct_limit);
        (Config::Htb(htb::Config { default, direct_limit }), None)
    }
}
