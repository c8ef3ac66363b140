//! Flows that end, and others that begin elsewhere.
//!
//! *Idea.* If each of `n` flows ends after an exponential time of mean `lifetime`, some flow ends
//! after an exponential time of mean `lifetime / n`, and each flow is equally likely. So one short
//! random chain describes it, and each queue follows it independently.
//!
//! *Principles.* The number of flows is constant. A flow that begins has the number of the one that
//! ended, on a random queue.

use crate::traffic::pace::Fine;
use crate::traffic::seed::{Purpose, exponential, generator};
use crate::traffic::spread::Placing;
use narrows_units::Nanos;
use rand::RngExt;
use rand_pcg::Pcg64;

/// The chain.
pub(crate) struct Churn {
    chance: Pcg64,
    at: Fine,
    mean_nanos: f64,
}

impl Churn {
    /// Of flows that begin at `start` and last for `lifetime` on average.
    pub(crate) fn new(placing: &Placing, start: Nanos, lifetime: Nanos) -> Self {
        let mut churn = Self {
            chance: generator(placing.seed, placing.group, Purpose::Churn, 0),
            at: start.into(),
            mean_nanos: lifetime.0 as f64 / f64::from(placing.flows),
        };
        churn.pass();
        churn
    }

    /// When the next flow ends.
    pub(crate) fn at(&self) -> Nanos {
        self.at.nanos()
    }

    /// Which one ends (by number in its group), and on which queue another begins.
    pub(crate) fn take(&mut self, placing: &Placing) -> (u32, u16) {
        let flow = self.chance.random_range(0..placing.flows);
        let queue = placing.any_queue(&mut self.chance);
        self.pass();
        (flow, queue)
    }

    fn pass(&mut self) {
        let wait = exponential(&mut self.chance) * self.mean_nanos;
        self.at = self.at.plus(Fine::from_nanos_f64(wait));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::Spread;

    #[test]
    fn as_many_flows_end_as_their_lifetime_says() {
        let placing = Placing { seed: 1, group: 0, flows: 50, queues: 8, spread: Spread::Hash };
        let mut churn = Churn::new(&placing, Nanos::ZERO, Nanos::from_millis(10));
        let mut ended = 0;
        while churn.at() < Nanos::from_secs(2) {
            let (flow, queue) = churn.take(&placing);
            assert!(flow < 50 && queue < 8);
            ended += 1;
        }
        assert!((9_700..10_300).contains(&ended), "{ended} of 10000");
    }
}
