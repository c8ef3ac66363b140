//! What arrives of each leaf at the far end.

use super::load::Event;
use super::provider::{self, LEAVES, TELLING};
use crate::background::Background;
use crate::bed::Testbed;
use crate::cpu;
use crate::listen::Listener;
use anyhow::Result;
use narrows_units::Nanos;

/// A receiver under way. Ends when dropped.
#[derive(Debug)]
pub(super) struct Receiver(Background<Vec<Event>>);

impl Receiver {
    /// Listens at the server of `bed`.
    pub(super) fn start(bed: &Testbed) -> Result<Self> {
        let [_, server] = bed.ends();
        let listener = Listener::open(server)?;
        let receiver = Background::start("tree receiver", move |end| {
            cpu::prefer_this_thread()?;
            let mut arrivals = Vec::with_capacity(1 << 16);
            listener.read_until::<TELLING>(end, |frame, at| {
                let leaf = provider::leaf_of(frame);
                arrivals.extend(leaf.map(|leaf| Event { at, leaf: leaf as u8 }));
            })?;
            Ok(arrivals)
        })?;
        Ok(Self(receiver))
    }

    /// Reads what has arrived and ends.
    pub(super) fn stop(self) -> Result<Vec<Event>> {
        self.0.stop()
    }
}

/// The rate of the `frames` of each leaf between two times, in bits per second.
pub(super) fn rates(frames: &[Event], from: Nanos, to: Nanos) -> [f64; LEAVES] {
    let mut bytes = [0; LEAVES];
    for frame in frames.iter().filter(|frame| (from..to).contains(&frame.at)) {
        let leaf = usize::from(frame.leaf);
        bytes[leaf] += provider::frame_bytes(leaf);
    }
    let seconds = (to - from).as_secs_f64();
    bytes.map(|bytes| bytes as f64 * 8.0 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_of_the_whole_frames_of_a_leaf_within_its_span() {
        let millis = Nanos::from_millis;
        // A call of 200 bytes every millisecond, and a frame of another leaf.
        let calls = (0..1000).map(|n| Event { at: millis(n), leaf: 3 });
        let frames: Vec<Event> = calls.chain([Event { at: millis(150), leaf: 5 }]).collect();
        let rates = rates(&frames, millis(100), millis(300));
        assert_eq!(rates[3], 200.0 * 8.0 * 1000.0);
        assert_eq!((rates[5], rates[0]), (1514.0 * 8.0 * 5.0, 0.0));
    }
}
