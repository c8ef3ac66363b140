//! What the commands act upon.

use narrows_classify::{ActionId, ActionStats};
use narrows_policy::{NodeStats, Policy, PortFacts};

/// An instance of Narrows, running or on paper.
pub trait Host {
    /// The ports, in the order in which `show` lists them.
    fn devices(&self) -> Vec<String>;

    /// What a policy needs to know of port `dev`, or `None` where there is no such port.
    fn port(&self, dev: &str) -> Option<PortFacts>;

    /// The present policy.
    fn policy(&self) -> Policy;

    /// Puts `policy` in the place of the present one, as a whole or not at all.
    ///
    /// # Errors
    /// Why it cannot be, as a sentence for the operator; the present one is still in force.
    fn apply(&mut self, policy: Policy) -> Result<(), String>;

    /// Whether the kernel can be asked, as of now, what addresses were before network address
    /// translation, for `cake nat`. A host that has no such kernel cannot.
    fn looks_up_translations(&self) -> bool {
        false
    }

    /// What the actions of filters have done, at all ports together. What is not listed has done
    /// nothing.
    fn action_stats(&self) -> Vec<(ActionId, ActionStats)> {
        Vec::new()
    }

    /// The figures of the qdiscs of port `dev`. What is not listed has done nothing, as all of them
    /// where nothing runs.
    fn stats(&self, _dev: &str) -> Vec<NodeStats> {
        Vec::new()
    }
}
