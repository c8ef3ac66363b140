//! The limit of a whole port: that of its root, for what leaves beside its queues.

use super::{Key, Plan, PlanNode};
use crate::Handle;
use narrows_coordination::{TreeKind, TreeStrategy, topmost};
use narrows_qdisc::Config;
use narrows_units::{Rate, wire::Overhead};

/// What all that leaves through a port keeps to together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortLimit {
    /// The rate.
    pub rate: Rate,
    /// How it counts frames. What is charged beside the queues has no size table.
    pub overhead: Overhead,
}

impl Plan {
    /// The limit that queues charge with what leaves beside them
    /// ([`Qdisc::owe`](narrows_qdisc::Qdisc::owe)): that of a `tbf`, `cake` or `cake_mq` at the
    /// root, or of the topmost class of an `htb` that answers for its default class. `None` if
    /// there is none: other kinds have no limit of the whole port, or, as `hfsc` and FlowValve,
    /// none that can be charged.
    pub fn port_limit(&self) -> Option<PortLimit> {
        let limits = self.roots.iter().map(|root| self.limit_at(*root));
        let (one, shared) = limits.reduce(|one, other| if one == other { one } else { None })??;
        // Below an `mq` each queue has one of its own.
        (self.above.is_none() || shared.is_some()).then_some(one)
    }

    /// The limit of the qdisc `key`, and the handle under which queues share it.
    fn limit_at(&self, key: Key) -> Option<(PortLimit, Option<Handle>)> {
        let PlanNode { config, limit, children, .. } = self.nodes.get(&key)?.as_ref();
        let (rate, overhead) = match config.as_ref() {
            Config::Stab(_) => return self.limit_at(*children.first()?),
            Config::Tbf(tbf) => (tbf.rate, tbf.overhead),
            Config::Cake(cake) => (cake.rate?, cake.overhead),
            Config::Htb(htb) => {
                let handle = key.handle?;
                let kind = self.trees.get(&handle)?;
                if !matches!(kind, TreeKind::Htb(TreeStrategy::Fair | TreeStrategy::Lock)) {
                    return None;
                }
                let classes = self.classes.get(&handle)?;
                let class = |id: u32| classes.get(&id)?.class.htb().copied();
                let parent = |id: u32| class(id).map(|class| class.parent);
                let top = class(topmost(htb.default, classes.keys().copied(), parent)?)?;
                (top.ceil.max(top.rate), top.overhead)
            }
            _ => return None,
        };
        Some((PortLimit { rate, overhead }, *limit))
    }
}
