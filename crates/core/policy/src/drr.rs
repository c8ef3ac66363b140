//! `drr`: classes that take turns, created by the operator.
//!
//! As in the kernel (`net/sched/sch_drr.c`). Difference: a parent other than the qdisc is refused.
//! The kernel accepts it and creates a root class anyway.

use crate::assignments::Assignments;
use crate::classful::{Classful, MINOR_MAX};
use crate::edit::Changed;
use crate::htb::number;
use crate::kind::{Classes, Rules, Site};
use crate::plan::SharedLimit;
use crate::{ClassEdit, ClassId, ClassParams, Handle, Params, Parent, PolicyError, Verb};
use narrows_classify::{Blocks, Otherwise};
use narrows_qdisc::Config;
use narrows_qdisc::bands::{self, Class, Discipline, QUANTUM_MAX, QUANTUM_MIN};
use std::collections::BTreeMap;

/// The qdisc.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Drr {
    /// The quantum in bytes, by the minor number of a class.
    pub quanta: BTreeMap<u32, u32>,
    /// The default quantum of a class: a full frame.
    default_quantum: u32,
    leaf_limit: u32,
    pub(crate) filters: Assignments,
}

impl Drr {
    pub(crate) fn new(site: &Site<'_>) -> Self {
        Self {
            quanta: BTreeMap::new(),
            default_quantum: site.facts.frame(),
            leaf_limit: site.facts.tx_queue_len,
            filters: Assignments::default(),
        }
    }

    /// Applies `edit` to the classes; `handle` is the qdisc's.
    pub(crate) fn edit(
        &mut self,
        handle: Handle,
        edit: &ClassEdit,
    ) -> Result<Changed, PolicyError> {
        let id = number(handle, edit.class, MINOR_MAX).map_err(PolicyError::Drr)?;
        let present = self.quanta.get(&id.minor).copied();
        match (edit.verb, present) {
            (Verb::Delete | Verb::Change, None) => return Err(PolicyError::NoSuchClass(id)),
            (Verb::Add, Some(_)) => return Err(PolicyError::ClassExists(id)),
            (Verb::Delete, Some(_)) => {
                if self.filters.assigns(id.minor) {
                    return Err(PolicyError::ClassAssigned { kind: "DRR".into(), class: id });
                }
                self.quanta.remove(&id.minor);
                return Ok(Changed { without_qdisc: Some(id.minor), ..Changed::default() });
            }
            _ => {}
        }
        let quantum = match &edit.params {
            Some(ClassParams::Drr { quantum }) => *quantum,
            Some(params) => {
                let given = params.kind_name();
                return Err(PolicyError::OtherClassKind { handle, present: "drr", given });
            }
            None => None,
        };
        if quantum == Some(0) {
            return Err(PolicyError::Drr(
                "Specified DRR quantum cannot be zero: leave it out, or give a full frame.".into(),
            ));
        }
        let is_here = match edit.parent {
            None => present.is_some(),
            Some(Parent::Root) => true,
            // As in the kernel, a class counts as its qdisc: classes have no classes below them.
            Some(Parent::Class(ClassId { major, .. })) => [0, handle.major()].contains(&major),
        };
        if !is_here {
            return Err(PolicyError::Drr(format!(
                "a class of {handle} is below {handle} itself: give parent {handle}."
            )));
        }
        let quantum = quantum.map(|quantum| quantum.clamp(QUANTUM_MIN, QUANTUM_MAX));
        let quantum = quantum.or(present).unwrap_or(self.default_quantum);
        self.quanta.insert(id.minor, quantum);
        Ok(Changed::default())
    }
}

impl Classful for Drr {
    fn has_class(&self, minor: u32) -> bool {
        self.quanta.contains_key(&minor)
    }

    fn leaves(&self) -> Vec<u32> {
        self.quanta.keys().copied().collect()
    }

    fn leaf_limit(&self) -> u32 {
        self.leaf_limit
    }

    fn filters(&self) -> &Blocks {
        self.filters.blocks()
    }

    fn otherwise(&self) -> Otherwise {
        Otherwise::Class(0)
    }
}

impl Rules for Drr {
    fn name(&self) -> &'static str {
        "drr"
    }

    fn classes(&self) -> Classes {
        Classes::Made
    }

    fn change(&mut self, _: &Params, _: &Site<'_>) -> Result<(), PolicyError> {
        Ok(())
    }

    fn plan(&self, _: usize) -> (Config, Option<SharedLimit>) {
        let class = |(id, quantum): (&u32, &u32)| Class { id: *id as u16, quantum: Some(*quantum) };
        let classes = self.quanta.iter().map(class).collect();
        let discipline = Discipline::Drr;
        (Config::Bands(bands::Config { discipline, classes, otherwise: None }), None)
    }
}
