//! The mapping file: which record is a subscriber, and where its properties are.
//!
//! *Idea.* A [`Field`] says where a value is: the name of a column or member, a path, a constant, a
//! text put together, or a value in the record of another list. Paths and conditions are JSONPath
//! (RFC 9535): a standard that people can look up, whose paths reach all values of a nested list
//! (`$.equipment[*].ip`), as JSON Pointer's cannot, and whose conditions filter records. A text
//! that does not begin with `$` is the name of a column or member as it is, so that a table needs
//! no paths at all, whatever characters its headings have.

mod field;
mod http;
mod path;
mod rate;

pub use field::{Field, Origin, Piece, Source};
pub use http::{Auth, Http, Pages, Request, Step};
pub use path::{Path, Where};
pub use rate::{Unit, rate};

use crate::SourceError;
use narrows_directory::Queueing;
use narrows_units::Rate;
use serde::{Deserialize, Deserializer};
use std::collections::{BTreeMap, BTreeSet};

/// The list of a source that has only one.
pub const RECORDS: &str = "records";
/// The longest mapping file in bytes.
const LENGTH_MAX: usize = 1 << 20;

/// A mapping file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// How to ask an API, for `http`.
    pub http: Option<Http>,
    /// The lists, by name. Without any, there is one list, "records".
    #[serde(default)]
    pub lists: BTreeMap<String, ListSpec>,
    /// Plans that the source names without saying their rates.
    #[serde(default)]
    pub plans: BTreeMap<String, PlanSpec>,
    /// The sites. Without this table, sites are those that subscribers name.
    pub sites: Option<SiteSpec>,
    /// The subscribers.
    pub subscribers: SubscriberSpec,
}

/// Where a list of records is.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "ListTable")]
pub struct ListSpec {
    /// `csv`, `json`: its file, from the mapping's folder on; none: the file of the command.
    pub file: Option<String>,
    /// `csv`: the character between columns; none: a comma.
    pub delimiter: Option<char>,
    /// `json`, `http`: where the records are in the document; none: it is the array.
    pub records: Option<Path>,
    /// Only records that fulfil this condition.
    pub condition: Option<Where>,
    /// `http`: how to ask.
    pub request: Option<Request>,
}

/// The keys of a list in the file, where those of a request are not apart.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListTable {
    file: Option<String>,
    delimiter: Option<char>,
    records: Option<Path>,
    #[serde(rename = "where")]
    condition: Option<Where>,
    path: Option<String>,
    query: Option<BTreeMap<String, String>>,
    form: Option<BTreeMap<String, String>>,
    json: Option<serde_json::Value>,
    error: Option<Path>,
    pages: Option<Pages>,
}

impl TryFrom<ListTable> for ListSpec {
    type Error = String;

    fn try_from(table: ListTable) -> Result<Self, String> {
        let ListTable { file, delimiter, records, condition, .. } = table;
        let request = match table.path {
            Some(path) => {
                if file.is_some() || delimiter.is_some() {
                    return Err("file and delimiter are for files, path is for http".to_owned());
                }
                let request = Request {
                    path,
                    query: table.query.unwrap_or_default(),
                    form: table.form,
                    json: table.json,
                    error: table.error,
                    pages: table.pages,
                };
                request.check()?;
                Some(request)
            }
            None => {
                let has_others = table.query.is_some()
                    || table.form.is_some()
                    || table.json.is_some()
                    || table.error.is_some()
                    || table.pages.is_some();
                if has_others {
                    return Err("query, form, json, error and pages need path: what to ask \
                                for after the base of [http]"
                        .to_owned());
                }
                None
            }
        };
        if delimiter.is_some_and(|delimiter| !delimiter.is_ascii()) {
            return Err("delimiter is one ASCII character".to_owned());
        }
        Ok(Self { file, delimiter, records, condition, request })
    }
}

/// The rates of a plan, in words of `tc`, as `50mbit`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanSpec {
    /// The most downstream.
    #[serde(deserialize_with = "tc_rate")]
    pub download: Rate,
    /// The most upstream.
    #[serde(deserialize_with = "tc_rate")]
    pub upload: Rate,
    /// The assured rate downstream.
    #[serde(default, deserialize_with = "tc_rate")]
    pub download_min: Rate,
    /// The assured rate upstream.
    #[serde(default, deserialize_with = "tc_rate")]
    pub upload_min: Rate,
    /// How packets queue.
    #[serde(default, deserialize_with = "queueing_word")]
    pub queueing: Queueing,
}

