//! Sparklines: a row of bars, one character each.

use std::collections::VecDeque;

/// The number of points kept: the width of the widest sparkline.
pub(crate) const POINTS: usize = 240;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The bars on a terminal that shows only ASCII.
const ASCII: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];

/// A bar of at most `width` characters that is as long as `value` is to `full`.
pub(crate) fn bar(value: f64, full: f64, width: usize, is_ascii: bool) -> String {
    /// From an eighth to all of a character.
    const PARTS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
    if full <= 0.0 || value <= 0.0 {
        return String::new();
    }
    let eighths = ((value / full).min(1.0) * 8.0 * width as f64).round() as usize;
    if is_ascii {
        return "#".repeat(eighths.div_ceil(8).max(1));
    }
    let part = (eighths % 8).checked_sub(1).map(|part| PARTS[part]);
    "█".repeat(eighths / 8).chars().chain(part).collect()
}

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

    /// The latest value, unless it is missing.
    pub(crate) fn latest(&self) -> Option<f64> {
        *self.0.back()?
    }

    /// The largest of the latest `width` values.
    pub(crate) fn highest(&self, width: usize) -> Option<f64> {
        let skipped = self.0.len().saturating_sub(width);
        self.0.iter().skip(skipped).flatten().copied().reduce(f64::max)
    }

    /// The latest `width` values as bars of `height` lines, the newest last, the largest as high as
    /// all lines. The first line is the uppermost. A gap is blank.
    pub(crate) fn chart(&self, width: usize, height: usize, is_ascii: bool) -> Vec<String> {
        let shown = self.0.len().min(width);
        let bars = if is_ascii { &ASCII } else { &BARS };
        let full = self.highest(width).unwrap_or(0.0);
        let eighths = |value: f64| match full > 0.0 && value > 0.0 {
            true => ((value / full * 8.0 * height as f64).ceil() as usize).max(1),
            false => 0,
        };
        let line = |below: usize| {
            let bar = |value: &Option<f64>| match value.map(eighths) {
                None => ' ',
                Some(0) if below == 0 => bars[0],
                Some(all) => match all.saturating_sub(8 * below) {
                    0 => ' ',
                    part => bars[part.min(8) - 1],
                },
            };
            let latest = self.0.iter().skip(self.0.len() - shown);
            " ".repeat(width - shown) + &latest.map(bar).collect::<String>()
        };
        (0..height).rev().map(line).collect()
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
    fn a_bar_is_as_long_as_its_value_is_to_the_largest() {
        let bars = [100.0, 50.0, 7.0, 0.0, 200.0].map(|value| bar(value, 100.0, 4, false));
        assert_eq!(bars, ["████", "██", "▎", "", "████"]);
        assert_eq!(bar(1.0, 100.0, 4, true), "#");
        assert_eq!(bar(1.0, 0.0, 4, false), "");
    }

    #[test]
    fn a_chart_of_several_lines_has_the_largest_value_as_high_as_all_of_them() {
        let history = of(&[Some(0.0), Some(50.0), None, Some(100.0)]);
        assert_eq!(history.chart(5, 2, false), ["    █", " ▁█ █"]);
        assert_eq!(history.chart(1, 1, true), ["#"]);
        assert_eq!((history.latest(), history.highest(9)), (Some(100.0), Some(100.0)));
        assert_eq!(of(&[]).chart(2, 1, false), ["  "]);
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
