//! Packet traces: when which frame of which flow came, as somebody captured it, or as published
//! distributions have it.
//!
//! *Idea.* A trace is a list of frames in the order of time, each with its flow and its first
//! bytes. The simulator takes times, lengths and flows; what sends real frames takes the bytes as
//! well. It comes from a capture file ([`Trace::read`]) or from a model of bursty traffic
//! ([`Trace::bursty`]).
//!
//! *Principles.* No byte of a file is trusted: lengths are those that a wire can carry, frames are
//! bounded, time never goes back. What a file says and a trace cannot have is counted.
//!
//! *Non-goals.* Payloads; captures of anything but Ethernet and IP; answers to what is lost (a
//! replayed connection does not slow down).

mod bursty;
mod capture;
mod sizes;

pub use bursty::{Bursty, BurstyError};
pub use capture::CaptureError;
pub use sizes::Sizes;

use narrows_packet::Headers;
use narrows_packet::dissect::Dissector;
use narrows_units::{Bytes, Nanos, Rate};
use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The most frames of a trace.
pub const FRAMES_MAX: usize = 4_000_000;
/// Bytes that are kept of a frame: its headers.
const KEPT: usize = 96;
/// The shortest frame on a wire, without its check sequence.
const SHORTEST: u32 = 60;
/// A longer one was joined on the way to who captured it, from frames of [`FULL`] bytes.
const LONGEST: u32 = 9_216;
/// A full Ethernet frame.
const FULL: u32 = 1_514;
/// The longest that a header says: a packet whose length has 16 bits.
const JOINED: u32 = 65_549;

/// A frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// When it came, after the first one.
    pub at: Nanos,
    /// Its flow: an index of [`Trace::flows`].
    pub flow: u32,
    /// Its length in bytes, 60 to 9,216.
    pub len: u32,
    /// Where its first bytes are.
    start: u32,
    kept: u32,
}

/// A trace: at least two frames, over some time.
#[derive(Clone, PartialEq, Eq)]
pub struct Trace {
    frames: Vec<Frame>,
    flows: Vec<Headers>,
    bytes: Vec<u8>,
    remarks: Remarks,
}

/// What a trace has otherwise than its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Remarks {
    /// Frames that were captured joined, and are as many full ones here.
    pub split: u64,
    /// Frames whose time was before that of another one, which they now have.
    pub late: u64,
}

impl Trace {
    /// In the order of time.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// By flow, the headers of its first frame.
    pub fn flows(&self) -> &[Headers] {
        &self.flows
    }

    /// The first bytes of `frame`, which is one of this trace, from its Ethernet header on.
    pub fn first_bytes(&self, frame: &Frame) -> &[u8] {
        let start = frame.start as usize;
        self.bytes.get(start..start + frame.kept as usize).unwrap_or_default()
    }

    /// What it has otherwise than its file.
    pub fn remarks(&self) -> Remarks {
        self.remarks
    }

    /// How long it takes from the first frame until one more could come: at the mean interval after
    /// the last.
    pub fn length(&self) -> Nanos {
        let last = self.frames.last().map_or(0, |frame| frame.at.0);
        Nanos(last + last / (self.frames.len() as u64 - 1).max(1))
    }

    /// How long it takes at a mean rate of `load`. [`Nanos::MAX`] where it never ends.
    pub fn length_at(&self, load: Rate) -> Nanos {
        let bits = u128::from(self.bytes().0) * 8 * 1_000_000_000;
        let nanos = bits.checked_div(load.bits_per_sec().into());
        nanos.and_then(|nanos| u64::try_from(nanos).ok()).map_or(Nanos::MAX, Nanos)
    }

    /// When `frame` comes if all of it takes `length`.
    pub fn at_length(&self, frame: &Frame, length: Nanos) -> Nanos {
        let at = u128::from(frame.at.0) * u128::from(length.0);
        Nanos((at / u128::from(self.length().0.max(1))) as u64)
    }

    /// All bytes of its frames.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.frames.iter().map(|frame| u64::from(frame.len)).sum())
    }

    /// Its mean rate.
    pub fn rate(&self) -> Rate {
        let bits = u128::from(self.bytes().0) * 8 * 1_000_000_000;
        Rate::from_bits_per_sec((bits / u128::from(self.length().0.max(1))) as u64)
    }
}

/// A digest of its frames, of which there may be millions: two traces that differ look different.
impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digest = DefaultHasher::new();
        for Frame { at, flow, len, .. } in &self.frames {
            (at.0, flow, len).hash(&mut digest);
        }
        self.bytes.hash(&mut digest);
        f.debug_struct("Trace")
            .field("frames", &self.frames.len())
            .field("flows", &self.flows.len())
            .field("digest", &digest.finish())
            .field("remarks", &self.remarks)
            .finish_non_exhaustive()
    }
}

