//! UCI, the format of OpenWrt's configuration: `config TYPE 'NAME'`, and below it `option KEY
//! 'VALUE'` and `list KEY 'VALUE'`.

/// A section with its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Section {
    pub(super) kind: String,
    options: Vec<(String, String)>,
}

impl Section {
    /// The last value of an option, as UCI reads it.
    pub(super) fn get(&self, option: &str) -> Option<&str> {
        let mut of = self.options.iter().rev().filter(|(key, _)| key == option);
        of.next().map(|(_, value)| value.trim())
    }

    /// The names of its options.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.options.iter().map(|(key, _)| key.as_str())
    }
}

/// The sections of a file.
///
/// # Errors
/// A message with the line that is not UCI.
pub(super) fn read(text: &str) -> Result<Vec<Section>, String> {
    let mut sections: Vec<Section> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let number = number + 1;
        let words = words(line).map_err(|why| format!("line {number}: {why}"))?;
        match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [] => {}
            ["config", kind] | ["config", kind, _] => {
                sections.push(Section { kind: kind.to_owned(), options: Vec::new() });
            }
            ["option" | "list", key, ref value @ ..] if value.len() <= 1 => {
                let section = sections
                    .last_mut()
                    .ok_or_else(|| format!("line {number}: an option before the first `config`"))?;
                let value = value.first().copied().unwrap_or("").to_owned();
                section.options.push((key.to_owned(), value));
            }
            ["package", ..] => {}
            _ => {
                return Err(format!(
                    "line {number} is not UCI: `config TYPE 'NAME'` or `option KEY 'VALUE'` is expected"
                ));
            }
        }
    }
    Ok(sections)
}

/// The words of a line. Quotes keep blanks, a backslash keeps the next character, `#` begins a
/// comment.
fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), _) if open == letter => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => {
                word.get_or_insert_default().extend(letters.next());
            }
            (None, '#') => break,
            (None, _) if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed".to_owned());
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_comments_and_backslashes_are_as_in_a_shell() {
        let split = |line: &str| words(line).unwrap();
        assert_eq!(split("\toption a 'b c'\t# d"), ["option", "a", "b c"]);
        assert_eq!(split(r#"option a "b \" c"d"#), ["option", "a", "b \" cd"]);
        assert_eq!(split("option a ''"), ["option", "a", ""]);
        assert!(words("option a 'b").is_err());
    }

    #[test]
    fn the_last_of_two_options_holds() {
        let sections = read("config queue\n option a '1'\n option a 2\n").unwrap();
        assert_eq!(sections[0].get("a"), Some("2"));
        assert!(read("option a 1").unwrap_err().contains("before the first"));
        assert!(read("configure").unwrap_err().contains("line 1"));
    }
}
