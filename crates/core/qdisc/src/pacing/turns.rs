//! Turns: at most two frames leave together to one destination, even with equal departure times.
//!
//! Slots separate the packets of one connection, because their times differ. They cannot separate
//! connections that share a destination, each with times of its own: those that started together
//! keep equal times, in slots of any length. So if a packet that is about to leave would be too
//! much for its destination, it is *postponed* by as many slots as it takes, and leaves then
//! without another check. Slots are no longer than a full packet takes at the total rate, and each
//! has room for two, so no packet waits for long unless the total is faster than that.
//!
//! *No overtaking.* A packet behind a postponed packet to the same destination is postponed to the
//! same slot or to a later one, even if in the meantime another bucket decides about it, or none;
//! and if a slot is over already, behind everything that was due when a packet was postponed to it.
//!
//! Source: D. Shan et al. (ToN 2025), section IV.B (at most two MTU of a flow together; its flow is
//! a pair of hosts) and IV.E. The paper relies on slots for it.
//!
//! Cost: one line per packet, at departure.

use crate::DESTINATIONS;
use narrows_units::{Bytes, Nanos};

/// Frames that may leave together.
const FRAMES: u64 = 2;

/// What may leave within a slot's time.
#[derive(Clone, Copy, Default)]
struct Window {
    begin: Nanos,
    /// The bytes that leave in it.
    bytes: u64,
}

impl Window {
    /// When a packet of `len` bytes leaves, at `at` or later, if at most `most` bytes may leave
    /// within `length`.
    #[inline]
    fn take(&mut self, at: Nanos, len: u64, length: Nanos, most: u64) -> Nanos {
        let end = self.begin.0.saturating_add(length.0);
        if at.0 >= end {
            *self = Self { begin: at, bytes: len };
            return at;
        }
        self.bytes += len;
        if self.bytes > most {
            // A slot, so that others leave at the same time.
            let mask = length.0 - 1;
            *self = Self { begin: Nanos(end.saturating_add(mask) & !mask), bytes: len };
        }
        at.max(self.begin)
    }
}

/// Postponed packets that later ones must stay behind.
#[derive(Clone, Copy, Default)]
struct Behind {
    /// When the last postponed packet leaves.
    at: Nanos,
    /// The time until which others might overtake it.
    until: Nanos,
}

/// The group within which packets are spaced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    /// Which bucket it is.
    pub(super) bucket: usize,
    /// The spacing of its packets, as a power of two of nanoseconds.
    pub(super) spacing: u8,
}

/// The departures of each bucket.
pub(super) struct Turns {
    windows: Box<[Window]>,
    /// By bucket of destinations.
    behind: Box<[Behind]>,
    /// The latest time until which any packet must stay behind others.
    any_until: Nanos,
    /// Bytes that may leave together.
    most: u64,
}

impl Turns {
    /// For frames of up to `frame` bytes and `buckets` buckets, of which the first are
    /// destinations.
    pub(super) fn new(frame: Bytes, buckets: usize) -> Self {
        Self {
            windows: vec![Window::default(); buckets].into_boxed_slice(),
            behind: vec![Behind::default(); DESTINATIONS].into_boxed_slice(),
            any_until: Nanos::ZERO,
            most: frame.0 * FRAMES,
        }
    }

    /// Keeps packets behind those that `before` has postponed.
    pub(super) fn follow(&mut self, before: Self) {
        (self.behind, self.any_until) = (before.behind, before.any_until);
    }

    /// A packet of `len` bytes to the destination `own`, which was not postponed yet, is about to
    /// leave with the slot `slot`; `group` is its group for spacing, if any. Returns when it
    /// leaves, if it must wait.
    #[inline]
    pub(super) fn postpone(
        &mut self,
        own: usize,
        group: Option<Group>,
        slot: Nanos,
        len: Bytes,
        now: Nanos,
    ) -> Option<Nanos> {
        let behind = self.behind(own, slot);
        let mut at = behind.unwrap_or(slot);
        if let Some(Group { bucket, spacing }) = group {
            let length = Nanos(1_u64 << spacing.min(63));
            at = self.windows[bucket].take(at, len.0, length, self.most);
        }
        if at == slot && behind.is_none() {
            return None;
        }
        let until = at.max(now);
        self.behind[own] = Behind { at, until };
        self.any_until = self.any_until.max(until);
        Some(at)
    }

