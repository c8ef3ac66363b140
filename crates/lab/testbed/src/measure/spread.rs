//! A figure over several rounds: the median with the extremes, which show its reliability.

use serde::Serialize;

/// The median over the rounds, between the extremes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Half of the rounds were at most this.
    pub median: f64,
    /// The least of them.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// Of at least one value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let (min, max) = (*values.first()?, *values.last()?);
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Some(Self { median, min, max })
    }

    /// The median and, in parentheses, the extremes, each with `digits` decimals.
    pub fn shown(&self, digits: usize) -> String {
        let Self { median, min, max } = self;
        format!("{median:.digits$} ({min:.digits$}-{max:.digits$})")
    }
}

/// `spread` with so many decimals; `-` if there is none.
pub(crate) fn shown(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(|| "-".to_owned(), |spread| spread.shown(digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_between_the_extremes() {
        let spread = Spread::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!(spread, Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of([1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn the_extremes_are_shown_beside_the_median() {
        let spread = Spread { median: 2.0, min: 1.25, max: 3.0 };
        assert_eq!(spread.shown(1), "2.0 (1.2-3.0)");
    }
}