/// Where the properties of sites are.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteSpec {
    /// The list.
    #[serde(default = "records")]
    pub list: String,
    /// Only records that fulfil this condition are sites.
    #[serde(rename = "where")]
    pub condition: Option<Where>,
    /// The identity.
    pub id: Field,
    /// The name; none: the identity.
    pub name: Option<Field>,
    /// The identity of the site above.
    pub parent: Option<Field>,
    /// The capacity downstream.
    pub download: Option<Field>,
    /// The capacity upstream.
    pub upload: Option<Field>,
    /// The unit of both.
    pub unit: Option<Unit>,
}

/// Where the properties of subscribers are.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubscriberSpec {
    /// The list.
    #[serde(default = "records")]
    pub list: String,
    /// Only records that fulfil this condition are subscribers.
    #[serde(rename = "where")]
    pub condition: Option<Where>,
    /// The identity, which never changes.
    pub id: Field,
    /// The name; none: the identity.
    pub name: Option<Field>,
    /// The identity of the site.
    pub site: Option<Field>,
    /// The identity of the site above, where there is no list of sites.
    pub site_parent: Option<Field>,
    /// The name of the plan.
    pub plan: Option<Field>,
    /// The most downstream.
    pub download: Option<Field>,
    /// The most upstream.
    pub upload: Option<Field>,
    /// The assured rate downstream.
    pub download_min: Option<Field>,
    /// The assured rate upstream.
    pub upload_min: Option<Field>,
    /// The unit of the rates.
    pub unit: Option<Unit>,
    /// How packets queue: `cake`, `fq_codel` or `fifo`.
    pub queueing: Option<Field>,
    /// The addresses and prefixes.
    pub addresses: Option<Field>,
    /// Anything else worth keeping, by label.
    #[serde(default)]
    pub labels: BTreeMap<String, Field>,
}

impl Mapping {
    /// Reads a mapping file.
    ///
    /// # Errors
    /// With the line and what is wrong there.
    pub fn parse(text: &str) -> Result<Self, SourceError> {
        if text.len() > LENGTH_MAX {
            return Err(SourceError::Mapping(format!("it is longer than {LENGTH_MAX} bytes")));
        }
        let mapping: Self = toml::from_str(text).map_err(|error| {
            let line = error
                .span()
                .map(|span| 1 + text.get(..span.start).unwrap_or(text).matches('\n').count());
            let message = error.message().trim();
            SourceError::Mapping(match line {
                Some(line) => format!("line {line}: {message}"),
                None => message.to_owned(),
            })
        })?;
        mapping.check().map_err(SourceError::Mapping)?;
        Ok(mapping)
    }

    /// Asks at another base.
    ///
    /// # Errors
    /// If the mapping has no API, or `base` is no address.
    pub fn ask_at(&mut self, base: &str) -> Result<(), SourceError> {
        let Some(http) = &mut self.http else {
            return Err(SourceError::Mapping("it has no [http]".to_owned()));
        };
        base.clone_into(&mut http.base);
        http.check().map_err(SourceError::Mapping)
    }

    /// The names of all lists that are read.
    #[must_use]
    pub fn list_names(&self) -> BTreeSet<&str> {
        let main = [Some(self.subscribers.list.as_str())];
        let sites = self.sites.as_ref().map(|sites| sites.list.as_str());
        let looked_up = self.fields().into_iter().flat_map(|(_, field)| field.lists());
        main.into_iter().chain([sites]).flatten().chain(looked_up).collect()
    }

