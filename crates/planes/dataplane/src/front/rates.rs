//! The rates of members of sets, as a worker's filters look them up.

use narrows_classify::MemberRates;
use narrows_packet::PaceId;
use narrows_sets::{RateBoard, RateReader};
use std::sync::Arc;

/// A worker's view of the rates that sets have.
pub(crate) struct SetRates(RateReader);

impl SetRates {
    /// Those that `board` shows.
    pub(crate) fn of(board: &Arc<RateBoard>) -> Box<Self> {
        Box::new(Self(RateReader::new(Arc::clone(board))))
    }
}

impl MemberRates for SetRates {
    fn follow(&mut self) {
        self.0.refresh();
    }

    fn rate_of(&self, name: &str, address: u128, is_v6: bool) -> Option<PaceId> {
        self.0.find(name, address, is_v6)
    }
}
