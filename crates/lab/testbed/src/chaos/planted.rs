//! Errors that a test plants, to check that the books find them.

use super::frame::Way;
use super::receiver::Arrival;
use narrows_units::Nanos;

/// The error in the receiver's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// One frame is left out.
    Lost,
    /// One frame is there twice.
    Doubled,
    /// Two frames of one flow have changed places.
    Reordered,
    /// Frames of 0.3 s arrive at once.
    Burst,
    /// One frame went to another next hop.
    Misled,
}

/// When the error is, from the first arrival on: in the middle of normal operation, whenever the
/// machine stands still for a while.
const PLACE: Nanos = Nanos::from_millis(250);
/// How long a burst has gathered: so long that one has gathered even if the machine stood still.
const BURST: Nanos = Nanos::from_millis(300);

impl Planted {
    /// Of which way the receiver's report is wrong.
    pub(super) const fn way(self) -> Way {
        match self {
            Self::Misled => Way::Forth,
            Self::Lost | Self::Doubled | Self::Reordered | Self::Burst => Way::Back,
        }
    }

    pub(super) fn spoil(self, arrivals: &mut Vec<Arrival>) {
        let Some(first) = arrivals.first().map(|first| first.at) else { return };
        let place = arrivals.partition_point(|arrival| arrival.at < first + PLACE);
        let Some(one) = arrivals.get(place).copied() else { return };
        match self {
            Self::Lost => drop(arrivals.remove(place)),
            Self::Doubled => arrivals.insert(place, one),
            Self::Reordered => {
                let rest = &arrivals[place + 1..];
                let next = rest.iter().position(|other| other.mark.flow == one.mark.flow);
                if let Some(next) = next.map(|next| place + 1 + next) {
                    arrivals[place].mark = arrivals[next].mark;
                    arrivals[next].mark = one.mark;
                }
            }
            Self::Misled => arrivals[place].hop = !one.hop,
            Self::Burst => {
                let until = one.at + BURST;
                for late in arrivals[place..].iter_mut().take_while(|late| late.at < until) {
                    late.at = until;
                }
            }
        }
    }
}
