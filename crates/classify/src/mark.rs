//! `fw`: the mark of a packet.
//!
//! A frame on the wire has no mark; only an earlier `skbedit mark` sets one.

/// A value under a mask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The value.
    pub value: u32,
    /// The bits that count.
    pub mask: u32,
}

impl Mark {
    pub(crate) fn matches(self, mark: u32) -> bool {
        (self.value ^ mark) & self.mask == 0
    }
}