    /// When a packet to the destination `own` with the slot `slot` leaves at the earliest, where it
    /// has to stay behind others.
    #[inline]
    pub(super) fn behind(&self, own: usize, slot: Nanos) -> Option<Nanos> {
        if slot > self.any_until {
            return None;
        }
        let Behind { at, until } = self.behind[own];
        (slot <= until).then_some(at.max(slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const FRAME: Bytes = Bytes(1500);
    const GROUP: Group = Group { bucket: 3, spacing: 10 };

    #[test]
    fn a_third_frame_goes_into_the_next_slot() {
        let mut turns = Turns::new(FRAME, 5);
        let leave =
            |turns: &mut Turns, at| turns.postpone(3, Some(GROUP), Nanos(at), FRAME, Nanos(at));
        assert_eq!(leave(&mut turns, 1024), None);
        assert_eq!(leave(&mut turns, 1024), None);
        assert_eq!(leave(&mut turns, 1024), Some(Nanos(2048)));
        assert_eq!(leave(&mut turns, 1024), Some(Nanos(2048)));
        assert_eq!(leave(&mut turns, 2048), Some(Nanos(3072)), "that is full");
        assert_eq!(leave(&mut turns, 4096), None);
    }

    #[test]
    fn departures_between_slots_have_the_same_room() {
        let mut turns = Turns::new(FRAME, 5);
        let leave =
            |turns: &mut Turns, at| turns.postpone(3, Some(GROUP), Nanos(at), FRAME, Nanos(at));
        assert_eq!(leave(&mut turns, 5000), None);
        assert_eq!(leave(&mut turns, 6000), None);
        assert_eq!(leave(&mut turns, 6020), Some(Nanos(6144)));
    }

    #[test]
    fn packets_stay_in_order_when_spacing_ends() {
        let mut turns = Turns::new(FRAME, 5);
        for expected in [None, None, Some(Nanos(2048))] {
            assert_eq!(turns.postpone(3, Some(GROUP), Nanos(1024), FRAME, Nanos(1024)), expected);
        }
        assert_eq!(turns.postpone(4, None, Nanos(1500), FRAME, Nanos(1500)), None);
        assert_eq!(turns.postpone(3, None, Nanos(1500), FRAME, Nanos(1500)), Some(Nanos(2048)));
        assert_eq!(turns.postpone(3, None, Nanos(2049), FRAME, Nanos(2049)), None);
    }

    proptest! {
        /// Packets ask in the order of their slots. Each is asked for once.
        #[test]
        fn at_most_two_frames_leave_together_and_none_overtakes(
            mut packets in prop::collection::vec(
                (0u64..50_000, 0usize..3, prop::option::of(3usize..5), 64u64..1501),
                1..300,
            ),
            spacing in 0u8..12,
        ) {
            packets.sort_by_key(|(slot, ..)| *slot);
            let mut turns = Turns::new(FRAME, 5);
            let mut together: BTreeMap<(usize, Nanos), u64> = BTreeMap::new();
            let mut last = [Nanos::ZERO; 3];
            for (slot, own, bucket, len) in packets {
                let slot = Nanos(slot);
                let group = bucket.map(|bucket| Group { bucket, spacing });
                let postponed = turns.postpone(own, group, slot, Bytes(len), slot);
                let leaves = postponed.unwrap_or(slot);
                prop_assert!(leaves >= slot && leaves >= last[own]);
                last[own] = leaves;
                if let Some(bucket) = bucket {
                    let bytes = together.entry((bucket, leaves)).or_default();
                    *bytes += len;
                    prop_assert!(*bytes <= 3000);
                }
            }
        }
    }
}
