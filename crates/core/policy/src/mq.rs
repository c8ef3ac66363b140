//! `mq`: an independent qdisc for each queue of the port.

use crate::kind::{Classes, Rules, Site};
use crate::plan::SharedLimit;
use crate::{Params, Parent, PolicyError};
use narrows_qdisc::Config;

/// Its rules; it has no parameters.
pub(crate) struct Mq;

impl Rules for Mq {
    fn name(&self) -> &'static str {
        "mq"
    }

    fn classes(&self) -> Classes {
        Classes::Queues
    }

    fn change(&mut self, _: &Params, site: &Site<'_>) -> Result<(), PolicyError> {
        match (site.parent, site.facts.queues) {
            (Parent::Class(_), _) => Err(PolicyError::MqNotRoot),
            (Parent::Root, Some(0 | 1)) => Err(PolicyError::MqNeedsQueues),
            (Parent::Root, _) => Ok(()),
        }
    }

    /// It is at the root only; a queue runs the child.
    fn plan(&self, _: usize) -> (Config, Option<SharedLimit>) {
        (Config::Noqueue, None)
    }
}
