//! `carousel`, `eiffel`, `flowbundler`: defaults, and refused places.
//!
//! As with `cake`, a command sets only what it names: a new qdisc starts from the defaults, a
//! changed one from its present parameters.
//!
//! A pacing qdisc writes a packet's departure time into it on arrival. So does a `tbf` whose queues
//! are coordinated by `edt`. A packet has room for one of the two times, so neither may be below
//! the other.
//!
//! *Non-goals.* The meaning of the parameters: see `narrows_qdisc::pacing`.

use crate::kind::{Rules, Site, Stamps};
use crate::plan::SharedLimit;
use crate::{Node, Params, PolicyError, PortPolicy};
use narrows_qdisc::pacing::{Beyond, Codel, Config, Key};
use narrows_units::{Nanos, Rate};

/// The options that a command names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacingOptions {
    /// The rate of each flow; zero is none.
    pub maxrate: Option<Rate>,
    /// `flows`, `hosts`
    pub key: Option<Key>,
    /// `hostrate`, `flowrate`: whose, and the rate; zero is none.
    pub beside: Option<(Key, Rate)>,
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
    /// `codel` and its options, `nocodel`
    pub codel: Option<CodelOptions>,
}

/// The queue management that a command names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CodelOptions {
    /// None.
    Off,
    /// CoDel, with these changes to its present or default parameters.
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
    /// `before`, with these changes.
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
    /// `before`, with these changes, for frames of up to `frame` bytes.
    fn on(&self, before: Config, frame: u32) -> Config {
        let rate = self.maxrate.map(|rate| Some(rate).filter(|rate| !rate.is_zero()));
        Config {
            maxrate: rate.unwrap_or(before.maxrate),
            key: self.key.unwrap_or(before.key),
            beside: match self.beside {
                Some((_, rate)) => Some(rate).filter(|rate| !rate.is_zero()),
                // It was the rate of what is a flow now.
                None if self.key.is_some_and(|key| key != before.key) => None,
                None => before.beside,
            },
            apart: self.apart.unwrap_or(before.apart),
            safeguard: self.safeguard.unwrap_or(before.safeguard),
            limit: self.limit.unwrap_or(before.limit),
            flow_limit: self.flow_limit.unwrap_or(before.flow_limit),
            horizon: self.horizon.unwrap_or(before.horizon),
            beyond: self.beyond.unwrap_or(before.beyond),
            granularity: self.granularity.unwrap_or(before.granularity),
            slots: self.slots.unwrap_or(before.slots),
            codel: self.codel.map_or(before.codel, |codel| codel.on(before.codel)),
            frame,
            ..before
        }
    }
}

impl Rules for Config {
    fn name(&self) -> &'static str {
        self.structure.name()
    }

    fn change(&mut self, params: &Params, site: &Site<'_>) -> Result<(), PolicyError> {
        if let Params::Pacing { options, .. } = params {
            *self = options.on(*self, site.facts.frame());
            if let Some((of, _)) = options.beside.filter(|(of, _)| *of == self.key) {
                return Err(PolicyError::RatedTwice { are_hosts: of == Key::Hosts });
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), PolicyError> {
        let Self { apart, safeguard, codel: Some(codel), .. } = self else { return Ok(()) };
        if *apart == Key::Hosts || *safeguard {
            return Err(PolicyError::CodelApart);
        }
        if self.beside.is_some() {
            return Err(PolicyError::CodelBeside);
        }
        if codel.target > codel.interval {
            return Err(PolicyError::CodelTarget {
                target: codel.target,
                interval: codel.interval,
            });
        }
        Ok(())
    }

    fn stamps(&self) -> Stamps {
        Stamps::Relies
    }

    fn plan(&self, _: usize) -> (narrows_qdisc::Config, Option<SharedLimit>) {
        (narrows_qdisc::Config::Pacing(*self), None)
    }
}

/// Checks `node` of `port`, which is new or has changed: its parameters must not contradict each
/// other, and no two qdiscs may write departure times into the same packet.
pub(crate) fn check(port: &PortPolicy, node: &Node) -> Result<(), PolicyError> {
    node.kind.rules().check()?;
    let stamps = |node: &Node| node.kind.rules().stamps();
    let twice = |above: &Node, below: &Node| {
        Err(PolicyError::StampedTwice { above: above.handle, kind: below.kind.name() })
    };
    match stamps(node) {
        Stamps::Never => Ok(()),
        Stamps::Relies => {
            let above = port.upwards(node).find(|above| stamps(above) == Stamps::OnArrival);
            above.map_or(Ok(()), |above| twice(above, node))
        }
        Stamps::OnArrival => {
            let below = port.below(node).into_iter().find(|below| stamps(below) == Stamps::Relies);
            below.map_or(Ok(()), |below| twice(node, below))
        }
    }
}
