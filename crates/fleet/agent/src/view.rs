//! The agent's own socket, at which it says what it knows.
//!
//! A connection carries one question, and an answer until its end: `show`, or `busiest` and how
//! many rows at most, and a line of JSON; `metrics`, and Prometheus' text; or `forget` and names
//! of boxes, and [`DONE`] or why not. The socket is its owner's; the peer is checked, too.
//!
//! Non-goals: changing what is configured, remote access.

use crate::name::Name;
use narrows_control::{fleet_agent, place};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;

/// How long a connection may take to ask, and to take the answer.
const ASK_TIME: Duration = Duration::from_secs(1);
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// The most connections at a time.
const CONNECTIONS_MAX: usize = 8;

/// The most bytes of a question: the names of as many boxes as an agent may claim shares of.
const QUESTION_MAX: u64 = 20_000;
/// The answer to what is done.
pub const DONE: &str = "done\n";

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Everything, as JSON.
    Show,
    /// The same, but of the limits only those of which all boxes send most, with so many boxes
    /// between them.
    Busiest(usize),
    /// Numbers, as Prometheus' text.
    Metrics,
    /// These boxes are off.
    Forget(Vec<String>),
}

impl Subject {
    /// As it passes through the socket.
    fn words(&self) -> String {
        match self {
            Self::Show => "show".to_owned(),
            Self::Busiest(rows) => format!("{} {rows}", fleet_agent::BUSIEST),
            Self::Metrics => "metrics".to_owned(),
            Self::Forget(boxes) => format!("forget {}", boxes.join(" ")),
        }
    }

    /// What these words ask, if they ask something.
    fn read(words: &str) -> Option<Self> {
        match words {
            "show" => Some(Self::Show),
            "metrics" => Some(Self::Metrics),
            _ => match words.split_once(' ')? {
                (fleet_agent::BUSIEST, rows) => rows.parse().ok().map(Self::Busiest),
                ("forget", boxes) => {
                    let name = |name: &str| Some(name.parse::<Name>().ok()?.to_string());
                    Some(Self::Forget(boxes.split(' ').map(name).collect::<Option<_>>()?))
                }
                _ => None,
            },
        }
    }
}

/// What somebody asks, and where the answer goes.
#[derive(Debug)]
pub struct Question {
    /// What is asked.
    pub subject: Subject,
    /// Where the answer goes.
    pub answer: oneshot::Sender<String>,
}

/// Why there is no socket, or no answer from it.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// It cannot be made.
    #[error("cannot listen at {}: {source}", path.display())]
    Listen {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another agent has it.
    #[error("another agent of this network namespace answers at {}", .0.display())]
    Taken(PathBuf),
    /// Nobody answers.
    #[error(
        "no agent answers at {}: {source}; it runs as a service (systemctl status narrows-fleet) \
         or by `narrows-fleet run`, and answers its own user and root only", path.display()
    )]
    NoAgent {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Where the socket is in this network namespace, unless the configuration says something else.
///
/// # Errors
/// If `/proc` does not tell which namespace this is.
pub fn path() -> Result<PathBuf, ViewError> {
    let failed = |source| ViewError::Listen { path: place::RUN_DIR.into(), source };
    fleet_agent::path().map_err(failed)
}

/// The socket of a running agent, which goes away with it.
#[derive(Debug)]
pub struct View {
    path: PathBuf,
    listener: UnixListener,
}

impl View {
    /// Listens at `path`. Must be called in a runtime.
    ///
    /// # Errors
    /// If another agent has it, or it cannot be made.
    pub fn at(path: PathBuf) -> Result<Self, ViewError> {
        if UnixStream::connect(&path).is_ok() {
            return Err(ViewError::Taken(path));
        }
        let listen = || {
            if let Some(folder) = path.parent() {
                std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            }
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                // Nobody listens there: it was left by one that was killed.
                _ => {}
            }
            let listener = UnixListener::bind(&path)?;
            std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
            Ok(listener)
        };
        match listen() {
            Ok(listener) => Ok(Self { path, listener }),
            Err(source) => Err(ViewError::Listen { path, source }),
        }
    }

    /// Passes on what is asked, for ever.
    pub async fn serve(self, questions: mpsc::Sender<Question>) {
        let room = std::sync::Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(place) = room.clone().acquire_owned().await else { return };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let questions = questions.clone();
                    tokio::spawn(async move {
                        // One that goes away has lost interest.
                        let _ = converse(stream, questions).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    log::warn!("cannot accept a connection at {}: {error}", self.path.display());
                    tokio::time::sleep(ASK_TIME).await;
                }
            }
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn converse(
    mut stream: tokio::net::UnixStream,
    questions: mpsc::Sender<Question>,
) -> io::Result<()> {
    let peer = socket_peercred(&stream)?.uid;
    if !peer.is_root() && peer != geteuid() {
        return Ok(());
    }
    let mut words = Vec::new();
    let mut limited = (&mut stream).take(QUESTION_MAX);
    timeout(ASK_TIME, limited.read_to_end(&mut words)).await??;
    // What is longer may end within a name.
    let whole = Some(&words).filter(|words| (words.len() as u64) < QUESTION_MAX);
    let asked = whole.and_then(|words| std::str::from_utf8(words).ok()).and_then(Subject::read);
    let Some(subject) = asked else { return Ok(()) };
    let (answer, answered) = oneshot::channel();
    if questions.send(Question { subject, answer }).await.is_ok()
        && let Ok(text) = answered.await
    {
        timeout(ANSWER_TIME, stream.write_all(text.as_bytes())).await??;
    }
    Ok(())
}

/// Asks the agent at `path`.
///
/// # Errors
/// If none answers.
pub fn ask(path: &Path, subject: Subject) -> Result<String, ViewError> {
    fleet_agent::ask(path, &subject.words(), ANSWER_TIME)
        .map_err(|source| ViewError::NoAgent { path: path.to_owned(), source })
}
