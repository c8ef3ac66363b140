//! Sparklines: a row of bars, one character each.

use std::collections::VecDeque;

/// The number of points kept: the width of the widest sparkline.
const POINTS: usize = 240;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The bars on a terminal that shows only ASCII.
const ASCII: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];

/// The latest values of one rate; `None` for missing ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(VecDeque<Option<f64>>);

impl History {
    pub(crate) fn push(&mut self, value: Option<f64>) {
        if self.0.len() == POINTS {
            self.0.pop_front();
        }
        self.0.push_back(value);
    }

    /// The latest `width` values as bars, the newest last. The highest bar is `full` or, if that is
    /// unknown, the largest value shown. A gap is a blank.
    pub(crate) fn bars(&self, width: usize, full: Option<f64>, is_ascii: bool) -> String {
        let shown = self.0.len().min(width);
        let latest = || self.0.iter().skip(self.0.len() - shown);
        let full = full.unwrap_or_else(|| latest().flatten().fold(0.0, |a: f64, b| a.max(*b)));
        let bars = if is_ascii { &ASCII } else { &BARS };
        let bar = |value: &Option<f64>| match value {
            None => ' ',
            Some(value) if *value <= 0.0 || full <= 0.0 => bars[0],
            Some(value) => bars[((value / full * 8.0).ceil() as usize).clamp(1, 8) - 1],
        };
        " ".repeat(width - shown) + &latest().map(bar).collect::<String>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[Option<f64>]) -> History {
        History(values.iter().copied().collect())
    }

    #[test]
    fn the_highest_bar_is_the_limit_or_else_the_largest_value() {
        let history = of(&[Some(0.0), Some(50.0), None, Some(100.0)]);
        assert_eq!(history.bars(4, Some(100.0), false), "▁▄ █");
        assert_eq!(history.bars(4, Some(200.0), false), "▁▂ ▄");
        assert_eq!(history.bars(6, None, true), "  _- #");
    }

    #[test]
    fn excess_over_the_limit_is_a_full_bar() {
        assert_eq!(of(&[Some(300.0)]).bars(1, Some(100.0), false), "█");
    }

    #[test]
    fn the_newest_values_are_kept() {
        let mut history = History::default();
        for value in 0..POINTS + 5 {
            history.push(Some(value as f64));
        }
        assert_eq!(history.0.len(), POINTS);
        assert_eq!(history.0.back(), Some(&Some((POINTS + 4) as f64)));
        assert_eq!(history.bars(2, Some(1.0), false), "██");
    }
}
