//! The HTTP server: its answers, and its limits.

use crate::attempts::Attempts;
use crate::connections::{Connection, Connections};
use crate::download::{Download, Downloads};
use crate::host;
use crate::page;
use crate::sampler::{self, Heard, Known, Sampler};
use crate::stream::{self, Stream};
use crate::view::{Gone, Parameters};
use crate::watch::Watch;
use crate::{Options, ServeError, api, history_routes, metrics};
use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The most connections that are open at once.
const CONNECTIONS_MAX: usize = 64;
/// The longest time for a client to send a request, and between two requests.
const ASKING: Duration = Duration::from_secs(10);
/// The longest duration of a connection, so that a client that does not read cannot hold it
/// forever.
const CONNECTION: Duration = Duration::from_secs(300);
/// How long the last answers may take to be sent.
const SENDING: Duration = Duration::from_millis(100);
/// The page loads nothing from other servers, and no page may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const STREAM: &str = "text/event-stream";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Before the first answer of the instance.
const NOT_YET: &str = "the instance has not answered yet; try again\n";

type Body = Either<Full<Bytes>, Either<Download, Stream>>;
type Answer = Response<Body>;

/// Listens, starts to query the instance, and serves until a signal ends it.
pub(crate) fn serve(options: Options, ready: impl FnOnce(SocketAddr)) -> Result<(), ServeError> {
    let (dev, agent) = (options.dev.clone(), options.agent.clone());
    if let Err(error) = agent.check() {
        log::warn!("{error}; it is asked again and again");
    }
    let ask = move |with_policy| sampler::ask(dev.as_deref(), &agent, with_policy);
    serve_from(ask, options, ready)
}

/// Serves as [`serve`] does, with `ask` to query an instance.
pub(crate) fn serve_from(
    ask: impl FnMut(bool) -> Result<Heard, Gone> + Send + 'static,
    options: Options,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), ServeError> {
    let watch = Watch::start(&options)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(ServeError::Start)?;
    runtime.block_on(async {
        let failed = |error| ServeError::Listen(options.listen, error);
        let listener = TcpListener::bind(options.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (names, downlink) = (options.names.clone(), options.downlink.clone());
        let sampler = Sampler::start(ask, options.interval, names, downlink, watch.clone());
        ready(address);
        let (attempts, downloads) = (Mutex::default(), Downloads::default());
        let api = options.api.clone().map(api::Api::new).transpose()?;
        let server = Arc::new(Server { options, sampler, watch, attempts, downloads, api });
        let connections = Arc::new(Connections::new(CONNECTIONS_MAX));
        let mut signals = Signals::listen().map_err(ServeError::Start)?;
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = signals.end() => break,
            };
            let (stream, from) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors, or the client has gone already.
                    log::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let server = Arc::clone(&server);
            let connections = Arc::clone(&connections);
            let connection = connections.open(from.ip()).await;
            tokio::spawn(async move {
                let service = service_fn(|request: Request<_>| {
                    let answer = server.answer_or_api(request, &connection);
                    async { Ok::<_, Infallible>(answer.await) }
                });
                let mut http = http1::Builder::new();
                http.timer(TokioTimer::new()).header_read_timeout(ASKING).max_buf_size(16 << 10);
                let served = http.serve_connection(TokioIo::new(stream), service);
                // A client that disconnects is not an error.
                let mut served = pin!(tokio::time::timeout(CONNECTION, served));
                let mut has_to_go = pin!(connection.has_to_go());
                poll_fn(|context| {
                    let ends = has_to_go.as_mut().poll(context).is_ready()
                        || served.as_mut().poll(context).is_ready();
                    if ends { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                connections.end(&connection);
            });
        }
        // Who writes hears of it. What else is under way can be asked again.
        drop(listener);
        connections.written().await;
        tokio::time::sleep(SENDING).await;
        Ok(())
    })
}

/// The signals that end the server: SIGTERM and SIGINT.
struct Signals([Signal; 2]);

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self([signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?]))
    }

    /// Returns when one of them has come.
    async fn end(&mut self) {
        let Self([terminate, interrupt]) = self;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}

struct Server {
    options: Options,
    sampler: Sampler,
    watch: Option<Watch>,
    attempts: Mutex<Attempts>,
    downloads: Downloads,
    api: Option<Arc<api::Api>>,
}

