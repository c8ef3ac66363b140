//! `narrows serve`: an instance over HTTP, for Prometheus and for a browser.
//!
//! *Idea.* One thread queries the instance at an interval, over the control socket, and keeps the
//! latest snapshot and an hour of rates in memory. All answers come from these, so the load on the
//! instance does not depend on the number of clients or requests.
//!
//! *Principles.* Read-only: no request changes anything, except those of the API to write with a
//! token that may. Loopback only, unless there are credentials. Memory is bounded: points, series,
//! connections and metrics have limits, and the answers say what a limit leaves out. When the
//! instance is gone, its metrics are gone: no stale figure looks like a fresh one.
//!
//! With a file for it, a year of history is kept as well (`narrows_history`); with a file of
//! alarms, rules are held against what is seen (`narrows_alarms`).
//!
//! *Non-goals.* Encryption (use a reverse proxy), metrics of hosts and flows, whose number is
//! unbounded.

mod api;
mod attempts;
mod connections;
mod credentials;
mod download;
mod frame;
mod history;
mod history_routes;
mod host;
mod http;
mod metrics;
mod page;
mod sampler;
mod stream;
#[cfg(test)]
mod tests;
mod view;
mod watch;

pub use api::{ApiOptions, Apply, Scope, Tokens};
pub use credentials::Credentials;
pub use history::{History, Key};
pub use metrics::{Sample, exposition};

use narrows_control::fleet_agent::AgentSocket;
use narrows_control::{ControlError, NamesFile};
use narrows_snapshot::Snapshot;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// What to serve, where, and to whom.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Required credentials. None: everyone who can reach a loopback address.
    pub credentials: Option<Credentials>,
    /// A port of the instance; none if only one instance runs.
    pub dev: Option<String>,
    /// The port towards the subscribers: what leaves there is download. None: the one with most
    /// classes, or the last one of these.
    pub downlink: Option<String>,
    /// The interval between queries.
    pub interval: Duration,
    /// The most classes, and the most qdiscs, of each port with metrics.
    pub classes_max: usize,
    /// The names of classes.
    pub names: NamesFile,
    /// Where the fleet's agent is asked.
    pub agent: AgentSocket,
    /// The directory, to read and to write; none: its paths are not there.
    pub api: Option<ApiOptions>,
    /// The file of the history; without one, nothing is kept beyond an hour.
    pub history: Option<PathBuf>,
    /// The most directions with a history.
    pub history_max: usize,
    /// The file of alarms.
    pub alarms: Option<PathBuf>,
}

/// Why `narrows serve` cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Everyone could read it.
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
    /// The credentials file has no valid line.
    #[error(
        "{0} has no credentials: one line USER:PASSWORD is needed, and neither part may be empty"
    )]
    NoCredentials(PathBuf),
    /// Other users can read the credentials file.
    #[error("everybody can read the credentials in {0}: chmod 600 {0}")]
    Readable(PathBuf),
    /// The tokens of the API cannot be used.
    #[error("the tokens in {0}: {1}")]
    Tokens(PathBuf, String),
    /// The store of the API cannot be used.
    #[error("{0}")]
    Store(String),
    /// The history cannot be kept.
    #[error(transparent)]
    History(#[from] narrows_history::StoreError),
    /// The alarms cannot be read.
    #[error(transparent)]
    Alarms(#[from] narrows_alarms::FileError),
    /// The runtime cannot start.
    #[error("cannot start: {0}")]
    Start(std::io::Error),
}

/// Serves until SIGTERM or SIGINT, and until what is being written then is done. Calls `ready` with
/// the address when it listens.
///
/// # Errors
/// If it cannot start.
pub fn run(options: Options, ready: impl FnOnce(SocketAddr)) -> Result<(), ServeError> {
    check(&options)?;
    http::serve(options, ready)
}

/// Serves as [`run`] does, what `ask` answers instead of an instance.
///
/// # Errors
/// If it cannot start.
pub fn run_with(
    mut ask: impl FnMut() -> Result<Snapshot, ControlError> + Send + 'static,
    options: Options,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), ServeError> {
    check(&options)?;
    http::serve_from(move |_| Ok(ask()?.into()), options, ready)
}

/// Whether only those read it who may.
fn check(options: &Options) -> Result<(), ServeError> {
    if !options.listen.ip().is_loopback() && options.credentials.is_none() {
        return Err(ServeError::Public(options.listen));
    }
    Ok(())
}
