//! A command's side of the control socket.
//!
//! *No command waits for ever.* Whatever only asks has its answer within [`ANSWER_TIME`], or the
//! instance is silent. Whatever changes something may take longer, as long as the instance says how
//! far it is and that this is further than before.

use crate::inbox::BATCH_MAX;
use crate::place::{RUN_DIR, SOCKET, folder, may_have};
use crate::turn::{ANSWER_TIME, Turn, receive};
use crate::{Answer, ControlError, Request, stream};
use narrows_snapshot::Snapshot;
use std::io::{self, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long it waits for a change to begin, and for a single one. Others may be before it.
const CHANGE_TIME: Duration = Duration::from_secs(60);
/// How much is read at once, in bytes.
const READ_AT_ONCE: usize = 1 << 16;

/// An instance, seen from a command.
#[derive(Clone, Debug)]
pub struct Client {
    path: PathBuf,
    /// Its ports.
    pub ports: Vec<String>,
}

impl Client {
    /// The instance whose socket is at `path`. Its ports are not asked for.
    pub fn at(path: PathBuf) -> Self {
        Self { path, ports: Vec::new() }
    }

    /// What tells this instance from one that has its place before or after it: each makes a socket
    /// of its own. The socket's device, inode and change time. `None` if it has gone.
    pub fn identity(&self) -> Option<String> {
        let socket = std::fs::metadata(&self.path).ok()?;
        let (device, inode) = (socket.dev(), socket.ino());
        Some(format!("{device}:{inode}:{}.{:09}", socket.ctime(), socket.ctime_nsec()))
    }

    /// The instances of this network namespace; with `dev` only the one that has that port.
    ///
    /// # Errors
    /// If there is none, if one does not say which ports it has, or if this user may not ask.
    pub fn find(dev: Option<&str>) -> Result<Vec<Self>, ControlError> {
        match Self::survey(dev)? {
            (found, silent) if silent.is_empty() => Ok(found),
            (_, mut silent) => Err(silent.remove(0)),
        }
    }

    /// The instances of this network namespace, and apart from them those that run and do not
    /// answer; with `dev` only those that have that port.
    ///
    /// # Errors
    /// If there is none, or if this user may not ask.
    pub fn survey(dev: Option<&str>) -> Result<(Vec<Self>, Vec<ControlError>), ControlError> {
        let entries = match folder().and_then(std::fs::read_dir) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(ControlError::Forbidden { folder: RUN_DIR.into() });
            }
            entries => entries.into_iter().flatten().flatten(),
        };
        let sockets = entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == SOCKET));
        match Self::among(sockets, dev) {
            (found, silent) if found.is_empty() && silent.is_empty() => {
                let with = dev.map(|dev| format!(" with the port \"{dev}\"")).unwrap_or_default();
                Err(ControlError::NoInstance(with))
            }
            instances => Ok(instances),
        }
    }

    /// The instances with these `sockets`, and apart from them those that do not answer.
    pub(crate) fn among(
        sockets: impl Iterator<Item = PathBuf>,
        dev: Option<&str>,
    ) -> (Vec<Self>, Vec<ControlError>) {
        let (mut found, mut silent) = (Vec::new(), Vec::new());
        for path in sockets {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            if !dev.is_none_or(|dev| may_have(&stem, dev)) {
                continue;
            }
            let mut client = Self::at(path);
            match client.ask(&Request::Ports) {
                Ok(Answer::Ports(ports)) => client.ports = ports,
                Err(error @ (ControlError::Silent { .. } | ControlError::SilentBatch { .. })) => {
                    silent.push(error);
                    continue;
                }
                // Left by a killed instance, or gone since.
                _ => continue,
            }
            if dev.is_none_or(|dev| client.ports.iter().any(|port| port == dev)) {
                found.push(client);
            }
        }
        found.sort_by(|one, two| one.ports.cmp(&two.ports));
        (found, silent)
    }

    /// Opens a connection to it.
    pub(crate) fn connect(&self) -> Result<UnixStream, ControlError> {
        self.connect_within(ANSWER_TIME)
    }

    fn connect_within(&self, time: Duration) -> Result<UnixStream, ControlError> {
        stream::connect_within(&self.path, time).map_err(|source| match source.kind() {
            io::ErrorKind::WouldBlock => self.silent(None, time, None),
            _ => self.broken(source),
        })
    }

    /// The conversation with it broke off.
    pub(crate) fn broken(&self, source: io::Error) -> ControlError {
        ControlError::Broken { path: self.path.clone(), source }
    }

    /// It does not answer for `time`; `line` is the last that it has said to be done.
    fn silent(
        &self,
        stream: Option<&UnixStream>,
        time: Duration,
        line: Option<usize>,
    ) -> ControlError {
        // The process that listens.
        let peer = stream.and_then(|stream| rustix::net::sockopt::socket_peercred(stream).ok());
        let pid = peer.map(|peer| peer.pid.as_raw_nonzero().get());
        let seconds = time.as_secs_f64().ceil() as u64;
        match line {
            Some(line @ 1..) => ControlError::SilentBatch { pid, seconds, line },
            _ => ControlError::Silent { pid, seconds, path: self.path.clone() },
        }
    }

    /// Asks it.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn ask(&self, request: &Request) -> Result<Answer, ControlError> {
        let time = if request.only_asks() { ANSWER_TIME } else { CHANGE_TIME };
        self.ask_within(request, "", time)
    }

    /// Has it run the `tc` commands in `text`; `names` is the text of the file with the names of
    /// classes.
    ///
    /// # Errors
    /// If it does not answer, or does not go on. A batch runs whole or not at all.
    pub fn batch(
        &self,
        options: &[String],
        name: &str,
        text: &str,
        names: Option<String>,
    ) -> Result<Answer, ControlError> {
        let bytes = text.len() as u64;
        if bytes > BATCH_MAX {
            let most = BATCH_MAX >> 20;
            return Err(ControlError::Refused(format!(
                "a batch has at most {most} MiB, and {name} has {}: divide it",
                bytes >> 20
            )));
        }
        let (options, name) = (options.to_vec(), name.to_owned());
        let request = Request::Batch { options, name, bytes, names };
        self.ask_within(&request, text, CHANGE_TIME)
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

    /// Asks, with `text` behind the request. Waits for `time` for the answer to a question, and for
    /// so long for progress with anything else.
    ///
    /// # Errors
    /// If it does not answer, or does not go on.
    pub fn ask_within(
        &self,
        request: &Request,
        text: &str,
        time: Duration,
    ) -> Result<Answer, ControlError> {
        let end = Instant::now() + time;
        loop {
            match self.ask_once(request, text, time)? {
                Answer::Moved if Instant::now() < end => {}
                answer => return Ok(answer),
            }
        }
    }

    /// Asks the process that serves it now.
    fn ask_once(
        &self,
        request: &Request,
        text: &str,
        time: Duration,
    ) -> Result<Answer, ControlError> {
        let stream = self.connect_within(time)?;
        let mut turn = Turn::begin(&stream, time);
        let sent = turn.send(request).and_then(|()| turn.send_all(text.as_bytes()));
        let mut lines = BufReader::with_capacity(READ_AT_ONCE, Turn::begin(&stream, time));
        let mut applied = None;
        loop {
            let source = match receive(&mut lines) {
                Ok(Answer::Working { line }) => {
                    // A question is answered in time or not; a batch must go on.
                    if !request.only_asks() && applied.is_none_or(|before| line > before) {
                        let has_begun = line > 0 || applied.is_none();
                        applied = Some(line);
                        if has_begun {
                            lines.get_mut().renew(time);
                        }
                    }
                    continue;
                }
                Ok(answer) => return Ok(answer),
                Err(source) => source,
            };
            // An instance that refuses does not read to the end; then its answer counts.
            let source = match sent {
                Err(error) => error,
                Ok(()) => source,
            };
            return Err(match (source.kind(), applied) {
                (io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock, line) => {
                    self.silent(Some(&stream), time, line)
                }
                (_, Some(line)) => {
                    ControlError::BrokenBatch { path: self.path.clone(), line, source }
                }
                (_, None) => self.broken(source),
            });
        }
    }
}
