//! One question to a server: by the way of clients' packets, or at its own address.
//!
//! A failure says something about the server, or about the way to it. What fails on this machine
//! (no descriptors left, a firewall's refusal) is told apart: it is no answer, and changes nothing.

use crate::check::{Check, HttpRequest, Probe};
use crate::client_path::{self, ClientPath};
use crate::task::Task;
use http_body_util::Empty;
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST, USER_AGENT};
use hyper_util::rt::TokioIo;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio::time::timeout;

/// The longest head of an answer, in bytes.
const HEAD_MAX: usize = 16 << 10;

/// What came of a question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Passed,
    /// Why it failed.
    Failed(String),
    /// Why it could not be asked.
    NotAsked(String),
}

/// Where it is asked.
pub(crate) enum To {
    /// At an address, by the kernel's routes.
    Address {
        at: IpAddr,
        /// This host's address on the way; none: as the kernel chooses.
        from: Option<IpAddr>,
    },
    /// As the balancer sends packets of clients.
    Path(ClientPath),
}

/// Asks a server, once. It is done within the timeout of the check.
pub(crate) async fn ask(check: &Check, to: Result<To, NoAnswer>) -> Outcome {
    let answer = async {
        match (&check.probe, to?) {
            (Probe::Tcp, To::Address { at, from }) => {
                connect((at, check.port).into(), from).await.map(drop).map_err(NoAnswer::from)
            }
            (Probe::Tcp, To::Path(path)) => client_path::connect(&path, check.port).await.map(drop),
            (Probe::Http(request), To::Address { at, from }) => {
                let at = (at, check.port).into();
                get(request, at, connect(at, from).await?).await
            }
            (Probe::Http(request), To::Path(path)) => {
                let (stream, _connection) = client_path::connect(&path, check.port).await?;
                get(request, (path.service, check.port).into(), stream).await
            }
            (Probe::Udp { data, .. }, To::Address { at, from }) => {
                send(data, (at, check.port).into(), from).await.map_err(NoAnswer::from)
            }
            (Probe::Udp { data, .. }, To::Path(path)) => {
                client_path::exchange(&path, check.port, data).await
            }
        }
    };
    match (timeout(check.timeout, answer).await, &check.probe) {
        (Ok(Ok(())), _) | (Err(_), Probe::Udp { must_answer: false, .. }) => Outcome::Passed,
        (Ok(Err(NoAnswer::Here(why))), _) => Outcome::NotAsked(why),
        (Ok(Err(NoAnswer::There(why))), _) => Outcome::Failed(why),
        (Err(_), _) => Outcome::Failed(format!("no answer within {:?}", check.timeout)),
    }
}

/// Why there is no answer that passes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NoAnswer {
    /// For a reason of this machine.
    Here(String),
    /// For one of the server, or of the way to it.
    There(String),
}

impl From<io::Error> for NoAnswer {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::TimedOut
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof => Self::There(error.to_string()),
            _ => Self::Here(error.to_string()),
        }
    }
}

/// A connection, which is reset when it is dropped: thousands of checks leave none in TIME_WAIT.
async fn connect(at: SocketAddr, from: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = match at {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    if let Some(from) = from {
        socket.bind((from, 0).into())?;
    }
    let stream = socket.connect(at).await?;
    stream.set_zero_linger()?;
    Ok(stream)
}

/// Sends `request` over `stream`, which leads to `at`.
async fn get<S>(request: &HttpRequest, at: SocketAddr, stream: S) -> Result<(), NoAnswer>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let no_http = |error: hyper::Error| NoAnswer::There(format!("no answer of HTTP: {error}"));
    let mut http = http1::Builder::new();
    let handshake = http.max_buf_size(HEAD_MAX).handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(no_http)?;
    let host = request.host.as_ref().map_or_else(|| at.to_string(), ToString::to_string);
    let asked = Request::get(request.path.clone())
        .header(HOST, host)
        .header(USER_AGENT, "narrows-health")
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| NoAnswer::Here(error.to_string()))?;
    // The stream ends with it, also where no answer comes in time. The body is not read.
    let _connection = Task::spawn(connection);
    let status = sender.send_request(asked).await.map_err(no_http)?.status();
    if request.status.contains(&status.as_u16()) {
        return Ok(());
    }
    Err(NoAnswer::There(format!("HTTP status {status}")))
}

