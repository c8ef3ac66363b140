//! All open-loop traffic of one queue, in the order of time.

use crate::traffic::lane::Lane;
use crate::traffic::replay::Replay;
use crate::traffic::{Offer, Source};
use narrows_units::Nanos;

/// What a group sends on one queue.
pub(crate) enum Stream {
    /// Generated.
    Lane(Box<Lane>),
    /// As it was captured.
    Replay(Replay),
}

impl Stream {
    fn next_at(&self) -> Nanos {
        match self {
            Self::Lane(lane) => lane.next_at(),
            Self::Replay(replay) => replay.next_at(),
        }
    }

    fn take(&mut self) -> Option<Offer> {
        match self {
            Self::Lane(lane) => lane.take(),
            Self::Replay(replay) => replay.take(),
        }
    }
}

/// The groups that send on one queue; where two send at the same time, the first in the
/// set-up is first.
pub(crate) struct Merge {
    streams: Vec<Stream>,
    next: usize,
    next_at: Nanos,
}

impl Merge {
    /// Of these.
    pub(crate) fn new(streams: Vec<Stream>) -> Self {
        let mut merge = Self { streams, next: 0, next_at: Nanos::MAX };
        merge.look();
        merge
    }

    fn look(&mut self) {
        let times = self.streams.iter().map(Stream::next_at).enumerate();
        (self.next, self.next_at) = times.min_by_key(|&(_, at)| at).unwrap_or((0, Nanos::MAX));
    }
}

impl Source for Merge {
    fn next_at(&self) -> Nanos {
        self.next_at
    }

    fn take(&mut self) -> Offer {
        let offer = self.streams.get_mut(self.next).and_then(Stream::take);
        self.look();
        offer.expect("taken only where next_at() says that a packet comes")
    }
}
