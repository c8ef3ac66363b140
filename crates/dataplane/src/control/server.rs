//! The instance's side of the control socket.
//!
//! Connections are served concurrently and never block: a client that is silent, slow or does not
//! read its answer delays no other. A batch of many lines is processed in slices, and other clients
//! are served in between. Its client gets progress lines meanwhile, so that it always knows what is
//! in force.

use super::place::{self, Place};
use super::{Answer, ControlError, MESSAGE_MAX, Request};
use narrows_sets::Restore;
use narrows_tc::{Batch, ClassNames, CommandLine, Options};
use rustix::event::epoll;
use rustix::process::Uid;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most clients at a time. One more replaces the one that has been connected for longest.
const CLIENTS_MAX: usize = 64;
/// How long a client may take to send its request, and to read its answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The interval of progress reports to the client of a long batch.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);
/// How much is read from one client before the next one, in bytes.
const READ_AT_ONCE: usize = 1 << 16;

/// A request, until it is answered.
pub(crate) enum Task {
    /// At once.
    Whole(Request),
    /// In parts.
    Batch(Batch),
    /// The same, for sets.
    Restore(Restore),
}

/// See the module's documentation.
pub(crate) struct ControlServer {
    listener: UnixListener,
    /// Readable if any client has something to do.
    ready: OwnedFd,
    clients: Vec<Client>,
    // Released last: the socket is closed by then.
    _place: Place,
}

impl ControlServer {
    /// Opens the socket of the instance that joins `ports`, and removes the files of killed
    /// instances.
    pub(crate) fn open(ports: &[String; 2]) -> Result<Self, ControlError> {
        place::clear();
        let folder = place::folder()
            .map_err(|source| ControlError::Open { path: "/proc/self/ns/net".into(), source })?;
        Self::open_in(&folder, ports)
    }

    pub(super) fn open_in(folder: &Path, ports: &[String; 2]) -> Result<Self, ControlError> {
        let place = Place::take(folder, ports)?;
        let listen = || {
            // By an instance that knows no locks.
            if UnixStream::connect(&place.socket).is_ok() {
                return Ok(None);
            }
            // Left by a killed instance.
            match std::fs::remove_file(&place.socket) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let listener = UnixListener::bind(&place.socket)?;
            std::fs::set_permissions(&place.socket, PermissionsExt::from_mode(0o600))?;
            listener.set_nonblocking(true)?;
            let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            watch(&ready, listener.as_fd(), epoll::EventFlags::IN)?;
            Ok(Some((listener, ready)))
        };
        let failed = |source| ControlError::Open { path: place.socket.clone(), source };
        let Some((listener, ready)) = listen().map_err(failed)? else {
            return Err(ControlError::Taken { port: ports.join(",") });
        };
        Ok(Self { listener, ready, clients: Vec::new(), _place: place })
    }

    /// Continues with the socket of another process that joins `ports`, which passed on
    /// `descriptors`: those of [`ControlServer::descriptors`].
    pub(crate) fn take_over(ports: &[String; 2], descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let mut descriptors = descriptors.into_iter();
        let listener = descriptors.next().map(UnixListener::from);
        let listener = listener.ok_or(io::ErrorKind::InvalidInput)?;
        let place = Place::inherited(&place::folder()?, ports, descriptors);
        listener.set_nonblocking(true)?;
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        watch(&ready, listener.as_fd(), epoll::EventFlags::IN)?;
        Ok(Self { listener, ready, clients: Vec::new(), _place: place })
    }

