//! `netem`: parameters that exclude each other, and the scope of its rate.
//!
//! As in the kernel (`netem_change()`), a command sets everything: what it does not name gets its
//! default. At the root, the rate is the port's, and the queues share it as those of a `tbf` do. It
//! may have one child, which packets enter after their delay.
//!
//! *Non-goals.* The meaning of the parameters: see `narrows_qdisc::netem`.

use crate::kind::{Classes, Rules, Site, Stamps, strategy};
use crate::plan::SharedLimit;
use crate::{Params, PolicyError};
use narrows_coordination::{Limit, Strategy};
use narrows_qdisc::netem::Config;
use narrows_units::Bytes;

impl Rules for Config {
    fn name(&self) -> &'static str {
        "netem"
    }

    fn change(&mut self, params: &Params, site: &Site<'_>) -> Result<(), PolicyError> {
        let Params::Netem(config) = params else { return Ok(()) };
        *self = Self { frame: site.facts.frame(), ..*config };
        Ok(())
    }

    /// Without a child, packets that have been under way go on at once.
    fn classes(&self) -> Classes {
        Classes::One(None)
    }

    /// It stores its own times in the packets.
    fn stamps(&self) -> Stamps {
        Stamps::Relies
    }

    fn plan(&self, queues: usize) -> (narrows_qdisc::Config, Option<SharedLimit>) {
        let limit = self.rate.filter(|_| queues > 1).map(|rate| {
            let shape = rate.shape(self.frame);
            let backlog = Bytes(u64::from(self.limit) * u64::from(self.frame));
            let limit = Limit { rate: shape.rate, burst: shape.burst, peak: None, backlog };
            let strategy = strategy(Strategy::default(), queues);
            SharedLimit { strategy, limit, counts_hosts: false }
        });
        (narrows_qdisc::Config::Netem(*self), limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_qdisc::netem::RateLimit;
    use narrows_units::Rate;

    #[test]
    fn a_rate_is_shared_by_all_queues_and_a_delay_by_none() {
        let rate = Rate::from_bits_per_sec(10_000_000);
        let limit = RateLimit { rate, overhead: 0, cell: 0, cell_overhead: 0 };
        let config = Config { rate: Some(limit), ..Config::default() };
        let shared = config.plan(4).1.unwrap();
        assert_eq!((shared.limit.rate, shared.strategy), (rate, Strategy::default()));
        assert_eq!(config.plan(1).1, None);
        assert_eq!(Config { rate: None, ..config }.plan(4).1, None);
    }
}
