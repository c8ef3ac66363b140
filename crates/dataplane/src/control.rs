//! The control socket: how `narrows tc` and `narrows show` reach a running instance.
//!
//! Each instance has a Unix socket in a directory that only its owner may enter. There is a
//! directory per network namespace, because interface names are local to it: a command finds the
//! instances of the namespace in which it runs, as `tc` finds its interfaces. Each connection
//! carries one request and one answer, a line of JSON each. The text of a batch follows its line as
//! it is; before the answer to a long one there are progress lines. A connection that has the ports
//! released for a command stays open until they are joined again ([`crate::pause`]). The peer's
//! user id is checked, too.
//!
//! *A batch runs whole or not at all.* It begins when all of it has arrived. From then on it does
//! not depend on its client or on any other.
//!
//! `place` decides where the sockets are and which instance owns one; `inbox` is the format of
//! requests; `server` and `client` are the two sides.
//!
//! Non-goals: remote access, several requests on one connection.

use crate::upgrade::UpgradeStatus;
use narrows_sets::Reply;
use narrows_snapshot::Snapshot;
use narrows_tc::Outcome;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

mod client;
mod inbox;
mod names;
mod outbox;
mod place;
mod server;

pub use client::Client;
pub(crate) use client::{ANSWER_TIME, Turn, receive};
pub use inbox::{BATCH_MAX, Inbox, LINE_MAX, Received};
pub use names::NamesFile;
pub(crate) use place::{ADDRESSES, OFFLOADS, RUN_DIR, record};
pub(crate) use server::{CLIENTS_MAX, ControlServer, Step, Task, line};

/// The longest answer, in bytes: a list of some million members of sets.
const ANSWER_MAX: usize = 256 << 20;

/// A request to an instance.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Which ports it has.
    Ports,
    /// Everything about it but its trees of qdiscs and classes.
    Show,
    /// Everything about it.
    ShowWithTrees,
    /// Release the ports until the connection sends more or is closed.
    LetGo {
        /// The reason, for people.
        why: String,
        /// After how many seconds the ports are joined again in any case.
        limit_s: u64,
    },
    /// The words of a `tc` command.
    Tc {
        /// The words.
        args: Vec<String>,
        /// The text of the file with the names of classes, where the words ask for names.
        #[serde(default)]
        names: Option<String>,
    },
    /// The words of a `narrows set` command.
    Set {
        /// The words.
        args: Vec<String>,
    },
    /// A part of the input of `narrows set restore`.
    RestoreSets {
        /// The number of its first line.
        first: usize,
        /// Whether `-exist` applies to all lines.
        may_exist: bool,
        /// Its lines.
        text: String,
    },
    /// Hand over to a new process of `binary`, or of the file at the path of its own binary.
    Upgrade {
        /// Which.
        binary: Option<PathBuf>,
    },
    /// How far an upgrade is, and how the last one ended.
    UpgradeStatus,
    /// A file of `tc` commands. Its text follows the line of the request.
    Batch {
        /// The options on the command line that gave the file.
        options: Vec<String>,
        /// The file's name, for messages.
        name: String,
        /// The length of its text in bytes.
        bytes: u64,
        /// The text of the file with the names of classes, where the options ask for names.
        #[serde(default)]
        names: Option<String>,
    },
}

impl Request {
    /// Whether it changes nothing, so that the answer needs no time.
    pub(crate) fn only_asks(&self) -> bool {
        match self {
            Self::Ports | Self::Show | Self::ShowWithTrees | Self::UpgradeStatus => true,
            Self::Tc { args, .. } => narrows_tc::shows(args).is_some(),
            _ => false,
        }
    }
}

/// The instance's answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The names of its ports.
    Ports(Vec<String>),
    /// Everything about it.
    Show(Box<Snapshot>),
    /// The ports are released.
    LetGo,
    /// The ports are joined again, or would be.
    Joined {
        /// How they are joined; none if they cannot be at the moment.
        mode: Option<String>,
        /// If not, what is missing.
        waiting_for: Option<String>,
        /// How long they were released, in milliseconds.
        apart_ms: u64,
        /// Whether the time limit had passed.
        late: bool,
    },
    /// The output and exit code of a `tc` or `set` command.
    Tc {
        /// For standard output.
        stdout: String,
        /// For standard error.
        stderr: String,
        /// The exit code.
        code: i32,
    },
    /// Progress of a batch: the lines up to this one are done. The answer follows.
    Working {
        /// The line's number, from 1; 0 if none is done.
        line: usize,
    },
    /// How far an upgrade is, and how the last one ended.
    Upgrade(UpgradeStatus),
    /// Nothing was done: another process serves the instance now, at the same socket. Ask that one.
    Moved,
    /// It cannot serve the request.
    Refused(String),
}

impl From<Outcome> for Answer {
    fn from(Outcome { stdout, stderr, code }: Outcome) -> Self {
        Self::Tc { stdout, stderr, code }
    }
}

impl From<Reply> for Answer {
    fn from(Reply { stdout, stderr, code }: Reply) -> Self {
        Self::Tc { stdout, stderr, code }
    }
}

/// A control socket that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The folder or the socket cannot be made.
    #[error("cannot open the control socket {path}: {source}{}", hint(source))]
    Open {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another instance has it.
    #[error(
        "another narrows already joins {port}, or is about to; stop it first, or change it with \
         `narrows tc`"
    )]
    Taken {
        /// Its port that is taken.
        port: String,
    },
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

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; joining ports needs root: run it with sudo",
        _ => "",
    }
}

#[cfg(test)]
mod tests;
