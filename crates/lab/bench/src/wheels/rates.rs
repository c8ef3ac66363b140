//! The rates at which flows are paced.
//!
//! Whatever they are, together they are 100 Gbit/s of packets of 1500 bytes: 120 ns per packet.
//!
//! The mix is a bounded Pareto distribution from 10 Kbit/s to 10 Gbit/s. Flow `i` of `n` has its
//! quantile at `(i + 1/2) / n`, so that there is no chance in it; the shape is the one with which
//! the mean is 100 Gbit/s divided by `n`. (Shape 0 would be log-uniform, of 724 Mbit/s in the mean,
//! which is right for 138 flows. With more flows most are slow: with 1,000,000 the shape is 1.06
//! and every decade of rates brings about as much traffic.) As `n` quantiles are not the whole
//! distribution, all rates are then multiplied by the same factor, close to 1, so that the sum is
//! exact.

use super::work::PACKET_TIME;

const SLOWEST: f64 = 1e4;
const FASTEST: f64 = 1e10;
const TOGETHER: f64 = 1e11;
const PACKET_BITS: f64 = 1500.0 * 8.0;
/// The fewest flows that 10 Gbit/s each suffices for, with some to spare.
pub(super) const FLOWS_LEAST: u32 = 16;

/// How fast each flow is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rates {
    /// All the same.
    Equal,
    /// From 10 Kbit/s to 10 Gbit/s.
    Mix,
}

impl Rates {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Equal, Self::Mix];

    /// Its name in tables and on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Mix => "mix",
        }
    }

    /// The one of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rates| rates.name() == name)
    }

    /// The gaps between the packets of each of `flows` flows, in nanoseconds, slow flows first.
    pub(super) fn gaps(self, flows: u32) -> Vec<f64> {
        let packet_time = PACKET_TIME.0 as f64;
        match self {
            Self::Equal => vec![packet_time * f64::from(flows); flows as usize],
            Self::Mix => {
                let shape = shape(TOGETHER / f64::from(flows));
                let rate = |flow| quantile(shape, (f64::from(flow) + 0.5) / f64::from(flows));
                let gap = |flow| PACKET_BITS * 1e9 / rate(flow);
                let mut gaps: Vec<f64> = (0..flows).map(gap).collect();
                let packets_a_nano: f64 = gaps.iter().map(|gap| 1.0 / gap).sum();
                for gap in &mut gaps {
                    *gap *= packets_a_nano * packet_time;
                }
                gaps
            }
        }
    }
}

/// The rate below which a part `u` of the flows is.
fn quantile(shape: f64, u: f64) -> f64 {
    let above = (SLOWEST / FASTEST).powf(shape);
    SLOWEST * (1.0 - u * (1.0 - above)).powf(-1.0 / shape)
}

/// The mean rate of that shape, which is neither 0 nor 1.
fn mean(shape: f64) -> f64 {
    let low = SLOWEST.powf(shape);
    let above = (SLOWEST / FASTEST).powf(shape);
    let span = FASTEST.powf(1.0 - shape) - SLOWEST.powf(1.0 - shape);
    shape / (1.0 - shape) * low * span / (1.0 - above)
}

/// The shape with that mean: the larger, the slower.
fn shape(wanted: f64) -> f64 {
    // Halving an interval whose ends are odd like these meets neither 0 nor 1.
    let (mut fast, mut slow) = (-10.123_456_7, 2.345_678_9);
    for _ in 0..60 {
        let middle = f64::midpoint(fast, slow);
        if mean(middle) > wanted { fast = middle } else { slow = middle }
    }
    slow
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: [u32; 4] = [FLOWS_LEAST, 1024, 100_000, 1_000_000];

    #[test]
    fn together_all_flows_are_a_hundred_gigabit() {
        for rates in Rates::ALL {
            for flows in NUMBERS {
                let gaps = rates.gaps(flows);
                let together: f64 = gaps.iter().map(|gap| PACKET_BITS * 1e9 / gap).sum();
                assert_eq!(gaps.len(), flows as usize);
                assert!((together / TOGETHER - 1.0).abs() < 1e-9, "{together} with {flows} flows");
            }
        }
    }

    #[test]
    fn a_mix_reaches_from_ten_kilobit_to_ten_gigabit() {
        for flows in NUMBERS {
            let gaps = Rates::Mix.gaps(flows);
            let rate = |gap: f64| PACKET_BITS * 1e9 / gap;
            let (slowest, fastest) = (rate(gaps[0]), rate(gaps[flows as usize - 1]));
            assert!((0.8 * SLOWEST..1e6 * SLOWEST).contains(&slowest), "{slowest}");
            if flows >= 1024 {
                assert!(slowest < 1.3 * SLOWEST, "{slowest} with {flows} flows");
            }
            assert!((0.4 * FASTEST..1.3 * FASTEST).contains(&fastest), "{fastest} of {flows}");
            assert!(gaps.is_sorted_by(|slow, fast| slow >= fast));
        }
    }

    #[test]
    fn a_hundred_and_thirty_eight_flows_are_log_uniform() {
        assert!(shape(TOGETHER / 138.2).abs() < 1e-3);
        assert!((shape(1e5) - 1.06).abs() < 0.02, "{}", shape(1e5));
    }
}
