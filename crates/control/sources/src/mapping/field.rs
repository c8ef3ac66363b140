//! Where a value comes from.

use super::Path;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::{Deserialize, Deserializer, de};
use std::fmt;

/// The most alternatives of a field.
const SOURCES_MAX: usize = 32;

/// A value: that of the first source that has one. For addresses, those of all sources.
#[derive(Clone, Debug)]
pub struct Field(pub(crate) Vec<Source>);

impl Field {
    /// The lists in which it looks up something.
    pub(crate) fn lists(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|source| match &source.origin {
            Origin::Lookup { list, .. } => Some(list.as_str()),
            _ => None,
        })
    }
}

/// One place where a value may be.
#[derive(Clone, Debug)]
pub struct Source {
    /// Where.
    pub origin: Origin,
    /// What counts if nothing is there.
    pub default: Option<String>,
    /// Of addresses: `10.0.0.5/24` is the host, not its network.
    pub is_host: bool,
    /// Of addresses: what is between two of them; none: commas, semicolons or spaces.
    pub separator: Option<String>,
}

/// Where a value is.
#[derive(Clone, Debug)]
pub enum Origin {
    /// In the record.
    Path(Path),
    /// In the mapping.
    Constant(String),
    /// Put together from the record's members.
    Text(Vec<Piece>),
    /// In a record of another list: the one whose `key` is this record's `with`.
    Lookup {
        /// The list.
        list: String,
        /// Where a record of that list has its key.
        key: Path,
        /// Where this record has that key.
        with: Path,
        /// Where the value is in the record of that list.
        path: Path,
    },
}

/// A part of a text.
#[derive(Clone, Debug)]
pub enum Piece {
    /// As it is.
    Literal(String),
    /// The value there.
    Path(Path),
}

/// What a table says of a field.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    path: Option<Path>,
    value: Option<Scalar>,
    text: Option<String>,
    list: Option<String>,
    key: Option<Path>,
    with: Option<Path>,
    default: Option<Scalar>,
    #[serde(default)]
    host: bool,
    separator: Option<String>,
}

impl TryFrom<Table> for Source {
    type Error = String;

    fn try_from(table: Table) -> Result<Self, String> {
        let lookup = [table.list.is_some(), table.key.is_some(), table.with.is_some()];
        let origin = match (table.path, table.value, table.text) {
            (Some(path), None, None) => match (table.list, table.key, table.with) {
                (Some(list), Some(key), Some(with)) => Origin::Lookup { list, key, with, path },
                (None, None, None) => Origin::Path(path),
                _ => {
                    return Err("a value of another list needs list (its name), key (where its \
                                records have their key), with (where this record has that key) \
                                and path (where the value is there)"
                        .to_owned());
                }
            },
            (None, Some(Scalar(value)), None) if lookup == [false; 3] => Origin::Constant(value),
            (None, None, Some(text)) if lookup == [false; 3] => Origin::Text(pieces(&text)?),
            _ => {
                return Err("a field is a path, { path = … }, { value = … }, { text = … } or \
                            { list = …, key = …, with = …, path = … }"
                    .to_owned());
            }
        };
        if table.separator.as_deref() == Some("") {
            return Err("separator is empty: leave it out for commas and spaces".to_owned());
        }
        Ok(Self {
            origin,
            default: table.default.map(|Scalar(text)| text),
            is_host: table.host,
            separator: table.separator,
        })
    }
}

/// The pieces of a text with `{member}`.
fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((literal, after)) = rest.split_once('{') {
        pieces.push(Piece::Literal(literal.to_owned()));
        let (path, after) = after.split_once('}').ok_or("a { in a text needs a }")?;
        pieces.push(Piece::Path(Path::parse(path)?));
        rest = after;
    }
    pieces.push(Piece::Literal(rest.to_owned()));
    if pieces.len() > 2 * SOURCES_MAX {
        return Err(format!("a text has more than {SOURCES_MAX} members"));
    }
    Ok(pieces)
}

/// A string, a number or a truth value, as text.
struct Scalar(String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ScalarVisitor;

        impl de::Visitor<'_> for ScalarVisitor {
            type Value = Scalar;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("a text, a number, true or false")
            }

            fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar(text.to_owned()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Scalar, E> {
                Ok(Scalar(number.to_string()))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Scalar, E> {
                Ok(Scalar(number.to_string()))
            }

            fn visit_bool<E>(self, truth: bool) -> Result<Scalar, E> {
                Ok(Scalar(truth.to_string()))
            }
        }

        deserializer.deserialize_any(ScalarVisitor)
    }
}

impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SourceVisitor;

        impl<'de> de::Visitor<'de> for SourceVisitor {
            type Value = Source;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("the name of a column or member, a JSONPath, or a table")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Source, E> {
                let origin = Origin::Path(Path::parse(text).map_err(E::custom)?);
                Ok(Source { origin, default: None, is_host: false, separator: None })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Source, A::Error> {
                let table = Table::deserialize(MapAccessDeserializer::new(map))?;
                Source::try_from(table).map_err(de::Error::custom)
            }
        }

        deserializer.deserialize_any(SourceVisitor)
    }
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldVisitor;

        impl<'de> de::Visitor<'de> for FieldVisitor {
            type Value = Field;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str(
                    "the name of a column or member, a JSONPath, a table, or an array of these",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Field, E> {
                let source = Source::deserialize(de::value::StrDeserializer::new(text))?;
                Ok(Field(vec![source]))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Field, A::Error> {
                Ok(Field(vec![Source::deserialize(MapAccessDeserializer::new(map))?]))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, seq: A) -> Result<Field, A::Error> {
                let sources = Vec::<Source>::deserialize(SeqAccessDeserializer::new(seq))?;
                if sources.is_empty() || sources.len() > SOURCES_MAX {
                    return Err(de::Error::custom(format!(
                        "an array of places for a value has 1 to {SOURCES_MAX}"
                    )));
                }
                Ok(Field(sources))
            }
        }

        deserializer.deserialize_any(FieldVisitor)
    }
}
