//! How an API is asked.

use super::Path;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// The server, and what all requests have in common.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// The address before each list's path, as `https://billing.example.net/api/`.
    pub base: String,
    /// Headers beside the token's.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// How the token is sent; none: `Authorization: Bearer`.
    #[serde(default)]
    pub auth: Auth,
    /// The file with the token, from the mapping's folder on.
    pub token_file: Option<String>,
    /// Certificates that are trusted instead of the system's, in PEM, from the mapping's folder on.
    pub ca_file: Option<String>,
    /// Allows to send the token without TLS, over a network where nobody listens.
    #[serde(default)]
    pub cleartext: bool,
    /// The most seconds of a request.
    #[serde(default = "timeout")]
    pub timeout: u64,
    /// The most seconds of all requests together.
    #[serde(default = "deadline")]
    pub deadline: u64,
    /// How often a request is repeated after an error that may pass.
    #[serde(default = "retries")]
    pub retries: u32,
}

fn timeout() -> u64 {
    30
}

fn deadline() -> u64 {
    300
}

fn retries() -> u32 {
    3
}

impl Http {
    /// The most time of a request.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// The most time of all requests.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        Duration::from_secs(self.deadline)
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let is_http = ["http://", "https://"].iter().any(|scheme| self.base.starts_with(scheme));
        if !is_http || self.base.contains(['?', '#', '@']) {
            return Err("[http] base is an address as https://billing.example.net/api/, without \
                        user and without query"
                .to_owned());
        }
        if !(1..=3_600).contains(&self.timeout) || !(1..=86_400).contains(&self.deadline) {
            return Err("[http] timeout is 1 to 3600 seconds, and deadline 1 to 86400".to_owned());
        }
        if self.retries > 20 {
            return Err("[http] retries is at most 20".to_owned());
        }
        self.auth.check()
    }
}

/// How the token is sent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// The header; none: `Authorization`.
    pub header: Option<String>,
    /// The header's value, with `{token}`; none: `Bearer {token}`.
    pub value: Option<String>,
    /// The token file has USER:PASSWORD, for `Basic`.
    #[serde(default)]
    pub basic: bool,
    /// The token is only in bodies, as `{token}` in a list's form or json.
    #[serde(default)]
    pub body: bool,
}

impl Auth {
    fn check(&self) -> Result<(), String> {
        if self.value.as_ref().is_some_and(|value| !value.contains("{token}")) {
            return Err("[http.auth] value needs {token} where the token goes".to_owned());
        }
        let has_header = self.header.is_some() || self.value.is_some();
        if usize::from(has_header) + usize::from(self.basic) + usize::from(self.body) > 1 {
            return Err("[http.auth] has either header and value, or basic, or body".to_owned());
        }
        Ok(())
    }
}

/// How a list is asked for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The path after the base.
    pub path: String,
    /// The query.
    #[serde(default)]
    pub query: BTreeMap<String, String>,
    /// Fields of a form, which make it a POST.
    pub form: Option<BTreeMap<String, String>>,
    /// A JSON body, which makes it a POST.
    pub json: Option<Value>,
    /// Where an answer has an error, although its status is 200, as GraphQL's `$.errors`.
    pub error: Option<Path>,
    /// How a long list is cut into pages; none: it comes whole.
    pub pages: Option<Pages>,
}

/// How to get the next page.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pages {
    /// What changes from page to page.
    pub by: Step,
    /// `page`, `offset`, `cursor`: the parameter that changes. In a JSON body it is a JSON Pointer
    /// (RFC 6901).
    pub name: Option<String>,
    /// `page`: the number of the first page; none: 1.
    pub first: Option<u64>,
    /// `page`, `offset`: how many records a page has, if the request says so.
    pub size: Option<u64>,
    /// `next`, `cursor`: where an answer has the address, or the cursor, of the next page.
    pub next: Option<Path>,
    /// Where an answer has the number of all records: if fewer come, the list is not whole.
    pub total: Option<Path>,
}

/// What tells pages apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// The number of the page.
    Page,
    /// The number of records before it.
    Offset,
    /// An address in the answer.
    Next,
    /// The header `Link` with `rel="next"` (RFC 8288).
    Link,
    /// A token in the answer.
    Cursor,
}

impl Request {
    pub(super) fn check(&self) -> Result<(), String> {
        if self.path.contains("://") || self.path.contains(['?', '#']) {
            return Err("path comes after the base and has no query: query is a table".to_owned());
        }
        if self.form.is_some() && self.json.is_some() {
            return Err("a request has either a form or a json body".to_owned());
        }
        let Some(pages) = &self.pages else { return Ok(()) };
        let (has_name, has_next) = (pages.name.is_some(), pages.next.is_some());
        let is_sound = match pages.by {
            Step::Page => has_name && !has_next,
            Step::Offset => has_name && !has_next && pages.size.is_some(),
            Step::Cursor => has_name && has_next,
            Step::Next => !has_name && has_next,
            Step::Link => !has_name && !has_next,
        };
        if !is_sound || (pages.first.is_some() && pages.by != Step::Page) {
            return Err("pages by page needs name; by offset name and size; by cursor name and \
                        next; by next next; by link nothing"
                .to_owned());
        }
        if pages.size == Some(0) || pages.first.is_some_and(|first| first > 1_000_000) {
            return Err("pages: size is at least 1, and first at most 1000000".to_owned());
        }
        if let (Some(json), Some(name)) = (&self.json, &pages.name)
            && json.pointer(name).is_none()
        {
            return Err(format!(
                "pages name \"{name}\" is a JSON Pointer to a value in json, as /variables/page"
            ));
        }
        Ok(())
    }
}
