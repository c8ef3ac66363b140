//! `fw`: the mark of a packet.
//!
//! A frame on the wire has no mark; only an earlier `skbedit mark` sets one. As in the kernel, the
//! bits of the mark under the mask must equal the whole value: with a bit beside the mask it
//! matches nothing.

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
        mark & self.mask == self.value
    }

    /// Whether no packet matches.
    pub fn is_impossible(self) -> bool {
        self.value & !self.mask != 0
    }
}
