//! How a server is asked, how often, and how many answers count.

use crate::rise_fall::Thresholds;
use hyper::Uri;
use hyper::http::uri::Authority;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The check of a service's servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// What is sent, and what has to come back.
    pub probe: Probe,
    /// The port of the server that is asked.
    pub port: u16,
    /// Whether it is asked at its own address, by the kernel's routes. Otherwise the check goes the
    /// way of clients' packets: to the service's address, in the server's tunnel.
    pub is_direct: bool,
    /// The time between two probes of a server, from start to start.
    pub interval: Duration,
    /// How long an answer may take; no longer than `interval`.
    pub timeout: Duration,
    /// How many results in a row change what a server is.
    pub thresholds: Thresholds,
}

/// The check that is made where nothing else is said, but for the port.
pub const DEFAULT: Check = Check {
    probe: Probe::Tcp,
    port: 0,
    is_direct: false,
    interval: Duration::from_secs(2),
    timeout: Duration::from_secs(1),
    thresholds: Thresholds { rise: 2, fall: 3 },
};

/// What is sent, and what has to come back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Probe {
    /// A TCP connection has to open. It is reset at once.
    Tcp,
    /// A GET request of HTTP/1.1 has to be answered.
    Http(HttpRequest),
    /// A datagram.
    Udp {
        /// What it has.
        data: Vec<u8>,
        /// Whether a datagram has to come back. Otherwise it is enough that no ICMP error does.
        must_answer: bool,
    },
}

/// A request, and the answer that passes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpRequest {
    /// The path, with its query.
    pub path: Uri,
    /// The host that is asked for; none: the server's address and port.
    pub host: Option<Authority>,
    /// The status codes that pass.
    pub status: RangeInclusive<u16>,
}
