//! `u32`: four bytes of a packet, some bits of which have a value.

use crate::Subject;

/// Where four bytes stand, and what they are to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Selector {
    /// What they are,
    pub value: u32,
    /// as far as these bits go.
    pub mask: u32,
    /// Where they begin, from the network layer on; before it are the Ethernet header and its tags.
    pub offset: i16,
    /// Whether the offset is from the transport layer on (`nexthdr+`).
    pub is_behind_ip: bool,
}

impl Selector {
    /// Four bytes at `offset` from the network layer on.
    pub fn network(offset: i16, value: u32, mask: u32) -> Self {
        Self { value: value & mask, mask, offset, is_behind_ip: false }
    }

    /// Whether `subject` has them.
    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        let word = subject.word(self.offset, self.is_behind_ip);
        word.is_some_and(|word| (word ^ self.value) & self.mask == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_frame_does_not_match() {
        let frame = [0xaa; 20];
        let subject = Subject::new(&frame).unwrap();
        let at = |offset| Selector::network(offset, 0xaaaa_aaaa, u32::MAX).matches(&subject);
        assert!(at(2) && at(-14) && !at(3) && !at(-15) && !at(i16::MAX) && !at(i16::MIN));
        assert!(Selector::network(0, 5, 0).matches(&subject), "no bit counts");
    }
}
