//! A server whose answers a test chooses.

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub query: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// An answer to send.
pub struct Said {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

pub fn json(body: impl Into<String>) -> Said {
    Said { status: 200, headers: Vec::new(), body: body.into().into_bytes() }
}

pub fn status(status: u16) -> Said {
    Said { status, headers: Vec::new(), body: b"no".to_vec() }
}

/// A running server. It ends with the test's process.
pub struct Server {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    /// Starts a server that answers each request with what `answer` says of it.
    pub fn start(answer: impl Fn(&Asked) -> Said + Send + Sync + 'static) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (log, answer) = (Arc::clone(&asked), Arc::new(answer));
        std::thread::spawn(move || {
            runtime.block_on(async move {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                    // Requests come one by one.
                    let service = service_fn(move |request: Request<Incoming>| {
                        let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                        async move {
                            let asked = read(request).await;
                            let said = answer(&asked);
                            log.lock().unwrap().push(asked);
                            let mut response = Response::builder().status(said.status);
                            for (name, value) in said.headers {
                                response = response.header(name, value);
                            }
                            let body = Full::new(Bytes::from(said.body));
                            Ok::<_, Infallible>(response.body(body).unwrap())
                        }
                    });
                    let http = hyper::server::conn::http1::Builder::new();
                    let connection = http.serve_connection(TokioIo::new(stream), service);
                    tokio::spawn(connection);
                }
            });
        });
        Self { address, asked }
    }

    /// The requests up to now.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

async fn read(request: Request<Incoming>) -> Asked {
    let (head, body) = request.into_parts();
    let headers = head.headers.iter();
    Asked {
        method: head.method.to_string(),
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: headers
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect(),
        body: String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap(),
    }
}
