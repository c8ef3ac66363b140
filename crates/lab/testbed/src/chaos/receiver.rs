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
    /// The last byte of the MAC address to which it came.
    pub(super) hop: u8,
}

/// What came to an end.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard {
    pub(super) arrivals: Vec<Arrival>,
    /// How many other IP packets came: what the kernel of a router says.
    pub(super) others: u64,
}

impl Heard {
    /// With what came to another device of the same end, in the order of arrival.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.arrivals.extend(other.arrivals);
        self.arrivals.sort_by_key(|arrival| arrival.at);
        Self { others: self.others + other.others, ..self }
    }
}

/// A receiver under way. Ends when dropped.
#[derive(Debug)]
pub(super) struct Receiver(Background<Heard>);

impl Receiver {
    /// Listens at `end`.
    pub(super) fn start(end: End<'_>) -> Result<Self> {
        let listener = Listener::open(end)?;
        let receiver = Background::start("chaos receiver", move |end| {
            let mut heard = Heard { arrivals: Vec::with_capacity(1 << 16), others: 0 };
            listener.read_until::<SHORTEST>(end, |frame, at| match Mark::read(frame) {
                Some(mark) => heard.arrivals.push(Arrival { mark, at, hop: frame[5] }),
                None => heard.others += 1,
            })?;
            Ok(heard)
        })?;
        Ok(Self(receiver))
    }

    /// Reads what has arrived and ends.
    pub(super) fn stop(self) -> Result<Heard> {
        self.0.stop()
    }
}
