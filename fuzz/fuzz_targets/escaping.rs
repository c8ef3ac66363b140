//! Any text from outside (the name of an interface or a class, a reason, a comment of a set), in
//! every place where it may be printed.
//!
//! Nothing that a terminal obeys is left, a line stays one line, and what programs read back (words
//! of a shell, JSON, labels of Prometheus, HTML) means the same text and nothing beside it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_escape::{html, indented, is_hidden, json, label, line, lines, shell};

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    terminals(&text);
    let words: Vec<&str> = text.split(' ').collect();
    let command = words.iter().map(|word| shell(word)).collect::<Vec<_>>().join(" ");
    assert!(!command.contains(is_hidden), "{command:?}");
    let read = read_words(&command).unwrap_or_default();
    assert_eq!(read, words, "{command:?}");
    let quoted = serde_json::to_string_pretty(&[&text]).unwrap();
    let shown = json(&quoted);
    assert!(!shown.contains(|it| is_hidden(it) && it != '\n'), "{shown:?}");
    assert_eq!(serde_json::from_str::<[String; 1]>(&shown).unwrap(), [&*text], "{shown:?}");
    let metric = format!("{{name=\"{}\",then=\"1\"}}", label(&text));
    assert_eq!(read_labels(&metric), Some(vec![("name", text.to_string()), ("then", "1".into())]));
    let element = html(&text);
    assert!(!element.contains(['<', '>', '"', '\'']), "{element:?}");
    assert_eq!(read_element(&element).as_deref(), Some(&*text), "{element:?}");
});

/// The functions for people's eyes. A second pass changes nothing.
fn terminals(text: &str) {
    let one = line(text);
    assert!(!one.contains(is_hidden), "{one:?}");
    assert_eq!(line(&one), one);
    let several = lines(text);
    assert!(!several.contains(|it| is_hidden(it) && !matches!(it, '\n' | '\t')), "{several:?}");
    assert_eq!(several.matches('\n').count(), text.matches('\n').count());
    let message = format!("said: {}\nnext", indented(text));
    let (said, next) = message.rsplit_once('\n').unwrap();
    assert_eq!(next, "next");
    for (number, shown) in said.split('\n').enumerate() {
        assert!(!shown.contains(is_hidden), "{shown:?}");
        assert!(number == 0 || shown.starts_with("    "), "{shown:?}");
    }
}

/// The words of a command line, as a shell with `$'...'` reads them (POSIX.1-2024, 2.2); `None` if
/// it does anything else than to read words.
fn read_words(command: &str) -> Option<Vec<String>> {
    let mut words = vec![Vec::new()];
    let mut letters = command.chars().peekable();
    while let Some(letter) = letters.next() {
        let word = words.last_mut()?;
        match letter {
            ' ' => words.push(Vec::new()),
            '\'' => loop {
                match letters.next()? {
                    '\'' => break,
                    letter => push(word, letter),
                }
            },
            '"' => loop {
                match letters.next()? {
                    '"' => break,
                    '\\' => match letters.next()? {
                        letter @ ('$' | '`' | '"' | '\\') => push(word, letter),
                        _ => return None,
                    },
                    // An expansion; the last one only where a person types.
                    '$' | '`' | '!' => return None,
                    letter => push(word, letter),
                }
            },
            '$' if letters.next_if_eq(&'\'').is_some() => loop {
                match letters.next()? {
                    '\'' => break,
                    '\\' => match letters.next()? {
                        letter @ ('\'' | '\\') => push(word, letter),
                        first => {
                            let digits = [first, letters.next()?, letters.next()?];
                            let digits: String = digits.into_iter().collect();
                            word.push(u8::from_str_radix(&digits, 8).ok()?);
                        }
                    },
                    letter => push(word, letter),
                }
            },
            letter if letter.is_ascii_alphanumeric() || "_-.,:/@%+=]".contains(letter) => {
                push(word, letter);
            }
            // Whatever a shell might do with it.
            _ => return None,
        }
    }
    words.into_iter().map(|word| String::from_utf8(word).ok()).collect()
}

fn push(word: &mut Vec<u8>, letter: char) {
    word.extend(letter.encode_utf8(&mut [0; 4]).bytes());
}

/// Labels as Prometheus' text format has them: `{NAME="VALUE",...}`.
fn read_labels(text: &str) -> Option<Vec<(&str, String)>> {
    let mut labels = Vec::new();
    let mut rest = text.strip_prefix('{')?;
    loop {
        let (name, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut letters = after.chars();
        loop {
            match letters.next()? {
                '"' => break,
                '\n' => return None,
                '\\' => value.push(match letters.next()? {
                    'n' => '\n',
                    letter @ ('\\' | '"') => letter,
                    _ => return None,
                }),
                letter => value.push(letter),
            }
        }
        labels.push((name, value));
        rest = match letters.as_str() {
            "}" => return Some(labels),
            more => more.strip_prefix(',')?,
        };
    }
}

/// The text of an element.
fn read_element(text: &str) -> Option<String> {
    let mut read = String::new();
    let mut parts = text.split('&');
    read.push_str(parts.next()?);
    for part in parts {
        let (name, rest) = part.split_once(';')?;
        read.push(match name {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "#39" => '\'',
            _ => return None,
        });
        read.push_str(rest);
    }
    Some(read)
}
