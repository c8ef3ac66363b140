//! A number that may be unknown, in four bytes: a view of 100,000 subscribers has millions.

use serde::{Serialize, Serializer};
use std::cmp::Ordering;

/// How many digits of a figure are sent: more cannot be read, and change each second.
const DIGITS: i32 = 4;

/// A number, or nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure(f32);

impl Figure {
    /// Nothing is known.
    pub(crate) const UNKNOWN: Self = Self(f32::NAN);

    /// This number, if it is one.
    pub(crate) fn new(number: f64) -> Self {
        Self(number as f32)
    }

    /// The number, if it is known.
    pub(crate) fn get(self) -> Option<f64> {
        (!self.0.is_nan()).then_some(f64::from(self.0))
    }

    /// The larger one; the known one if only one is.
    pub(crate) fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }

    /// The sum of those that are known.
    pub(crate) fn plus(self, other: Self) -> Self {
        match (self.get(), other.get()) {
            (Some(one), Some(two)) => Self::new(one + two),
            (Some(_), None) => self,
            _ => other,
        }
    }

    /// By size. Unknown ones are less than all others.
    pub(crate) fn order(self, other: Self) -> Ordering {
        match (self.0.is_nan(), other.0.is_nan()) {
            (false, false) => self.0.total_cmp(&other.0),
            (one, two) => two.cmp(&one),
        }
    }
}

impl From<Option<f64>> for Figure {
    fn from(number: Option<f64>) -> Self {
        number.map_or(Self::UNKNOWN, Self::new)
    }
}

/// Rounded; null if it is unknown.
impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.get().filter(|number| number.is_finite()) {
            None => to.serialize_none(),
            Some(number) => match rounded(number) {
                whole if whole.fract() == 0.0 && whole.abs() < 1e15 => {
                    to.serialize_i64(whole as i64)
                }
                part => to.serialize_f64(part),
            },
        }
    }
}

fn rounded(number: f64) -> f64 {
    if number == 0.0 {
        return 0.0;
    }
    let places = DIGITS - 1 - number.abs().log10().floor() as i32;
    let scale = 10_f64.powi(places.abs().min(300));
    if places >= 0 { (number * scale).round() / scale } else { (number / scale).round() * scale }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sent(number: f64) -> String {
        serde_json::to_string(&Figure::new(number)).unwrap()
    }

    #[test]
    fn it_is_sent_with_the_digits_that_can_be_read() {
        assert_eq!(sent(38_234_567.0), "38230000");
        assert_eq!(sent(0.0012344), "0.001234");
        assert_eq!(sent(0.0), "0");
        assert_eq!(sent(12.0), "12");
        assert_eq!(sent(f64::INFINITY), "null");
        assert_eq!(serde_json::to_string(&Figure::UNKNOWN).unwrap(), "null");
    }

    proptest! {
        #[test]
        fn rounding_changes_little(number in -1e12..1e12f64) {
            let read: f64 = sent(number).parse().unwrap();
            prop_assert!((read - number).abs() <= number.abs() * 1e-3 + 1e-30);
        }

        #[test]
        fn any_number_is_sent_as_json(number: f64) {
            let text = sent(number);
            prop_assert!(text == "null" || text.parse::<f64>().is_ok(), "{text}");
        }

        #[test]
        fn unknown_ones_are_least(number in -1e9..1e9f64) {
            let known = Figure::new(number);
            prop_assert_eq!(Figure::UNKNOWN.order(known), Ordering::Less);
            prop_assert_eq!(known.max(Figure::UNKNOWN).get(), known.get());
            prop_assert_eq!(known.plus(Figure::UNKNOWN).get(), known.get());
        }
    }
}
