//! Lists over HTTP, from a real server on the loopback.

mod server;

use narrows_sources::http::{Pace, load};
use narrows_sources::{Lists, Mapping, SourceError};
use rustls::pki_types::PrivateKeyDer;
use server::{Asked, Said, Server, json, status};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const PACE: Pace = Pace { pause: Duration::from_millis(1) };

const SUBSCRIBERS: &str = r#"
[subscribers]
list = "people"
id = "id"
download = "down"
upload = "down"
unit = "mbit"
"#;

/// The lists of a mapping whose [http] has `http` and whose list has `list`.
fn ask(server: &Server, http: &str, list: &str) -> Result<Lists, String> {
    let text = format!(
        "[http]\nbase = \"http://{}/api\"\n{http}\n[lists.people]\npath = \"people\"\n{list}\n\
         {SUBSCRIBERS}",
        server.address
    );
    load_text(&text)
}

fn load_text(text: &str) -> Result<Lists, String> {
    let mapping = Mapping::parse(text).map_err(|error| error.to_string())?;
    load(&mapping, Path::new("/"), None, &PACE).map_err(|error: SourceError| error.to_string())
}

fn count(lists: &Lists) -> usize {
    lists.get("people").unwrap().len()
}

/// A file with a secret, which ends with the test.
struct TokenFile(PathBuf);

impl TokenFile {
    fn new(token: &str, mode: u32) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("nrw-token-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, token).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        Self(path)
    }

    fn line(&self) -> String {
        format!("token_file = {:?}", self.0.to_str().unwrap())
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        // Best effort: it is in the folder for temporary files.
        let _gone = std::fs::remove_file(&self.0);
    }
}

fn parameter(asked: &Asked, name: &str) -> Option<String> {
    let pairs = asked.query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
}

fn records(from: usize, to: usize) -> String {
    let records: Vec<String> = (from..to).map(|id| format!("{{\"id\":{id},\"down\":5}}")).collect();
    format!("[{}]", records.join(","))
}

#[test]
fn a_list_without_pages_is_one_request_with_query_and_headers() {
    let server = Server::start(|_| json(records(0, 3)));
    let http = "headers = { X-Tenant = \"a\" }";
    let lists = ask(&server, http, "query = { \"a[b]\" = \"x y\" }").unwrap();
    assert_eq!(count(&lists), 3);
    let asked = server.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!((asked[0].method.as_str(), asked[0].path.as_str()), ("GET", "/api/people"));
    assert_eq!(asked[0].query.replace("%5B", "[").replace("%5D", "]"), "a[b]=x%20y");
    assert_eq!(asked[0].header("x-tenant"), Some("a"));
    assert_eq!(asked[0].header("authorization"), None);
}

#[test]
fn pages_by_number_end_with_one_that_is_not_full() {
    let server = Server::start(|asked| {
        let page: usize = parameter(asked, "page").unwrap().parse().unwrap();
        json(records((page - 1) * 10, (page * 10).min(25)))
    });
    let pages = "pages = { by = \"page\", name = \"page\", size = 10 }";
    assert_eq!(count(&ask(&server, "", pages).unwrap()), 25);
    assert_eq!(server.asked().len(), 3);
}

#[test]
fn pages_by_offset_go_on_from_what_came() {
    let server = Server::start(|asked| {
        let offset: usize = parameter(asked, "start").unwrap().parse().unwrap();
        json(format!("{{\"rows\":{},\"all\":20}}", records(offset, (offset + 10).min(20))))
    });
    let pages = "records = \"$.rows\"\nquery = { limit = \"10\" }\n\
                 pages = { by = \"offset\", name = \"start\", size = 10, total = \"$.all\" }";
    assert_eq!(count(&ask(&server, "", pages).unwrap()), 20);
    assert_eq!(server.asked().len(), 3, "the last page is empty");
}

#[test]
fn pages_by_next_address_link_and_cursor_end_where_there_is_none() {
    let server = Server::start(|asked| {
        let at: usize = parameter(asked, "p").map_or(0, |text| text.parse().unwrap());
        let rows = records(at * 2, at * 2 + 2);
        let next = if at < 2 { format!("\"/api/people?p={}\"", at + 1) } else { "null".into() };
        let cursor = if at < 2 { format!("{}", at + 1) } else { "null".into() };
        let mut said = json(format!("{{\"rows\":{rows},\"next\":{next},\"cursor\":{cursor}}}"));
        if at < 2 {
            said.headers.push(("link", format!("</api/people?p={}>; rel=\"next\"", at + 1)));
        }
        said
    });
    for pages in [
        "pages = { by = \"next\", next = \"$.next\" }",
        "pages = { by = \"link\" }",
        "pages = { by = \"cursor\", name = \"p\", next = \"$.cursor\" }",
    ] {
        let list = format!("records = \"$.rows\"\n{pages}");
        assert_eq!(count(&ask(&server, "", &list).unwrap()), 6, "{pages}");
    }
}

