//! Whether a table has the columns, and JSON the members, that the mapping names.
//!
//! A name that no column has would be a value that is missing in every row: all subscribers without
//! an address, or none at all, and nothing says why. So it refuses the table. A JSON document says
//! nowhere which members there can be, and many systems leave out what is empty. So a member that
//! no record has is only noted.

use crate::fault::quoted;
use crate::mapping::{Field, Mapping, Origin, Path, Piece, Source};
use crate::{List, Lists, SourceError};

/// The most columns that a message lists.
const LISTED_MAX: usize = 12;

/// Checks all fields of `mapping`. Returns a note for each whose members no record of JSON has.
///
/// # Errors
/// Names the first column that is not there, its key in the mapping, and those that are there.
pub(super) fn check(mapping: &Mapping, lists: &Lists) -> Result<Vec<String>, SourceError> {
    let mut notes = Vec::new();
    for (key, field) in mapping.fields() {
        let is_of_sites = key.starts_with("sites.");
        let name = match &mapping.sites {
            Some(sites) if is_of_sites => &sites.list,
            _ => &mapping.subscribers.list,
        };
        let mut missing = None;
        for source in &field.0 {
            match source_missing(source, name, lists)? {
                None => missing = None,
                Some(found) => missing = missing.or(Some(found)),
            }
            // One of several places for a value is enough.
            if missing.is_none() {
                break;
            }
        }
        let Some((name, column)) = missing else { continue };
        let list = lists.get(name)?;
        if list.columns().is_some() {
            return Err(refusal((name, list), column, &key, field));
        }
        let what = format!("no record of {} has {}", list.title(), quoted(column));
        notes.push(format!("{what}, which {key} of the mapping names: compare it with the data"));
    }
    Ok(notes)
}

/// A column or member that `source` of a record of the list `own` reads and its list does not have,
/// with the name of that list.
fn source_missing<'a>(
    source: &'a Source,
    own: &'a str,
    lists: &Lists,
) -> Result<Option<(&'a str, &'a str)>, SourceError> {
    if source.default.is_some() {
        return Ok(None);
    }
    let read: Vec<(&str, &Path)> = match &source.origin {
        Origin::Constant(_) => Vec::new(),
        Origin::Path(path) => vec![(own, path)],
        Origin::Text(pieces) => {
            let paths = pieces.iter().filter_map(|piece| match piece {
                Piece::Path(path) => Some((own, path)),
                Piece::Literal(_) => None,
            });
            paths.collect()
        }
        Origin::Lookup { list, key, with, path } => {
            vec![(own, with), (list, key), (list, path)]
        }
    };
    for (list, path) in read {
        if let Some(name) = path.name()
            && !lists.get(list)?.has(name)
        {
            return Ok(Some((list, name)));
        }
    }
    Ok(None)
}

fn refusal((name, list): (&str, &List), column: &str, key: &str, field: &Field) -> SourceError {
    let columns = list.columns().unwrap_or_default();
    let listed: Vec<String> = columns.iter().take(LISTED_MAX).map(|name| quoted(name)).collect();
    let more = if columns.len() > LISTED_MAX { ", …" } else { "" };
    let mut why = format!(
        "line 1: there is no column {}, which {key} of the mapping names: name one of {}{more}",
        quoted(column),
        listed.join(", ")
    );
    // Spreadsheets write semicolons where a comma is the decimal sign.
    if let [single] = columns
        && let Some(delimiter) = [';', '\t', '|', ','].into_iter().find(|c| single.contains(*c))
    {
        why.push_str(&format!(
            ", or say delimiter = \"{}\" in [lists.{name}] of the mapping, if that separates them",
            delimiter.escape_default()
        ));
    } else if field.0.len() == 1 && key != "subscribers.id" && key != "sites.id" {
        why.push_str(", or leave it out of the mapping");
    }
    SourceError::Format(list.title().to_owned(), why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Faults, csv, json};

    const MAPPING: &str = "[subscribers]\nid = \"No\"\nname = \"Name\"\nplan = \"Plan\"\n\
                           addresses = [\"IPv4\", \"IP\"]\n[plans.a]\ndownload = \"1mbit\"\n\
                           upload = \"1mbit\"\n";

    fn checked(mapping: &str, table: &str) -> Result<(), String> {
        let mapping = Mapping::parse(mapping).unwrap();
        let mut lists = Lists::default();
        let list = csv::read("a.csv", table.as_bytes(), ',', &mut Faults::default()).unwrap();
        lists.insert("records", list);
        check(&mapping, &lists).map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn a_column_that_is_not_there_is_named_with_those_that_are() {
        assert_eq!(checked(MAPPING, "No,Name,Plan,IP\n1,Ann,a,10.0.0.1\n"), Ok(()));
        let error = checked(MAPPING, "No,name,Plan,IP\n1,Ann,a,10.0.0.1\n").unwrap_err();
        assert!(error.contains("no column \"Name\", which subscribers.name of"), "{error}");
        assert!(error.contains("one of \"No\", \"name\", \"Plan\", \"IP\""), "{error}");
        let error = checked(MAPPING, "No,Name,Plan\n").unwrap_err();
        assert!(error.contains("no column \"IPv4\""), "{error}");
    }

    #[test]
    fn a_table_with_other_delimiters_says_how_to_name_them() {
        let error = checked(MAPPING, "No;Name;Plan;IP\n1;Ann;a;10.0.0.1\n").unwrap_err();
        assert!(error.contains("delimiter = \";\" in [lists.records]"), "{error}");
        let error = checked(MAPPING, "No\tName\tPlan\tIP\n").unwrap_err();
        assert!(error.contains("delimiter = \"\\t\" in"), "{error}");
    }

    #[test]
    fn a_value_that_may_be_missing_may_have_no_column() {
        let text = "name = { path = \"Nick\", default = \"nobody\" }\n";
        let mapping = MAPPING.replace("name = \"Name\"\n", text);
        assert_eq!(checked(&mapping, "No,Plan,IP\n"), Ok(()));
        let mapping = MAPPING.replace("\"Name\"", "{ text = \"{First} {Last}\" }");
        let error = checked(&mapping, "No,First,Plan,IP\n").unwrap_err();
        assert!(error.contains("no column \"Last\""), "{error}");
        let mapping = MAPPING.replace("\"Name\"", "\"$.Nick\"");
        assert_eq!(checked(&mapping, "No,Plan,IP\n"), Ok(()), "a path selects what is there");
    }

    #[test]
    fn a_member_that_no_record_has_is_noted_and_one_that_some_have_is_not() {
        let noted = |text: &str| {
            let mut lists = Lists::default();
            let list = json::read("a.json", text.as_bytes(), None, &mut Faults::default()).unwrap();
            lists.insert("records", list);
            check(&Mapping::parse(MAPPING).unwrap(), &lists).unwrap()
        };
        let none: Vec<String> = Vec::new();
        assert_eq!(noted(r#"[{"No": 1, "Plan": "a"}, {"Name": null, "IP": ""}]"#), none);
        assert_eq!(noted("[]"), none, "nobody is there");
        let notes = noted(r#"[{"No": 1, "name": "Ann", "Plan": "a", "IP": "10.0.0.1"}]"#);
        assert_eq!(notes.len(), 1);
        let expected = "no record of a.json has \"Name\", which subscribers.name of the mapping";
        assert!(notes[0].starts_with(expected), "{notes:?}");
    }
}
