//! Why a subscriber may complain, whatever the step.

use crate::Step;
use serde::Serialize;

/// From which share of its ceiling a class is at it.
const AT_CEILING: f64 = 0.95;
/// From which share of TCP segments a loss elsewhere is a reason to look.
const LOSS: f64 = 0.03;

/// A reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Packets wait long here.
    Delay,
    /// Many packets are dropped here.
    Drops,
    /// It sends as much as it may.
    AtCeiling,
    /// Segments are lost before they come here.
    LostBefore,
    /// Segments are lost after they left.
    LostBeyond,
}

/// What is known of a class in the last interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Symptoms {
    /// The 99th percentile of the delay, in milliseconds.
    pub delay_p99_ms: Option<f64>,
    /// The share of packets that were dropped here.
    pub dropped: Option<f64>,
    /// The share of its ceiling that it sends.
    pub of_ceiling: Option<f64>,
    /// The share of TCP segments that were lost before they came here.
    pub lost_before: Option<f64>,
    /// The share that was lost after they left.
    pub lost_beyond: Option<f64>,
}

impl Symptoms {
    /// The step of the scale.
    #[must_use]
    pub fn step(&self) -> Step {
        Step::of(self.delay_p99_ms, self.dropped)
    }

    /// Why somebody may complain.
    pub fn reasons(self) -> impl Iterator<Item = Reason> {
        let good = Step::LIMITS[0];
        Reason::ALL.into_iter().filter(move |reason| {
            let over = |figure: Option<f64>, most: f64| figure.is_some_and(|it| it > most);
            match reason {
                Reason::Delay => over(self.delay_p99_ms, good.delay_p99_ms),
                Reason::Drops => over(self.dropped, good.dropped),
                Reason::AtCeiling => self.of_ceiling.is_some_and(|share| share >= AT_CEILING),
                Reason::LostBefore => over(self.lost_before, LOSS),
                Reason::LostBeyond => over(self.lost_beyond, LOSS),
            }
        })
    }
}

impl Reason {
    /// Each reason, in the order in which they are told.
    pub const ALL: [Self; 5] =
        [Self::Delay, Self::Drops, Self::AtCeiling, Self::LostBefore, Self::LostBeyond];

    /// What it is called.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Delay => "long delay",
            Self::Drops => "drops here",
            Self::AtCeiling => "at its ceiling",
            Self::LostBefore => "loss before here",
            Self::LostBeyond => "loss beyond here",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_told_beside_the_step() {
        let told = Symptoms {
            delay_p99_ms: Some(60.0),
            of_ceiling: Some(0.99),
            lost_beyond: Some(0.04),
            ..Symptoms::default()
        };
        let reasons: Vec<_> = told.reasons().collect();
        assert_eq!(reasons, [Reason::Delay, Reason::AtCeiling, Reason::LostBeyond]);
        assert_eq!(Symptoms::default().reasons().count(), 0);
    }

    #[test]
    fn what_is_not_good_by_its_step_has_a_reason() {
        for (delay_p99_ms, dropped) in [(20.0, 0.021), (21.0, 0.0), (500.0, 0.9)] {
            let symptoms = Symptoms {
                delay_p99_ms: Some(delay_p99_ms),
                dropped: Some(dropped),
                ..Symptoms::default()
            };
            assert!(symptoms.step() > Step::Good && symptoms.reasons().count() > 0);
        }
    }
}
