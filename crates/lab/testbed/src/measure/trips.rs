//! Round trips of probes.

use crate::probe::Sample;
use std::time::Duration;

/// Requests of one kind, all sent within one span of time.
pub(crate) struct Trips {
    /// How many.
    pub(crate) sent: u64,
    /// Those without an answer.
    pub(crate) lost: u64,
    /// The round trips of answered probes, the shortest first.
    sorted: Vec<Duration>,
}

impl Trips {
    /// Those of `samples` that were sent from one time to another.
    pub(crate) fn of(samples: &[Sample], from: Duration, to: Duration) -> Self {
        let within = samples.iter().filter(|sample| (from..to).contains(&sample.sent));
        let trips: Vec<Option<Duration>> = within.map(|sample| sample.round_trip).collect();
        let mut sorted: Vec<Duration> = trips.iter().flatten().copied().collect();
        sorted.sort_unstable();
        Self { sent: trips.len() as u64, lost: (trips.len() - sorted.len()) as u64, sorted }
    }

    /// The percentile `percent`; `None` if nothing was answered.
    pub(crate) fn percentile(&self, percent: f64) -> Option<Duration> {
        let rank = (percent / 100.0 * self.sorted.len() as f64).ceil() as usize;
        self.sorted.get(rank.clamp(1, self.sorted.len().max(1)) - 1).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trips_are_those_sent_within_the_span_and_the_lost_ones_have_no_delay() {
        let millis = Duration::from_millis;
        let samples: Vec<Sample> = (0..10)
            .map(|number| Sample {
                sent: millis(number * 10),
                round_trip: (number % 3 != 0).then(|| millis(20 - number)),
            })
            .collect();
        // Those sent at 20 to 70 ms are 2 to 7; 3 and 6 are lost.
        let trips = Trips::of(&samples, millis(20), millis(80));
        assert_eq!((trips.sent, trips.lost), (6, 2));
        assert_eq!(trips.percentile(50.0), Some(millis(15)));
        assert_eq!(trips.percentile(100.0), Some(millis(18)));
        assert_eq!(trips.percentile(0.0), Some(millis(13)));
        assert_eq!(Trips::of(&[], millis(0), millis(1)).percentile(50.0), None);
    }
}
