//! How long packets took: how many of them, by rounded time.

use crate::quantised::{COARSE, code, middle};

/// The unit of codes: a quarter of a microsecond.
const PER_US: f64 = 4.0;
/// The largest code: 36 minutes.
const CODE_MAX: u16 = 253;

/// A sparse histogram. Times are within 6.3 %, and at most 36 minutes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Times(Vec<(u8, u32)>);

impl Times {
    /// Adds `packets` that took `us` microseconds. Negative times count as none.
    pub fn add(&mut self, us: f64, packets: u64) {
        if packets > 0 {
            self.put(code_of(us), u32::try_from(packets).unwrap_or(u32::MAX));
        }
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        if self.0.is_empty() {
            self.0.clone_from(&other.0);
            return;
        }
        for (code, packets) in &other.0 {
            self.put(*code, *packets);
        }
    }

    /// Whether there is no packet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The time in microseconds that so large a share of the packets took at most; none without
    /// packets.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        self.code_at(share).map(|code| time_of(code.into()))
    }

    /// The code of the same time.
    pub(crate) fn code_at(&self, share: f64) -> Option<u8> {
        let all: u64 = self.0.iter().map(|(_, packets)| u64::from(*packets)).sum();
        let wanted = (all as f64 * share).ceil() as u64;
        let mut seen = 0;
        let reached = self.0.iter().find(|(_, packets)| {
            seen += u64::from(*packets);
            seen >= wanted
        });
        reached.or(self.0.last()).map(|(code, _)| *code)
    }

    fn put(&mut self, code: u8, packets: u32) {
        match self.0.binary_search_by_key(&code, |(at, _)| *at) {
            Ok(place) => self.0[place].1 = self.0[place].1.saturating_add(packets),
            Err(place) => self.0.insert(place, (code, packets)),
        }
    }
}

/// The code of a time in microseconds.
pub(crate) fn code_of(us: f64) -> u8 {
    // Casting a float saturates, and makes zero of what is no number.
    code((us * PER_US).round() as u64, COARSE).min(CODE_MAX) as u8
}

/// The time in microseconds that a code stands for.
pub(crate) fn time_of(code: u16) -> f64 {
    middle(code.min(CODE_MAX), COARSE) / PER_US
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_percentile_is_that_of_a_sorted_list(
            mut one in proptest::collection::vec((0u32..2_000_000, 1u64..5), 1..40),
            two in proptest::collection::vec((0u32..2_000_000, 1u64..5), 0..40),
            share in 0.01f64..=1.0,
        ) {
            let made = |list: &[(u32, u64)]| {
                let mut times = Times::default();
                list.iter().for_each(|(us, packets)| times.add(f64::from(*us), *packets));
                times
            };
            let mut times = made(&one);
            times.merge(&made(&two));
            one.extend(two);
            one.sort_unstable();
            let all: Vec<u32> = one
                .iter()
                .flat_map(|(us, packets)| std::iter::repeat_n(*us, *packets as usize))
                .collect();
            let at = ((all.len() as f64 * share).ceil() as usize).clamp(1, all.len());
            let exact = f64::from(all[at - 1]);
            let read = times.quantile(share).unwrap();
            prop_assert!((read - exact).abs() <= exact / 16.0 + 0.2, "{exact}: {read}");
        }
    }

    #[test]
    fn odd_times_have_a_place() {
        let mut times = Times::default();
        [f64::NAN, -1.0, f64::INFINITY].iter().for_each(|us| times.add(*us, 1));
        times.add(1.0, u64::MAX);
        times.add(1.0, 1);
        assert_eq!(times.quantile(0.0), Some(0.0));
        assert!(times.quantile(1.0).unwrap() > 2e9);
        assert_eq!(Times::default().quantile(0.5), None);
    }
}
