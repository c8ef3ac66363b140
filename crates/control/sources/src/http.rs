//! Lists from a JSON API over HTTP.
//!
//! *Idea.* Each list is one request, or one for each page. A list is whole or an error: an answer
//! that is cut, a page that fails after all its retries, an error in an answer whose status is
//! 200, or fewer records than the answer's own total refuse the source, and nothing changes.
//!
//! *Principles.* The token comes from a file that only its owner can read, is sent over TLS only
//! (or where the mapping allows otherwise), and never goes to another server: redirects are
//! refused, and the next page's address has to be at the same server. Answers are bounded in size,
//! number and time.

mod client;
mod pages;
mod secret;

pub use client::Pace;
pub use secret::Secret;

use crate::mapping::{Auth, Http, Mapping, Path as JsonPath, Request};
use crate::{List, Lists, SourceError, json};
use client::Client;
use pages::Cursor;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The largest answer in bytes.
const ANSWER_MAX: u64 = 64 << 20;
/// The most bytes of all answers together.
const ANSWERS_MAX: u64 = 1 << 30;
/// The most pages of a list.
const PAGES_MAX: usize = 20_000;

/// Why an API gave no lists.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The file of the token cannot be used.
    #[error("{0}")]
    Token(String),
    /// Certificates cannot be used.
    #[error("{0}")]
    Certificates(String),
    /// The mapping has no API.
    #[error("the mapping has no [http] with base, the address of the API")]
    NoApi,
    /// A request failed, and no retry helped.
    #[error("{url}: {why}")]
    Request {
        /// The address, without its query.
        url: String,
        /// Why.
        why: String,
    },
    /// A list is not whole.
    #[error("the list {list} is not whole: {why}")]
    Partial {
        /// Its name in the mapping.
        list: String,
        /// Why.
        why: String,
    },
}

/// Loads all lists of `mapping` from its API. Relative names of files start at `folder`, that of
/// the mapping; `token_file` counts before the mapping's.
///
/// # Errors
/// If a list is not whole, for whatever reason.
pub fn load(
    mapping: &Mapping,
    folder: &Path,
    token_file: Option<&Path>,
    pace: &Pace,
) -> Result<Lists, SourceError> {
    let http = mapping.http.as_ref().ok_or(HttpError::NoApi)?;
    let file = |name: &String| folder.join(name);
    let token_file: Option<PathBuf> =
        token_file.map(Path::to_owned).or_else(|| http.token_file.as_ref().map(file));
    let token = token_file.map(|path| Secret::read(&path)).transpose()?;
    check_token(http, token.as_ref())?;
    let ca_file = http.ca_file.as_ref().map(file);
    let mut client = Client::new(http, token, ca_file.as_deref(), pace)?;
    let mut lists = Lists::default();
    for name in mapping.list_names() {
        let spec = mapping.lists.get(name);
        let Some((spec, request)) = spec.and_then(|spec| Some((spec, spec.request.as_ref()?)))
        else {
            return Err(SourceError::Mapping(format!("[lists.{name}] needs path")));
        };
        let records = list(&mut client, name, request, spec.records.as_ref())?;
        let list = List::counted(name, records, &mut lists.faults)?;
        lists.insert(name, list);
    }
    Ok(lists)
}

/// Whether the token may go where the mapping says.
fn check_token(http: &Http, token: Option<&Secret>) -> Result<(), HttpError> {
    if token.is_none() {
        let Auth { header, value, basic, body } = &http.auth;
        if header.is_some() || value.is_some() || *basic || *body {
            return Err(HttpError::Token(
                "[http.auth] says how to send a token, and there is none: add token_file to \
                 [http]"
                    .to_owned(),
            ));
        }
        return Ok(());
    }
    let is_local = ["http://127.0.0.1", "http://[::1]", "http://localhost"].iter().any(|host| {
        let rest = http.base.strip_prefix(host);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '/']))
    });
    if http.base.starts_with("http://") && !is_local && !http.cleartext {
        return Err(HttpError::Token(format!(
            "the token would go to {} without TLS: use https, or write cleartext = true in \
             [http] if nobody listens there",
            http.base
        )));
    }
    Ok(())
}

/// All records of a list, page by page.
fn list(
    client: &mut Client<'_>,
    name: &str,
    request: &Request,
    path: Option<&JsonPath>,
) -> Result<Vec<Value>, SourceError> {
    let partial = |why: String| HttpError::Partial { list: name.to_owned(), why };
    let mut records = Vec::new();
    let mut cursor = Cursor::new(request);
    for _ in 0..PAGES_MAX {
        let answer = client.ask(request, &cursor)?;
        if let Some(error) = &request.error {
            let found = error.values(&answer.document).into_iter().find(|value| is_error(value));
            if let Some(error) = found {
                let why = format!("the answer has an error: {}", cut(&error.to_string()));
                return Err(partial(why).into());
            }
        }
        let total = request.pages.as_ref().and_then(|pages| pages.total.as_ref());
        let total = total.map(|total| total_of(&answer.document, total)).transpose();
        let total = total.map_err(partial)?;
        let step = cursor.step(&answer).map_err(partial)?;
        let page = json::select(answer.document, path)
            .map_err(|why| SourceError::Format(format!("list {name}"), why))?;
        records.extend_from_slice(&page);
        if records.len() > crate::list::RECORDS_MAX {
            break;
        }
        if !cursor.advance(step, page.len()).map_err(partial)? {
            if let Some(total) = total
                && (records.len() as u64) < total
            {
                let count = records.len();
                return Err(partial(format!("{count} of {total} records came")).into());
            }
            return Ok(records);
        }
    }
    Err(SourceError::TooMuch(format!(
        "the list {name} does not end after {} records and {PAGES_MAX} pages at most: look at \
         its pages",
        records.len()
    )))
}

/// Whether a value says that something failed.
fn is_error(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(elements) => !elements.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    }
}

fn total_of(document: &Value, path: &JsonPath) -> Result<u64, String> {
    let found = path.values(document);
    let number = match found.as_slice() {
        [Value::Number(number)] => number.as_u64(),
        [Value::String(text)] => text.parse().ok(),
        _ => None,
    };
    number.ok_or_else(|| format!("the answer has no number at {}, the total", path.as_str()))
}

/// The beginning of foreign text, without control characters.
fn cut(text: &str) -> String {
    const LENGTH: usize = 200;
    let mut shown: String = text.chars().take(LENGTH).flat_map(char::escape_debug).collect();
    if text.chars().nth(LENGTH).is_some() {
        shown.push('…');
    }
    shown
}

/// How much time and how many bytes are left to a source.
struct Budget {
    until: Instant,
    bytes: u64,
}
