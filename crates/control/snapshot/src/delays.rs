//! How long packets stayed in Narrows before they left through a port, a class or a tin:
//! percentiles of all packets, not of a sample, and the counts behind them.

use crate::Counts;
use serde::{Deserialize, Serialize};

/// How long packets stayed. Percentiles are since the start; see [`Delays::since`] for a span.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Delays {
    /// The median, in microseconds.
    pub p50_us: f64,
    /// The 99th percentile, in microseconds.
    pub p99_us: f64,
    /// The 99.9th percentile, in microseconds.
    pub p999_us: f64,
    /// The longest, in microseconds.
    pub max_us: f64,
    /// Delays in microseconds, ascending, each with its number of packets. For a port, a delay is
    /// an upper bound within 1 %; for classes and tins it is to within 12.5 %.
    pub counts: Counts,
}

impl Delays {
    /// From counts as in [`Delays::counts`].
    pub fn new(counts: Vec<(f64, u64)>) -> Self {
        let of = |share| quantile(&counts, share).unwrap_or_default();
        let [p50_us, p99_us, p999_us, max_us] = [0.5, 0.99, 0.999, 1.0].map(of);
        Self { p50_us, p99_us, p999_us, max_us, counts: counts.into_iter().collect() }
    }

    /// Whether no packet was counted.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Packets counted.
    pub fn packets(&self) -> u64 {
        self.counts.iter().map(|(_, packets)| packets).sum()
    }

    /// The counts since `earlier`. If counts went back, the instance was restarted or upgraded in
    /// between, and the result is all counts.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut before = earlier.counts.iter().peekable();
        let mut rest = Vec::new();
        for (time, packets) in self.counts.iter() {
            let was = before.next_if(|(at, _)| *at == time).map_or(0, |(_, packets)| packets);
            let Some(grown) = packets.checked_sub(was) else { return self.clone() };
            if grown > 0 {
                rest.push((time, grown));
            }
        }
        match before.peek() {
            Some(_) => self.clone(),
            None => Self::new(rest),
        }
    }

    /// Median, 99th and 99.9th percentile and maximum, in readable units.
    pub fn formatted(&self) -> [String; 4] {
        [self.p50_us, self.p99_us, self.p999_us, self.max_us].map(formatted)
    }

    /// The minimum, in readable units.
    pub fn shortest(&self) -> String {
        formatted(self.counts.iter().next().map_or(0.0, |(us, _)| us))
    }

    /// Packets that stayed at most that many seconds.
    pub fn within(&self, bound_s: f64) -> u64 {
        let within = self.counts.iter().filter(|(us, _)| us / 1e6 <= bound_s);
        within.map(|(_, packets)| packets).sum()
    }

    /// The approximate sum of all delays, in seconds.
    pub fn sum_s(&self) -> f64 {
        self.counts.iter().map(|(us, packets)| us * packets as f64 / 1e6).sum()
    }
}

/// A number of microseconds in a readable unit.
fn formatted(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.1} us"),
        us if us < 1e3 => format!("{us:.0} us"),
        us if us < 1e6 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

/// The quantile `of`.
fn quantile(counts: &[(f64, u64)], of: f64) -> Option<f64> {
    let all: u64 = counts.iter().map(|(_, packets)| packets).sum();
    let wanted = (all as f64 * of).ceil() as u64;
    let mut seen = 0;
    let reached = counts.iter().find(|(_, packets)| {
        seen += packets;
        seen >= wanted
    });
    reached.or(counts.last()).map(|(time, _)| *time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_time_that_so_many_stayed_at_most() {
        let delays = Delays::new(vec![(1.0, 900), (50.0, 98), (2_000.0, 2)]);
        assert_eq!((delays.p50_us, delays.p99_us), (1.0, 50.0));
        assert_eq!((delays.p999_us, delays.max_us), (2_000.0, 2_000.0));
        assert_eq!(delays.packets(), 1_000);
        assert!((delays.sum_s() - 0.0098).abs() < 1e-9);
        assert_eq!(Delays::new(Vec::new()), Delays::default());
    }

    #[test]
    fn times_are_told_in_a_fitting_unit() {
        let delays = Delays::new(vec![(1.23, 50), (456.7, 49), (78_900.0, 1)]);
        assert_eq!(delays.formatted(), ["1.2 us", "457 us", "78.9 ms", "78.9 ms"]);
    }

    #[test]
    fn a_span_has_the_packets_that_left_in_it() {
        let was = Delays::new(vec![(1.0, 900), (50.0, 10)]);
        let is = Delays::new(vec![(1.0, 900), (50.0, 12), (70.0, 2)]);
        assert!(is.since(&was).counts.iter().eq([(50.0, 2), (70.0, 2)]));
        assert_eq!(is.since(&is), Delays::default());
    }

    #[test]
    fn an_instance_that_began_anew_has_counted_it_all_since() {
        let was = Delays::new(vec![(1.0, 900), (50.0, 10)]);
        let is = Delays::new(vec![(1.0, 3)]);
        assert_eq!(is.since(&was), is);
        let other = Delays::new(vec![(2.0, 1_000)]);
        assert_eq!(other.since(&was), other);
    }
}
