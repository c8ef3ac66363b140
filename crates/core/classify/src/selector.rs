//! `u32`: four bytes of a packet under a mask.

use crate::{Network, Subject};

/// The position of four bytes, and their value under a mask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Selector {
    /// The value.
    pub value: u32,
    /// The bits that count.
    pub mask: u32,
    /// The offset from the network layer; the Ethernet header and its tags are at negative offsets.
    pub offset: i16,
    /// Whether the offset is relative to the transport layer (`nexthdr+`).
    pub is_behind_ip: bool,
}

impl Selector {
    /// Four bytes at `offset` from the network layer.
    pub fn network(offset: i16, value: u32, mask: u32) -> Self {
        Self { value: value & mask, mask, offset, is_behind_ip: false }
    }

    /// Whether `subject` matches, whose network layer is `network`.
    pub(crate) fn matches(&self, subject: &Subject<'_>, network: Network) -> bool {
        let word = subject.word(self.offset, self.is_behind_ip, network);
        word.is_some_and(|word| (word ^ self.value) & self.mask == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_the_frame_do_not_match() {
        let frame = [0xaa; 20];
        let subject = Subject::new(&frame).unwrap();
        let matches = |selector: Selector| selector.matches(&subject, Network::Ip);
        let at = |offset| matches(Selector::network(offset, 0xaaaa_aaaa, u32::MAX));
        assert!(at(2) && at(-14) && !at(3) && !at(-15) && !at(i16::MAX) && !at(i16::MIN));
        assert!(matches(Selector::network(0, 5, 0)), "no bit counts");
    }
}
