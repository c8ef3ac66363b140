//! Signals as a pollable descriptor: to stop (SIGTERM, SIGINT), to read the policy file again
//! (SIGHUP), and that a child has ended (SIGCHLD).

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// A kind of request that arrives by signals.
pub(crate) struct Requests(UnixStream);

impl Requests {
    /// To stop.
    pub(crate) fn to_stop() -> io::Result<Self> {
        Self::by(&[SIGTERM, SIGINT])
    }

    /// To read the policy file again.
    pub(crate) fn to_reload() -> io::Result<Self> {
        Self::by(&[SIGHUP])
    }

    /// To see which children have ended.
    pub(crate) fn of_children() -> io::Result<Self> {
        Self::by(&[SIGCHLD])
    }

    fn by(signals: &[i32]) -> io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        for &signal in signals {
            signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
        }
        Ok(Self(reader))
    }

    /// Readable once a request has come.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Whether requests have come since the last call; several are one.
    pub(crate) fn take(&mut self) -> bool {
        let mut signals = [0; 64];
        let mut any = false;
        while matches!(self.0.read(&mut signals), Ok(1..)) {
            any = true;
        }
        any
    }
}
