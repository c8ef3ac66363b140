//! What cannot be used of a source, and where it is.

use std::fmt;

/// The most faults that are kept with their text; more are counted.
const KEPT_MAX: usize = 1_000;
/// The longest quotation of foreign text, in characters.
const QUOTED_MAX: usize = 60;

/// Something in the data that cannot be used as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Where: a list, a line or record, and the identity if there is one.
    pub place: String,
    /// What is wrong there, and what happens instead.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.place, self.what)
    }
}

/// The faults of a source: up to 1,000 with their text, and the number of all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    kept: Vec<Fault>,
    count: usize,
}

impl Faults {
    pub(crate) fn add(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.count += 1;
        if self.kept.len() < KEPT_MAX {
            self.kept.push(Fault { place: place.into(), what: what.into() });
        }
    }

    /// The first faults, in the order of the data.
    #[must_use]
    pub fn kept(&self) -> &[Fault] {
        &self.kept
    }

    /// How many there are, with those that are not kept.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }
}

/// Foreign text in quotation marks, cut, without control characters.
pub(crate) fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(QUOTED_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(QUOTED_MAX).is_some() {
        shown.push('…');
    }
    format!("\"{shown}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_faults_are_counted_and_a_thousand_are_kept() {
        let mut faults = Faults::default();
        for index in 0..1_000_000 {
            faults.add(format!("record {index}"), "it has no identity");
        }
        assert_eq!((faults.count(), faults.kept().len()), (1_000_000, KEPT_MAX));
        assert_eq!(faults.kept()[7].to_string(), "record 7: it has no identity");
    }

    #[test]
    fn foreign_text_is_cut_and_has_no_line_breaks() {
        assert_eq!(quoted("a\nb\u{1b}"), "\"a\\nb\\u{1b}\"");
        assert_eq!(quoted(&"x".repeat(100)).chars().count(), QUOTED_MAX + 3);
    }
}
