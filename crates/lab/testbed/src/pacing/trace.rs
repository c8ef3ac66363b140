//! Statistics over the arrival times of a flow's packets.

use crate::spread::Spread;
use narrows_units::Nanos;
use serde::Serialize;

/// A deviation up to this is what the paper reports, in percent.
const GOOD_PERCENT: f64 = 0.3;

/// A window with fewer packets than this depends more on where it begins than on the rate.
const PACKETS_MIN: f64 = 4.0;

/// The deviation of the rate over windows of one length, in either direction, in percent of the
/// rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Deviation {
    /// The windows' length.
    pub window_ms: f64,
    /// Windows looked at, of all flows.
    pub windows: usize,
    /// The mean over all windows.
    pub mean_percent: f64,
    /// Half of the windows are off by at most this.
    pub median_percent: f64,
    /// One of a hundred is off by more.
    pub p99_percent: f64,
    /// The part of windows that are off by at most 0.3 %.
    pub within_03_percent: f64,
}

/// The gaps between a packet and the next but one of its flow, relative to two packet times at its
/// rate: 1 if they are evenly spaced, 0 if three left together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gaps {
    /// Gaps looked at, of all flows.
    pub gaps: usize,
    /// One of a thousand is shorter.
    pub p0_1: f64,
    /// One of a hundred is shorter.
    pub p1: f64,
    /// Half of them are shorter.
    pub p50: f64,
    /// One of a hundred is longer.
    pub p99: f64,
    /// Per cent of gaps below a quarter: three packets nearly at once.
    pub bursts_percent: f64,
}

/// One flow, in the order of time.
#[derive(Clone, Debug)]
pub struct Trace {
    /// When its packets arrived.
    pub at: Vec<Nanos>,
    /// The time of one packet at its rate, in nanoseconds.
    pub packet_nanos: f64,
}

impl Trace {
    /// The deviation of the rate over the whole trace, in percent; negative below.
    fn deviation_percent(&self) -> Option<f64> {
        let (first, last) = (*self.at.first()?, *self.at.last()?);
        self.off_percent(self.at.len() - 1, last - first)
    }

    /// The deviation of `packets` in `span` from the rate.
    fn off_percent(&self, packets: usize, span: Nanos) -> Option<f64> {
        let due = span.0 as f64 / self.packet_nanos;
        (due > 0.0).then(|| (packets as f64 / due - 1.0) * 100.0)
    }

    /// The deviation from the rate in each window of at least `window`. Each begins with the packet
    /// with which the one before it ended, so that no packet is cut in two and none is left out.
    fn windows(&self, window: Nanos) -> Vec<f64> {
        let mut found = Vec::new();
        if (window.0 as f64) < PACKETS_MIN * self.packet_nanos {
            return found;
        }
        let mut begin = 0;
        for end in 1..self.at.len() {
            let span = self.at[end] - self.at[begin];
            if span >= window {
                found.extend(self.off_percent(end - begin, span));
                begin = end;
            }
        }
        found
    }

    /// From each packet to the next but one.
    fn alternate_gaps(&self) -> impl Iterator<Item = f64> + '_ {
        self.at.windows(3).map(|three| (three[2] - three[0]).0 as f64 / (2.0 * self.packet_nanos))
    }
}

/// Sorted values, at least one.
struct Sorted(Vec<f64>);

impl Sorted {
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        (!values.is_empty()).then_some(Self(values))
    }

    /// The value that `parts` of all are at most.
    fn quantile(&self, parts: f64) -> f64 {
        self.0[((self.0.len() - 1) as f64 * parts).round() as usize]
    }

    fn percent_below(&self, bound: f64) -> f64 {
        let below = self.0.partition_point(|value| *value <= bound);
        below as f64 / self.0.len() as f64 * 100.0
    }
}

/// Over windows of `window` of all `traces`. `None` if their packets are too far apart.
pub fn deviation(traces: &[Trace], window: Nanos) -> Option<Deviation> {
    let off = traces.iter().flat_map(|trace| trace.windows(window)).map(f64::abs);
    let off = Sorted::of(off.collect())?;
    Some(Deviation {
        window_ms: window.as_secs_f64() * 1e3,
        windows: off.0.len(),
        mean_percent: off.0.iter().sum::<f64>() / off.0.len() as f64,
        median_percent: off.quantile(0.5),
        p99_percent: off.quantile(0.99),
        within_03_percent: off.percent_below(GOOD_PERCENT),
    })
}

/// The measures of all `traces`.
pub fn gaps(traces: &[Trace]) -> Option<Gaps> {
    let gaps = Sorted::of(traces.iter().flat_map(Trace::alternate_gaps).collect())?;
    Some(Gaps {
        gaps: gaps.0.len(),
        p0_1: gaps.quantile(0.001),
        p1: gaps.quantile(0.01),
        p50: gaps.quantile(0.5),
        p99: gaps.quantile(0.99),
        bursts_percent: gaps.percent_below(0.25),
    })
}

/// The deviation of each flow over all of its trace: the median with the extremes.
pub fn whole(traces: &[Trace]) -> Option<Spread> {
    Spread::of(traces.iter().filter_map(Trace::deviation_percent))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u64 = 100_000;

    fn trace(at: impl IntoIterator<Item = u64>) -> Trace {
        Trace { at: at.into_iter().map(Nanos).collect(), packet_nanos: PACKET as f64 }
    }

    #[test]
    fn packets_at_their_times_have_no_error() {
        let even = [trace((0..1000).map(|n| n * PACKET))];
        let off = deviation(&even, Nanos::from_millis(1)).unwrap();
        assert_eq!((off.windows, off.mean_percent, off.within_03_percent), (99, 0.0, 100.0));
        let gaps = gaps(&even).unwrap();
        assert_eq!((gaps.gaps, gaps.p0_1, gaps.p99, gaps.bursts_percent), (998, 1.0, 1.0, 0.0));
        assert_eq!(whole(&even).unwrap().median, 0.0);
    }

    #[test]
    fn a_flow_that_is_too_fast_is_off_by_as_much_in_every_window() {
        let fast = [trace((0..1000).map(|n| n * PACKET * 100 / 101))];
        let off = deviation(&fast, Nanos::from_millis(1)).unwrap();
        assert!((off.mean_percent - 1.0).abs() < 0.01, "{off:?}");
        assert!((whole(&fast).unwrap().median - 1.0).abs() < 0.01);
        assert_eq!(off.within_03_percent, 0.0);
    }

    #[test]
    fn pairs_are_no_bursts_but_three_at_once_are() {
        let pairs = [trace((0..1000).map(|n| n / 2 * 2 * PACKET))];
        assert_eq!(gaps(&pairs).unwrap().bursts_percent, 0.0);
        assert_eq!(gaps(&pairs).unwrap().p50, 1.0);
        let threes = [trace((0..999).map(|n| n / 3 * 3 * PACKET))];
        let found = gaps(&threes).unwrap();
        assert!((found.bursts_percent - 33.4).abs() < 0.1, "{found:?}");
        assert_eq!(found.p1, 0.0);
    }

    #[test]
    fn windows_of_too_few_packets_do_not_count() {
        let even = [trace((0..1000).map(|n| n * PACKET))];
        assert_eq!(deviation(&even, Nanos(3 * PACKET)), None);
        assert!(deviation(&even, Nanos(4 * PACKET)).is_some());
        assert_eq!(deviation(&[trace([])], Nanos::from_millis(1)), None);
        assert_eq!(gaps(&[trace([1, 2])]), None);
    }
}
