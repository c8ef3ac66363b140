//! One thread that sends for all leaves, at the rates of one phase after the other.

use super::phase::Phase;
use super::provider::{self, LEAVES};
use crate::background::Background;
use crate::bed::{CLIENT, Testbed};
use crate::cpu;
use crate::pace::{Credit, NAP};
use crate::probe;
use crate::raw::{BATCH, RawSocket};
use anyhow::{Context, Result};
use narrows_units::Nanos;
use nix::unistd::{Pid, gettid};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The frames to send.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) phases: Vec<Phase>,
    /// How long each of them takes.
    pub(super) length: Duration,
}

/// A frame that was sent, or that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) at: Nanos,
    pub(super) leaf: u8,
}

/// The frames that were sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    /// When the first phase began.
    pub(super) began: Nanos,
    /// The frames that the kernel took, in their order.
    pub(super) frames: Vec<Event>,
}

/// A load under way. Ends when dropped.
#[derive(Debug)]
pub(super) struct Running {
    id: Pid,
    sender: Background<Sent>,
}

/// The time by the clock with which the kernel stamps arrivals.
fn now() -> Result<Nanos> {
    Ok(Nanos(u64::try_from(probe::now()?.as_nanos())?))
}

impl Load {
    /// Starts to send from the client of `bed`.
    pub(super) fn start(self, bed: &Testbed) -> Result<Running> {
        let socket = RawSocket::open(bed.client(), CLIENT)?;
        let frames = (0..LEAVES).map(provider::frames).collect::<Result<Vec<_>>>()?;
        let (say, id) = mpsc::channel();
        let sender = Background::start("tree sender", move |end| {
            // The receiver is gone only if the start has failed.
            let _ = say.send(gettid());
            cpu::prefer_this_thread()?;
            self.send(&socket, &frames, end)
        })?;
        let id = id.recv().context("the sender did not start")?;
        Ok(Running { id, sender })
    }

    fn send(&self, socket: &RawSocket, frames: &[Vec<Vec<u8>>], end: &AtomicBool) -> Result<Sent> {
        let (start, began) = (Instant::now(), now()?);
        let mut sent = Sent { began, frames: Vec::new() };
        let mut flows = [0; LEAVES];
        // So that a full device does not always drop the same flow's frames.
        let mut first = 0;
        for (number, phase) in (0..).zip(&self.phases) {
            let begins = self.length * number;
            let mut credits = (0..LEAVES).map(|leaf| credit(phase, leaf)).collect::<Vec<_>>();
            loop {
                let elapsed = start.elapsed().saturating_sub(begins);
                if end.load(Ordering::Relaxed) {
                    return Ok(sent);
                }
                if elapsed >= self.length {
                    break;
                }
                let mut batch: Vec<(usize, &[u8])> = Vec::with_capacity(BATCH);
                for leaf in (0..LEAVES).map(|leaf| (leaf + first) % LEAVES) {
                    let due = credits[leaf].due(elapsed).min(BATCH - batch.len());
                    let of_leaf = &frames[leaf];
                    let due = (0..due).map(|n| &of_leaf[(flows[leaf] + n) % of_leaf.len()][..]);
                    batch.extend(due.map(|frame| (leaf, frame)));
                }
                let slices: Vec<&[u8]> = batch.iter().map(|(_, frame)| *frame).collect();
                let at = now()?;
                let taken = if slices.is_empty() { 0 } else { socket.send(&slices)? };
                for (leaf, _) in &batch[..taken] {
                    credits[*leaf].spend(1);
                    flows[*leaf] += 1;
                    sent.frames.push(Event { at, leaf: *leaf as u8 });
                }
                first = (first + 1) % LEAVES;
                if taken < BATCH {
                    thread::sleep(NAP);
                }
            }
        }
        Ok(sent)
    }

    pub(super) fn total(&self) -> Duration {
        self.length * self.phases.len() as u32
    }
}

fn credit(phase: &Phase, leaf: usize) -> Credit {
    let bits = provider::frame_bytes(leaf) as f64 * 8.0;
    Credit::new(Some(phase.asked(leaf) / bits))
}

impl Running {
    /// Time that its thread has run for, with the softirqs that it set off.
    pub(super) fn cpu(&self) -> Result<Duration> {
        cpu::of_thread(self.id)
    }

    /// Ends it and returns the frames sent.
    pub(super) fn stop(self) -> Result<Sent> {
        self.sender.stop()
    }
}
