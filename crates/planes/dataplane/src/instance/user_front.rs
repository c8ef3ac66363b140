//! A user's own program in front of a host's port: how its verdicts count.
//!
//! It is loaded before the instance starts, and stays as it is for the instance's life
//! ([`UserFront`](narrows_bpf::UserFront)).

use super::Instance;
use crate::counters::Counts;
use narrows_bpf::{Judged, Verdict};
use narrows_packet::DropReason;
use std::collections::BTreeMap;

impl Instance {
    /// What the program has said of frames.
    fn verdicts(&self) -> Vec<(Verdict, Judged)> {
        let verdicts = self.user_front.as_ref().and_then(|front| front.verdicts().ok());
        verdicts.unwrap_or_default()
    }

    /// Adds what the program has not passed: on which CPU is not told, it is told of the first.
    pub(super) fn add_verdicts(&self, counts: &mut Counts) {
        let Some(port) = counts.ports.first_mut().filter(|_| self.user_front.is_some()) else {
            return;
        };
        let queue = port.queue(0);
        for (verdict, Judged { packets, bytes }) in self.verdicts() {
            let dropped = match verdict {
                Verdict::Pass => continue,
                Verdict::Tx | Verdict::Redirect => None,
                Verdict::Drop => Some(DropReason::Front),
                Verdict::Aborted | Verdict::Invalid => Some(DropReason::FrontAborted),
            };
            queue.arrived.add(packets, bytes);
            queue.add_outward(packets, bytes, dropped);
        }
    }

    /// The verdicts that occurred, in the form of the snapshot.
    pub(super) fn shown_verdicts(&self) -> BTreeMap<String, u64> {
        let all = self.verdicts().into_iter();
        let occurred = all.filter(|(_, judged)| judged.packets > 0);
        occurred.map(|(verdict, judged)| (verdict.name().to_owned(), judged.packets)).collect()
    }
}
