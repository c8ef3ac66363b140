//! An instance as it was at one moment, as the host of `tc` commands that only show it, on any
//! thread.

use narrows_classify::{ActionId, ActionStats};
use narrows_policy::{NodeStats, Policy, PortFacts};
use narrows_tc::Host;

/// An instance as it was at one moment: the host of `tc` commands that only show.
pub(crate) struct Seen {
    /// The names of its ports.
    pub(crate) ports: [String; 2],
    /// The facts about each that a policy depends on; none of a port that is away.
    pub(crate) facts: [Option<PortFacts>; 2],
    /// The policy in force.
    pub(crate) policy: Policy,
    /// The figures of each port's qdiscs.
    pub(crate) stats: [Vec<NodeStats>; 2],
    /// The counters of filters' actions.
    pub(crate) actions: Vec<(ActionId, ActionStats)>,
    /// Whether qdiscs can get addresses before translation.
    pub(crate) looks_up: bool,
}

impl Seen {
    fn index(&self, dev: &str) -> Option<usize> {
        self.ports.iter().position(|port| port == dev)
    }
}

impl Host for Seen {
    fn devices(&self) -> Vec<String> {
        self.ports.to_vec()
    }

    fn port(&self, dev: &str) -> Option<PortFacts> {
        self.facts[self.index(dev)?]
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
        self.index(dev).map(|index| self.stats[index].clone()).unwrap_or_default()
    }
}