/// A trace that grows frame by frame.
struct Builder {
    trace: Trace,
    dissector: Dissector,
    /// By hashes of the flow and both hosts.
    numbers: HashMap<(u32, u32, u32), u32>,
    /// The time of the first frame.
    first: Option<Nanos>,
}

impl Builder {
    fn new() -> Self {
        let (frames, flows, bytes) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            trace: Trace { frames, flows, bytes, remarks: Remarks::default() },
            // The same on each machine.
            dissector: Dissector::new(0),
            numbers: HashMap::new(),
            first: None,
        }
    }

    /// A frame of `len` bytes came at `at`, which began with `bytes`. Returns whether there was
    /// room for it.
    fn add(&mut self, at: Nanos, len: u32, bytes: &[u8]) -> bool {
        let headers = self.dissector.headers(bytes, false);
        let Self { trace: Trace { frames, flows, bytes: all, remarks }, numbers, first, .. } = self;
        let after = at.since(*first.get_or_insert(at));
        let last = frames.last().map_or(Nanos::ZERO, |frame| frame.at);
        remarks.late += u64::from(after < last || at < first.unwrap_or_default());
        let at = after.max(last);
        let flow = (headers.flow, headers.source, headers.destination);
        let flow = *numbers.entry(flow).or_insert_with(|| {
            flows.push(headers);
            flows.len() as u32 - 1
        });
        let kept = &bytes[..bytes.len().min(KEPT)];
        let start = all.len() as u32;
        all.extend_from_slice(kept);
        let mut add = |len: u32| {
            let kept = (kept.len() as u32).min(len);
            frames.push(Frame { at, flow, len: len.max(SHORTEST), start, kept });
        };
        if len <= LONGEST {
            add(len);
        } else {
            remarks.split += 1;
            let len = len.min(JOINED);
            for _ in 0..len / FULL {
                add(FULL);
            }
            if !len.is_multiple_of(FULL) {
                add(len % FULL);
            }
        }
        frames.len() <= FRAMES_MAX
    }

    /// The trace, if it is one: of frames at different times.
    fn finish(self) -> Option<Trace> {
        let takes_time = self.trace.frames.last().is_some_and(|last| last.at > Nanos::ZERO);
        takes_time.then_some(self.trace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(port: u8) -> [u8; 60] {
        let mut bytes = [0; 60];
        bytes[12..14].copy_from_slice(&[0x08, 0x00]);
        bytes[14..18].copy_from_slice(&[0x45, 0, 0, 46]);
        bytes[23] = 17;
        bytes[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        bytes[35] = port;
        bytes
    }

    #[test]
    fn frames_of_one_flow_are_known_by_their_headers() {
        let mut builder = Builder::new();
        for (number, port) in [1, 2, 1].into_iter().enumerate() {
            assert!(builder.add(Nanos(100 + number as u64 * 50), 100, &frame(port)));
        }
        let trace = builder.finish().unwrap();
        let flows: Vec<u32> = trace.frames().iter().map(|frame| frame.flow).collect();
        assert_eq!((flows, trace.flows().len()), (vec![0, 1, 0], 2));
        assert_eq!(trace.first_bytes(&trace.frames()[1]), frame(2));
        assert_eq!((trace.length(), trace.bytes()), (Nanos(150), Bytes(300)));
        let rate = Rate::from_bits_per_sec(16_000_000_000);
        assert_eq!((trace.rate(), trace.length_at(rate)), (rate, trace.length()));
        let slower = trace.length_at(Rate::from_bits_per_sec(8_000_000_000));
        assert_eq!(slower, Nanos(300));
        assert_eq!(trace.at_length(&trace.frames()[2], slower), Nanos(200));
        assert_eq!(trace.length_at(Rate::default()), Nanos::MAX);
    }

    #[test]
    fn a_joined_frame_is_split_and_a_late_one_comes_with_the_one_before() {
        let mut builder = Builder::new();
        builder.add(Nanos(500), 40, &frame(1));
        builder.add(Nanos(900), 65_226, &frame(1));
        builder.add(Nanos(700), 60, &frame(1));
        builder.add(Nanos(100), 60, &frame(1));
        let trace = builder.finish().unwrap();
        assert_eq!(trace.remarks(), Remarks { split: 1, late: 2 });
        let lens: Vec<u32> = trace.frames().iter().map(|frame| frame.len).collect();
        assert_eq!(lens.len(), 1 + 44 + 2);
        assert_eq!((lens[0], lens[1], lens[44], lens[45]), (60, 1_514, 124, 60));
        assert!(trace.frames().is_sorted_by_key(|frame| frame.at));
        assert_eq!(trace.length().0, 400 + 400 / 46);
    }

    #[test]
    fn frames_at_one_time_are_no_trace() {
        let mut builder = Builder::new();
        builder.add(Nanos(5), 60, &frame(1));
        builder.add(Nanos(5), 60, &frame(1));
        assert_eq!(builder.finish(), None);
    }
}
