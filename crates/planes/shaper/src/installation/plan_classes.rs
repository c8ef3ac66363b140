//! The classes of a plan's tree, in the form that the shared tree queries.
//!
//! It shares the maps of the plan and the installation, so a class that has never sent takes no
//! memory here.

use imbl::OrdMap;
use narrows_coordination::{Below, Classes};
use narrows_policy::{Key, PlanClass, PlanNode};
use narrows_qdisc::{Class, NodeId, hfsc, htb};
use std::sync::Arc;

/// The classes of a plan's tree, as the shared tree asks for them.
pub(super) struct PlanClasses {
    pub(super) classes: OrdMap<u32, Arc<PlanClass>>,
    pub(super) nodes: OrdMap<Key, Arc<PlanNode>>,
    pub(super) names: OrdMap<Key, NodeId>,
}

impl PlanClasses {
    /// The qdisc at `key`, below a class, with the qdiscs below it.
    fn at(&self, key: Key) -> Option<Below> {
        let PlanNode { config, level, children, .. } = self.nodes.get(&key)?.as_ref();
        let children = children.iter().map(|child| self.at(*child)).collect::<Option<_>>()?;
        Some(Below {
            id: *self.names.get(&key)?,
            config: Arc::clone(config),
            level: *level,
            children,
        })
    }

    fn present(&self, id: u32) -> Option<Class> {
        self.classes.get(&id).map(|class| class.class)
    }
}

impl Classes for PlanClasses {
    fn ids(&self) -> Box<dyn Iterator<Item = u32> + '_> {
        Box::new(self.classes.keys().copied())
    }

    fn class(&self, id: u32) -> Option<htb::Class> {
        self.present(id)?.htb().copied()
    }

    fn curves(&self, id: u32) -> Option<hfsc::Class> {
        self.present(id)?.hfsc().copied()
    }

    fn below(&self, id: u32) -> Option<Below> {
        self.at(self.classes.get(&id)?.leaf?)
    }
}
