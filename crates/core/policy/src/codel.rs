//! `codel`: defaults, and the effect of a change.
//!
//! As in the kernel (`codel_change()`), a command sets only what it names. Every queue of a port
//! runs an instance of its own with these limits, as under `mq` in Linux.
//!
//! *Non-goals.* The meaning of the parameters: see `narrows_qdisc::codel`.

use crate::kind::{Rules, Site};
use crate::plan::SharedLimit;
use crate::{Params, PolicyError};
use narrows_qdisc::codel::Config;
use narrows_units::Nanos;

/// The options that a command names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CodelQueueOptions {
    /// `limit`
    pub limit: Option<u32>,
    /// `target`
    pub target: Option<Nanos>,
    /// `interval`
    pub interval: Option<Nanos>,
    /// `ecn`, `noecn`
    pub ecn: Option<bool>,
    /// `ce_threshold`; [`CodelQueueOptions::NEVER`] disables it.
    pub ce_threshold: Option<Nanos>,
}

impl CodelQueueOptions {
    /// The `ce_threshold` that marks nothing: as in the kernel, the largest value.
    pub const NEVER: Nanos = Nanos::from_micros(u32::MAX as u64);
}

impl Rules for Config {
    fn name(&self) -> &'static str {
        "codel"
    }

    fn change(&mut self, params: &Params, site: &Site<'_>) -> Result<(), PolicyError> {
        let Params::Codel(options) = params else { return Ok(()) };
        let threshold = options
            .ce_threshold
            .map(|time| Some(time).filter(|time| *time != CodelQueueOptions::NEVER));
        *self = Self {
            limit: options.limit.unwrap_or(self.limit),
            target: options.target.unwrap_or(self.target),
            interval: options.interval.unwrap_or(self.interval),
            ecn: options.ecn.unwrap_or(self.ecn),
            ce_threshold: threshold.unwrap_or(self.ce_threshold),
            frame: site.facts.frame(),
        };
        Ok(())
    }

    fn plan(&self, _: usize) -> (narrows_qdisc::Config, Option<SharedLimit>) {
        (narrows_qdisc::Config::Codel(*self), None)
    }
}
