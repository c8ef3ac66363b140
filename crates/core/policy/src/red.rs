//! `red`: parameters that exclude each other, and its child.
//!
//! As in the kernel (`red_change()`), a command sets everything: what it does not name gets its
//! default. The child is a `bfifo` with the limit of the `red`; another one that the operator put
//! there stays when the `red` is changed.
//!
//! *Non-goals.* The meaning of the parameters: see `narrows_qdisc::red`.

use crate::kind::{Classes, Rules, Site};
use crate::plan::SharedLimit;
use crate::{Fifo, FifoUnit, Params, PolicyError};
use narrows_qdisc::red::{Config, Unfit};

impl Rules for Config {
    fn name(&self) -> &'static str {
        "red"
    }

    fn classes(&self) -> Classes {
        Classes::One(Some(Fifo { unit: FifoUnit::Bytes, limit: self.limit }))
    }

    fn change(&mut self, params: &Params, _: &Site<'_>) -> Result<(), PolicyError> {
        let Params::Red(config) = params else { return Ok(()) };
        let refuse = |why: &str| Err(PolicyError::Leaf { kind: "red", why: why.to_owned() });
        if config.nodrop && !config.ecn {
            return refuse("nodrop mode is only meaningful with ECN: give ecn, too.");
        }
        match config.check() {
            Ok(()) => {
                *self = **config;
                Ok(())
            }
            Err(Unfit::Order) => refuse("max is below min: give a max above it."),
            Err(Unfit::Threshold) => {
                refuse("min or max is too large for so long an average: give less burst.")
            }
            Err(_) => refuse("no average fits these parameters: give another burst or avpkt."),
        }
    }

    fn plan(&self, _: usize) -> (narrows_qdisc::Config, Option<SharedLimit>) {
        (narrows_qdisc::Config::Red(*self), None)
    }
}
