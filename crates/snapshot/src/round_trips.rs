//! Round trips on the far side of a port, and what was lost: measured from the TCP and QUIC packets
//! that pass.
//!
//! A packet that leaves through the port and is answered there takes a round trip beyond it. What it
//! waited in Narrows before is in no such time; see [`Delays`] for that.

use crate::Delays;
use serde::{Deserialize, Serialize};

/// Beyond one port, since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundTrips {
    /// How long they took, in the form of a port's delays.
    pub times: Delays,
    /// What became of TCP segments that left through the port.
    pub losses: Losses,
}

/// TCP segments with data that were looked at, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Losses {
    /// All of them.
    pub segments: u64,
    /// Missing when others that follow left, and sent later: lost on the way here, or here.
    pub before: u64,
    /// Sent again after they had left: lost beyond the port, or thought to be.
    pub beyond: u64,
}

/// Of a host, in the last window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundTrip {
    /// The shortest: what the path takes, in microseconds.
    pub min_us: u64,
    /// The median, within an eighth, in microseconds. Receivers that keep acknowledgements back are
    /// in it.
    pub p50_us: u64,
    /// The 99th percentile, likewise.
    pub p99_us: u64,
}

impl Losses {
    /// What was counted after `earlier`; all where the instance was started in between.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let grown = |of: fn(&Self) -> u64| of(self).checked_sub(of(earlier));
        match (grown(|it| it.segments), grown(|it| it.before), grown(|it| it.beyond)) {
            (Some(segments), Some(before), Some(beyond)) => Self { segments, before, beyond },
            _ => *self,
        }
    }

    /// The share that was lost before the port, and beyond it. `None` where there was nothing.
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
