//! Releases the ports while a command runs.
//!
//! A driver that shares its rings with AF_XDP refuses to rebuild them: a new number of queues,
//! another MTU. So the ports are released, the command runs, and they are joined again with the
//! same policy. In between packets pass as if this process were gone: over the bridge, unshaped, or
//! not at all with `--fail-closed`.
//!
//! The pause must not outlast the command, even if the client crashes. So it ends with the client's
//! connection, which the kernel closes when the client dies, and at a time limit.

use crate::clock;
use crate::control::{ANSWER_TIME, Answer, Client, ControlError, Request, Turn, receive};
use crate::instance::Instance;
use narrows_units::Nanos;
use std::io::{self, BufReader};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long the client may take to read that the ports are joined.
const TELLING_TIME: Duration = Duration::from_millis(100);

/// The ports are released for a client: the instance's side.
pub(crate) struct Pause {
    /// Readable when the command is over, or its connection is.
    stream: UnixStream,
    began: Nanos,
    end: Nanos,
}

impl Pause {
    /// A pause that began at `began` for the client at the other end of `stream`.
    pub(crate) fn new(stream: UnixStream, began: Nanos, limit: Nanos) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, began, end: began + limit })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// When it is over at the latest.
    pub(crate) fn end(&self) -> Nanos {
        self.end
    }

    /// Whether it is over: the other end has sent anything, or is gone, or time is up.
    pub(crate) fn is_over(&self) -> bool {
        let waits = matches!(
            io::Read::read(&mut &self.stream, &mut [0]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock
        );
        !waits || clock::now() >= self.end
    }

    /// Joins the ports again and reports it.
    pub(crate) fn finish(self, instance: &mut Instance) {
        let late = clock::now() >= self.end;
        let joined = instance.join_again();
        let apart_ms = (clock::now() - self.began).0 / 1_000_000;
        instance.say(format!(
            "ports were released for {apart_ms} ms{}",
            if late { ", to the end of the time limit" } else { "" }
        ));
        let (mode, waiting_for) = match joined {
            Ok(mode) => (Some(mode), None),
            Err(reason) => (None, Some(reason)),
        };
        let answer = Answer::Joined { mode, waiting_for, apart_ms, late };
        let told = self
            .stream
            .set_nonblocking(false)
            .and_then(|()| Turn::begin(&self.stream, TELLING_TIME).send(&answer));
        if let Err(error) = told {
            log::debug!("the client is gone before the ports are joined: {error}");
        }
    }
}

/// Makes the instance release its ports, does `work`, and makes it join them again. Returns the
/// result of `work`, and the instance's last answer.
///
/// # Errors
/// If the instance does not release the ports; then `work` is not done. If the instance is gone
/// afterwards, the last answer is missing.
pub fn while_let_go<T>(
    client: &Client,
    why: String,
    limit: Duration,
    work: impl FnOnce() -> T,
) -> Result<(T, Result<Answer, ControlError>), ControlError> {
    let stream = client.connect()?;
    let broken = |source| client.broken(source);
    let hear = || {
        let mut lines = BufReader::new(Turn::begin(&stream, ANSWER_TIME));
        loop {
            match receive(&mut lines) {
                // Something else has to be done before.
                Ok(Answer::Working { .. }) => {}
                heard => return heard,
            }
        }
    };
    let request = Request::LetGo { why, limit_s: limit.as_secs() };
    Turn::begin(&stream, ANSWER_TIME).send(&request).map_err(broken)?;
    match hear().map_err(broken)? {
        Answer::LetGo => {}
        Answer::Refused(reason) => return Err(broken(io::Error::other(reason))),
        other => return Err(broken(io::Error::other(format!("it answers {other:?}")))),
    }
    let result = work();
    // It fails if the time limit has passed; the answer is there all the same.
    let _ = Turn::begin(&stream, ANSWER_TIME).send(&"done");
    Ok((result, hear().map_err(broken)))
}
