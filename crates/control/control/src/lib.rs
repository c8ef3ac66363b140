//! The control socket: how `narrows tc` and `narrows show` reach a running instance.
//!
//! Each instance has a Unix socket in a directory that only its owner may enter. There is a
//! directory per network namespace, because interface names are local to it: a command finds the
//! instances of the namespace in which it runs, as `tc` finds its interfaces. Each connection
//! carries one request and one answer, a line of JSON each. The text of a batch follows its line as
//! it is; before the answer to a long one there are progress lines. A connection that has the ports
//! released for a command stays open until they are joined again ([`while_let_go`]). The peer's
//! user id is checked, too.
//!
//! *A client needs no data plane.* Here is what both sides must agree on, and the side of those who
//! ask: [`Request`] and [`Answer`], `inbox` (the format of requests), [`place`] (where the sockets
//! are), [`Client`], [`NamesFile`] (the operator's names of classes), and [`fleet_agent`] (the
//! socket of another process). The side that owns the
//! ports, takes a place and acts on an instance is in the data plane.
//!
//! Non-goals: remote access, several requests on one connection, serving.

use narrows_balance::{Health, ServerId, ServiceId};
use narrows_sets::Reply;
use narrows_snapshot::{FleetFacts, FleetOrder, Snapshot};
use narrows_tc::Outcome;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

mod client;
mod error;
mod inbox;
mod names;
mod release;
mod routes;
mod stream;
mod turn;
mod upgrade;

pub mod fleet_agent;
pub mod place;

pub use client::Client;
pub use error::ControlError;
pub use inbox::{BATCH_MAX, Inbox, LINE_MAX, Received};
pub use names::NamesFile;
pub use release::while_let_go;
pub use routes::{FamilyStats, RouteFound, RouteRequest, RouteStats, RouteWay};
pub use turn::{ANSWER_TIME, Turn};
pub use upgrade::UpgradeStatus;

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
    /// The words of a `narrows balance` command.
    Balance {
        /// The words.
        args: Vec<String>,
    },
    /// What is said of the health of servers. One that is not there is passed over.
    Health {
        /// Each with its service.
        servers: Vec<(ServiceId, ServerId, Health)>,
    },
    /// The services that take the place of all others: lines of `ipvsadm-save`.
    RestoreServices {
        /// The lines.
        text: String,
    },
    /// What a router knows of the kernel's routes.
    Route(RouteRequest),
    /// The parts of shared limits that an agent lends and borrows, and what has changed since.
    Fleet(FleetOrder),
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
            Self::Ports
            | Self::Show
            | Self::ShowWithTrees
            | Self::UpgradeStatus
            | Self::Route(_) => true,
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
    /// The output and exit code of a `tc`, `set` or `balance` command, or of what is like one.
    Tc {
        /// For standard output.
        stdout: String,
        /// For standard error.
        stderr: String,
        /// The exit code.
        code: i32,
    },
    /// The way of a packet.
    RouteFound(Box<RouteFound>),
    /// What has changed of the limits that a fleet shares. What was ordered is in force.
    Fleet(Box<FleetFacts>),
    /// How the table of routes is.
    RouteStats(RouteStats),
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

impl Answer {
    /// What a command came to, if this is the answer to one.
    ///
    /// # Errors
    /// Why the instance refuses, or that this is another answer.
    pub fn outcome(self) -> Result<Outcome, String> {
        match self {
            Self::Tc { stdout, stderr, code } => Ok(Outcome { stdout, stderr, code }),
            Self::Refused(reason) => Err(reason),
            other => Err(format!("the instance gave an unexpected answer: {other:?}")),
        }
    }
}

impl From<Outcome> for Answer {
    fn from(Outcome { stdout, stderr, code }: Outcome) -> Self {
        Self::Tc { stdout, stderr, code }
    }
}

impl From<narrows_balance::Reply> for Answer {
    fn from(reply: narrows_balance::Reply) -> Self {
        let narrows_balance::Reply { stdout, stderr, code } = reply;
        Self::Tc { stdout, stderr, code }
    }
}

impl From<Reply> for Answer {
    fn from(Reply { stdout, stderr, code }: Reply) -> Self {
        Self::Tc { stdout, stderr, code }
    }
}

#[cfg(test)]
mod tests;
