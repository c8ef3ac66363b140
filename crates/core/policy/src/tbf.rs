//! `tbf`: its parameters, and combinations that would pass no packet.

use crate::kind::{Classes, Rules, Site, Stamps, strategy};
use crate::plan::SharedLimit;
use crate::{Autorate, Fifo, FifoUnit, Fleet, Kind, Node, Params, Parent, PolicyError};
use narrows_coordination::{Limit, Strategy};
use narrows_qdisc::Config;
use narrows_qdisc::tbf::{self, Peak};
use narrows_units::{Bytes, Rate, wire::Overhead};

/// The parameters of a token bucket filter, as `tc` sends them: all at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TbfParams {
    /// The average rate, in whole bytes per second as in the kernel.
    pub rate: Rate,
    /// The burst.
    pub burst: Bytes,
    /// The limit of the backlog, over all queues that share the rate.
    pub limit: Bytes,
    /// A peak rate that not even the burst exceeds, and its bucket.
    pub peak: Option<Peak>,
    /// How a frame's length is counted.
    pub overhead: Overhead,
    /// How the queues divide the rate; `None` for the default, or in a change for the present
    /// value.
    pub strategy: Option<Strategy>,
    /// What makes the rate that of several boxes.
    pub fleet: Option<Box<Fleet>>,
    /// What makes the rate follow a line.
    pub autorate: Option<Box<Autorate>>,
}

impl TbfParams {
    /// How the queues divide the rate.
    pub fn strategy(&self) -> Strategy {
        self.strategy.unwrap_or_default()
    }

    /// Refuses parameters that would pass no packet or mean nothing. `own_queue` says whether it is
    /// below an `mq`, `parent` where it is.
    pub(crate) fn check(&self, own_queue: bool, parent: Parent) -> Result<(), PolicyError> {
        let refuse = |why: &str| Err(PolicyError::Tbf(why.to_owned()));
        if self.rate == Rate::default() {
            return refuse("a rate of 0 lets nothing pass: give a rate of at least 8bit.");
        }
        if self.burst == Bytes::ZERO {
            return refuse("a burst of 0 lets nothing pass: give at least one full frame.");
        }
        if let Some(peak) = self.peak {
            if peak.mtu == Bytes::ZERO {
                return refuse("an mtu of 0 lets nothing pass: give at least one full frame.");
            }
            if peak.rate <= self.rate {
                return refuse("peakrate must be above rate: leave it out, or raise it.");
            }
        }
        if let Some(fleet) = &self.fleet {
            fleet.check("rate", self.rate)?;
        }
        if let Some(autorate) = &self.autorate {
            let refuse = |why: &str| Err(PolicyError::Autorate(why.to_owned()));
            if self.fleet.is_some() {
                return refuse(
                    "a rate that follows a line is not a fleet's: leave out one of both.",
                );
            }
            if self.peak.is_some_and(|peak| peak.rate <= autorate.most) {
                return refuse(
                    "peakrate must be above the highest rate: leave it out, or raise it.",
                );
            }
            autorate.check("rate", self.rate, parent)?;
        }
        if own_queue && self.strategy.is_some() {
            return Err(PolicyError::CoordinationUnderMq);
        }
        Ok(())
    }
}

impl Rules for TbfParams {
    fn name(&self) -> &'static str {
        "tbf"
    }

    /// A `bfifo` with the filter's own limit, which `show` does not list.
    fn classes(&self) -> Classes {
        let limit = u32::try_from(self.limit.0).unwrap_or(u32::MAX);
        Classes::One(Some(Fifo { unit: FifoUnit::Bytes, limit }))
    }

    fn change(&mut self, params: &Params, site: &Site<'_>) -> Result<(), PolicyError> {
        let Params::Tbf(params) = params else { return Ok(()) };
        params.check(site.own_queue, site.parent)?;
        *self = Self { strategy: params.strategy.or(self.strategy), ..params.clone() };
        Ok(())
    }

    /// The child FIFO takes over the limit, in its own unit.
    fn changed_above(&self, child: &mut Node) {
        if let Kind::Fifo(fifo) = &mut child.kind {
            fifo.limit = u32::try_from(self.limit.0).unwrap_or(u32::MAX);
        }
    }

    fn stamps(&self) -> Stamps {
        if self.strategy == Some(Strategy::Edt) { Stamps::OnArrival } else { Stamps::Never }
    }

    fn plan(&self, queues: usize) -> (Config, Option<SharedLimit>) {
        let Self { rate, burst, limit, peak, overhead, .. } = *self;
        let config = Config::Tbf(tbf::Config { rate, burst, limit, peak, overhead });
        let limit = Limit { rate, burst, peak, backlog: limit };
        let strategy = strategy(self.strategy(), queues);
        (config, Some(SharedLimit { strategy, limit, counts_hosts: false }))
    }
}
