//! The old process's part: starts the new process, talks to it while packets flow, and hands over.

use super::stage::Stage;
use super::state::{Contents, FORMAT, Manifest};
use super::wire::{Channel, Kind, Message};
use serde::Deserialize;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a new process may take to introduce itself: at most the time to be loaded from disk.
const GREETING_TIME: Duration = Duration::from_secs(5);
/// How long it may take to prepare: the kernel verifies its programs, which takes long on a slow
/// processor, and maps memory. Packets flow meanwhile.
const PREPARING_TIME: Duration = Duration::from_secs(45);
/// How long the old process's workers may pause. Well below the time after which a worker counts as
/// silent; arrivals wait in the RX rings.
pub(super) const TAKING_TIME: Duration = Duration::from_millis(350);
/// How long the old process may take to send its messages.
const SAYING_TIME: Duration = Duration::from_secs(1);

/// The argument that makes a process take over from the one that starts it.
const TAKE_OVER: &str = "--take-over";

/// How this process was started, to start another one like it.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    binary: PathBuf,
    arguments: Vec<OsString>,
}

impl Origin {
    /// The launch of this process. Must be read at its start: a binary that is replaced on disk no
    /// longer has a path.
    pub(crate) fn of_this_process() -> io::Result<Self> {
        let arguments = std::env::args_os().skip(1).filter(|word| word != TAKE_OVER).collect();
        Ok(Self { binary: std::env::current_exe()?, arguments })
    }
}

/// The new process's first message.
#[derive(Debug, serde::Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) format: u32,
    pub(super) version: String,
}

/// An upgrade that is under way.
pub(crate) struct Upgrade {
    new_process: Child,
    channel: Channel,
    stage: Stage,
    until: Instant,
    version: String,
}

/// The result of waiting for the new process.
pub(crate) enum Outcome {
    /// It needs more time.
    Wait,
    /// It asks for the manifest.
    Asks,
    /// It is ready to take over.
    Ready,
}

impl Upgrade {
    /// Starts the new process: `binary`, or the present file at this process's path, with the
    /// arguments of this process.
    pub(crate) fn start(origin: &Origin, binary: Option<&Path>) -> Result<Self, String> {
        let binary = binary.unwrap_or(&origin.binary);
        let failed = |error| format!("cannot start {}: {error}", binary.display());
        let (channel, its_end) = Channel::pair().map_err(failed)?;
        let new_process = Command::new(binary)
            .args(&origin.arguments)
            .arg(TAKE_OVER)
            // The new process is another process; with this variable it would ignore the watchdog.
            .env_remove("WATCHDOG_PID")
            .stdin(Stdio::from(OwnedFd::from(its_end)))
            .spawn()
            .map_err(failed)?;
        let until = Instant::now() + GREETING_TIME;
        let version = String::new();
        Ok(Self { new_process, channel, stage: Stage::Greeting, until, version })
    }

    /// What to wait on for the new process.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// The id of the new process.
    pub(crate) fn pid(&self) -> u32 {
        self.new_process.id()
    }

    /// The version of the new process, once received.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// The new process's latest message.
    ///
    /// # Errors
    /// If the upgrade has failed, and why.
    pub(crate) fn proceed(&mut self) -> Result<Outcome, String> {
        let message = match self.channel.poll() {
            Ok(Some(message)) => message,
            Ok(None) if Instant::now() < self.until => return Ok(Outcome::Wait),
            Ok(None) => return Err(self.late()),
            Err(error) => return Err(self.broken(&error)),
        };
        match (self.stage, message.kind) {
            (Stage::Greeting, Kind::Hello) => {
                let hello: Hello = serde_json::from_slice(&message.bytes)
                    .map_err(|error| format!("the new binary sent an invalid message: {error}"))?;
                if hello.format != FORMAT {
                    return Err(format!(
                        "narrows {} takes over in format {}, this is format {FORMAT}: \
                         restart instead",
                        hello.version, hello.format
                    ));
                }
                self.version = hello.version;
                Ok(Outcome::Asks)
            }
            (Stage::Preparing, Kind::Prepared) => Ok(Outcome::Ready),
            _ => Err(refusal(&message)),
        }
    }

    /// Sends the manifest to the new process.
    pub(crate) fn offer(
        &mut self,
        manifest: &Manifest,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), String> {
        let bytes = serde_json::to_vec(manifest).map_err(|error| error.to_string())?;
        self.stage = Stage::Preparing;
        self.until = Instant::now() + PREPARING_TIME;
        let sent = self.channel.send(Kind::Manifest, &bytes, descriptors, SAYING_TIME);
        sent.map_err(|error| self.broken(&error))
    }

    /// Hands over the state of the workers, which have paused `since` then. After success this
    /// process may touch nothing more.
    pub(crate) fn hand_over(&mut self, contents: &Contents, since: Instant) -> Result<(), String> {
        self.stage = Stage::Taking;
        self.until = since + TAKING_TIME;
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        let sent = self.channel.send(Kind::Contents, &contents.write(), &[], left(self.until));
        sent.map_err(|error| self.broken(&error))?;
        let answer = self.channel.receive(left(self.until));
        let answer = answer.map_err(|error| self.broken(&error))?;
        if answer.kind != Kind::Ready {
            return Err(refusal(&answer));
        }
        let sent = self.channel.send(Kind::Go, &[], &[], SAYING_TIME);
        sent.map_err(|error| self.broken(&error))
    }

    /// Ends the new process, which must not take over.
    pub(crate) fn give_up(mut self) {
        // It may have ended on its own.
        let _ = self.new_process.kill();
        let _ = self.new_process.wait();
    }

    fn late(&self) -> String {
        format!("the new binary took too long {}", self.stage)
    }

    /// Why the new process sends nothing more.
    fn broken(&mut self, error: &io::Error) -> String {
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => self.late(),
            io::ErrorKind::InvalidData => {
                format!("the new binary is not a compatible narrows: {error}")
            }
            _ => {
                // It has closed its end: it ends, or has ended.
                std::thread::sleep(Duration::from_millis(10));
                match self.new_process.try_wait() {
                    Ok(Some(status)) => format!(
                        "the new binary ended ({status}) {}; its log says why",
                        match self.stage {
                            Stage::Greeting => "before it introduced itself",
                            Stage::Preparing => "while it was getting ready",
                            Stage::Taking => "while it was taking over",
                        }
                    ),
                    _ => format!("the new binary closed the connection {}: {error}", self.stage),
                }
            }
        }
    }
}

fn refusal(message: &Message) -> String {
    match message.kind {
        Kind::Refused => {
            format!("the new binary cannot take over: {}", String::from_utf8_lossy(&message.bytes))
        }
        other => format!("the new binary sent an unexpected {other:?}"),
    }
}
