//! How many flows a box has at a limit: what its flows together weigh against those of other boxes.
//!
//! *Idea.* Boxes that share a limit should be to a flow as one box. So where a limit binds, a box
//! has as many parts of it as it has flows ("flow proportional share", Raghavan et al., "Cloud
//! Control with Distributed Rate Limiting", SIGCOMM 2007). Its qdiscs count those that take turns,
//! where a flow below its fair rate counts as a part of one. The paper estimates that part from the
//! rate of the largest flow.
//!
//! *A count jumps* from one sample to the next, and with it would the shares of all boxes: it is
//! smoothed, told when it differs by more than an eighth, and what is left of that within a second.
//!
//! *A box that its limit does not hold back* has flows that want less than their fair rate, and few
//! of them wait. It asks for what it sends, and its weight is that of the box with the most flows:
//! so it has at least what it would have if boxes shared alike, and once that is too little it is
//! held back, and its flows count.
//!
//! Non-goals: hosts. A host with flows through two boxes has a part at each.

/// A flow, as numbers of flows are told: in sixteenths.
pub const ONE_FLOW: u32 = 16;

/// The most flows that count: a million.
const MOST: u32 = ONE_FLOW << 20;

/// The time over which a count is smoothed, in nanoseconds: half a second. In it, the count falls
/// or grows by a factor of about e at most.
const SMOOTH_NS: u64 = 500_000_000;

/// A count as old as this says nothing of the flows of now.
const OLD_NS: u64 = 1_000_000_000;

/// What a box says of its flows at a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Flows {
    /// It cannot count them, or shares by box.
    #[default]
    Unknown,
    /// Its limit does not hold it back.
    Free,
    /// So many sixteenths of a flow take turns, at least one flow.
    Counted(u32),
}

impl Flows {
    /// Whether others should know at once that it is `new` now.
    pub(crate) fn is_other(self, new: Self) -> bool {
        match (self, new) {
            (Self::Counted(old), Self::Counted(new)) => {
                old.abs_diff(new) > old.max(new) / 8 + ONE_FLOW / 4
            }
            (old, new) => old != new,
        }
    }

    /// Whether others should know it in a second.
    pub(crate) fn moved(self, new: Self) -> bool {
        match (self, new) {
            (Self::Counted(old), Self::Counted(new)) => old.abs_diff(new) > old.max(new) / 32,
            (old, new) => old != new,
        }
    }

    /// As a number in a message.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Unknown => 0,
            Self::Free => 1,
            Self::Counted(sixteenths) => sixteenths.clamp(ONE_FLOW, MOST),
        }
    }

    /// What a number in a message says.
    pub(crate) fn of_number(number: u32) -> Self {
        match number {
            0 => Self::Unknown,
            1 => Self::Free,
            sixteenths => Self::Counted(sixteenths.clamp(ONE_FLOW, MOST)),
        }
    }
}

/// The factor by which the flows of each box multiply its weight; none if boxes share by box, since
/// one of them does not count.
pub(crate) fn weights(all: impl Iterator<Item = Flows> + Clone) -> Option<impl Fn(Flows) -> u32> {
    let mut most = ONE_FLOW;
    for flows in all {
        match flows {
            Flows::Unknown => return None,
            Flows::Free => {}
            Flows::Counted(sixteenths) => most = most.max(sixteenths),
        }
    }
    Some(move |flows| match flows {
        Flows::Counted(sixteenths) => sixteenths.max(ONE_FLOW),
        Flows::Unknown | Flows::Free => most,
    })
}

/// The count of one limit's flows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    /// Whether the qdiscs can count.
    is_known: bool,
    /// The smoothed count, and when it was last taken.
    last: Option<(f64, u64)>,
}

impl Count {
    /// The qdiscs count so many at `now`. Only while the limit holds flows back do they all wait.
    pub fn sample(&mut self, now: u64, flows: Option<u32>, holds_back: bool) {
        self.is_known = flows.is_some();
        let Some(flows) = flows.filter(|_| holds_back) else { return };
        let flows = f64::from(flows.max(1));
        let smoothed = match self.last {
            Some((last, at)) if now.saturating_sub(at) < OLD_NS => {
                let elapsed = now.saturating_sub(at) as f64 / SMOOTH_NS as f64;
                let next = last + (flows - last) * elapsed / (1.0 + elapsed);
                next.clamp(last / (1.0 + elapsed), last * (1.0 + elapsed))
            }
            _ => flows,
        };
        self.last = Some((smoothed, now));
    }

