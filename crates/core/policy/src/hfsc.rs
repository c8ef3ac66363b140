//! `hfsc`: the qdisc, its classes with service curves, and the rules for both.
//!
//! A class has up to three curves. By `rt` a leaf gets its service in time, whatever the classes
//! above it are due. By `ls` classes below one parent share what is left. By `ul` a class gets no
//! more from that.
//!
//! *Principles.* As in the kernel (`net/sched/sch_hfsc.c`): a command replaces the curves that it
//! names and no others, a curve of zeros is ignored, a class keeps its parent, and a class with
//! `rt` alone gets the same curve as its `ls` when a class is put below it. Differences: classes
//! nest no deeper than those of an `htb`, `ul` without `ls` is refused here and not only by `tc`,
//! and curves that cannot all be had cause a warning.
//!
//! Source: `net/sched/sch_hfsc.c`; `tc-hfsc(7)`, `tc-hfsc(8)`.
//!
//! *Non-goals.* Which packet leaves next: the coordination of the classes decides that.

use crate::assignments::Assignments;
use crate::class_tree::{ClassTree, TreeClass};
use crate::classful::{Classful, MINOR_MAX, TreeRules};
use crate::edit::Changed;
use crate::htb::number;
use crate::kind::{Classes, Rules, Site};
use crate::plan::SharedLimit;
use crate::{ClassEdit, ClassParams, Handle, Kind, Params, PolicyError, Verb};
use narrows_classify::{Blocks, Otherwise};
use narrows_coordination::{Label, TreeKind};
use narrows_qdisc::hfsc::{self, Curve};
use narrows_qdisc::htb::{self, Unclassified};
use narrows_qdisc::{Class, Config};
use narrows_units::Rate;
use std::ops::{AddAssign, SubAssign};

/// The qdisc.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hfsc {
    /// The class of packets that no filter matches; 0 for none.
    pub default: u32,
    leaf_limit: u32,
    /// The classes, by their minor numbers.
    pub classes: HfscClasses,
    pub(crate) filters: Assignments,
}

/// A class of an `hfsc`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HfscClass {
    /// The parent class; `None` if it is the qdisc.
    pub parent: Option<u32>,
    /// Its curves.
    pub curves: HfscCurves,
}

/// The curves of a class, or those that a command names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HfscCurves {
    /// `rt`
    pub real_time: Option<Curve>,
    /// `ls`
    pub link_share: Option<Curve>,
    /// `ul`
    pub upper_limit: Option<Curve>,
}

/// The classes of an `hfsc`, with sums over their curves.
pub type HfscClasses = ClassTree<HfscClass>;

/// The second slopes of some classes, in bits per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HfscSum {
    /// Of their `rt`.
    pub real_time: u128,
    /// Of their `ul`.
    pub upper_limit: u128,
    /// How many have no `ul`.
    pub unlimited: u32,
}

impl AddAssign for HfscSum {
    fn add_assign(&mut self, other: Self) {
        self.real_time += other.real_time;
        self.upper_limit += other.upper_limit;
        self.unlimited += other.unlimited;
    }
}

impl SubAssign for HfscSum {
    fn sub_assign(&mut self, other: Self) {
        self.real_time -= other.real_time;
        self.upper_limit -= other.upper_limit;
        self.unlimited -= other.unlimited;
    }
}

impl TreeClass for HfscClass {
    type Sum = HfscSum;

    fn parent(&self) -> Option<u32> {
        self.parent
    }

    fn amount(&self) -> HfscSum {
        let HfscCurves { real_time, upper_limit, .. } = self.curves;
        let slope = |curve: Option<Curve>| curve.map_or(0, |curve| curve.m2.bits_per_sec().into());
        HfscSum {
            real_time: slope(real_time),
            upper_limit: slope(upper_limit),
            unlimited: u32::from(upper_limit.is_none()),
        }
    }
}

impl HfscCurves {
    /// These curves, with those in `given` in their places.
    fn with(self, given: Self) -> Self {
        // As in the kernel, zeros remove nothing.
        let some = |curve: Option<Curve>| {
            curve.filter(|curve| !(curve.m1.is_zero() && curve.m2.is_zero()))
        };
        Self {
            real_time: some(given.real_time).or(self.real_time),
            link_share: some(given.link_share).or(self.link_share),
            upper_limit: some(given.upper_limit).or(self.upper_limit),
        }
    }

    fn check(&self) -> Result<(), PolicyError> {
        match (self.real_time, self.link_share, self.upper_limit) {
            (None, None, _) => Err(PolicyError::Hfsc(
                "Invalid argument. A class needs a curve: give rt, ls or sc.".into(),
            )),
            (_, None, Some(_)) => Err(PolicyError::Hfsc(
                "Upper-limit Service Curve without Link-Share Service Curve: ul limits what a \
                 class gets by ls, so give ls or sc, too."
                    .into(),
            )),
            _ => Ok(()),
        }
    }

    /// Whether the class has an `rt` and nothing else.
    pub fn is_real_time_only(&self) -> bool {
        self.real_time.is_some() && self.link_share.is_none()
    }
}

impl Hfsc {
    pub(crate) fn new(site: &Site<'_>) -> Self {
        Self {
            default: 0,
            leaf_limit: site.facts.tx_queue_len,
            classes: HfscClasses::default(),
            filters: Assignments::default(),
        }
    }

