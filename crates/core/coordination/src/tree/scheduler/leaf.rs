//! A leaf class, as one queue sees it.

use super::calendar::Calendar;
use super::event::Event;
use super::wait_queue::WaitQueue;
use crate::tree::node::{Limit, Node};
use crate::tree::queue_handle::QueueHandle;
use narrows_units::{Bytes, Nanos};

/// No class, and no wait queue.
pub(super) const NONE: u32 = u32::MAX;

/// What a leaf waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum State {
    /// Packets.
    #[default]
    Idle,
    /// Its turn.
    Ready,
    /// Credit of its own, or of a class above it.
    Borrows,
    /// What its own ceiling lets pass.
    Closed,
    /// The ceiling of a class above it.
    Held,
    /// Others of its class or priority, which go first at the lenders.
    Aside,
    /// A time.
    Waits,
}

impl State {
    /// Whether the leaf asks again at a time.
    #[inline]
    pub(super) fn has_time(self) -> bool {
        matches!(self, Self::Borrows | Self::Closed | Self::Aside | Self::Waits)
    }
}

/// What a leaf waits for, and its priority: of all leaves together in few cache lines.
#[derive(Clone, Copy, Default)]
pub(super) struct Mark {
    pub(super) state: State,
    pub(super) prio: u8,
}

/// A leaf class, as one queue sees it.
///
/// What an arrival and a turn with credit of its own touch is in the first cache line.
#[repr(C, align(64))]
pub(super) struct Leaf {
    /// Whether it is in its wait queue. It stays there until it comes first, even if it waits no
    /// longer.
    pub(super) is_queued: bool,
    /// Whether a check at `lingers_until` is scheduled.
    pub(super) is_looked_after: bool,
    /// For which classes above it its waiting was announced: a bit for each, by how many classes
    /// are above that one.
    pub(super) announced: u16,
    /// The place of the class above it, or [`NONE`].
    pub(super) parent: u32,
    /// The wait queue of that class for its priority, or [`NONE`].
    pub(super) queue: u32,
    /// What its next packet takes, in bytes.
    pub(super) least: u32,
    pub(super) handle: QueueHandle,
    /// When it asks again.
    pub(super) until: Nanos,
    /// From when on it has credit of its own, if it waits for its ceiling before.
    pub(super) own_from: Nanos,
    /// When to check whether it does; [`Nanos::MAX`] for never.
    pub(super) looked_at: Nanos,
    /// The time until which it counts as active without packets.
    pub(super) lingers_until: Nanos,
    /// What its next turn would take, in bytes, as far as is known; at least what its next packet
    /// does.
    pub(super) want: u32,
}

impl Leaf {
    /// What its next packet takes.
    #[inline]
    pub(super) fn least(&self) -> Bytes {
        Bytes(self.least.into())
    }

    /// It, which is at `place`, asks again at `until`.
    #[inline]
    pub(super) fn wait(&mut self, place: u32, until: Nanos, times: &mut Calendar) {
        self.until = until;
        if until < self.looked_at {
            self.looked_at = until;
            times.insert(until, Event::Leaf(place).to_number());
        }
    }

    /// It waits in its wait queue and those above it no longer.
    #[inline]
    pub(super) fn leave_lenders(&self, queues: &mut [WaitQueue], now: Nanos) {
        let mut at = self.queue;
        while let Some(queue) = queues.get_mut(at as usize) {
            queue.waiting -= 1;
            if queue.waiting > 0 {
                return;
            }
            queue.withdraw(&self.handle.node, now);
            at = queue.above;
        }
    }

    /// The state of the class, which queues share.
    #[inline]
    pub(super) fn node(&self) -> &Node {
        &self.handle.node
    }

    /// Its virtual time for `limit` of the class `above` it.
    #[inline]
    pub(super) fn time(&self, above: &Node, limit: Limit) -> u64 {
        let steps = self.node().depth() - above.depth();
        self.node().time(steps, above.counted(limit))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn a_leaf_takes_two_cache_lines_and_a_turn_with_credit_of_its_own_one() {
        assert_eq!(size_of::<Leaf>(), 2 * 64);
        assert_eq!(offset_of!(Leaf, handle) + QueueHandle::OF_A_TURN, 64);
    }
}
