//! Parses a command line word by word.

use crate::complaint::Complaint;

/// The words of a line that have not been consumed yet.
#[derive(Clone, Copy)]
pub(crate) struct Words<'a> {
    words: &'a [&'a str],
}

impl<'a> Words<'a> {
    pub(crate) fn new(words: &'a [&'a str]) -> Self {
        Self { words }
    }

    /// The next word, if there is one.
    pub(crate) fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    /// The next word, if `is_wanted` accepts it.
    pub(crate) fn next_if(&mut self, is_wanted: impl Fn(&str) -> bool) -> Option<&'a str> {
        self.words.first().filter(|word| is_wanted(word))?;
        self.next()
    }

    /// The next word, without consuming it.
    pub(crate) fn peek(&self) -> Option<&'a str> {
        self.words.first().copied()
    }

    /// The value that must follow the word `of`, such as `example`.
    pub(crate) fn value(&mut self, of: &str, example: &str) -> Result<&'a str, Complaint> {
        self.next().ok_or_else(|| {
            Complaint::unreadable(format!(
                "Command line is not complete: \"{of}\" wants a value, as in \"{of} {example}\"."
            ))
        })
    }
}

/// The complaint about a second `value` of the word `name`.
pub(crate) fn twice(name: &str, value: &str) -> Complaint {
    Complaint::unreadable(format!(
        "Error: duplicate \"{name}\": \"{value}\" is the second value, give one."
    ))
}

/// Whether `word` abbreviates `full`. `tc` accepts any prefix of most of its words, and takes the
/// first match in its own order.
pub(crate) fn abbreviates(word: &str, full: &str) -> bool {
    !word.is_empty() && full.starts_with(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_beginning_is_an_abbreviation_but_nothing_is_not() {
        assert!(abbreviates("q", "qdisc"));
        assert!(abbreviates("qdisc", "qdisc"));
        assert!(!abbreviates("qdiscs", "qdisc"));
        assert!(!abbreviates("", "qdisc"));
    }
}
