//! The target of commands.

use narrows_classify::{ActionId, ActionStats};
use narrows_policy::{NodeStats, Policy, PolicyError, PortFacts};

/// Makes a new policy of one.
pub type Editing<'a> = dyn FnMut(Policy) -> Result<Policy, PolicyError> + 'a;

/// An instance of Narrows, running or as a policy file.
pub trait Host {
    /// The ports, in the order in which `show` lists them.
    fn devices(&self) -> Vec<String>;

    /// The facts about port `dev` that a policy needs; `None` if there is no such port.
    fn port(&self, dev: &str) -> Option<PortFacts>;

    /// The port whose arriving packets leave through `dev` first, if that is an ifb and a port of
    /// its own: its qdiscs are in force there, without a filter that redirects.
    fn ifb_of(&self, _dev: &str) -> Option<String> {
        None
    }

    /// Whether the kernel has a network device of this name. A host without a kernel believes so.
    fn has_device(&self, _name: &str) -> bool {
        true
    }

    /// The present policy.
    fn policy(&self) -> Policy;

    /// Replaces the present policy with `policy`, as a whole or not at all.
    ///
    /// # Errors
    /// The reason, as a sentence for the operator. The present policy stays in force.
    fn apply(&mut self, policy: Policy) -> Result<(), String>;

    /// Replaces the present policy by what `edit` makes of it, as a whole or not at all. `edit`
    /// gets a copy. A host that reads a whole file may give away the policy itself, if nothing
    /// needs it after a failure: then no part of it is copied for the change.
    ///
    /// # Errors
    /// That of `edit`, or of [`Host::apply`]. The present policy stays in force.
    fn edit(&mut self, edit: &mut Editing<'_>) -> Result<(), String> {
        let next = edit(self.policy()).map_err(|error| crate::refusal(&error))?;
        self.apply(next)
    }

    /// Whether somebody reads the notes about what commands come to. False while a file is read.
    fn is_asked(&self) -> bool {
        true
    }

    /// Whether the kernel can be asked for addresses before network address translation, for `cake
    /// nat`. False for a host without such a kernel.
    fn looks_up_translations(&self) -> bool {
        false
    }

    /// The statistics of the actions of filters, over all ports. An action that is not listed has
    /// counted nothing.
    fn action_stats(&self) -> Vec<(ActionId, ActionStats)> {
        Vec::new()
    }

    /// The statistics of the qdiscs of port `dev`. A qdisc that is not listed has counted nothing,
    /// which is true of all qdiscs if nothing runs.
    fn stats(&self, _dev: &str) -> Vec<NodeStats> {
        Vec::new()
    }
}