/// Sends `data`, and waits for any datagram, or for an ICMP error.
async fn send(data: &[u8], at: SocketAddr, from: Option<IpAddr>) -> io::Result<()> {
    let any: IpAddr = match at {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((from.unwrap_or(any), 0)).await?;
    // Only what the server sends arrives at it then, and ICMP errors do.
    socket.connect(at).await?;
    socket.send(data).await?;
    socket.recv(&mut [0]).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::DEFAULT;
    use std::io::{Read, Write};
    use std::net::{TcpListener, UdpSocket as Socket};
    use std::thread;
    use std::time::Duration;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn asked(probe: Probe, port: u16) -> Outcome {
        let check = Check { probe, port, timeout: Duration::from_millis(300), ..DEFAULT };
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime
            .enable_all()
            .build()
            .unwrap()
            .block_on(ask(&check, Ok(To::Address { at: HERE, from: None })))
    }

    #[track_caller]
    fn assert_fails(outcome: Outcome, word: &str) {
        match outcome {
            Outcome::Failed(why) if why.contains(word) => {}
            other => panic!("{other:?} does not fail with {word:?}"),
        }
    }

    /// A server that reads something and answers `answer` to each connection.
    fn server(answer: &'static [u8]) -> u16 {
        let listener = TcpListener::bind((HERE, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 1024]);
                let _ = stream.write_all(answer);
            }
        });
        port
    }

    /// A port where nobody listens.
    fn closed() -> u16 {
        TcpListener::bind((HERE, 0)).unwrap().local_addr().unwrap().port()
    }

    fn http(path: &str) -> Probe {
        Probe::Http(HttpRequest { path: path.parse().unwrap(), host: None, status: 200..=399 })
    }

    #[test]
    fn a_connection_that_opens_passes_and_one_that_is_refused_fails() {
        assert_eq!(asked(Probe::Tcp, server(b"")), Outcome::Passed);
        assert_fails(asked(Probe::Tcp, closed()), "refused");
    }

    #[test]
    fn a_status_in_the_range_passes() {
        let good = b"HTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(asked(http("/health"), server(good)), Outcome::Passed);
        // The body is never read, however long it is said to be.
        let long = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\nx";
        assert_eq!(asked(http("/"), server(long)), Outcome::Passed);
        let bad = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
        assert_fails(asked(http("/health"), server(bad)), "503");
    }

    #[test]
    fn what_is_no_http_fails_and_so_does_silence() {
        assert_fails(asked(http("/"), server(b"SSH-2.0-x\r\n")), "HTTP");
        assert_fails(asked(http("/"), server(b"")), "HTTP");
        let silent = TcpListener::bind((HERE, 0)).unwrap();
        let port = silent.local_addr().unwrap().port();
        assert_fails(asked(http("/"), port), "within 300ms");
        assert_eq!(asked(Probe::Tcp, port), Outcome::Passed, "the kernel accepts for it");
    }

    #[test]
    fn a_server_that_hangs_is_not_left_with_a_connection() {
        let listener = TcpListener::bind((HERE, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let mut request = Vec::new();
            // It is read to its end, which is a reset.
            stream.read_to_end(&mut request).unwrap_err().kind()
        });
        let check =
            Check { probe: http("/"), port, timeout: Duration::from_millis(100), ..DEFAULT };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let ended = runtime.block_on(async {
            assert_fails(
                ask(&check, Ok(To::Address { at: HERE, from: None })).await,
                "within 100ms",
            );
            // The runtime goes on meanwhile.
            while !server.is_finished() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            server.join().unwrap()
        });
        assert_eq!(ended, ErrorKind::ConnectionReset);
    }

    #[test]
    fn a_head_without_an_end_fails() {
        let listener = TcpListener::bind((HERE, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
                while stream.write_all(b"X-More: and more\r\n").is_ok() {}
            }
        });
        assert_fails(asked(http("/"), port), "HTTP");
    }

    #[test]
    fn a_request_names_the_path_and_the_host() {
        let listener = TcpListener::bind((HERE, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let reader = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 1024];
            let length = stream.read(&mut head).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            String::from_utf8_lossy(&head[..length]).to_lowercase()
        });
        let host = Some("www.example.net".parse().unwrap());
        let request = HttpRequest { path: "/a?b".parse().unwrap(), host, status: 200..=200 };
        assert_eq!(asked(Probe::Http(request), port), Outcome::Passed);
        let head = reader.join().unwrap();
        assert!(head.starts_with("get /a?b http/1.1\r\n"), "{head}");
        assert!(head.contains("\r\nhost: www.example.net\r\n"), "{head}");
    }

    #[test]
    fn a_datagram_is_answered_or_at_least_not_refused() {
        let udp = |must_answer| Probe::Udp { data: b"ping".to_vec(), must_answer };
        let silent = Socket::bind((HERE, 0)).unwrap();
        let port = silent.local_addr().unwrap().port();
        assert_eq!(asked(udp(false), port), Outcome::Passed);
        assert_fails(asked(udp(true), port), "within 300ms");
        let closed = Socket::bind((HERE, 0)).unwrap().local_addr().unwrap().port();
        assert_fails(asked(udp(false), closed), "refused");
        let echo = Socket::bind((HERE, 0)).unwrap();
        let port = echo.local_addr().unwrap().port();
        thread::spawn(move || {
            let (_, from) = echo.recv_from(&mut [0; 16]).unwrap();
            echo.send_to(b"pong", from).unwrap();
        });
        assert_eq!(asked(udp(true), port), Outcome::Passed);
    }

    #[test]
    fn a_fault_of_this_machine_is_no_answer_of_the_server() {
        let here =
            |kind: ErrorKind| matches!(NoAnswer::from(io::Error::from(kind)), NoAnswer::Here(_));
        assert!(here(ErrorKind::PermissionDenied) && here(ErrorKind::AddrNotAvailable));
        let none_left = io::Error::from_raw_os_error(24);
        assert!(matches!(NoAnswer::from(none_left), NoAnswer::Here(_)), "no descriptors");
        assert!(!here(ErrorKind::ConnectionRefused) && !here(ErrorKind::HostUnreachable));
    }
}
