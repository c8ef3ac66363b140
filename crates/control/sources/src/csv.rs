//! Records of a CSV file (RFC 4180), one for each row, with its columns as members.
//!
//! A row with another number of fields than the first line is left out and named. A quote that
//! nobody closes could swallow other rows, so it refuses the file.

use crate::fault::quoted;
use crate::{Faults, List, SourceError};
use ::csv::{ByteRecord, ReaderBuilder};
use narrows_units::{bytes_without_mark, counted};
use serde_json::{Map, Value};
use std::collections::HashSet;

/// The most line breaks in a row: more are a quote that is not closed.
const BREAKS_MAX: usize = 20;

/// The records of a file called `title`. Its first line names the columns.
///
/// # Errors
/// If the first line is no list of names, a quote is not closed, or there are too many records.
pub fn read(
    title: &str,
    text: &[u8],
    delimiter: char,
    faults: &mut Faults,
) -> Result<List, SourceError> {
    let bad =
        |line: u64, why: &str| SourceError::Format(title.to_owned(), format!("line {line}: {why}"));
    let text = bytes_without_mark(text);
    let delimiter = u8::try_from(delimiter).unwrap_or(b',');
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(delimiter)
        .from_reader(text);
    let mut columns: Option<Vec<String>> = None;
    let (mut records, mut lines) = (Vec::new(), Vec::new());
    let mut row = ByteRecord::new();
    while reader.read_byte_record(&mut row).map_err(|error| bad(1, &error.to_string()))? {
        let line = row.position().map_or(1, ::csv::Position::line);
        let breaks = row.as_slice().iter().filter(|byte| **byte == b'\n').count();
        let is_odd = columns.as_ref().is_some_and(|columns| columns.len() != row.len());
        // A row of several lines has quotes around them, so an even number of quotes in all.
        let from = row.position().map_or(0, ::csv::Position::byte) as usize;
        let to = reader.position().byte() as usize;
        let raw = text.get(from..to).unwrap_or_default();
        let is_open = raw.iter().filter(|byte| **byte == b'"').count() % 2 == 1;
        if breaks > BREAKS_MAX || (breaks > 0 && (is_odd || is_open)) {
            return Err(bad(line, "a quote begins here and is not closed: close or remove it"));
        }
        let Ok(fields) = row.iter().map(str::from_utf8).collect::<Result<Vec<_>, _>>() else {
            if columns.is_none() {
                return Err(bad(line, "it is not UTF-8: save the file as UTF-8"));
            }
            faults.add(format!("{title}, line {line}"), "it is not UTF-8: the row is left out");
            continue;
        };
        let Some(columns) = &columns else {
            let names: Vec<String> = fields.iter().map(|name| name.trim().to_owned()).collect();
            let mut known = HashSet::new();
            if let Some(twice) = names.iter().find(|name| !known.insert(name.as_str())) {
                let why = format!("two columns are called {}: rename one", quoted(twice));
                return Err(bad(line, &why));
            }
            columns = Some(names);
            continue;
        };
        if fields.len() != columns.len() {
            let what = format!(
                "it has {} and the first line names {}: the row is left out; a field with the \
                 delimiter in it needs quotes",
                counted(fields.len(), "field"),
                columns.len()
            );
            faults.add(format!("{title}, line {line}"), what);
            continue;
        }
        let members = columns.iter().zip(fields);
        let members = members.map(|(name, text)| (name.clone(), Value::from(text.trim())));
        records.push(Value::Object(Map::from_iter(members)));
        lines.push(line);
    }
    let Some(columns) = columns else {
        return Err(bad(1, "it is empty: its first line names the columns"));
    };
    List::of_lines(title, columns, records, lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(text: &str) -> Result<(Vec<String>, Vec<String>), String> {
        let mut faults = Faults::default();
        let list = read("a.csv", text.as_bytes(), ',', &mut faults);
        let list = list.map_err(|error| error.to_string())?;
        let records = list.select(&[]).map(|(at, record)| format!("{} {record}", list.place(at)));
        Ok((records.collect(), faults.kept().iter().map(ToString::to_string).collect()))
    }

    #[test]
    fn a_row_is_a_record_with_its_columns_as_members() {
        let (records, faults) =
            records("\u{feff}id, Name\n1,\" Ann, \"\"A\"\" \"\n2,Bob\n").unwrap();
        assert_eq!(records[0], r#"a.csv, line 2 {"id":"1","Name":"Ann, \"A\""}"#);
        assert_eq!(records[1], r#"a.csv, line 3 {"id":"2","Name":"Bob"}"#);
        assert!(faults.is_empty());
    }

    #[test]
    fn a_row_of_another_length_is_left_out_and_named() {
        let (records, faults) = records("id,name\n1\n2,b,c\n3,d\n").unwrap();
        assert_eq!(records.len(), 1);
        assert!(faults[0].starts_with("a.csv, line 2: it has 1 field and"), "{}", faults[0]);
        assert!(faults[1].starts_with("a.csv, line 3: it has 3 fields and"), "{}", faults[1]);
    }

    #[test]
    fn a_quote_that_is_not_closed_refuses_the_file() {
        let open = format!("id,name\n1,a\n2,\"b\n{}", "3,c\n".repeat(30));
        for text in [open.as_str(), "id,name\n1,\"b\n2,c\n3,d", "id,id\n", ""] {
            assert!(records(text).is_err(), "{text}");
        }
        assert!(records(&open).unwrap_err().contains("line 3: a quote"));
    }
}
