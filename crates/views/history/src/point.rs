//! A point of a series, rounded, and what can be read from it.

use crate::quantised::{COARSE, FINE, code, middle};
use crate::times::time_of;
use crate::{Summary, Times};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// The columns of a point.
pub(crate) const COLUMNS: usize = 9;

const SENT: usize = 0;
/// How many codes the peak is above the mean.
const PEAK: usize = 1;
const DROPS: usize = 2;
// Of these, 0 is unknown, and others have their code and one.
const DELAY_P50: usize = 3;
const DELAY_P99: usize = 4;
const TRIP_P50: usize = 5;
const TRIP_P99: usize = 6;
const BEFORE: usize = 7;
const BEYOND: usize = 8;

/// Shares have millionths as their unit.
const MILLION: f64 = 1e6;
/// About how many bytes a packet has: of a stored point, packets are no longer known.
const PACKET_BITS: f64 = 8.0 * 1000.0;

/// What a direction did in an interval, rounded as it is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Point(pub(crate) [u16; COLUMNS]);

/// What a series shows of its points.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// The rate sent: its mean, and the highest of any second.
    Sent,
    /// Packets dropped per second.
    Drops,
    /// The median of the delays in Narrows.
    DelayP50,
    /// Their 99th percentile.
    DelayP99,
    /// The median of the round trips beyond the port.
    RoundTripP50,
    /// Their 99th percentile.
    RoundTripP99,
    /// The share of segments that were lost, before or beyond the port.
    Loss,
    /// The share that was lost before the port.
    LossBefore,
    /// The share that was lost beyond the port.
    LossBeyond,
}

/// What a value counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Unit {
    /// Bits per second.
    #[serde(rename = "bit/s")]
    BitsPerSecond,
    /// Packets per second.
    #[serde(rename = "packets/s")]
    PacketsPerSecond,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Milliseconds,
    /// A share, 0 to 1.
    #[serde(rename = "share")]
    Share,
}

impl What {
    /// All.
    pub const ALL: [Self; 9] = [
        Self::Sent,
        Self::Drops,
        Self::DelayP50,
        Self::DelayP99,
        Self::RoundTripP50,
        Self::RoundTripP99,
        Self::Loss,
        Self::LossBefore,
        Self::LossBeyond,
    ];

    /// Its word in queries.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Drops => "drops",
            Self::DelayP50 => "delay-p50",
            Self::DelayP99 => "delay-p99",
            Self::RoundTripP50 => "round-trip-p50",
            Self::RoundTripP99 => "round-trip-p99",
            Self::Loss => "loss",
            Self::LossBefore => "loss-before",
            Self::LossBeyond => "loss-beyond",
        }
    }

    /// The unit of its values.
    pub const fn unit(self) -> Unit {
        match self {
            Self::Sent => Unit::BitsPerSecond,
            Self::Drops => Unit::PacketsPerSecond,
            Self::DelayP50 | Self::DelayP99 | Self::RoundTripP50 | Self::RoundTripP99 => {
                Unit::Milliseconds
            }
            Self::Loss | Self::LossBefore | Self::LossBeyond => Unit::Share,
        }
    }

    /// Its value in a point over `step_s` seconds, in its unit; none if it is unknown there.
    pub fn of(self, point: &Point, step_s: u64) -> Option<f64> {
        match self {
            Self::Sent => Some(point.sent_bps()),
            Self::Drops => Some(point.drops() / step_s.max(1) as f64),
            Self::DelayP50 => point.time(DELAY_P50),
            Self::DelayP99 => point.time(DELAY_P99),
            Self::RoundTripP50 => point.time(TRIP_P50),
            Self::RoundTripP99 => point.time(TRIP_P99),
            Self::Loss => Some((point.share(BEFORE)? + point.share(BEYOND)?).min(1.0)),
            Self::LossBefore => point.share(BEFORE),
            Self::LossBeyond => point.share(BEYOND),
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.name())
    }
}

impl Serialize for What {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl FromStr for What {
    type Err = String;

    /// # Errors
    /// Lists the words if `word` is none of them.
    fn from_str(word: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|what| what.name() == word).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("there is no such series; choose one of {names}")
        })
    }
}

impl Point {
    /// The rounded figures of `summary`.
    pub fn of(summary: &Summary) -> Self {
        let mean = code(summary.mean_bps().round() as u64, FINE);
        let peak = code(summary.peak_bps.round() as u64, FINE).saturating_sub(mean);
        let time =
            |times: &Times, share| times.code_at(share).map_or(0, |code| u16::from(code) + 1);
        let [before, beyond] = summary.losses().map_or([0; 2], |shares| shares.map(share_code));
        Self([
            mean,
            peak,
            code(summary.drops.round() as u64, FINE),
            time(&summary.delays, 0.5),
            time(&summary.delays, 0.99),
            time(&summary.round_trips, 0.5),
            time(&summary.slow_round_trips, 0.99),
            before,
            beyond,
        ])
    }

    /// Whether nothing was sent, dropped or measured.
    pub fn is_idle(&self) -> bool {
        *self == Self::default()
    }

    /// The mean rate, in bits per second.
    pub fn sent_bps(&self) -> f64 {
        middle(self.0[SENT], FINE)
    }

    /// The highest rate of a second, in bits per second.
    pub fn peak_bps(&self) -> f64 {
        middle(self.0[SENT].saturating_add(self.0[PEAK]), FINE)
    }

    /// Packets dropped in the interval.
    pub fn drops(&self) -> f64 {
        middle(self.0[DROPS], FINE)
    }