#[test]
fn a_json_body_carries_the_page_and_a_form_the_token() {
    let token = TokenFile::new("se&cret\n", 0o600);
    let server = Server::start(|asked| {
        if asked.header("content-type") == Some("application/x-www-form-urlencoded") {
            return json(records(0, 1));
        }
        let body: serde_json::Value = serde_json::from_str(&asked.body).unwrap();
        let page = body["variables"]["page"].as_u64().unwrap() as usize;
        json(records(page * 2, (page * 2 + 2).min(5)))
    });
    let graph = "json = { query = \"q\", variables = { page = 0 } }\n\
                 pages = { by = \"page\", name = \"/variables/page\", first = 0, size = 2 }";
    assert_eq!(count(&ask(&server, &token.line(), graph).unwrap()), 5);
    assert_eq!(server.asked()[0].method, "POST");
    assert_eq!(server.asked()[0].header("authorization"), Some("Bearer se&cret"));
    let http = format!("{}\nauth = {{ body = true }}", token.line());
    let form = "form = { key = \"{token}\", action = \"list\" }";
    assert_eq!(count(&ask(&server, &http, form).unwrap()), 1);
    let last = server.asked().pop().unwrap();
    assert_eq!(last.body, "action=list&key=se%26cret");
    assert_eq!(last.header("authorization"), None);
}

#[test]
fn a_token_goes_where_the_mapping_says_and_nowhere_else() {
    let token = TokenFile::new("user:pass\n", 0o600);
    let server = Server::start(|_| json("[]"));
    let with = |auth: &str| {
        let http = format!("{}\n{auth}", token.line());
        ask(&server, &http, "").unwrap();
        server.asked().pop().unwrap()
    };
    assert_eq!(with("").header("authorization"), Some("Bearer user:pass"));
    let basic = with("auth = { basic = true }");
    assert_eq!(basic.header("authorization"), Some("Basic dXNlcjpwYXNz"));
    let own = with("auth = { header = \"x-auth-token\" }");
    assert_eq!(own.header("x-auth-token"), Some("user:pass"));
    assert_eq!(own.header("authorization"), None);
    let value = with("auth = { value = \"Token {token}\" }");
    assert_eq!(value.header("authorization"), Some("Token user:pass"));
    // Without TLS it goes to the loopback only.
    let text = format!(
        "[http]\nbase = \"http://192.0.2.1/\"\n{}\n[lists.people]\npath = \"x\"\n{SUBSCRIBERS}",
        token.line()
    );
    assert!(load_text(&text).unwrap_err().contains("without TLS"));
    let open = TokenFile::new("user:pass\n", 0o644);
    assert!(ask(&server, &open.line(), "").unwrap_err().contains("chmod 600"));
}

#[test]
fn an_error_that_passes_is_tried_again_and_one_that_stays_is_an_error() {
    static TRIES: AtomicUsize = AtomicUsize::new(0);
    let server = Server::start(|_| match TRIES.fetch_add(1, Ordering::SeqCst) {
        0 => status(503),
        1 => status(429),
        _ => json(records(0, 2)),
    });
    assert_eq!(count(&ask(&server, "", "").unwrap()), 2);
    assert_eq!(server.asked().len(), 3);
    let down = Server::start(|_| status(502));
    let why = ask(&down, "retries = 2", "").unwrap_err();
    assert!(why.contains("502, after 2 retries"), "{why}");
    assert_eq!(down.asked().len(), 3);
    let never = Server::start(|_| status(401));
    assert!(ask(&never, "", "").unwrap_err().contains("does not take the token"));
    assert_eq!(never.asked().len(), 1);
}

#[test]
fn a_server_that_asks_to_wait_longer_than_there_is_time_is_an_error() {
    let server = Server::start(|_| Said {
        headers: vec![("retry-after", "3600".to_owned())],
        ..status(429)
    });
    let why = ask(&server, "deadline = 1", "").unwrap_err();
    assert!(why.contains("the deadline of 1 s is over"), "{why}");
}

