//! A running instance as the host of `tc` commands.
//!
//! [`Commands`] is the host of a single command or of a slice of a batch: facts about devices are
//! asked once, and the changes of a slice may be put in force together. [`Seen`] is an instance as
//! it was at one moment, for commands that only show it, on any thread.

use crate::instance::Instance;
use narrows_classify::{ActionId, ActionStats};
use narrows_link::Link;
use narrows_policy::{NodeStats, Policy, PortFacts};
use narrows_shaper::Side;
use narrows_tc::Host;
use std::cell::{Cell, OnceCell, RefCell};

/// The properties of a port that a policy depends on, with `queues` queues, or as many as it has.
pub(crate) fn port_facts(link: &Link, queues: Option<usize>) -> PortFacts {
    let queues = queues.map_or(link.queues.now.pairs(), |queues| queues as u32);
    PortFacts {
        queues: u16::try_from(queues).ok(),
        mtu: link.status.mtu,
        // As in the kernel: a queue length of 0 would be an empty queue.
        tx_queue_len: match link.status.tx_queue_len {
            0 => PortFacts::ETHERNET.tx_queue_len,
            length => length,
        },
    }
}

impl Instance {
    /// The facts about the port of `side` now.
    fn facts_of(&self, side: Side) -> Option<PortFacts> {
        // A port that is away keeps its policy, but there is nothing to set.
        let link = Link::by_name(&self.ports()[side.index()]).ok()?;
        Some(port_facts(&link, self.queues()))
    }

    /// The instance as it is now, `with_figures` or without.
    pub(crate) fn see(&self, with_figures: bool) -> Seen {
        Seen {
            ports: self.ports().clone(),
            facts: Side::BOTH.map(|side| self.facts_of(side)),
            policy: self.policy().clone(),
            stats: Side::BOTH.map(|side| match with_figures {
                true => self.qdisc_stats(side),
                false => Vec::new(),
            }),
            actions: if with_figures { self.action_stats() } else { Vec::new() },
            looks_up: self.can_look_up(),
        }
    }
}

/// See the module's documentation.
pub(crate) struct Commands<'a> {
    instance: RefCell<&'a mut Instance>,
    ports: [String; 2],
    facts: [OnceCell<Option<PortFacts>>; 2],
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
            ports: instance.ports().clone(),
            instance: RefCell::new(instance),
            facts: Default::default(),
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

    fn side(&self, dev: &str) -> Option<Side> {
        Side::BOTH.into_iter().find(|side| self.ports[side.index()] == dev)
    }
}

impl Host for Commands<'_> {
    fn devices(&self) -> Vec<String> {
        self.ports.to_vec()
    }

    fn port(&self, dev: &str) -> Option<PortFacts> {
        let side = self.side(dev)?;
        *self.facts[side.index()].get_or_init(|| self.instance.borrow().facts_of(side))
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
        self.side(dev).map(|side| self.instance.borrow().qdisc_stats(side)).unwrap_or_default()
    }
}

/// See the module's documentation.
pub(crate) struct Seen {
    ports: [String; 2],
    facts: [Option<PortFacts>; 2],
    policy: Policy,
    stats: [Vec<NodeStats>; 2],
    actions: Vec<(ActionId, ActionStats)>,
    looks_up: bool,
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
