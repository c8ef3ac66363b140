//! Round trips beyond a port, and losses, measured from the TCP and QUIC packets that pass.
//!
//! A round trip starts when a packet leaves through the port and ends when its answer arrives
//! there. It does not include the time in Narrows; see [`Delays`] for that.

use crate::Delays;
use serde::{Deserialize, Serialize};

/// The measurements beyond one port, since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundTrips {
    /// The round-trip times, in the form of a port's delays.
    pub times: Delays,
    /// The losses of TCP segments that left through the port.
    pub losses: Losses,
}

/// Observed TCP segments with data, and how many were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Losses {
    /// All observed segments.
    pub segments: u64,
    /// Segments missing when later ones left, and sent afterwards: lost before the port.
    pub before: u64,
    /// Segments sent again after they had left: lost beyond the port, or retransmitted needlessly.
    pub beyond: u64,
}

/// The round trips of a host in the last window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundTrip {
    /// The minimum, in microseconds: the delay of the path.
    pub min_us: u64,
    /// The median, to within 12.5 %, in microseconds. Includes delayed acknowledgements.
    pub p50_us: u64,
    /// The 99th percentile, in the same way.
    pub p99_us: u64,
}

impl Losses {
    /// The counts since `earlier`; all of them if the instance was restarted in between.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let grown = |of: fn(&Self) -> u64| of(self).checked_sub(of(earlier));
        match (grown(|it| it.segments), grown(|it| it.before), grown(|it| it.beyond)) {
            (Some(segments), Some(before), Some(beyond)) => Self { segments, before, beyond },
            _ => *self,
        }
    }

    /// The shares lost before and beyond the port. `None` if there were no segments.
    pub fn shares(&self) -> Option<[f64; 2]> {
        let share = |lost: u64| lost as f64 / self.segments as f64;
        (self.segments > 0).then(|| [share(self.before), share(self.beyond)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_the_segments_in_between() {
        let was = Losses { segments: 100, before: 1, beyond: 50 };
        let is = Losses { segments: 300, before: 3, beyond: 50 };
        assert_eq!(is.since(&was).shares(), Some([0.01, 0.0]));
        assert_eq!(was.since(&is), was, "it was started again");
        assert_eq!(is.since(&is).shares(), None);
    }
}
