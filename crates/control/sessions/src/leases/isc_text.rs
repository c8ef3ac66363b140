//! The syntax of dhcpd's files: words, strings, and blocks in braces.

/// The deepest nesting that is followed; a lease file has three.
const DEPTH_MAX: usize = 16;

/// A word.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Word {
    Bare(String),
    /// What was between quotes, without escapes.
    String(Vec<u8>),
}

impl Word {
    /// The text of a bare word; empty for a string.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Bare(text) => text,
            Self::String(_) => "",
        }
    }

    /// The bytes of either.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Bare(text) => text.as_bytes(),
            Self::String(bytes) => bytes,
        }
    }
}

/// Words up to a semicolon, or up to a block.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Statement {
    pub(super) words: Vec<Word>,
    pub(super) block: Option<Vec<Statement>>,
}

/// The statements in `text`, which has no comments. What is nested too deeply is left out.
pub(super) fn statements(text: &[u8]) -> Vec<Statement> {
    let mut rest = text;
    let mut open: Vec<(Statement, Vec<Statement>)> = Vec::new();
    let mut all = Vec::new();
    let mut now = Statement::default();
    let mut too_deep = 0_usize;
    while let [first, behind @ ..] = rest {
        rest = behind;
        match first {
            b'{' if open.len() >= DEPTH_MAX => too_deep += 1,
            b'}' if too_deep > 0 => too_deep -= 1,
            _ if too_deep > 0 => {}
            b'{' => open.push((std::mem::take(&mut now), std::mem::take(&mut all))),
            b'}' => {
                now = Statement::default();
                if let Some((mut head, mut before)) = open.pop() {
                    head.block = Some(std::mem::take(&mut all));
                    before.push(head);
                    all = before;
                }
            }
            b';' => all.push(std::mem::take(&mut now)),
            b'"' => {
                let (bytes, behind) = string(rest);
                now.words.push(Word::String(bytes));
                rest = behind;
            }
            first if first.is_ascii_whitespace() => {}
            _ => {
                let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"{};\"".contains(byte);
                let length = behind.iter().position(is_end).unwrap_or(behind.len());
                let (word, behind) = behind.split_at(length);
                let mut text = vec![*first];
                text.extend_from_slice(word);
                now.words.push(Word::Bare(String::from_utf8_lossy(&text).into_owned()));
                rest = behind;
            }
        }
    }
    all
}

/// What is in `text` up to a quote, and what is behind that.
fn string(text: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut bytes = Vec::new();
    let mut rest = text;
    loop {
        match rest {
            [] => return (bytes, rest),
            [b'"', behind @ ..] => return (bytes, behind),
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', behind @ ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = behind;
            }
            [b'\\', other, behind @ ..] => {
                bytes.push(*other);
                rest = behind;
            }
            [byte, behind @ ..] => {
                bytes.push(*byte);
                rest = behind;
            }
        }
    }
}

/// The seconds since 1970 of `2026/11/30` and `15:45:00`, UTC; none if there is no such time.
pub(super) fn date(day: &str, time: &str) -> Option<u64> {
    let numbers = |text: &str, separator| {
        let all: Option<Vec<u64>> = text.split(separator).map(|part| part.parse().ok()).collect();
        all.and_then(|all| <[u64; 3]>::try_from(all).ok())
    };
    let [year, month, day] = numbers(day, '/')?;
    let [hour, minute, second] = numbers(time, ':')?;
    // A leap second is the first of the next minute.
    let is_time = hour < 24 && minute < 60 && second <= 60;
    if !is_time || !(1970..=9999).contains(&year) {
        return None;
    }
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let february = if is_leap(year) { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before = months.get(..usize::try_from(month.checked_sub(1)?).ok()?)?;
    let length = *months.get(before.len())?;
    if day == 0 || day > length {
        return None;
    }
    let leap_days = |year: u64| year / 4 - year / 100 + year / 400;
    let days = (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969);
    let days = days + before.iter().sum::<u64>() + day - 1;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn strings_have_octal_escapes() {
        let (bytes, rest) = string(br#"\001\000\014)\"\\a" b"#);
        assert_eq!((&bytes[..], rest), (&b"\x01\x00\x0c)\"\\a"[..], &b" b"[..]));
        assert_eq!(string(b"without end").0, b"without end");
    }

    #[test]
    fn blocks_are_nested() {
        let all = statements(b"a b { c; d \"e;}\" { f; } } g;");
        assert_eq!(all.len(), 2);
        let block = all[0].block.as_ref().unwrap();
        assert_eq!(block[0].words, [Word::Bare("c".into())]);
        assert_eq!(block[1].words[1], Word::String(b"e;}".to_vec()));
        assert_eq!(block[1].block.as_ref().unwrap().len(), 1);
    }

    #[test]
    fn what_is_nested_too_deeply_is_left_out() {
        let text = format!("{}x;{} y;", "a {".repeat(100), "}".repeat(100));
        assert_eq!(statements(text.as_bytes()).len(), 2);
    }

    #[test]
    fn times_are_utc() {
        assert_eq!(date("1970/01/01", "00:00:00"), Some(0));
        assert_eq!(date("2000/02/29", "00:00:00"), Some(951_782_400));
        assert_eq!(date("2026/11/30", "15:45:30"), Some(1_796_053_530));
        for (day, time) in [
            ("2026/02/29", "00:00:00"),
            ("2026/13/01", "00:00:00"),
            ("2026/00/01", "00:00:00"),
            ("2026/01/01", "24:00:00"),
            ("2026/01", "00:00:00"),
            ("99999999999999999999/1/1", "00:00:00"),
            ("18446744073709551615/1/1", "00:00:00"),
        ] {
            assert_eq!(date(day, time), None, "{day} {time}");
        }
    }

    proptest! {
        #[test]
        fn days_follow_each_other(year in 1970u64..9998, month in 1u64..13) {
            let first = date(&format!("{year}/{month:02}/01"), "00:00:00").unwrap();
            let (next, of) = if month == 12 { (1, year + 1) } else { (month + 1, year) };
            let next = date(&format!("{of}/{next:02}/01"), "00:00:00").unwrap();
            let length = (next - first) / 86_400;
            prop_assert!((28..=31).contains(&length));
            let last = date(&format!("{year}/{month}/{length}"), "00:00:00").unwrap();
            prop_assert_eq!(last + 86_400, next);
            prop_assert_eq!(date(&format!("{year}/{month}/{}", length + 1), "00:00:00"), None);
        }

        #[test]
        fn no_bytes_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
            statements(&text);
        }
    }
}
