//! The content of a table's cell, and its sort key.

use crate::number;
use std::cmp::Ordering;

/// A cell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    /// The sort key, if it is a number.
    value: Option<f64>,
}

impl Cell {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), value: None }
    }

    /// An empty cell.
    pub(crate) fn blank() -> Self {
        Self::text("")
    }

    pub(crate) fn count(count: u64) -> Self {
        Self { text: number::short(count as f64), value: Some(count as f64) }
    }

    /// A count or a rate, which may be unknown.
    pub(crate) fn number(value: Option<f64>) -> Self {
        Self { text: value.map_or("-".into(), number::short), value }
    }

    pub(crate) fn percent(share: Option<f64>) -> Self {
        Self { text: share.map_or("-".into(), number::percent), value: share }
    }

    pub(crate) fn micros(us: u64) -> Self {
        Self { text: number::micros(us), value: Some(us as f64) }
    }

    /// A time in microseconds, which may be unknown.
    pub(crate) fn time(us: Option<f64>) -> Self {
        us.map_or_else(|| Self::number(None), |us| Self::micros(us as u64))
    }

    /// Its number, if it is one that is known.
    pub(crate) fn value(&self) -> Option<f64> {
        self.value
    }

    /// Compares with `other`: numbers by value, unknown ones first; text alphabetically.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        match (self.value, other.value) {
            (Some(one), Some(other)) => one.total_cmp(&other),
            (Some(_), None) => Ordering::Greater,
            (None, Some(_)) => Ordering::Less,
            (None, None) => self.text.cmp(&other.text),
        }
    }
}