#[test]
fn a_list_that_is_not_whole_is_an_error() {
    let pages = "pages = { by = \"page\", name = \"page\", size = 10 }";
    let page = |asked: &Asked| parameter(asked, "page").unwrap();
    // The second page fails.
    let second = Server::start(move |asked| match page(asked).as_str() {
        "1" => json(records(0, 10)),
        _ => status(404),
    });
    assert!(ask(&second, "", pages).is_err());
    // It is cut: the header promises more than comes.
    let cut = Server::start(|_| json("[{\"id\":1},{\"id\""));
    assert!(ask(&cut, "", "").unwrap_err().contains("no JSON"));
    // Fewer than the answer says.
    let fewer = Server::start(|_| json("{\"count\":5,\"rows\":[{\"id\":1}]}"));
    let total = "records = \"$.rows\"\n\
                 pages = { by = \"next\", next = \"$.next\", total = \"$.count\" }";
    assert!(ask(&fewer, "", total).unwrap_err().contains("1 of 5 records came"));
    // GraphQL's errors come with the status 200.
    let errors = Server::start(|_| json("{\"errors\":[{\"message\":\"no\"}],\"rows\":[]}"));
    let list = "records = \"$.rows\"\nerror = \"$.errors\"";
    assert!(ask(&errors, "", list).unwrap_err().contains("the answer has an error"));
    // The list is somewhere else, or nothing answers at all.
    let other = Server::start(|_| json("{\"message\":\"welcome\"}"));
    assert!(ask(&other, "", "records = \"$.rows\"").unwrap_err().contains("nothing at $.rows"));
    let text = format!(
        "[http]\nbase = \"http://127.0.0.1:1/\"\nretries = 1\n[lists.people]\n\
                        path = \"x\"\n{SUBSCRIBERS}"
    );
    assert!(load_text(&text).unwrap_err().contains("after 1 retry"));
}

#[test]
fn a_list_that_goes_round_or_elsewhere_is_an_error() {
    let round = Server::start(|_| json("{\"rows\":[{}],\"next\":\"/api/people?p=1\"}"));
    let next = "records = \"$.rows\"\npages = { by = \"next\", next = \"$.next\" }";
    assert!(ask(&round, "", next).unwrap_err().contains("was there before"));
    let away = Server::start(|_| json("{\"rows\":[{}],\"next\":\"http://192.0.2.1/x\"}"));
    assert!(ask(&away, "", next).unwrap_err().contains("at another address"));
    let moved = Server::start(|_| Said {
        headers: vec![("location", "http://192.0.2.1/".to_owned())],
        ..status(302)
    });
    assert!(ask(&moved, "", "").unwrap_err().contains("points to http://192.0.2.1/"));
    assert_eq!(moved.asked().len(), 1);
}

/// A server with a certificate of its own, for one request after another. Its certificate comes
/// back in PEM.
fn start_tls() -> (SocketAddr, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut tls = rustls::StreamOwned::new(connection, stream.unwrap());
            let mut asked = [0; 4_096];
            // A client that does not trust the certificate goes away.
            if tls.read(&mut asked).is_ok_and(|length| length > 0) {
                tls.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n[{\"id\":1}]")
                    .unwrap();
                tls.conn.send_close_notify();
                tls.flush().unwrap();
            }
        }
    });
    (address, made.cert.pem())
}

#[test]
fn only_a_certificate_that_is_trusted_gets_the_token() {
    let (address, pem) = start_tls();
    let (token, file) = (TokenFile::new("secret\n", 0o600), TokenFile::new(&pem, 0o644));
    let with = |more: &str| {
        load_text(&format!(
            "[http]\nbase = \"https://localhost:{}/\"\nretries = 0\n{}\n{more}\n[lists.people]\n\
             path = \"x\"\n{SUBSCRIBERS}",
            address.port(),
            token.line()
        ))
    };
    let trusted = with(&format!("ca_file = {:?}", file.0.to_str().unwrap()));
    assert_eq!(count(&trusted.unwrap()), 1);
    let (_, other) = start_tls();
    let other = TokenFile::new(&other, 0o644);
    let why = with(&format!("ca_file = {:?}", other.0.to_str().unwrap())).unwrap_err();
    assert!(why.contains("certificate"), "{why}");
    let empty = TokenFile::new("no certificate\n", 0o644);
    let why = with(&format!("ca_file = {:?}", empty.0.to_str().unwrap())).unwrap_err();
    assert!(why.contains("no certificate is trusted"), "{why}");
}
