//! Where every frame of one direction went in one epoch.
//!
//! Frames that were sent and did not arrive are missing. Counters explain most of them, exactly,
//! because an epoch starts and ends at rest: Narrows' drops by reason, over all lives of the
//! process within the epoch; drops of devices on the way that had no room; and drops of the
//! receiver's socket, which are the harness's own loss.
//!
//! *Losses without a count* are only accepted if a fault can cause them. A process that is killed
//! takes its rings, its queues and its last counts with it, and a device that is down or changed
//! discards the frames in its rings. For this the fault names the span of time in which the frames
//! that it destroyed were sent, and at most as many frames as are missing from that span are
//! attributed to it. All others are unaccounted for. So a fault explains no loss of frames sent
//! before or after it, and without a fault only counters explain losses.
//!
//! *An excess is as wrong as a loss.* A frame that was counted as dropped and arrived is
//! unaccounted for, too. There is one exception, in the kernel: a `veth` without an XDP program
//! counts frames for which it has no room on both of its ends ([`Books::twice`]).

use super::span::Span;
use super::traffic::Traffic;
use serde::Serialize;
use std::collections::BTreeMap;

/// Frames that Narrows counted as dropped, by reason.
pub(super) type Drops = BTreeMap<String, u64>;

/// The counters of one direction in one epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// Narrows's drops.
    pub(super) narrows: Drops,
    /// The sender's device had no room, or no carrier.
    pub(super) sender_device: u64,
    /// The shaper's device dropped it on the way in.
    pub(super) into_shaper: u64,
    /// The shaper's device dropped it on the way out.
    pub(super) out_of_shaper: u64,
    /// It went to the kernel of the box.
    pub(super) to_box: u64,
    /// The receiver's device got it and its socket did not.
    pub(super) receiver_socket: u64,
}

/// A fault's share of the losses without a count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Destroyed {
    /// The cause, as in the table.
    pub(super) by: &'static str,
    /// When such frames were sent.
    pub(super) sent: Span,
}

/// Where the frames went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Books {
    /// Frames handed to the sender's device.
    pub(super) sent: u64,
    /// Frames that arrived.
    pub(super) received: u64,
    /// Frames that did not, by reason.
    pub(super) lost: BTreeMap<String, u64>,
    /// Frames whose loss both ends of a cable counted.
    pub(super) twice: u64,
    /// Unaccounted frames: missing ones and excess ones.
    pub(super) unaccounted: u64,
}

/// Balances the counts. `bypassed` says whether there was a time without an XDP program.
pub(super) fn close(
    traffic: &Traffic,
    counted: &Counted,
    destroyed: &[Destroyed],
    bypassed: bool,
) -> Books {
    let mut lost = BTreeMap::new();
    let narrows = counted.narrows.iter().map(|(reason, n)| (format!("narrows: {reason}"), *n));
    let others = [
        ("sender's device", counted.sender_device),
        ("device into the shaper", counted.into_shaper),
        ("device out of the shaper", counted.out_of_shaper),
        ("for the box itself", counted.to_box),
        ("receiver's socket (harness)", counted.receiver_socket),
    ];
    let all = narrows.chain(others.map(|(reason, n)| (reason.to_owned(), n)));
    lost.extend(all.filter(|(_, n)| *n > 0));
    let explained: u64 = lost.values().sum();
    let missing = traffic.missing.len() as u64;
    let mut open = missing.saturating_sub(explained);
    let mut used: Vec<Span> = Vec::new();
    for Destroyed { by, sent } in destroyed {
        // A frame is destroyed once: one attributed to an earlier fault does not count for this
        // one.
        let before = traffic.missing_within(&used);
        used.push(*sent);
        let here = open.min(traffic.missing_within(&used) - before);
        open -= here;
        if here > 0 {
            *lost.entry((*by).to_owned()).or_default() += here;
        }
    }
    let surplus = explained.saturating_sub(missing);
    let counted_twice = counted.sender_device.min(counted.into_shaper);
    let twice = if bypassed { surplus.min(counted_twice) } else { 0 };
    Books {
        sent: traffic.sent,
        received: traffic.received.len() as u64,
        lost,
        twice,
        unaccounted: open + (surplus - twice) + traffic.strays,
    }
}