    /// A time, in milliseconds.
    fn time(&self, column: usize) -> Option<f64> {
        self.0[column].checked_sub(1).map(|code| time_of(code) / 1e3)
    }

    /// A share, 0 to 1.
    fn share(&self, column: usize) -> Option<f64> {
        let code = self.0[column].checked_sub(1)?;
        Some((middle(code, COARSE) / MILLION).min(1.0))
    }

    /// What is still known of the interval of `step_s` seconds that the point stands for.
    ///
    /// Rates and drops are as exact as they are stored. Of the delays and round trips, two
    /// percentiles are known: 98 % of the packets get the lower and 2 % the higher one, with a
    /// number of packets that is guessed from the bytes. So percentiles of merged points are
    /// estimates.
    pub fn summary(&self, step_s: u64) -> Summary {
        let seconds = step_s as f64;
        let mut summary = Summary::sent(seconds, self.sent_bps() * seconds, self.drops());
        summary.peak_bps = self.peak_bps();
        let packets = ((summary.bits / PACKET_BITS) as u64).clamp(100, 10_000_000);
        let slow = packets / 50;
        for (column, packets) in [(DELAY_P50, packets - slow), (DELAY_P99, slow)] {
            if let Some(ms) = self.time(column) {
                summary.delays.add(ms * 1e3, packets);
            }
        }
        if let Some(ms) = self.time(TRIP_P50) {
            summary.round_trips.add(ms * 1e3, packets);
        }
        if let Some(ms) = self.time(TRIP_P99) {
            summary.slow_round_trips.add(ms * 1e3, packets);
        }
        if let (Some(before), Some(beyond)) = (self.share(BEFORE), self.share(BEYOND)) {
            summary.segments = packets as f64;
            summary.lost_before = before * summary.segments;
            summary.lost_beyond = beyond * summary.segments;
        }
        summary
    }
}

/// The code of a share, and one.
fn share_code(share: f64) -> u16 {
    code((share * MILLION).round() as u64, COARSE) + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn busy() -> Summary {
        let mut summary = Summary::sent(60.0, 60.0 * 5e6, 37.0);
        summary.peak_bps = 9e6;
        for (us, packets) in [(800.0, 960), (4_000.0, 30), (48_000.0, 10)] {
            summary.delays.add(us, packets);
            summary.round_trips.add(us * 2.0, packets);
            summary.slow_round_trips.add(us * 3.0, packets);
        }
        (summary.segments, summary.lost_before, summary.lost_beyond) = (2000.0, 4.0, 40.0);
        summary
    }

    #[test]
    fn a_point_tells_what_happened() {
        let point = Point::of(&busy());
        let near = |what: What, expected: f64| {
            let value = what.of(&point, 60).unwrap();
            assert!((value / expected - 1.0).abs() < 0.07, "{what}: {value} for {expected}");
        };
        near(What::Sent, 5e6);
        near(What::Drops, 37.0 / 60.0);
        near(What::DelayP50, 0.8);
        near(What::DelayP99, 4.0);
        near(What::RoundTripP50, 1.6);
        near(What::RoundTripP99, 12.0);
        near(What::LossBefore, 0.002);
        near(What::LossBeyond, 0.02);
        near(What::Loss, 0.022);
        assert!((point.peak_bps() / 9e6 - 1.0).abs() < 0.002);
    }

    #[test]
    fn what_was_not_measured_is_unknown_and_not_zero() {
        let point = Point::of(&Summary::sent(1.0, 0.0, 0.0));
        assert!(point.is_idle());
        let known = What::ALL.map(|what| what.of(&point, 1));
        assert_eq!(known[..2], [Some(0.0); 2]);
        assert!(known[2..].iter().all(Option::is_none));
        let mut lossless = Summary::sent(1.0, 0.0, 0.0);
        lossless.segments = 5.0;
        assert_eq!(What::Loss.of(&Point::of(&lossless), 1), Some(0.0));
    }

    #[test]
    fn every_word_names_its_series() {
        assert!(What::ALL.iter().all(|what| what.name().parse() == Ok(*what)));
        assert!("latency".parse::<What>().unwrap_err().contains("delay-p99"));
    }

    proptest! {
        #[test]
        fn a_point_that_is_merged_alone_stays_itself(
            bits in 0u64..1 << 40, peak in 0u64..1 << 20, drops in 0u64..10_000,
            us in proptest::option::of((0u32..10_000_000, 0u32..1_000_000)),
            loss in proptest::option::of((0u32..1000, 0u32..1000)),
        ) {
            let mut summary = Summary::sent(10.0, bits as f64, drops as f64);
            summary.peak_bps += peak as f64;
            if let Some((fast, more)) = us {
                summary.delays.add(fast.into(), 90);
                summary.delays.add(f64::from(fast) + f64::from(more), 10);
                summary.round_trips.add(fast.into(), 1);
                summary.slow_round_trips.add(more.into(), 1);
            }
            if let Some((before, beyond)) = loss {
                summary.segments = 1000.0;
                (summary.lost_before, summary.lost_beyond) = (before.into(), beyond.into());
            }
            let point = Point::of(&summary);
            let again = Point::of(&point.summary(10));
            for what in What::ALL {
                let (was, is) = (what.of(&point, 10), what.of(&again, 10));
                prop_assert_eq!(was.is_some(), is.is_some(), "{}", what);
                let (was, is) = (was.unwrap_or_default(), is.unwrap_or_default());
                prop_assert!((was - is).abs() <= was / 16.0 + 1e-6, "{what}: {was} {is}");
            }
        }
    }
}
