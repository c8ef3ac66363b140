//! The frames of a trace, sent at its times.
//!
//! Each has its own headers and length, and the addresses of the link. A sender that comes late, as
//! after another program had its core, sends at once what is due, so trains can be tighter than in
//! the trace and never looser on average.

use crate::background::Background;
use crate::namespace::Namespace;
use crate::raw::{Offer, RawSocket};
use anyhow::Result;
use narrows_trace::{Frame, Trace};
use narrows_units::Rate;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The longest frame of a link without jumbo frames, in bytes.
const LONGEST: usize = 1_514;
/// The shortest sleep: the kernel rounds up to about that.
const NAP: Duration = Duration::from_micros(60);
/// How often a sleeping sender looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(10);

/// A trace to send once.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// What.
    pub trace: Arc<Trace>,
    /// At which mean rate: times are stretched or compressed to it.
    pub load: Rate,
    /// To whom, and from whom.
    pub macs: [[u8; 6]; 2],
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames that did not fit into the device's or the socket's room.
    pub lost: u64,
}

/// A replay under way. Ends when dropped.
#[derive(Debug)]
pub struct Running(Background<Sent>);

impl Replayed {
    /// Starts to send on `device` in `namespace`.
    pub fn start(self, namespace: &Namespace, device: &str) -> Result<Running> {
        let socket = RawSocket::open(namespace, device)?;
        Ok(Running(Background::start("replay", move |end| self.send(&socket, end))?))
    }

    /// How long it takes.
    pub fn length(&self) -> Duration {
        Duration::from_nanos(self.trace.length_at(self.load).0)
    }

    fn send(&self, socket: &RawSocket, end: &AtomicBool) -> Result<Sent> {
        let length = self.trace.length_at(self.load);
        let mut bytes = [0; LONGEST];
        let mut sent = Sent::default();
        let began = Instant::now();
        for frame in self.trace.frames() {
            let due = began + Duration::from_nanos(self.trace.at_length(frame, length).0);
            loop {
                if end.load(Ordering::Relaxed) {
                    return Ok(sent);
                }
                let left = due.saturating_duration_since(Instant::now());
                if left < NAP {
                    break;
                }
                thread::sleep(left.min(LOOK));
            }
            let frame = fill(&mut bytes, &self.trace, frame, self.macs);
            match socket.offer(frame)? {
                Offer::Taken => {
                    sent.frames += 1;
                    sent.bytes += frame.len() as u64;
                }
                Offer::Lost | Offer::NoRoom => sent.lost += 1,
            }
        }
        Ok(sent)
    }
}

/// `frame` as it is sent, from `trace`, between `macs`.
fn fill<'a>(
    bytes: &'a mut [u8; LONGEST],
    trace: &Trace,
    frame: &Frame,
    [to, from]: [[u8; 6]; 2],
) -> &'a [u8] {
    let len = (frame.len as usize).min(LONGEST);
    let first = trace.first_bytes(frame);
    let known = first.len().min(len);
    bytes[..known].copy_from_slice(&first[..known]);
    bytes[known..len].fill(0);
    bytes[..6].copy_from_slice(&to);
    bytes[6..12].copy_from_slice(&from);
    &bytes[..len]
}

impl Running {
    /// Ends it, sent or not, and returns what was sent.
    pub fn stop(self) -> Result<Sent> {
        self.0.stop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_trace::Bursty;
    use narrows_units::Nanos;

    #[test]
    fn a_frame_has_its_own_headers_and_length_and_the_link_s_addresses() {
        let rate = Rate::from_bits_per_sec(50_000_000);
        let trace = Trace::bursty(Bursty { rate, length: Nanos::from_millis(200), seed: 1 });
        let trace = trace.unwrap();
        let mut bytes = [0xff; LONGEST];
        let frame = &trace.frames()[0];
        let sent = fill(&mut bytes, &trace, frame, [[1; 6], [2; 6]]);
        assert_eq!(
            (sent.len(), &sent[..12]),
            (frame.len as usize, &[1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2][..])
        );
        assert_eq!(sent[12..54], trace.first_bytes(frame)[12..54]);
        assert!(sent[54..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_load_says_how_long_it_takes() {
        let rate = Rate::from_bits_per_sec(50_000_000);
        let trace = Trace::bursty(Bursty { rate, length: Nanos::from_millis(200), seed: 1 });
        let trace = Arc::new(trace.unwrap());
        let replayed =
            Replayed { load: trace.rate(), trace: Arc::clone(&trace), macs: [[0; 6]; 2] };
        let twice = Rate::from_bits_per_sec(trace.rate().bits_per_sec() * 2);
        let half = Replayed { load: twice, ..replayed.clone() };
        let off = replayed.length().as_secs_f64() / (trace.length().0 as f64 / 1e9);
        assert!((off - 1.0).abs() < 1e-6, "{off}");
        assert!(
            (half.length().as_secs_f64() * 2.0 / replayed.length().as_secs_f64() - 1.0).abs()
                < 1e-6
        );
    }
}
