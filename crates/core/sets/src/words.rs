//! The words of a line, split as `ipset restore` splits them: at blanks outside quotes.

/// One word after the other.
pub(crate) struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    pub(crate) fn new(line: &'a str) -> Self {
        Self { rest: line }
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.rest.trim_start();
        let (word, rest) = match rest.strip_prefix('"') {
            // An unclosed quote reaches to the end of the line.
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None if rest.is_empty() => return None,
            None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        self.rest = rest;
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_blanks_and_may_be_empty() {
        let words: Vec<_> = Words::new(" add a 1.2.3.4  comment \"x  y\" \"\" z\t").collect();
        assert_eq!(words, ["add", "a", "1.2.3.4", "comment", "x  y", "", "z"]);
        assert_eq!(Words::new("a \"b c").collect::<Vec<_>>(), ["a", "b c"]);
    }
}
