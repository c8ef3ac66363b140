//! `narrows serve`: an instance over HTTP, for Prometheus and for a browser.
//!
//! *Idea.* One thread asks the instance at an interval, over the control socket, and keeps the
//! latest snapshot and an hour of rates in memory. Everything that is served is made from these, so
//! what the instance is asked does not depend on how many ask here, or how often.
//!
//! *Principles.* Reading only: no request changes anything. Loopback only, unless there are
//! credentials. Memory is bounded: points, series, connections and metrics each have a limit, and
//! what a limit leaves out is said. When the instance is gone, its metrics are gone: no stale
//! figure looks like a fresh one.
//!
//! *Non-goals.* Encryption (a reverse proxy's), storage beyond an hour (Prometheus's), metrics of
//! hosts and flows, of which there would be ever more.

mod credentials;
mod history;
mod host;
mod http;
mod metrics;
mod page;
mod sampler;

pub use credentials::Credentials;
pub use history::{History, Key};
pub use metrics::{Sample, exposition};

use narrows_dataplane::control::NamesFile;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// What is served, where, to whom.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Who may ask. None: everybody who can reach a loopback address.
    pub credentials: Option<Credentials>,
    /// A port of the instance; none where only one runs here.
    pub dev: Option<String>,
    /// How often the instance is asked.
    pub interval: Duration,
    /// As many classes, and as many qdiscs, have metrics.
    pub classes_max: usize,
    /// The names of classes.
    pub names: NamesFile,
}

/// What keeps `narrows serve` from serving.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Everybody could read it.
    #[error(
        "{0} can be reached from other machines: give --credentials FILE with a line \
         USER:PASSWORD, or listen on 127.0.0.1"
    )]
    Public(SocketAddr),
    /// The address cannot be listened on.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
    /// The file of credentials cannot be read.
    #[error("cannot read the credentials in {0}: {1}")]
    CredentialsFile(PathBuf, std::io::Error),
    /// The file of credentials says something else.
    #[error(
        "{0} has no credentials: one line USER:PASSWORD is needed, and neither part may be empty"
    )]
    NoCredentials(PathBuf),
    /// Others can read the file of credentials.
    #[error("everybody can read the credentials in {0}: chmod 600 {0}")]
    Readable(PathBuf),
    /// The runtime cannot start.
    #[error("cannot start: {0}")]
    Start(std::io::Error),
}

/// Serves until the process ends. `ready` is called with the address when it listens.
///
/// # Errors
/// Where it cannot begin to.
pub fn run(options: Options, ready: impl FnOnce(SocketAddr)) -> Result<(), ServeError> {
    if !options.listen.ip().is_loopback() && options.credentials.is_none() {
        return Err(ServeError::Public(options.listen));
    }
    http::serve(options, ready)
}
