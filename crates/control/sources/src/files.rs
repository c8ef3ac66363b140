//! Lists from files.

use crate::{Lists, Mapping, SourceError, csv, json};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The largest file in bytes.
const LENGTH_MAX: u64 = 1 << 30;

/// The format of files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// A table with a line of names.
    Csv,
    /// A document.
    Json,
}

/// The file of a command: what lists without a file of their own read.
#[derive(Debug)]
pub struct Main<'a> {
    /// What messages call it.
    pub title: &'a str,
    /// What is in it.
    pub text: &'a [u8],
}

/// Loads all lists of `mapping`. Those that name no file read `main`; other files are found from
/// `folder` on, that of the mapping.
///
/// # Errors
/// If a file cannot be read, or is not in its format.
pub fn load(
    mapping: &Mapping,
    format: Format,
    main: Option<&Main<'_>>,
    folder: &Path,
) -> Result<Lists, SourceError> {
    if mapping.http.is_some() {
        return Err(SourceError::Mapping(
            "it has [http], so it is for the source http and not for files".to_owned(),
        ));
    }
    let mut lists = Lists::default();
    for name in mapping.list_names() {
        let spec = mapping.lists.get(name);
        let own = spec.and_then(|spec| spec.file.as_deref());
        let text;
        let main = match (own, main) {
            (Some(file), _) => {
                text = read(&folder.join(file))?;
                &Main { title: file, text: &text }
            }
            (None, Some(main)) => main,
            (None, None) => {
                return Err(SourceError::Mapping(format!(
                    "[lists.{name}] has no file: name one there or in the command"
                )));
            }
        };
        let records = spec.and_then(|spec| spec.records.as_ref());
        let list = match format {
            Format::Csv if records.is_some() => {
                return Err(SourceError::Mapping(format!("[lists.{name}]: records is for JSON")));
            }
            Format::Csv => {
                let delimiter = spec.and_then(|spec| spec.delimiter).unwrap_or(',');
                csv::read(main.title, main.text, delimiter, &mut lists.faults)?
            }
            Format::Json => json::read(main.title, main.text, records, &mut lists.faults)?,
        };
        lists.insert(name, list);
    }
    Ok(lists)
}

/// What a file has, up to 1 GiB.
///
/// # Errors
/// If it cannot be read or is larger.
pub fn read(path: &Path) -> Result<Vec<u8>, SourceError> {
    let title = path.display().to_string();
    let file = File::open(path).map_err(|error| SourceError::File(title.clone(), error))?;
    read_all(&title, file)
}

/// What a stream has, up to 1 GiB.
///
/// # Errors
/// If it cannot be read or is longer.
pub fn read_all(title: &str, stream: impl Read) -> Result<Vec<u8>, SourceError> {
    let mut text = Vec::new();
    let read = stream.take(LENGTH_MAX + 1).read_to_end(&mut text);
    let length = read.map_err(|error| SourceError::File(title.to_owned(), error))?;
    if length as u64 > LENGTH_MAX {
        return Err(SourceError::TooMuch(format!("{title} has more than {LENGTH_MAX} bytes")));
    }
    Ok(text)
}