    /// The level of a class, as the kernel counts it: 0 for a leaf, and for the others one more
    /// than the highest below them. The number 0 is the root class, which is the qdisc itself.
    pub fn level(&self, minor: u32) -> usize {
        let depth = |minor: &u32| self.classes.depth(*minor) + usize::from(*minor != 0);
        let deepest = self.classes.below(minor).iter().map(depth).max();
        deepest.unwrap_or(0).saturating_sub(depth(&minor))
    }

    /// Applies `edit` to the classes; `handle` is the qdisc's.
    pub(crate) fn edit(
        &mut self,
        handle: Handle,
        edit: &ClassEdit,
    ) -> Result<Changed, PolicyError> {
        let id = number(handle, edit.class, MINOR_MAX).map_err(PolicyError::Hfsc)?;
        let present = self.classes.find(id, edit.verb)?.copied();
        if edit.verb == Verb::Delete {
            return self.classes.delete("HFSC", id, &mut self.filters);
        }
        let given = match &edit.params {
            Some(ClassParams::Hfsc(curves)) => *curves,
            Some(params) => {
                let given = params.kind_name();
                return Err(PolicyError::OtherClassKind { handle, present: "hfsc", given });
            }
            None => HfscCurves::default(),
        };
        // Without a parent, the kernel makes a class below the qdisc.
        let parent = match (edit.parent, present) {
            (None, present) => Ok(present.and_then(|class| class.parent)),
            (Some(parent), present) => self.classes.place(handle, parent).and_then(|parent| {
                match present.filter(|class| class.parent != parent) {
                    Some(class) => Err(format!(
                        "Invalid argument. A class keeps its parent, and {id} is below {}: delete \
                         it to put it elsewhere.",
                        handle.class(class.parent.unwrap_or(0))
                    )),
                    None => Ok(parent),
                }
            }),
        };
        let parent = parent.map_err(PolicyError::Hfsc)?;
        let curves = present.map(|class| class.curves).unwrap_or_default().with(given);
        curves.check()?;
        self.classes.insert(id.minor, HfscClass { parent, curves });
        let Some(above) = parent.filter(|_| present.is_none()) else {
            return Ok(Changed::default());
        };
        if let Some(mut class) = self.classes.get(above).copied()
            && class.curves.is_real_time_only()
        {
            class.curves.link_share = class.curves.real_time;
            self.classes.insert(above, class);
        }
        let is_first = self.classes.children(above).nth(1).is_none();
        Ok(Changed { without_qdisc: is_first.then_some(above), ..Changed::default() })
    }

    /// What the leaves are due by `rt`, and what the classes at the root may get at most if all of
    /// them have an `ul`: in the long run, in bits per second.
    fn due(&self) -> (u128, Option<u128>) {
        let below = self.classes.inner().chain([0]).map(|minor| self.classes.sum_below(minor));
        let all: u128 = below.map(|sum| sum.real_time).sum();
        // Only leaves get anything by it.
        let inner = self.classes.inner().filter_map(|minor| self.classes.get(minor));
        let idle: u128 = inner.map(|class| class.amount().real_time).sum();
        let top = self.classes.sum_below(0);
        (all - idle, (top.unlimited == 0).then_some(top.upper_limit))
    }
}

impl TreeRules for Hfsc {
    fn tree(&self) -> TreeKind {
        TreeKind::Hfsc
    }

    fn len(&self) -> usize {
        self.classes.len()
    }

    fn numbers(&self) -> Vec<u32> {
        self.classes.iter().map(|(minor, _)| minor).collect()
    }

    fn class(&self, minor: u32) -> Option<(Class, Option<Box<Label>>)> {
        let HfscClass { parent, curves } = *self.classes.get(minor)?;
        let HfscCurves { real_time, link_share, upper_limit } = curves;
        // Only leaves have packets that can be late.
        let real_time = real_time.filter(|_| !self.is_inner(minor));
        Some((Class::Hfsc(hfsc::Class { parent, real_time, link_share, upper_limit }), None))
    }

    fn changes(&self, next: &Kind) -> Option<Vec<u32>> {
        let Kind::Hfsc(next) = next else { return None };
        let alike = |hfsc: &Self| (hfsc.default, hfsc.leaf_limit);
        (alike(self) == alike(next)).then(|| self.classes.changes(&next.classes).collect())
    }

    fn unclassified(&self) -> &'static str {
        "are dropped"
    }

    fn warning(&self, handle: Handle, minor: u32) -> Option<String> {
        // Other classes have no part in the sums.
        let class = self.classes.get(minor)?;
        if class.curves.real_time.is_none() && class.parent.is_some() {
            return None;
        }
        let (due, Some(most)) = self.due() else { return None };
        let rate = |bits| Rate::from_bits_per_sec(u64::try_from(bits).unwrap_or(u64::MAX));
        (due > most).then(|| {
            format!(
                "Warning: hfsc: the rt curves below {handle} add up to {}, more than the {} of \
                 the ul curves at its root: they cannot all be had.",
                rate(due),
                rate(most)
            )
        })
    }
}

impl Classful for Hfsc {
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
        self.leaf_limit
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

impl Rules for Hfsc {
    fn name(&self) -> &'static str {
        "hfsc"
    }

    fn classes(&self) -> Classes {
        Classes::Made
    }

    fn change(&mut self, params: &Params, _: &Site<'_>) -> Result<(), PolicyError> {
        if let Params::Hfsc { default } = params {
            self.default = *default;
        }
        Ok(())
    }

    fn plan(&self, _: usize) -> (Config, Option<SharedLimit>) {
        let (default, unclassified) = (self.default, Unclassified::Dropped);
        (Config::Htb(htb::Config { default, unclassified }), None)
    }
}
