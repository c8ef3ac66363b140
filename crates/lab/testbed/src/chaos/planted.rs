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
    /// A tenth of a second's frames arrive at once.
    Burst,
    /// One frame went to another next hop.
    Misled,
}

/// The share of arrivals in a burst, from the first arrival on.
const BURST: Nanos = Nanos::from_millis(100);

impl Planted {
    /// Of which way the receiver's report is wrong.
    pub(super) const fn way(self) -> Way {
        match self {
            Self::Misled => Way::Forth,
            Self::Lost | Self::Doubled | Self::Reordered | Self::Burst => Way::Back,
        }
    }

    pub(super) fn spoil(self, arrivals: &mut Vec<Arrival>) {
        // In the first part of an epoch, which is normal operation.
        let place = arrivals.len() / 10;
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