    /// What is said of it, where the limit holds back or does not.
    pub fn flows(&self, holds_back: bool) -> Flows {
        match self.last {
            _ if !self.is_known => Flows::Unknown,
            Some((flows, _)) if holds_back => {
                let sixteenths = (flows * f64::from(ONE_FLOW)).round().min(f64::from(MOST));
                Flows::Counted((sixteenths as u32).max(ONE_FLOW))
            }
            _ => Flows::Free,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    /// The count after samples 50 ms apart.
    fn counted(samples: impl IntoIterator<Item = u32>) -> f64 {
        let mut count = Count::default();
        for (turn, flows) in (0..).zip(samples) {
            count.sample(turn * 50 * MS, Some(flows), true);
        }
        count.last.map_or(0.0, |(flows, _)| flows)
    }

    #[test]
    fn the_first_count_holds_at_once() {
        assert_eq!(counted([12]), 12.0);
    }

    #[test]
    fn a_count_that_jumps_is_told_as_its_mean() {
        for length in 100..110 {
            let jumping = (0..length).map(|turn| if turn % 2 == 0 { 4 } else { 12 });
            let flows = counted(jumping);
            assert!((7.4..8.6).contains(&flows), "{flows}");
        }
    }

    #[test]
    fn a_count_that_stays_is_followed_within_two_seconds() {
        let more = counted([4; 20].into_iter().chain([12; 40]));
        let less = counted([12; 20].into_iter().chain([4; 40]));
        assert!((11.5..=12.0).contains(&more), "{more}");
        assert!((4.0..4.5).contains(&less), "{less}");
    }

    #[test]
    fn one_wrong_count_moves_little() {
        let flows = counted([10; 40].into_iter().chain([1_000_000]));
        assert!(flows < 11.1, "{flows}");
        let flows = counted([10; 40].into_iter().chain([0]));
        assert!(flows > 9.0, "{flows}");
    }

    #[test]
    fn a_limit_that_does_not_hold_back_tells_no_count() {
        let mut count = Count::default();
        assert_eq!(count.flows(true), Flows::Unknown);
        count.sample(0, Some(3), false);
        assert_eq!(count.flows(true), Flows::Free);
        count.sample(50 * MS, Some(3), true);
        assert_eq!(count.flows(true), Flows::Counted(3 * ONE_FLOW));
        assert_eq!(count.flows(false), Flows::Free);
        count.sample(100 * MS, None, true);
        assert_eq!(count.flows(true), Flows::Unknown);
    }

    #[test]
    fn a_count_of_long_ago_is_not_followed_from() {
        let mut count = Count::default();
        count.sample(0, Some(100), true);
        count.sample(2_000 * MS, Some(3), true);
        assert_eq!(count.flows(true), Flows::Counted(3 * ONE_FLOW));
    }

    #[test]
    fn one_flow_more_of_four_is_told_and_one_of_forty_is_not() {
        let of = |flows: u32| Flows::Counted(flows * ONE_FLOW);
        assert!(of(4).is_other(of(3)) && of(3).is_other(of(4)) && of(1).is_other(of(2)));
        assert!(!of(40).is_other(of(41)) && !of(4).is_other(of(4)));
        assert!(of(4).is_other(Flows::Free) && Flows::Free.is_other(Flows::Unknown));
    }

    #[test]
    fn a_box_that_does_not_count_makes_all_share_by_box() {
        let three = Flows::Counted(3 * ONE_FLOW);
        assert!(weights([three, Flows::Unknown, Flows::Free].into_iter()).is_none());
        let weight = weights([three, Flows::Free].into_iter()).unwrap();
        assert_eq!([weight(three), weight(Flows::Free)], [48, 48]);
    }

    proptest! {
        #[test]
        fn whatever_a_message_says_is_a_count_within_bounds(number in any::<u32>()) {
            let flows = Flows::of_number(number);
            prop_assert_eq!(Flows::of_number(flows.number()), flows);
            if let Flows::Counted(sixteenths) = flows {
                prop_assert!((ONE_FLOW..=MOST).contains(&sixteenths));
            }
        }

        #[test]
        fn a_smoothed_count_is_between_the_least_and_the_most_that_was_counted(
            samples in prop::collection::vec((0..2_000_u32, 1..1_500_u64), 1..100),
        ) {
            let (mut count, mut now) = (Count::default(), 0);
            let (mut least, mut most) = (u32::MAX, 0);
            for (flows, ms) in samples {
                now += ms * MS;
                count.sample(now, Some(flows), true);
                (least, most) = (least.min(flows.max(1)), most.max(flows.max(1)));
                let Flows::Counted(told) = count.flows(true) else { panic!("it counts") };
                prop_assert!((least * ONE_FLOW..=most * ONE_FLOW).contains(&told));
            }
        }
    }
}
