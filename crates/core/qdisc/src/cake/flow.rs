//! One flow: its queue, its turn, its queue management. One cache line.

use super::cobalt::Cobalt;
use super::rotation::{Link, Linked};
use super::slab::NONE;
use narrows_packet::Fifo;

/// A flow's state in the rotation. States that another packet does not change come last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) enum Standing {
    /// It is new, and in no list.
    #[default]
    New,
    /// It has no packets and no debt: it is remembered.
    Idle,
    /// It was sparse and has used up its quantum with its last packet: it waits for its next turn
    /// with the others, and counts as sparse unless more packets arrive.
    SparseWait,
    /// It goes first: it has not yet used up its first quantum.
    Sparse,
    /// It takes turns with the other backlogged flows.
    Bulk,
}

/// A deficit is kept in 1/256 of a byte: a quantum shared by a thousand flows of one host is one or
/// two bytes.
pub(super) const DEFICIT_UNIT: i32 = 256;

/// A flow.
#[repr(align(64))]
pub(super) struct Flow {
    /// Its packets.
    pub(super) queue: Fifo,
    pub(super) link: Link,
    pub(super) cobalt: Cobalt,
    /// Its deficit: what it may still send in its turn, in 1/256 byte.
    pub(super) deficit: i32,
    /// Its hosts, where they matter.
    pub(super) source: u16,
    pub(super) destination: u16,
    /// Its place in the heap of the longest, while there is one.
    pub(super) heap: u16,
    /// The number of its host's flows: its weight is one part of this many.
    pub(super) load: u16,
    /// The way that refers to it, and in which tin.
    pub(super) home: Home,
    pub(super) standing: Standing,
    /// Whether siblings know of it.
    pub(super) published: bool,
}

/// A tin, and a way of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Home(u16);

impl Home {
    /// Bits of a way.
    const WAY: u32 = 10;

    #[inline]
    pub(super) const fn new(tin: usize, way: u16) -> Self {
        Self((tin as u16) << Self::WAY | way)
    }

    #[inline]
    pub(super) const fn tin(self) -> usize {
        (self.0 >> Self::WAY) as usize
    }

    #[inline]
    pub(super) const fn way(self) -> u16 {
        self.0 & ((1 << Self::WAY) - 1)
    }
}

impl Default for Flow {
    fn default() -> Self {
        Self {
            queue: Fifo::new(),
            link: Link::NOBODY,
            cobalt: Cobalt::new(),
            deficit: 0,
            source: NONE,
            destination: NONE,
            heap: NONE,
            load: 1,
            home: Home::default(),
            standing: Standing::New,
            published: false,
        }
    }
}

impl Linked for Flow {
    #[inline(always)]
    fn link(&self) -> Link {
        self.link
    }

    #[inline(always)]
    fn link_mut(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Flow {
    /// Whether it has no packets.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.front().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_fits_a_cache_line() {
        assert_eq!(size_of::<Flow>(), 64);
    }

    #[test]
    fn a_home_is_a_tin_and_a_way() {
        for (tin, way) in [(0, 0), (7, 1023), (3, 512)] {
            let home = Home::new(tin, way);
            assert_eq!((home.tin(), home.way()), (tin, way));
        }
    }
}
