//! Packets that count with another length than their frame's, for a qdisc with a size table.

use crate::PacketId;
use crate::packets::Bytes32;

/// One more than the lengths of frames whose packets count otherwise; 0 for the others. Empty until
/// a qdisc needs it.
#[derive(Default)]
pub(crate) struct Sizes(Box<[u32]>);

/// What was dropped and copied so far, by the lengths of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Turnover {
    /// Packets dropped,
    pub dropped: u64,
    /// and their bytes.
    pub dropped_bytes: u64,
    /// Bytes of copies.
    pub copied_bytes: u64,
}

impl std::ops::Sub for Turnover {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            dropped: self.dropped - before.dropped,
            dropped_bytes: self.dropped_bytes - before.dropped_bytes,
            copied_bytes: self.copied_bytes - before.copied_bytes,
        }
    }
}

impl Sizes {
    /// Makes room for `capacity` packets.
    pub(crate) fn prepare(&mut self, capacity: usize) {
        if self.0.is_empty() {
            self.0 = vec![0; capacity].into_boxed_slice();
        }
    }

    /// Remembers that the frame of `id` has `len` bytes, unless that is known.
    pub(crate) fn remember(&mut self, id: PacketId, len: Bytes32) {
        if let Some(frame) = self.0.get_mut(id.0 as usize)
            && *frame == 0
        {
            *frame = len.0.saturating_add(1);
        }
    }

    /// The length of `id`'s frame, if it counts otherwise.
    #[inline]
    pub(crate) fn frame(&self, id: PacketId) -> Option<Bytes32> {
        self.0.get(id.0 as usize)?.checked_sub(1).map(Bytes32)
    }

    /// The length of `id`'s frame, if it counts otherwise; from here on it counts as it is.
    pub(crate) fn forget(&mut self, id: PacketId) -> Option<Bytes32> {
        let frame = self.0.get_mut(id.0 as usize)?;
        std::mem::take(frame).checked_sub(1).map(Bytes32)
    }
}
