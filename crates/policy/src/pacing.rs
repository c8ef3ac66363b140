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

use crate::kind::{Rules, Site, Stamps};
use crate::plan::SharedLimit;
use crate::{Node, Params, PolicyError, PortPolicy};
use narrows_qdisc::pacing::{Beyond, Codel, Config, Key};
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
    /// `before` with what is named here, on a port with frames of up to `frame` bytes.
    fn on(&self, before: Config, frame: u32) -> Config {
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
        }
        Ok(())
    }

    fn check(&self) -> Result<(), PolicyError> {
        let Self { apart, safeguard, codel: Some(codel), .. } = self else { return Ok(()) };
        if *apart == Key::Hosts || *safeguard {
            return Err(PolicyError::CodelApart);
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

/// Refuses `node` of `port`, which is new or has changed, where its parameters do not go together,
/// or two qdiscs would stamp the same packet.
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
