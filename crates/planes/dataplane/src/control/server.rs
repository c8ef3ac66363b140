//! The instance's side of the control socket.
//!
//! Connections are served concurrently and never block: a client that is silent, slow or does not
//! read its answer delays no other. Single commands run at once. A batch of many lines is processed
//! in slices, one in each turn, whatever number of batches there are. Its client gets progress
//! lines meanwhile, so that it always knows what is in force.
//!
//! A task does not belong to its connection: once begun, it runs to its end, and its client is told
//! if it is still there. A task that has not begun is dropped with its client.
//!
//! Memory is bounded: what clients send and have not read ([`HELD_MAX`]), and their number.

use super::outbox::Outbox;
use super::place::{self, Place, PlaceError};
use crate::beside::Pending;
use narrows_control::place::folder;
use narrows_control::{Answer, Inbox, Received, Request};
use narrows_forwarding::Forwarding;
use narrows_sets::Restore;
use narrows_tc::{Batch, ClassNames, CommandLine, Options};
use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use rustix::process::Uid;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most clients at a time. One more replaces the one that has been asking for longest, or else
/// has been reading its answer for longest.
pub(crate) const CLIENTS_MAX: usize = 64;
/// How long a client may take to send its request, and to read its answer,
const TIMEOUT: Duration = Duration::from_secs(5);
/// and how long in addition for each of so many bytes.
const BYTES_A_SECOND: usize = 1 << 20;
/// The interval of progress reports to the client of a long batch.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);
/// How many clients may wait to be accepted: as many as the standard library lets.
const BACKLOG: i32 = 128;
/// How much is read from one client before the next one, in bytes.
const READ_AT_ONCE: usize = 1 << 16;
/// How many bytes of batches and of answers are held at most, each.
const HELD_MAX: usize = 512 << 20;

/// A request, until it is answered.
pub(crate) enum Task {
    /// At once.
    Whole(Request),
    /// In parts.
    Batch(Batch),
    /// In parts, for sets.
    Restore(Restore),
    /// On another thread, which makes the line of the answer.
    Beside(Pending<Vec<u8>>),
}

impl Task {
    fn is_long(&self) -> bool {
        matches!(self, Self::Batch(_) | Self::Restore(_))
    }

    /// The last line that it has done.
    fn line(&self) -> usize {
        match self {
            Self::Batch(batch) => batch.line(),
            Self::Restore(restore) => restore.line(),
            Self::Whole(_) | Self::Beside(_) => 0,
        }
    }
}

/// What came of working on a task.
pub(crate) enum Step {
    /// It is done.
    Done(Answer),
    /// It is done, and this is the line of the answer.
    Line(Vec<u8>),
    /// It can go on at once.
    More,
    /// It waits for something else.
    Later,
}

/// A task that is not done.
struct Job {
    /// Its client.
    client: u64,
    task: Task,
    /// Whether any of it has been done.
    has_begun: bool,
    /// Whether it waits for something else.
    waits: bool,
    /// When its progress was last reported to its client.
    reported_at: Instant,
}

/// Serves the control socket: all clients, none of which delays another.
pub(crate) struct ControlServer {
    listener: UnixListener,
    /// Readable if any client has something to do.
    ready: OwnedFd,
    clients: Vec<Client>,
    /// The number of the next client.
    next: u64,
    /// The next one to work on is the first.
    jobs: VecDeque<Job>,
    // Released last: the socket is closed by then.
    _place: Place,
}

impl ControlServer {
    /// Opens the socket of the instance that joins `ports`, and removes the files of killed
    /// instances.
    pub(crate) fn open(ports: &Forwarding) -> Result<Self, PlaceError> {
        place::clear();
        let folder = folder()
            .map_err(|source| PlaceError::Open { path: "/proc/self/ns/net".into(), source })?;
        Self::open_in(&folder, ports)
    }

    pub(super) fn open_in(folder: &Path, ports: &Forwarding) -> Result<Self, PlaceError> {
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
        let failed = |source| PlaceError::Open { path: place.socket.clone(), source };
        let Some((listener, ready)) = listen().map_err(failed)? else {
            return Err(PlaceError::Taken { port: ports.names().join(",") });
        };
        Ok(Self::new(listener, ready, place))
    }

