//! Text from outside, made safe for the place where it goes.
//!
//! Others choose the name of an interface, a comment in a set, the answer of a control socket. A
//! terminal obeys escape sequences in them, a reader of a log believes a forged line, a
//! shell runs what follows a `;`. Whatever prints such a text passes it through one of these:
//!
//! | where the text goes | function |
//! | --- | --- |
//! | a word of a printed command | [`shell`] |
//! | a field within a line: a view, a status, an event | [`line`] |
//! | a message that may have several lines, within a log or a report | [`indented`] |
//! | the whole output of a command | [`lines`] |
//! | JSON | [`json`] |
//! | the value of a Prometheus label | [`label`] |
//! | HTML | [`html`] |
//!
//! *Hidden characters* are control characters, and those that reorder or hide what stands beside
//! them ([`is_hidden`]). They are shown as `\x1b` or `\u{202e}`. A backslash stays as it is: these
//! texts are for people, and none is read back.
//!
//! Non-goals: text that programs read back as it is (`tc save`, `set save`), unless it goes to a
//! terminal. Letters that only look like others.
//!
//! Sources: POSIX.1-2024, Shell Command Language 2.2; Unicode TR36 and TR9.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a reader does not see `letter`, but its effect: control characters, and the format
/// characters that change the order of text or take no room. The two joiners are not among these,
/// since some languages are written with them.
pub fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'
                | '\u{200e}' | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// `text` with what `write` makes of each letter that `is_wrong`.
fn replaced(
    text: &str,
    is_wrong: impl Fn(char) -> bool,
    write: impl Fn(&mut String, char),
) -> Cow<'_, str> {
    let Some(first) = text.find(&is_wrong) else { return Cow::Borrowed(text) };
    let mut out = String::with_capacity(text.len() + 16);
    out.push_str(&text[..first]);
    for letter in text[first..].chars() {
        if is_wrong(letter) { write(&mut out, letter) } else { out.push(letter) }
    }
    Cow::Owned(out)
}

fn write_shown(out: &mut String, letter: char) {
    // Writing to a string cannot fail.
    let _ = match letter {
        '\t' => write!(out, "\\t"),
        '\n' => write!(out, "\\n"),
        '\r' => write!(out, "\\r"),
        '\0'..='\u{ff}' => write!(out, "\\x{:02x}", u32::from(letter)),
        _ => write!(out, "{}", letter.escape_unicode()),
    };
}

/// `text` within one line: hidden characters are shown, also ends of lines.
pub fn line(text: &str) -> Cow<'_, str> {
    replaced(text, is_hidden, write_shown)
}

/// `text` of several lines: hidden characters are shown, but for ends of lines and tabs.
pub fn lines(text: &str) -> Cow<'_, str> {
    let is_wrong = |letter| is_hidden(letter) && !matches!(letter, '\n' | '\t');
    replaced(text, is_wrong, write_shown)
}

/// A message whose second and further lines are indented by four blanks, so that none of them can
/// look like a line of what it stands in. Hidden characters are shown.
pub fn indented(text: &str) -> Cow<'_, str> {
    replaced(text, is_hidden, |out, letter| match letter {
        '\n' => out.push_str("\n    "),
        letter => write_shown(out, letter),
    })
}

/// One word of a command that a person may paste into a shell. Hidden characters are written as the
/// octal numbers of their bytes, within `$'...'`.
pub fn shell(word: &str) -> Cow<'_, str> {
    // Ports are written `A,B`, and a comma alone means nothing to a shell.
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-.,:/@%+".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return Cow::Borrowed(word);
    }
    if !word.contains(is_hidden)
        && let Ok(quoted) = shlex::try_quote(word)
    {
        return quoted;
    }
    let mut out = String::from("$'");
    for letter in word.chars() {
        match letter {
            '\'' | '\\' => out.extend(['\\', letter]),
            letter if is_hidden(letter) => {
                for byte in letter.encode_utf8(&mut [0; 4]).bytes() {
                    // Writing to a string cannot fail.
                    let _ = write!(out, "\\{byte:03o}");
                }
            }
            letter => out.push(letter),
        }
    }
    out.push('\'');
    Cow::Owned(out)
}

/// JSON text, in which hidden characters can stand only within strings: there they become `\uXXXX`.
/// What it means stays the same.
pub fn json(text: &str) -> Cow<'_, str> {
    let is_wrong = |letter| is_hidden(letter) && !matches!(letter, '\n' | '\t' | '\r');
    replaced(text, is_wrong, |out, letter| {
        for unit in letter.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    })
}

/// The value of a Prometheus label, without its quotes.
pub fn label(text: &str) -> Cow<'_, str> {
    let is_special = |letter| matches!(letter, '\\' | '"' | '\n');
    replaced(text, is_special, |out, letter| {
        out.extend(['\\', if letter == '\n' { 'n' } else { letter }]);
    })
}

/// Text between tags, or within quotes in a tag.
pub fn html(text: &str) -> Cow<'_, str> {
    let is_special = |letter| matches!(letter, '&' | '<' | '>' | '"' | '\'');
    replaced(text, is_special, |out, letter| {
        out.push_str(match letter {
            '&' => "&amp;",
            '<' => "&lt;",
            '>' => "&gt;",
            '"' => "&quot;",
            _ => "&#39;",
        });
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_stays_as_it_is() {
        for text in ["eth0", "wan.100", "Zoë", "می\u{200c}خواهم", ""] {
            assert_eq!(line(text), text);
            assert_eq!(lines(text), text);
        }
        assert_eq!(shell("eth0.7,wan@2"), "eth0.7,wan@2");
        assert_eq!(lines("a\tb\n"), "a\tb\n");
    }

    #[test]
    fn what_a_terminal_obeys_is_shown() {
        assert_eq!(line("a\x1b[31mb\r\n\t\0\u{9b}"), "a\\x1b[31mb\\r\\n\\t\\x00\\x9b");
        assert_eq!(lines("a\u{202e}b\nc\x7f"), "a\\u{202e}b\nc\\x7f");
        assert_eq!(indented("a\nevent: b\x07"), "a\n    event: b\\x07");
    }

    #[test]
    fn a_word_of_a_command_is_one_word_and_starts_nothing() {
        assert_eq!(shell(";reboot;"), "';reboot;'");
        assert_eq!(shell(""), "''");
        assert_eq!(shell("a'\x1b[1m\u{202e}"), "$'a\\'\\033[1m\\342\\200\\256'");
    }

    #[test]
    fn formats_keep_their_own_rules() {
        assert_eq!(label("a\"b\\c\n"), "a\\\"b\\\\c\\n");
        assert_eq!(html("<a b='c'>&\""), "&lt;a b=&#39;c&#39;&gt;&amp;&quot;");
        assert_eq!(json("[\"\u{9b}\u{e0041}\"]"), "[\"\\u009b\\udb40\\udc41\"]");
    }
}
