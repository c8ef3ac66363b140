//! How good a class is right now, in steps of one scale (`docs/page-design.md`).
//!
//! The scale is of what happens here: the delay in Narrows and the packets dropped in it. So it is
//! known wherever a packet leaves, also without round trips, and says whether this box is to blame.
//! What the whole path is good for is [`crate::score`].

use serde::Serialize;

/// A step of the scale. The larger, the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// No packet left, so nobody noticed anything.
    Idle,
    /// Nobody notices.
    Good,
    /// Games and calls suffer now and then.
    Fair,
    /// Calls stutter.
    Poor,
    /// Calls are hardly possible.
    Bad,
}

/// The most that a step allows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepLimit {
    /// The step.
    pub step: Step,
    /// The 99th percentile of the delay, in milliseconds.
    pub delay_p99_ms: f64,
    /// The share of packets that were dropped.
    pub dropped: f64,
}

const fn limit(step: Step, delay_p99_ms: f64, dropped: f64) -> StepLimit {
    StepLimit { step, delay_p99_ms, dropped }
}

impl Step {
    /// Each step, best first.
    pub const ALL: [Self; 5] = [Self::Idle, Self::Good, Self::Fair, Self::Poor, Self::Bad];

    /// The limits of the steps that have one, best first. Beyond the last, a class is
    /// [`Step::Bad`].
    pub const LIMITS: [StepLimit; 3] = [
        limit(Self::Good, 20.0, 0.02),
        limit(Self::Fair, 50.0, 0.05),
        limit(Self::Poor, 150.0, 0.10),
    ];

    /// Of a class whose delay has this 99th percentile, in milliseconds, and that dropped this
    /// share of its packets. The worse one decides.
    #[must_use]
    pub fn of(delay_p99_ms: Option<f64>, dropped: Option<f64>) -> Self {
        if delay_p99_ms.is_none() && dropped.is_none() {
            return Self::Idle;
        }
        let (delay, dropped) = (delay_p99_ms.unwrap_or(0.0), dropped.unwrap_or(0.0));
        let keeps = |limit: &&StepLimit| delay <= limit.delay_p99_ms && dropped <= limit.dropped;
        Self::LIMITS.iter().find(keeps).map_or(Self::Bad, |limit| limit.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_worse_figure_decides() {
        let of = |ms, share| Step::of(Some(ms), Some(share));
        assert_eq!(of(20.0, 0.0), Step::Good);
        assert_eq!(of(20.1, 0.0), Step::Fair);
        assert_eq!(of(1.0, 0.06), Step::Poor);
        assert_eq!(of(151.0, 0.0), Step::Bad);
        assert_eq!(Step::of(None, None), Step::Idle);
        assert_eq!(Step::of(None, Some(1.0)), Step::Bad);
    }

    proptest! {
        #[test]
        fn a_worse_figure_is_never_a_better_step(
            ms in 0.0..1e3f64, more in 0.0..1e3f64, share in 0.0..1f64, dropped in 0.0..1f64,
        ) {
            let of = |ms, share| Step::of(Some(ms), Some(share));
            prop_assert!(of(ms, share) <= of(ms + more, share));
            prop_assert!(of(ms, share) <= of(ms, share + dropped));
        }
    }
}
