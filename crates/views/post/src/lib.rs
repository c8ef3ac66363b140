//! Sends a body to a URL by HTTP POST, with or without TLS.
//!
//! *Idea.* One blocking request with a limit on its whole time, for those who send now and then: an
//! alarm to a webhook, a history to a database. Certificates are checked against those that the
//! system trusts, so a company's own authority works where the system knows it.
//!
//! *Principles.* Nothing is followed: a redirect is an error, so that a body goes where the
//! operator said. An answer is read up to a bound and shown only in errors.
//!
//! *Non-goals.* A pool, retries, other methods.

use std::sync::{Arc, OnceLock};
use std::time::Duration;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, http};

/// The longest part of an answer that an error shows, in bytes.
const SHOWN_MAX: u64 = 200;

/// Why a body was not taken.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// The URL is none, or is not one of HTTP.
    #[error("\"{0}\" is no URL to post to: write http://HOST/PATH or https://HOST/PATH")]
    Url(String),
    /// There was no answer.
    #[error("{0} does not answer: {1}")]
    Failed(String, Box<ureq::Error>),
    /// There was no whole answer in time.
    #[error("{0} does not answer within {time} s", time = .1.as_secs_f32())]
    Late(String, Duration),
    /// It was refused.
    #[error("{0} answers {1}{said}", said = answered(*.1, .2))]
    Refused(String, u16, String),
}

/// What an answer means for the author of the URL, behind its status.
fn answered(status: u16, said: &str) -> String {
    match (status, said) {
        (300..=399, _) => {
            ", a redirect, which is not followed: write the URL that it leads to".to_owned()
        }
        (_, "") => String::new(),
        (_, said) => format!(": {said}"),
    }
}

/// Whether `url` can be posted to.
///
/// # Errors
/// If it is no URL of `http` or `https` with a host.
pub fn check(url: &str) -> Result<(), PostError> {
    let parsed = url.parse::<http::Uri>().ok();
    let is_fit = |uri: &http::Uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.host().is_some_and(|host| !host.is_empty())
    };
    parsed.filter(is_fit).map(drop).ok_or_else(|| PostError::Url(url.to_owned()))
}

/// Where an error says that a URL leads: without a path, a query or credentials, which may be
/// secrets.
pub fn shown(url: &str) -> String {
    let uri = url.parse::<http::Uri>().ok();
    let parts = uri.as_ref().and_then(|uri| Some((uri.scheme_str()?, uri.host()?, uri.port())));
    match parts {
        Some((scheme, host, Some(port))) => format!("{scheme}://{host}:{port}"),
        Some((scheme, host, None)) => format!("{scheme}://{host}"),
        None => "the URL".to_owned(),
    }
}

/// Posts `body` with `headers` to `url` within `limit`.
///
/// # Errors
/// If it is not answered with a status from 200 to 299 in time.
pub fn post(
    url: &str,
    headers: &[(&str, &str)],
    body: &[u8],
    limit: Duration,
) -> Result<(), PostError> {
    check(url)?;
    let config = Agent::config_builder()
        .timeout_global(Some(limit))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent("narrows")
        .tls_config(tls())
        .build();
    let mut request = Agent::new_with_config(config).post(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let failed = |error| match error {
        ureq::Error::Timeout(_) => PostError::Late(shown(url), limit),
        error => PostError::Failed(shown(url), Box::new(error)),
    };
    let mut answer = request.send(body).map_err(failed)?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let said = answer.body_mut().with_config().limit(SHOWN_MAX).lossy_utf8(true).read_to_string();
    let said = said.unwrap_or_default();
    Err(PostError::Refused(shown(url), status.as_u16(), said.trim().to_owned()))
}

/// The certificates that the system trusts, read once.
fn tls() -> TlsConfig {
    static TLS: OnceLock<TlsConfig> = OnceLock::new();
    let make = || {
        let found = rustls_native_certs::load_native_certs();
        let roots = found.certs.iter().map(|one| Certificate::from_der(one).to_owned());
        TlsConfig::builder()
            .root_certs(RootCerts::from(roots.collect::<Vec<_>>()))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build()
    };
    TLS.get_or_init(make).clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    /// Answers one request, and gives what it was.
    fn serve(answer: &'static str) -> (String, thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook?token=secret", listener.local_addr().unwrap());
        let server = thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let mut request = Vec::new();
            while !request.ends_with(b"the body") {
                let mut part = [0; 1000];
                let read = stream.read(&mut part).unwrap();
                assert!(read > 0);
                request.extend_from_slice(&part[..read]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(request).unwrap()
        });
        (url, server)
    }

    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn a_body_is_posted_with_its_headers() {
        let (url, server) = serve("HTTP/1.1 204 No Content\r\n\r\n");
        post(&url, &[("Content-Type", "text/plain")], b"the body", LIMIT).unwrap();
        let request = server.join().unwrap().to_lowercase();
        assert!(request.starts_with("post /hook?token=secret http/1.1\r\n"), "{request}");
        assert!(request.contains("content-type: text/plain\r\n"), "{request}");
    }

    #[test]
    fn a_refusal_says_why_and_not_the_token() {
        let (url, server) = serve("HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nno!\n");
        let error = post(&url, &[], b"the body", LIMIT).unwrap_err().to_string();
        server.join().unwrap();
        let host = url.split_once("/hook").unwrap().0;
        assert_eq!(error, format!("{host} answers 403: no!"));
    }

    #[test]
    fn a_redirect_is_not_followed() {
        let (url, server) = serve(
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        );
        let error = post(&url, &[], b"the body", LIMIT).unwrap_err();
        server.join().unwrap();
        assert!(matches!(error, PostError::Refused(_, 302, _)), "{error}");
        assert!(error.to_string().contains("write the URL that it leads to"), "{error}");
    }

    #[test]
    fn what_is_no_url_is_refused_before_anything_is_sent() {
        for url in ["", "example.net", "ftp://example.net/", "http://", "https:///x", "file:///etc"]
        {
            assert!(matches!(check(url), Err(PostError::Url(_))), "{url}");
        }
        assert!(check("https://example.net/hook").is_ok() && check("http://[::1]:9/").is_ok());
    }

    #[test]
    fn who_does_not_answer_is_not_waited_for() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", silent.local_addr().unwrap());
        let error = post(&url, &[], b"the body", Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, PostError::Late(..)), "{error}");
        assert!(error.to_string().ends_with("does not answer within 0.05 s"), "{error}");
    }
}