    /// The descriptors with which another process continues: the socket, and its locks.
    pub(crate) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        std::iter::once(self.listener.as_fd()).chain(self._place.locks()).collect()
    }

    /// Leaves the socket to another process. Clients whose requests have not started are
    /// redirected.
    pub(crate) fn leave(mut self) {
        for client in &mut self.clients {
            // A client that is gone or does not read misses nothing.
            let _ = client.send_away();
        }
        self.clients.clear();
        // The files stay: they belong to the other process.
        std::mem::forget(self);
    }

    /// Readable when a client has to be served.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Whether a task is under way: serve again soon.
    pub(crate) fn is_busy(&self) -> bool {
        self.clients.iter().any(|client| matches!(client.state, State::Working { .. }))
    }

    /// Serves all clients as far as possible without waiting for any. `work` does a part of a task
    /// and returns the answer when there is one. Returns the connection for which the ports were
    /// released, if a client requested that; it is no longer a client.
    pub(crate) fn serve(
        &mut self,
        mut work: impl FnMut(&mut Task) -> Option<Answer>,
    ) -> Option<UnixStream> {
        self.accept();
        let ready = &self.ready;
        self.clients.retain_mut(|client| {
            let kept = client.serve(&mut work).and_then(|()| client.listen_for_more(ready));
            if let Err(error) = &kept {
                log::debug!("a control connection ended: {error}");
            }
            kept.is_ok()
        });
        let holds = |client: &Client| matches!(client.state, State::Holding);
        let holder = self.clients.swap_remove(self.clients.iter().position(holds)?);
        // A failure means that it was not watched.
        let _ = epoll::delete(&self.ready, &holder.stream);
        Some(holder.stream)
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.clients.len() >= CLIENTS_MAX {
                let is_asking = |client: &Client| matches!(client.state, State::Asking(_));
                let longest = self.clients.iter().position(is_asking).unwrap_or(0);
                self.clients.remove(longest);
            }
            match Client::new(stream, &self.ready) {
                Ok(client) => self.clients.push(client),
                Err(error) => log::debug!("a control connection could not be served: {error}"),
            }
        }
    }
}

fn watch(ready: &OwnedFd, fd: BorrowedFd<'_>, events: epoll::EventFlags) -> io::Result<()> {
    // Tries all clients: there are few.
    Ok(epoll::add(ready, fd, epoll::EventData::new_u64(0), events)?)
}

/// A connected client.
struct Client {
    stream: UnixStream,
    state: State,
    /// When it times out.
    until: Instant,
    /// Output that it has not read yet.
    unsent: Vec<u8>,
    /// What the server waits for.
    events: epoll::EventFlags,
}

/// The state of a conversation.
enum State {
    /// Its request so far.
    Asking(Vec<u8>),
    Working {
        task: Task,
        told: Instant,
    },
    /// It has unsent output.
    Answered,
    /// The ports were released for it.
    Holding,
}

