//! The new process's part: identifies itself, prepares, and takes over when the old process says
//! so.

use super::old_process::{Hello, TAKING_TIME};
use super::state::{Contents, FORMAT, Manifest};
use super::wire::{Channel, Kind, Message};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long the old process may take to send the manifest, and then to pause.
const TIMEOUT: Duration = Duration::from_secs(10);

/// This process, while it takes over from another.
pub(crate) struct NewProcess {
    channel: Channel,
}

impl NewProcess {
    /// Introduces this binary and receives the manifest, over the connection that it got as
    /// standard input.
    pub(crate) fn greet(version: &str) -> Result<(Self, Manifest, Vec<OwnedFd>), String> {
        let stream = rustix::stdio::stdin().try_clone_to_owned();
        let is_socket = |fd: &OwnedFd| rustix::net::getsockname(fd.as_fd()).is_ok();
        let stream = stream.ok().filter(is_socket).ok_or(
            "--take-over is for `narrows upgrade`, which starts the new binary with it itself",
        )?;
        // The old process no longer reads; the connection ends with the channel.
        let nothing = std::fs::File::open("/dev/null").map_err(|error| error.to_string())?;
        rustix::stdio::dup2_stdin(nothing).map_err(|error| error.to_string())?;
        let mut new_process = Self { channel: Channel::new(UnixStream::from(stream)) };
        let hello = Hello { format: FORMAT, version: version.to_owned() };
        let hello = serde_json::to_vec(&hello).map_err(|error| error.to_string())?;
        new_process.say(Kind::Hello, &hello)?;
        let message = new_process.hear(Kind::Manifest, TIMEOUT)?;
        let manifest = serde_json::from_slice(&message.bytes).map_err(|error| error.to_string())?;
        Ok((new_process, manifest, message.descriptors))
    }

    /// Reports that this process is prepared, and receives the contents of the paused old process.
    pub(crate) fn ask(&mut self) -> Result<Contents, String> {
        self.say(Kind::Prepared, &[])?;
        let message = self.hear(Kind::Contents, TIMEOUT)?;
        Contents::read(&message.bytes).map_err(|error| error.to_string())
    }

    /// Reports that everything is queued, and waits until this process is the owner.
    pub(crate) fn take_over(mut self) -> Result<(), String> {
        self.say(Kind::Ready, &[])?;
        self.hear(Kind::Go, TAKING_TIME).map(drop)
    }

    /// Reports why this process cannot take over.
    pub(crate) fn refuse(&self, reason: &str) {
        // An old process that no longer listens has given up already.
        let _ = self.channel.send(Kind::Refused, reason.as_bytes(), &[], TAKING_TIME);
    }

    fn say(&self, kind: Kind, bytes: &[u8]) -> Result<(), String> {
        self.channel.send(kind, bytes, &[], TIMEOUT).map_err(|error| gone(&error))
    }

    fn hear(&mut self, kind: Kind, time: Duration) -> Result<Message, String> {
        let message = self.channel.receive(time).map_err(|error| gone(&error))?;
        if message.kind == kind {
            return Ok(message);
        }
        Err(format!("the running process sent an unexpected {:?}", message.kind))
    }
}

fn gone(error: &io::Error) -> String {
    format!("the running process does not hand over: {error}")
}
