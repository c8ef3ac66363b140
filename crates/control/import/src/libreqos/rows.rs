//! The rows of a CSV file, each with its line.

use super::devices::FILE;
use crate::ImportError;
use csv::{ByteRecord, ReaderBuilder, StringRecord, Trim};

/// A row.
#[derive(Debug)]
pub(super) struct Row {
    /// The number of its first line.
    pub(super) line: u64,
    pub(super) fields: Vec<String>,
    /// If not, what is not UTF-8 in the fields is replaced.
    pub(super) is_utf8: bool,
}

impl Row {
    /// Where it is, for people; the circuit's number is in column `id`.
    pub(super) fn place(&self, id: usize) -> String {
        match self.fields.get(id).map_or("", String::as_str) {
            "" => format!("line {}", self.line),
            id => format!("line {}, circuit {id}", self.line),
        }
    }
}

/// The rows that are not comments.
///
/// # Errors
/// If a quote is not closed, or closed in the middle of a field: it may have swallowed other rows.
pub(super) fn rows(text: &[u8]) -> Result<Vec<Row>, ImportError> {
    // The reader skips it, too.
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let begins = begins(text)?;
    let mut reader = ReaderBuilder::new()
        .comment(Some(b'#'))
        .flexible(true)
        .has_headers(false)
        .trim(Trim::All)
        .from_reader(text);
    let row = |(index, row): (usize, csv::Result<ByteRecord>)| {
        let row = row.map_err(|error| ImportError::format(FILE, error.to_string()))?;
        // The reader's own positions are before the comments above a row.
        let line = begins.get(index).copied().unwrap_or(0);
        let is_utf8 = row.iter().all(|field| std::str::from_utf8(field).is_ok());
        let fields = StringRecord::from_byte_record_lossy(row);
        let fields = fields.iter().map(|field| field.trim().to_owned()).collect();
        Ok(Row { line, fields, is_utf8 })
    };
    reader.byte_records().enumerate().map(row).collect()
}

/// The line in which each row begins. Follows the quotes of RFC 4180 through the text, as the
/// reader does, but takes no liberties.
fn begins(text: &[u8]) -> Result<Vec<u64>, ImportError> {
    #[derive(Clone, Copy, PartialEq)]
    enum At {
        Line,
        Comment,
        Field,
        Plain,
        Quoted,
        /// Behind a quote in a quoted field, which ends it or stands for a quote.
        Quote,
    }
    let bad = |line: u64, why: &str| ImportError::format(FILE, format!("line {line}: {why}"));
    let mut at = At::Line;
    let mut line = 1;
    let mut opened = 0;
    let mut begins = Vec::new();
    for &byte in text {
        if at == At::Line && !matches!(byte, b'\n' | b'\r' | b'#') {
            begins.push(line);
        }
        at = match (at, byte) {
            (At::Quoted, b'"') => At::Quote,
            (At::Quoted, _) => At::Quoted,
            (At::Quote, b'"') => At::Quoted,
            (_, b'\n' | b'\r') => At::Line,
            (At::Comment, _) => At::Comment,
            (At::Line, b'#') => At::Comment,
            (At::Line | At::Field, b'"') => {
                opened = line;
                At::Quoted
            }
            (At::Quote | At::Line | At::Field | At::Plain, b',') => At::Field,
            (At::Quote, b' ' | b'\t') => At::Quote,
            (At::Quote, _) => {
                let why = format!(
                    "a quote is closed in the middle of a field that begins in line {opened}: the \
                     quote before it is open, or one inside must be doubled"
                );
                return Err(bad(line, &why));
            }
            (At::Line | At::Field | At::Plain, _) => At::Plain,
        };
        line += u64::from(byte == b'\n');
    }
    if at == At::Quoted {
        return Err(bad(opened, "a quote is not closed, so it swallows the rest of the file"));
    }
    Ok(begins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_that_may_have_swallowed_rows_is_refused_with_its_line() {
        let why = |text: &str| rows(text.as_bytes()).unwrap_err().to_string();
        assert!(why("a,b\n1,\"x\n2,y\n").contains("line 2: a quote is not closed"));
        assert!(why("a,b\n1,\"x\n2,\"y\"\n3,z\n").contains("line 3: a quote is closed"));
        assert!(why("a,b\n1,\"x\"y\n").contains("line 2: a quote is closed"));
    }

    #[test]
    fn quotes_as_they_should_be_are_read() {
        let text =
            "a,b\n\"x, y\",\"say \"\"no\"\"\"\n# a \" quote\n 5\" ,\"two\nlines\"\n3\" disk,c\n";
        let rows = rows(text.as_bytes()).unwrap();
        let fields: Vec<_> = rows.iter().map(|row| row.fields.join("|")).collect();
        assert_eq!(fields, ["a|b", "x, y|say \"no\"", "5\"|two\nlines", "3\" disk|c"]);
        assert_eq!(rows.iter().map(|row| row.line).collect::<Vec<_>>(), [1, 2, 4, 6]);
    }
}
