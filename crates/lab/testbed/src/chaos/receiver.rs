//! Notes every frame that arrives at an end, with the time at which the kernel received it.

use super::frame::{Mark, SHORTEST};
use crate::background::Background;
use crate::bed::End;
use crate::listen::Listener;
use anyhow::Result;
use narrows_units::Nanos;

/// A frame that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) mark: Mark,
    pub(super) at: Nanos,
}

/// A receiver under way. Ends when dropped.
#[derive(Debug)]
pub(super) struct Receiver(Background<Vec<Arrival>>);

impl Receiver {
    /// Listens at `end`.
    pub(super) fn start(end: End<'_>) -> Result<Self> {
        let listener = Listener::open(end)?;
        let receiver = Background::start("chaos receiver", move |end| {
            let mut arrivals = Vec::with_capacity(1 << 16);
            listener.read_until::<SHORTEST>(end, |frame, at| {
                arrivals.extend(Mark::read(frame).map(|mark| Arrival { mark, at }));
            })?;
            Ok(arrivals)
        })?;
        Ok(Self(receiver))
    }

    /// Reads what has arrived and ends.
    pub(super) fn stop(self) -> Result<Vec<Arrival>> {
        self.0.stop()
    }
}