    fn new(listener: UnixListener, ready: OwnedFd, place: Place) -> Self {
        let (clients, jobs) = (Vec::new(), VecDeque::new());
        Self { listener, ready, clients, next: 0, jobs, _place: place }
    }

    /// Continues with the socket of another process that joins `ports`, which passed on
    /// `descriptors`: those of [`ControlServer::descriptors`].
    pub(crate) fn take_over(ports: &Forwarding, descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let mut descriptors = descriptors.into_iter();
        let listener = descriptors.next().map(UnixListener::from);
        let listener = listener.ok_or(io::ErrorKind::InvalidInput)?;
        let place = Place::inherited(&folder()?, ports, descriptors);
        listener.set_nonblocking(true)?;
        // Clients learn from the socket which process listens.
        rustix::net::listen(&listener, BACKLOG)?;
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        watch(&ready, listener.as_fd(), epoll::EventFlags::IN)?;
        Ok(Self::new(listener, ready, place))
    }

    /// The descriptors with which another process continues: the socket, and its locks.
    pub(crate) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        std::iter::once(self.listener.as_fd()).chain(self._place.locks()).collect()
    }

    /// Leaves the socket to another process. Clients whose requests have not started are
    /// redirected.
    pub(crate) fn leave(mut self) {
        for client in &mut self.clients {
            let waits = |job: &Job| job.client == client.number && !job.has_begun;
            let is_asking = matches!(client.state, State::Asking(_));
            if is_asking || self.jobs.iter().any(waits) {
                client.answer(&Answer::Moved);
            }
            // A client that is gone or does not read misses nothing.
            let _ = client.flush();
        }
        self.clients.clear();
        // The files stay: they belong to the other process.
        std::mem::forget(self);
    }

    /// Readable when a client has to be served.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Whether a task can go on: serve again soon.
    pub(crate) fn is_busy(&self) -> bool {
        self.jobs.iter().any(|job| !job.waits)
    }

    /// Whether a batch has begun that is not done.
    pub(crate) fn is_amid_batch(&self) -> bool {
        self.jobs.iter().any(|job| job.has_begun && job.task.is_long())
    }

    /// Serves all clients as far as possible without waiting for any. `work` does a part of a task,
    /// and is told whether it is not the first. Returns the connection for which the ports were
    /// released, if a client requested that; it is no longer a client.
    pub(crate) fn serve(
        &mut self,
        mut work: impl FnMut(&mut Task, bool) -> Step,
    ) -> Option<UnixStream> {
        self.accept();
        self.hear();
        self.work(&mut work);
        let ready = &self.ready;
        self.clients.retain_mut(|client| {
            let kept = client.proceed().and_then(|()| client.listen_for_more(ready));
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

    /// Reads what clients say, and takes their requests on.
    fn hear(&mut self) {
        let batches = self.jobs.iter().map(|job| match &job.task {
            Task::Batch(batch) => batch.bytes(),
            _ => 0,
        });
        let asked = self.clients.iter().map(|client| match &client.state {
            State::Asking(inbox) => inbox.bytes(),
            _ => 0,
        });
        let mut held: usize = batches.chain(asked).sum();
        let jobs = &mut self.jobs;
        self.clients.retain_mut(|client| {
            let State::Asking(inbox) = &mut client.state else { return !client.is_gone() };
            let before = inbox.bytes();
            let heard = hear(&mut client.stream, inbox);
            held = held + inbox.bytes() - before;
            match heard {
                Ok(Err(refusal)) => client.answer(&refusal),
                Ok(Ok(None)) if held > HELD_MAX && inbox.bytes() > before => {
                    let why = "busy with other batches: try again when they are done";
                    client.answer(&Answer::Refused(why.to_owned()));
                }
                Ok(Ok(None)) => {
                    client.give_time_for(before.max(client.state.bytes()));
                    return client.has_time();
                }
                Ok(Ok(Some(received))) => match begin(received) {
                    Ok(task) => {
                        client.state = State::Waiting;
                        let (client, reported_at) = (client.number, Instant::now());
                        let (has_begun, waits) = (false, false);
                        jobs.push_back(Job { client, task, has_begun, waits, reported_at });
                    }
                    Err(refusal) => client.answer(&refusal),
                },
                Err(error) => {
                    log::debug!("a control connection ended: {error}");
                    return false;
                }
            }
            true
        });
    }

    /// Works on all single commands, and on one batch.
    fn work(&mut self, work: &mut impl FnMut(&mut Task, bool) -> Step) {
        let mut is_batch_done = false;
        let mut worked_on = VecDeque::new();
        for _ in 0..self.jobs.len() {
            let Some(mut job) = self.jobs.pop_front() else { break };
            let is_there = |client: &Client| client.number == job.client;
            let client = self.clients.iter().position(is_there);
            if client.is_none() && !job.has_begun {
                continue;
            }
            let unread: usize = self.clients.iter().map(|client| client.outbox.len()).sum();
            let is_long = job.task.is_long();
            if is_long && is_batch_done || !is_long && unread > HELD_MAX {
                self.jobs.push_back(job);
                continue;
            }
            let step = work(&mut job.task, job.has_begun);
            job.waits = matches!(step, Step::Later);
            job.has_begun |= !job.waits;
            is_batch_done |= is_long && !job.waits;
            let mut client = client.and_then(|at| self.clients.get_mut(at));
            match (step, &mut client) {
                (Step::Done(answer), Some(client)) => client.answer(&answer),
                (Step::Line(line), Some(client)) => client.answer_line(line),
                (Step::Done(_) | Step::Line(_), None) => {}
                (Step::More | Step::Later, client) => {
                    if let Some(client) = client
                        && job.reported_at.elapsed() >= PROGRESS_EVERY
                        && client.outbox.is_empty()
                    {
                        job.reported_at = Instant::now();
                        client.send(&Answer::Working { line: job.task.line() });
                    }
                    worked_on.push_back(job);
                }
            }
        }
        self.jobs.append(&mut worked_on);
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            let mut client = match Client::new(stream, self.next, &self.ready) {
                Ok(client) => client,
                Err(error) => {
                    log::debug!("a control connection could not be served: {error}");
                    continue;
                }
            };
            self.next += 1;
            if self.clients.len() >= CLIENTS_MAX {
                let find = |is: fn(&State) -> bool| {
                    self.clients.iter().position(|client| is(&client.state))
                };
                let replaced = find(|state| matches!(state, State::Asking(_)))
                    .or_else(|| find(|state| matches!(state, State::Answered)));
                match replaced {
                    Some(at) => drop(self.clients.remove(at)),
                    None => {
                        let why = format!("busy with {CLIENTS_MAX} other commands: try again");
                        client.answer(&Answer::Refused(why));
                        let _ = client.flush();
                        continue;
                    }
                }
            }
            self.clients.push(client);
        }
    }
}

fn watch(ready: &OwnedFd, fd: BorrowedFd<'_>, events: epoll::EventFlags) -> io::Result<()> {
    // Tries all clients: there are few.
    Ok(epoll::add(ready, fd, epoll::EventData::new_u64(0), events)?)
}

/// A connected client.
struct Client {
    number: u64,
    stream: UnixStream,
    state: State,
    /// When its time began, and when it ends.
    since: Instant,
    until: Instant,
    /// Output that it has not read yet.
    outbox: Outbox,
    /// What the server waits for.
    events: epoll::EventFlags,
}

/// The state of a conversation.
enum State {
    /// Its request so far.
    Asking(Inbox),
    /// Its task is not done.
    Waiting,
    /// It has unsent output.
    Answered,
    /// The ports were released for it.
    Holding,
}

impl State {
    fn bytes(&self) -> usize {
        if let Self::Asking(inbox) = self { inbox.bytes() } else { 0 }
    }
}

impl Client {
    fn new(stream: UnixStream, number: u64, ready: &OwnedFd) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let events = epoll::EventFlags::IN;
        watch(ready, stream.as_fd(), events)?;
        let peer = rustix::net::sockopt::socket_peercred(&stream)?.uid;
        let state = State::Asking(Inbox::default());
        let since = Instant::now();
        let (until, outbox) = (since + TIMEOUT, Outbox::default());
        let mut client = Self { number, stream, state, since, until, outbox, events };
        if !may_ask(peer, rustix::process::geteuid()) {
            log::warn!("refused a control connection of user {}", peer.as_raw());
            client.answer(&Answer::Refused("this instance belongs to another user".to_owned()));
        }
        Ok(client)
    }

    /// Sends what can be sent. An error ends the conversation; so does its end.
    fn proceed(&mut self) -> io::Result<()> {
        if let State::Holding = self.state {
            // If the client is gone already, the next read shows that.
            let _ = self.flush();
            return Ok(());
        }
        self.flush()?;
        if matches!(self.state, State::Answered) {
            // Unread input would otherwise reset the connection and lose the answer.
            let is_over = discard(&mut self.stream)?;
            if self.outbox.is_empty() && is_over {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if !self.has_time() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    fn has_time(&self) -> bool {
        Instant::now() < self.until
    }

    /// Gives it the time that `bytes` may take.
    fn give_time_for(&mut self, bytes: usize) {
        let more = Duration::from_secs((bytes / BYTES_A_SECOND) as u64);
        self.until = self.since + TIMEOUT + more;
    }

    /// Whether a client that waits has left.
    fn is_gone(&self) -> bool {
        let mut polled = [PollFd::new(&self.stream, PollFlags::empty())];
        let left = PollFlags::HUP | PollFlags::ERR;
        matches!(self.state, State::Waiting)
            && rustix::event::poll(&mut polled, Some(&Timespec::default())).is_ok()
            && polled[0].revents().intersects(left)
    }

    fn answer(&mut self, answer: &Answer) {
        self.send(answer);
        self.state = if let Answer::LetGo = answer { State::Holding } else { State::Answered };
    }

    fn answer_line(&mut self, line: Vec<u8>) {
        self.state = State::Answered;
        self.since = Instant::now();
        self.give_time_for(line.len());
        self.outbox.push(line);
    }

    fn send(&mut self, answer: &Answer) {
        self.answer_line(line(answer));
        self.state = State::Waiting;
    }

    /// Sends as much as it takes.
    fn flush(&mut self) -> io::Result<()> {
        self.outbox.flush(&mut self.stream)?;
        if self.outbox.is_empty() && matches!(self.state, State::Answered) {
            self.stream.shutdown(std::net::Shutdown::Write)?;
        }
        Ok(())
    }

    /// Waits for its next action.
    fn listen_for_more(&mut self, ready: &OwnedFd) -> io::Result<()> {
        let events = match &self.state {
            _ if !self.outbox.is_empty() => epoll::EventFlags::IN | epoll::EventFlags::OUT,
            // It sends nothing more; that it is gone shows without a question.
            State::Waiting => epoll::EventFlags::empty(),
            _ => epoll::EventFlags::IN,
        };
        if events != self.events {
            epoll::modify(ready, &self.stream, epoll::EventData::new_u64(0), events)?;
            self.events = events;
        }
        Ok(())
    }
}

/// `answer` as a line.
pub(crate) fn line(answer: &Answer) -> Vec<u8> {
    let refused = |error| {
        serde_json::to_vec(&Answer::Refused(format!("it cannot say its answer: {error}")))
            .unwrap_or_default()
    };
    let mut line = serde_json::to_vec(answer).unwrap_or_else(refused);
    line.push(b'\n');
    line
}

/// The task for a request, or the answer to an invalid one.
fn begin(Received { request, text }: Received) -> Result<Task, Answer> {
    if let Request::RestoreSets { first, may_exist, text } = request {
        return Ok(Task::Restore(Restore::new(text, first, may_exist)));
    }
    let Request::Batch { options, name, names, .. } = request else {
        return Ok(Task::Whole(request));
    };
    match CommandLine::parse(&options) {
        Ok(line) => {
            let names = names.map(|text| Arc::new(ClassNames::parse(&text)));
            Ok(Task::Batch(Batch::new(text, &name, Options { names, ..line.options })))
        }
        Err(outcome) => Err(outcome.into()),
    }
}

/// Reads on. Returns the request when it is complete, and a refusal if it never will be.
fn hear(
    stream: &mut UnixStream,
    inbox: &mut Inbox,
) -> io::Result<Result<Option<Received>, Answer>> {
    let mut buffer = [0; READ_AT_ONCE];
    match stream.read(&mut buffer) {
        Ok(read) => Ok(inbox.take(&buffer[..read], read == 0)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Ok(None)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Ok(None)),
        Err(error) => Err(error),
    }
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
