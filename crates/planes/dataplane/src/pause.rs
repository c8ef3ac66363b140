//! Releases the ports while a command runs.
//!
//! A driver that shares its rings with AF_XDP refuses to rebuild them: a new number of queues,
//! another MTU. So the ports are released, the command runs, and they are joined again with the
//! same policy. In between packets pass as if this process were gone: over the bridge, unshaped, or
//! not at all with `--fail-closed`.
//!
//! The pause must not outlast the command, even if the client crashes. So it ends with the client's
//! connection, which the kernel closes when the client dies, and at a time limit. The client's side
//! is [`narrows_control::while_let_go`].

use crate::clock;
use crate::instance::Instance;
use narrows_control::{Answer, Turn};
use narrows_units::Nanos;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long the client may take to read that the ports are joined.
const TELLING_TIME: Duration = Duration::from_millis(100);

/// The ports are released for a client.
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
        let sent = self
            .stream
            .set_nonblocking(false)
            .and_then(|()| Turn::begin(&self.stream, TELLING_TIME).send(&answer));
        if let Err(error) = sent {
            log::debug!("the client is gone before the ports are joined: {error}");
        }
    }
}
