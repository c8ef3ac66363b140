//! A tree of classes with service curves.

use crate::Classes;
use narrows_qdisc::htb;
use std::sync::Arc;

/// See the module's documentation.
#[derive(Default)]
pub struct Tree;

impl Tree {
    /// Applies `classes`.
    pub fn replace(&self, _classes: Arc<dyn Classes>) {
        unimplemented!()
    }

    /// The scheduler of one queue.
    pub fn scheduler(self: &Arc<Self>) -> Box<dyn htb::Scheduler> {
        unimplemented!()
    }
}
