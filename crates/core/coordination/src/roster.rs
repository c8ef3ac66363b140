//! The classes of a tree in the form in which queues ask for them: parameters, and children.

use crate::{Below, topmost};
use narrows_packet::Reading;
use narrows_qdisc::htb::{Class, LeafClass};
use std::collections::BTreeMap;

#[derive(Default)]
pub(crate) struct Roster(BTreeMap<u32, (Class, Option<Below>)>);

impl Roster {
    pub(crate) fn new(classes: BTreeMap<u32, (Class, Option<Below>)>) -> Self {
        Self(classes)
    }

    /// The class `id`, if there is one and no class is below it.
    pub(crate) fn leaf(&self, id: u32) -> Option<LeafClass> {
        let (class, below) = self.0.get(&id)?;
        Some(LeafClass::of(class, below.as_ref()?.spec()))
    }

    /// The parameters of the class `id`, if there is one.
    pub(crate) fn class(&self, id: u32) -> Option<Class> {
        Some(self.0.get(&id)?.0)
    }

    /// The topmost class that answers for the class `id`.
    pub(crate) fn topmost(&self, id: u32) -> Option<u32> {
        topmost(id, self.0.keys().copied(), |id| self.class(id).map(|class| class.parent))
    }

    /// The packet fields that the qdiscs below any class read.
    pub(crate) fn reading(&self) -> Reading {
        let below = self.0.values().filter_map(|(_, below)| below.as_ref());
        below.fold(Reading::NOTHING, |reading, below| reading.and(below.reading()))
    }
}
