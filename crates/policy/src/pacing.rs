//! `carousel`, `eiffel`, `flowbundler`: what an operator may leave out, and where they cannot
//! stand.
//!
//! As with `cake` a command sets what it names and nothing else: a new one starts from the
//! defaults, a changed one from what it was.
//!
//! A pacing qdisc writes a packet's departure time into it on arrival, and so does a `tbf` whose
//! queues are coordinated by `edt`. Only one of the two times could hold, so neither stands below
//! the other.
//!
//! *Non-goals.* What the parameters do is `narrows_qdisc::pacing`'s.

use crate::{Kind, Node, PolicyError, PortFacts, PortPolicy};
use narrows_coordination::Strategy;
use narrows_qdisc::pacing::{Beyond, Codel, Config, Key, Structure};
use narrows_units::{Nanos, Rate};

/// What a command names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacingOptions {
    /// The rate of each flow; zero is none.
    pub maxrate: Option<Rate>,
    /// `flows`, `hosts`
    pub key: Option<Key>,
    /// `apart flows`, `apart hosts`
    pub apart: Option<Key>,
    /// `safeguard`, `nosafeguard`
    pub safeguard: Option<bool>,
    /// `limit`
    pub limit: Option<u32>,
    /// `flow_limit`
    pub flow_limit: Option<u32>,
    /// `horizon`
    pub horizon: Option<Nanos>,
    /// `horizon_drop`, `horizon_cap`
    pub beyond: Option<Beyond>,
    /// `granularity`
    pub granularity: Option<Nanos>,
    /// `slots`
    pub slots: Option<u32>,
    /// `codel` and its words, `nocodel`
    pub codel: Option<CodelOptions>,
}

/// What a command names of queue management.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CodelOptions {
    /// There is none.
    Off,
    /// There is, as it was or by default but for this.
    On {
        /// `target`
        target: Option<Nanos>,
        /// `interval`
        interval: Option<Nanos>,
        /// `ecn`, `noecn`
        ecn: Option<bool>,
    },
}

impl CodelOptions {
    /// `before` with what is named here.
    fn on(self, before: Option<Codel>) -> Option<Codel> {
        let Self::On { target, interval, ecn } = self else { return None };
        let before = before.unwrap_or_default();
        Some(Codel {
            target: target.unwrap_or(before.target),
            interval: interval.unwrap_or(before.interval),
            ecn: ecn.unwrap_or(before.ecn),
        })
    }
}

impl PacingOptions {
    /// A new qdisc on the port of `facts`.
    pub(crate) fn alone(&self, structure: Structure, facts: &PortFacts) -> Config {
        self.on(Config::new(structure, facts.frame()), facts)
    }

    /// `before` with what is named here.
    pub(crate) fn on(&self, before: Config, facts: &PortFacts) -> Config {
        let rate = self.maxrate.map(|rate| Some(rate).filter(|rate| !rate.is_zero()));
        Config {
            maxrate: rate.unwrap_or(before.maxrate),
            key: self.key.unwrap_or(before.key),
            apart: self.apart.unwrap_or(before.apart),
            safeguard: self.safeguard.unwrap_or(before.safeguard),
            limit: self.limit.unwrap_or(before.limit),
            flow_limit: self.flow_limit.unwrap_or(before.flow_limit),
            horizon: self.horizon.unwrap_or(before.horizon),
            beyond: self.beyond.unwrap_or(before.beyond),
            granularity: self.granularity.unwrap_or(before.granularity),
            slots: self.slots.unwrap_or(before.slots),
            codel: self.codel.map_or(before.codel, |codel| codel.on(before.codel)),
            frame: facts.frame(),
            ..before
        }
    }
}

/// Refuses a tree in which two qdiscs stamp the same packet, and parameters that do not go
/// together.
pub(crate) fn check(port: &PortPolicy) -> Result<(), PolicyError> {
    for node in port.nodes() {
        let Kind::Pacing(Config { apart, safeguard, codel: Some(codel), .. }) = node.kind else {
            continue;
        };
        if apart == Key::Hosts || safeguard {
            return Err(PolicyError::CodelApart);
        }
        if codel.target > codel.interval {
            return Err(PolicyError::CodelTarget {
                target: codel.target,
                interval: codel.interval,
            });
        }
    }
    let stamps = |node: &&Node| matches!(&node.kind, Kind::Tbf(tbf) if tbf.params.strategy == Some(Strategy::Edt));
    for above in port.nodes().into_iter().filter(stamps) {
        let mut below = Vec::new();
        above.collect(&mut below);
        if let Some(node) = below.into_iter().find(|node| matches!(node.kind, Kind::Pacing(_))) {
            return Err(PolicyError::StampedTwice { above: above.handle, kind: node.kind.name() });
        }
    }
    Ok(())
}
