//! Answers.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;

/// An answer in JSON.
#[derive(Debug)]
pub(super) struct Answer {
    status: StatusCode,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Vec<u8>,
}

/// What an error says.
#[derive(Serialize)]
struct Problem<'a> {
    error: &'a str,
}

impl Answer {
    pub(super) fn json(status: StatusCode, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }
    }

    /// `value` as JSON.
    pub(super) fn of(status: StatusCode, value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => Self::json(status, body),
            Err(error) => Self::error(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        }
    }

    /// An error, with a sentence that says what to do.
    pub(super) fn error(status: StatusCode, said: &str) -> Self {
        // A string is always JSON.
        let body = serde_json::to_vec(&Problem { error: said }).unwrap_or_default();
        Self::json(status, body)
    }

    pub(super) fn add(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers.push((name, value));
    }

    /// With the revision as `ETag`.
    pub(super) fn at(mut self, revision: u64) -> Self {
        if let Ok(tag) = HeaderValue::from_str(&format!("\"{revision}\"")) {
            self.add(header::ETAG, tag);
        }
        self
    }

    pub(super) fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(self.body)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        for (name, value) in [
            (header::CONTENT_TYPE, "application/json"),
            (header::CACHE_CONTROL, "no-store"),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers.extend(self.headers);
        response
    }
}
