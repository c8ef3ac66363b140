//! One flow with packets: its queue and its turn. One cache line.

use crate::flow_table::{Chained, NONE};
use crate::lengths::{Measured, Neighbours, UNLISTED};
use crate::rotation::{Link, Linked};
use narrows_packet::{Fifo, PacketId, Packets};

/// A packet's weight in [`Lengths`](crate::lengths::Lengths): lists are exact up to eight packets.
const WEIGHT: u64 = 4;

/// A flow.
#[repr(align(64))]
pub(super) struct Flow {
    /// Its packets.
    pub(super) queue: Fifo,
    /// Bytes that it may still send in its turn.
    pub(super) allot: i64,
    key: u32,
    chain: u32,
    link: Link,
    neighbours: Neighbours,
    class: u8,
}

impl Flow {
    /// A new one, which may send `quantum` bytes.
    pub(super) const fn new(key: u32, quantum: u32) -> Self {
        Self {
            queue: Fifo::new(),
            allot: quantum as i64,
            key,
            chain: NONE,
            link: Link::END,
            neighbours: Neighbours::NONE,
            class: UNLISTED,
        }
    }

    /// Takes out the first packet, or else the last.
    pub(super) fn drop_one(&mut self, packets: &mut Packets, first: bool) -> Option<PacketId> {
        let mut before = None;
        if !first {
            let mut at = self.queue.front()?;
            while let Some(behind) = self.queue.behind(packets, at) {
                before = Some(at);
                at = behind;
            }
        }
        self.queue.remove_behind(packets, before)
    }
}

impl Chained for Flow {
    #[inline]
    fn key(&self) -> u32 {
        self.key
    }

    #[inline]
    fn chain(&self) -> u32 {
        self.chain
    }

    fn chain_mut(&mut self) -> &mut u32 {
        &mut self.chain
    }
}

impl Linked for Flow {
    #[inline]
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Measured for Flow {
    /// In packets.
    #[inline]
    fn length(&self) -> u64 {
        u64::from(self.queue.backlog().packets) * WEIGHT
    }

    #[inline]
    fn class(&mut self) -> &mut u8 {
        &mut self.class
    }

    #[inline]
    fn neighbours(&mut self) -> &mut Neighbours {
        &mut self.neighbours
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_units::Nanos;

    #[test]
    fn a_flow_fits_a_cache_line() {
        assert_eq!(size_of::<Flow>(), 64);
    }

    #[test]
    fn the_first_packet_is_dropped_or_the_last() {
        let mut packets = Packets::new(4);
        let mut flow = Flow::new(0, 1514);
        for id in 0..4 {
            packets.arrive(PacketId(id), 100, Nanos::ZERO);
            flow.queue.push_back(&mut packets, PacketId(id));
        }
        let dropped =
            [true, false, false, false, false].map(|first| flow.drop_one(&mut packets, first));
        assert_eq!(
            dropped,
            [Some(PacketId(0)), Some(PacketId(3)), Some(PacketId(2)), Some(PacketId(1)), None]
        );
    }
}
