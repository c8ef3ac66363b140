//! Sends numbered frames at a steady pace and notes when each was handed to the kernel.

use super::frame::{self, Mark, Path, Way};
use super::rng::Rng;
use crate::background::Background;
use crate::bed::Testbed;
use crate::pace::{Credit, NAP, Pace};
use crate::probe;
use crate::raw::{Offer, RawSocket};
use anyhow::{Result, ensure};
use narrows_units::Nanos;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Flows of a stream.
pub(super) const FLOWS: u16 = 32;
/// How long a sender continues if nothing stops it.
const LIMIT: Duration = Duration::from_secs(60);

/// A frame that was handed to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    /// When, by the clock that arrivals are stamped with.
    pub(super) at: Nanos,
    /// Its flow.
    pub(super) flow: u16,
    /// Its length.
    pub(super) bytes: u16,
}

/// All that a stream sent: the frame with number `first + i` is `sent[i]`.
#[derive(Clone, Debug)]
pub(super) struct Log {
    pub(super) stream: u8,
    pub(super) way: Way,
    /// Whether its flows must keep their order.
    pub(super) keeps_order: bool,
    pub(super) first: u64,
    pub(super) sent: Vec<Sent>,
}

impl Log {
    /// The frame with number `seq`.
    pub(super) fn get(&self, seq: u64) -> Option<&Sent> {
        self.sent.get(usize::try_from(seq.checked_sub(self.first)?).ok()?)
    }
}

/// The frames to send.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    /// Tells the senders of one run apart.
    pub(super) number: u8,
    pub(super) way: Way,
    /// Frame lengths that the flows take in turn.
    pub(super) lengths: Vec<usize>,
    pub(super) pace: Pace,
    /// Every frame comes from another address.
    pub(super) scatter: bool,
    /// The number of the first frame.
    pub(super) first: u64,
}

/// A sender under way. Ends when dropped.
#[derive(Debug)]
pub(super) struct Running(Background<Log>);

impl Running {
    /// Ends it and returns what it has sent.
    pub(super) fn stop(self) -> Result<Log> {
        self.0.stop()
    }
}

/// The time by the clock of the log and of arrivals.
pub(super) fn now() -> Result<Nanos> {
    Ok(Nanos(u64::try_from(probe::now()?.as_nanos())?))
}

impl Stream {
    /// Starts to send at its end of `bed`, along `path`.
    pub(super) fn start(self, bed: &Testbed, path: Path) -> Result<Running> {
        ensure!(!self.lengths.is_empty(), "a stream needs a length");
        let end = bed.ends()[self.way.index()];
        let socket = RawSocket::open(end.namespace, end.device)?;
        let frames = (0..FLOWS)
            .map(|flow| {
                let length = self.lengths[usize::from(flow) % self.lengths.len()];
                Ok(Buffer { flow, bytes: frame::template(path, flow, length)? })
            })
            .collect::<Result<Vec<_>>>()?;
        Background::start("chaos sender", move |end| self.send(&socket, frames, end)).map(Running)
    }

    fn send(&self, socket: &RawSocket, mut frames: Vec<Buffer>, end: &AtomicBool) -> Result<Log> {
        let mut log = Log {
            stream: self.number,
            way: self.way,
            keeps_order: !self.scatter,
            first: self.first,
            sent: Vec::new(),
        };
        let mut credit = Credit::new(self.pace.frames_per_second(&frames));
        let mut rng = Rng::new(self.number.into());
        let start = Instant::now();
        while !end.load(Ordering::Relaxed) && start.elapsed() < LIMIT {
            // A flow has one buffer, so a batch has each flow once at most.
            let next = log.sent.len() % frames.len();
            if next == 0 {
                // In another order each round; otherwise a FIFO that overflows at an even pace
                // would drop only the frames of some flows.
                rng.shuffle(&mut frames);
            }
            let due = credit.due(start.elapsed()).min(frames.len() - next);
            let batch = &mut frames[next..next + due];
            for (seq, frame) in (self.first + log.sent.len() as u64..).zip(&mut *batch) {
                if self.scatter {
                    frame::set_source(&mut frame.bytes, seq as u32)?;
                }
                Mark { stream: self.number, flow: frame.flow, seq }.write(&mut frame.bytes);
            }
            let mut taken = 0;
            for frame in batch.iter() {
                let sent = Sent { at: now()?, flow: frame.flow, bytes: frame.bytes.len() as u16 };
                if socket.offer(&frame.bytes)? == Offer::NoRoom {
                    break;
                }
                // Frames that the device dropped count as sent: its counter has them.
                log.sent.push(sent);
                taken += 1;
            }
            credit.spend(taken);
            if taken < due || due < frames.len() - next {
                thread::sleep(NAP);
            }
        }
        Ok(log)
    }
}

/// The frame of a flow, with the number that it had last.
struct Buffer {
    flow: u16,
    bytes: Vec<u8>,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
