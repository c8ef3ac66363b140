//! `htb`: the qdisc, its classes, and the rules for both.
//!
//! As in the kernel (`net/sched/sch_htb.c`), except for its traps. A parent that does not exist is
//! refused; the kernel makes a root class. A ceiling below the rate, and a default that is no leaf,
//! cause a warning.

use crate::assignments::Assignments;
use crate::class_tree::{ClassTree, TreeClass};
use crate::classful::{Classful, TreeRules};
use crate::edit::Changed;
use crate::kind::{Classes, Rules, Site};
use crate::plan::SharedLimit;
use crate::{
    ClassId, Fleet, Handle, HfscCurves, HtbLabel, Kind, Params, Parent, PolicyError, Verb,
};
use narrows_classify::{Blocks, Otherwise};
use narrows_coordination::{Label, TreeKind, TreeStrategy};
use narrows_qdisc::htb::{self, CLASS_MAX, PRIORITIES, Unclassified};
use narrows_qdisc::{Class, Config};
use narrows_units::{Bytes, Rate, wire::Overhead};

/// The range of a computed quantum. An explicit one may be outside.
const QUANTUM: std::ops::RangeInclusive<u64> = 1_000..=200_000;

/// The default `r2q`: the ratio of a class's rate, in bytes per second, to its quantum.
const R2Q: u32 = 10;

/// The qdisc.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Htb {
    /// The class of packets that no filter matches; 0 for none.
    pub default: u32,
    /// The ratio of a class's rate, in bytes per second, to its quantum.
    pub r2q: u32,
    /// How many packets without a class may wait for the device.
    pub direct_limit: u32,
    /// How the queues coordinate the classes.
    pub coordination: TreeStrategy,
    /// The classes, by their minor numbers.
    pub classes: HtbClasses,
    pub(crate) filters: Assignments,
}

/// The options of a command for an `htb`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HtbOptions {
    /// See [`Htb::default`].
    pub default: Option<u32>,
    /// See [`Htb::r2q`].
    pub r2q: Option<u32>,
    /// See [`Htb::direct_limit`].
    pub direct_limit: Option<u32>,
    /// See [`Htb::coordination`].
    pub coordination: Option<TreeStrategy>,
}

/// A class of an `htb`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HtbClass {
    /// The parent class; `None` if it is the qdisc.
    pub parent: Option<u32>,
    /// Its parameters.
    pub params: HtbParams,
}

/// The classes of an `htb`, with the sums of their assured rates in bits per second.
pub type HtbClasses = ClassTree<HtbClass>;

impl TreeClass for HtbClass {
    type Sum = u128;

    fn parent(&self) -> Option<u32> {
        self.parent
    }

    fn amount(&self) -> u128 {
        u128::from(self.params.assured().bits_per_sec())
    }
}

/// The parameters of a class, as `tc` sends them: all at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HtbParams {
    /// The assured rate.
    pub rate: Rate,
    /// The ceiling.
    pub ceil: Rate,
    /// The burst at `rate`.
    pub burst: Bytes,
    /// The burst at `ceil`.
    pub cburst: Bytes,
    /// The priority for borrowing: 0 is first, 7 last.
    pub prio: u8,
    /// The weight, in bytes, with which classes of one priority share what they borrow. `None`
    /// derives it from `rate` and the qdisc's `r2q`.
    pub quantum: Option<u32>,
    /// How a frame's length is counted.
    pub overhead: Overhead,
    /// FlowValve's parameters.
    pub label: HtbLabel,
    /// What makes the ceiling that of several boxes.
    pub fleet: Option<Box<Fleet>>,
}

/// One change to the classes of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClassEdit {
    /// The verb.
    pub verb: Verb,
    /// The parent class or qdisc.
    pub parent: Option<Parent>,
    /// The class.
    pub class: Option<ClassId>,
    /// Its parameters.
    pub params: Option<ClassParams>,
}

/// The parameters of a class in a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClassParams {
    /// `htb`
    Htb(HtbParams),
    /// `hfsc`
    Hfsc(HfscCurves),
    /// `drr`
    Drr {
        /// The quantum in bytes.
        quantum: Option<u32>,
    },
    /// `ets`
    Ets {
        /// The quantum in bytes.
        quantum: Option<u32>,
    },
}

