//! How long packets stay here, from when a worker takes them from one port until it hands them to
//! the other.
//!
//! Every packet counts, so the highest percentiles are those of all packets and not of a sample. A
//! count is within 1 % of the time that it stands for. Packets that pass in the step in which they
//! came have stayed for no time.
//!
//! Cost: one index computed and one word incremented for each packet, in memory that stays where it
//! is (25 KB for each port and queue, of which a few cache lines are in use at any time).

use hdrhistogram::Histogram;
use narrows_units::Nanos;

/// Shorter delays count as 0.
const SHORTEST_NS: u64 = 1_000;
/// Longer delays count as this: no queue should hold a packet for so long.
const LONGEST_NS: u64 = 16_000_000_000;
/// Two digits: within 1 %.
const DIGITS: u8 = 2;

/// The delays of packets that left through a port.
#[derive(Clone, PartialEq, Debug)]
pub struct Delays(Histogram<u64>);

impl Default for Delays {
    /// No packet yet. Allocates.
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(SHORTEST_NS, LONGEST_NS, DIGITS);
        Self(histogram.unwrap_or_else(|_| unreachable!("the bounds are constants, and right")))
    }
}

impl Delays {
    /// Counts a packet with the delay `delay`. Allocates nothing.
    #[inline]
    pub fn record(&mut self, delay: Nanos) {
        self.0.saturating_record(delay.0);
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        // All have the same bounds.
        let _ = self.0.add(&other.0);
    }

    /// Times in ascending order, each with the number of packets whose delay was at most that and
    /// more than the previous time. Empty ones are left out.
    pub fn counts(&self) -> impl Iterator<Item = (Nanos, u64)> {
        let recorded = self.0.iter_recorded();
        recorded.map(|step| (Nanos(step.value_iterated_to()), step.count_since_last_iteration()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_packet_is_counted_within_a_hundredth_of_its_delay() {
        let mut delays = Delays::default();
        for delay in [1_500, 77_000, 5_000_000, 5_000_000, 1_200_000_000] {
            delays.record(Nanos(delay));
        }
        let counts: Vec<_> = delays.counts().collect();
        let wanted = [(1_500, 1), (77_000, 1), (5_000_000, 2), (1_200_000_000, 1)];
        for ((time, packets), (delay, count)) in counts.iter().zip(wanted) {
            assert_eq!(*packets, count);
            let off = time.0 as f64 / delay as f64 - 1.0;
            assert!(
                (-0.001..0.01).contains(&off) || time.0 - delay < 1_000,
                "{time:?} for {delay}"
            );
        }
        assert_eq!(counts.len(), 4);
    }

    #[test]
    fn delays_out_of_bounds_count_at_the_bound() {
        let mut delays = Delays::default();
        delays.record(Nanos::ZERO);
        delays.record(Nanos::MAX);
        let counts: Vec<_> = delays.counts().collect();
        assert_eq!(counts.iter().map(|(_, packets)| packets).sum::<u64>(), 2);
        assert!(counts[0].0.0 <= SHORTEST_NS && counts[1].0.0 >= LONGEST_NS);
    }

    #[test]
    fn two_histograms_add_up() {
        let (mut one, mut other) = (Delays::default(), Delays::default());
        one.record(Nanos(2_000_000));
        other.record(Nanos(2_000_000));
        other.record(Nanos(3_000));
        one.merge(&other);
        assert_eq!(one.counts().map(|(_, packets)| packets).collect::<Vec<_>>(), [1, 2]);
    }
}
