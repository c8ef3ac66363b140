//! `tbf`: its parameters, and which of them nothing could pass.

use crate::{Node, PolicyError};
use narrows_coordination::Strategy;
use narrows_qdisc::tbf::Peak;
use narrows_units::{Bytes, Rate, wire::Overhead};

/// A token bucket filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tbf {
    /// Its parameters.
    pub params: TbfParams,
    /// The qdisc inside; without one a `bfifo` with the filter's own limit, which `show` does
    /// not list.
    pub inner: Option<Box<Node>>,
}

/// The parameters of a token bucket filter, as `tc` sends them: all at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TbfParams {
    /// The rate that is kept on average, in whole bytes per second as in the kernel.
    pub rate: Rate,
    /// How much may leave at once after a pause.
    pub burst: Bytes,
    /// How much may wait, over all queues that share the rate.
    pub limit: Bytes,
    /// A rate that not even the burst exceeds, and its bucket.
    pub peak: Option<Peak>,
    /// What a frame is charged.
    pub overhead: Overhead,
    /// How the queues divide the rate; `None` is the default one, or in a change what it
    /// was before.
    pub strategy: Option<Strategy>,
}

impl TbfParams {
    /// How the queues divide the rate.
    pub fn strategy(&self) -> Strategy {
        self.strategy.unwrap_or_default()
    }

    /// Refuses what no packet could pass, or what means nothing. `own_queue` is whether it stands
    /// below an `mq`.
    pub(crate) fn check(&self, own_queue: bool) -> Result<(), PolicyError> {
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
        if own_queue && self.strategy.is_some() {
            return Err(PolicyError::CoordinationUnderMq);
        }
        Ok(())
    }
}
