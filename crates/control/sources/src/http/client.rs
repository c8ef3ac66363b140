//! Requests, with retries and limits.

use super::pages::{At, Cursor, next_link};
use super::{ANSWER_MAX, ANSWERS_MAX, Budget, HttpError, Secret, cut};
use crate::mapping::{Http, Request};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustls::crypto::ring;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use ureq::http::{HeaderMap, Uri, header};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body, RequestBuilder, typestate::WithBody, typestate::WithoutBody};

/// The longest pause that a server can ask for.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// How long to wait before a request is repeated: the first pause, which doubles each time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// The first pause.
    pub pause: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { pause: Duration::from_secs(1) }
    }
}

/// An answer that is JSON.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) document: Value,
    /// The next page in the header `Link`.
    pub(super) link: Option<String>,
}

/// What came back to one request.
enum Outcome {
    Answer(Answer),
    /// It may succeed later, after a time that the server may have named.
    Later(String, Option<Duration>),
    Never(String),
}

pub(super) struct Client<'a> {
    http: &'a Http,
    token: Option<Secret>,
    agent: Agent,
    pause: Duration,
    budget: Budget,
}

impl<'a> Client<'a> {
    pub(super) fn new(
        http: &'a Http,
        token: Option<Secret>,
        ca_file: Option<&Path>,
        pace: &Pace,
    ) -> Result<Self, HttpError> {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("narrows/", env!("CARGO_PKG_VERSION")));
        if http.base.starts_with("https://") {
            let tls = TlsConfig::builder()
                .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
                .root_certs(roots(ca_file)?)
                .build();
            config = config.tls_config(tls).https_only(true);
        }
        let agent = Agent::new_with_config(config.build());
        let budget = Budget { until: Instant::now() + http.deadline(), bytes: ANSWERS_MAX };
        Ok(Self { http, token, agent, pause: pace.pause, budget })
    }

    /// The answer to a request, after as many retries as it takes and the mapping allows.
    pub(super) fn ask(
        &mut self,
        request: &Request,
        cursor: &Cursor<'_>,
    ) -> Result<Answer, HttpError> {
        let base = format!(
            "{}/{}",
            self.http.base.trim_end_matches('/'),
            request.path.trim_start_matches('/')
        );
        let shown = base.trim_end_matches('/').to_owned();
        let failed = |why: String| HttpError::Request { url: shown.clone(), why };
        let url = match &cursor.at {
            At::Address(next) => next_address(&base, next).map_err(&failed)?,
            _ => base,
        };
        let mut pause = self.pause;
        let mut retries = 0;
        loop {
            let why = match self.once(&url, request, cursor) {
                Outcome::Answer(answer) => return Ok(answer),
                Outcome::Never(why) => return Err(failed(why)),
                Outcome::Later(why, _) if retries >= self.http.retries => {
                    let times = match retries {
                        0 => "no retry".to_owned(),
                        1 => "1 retry".to_owned(),
                        more => format!("{more} retries"),
                    };
                    return Err(failed(format!("{why}, after {times}")));
                }
                Outcome::Later(why, asked) => {
                    pause = pause.max(asked.unwrap_or_default()).min(PAUSE_MAX);
                    why
                }
            };
            let left = self.budget.until.saturating_duration_since(Instant::now());
            if left <= pause {
                let deadline = self.http.deadline;
                return Err(failed(format!("{why}, and the deadline of {deadline} s is over")));
            }
            log::info!("{shown}: {why}: asking again in {} ms", pause.as_millis());
            std::thread::sleep(pause);
            pause = pause.saturating_mul(2);
            retries += 1;
        }
    }

    fn once(&mut self, url: &str, request: &Request, cursor: &Cursor<'_>) -> Outcome {
        let left = self.budget.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let deadline = self.http.deadline;
            return Outcome::Never(format!("the deadline of {deadline} s is over"));
        }
        let answer = match self.send(url, request, cursor, left.min(self.http.timeout())) {
            Ok(answer) => answer,
            Err(error) => return Outcome::Later(error.to_string(), None),
        };
        let (head, mut body) = answer.into_parts();
        let status = head.status.as_u16();
        let limit = ANSWER_MAX.min(self.budget.bytes);
        let read = body.with_config().limit(limit).read_to_vec();
        let text = match read {
            Ok(text) => text,
            Err(ureq::Error::BodyExceedsLimit(_)) => {
                let mib = ANSWER_MAX >> 20;
                return Outcome::Never(format!(
                    "the answer has more than {mib} MiB, or all answers more than {} MiB: ask \
                     for pages",
                    ANSWERS_MAX >> 20
                ));
            }
            Err(error) => return Outcome::Later(format!("the answer is cut: {error}"), None),
        };
        self.budget.bytes = self.budget.bytes.saturating_sub(text.len() as u64);
        match status {
            200 => match serde_json::from_slice(&text) {
                Ok(document) => {
                    let link = head.headers.get(header::LINK);
                    let link = link.and_then(|link| next_link(link.to_str().ok()?));
                    Outcome::Answer(Answer { document, link })
                }
                Err(error) => {
                    let begin = cut(&String::from_utf8_lossy(&text));
                    Outcome::Never(format!("the answer is no JSON ({error}): {begin}"))
                }
            },
            300..=399 => {
                let to = head.headers.get(header::LOCATION).and_then(|to| to.to_str().ok());
                let to = cut(to.unwrap_or("another address"));
                Outcome::Never(format!(
                    "the server answers {status} and points to {to}: write in base and path \
                     where the API is"
                ))
            }
            429 | 500 | 502 | 503 | 504 => {
                Outcome::Later(format!("the server answers {status}"), retry_after(&head.headers))
            }
            401 | 403 => Outcome::Never(format!(
                "the server answers {status}: it does not take the token, or the token may not \
                 read this: look at token_file and [http.auth]"
            )),
            _ => {
                let begin = cut(&String::from_utf8_lossy(&text));
                Outcome::Never(format!("the server answers {status}: {begin}"))
            }
        }
    }

    fn send(
        &self,
        url: &str,
        request: &Request,
        cursor: &Cursor<'_>,
        timeout: Duration,
    ) -> Result<ureq::http::Response<Body>, ureq::Error> {
        let is_address = matches!(cursor.at, At::Address(_));
        // The next page's address has its own query.
        let mut query: Vec<(&str, String)> = Vec::new();
        if !is_address {
            query.extend(request.query.iter().map(|(name, value)| (name.as_str(), value.clone())));
        }
        let has_body = request.json.is_some() || request.form.is_some();
        let parameter = match &cursor.at {
            At::Parameter(name, value) => Some((name.as_str(), value)),
            At::Whole | At::Address(_) => None,
        };
        if let Some((name, value)) = parameter.filter(|_| !has_body) {
            query.push((name, plain(value)));
        }
        if let Some(json) = &request.json {
            let mut json = json.clone();
            if let Some((name, value)) = parameter
                && let Some(at) = json.pointer_mut(name)
            {
                *at = value.clone();
            }
            if let Some(token) = self.token.as_ref().filter(|_| self.http.auth.body) {
                fill(&mut json, token);
            }
            let mut text = Vec::new();
            serde_json::to_writer(&mut text, &json).map_err(|e| ureq::Error::Io(e.into()))?;
            let request = self.with_body(self.agent.post(url), &query, timeout);
            return request.content_type("application/json").send(&text);
        }
        if let Some(form) = &request.form {
            let mut fields: Vec<(&str, String)> = Vec::new();
            for (name, value) in form {
                let token = self.token.as_ref().filter(|_| self.http.auth.body);
                fields.push((name, token.map_or(value.clone(), |token| token.fill(value))));
            }
            fields.extend(parameter.map(|(name, value)| (name, plain(value))));
            return self.with_body(self.agent.post(url), &query, timeout).send_form(fields);
        }
        self.without_body(self.agent.get(url), &query, timeout).call()
    }

    fn with_body(
        &self,
        mut request: RequestBuilder<WithBody>,
        query: &[(&str, String)],
        timeout: Duration,
    ) -> RequestBuilder<WithBody> {
        for (name, value) in self.headers() {
            request = request.header(name, value);
        }
        let query = query.iter().map(|(name, value)| (*name, value.as_str()));
        request.query_pairs(query).config().timeout_global(Some(timeout)).build()
    }

    fn without_body(
        &self,
        mut request: RequestBuilder<WithoutBody>,
        query: &[(&str, String)],
        timeout: Duration,
    ) -> RequestBuilder<WithoutBody> {
        for (name, value) in self.headers() {
            request = request.header(name, value);
        }
        let query = query.iter().map(|(name, value)| (*name, value.as_str()));
        request.query_pairs(query).config().timeout_global(Some(timeout)).build()
    }

    /// The headers of all requests.
    fn headers(&self) -> Vec<(&str, String)> {
        let mut headers = vec![("accept", "application/json".to_owned())];
        let given = self.http.headers.iter();
        headers.extend(given.map(|(name, value)| (name.as_str(), value.clone())));
        let auth = &self.http.auth;
        if let Some(token) = self.token.as_ref().filter(|_| !auth.body) {
            let value = match (&auth.value, &auth.header) {
                _ if auth.basic => format!("Basic {}", BASE64.encode(token.expose())),
                (Some(value), _) => token.fill(value),
                (None, Some(_)) => token.expose().to_owned(),
                (None, None) => token.fill("Bearer {token}"),
            };
            headers.push((auth.header.as_deref().unwrap_or("authorization"), value));
        }
        headers
    }
}

