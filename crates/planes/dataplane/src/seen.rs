//! An instance as it was at one moment, as the host of `tc` commands that only show it, on any
//! thread.

use narrows_classify::{ActionId, ActionStats};
use narrows_forwarding::{Forwarding, PerPort, PortId};
use narrows_policy::{NodeStats, Policy, PortFacts};
use narrows_tc::Host;

/// An instance as it was at one moment: the host of `tc` commands that only show.
pub(crate) struct Seen {
    /// Its ports.
    pub(crate) ports: Forwarding,
    /// The facts about each that a policy depends on; none of a port that is away.
    pub(crate) facts: PerPort<Option<PortFacts>>,
    /// The policy in force.
    pub(crate) policy: Policy,
    /// The figures of each port's qdiscs.
    pub(crate) stats: PerPort<Vec<NodeStats>>,
    /// The counters of filters' actions.
    pub(crate) actions: Vec<(ActionId, ActionStats)>,
    /// Whether qdiscs can get addresses before translation.
    pub(crate) looks_up: bool,
}

impl Seen {
    fn id(&self, dev: &str) -> Option<PortId> {
        self.ports.port(dev)
    }
}

impl Host for Seen {
    fn devices(&self) -> Vec<String> {
        self.ports.names().to_vec()
    }

    fn ifb_of(&self, dev: &str) -> Option<String> {
        self.ports.arriving_through(dev).map(str::to_owned)
    }

    fn port(&self, dev: &str) -> Option<PortFacts> {
        self.facts[self.id(dev)?]
    }

    fn policy(&self) -> Policy {
        self.policy.clone()
    }

    /// Nothing runs here.
    fn apply(&mut self, _: Policy) -> Result<(), String> {
        Err("this command only shows".to_owned())
    }

    fn looks_up_translations(&self) -> bool {
        self.looks_up
    }

    fn action_stats(&self) -> Vec<(ActionId, ActionStats)> {
        self.actions.clone()
    }

    fn stats(&self, dev: &str) -> Vec<NodeStats> {
        self.id(dev).map(|port| self.stats[port].clone()).unwrap_or_default()
    }
}
