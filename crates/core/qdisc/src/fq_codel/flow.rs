//! One flow: its queue, its turn, its CoDel. Two cache lines, of which an arrival needs the first.

use crate::codel::Codel;
use crate::flow_table::{Chained, NONE};
use crate::lengths::{Measured, Neighbours, UNLISTED};
use crate::rotation::{Link, Linked};
use narrows_packet::Fifo;

/// The state of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// It has no packets, and no turn.
    Idle,
    /// Among the new flows.
    New,
    /// Among the old flows.
    Old,
}

/// A flow.
#[repr(C, align(64))]
pub(super) struct Flow {
    /// Its packets.
    pub(super) queue: Fifo,
    /// Bytes that it may still send in its turn.
    pub(super) deficit: i32,
    /// Its number.
    key: u32,
    /// The next flow in its bucket.
    chain: u32,
    link: Link,
    neighbours: Neighbours,
    /// Its list of [`Lengths`](crate::lengths::Lengths), if any.
    class: u8,
    pub(super) standing: Standing,
    /// For the second line.
    pub(super) codel: Codel,
}

impl Flow {
    /// A new one, without packets.
    pub(super) const fn new(key: u32) -> Self {
        Self {
            queue: Fifo::new(),
            deficit: 0,
            key,
            chain: NONE,
            link: Link::END,
            neighbours: Neighbours::NONE,
            class: UNLISTED,
            standing: Standing::Idle,
            codel: Codel::new(),
        }
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
    #[inline]
    fn length(&self) -> u64 {
        self.queue.backlog().bytes.0
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

    #[test]
    fn a_flow_fits_two_cache_lines_and_an_arrival_needs_one() {
        assert_eq!(size_of::<Flow>(), 128);
        assert!(std::mem::offset_of!(Flow, standing) < 64);
    }
}