/// Puts the token into all texts of a body.
fn fill(value: &mut Value, token: &Secret) {
    match value {
        Value::String(text) => *text = token.fill(text),
        Value::Array(elements) => elements.iter_mut().for_each(|element| fill(element, token)),
        Value::Object(members) => {
            members.values_mut().for_each(|member| fill(member, token));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A parameter as text.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The address of the next page, which has to be at the same server.
fn next_address(base: &str, next: &str) -> Result<String, String> {
    let bad = || format!("the next page's address is none: {}", cut(next));
    let here: Uri = base.parse().map_err(|_| bad())?;
    let scheme = here.scheme_str().unwrap_or_default();
    let server = here.authority().ok_or_else(bad)?;
    if next.starts_with('/') && !next.starts_with("//") {
        return Ok(format!("{scheme}://{server}{next}"));
    }
    if next.starts_with('?') {
        return Ok(format!("{base}{next}"));
    }
    let there: Uri = next.parse().map_err(|_| bad())?;
    let is_same = there.scheme_str() == here.scheme_str()
        && there
            .authority()
            .is_some_and(|there| there.as_str().eq_ignore_ascii_case(server.as_str()));
    if !is_same {
        return Err(format!(
            "the next page is at another address, {}: the token goes to {scheme}://{server} \
             only; write its address in base as the server does",
            cut(next)
        ));
    }
    Ok(next.to_owned())
}

/// The seconds of `Retry-After` (RFC 9110, section 10.2.3); a date counts as none.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

/// What is trusted: the certificates of a file, or those of the system.
fn roots(ca_file: Option<&Path>) -> Result<RootCerts, HttpError> {
    let certificates: Vec<Certificate<'static>> = match ca_file {
        Some(path) => {
            let shown = path.display();
            let bad = |why: String| HttpError::Certificates(format!("ca_file {shown}: {why}"));
            let text = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
            let items = ureq::tls::parse_pem(&text);
            let certificates = items.filter_map(|item| match item {
                Ok(ureq::tls::PemItem::Certificate(certificate)) => Some(Ok(certificate)),
                Ok(_) => None,
                Err(error) => Some(Err(bad(error.to_string()))),
            });
            certificates.collect::<Result<_, _>>()?
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            for error in found.errors {
                log::warn!("a certificate of the system cannot be read: {error}");
            }
            let certificates = found.certs.iter();
            certificates.map(|certificate| Certificate::from_der(certificate).to_owned()).collect()
        }
    };
    if certificates.is_empty() {
        return Err(HttpError::Certificates(
            "no certificate is trusted: install ca-certificates, or name a PEM file with ca_file \
             in [http]"
                .to_owned(),
        ));
    }
    Ok(RootCerts::Specific(Arc::new(certificates)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_at_the_same_server() {
        let next = |next| next_address("https://a.example/api/sites", next);
        assert_eq!(next("/api/x?p=2").unwrap(), "https://a.example/api/x?p=2");
        assert_eq!(next("?p=2").unwrap(), "https://a.example/api/sites?p=2");
        assert_eq!(next("https://A.example/x").unwrap(), "https://A.example/x");
        for other in [
            "http://a.example/x",
            "https://a.example.evil/x",
            "https://a.example:8443/x",
            "https://a.example@evil/x",
            "//evil/x",
            "x",
            "",
        ] {
            assert!(next(other).is_err(), "{other}");
        }
    }
}
