//! A command's side of the control socket.

use super::place::{RUN_DIR, SOCKET, folder};
use super::{ANSWER_MAX, Answer, ControlError, Request};
use narrows_snapshot::Snapshot;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a command waits for data from the instance. It answers within a second, and reports the
/// progress of a long batch more often.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(10);

/// An instance, seen from a command.
#[derive(Clone, Debug)]
pub struct Client {
    pub(super) path: PathBuf,
    /// Its ports.
    pub ports: Vec<String>,
}

impl Client {
    /// The instances of this network namespace; with `dev` only the one that has that port.
    ///
    /// # Errors
    /// If there is none, or this user may not ask.
    pub fn find(dev: Option<&str>) -> Result<Vec<Self>, ControlError> {
        let entries = match folder().and_then(std::fs::read_dir) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(ControlError::Forbidden { folder: RUN_DIR.into() });
            }
            entries => entries.into_iter().flatten().flatten(),
        };
        let mut found: Vec<Self> = entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == SOCKET))
            .filter_map(|path| {
                let mut client = Self { path, ports: Vec::new() };
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
            return Err(ControlError::NoInstance(with));
        }
        Ok(found)
    }

    /// Opens a connection to it.
    pub(crate) fn connect(&self) -> Result<UnixStream, ControlError> {
        UnixStream::connect(&self.path).map_err(|source| self.broken(source))
    }

    /// The conversation with it broke off.
    pub(crate) fn broken(&self, source: io::Error) -> ControlError {
        ControlError::Broken { path: self.path.clone(), source }
    }

    /// Asks it.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn ask(&self, request: &Request) -> Result<Answer, ControlError> {
        self.ask_within(request, ANSWER_TIME)
    }

    /// Everything about it, or all but its trees of qdiscs and classes.
    ///
    /// # Errors
    /// If it does not answer, or refuses to.
    pub fn snapshot(&self, with_trees: bool) -> Result<Snapshot, ControlError> {
        let request = if with_trees { Request::ShowWithTrees } else { Request::Show };
        match self.ask(&request)? {
            Answer::Show(snapshot) => Ok(*snapshot),
            Answer::Refused(reason) => Err(ControlError::Refused(reason)),
            other => Err(ControlError::Refused(format!("it answered something else: {other:?}"))),
        }
    }

    pub(super) fn ask_within(
        &self,
        request: &Request,
        timeout: Duration,
    ) -> Result<Answer, ControlError> {
        let end = Instant::now() + timeout;
        loop {
            match self.ask_once(request, timeout)? {
                Answer::Moved if Instant::now() < end => {}
                answer => return Ok(answer),
            }
        }
    }

    /// Asks the process that serves it now.
    fn ask_once(&self, request: &Request, timeout: Duration) -> Result<Answer, ControlError> {
        let stream = self.connect()?;
        let sent = Turn::begin(&stream, timeout).send(request);
        let mut lines = BufReader::new(Turn::begin(&stream, timeout));
        let mut applied = None;
        loop {
            lines.get_mut().end = Instant::now() + timeout;
            match receive(&mut lines) {
                Ok(Answer::Working { line }) => applied = Some(line),
                Ok(answer) => return Ok(answer),
                Err(source) => {
                    let path = self.path.clone();
                    // An instance that refuses does not read to the end; then its answer counts.
                    let source = sent.err().unwrap_or(source);
                    return Err(match applied {
                        Some(line) => ControlError::BrokenBatch { path, line, source },
                        None => self.broken(source),
                    });
                }
            }
        }
    }
}

pub(crate) fn receive<T: for<'de> Deserialize<'de>>(
    lines: &mut BufReader<Turn<'_>>,
) -> io::Result<T> {
    let mut line = Vec::new();
    lines.take(ANSWER_MAX as u64).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&line)?)
}

/// A transfer with a deadline, however slowly the other side writes or reads.
pub(crate) struct Turn<'a> {
    stream: &'a UnixStream,
    end: Instant,
}

impl<'a> Turn<'a> {
    pub(crate) fn begin(stream: &'a UnixStream, time: Duration) -> Self {
        Self { stream, end: Instant::now() + time }
    }

    pub(crate) fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.write_all(&line)
    }

    fn time_left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Turn<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.time_left()?)?;
        let mut stream = self.stream;
        stream.read(into)
    }
}

impl Write for Turn<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.time_left()?)?;
        let mut stream = self.stream;
        stream.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
