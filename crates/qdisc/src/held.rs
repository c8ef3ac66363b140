//! A packet that a parent has taken out of the qdisc below it and may not send yet.
//!
//! To the qdisc below it has been sent; seen from outside it is still queued there.

use crate::Stats;
use narrows_units::Bytes;

/// Makes `below`, the figures of the qdiscs that a held packet has passed, what they are seen from
/// outside, where the packet that is `held` is so long. `inherited` is the length of one that a
/// former qdisc had handed over: it was queued in the present one, which has not counted it.
pub(crate) fn restate(below: &mut [Stats], inherited: Option<Bytes>, held: Option<Bytes>) {
    for stats in below {
        if let Some(len) = inherited {
            stats.sent_packets += 1;
            stats.sent_bytes += len.0;
        }
        if let Some(len) = held {
            // One that came after the packet has sent nothing.
            stats.sent_packets = stats.sent_packets.saturating_sub(1);
            stats.sent_bytes = stats.sent_bytes.saturating_sub(len.0);
            stats.backlog.packets += 1;
            stats.backlog.bytes += len;
        }
    }
}
