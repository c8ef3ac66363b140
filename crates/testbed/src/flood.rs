//! A generator that sends at a bounded rate whatever the receiver makes of it.
//!
//! It paces in small bursts: what has fallen due is sent, then the thread sleeps a
//! little. Where the machine gave it no time for longer than 20 ms, what is due beyond that is
//! never made up for, so that a stall is not followed by a burst.

use crate::background::Background;
use crate::cpu;
use crate::namespace::Namespace;
use crate::raw::{BATCH, RawSocket};
use anyhow::{Context, Result};
use nix::unistd::{Pid, gettid};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Sleep between bursts: at a gigabit of full frames, about 16 of them.
const NAP: Duration = Duration::from_micros(200);
/// How much of a stall is made up for.
const MEMORY: Duration = Duration::from_millis(20);

/// How fast to send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Frames per second.
    Packets(f64),
    /// Bits per second of whole frames.
    Bits(f64),
    /// As fast as one core can.
    FlatOut,
}

/// What to send: the frames in turn, again and again.
#[derive(Clone, Debug)]
pub struct Flood {
    /// One frame per flow. At least one.
    pub frames: Vec<Vec<u8>>,
    /// How fast.
    pub pace: Pace,
    /// When to end, if nobody ends it earlier.
    pub limit: Duration,
    /// The core to stay on, if any.
    pub core: Option<usize>,
}

/// What was sent.
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
        anyhow::ensure!(!self.frames.is_empty(), "a flood needs at least one frame to send");
        let socket = RawSocket::open(namespace, device)?;
        let (say, id) = mpsc::channel();
        let sender = Background::start("flood", move |end| {
            // Nobody listens any more only if the start has failed.
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
        let bits: usize = self.frames.iter().map(|frame| frame.len() * 8).sum();
        let per_second = match self.pace {
            Pace::Packets(rate) => Some(rate),
            Pace::Bits(rate) => Some(rate * self.frames.len() as f64 / bits as f64),
            Pace::FlatOut => None,
        };
        // The frames twice in a row: a batch that starts anywhere in the first round
        // is one slice.
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

/// Frames that may be sent by now.
struct Credit {
    per_second: Option<f64>,
    frames: f64,
    at: Duration,
}

impl Credit {
    fn new(per_second: Option<f64>) -> Self {
        Self { per_second, frames: 0.0, at: Duration::ZERO }
    }

    fn due(&mut self, now: Duration) -> usize {
        let Some(per_second) = self.per_second else { return usize::MAX };
        self.frames += (now - self.at).as_secs_f64() * per_second;
        self.frames = self.frames.min(MEMORY.as_secs_f64() * per_second + 1.0);
        self.at = now;
        self.frames as usize
    }

    fn spend(&mut self, frames: usize) {
        self.frames -= frames as f64;
    }
}

impl Running {
    /// Time that its thread has run for, with the softirqs that it set off.
    pub fn cpu(&self) -> Result<Duration> {
        cpu::of_thread(self.id)
    }

    /// Ends it and says what was sent.
    pub fn stop(self) -> Result<Sent> {
        self.sender.stop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_grows_with_time_and_is_spent() {
        let mut credit = Credit::new(Some(10_000.0));
        assert_eq!(credit.due(Duration::from_millis(1)), 10);
        credit.spend(7);
        assert_eq!(credit.due(Duration::from_millis(2)), 13);
    }

    #[test]
    fn a_stall_is_not_followed_by_a_burst() {
        let mut credit = Credit::new(Some(10_000.0));
        assert_eq!(credit.due(Duration::from_secs(5)), 201);
    }

    #[test]
    fn flat_out_knows_no_credit() {
        assert_eq!(Credit::new(None).due(Duration::ZERO), usize::MAX);
    }
}