impl Server {
    /// The answer to `request`: of the API, if its path is one of the API's.
    async fn answer_or_api(&self, request: Request<Incoming>, connection: &Connection) -> Answer {
        let api = self.api.as_ref().filter(|_| request.uri().path().starts_with(api::PREFIX));
        let Some(api) = api else { return self.answer(&request, connection) };
        // A token of the API is as good as credentials.
        let mut write = None;
        let refusal = if let Some(scope) = api.scope(request.headers()) {
            connection.asked(true, Instant::now());
            if scope == api::Scope::Write {
                write = Some(connection.writes(Instant::now()));
            }
            None
        } else {
            self.refuse_foreign(&request).or_else(|| self.refuse(&request, connection))
        };
        let answer = match refusal {
            Some(refusal) => refusal,
            None => Arc::clone(api).answer(request).await.map(Either::Left),
        };
        drop(write);
        answer
    }

    /// The answer to `request`, which came over `connection`.
    fn answer<B>(&self, request: &Request<B>, connection: &Connection) -> Answer {
        if let Some(refusal) = self.refuse_foreign(request) {
            return refusal;
        }
        if let Some(refusal) = self.refuse(request, connection) {
            return refusal;
        }
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refusal;
        }
        let path = request.uri().path();
        if let Some(file) = page::FILES.iter().find(|file| file.path == path) {
            return answer(StatusCode::OK, file.kind, file.content);
        }
        match path {
            "/metrics" => {
                let sample = self.sampler.known().sample(Instant::now());
                let mut text = metrics::exposition(&sample, self.options.classes_max);
                if let Some(watch) = &self.watch {
                    text += &metrics::watched(watch, self.options.classes_max);
                }
                answer(StatusCode::OK, METRICS, text)
            }
            "/api/snapshot" => self.snapshot(&self.sampler.known()),
            "/api/rows" => self.rows(request.uri().query()),
            "/api/row" => self.row(request.uri().query()),
            "/api/stream" => {
                let last = request.headers().get("last-event-id");
                let last = last.and_then(|id| id.to_str().ok()).and_then(|id| id.parse().ok());
                match stream::open(&self.sampler, request.uri().query(), last) {
                    Ok(stream) => {
                        respond(StatusCode::OK, STREAM, Either::Right(Either::Right(stream)))
                    }
                    Err(problem) => plain(StatusCode::BAD_REQUEST, problem),
                }
            }
            "/api/history" => match since(request.uri().query()) {
                Ok(time) => json(&self.sampler.known().history.since(time)),
                Err(problem) => plain(StatusCode::BAD_REQUEST, problem),
            },
            _ => match history_routes::answer(self.watch.as_ref(), path, request.uri().query()) {
                Some(Ok(body)) => answer(StatusCode::OK, JSON, body),
                Some(Err(refusal)) => plain(refusal.status, refusal.why),
                None => plain(
                    StatusCode::NOT_FOUND,
                    "not found; available: /, /metrics, /api/snapshot, /api/history?since=SECONDS, \
                     /api/rows, /api/row?id=ID, /api/stream, /api/history/series, \
                     /api/history/subjects, /api/history/worst, /api/quality, /api/alarms and \
                     /api/v1/openapi.json\n",
                ),
            },
        }
    }
}

impl Server {
    /// The answer to a request under a name that is not ours. A client with credentials is no
    /// foreign page, and may use a name of its own.
    fn refuse_foreign<B>(&self, request: &Request<B>) -> Option<Answer> {
        let target = request.uri().host().map(str::as_bytes);
        let asked =
            target.or_else(|| request.headers().get(header::HOST).map(HeaderValue::as_bytes));
        let is_foreign = self.options.credentials.is_none() && !host::is_ours(asked);
        is_foreign.then(|| {
            plain(
                StatusCode::MISDIRECTED_REQUEST,
                "ask under 127.0.0.1 or localhost: other names are refused, so that no page \
                 elsewhere can read this\n",
            )
        })
    }

