//! One flow: its queue, its turn, its time. One cache line.

use crate::flow_table::NONE;
use narrows_packet::Fifo;
use narrows_units::Nanos;

/// The state of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Standing {
    /// It has no packets: it is remembered.
    #[default]
    Idle,
    /// It takes turns with others, or will be found without packets at its next one.
    Listed,
    /// It waits for its time.
    Held,
}

/// A flow.
#[repr(align(64))]
pub(super) struct Flow {
    /// Its packets.
    pub(super) queue: Fifo,
    /// When it may begin its next quantum.
    pub(super) due: Nanos,
    /// Since when it is idle, where it is.
    pub(super) idle_since: Nanos,
    /// Bytes that it may still send of its quantum.
    pub(super) credit: i32,
    /// Its neighbours in its list.
    pub(super) next: u32,
    pub(super) previous: u32,
    /// The next flow in its bucket.
    pub(super) chain: u32,
    /// Its key: the masked hash.
    pub(super) key: u32,
    pub(super) standing: Standing,
    /// The band of the packet that came last.
    pub(super) band: u8,
    /// It has started its quantum, and its time is not checked until that is used up.
    pub(super) is_open: bool,
    /// The fraction of `due`, in 1/256 ns.
    pub(super) fraction: u8,
}

impl Flow {
    /// A new one, named `key`, that may send `credit` bytes.
    pub(super) const fn new(key: u32, credit: i32) -> Self {
        Self {
            queue: Fifo::new(),
            due: Nanos::ZERO,
            idle_since: Nanos::ZERO,
            credit,
            next: NONE,
            previous: NONE,
            chain: NONE,
            key,
            standing: Standing::Idle,
            band: 0,
            is_open: false,
            fraction: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_fits_a_cache_line() {
        assert_eq!(size_of::<Flow>(), 64);
    }
}
