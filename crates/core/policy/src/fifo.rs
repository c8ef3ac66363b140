//! `pfifo` and `bfifo`, and their default limits.

use crate::kind::{Rules, Site, fifo_config};
use crate::plan::SharedLimit;
use crate::{Params, PolicyError, PortFacts};
use narrows_qdisc::Config;

/// `pfifo` or `bfifo`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fifo {
    /// The unit of the limit.
    pub unit: FifoUnit,
    /// The limit.
    pub limit: u32,
}

/// What a FIFO's limit counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FifoUnit {
    /// Packets: `pfifo`.
    Packets,
    /// Bytes of frames: `bfifo`.
    Bytes,
}

impl FifoUnit {
    /// The kind's name on the command line.
    pub fn kind_name(self) -> &'static str {
        match self {
            Self::Packets => "pfifo",
            Self::Bytes => "bfifo",
        }
    }
}

impl Fifo {
    /// A FIFO with the port's queue length as its limit.
    pub(crate) fn new(unit: FifoUnit, facts: &PortFacts) -> Self {
        let limit = match unit {
            FifoUnit::Packets => facts.tx_queue_len,
            FifoUnit::Bytes => facts.tx_queue_len.saturating_mul(facts.frame()),
        };
        Self { unit, limit }
    }
}

impl Rules for Fifo {
    fn name(&self) -> &'static str {
        self.unit.kind_name()
    }

    fn change(&mut self, params: &Params, _: &Site<'_>) -> Result<(), PolicyError> {
        if let Params::Fifo(_, Some(limit)) = params {
            self.limit = *limit;
        }
        Ok(())
    }

    fn plan(&self, _: usize) -> (Config, Option<SharedLimit>) {
        (fifo_config(self), None)
    }
}
