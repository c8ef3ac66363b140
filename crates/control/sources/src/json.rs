//! Records of a JSON document: its array, or what a path selects.

use crate::mapping::Path;
use crate::{Faults, List, SourceError};
use narrows_units::bytes_without_mark;
use serde_json::Value;

/// The records of a document.
///
/// # Errors
/// If it is no JSON, has no records, or has too many.
pub fn read(
    title: &str,
    text: &[u8],
    records: Option<&Path>,
    faults: &mut Faults,
) -> Result<List, SourceError> {
    let bad = |why: String| SourceError::Format(title.to_owned(), why);
    // RFC 8259, section 8.1: a reader may ignore the mark with which some programs begin a file.
    let text = bytes_without_mark(text);
    let document = serde_json::from_slice(text).map_err(|error| bad(error.to_string()))?;
    let records = select(document, records).map_err(bad)?;
    List::counted(title, records, faults)
}

/// The records in `document`: those at `path`, whose arrays count as their elements.
pub(crate) fn select(document: Value, path: Option<&Path>) -> Result<Vec<Value>, String> {
    let Some(path) = path else {
        return match document {
            Value::Array(records) => Ok(records),
            _ => Err("the document is no array: say with records where the array is in it, as \
                      records = \"$.data\""
                .to_owned()),
        };
    };
    let nodes = path.values(&document);
    if nodes.is_empty() && !is_plural(path) {
        return Err(format!(
            "there is nothing at {}: say with records where the array of records is",
            path.as_str()
        ));
    }
    let mut records = Vec::new();
    for node in nodes {
        match node {
            Value::Array(elements) => records.extend(elements.iter().cloned()),
            Value::Null => {}
            _ => records.push(node.clone()),
        }
    }
    Ok(records)
}

/// Whether a path selects what is there, which may be nothing.
fn is_plural(path: &Path) -> bool {
    path.as_str().contains(['*', '?', ':']) || path.as_str().contains("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str, path: Option<&str>) -> Result<usize, String> {
        let path = path.map(|path| Path::parse(path).unwrap());
        let list = read("a.json", text.as_bytes(), path.as_ref(), &mut Faults::default());
        list.map(|list| list.select(&[]).count()).map_err(|error| error.to_string())
    }

    #[test]
    fn records_are_an_array_or_what_a_path_selects() {
        assert_eq!(count(r#"[{}, {}]"#, None), Ok(2));
        assert_eq!(count(r#"{"data": [{}, {}, {}]}"#, Some("$.data")), Ok(3));
        assert_eq!(count(r#"{"data": [{}, {}, {}]}"#, Some("data")), Ok(3));
        assert_eq!(count(r#"{"1": {}, "2": {}}"#, Some("$.*")), Ok(2));
        assert_eq!(
            count(r#"{"sites": [{"c": [{}]}, {"c": [{}, 5]}]}"#, Some("$.sites[*].c")),
            Ok(2)
        );
        assert_eq!(count("[]", Some("$.*")), Ok(0));
        assert_eq!(count("\u{feff}[{}]", None), Ok(1), "some programs begin a file with a mark");
    }

    #[test]
    fn a_document_without_the_list_is_an_error_and_not_an_empty_list() {
        assert!(count(r#"{"error": "no"}"#, None).is_err());
        assert!(count(r#"{"error": "no"}"#, Some("$.data")).unwrap_err().contains("$.data"));
        assert!(count("[{}", None).is_err());
        assert!(count(&"[".repeat(100_000), None).is_err());
    }
}
