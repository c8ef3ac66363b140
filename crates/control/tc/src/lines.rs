//! The lines of a file of commands, and their words.
//!
//! `tc -batch` and policy files have the same: comments, continued lines, quotes.

use narrows_units::without_mark;
use std::borrow::Cow;

/// Separators of words.
const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

/// A line with its continuation lines.
pub(crate) struct Line<'a> {
    /// Its text, without the comment.
    pub(crate) text: Cow<'a, str>,
    /// The number of its first line, from 1.
    pub(crate) first: usize,
    /// The number of its last line, which is the one that `tc` names.
    pub(crate) number: usize,
}

/// The lines of a file without comments. A comment begins with `#` anywhere; a backslash at the
/// very end of a line continues it. The mark with which some editors begin a file is no text.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    Lines { text, at: 0, breaks: 0 }
}

/// See [`lines`]. It can go on in a later call.
pub(crate) struct Lines<'a> {
    /// The whole file.
    pub(crate) text: &'a str,
    /// Where the next line begins; behind the text's end after the last.
    pub(crate) at: usize,
    /// How many line breaks are before that.
    pub(crate) breaks: usize,
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        let mut text = Cow::Borrowed("");
        let first = self.breaks + 1;
        let mut number = None;
        if self.at == 0 {
            self.at = self.text.len() - without_mark(self.text).len();
        }
        while let Some(rest) = self.text.get(self.at..) {
            let (line, end) = match rest.find('\n') {
                Some(end) => (&rest[..end], self.at + end + 1),
                None => (rest, self.text.len() + 1),
            };
            // Some editors end lines with it, also those that go on.
            let line = line.strip_suffix('\r').unwrap_or(line);
            self.at = end;
            self.breaks += 1;
            number = Some(self.breaks);
            let code = line.split_once('#').map(|(code, _)| code);
            // A backslash before a comment is not at the end of the line.
            match (code, line.strip_suffix('\\')) {
                (None, Some(begun)) => text += begun,
                (code, _) => {
                    text += code.unwrap_or(line);
                    break;
                }
            }
        }
        Some(Line { text, first, number: number? })
    }
}

/// The words of a line. A word that begins with a quote extends to the next such quote.
pub(crate) fn words(line: &str) -> Result<Vec<&str>, String> {
    // As many as most have.
    let mut words = Vec::with_capacity(20);
    let mut rest = line.trim_start_matches(BLANKS);
    while let Some(first) = rest.chars().next() {
        let (word, behind) = if matches!(first, '\'' | '"') {
            rest[1..].split_once(first).ok_or_else(|| {
                format!("Unterminated quoted string: {rest}: a {first} is missing at its end.")
            })?
        } else {
            rest.split_at(rest.find(BLANKS).unwrap_or(rest.len()))
        };
        words.push(word);
        rest = behind.trim_start_matches(BLANKS);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<(usize, Vec<String>)> {
        let owned =
            |line: Line| words(&line.text).unwrap().into_iter().map(str::to_owned).collect();
        lines(text).map(|line| (line.number, owned(line))).collect()
    }

    fn say(text: &str) -> Vec<String> {
        text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()
    }

    #[test]
    fn comments_and_blank_lines_hold_no_words_but_count() {
        assert_eq!(
            split("# a\n\nb c # d\ne#f"),
            [(1, say("")), (2, say("")), (3, say("b c")), (4, say("e"))]
        );
    }

    #[test]
    fn a_backslash_at_the_end_continues_a_line() {
        assert_eq!(split("a \\\n b\\\nc\nd"), [(3, say("a bc")), (4, say("d"))]);
        assert_eq!(split("a \\ # no\nb"), [(1, say("a \\")), (2, say("b"))]);
        assert_eq!(split("a \\"), [(1, say("a"))]);
    }

    #[test]
    fn quotes_keep_blanks_together() {
        assert_eq!(words("a 'b c'  \"d'\"e").unwrap(), ["a", "b c", "d'", "e"]);
        assert!(words("a 'b").unwrap_err().contains("'b"));
    }

    #[test]
    fn the_mark_of_an_editor_is_no_part_of_the_first_word() {
        assert_eq!(split("\u{feff}a b\r\nc"), [(1, say("a b")), (2, say("c"))]);
        assert_eq!(split("\u{feff}# d\ne"), [(1, say("")), (2, say("e"))]);
        assert_eq!(split("\u{feff}"), [(1, say(""))]);
        assert_eq!(split("a \u{feff}b"), [(1, say("a \u{feff}b"))], "elsewhere it is text");
    }

    #[test]
    fn carriage_returns_are_blanks() {
        assert_eq!(split("a b\r\nc"), [(1, say("a b")), (2, say("c"))]);
        assert_eq!(split("a \\\r\n b\r\nc\r\n")[..2], [(2, say("a b")), (3, say("c"))]);
    }
}