    /// All fields, with their keys in the file.
    pub(crate) fn fields(&self) -> Vec<(String, &Field)> {
        let of = &self.subscribers;
        let mut fields = vec![("subscribers.id".to_owned(), &of.id)];
        let optional = [
            ("name", &of.name),
            ("site", &of.site),
            ("site_parent", &of.site_parent),
            ("plan", &of.plan),
            ("download", &of.download),
            ("upload", &of.upload),
            ("download_min", &of.download_min),
            ("upload_min", &of.upload_min),
            ("queueing", &of.queueing),
            ("addresses", &of.addresses),
        ];
        let given = |(key, field)| Option::as_ref(field).map(|field| (key, field));
        let optional = optional.into_iter().filter_map(given);
        fields.extend(optional.map(|(key, field)| (format!("subscribers.{key}"), field)));
        let labels = of.labels.iter();
        fields.extend(labels.map(|(label, field)| (format!("subscribers.labels.{label}"), field)));
        if let Some(sites) = &self.sites {
            fields.push(("sites.id".to_owned(), &sites.id));
            let optional = [
                ("name", &sites.name),
                ("parent", &sites.parent),
                ("download", &sites.download),
                ("upload", &sites.upload),
            ];
            let optional = optional.into_iter().filter_map(given);
            fields.extend(optional.map(|(key, field)| (format!("sites.{key}"), field)));
        }
        fields
    }

    /// What serde does not see.
    fn check(&self) -> Result<(), String> {
        let of = &self.subscribers;
        for name in self.list_names() {
            let is_there =
                self.lists.contains_key(name) || (name == RECORDS && self.http.is_none());
            if !is_there {
                return Err(format!("a field reads the list \"{name}\": add [lists.{name}]"));
            }
        }
        if of.plan.is_none() && (of.download.is_none() || of.upload.is_none()) {
            return Err("[subscribers] needs download and upload, or a plan that [plans.NAME] \
                        describes"
                .to_owned());
        }
        if of.plan.is_some() && self.plans.is_empty() && of.download.is_none() {
            return Err("[subscribers] names plans but nothing says their rates: add \
                        [plans.NAME] with download and upload, or fields of these names"
                .to_owned());
        }
        let rates = [&of.download, &of.upload, &of.download_min, &of.upload_min];
        if rates.iter().any(|field| field.is_some()) && of.unit.is_none() {
            return Err("[subscribers] needs unit = \"kbit\", \"mbit\", \"gbit\" or \"bit\": the \
                        unit of its rates"
                .to_owned());
        }
        if of.site_parent.is_some() && (self.sites.is_some() || of.site.is_none()) {
            return Err("site_parent is for a source without [sites], beside site: with a list \
                        of sites, parent in [sites] is the site above"
                .to_owned());
        }
        if let Some(sites) = &self.sites {
            let rates = [&sites.download, &sites.upload];
            if rates.iter().any(|field| field.is_some()) && sites.unit.is_none() {
                return Err("[sites] needs unit = \"kbit\", \"mbit\", \"gbit\" or \"bit\": the \
                            unit of its capacities"
                    .to_owned());
            }
        }
        for (key, field) in self.fields() {
            if key != "subscribers.addresses" && field.0.iter().any(|source| source.is_host) {
                return Err(format!("{key}: host is for addresses"));
            }
        }
        for (name, list) in &self.lists {
            match (&self.http, &list.request) {
                (Some(_), None) => {
                    return Err(format!("[lists.{name}] needs path: what to ask for"));
                }
                (None, Some(_)) => {
                    return Err(format!(
                        "[lists.{name}] has a path to ask for: add [http] with base, the \
                         address of the API"
                    ));
                }
                _ => {}
            }
        }
        self.http.as_ref().map_or(Ok(()), Http::check)
    }
}

fn records() -> String {
    RECORDS.to_owned()
}

fn tc_rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Rate, D::Error> {
    let text = String::deserialize(deserializer)?;
    rate(&text, None).map_err(serde::de::Error::custom)
}

fn queueing_word<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Queueing, D::Error> {
    let word = String::deserialize(deserializer)?;
    queueing(&word).map_err(serde::de::Error::custom)
}

/// The queueing of a word.
pub(crate) fn queueing(word: &str) -> Result<Queueing, String> {
    match word {
        "cake" => Ok(Queueing::Cake),
        "fq_codel" => Ok(Queueing::FqCodel),
        "fifo" => Ok(Queueing::Fifo),
        _ => Err(format!("{} is no queueing: cake, fq_codel or fifo", crate::fault::quoted(word))),
    }
}
