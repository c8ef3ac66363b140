//! A message in one direction of a conversation, with a limit on the time that it takes.

use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long a command waits for the answer to a question, and for progress with anything else. The
/// instance answers within a second.
pub const ANSWER_TIME: Duration = Duration::from_secs(10);
/// The longest answer, in bytes: a list of some million members of sets.
const ANSWER_MAX: u64 = 256 << 20;
/// The most bytes between a message and its line break. There are none.
const REST_MAX: u64 = 16;

/// Reads a message and its line break. It is not held as text: that of many classes is longer than
/// what is made of it.
pub(crate) fn receive<T: for<'de> Deserialize<'de>>(
    lines: &mut BufReader<Turn<'_>>,
) -> io::Result<T> {
    let mut line = lines.take(ANSWER_MAX);
    let message = T::deserialize(&mut serde_json::Deserializer::from_reader(&mut line))?;
    let mut rest = Vec::new();
    line.take(REST_MAX).read_until(b'\n', &mut rest)?;
    match rest.trim_ascii().is_empty() {
        true => Ok(message),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// A transfer that waits for the other side for a limited time, however slowly that writes or
/// reads. The time between two parts, in which this side works on one, does not count.
pub struct Turn<'a> {
    stream: &'a UnixStream,
    /// How long it may still wait.
    left: Duration,
}

impl<'a> Turn<'a> {
    /// A transfer over `stream` that waits for up to `time`.
    pub fn begin(stream: &'a UnixStream, time: Duration) -> Self {
        Self { stream, left: time }
    }

    /// The other side has shown that it goes on: it has `time` again.
    pub(crate) fn renew(&mut self, time: Duration) {
        self.left = time;
    }

    /// Sends `message` as a line of JSON.
    ///
    /// # Errors
    /// If the other side does not take it in time, or is gone.
    pub fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.send_all(&line)
    }

    /// Sends `bytes`. The time begins again with each part that is taken.
    pub(crate) fn send_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let time = self.left;
        for part in bytes.chunks(1 << 20) {
            self.left = time;
            self.write_all(part)?;
        }
        Ok(())
    }

    /// Does `part` of the transfer, which waits for no longer than it is told.
    fn wait<T>(
        &mut self,
        part: impl FnOnce(&UnixStream, Option<Duration>) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let began = Instant::now();
        let done = part(self.stream, Some(self.left));
        self.left = self.left.saturating_sub(began.elapsed());
        done
    }
}

impl Read for Turn<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.wait(|mut stream, time| {
            stream.set_read_timeout(time)?;
            stream.read(into)
        })
    }
}

impl Write for Turn<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.wait(|mut stream, time| {
            stream.set_write_timeout(time)?;
            stream.write(from)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