impl ClassParams {
    /// The kind that the command names.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Self::Htb(_) => "htb",
            Self::Hfsc(_) => "hfsc",
            Self::Drr { .. } => "drr",
            Self::Ets { .. } => "ets",
        }
    }
}

/// The class of the qdisc `handle` that `class` names; the highest number is `last`.
pub(crate) fn number(handle: Handle, class: Option<ClassId>, last: u32) -> Result<ClassId, String> {
    let id = class.ok_or("say which class: classid ID.")?;
    if ![0, handle.major()].contains(&id.major) || !(1..=last).contains(&id.minor) {
        let last = handle.class(last);
        return Err(format!("class {id} is none of {handle}: they are {handle}1 to {last}."));
    }
    Ok(handle.class(id.minor))
}

impl Htb {
    pub(crate) fn new(site: &Site<'_>) -> Self {
        let direct_limit = site.facts.tx_queue_len;
        let (classes, filters) = (HtbClasses::default(), Assignments::default());
        let coordination = TreeStrategy::default();
        Self { default: 0, r2q: R2Q, direct_limit, coordination, classes, filters }
    }

    /// The level of a class, as `tc -d` shows it: 0 for a leaf, and from 7 for a class at the root
    /// downwards for the others. Where the kernel has no level left, 1.
    pub fn level(&self, minor: u32) -> usize {
        /// `TC_HTB_MAXDEPTH` without the level of leaves.
        const ROOT: usize = 7;
        if self.is_inner(minor) { ROOT.saturating_sub(self.depth(minor)).max(1) } else { 0 }
    }

    /// The quantum of a class.
    pub fn quantum(&self, params: &HtbParams) -> u32 {
        let from_rate = params.rate.bytes_per_sec() / u64::from(self.r2q.max(1));
        let quantum = from_rate.clamp(*QUANTUM.start(), *QUANTUM.end()) as u32;
        params.quantum.unwrap_or(quantum).max(1)
    }

    /// Applies `edit` to the classes of the `htb` with this `handle`.
    pub(crate) fn edit(
        &mut self,
        handle: Handle,
        edit: &ClassEdit,
    ) -> Result<Changed, PolicyError> {
        let id = number(handle, edit.class, CLASS_MAX).map_err(PolicyError::Htb)?;
        let minor = id.minor;
        let present = self.classes.find(id, edit.verb)?.map(|class| class.parent);
        if edit.verb == Verb::Delete {
            return self.classes.delete("HTB", id, &mut self.filters);
        }
        let mut params = match &edit.params {
            Some(ClassParams::Htb(params)) => params.clone(),
            Some(params) => {
                let given = params.kind_name();
                return Err(PolicyError::OtherClassKind { handle, present: "htb", given });
            }
            None => return Err(PolicyError::Htb("\"rate\" is required.".into())),
        };
        params.check()?;
        params.label = params.label.of(handle, minor)?;
        if let Some(parent) = present {
            // As in the kernel, a class keeps its parent.
            self.classes.insert(minor, HtbClass { parent, params });
            return Ok(Changed::default());
        }
        // If the parent does not exist, the kernel would make a root class, outside the limits that
        // it was meant to be under.
        let parent = edit.parent.ok_or_else(|| "say where: parent ID.".to_owned());
        let parent = parent.and_then(|parent| self.classes.place(handle, parent));
        let parent = parent.map_err(PolicyError::Htb)?;
        let became_inner = parent.filter(|parent| !self.is_inner(*parent));
        self.classes.insert(minor, HtbClass { parent, params });
        Ok(Changed { without_qdisc: became_inner, ..Changed::default() })
    }
}

impl TreeRules for Htb {
    fn tree(&self) -> TreeKind {
        TreeKind::Htb(self.coordination)
    }

    fn len(&self) -> usize {
        self.classes.len()
    }

    fn numbers(&self) -> Vec<u32> {
        self.classes.iter().map(|(minor, _)| minor).collect()
    }

    fn class(&self, minor: u32) -> Option<(Class, Option<Box<Label>>)> {
        let HtbClass { parent, params } = self.classes.get(minor)?;
        let HtbParams { ceil, burst, cburst, prio, overhead, .. } = *params;
        let (parent, rate) = (*parent, params.assured());
        let quantum = self.quantum(params);
        let class = htb::Class { parent, rate, ceil, burst, cburst, prio, quantum, overhead };
        Some((Class::Htb(class), params.label.label()))
    }

