//! The byte order mark, with which some editors and programs begin a file. It is no part of the
//! text (RFC 3629, section 6).
//!
//! Non-goals: other encodings than UTF-8.

/// The mark, as UTF-8 has it.
const MARK: &str = "\u{feff}";

/// `text` without the mark that it may begin with.
pub fn without_mark(text: &str) -> &str {
    text.strip_prefix(MARK).unwrap_or(text)
}

/// `text`, which is yet to be read as UTF-8, without the mark that it may begin with.
pub fn bytes_without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(MARK.as_bytes()).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_mark_is_no_text() {
        for (text, rest) in [
            ("", ""),
            ("a", "a"),
            ("\u{feff}a", "a"),
            ("\u{feff}\u{feff}", MARK),
            ("a\u{feff}", "a\u{feff}"),
        ] {
            assert_eq!(without_mark(text), rest);
            assert_eq!(bytes_without_mark(text.as_bytes()), rest.as_bytes());
        }
    }
}