    /// The latest snapshot, and the error if the instance no longer answers.
    fn snapshot(&self, known: &Known) -> Answer {
        #[derive(Serialize)]
        struct Nothing<'a> {
            gone: Option<&'a str>,
            snapshot: Option<()>,
        }
        let gone = known.gone.as_ref().map(|gone| gone.reason.as_str());
        let Some(latest) = &known.latest else {
            return json(&Nothing { gone, snapshot: None });
        };
        let gone = serde_json::Value::from(gone);
        let reading = self.downloads.begin(latest, Instant::now());
        let begin = format!("{{\"gone\":{gone},\"snapshot\":");
        respond(
            StatusCode::OK,
            JSON,
            Either::Right(Either::Left(Download::new(begin, reading, "}"))),
        )
    }

    /// The rows of a table.
    fn rows(&self, query: Option<&str>) -> Answer {
        let asked = match Parameters::new(query).rows() {
            Ok(asked) => asked,
            Err(problem) => return plain(StatusCode::BAD_REQUEST, problem),
        };
        let Some(model) = self.sampler.known().model.clone() else {
            return plain(StatusCode::SERVICE_UNAVAILABLE, NOT_YET);
        };
        text(stream::rows(&model, &asked))
    }

    /// All of one row.
    fn row(&self, query: Option<&str>) -> Answer {
        let (kind, id) = match Parameters::new(query).one() {
            Ok(asked) => asked,
            Err(problem) => return plain(StatusCode::BAD_REQUEST, problem),
        };
        match stream::row(&self.sampler.known(), kind, &id).transpose() {
            Some(row) => text(row),
            None => plain(StatusCode::NOT_FOUND, "no row has this id; /api/rows lists them\n"),
        }
    }

    /// The answer to a request without valid credentials, if they are needed. Its connection ends
    /// with it, so that nobody holds one without them.
    fn refuse<B>(&self, request: &Request<B>, connection: &Connection) -> Option<Answer> {
        let now = Instant::now();
        let Some(credentials) = &self.options.credentials else {
            connection.asked(false, now);
            return None;
        };
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = attempts.must_wait(connection.address, now);
        let mut refusal = match waits.filter(|_| !connection.is_admitted()) {
            Some(time) => {
                let said = "too many wrong credentials from this address\n";
                let mut refusal = plain(StatusCode::TOO_MANY_REQUESTS, said);
                let seconds = HeaderValue::from(time.as_secs() + 1);
                refusal.headers_mut().insert(header::RETRY_AFTER, seconds);
                refusal
            }
            None => {
                let said = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
                if credentials.admit(said) {
                    connection.asked(true, now);
                    return None;
                }
                // A browser asks without any first.
                if said.is_some() {
                    attempts.wrong(connection.address, now);
                }
                let mut refusal = plain(StatusCode::UNAUTHORIZED, "credentials are needed\n");
                let realm = HeaderValue::from_static("Basic realm=\"narrows\", charset=\"UTF-8\"");
                refusal.headers_mut().insert(header::WWW_AUTHENTICATE, realm);
                refusal
            }
        };
        connection.asked(false, now);
        refusal.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        Some(refusal)
    }
}

/// The time in `since=SECONDS`; 0 if it is missing.
fn since(query: Option<&str>) -> Result<f64, &'static str> {
    let parts = query.unwrap_or_default().split('&');
    let Some(since) = parts.filter_map(|part| part.strip_prefix("since=")).next() else {
        return Ok(0.0);
    };
    let time = since.parse::<f64>().ok().filter(|time| time.is_finite());
    time.ok_or("since is a number of seconds since 1970\n")
}

