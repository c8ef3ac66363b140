//! Chance: draws that depend on nothing but a seed.
//!
//! *Correlation.* With a correlation c a draw is the one before it with probability c, and else a
//! new one. So each draw has the distribution that was asked for, and two that follow each other
//! the correlation that was asked for. Linux takes c parts of the last draw and 1 - c parts of a
//! new one, which bends the distribution: `loss 1% 25%` loses far less than 1 %.
//!
//! Cost: a draw is a multiplication of 64 bits; a normal one mostly the same and a table.

use super::config::{Distribution, Happening, Probability};
use narrows_packet::Rewrite;
use narrows_units::Nanos;
use rand_distr::{Distribution as _, StandardNormal};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

/// Delays are within this many jitters of their mean, as in tc's tables.
const FURTHEST: f64 = 4.0;
/// The exponent of the Pareto distribution of tc's tables,
const EXPONENT: f64 = 3.0;
/// its mean,
const MEAN: f64 = EXPONENT / (EXPONENT - 1.0);
/// and what it is scaled by.
const SCALE: f64 = 4.0 / 3.0;
/// The scale of the mixed distribution that makes it as wide as tc's table.
const MIXED: f64 = 1.27;

/// The source of all draws of an instance.
pub(super) struct Chances(Pcg32);

impl Chances {
    /// Those of one of the streams of `seed`.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        Self(Pcg32::new(seed, stream))
    }

    /// Any number.
    #[inline]
    pub(super) fn number(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// Whether something so probable happens.
    #[inline]
    pub(super) fn happens(&mut self, probability: Probability) -> bool {
        is_met(self.number(), probability)
    }

    /// Above zero, up to one.
    fn share(&mut self) -> f64 {
        (f64::from(self.number()) + 1.0) / (f64::from(u32::MAX) + 1.0)
    }

    /// The position of a flipped bit; never zero, which means none.
    pub(super) fn place(&mut self) -> u16 {
        (self.number() % u32::from(Rewrite::PLACES)).max(1) as u16
    }

    /// How far from its mean a delay is, in jitters.
    fn offset(&mut self, distribution: Distribution) -> f64 {
        let offset = match distribution {
            Distribution::Uniform => 2.0 * self.share() - 1.0,
            Distribution::Normal => self.normal(),
            Distribution::Pareto => self.pareto(),
            Distribution::ParetoNormal => MIXED * (0.25 * self.normal() + 0.75 * self.pareto()),
        };
        offset.clamp(-FURTHEST, FURTHEST)
    }

    fn normal(&mut self) -> f64 {
        StandardNormal.sample(&mut self.0)
    }

    fn pareto(&mut self) -> f64 {
        (self.share().powf(-1.0 / EXPONENT) - MEAN) * SCALE
    }
}

#[inline]
const fn is_met(number: u32, probability: Probability) -> bool {
    number < probability.0 || probability.0 == u32::MAX
}

/// Draws of one kind, which may be correlated with the previous one.
#[derive(Default)]
pub(super) struct Draw {
    /// The last number that was drawn, or the last offset.
    last: Last,
}

#[derive(Clone, Copy, Default)]
enum Last {
    #[default]
    None,
    Number(u32),
    Offset(f64),
}

impl Draw {
    /// Whether `happening` occurs for this packet.
    #[inline]
    pub(super) fn happens(&mut self, happening: &Happening, chances: &mut Chances) -> bool {
        let Happening { probability, correlation } = *happening;
        if probability == Probability::NEVER {
            return false;
        }
        let number = match self.last {
            Last::Number(last) if Self::is_kept(correlation, chances) => last,
            _ => chances.number(),
        };
        if correlation != Probability::NEVER {
            self.last = Last::Number(number);
        }
        is_met(number, probability)
    }

    /// A time around `mean`, varied by `jitter`; never negative.
    #[inline]
    pub(super) fn time(
        &mut self,
        mean: Nanos,
        jitter: Nanos,
        distribution: Distribution,
        correlation: Probability,
        chances: &mut Chances,
    ) -> Nanos {
        if jitter == Nanos::ZERO {
            return mean;
        }
        let offset = match self.last {
            Last::Offset(last) if Self::is_kept(correlation, chances) => last,
            _ => chances.offset(distribution),
        };
        self.last = Last::Offset(offset);
        let offset = (offset * jitter.0 as f64) as i64;
        Nanos(mean.0.saturating_add_signed(offset))
    }

