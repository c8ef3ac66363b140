//! Why a command gets no answer.

use std::io;
use std::path::PathBuf;

/// An instance that cannot be asked, or does not answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No instance runs here.
    #[error(
        "no narrows runs in this network namespace{0}; start one with \
         `narrows run --ports A,B`; without one, `narrows tc --policy FILE` works on a file"
    )]
    NoInstance(String),
    /// Another user's instances may run here.
    #[error(
        "only the user of an instance, and root, may ask it: {folder} is closed to others; run \
         this with sudo, or as the user that runs narrows"
    )]
    Forbidden {
        /// Where their sockets are.
        folder: PathBuf,
    },
    /// It does not serve the request.
    #[error("the instance refuses: {0}")]
    Refused(String),
    /// It runs, but does not serve the request in time.
    #[error(
        "narrows runs here{}, and has not answered for {seconds} s: it is stopped, busy, or hangs; \
         try again later, or see its log",
        pid.map_or(String::new(), |pid| format!(" (process {pid})"))
    )]
    Silent {
        /// Its process, as far as known.
        pid: Option<i32>,
        /// How long the command has waited.
        seconds: u64,
        /// Which.
        path: PathBuf,
    },
    /// It has begun a batch, and does not go on with it.
    #[error(
        "narrows runs here{}, and has not gone on with the batch for {seconds} s; the batch is in \
         force up to line {line}, and goes on when it does: `narrows tc qdisc show` says what is",
        pid.map_or(String::new(), |pid| format!(" (process {pid})"))
    )]
    SilentBatch {
        /// Its process, as far as known.
        pid: Option<i32>,
        /// How long the command has waited.
        seconds: u64,
        /// The last line that it has reported as done.
        line: usize,
    },
    /// The conversation broke off.
    #[error("the instance at {path} does not answer: {source}")]
    Broken {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The conversation broke off within a batch.
    #[error(
        "the instance at {path} does not answer any more: {source}; the batch is in force up to \
         line {line}, and may be further: `narrows tc qdisc show` says what is"
    )]
    BrokenBatch {
        /// Which.
        path: PathBuf,
        /// The last line that it has reported as done.
        line: usize,
        /// Why.
        source: io::Error,
    },
}