fn json(value: &impl Serialize) -> Answer {
    match serde_json::to_vec(value) {
        Ok(body) => answer(StatusCode::OK, JSON, body),
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

/// JSON that is there already.
fn text(json: serde_json::Result<String>) -> Answer {
    match json {
        Ok(body) => answer(StatusCode::OK, JSON, body),
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    answer(status, TEXT, text)
}

fn answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    respond(status, kind, Either::Left(Full::new(body.into())))
}

fn respond(status: StatusCode, kind: &'static str, body: Body) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Credentials;

    fn server(credentials: Option<Credentials>) -> Server {
        let options = Options {
            listen: ([127, 0, 0, 1], 0).into(),
            credentials,
            dev: None,
            downlink: None,
            interval: Duration::from_secs(3600),
            classes_max: 10,
            names: narrows_control::NamesFile::open(None).unwrap(),
            agent: narrows_control::fleet_agent::AgentSocket::default(),
            api: None,
            history: None,
            history_max: 10,
            alarms: None,
        };
        Server {
            sampler: Sampler::start(
                |_| Err("no instance".to_owned().into()),
                options.interval,
                options.names.clone(),
                None,
                None,
            ),
            watch: None,
            options,
            attempts: Mutex::default(),
            downloads: Downloads::default(),
            api: None,
        }
    }

    fn connection() -> Arc<Connection> {
        Connections::new(1).try_open([192, 0, 2, 1].into(), Instant::now()).unwrap()
    }

    fn ask(server: &Server, method: Method, path: &str) -> Answer {
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        server.answer(&request, &connection())
    }

    #[test]
    fn every_part_of_the_page_is_there_and_is_loaded_from_here() {
        let server = server(None);
        for file in page::FILES {
            let answer = ask(&server, Method::GET, file.path);
            assert_eq!(answer.status(), StatusCode::OK);
            assert_eq!(answer.headers()[header::CONTENT_TYPE], file.kind);
        }
        for file in page::FILES {
            assert!(!file.content.contains("https://"), "{} loads from elsewhere", file.path);
        }
    }

    #[test]
    fn unknown_paths_are_answered_with_the_known_ones() {
        let server = server(None);
        assert_eq!(ask(&server, Method::GET, "/etc/passwd").status(), StatusCode::NOT_FOUND);
        let posted = ask(&server, Method::POST, "/metrics");
        assert_eq!(posted.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(posted.headers()[header::ALLOW], "GET, HEAD");
        let bad = ask(&server, Method::GET, "/api/history?since=yesterday");
        assert_eq!(bad.status(), StatusCode::BAD_REQUEST);
        assert_eq!(ask(&server, Method::GET, "/api/history?since=1.5").status(), StatusCode::OK);
    }

    #[test]
    fn rows_are_asked_for_by_a_query() {
        let server = server(None);
        let status = |path: &str| ask(&server, Method::GET, path).status();
        assert_eq!(status("/api/rows?sort=colour"), StatusCode::BAD_REQUEST);
        assert_eq!(
            status("/api/rows"),
            StatusCode::SERVICE_UNAVAILABLE,
            "no instance has answered"
        );
        assert_eq!(status("/api/row"), StatusCode::BAD_REQUEST);
        assert_eq!(status("/api/row?id=1:1"), StatusCode::NOT_FOUND);
        assert_eq!(status("/api/stream?view=nothing"), StatusCode::BAD_REQUEST);
    }

    #[test]
    fn a_page_under_another_name_gets_nothing() {
        let server = server(None);
        let ask = |uri: &str, host: &str| {
            let request = Request::builder().uri(uri).header(header::HOST, host);
            server.answer(&request.body(()).unwrap(), &connection()).status()
        };
        assert_eq!(ask("/metrics", "localhost:9466"), StatusCode::OK);
        assert_eq!(ask("/metrics", "127.0.0.1:9466"), StatusCode::OK);
        assert_eq!(ask("/metrics", "rebind.example:9466"), StatusCode::MISDIRECTED_REQUEST);
        let absolute = ask("http://rebind.example/metrics", "localhost");
        assert_eq!(absolute, StatusCode::MISDIRECTED_REQUEST);
    }

    #[test]
    fn without_credentials_nothing_is_told() {
        let file = std::env::temp_dir().join(format!("nrw-credentials-{}", std::process::id()));
        std::fs::write(&file, "Aladdin:open sesame\n").unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&file, private).unwrap();
        let server = server(Some(Credentials::read(&file).unwrap()));
        for path in ["/", "/metrics", "/api/snapshot", "/api/history", "/nothing"] {
            let answer = ask(&server, Method::GET, path);
            assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{path}");
            assert!(answer.headers().contains_key(header::WWW_AUTHENTICATE));
        }
        let request = Request::builder().uri("/metrics");
        let request = request.header("Authorization", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert_eq!(
            server.answer(&request.body(()).unwrap(), &connection()).status(),
            StatusCode::OK
        );
        // Guessing: after some attempts even the right one waits, except where it was right before.
        let guess = |connection: &Connection, said: &str| {
            let request = Request::builder().uri("/metrics").header("Authorization", said);
            server.answer(&request.body(()).unwrap(), connection)
        };
        let (right, before) = ("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", connection());
        assert_eq!(guess(&before, right).status(), StatusCode::OK);
        for _ in 0..20 {
            guess(&connection(), "Basic eDp5");
        }
        let last = guess(&connection(), "Basic eDp5");
        assert_eq!(last.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(last.headers().contains_key(header::RETRY_AFTER));
        assert_eq!(last.headers()[header::CONNECTION], "close");
        assert_eq!(guess(&connection(), right).status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(guess(&before, right).status(), StatusCode::OK);
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(&file, open).unwrap();
        assert!(matches!(Credentials::read(&file), Err(ServeError::Readable(_))));
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn a_public_address_is_refused_without_credentials() {
        let options = Options { listen: ([0, 0, 0, 0], 0).into(), ..server(None).options };
        let refused = crate::run(options, |_| panic!("it listens"));
        assert!(matches!(refused, Err(ServeError::Public(_))));
    }
}
