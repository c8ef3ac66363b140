//! A running instance as the host of `tc` commands.
//!
//! [`Commands`] is the host of a single command or of a slice of a batch: facts about devices are
//! asked once, and the changes of a slice may be put in force together. For commands that only show
//! an instance there is [`Seen`](crate::seen::Seen).

use crate::instance::Instance;
use narrows_classify::{ActionId, ActionStats};
use narrows_forwarding::{Forwarding, PerPort, PortId};
use narrows_policy::{NodeStats, Policy, PortFacts};
use narrows_tc::Host;
use std::cell::{Cell, OnceCell, RefCell};

/// The host of a `tc` command or of a slice of a batch, on a running instance.
pub(crate) struct Commands<'a> {
    instance: RefCell<&'a mut Instance>,
    ports: Forwarding,
    facts: PerPort<OnceCell<Option<PortFacts>>>,
    /// What commands have made of the policy and is not in force yet.
    draft: RefCell<Option<Policy>>,
    /// Whether changes wait for [`Commands::settle`].
    waits: bool,
    /// Whether a change that had waited was refused.
    has_failed: Cell<bool>,
}

impl<'a> Commands<'a> {
    /// Each change is in force at once.
    pub(crate) fn at_once(instance: &'a mut Instance) -> Self {
        Self {
            facts: instance.forwarding().ids().map(|_| OnceCell::new()).collect(),
            ports: instance.forwarding().clone(),
            instance: RefCell::new(instance),
            draft: RefCell::new(None),
            waits: false,
            has_failed: Cell::new(false),
        }
    }

    /// Changes are in force once they are settled.
    pub(crate) fn together(instance: &'a mut Instance) -> Self {
        Self { waits: true, ..Self::at_once(instance) }
    }

    /// Puts what waits in force. False if any of it was refused, now or before: what had been
    /// settled before stays in force, and nothing else.
    pub(crate) fn settle(&self) -> bool {
        if let Some(policy) = self.draft.take()
            && self.instance.borrow_mut().apply(policy).is_err()
        {
            self.has_failed.set(true);
        }
        !self.has_failed.get()
    }

    fn id(&self, dev: &str) -> Option<PortId> {
        self.ports.port(dev)
    }
}

impl Host for Commands<'_> {
    fn devices(&self) -> Vec<String> {
        self.ports.names().to_vec()
    }

    fn ifb_of(&self, dev: &str) -> Option<String> {
        self.ports.arriving_through(dev).map(str::to_owned)
    }

    fn port(&self, dev: &str) -> Option<PortFacts> {
        let port = self.id(dev)?;
        *self.facts[port].get_or_init(|| self.instance.borrow().facts_of(port))
    }

    fn has_device(&self, name: &str) -> bool {
        narrows_link::Link::by_name(name).is_ok()
    }

    fn policy(&self) -> Policy {
        let draft = self.draft.borrow().clone();
        draft.unwrap_or_else(|| self.instance.borrow().policy().clone())
    }

    fn apply(&mut self, policy: Policy) -> Result<(), String> {
        if self.waits {
            *self.draft.get_mut() = Some(policy);
            return Ok(());
        }
        self.instance.get_mut().apply(policy).map_err(|error| error.to_string())
    }

    fn looks_up_translations(&self) -> bool {
        self.instance.borrow().can_look_up()
    }

    fn action_stats(&self) -> Vec<(ActionId, ActionStats)> {
        self.settle();
        self.instance.borrow().action_stats()
    }

    fn stats(&self, dev: &str) -> Vec<NodeStats> {
        self.settle();
        self.id(dev).map(|port| self.instance.borrow().qdisc_stats(port)).unwrap_or_default()
    }
}
