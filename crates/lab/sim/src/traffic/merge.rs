//! All open-loop traffic of one queue, in the order of time.

use crate::traffic::lane::Lane;
use crate::traffic::{Offer, Source};
use narrows_units::Nanos;

/// The groups that send on one queue; where two send at the same time, the first in the
/// set-up is first.
pub(crate) struct Merge {
    lanes: Vec<Lane>,
    next: usize,
    next_at: Nanos,
}

impl Merge {
    /// Of these.
    pub(crate) fn new(lanes: Vec<Lane>) -> Self {
        let mut merge = Self { lanes, next: 0, next_at: Nanos::MAX };
        merge.look();
        merge
    }

    fn look(&mut self) {
        let times = self.lanes.iter().map(Lane::next_at).enumerate();
        (self.next, self.next_at) = times.min_by_key(|&(_, at)| at).unwrap_or((0, Nanos::MAX));
    }
}

impl Source for Merge {
    fn next_at(&self) -> Nanos {
        self.next_at
    }

    fn take(&mut self) -> Offer {
        let offer = self.lanes.get_mut(self.next).and_then(Lane::take);
        self.look();
        offer.expect("taken only where next_at() says that a packet comes")
    }
}