impl Client {
    fn new(stream: UnixStream, ready: &OwnedFd) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let events = epoll::EventFlags::IN;
        watch(ready, stream.as_fd(), events)?;
        let peer = rustix::net::sockopt::socket_peercred(&stream)?.uid;
        let state = State::Asking(Vec::new());
        let until = Instant::now() + TIMEOUT;
        let mut client = Self { stream, state, until, unsent: Vec::new(), events };
        if !may_ask(peer, rustix::process::geteuid()) {
            log::warn!("refused a control connection of user {}", peer.as_raw());
            client.answer(&Answer::Refused("this instance belongs to another user".to_owned()))?;
        }
        Ok(client)
    }

    /// Continues the conversation. An error ends it; so does its end.
    fn serve(&mut self, work: &mut impl FnMut(&mut Task) -> Option<Answer>) -> io::Result<()> {
        if let State::Asking(said) = &mut self.state {
            let Some(line) = read_line(&mut self.stream, said)? else { return self.has_time() };
            match line.and_then(|line| begin(&line)) {
                Ok(task) => self.state = State::Working { task, told: Instant::now() },
                Err(refusal) => self.answer(&refusal)?,
            }
        }
        if let State::Working { task, told } = &mut self.state {
            if let Some(answer) = work(task) {
                self.answer(&answer)?;
                if let Answer::LetGo = answer {
                    // If the client is gone already, the next read shows that.
                    self.state = State::Holding;
                    let _ = self.flush();
                    return Ok(());
                }
            } else if told.elapsed() >= PROGRESS_EVERY && self.unsent.is_empty() {
                *told = Instant::now();
                let line = match task {
                    Task::Batch(batch) => batch.line(),
                    Task::Restore(restore) => restore.line(),
                    Task::Whole(_) => 0,
                };
                self.send(&Answer::Working { line })?;
            }
        }
        self.flush()?;
        if matches!(self.state, State::Answered) {
            // Unread input would otherwise reset the connection and lose the answer.
            let is_over = discard(&mut self.stream)?;
            if self.unsent.is_empty() && is_over {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            return self.has_time();
        }
        Ok(())
    }

    /// Sends the rest of its answer, or the redirection to the process that serves the instance
    /// now.
    fn send_away(&mut self) -> io::Result<()> {
        if let State::Asking(_) = self.state {
            self.answer(&Answer::Moved)?;
        }
        self.flush()
    }

    fn has_time(&self) -> io::Result<()> {
        if Instant::now() < self.until { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
    }

    fn answer(&mut self, answer: &Answer) -> io::Result<()> {
        self.state = State::Answered;
        self.until = Instant::now() + TIMEOUT;
        self.send(answer)
    }

    fn send(&mut self, answer: &Answer) -> io::Result<()> {
        serde_json::to_writer(&mut self.unsent, answer)?;
        self.unsent.push(b'\n');
        Ok(())
    }

    /// Sends as much as it takes.
    fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.unsent.is_empty() && matches!(self.state, State::Answered) {
            self.stream.shutdown(std::net::Shutdown::Write)?;
        }
        Ok(())
    }

    /// Waits for its next action.
    fn listen_for_more(&mut self, ready: &OwnedFd) -> io::Result<()> {
        let events = match &self.state {
            _ if !self.unsent.is_empty() => epoll::EventFlags::IN | epoll::EventFlags::OUT,
            // It sends nothing more; its end shows when the answer is written.
            State::Working { .. } => epoll::EventFlags::empty(),
            _ => epoll::EventFlags::IN,
        };
        if events != self.events {
            epoll::modify(ready, &self.stream, epoll::EventData::new_u64(0), events)?;
            self.events = events;
        }
        Ok(())
    }
}

/// The task for a line, or the answer to an invalid line.
fn begin(line: &[u8]) -> Result<Task, Answer> {
    let request = serde_json::from_slice(line)
        .map_err(|error| Answer::Refused(format!("not a request: {error}")))?;
    if let Request::RestoreSets { first, may_exist, text } = request {
        return Ok(Task::Restore(Restore::new(text, first, may_exist)));
    }
    let Request::Batch { options, name, text, names } = request else {
        return Ok(Task::Whole(request));
    };
    match CommandLine::parse(&options) {
        Ok(line) => {
            let names = names.map(|text| Arc::new(ClassNames::parse(&text)));
            Ok(Task::Batch(Batch::new(&text, &name, Options { names, ..line.options })))
        }
        Err(outcome) => Err(outcome.into()),
    }
}

/// Reads on, and returns the line when it is complete; a refusal if it never will be.
fn read_line(
    stream: &mut UnixStream,
    said: &mut Vec<u8>,
) -> io::Result<Option<Result<Vec<u8>, Answer>>> {
    let mut buffer = [0; READ_AT_ONCE];
    let read = match stream.read(&mut buffer) {
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(None),
        Err(error) => return Err(error),
    };
    let new = &buffer[..read];
    let end = new.iter().position(|&byte| byte == b'\n');
    said.extend_from_slice(&new[..end.unwrap_or(read)]);
    if said.len() > MESSAGE_MAX {
        said.clear();
        let refusal = format!("not a request: longer than {} MiB", MESSAGE_MAX >> 20);
        return Ok(Some(Err(Answer::Refused(refusal))));
    }
    let is_whole = end.is_some() || read == 0;
    Ok(is_whole.then(|| Ok(std::mem::take(said))))
}

/// Reads on and discards the input. Returns whether the other side is done.
fn discard(stream: &mut UnixStream) -> io::Result<bool> {
    match stream.read(&mut [0; READ_AT_ONCE]) {
        Ok(0) => Ok(true),
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether user `peer` may ask an instance of user `owner`.
pub(super) fn may_ask(peer: Uid, owner: Uid) -> bool {
    peer.is_root() || peer == owner
}
