//! A generator that sends at a bounded rate, regardless of the receiver.
//!
//! It [paces](crate::pace) in small bursts: due frames are sent, then the thread sleeps briefly.

use crate::background::Background;
use crate::cpu;
use crate::namespace::Namespace;
use crate::pace::{Credit, NAP};
use crate::raw::{BATCH, BUFFER, RawSocket};
use anyhow::{Context, Result};
use nix::unistd::{Pid, gettid};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

pub use crate::pace::Pace;

/// The frames to send, in a cycle.
#[derive(Clone, Debug)]
pub struct Flood {
    /// One frame per flow. At least one.
    pub frames: Vec<Vec<u8>>,
    /// How fast.
    pub pace: Pace,
    /// When to end, unless it is stopped earlier.
    pub limit: Duration,
    /// The core to stay on, if any.
    pub core: Option<usize>,
}

/// The frames that were sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    /// Frames that the kernel took.
    pub packets: u64,
}

/// A flood under way. Ends when dropped.
#[derive(Debug)]
pub struct Running {
    id: Pid,
    sender: Background<Sent>,
}

impl Flood {
    /// Starts to send on `device` in `namespace`.
    pub fn start(self, namespace: &Namespace, device: &str) -> Result<Running> {
        self.start_with_room(namespace, device, BUFFER)
    }

    /// As [`Self::start`], with `room` bytes for what the forwarder has not yet taken.
    pub fn start_with_room(
        self,
        namespace: &Namespace,
        device: &str,
        room: usize,
    ) -> Result<Running> {
        anyhow::ensure!(!self.frames.is_empty(), "a flood needs at least one frame to send");
        let socket = RawSocket::open_with_room(namespace, device, room)?;
        let (say, id) = mpsc::channel();
        let sender = Background::start("flood", move |end| {
            // The receiver is only gone if the start has failed.
            let _ = say.send(gettid());
            self.send(socket, end)
        })?;
        let id = id.recv().context("the generator did not start")?;
        Ok(Running { id, sender })
    }

    fn send(&self, socket: RawSocket, end: &AtomicBool) -> Result<Sent> {
        if let Some(core) = self.core {
            cpu::pin_this_thread(core)?;
        }
        let per_second = self.pace.frames_per_second(&self.frames);
        // The frames twice in a row, so that a batch that starts anywhere in the first round is one
        // slice.
        let ring: Vec<&[u8]> =
            self.frames.iter().cycle().take(self.frames.len() + BATCH).map(Vec::as_slice).collect();
        let mut next = 0;
        let mut credit = Credit::new(per_second);
        let mut sent = Sent::default();
        let start = Instant::now();
        while !end.load(Ordering::Relaxed) {
            let elapsed = start.elapsed();
            if elapsed >= self.limit {
                break;
            }
            let due = credit.due(elapsed).min(BATCH);
            let taken = socket.send(&ring[next..next + due])?;
            next = (next + taken) % self.frames.len();
            credit.spend(taken);
            sent.packets += taken as u64;
            if taken < BATCH && per_second.is_some() {
                thread::sleep(NAP);
            }
        }
        Ok(sent)
    }
}

impl Running {
    /// The run time of its thread, including the softirqs that it caused.
    pub fn cpu(&self) -> Result<Duration> {
        cpu::of_thread(self.id)
    }

    /// Ends it and returns the frames sent.
    pub fn stop(self) -> Result<Sent> {
        self.sender.stop()
    }
}
