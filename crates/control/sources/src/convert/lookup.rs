//! Values of fields, also those in other lists.

use super::value::{address, scalars};
use crate::mapping::{Field, Mapping, Origin, Path, Piece, Source};
use crate::{Lists, SourceError};
use narrows_directory::Prefix;
use serde_json::Value;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The records of a list by a key of theirs, for each list and key that a field looks up.
pub(super) struct Lookups<'a> {
    indices: HashMap<(&'a str, &'a str), HashMap<String, Vec<&'a Value>>>,
}

impl<'a> Lookups<'a> {
    pub(super) fn new(mapping: &'a Mapping, lists: &'a Lists) -> Result<Self, SourceError> {
        let mut indices = HashMap::new();
        let fields = mapping.fields();
        for source in fields.iter().flat_map(|(_, field)| &field.0) {
            let Origin::Lookup { list, key, .. } = &source.origin else { continue };
            let Entry::Vacant(entry) = indices.entry((list.as_str(), key.as_str())) else {
                continue;
            };
            let condition = mapping.lists.get(list).and_then(|list| list.condition.as_ref());
            let mut index: HashMap<String, Vec<&Value>> = HashMap::new();
            for (_, record) in lists.get(list)?.select(&[condition]) {
                for value in texts(record, key) {
                    index.entry(value).or_default().push(record);
                }
            }
            entry.insert(index);
        }
        Ok(Self { indices })
    }

    /// The text of a field: that of its first source that has one.
    ///
    /// # Errors
    /// If there are several values in one place, or an object.
    pub(super) fn text(&self, record: &Value, field: &Field) -> Result<Option<String>, String> {
        for source in &field.0 {
            let mut found = self.texts(record, source)?;
            found.dedup();
            if found.len() > 1 {
                return Err(format!("has {} values, and one is needed", found.len()));
            }
            let text = found.pop().or_else(|| source.default.clone());
            if let Some(text) = text.filter(|text| !text.is_empty()) {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    /// The addresses of all sources of a field, and what is none.
    pub(super) fn addresses(&self, record: &Value, field: &Field) -> Vec<Result<Prefix, String>> {
        let mut addresses = Vec::new();
        for source in &field.0 {
            let texts = match self.texts(record, source) {
                Ok(texts) if texts.is_empty() => source.default.iter().cloned().collect(),
                Ok(texts) => texts,
                Err(why) => {
                    addresses.push(Err(format!("its address {why}")));
                    continue;
                }
            };
            for text in texts {
                let parts: Vec<&str> = match &source.separator {
                    Some(separator) => text.split(separator.as_str()).collect(),
                    None => text.split([',', ';', ' ', '\n', '\t']).collect(),
                };
                let parts = parts.into_iter().map(str::trim).filter(|part| !part.is_empty());
                addresses.extend(parts.map(|part| address(part, source.is_host)));
            }
        }
        addresses
    }

    fn texts(&self, record: &Value, source: &Source) -> Result<Vec<String>, String> {
        match &source.origin {
            Origin::Path(path) => values(record, path),
            Origin::Constant(text) => Ok(vec![text.clone()]),
            Origin::Text(pieces) => {
                let (mut text, mut is_found) = (String::new(), false);
                for piece in pieces {
                    match piece {
                        Piece::Literal(literal) => text.push_str(literal),
                        Piece::Path(path) => {
                            let found = values(record, path)?;
                            is_found |= !found.is_empty();
                            text.push_str(&found.join(" "));
                        }
                    }
                }
                let text = text.trim();
                Ok(if is_found { vec![text.to_owned()] } else { Vec::new() })
            }
            Origin::Lookup { list, key, with, path } => {
                let index = self.indices.get(&(list.as_str(), key.as_str()));
                let mut found = Vec::new();
                for key in texts(record, with) {
                    let records = index.and_then(|index| index.get(&key));
                    for record in records.into_iter().flatten() {
                        found.extend(values(record, path)?);
                    }
                }
                Ok(found)
            }
        }
    }
}

fn values(record: &Value, path: &Path) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for value in path.values(record) {
        scalars(value, &mut found)?;
    }
    Ok(found)
}

/// The keys at a path; an object is none.
fn texts(record: &Value, path: &Path) -> Vec<String> {
    values(record, path).unwrap_or_default()
}
