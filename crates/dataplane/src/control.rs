//! The control socket: how `narrows tc` and `narrows show` reach a running instance.
//!
//! A Unix socket in a folder that only its owner may enter, one per instance, in a folder per
//! network namespace: interface names mean something only there, so a command finds the
//! instances of the namespace in which it runs, as `tc` finds its interfaces. Each connection
//! carries one request and one answer, a line of JSON each. The peer's user is checked, too.
//!
//! Non-goals: remote access, several requests on one connection.

use crate::show::Show;
use rustix::process::Uid;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where the folders of all namespaces are.
const RUN_DIR: &str = "/run/narrows";
/// The longest request or answer, in bytes: a batch of a hundred thousand lines.
const MESSAGE_MAX: u64 = 16 << 20;
/// How long an instance spends on one request at most, from the first byte to the last of the
/// answer: whoever asks has the request ready, and nobody else is served meanwhile.
const SERVING_TIME: Duration = Duration::from_secs(1);
/// How long a command waits for its answer: while others are served before it.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// What an instance is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Which ports it has.
    Ports,
    /// Everything about it.
    Show,
    /// The words of a `tc` command.
    Tc {
        /// The words.
        args: Vec<String>,
    },
    /// The text of a file of `tc` commands.
    Batch {
        /// The options on the command line that gave the file.
        options: Vec<String>,
        /// The file's name, for messages.
        name: String,
        /// Its contents.
        text: String,
    },
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The names of its ports.
    Ports(Vec<String>),
    /// Everything about it.
    Show(Box<Show>),
    /// What a `tc` command printed and how it ended.
    Tc {
        /// For standard output.
        stdout: String,
        /// For standard error.
        stderr: String,
        /// The exit code.
        code: i32,
    },
    /// It cannot serve the request.
    Refused(String),
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
        "another narrows already joins these ports (its control socket {0} answers); \
         stop it first, or change it with `narrows tc`"
    )]
    Taken(PathBuf),
    /// No instance runs here.
    #[error(
        "no narrows runs in this network namespace{0}; start one with \
         `narrows run --ports A,B`, or give a file with `--policy FILE`"
    )]
    Nobody(String),
    /// The conversation broke off.
    #[error("the instance at {path} does not answer: {source}")]
    Broken {
        /// Which.
        path: PathBuf,
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

/// The folder of the network namespace that this process is in.
fn folder() -> io::Result<PathBuf> {
    let namespace = std::fs::metadata("/proc/self/ns/net")?.ino();
    Ok(Path::new(RUN_DIR).join(format!("net-{namespace}")))
}

/// The instance's side.
pub(crate) struct ControlServer {
    listener: UnixListener,
    path: PathBuf,
}

impl ControlServer {
    /// Opens the socket of the instance that joins `ports`.
    pub(crate) fn open(ports: &[String; 2]) -> Result<Self, ControlError> {
        let name = format!("{},{}.sock", ports[0], ports[1]);
        Self::open_at(folder().unwrap_or_else(|_| RUN_DIR.into()).join(name))
    }

    fn open_at(path: PathBuf) -> Result<Self, ControlError> {
        let failed = |source| ControlError::Open { path: path.clone(), source };
        if let Some(folder) = path.parent() {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)
                .map_err(failed)?;
        }
        if UnixStream::connect(&path).is_ok() {
            return Err(ControlError::Taken(path));
        }
        // Left behind by an instance that was killed.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let listener = UnixListener::bind(&path).map_err(failed)?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self { listener, path })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Serves those who have connected. A client that says nothing, or nonsense, gets an
    /// error or nothing, and can hold up the others only for a bounded time.
    pub(crate) fn serve(&self, mut answer: impl FnMut(Request) -> Answer) {
        while let Ok((stream, _)) = self.listener.accept() {
            if let Err(error) = converse(&stream, &mut answer) {
                log::debug!("a control connection broke off: {error}");
            }
        }
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        // Whoever comes next would remove it, too.
        let _ = std::fs::remove_file(&self.path);
        if let Some(folder) = self.path.parent() {
            let _ = std::fs::remove_dir(folder);
        }
    }
}

fn converse(stream: &UnixStream, answer: &mut impl FnMut(Request) -> Answer) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let mut conversation = Conversation::begin(stream, SERVING_TIME);
    let peer = rustix::net::sockopt::socket_peercred(stream)?.uid;
    if !may_ask(peer, rustix::process::geteuid()) {
        log::warn!("refused a control connection of user {}", peer.as_raw());
        let refusal = "this instance belongs to another user".to_owned();
        return conversation.send(&Answer::Refused(refusal));
    }
    let reply = match conversation.receive() {
        Ok(request) => answer(request),
        Err(error) => Answer::Refused(format!("not a request: {error}")),
    };
    conversation.send(&reply)
}

/// Whether user `peer` may ask an instance of user `owner`.
fn may_ask(peer: Uid, owner: Uid) -> bool {
    peer.is_root() || peer == owner
}

/// One side of an exchange of lines that is over at a certain time, however slowly the other
/// side writes or reads.
struct Conversation<'a> {
    stream: &'a UnixStream,
    end: Instant,
}

impl<'a> Conversation<'a> {
    fn begin(stream: &'a UnixStream, time: Duration) -> Self {
        Self { stream, end: Instant::now() + time }
    }

    fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.write_all(&line)
    }

    fn receive<T: for<'de> Deserialize<'de>>(&mut self) -> io::Result<T> {
        let mut line = Vec::new();
        BufReader::new(self.take(MESSAGE_MAX)).read_until(b'\n', &mut line)?;
        Ok(serde_json::from_slice(&line)?)
    }

    fn time_left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Conversation<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.time_left()?)?;
        let mut stream = self.stream;
        stream.read(into)
    }
}

impl Write for Conversation<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.time_left()?)?;
        let mut stream = self.stream;
        stream.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An instance, seen from a command.
#[derive(Clone, Debug)]
pub struct Client {
    path: PathBuf,
    /// Its ports.
    pub ports: Vec<String>,
}

impl Client {
    /// The instances of this network namespace; with `dev` only the one that has that port.
    ///
    /// # Errors
    /// Where there is none.
    pub fn find(dev: Option<&str>) -> Result<Vec<Self>, ControlError> {
        let sockets = folder().and_then(std::fs::read_dir).into_iter().flatten().flatten();
        let mut found: Vec<Self> = sockets
            .filter_map(|entry| {
                let mut client = Self { path: entry.path(), ports: Vec::new() };
                match client.ask(&Request::Ports) {
                    Ok(Answer::Ports(ports)) => client.ports = ports,
                    _ => return None,
                }
                Some(client)
            })
            .filter(|client| dev.is_none_or(|dev| client.ports.iter().any(|port| port == dev)))
            .collect();
        found.sort_by(|one, two| one.ports.cmp(&two.ports));
        if found.is_empty() {
            let with = dev.map(|dev| format!(" with the port \"{dev}\"")).unwrap_or_default();
            return Err(ControlError::Nobody(with));
        }
        Ok(found)
    }

    /// Asks it.
    ///
    /// # Errors
    /// Where it does not answer.
    pub fn ask(&self, request: &Request) -> Result<Answer, ControlError> {
        let broken = |source| ControlError::Broken { path: self.path.clone(), source };
        let stream = UnixStream::connect(&self.path).map_err(broken)?;
        let mut conversation = Conversation::begin(&stream, ANSWER_TIME);
        conversation.send(request).and_then(|()| conversation.receive()).map_err(broken)
    }
}

#[cfg(test)]
mod tests;
