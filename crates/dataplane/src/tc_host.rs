//! A running instance as the host of `tc` commands.

use crate::instance::Instance;
use narrows_classify::{ActionId, ActionStats};
use narrows_link::Link;
use narrows_policy::{NodeStats, Policy, PortFacts};
use narrows_tc::Host;

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

impl Host for Instance {
    fn devices(&self) -> Vec<String> {
        self.ports().to_vec()
    }

    fn port(&self, dev: &str) -> Option<PortFacts> {
        self.side(dev)?;
        // A port that is away keeps its policy, but there is nothing to set.
        let link = Link::by_name(dev).ok()?;
        Some(port_facts(&link, self.queues()))
    }

    fn policy(&self) -> Policy {
        self.policy().clone()
    }

    fn apply(&mut self, policy: Policy) -> Result<(), String> {
        self.apply(policy).map_err(|error| error.to_string())
    }

    fn looks_up_translations(&self) -> bool {
        self.can_look_up()
    }

    fn action_stats(&self) -> Vec<(ActionId, ActionStats)> {
        self.action_stats()
    }

    fn stats(&self, dev: &str) -> Vec<NodeStats> {
        self.side(dev).map(|side| self.qdisc_stats(side)).unwrap_or_default()
    }
}