impl Books {
    /// Adds those of another epoch.
    pub(super) fn merge(&mut self, other: &Self) {
        self.sent += other.sent;
        self.received += other.received;
        for (reason, n) in &other.lost {
            *self.lost.entry(reason.clone()).or_default() += n;
        }
        self.twice += other.twice;
        self.unaccounted += other.unaccounted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::traffic::tests::{arrival, log};
    use narrows_units::Nanos;

    /// 100 frames, one a millisecond, without those at `lost`.
    fn without(lost: &[u64]) -> Traffic {
        let arrived = (0..100).filter(|i| !lost.contains(i)).map(arrival);
        Traffic::of(&[log(100)], &arrived.collect::<Vec<_>>())
    }

    fn killed(from: u64, to: u64) -> Destroyed {
        let sent = Span::new(Nanos::from_millis(from), Nanos::from_millis(to));
        Destroyed { by: "with the process", sent }
    }

    fn limit(frames: u64) -> Counted {
        Counted { narrows: Drops::from([("limit".to_owned(), frames)]), ..Counted::default() }
    }

    #[test]
    fn counters_explain_missing_frames() {
        let counted = Counted { sender_device: 1, into_shaper: 1, ..limit(2) };
        let books = close(&without(&[1, 2, 3, 4]), &counted, &[], false);
        assert_eq!((books.sent, books.received, books.unaccounted), (100, 96, 0));
        assert_eq!(books.lost["narrows: limit"], 2);
    }

    #[test]
    fn a_frame_that_no_counter_saw_is_unaccounted() {
        assert_eq!(close(&without(&[7]), &limit(0), &[], false).unaccounted, 1);
        assert_eq!(close(&without(&[7, 8]), &limit(1), &[], false).unaccounted, 1);
    }

    #[test]
    fn a_fault_explains_only_frames_sent_in_its_span() {
        let books = close(&without(&[20, 21, 22, 60]), &limit(0), &[killed(15, 25)], false);
        assert_eq!((books.lost["with the process"], books.unaccounted), (3, 1));
    }

    #[test]
    fn counters_come_before_faults() {
        let books = close(&without(&[20, 21, 60]), &limit(2), &[killed(15, 25)], false);
        assert_eq!((books.lost["with the process"], books.unaccounted), (1, 0));
    }

    #[test]
    fn two_faults_do_not_explain_one_frame_twice() {
        let faults = [killed(15, 25), killed(20, 30)];
        let books = close(&without(&[20, 21, 60]), &limit(0), &faults, false);
        assert_eq!((books.lost["with the process"], books.unaccounted), (2, 1));
    }

    #[test]
    fn a_drop_that_was_counted_and_arrived_is_unaccounted() {
        assert_eq!(close(&without(&[]), &limit(3), &[], false).unaccounted, 3);
        assert_eq!(close(&without(&[]), &limit(3), &[killed(0, 99)], true).unaccounted, 3);
    }

    #[test]
    fn a_cable_may_count_on_both_ends_only_without_a_program() {
        let both = Counted { sender_device: 2, into_shaper: 2, ..Counted::default() };
        let traffic = without(&[5, 6]);
        assert_eq!(close(&traffic, &both, &[], true).unaccounted, 0);
        assert_eq!(close(&traffic, &both, &[], true).twice, 2);
        assert_eq!(close(&traffic, &both, &[], false).unaccounted, 2);
    }

    #[test]
    fn a_stray_is_unaccounted() {
        let mut late = arrival(3);
        late.mark.seq = 5;
        let arrivals: Vec<_> = (0..100).map(arrival).chain([late]).collect();
        let traffic = Traffic::of(&[log(100)], &arrivals);
        assert_eq!(close(&traffic, &limit(0), &[], false).unaccounted, 1);
    }
}