    fn changes(&self, next: &Kind) -> Option<Vec<u32>> {
        let Kind::Htb(next) = next else { return None };
        let alike = |htb: &Self| (htb.default, htb.r2q, htb.direct_limit, htb.coordination);
        (alike(self) == alike(next)).then(|| self.classes.changes(&next.classes).collect())
    }

    fn unclassified(&self) -> &'static str {
        "are sent unshaped"
    }

    fn warning(&self, handle: Handle, minor: u32) -> Option<String> {
        let HtbClass { parent, params } = self.classes.get(minor)?;
        if let Some(parent) = *parent
            && let Some(above) = self.classes.get(parent)
            && self.classes.sum_below(parent) > u128::from(above.params.ceil.bits_per_sec())
        {
            let parent = handle.class(parent);
            return Some(format!(
                "Warning: htb: the rates of the classes below {parent} add up to more than its \
                 ceil: they cannot all be had."
            ));
        }
        if params.assured() < params.rate {
            let class = handle.class(minor);
            return Some(format!(
                "Warning: htb: the ceil of {class} is below its rate: it gets the ceil, and no more."
            ));
        }
        let is_idle = self.coordination != TreeStrategy::FlowValve && !params.label.is_empty();
        is_idle.then(|| {
            "Warning: htb: weight and borrow count under \"coordination flowvalve\" only."
                .to_owned()
        })
    }
}

impl HtbParams {
    /// The rate that is assured: not above the ceiling, which holds for each packet.
    pub fn assured(&self) -> Rate {
        self.rate.min(self.ceil)
    }

    fn check(&self) -> Result<(), PolicyError> {
        let refuse = |why: &str| Err(PolicyError::Htb(why.to_owned()));
        if self.rate == Rate::default() {
            return refuse("a rate of 0 assures nothing: give a rate of at least 8bit.");
        }
        if usize::from(self.prio) >= PRIORITIES {
            return refuse("prio is 0 to 7.");
        }
        match &self.fleet {
            Some(fleet) => fleet.check("ceil", self.ceil),
            None => Ok(()),
        }
    }
}

impl Classful for Htb {
    fn has_class(&self, minor: u32) -> bool {
        self.classes.contains(minor)
    }

    fn is_inner(&self, minor: u32) -> bool {
        self.classes.is_inner(minor)
    }

    fn leaves(&self) -> Vec<u32> {
        self.classes.leaves()
    }

    fn leaf_limit(&self) -> u32 {
        self.direct_limit
    }

    fn parent(&self, minor: u32) -> Option<u32> {
        self.classes.parent(minor)
    }

    fn filters(&self) -> &Blocks {
        self.filters.blocks()
    }

    fn unfiltered(&self) -> Vec<u32> {
        self.filters.unfiltered(self.classes.inner())
    }

    fn otherwise(&self) -> Otherwise {
        Otherwise::Class(self.default)
    }
}

impl Rules for Htb {
    fn name(&self) -> &'static str {
        "htb"
    }

    fn classes(&self) -> Classes {
        Classes::Made
    }

    fn change(&mut self, params: &Params, _: &Site<'_>) -> Result<(), PolicyError> {
        let Params::Htb(options) = params else { return Ok(()) };
        if let Some(default) = options.default.filter(|default| *default > CLASS_MAX) {
            return Err(PolicyError::Htb(format!(
                "there can be no class {default:x} for the default: their numbers are 1 to \
                 {CLASS_MAX:x}."
            )));
        }
        self.default = options.default.unwrap_or(self.default);
        self.r2q = options.r2q.unwrap_or(self.r2q).max(1);
        self.direct_limit = options.direct_limit.unwrap_or(self.direct_limit);
        self.coordination = options.coordination.unwrap_or(self.coordination);
        Ok(())
    }

    fn plan(&self, _: usize) -> (Config, Option<SharedLimit>) {
        let default = self.default;
        let unclassified = Unclassified::Sent(self.direct_limit);
        (Config::Htb(htb::Config { default, unclassified }), None)
    }
}