    /// Whether the last draw counts again.
    #[inline]
    fn is_kept(correlation: Probability, chances: &mut Chances) -> bool {
        correlation != Probability::NEVER && chances.happens(correlation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 200_000;

    fn percent(percent: f64) -> Probability {
        Probability((percent / 100.0 * f64::from(u32::MAX)) as u32)
    }

    /// The mean of `values`, and their correlation with the previous one.
    fn mean_and_correlation(values: &[f64]) -> (f64, f64) {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let together: f64 = values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
        (mean, together / variance)
    }

    #[test]
    fn frequencies_are_right_at_any_correlation() {
        for (probability, correlation) in [(1.0, 0.0), (1.0, 25.0), (30.0, 50.0), (30.0, 90.0)] {
            let mut chances = Chances::new(7, 0);
            let mut draw = Draw::default();
            let happening =
                Happening { probability: percent(probability), correlation: percent(correlation) };
            let values: Vec<f64> = (0..DRAWS)
                .map(|_| f64::from(u8::from(draw.happens(&happening, &mut chances))))
                .collect();
            let (mean, correlated) = mean_and_correlation(&values);
            let share = probability / 100.0;
            // Correlated draws are worth fewer independent ones.
            let alike = (100.0 + correlation) / (100.0 - correlation);
            let tolerance = 4.0 * (share * (1.0 - share) * alike / DRAWS as f64).sqrt();
            assert!((mean - share).abs() < tolerance, "{probability} {correlation}: {mean}");
            assert!((correlated - correlation / 100.0).abs() < 0.05, "{correlation}: {correlated}");
        }
    }

    #[test]
    fn never_is_never_and_always_is_always() {
        let mut chances = Chances::new(0, 0);
        let mut draw = Draw::default();
        for (probability, expected) in [(Probability::NEVER, 0), (Probability::ALWAYS, DRAWS)] {
            let happening = Happening { probability, correlation: percent(50.0) };
            let met = (0..DRAWS).filter(|_| draw.happens(&happening, &mut chances)).count();
            assert_eq!(met, expected);
        }
    }

    fn times(distribution: Distribution, correlation: f64, seed: u64) -> Vec<f64> {
        let mut chances = Chances::new(seed, 0);
        let mut draw = Draw::default();
        let (mean, jitter) = (Nanos::from_millis(20), Nanos::from_millis(2));
        let time = |_| {
            draw.time(mean, jitter, distribution, percent(correlation), &mut chances).0 as f64 / 1e6
        };
        (0..DRAWS).map(time).collect()
    }

    #[test]
    fn delays_are_spread_as_stated() {
        // Mean, standard deviation, least, most, in ms.
        for (distribution, mean, deviation, least, most) in [
            (Distribution::Uniform, 20.0, 2.0 / 3f64.sqrt(), 18.0, 22.0),
            (Distribution::Normal, 20.0, 2.0, 12.0, 28.0),
            // As in tc's tables: cut off at 4.
            (Distribution::Pareto, 19.93, 1.64, 18.66, 28.0),
            (Distribution::ParetoNormal, 19.95, 1.67, 15.5, 28.0),
        ] {
            let times = times(distribution, 0.0, 3);
            let found = times.iter().sum::<f64>() / DRAWS as f64;
            let variance = times.iter().map(|time| (time - found).powi(2)).sum::<f64>();
            let spread = (variance / DRAWS as f64).sqrt();
            assert!((found - mean).abs() < 0.05, "{distribution:?}: mean {found}");
            assert!((spread - deviation).abs() < 0.05, "{distribution:?}: deviation {spread}");
            assert!(times.iter().all(|time| (least..=most).contains(time)), "{distribution:?}");
        }
    }

    #[test]
    fn delays_are_correlated_as_configured_and_keep_their_width() {
        for correlation in [25.0, 75.0] {
            let (_, correlated) =
                mean_and_correlation(&times(Distribution::Uniform, correlation, 5));
            assert!((correlated - correlation / 100.0).abs() < 0.02, "{correlated}");
        }
    }

    #[test]
    fn a_seed_says_it_all_and_streams_differ() {
        let numbers = |seed, stream| {
            let mut chances = Chances::new(seed, stream);
            (0..8).map(|_| chances.number()).collect::<Vec<_>>()
        };
        assert_eq!(numbers(1, 0), numbers(1, 0));
        assert_ne!(numbers(1, 0), numbers(2, 0));
        assert_ne!(numbers(1, 0), numbers(1, 1));
    }

    #[test]
    fn a_delay_is_never_less_than_nothing() {
        let mut chances = Chances::new(1, 0);
        let mut draw = Draw::default();
        let (mean, jitter) = (Nanos(10), Nanos(1000));
        let none = Probability::NEVER;
        let time = |_| draw.time(mean, jitter, Distribution::Normal, none, &mut chances);
        assert!((0..1000).map(time).all(|time| time.0 < 4011));
    }
}
