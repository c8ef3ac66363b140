//! Why a command gets no answer.

use std::io;
use std::path::PathBuf;

/// An instance that cannot be asked, or does not answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No instance runs here.
    #[error(
        "no narrows runs in this network namespace{0}; start one with \
         `narrows run --ports A,B`, or give a file with `--policy FILE`"
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

/// What a program says of an error: its message with its causes, each once. Many messages contain
/// their cause already, where it reads best.
#[must_use]
pub fn explained(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Trial {
        #[error("cannot write: {0}; free some")]
        Within(#[source] io::Error),
        #[error("the policy")]
        Behind(#[source] Box<Trial>),
    }

    #[test]
    fn a_cause_is_said_once() {
        let error = Trial::Within(io::Error::other("no space"));
        assert_eq!(explained(&error), "cannot write: no space; free some");
        let error = Trial::Behind(Box::new(error));
        assert_eq!(explained(&error), "the policy: cannot write: no space; free some");
    }
}
