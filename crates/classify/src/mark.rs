//! `fw`: the mark of a packet.
//!
//! A frame on the wire has none: what there is an earlier `skbedit mark` has set.

/// Some bits of a mark, and what they are to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// What they are,
    pub value: u32,
    /// as far as these bits go.
    pub mask: u32,
}

impl Mark {
    pub(crate) fn matches(self, mark: u32) -> bool {
        (self.value ^ mark) & self.mask == 0
    }
}
