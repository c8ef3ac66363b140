//! The charts in the details of a row: one for each figure that its view charts.

use crate::look::Look;
use crate::number::{micros, short};
use crate::spark::History;
use ratatui::text::Line;

/// What a chart shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Bits per second.
    Rate,
    /// Microseconds.
    Time,
    /// Packets per second.
    Packets,
    /// A part of 1.
    Share,
}

/// A column that is charted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charted {
    /// The number of the column.
    pub(crate) column: usize,
    pub(crate) title: &'static str,
    pub(crate) unit: Unit,
}

impl Charted {
    pub(crate) const fn new(column: usize, title: &'static str, unit: Unit) -> Self {
        Self { column, title, unit }
    }

    fn written(self, value: f64) -> String {
        match self.unit {
            Unit::Rate => format!("{}bit/s", short(value)),
            Unit::Time => micros(value as u64),
            Unit::Packets => format!("{} a second", short(value)),
            Unit::Share => crate::number::percent(value),
        }
    }

    /// The title with the latest and the highest value, and below it `height` lines of bars.
    pub(crate) fn lines(
        self,
        history: &History,
        (width, height): (usize, usize),
        look: Look,
    ) -> Vec<Line<'static>> {
        let said = |value: Option<f64>| value.map_or("-".to_owned(), |value| self.written(value));
        let title = format!(
            "{}: {}, highest {}",
            self.title,
            said(history.latest()),
            said(history.highest(width))
        );
        let bars = history.chart(width, height, look.is_ascii);
        let bars = bars.into_iter().map(|bars| Line::styled(bars, look.bars()));
        [Line::from(title)].into_iter().chain(bars).collect()
    }
}
