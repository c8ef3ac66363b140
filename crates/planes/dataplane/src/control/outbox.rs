//! What a client has not read yet.

use std::io::{self, Write};

/// The most that one client gets before the next one is served, in bytes.
const AT_ONCE: usize = 1 << 20;

/// The bytes of answers that a client has not read yet.
#[derive(Default)]
pub(super) struct Outbox {
    unsent: Vec<u8>,
    /// How much of it has been sent.
    sent: usize,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.unsent.is_empty()
    }

    /// How much is left, in bytes.
    pub(super) fn len(&self) -> usize {
        self.unsent.len() - self.sent
    }

    /// Adds `line`, which ends with a line break.
    pub(super) fn push(&mut self, line: Vec<u8>) {
        match self.unsent.is_empty() {
            true => self.unsent = line,
            false => self.unsent.extend_from_slice(&line),
        }
    }

    /// Writes as much as `to` takes, up to a bound.
    pub(super) fn flush(&mut self, to: &mut impl Write) -> io::Result<()> {
        let end = self.sent + AT_ONCE;
        while self.sent < end && self.sent < self.unsent.len() {
            match to.write(&self.unsent[self.sent..]) {
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.sent == self.unsent.len() {
            *self = Self::default();
        }
        Ok(())
    }
}
