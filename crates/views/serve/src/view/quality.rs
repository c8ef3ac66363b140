//! How good a class is for those who use it, in steps of one scale (`docs/page-design.md`).

use super::Figure;
use serde::Serialize;

/// A step of the scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Quality {
    /// No packet left, so nobody noticed anything.
    Idle,
    Good,
    Fair,
    Poor,
    Bad,
}

/// Each step's longest delay (99th percentile, in microseconds) and largest share of packets
/// dropped here.
const STEPS: [(Quality, f64, f64); 3] =
    [(Quality::Good, 20e3, 0.02), (Quality::Fair, 50e3, 0.05), (Quality::Poor, 150e3, 0.10)];

/// From which share of its ceiling a class is at it.
const AT_CEILING: f64 = 0.95;
/// From which share of TCP segments a loss elsewhere is a reason to look.
const LOSS: f64 = 0.03;

/// Why a subscriber may complain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reason {
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

impl Quality {
    /// Of a class whose delay has this 99th percentile (in microseconds) and that dropped this
    /// share of its packets.
    pub(crate) fn of(p99_us: Figure, dropped: Figure) -> Self {
        let (delay, dropped) = (p99_us.get(), dropped.get());
        if delay.is_none() && dropped.is_none() {
            return Self::Idle;
        }
        let (delay, dropped) = (delay.unwrap_or(0.0), dropped.unwrap_or(0.0));
        let step = STEPS.iter().find(|(_, us, share)| delay <= *us && dropped <= *share);
        step.map_or(Self::Bad, |(step, _, _)| *step)
    }

    /// Each step, best first.
    pub(crate) const ALL: [Self; 5] = [Self::Idle, Self::Good, Self::Fair, Self::Poor, Self::Bad];
}

/// Why somebody may complain about a class with these figures.
pub(crate) fn reasons(
    p99_us: Figure,
    dropped: Figure,
    share: Figure,
    before: Figure,
    beyond: Figure,
) -> impl Iterator<Item = Reason> {
    let (_, delay_max, dropped_max) = STEPS[0];
    let over = |figure: Figure, most: f64| figure.get().is_some_and(|figure| figure > most);
    [
        (over(p99_us, delay_max), Reason::Delay),
        (over(dropped, dropped_max), Reason::Drops),
        (share.get().is_some_and(|share| share >= AT_CEILING), Reason::AtCeiling),
        (over(before, LOSS), Reason::LostBefore),
        (over(beyond, LOSS), Reason::LostBeyond),
    ]
    .into_iter()
    .filter_map(|(holds, reason)| holds.then_some(reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_worse_figure_decides() {
        let of = |ms: f64, share| Quality::of(Figure::new(ms * 1e3), Figure::new(share));
        assert_eq!(of(20.0, 0.0), Quality::Good);
        assert_eq!(of(20.1, 0.0), Quality::Fair);
        assert_eq!(of(1.0, 0.06), Quality::Poor);
        assert_eq!(of(151.0, 0.0), Quality::Bad);
        assert_eq!(Quality::of(Figure::UNKNOWN, Figure::UNKNOWN), Quality::Idle);
        assert_eq!(Quality::of(Figure::UNKNOWN, Figure::new(1.0)), Quality::Bad);
    }

    #[test]
    fn reasons_are_told_beside_the_step() {
        let none = Figure::UNKNOWN;
        let told: Vec<_> =
            reasons(Figure::new(60e3), none, Figure::new(0.99), none, Figure::new(0.04)).collect();
        assert_eq!(told, [Reason::Delay, Reason::AtCeiling, Reason::LostBeyond]);
        assert_eq!(reasons(none, none, none, none, none).count(), 0);
    }

    proptest! {
        #[test]
        fn more_delay_is_never_better(ms in 0.0..1e3f64, more in 0.0..1e3f64, share in 0.0..1f64) {
            let of = |ms: f64| Quality::of(Figure::new(ms * 1e3), Figure::new(share));
            prop_assert!(of(ms) <= of(ms + more));
        }
    }
}
